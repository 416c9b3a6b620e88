"""One results folder as a web page or as a short summary in lines, and the parts of web pages.

A page has statement, guarantee and its reading, numbers, figures, and how it is made. All text is escaped by the
templates: names and texts of recipes may hold anything.
"""

from __future__ import annotations

import contextlib
import math
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from wpriv.accounting.claims import explain
from wpriv.config import yaml_document
from wpriv.errors import MissingResource, Unsupported, UsageError, WprivError
from wpriv.numerics import numbers
from wpriv.results import expectations, model, plot, storage
from wpriv.results.expectations import Verdict, number
from wpriv.results.model import AuditAnswer, Claim, Claims, OfAll, Row, Statement, Together
from wpriv.training.reports import model_check, render, words
from wpriv.training.reports.model_check import FITS, ModelCheck

# rows of a table that a page shows in full below a figure
MAX_ROWS = 60
# expected numbers that a page shows without being unfolded
MOST_OPEN = 16
BOUNDS = ("eps", "delta")  # beginnings of the columns that hold a guarantee
LOWER_ENDS = ("_lower", "_at_least")  # ends of the columns that hold a lower bound
NO_COLUMNS = {"process", "source", "warnings", "reason"}


def expected_table(verdicts: Sequence[Verdict]) -> str:
    """Return the expected numbers of a recipe beside ours, as a table; of a long one, those that are met are folded."""
    return render.part("expected", verdicts, MOST_OPEN)


def figures(draw: Callable[[Path], Iterable[Path]], prefix: str, label: str) -> str:
    """Return figures as inline SVG.

    Args:
        draw: writes SVG files (and others, which are left out) into a folder and returns their paths.
        prefix: of the identifiers within the figures, unique on the page. label: what the figures show.
    """
    with tempfile.TemporaryDirectory() as folder:
        try:
            pictures = [path.read_text(encoding="utf-8") for path in draw(Path(folder)) if path.suffix == ".svg"]
        except WprivError as error:
            return render.part("no_figure", str(error))
    return render.part("pictures", [_inline(each, f"{prefix}-{place}") for place, each in enumerate(pictures)], label)


def numbers_behind(rows: Sequence[Row], title: str = "The numbers of the figure", length: int = 0) -> str:
    """The table behind a figure, to unfold: at most 60 rows; columns of one value stand in a line above."""
    if not rows:
        return ""
    names = [
        name for name in rows[0] if name not in NO_COLUMNS and any(row.get(name) not in (None, "") for row in rows)
    ]
    shown = thinned(rows)
    alike = [name for name in names if len(rows) > 1 and all(row.get(name) == rows[0][name] for row in rows)]
    names = [name for name in names if name not in alike] or names
    total = max(length, len(rows))
    cells = [[_cell(name, row.get(name)) for name in names] for row in shown]
    count = f"{len(shown)} of {total} rows" if total > len(shown) else f"{total} row{'s' * (total != 1)}"
    above = ", ".join(f"{name} {_cell(name, rows[0][name])}" for name in alike if name not in names)
    return render.part("folded_table", title, count, above, names, cells)


def thinned(rows: Sequence[Row]) -> list[Row]:
    """Return at most 60 rows of a table, evenly chosen, the first and the last among them."""
    last = len(rows) - 1
    if last < MAX_ROWS:
        return list(rows)
    return [rows[round(place * last / (MAX_ROWS - 1))] for place in range(MAX_ROWS)]


def _cell(name: str, value: object) -> str:
    """A number of a table: lower ends rounded down, upper ends and figures of eps and delta up, the rest to nearest."""
    if isinstance(value, float) and math.isfinite(value):
        if name.endswith(LOWER_ENDS):
            return words.down(value)
        if name.endswith("_upper") or (name.startswith(BOUNDS) and not name.endswith("_estimate")):
            return words.up(value)
    return number(value)


