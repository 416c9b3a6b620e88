"""The grid of a panel: its cases, its accountants, the axes of its sweep, and what each axis changes."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from wpriv.config.schema import PROCESS_TABLES, Panel, Step
from wpriv.config.sweep_values import expand_values, spread_whole
from wpriv.core import registry
from wpriv.core.parameters import type_words

# a sweep with more cells than this is a mistake in the recipe
MAX_CELLS = 100_000


def cases(panel: Panel) -> dict[str, list[Step]]:
    """Return the processes of a panel by name; a single one has an empty name."""
    return panel.cases or {"": panel.process or []}


def accountants(panel: Panel) -> list[str]:
    """Return the accountants, ``all`` expanded; one empty name for a table that no accountant computes."""
    words = panel.accountants or [] if panel.table == "bounds" else [""]
    return registry.names("accountants") if "all" in words else list(dict.fromkeys(words))


def axes(panel: Panel) -> list[tuple[str, list[float]]]:
    """Return each swept quantity with its values, whole numbers where the quantity takes no others."""
    return [
        (axis.over, (spread_whole if _is_whole(panel, axis.over) else expand_values)(axis.values))
        for axis in panel.sweep or []
    ]


def cell_count(panel: Panel) -> int:
    """Return the number of cells of a panel: cases times accountants times the values of each axis."""
    return math.prod([len(cases(panel)), len(accountants(panel)), *(len(values) for _, values in axes(panel))])


def fields(folder: str, name: Any) -> dict[str, dataclasses.Field[Any]]:
    """Return the parameters of a mechanism or a table by name; none where there is no such plug-in."""
    if name not in registry.names(folder):
        return {}
    cls = registry.mechanism(name) if folder == "mechanisms" else registry.load(folder, name).Params
    return {field.name: field for field in dataclasses.fields(cls)}


def parameters(panel: Panel) -> set[str]:
    """Return the parameters of all mechanisms of a panel, or the parameters and labels of a table of its own kind."""
    if panel.table not in PROCESS_TABLES:
        labels = getattr(registry.load("tables", panel.table), "LABELS", ())
        return {*fields("tables", panel.table), *labels}
    return {name for steps in cases(panel).values() for step in steps for name in fields("mechanisms", step.mech)}


def options(panel: Panel) -> set[str]:
    """Return the numeric options of all accountants of a panel; ``all`` stands for accountants without options."""
    known = registry.names("accountants")
    modules = [registry.load("accountants", name) for name in _names(panel.accountants or []) if name in known]
    defaults = {name: value for module in modules for name, value in registry.options(module).items()}
    return {name for name, value in defaults.items() if not isinstance(value, str)}


def is_option(panel: Panel, name: str) -> bool:
    """Return whether an accountant of the panel has an option of this name, which an axis then varies."""
    return any(name in registry.options(registry.load("accountants", each)) for each in _names(accountants(panel)))


def varies(step: Step, name: str) -> bool:
    """Return whether an axis over ``name`` changes a step: n, the rate of a sampled step, or a mechanism's parameter."""
    if name == "rate":
        return step.sampling not in (None, "none")
    return name == "n" or name in fields("mechanisms", step.mech)


def _names(accountants: list[str]) -> list[str]:
    """The accountants without their options."""
    return [name for name in (word.partition(":")[0] for word in accountants) if name]


def _is_whole(panel: Panel, name: str) -> bool:
    """Whether a quantity takes whole numbers alone: n, or a parameter of that type."""
    if panel.table not in PROCESS_TABLES:
        candidates = [fields("tables", panel.table)]
    elif name == "n":
        return True
    else:
        candidates = [fields("mechanisms", step.mech) for steps in cases(panel).values() for step in steps]
    kinds = [type_words(known[name]) for known in candidates if name in known]
    return any("int" in words and "float" not in words for words in kinds)
