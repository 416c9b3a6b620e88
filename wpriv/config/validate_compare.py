"""Validate comparisons: keys that belong together, the values of sweeps, and the rows of expected numbers."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from wpriv.config.document import Diagnostic, abbreviate, unknown_name
from wpriv.config.resolve import Resolved, panel
from wpriv.config.schema import PROCESS_TABLES, Panel, plugin_fields
from wpriv.config.validate_steps import ALIASES, adjacencies, build, expect_diagnostics, swept_fault
from wpriv.core import registry
from wpriv.core.kinds import STANDARD_ADJACENCIES
from wpriv.core.parameters import type_words
from wpriv.errors import UsageError
from wpriv.hints import did_you_mean, instead
from wpriv.spec import SCHEDULE

# a key of a part, and what is wrong there
Fault = tuple[str, str]
_LABELS = ("panel", "case", "accountant", "notion", "claim", "n", "rate", "epsilon", "delta", "loss", "part", "fpr")
# a sweep with more cells than this is a mistake in the recipe
MAX_CELLS = 100_000
_QUESTIONS = ("eps", "eps_per_n", "delta")
_NOT_OF_LOSSES = (*_QUESTIONS, "accountants", "tol", "repeats")
_NOT_OF_PLUGINS = ("process", "cases", "adjacency", "group", "bins", *_NOT_OF_LOSSES)


def diagnostics(resolved: Resolved, *, names_known: bool) -> list[Diagnostic]:
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
