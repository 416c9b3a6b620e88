"""Write the results folder of a comparison: finished cells, table, resolved recipe, provenance."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from wpriv._version import __version__
from wpriv.config import yaml_document
from wpriv.config.recipe import Recipe
from wpriv.errors import UsageError, of_file
from wpriv.files import csv_tables, durable_writes
from wpriv.randomness.seeds import NOISE_VERSION
from wpriv.run.results import file_names

# keys of a recipe that do not change its numbers
_COSMETIC = {"figure", "title", "limits", "expect", "source", "claims", "time"}

# keys of JSON rows that are no columns of the table; the source of each accountant is in the provenance
_NO_COLUMNS = {"process", "source", "warnings"}

_version = functools.cache(metadata.version)


def claim(out: Path, recipe: Recipe, *, fresh: bool = False) -> None:
    """Make ``out`` the results folder of this recipe.

    Args:
        fresh: replace the results of an earlier run of any recipe.
    Raises:
        UsageError: it holds another recipe's results or other files, or no folder can be at this path.
        MissingResource: it cannot be read or written.
    """
    if "\0" in str(out):
        raise UsageError(f"the results cannot be written to {str(out)!r}: a path cannot contain a null byte")
    try:
        if out.is_dir() and any(out.iterdir()):
            if not (out / file_names.RECIPE).is_file():
                raise UsageError(
                    f"{out} holds files that are not results of a comparison. Name another folder with `out`"
                )
            if any((out / name).is_file() for name in (file_names.LEDGER, file_names.MODEL, file_names.STATEMENT)):
                raise UsageError(
                    f"{out} holds the results of a training, whose record of spent privacy is not replaced. Name "
                    f"another folder with `out`"
                )
            if fresh:
                # before the recipe: nobody must take earlier results for those of the new one
                for name in (file_names.TABLE, file_names.EXPECT, file_names.CELLS):
                    durable_writes.remove(out / name)
            elif essence(_stored(out / file_names.RECIPE)) != essence(json.loads(json.dumps(recipe.data))):
                raise UsageError(
                    f"{out} holds the results of another recipe, or of this one before it was changed. Name another "
                    f"folder with `out`, or replace the results with `fresh=True`"
                )
        durable_writes.make_folder(out)
        durable_writes.replace(out / file_names.RECIPE, yaml_document.as_yaml(recipe.data))
    except OSError as error:
        raise of_file(error, out, "read", "name another folder with `out`") from None


def _stored(path: Path) -> Any:
    try:
        return yaml_document.read(path).data
    except UsageError:
        return None


def essence(data: Any) -> Any:
    """Return what decides the results of a comparison: its recipe without texts, figures and expected numbers."""
    if not isinstance(data, dict):
        return data
    kept = {k: v for k, v in data.items() if k not in _COSMETIC}
    return {**kept, "panels": [essence(p) for p in kept["panels"]]} if isinstance(kept.get("panels"), list) else kept


def finished(out: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of cells that earlier runs finished, by fingerprint; damaged lines are left out.

    Raises:
        MissingResource: the file cannot be read.
    """
    try:
        lines = (out / file_names.CELLS).read_bytes().splitlines()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise of_file(error, out / file_names.CELLS, "read", "name another folder with `out`") from None
    done = {}
    for line in lines:
        with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):
            entry = json.loads(line)
            if entry["sum"] == _sum(entry["rows"]):
                done[entry["key"]] = entry["rows"]
    return done


def keep(out: Path, key: str, rows: list[dict[str, Any]]) -> None:
    """Append one finished cell, so that an interrupted run continues after it.

    Raises:
        MissingResource: it cannot be written.
    """
    line = json.dumps({"key": key, "rows": rows, "sum": _sum(rows)}) + "\n"
    with durable_writes.reported(out / file_names.CELLS), (out / file_names.CELLS).open("a", encoding="utf-8") as file:
        file.write("\n" * _is_cut_short(file.tell(), out / file_names.CELLS) + line)


def _sum(rows: Any) -> str:
    """A checksum of the rows of a cell, which detects damaged lines."""
    return hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()[:16]


def _is_cut_short(size: int, path: Path) -> bool:
    if not size:
        return False
    with path.open("rb") as file:
        file.seek(size - 1)
        return file.read(1) != b"\n"


def columns(rows: list[dict[str, Any]]) -> list[str]:
    """Return the columns of a table in the order of their first appearance, without empty ones."""
    names = dict.fromkeys(name for row in rows for name in row if name not in _NO_COLUMNS)
    return [name for name in names if any(row.get(name) not in (None, "") for row in rows)]


def csv_text(rows: list[dict[str, Any]]) -> str:
    """Return the rows as CSV with a header; numbers in full, empty cells for None."""
    return csv_tables.to_text(columns(rows), rows)


def results(out: Path, rows: list[dict[str, Any]], about: dict[str, Any]) -> None:
    """Write the table and the provenance, each in one piece."""
    durable_writes.replace(out / file_names.TABLE, csv_text(rows))
    durable_writes.replace(out / file_names.PROVENANCE, json.dumps({**provenance(), **about}, indent=2) + "\n")


def provenance() -> dict[str, Any]:
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
    """Return the commit of the program's source tree, with '+' if files were changed since; None outside of one.

    Args:
        folder: within the tree, in which changes count.
    """
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
