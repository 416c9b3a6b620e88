"""Comparisons on the screen: one table a panel, published numbers beside ours, readings of one job."""

from __future__ import annotations

from typing import Any

from wpriv._version import __version__
from wpriv.cli import guarantee_output, terminal
from wpriv.cli.flags import as_flags
from wpriv.config.recipe import Recipe
from wpriv.config.schema import Panel
from wpriv.core import registry
from wpriv.core.guarantee import SCHEMA, unit_notes
from wpriv.numerics.safe_rounding import text
from wpriv.run.comparison.compare import Comparison, Row
from wpriv.run.results.expectations import Verdict
from wpriv.run.results.write import csv_text

MAX_ROWS = 24  # of a recipe's panel; the table on disk has them all
MAX_WARNINGS = 8
NAMES = {"epsilon": "eps"}


def comparison(found: Comparison, mode: str) -> None:
    """Prints a comparison: text, json or csv; nothing with quiet, where files and exit code speak."""
    notes = unit_notes(row.get("notion") for row in found.rows)
    if mode == "json":
        rows = [{"schema": SCHEMA, **row, "version": __version__} for row in found.rows]
        verdicts = [v.as_dict() for v in found.verdicts]
        files = [str(path) for path in found.files]
        more = {
            "expect": verdicts,
            "claims": [claim.model_dump() for claim in found.recipe.claims],
            "notes": notes,
            "files": files,
            "version": __version__,
        }
        guarantee_output.emit(guarantee_output.as_json({"schema": guarantee_output.TABLE_SCHEMA, "rows": rows, **more}))
    elif mode == "csv":
        guarantee_output.emit(csv_text(found.rows).rstrip("\n"))
    elif mode == "text":
        for panel in found.recipe.panels:
            own = [row for row in found.rows if row.get("panel", "") == panel.name]
            lines = _panel(panel, own, None if found.out is None else MAX_ROWS)
            guarantee_output.emit(guarantee_output.bold(panel.title or panel.name or found.recipe.source or _job(own)))
            terminal.print_table(f"{lines}\n")
        if found.verdicts:
            terminal.print_table(expected(found.verdicts))
        claims(found.recipe)
    for note in notes:
        guarantee_output.say("note", note)
    for path in found.files if mode == "text" else ():
        guarantee_output.say("wrote", str(path))
    warnings = list(
        dict.fromkeys(w if isinstance(w, str) else str(w) for row in found.rows for w in row.get("warnings") or [])
    )
    for line in warnings[:MAX_WARNINGS]:
        guarantee_output.say("warning", line)
    if len(warnings) > MAX_WARNINGS:
        guarantee_output.say(
            "warning", f"and {len(warnings) - MAX_WARNINGS} more; --json has them all, each with its row"
        )
    for line in dict.fromkeys(
        f"{row.get('accountant', 'no answer')}: {row['reason']}" for row in found.rows if row.get("reason")
    ):
        guarantee_output.say("note", line)


def why(rows: list[Row], mode: str) -> None:
    """Prints one job under every reading."""
    if mode == "json":
        guarantee_output.emit(
            guarantee_output.as_json(
                {
                    "schema": guarantee_output.TABLE_SCHEMA,
                    "rows": [{"schema": SCHEMA, **row} for row in rows],
                    "version": __version__,
                }
            )
        )
    elif mode == "csv":
        guarantee_output.emit(csv_text(rows).rstrip("\n"))
    elif mode == "text":
        answer = "epsilon" if rows[0]["asked"] == "delta" else "delta"
        header = [NAMES.get(answer, answer), "claim", "sampling", "n", "neighbours", "accountant", "assumption"]
        body = []
        for row in rows:
            value = "-" if row["reason"] else text(row[answer], up=True, digits=4)
            told = row["assumption"] + (f" ({as_flags(row['reason'])})" if row["reason"] else "")
            body.append(
                [
                    value,
                    row.get("claim") or "-",
                    row["sampling"],
                    str(row["n"]),
                    row["adjacency"],
                    row["accountant"],
                    told,
                ]
            )
        terminal.print_table(guarantee_output.table(header, body))


