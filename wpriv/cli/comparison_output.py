"""Print comparisons: one table for each panel, expected numbers beside ours, the interpretations of one job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wpriv._version import __version__
from wpriv.accounting.comparison.compare import Comparison, Row
from wpriv.cli import output
from wpriv.cli.flags import as_flags
from wpriv.cli.guarantee_output import TABLE_SCHEMA
from wpriv.config.recipe import Recipe
from wpriv.config.schema import Panel
from wpriv.core import registry
from wpriv.core.guarantee import SCHEMA, unit_notes
from wpriv.numerics.numbers import text
from wpriv.results import storage
from wpriv.results.expectations import Verdict
from wpriv.results.storage import csv_text

MAX_ROWS = 24  # of a recipe's panel on the screen; table.csv holds all
MAX_WARNINGS = 8
NAMES = {"epsilon": "eps"}  # columns as headers show them
COLUMNS = {"eps": "epsilon"}  # axes of a sweep as columns of the rows
COLUMNS_OF_TABLES = {
    "class": ("mean", "variance", "third", "infinity"),
    "loss": ("part", "loss", "mass", "density", "class_density"),
    "trade-off": ("fpr", "fnr_lower", "fnr_upper", "tpr_lower", "tpr_upper", "mu_lower", "mu_upper"),
}


def print_comparison(comparison: Comparison, mode: str) -> None:
    """Print a comparison; notes, warnings and the names of written files go to standard error.

    Args:
        mode: text, json, csv, or quiet, which prints no table.
    """
    notes = unit_notes(row.get("notion") for row in comparison.rows)
    if mode == "json":
        output.emit_rows(
            [{"schema": SCHEMA, **row, **_unknown(row), "version": __version__} for row in comparison.rows],
            TABLE_SCHEMA,
            expect=[verdict.as_dict() for verdict in comparison.verdicts],
            claims=[claim.model_dump() for claim in comparison.recipe.claims],
            notes=notes,
            files=[str(path) for path in comparison.files],
        )
    elif mode == "csv":
        output.emit(csv_text(comparison.rows).rstrip("\n"))
    elif mode == "text":
        notes += _print_panels(comparison)
        print_verdicts(comparison.verdicts)
        print_claims(comparison.recipe)
    output.say("note", *notes)
    output.say("wrote", *map(str, comparison.files if mode == "text" else ()))
    _print_warnings(comparison.rows)


def _unknown(row: Row) -> dict[str, str]:
    """``asked`` as in every guarantee, the unknown: tables name the quantity that was given there."""
    return {"asked": "eps" if row["asked"] == "delta" else "delta"} if "asked" in row else {}


def print_interpretations(rows: list[Row], mode: str) -> None:
    """Print one job under every interpretation.

    Args:
        mode: text, json, csv, or quiet, which prints nothing.
    """
    if mode == "json":
        output.emit_rows([{"schema": SCHEMA, **row} for row in rows], TABLE_SCHEMA)
    elif mode == "csv":
        output.emit(csv_text(rows).rstrip("\n"))
    elif mode == "text":
        answer = _answer(rows)
        if repeats := rows[0].get("repeats"):
            output.emit_bold(f"the best of K runs ({repeats}), of which one run is read as follows")
        header = [NAMES.get(answer, answer), "claim", "sampling", "n", "neighbours", "accountant", "assumption"]
        body = []
        for row in rows:
            value = "-" if row["reason"] else text(row[answer], up=True, digits=4)
            assumption = row["assumption"] + (f" ({as_flags(row['reason'])})" if row["reason"] else "")
            words = [row.get("claim") or "-", row["sampling"], str(row["n"]), row["adjacency"], row["accountant"]]
            body.append([value, *words, assumption])
        output.emit_table(header, body)


def print_verdicts(verdicts: Sequence[Verdict]) -> None:
    """Print expected numbers beside ours; nothing where the recipe expects none."""
    body = []
    for verdict in verdicts:
        numbers = [f"{verdict.expected:.6g}", _ours(verdict), *deviation(verdict)]
        body.append([*place(verdict), verdict.kind, *numbers, verdict.word, verdict.source])
    header = ["expected at", "column", "kind", "expected", "ours", "difference", "within", "", "source"]
    if body:
        output.emit_table(header, body)


def place(verdict: Verdict) -> list[str]:
    """Return the row and the column that an expected number is about."""
    where = {**({"panel": verdict.panel} if verdict.panel else {}), **verdict.where}
    words = ", ".join(f"{NAMES.get(name, name)} {value}" for name, value in where.items())
    return [words, NAMES.get(verdict.column, verdict.column)]


def deviation(verdict: Verdict) -> list[str]:
    """Return the difference from an expected number, and its tolerance."""
    difference = "" if verdict.difference is None else f"{verdict.difference:+.1e}"
    return [difference, f"{verdict.within:g}" + (" absolute" if verdict.absolute else "")]


def _ours(verdict: Verdict) -> str:
    """Our number; of repeated runs the mean, the deviation of one run and the number of runs."""
    if verdict.ours is None:
        return "none"
    if verdict.seeds == 1 or verdict.deviation is None:
        return f"{verdict.ours:.6g}"
    return f"{verdict.ours:.6g} ± {verdict.deviation:.2g} ({verdict.seeds} seeds)"


def print_claims(recipe: Recipe) -> None:
    """Print the statements of the paper that could not be reproduced, with our finding and its reason."""
    for claim in recipe.claims:
        output.emit(f"\nthe paper says: {claim.paper}\nwe find: {claim.found}\nbecause: {claim.because}")


def thin(items: list[Any], count: int | None) -> list[Any]:
    """Return at most ``count`` of the items, evenly spaced, with both ends among them; all of them for None."""
    if count is None or len(items) <= count:
        return items
    return [items[round(i * (len(items) - 1) / (count - 1))] for i in range(count)]


def _print_panels(comparison: Comparison) -> list[str]:
    """Print every panel; where lines were left out, return a note that says so."""
    shown = total = 0
    for panel in comparison.recipe.panels:
        rows = [row for row in comparison.rows if row.get("panel", "") == panel.name]
        title = panel.name or comparison.recipe.source or _job(rows)
        runs = f"; the best of K runs ({panel.repeats})" if panel.repeats else ""
        output.emit_bold(panel.title or title + runs)
        printed = _print_panel(panel, rows, None if comparison.out is None else MAX_ROWS)
        shown, total = shown + printed[0], total + printed[1]
    if comparison.out is None or shown == total:
        return []
    return [f"the screen shows {shown} of {total} lines; {comparison.out / storage.TABLE} has all"]


def _print_panel(panel: Panel, rows: list[Row], count: int | None) -> tuple[int, int]:
    """Print one panel: the sweep downwards, cases and accountants across; or the rows where there is no sweep.

    Returns:
        The number of lines on the screen, and of all lines.
    """
    axes = [COLUMNS.get(axis.over, axis.over) for axis in panel.sweep or []]
    if panel.table != "bounds":
        module = None if panel.table in COLUMNS_OF_TABLES else registry.load("tables", panel.table)
        # a table of its own kind prints the columns that it names, or its labels and its numbers
        names = COLUMNS_OF_TABLES.get(panel.table) or getattr(module, "SHOWN", None)
        names = names or (*getattr(module, "LABELS", ()), *getattr(module, "COLUMNS", ()))
        columns = list(dict.fromkeys([*axes, *(["case"] if panel.cases else []), *names]))
        # all rows of a table whose rows are no points of a curve
        shown = rows if getattr(module, "WHOLE", False) else thin(rows, count)
        body = [[_cell(row.get(name), name) for name in columns] for row in shown]
        output.emit_table(columns, body, below="\n")
        return len(body), len(rows)
    answer = _answer(rows)
    if not axes:
        body = []
        for row in rows:
            lower, upper = row.get(f"{answer}_lower"), row.get(f"{answer}_upper")
            bracket = "" if lower is None or upper is None else f"[{text(lower, up=False)}, {text(upper, up=True)}]"
            body.append([*_series(row), row.get("claim") or "no answer", _safe(row.get(answer)), bracket])
        output.emit_table([*_series_columns(rows), "claim", NAMES.get(answer, answer), "bracket"], body, below="\n")
        return len(body), len(rows)
    series = list(dict.fromkeys(tuple(_series(row)) for row in rows))
    points: dict[tuple[object, ...], dict[tuple[str, ...], Any]] = {}
    for row in rows:
        points.setdefault(tuple(row[axis] for axis in axes), {})[tuple(_series(row))] = row.get(answer)
    body = [
        [*(f"{value:.6g}" for value in point), *(_safe(points[point].get(words)) for words in series)]
        for point in thin(list(points), count)
    ]
    header = [*(NAMES.get(axis, axis) for axis in axes), *(" ".join(words) for words in series)]
    output.emit_table(header, body, above=f"{NAMES.get(answer, answer)} by\n", below="\n")
    return len(body), len(points)


def _print_warnings(rows: list[Row]) -> None:
    """Print up to ``MAX_WARNINGS`` warnings, and why accountants have no answer."""
    warnings = list(dict.fromkeys(str(line) for row in rows for line in row.get("warnings") or []))
    output.warn(warnings[:MAX_WARNINGS])
    if len(warnings) > MAX_WARNINGS:
        output.say("warning", f"and {len(warnings) - MAX_WARNINGS} more; --json gives all, each with its row")
    reasons = (f"{row.get('accountant', 'no answer')}: {row['reason']}" for row in rows if row.get("reason"))
    output.say("note", *dict.fromkeys(reasons))


def _answer(rows: list[Row]) -> str:
    """The column of the quantity that was computed."""
    return "epsilon" if rows[0]["asked"] == "delta" else "delta"


def _job(rows: list[Row]) -> str:
    """A title where the recipe gives none: the mechanism, and those of its parameters that are the same in all rows."""
    kinds = [row["mech"] for row in rows if row.get("mech")]
    names = ("sigma", "scale", "sampling", "rate", "n", "group")
    fixed = [f"{k} {rows[0][k]}" for k in rows[0] if k in names and len({row.get(k) for row in rows}) == 1]
    return ", ".join([kinds[0] if kinds else f"{rows[0].get('steps')} kinds of step", *fixed])


def _series_columns(rows: list[Row]) -> list[str]:
    return (["case"] if "case" in rows[0] else []) + ["accountant"]


def _series(row: Row) -> list[str]:
    """Case and accountant, and the notion unless it is approximate DP, whose figures others cannot be compared with."""
    notion = row.get("notion") or "approximate-dp"
    words = [str(row[name]) for name in _series_columns([row])]
    return words if notion == "approximate-dp" else [*words[:-1], f"{words[-1]} [{notion}]"]


def _safe(bound: float | None) -> str:
    """A bound, rounded up."""
    return "" if bound is None else text(bound, up=True)


def _cell(value: object, name: str) -> str:
    """A cell of a table: the ends of a bracket rounded outwards, other numbers to the nearest."""
    if isinstance(value, float) and name.endswith(("_lower", "_upper")):
        return text(value, up=name.endswith("_upper"))
    return "" if value is None else f"{value + 0.0:.6g}" if isinstance(value, (int, float)) else str(value)
