"""The cells of a comparison: every process, at every point of the sweep, by every accountant."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import itertools
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wpriv._version import __version__
from wpriv.config.resolve import Recipe
from wpriv.config.schema import PROCESS_TABLES, Panel, Step
from wpriv.config.sweep_values import expand_values, spread_whole
from wpriv.core import registry
from wpriv.core.parameters import type_words
from wpriv.core.process import Process
from wpriv.errors import Unsupported, UsageError
from wpriv.run.accounting import build_process

# beyond this a sweep is a mistake in the recipe, not a job
MAX_CELLS = 100_000


@dataclass(frozen=True)
class Cell:
    """One number (or one law) to compute, as plain data; ``labels`` is what tells its rows apart from those of other cells.

    ``specs`` are the steps of a process, or the parameters of a table of another kind.
    """

    table: str
    labels: dict[str, Any]
    specs: tuple[dict[str, Any], ...]
    adjacency: str | None
    accountant: str = ""
    eps: float | None = None
    delta: float | None = None
    tol: float | None = None
    bins: int | None = None
    options: tuple[tuple[str, float], ...] = ()

    def key(self) -> str:
        """A fingerprint of all that decides the result; the program's version is part of it."""
        return _fingerprint([__version__, self.table, self.labels, self.curve_key(), self.eps, self.delta, self.bins])

    def curve_key(self) -> str:
        """A fingerprint of the process and who prices it: cells that share it ask one curve at several points."""
        # a file is known by what is in it, which may change from one run to the next
        inside = [_content(spec[key]) for spec in self.specs for key in ("file", "observed") if key in spec]
        return _fingerprint([self.specs, self.adjacency, self.accountant, self.options, self.tol, inside])

    def process(self) -> Process:
        return build_process.process(self.specs, self.adjacency)


def _fingerprint(parts: list[Any]) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:32]


def _content(path: str) -> str:
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except (OSError, ValueError):
        return ""  # the mechanism tells that it cannot be read


def cells(recipe: Recipe) -> list[Cell]:
    """All cells of a compare recipe, in the order of its table.

    Raises:
        UsageError: there are more than 100,000, or a swept parameter is one that no step of a process has.
    """
    asked = sum(
        math.prod([len(_cases(p)), len(_who(p)), *(len(points) for _, points in _axes(p))]) for p in recipe.panels
    )
    if asked > MAX_CELLS:
        raise UsageError(
            f"{recipe.name} asks for {asked:,} cells, more than {MAX_CELLS:,}; take fewer sweep values, cases or accountants"
        )
    return [cell for panel in recipe.panels for cell in _panel(panel)]


def check(cells: list[Cell]) -> None:
    """Build every process and every question of a grid, so that a value out of range shows before any work begins.

    Raises:
        UsageError: a cell that can have no answer, because a value of the sweep is none that its parameter takes.
    """
    seen = set()
    for cell in cells:
        for name, value in (("eps", cell.eps), ("delta", cell.delta)):
            if value is not None and not (0 < value < 1 if name == "delta" else 0 <= value < math.inf):
                wanted = "lie strictly between 0 and 1" if name == "delta" else "be a finite number of at least 0"
                raise UsageError(f"{name} must {wanted}; found {value:g} in the sweep")
        key = json.dumps([cell.table, cell.specs, cell.adjacency], sort_keys=True, default=str)
        if key in seen:
            continue
        seen.add(key)
        if cell.table not in PROCESS_TABLES:
            registry.load("tables", cell.table).Params(**cell.specs[0])
        elif not any(
            "observed" in spec or "file" in spec for spec in cell.specs
        ):  # a file is read once, where it is used
            with contextlib.suppress(Unsupported):  # the reason stands in the table
                cell.process()


def _axes(panel: Panel) -> list[tuple[str, list[float]]]:
    """The quantities of a panel's sweep with their values, whole numbers where a quantity takes no others."""
    return [
        (axis.over, (spread_whole if _is_whole(panel, axis.over) else expand_values)(axis.values))
        for axis in panel.sweep or []
    ]


