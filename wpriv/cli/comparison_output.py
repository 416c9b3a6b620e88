"""Print comparisons: one table for each panel, expected numbers beside ours, the interpretations of one job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from wpriv._version import __version__
from wpriv.accounting.comparison import compare
from wpriv.accounting.comparison.compare import COLUMNS, NAMES, BoundsTable, Comparison, Row
from wpriv.cli import output
from wpriv.cli.flags import as_flags
from wpriv.cli.guarantee_output import TABLE_SCHEMA, say_refused
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
COLUMNS_OF_TABLES = {
    "class": ("mean", "variance", "third", "infinity"),
    "loss": ("part", "loss", "mass", "density", "class_density"),
    "trade-off": ("fpr", "fnr_lower", "fnr_upper", "tpr_lower", "tpr_upper", "mu_lower", "mu_upper", "mu_regret"),
}


def print_comparison(comparison: Comparison, mode: str) -> None:
    """Print a comparison; notes, warnings and the names of written files go to standard error."""
    notes = [*unit_notes(row.get("notion") for row in comparison.rows), *comparison.notes]
    if mode == "json":
        output.emit_rows(
            [{"schema": SCHEMA, **row, "version": __version__} for row in comparison.rows],
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
    _print_warnings(comparison)


def print_interpretations(rows: list[Row], mode: str) -> None:
    """Print one job under every interpretation."""
    if mode == "json":
        output.emit_rows([{"schema": SCHEMA, **row} for row in rows], TABLE_SCHEMA)
    elif mode == "csv":
        output.emit(csv_text(rows).rstrip("\n"))
    elif mode == "text":
        answer = compare.answer_of(rows)
        if repeats := rows[0].get("repeats"):
            output.emit_bold(f"the best of K runs ({repeats}), of which one run is read as follows")
        header = [NAMES.get(answer, answer), "claim", "sampling", "n", "neighbours", "accountant"]
        body, notes = [], []
        for row in rows:
            value = "-" if row["reason"] else text(row[answer], up=True, digits=4)
            notes.append(row["assumption"] + (f" ({as_flags(row['reason'])})" if row["reason"] else ""))
            words = [row.get("claim") or "-", row["sampling"], str(row["n"]), row["adjacency"], row["accountant"]]
            body.append([value, *words])
        output.emit_table(header, body, notes=notes)


def print_verdicts(verdicts: Sequence[Verdict]) -> None:
    """Print expected numbers beside ours; nothing where the recipe expects none."""
    if not verdicts:
        return
    output.emit("")
    body = [
        [each.word.upper() if each.is_missed else each.word, f"{each.expected:.6g}", _ours(each), *deviation(each)]
        for each in verdicts
    ]
    notes = []
    for verdict in verdicts:
        where, column = place(verdict)
        about = f"{column}{' at ' if where else ''}{where} ({verdict.kind}): {verdict.source}"
        notes.append("; ".join([about, *verdict.remarks]))
    output.emit_table(["", "expected", "ours", "difference", "within"], body, notes=notes)


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
        output.emit("")
        output.emit_words(f"the paper says: {claim.paper}", f"we find: {claim.found}", f"because: {claim.because}")


def thin(items: list[Any], count: int | None) -> list[Any]:
    """Return at most ``count`` of the items, evenly spaced, with both ends among them; all of them for None."""
    if count is None or len(items) <= count:
        return items
    return [items[round(i * (len(items) - 1) / (count - 1))] for i in range(count)]


def _print_panels(comparison: Comparison) -> list[str]:
    """Print every panel; where lines were left out, return a note that says so."""
    shown = total = 0
    for number, panel in enumerate(comparison.recipe.panels):
        output.emit(*([""] if number else []))
        rows = [row for row in comparison.rows if row.get("panel", "") == panel.name]
        title = panel.name or comparison.recipe.source or compare.table_title(rows)
        runs = f"; the best of K runs ({panel.repeats})" if panel.repeats else ""
        output.emit_bold(panel.title or title + runs)
        printed = _print_panel(panel, rows, None if comparison.out is None else MAX_ROWS)
        shown, total = shown + printed[0], total + printed[1]
    if comparison.out is None or shown == total:
        return []
    return [f"the screen shows {shown} of {total} lines; {comparison.out / storage.TABLE} has all"]


def _print_panel(panel: Panel, rows: list[Row], count: int | None) -> tuple[int, int]:
    """Print one panel, points of curves or named columns; return its lines on the screen, and of all."""
    if panel.table == "bounds":
        table = compare.bounds_table(panel, rows)
        lines = thin(list(range(len(table.points))), count)
        points, cells, lower = ([each[k] for k in lines] for each in (table.points, table.cells, table.lower))
        _print_bounds(replace(table, points=points, cells=cells, lower=lower), rows)
        return len(lines), len(table.points)
    axes = [COLUMNS.get(axis.over, axis.over) for axis in panel.sweep or []]
    module = None if panel.table in COLUMNS_OF_TABLES else registry.load("tables", panel.table)
    # a table of its own kind prints the columns that it names, or its labels and its numbers
    names = COLUMNS_OF_TABLES.get(panel.table) or getattr(module, "SHOWN", None)
    names = names or (*getattr(module, "LABELS", ()), *getattr(module, "COLUMNS", ()))
    columns = list(dict.fromkeys([*axes, *(["case"] if panel.cases else []), *names]))
    # all rows of a table whose rows are no points of a curve
    shown = rows if getattr(module, "WHOLE", False) else thin(rows, count)
    output.emit_table(columns, [[_cell(row.get(name), name) for name in columns] for row in shown])
    return len(shown), len(rows)


def _print_bounds(table: BoundsTable, rows: list[Row]) -> None:
    """Print the grid downwards, or the accountants where only so it fits; or several tables one below the other."""
    header, body = table.grid() or table.wide()
    answer = compare.answer_of(rows)
    tall = table.tall(NAMES[answer])
    is_tall = not table.axes or (not output.fits(header, body) and output.fits(*tall))
    # a tall table has a column of claims
    output.emit_facts(
        [(name, words) for name, words in compare.table_facts(rows) if words and (name != "claims" or not is_tall)]
    )
    if is_tall:
        # notions, which share no units, have tables of their own
        for notion in dict.fromkeys(row[0].partition(" [")[2] for row in tall[1]):
            output.emit("")
            output.emit_table(tall[0], [row for row in tall[1] if row[0].partition(" [")[2] == notion])
        return
    output.emit("")
    keys = first = 1 if table.grid() else len(table.axes)
    while first < len(header):
        last = first + 1
        while last < len(header) and output.fits(*_columns(header, body, keys, first, last + 1)):
            last += 1
        output.emit(*([""] if first > keys else []))
        output.emit_table(*_columns(header, body, keys, first, last))
        first = last


def _columns(
    header: list[str], body: list[list[str]], keys: int, first: int, last: int
) -> tuple[list[str], list[list[str]]]:
    """Some columns of a table behind the first ``keys``."""
    return header[:keys] + header[first:last], [row[:keys] + row[first:last] for row in body]


def _print_warnings(comparison: Comparison) -> None:
    """Print up to ``MAX_WARNINGS`` warnings, and why accountants have no answer."""
    rows, warnings = comparison.rows, comparison.warnings
    output.warn(warnings[:MAX_WARNINGS])
    if len(warnings) > MAX_WARNINGS:
        output.say("warning", f"and {len(warnings) - MAX_WARNINGS} more; --json gives all, each with its row")
    refused = [row for row in rows if row.get("reason")]
    answering = {row.get("accountant") for row in rows if not row.get("reason")}
    without = {str(row["accountant"]): str(row["reason"]) for row in refused if row.get("accountant") not in answering}
    say_refused([{"accountant": name, "reason": reason} for name, reason in without.items()])
    some = (row for row in refused if row.get("accountant") in answering)
    output.say("note", *dict.fromkeys(f"{row.get('accountant', 'no answer')}: {row['reason']}" for row in some))


def _cell(value: object, name: str) -> str:
    """A cell of a table: bounds rounded outwards, other numbers to the nearest."""
    if isinstance(value, float) and name.endswith(("_lower", "_upper", "_regret")):
        return text(value, up=not name.endswith("_lower"), digits=2 if name.endswith("_regret") else 6)
    return "" if value is None else f"{value + 0.0:.6g}" if isinstance(value, (int, float)) else str(value)
