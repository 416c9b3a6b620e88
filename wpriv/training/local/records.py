"""Records to privatise: those of a data set by name, or the rows of an array in a .npz, .npy or .csv file."""

from __future__ import annotations

import contextlib
import io
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wpriv.errors import MissingResource, UsageError
from wpriv.files import csv_tables
from wpriv.files.array_files import DAMAGED, load, npz
from wpriv.files.csv_tables import CsvError, CsvTable
from wpriv.numerics.numbers import shown
from wpriv.training import data
from wpriv.training.data._files import read_bytes, resolve_path

Array = NDArray[Any]
ENDINGS = (".npz", ".npy", ".csv")
PARTS = ("train", "test")
LIMIT = 8_000_000_000  # bytes of one file
LARGEST = 1e100
SLICE = 4096  # records validated together


@dataclass(frozen=True, eq=False)
class Records:
    """N records of one shape, up to ``LARGEST`` or bytes for n/255; ``labels`` or None; ``notes`` on the reading."""

    x: Array
    name: str
    labels: Array | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        x = self.x
        if x.dtype.kind not in "uif" or x.dtype.itemsize > 8 or x.ndim < 1:
            raise MissingResource(f"{self.name}: wanted numbers, one record a row; found {x.dtype} {list(x.shape)}")
        if x.size == 0:
            raise MissingResource(f"{self.name}: there are no records; found the shape {list(x.shape)}")
        if x.ndim == 1:
            x = x[:, None]
            object.__setattr__(self, "x", x)
        for start in range(0, len(x), SLICE):
            wrong = ~(np.abs(x[start : start + SLICE].astype(np.float64)) <= LARGEST)
            if wrong.any():
                row = start + int(np.argmax(wrong.any(axis=tuple(range(1, wrong.ndim)))))
                raise MissingResource(
                    f"{self.name}: all numbers must be finite and at most {LARGEST:g} in magnitude; "
                    f"record {row} has one that is not"
                )

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one record."""
        return self.x.shape[1:]

    def rows(self, start: int, stop: int) -> Array:
        """Return some records as [n, *shape] float64, in the units that are clipped."""
        part = self.x[start:stop].astype(np.float64)
        return part / 255 if self.x.dtype == np.uint8 else part


def records(
    source: object,
    root: Path | None = None,
    *,
    array: str = "",
    header: bool | None = None,
    limit: int | None = None,
    parameters: Mapping[str, Any] | None = None,
) -> Records:
    """Read the records of a source.

    Args:
        source: an array [N, ...]; a file (.npz, .npy, .csv, by its ending); a data set, such as ``mnist:test``; or
            Records.
        root: folder of data sets. array: the name of the array in a .npz with several. limit: only the first records.
        header: whether the first line of a .csv names its columns; found from its cells where it is clear.
        parameters: of the data set's reader.
    Raises:
        UsageError: no such data set, or an array that must be named. MissingResource: no such file, a damaged one, no
            records, or a number that is not finite.
    """
    labels: Array | None = None
    notes: tuple[str, ...] = ()
    ending = Path(source).suffix.lower() if isinstance(source, (str, Path)) else ""
    if not isinstance(array, str) or not isinstance(header, bool | None):
        raise UsageError(f"`array` must be a name and `header` true or false; found {shown(array)} and {shown(header)}")
    if array and ending != ".npz":
        raise UsageError("`array` names an array of a .npz file, and these records are in none; leave it out")
    if header is not None and ending != ".csv":
        raise UsageError("`header` is about the first line of a .csv file, and these records are in none; leave it out")
    if isinstance(source, Records):
        x, name, labels, notes = source.x, source.name, source.labels, source.notes
    elif isinstance(source, np.ndarray):
        x, name = source, "the array"
    elif not isinstance(source, (str, Path)):
        raise UsageError(
            f"data must be an array, the name of a data set, or a path ending in {', '.join(ENDINGS)}; "
            f"found {type(source).__name__}"
        )
    elif str(source).lower().endswith(ENDINGS):
        if parameters:
            raise UsageError(
                f"parameters ({', '.join(parameters)}) need the name of a data set; {source} is a file and has none"
            )
        x, labels, notes = _file(resolve_path("data", "file", str(source), root), array, header)
        name = str(source)
    else:
        x, name, labels, notes = _data_set(str(source), root, parameters or {})
    if limit is not None:
        if limit < 1:
            raise UsageError(f"the limit must be a number of records, at least 1; found {limit}")
        x, labels = x[:limit], None if labels is None else labels[:limit]
    if x.dtype == np.uint8:
        notes = (*notes, "bytes were divided by 255")
    return Records(x, name, labels, notes)


def _data_set(
    source: str, root: Path | None, parameters: Mapping[str, Any]
) -> tuple[Array, str, Array, tuple[str, ...]]:
    name, colon, part = source.partition(":")
    if colon and part not in PARTS:
        raise UsageError(f"a data set is given as {name}, {name}:train or {name}:test; found {source[:80]!r}")
    loaded = data.read(name, root=root, **parameters)
    if loaded.vocabulary:
        raise UsageError(f"{loaded.name} holds tokens, which are names of words and no quantities: noise means nothing")
    x, y = (loaded.x_test, loaded.y_test) if part == "test" else (loaded.x_train, loaded.y_train)
    return x, f"{loaded.name}:{part or 'train'}", y, loaded.notes


def _file(path: Path, array: str, header: bool | None) -> tuple[Array, Array | None, tuple[str, ...]]:
    raw = read_bytes(path, LIMIT)
    if path.suffix.lower() == ".csv":
        x, note = _csv(path, raw, header)
        return x, None, (note,)
    try:
        loaded = load(io.BytesIO(raw))
        if isinstance(loaded, np.ndarray):
            return loaded, None, ()
        arrays = npz(io.BytesIO(raw), LIMIT)
    except DAMAGED as error:
        raise MissingResource(f"{path}: not a complete {path.suffix} file of numbers ({str(error)[:120]})") from None
    return (*_chosen(path, arrays, array), ())


def _chosen(path: Path, arrays: dict[str, Array], array: str) -> tuple[Array, Array | None]:
    """Return the named array, or ``x``, or the only one, with ``y`` as its labels where it exists."""
    name = array or ("x" if "x" in arrays else next(iter(arrays)) if len(arrays) == 1 else "")
    if name not in arrays:
        reason = f"has no array called {array!r}" if array else "has several arrays; name the records with `array`"
        names = ", ".join(f"{key} {list(value.shape)}" for key, value in arrays.items()) or "none"
        raise UsageError(f"{path}: {reason}. Found {names}")
    return arrays[name], arrays.get("y") if name != "y" else None


def _csv(path: Path, raw: bytes, header: bool | None) -> tuple[Array, str]:
    """Return a table of numbers as [N, D] float64, and how its first line was read."""
    try:
        text = csv_tables.decode(raw)
        lines = [row for _, row in itertools.islice(csv_tables.rows(text), 2)]
        first, second = lines[0] if lines else [], lines[1] if len(lines) > 1 else []
        headed = _is_header(path, first, second) if header is None else header
        if headed and csv_tables.has_index_column(first):
            raise CsvError("the first column has no name, as pandas writes the numbers of rows; use index=False", 1)
        x = CsvTable.parse(text, headed=headed).matrix()
    except CsvError as error:
        raise MissingResource(
            f"{path}: wanted a number in every cell below a line of names; {str(error)[:200]}"
        ) from None
    return x, f"the first line of the file was read as {'the names of its columns' if headed else 'a record'}"


def _is_header(path: Path, first: list[str], second: list[str]) -> bool:
    """Tell whether the first row of a table names its columns, rather than being a record."""
    numbers = _numbers(first)
    if not numbers:
        return True
    names = _look_like_names(numbers) and second != [] and not _count_up(_numbers(second))
    if len(numbers) == len(first) and not names:
        return False
    why = "are numbers that count up, as names of columns may" if names else "are numbers in part"
    raise UsageError(
        f"{path}: the cells of the first line {why}: {', '.join(first)[:80]}. Say by `header` whether the line "
        f"names the columns or is a record"
    )


def _numbers(cells: list[str]) -> list[float]:
    numbers = []
    for cell in cells:
        with contextlib.suppress(ValueError):
            numbers.append(csv_tables.number(cell))
    return numbers


def _look_like_names(numbers: list[float]) -> bool:
    """Tell whether numbers count up as names of columns do: from 0 or 1, as pandas numbers columns, or as years do."""
    columns = len(numbers) > 2 and numbers[0] in (0, 1) and numbers[1] - numbers[0] == 1
    years = len(numbers) > 1 and 1900 <= numbers[0] < numbers[-1] <= 2100
    return _count_up(numbers) and (columns or years)


def _count_up(numbers: list[float]) -> bool:
    """Tell whether numbers rise by equal steps."""
    steps = {after - before for before, after in itertools.pairwise(numbers)}
    return len(steps) == 1 and min(steps) > 0
