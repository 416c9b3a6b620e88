"""One results folder as one web page: statement, guarantee and its reading, numbers, figures, and how it is made."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from wpriv.config import yaml_document
from wpriv.errors import Unsupported, WprivError
from wpriv.numerics.safe_rounding import text as rounded
from wpriv.run.results import (
    file_names,
    guarantee_reading,
    model_header,
    plot,
    read,
    statement_facts,
    stored_json,
    summary,
    web_page,
)
from wpriv.run.results.model_check import FITS, ModelCheck
from wpriv.run.results.web_page import Row, bullets, facts, text

AUDIT, AUDIT_TABLE = "audit.json", "audit.csv"
_MEASURED = "Do not publish this page: it shows what was measured without noise."
NOT_FOR_PUBLICATION = f"{_MEASURED} Of the files, those that are marked below may be published."
SWEEP_NOT_FOR_PUBLICATION = (
    f"{_MEASURED} The statement of each training, in its folder, lists the files of it that may be published."
)
_LISTS = {
    "trust_model": "Trust model",
    "covered": "Covered",
    "not_covered": "Not covered",
    "not_assessed": "Not assessed",
}


def of_training(path: Path, statement: dict[str, Any], model: ModelCheck) -> str:
    """Return the page of a finished training.

    Args:
        statement: the content of statement.json. model: whether the weights in the folder are its own.
    """
    source = statement.get("reports", statement)
    _, data = summary.of_training(path, statement, model)
    parts = [
        _heading(str(statement["recipe"]), str(statement["source"])),
        _alert(NOT_FOR_PUBLICATION),
        f'<p class="promise">{text(model_header.promise(statement))}.</p>',
        *_warnings(statement.get("warnings", [])),
        *_guarantees(source),
        *_section("The privacy statement", facts(_facts(statement, model))),
        *_section("What was measured, without noise", _measured(data["metrics"])),
        *_results(path, read.table(path / file_names.METRICS), lambda out: plot.plot(path, formats=("svg",), out=out)),
        *_section("Files", _files(path, statement["publish"])),
    ]
    for key, heading in _LISTS.items():
        if key in source:
            parts += _section(heading, bullets(source[key]))
    return _page(str(statement["recipe"]), [*parts, *_making(path, "wpriv train")])


def of_table(path: Path, kind: str, recipe: Mapping[str, Any], provenance: Mapping[str, Any]) -> str:
    """Return the page of a comparison or a sweep.

    Args:
        recipe: the content of recipe.yaml. provenance: that of provenance.json; both may be empty.
    """
    name = str(provenance.get("recipe") or path.name)
    rows = read.table(path / file_names.TABLE)
    verb = "wpriv train" if kind == "sweep" else "wpriv compare"
    parts = [_heading(name, str(recipe.get("source", "no source given")))]
    if kind == "sweep":
        parts.append(_alert(SWEEP_NOT_FOR_PUBLICATION))
    if provenance.get("quick"):
        parts.append(_alert("This run used the quick settings of the recipe: it is no reproduction."))
    parts += _accountants(path, kind, recipe, provenance)
    if kind == "sweep":
        parts += _section("Its trainings", _trainings(path))
    parts += _results(path, rows, lambda out: plot.plot(path, formats=("svg",), out=out))
    return _page(name, [*parts, *_making(path, verb)])


def of_audit(path: Path, answer: dict[str, Any]) -> str:
    """Return the page of an audit, of which ``answer`` is the content of audit.json."""
    certified = answer["certified"]
    rows = read.table(path / AUDIT_TABLE)
    lower = rounded(answer["epsilon_at_least"], up=False)
    # a lower bound of eps at one delta holds at smaller ones too
    delta = rounded(answer["delta"], up=False)
    at_least = f"{lower} at delta = {delta}, confidence {answer['confidence']:.0%}"
    entries = [
        ("verdict", str(answer["verdict"])),
        ("eps is at least", at_least),
        (
            "eps is at most",
            f"{rounded(certified['epsilon'], up=True)}, {certified['claim']} by {certified['accountant']}",
        ),
        ("gap", f"{answer['gap']:.3g}"),
        ("canaries", f"{answer['canaries']} in {answer['runs']} runs, method {answer['method']}"),
        ("adjacency", str(answer["adjacency"])),
        ("source", str(answer["source"])),
    ]
    parts = [
        _heading(f"Audit of {answer['recipe']}", "A lower bound of eps by attacks on canaries"),
        *_warnings(answer["warnings"]),
        *_section("The answer", facts(entries)),
        *_results(path, rows, lambda out: plot.plot(path / AUDIT_TABLE, figure="audit", formats=("svg",), out=out)),
    ]
    return _page(f"Audit of {answer['recipe']}", [*parts, *_making(path, "wpriv audit")])


def _page(title: str, parts: list[str]) -> str:
    return web_page.document(f"{title}: wpriv", "\n".join(part for part in parts if part))


def _heading(title: str, source: str) -> str:
    return f'<h1>{text(title)}</h1><p class="soft">{text(source)}</p>'


def _alert(words: str) -> str:
    return f'<p class="missing">{text(words)}</p>'


def _section(heading: str, body: str) -> list[str]:
    return [f"<section><h2>{text(heading)}</h2>", body, "</section>"] if body else []


def _warnings(lines: list[str]) -> list[str]:
    return [f'<p class="missing"><b>Warning:</b> {text(line)}</p>' for line in lines]


def _guarantees(source: Row) -> list[str]:
    """Every guarantee with its claim and both ends, and what the best one says of an attacker."""
    rows = source.get("guarantees", [])
    if not rows:
        return []
    header = ["accountant", "notion", "claim", "eps", "from", "to", "delta", "source"]
    cells = [
        [
            *(text(row[key]) for key in ("accountant", "notion", "claim")),
            *_ends(row),
            text(rounded(float(row["delta"]), up=True)),
            text(row["source"]),
        ]
        for row in rows
    ]
    parts = [web_page.table(header, cells, numbers={3, 4, 5, 6}, name="numbers")]
    row = model_header.best(rows)
    if row is not None:
        parts.append(bullets(guarantee_reading.of_statement(source, row)))
    return _section("The guarantee, and how to read it", "".join(parts))


def _ends(row: Row) -> list[str]:
    """Eps rounded up, and both ends of a certified bracket rounded outward; nothing for those of other claims."""
    shown = rounded(float(row["epsilon"]), up=True)
    if row["claim"] != "certified":
        return [shown, "", ""]
    return [shown, rounded(row["epsilon_lower"], up=False), rounded(row["epsilon_upper"], up=True)]


def _facts(statement: dict[str, Any], model: ModelCheck) -> list[tuple[str, str]]:
    """What the statement says of data, neighbours, noise and sampling, in one line each."""
    data = statement["data"]
    rows = [("task", f"{statement['task']} on {data['records']} records of {data['name']}")]
    try:
        known = statement_facts.facts(statement, "a page")
    except Unsupported as error:
        return [*rows, ("privacy", str(error)), ("weights", model.words)]
    rows += [
        ("setting", f"{known.model}; see 'Trust model' below"),
        ("unit", known.unit + (f", groups of {known.group}" if known.group > 1 else "")),
        ("neighbours", known.neighbours),
        ("delta", f"{rounded(known.delta['value'], up=True)} = {known.delta['meaning']}"),
        ("sampling", known.sampling),
        ("noise", known.noise),
        ("composition", known.composition),
        ("earlier runs", ", ".join(known.earlier_runs)),
        ("seed", "a fixed one: whoever knows it can subtract the noise" if known.source["seed"] is not None else ""),
        ("weights", model.words + ("" if model.verdict == FITS else f" ({model.verdict})")),
    ]
    return [(name, value) for name, value in rows if value]


def _measured(metrics: Row) -> str:
    from wpriv.figures import _names

    values = [(_names.axis(key), web_page.number(value, 5)) for key, value in metrics.items() if value is not None]
    return facts(values) if values else ""


def _accountants(path: Path, kind: str, recipe: Mapping[str, Any], provenance: Mapping[str, Any]) -> list[str]:
    _, data = summary.of_table(path, kind, dict(recipe), dict(provenance))
    if not data["accountants"]:
        return []
    sources = provenance.get("accountants") or {}
    header = ["accountant", "rows", "claims", "eps", "delta", "source"]
    cells = [
        [
            text(row["accountant"]),
            text(row["rows"]),
            text(", ".join(row["claims"]) or "no answer"),
            *(text(_range(row[key])) for key in ("epsilon", "delta")),
            text(sources.get(row["accountant"], "") if isinstance(sources, Mapping) else ""),
        ]
        for row in data["accountants"]
    ]
    return _section("What answered", web_page.table(header, cells, numbers={1}))


def _range(ends: list[float] | None) -> str:
    if not ends:
        return ""
    low, high = (rounded(float(end), up=True) for end in ends)
    return low if low == high else f"{low} to {high}"


def _trainings(path: Path) -> str:
    """The guarantee of all trainings of a sweep together, and a line for each finished one with its own."""
    cells = []
    for file in sorted(path.glob(f"*/{file_names.STATEMENT}")):
        try:
            promise = model_header.promise(stored_json.read(file))
        except (KeyError, TypeError) as error:
            promise = f"its statement lacks an entry: {error}"
        except WprivError as error:
            promise = str(error)
        cells.append([text(file.parent.name), text(promise)])
    together = [("all together" if name == "together" else name, line) for name, line in _of_all(path)]
    each = web_page.table(["folder", "guarantee of it alone"], cells)
    folded = f"<details><summary>Each of the {len(cells)} trainings alone</summary>{each}</details>" if cells else ""
    return (facts(together) if together else "") + folded


def _of_all(path: Path) -> list[tuple[str, str]]:
    return summary.lines_of_all(*summary.statement_of_all(path))


def _results(path: Path, rows: list[Row], draw: Callable[[Path], list[Path]]) -> list[str]:
    """Figures and their numbers, expected numbers, and claims."""
    pictures = web_page.figures(draw, "figure", f"Figure of {path.name}; its numbers are in the table below")
    parts = _section("Figures", "\n".join([*pictures, web_page.numbers_behind(rows)]))
    return parts + _or_damage(path / file_names.EXPECT, _expected) + _or_damage(path / file_names.PROVENANCE, _claims)


def _expected(content: Row) -> list[str]:
    rows = content["expect"]
    return _section("Expected numbers beside ours", web_page.expected(rows)) if rows else []


def _claims(content: Row) -> list[str]:
    return web_page.claims(content.get("claims", []))


def _or_damage(path: Path, parts: Callable[[Row], list[str]]) -> list[str]:
    """The parts of a page on the content of a JSON file, or one that says that it is damaged; none where it is missing.

    Args:
        parts: the parts on the content; it raises a LookupError, TypeError or the like where the content is not sound.
    """
    if not path.exists():
        return []
    try:
        return parts(stored_json.read(path))
    except WprivError as error:
        return [_alert(str(error))]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        return [_alert(f"{path.name} is damaged ({type(error).__name__}: {error})")]


def _files(path: Path, entries: list[dict[str, str]]) -> str:
    cells = [
        [text(entry["file"]), text(entry["publish"]), text(entry["why"])]
        for entry in entries
        if (path / entry["file"]).exists()
    ]
    return web_page.table(["file", "publish", "why"], cells, name="numbers")


def _making(path: Path, verb: str) -> list[str]:
    """The command, the recipe as it ran, and where the numbers were computed."""
    recipe = path / file_names.RECIPE
    parts = [f"<p><code>{text(f'{verb} {file_names.RECIPE} --out results')}</code></p>"]
    if recipe.is_file():
        try:
            shown = yaml_document.as_yaml(yaml_document.read(recipe).data)
        except WprivError as error:
            shown = str(error)
        parts.append(
            f"<details open><summary>{file_names.RECIPE}, as it ran</summary><pre>{text(shown)}</pre></details>"
        )
    file = next((path / name for name in (file_names.PROVENANCE, AUDIT) if (path / name).exists()), None)
    if file is not None:
        with contextlib.suppress(WprivError):  # a damaged file is named beside the results
            parts.append(f'<p class="soft">{text(web_page.origin(stored_json.read(file)))}</p>')
    return _section("How to make it again", "".join(parts))
