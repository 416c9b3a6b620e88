"""A .npz file with arrays of records and labels: images, or rows of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wpriv.core.parameters import Parameters, parameter
from wpriv.errors import FaultyRecords
from wpriv.training.data import _classes
from wpriv.training.data._arrays import Split, of_arrays
from wpriv.training.data._dataset import Data
from wpriv.training.data._files import File, read_bytes, resolve_path
from wpriv.training.data.features import parse_npz

ABOUT = "your own arrays of images or rows, in a .npz file"
GET = (
    "Give the path of a .npz file with x_train, y_train, x_test and y_test, or with x and y: --param file=PATH "
    "(in a recipe, data: {name: arrays, file: PATH}); numpy.savez writes one."
)
SPLIT, JOINT = ("x_train", "y_train", "x_test", "y_test"), ("x", "y")


@dataclass(frozen=True)
class Params(Parameters):
    """The file, and the test split where it has none."""

    file: str = parameter("path of the .npz file, as it stands or below the data root")
    tokens: int = parameter(
        "size of the vocabulary, where x holds tokens: whole numbers [N, T] below it, which stay whole; else 0",
        default=0,
        minimum=0,
    )
    classes: Sequence[Any] | str = parameter(_classes.LABELS, default="")
    test_share: float = parameter("share held out for testing, where the file has x and y only", default=0.2, minimum=0)
    split_seed: int = parameter("seed of that choice", default=0, minimum=0)


def read(root: Path | None, params: Params) -> Data:
    """Return [N, C, H, W] or [N, D] records, uint8 or float32 as in the file. Whole labels keep their numbers.

    With ``tokens`` records are [N, T] int64.
    """
    path = resolve_path(params.name, "file", params.file, root)
    raw = read_bytes(path)
    arrays = parse_npz(path, raw)
    if all(name in arrays for name in SPLIT):
        train, test = (arrays["x_train"], arrays["y_train"]), (arrays["x_test"], arrays["y_test"])
    elif all(name in arrays for name in JOINT):
        train, test = (arrays["x"], arrays["y"]), None
    else:
        shapes = ", ".join(f"{key} {list(array.shape)}" for key, array in arrays.items()) or "none"
        raise FaultyRecords(f"{path}: wanted the arrays {', '.join(SPLIT)}, or x and y; found {shapes}")
    split = Split(params.test_share, params.split_seed)
    file = File.unverified(path, raw)
    return of_arrays(
        f"{params.name}:{path.stem}",
        train,
        test,
        source=str(path),
        split=split,
        files=(file,),
        declared=_classes.class_names(params.name, params.classes),
        tokens=params.tokens,
    )