def _is_whole(panel: Panel, name: str) -> bool:
    """Whether a quantity takes whole numbers alone: n, or a parameter of that type."""
    if panel.table not in PROCESS_TABLES:
        fields = dataclasses.fields(registry.load("tables", panel.table).Params)
    else:
        steps = [step for steps in _cases(panel).values() for step in steps]
        fields = tuple(f for step in steps for f in dataclasses.fields(registry.mechanism(step.mech)))
    kinds = [type_words(f) for f in fields if f.name == name]
    return (name == "n" and panel.table in PROCESS_TABLES) or any(
        "int" in words and "float" not in words for words in kinds
    )


def _cases(panel: Panel) -> dict[str, list[Step]]:
    return panel.cases or {"": panel.process or []}


def _who(panel: Panel) -> list[str]:
    """The accountants, ``all`` standing for every one there is; a table about the loss itself has none."""
    words = panel.accountants or [] if panel.table == "bounds" else [""]
    return registry.names("accountants") if "all" in words else list(dict.fromkeys(words))


def _panel(panel: Panel) -> Iterator[Cell]:
    axes = [[(over, value) for value in points] for over, points in _axes(panel)]
    if panel.table not in PROCESS_TABLES:
        for point in itertools.product(*axes):
            labels = ({"panel": panel.name} if panel.name else {}) | dict(point)
            yield Cell(panel.table, labels, ({**(panel.params or {}), **dict(point)},), None)
        return
    for (case, steps), accountant in itertools.product(_cases(panel).items(), _who(panel)):
        specs = [spec({**step.model_dump(exclude_none=True), **(step.model_extra or {})}) for step in steps]
        for point in itertools.product(*axes):
            yield _cell(panel, case, specs, accountant, dict(point))


def spec(step: dict[str, Any]) -> dict[str, Any]:
    """A step as written in a recipe or with flags, with batch, records and epochs turned into n and rate."""
    found, _ = build_process.with_repetition(step)
    found["n"] = 1 if found["n"] is None else found["n"]
    return {key: value for key, value in found.items() if value is not None or key not in build_process.STEP_KEYS}


def _cell(panel: Panel, case: str, specs: list[dict[str, Any]], accountant: str, point: dict[str, Any]) -> Cell:
    question = {"eps": point.pop("eps", panel.eps), "delta": point.pop("delta", panel.delta)}
    specs = [dict(s) for s in specs]
    known = registry.options(registry.accountant(accountant)[0]) if accountant else {}
    options = tuple((name, float(value)) for name, value in point.items() if name in known)
    for name, value in point.items():
        if name not in known and not _some_option(panel, name):
            _set(specs, name, value)
    if panel.eps_per_n is not None:
        question["eps"] = panel.eps_per_n * sum(s["n"] for s in specs)
    labels = {k: v for k, v in (("panel", panel.name), ("case", case)) if v} | point
    asked = (question["eps"], question["delta"])
    return Cell(panel.table, labels, tuple(specs), panel.adjacency, accountant, *asked, panel.tol, panel.bins, options)


def _some_option(panel: Panel, name: str) -> bool:
    """Whether another accountant of the panel has an option of this name: then one that has none keeps its value along the axis."""
    return any(name in registry.options(registry.accountant(word)[0]) for word in _who(panel) if word)


def _set(specs: list[dict[str, Any]], name: str, value: Any) -> None:
    """Writes one swept value into every step that has such a parameter."""
    if name == "n":
        for step in specs:
            step["n"] = value
        return
    if name == "rate":
        wanted = [s for s in specs if s.get("sampling", "none") != "none"]
    else:
        wanted = [s for s in specs if name in {f.name for f in dataclasses.fields(registry.mechanism(s["mech"]))}]
    if not wanted:
        raise UsageError(
            f"the sweep is over {name!r}, but no step of the process has such a parameter (or is sampled, for 'rate')"
        )
    for step in wanted:
        step[name] = value
