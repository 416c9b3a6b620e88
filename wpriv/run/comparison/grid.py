"""The cells of a comparison: every process, at every point of the sweep, by every accountant."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from wpriv._version import __version__
from wpriv.config.recipe import Recipe
from wpriv.config.schema import PROCESS_TABLES, Panel
from wpriv.core import registry
from wpriv.core.process import STEP_KEYS, Process
from wpriv.core.sampling.repetition import with_repetition
from wpriv.errors import Unsupported
from wpriv.run.accounting import build_process

# keys of a step whose value may be the path of a file
FILES = ("file", "observed", "strategy")


@dataclass(frozen=True)
class Cell:
    """One computation of a comparison, as plain data.

    Args:
        table: the kind of its rows. labels: the columns that tell its rows apart from those of other cells.
        specs: the steps of a process, or the parameters of a table of another kind. eps, delta: the question.
        group: records of one person. records: size of the data set.
        bins: the number of cells of a histogram. options: of the accountant, where an axis varies them. repeats: the
            distribution of the number of runs of which the best is released.
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
    group: int | None = None
    records: int | None = None
    repeats: str | None = None

    def key(self) -> str:
        """Return a fingerprint of all that decides the result, the program's version included."""
        return _fingerprint([__version__, self.table, self.labels, self.curve_key(), self.eps, self.delta, self.bins])

    def curve_key(self) -> str:
        """Return a fingerprint of process and accountant: cells with equal ones evaluate one curve."""
        # a file counts by its content, which may change between runs
        contents = [_content(spec[key]) for spec in self.specs for key in FILES if key in spec]
        relation = [self.adjacency, self.group, self.records]
        job = [self.specs, relation, self.accountant, self.options, self.tol, contents]
        return _fingerprint(job if self.repeats is None else [*job, self.repeats])

    def process(self) -> Process:
        """Build the process of a table of one.

        Raises:
            UsageError, MissingResource: a file of the process is faulty or missing.
            Unsupported: sampling or adjacency rule the mechanism out.
        """
        return build_process.process(self.specs, self.adjacency, group=self.group, records=self.records)

    def process_columns(self) -> dict[str, Any]:
        """Return the parameters of a single step, also those left at their defaults, or the number of several steps."""
        return build_process.step(self.specs[0]).describe() if len(self.specs) == 1 else {"steps": len(self.specs)}


def cells(recipe: Recipe) -> list[Cell]:
    """Return all cells of a comparison, in the order of its table."""
    return [cell for panel in recipe.panels for cell in _panel(panel)]


def read_observations(cells: list[Cell]) -> None:
    """Build the processes that observations belong to, so that a faulty file is reported before any work begins.

    Raises:
        UsageError, MissingResource: a file is faulty or missing.
    """
    observed = {cell.curve_key(): cell for cell in cells if any("observed" in spec for spec in cell.specs)}
    for cell in observed.values():
        with contextlib.suppress(Unsupported):  # the reason goes into the table
            cell.process()


def _panel(panel: Panel) -> Iterator[Cell]:
    axes = [[(over, value) for value in values] for over, values in panel.axes()]
    if panel.table not in PROCESS_TABLES:
        for point in itertools.product(*axes):
            labels = ({"panel": panel.name} if panel.name else {}) | dict(point)
            yield Cell(panel.table, labels, ({**(panel.params or {}), **dict(point)},), None)
        return
    cases, accountants = panel.processes(), panel.accountant_names()
    for (case, steps), accountant in itertools.product(cases.items(), accountants):
        written = [{**step.model_dump(exclude_none=True), **(step.model_extra or {})} for step in steps]
        for point in itertools.product(*axes):
            group = dict(point).get("group", panel.group)
            specs = tuple(
                _spec({**keys, **{name: value for name, value in point if step.varies(name)}})
                for keys, step in zip(written, steps, strict=True)
            )
            records = build_process.data_set_size(written, group)
            yield replace(_cell(panel, case, specs, accountant, dict(point)), records=records)


def _spec(written: dict[str, Any]) -> dict[str, Any]:
    """A step of a point of the grid with n and rate, without keys of steps that have no value."""
    planned, _ = with_repetition(written)
    spec = {**planned, "n": 1 if planned["n"] is None else planned["n"]}
    return {key: value for key, value in spec.items() if value is not None or key not in STEP_KEYS}


def _group(panel: Panel, labels: dict[str, Any]) -> int | None:
    """The records of one person, where the sweep or the recipe gives them."""
    return int(labels["group"]) if "group" in labels else panel.group


def _cell(panel: Panel, case: str, specs: tuple[dict[str, Any], ...], accountant: str, point: dict[str, float]) -> Cell:
    eps, delta = point.pop("eps", panel.eps), point.pop("delta", panel.delta)
    known = registry.options(registry.accountant(accountant)[0]) if accountant else {}
    # a quantity that a mechanism has is its own, whatever options accountants have
    known = {name: default for name, default in known.items() if name not in panel.parameters()}
    options = tuple((name, float(value)) for name, value in point.items() if name in known)
    if panel.eps_per_n is not None:
        eps = panel.eps_per_n * sum(spec["n"] for spec in specs)
    labels = {key: name for key, name in (("panel", panel.name), ("case", case)) if name} | point
    question = (accountant, eps, delta, panel.tol, panel.bins, options)
    return Cell(
        panel.table, labels, specs, panel.adjacency, *question, group=_group(panel, labels), repeats=panel.repeats
    )


def _fingerprint(parts: list[Any]) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:32]


def _content(path: str) -> str:
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except (OSError, ValueError):
        return ""  # the mechanism reports that the file cannot be read