def origin_line(provenance: Mapping[str, object]) -> str:
    """Return where and when numbers were computed."""
    parts = [f"wpriv {provenance.get('wpriv', '')}"]
    if provenance.get("git_commit"):
        parts.append(f"commit {str(provenance['git_commit'])[:12]}")
    if isinstance(seconds := provenance.get("wall_seconds"), (int, float)):
        parts.append(numbers.duration(seconds))
    parts.append(f"device {provenance.get('device', 'cpu')}")
    if provenance.get("seed") is not None:
        parts.append(f"seed {provenance['seed']}")
    if isinstance(seeds := provenance.get("seeds"), int) and seeds > 1:
        parts.append(f"{seeds} runs of each setting")
    return ", ".join([*parts, *([str(provenance["platform"])] if provenance.get("platform") else [])])


def _inline(picture: str, name: str) -> str:
    """An SVG file without its prologue, its identifiers made unique on the page, in the colours of the page."""
    picture = picture[picture.index("<svg") :].replace("#ffffff", "var(--paper)").replace("#000000", "var(--ink)")
    width = re.search(r'<svg[^>]* width="([0-9.]+)pt"', picture)
    if width is not None:  # a small figure is not stretched over the whole page
        picture = picture.replace("<svg", f'<svg style="max-width: {1.4 * float(width[1]):.0f}pt"', 1)
    picture = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', picture)
    picture = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", picture)
    return re.sub(r'(xlink:href|href)="#([^"]+)"', rf'\1="#{name}-\2"', picture)


# One results folder as one web page.

AUDIT, AUDIT_TABLE = "audit.json", "audit.csv"


@dataclass(frozen=True)
class Results:
    """The parts of a page on what was computed: HTML, and what is said of files that are damaged."""

    figures: str
    numbers: str
    expected: str
    claims: list[Claim]
    faults: list[str]


def of_training(path: Path, statement: Statement, weights: ModelCheck) -> str:
    """Return the page of a finished training."""
    from wpriv.figures import _names

    source, metrics = statement.protection, last_metrics(path)
    best = None if source is None else source.best
    return _page(
        "training.html.j2",
        path,
        statement.recipe,
        "wpriv train",
        statement=statement,
        source=source,
        reading=[] if source is None or best is None else explain.of_statement(source, best),
        facts=_facts(statement, weights),
        measured=[(_names.axis(key), number(value, 5)) for key, value in metrics.items() if value is not None],
        found=_results(path, storage.METRICS),
        files=[(entry.file, entry.publish, entry.why) for entry in statement.publish if (path / entry.file).exists()],
    )


def of_table(path: Path, data: Row, recipe: Mapping[str, object], provenance: Mapping[str, object]) -> str:
    """Return the page of a comparison or a sweep, of which ``summary_of_table`` gave the data."""
    known = provenance.get("accountants")
    sources = known if isinstance(known, Mapping) else {}
    is_sweep = data["kind"] == "sweep"
    together = lines_of_all(*statement_of_all(path)) if is_sweep else []
    return _page(
        "table.html.j2",
        path,
        data["recipe"],
        "wpriv train" if is_sweep else "wpriv compare",
        name=data["recipe"],
        kind=data["kind"],
        source=str(recipe.get("source", "no source given")),
        quick=provenance.get("quick"),
        accountants=[
            [
                row["accountant"],
                row["rows"],
                ", ".join(row["claims"]) or "no answer",
                *(shown(row[key]) for key in ("epsilon", "delta")),
                sources.get(row["accountant"], ""),
            ]
            for row in data["accountants"]
        ],
        together=[("all together" if name == "together" else name, line) for name, line in together],
        trainings=_trainings(path) if is_sweep else [],
        found=_results(path, storage.TABLE),
    )


def of_audit(path: Path, audit: AuditAnswer) -> str:
    """Return the page of an audit."""
    return _page(
        "audit.html.j2",
        path,
        f"Audit of {audit.recipe}",
        "wpriv audit",
        audit=audit,
        found=_results(path, AUDIT_TABLE, "audit"),
    )


def _page(template: str, path: Path, title: str, verb: str, **values: object) -> str:
    """A page with the command, the recipe as it ran, and where the numbers were computed, at its end."""
    recipe, shown, origin = path / storage.RECIPE, None, ""
    if recipe.is_file():
        try:
            shown = yaml_document.as_yaml(yaml_document.read(recipe).data)
        except WprivError as error:
            shown = str(error)
    file = next((path / name for name in (storage.PROVENANCE, AUDIT) if (path / name).exists()), None)
    if file is not None:
        with contextlib.suppress(WprivError):  # a damaged file is named beside the results
            origin = origin_line(model.json_object(file))
    command = f"{verb} {storage.RECIPE} --out results"
    return render.filled(template, title=f"{title}: wpriv", command=command, recipe=shown, origin=origin, **values)