def _panel(panel: Panel, rows: list[Row], most: int | None) -> str:
    """One panel as text: the sweep downwards, cases and accountants across; or the rows themselves where there is no sweep."""
    axes = [NAMES_IN_ROWS.get(axis.over, axis.over) for axis in panel.sweep or []]
    if panel.table != "bounds":
        columns = list(
            dict.fromkeys([*axes, *(["case"] if panel.cases else []), *(SHOWN.get(panel.table) or _shown(panel.table))])
        )
        return guarantee_output.table(
            columns, [[_plain(row.get(name)) for name in columns] for row in thin(rows, most)]
        )
    answer = "epsilon" if rows[0]["asked"] == "delta" else "delta"
    if not axes:
        body = [
            [*_who(row), row.get("claim") or "no answer", _safe(row.get(answer)), _ends(row, answer)] for row in rows
        ]
        return guarantee_output.table([*_who_columns(rows), "claim", NAMES.get(answer, answer), "bracket"], body)
    series = list(dict.fromkeys(tuple(_who(row)) for row in rows))
    points: dict[tuple[Any, ...], dict[tuple[str, ...], Any]] = {}
    for row in rows:
        points.setdefault(tuple(row[a] for a in axes), {})[tuple(_who(row))] = row.get(answer)
    chosen = thin(list(points), most)
    body = [[*(f"{v:.6g}" for v in point), *(_safe(points[point].get(s)) for s in series)] for point in chosen]
    header = [*(NAMES.get(a, a) for a in axes), *(" ".join(s) for s in series)]
    return f"{NAMES.get(answer, answer)} by\n{guarantee_output.table(header, body)}"


NAMES_IN_ROWS = {"eps": "epsilon"}
SHOWN = {
    "class": ("mean", "variance", "third", "infinity"),
    "loss": ("part", "loss", "mass", "density", "class_density"),
}


def _shown(table: str) -> tuple[str, ...]:
    """The columns that a table of its own kind prints: those it names, or its labels and its numbers."""
    module = registry.load("tables", table)
    return getattr(module, "SHOWN", None) or (*getattr(module, "LABELS", ()), *module.COLUMNS)


def _job(rows: list[Row]) -> str:
    """What was priced, where no recipe gives it a name: the mechanism as far as it is the same in all rows."""
    kinds = [row["mech"] for row in rows if row.get("mech")]
    shown = ("sigma", "scale", "sampling", "rate", "n")
    fixed = [f"{k} {rows[0][k]}" for k in rows[0] if k in shown and len({row.get(k) for row in rows}) == 1]
    return ", ".join([kinds[0] if kinds else f"{rows[0].get('steps')} kinds of step", *fixed])


def _who_columns(rows: list[Row]) -> list[str]:
    return (["case"] if "case" in rows[0] else []) + ["accountant"]


def _who(row: Row) -> list[str]:
    """Case and accountant; another notion than approximate DP is named, for its figures are not to be compared with the others'."""
    notion = row.get("notion") or "approximate-dp"
    own = [str(row[name]) for name in _who_columns([row])]
    return own if notion == "approximate-dp" else [*own[:-1], f"{own[-1]} [{notion}]"]


def _ends(row: Row, answer: str) -> str:
    low, high = row.get(f"{answer}_lower"), row.get(f"{answer}_upper")
    return "" if low is None or high is None else f"[{text(low, up=False)}, {text(high, up=True)}]"


def _safe(value: float | None) -> str:
    """A bound, rounded up."""
    return "" if value is None else text(value, up=True)


def _plain(value: Any) -> str:
    return "" if value is None else f"{value:.6g}" if isinstance(value, (int, float)) else str(value)


def claims(recipe: Recipe) -> None:
    """Prints the statements of the paper that are not borne out, with what is found in their place and why."""
    for claim in recipe.claims:
        guarantee_output.emit(f"\nthe paper says: {claim.paper}\nwe find: {claim.found}\nbecause: {claim.because}")


def thin(items: list[Any], most: int | None) -> list[Any]:
    """At most ``most`` of the items, evenly spaced, both ends among them."""
    if most is None or len(items) <= most:
        return items
    return [items[round(i * (len(items) - 1) / (most - 1))] for i in range(most)]


def expected(found: list[Verdict]) -> str:
    body = []
    for v in found:
        where = ", ".join(
            f"{NAMES.get(k, k)} {x}" for k, x in {**({"panel": v.panel} if v.panel else {}), **v.where}.items()
        )
        difference = "" if v.difference is None else f"{v.difference:+.1e}"
        ours = "none" if v.ours is None else f"{v.ours:.6g}"
        told = f"{v.within:g}" + (" absolute" if v.absolute else "")
        column = NAMES.get(v.column, v.column)
        body.append([where, column, f"{v.paper:.6g}", ours, difference, told, v.word, v.source])
    return guarantee_output.table(
        ["expected at", "column", "paper", "ours", "difference", "within", "", "source"], body
    )
