"""Strict reader of the two distributions of a histogram pair; every fault is reported with its line."""

from __future__ import annotations

import math
import stat
from array import array
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, NoReturn

import numpy as np

from wpriv.errors import MissingResource, UsageError
from wpriv.files import csv_tables
from wpriv.files.csv_tables import CsvError
from wpriv.numerics.arrays import Array

MAX_MEGABYTES = 100
SUM_TOLERANCE = 1e-9
HISTOGRAM, SAMPLES = ["outcome", "p", "q"], ["p", "q"]

Rows = Iterator[tuple[int, list[str]]]


class Table(NamedTuple):
    """Two distributions on [k] outcomes.

    Args:
        p, q: [k] probabilities, each with sum 1.
        labels: the outcomes of a histogram, with their lines; empty for samples.
        centres: [k] bin centres of samples; None for a histogram.
    """

    p: Array
    q: Array
    labels: dict[str, int]
    centres: Array | None = None


def read(path: str, bin_width: float) -> Table:
    """Read two distributions from a CSV file.

    Args:
        path: a file with the header ``outcome,p,q``, or ``p,q`` (columns of samples).
        bin_width: for samples, in their units; 0 for a histogram.
    Raises:
        MissingResource: the file does not exist or cannot be read.
        UsageError: the file is not such a table; the message names the line.
    """
    try:
        status = Path(path).stat()
        if not stat.S_ISREG(status.st_mode):
            raise MissingResource(f"histogram: {path!r} is not a regular file. Give a CSV file as 'file'")
        if status.st_size > MAX_MEGABYTES * 2**20:
            raise UsageError(
                f"{path}: a table of at most {MAX_MEGABYTES} MB was wanted; found {status.st_size >> 20} MB. "
                "Bin the data first"
            )
        return _read(path, bin_width, (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size))
    except OSError as error:
        raise MissingResource(
            f"histogram: cannot read {path!r}: {error.strerror or error}. Give a CSV file as 'file'"
        ) from error
    except ValueError as error:
        raise UsageError(f"histogram: file must be a path; found {path!r}") from error


@lru_cache(maxsize=4)
def _read(path: str, bin_width: float, identity: tuple[int, ...]) -> Table:
    """Read the file; ``identity`` changes with its content, so that a changed file is read again."""
    rows = _rows(path)
    line, header = next(rows, (1, []))
    header = [name.strip().lower() for name in header]
    if header == SAMPLES:
        return _binned(path, _of_width(path, rows, 2), bin_width)
    if header != HISTOGRAM:
        columns = repr(",".join(header)[:80]) if header else "an empty file"
        wanted = "the header must be 'outcome,p,q' (two histograms) or 'p,q' (two columns of samples)"
        _refuse(path, line, f"{wanted}; found {columns}")
    if bin_width:
        raise UsageError(
            f"{path}: bin_width requires two columns of samples (header 'p,q'); found a histogram (header "
            "'outcome,p,q'). Leave out bin_width"
        )
    return _histogram(path, _of_width(path, rows, 3))


def _rows(path: str) -> Rows:
    """Yield the rows that are not blank, with their lines."""
    try:
        text = csv_tables.decode(Path(path).read_bytes())
    except CsvError as error:
        raise UsageError(f"{path}: a CSV table was wanted; found a binary file") from error
    try:
        yield from csv_tables.rows(text)
    except CsvError as error:
        raise UsageError(f"{path}:{error.line}: {error.reason}") from error


def _of_width(path: str, rows: Rows, width: int) -> Rows:
    """Check the number of columns of every row."""
    for line, row in rows:
        if len(row) != width:
            _refuse(path, line, f"{width} columns were wanted, as in the header; found {len(row)}")
        yield line, row


def _histogram(path: str, rows: Rows) -> Table:
    """Read rows of outcome, p and q."""
    labels: dict[str, int] = {}
    columns = (array("d"), array("d"))
    for line, (name, *masses) in rows:
        label = name.strip()
        if labels.setdefault(label, line) != line:
            _refuse(path, line, f"every outcome must appear once; {label[:40]!r} is also on line {labels[label]}")
        for column, mass in zip(columns, masses, strict=True):
            column.append(_probability(path, line, mass))
    if not labels:
        _refuse(path, 1, "at least one outcome was wanted; found the header only")
    for name, column in zip(SAMPLES, columns, strict=True):
        if not abs(math.fsum(column) - 1) <= SUM_TOLERANCE:
            raise UsageError(
                f"{path}: column {name} must sum to 1 within {SUM_TOLERANCE:g}; found {math.fsum(column)!r}"
            )
    p, q = (np.array(column) / math.fsum(column) for column in columns)
    return Table(p, q, labels)


def _binned(path: str, rows: Rows, bin_width: float) -> Table:
    """Read two columns of samples and bin them."""
    if not bin_width:
        raise UsageError(f"{path}: two columns of samples require bin_width, in the units of the samples; found none")
    columns = (array("d"), array("d"))
    for line, row in rows:
        for column, sample in zip(columns, row, strict=True):
            if sample.strip():  # one column may be shorter than the other
                column.append(_number(path, line, sample))
    for name, column in zip(SAMPLES, columns, strict=True):
        if not column:
            raise UsageError(f"{path}: at least one sample was wanted in column {name}; found none")
    samples = np.concatenate([np.array(column) for column in columns])
    with np.errstate(over="ignore"):
        bins = np.floor(samples / bin_width)
    if not np.all(np.abs(bins) < 2**53):
        raise UsageError(
            f"{path}: bin_width {bin_width:g} is too small for samples of size {np.max(np.abs(samples)):g}"
        )
    occupied, index = np.unique(bins, return_inverse=True)
    p, q = (np.bincount(part, minlength=occupied.size) / part.size for part in np.split(index, [len(columns[0])]))
    return Table(p, q, {}, (occupied + 0.5) * bin_width)


def numbers(path: str, table: Table) -> Array:
    """Return the [k] outcomes of a table as numbers, to which noise can be added.

    Raises:
        UsageError: an outcome is not a finite number.
    """
    if table.centres is not None:
        return table.centres
    return np.array([_number(path, line, label) for label, line in table.labels.items()])


def _probability(path: str, line: int, text: str) -> float:
    value = _number(path, line, text)
    if not 0 <= value <= 1:
        _refuse(path, line, f"a probability from 0 to 1 was wanted; found {text[:40]}")
    return value


def _number(path: str, line: int, text: str) -> float:
    try:
        value = csv_tables.number(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        _refuse(path, line, f"a finite number was wanted; found {text[:40]!r}")
    return value


def _refuse(path: str, line: int, reason: str) -> NoReturn:
    raise UsageError(f"{path}:{line}: {reason}")
