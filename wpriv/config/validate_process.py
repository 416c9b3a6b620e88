"""Validate what has steps: the steps of a process, comparisons with their sweeps, and rows of expected numbers."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from wpriv.config.document import Diagnostic, Document, Key, abbreviate, as_keys, unknown_name, unknown_parameter
from wpriv.config.field_types import Expect, read_real
from wpriv.config.plain_words import OBSERVED, is_generator, parse_generator, plain_step
from wpriv.config.resolve import Resolved, panel
from wpriv.config.schema import PROCESS_TABLES, Panel, Step, plugin_fields
from wpriv.core import kinds, process, registry
from wpriv.core.kinds import STANDARD_ADJACENCIES
from wpriv.core.parameters import type_words
from wpriv.core.repetition import repetition, with_repetition
from wpriv.core.sampled_step import defined_under
from wpriv.errors import UsageError
from wpriv.hints import did_you_mean, instead
from wpriv.spec import SCHEDULE

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


# Comparisons: keys that belong together, the values of sweeps, and the rows of expected numbers.

# a key of a part, and what is wrong there
Fault = tuple[str, str]
_LABELS = ("panel", "case", "accountant", "notion", "claim", "n", "rate", "epsilon", "delta", "loss", "part", "fpr")
# a sweep with more cells than this is a mistake in the recipe
MAX_CELLS = 100_000
_QUESTIONS = ("eps", "eps_per_n", "delta")
_NOT_OF_LOSSES = (*_QUESTIONS, "accountants", "tol", "repeats")
_NOT_OF_PLUGINS = ("process", "cases", "adjacency", "group", "bins", *_NOT_OF_LOSSES)


def comparison_diagnostics(resolved: Resolved, *, names_known: bool) -> list[Diagnostic]:
    """Return what is wrong with the combinations of a comparison whose form is sound."""
    document = resolved.document
    result = []
    names = [entry["name"] for entry in document.data.get("panels") or []]
    if len(set(names)) < len(names):
        message = f"panels need different names; found {', '.join(names)}"
        result.append(document.diagnostic(("panels",), message))
    if names and document.data.get("expect"):
        message = "with panels, 'expect' stands inside the panel it is about"
        result.append(document.diagnostic(("expect",), message, at_key=True))
    count = 0
    for part in resolved.parts:
        each = panel(part)
        if each.table not in (*PROCESS_TABLES, *registry.names("tables")):
            continue
        faults = list(_combinations(each, names_known))
        if names_known and not faults:
            count += each.cell_count()
            if count > MAX_CELLS:
                fault = f"{count:,} cells are more than {MAX_CELLS:,}; take fewer values, cases or accountants"
                faults, count = [("sweep", fault)], 0
            else:
                faults = list(_swept_values(each))
        process = each.table in PROCESS_TABLES
        for key, message in faults:  # an unknown adjacency is one of the value
            result.append(part.diagnostic((key,), message, at_key=key != "adjacency" or not process))
        columns = PROCESS_TABLES.get(each.table) or registry.load("tables", each.table).COLUMNS
        swept = [axis.over for axis in each.sweep or []]
        labels = {*_LABELS, *ALIASES, *each.parameters(), *_numeric_options(each), *swept}
        result += expect_diagnostics(part, each.expect, columns, labels)
    return result


def _combinations(each: Panel, names_known: bool) -> Iterator[Fault]:
    swept = [axis.over for axis in each.sweep or []]
    if len(set(swept)) < len(swept):
        yield "sweep", "each axis of a sweep needs a quantity of its own"
    if each.table in PROCESS_TABLES:
        yield from _process_table(each, swept)
        known = {*SCHEDULE, "eps", "delta", "group", "noise_multiplier", "largest_weight"} - {"sampling"}
        known |= each.parameters() | _numeric_options(each) | ({"fpr"} if each.table == "trade-off" else set())
    else:
        yield from _useless_keys(each, _NOT_OF_PLUGINS)
        yield from _table_parameters(each)
        known = set(plugin_fields("tables", each.table))
    for name in swept if names_known else ():
        if name not in known:
            yield "sweep", f"cannot sweep over {name!r}{instead(name, sorted(known))}"


def _numeric_options(each: Panel) -> set[str]:
    return {name for name, default in each.options(each.accountants or []).items() if not isinstance(default, str)}


def _process_table(each: Panel, swept: list[str]) -> Iterator[Fault]:
    """Keys that a table of a process lacks, or that mean nothing in it."""
    if (each.process is None) == (each.cases is None):
        yield "cases", "give either 'process', a list of steps, or 'cases', several of them by name"
    if each.params is not None:
        place = f"a {each.table} table, whose parameters stand in its steps"
        yield "params", f"'params' means nothing in {place}; remove it"
    for name, steps in each.processes().items():
        known = {*STANDARD_ADJACENCIES, *(word for step in steps for word in adjacencies(step.mech))}
        if each.adjacency is not None and each.adjacency not in known:
            place = f" in the case {name}" if name else ""
            yield "adjacency", unknown_name("adjacency", each.adjacency, sorted(known)) + place
    if each.table == "trade-off" and "fpr" not in swept:
        yield "sweep", "a trade-off table needs a sweep over fpr, the false-positive rate of the attack"
    if each.table != "bounds":
        yield from _useless_keys(each, _NOT_OF_LOSSES)
        return
    questions = [key for key in _QUESTIONS if getattr(each, key) is not None]
    questions += [name for name in swept if name in ("eps", "delta")]
    if len(questions) != 1:
        count = " and ".join(questions) or "none"
        yield "sweep", f"ask at one eps or at one delta, fixed or swept (eps, eps_per_n, delta); found {count}"


def _useless_keys(each: Panel, keys: Iterable[str]) -> Iterator[Fault]:
    for key in keys:
        if getattr(each, key) is not None:
            yield key, f"'{key}' means nothing in a {each.table} table; remove it"


def _table_parameters(each: Panel) -> Iterator[Fault]:
    """Parameters that a table plug-in does not have, text where it wants text, and parameters that it lacks."""
    fields, given = plugin_fields("tables", each.table), each.params or {}
    for key, value in given.items():
        if key not in fields:
            near = did_you_mean(key, list(fields)) or f". {each.table} takes {', '.join(fields) or 'no parameters'}"
            yield "params", f"unknown parameter {key[:60]!r}{near}"
        elif "str" in type_words(fields[key]) and not isinstance(value, str):
            yield "params", f"{key} must be text; found {abbreviate(value)}"
    present = {*given, *(axis.over for axis in each.sweep or [])}
    missing = [f.name for f in fields.values() if f.default is dataclasses.MISSING and f.name not in present]
    if missing:
        yield "params", f"{each.table} needs {', '.join(missing)} under 'params'"


def _swept_values(each: Panel) -> Iterator[Fault]:
    """Values of a sweep, or parameters of a table, that are out of range: the first of each step."""
    axes = each.axes()
    for name, values in axes:
        if each.table in PROCESS_TABLES and name in ("eps", "delta"):
            wanted = "be at least 0 and below 1" if name == "delta" else "be a finite number of at least 0"
            wrong = [value for value in values if not 0 <= value < (1 if name == "delta" else math.inf)]
            yield from (("sweep", f"{name} must {wanted}; found {value:g} in the sweep") for value in wrong[:1])
        if each.table in PROCESS_TABLES and name == "fpr" and not all(0 < value <= 1 for value in values):
            listed = ", ".join(f"{value:g}" for value in values[:5])
            yield "sweep", f"a false-positive rate is above 0 and at most 1; found {listed}"
    if each.table not in PROCESS_TABLES:
        params = registry.load("tables", each.table).Params
        key = "sweep" if axes else "params"
        yield from _first_refusal(key, axes, lambda point: params(**{**(each.params or {}), **point}))
        return
    others = {"eps", "delta", "fpr", "group", *each.options(each.accountant_names())} - each.parameters()
    axes = [axis for axis in axes if axis[0] not in others]
    for steps in each.processes().values():
        for name, _ in axes:
            if not any(step.varies(name) for step in steps):
                reason = "no step of the process has such a parameter (or is sampled, for 'rate')"
                yield "sweep", f"the sweep is over {name!r}, but {reason}"
        for step in steps:
            varied = [axis for axis in axes if step.varies(axis[0])]
            names = {*(name for name, _ in varied), *({"group"} & {name for name, _ in each.axes()})}
            if (fault := swept_fault(step.model_dump(), names)) is not None:
                yield "sweep", fault
                continue
            if varied:
                yield from _first_refusal("sweep", varied, partial(build, step))


def _first_refusal(key: str, axes: list[tuple[str, list[float]]], make: Any) -> Iterator[Fault]:
    """The first UsageError that making something at the points of a grid raises."""
    for values in itertools.product(*(values for _, values in axes)):
        try:
            make(dict(zip((name for name, _ in axes), values, strict=True)))
        except UsageError as error:
            yield key, str(error)
            return
