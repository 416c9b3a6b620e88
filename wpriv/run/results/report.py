"""The verb ``report``: what a results folder says, as a short summary, a web page, a registry entry or a checklist."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wpriv.config import yaml_document
from wpriv.errors import CheckFailed, MissingResource, UnknownName, Unsupported, UsageError, of_file
from wpriv.run.results import checklist, file_names, folder_page, model, model_check, registry_entry, summary
from wpriv.run.results.model import AuditAnswer, Statement

FORMS = ("summary", "html", "registry", "checklist")
SCHEMA = "wpriv.report/1"


@dataclass(frozen=True)
class Report:
    """What a results folder says.

    Args:
        text: for people: lines, YAML or Markdown. data: the same as plain data. notes: what to know of it.
    """

    form: str
    text: str
    data: dict[str, Any]
    notes: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return self.text


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
        UsageError: the folder holds no results, or no such path is in the entry. CheckFailed: the weights in the folder
            are not those of its statement. Unsupported: the training had no privacy, or no guarantee.
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
        return Report(form, *_of_audit(path)) if kind == "audit" else Report(form, *_of_table(path, kind, form))
    weights = model_check.require(path)
    statement, _ = model_check.read_statement(path / file_names.STATEMENT)
    if form == "registry":
        return _registry(statement, changes)
    if form == "checklist":
        rows = checklist.questions(statement, weights)
        data = {"schema": SCHEMA, "kind": form, "questions": [row.as_dict() for row in rows]}
        return Report(form, checklist.to_markdown(statement, rows), data)
    lines, data = summary.of_training(path, statement, weights)
    return Report(form, folder_page.of_training(path, statement, weights) if form == "html" else lines, data)


def _registry(statement: Statement, changes: Mapping[str, object] | None) -> Report:
    data = registry_entry.entry(statement, changes)
    faults = registry_entry.faults(data)
    if faults:
        raise CheckFailed(f"the entry does not fit the schema of the registry: {'; '.join(faults)}")
    notes = [registry_entry.NO_VALIDATOR] if faults is None else []
    unfilled = list(registry_entry.open_paths(data))
    if unfilled:
        notes.append(f"left to fill in: {', '.join(unfilled)}")
    return Report("registry", registry_entry.to_yaml(data, str(statement.versions["wpriv"])), data, notes)


def _kind(path: Path) -> str:
    """``training``, ``sweep``, ``comparison`` or ``audit``.

    Raises:
        UsageError: the folder holds no results. MissingResource: it cannot be read.
    """
    advice = "Give the folder of wpriv train or wpriv compare --out"
    try:
        if not path.is_dir():
            raise UsageError(f"{path} is no folder. {advice}")
        names = {item.name for item in path.iterdir()}
    except OSError as error:
        raise of_file(error, path, "read", "give a folder that can be read") from None
    if folder_page.AUDIT in names:
        return "audit"
    if file_names.STATEMENT in names and file_names.TABLE not in names:
        return "training"
    if names & {file_names.LEDGER, file_names.MODEL, file_names.CHECKPOINT}:
        raise UsageError(
            f"{path} holds a training without {file_names.STATEMENT}. Finish it by wpriv train with --resume"
        )
    if file_names.TABLE not in names:
        raise UsageError(f"{path} holds no results. {advice}")
    return "sweep" if any(path.glob(f"*/{file_names.STATEMENT}")) else "comparison"


def _refusal(path: Path, kind: str, form: str) -> str:
    if kind == "sweep":
        example = next(iter(sorted(path.glob(f"*/{file_names.STATEMENT}")))).parent
        return f"{path} holds a sweep, and --as {form} is about one model. Give one of its folders: {example}"
    if kind == "audit":
        return f"{path} holds an audit, which has a page: give --as html"
    return f"{path} holds a comparison, which releases nothing: --as {form} is about one training"


def _of_audit(path: Path) -> tuple[str, dict[str, Any]]:
    file = path / folder_page.AUDIT
    answer = model.json_object(file)
    audit = model.checked(AuditAnswer, answer, file, "Audit again with another --out")
    return folder_page.of_audit(path, audit), {"schema": SCHEMA, "kind": "audit", **answer}


def _of_table(path: Path, kind: str, form: str) -> tuple[str, dict[str, Any]]:
    try:
        provenance = model.json_object(path / file_names.PROVENANCE)
    except (UsageError, MissingResource):
        provenance = {}
    recipe = path / file_names.RECIPE
    data = yaml_document.read(recipe).data if recipe.is_file() else {}
    lines, entries = summary.of_table(path, kind, data, provenance)
    return (folder_page.of_table(path, kind, data, provenance) if form == "html" else lines), entries
