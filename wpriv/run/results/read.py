"""Read the tables of a run, with every cell validated."""

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
MAX_DRAWN = 1e100  # larger numbers are no eps, delta or parameter, and overflow in every plotting routine
_WORDS = {
    *("panel", "case", "accountant", "claim", "notion", "reason", "mech", "sampling", "adjacency"),
    *("asked", "part", "file", "observed", "proposition", "verdict", "at", "statement"),
}
_PARAMETERS = {"n", "rate", "sigma", "scale", "sensitivity", "bound"}
_NOT_NEGATIVE = {*BOUND_COLUMNS, *_PARAMETERS, "width", "mass", "density", "class_density", "variance"}
_NUMBERS = _NOT_NEGATIVE | {"loss", "mean"}


def table(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a table.csv, numbers as numbers, empty cells as None.

    Raises:
        UsageError: no such file, it is no CSV with a header, or a cell of a numeric column holds no number (with its
            line).
    """
    advice = "give a results folder or its table.csv"
    end = f". {advice.capitalize()}"
    try:
        if path.stat().st_size > MAX_TABLE_BYTES:
            raise UsageError(f"{path}: a table may have up to {MAX_TABLE_BYTES:,} bytes; found {path.stat().st_size:,}")
        text = csv_tables.decode(path.read_bytes())
    except FileNotFoundError:
        raise UsageError(f"the table {path} cannot be read: no such file{end}") from None
    except OSError as error:
        raise of_file(error, path, "read", advice) from None
    except CsvError as error:
        raise UsageError(f"{path}: not a CSV table in UTF-8 ({error}){end}") from None
    try:
        parsed = CsvTable.parse(text)
        cells = parsed.cells()
    except CsvError as error:
        raise UsageError(f"{path}:{error.line}: {error.reason}{end}") from None
    rows = []
    for number, row in enumerate(cells):
        try:
            rows.append({name: _cell(name, cell) for name, cell in row.items()})
        except CsvError as error:
            raise UsageError(f"{path}:{parsed.line(number)}: {error}") from None
    if not rows:
        raise UsageError(f"{path}: the table has no rows, and a figure needs some")
    return rows


def _cell(column: str, text: str) -> Any:
    """Return the value of a cell: a number, NaN for ``nan``, a word, or None if it is empty.

    Raises:
        CsvError: the column must hold something else.
    """
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
            kind = f"a number {'from 0 ' if column in _NOT_NEGATIVE else ''}up to {MAX_DRAWN:g}"
            raise CsvError(f"{column} must be {kind}, or empty; found {text[:40]!r}")
        # what was measured of a training that has diverged
        return value if text == "nan" else text
    return int(text) if re.fullmatch(r"-?\d{1,15}", text) else value


def arrays(path: Path) -> dict[str, Any]:
    """Return the arrays of a .npz of a run, by name.

    Raises:
        UsageError: it cannot be read, or holds other things than numbers.
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
