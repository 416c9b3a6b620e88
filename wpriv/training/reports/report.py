"""The verb ``report``: what a results folder says, as a short summary, a web page, a registry entry or a checklist.

The checklist has the questions that a reader asks of a private model, answered from its privacy statement; they are in
``templates/checklist.txt.j2``. The entry is for the Differential Privacy Deployments Registry of OpenDP.
"""

from __future__ import annotations

import importlib.util
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wpriv.config import yaml_document
from wpriv.errors import CheckFailed, MissingResource, UnknownName, Unsupported, UsageError, of_file
from wpriv.files.shown import Shown, html_of
from wpriv.results import model, storage
from wpriv.results.model import AuditAnswer, Json, Releases, Reports, Statement
from wpriv.training.reports import folder_page, model_check, render, words
from wpriv.training.reports.model_check import ModelCheck


@dataclass(frozen=True)
class Question:
    """One question: its heading, the statement's answer in sentences, and else what a person must ``add``."""

    group: str
    question: str
    answer: tuple[str, ...] = ()
    add: str = ""

    def as_dict(self) -> dict[str, object]:
        state = "open" if self.add else "answered"
        answer = list(self.answer)
        return {"group": self.group, "question": self.question, "state": state, "answer": answer, "add": self.add}


def questions(statement: Statement, model: ModelCheck) -> list[Question]:
    """The questions with answers; Unsupported without privacy or a proven guarantee."""
    source, row = words.guaranteed(statement, "a checklist")
    lines = render.lines(
        "checklist.txt.j2",
        statement=statement,
        source=source,
        row=row,
        guarantee=words.guarantee(row),
        setting=words.model_of(source),
        runs=words.earlier_runs(statement),
        model=model,
    )
    group, rows = "", []
    for line in lines:
        kind, text = line[0], line[2:]
        if kind == "=":
            group = text
        elif kind == "?":
            rows.append(Question(group, text))
        else:
            last = rows[-1]
            answer, add = ((*last.answer, text), last.add) if kind == "-" else (last.answer, text)
            rows[-1] = Question(group, last.question, answer, add)
    return rows


REGISTRY_SCHEMA = Path(__file__).with_name("registry.schema.json")
COMMIT = "057e5d81"
OPEN = "TO DO: "
HEADER = (
    "An entry for the Differential Privacy Deployments Registry, tier 3, from a statement of wpriv {wpriv}.\n"
    "Its form is that of github.com/opendp/deployments-registry-data at commit {commit}; compare it with the newest.\n"
    "Values with TO DO are for people: {count} of them are left.\n"
)
NO_VALIDATOR = (
    "the entry was not validated against its schema, since jsonschema is not installed: pip install jsonschema"
)


def entry(statement: Statement, changes: Mapping[str, object] | None = None) -> Json:
    """Return the entry as plain data; what only people know begins with ``TO DO``.

    Args:
        statement: of a finished training. changes: values by dotted path, such as ``deployment.basic.intended_use``.
    Raises:
        Unsupported: the training had no privacy, or no finite guarantee. UsageError: a path does not exist.
    """
    source, row = words.guaranteed(statement, "an entry of the registry")
    if not math.isfinite(row.epsilon):
        raise Unsupported("an entry of the registry needs a finite eps; this training has none at its delta")
    filled = render.filled(
        "registry.json.j2",
        statement=statement,
        source=source,
        row=row,
        slug=re.sub(r"[^a-z0-9]+", "-", statement.recipe.lower()).strip("-") or "model",
        setting=words.model_of(source),
        runs=words.earlier_runs(statement),
        mechanisms=_mechanisms(statement, source),
        information=_information(statement),
    )
    data: Json = json.loads(filled)
    for path, value in (changes or {}).items():
        _set(data, path, value)
    return data


def _mechanisms(statement: Statement, source: Releases | Reports) -> list[str]:
    """The noise, the sampling, the program, and what was not assessed of them."""
    where = "before the training, on every record" if isinstance(source, Reports) else "in every step of the training"
    seed = "from the operating system, not recorded" if source.seed is None else "FIXED"
    sampling = words.sampling(source)
    return [
        f"noise is added {where}: {words.noise(source)}",
        *([f"sampling: {sampling}"] if sampling else []),
        f"versions: {words.versions(statement.versions)}; seed of the noise: {seed}",
        *source.not_assessed,
        f"{OPEN}access controls and security measures for the records",
    ]


