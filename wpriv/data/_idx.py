"""The IDX format of MNIST and its kin: two zero bytes, a type, a rank, the big-endian sizes, the bytes."""

from __future__ import annotations

import math
import struct
from pathlib import Path

import numpy as np

from wpriv.core.parameters import Parameters
from wpriv.data._files import Place, content, unverified
from wpriv.data._record import Array, Data
from wpriv.errors import MissingResource

LAYOUT = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
DOTTED = tuple(name.replace("-idx", ".idx") for name in LAYOUT)
LIMIT = 200_000_000  # bytes of one file unpacked: four times the largest of MNIST
BYTES = 0x08


def parse(raw: bytes, path: Path, rank: int) -> Array:
    """An array of bytes from an IDX file.

    Raises:
        MissingResource: another magic number, rank or length than the header says.
    """
    magic = struct.pack(">HBB", 0, BYTES, rank)
    if raw[:4] != magic:
        raise MissingResource(
            f"{path}: wanted an IDX file of bytes with {rank} axes (magic {magic.hex()}); found {raw[:4].hex() or 'nothing'}"
        )
    start = 4 + 4 * rank
    if len(raw) < start:
        raise MissingResource(f"{path}: cut off inside its header; found {len(raw)} bytes of {start}")
    shape = struct.unpack(f">{rank}I", raw[4:start])
    if len(raw) - start != math.prod(shape):
        raise MissingResource(
            f"{path}: its header tells of {math.prod(shape):,} bytes ({list(shape)}); found {len(raw) - start:,}. Fetch it again"
        )
    return np.frombuffer(raw, np.uint8, offset=start).reshape(shape)


def read(
    place: Place, params: Parameters, verify: bool, root: Path | None, classes: tuple[str, ...], source: str
) -> Data:
    """The four files of a data set in the layout of MNIST: [N, 1, H, W] uint8 images."""
    arrays, files = [], []
    for path, rank in zip(place.find(root), (3, 1, 3, 1), strict=True):
        raw = content(path, LIMIT)
        arrays.append(parse(raw, path, rank))
        files.append(place.verdict(path, raw, verify))
    x_train, y_train, x_test, y_test = arrays
    return Data(
        name=unverified(params, files),
        x_train=x_train[:, None],
        y_train=y_train.astype(np.int64),
        x_test=x_test[:, None],
        y_test=y_test.astype(np.int64),
        classes=classes,
        source=source,
        files=tuple(files),
    )
