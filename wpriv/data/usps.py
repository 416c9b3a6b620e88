"""USPS: 7291 and 2007 digits from envelopes, 16x16; from LIBSVM files or from usps.mat."""

from __future__ import annotations

import bz2
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from wpriv.core.parameters import Parameters, parameter
from wpriv.data import _mat
from wpriv.data._dataset import Array, Data
from wpriv.data._files import File, FileSet, display_name, read_bytes
from wpriv.errors import MissingResource

ABOUT = "digits from envelopes, 7291 + 2007 of 1x16x16"
SOURCE = "Hull 1994: A database for handwritten text recognition research (USPS)"
SHAPE, CLASSES = (1, 16, 16), tuple("0123456789")
GET = "Get usps.bz2 and usps.t.bz2 from https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/multiclass.html."
FILES = FileSet(
    name="usps",
    get=GET,
    layouts=(("usps.bz2", "usps.t.bz2"), ("usps.mat",)),
    folders=("usps", "USPS"),
    system=("/usr/share/datasets/usps",),
    published={"usps.bz2": "ec16c51db3855ca6c91edd34d0e9b197", "usps.t.bz2": "8ea070ee2aca1ac39742fdd1ef5ed118"},
    known={"usps.mat": "7d225484538e61a6e915f6bb2d7ff55edaf2f59f66cfc577ae271871e8f5ece5"},
)
LIMIT = 100_000_000  # bytes of one file unpacked: four times the largest
PIXELS = 16 * 16


@dataclass(frozen=True)
class Params(Parameters):
    """The option to refuse files other than the published ones."""

    verify: bool = parameter(
        "refuse LIBSVM files whose checksum is not the published one (usps.mat has none)", default=True
    )


def read(root: Path | None, params: Params) -> Data:
    """Return [N, 1, 16, 16] float32 images in [0, 1], background 0; labels 0 to 9."""
    paths = FILES.find(root)
    raws = [read_bytes(path, LIMIT) for path in paths]
    files: list[File] = [FILES.check(path, raw, params.verify) for path, raw in zip(paths, raws, strict=True)]
    if len(paths) == 1:
        # Xt, Lt are for training, Xs, Ls for testing
        arrays = _mat.parse(paths[0], raws[0], ("Xt", "Lt", "Xs", "Ls"))
        parts = [_from_columns(arrays[f"X{part}"], arrays[f"L{part}"], paths[0]) for part in "ts"]
    else:
        parts = [_from_libsvm(raw, path) for raw, path in zip(raws, paths, strict=True)]
    (x_train, y_train), (x_test, y_test) = parts
    return Data(display_name(params, files), x_train, y_train, x_test, y_test, CLASSES, SOURCE, tuple(files))


def _from_columns(x: Array, y: Array, path: Path) -> tuple[Array, Array]:
    """Convert images stored as columns, each in column-major order, with pixels from 0 to 2."""
    if x.ndim != 2 or x.shape[0] != PIXELS or x.dtype.kind not in "iuf" or y.dtype.kind not in "iu":
        raise MissingResource(
            f"{path}: wanted images of [{PIXELS}, N] numbers and integer labels; found {list(x.shape)} and {y.dtype}"
        )
    images = x.T.reshape(-1, 1, 16, 16).transpose(0, 1, 3, 2) / 2
    return _clipped(images, path), y.reshape(-1).astype(np.int64)


def _from_libsvm(raw: bytes, path: Path) -> tuple[Array, Array]:
    """Parse lines ``label index:value ...``: labels 1 to 10 for the digits 0 to 9, indices 1 to 256, values -1 to 1.

    A value that is left out is 0, as the format has it: a pixel of medium grey. The published files leave out none.
    """
    try:
        decompressor = bz2.BZ2Decompressor()
        text = decompressor.decompress(raw, LIMIT).decode("ascii")
        if not decompressor.eof or decompressor.unused_data:
            raise ValueError(f"truncated, more than {LIMIT:,} bytes when unpacked, or packed in several parts")
        rows = [line.split() for line in text.splitlines()]
        images = np.zeros((len(rows), PIXELS))
        for row, image in zip(rows, images, strict=True):
            for pair in row[1:]:
                index, _, value = pair.partition(":")
                image[_zero_based(int(index))] = float(value)
        labels = np.array([int(float(row[0])) - 1 for row in rows], dtype=np.int64)
    except (OSError, EOFError, ValueError, IndexError, OverflowError) as error:
        raise MissingResource(f"{path}: not a complete LIBSVM file of 16x16 images ({str(error)[:120]})") from None
    return _clipped((images.reshape(-1, 1, 16, 16) + 1) / 2, path), labels


def _zero_based(index: int) -> int:
    if not 1 <= index <= PIXELS:
        raise ValueError(f"pixel {index} of {PIXELS}")
    return index - 1


def _clipped(images: Array, path: Path) -> Array:
    """Clip rounding errors beyond [0, 1] and refuse larger ones."""
    if images.size and not (images.min() >= -1e-6 and images.max() <= 1 + 1e-6):  # also false for NaN
        raise MissingResource(
            f"{path}: pixels must lie from 0 to 1 once scaled; found {images.min():g} to {images.max():g}"
        )
    return np.clip(images, 0, 1).astype(np.float32)
