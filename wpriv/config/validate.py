"""Validate a recipe in one pass: form, names, parameters and combinations. Nothing is solved, drawn or composed.

``validate`` returns every diagnostic, sorted by place; ``recipe.check`` raises them. The contents of input files
(histograms, observations, data sets) are validated by the run that reads them.
"""

from __future__ import annotations

from collections.abc import Iterator

from wpriv.config import validate_compare, validate_train
from wpriv.config.document import Diagnostic, Document, Key, form_diagnostics, rule_diagnostics, unknown_name
from wpriv.config.field_types import expand_values
from wpriv.config.resolve import Resolved
from wpriv.config.schema import MODELS, PROCESS_TABLES
from wpriv.config.validate_steps import adjacencies, step_diagnostics
from wpriv.core import registry
from wpriv.core.kinds import STANDARD_ADJACENCIES
from wpriv.errors import UsageError

# keys whose value is the name of a plug-in: the folder, and names that are no plug-ins
_NAMED: dict[str, tuple[str, tuple[str, ...]]] = {"figure": ("figures", ()), "table": ("tables", tuple(PROCESS_TABLES))}


def validate(resolved: Resolved) -> list[Diagnostic]:
    """Return all that is wrong with a recipe, sorted by line and column; an empty list for a sound recipe."""
    document = resolved.document
    kind, known = document.data.get("kind"), ", ".join(MODELS)
    if "kind" not in document.data:
        return [document.diagnostic(("kind",), f"the key 'kind' is missing; it is one of {known}")]
    if not isinstance(kind, str) or kind not in MODELS:
        return [document.diagnostic(("kind",), f"kind must be one of {known}; found {kind!r}")]
    form = form_diagnostics(document, MODELS[kind])
    names = _name_diagnostics(document)
    combinations: list[Diagnostic] = []
    if not form and kind == "train":
        combinations = validate_train.diagnostics(resolved)
    elif not form and kind == "compare":
        combinations = validate_compare.diagnostics(resolved, names_known=not names)
    elif not form:
        combinations = list(rule_diagnostics(document, MODELS[kind].model_validate(document.data)))
    return sorted({*form, *names, *combinations})


def _name_diagnostics(document: Document) -> list[Diagnostic]:
    """Steps that cannot be built, and names of accountants, figures, tables and adjacencies that do not exist."""
    steps, swept, diagnostics = dict(_steps(document)), dict(_swept(document)), []
    for path, step in steps.items():
        diagnostics += step_diagnostics(document, path, step, swept, document.data["kind"] == "calibrate")
    known = sorted(
        {*STANDARD_ADJACENCIES, *(name for step in steps.values() for name in adjacencies(step.get("mech")))}
    )
    for path in document.values:
        value = document.at(path)
        if not isinstance(value, str) or not path:
            continue
        if path[-1] == "adjacency" and value not in known:
            diagnostics.append(document.diagnostic(path, unknown_name("adjacency", value, known)))
        elif path[-2:-1] == ("accountants",):
            diagnostics += _accountant(document, path, value)
        elif path[-1] in _NAMED:
            folder, others = _NAMED[str(path[-1])]
            names = [*others, *registry.names(folder)]
            if value not in names:
                diagnostics.append(document.diagnostic(path, unknown_name(folder[:-1], value, names)))
    return diagnostics


def _steps(document: Document) -> Iterator[tuple[Key, dict[str, object]]]:
    """The steps of processes and of cases anywhere in a document, with their paths."""
    for path in document.values:
        value = document.at(path)
        if isinstance(value, dict) and (path[-2:-1] == ("process",) or path[-3:-2] == ("cases",)):
            yield path, value


def _swept(document: Document) -> Iterator[tuple[str, float]]:
    """The quantities that sweeps anywhere in a document vary, each with its first value; 1 for faulty ones."""
    for path in document.values:
        if path[-1:] == ("over",) and "sweep" in path[-3:-1] and isinstance(document.at(path), str):
            try:
                first = expand_values(document.at((*path[:-1], "values")))[0]
            except (ValueError, TypeError, LookupError):
                first = 1
            yield document.at(path), first


def _accountant(document: Document, path: Key, word: str) -> list[Diagnostic]:
    name, colon, _ = word.partition(":")
    known = registry.names("accountants")
    if word == "all":
        return []
    if name not in known:
        return [document.diagnostic(path, unknown_name("accountant", name, ["all", *known]))]
    try:
        registry.accountant(word if colon else name)
    except UsageError as error:
        return [document.diagnostic(path, str(error))]
    return []
