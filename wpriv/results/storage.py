"""The files of results folders: their names, tables read with every cell checked, and what a comparison writes."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import math
import platform
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from wpriv._version import __version__
from wpriv.config import resolve, yaml_document
from wpriv.config.recipe import Recipe
from wpriv.config.schema import BOUND_COLUMNS
from wpriv.core import registry
from wpriv.core.guarantee import CLAIMS
from wpriv.errors import MissingResource, UsageError, of_file
from wpriv.files import csv_tables, durable_writes
from wpriv.files.csv_tables import CsvError, CsvTable
from wpriv.randomness import NOISE_VERSION
from wpriv.results.model import Json, Number, Row

CELLS, TABLE, RECIPE, PROVENANCE = "cells.jsonl", "table.csv", "recipe.yaml", "provenance.json"
# each run of repeated trainings, whose means are in the table
RUNS = "runs.csv"
EXPECT = "expect.json"  # where the recipe has expected numbers
METRICS, FIGURE, LEDGER = "metrics.csv", "figure.png", "ledger.jsonl"
LOOKS = "looks.jsonl"  # the ledger of early stopping on private test records
STATEMENT, STATEMENT_TEXT = "statement.json", "statement.md"
CHECKPOINT, MODEL, DIAGNOSTICS = "checkpoint.pt", "model.pt", "diagnostics.pt"
WEIGHTS = "model.safetensors"
AVERAGE = "model-average.safetensors"  # where the recipe averages the weights
# of a training with shard_weights, beside its checkpoint
CHECKPOINT_PARTS = "checkpoint-*-of-*.pt"
# the recipe of the run that a tuned training has kept
CANDIDATE = "candidate.yaml"
# the files of every finished training
ADAPTER = ("adapter_config.json", "adapter_model.safetensors")
TRAINING = (STATEMENT, STATEMENT_TEXT, METRICS, FIGURE, MODEL, WEIGHTS, DIAGNOSTICS, LEDGER, RECIPE, PROVENANCE)


def of_training(task: str, *, averaged: bool = False, adapted: bool = False) -> tuple[str, ...]:
    """Return the files of a finished training: those of every task, those of this task, and their figures."""
    spec = registry.load("tasks", task).TASK
    tables = tuple(spec.figures)
    further = (*((AVERAGE,) if averaged else ()), *(ADAPTER if adapted else ()))
    return (*TRAINING, *further, *spec.files, *tables, *(f"{Path(name).stem}.png" for name in tables))


MAX_TABLE_BYTES = 100_000_000
MAX_DRAWN = 1e100  # larger numbers are no eps, delta or parameter, and overflow in every plotting routine
_WORDS = {
    *("panel", "case", "accountant", "claim", "notion", "reason", "mech", "sampling", "adjacency"),
    *("asked", "given", "part", "file", "observed", "proposition", "verdict", "at", "statement"),
}
_PARAMETERS = {"n", "rate", "sigma", "scale", "sensitivity", "bound"}
_NOT_NEGATIVE = {*BOUND_COLUMNS, *_PARAMETERS, "width", "mass", "density", "class_density", "variance"}
_NUMBERS = _NOT_NEGATIVE | {"loss", "mean"}


def table(path: Path) -> list[Row]:
    """Return the rows of a table.csv, numbers as numbers, empty cells as None."""
    advice = "give a results folder or its table.csv"
    end = f". {advice.capitalize()}"
    try:
        _check_size(path, "a table")
        text = csv_tables.decode(path.read_bytes())
    except FileNotFoundError:
        raise MissingResource(f"the table {path} cannot be read: no such file{end}") from None
    except OSError as error:
        raise of_file(error, path, "read", advice) from None
    except CsvError as error:
        raise UsageError(f"{path}: not a CSV table in UTF-8 ({error}){end}") from None
    return parsed_table(text, str(path), end)


def parsed_table(text: str, path: str, end: str = "") -> list[dict[str, Any]]:
    """Return the rows of a table as ``table`` does, given its text; ``end`` is the end of a message on its form."""
    try:
        parsed = CsvTable.parse(text)
        cells = parsed.cells()
    except CsvError as error:
        raise UsageError(f"{path}:{error.line}: {error.reason}{end}") from None
    rows = []
    for number, row in enumerate(cells):
        try:
            rows.append(_as_asked({name: _cell(name, cell) for name, cell in row.items()}))
        except CsvError as error:
            raise UsageError(f"{path}:{parsed.line(number)}: {error}") from None
    if not rows:
        raise UsageError(f"{path}: the table has no rows, and a figure needs some")
    return rows


def _as_asked(row: dict[str, Any]) -> dict[str, Any]:
    """A row with the unknown in ``asked``, where tables before 0.2 name what was given (``given``)."""
    if "asked" not in row or "given" in row:
        return row
    return {**row, "asked": "eps" if row["asked"] == "delta" else "delta", "given": row["asked"]}


def _check_size(path: Path, what: str) -> None:
    if (size := path.stat().st_size) > MAX_TABLE_BYTES:
        raise UsageError(f"{path}: {what} may have up to {MAX_TABLE_BYTES:,} bytes; found {size:,}")


def _cell(column: str, text: str) -> Number | str | None:
    """Return the value of a cell: a number, NaN for ``nan``, a word, or None if it is empty."""
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


def arrays(path: Path) -> Json:
    """Return the arrays of a .npz of a run, by name."""
    from wpriv.files import array_files

    try:
        _check_size(path, "arrays to be drawn")
        return array_files.npz(path, MAX_TABLE_BYTES)
    except PermissionError as error:
        raise of_file(error, path, "read", "allow reading it") from None
    except array_files.DAMAGED as error:
        raise UsageError(f"the arrays {path} cannot be read: {str(error)[:160]}") from None


# keys of JSON rows that are no columns of the table; the source of each accountant is in the provenance
_NO_COLUMNS = {"process", "source", "warnings"}

_version = functools.cache(metadata.version)


def claim(out: Path, recipe: Recipe, *, fresh: bool = False) -> None:
    """Make ``out`` the results folder of this recipe.

    Raises:
        UsageError: it holds another recipe's results or other files, or no folder can be at this path.
        MissingResource: it cannot be read or written.
    """
    if "\0" in str(out):
        raise UsageError(f"the results cannot be written to {str(out)!r}: a path cannot contain a null byte")
    try:
        if out.is_dir() and any(out.iterdir()):
            if not (out / RECIPE).is_file():
                what = "files that are not results of a comparison"
                raise UsageError(f"{out} holds {what}. Name another folder with `out`")
            if any((out / name).is_file() for name in (LEDGER, MODEL, STATEMENT)):
                raise UsageError(
                    f"{out} holds the results of a training, whose record of spent privacy is not replaced. Name "
                    f"another folder with `out`"
                )
            if fresh:
                # before the recipe: nobody must take earlier results for those of the new one
                for name in (TABLE, EXPECT, CELLS):
                    durable_writes.remove(out / name)
            elif resolve.essence(recipe_in(out)) != resolve.essence(as_stored(recipe.data)):
                raise UsageError(
                    f"{out} holds the results of another recipe, or of this one before it was changed. Name another "
                    f"folder with `out`, or replace the results with `fresh=True`"
                )
        durable_writes.make_folder(out)
        durable_writes.replace(out / RECIPE, yaml_document.as_yaml(recipe.data))
    except OSError as error:
        raise of_file(error, out, "read", "name another folder with `out`") from None


def recipe_in(folder: Path) -> Json | None:
    """Return the data of the recipe in a results folder; None where it cannot be read."""
    try:
        return yaml_document.read(folder / RECIPE).data
    except UsageError:
        return None


def finished(out: Path) -> dict[str, list[Row]]:
    """Return the rows of cells that earlier runs finished, by fingerprint; damaged lines are left out."""
    try:
        lines = (out / CELLS).read_bytes().splitlines()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise of_file(error, out / CELLS, "read", "name another folder with `out`") from None
    done = {}
    for line in lines:
        with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):
            entry = json.loads(line)
            if entry["sum"] == _sum(entry["rows"]):
                done[entry["key"]] = [_as_asked(row) for row in entry["rows"]]
    return done


def keep(out: Path, key: str, rows: list[Row]) -> None:
    """Append one finished cell, so that an interrupted run continues after it."""
    line = json.dumps({"key": key, "rows": rows, "sum": _sum(rows)}) + "\n"
    with durable_writes.reported(out / CELLS), (out / CELLS).open("a+b") as file:
        file.seek(max(file.tell() - 1, 0))
        is_cut_short = file.read(1) not in (b"", b"\n")
        file.write(("\n" * is_cut_short + line).encode())


def _sum(rows: object) -> str:
    """A checksum of the rows of a cell, which detects damaged lines."""
    return hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()[:16]


def columns(rows: list[Row]) -> list[str]:
    """Return the columns of a table in the order of their first appearance, without empty ones."""
    names = dict.fromkeys(name for row in rows for name in row if name not in _NO_COLUMNS)
    return [name for name in names if any(row.get(name) not in (None, "") for row in rows)]


def csv_text(rows: list[Row]) -> str:
    """Return the rows as CSV with a header; numbers in full, empty cells for None."""
    return csv_tables.to_text(columns(rows), rows)


def results(out: Path, rows: list[Row], about: Json) -> None:
    """Write the table and the provenance, each in one piece."""
    durable_writes.replace(out / TABLE, csv_text(rows))
    write_json(out / PROVENANCE, {**provenance(), **about})


def write_json(path: Path, data: object) -> None:
    """Write plain data as JSON, in one piece."""
    durable_writes.replace(path, json.dumps(data, indent=2) + "\n")


def as_stored(data: object) -> Any:
    """Return plain data as they are after a round trip through JSON."""
    return json.loads(json.dumps(data))


def provenance() -> Json:
    """Return versions, platform, git commit and command line; ``seed`` is None, as nothing is random."""
    return {
        "wpriv": __version__,
        "python": platform.python_version(),
        **{name: _version(name) for name in ("numpy", "scipy", "pyyaml", "pydantic")},
        "platform": platform.platform(),
        "device": "cpu",
        "seed": None,
        "git_commit": commit(),
        "noise_version": NOISE_VERSION,
        "command": sys.argv,
    }


def commit(folder: str = ".") -> str | None:
    """Return the commit of the program's source tree, with '+' if files were changed since; None outside of one."""
    file = Path(__file__).resolve()
    source = file.parents[2]

    def git(*words: str) -> str:
        command = ["git", "-C", str(source), *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", str(file))  # fails in a repository around an installed wpriv
        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain", "--", folder) else "")
    except (OSError, subprocess.SubprocessError):
        return None
