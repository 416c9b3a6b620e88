"""Recipes of kind ``train``: ``quick`` and single overrides merged in, plug-ins and their parameters checked, without loading torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from wpriv.config.diagnostics import abbreviate, model_faults, unknown
from wpriv.config.train_schema import Train
from wpriv.config.yaml_document import Document, Fault, Key
from wpriv.core import registry
from wpriv.core.parameters import type_words
from wpriv.errors import UsageError
from wpriv.hints import did_you_mean

# keys of the published procedure alone
BATCH_MEAN = ("norm", "mask")
# what says something about a run without changing it
COSMETIC = ("source", "title", "figure", "expect", "claims", "time", "checkpoint", "quick")

# keys that hold one whole, of which a part means nothing beside parts of another
REPLACED = ("sweep",)


def resolve(document: Document, quick: bool, faults: list[Fault]) -> tuple[dict[str, Any], Train]:
    """The data that a recipe comes down to, defaults written out, and its model; what is wrong is added to ``faults``."""
    data = {key: value for key, value in document.data.items() if key != "quick"}
    if quick:
        # what is expected and said of the whole run is not so of a quick one
        over = document.data.get("quick") or {}
        gone = {"expect", "claims", "time", *(key for key in REPLACED if key in over)}
        data = merged({key: value for key, value in data.items() if key not in gone}, over)
        written = Document(document.name, document.lines, data, document.keys, document.values)
        faults += [
            Fault(document.place(("quick",)), f"in a quick run: {fault.text}") for fault in model_faults(written, Train)
        ]
        if faults:
            data = {key: value for key, value in document.data.items() if key != "quick"}
            return data, Train.model_validate(data)
    model = Train.model_validate(data)
    faults += _combinations(document, model) + _plugins(document, model)
    plain = model.model_dump(exclude_none=True, exclude={"privacy", "quick"})
    plain = {key: value for key, value in plain.items() if value != []}
    private: Any = "none" if model.privacy is None else model.privacy.model_dump(exclude_none=True)
    if model.privacy is not None and model.privacy.clip != "batch-mean":
        private = {key: value for key, value in private.items() if key not in BATCH_MEAN}
    if model.privacy is not None and model.privacy.noise == "rounded":
        # the default is left out, so that a run is the same under recipes from before there was a choice
        del private["noise"]
    # the order in which recipes are written
    order = [key for key in Train.model_fields if key in {*plain, "privacy"}]
    return {key: private if key == "privacy" else plain[key] for key in order}, model


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """A mapping with another laid over it: inner mappings are merged, everything else is replaced; epochs and steps replace each other."""
    found = dict(below)
    for one, other in (("epochs", "steps"), ("steps", "epochs")):
        if one in above and other not in above:
            found.pop(other, None)
    for key, value in above.items():
        inner = found.get(key)
        found[key] = merged(inner, value) if isinstance(inner, Mapping) and isinstance(value, Mapping) else value
    return found


def overridden(data: Mapping[str, Any], path: str, value: Any) -> dict[str, Any]:
    """The data with the value at one dotted path (``privacy.eps``) replaced or added.

    Raises:
        UsageError: the path is empty, or goes through something that is no mapping.
    """
    parts = path.split(".")
    if not all(parts):
        raise UsageError(f"a key is given by its path, as in privacy.eps; found {path[:80]!r}")
    found: Any = value
    for part in reversed(parts):
        found = {part: found}
    at: Any = data
    for part in parts[:-1]:
        at = at.get(part, {}) if isinstance(at, Mapping) else None
        if not isinstance(at, Mapping):
            raise UsageError(f"the recipe has no mapping at {part!r} in which {path!r} could stand")
    return merged(data, found)


def essence(data: Mapping[str, Any]) -> dict[str, Any]:
    """What decides the result of a training: two recipes are the same run where it is equal."""
    return {key: value for key, value in data.items() if key not in COSMETIC}


def results(task: str) -> tuple[str, ...]:
    """The columns of numbers that a task measures; none where there is no such task."""
    if task not in registry.names("tasks"):
        return ()
    columns: tuple[str, ...] = registry.load("tasks", task).TASK.results
    return columns


def _combinations(document: Document, model: Train) -> list[Fault]:
    """What must or must not stand together."""
    faults = []

    def wrong(path: Key, said: str) -> None:
        faults.append(Fault(document.place(path, at_key=True), said))

    if (model.epochs is None) == (model.steps is None):
        wrong(("epochs",), "give either epochs or steps: how long to train")
    private = model.privacy
    if private is None:
        return faults
    if private.eps is None and private.sigma is None:
        wrong(
            ("privacy",),
            "privacy needs a target (eps and delta), or the noise (sigma, and delta to price it); found neither eps nor sigma",
        )
    if private.delta is None:
        wrong(("privacy",), "privacy needs delta, at which eps is asked or told")
    if private.sampling != "none" and model.batch is None:
        wrong(("privacy", "sampling"), f"{private.sampling} sampling needs 'batch', the number of records of a step")
    if private.sampling == "none" and model.batch is not None:
        wrong(("batch",), "without sampling every step uses all records; leave out batch, or sample (poisson, fixed)")
    proven = {"poisson": "add-remove", "fixed": "replace-one"}.get(private.sampling)
    if proven and private.adjacency not in (None, proven):
        wrong(
            ("privacy", "adjacency"),
            f"{private.sampling} sampling is accounted under {proven} neighbours; found {private.adjacency}",
        )
    if private.exact and private.method not in ("auto", "loop"):
        asked = f"noise: exact clips one record after another (loop); found {private.method}. Leave method out"
        wrong(("privacy", "method"), asked)
    if private.clip != "batch-mean":
        for key in BATCH_MEAN:
            if key in private.model_fields_set:
                wrong(("privacy", key), f"'{key}' belongs to the published procedure (clip: batch-mean); remove it")
    elif private.eps is not None:
        wrong(
            ("privacy", "eps"),
            "clip: batch-mean is the published procedure, whose noise is given (sigma), not calibrated; remove eps",
        )
    return faults


def _plugins(document: Document, model: Train) -> list[Fault]:
    """Names that no plug-in has, parameters that it does not take, and options that its task does not know."""
    faults: list[Fault] = []
    for key, folder, name, own in (
        ("model", "models", model.model.name, model.model.parameters()),
        ("data", "data", model.data.name, model.data.parameters()),
    ):
        known = registry.names(folder)
        if name not in known:
            faults.append(Fault(document.place((key, "name")), unknown(folder.rstrip("s"), name, known)))
            continue
        faults += _parameters(document, key, folder, name, own)
    tasks = registry.names("tasks")
    if model.task not in tasks:
        return [*faults, Fault(document.place(("task",)), unknown("task", model.task, tasks))]
    task = registry.load("tasks", model.task).TASK
    wrong = model_faults(_with_options(document, model), task.options, ("options",))
    if not wrong and not faults:
        wrong = [Fault(document.place(path), said) for path, said in task.validate(model)]
    faults += wrong
    if not wrong and model.privacy is not None and model.privacy.exact and not task.supports_exact_noise(model):
        place = document.place(("privacy", "noise"))
        reason = f"exact is for sums of records that are clipped one by one, and {_releases(model)}. Use rounded"
        faults.append(Fault(place, reason))
    named: list[tuple[Key, str]] = [(("accountants",), word) for word in model.accountants]
    if model.privacy is not None and model.privacy.accountant is not None:
        named.append((("privacy", "accountant"), model.privacy.accountant))
    for path, word in named:
        try:
            registry.accountant(word)
        except UsageError as error:
            faults.append(Fault(document.place(path), str(error)))
    return faults


def _releases(model: Train) -> str:
    """What stands in the way of exact noise, in words."""
    if model.privacy is not None and model.privacy.clip == "batch-mean":
        return "clip: batch-mean releases the clipped mean of a batch"
    return f"the task {model.task} releases something else" + (" with these options" if model.options else "")


def _with_options(document: Document, model: Train) -> Document:
    return Document(document.name, document.lines, {"options": model.options}, document.keys, document.values)


def _parameters(document: Document, key: str, folder: str, name: str, given: Mapping[str, Any]) -> list[Fault]:
    """Faults of the parameters that a recipe gives a model or a data set: unknown keys, types and ranges."""
    params, faults = registry.load(folder, name).Params, []
    known = {field.name: type_words(field) for field in dataclasses.fields(params)}
    for word, value in given.items():
        if word not in known:
            near = did_you_mean(word, list(known))
            message = f"unknown key {word[:60]!r}{near or f'. {name} takes ' + (', '.join(known) or 'no parameters')}"
            faults.append(Fault(document.place((key, word), at_key=True), message))
        elif type(value).__name__ not in known[word] and not ("float" in known[word] and type(value) is int):
            types = " or ".join(sorted(known[word] - {"None"}))
            message = f"{word} must be of type {types}; found {abbreviate(value)}"
            faults.append(Fault(document.place((key, word)), message))
    if not faults:
        try:
            registry.params(folder, name, given)
        except UsageError as error:
            faults.append(Fault(document.place((key,)), str(error)))
    return faults
