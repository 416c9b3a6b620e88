"""Validate recipes of kind train: keys that belong together, plug-ins and their parameters, without loading torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from wpriv.config import resolve
from wpriv.config.document import (
    Diagnostic,
    Document,
    Key,
    abbreviate,
    form_diagnostics,
    rule_diagnostics,
    unknown_name,
    unknown_parameter,
)
from wpriv.config.field_types import OwnCode
from wpriv.config.resolve import Resolved
from wpriv.config.schema import BOUND_COLUMNS
from wpriv.config.train_schema import Optimizer, Privacy, Train
from wpriv.config.validate_process import expect_diagnostics
from wpriv.core import registry
from wpriv.core.parameters import type_words
from wpriv.errors import MissingResource, UsageError
from wpriv.files import python_file

# keys that divided training takes with any value; others must have their default
KEYS = {
    Train: {
        "kind", "source", "task", "data", "model", "options", "privacy", "optimizer", "batch", "epochs", "steps",
        "seed", "physical", "memory", "shard_weights", "checkpoint", "accountants", "figure", "title", "expect",
        "claims", "printed", "procedure", "time", "quick", "sweep", "seeds", "cluster",
    },
    Privacy: {
        "eps", "delta", "sigma", "accountant", "sampling", "adjacency", "group", "clip", "norm", "pairs", "method",
    },
    Optimizer: {"name", "lr", "momentum", "nesterov", "betas", "weight_decay", "decay"},
}  # fmt: skip


def sharding_fault(recipe: Train) -> tuple[Key, str] | None:
    """Return the first key that needs whole weights, and the message; None where the weights may be divided."""
    private = recipe.privacy
    parts: list[tuple[Key, Train | Optimizer | Privacy]] = [((), recipe), (("optimizer",), recipe.optimizer)]
    parts += [] if private is None else [(("privacy",), private)]
    keys = [
        (*path, key)
        for path, part in parts
        for key, field in type(part).model_fields.items()
        if key not in KEYS[type(part)] and getattr(part, key) != field.get_default(call_default_factory=True)
    ]
    if private is not None and private.correlated is not None:
        keys.remove(("privacy", "noise"))  # a strategy that keeps vectors is refused where its steps are known
    if private is not None and (private.clip == "batch-mean" or private.by_group):
        keys.append(("privacy", "clip"))
    if private is not None and private.method not in ("auto", "ghost"):
        keys.append(("privacy", "method"))
    if not keys:
        return None
    name = ".".join(map(str, keys[0]))
    advice = "Leave it out, or train without shard_weights"
    return keys[0], f"shard_weights: the key {name} needs each weight as a whole. {advice}"


# Validate the key ``tune`` of a recipe of kind train: what all candidates share, and what is ruled out.

# keys that describe records, neighbours, randomness or the question, and not a candidate; also those of ``privacy``
FIXED = (
    *("task", "data", "seed", "seeds", "accountants", "tune", "sweep", "kind", "source", "expect", "claims", "time"),
    *("printed", "procedure", "quick"),
)
PUBLISHED = "tune needs a guarantee of each run, and the published procedure (clip: batch-mean) has none of use"
FIXED_PRIVACY = ("eps", "delta", "accountant", "adjacency", "group")


def tuning_faults(model: Train) -> Iterator[str]:
    """Yield what is wrong with the key ``tune`` of a recipe that has it, beside other keys."""
    tune, private = model.tune, model.privacy
    assert tune is not None
    if model.sweep is not None:
        yield "tune keeps only the best of its trainings, and a sweep all of them; give one of tune and sweep"
    if (model.seeds or 1) > 1:
        yield "tune draws its number of runs at random, and keeps the best alone; leave out seeds"
    if private is None:
        yield "tune bounds the privacy of the best run, and privacy: none has no privacy; use sweep, or give privacy"
        return
    if private.clip == "batch-mean":
        yield PUBLISHED
    if private.eps is not None and private.sigma is not None:
        yield (
            "with tune give eps (the noise is solved for) or sigma, and not both: a run is not cut short before eps "
            "is exceeded"
        )
    for name in model.observing[:1]:
        yield f"tune: {name} observes gradients of one run, and bounds nothing for the best of several; use pld"
    changes = [change for axis in tune.sweep for _, keys in axis.points() for change in keys.items()]
    if ("privacy.clip", "batch-mean") in changes:
        yield PUBLISHED
    for path in dict.fromkeys(path for path, _ in changes):
        first, _, second = path.partition(".")
        if path == "privacy.sigma" and private.eps is not None:
            yield (
                "tune: sweep: with eps the noise of each candidate is solved for, and privacy.sigma would be without "
                "effect; leave out eps, or privacy.sigma of tune"
            )
        elif first in FIXED or path == "privacy" or (first == "privacy" and second in FIXED_PRIVACY):
            yield (
                f"tune: sweep: {path} is the same for all candidates, which share the records, the neighbours and the "
                f"question; write it above, and leave it out of tune"
            )


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
    columns = (*BOUND_COLUMNS, "sigma", "noise", "n", *resolve.results(model))
    labels = {"accountant", *(axis.over for axis in model.sweep or [])}
    result = list(rule_diagnostics(part, model))
    if model.sweep and model.figure in COURSES:
        message = (
            f"'{model.figure}' draws one training over its course, and the table of a sweep has a row for each. Name "
            f"another figure, or leave it out: the losses of all trainings are drawn in any case"
        )
        result.append(part.diagnostic(("figure",), message))
    if model.shard_weights and (fault := sharding_fault(model)) is not None:
        result.append(part.diagnostic(*fault, at_key=True))
    expected = expect_diagnostics(part, model.expect, columns, labels)
    return [*result, *_plugins(part, model), *_tuning(part, model), *expected]


def _tuning(part: Document, model: Train) -> Iterator[Diagnostic]:
    """Faults of ``tune``: keys that it rules out, and scores that the task does not measure on test records."""
    if model.tune is None:
        return
    for message in tuning_faults(model):
        yield part.diagnostic(("tune",), message, at_key=True)
    if not registry.known("tasks", model.task):
        return
    scores = resolve.test_metrics(model)
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
    accountants: list[tuple[Key, str]] = [(("accountants",), word) for word in model.accountants]
    if model.privacy is not None and model.privacy.accountant is not None:
        accountants.append((("privacy", "accountant"), model.privacy.accountant))
    for path, word in accountants:
        try:
            registry.accountant(word)
        except UsageError as error:
            result.append(part.diagnostic(path, str(error)))
    tasks = registry.names("tasks")
    if model.task not in tasks:
        return [*result, part.diagnostic(("task",), unknown_name("task", model.task, tasks))]
    return result + _task(part, model, plugins_known=not result)


def _task(part: Document, model: Train, *, plugins_known: bool) -> list[Diagnostic]:
    """Options that a task does not have, and what it rules out itself."""
    task = registry.load("tasks", model.task).TASK
    options = Document(part.name, part.lines, {"options": model.options}, part.keys, part.values)
    result = form_diagnostics(options, task.options, ("options",))
    result += [part.diagnostic(path, message, at_key=True) for path, message in _of_task(model, task)]
    if not result and plugins_known:
        result = [part.diagnostic(path, message) for path, message in task.validate(model)]
    if not result and model.privacy is not None and model.privacy.exact and not task.supports_exact_noise(model):
        reason = f"the task {model.task} releases something else" + (" with these options" if model.options else "")
        if model.privacy.clip == "batch-mean":
            reason = "clip: batch-mean releases the clipped mean of a batch"
        message = f"exact is for sums of records that are clipped one by one, and {reason}. Use rounded"
        result = [part.diagnostic(("privacy", "noise"), message)]
    return result


def _of_task(model: Train, task: Any) -> Iterator[tuple[Key, str]]:
    """Techniques that a task does not have."""
    if model.init is not None and model.init.recipe is None and not Path(model.init.file).is_file():
        yield ("init",), f"init: no file of weights {model.init.file}; give the path of one"
    if task.clips_single_records:
        return
    if model.privacy is not None and model.observing:
        name = model.observing[0]
        message = f"{name} compares gradients of records, which the task {model.task} does not observe; use pld"
        yield ("accountants",), message
    sums = f"it needs a task that trains one network on a sum of losses, such as classify or fit; found {model.task}"
    for name in ("augment", "average", "early_stop", "init", "freeze", "lora", "precision"):
        if getattr(model, name) is not None:
            yield (name,), f"{name}: {sums}. Leave {name} out"
    if model.privacy is not None and (model.privacy.clip == "automatic" or model.privacy.by_group):
        word = model.privacy.clip if isinstance(model.privacy.clip, str) else "a norm for each group"
        yield ("privacy", "clip"), f"clip: {word}: {sums}. Give a number"
    if model.privacy is not None and model.privacy.adapt is not None:
        yield ("privacy", "adapt"), f"adapt: {sums}. Leave adapt out"
    if model.privacy is not None and model.privacy.correlated is not None:
        yield ("privacy", "noise"), f"noise: correlated noise: {sums}. Take rounded"


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


def _parameters(part: Document, key: str, folder: str, name: str, given: Mapping[str, object]) -> list[Diagnostic]:
    """Parameters that a model or a reader does not have, of the wrong type, or out of range."""
    fields, result = dataclasses.fields(registry.load(folder, name).Params), []
    known = {field.name: type_words(field) for field in fields}
    for word, value in given.items():
        kind = type(value).__name__
        kinds = {kind, {"dict": "Mapping", "list": "Sequence"}.get(kind, kind)}
        if word not in known:
            result.append(part.diagnostic((key, word), unknown_parameter(name, word, known), at_key=True))
        elif not known[word] & kinds and not ("float" in known[word] and type(value) is int):
            wanted = " or ".join(sorted(known[word] - {"None", "object"}))
            message = f"{word} must be of type {wanted}; found {abbreviate(value)}"
            result.append(part.diagnostic((key, word), message))
    if not result:
        try:
            registry.params(folder, name, given)
        except UsageError as error:
            result.append(part.diagnostic((key,), str(error)))
    return result
