"""The IDX format of MNIST: two zero bytes, a type, the number of axes, their big-endian sizes, the content."""

from __future__ import annotations

import math
import struct
from pathlib import Path

import numpy as np

from wpriv.core.parameters import Parameters
from wpriv.data._dataset import Array, Data
from wpriv.data._files import FileSet, display_name, read_bytes
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


def read(
    file_set: FileSet, params: Parameters, verify: bool, root: Path | None, classes: tuple[str, ...], source: str
) -> Data:
    """Read the four files of a data set in the layout of MNIST: [N, 1, H, W] uint8 images."""
    arrays, files = [], []
    for path, rank in zip(file_set.find(root), (3, 1, 3, 1), strict=True):
        raw = read_bytes(path, LIMIT)
        arrays.append(parse(raw, path, rank))
        files.append(file_set.check(path, raw, verify))
    x_train, y_train, x_test, y_test = arrays
    return Data(
        name=display_name(params, files),
        x_train=x_train[:, None],
        y_train=y_train.astype(np.int64),
        x_test=x_test[:, None],
        y_test=y_test.astype(np.int64),
        classes=classes,
        source=source,
        files=tuple(files),
    )
