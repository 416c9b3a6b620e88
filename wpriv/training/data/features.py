"""Extracted features: rows of numbers with labels, from a .npz or a .mat file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from wpriv.core.parameters import Parameters, parameter
from wpriv.errors import FaultyRecords, UsageError
from wpriv.training.data import _classes, _formats
from wpriv.training.data._dataset import Array, Data, narrowed
from wpriv.training.data._files import File, read_bytes, resolve_path
from wpriv.training.data.arrays import of_arrays

ABOUT = "rows of numbers with labels, from your own .npz or .mat"
GET = (
    "Give the path of a file with an array of rows and one of labels: --param file=PATH "
    "(in a recipe, data: {name: features, file: PATH})."
)


@dataclass(frozen=True)
class Params(Parameters):
    """The files and arrays, and the test split."""

    file: str = parameter("path of a .npz or .mat file, as it stands or below the data root")
    test_file: str = parameter("another one for testing; else a share of the rows is held out", default="")
    features: str = parameter("name of the array of rows, [N, D]; found by its shape where not given", default="")
    labels: str = parameter("name of the array of labels, [N]; found by its shape where not given", default="")
    classes: Sequence[object] | str = parameter(_classes.LABELS, default="")
    test_share: float = parameter("share of the rows held out for testing", default=0.2, minimum=0)
    split_seed: int = parameter("seed of that choice", default=0, minimum=0)


def read(root: Path | None, params: Params) -> Data:
    """Return [N, D] float32 as in the file. Labels keep their numbers, unless others are declared."""
    names = (params.file, *([params.test_file] if params.test_file else []))
    parts = [_rows(resolve_path(params.name, "file", name, root), params) for name in names]
    first = parts[0][2]
    data = of_arrays(
        f"{params.name}:{first.path.stem}",
        parts[0][:2],
        parts[1][:2] if params.test_file else None,
        source=str(first.path),
        share=params.test_share,
        seed=params.split_seed,
        files=tuple(file for *_, file in parts),
        declared=_classes.class_names(params.name, params.classes),
    )
    if data.response:
        y = data.response_train
        assert y is not None
        raise FaultyRecords(
            f"{data.name}: whole labels are the numbers of their classes, from 0 to {_classes.MAX_CLASSES - 1}; found "
            f"{y.min()} to {y.max()}. Declare the label of each class by classes, such as classes: [-1, 1]"
        )
    return data


def label_values(root: Path | None, file: str) -> tuple[str, ...]:
    """Return the sorted labels of a file of features, each once, as classes to declare where the file is public."""
    y = _rows(resolve_path("features", "file", file, root), Params(file=file))[1]
    return tuple(str(value) for value in np.unique(y))


def _rows(path: Path, params: Params) -> tuple[Array, Array, File]:
    """Return the rows and the integer labels in a file."""
    raw = read_bytes(path)
    arrays = _formats.parse_mat(path, raw) if path.suffix.lower() == ".mat" else _formats.parse_npz(path, raw)
    x = _select(arrays, params.features, "features", path, lambda a: a.ndim == 2 and min(a.shape) > 1)
    count = len(x) if x.ndim else 0
    y = _select(arrays, params.labels, "labels", path, lambda a: a.ndim > 0 and a.size == max(a.shape) == count)
    exact = y.dtype.kind in "iuf" and np.isfinite(y).all() and (np.abs(y) < 2**53).all()
    labels = y.reshape(-1).astype(np.int64) if exact else None
    if x.ndim != 2 or x.dtype.kind not in "iuf" or labels is None or not np.array_equal(labels, y.reshape(-1)):
        raise FaultyRecords(
            f"{path}: wanted rows of numbers, [N, D], and integer labels; "
            f"found {x.dtype} {list(x.shape)}, {y.dtype} {list(y.shape)}"
        )
    return narrowed(x), labels, File.unverified(path, raw)


def _select(arrays: dict[str, Array], name: str, role: str, path: Path, fits: Callable[[Array], bool]) -> Array:
    """Return the array of that name, or the only one that fits."""
    shapes = ", ".join(f"{key} {list(array.shape)}" for key, array in arrays.items()) or "none"
    if name:
        if name not in arrays:
            raise UsageError(f"{path}: has no array called {name!r} for the {role}; found {shapes}")
        return arrays[name]
    candidates = [array for array in arrays.values() if fits(array)]
    if len(candidates) != 1:
        raise UsageError(
            f"{path}: {len(candidates)} arrays could be the {role}; name one with the parameter {role}. Found {shapes}"
        )
    return candidates[0]
