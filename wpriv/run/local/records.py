"""Records to privatise: those of a data set by name, or the rows of an array in a .npz, .npy or .csv file."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wpriv import data
from wpriv.data._files import read_bytes, resolve_path
from wpriv.errors import MissingResource, UsageError
from wpriv.files import csv_tables
from wpriv.files.array_files import DAMAGED, load
from wpriv.files.csv_tables import CsvError, CsvTable

Array = NDArray[Any]
ENDINGS = (".npz", ".npy", ".csv")
PARTS = ("train", "test")
LIMIT = 8_000_000_000  # bytes of one file
LARGEST = 1e100
SLICE = 4096  # records looked at together


@dataclass(frozen=True, eq=False)
class Records:
    """N records of one shape with finite numbers up to ``LARGEST``; bytes stand for multiples of 1/255.

    ``labels`` are there where the source has some. ``told`` says how the source was read.
    """

    x: Array
    name: str
    labels: Array | None = None
    told: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.x.dtype.kind not in "uif" or self.x.dtype.itemsize > 8 or self.x.ndim < 1:
            raise MissingResource(
                f"{self.name}: wanted numbers, one record a row; found {self.x.dtype} {list(self.x.shape)}"
            )
        if self.x.size == 0:
            raise MissingResource(f"{self.name}: there are no records; found the shape {list(self.x.shape)}")
        if self.x.ndim == 1:
            object.__setattr__(self, "x", self.x[:, None])
        for start in range(0, len(self.x), SLICE):
            wrong = ~(np.abs(self.x[start : start + SLICE].astype(np.float64)) <= LARGEST)
            if wrong.any():
                row = start + int(np.argmax(wrong.any(axis=tuple(range(1, wrong.ndim)))))
                raise MissingResource(
                    f"{self.name}: every number must be finite, and at most {LARGEST:g} in size; record {row} has one that is not"
                )

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one record."""
        return self.x.shape[1:]

    def rows(self, start: int, stop: int) -> Array:
        """[n, *shape] float64 of some records, in the units that are clipped."""
        part = self.x[start:stop].astype(np.float64)
        return part / 255 if self.x.dtype == np.uint8 else part


def records(
    source: Any,
    root: Path | None = None,
    *,
    array: str = "",
    limit: int | None = None,
    given: Mapping[str, Any] | None = None,
) -> Records:
    """The records of a source.

    Args:
        source: an array [N, ...] or records as they are; a file (.npz, .npy, .csv, by its ending); or a data set, as ``mnist:test``.
        root: where data sets lie. array: the name of the array in a .npz with several. limit: the first so many records only.
        given: parameters of the data set's reader.
    Raises:
        UsageError: no such data set, or an array that must be named. MissingResource: no such file, a damaged one, no records,
            or a number that is not finite.
    """
    labels: Array | None = None
    told: tuple[str, ...] = ()
    if isinstance(source, Records):
        x, name, labels, told = source.x, source.name, source.labels, source.told
    elif isinstance(source, np.ndarray):
        x, name = source, "the array"
    elif not isinstance(source, (str, Path)):
        raise UsageError(
            f"data is an array, the name of a data set or a path ending in {', '.join(ENDINGS)}; found {type(source).__name__}"
        )
    elif str(source).lower().endswith(ENDINGS):
        if given:
            raise UsageError(
                f"parameters ({', '.join(given)}) are for the reader of a data set; {source} is read as it is"
            )
        x, labels = _file(resolve_path("data", "file", str(source), root), array)
        name = str(source)
    else:
        x, name, labels, told = _data_set(str(source), root, given or {})
    if limit is not None:
        if limit < 1:
            raise UsageError(f"the limit is a number of records, at least 1; found {limit}")
        x, labels = x[:limit], None if labels is None else labels[:limit]
    if x.dtype == np.uint8:
        told = (*told, "bytes were divided by 255")
    return Records(x, name, labels, told)


def _data_set(source: str, root: Path | None, given: Mapping[str, Any]) -> tuple[Array, str, Array, tuple[str, ...]]:
    name, colon, part = source.partition(":")
    if colon and part not in PARTS:
        raise UsageError(f"a data set is named as {name} or {name}:train or {name}:test; found {source[:80]!r}")
    read = data.read(name, root=root, **given)
    x, y = (read.x_test, read.y_test) if part == "test" else (read.x_train, read.y_train)
    return x, f"{read.name}:{part or 'train'}", y, read.notes


def _file(path: Path, array: str) -> tuple[Array, Array | None]:
    raw = read_bytes(path, LIMIT)
    if path.suffix.lower() == ".csv":
        return _csv(path, raw), None
    try:
        found = load(io.BytesIO(raw))
        if isinstance(found, np.ndarray):
            return found, None
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            if sum(item.file_size for item in archive.infolist()) > LIMIT:
                raise MissingResource(f"{path}: holds more than {LIMIT:,} bytes when unpacked")
        arrays = {name: found[name] for name in found.files}
    except DAMAGED as error:
        raise MissingResource(f"{path}: not a whole {path.suffix} file of numbers ({str(error)[:120]})") from None
    return _chosen(path, arrays, array)


def _chosen(path: Path, arrays: dict[str, Array], array: str) -> tuple[Array, Array | None]:
    """The array that was named, or ``x``, or the only one, with ``y`` as its labels where there is one."""
    name = array or ("x" if "x" in arrays else next(iter(arrays)) if len(arrays) == 1 else "")
    if name not in arrays:
        wanted = f"has no array called {array!r}" if array else "has several arrays; name the records by --array"
        raise UsageError(
            f"{path}: {wanted}. Found {', '.join(f'{k} {list(a.shape)}' for k, a in arrays.items()) or 'none'}"
        )
    return arrays[name], arrays.get("y") if name != "y" else None


def _csv(path: Path, raw: bytes) -> Array:
    """[N, D] float64 of a table of numbers, with or without a line of names above it."""
    try:
        text = csv_tables.decode(raw)
        _, first = next(csv_tables.rows(text), (1, []))
        return CsvTable.parse(text, headed=not _numbers(first)).matrix()
    except CsvError as error:
        raise MissingResource(
            f"{path}: wanted a number in every cell below a line of names; {str(error)[:200]}"
        ) from None


def _numbers(cells: list[str]) -> bool:
    """Whether a row holds numbers and not names."""
    try:
        return bool([csv_tables.number(cell) for cell in cells])
    except ValueError:
        return False
