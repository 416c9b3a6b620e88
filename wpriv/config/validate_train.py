"""Validate recipes of kind train: keys that belong together, plug-ins and their parameters, without loading torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from wpriv.config import resolve_train, sharded_keys, validate_tune
from wpriv.config.diagnostics import abbreviate, form_diagnostics, rule_diagnostics, unknown_name, unknown_parameter
from wpriv.config.document import Diagnostic, Document, Key
from wpriv.config.field_types import OwnCode
from wpriv.config.resolve import Resolved
from wpriv.config.schema import BOUND_COLUMNS
from wpriv.config.train_schema import Train
from wpriv.config.validate_expect import expect_diagnostics
from wpriv.core import registry
from wpriv.core.parameters import type_words
from wpriv.errors import MissingResource, UsageError
from wpriv.files import python_file

# arguments that a model of the user's gets beside its parameters, where it has them
SUPPLIED = ("shape", "classes")
# figures of one training over its steps or epochs
COURSES = ("losses", "measures", "training")


def diagnostics(resolved: Resolved) -> list[Diagnostic]:
    """Return what is wrong with the combinations and plug-ins of a recipe of kind train with a sound form."""
    (part,) = resolved.parts
    if resolved.quick and (form := form_diagnostics(part, Train)):
        return [part.diagnostic(("quick",), f"in a quick run: {each.text}") for each in form]
    model = Train.model_validate(part.data)
    columns = (*BOUND_COLUMNS, "sigma", "noise", "n", *resolve_train.results(model))
    labels = {"accountant", *(axis.over for axis in model.sweep or [])}
    result = list(rule_diagnostics(part, model))
    if model.sweep and model.figure in COURSES:
        message = (
            f"'{model.figure}' draws one training over its course, and the table of a sweep has a row for each. Name "
            f"another figure, or leave it out: the losses of all trainings are drawn in any case"
        )
        result.append(part.diagnostic(("figure",), message))
    if model.shard_weights and (fault := sharded_keys.fault(model)) is not None:
        result.append(part.diagnostic(*fault, at_key=True))
    return [
        *result,
        *_plugins(part, model),
        *_tuning(part, model),
        *expect_diagnostics(part, model.expect, columns, labels),
    ]


def _tuning(part: Document, model: Train) -> Iterator[Diagnostic]:
    """Faults of ``tune``: keys that it rules out, and scores that the task does not measure on test records."""
    if model.tune is None:
        return
    for message in validate_tune.faults(model):
        yield part.diagnostic(("tune",), message, at_key=True)
    if model.task not in registry.names("tasks"):
        return
    scores = resolve_train.test_metrics(model)
    if model.tune.score.column not in scores:
        known = f"Its scores: {', '.join(scores)}" if scores else "It has no such column, so that it cannot be tuned"
        message = (
            f"a score is a column that the task {model.task} computes from the weights and test records alone; found "
            f"{abbreviate(model.tune.score.column)}. {known}"
        )
        yield part.diagnostic(("tune", "score", "column"), message)


def _plugins(part: Document, model: Train) -> list[Diagnostic]:
    """Names that no plug-in has, parameters that it does not take, and options that its task does not know."""
    result: list[Diagnostic] = []
    for key, folder, plugin in (("model", "models", model.model), ("data", "data", model.data)):
        if plugin.own:
            result += _own_code(part, key, plugin)
            continue
        if key == "model" and plugin.file is not None:
            message = f"the file of a model is a Python file, such as net.py; found {abbreviate(plugin.file)}"
            result.append(part.diagnostic((key, "file"), message))
        known = registry.names(folder)
        if plugin.name in known:
            result += _parameters(part, key, folder, plugin.name, plugin.parameters())
        else:
            result.append(part.diagnostic((key, "name"), unknown_name(folder.rstrip("s"), plugin.name, known)))
    for path, word in _accountants(model):
        try:
            registry.accountant(word)
        except UsageError as error:
            result.append(part.diagnostic(path, str(error)))
    tasks = registry.names("tasks")
    if model.task not in tasks:
        return [*result, part.diagnostic(("task",), unknown_name("task", model.task, tasks))]
    return result + _task(part, model, plugins_known=not result)


def _accountants(model: Train) -> Iterator[tuple[Key, str]]:
    yield from ((("accountants",), word) for word in model.accountants)
    if model.privacy is not None and model.privacy.accountant is not None:
        yield ("privacy", "accountant"), model.privacy.accountant


def _task(part: Document, model: Train, *, plugins_known: bool) -> list[Diagnostic]:
    """Options that a task does not have, and what it rules out itself."""
    task = registry.load("tasks", model.task).TASK
    options = Document(part.name, part.lines, {"options": model.options}, part.keys, part.values)
    result = form_diagnostics(options, task.options, ("options",))
    result += [part.diagnostic(path, message, at_key=True) for path, message in _of_task(model, task)]
    if not result and plugins_known:
        result = [part.diagnostic(path, message) for path, message in task.validate(model)]
    if not result and model.privacy is not None and model.privacy.exact and not task.supports_exact_noise(model):
        if model.privacy.clip == "batch-mean":
            reason = "clip: batch-mean releases the clipped mean of a batch"
        else:
            reason = f"the task {model.task} releases something else" + (" with these options" if model.options else "")
        message = f"exact is for sums of records that are clipped one by one, and {reason}. Use rounded"
        result = [part.diagnostic(("privacy", "noise"), message)]
    return result


def _of_task(model: Train, task: Any) -> Iterator[tuple[Key, str]]:
    """Techniques that a task does not have."""
    if model.init is not None and not Path(model.init.file).is_file():
        yield ("init",), f"init: no file of weights {model.init.file}; give the path of one"
    if task.clips_single_records:
        return
    if model.privacy is not None and model.observing:
        name = model.observing[0]
        message = f"{name} compares gradients of records, which the task {model.task} does not observe; use pld"
        yield ("accountants",), message
    sums = f"it needs a task that trains one network on a sum of losses, such as classify or fit; found {model.task}"
    for name in ("augment", "average", "init", "freeze", "lora"):
        if getattr(model, name) is not None:
            yield (name,), f"{name}: {sums}. Leave {name} out"
    if model.privacy is not None and model.privacy.clip == "automatic":
        yield ("privacy", "clip"), f"clip: automatic: {sums}. Give a number"
    if model.privacy is not None and model.privacy.adapt is not None:
        yield ("privacy", "adapt"), f"adapt: {sums}. Leave adapt out"


def _own_code(part: Document, key: str, code: OwnCode) -> list[Diagnostic]:
    """Faults of a reference to a Python file of the user's, which is parsed and not run."""
    assert code.file is not None
    try:
        if code.sha256 is not None and code.sha256 != (digest := python_file.digest(code.file)):
            message = f"the recipe is about {code.file} with the digest {code.sha256}; found {digest}. Remove sha256"
            return [part.diagnostic((key, "sha256"), message)]
        supplied = SUPPLIED if key == "model" else ()
        message = python_file.fault(code.file, code.name, code.parameters(), supplied) or ""
    except (MissingResource, UsageError) as error:
        return [part.diagnostic((key, "file"), str(error))]
    return [part.diagnostic((key,), message)] if message else []


def _kinds(value: Any) -> set[str]:
    """The words of types that a value of a recipe has."""
    kind = type(value).__name__
    return {kind, {"dict": "Mapping", "list": "Sequence"}.get(kind, kind)}


def _parameters(part: Document, key: str, folder: str, name: str, given: Mapping[str, Any]) -> list[Diagnostic]:
    """Parameters that a model or a reader does not have, of the wrong type, or out of range."""
    fields, result = dataclasses.fields(registry.load(folder, name).Params), []
    known = {field.name: type_words(field) for field in fields}
    for word, value in given.items():
        if word not in known:
            result.append(part.diagnostic((key, word), unknown_parameter(name, word, known), at_key=True))
        elif not known[word] & _kinds(value) and not ("float" in known[word] and type(value) is int):
            wanted = " or ".join(sorted(known[word] - {"None", "Any"}))
            message = f"{word} must be of type {wanted}; found {abbreviate(value)}"
            result.append(part.diagnostic((key, word), message))
    if not result:
        try:
            registry.params(folder, name, given)
        except UsageError as error:
            result.append(part.diagnostic((key,), str(error)))
    return result