def _information(statement: Statement) -> list[str]:
    """The weights' digest, and warnings but for those that may be computed from records without noise."""
    figures = [] if statement.releases is None else statement.releases.for_comparison
    others = {line for row in figures for line in row.warnings}
    warnings = [line for line in statement.warnings if line not in others]
    if statement.model is None or not statement.model.file:
        return warnings
    return [*warnings, f"SHA-256 of the weights (see wpriv's file reference): {statement.model.weights_sha256}"]


def open_paths(data: object, path: str = "") -> Iterator[str]:
    """Yield the dotted paths of the values that are still for people to fill in; places in lists are numbers."""
    if isinstance(data, str) and OPEN in data:
        yield path
    parts = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in parts:
        yield from open_paths(value, f"{path}.{key}" if path else str(key))


def entry_faults(data: Json) -> list[str] | None:
    """Return what the schema finds wrong with an entry, apart from open values; None without jsonschema."""
    if importlib.util.find_spec("jsonschema") is None:
        return None
    from jsonschema import Draft7Validator

    unfilled = set(open_paths(data))
    validator = Draft7Validator(schema(), format_checker=Draft7Validator.FORMAT_CHECKER)
    errors = ((".".join(map(str, error.absolute_path)), error.message) for error in validator.iter_errors(data))
    return [f"{path or 'the entry'}: {message}" for path, message in errors if path not in unfilled]


def schema() -> Json:
    """Return the JSON Schema of an entry."""
    return dict(json.loads(REGISTRY_SCHEMA.read_text(encoding="utf-8")))


def _set(data: Json, path: str, value: object) -> None:
    """Replace the value at a dotted path."""
    *parents, last = path.split(".")
    place = data
    for name in parents:
        place = _child(place, name, path)
    _child(place, last, path)
    place[int(last) if isinstance(place, list) else last] = str(value) if hasattr(value, "isoformat") else value


def _child(place: Any, name: str, path: str) -> Any:
    keys = place if isinstance(place, dict) else range(len(place)) if isinstance(place, list) else ()
    known = [str(key) for key in keys]
    if name not in known:
        raise UsageError(f"the entry has no {path!r}: {name!r} is none of {', '.join(known) or 'its keys'}")
    return place[int(name) if isinstance(place, list) else name]


FORMS = ("summary", "html", "registry", "checklist")
SCHEMA = "wpriv.report/1"


@dataclass(frozen=True, repr=False)
class Report(Shown):
    """What a results folder says.

    Args:
        text: for people: lines, YAML or Markdown. data: the same as plain data. notes: what to know of it.
        summary: of the form ``summary``, the first line of the text and the details below it.
    """

    form: str
    text: str
    data: Json
    notes: list[str] = field(default_factory=list)
    summary: folder_page.Summary | None = None

    def sentence(self) -> str:
        """The first line of the text."""
        return self.text.partition("\n")[0]

    def facts(self) -> list[tuple[str, str]]:
        return [] if self.summary is None else self.summary.rows

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<Report: {self.form}, {len(self.text.splitlines())} lines>"

    def _repr_html_(self) -> str:
        if self.summary is not None:
            return super()._repr_html_()
        return self.text if self.form == "html" else html_of(self.text, [])


