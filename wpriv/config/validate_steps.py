"""Validate what recipes of several kinds have: the steps of a process, and rows of expected numbers."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from pydantic import ValidationError

from wpriv.config.document import Diagnostic, Document, Key, abbreviate, as_keys, unknown_name, unknown_parameter
from wpriv.config.field_types import Expect, read_real
from wpriv.config.plain_words import OBSERVED, is_generator, parse_generator, plain_step
from wpriv.config.schema import Step, plugin_fields
from wpriv.core import kinds, process, registry
from wpriv.core.parameters import type_words
from wpriv.core.repetition import repetition, with_repetition
from wpriv.core.sampled_step import defined_under
from wpriv.errors import UsageError
from wpriv.hints import did_you_mean

# shorter words that recipes use for columns of tables
ALIASES = {"eps": "epsilon"}


def adjacencies(mech: object) -> tuple[str, ...]:
    """Return the adjacencies of a mechanism; none where there is no such mechanism."""
    return defined_under(registry.mechanism(mech)) if plugin_fields("mechanisms", mech) else ()


def step_diagnostics(
    document: Document, path: Key, step: Mapping[str, object], swept: Mapping[str, float], calibrated: bool
) -> list[Diagnostic]:
    """Return what is wrong with one step beyond its form.

    Args:
        path: of the step. swept: parameters that a sweep sets, which may be missing, with a value of each.
        calibrated: whether one of the noise, n and the rate must be missing, to be solved for.
    """
    mech, known = step.get("mech"), registry.names("mechanisms")
    if not isinstance(mech, str):
        return []  # a fault of form
    if mech not in known:
        return [document.diagnostic((*path, "mech"), unknown_name("mechanism", mech, known))]
    diagnostics, fields = [], plugin_fields("mechanisms", mech)
    for key, value in step.items():
        if key in Step.model_fields:
            continue
        if key not in fields:
            message = unknown_parameter(mech, key, fields, Step.model_fields)
            diagnostics.append(document.diagnostic((*path, key), message, at_key=True))
        elif type_words(fields[key]) & {"float", "int"} and (message := _no_number(key, value)):
            diagnostics.append(document.diagnostic((*path, key), message))
    try:
        model = Step.model_validate(step)
    except ValidationError:
        return diagnostics  # faults of form
    if not diagnostics:
        diagnostics = [document.diagnostic(path, message) for message in _messages(model, swept, calibrated)]
    file = model.observed
    if file is not None and not is_generator(file) and not Path(file).exists():
        message = f"observed: no such file: {file[:300]}; wanted {OBSERVED}"
        diagnostics.append(Diagnostic(document.place((*path, "observed")), message, is_missing=True))
    return diagnostics


def _no_number(key: str, value: object) -> str:
    """Why the value of a parameter is no number; "" where it is one."""
    try:
        value = read_real(value)
    except ValueError as error:
        return f"{key}: {error}"
    return "" if type(value) in (int, float) else f"{key} must be a number; found {abbreviate(value)}"


def in_type(f: dataclasses.Field[object], value: float) -> float:
    """A number in the type of a parameter: rounded where it takes whole numbers alone."""
    words = type_words(f)
    return round(value) if "int" in words and "float" not in words else value


def _messages(step: Step, swept: Mapping[str, float], calibrated: bool) -> list[str]:
    """Parameters that are missing or out of range, and contradictions about n and the rate."""
    fields, given = plugin_fields("mechanisms", step.mech), _given(step)
    values = {
        name: in_type(fields[name], value) if name in fields else value
        for name, value in swept.items()
        if step.varies(name) and name not in given and "str" not in type_words(fields.get(name))
    }
    if fault := swept_fault(given, values):
        return [fault]
    step = step.model_copy(update={name: value for name, value in values.items() if name in Step.model_fields})
    given = _given(step)
    messages = [message for message in (_schedule(step, rate_needed=not calibrated),) if message]
    if calibrated:
        noise = registry.mechanism(step.mech).noise
        if noise is not None and noise not in given and "noise_multiplier" not in given:
            values[noise] = 1
        messages += [message for message in (_unsolvable(step, noise),) if message and not messages]
    present = {*given, *values, *(("sigma",) if "noise_multiplier" in given else ())}
    required = [f for f in fields.values() if f.default is dataclasses.MISSING and f.name not in present]
    if required:
        missing = [f"{f.name} ({f.metadata.get('help', 'a parameter of the mechanism')})" for f in required]
        return [*messages, f"{step.mech} needs {' and '.join(missing)}; found none"]
    try:
        build(step, values)
        if step.observed is not None and is_generator(step.observed):
            parse_generator(step.observed)
    except UsageError as error:
        messages.append(as_keys(str(error)))
    return messages


def build(step: Step, values: Mapping[str, object]) -> process.Step:
    """Build a step with some values replaced, so that what is out of range raises; observations are not read.

    Raises:
        UsageError: a parameter, n or the rate is out of range.
    """
    written = {**_given(step), **{name: value for name, value in values.items() if name != "group"}}
    row, _ = with_repetition(plain_step({key: value for key, value in written.items() if key != "observed"}))
    if row["rate"] is None:
        row = {key: value for key, value in row.items() if key not in kinds.SAMPLING_KEYS}
    # a number that is solved for is one of whole passes
    count = kinds.Sampling.from_dict(row).pass_steps if row["n"] is None else row["n"]
    return process.Step.from_dict({**row, "n": count})


def _given(step: Step) -> dict[str, object]:
    """The keys of a step that have a value."""
    return {key: value for key, value in {**dict(iter(step)), **(step.model_extra or {})}.items() if value is not None}


def swept_fault(written: Mapping[str, object], swept: Collection[str]) -> str | None:
    """Why a step cannot stand beside a sweep that would leave a key without effect; None where it can."""
    for key, name in (("epochs", "n"), ("batch", "rate")):
        if written.get(key) is not None and name in swept:
            return f"{key} and the sweep both set {name}; leave out {key}"
    varied = next((name for name in ("n", "rate", "max_batch", "group") if name in swept), None)
    if written.get("bands") is not None and varied is not None:
        return (
            f"bands has no sweep over {varied}: the steps are read as those of plain noise, with another n and rate. "
            f"Ask for each {varied} by itself"
        )
    return None


def _schedule(step: Step, *, rate_needed: bool) -> str | None:
    """The first contradiction among the keys about how often a step runs, and on which records."""
    drawn = step.sampling or "none"
    try:
        # dict(step) would take a parameter called keys for a method
        read = repetition(**{name: value for name, value in step})
    except UsageError as error:
        return as_keys(str(error))
    if step.max_batch is not None and (drawn != "poisson" or step.records is None):
        return "max_batch needs sampling: poisson, and records (the largest number of records of a data set)"
    if drawn != "none" and read.rate is None and rate_needed:
        return f"{drawn} sampling needs a rate: give rate, or batch and records"
    return None


def _unsolvable(step: Step, noise: str | None) -> str | None:
    """Why calibrate cannot solve for the one of the noise, n and the rate that is missing: none is, or two are."""
    no_noise = noise is not None and noise not in (step.model_extra or {}) and step.noise_multiplier is None
    no_n = step.n is None and step.epochs is None
    no_rate = step.sampling not in (None, "none") and step.rate is None and step.batch is None
    if no_rate and (no_noise or no_n):
        return f"{noise if no_noise else 'n'} and the sampling rate are both missing; give one of them"
    if no_noise or no_n or no_rate:
        return None
    others = "" if noise is None else f"{noise}, "
    return f"nothing is left to solve for; remove {others}n or (with sampling) the rate, or use kind: budget"


def expect_diagnostics(
    part: Document, rows: Iterable[Expect], columns: Sequence[str], labels: set[str]
) -> Iterator[Diagnostic]:
    """Yield what is wrong with rows of ``expect``."""
    for index, row in enumerate(rows):
        path = ("expect", index)
        numbers = row.model_extra or {}
        for key, value in numbers.items():
            if ALIASES.get(key, key) not in columns:
                near = did_you_mean(key, [*columns, *Expect.model_fields])
                yield part.diagnostic((*path, key), f"unknown key {key!r}{near}", at_key=True)
            elif isinstance(value, bool) or not isinstance(value, (int, float)):
                yield part.diagnostic((*path, key), f"{key} must be a number; found {abbreviate(value)}")
        if row.at_least and row.at_most:
            message = "at_least and at_most are for bounds from one side: write one of them, or neither for a value"
            yield part.diagnostic((*path, "at_most"), message, at_key=True)
        for key in ("contradicted", "procedure"):
            if row.kind != "published" and getattr(row, key) is not None:
                message = f"{key} is about a number of the paper (kind: published); found kind: {row.kind}"
                yield part.diagnostic((*path, key), message, at_key=True)
        if not numbers:
            yield part.diagnostic(path, f"an expect row needs a number to meet, under one of {', '.join(columns)}")
        for key in row.where:
            if key not in labels:
                message = f"unknown column {key!r}{did_you_mean(key, sorted(labels))}"
                yield part.diagnostic((*path, "where", key), message, at_key=True)