def _facts(statement: Statement, weights: ModelCheck) -> list[tuple[str, str]]:
    """What the statement says of data, neighbours, noise and sampling, in one line each."""
    rows = [("task", f"{statement.task} on {statement.data.records} records of {statement.data.name}")]
    try:
        source, _ = words.guaranteed(statement, "a page")
    except Unsupported as error:
        return [*rows, ("privacy", str(error)), ("weights", weights.words)]
    rows += [
        ("setting", f"{words.model_of(source)}; see 'Trust model' below"),
        ("unit", source.unit + (f", groups of {source.group}" if source.group > 1 else "")),
        ("neighbours", source.neighbours),
        ("delta", words.delta(source.delta)),
        ("sampling", words.sampling(source)),
        ("noise", words.noise(source)),
        ("composition", words.composition(source)),
        ("earlier runs", ", ".join(words.earlier_runs(statement))),
        ("seed", "a fixed one: whoever knows it can subtract the noise" if source.seed is not None else ""),
        ("weights", weights.words + ("" if weights.verdict == FITS else f" ({weights.verdict})")),
    ]
    return [(name, value) for name, value in rows if value]


def _trainings(path: Path) -> list[tuple[str, str]]:
    """The finished trainings of a sweep, each with its own guarantee."""
    lines = []
    for file in sorted(path.glob(f"*/{storage.STATEMENT}")):
        try:
            promise = words.promise(model_check.read_statement(file)[0])
        except WprivError as error:
            promise = str(error)
        lines.append((file.parent.name, promise))
    return lines


def _results(path: Path, table: str, figure: str | None = None) -> Results:
    """Figures and the numbers of a table, expected numbers, and claims; a named figure is drawn of the table alone."""
    rows, source = storage.table(path / table), path / table if figure else path
    label = f"Figure of {path.name}; its numbers are in the table below"
    pictures = figures(lambda out: plot.plot(source, figure=figure, formats=("svg",), out=out), "figure", label)
    faults, verdicts, claims = [], [], []
    try:
        verdicts = expectations.read(path / storage.EXPECT)
    except WprivError as error:
        faults.append(str(error))
    try:
        if (path / storage.PROVENANCE).exists():
            claims = model.read(Claims, path / storage.PROVENANCE).claims
    except WprivError as error:
        faults.append(str(error))
    expected = expected_table(verdicts) if verdicts else ""
    return Results(pictures, numbers_behind(rows), expected, claims, faults)


# A short summary of a results folder in lines.

SCHEMA = "wpriv.report/1"
NO_MEASUREMENTS = ("epoch", "step", "epsilon", "seconds")


class Summary(NamedTuple):
    """Summary of a results folder: the guarantee in one line, and labelled details."""

    headline: str
    rows: list[tuple[str, str]]

    def text(self) -> str:
        """The summary in lines."""
        column = max(len(name) for name, _ in self.rows) + 4
        return "\n".join([self.headline, *(f"  {name}".ljust(column) + value for name, value in self.rows)])


def summary_of_training(path: Path, statement: Statement, weights: ModelCheck) -> tuple[Summary, Row]:
    """Return the summary of a finished training, and the same as plain data."""
    last = last_metrics(path)
    data, measured = statement.data, {key: value for key, value in last.items() if key not in NO_MEASUREMENTS}
    files = [entry for entry in statement.publish if (path / entry.file).exists()]
    steps = f", {last['step']} steps" if "step" in last else ""
    rows = [("recipe", f"{statement.recipe}: {statement.source}")]
    rows.append(("trained", f"{statement.task} on {data.records} records of {data.name}{steps}"))
    if measured:
        shown = ", ".join(f"{key} {value:.4g}" for key, value in measured.items() if isinstance(value, (int, float)))
        rows.append(("measured", f"{shown} (without noise: not for publication)"))
    if (source := statement.protection) is not None:
        rows += [("neighbours", source.neighbours), ("delta", words.delta(source.delta))]
    rows.append(("weights", weights.words))
    rows += [("warning", warning) for warning in statement.warnings]
    for heading, answer in (("publish", "yes"), ("keep", "no")):
        if names := [entry.file for entry in files if entry.publish == answer]:
            rows.append((heading, ", ".join(names)))
    summary = {
        "schema": SCHEMA,
        "kind": "training",
        "recipe": statement.recipe,
        "promise": words.promise(statement),
        "private": statement.private,
        "metrics": last,
        "guarantees": [] if statement.releases is None else [row.as_dict() for row in statement.releases.guarantees],
        "model": weights.verdict,
        "warnings": statement.warnings,
        "files": [entry.as_dict() for entry in files],
    }
    return Summary(words.promise(statement), rows), summary


