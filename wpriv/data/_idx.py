"""The IDX format of MNIST: two zero bytes, a type, the number of axes, their big-endian sizes, the content."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from wpriv.data._dataset import Array, Arrays
from wpriv.data._files import FileSet
from wpriv.errors import MissingResource

LAYOUT = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
DOTTED = tuple(name.replace("-idx", ".idx") for name in LAYOUT)
LIMIT = 200_000_000  # bytes of one file unpacked: four times the largest of MNIST
UNSIGNED_BYTE = 0x08


def parse(raw: bytes, path: Path, rank: int) -> Array:
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
    x, y, x_test, y_test = (parse(raw, path, rank) for raw, path, rank in zip(raws, paths, (3, 1, 3, 1), strict=True))
    return x[:, None], y.astype(np.int64), x_test[:, None], y_test.astype(np.int64)
