"""One results folder as one web page: statement, guarantee and its reading, numbers, figures, and how it is made."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from wpriv.config import yaml_document
from wpriv.errors import Unsupported, WprivError
from wpriv.run.results import (
    expectations,
    file_names,
    guarantee_reading,
    model,
    model_check,
    plot,
    read,
    render,
    summary,
    web_page,
    words,
)
from wpriv.run.results.expectations import number
from wpriv.run.results.model import AuditAnswer, Claim, Claims, Row, Statement
from wpriv.run.results.model_check import FITS, ModelCheck

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
    """Return the page of a finished training.

    Args:
        statement: the content of statement.json. weights: whether those in the folder are its own.
    """
    from wpriv.figures import _names

    source, metrics = statement.protection, summary.last_metrics(path)
    best = None if source is None else source.best
    return _page(
        "training.html.j2",
        path,
        statement.recipe,
        "wpriv train",
        statement=statement,
        source=source,
        reading=[] if source is None or best is None else guarantee_reading.of_statement(source, best),
        facts=_facts(statement, weights),
        measured=[(_names.axis(key), number(value, 5)) for key, value in metrics.items() if value is not None],
        found=_results(
            path, read.table(path / file_names.METRICS), lambda out: plot.plot(path, formats=("svg",), out=out)
        ),
        files=[(entry.file, entry.publish, entry.why) for entry in statement.publish if (path / entry.file).exists()],
    )


def of_table(path: Path, kind: str, recipe: Mapping[str, object], provenance: Mapping[str, object]) -> str:
    """Return the page of a comparison or a sweep.

    Args:
        recipe: the content of recipe.yaml. provenance: that of provenance.json; both may be empty.
    """
    name = str(provenance.get("recipe") or path.name)
    _, data = summary.of_table(path, kind, recipe, provenance)
    known = provenance.get("accountants")
    sources = known if isinstance(known, Mapping) else {}
    together = summary.lines_of_all(*summary.statement_of_all(path)) if kind == "sweep" else []
    return _page(
        "table.html.j2",
        path,
        name,
        "wpriv train" if kind == "sweep" else "wpriv compare",
        name=name,
        kind=kind,
        source=str(recipe.get("source", "no source given")),
        quick=provenance.get("quick"),
        accountants=[
            [
                row["accountant"],
                row["rows"],
                ", ".join(row["claims"]) or "no answer",
                *(summary.shown(row[key]) for key in ("epsilon", "delta")),
                sources.get(row["accountant"], ""),
            ]
            for row in data["accountants"]
        ],
        together=[("all together" if name == "together" else name, line) for name, line in together],
        trainings=_trainings(path) if kind == "sweep" else [],
        found=_results(
            path, read.table(path / file_names.TABLE), lambda out: plot.plot(path, formats=("svg",), out=out)
        ),
    )


def of_audit(path: Path, audit: AuditAnswer) -> str:
    """Return the page of an audit."""
    rows = read.table(path / AUDIT_TABLE)
    return _page(
        "audit.html.j2",
        path,
        f"Audit of {audit.recipe}",
        "wpriv audit",
        audit=audit,
        found=_results(
            path, rows, lambda out: plot.plot(path / AUDIT_TABLE, figure="audit", formats=("svg",), out=out)
        ),
    )


def _page(template: str, path: Path, title: str, verb: str, **values: object) -> str:
    """A page with the command, the recipe as it ran, and where the numbers were computed, at its end."""
    recipe, shown, origin = path / file_names.RECIPE, None, ""
    if recipe.is_file():
        try:
            shown = yaml_document.as_yaml(yaml_document.read(recipe).data)
        except WprivError as error:
            shown = str(error)
    file = next((path / name for name in (file_names.PROVENANCE, AUDIT) if (path / name).exists()), None)
    if file is not None:
        with contextlib.suppress(WprivError):  # a damaged file is named beside the results
            origin = web_page.origin(model.json_object(file))
    command = f"{verb} {file_names.RECIPE} --out results"
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
    for file in sorted(path.glob(f"*/{file_names.STATEMENT}")):
        try:
            promise = words.promise(model_check.read_statement(file)[0])
        except WprivError as error:
            promise = str(error)
        lines.append((file.parent.name, promise))
    return lines


def _results(path: Path, rows: list[Row], draw: Callable[[Path], list[Path]]) -> Results:
    """Figures and their numbers, expected numbers, and claims."""
    pictures = web_page.figures(draw, "figure", f"Figure of {path.name}; its numbers are in the table below")
    faults, verdicts, claims = [], [], []
    try:
        verdicts = expectations.read(path / file_names.EXPECT)
    except WprivError as error:
        faults.append(str(error))
    try:
        if (path / file_names.PROVENANCE).exists():
            claims = model.read(Claims, path / file_names.PROVENANCE).claims
    except WprivError as error:
        faults.append(str(error))
    expected = web_page.expected(verdicts) if verdicts else ""
    return Results(pictures, web_page.numbers_behind(rows), expected, claims, faults)