def summary_of_table(
    path: Path, kind: str, recipe: Mapping[str, object], provenance: Mapping[str, object]
) -> tuple[Summary, Row]:
    """Return the summary of a comparison or a sweep, and the same as plain data."""
    table = storage.table(path / storage.TABLE)
    names = dict.fromkeys(str(row["accountant"]) for row in table if row.get("accountant"))
    of = str(provenance.get("recipe") or path.name)
    rows = [("recipe", f"{of}: {recipe.get('source', 'no source given')}")]
    rows.append(("rows", f"{len(table)} in {storage.TABLE}, columns {', '.join(table[0])}"))
    accountants = []
    for name in names:
        part = [row for row in table if row.get("accountant") == name]
        claims = list(dict.fromkeys(str(row["claim"]) for row in part if row.get("claim")))
        ranges = {key: _range(part, key) for key in ("epsilon", "delta")}
        accountants.append({"accountant": name, "rows": len(part), "claims": claims, **ranges})
        figures = [f"{key} {shown(ends)}" for key, ends in ranges.items() if ends]
        rows.append((name, ", ".join([f"{len(part)} rows", "/".join(claims) or "no answer", *figures])))
    together, warnings = statement_of_all(path)
    headline = f"{len(table)} numbers by {', '.join(names) or 'one computation'}"
    trainings = sorted(file.parent.name for file in path.glob(f"*/{storage.STATEMENT}"))
    if kind == "sweep":
        rows.append(("trainings", f"{len(trainings)} finished, each with a statement: {', '.join(trainings)}"))
        rows += lines_of_all(together, warnings)
        headline = f"{len(trainings)} trainings, each with a guarantee of its own"
        if together is not None:
            headline = f"{words.guarantee_of_all(together)}, for {len(trainings)} trainings together"
    files = sorted(item.name for item in path.iterdir() if item.is_file())
    rows.append(("files", ", ".join(files)))
    summary = {
        "schema": SCHEMA,
        "kind": kind,
        "recipe": of,
        "rows": len(table),
        "accountants": accountants,
        "trainings": trainings,
        "files": files,
        **({"together": together.as_dict(), "warnings": warnings} if together is not None else {}),
    }
    return Summary(headline, rows), summary


def statement_of_all(path: Path) -> tuple[Together | None, list[str]]:
    """Return the guarantee of several trainings together and its warnings; None where there is no such statement."""
    file = path / storage.STATEMENT
    if not file.exists():
        return None, []
    data = model.json_object(file)
    if "together" not in data:
        return None, []
    stated = model.checked(OfAll, data, file, "Write it again by the command of the trainings")
    return stated.together, stated.warnings


def lines_of_all(together: Together | None, warnings: list[str]) -> list[tuple[str, str]]:
    """Return the lines on the guarantee of several trainings together, and the warnings, with their names."""
    if together is None:
        return []
    return [("together", words.guarantee_of_all(together)), *(("warning", line) for line in warnings)]


def last_metrics(path: Path) -> Row:
    """Return the last row of the metrics; empty if they cannot be read."""
    try:
        return storage.table(path / storage.METRICS)[-1]
    except (UsageError, MissingResource):
        return {}


def _range(rows: list[Row], key: str) -> list[float] | None:
    values = [row[key] for row in rows if isinstance(row.get(key), (int, float))]
    return [min(values), max(values)] if values else None


def shown(ends: list[float] | None) -> str:
    """Return a range of figures, rounded up; nothing where there is none."""
    if not ends:
        return ""
    low, high = (words.up(float(end)) for end in ends)
    return low if low == high else f"{low} to {high}"
