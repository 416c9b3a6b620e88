"""Tables that a run left on disk, read back with every cell checked."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

from wpriv.config.schema import BOUND_COLUMNS
from wpriv.core.guarantee import CLAIMS
from wpriv.errors import UsageError, of_file
from wpriv.files import csv_tables
from wpriv.files.csv_tables import CsvError, CsvTable

MAX_TABLE_BYTES = 100_000_000
MAX_DRAWN = 1e100  # what lies beyond is no eps, delta or parameter, and overflows in every plotting routine
_WORDS = {
    "panel",
    "case",
    "accountant",
    "claim",
    "notion",
    "reason",
    "mech",
    "sampling",
    "adjacency",
    "asked",
    "part",
    "file",
    "observed",
    "proposition",
    "verdict",
    "at",
    "statement",
}
_PARAMETERS = {"n", "rate", "sigma", "scale", "sensitivity", "bound"}
_NOT_NEGATIVE = {*BOUND_COLUMNS, *_PARAMETERS, "width", "mass", "density", "class_density", "variance"}
_NUMBERS = _NOT_NEGATIVE | {"loss", "mean"}


def table(path: Path) -> list[dict[str, Any]]:
    """The rows of a table.csv, numbers as numbers, empty cells as None.

    Raises:
        UsageError: no such file, it is not a CSV with a header, or a cell that must hold a number holds none (with its line).
    """
    try:
        if path.stat().st_size > MAX_TABLE_BYTES:
            raise UsageError(f"{path}: a table may have up to {MAX_TABLE_BYTES:,} bytes; found {path.stat().st_size:,}")
        text = csv_tables.decode(path.read_bytes())
    except FileNotFoundError:
        raise UsageError(
            f"the table {path} cannot be read: no such file. Give a results directory or its table.csv"
        ) from None
    except OSError as error:
        raise of_file(error, path, "read", "give a results directory or its table.csv") from None
    except CsvError as error:
        raise UsageError(
            f"{path}: not a CSV table in UTF-8 ({error}). Give a results directory or its table.csv"
        ) from None
    try:
        whole = CsvTable.parse(text)
        cells = whole.cells()
    except CsvError as error:
        raise UsageError(f"{path}:{error.line}: {error.reason}. Give a results directory or its table.csv") from None
    rows = []
    for place, row in enumerate(cells):
        try:
            rows.append({name: _cell(name, cell) for name, cell in row.items()})
        except CsvError as error:
            raise UsageError(f"{path}:{whole.line(place)}: {error}") from None
    if not rows:
        raise UsageError(f"{path}: the table has no rows; nothing to draw")
    return rows


def _cell(column: str, text: str) -> Any:
    """The value of a cell: a number, a word, or None where it is empty; a CsvError where a column must hold something else."""
    if not text:
        return None
    if column in _WORDS:
        if column == "claim" and text not in CLAIMS:
            raise CsvError(f"claim must be one of {', '.join(CLAIMS)}; found {text[:40]!r}")
        return text
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if math.isnan(value) or (value < 0 and column in _NOT_NEGATIVE) or MAX_DRAWN < abs(value) < math.inf:
        if column in _NUMBERS:
            kind = f"a number {'from 0' if column in _NOT_NEGATIVE else ''} up to {MAX_DRAWN:g}"
            raise CsvError(f"{column} must be {kind}, or empty; found {text[:40]!r}")
        return text
    return int(text) if re.fullmatch(r"-?\d{1,15}", text) else value


def arrays(path: Path) -> dict[str, Any]:
    """The arrays of a .npz that a run left, by name.

    Raises:
        UsageError: it cannot be read, or holds something else than numbers.
    """
    from wpriv.files import array_files

    try:
        if path.stat().st_size > MAX_TABLE_BYTES:
            raise UsageError(
                f"{path}: arrays to be drawn may have up to {MAX_TABLE_BYTES:,} bytes; found {path.stat().st_size:,}"
            )
        return array_files.npz(path, MAX_TABLE_BYTES)
    except PermissionError as error:
        raise of_file(error, path, "read", "allow reading it") from None
    except array_files.DAMAGED as error:
        raise UsageError(f"the arrays {path} cannot be read: {str(error)[:160]}") from None