def report(source: str | Path, form: str = "summary", changes: Mapping[str, Any] | None = None) -> Report:
    """Read a results folder and say what is in it; nothing is computed anew.

    Args:
        source: a folder of ``train``, ``compare`` or ``audit``; of one training for the last two forms.
        form: ``summary``; ``html``, a page with the figures; ``registry``, an entry for the deployments registry of
            OpenDP; or ``checklist``.
        changes: values of the entry by dotted path, such as ``deployment.basic.intended_use``.
    Returns:
        The Report, with ``text`` and ``data``.
    Raises:
        MissingResource: no such folder, or it holds no results. UsageError: no such path is in the entry. CheckFailed:
            the weights in the folder are not those of its statement. Unsupported: the training had no privacy, or no
            guarantee.
    """
    if form not in FORMS:
        raise UnknownName("form", form, FORMS, "--as")
    if changes and form != "registry":
        raise UsageError("--set changes an entry of the registry: give --as registry with it")
    path = Path(source)
    kind = _kind(path)
    if kind != "training":
        if form not in ("summary", "html") or (kind == "audit" and form != "html"):
            raise Unsupported(_refusal(path, kind, form))
        return Report(form, *_of_audit(path)) if kind == "audit" else _of_table(path, kind, form)
    weights = model_check.require(path)
    statement, _ = model_check.read_statement(path / storage.STATEMENT)
    if form == "registry":
        return _registry(statement, changes)
    if form == "checklist":
        rows = questions(statement, weights)
        data = {"schema": SCHEMA, "kind": form, "questions": [row.as_dict() for row in rows]}
        answered = sum(not row.add for row in rows)
        text = render.filled("checklist.md.j2", statement=statement, rows=rows, answered=answered)
        return Report(form, text, data)
    summary, data = folder_page.summary_of_training(path, statement, weights)
    if form == "html":
        return Report(form, folder_page.of_training(path, statement, weights), data)
    return Report(form, summary.text(), data, summary=summary)


def _registry(statement: Statement, changes: Mapping[str, object] | None) -> Report:
    data = entry(statement, changes)
    faults = entry_faults(data)
    if faults:
        raise CheckFailed(f"the entry does not fit the schema of the registry: {'; '.join(faults)}")
    notes = [NO_VALIDATOR] if faults is None else []
    unfilled = list(open_paths(data))
    if unfilled:
        notes.append(f"left to fill in: {', '.join(unfilled)}")
    header = HEADER.format(wpriv=statement.versions["wpriv"], commit=COMMIT, count=len(unfilled))
    comment = "".join(f"# {line}\n" for line in header.splitlines())
    return Report("registry", comment + yaml_document.as_yaml(data, blocks=True), data, notes)


def _kind(path: Path) -> str:
    """``training``, ``sweep``, ``comparison`` or ``audit``."""
    advice = "Give the folder of wpriv train or wpriv compare --out"
    try:
        if not path.is_dir():
            raise (UsageError if path.exists() else MissingResource)(f"{path} is no folder. {advice}")
        names = {item.name for item in path.iterdir()}
    except OSError as error:
        raise of_file(error, path, "read", "give a folder that can be read") from None
    if folder_page.AUDIT in names:
        return "audit"
    if storage.STATEMENT in names and storage.TABLE not in names:
        return "training"
    if names & {storage.LEDGER, storage.MODEL, storage.CHECKPOINT}:
        raise UsageError(f"{path} holds a training without {storage.STATEMENT}. Finish it by wpriv train with --resume")
    if storage.TABLE not in names:
        raise MissingResource(f"{path} holds no results. {advice}")
    return "sweep" if any(path.glob(f"*/{storage.STATEMENT}")) else "comparison"


def _refusal(path: Path, kind: str, form: str) -> str:
    if kind == "sweep":
        example = next(iter(sorted(path.glob(f"*/{storage.STATEMENT}")))).parent
        return f"{path} holds a sweep, and --as {form} is about one model. Give one of its folders: {example}"
    if kind == "audit":
        return f"{path} holds an audit, which has a page: give --as html"
    return f"{path} holds a comparison, which releases nothing: --as {form} is about one training"


def _of_audit(path: Path) -> tuple[str, Json]:
    file = path / folder_page.AUDIT
    answer = model.json_object(file)
    audit = model.checked(AuditAnswer, answer, file, "Audit again with another --out")
    return folder_page.of_audit(path, audit), {"schema": SCHEMA, "kind": "audit", **answer}


def _of_table(path: Path, kind: str, form: str) -> Report:
    try:
        provenance = model.json_object(path / storage.PROVENANCE)
    except (UsageError, MissingResource):
        provenance = {}
    recipe = path / storage.RECIPE
    data = yaml_document.read(recipe).data if recipe.is_file() else {}
    summary, entries = folder_page.summary_of_table(path, kind, data, provenance)
    if form == "html":
        return Report(form, folder_page.of_table(path, entries, data, provenance), entries)
    return Report(form, summary.text(), entries, summary=summary)
