"""Validate recipes of kind train: keys that belong together, plug-ins and their parameters, without loading torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from wpriv.config import resolve_train, sharded_keys, technique_rules, validate_tune
from wpriv.config.diagnostics import abbreviate, form_diagnostics, unknown_name, unknown_parameter
from wpriv.config.document import Diagnostic, Document, Key
from wpriv.config.field_types import OwnCode
from wpriv.config.resolve import Resolved
from wpriv.config.schema import BOUND_COLUMNS
from wpriv.config.train_schema import Privacy, Train
from wpriv.config.validate_expect import expect_diagnostics
from wpriv.core import registry
from wpriv.core.parameters import type_words
from wpriv.core.sampling import theorems
from wpriv.errors import MissingResource, UsageError
from wpriv.files import python_file

# arguments that a model of the user's gets beside its parameters, where it has them
SUPPLIED = ("shape", "classes")
# figures of one training over its steps or epochs
COURSES = ("losses", "measures", "training")
# keys that make several trainings of one recipe
NESTED = ("sweep", "seeds", "tune")


def diagnostics(resolved: Resolved) -> list[Diagnostic]:
    """Return what is wrong with the combinations and plug-ins of a recipe of kind train with a sound form."""
    (part,) = resolved.parts
    if resolved.quick and (form := form_diagnostics(part, Train)):
        return [part.diagnostic(("quick",), f"in a quick run: {each.text}") for each in form]
    model = Train.model_validate(part.data)
    columns = (*BOUND_COLUMNS, "sigma", "noise", "n", *resolve_train.results(model))
    labels = {"accountant", *(axis.over for axis in model.sweep or [])}
    return [
        *_combinations(part, model),
        *_plugins(part, model),
        *_tuning(part, model),
        *expect_diagnostics(part, model.expect, columns, labels),
    ]


def _combinations(part: Document, model: Train) -> Iterator[Diagnostic]:
    """Keys that must or must not stand together."""
    if (model.epochs is None) == (model.steps is None):
        yield part.diagnostic(("epochs",), "give either epochs or steps: how long to train", at_key=True)
    if model.cluster is not None and not model.has_several:
        message = "'cluster' says where the trainings of a sweep, or repeated runs, take place. Leave it out"
        yield part.diagnostic(("cluster",), message, at_key=True)
    if model.sweep and model.figure in COURSES:
        message = (
            f"'{model.figure}' draws one training over its course, and the table of a sweep has a row for each. Name "
            f"another figure, or leave it out: the losses of all trainings are drawn in any case"
        )
        yield part.diagnostic(("figure",), message)
    if model.shard_weights and (fault := sharded_keys.fault(model)) is not None:
        yield part.diagnostic(*fault, at_key=True)
    if (model.seeds or 1) > 1 and any(axis.over == "run" for axis in model.sweep or []):
        yield part.diagnostic(
            ("sweep",), "with seeds the column run numbers the runs; call the axis otherwise", at_key=True
        )
    yield from (part.diagnostic(("sweep",), message, at_key=True) for message in _nested(model))
    if model.optimizer.nesterov and not (model.optimizer.name == "sgd" and model.optimizer.momentum):
        message = "Nesterov's form is one of the momentum of sgd; give a momentum above 0, or leave nesterov out"
        yield part.diagnostic(("optimizer", "nesterov"), message, at_key=True)
    for path, message in () if model.privacy is None else _privacy(model, model.privacy):
        yield part.diagnostic(path, message, at_key=True)


def _nested(model: Train) -> Iterator[str]:
    """Axes of a sweep that would make several trainings of one cell, whose statement is about one in each folder."""
    for path in dict.fromkeys(path for axis in model.sweep or [] for _, keys in axis.points() for path in keys):
        if path.partition(".")[0] in NESTED:
            yield f"sweep: each cell is one training, and {path} would make several of it; leave it out of the axes"


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


def _privacy(model: Train, private: Privacy) -> Iterator[tuple[Key, str]]:
    if private.eps is None and private.sigma is None:
        message = "privacy needs a target (eps and delta), or the noise (sigma, and the delta at which eps is reported)"
        yield ("privacy",), f"{message}; found neither eps nor sigma"
    if private.delta is None:
        yield ("privacy",), "privacy needs delta, at which eps is asked or reported"
    if private.accountant is not None and private.sigma is not None:
        message = "accountant calibrates the noise for eps, and sigma gives the noise; remove one of them"
        yield ("privacy", "accountant"), message
    if private.sampling != "none" and model.batch is None:
        message = f"{private.sampling} sampling needs 'batch', the number of records of a step"
        yield ("privacy", "sampling"), message
    if private.sampling == "none" and model.batch is not None:
        yield (
            ("batch",),
            "without sampling every step uses all records; leave out batch, or sample (poisson, fixed, allocation)",
        )
    # under replace-one, Poisson sampling has a proof only where a record moves the sum by half of the sensitivity
    proven = theorems.adjacencies(private.sampling)[: 1 if private.sampling == "poisson" else None]
    if proven and private.adjacency not in (None, *proven):
        message = f"{private.sampling} sampling is accounted for under {proven[0]} adjacency; found {private.adjacency}"
        yield ("privacy", "adjacency"), message
    if private.exact and private.method not in ("auto", "loop"):
        message = f"noise: exact clips one record after another (loop); found {private.method}. Leave method out"
        yield ("privacy", "method"), message
    if private.clip != "batch-mean":
        for key in resolve_train.BATCH_MEAN:
            if key in private.model_fields_set:
                message = f"'{key}' belongs to the published procedure (clip: batch-mean); remove it"
                yield ("privacy", key), message
    elif private.eps is not None:
        message = (
            "clip: batch-mean is the published procedure, whose noise is given (sigma), not calibrated; remove eps"
        )
        yield ("privacy", "eps"), message


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
    result += [part.diagnostic(path, message, at_key=True) for path, message in technique_rules.faults(model, task)]
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
