"""Pictures as arrays of bytes: a square from the middle of each, resized."""

from __future__ import annotations

import io
import math
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from wpriv.errors import FaultyRecords, MissingResource
from wpriv.training.data._dataset import Array, Arrays
from wpriv.training.data._files import MAX_BYTES, FileSet

MAX_PIXELS = 50_000_000  # of one picture
MORE_THAN_BYTES = ("I", "F")  # the first letters of Pillow's modes with more than 8 bits a channel


def square(image: Any, place: str, *, size: int, grey: bool, crop: int = 0) -> Array:
    """Return the square in the middle of a picture, upright and resized, as [1 or 3, size, size] bytes.

    Args:
        image: of Pillow, not loaded yet. place: of the picture, for messages. crop: side of the square; 0 takes the
            largest.
    Raises:
        FaultyRecords: it has too many pixels, or too few for the crop; or more than 8 bits a channel, which Pillow
            would cut to the largest byte instead of scaling them.
        What Pillow raises at a damaged file.
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


# The IDX format of MNIST: two zero bytes, a type, the number of axes, their big-endian sizes, the content.

LAYOUT = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
DOTTED = tuple(name.replace("-idx", ".idx") for name in LAYOUT)
LIMIT = 200_000_000  # bytes of one file unpacked: four times the largest of MNIST
UNSIGNED_BYTE = 0x08


def parse_idx(raw: bytes, path: Path, rank: int) -> Array:
    """Return the array of bytes in an IDX file.

    Raises:
        MissingResource: the magic number, the number of axes or the length is wrong.
    """
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


def file_set(name: str, get: str, folder: str, checksums: Sequence[str]) -> FileSet:
    """The files of a data set in the layout of MNIST.

    Args:
        folder: in which torchvision puts them. checksums: MD5 of the unpacked content of each, in the order of LAYOUT,
            which does not depend on the gzip program.
    """
    names = zip((*LAYOUT, *DOTTED), (*checksums, *checksums), strict=True)
    system, folders = (f"/usr/share/datasets/{name}",), (name, folder)
    return FileSet(name, get, (LAYOUT, DOTTED), folders, system, published=dict(names))


def decode(paths: Sequence[Path], raws: Sequence[bytes]) -> Arrays:
    """Return the [N, 1, H, W] uint8 images and the labels of the four files of such a data set."""
    x, y, x_test, y_test = (
        parse_idx(raw, path, rank) for raw, path, rank in zip(raws, paths, (3, 1, 3, 1), strict=True)
    )
    return x[:, None], y.astype(np.int64), x_test[:, None], y_test.astype(np.int64)


# MATLAB files, before version 7.3.

MAX_NUMBERS = MAX_BYTES // 8  # of one array


def parse_mat(path: Path, raw: bytes, names: Sequence[str] = ()) -> dict[str, Array]:
    """Return the numeric arrays of a MATLAB file by name: those of ``names``, or all; sparse ones with their zeros.

    Raises:
        MissingResource: it is damaged or of version 7.3, lacks one of ``names``, or has an array beyond
            ``MAX_NUMBERS``.
    """
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
    except (
        MatReadError,
        ValueError,
        TypeError,
        KeyError,
        IndexError,
        NotImplementedError,
        EOFError,
        OSError,
        zlib.error,
    ) as error:
        reason = str(error)[:120] or type(error).__name__
        raise MissingResource(f"{path}: not a complete MATLAB file ({reason})") from None
    dense = {name: value.toarray() if issparse(value) else value for name, value in arrays.items()}
    return {name: dense[name] for name in sizes if isinstance(dense.get(name), np.ndarray)}
