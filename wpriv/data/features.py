"""Features somebody extracted: rows of numbers with labels, from a .npz or a .mat file."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from wpriv.core.parameters import Parameters, parameter
from wpriv.data._files import File, Place, content, mat, named
from wpriv.data._record import Array, Data, held_out
from wpriv.errors import MissingResource, UsageError
from wpriv.files import array_files

ABOUT = "rows of numbers with labels, from your own .npz or .mat"
GET = "Give the path of a file with an array of rows and one of labels: --param file=PATH."
LIMIT = 2_000_000_000


@dataclass(frozen=True)
class Params(Parameters):
    """Which file and arrays, and what to test on."""

    file: str = parameter("path of a .npz or .mat file, as it stands or below the data root")
    test_file: str = parameter("another one for testing; else a share of the rows is held out", default="")
    features: str = parameter("name of the array of rows, [N, D]; found by its shape where not given", default="")
    labels: str = parameter("name of the array of labels, [N]; found by its shape where not given", default="")
    test_share: float = parameter("share of the rows held out for testing", default=0.2, minimum=0)
    split_seed: int = parameter("seed of that choice", default=0, minimum=0)


def read(root: Path | None, params: Params) -> Data:
    """[N, D] float32 as in the file; labels are numbered in the order of their values, and ``classes`` has these."""
    x, y, first = _rows(named(params.name, "file", params.file, root), params)
    if params.test_file:
        x_test, y_test, second = _rows(named(params.name, "file", params.test_file, root), params)
        files: tuple[File, ...] = (first, second)
    else:
        train, test = held_out(len(x), params.test_share, params.split_seed)
        x, y, x_test, y_test, files = x[train], y[train], x[test], y[test], (first,)
    values = np.unique(np.concatenate([y, y_test]))
    return Data(
        name=f"{params.name}:{first.path.stem}",
        x_train=x,
        y_train=np.searchsorted(values, y),
        x_test=x_test,
        y_test=np.searchsorted(values, y_test),
        classes=tuple(str(value) for value in values),
        source=str(first.path),
        files=files,
        notes=("the set of classes was read from the labels: it is taken as public",),
    )


def _rows(path: Path, params: Params) -> tuple[Array, Array, File]:
    raw = content(path, LIMIT)
    arrays = mat(path, raw) if path.suffix.lower() == ".mat" else npz(path, raw)
    x = _chosen(arrays, params.features, "features", path, lambda a: a.ndim == 2 and min(a.shape) > 1)
    y = _chosen(arrays, params.labels, "labels", path, lambda a: a.size == len(x) and max(a.shape) == a.size)
    whole = (
        y.reshape(-1).astype(np.int64)
        if y.dtype.kind in "iuf" and np.isfinite(y).all() and (np.abs(y) < 2**53).all()
        else None
    )
    if x.ndim != 2 or x.dtype.kind not in "iuf" or whole is None or not np.array_equal(whole, y.reshape(-1)):
        raise MissingResource(
            f"{path}: wanted rows of numbers, [N, D], and whole labels; found {x.dtype} {list(x.shape)}, {y.dtype} {list(y.shape)}"
        )
    return x.astype(np.float32), whole, Place(params.name, GET, ()).verdict(path, raw, False)


def npz(path: Path, raw: bytes, limit: int = LIMIT) -> dict[str, Array]:
    """The arrays of a .npz file by name.

    Raises:
        MissingResource: it is damaged, holds more than ``limit`` bytes, or something else than numbers and text.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            if sum(item.file_size for item in archive.infolist()) > limit:
                raise MissingResource(f"{path}: holds more than {limit:,} bytes when unpacked")
        return array_files.npz(io.BytesIO(raw), limit)
    except array_files.DAMAGED as error:
        raise MissingResource(f"{path}: not a whole .npz file of numbers ({str(error)[:120]})") from None


def _chosen(arrays: dict[str, Array], name: str, role: str, path: Path, fits: Callable[[Array], bool]) -> Array:
    """The array of that name, or the only one that fits."""
    told = ", ".join(f"{key} {list(array.shape)}" for key, array in arrays.items()) or "none"
    if name:
        if name not in arrays:
            raise UsageError(f"{path}: has no array called {name!r} for the {role}; found {told}")
        return arrays[name]
    able = [array for array in arrays.values() if fits(array)]
    if len(able) != 1:
        raise UsageError(
            f"{path}: {len(able)} arrays could be the {role}; name one with the parameter {role}. Found {told}"
        )
    return able[0]
