"""The cells of a comparison, and its tables of privacy loss distributions: their class, and their histogram.

Histograms are for figures. They are exact where the composition has a closed form; elsewhere each step's loss is first
rounded to a cell, which adds width^2/12 to its variance. No guarantee is derived from them; accountants give those.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import ndtr

from wpriv._version import __version__
from wpriv.accounting import build_process
from wpriv.config.plain_words import plain_step
from wpriv.config.recipe import Recipe
from wpriv.config.schema import PROCESS_TABLES, Panel
from wpriv.core import registry
from wpriv.core.loss_moments import loss_class
from wpriv.core.loss_pair import LossPair
from wpriv.core.process import STEP_KEYS, Process, WeightedPairs, closed_form, log_finite, refuse_passes
from wpriv.core.repetition import with_repetition
from wpriv.errors import Unsupported
from wpriv.numerics.arrays import Array

DEFAULT_BINS = 400
MAX_FFT = 1 << 22
SPREAD = 5.0  # half the width of a histogram, in standard deviations of the composed loss


def class_row(process: Process) -> dict[str, object]:
    """Return mean and variance of the composed loss given that it is finite, its infinity mass, and E|Y - mean|^3.

    The first direction of the adjacency is shown. The third moment is that of a single step, None for different steps.

    Source: Sommer, Meiser, Mohammadi (2019), Definition 10 and Theorem 4.
    """
    refuse_passes(process, "the privacy loss class")
    run = process.directions()[0]
    mean, variance, infinity = _class(run)
    third = loss_class(run[0][0]).third if len(run) == 1 else None
    return {"mean": mean, "variance": variance, "third": third, "infinity": infinity}


def _class(run: WeightedPairs) -> tuple[float, float, float]:
    classes = [(loss_class(pair), n) for pair, n in run]
    return sum(n * c.mean for c, n in classes), sum(n * c.variance for c, n in classes), -math.expm1(log_finite(run))


def loss_rows(process: Process, bins: int | None = None) -> list[dict[str, object]]:
    """Return a histogram of the composed loss under P, beside the normal distribution of its privacy loss class.

    One row per cell: ``loss`` (its middle, in nats), ``width``, ``mass``, ``density`` = mass / width and
    ``class_density``; and a last row with ``part`` = "infinity", whose mass is that of the distinguishing events.

    Raises:
        Unsupported: a cell of the histogram is too wide or too narrow for one step's losses.
    """
    refuse_passes(process, "the histogram of the loss")
    run = process.directions()[0]
    mean, variance, infinity = _class(run)
    composed = closed_form(run)
    run = run if composed is None else [(composed, 1)]
    low, high = (sum(n * pair.support[i] for pair, n in run) for i in (0, 1))
    deviation = math.sqrt(variance)
    last = _row("infinity", math.inf, 0.0, infinity + 0.0, None)  # no -0
    low, high = max(low, mean - SPREAD * deviation), min(high, mean + SPREAD * deviation)
    if not high > low:
        return [_row("finite", mean, 0.0, 1 - infinity, None), last]
    step = _step(run, (high - low) / (bins or DEFAULT_BINS))
    first, mass = _composed(run, step, low, high)
    centres = (first + np.arange(mass.size)) * step
    shown = (centres > low - step) & (centres < high + step)
    edges = np.concatenate([centres - step / 2, centres[-1:] + step / 2])
    # averaged over the cell like the histogram, since a density at its middle misses a normal narrower than a cell
    normal = (1 - infinity) * np.diff(ndtr((edges - mean) / deviation)) / step
    rows = [
        _row("finite", float(y), step, float(m), float(d))
        for y, m, d in zip(centres[shown], mass[shown], normal[shown], strict=True)
    ]
    return [*rows, last]


def _row(part: str, loss: float, width: float, mass: float, normal: float | None) -> dict[str, object]:
    density = mass / width if width else None
    return {"part": part, "loss": loss, "width": width, "mass": mass, "density": density, "class_density": normal}


def _step(run: WeightedPairs, width: float) -> float:
    """A width of at most ``width`` that puts the smallest atom at the middle of a cell."""
    atoms = np.abs(np.concatenate([pair.atoms for pair, _ in run]))
    atoms = atoms[atoms > 0]
    return float(atoms.min()) / math.ceil(atoms.min() / width) if atoms.size and atoms.min() >= width else width


def _composed(run: WeightedPairs, step: float, low: float, high: float) -> tuple[int, Array]:
    """The index of the first cell around a multiple of ``step``, and the masses of the composed loss, by one FFT."""
    parts = [(*_cells(pair, step), n) for pair, n in run]
    start = sum(first * n for first, _, n in parts)
    length = sum((mass.size - 1) * n for _, mass, n in parts) + 1
    # a shorter window wraps the mass beyond its ends around, so it must hold nearly all of the composed PLD
    window = min(length, 4 * (math.ceil((high - low) / step) + 8))
    size = 1 << (max(window, *(mass.size for _, mass, _ in parts)) - 1).bit_length()
    if size > MAX_FFT:
        raise Unsupported(
            f"a histogram of this loss needs {size:,} cells; the limit is {MAX_FFT:,}. Ask for fewer bins"
        )
    spectrum = np.ones(size // 2 + 1, dtype=complex)
    for _, mass, n in parts:
        spectrum *= np.fft.rfft(mass, size) ** n
    circle = np.maximum(np.fft.irfft(spectrum, size), 0.0)
    begin = max(start, math.floor((low + high) / 2 / step) - size // 2)
    return begin, np.roll(circle, start - begin)[: min(size, length)]


def _cells(pair: LossPair, step: float) -> tuple[int, Array]:
    """The index of the first cell, and the P-masses of the cells [i - 1/2, i + 1/2) step, without tails below 1e-18."""
    low, high = _ends(pair)
    first, last = math.floor(low / step + 0.5), math.floor(high / step + 0.5)
    if last - first > MAX_FFT:
        raise Unsupported(
            f"a histogram of this loss needs {last - first:,} cells; the limit is {MAX_FFT:,}. Ask for fewer bins"
        )
    edges = (np.arange(first, last + 2) - 0.5) * step
    tails = pair.tails(np.nextafter(edges, -np.inf))
    with np.errstate(under="ignore"):
        above, below = np.exp(tails.sf_p), np.exp(tails.cdf_p)
    return first, np.maximum(np.where(above[:-1] < below[1:], above[:-1] - above[1:], below[1:] - below[:-1]), 0.0)


def _ends(pair: LossPair) -> tuple[float, float]:
    """The support, cut where less than 1e-18 of P lies beyond."""
    low, high = pair.support
    c = loss_class(pair)
    reach = 9.5 * math.sqrt(c.variance) + 1e-300
    while not math.isfinite(low) or not math.isfinite(high):
        tails = pair.tails(np.array([c.mean - reach, c.mean + reach]))
        rest = math.exp(float(tails.sf_p[1])) - pair.mass_at_plus_infinity
        if math.exp(float(tails.cdf_p[0])) < 1e-18 and rest < 1e-15:
            return max(low, c.mean - reach), min(high, c.mean + reach)
        reach *= 1.5
    return low, high


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
        """Build the process of a table of one."""
        return build_process.process(self.specs, self.adjacency, group=self.group, records=self.records)

    def process_columns(self) -> dict[str, object]:
        """Return the parameters of a single step, also those left at their defaults, or the number of several steps."""
        return build_process.step(self.specs[0]).describe() if len(self.specs) == 1 else {"steps": len(self.specs)}


def cells(recipe: Recipe) -> list[Cell]:
    """Return all cells of a comparison, in the order of its table."""
    return [cell for panel in recipe.panels for cell in _panel(panel)]


def read_observations(cells: list[Cell]) -> None:
    """Build the processes that observations belong to, so that a faulty file is reported before any work begins."""
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
            here = [
                {**keys, **{name: value for name, value in point if step.varies(name)}}
                for keys, step in zip(written, steps, strict=True)
            ]
            records = build_process.data_set_size(here, group)
            cell = _cell(panel, case, tuple(map(_spec, here)), accountant, dict(point))
            yield replace(cell, records=records)


def _spec(written: dict[str, object]) -> dict[str, object]:
    """A step of a point of the grid with n and rate, without keys of steps that have no value."""
    planned, _ = with_repetition(plain_step(written))
    spec = {**planned, "n": 1 if planned["n"] is None else planned["n"]}
    return {key: value for key, value in spec.items() if value is not None or key not in STEP_KEYS}


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
    group = int(labels["group"]) if "group" in labels else panel.group
    return Cell(panel.table, labels, specs, panel.adjacency, *question, group=group, repeats=panel.repeats)


def _fingerprint(parts: Sequence[object]) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:32]


def _content(path: str) -> str:
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except (OSError, ValueError):
        return ""  # the mechanism reports that the file cannot be read
