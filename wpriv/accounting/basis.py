"""What a guarantee rests on (``--explain``): formula, theorem, assumptions, arguments in words, loss classes.

Also the verb ``inner_distribution``: the distribution of the privacy loss whose mean and variance a loss class has.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from wpriv.accounting import build_process
from wpriv.accounting.adaptive_history import FILTER, GAUSS, is_unsampled_gaussian, kept
from wpriv.core import registry
from wpriv.core.atomic_pair import AtomicPair
from wpriv.core.guarantee import Guarantee
from wpriv.core.kinds import PASSES, Adjacency
from wpriv.core.loss_moments import resolved_class
from wpriv.core.loss_pair import LOSS_ROUNDING, LossPair
from wpriv.core.mechanism import Mechanism
from wpriv.core.membership import order_names
from wpriv.core.process import Process, Step, WeightedPairs, closed_form, log_finite, require_exact_plds
from wpriv.errors import UnknownName, Unsupported
from wpriv.files.shown import Shown
from wpriv.numerics.arrays import Array
from wpriv.numerics.numbers import echo

SAMPLING = {
    "poisson": "every step must draw each record independently with probability `rate`; shuffled or fixed batches are "
    "not covered",
    "fixed": "every step must draw a fresh batch of a fixed number of records (rate x records; with groups, of each "
    "group by itself) without replacement; shuffled epochs are not covered",
    "allocation": "every record must draw, by itself and afresh in each pass of 1 / rate steps, the one step it takes "
    "part in; shuffled batches of equal size are not covered",
    "shuffle": "every record must be in exactly one of the 1 / rate batches of each pass, in an order that does not "
    "depend on what the records hold; upper end: one release without sampling for each pass; lower end: the power of "
    "tests where all other records contribute -1, and the one +1 or nothing (after Chua et al. 2024, arXiv 2403.17673)",
}

FRESH = "every step draws fresh noise"
# Rogers, Roth, Ullman, Vadhan (2016) distinguish the two; Feldman, Zrnic (2021) have a filter for adaptive parameters
ADAPTIVE = (
    "each query may be chosen after seeing earlier outputs, but its noise, sampling rate and sensitivity, and the "
    "number of steps, must be fixed before the first one: a run whose length or noise depends on outputs, such as one "
    "more run after looking at the first, is not covered"
)
FILTERED = (
    "each query, its noise, its sampling rate and the number of steps may be chosen after seeing earlier outputs, by a "
    "rule under which {what} never exceeds its value for these steps, whatever the outputs"
)
BEST = (
    "only the best run is released, by a score that the run itself reveals or that uses no private records; the number "
    "of runs is drawn at random, and nobody learns it, nor the other runs"
)
# stopping as soon as the loss exceeds eps, for example, keeps it there
UNSEEN = (
    "every query, its noise, its sampling rate and the number of steps must be fixed before the first one: where they "
    "are chosen after seeing earlier outputs, the privacy loss can exceed eps more often"
)
FIXED = "every step was fixed in advance: budgets of adaptively chosen steps do not add up"


def explain(row: Guarantee) -> dict[str, object]:
    """Collect what a guarantee rests on, as plain data (``lines`` formats it).

    Returns:
        ``formula`` (of the accountant), ``sources``, ``assumptions``, ``reading`` (each argument in words), and
        ``loss_class``: per step and direction the mean, variance and third absolute central moment (nats and their
        powers) of the finite privacy loss, and its mass at infinity.
    """
    process = row.process
    module = registry.load("accountants", row.accountant)
    sources = [f"{row.accountant}: {row.source}"]
    sources += [
        f"{step.mechanism.name}: {step.mechanism.citation()}" for step in process.steps if step.mechanism.citation()
    ]
    kinds = dict.fromkeys(step.sampling.kind for step in process.steps)
    neighbours = Adjacency(process.adjacency).meaning
    if process.group > 1:
        neighbours += f"; here they differ so in up to {process.group} records, those of one person"
    assumptions = [neighbours, FRESH, _chosen(row)]
    assumptions += [BEST] if "repeats" in row.extra else []
    # what every answer says stands under "reading"
    premises = [premise.sentence for premise in process.premises() if not premise.shown]
    formula = getattr(module, "EXPLAIN", row.source)
    return {
        "formula": getattr(module, "EXPLAIN_EXACT", formula) if row.claim == "exact" else formula,
        "sources": list(dict.fromkeys(sources)),
        "assumptions": [*assumptions, *(SAMPLING[kind] for kind in kinds if kind in SAMPLING), *premises],
        "reading": [
            *row.extra.get("reading", []),
            *dict.fromkeys(line for step in process.steps for line in _reading(step, process.group)),
        ],
        "loss_class": _classes(process),
    }


def _chosen(row: Guarantee) -> str:
    """The assumption about which parameters may depend on earlier outputs."""
    if row.accountant == "wdp":
        return FIXED
    if row.notion == "probabilistic-dp":
        return UNSEEN
    if (row.notion, row.claim) == ("approximate-dp", "exact") and is_unsampled_gaussian(row.process):
        return FILTERED.format(what=kept(GAUSS, row.process))
    return FILTERED.format(what=kept(FILTER, row.process)) if row.accountant == FILTER else ADAPTIVE


def _reading(step: Step, group: int) -> list[str]:
    noise = step.mechanism.additive_noise()
    lines = [f"n = {step.n} is the number of compositions (releases, steps), not of records"]
    if noise is not None and noise.is_textbook("gauss"):
        lines.append(
            f"sigma = {echo(noise.scale)} is the standard deviation of the noise; with sensitivity "
            f"{echo(noise.sensitivity)} the noise multiplier (sigma / sensitivity) is "
            f"{noise.scale / noise.sensitivity:g}"
        )
    elif noise is not None and noise.family == "laplace":
        # in a full batch a record takes the place of another
        moved = noise.sensitivity * group * (2 if step.sampling.max_batch else 1)
        finite = " where it is finite" if noise.truncated else ""
        lines.append(
            f"scale = {echo(noise.scale)} is the Laplace b; with sensitivity {echo(noise.sensitivity)} one release has "
            f"a privacy loss of at most {moved / noise.scale:g}{finite}"
        )
    if step.sampling.kind != "none":
        lines.append(
            f"rate = {step.sampling.rate:.6g} is the probability that a record takes part in a step "
            f"({step.sampling.kind} sampling)"
        )
    return lines


def _classes(process: Process) -> list[dict[str, object]]:
    rows = []
    directions = process.renyi_directions()
    # the loss of a pass is known between two others only
    unknown = [step.mechanism.renyi_bound() is not None or step.sampling.kind in PASSES for step in process.steps]
    for order, run in _named(process, directions).items():
        for place, (pair, n) in enumerate(run, start=1):
            if unknown[place - 1]:
                continue
            try:
                c = resolved_class(pair)
            except Unsupported:
                continue
            moments = {"mean": c.mean, "variance": c.variance, "third": c.third, "infinity": c.mass_at_plus_infinity}
            rows.append({"step": place, "order": order, "n": n, **moments})
    return rows


def _named(process: Process, directions: list[WeightedPairs]) -> dict[str, WeightedPairs]:
    return dict(zip(order_names(process, len(directions)), directions, strict=True))


def lines(explanation: dict[str, Any]) -> list[str]:
    """Format an explanation as text, section by section."""
    out = ["formula", *(f"  {line.strip()}" for line in explanation["formula"].splitlines())]
    for name in ("sources", "assumptions", "reading"):
        out += [name, *(f"  {line}" for line in explanation[name])]
    if explanation["loss_class"]:
        moments = "mean, variance, third absolute central moment, mass at infinity"
        out.append(f"privacy loss class of one composition (nats): {moments}")
    for c in explanation["loss_class"]:
        numbers = ", ".join(f"{c[key]:.6g}" for key in ("mean", "variance", "third", "infinity"))
        out.append(f"  step {c['step']} (n = {c['n']}, order {c['order']}): {numbers}")
    return out


# distance of the points of a density's difference quotient, and the least one from an atom, in standard deviations
STEP, ASIDE = 1e-3, 1e-5
LEAST_ATOM = 1e-13  # a smaller probability is the rounding of two tails
COMPOSED = (
    "of this composition only the mean, the variance and the mass at infinity are known in closed form. Ask for one "
    "release, or use `accountant='pdp'` for certified probabilities of its loss"
)


@dataclass(frozen=True, repr=False)
class InnerDistribution(Shown):
    """The privacy loss of a process given that it is finite, in one order of the neighbours.

    In general it is no privacy loss distribution of any mechanism: E e^-L may exceed 1, so that it has no dual, and a
    bound B of its delta becomes w + (1 - w) B with the mass w that it leaves out.

    Args:
        order: of the neighbours: remove, add, or both where they agree; P over Q and Q over P of replaced records.
        mean, variance: of the finite loss, in nats and their square. mass_at_infinity: w, the probability of outcomes
            that only one of the neighbours can have. The three are the privacy loss class.
        pair: the privacy loss distributions of one release, or of the composition where it has a closed form.
    Source:
        Sommer, Meiser, Mohammadi (2019), Definitions 4 and 10, Lemma 4, Theorem 4.
    """

    order: str
    mean: float
    variance: float
    mass_at_infinity: float
    pair: LossPair | None = None

    def __str__(self) -> str:
        named = (("mean", self.mean), ("variance", self.variance), ("mass at infinity", self.mass_at_infinity))
        return f"privacy loss ({self.order}): " + ", ".join(f"{name} {value:.6g}" for name, value in named)

    def atoms(self) -> list[tuple[float, float]]:
        """The losses of positive probability, each with its probability, by increasing loss; see ``cdf`` for errors."""
        pair, finite = self._known(), 1 - self.mass_at_infinity
        if isinstance(pair, AtomicPair):
            masses = np.exp(pair.log_p)
        else:
            beside = LOSS_ROUNDING * np.maximum(np.abs(pair.atoms), math.sqrt(self.variance))
            before, after = (pair.probabilities(pair.atoms + side * beside) for side in (-1, 1))
            masses = np.minimum(after.cdf_p - before.cdf_p, before.sf_p - after.sf_p)
        return [(float(y), float(p) / finite) for y, p in zip(pair.atoms, masses, strict=True) if p > LEAST_ATOM]

    def cdf(self, loss: ArrayLike) -> Array:
        """Compute P(L <= loss), of any shape, given that L is finite.

        Raises:
            Unsupported: of a composition without a closed form.
        """
        y = np.asarray(loss, dtype=float)
        shares = self._known().probabilities(y).cdf_p / (1 - self.mass_at_infinity)
        return np.where(np.isnan(y), np.nan, np.minimum(shares, 1.0))

    def density(self, loss: ArrayLike) -> Array:
        """Compute the density of the continuous part, of any shape, per nat; on an atom the one beside it.

        It is a difference quotient of fourth order of the exact tails, right to about 1e-7 relative where it is smooth.
        """
        y, pair = np.asarray(loss, dtype=float), self._known()
        if isinstance(pair, AtomicPair) or self.variance == 0:
            return np.zeros(y.shape)
        (low, high), deviation = pair.support, math.sqrt(self.variance)
        ends = np.concatenate([pair.atoms, [end for end in (low, high) if math.isfinite(end)]])
        if ends.size:
            nearest = ends[np.abs(y[..., None] - ends).argmin(axis=-1)]
            side = np.where((y > nearest) | ((y == nearest) & (nearest < high)), 1, -1)
            aside = np.where(np.abs(y - nearest) < ASIDE * deviation, nearest + side * ASIDE * deviation, y)
            step = np.minimum(STEP * deviation, np.abs(aside - nearest) / 2.5)
        else:
            aside, step = y, np.full(y.shape, STEP * deviation)
        points = [pair.probabilities(aside + k * step) for k in (-2, -1, 1, 2)]
        right, left = ([getattr(tails, name) for tails in points] for name in ("sf_p", "cdf_p"))
        slopes = [(tail[0] - tail[3] - 8 * (tail[1] - tail[2])) / (12 * step) for tail in (right, left)]
        slope = np.where(points[1].sf_p < points[1].cdf_p, -slopes[0], slopes[1])
        inside = (y >= low) & (y <= high)
        return np.where(inside, np.maximum(slope, 0.0) / (1 - self.mass_at_infinity), 0.0)

    def _known(self) -> LossPair:
        if self.pair is None:
            raise Unsupported(COMPOSED)
        return self.pair


def inner_distribution(what: Process | Mechanism | str, order: str | None = None) -> InnerDistribution:
    """Return the inner distribution of the privacy loss: the loss without the events that identify a neighbour.

    Args:
        what: a mechanism, a process, or one in words (``"laplace scale=2 n=10"``).
        order: of the neighbours, ``remove`` or ``add``; by default the first that the process has.
    Raises:
        UsageError: no such order. Unsupported: the exact loss of some step is not known, or no loss is finite.

    >>> from wpriv import TruncatedLaplace
    >>> print(inner_distribution(TruncatedLaplace(scale=2, bound=6)))
    privacy loss (both): mean 0.105406, variance 0.203931, mass at infinity 0.0169951
    """
    process = build_process.described_process(what).process
    directions = process.directions()
    require_exact_plds(directions, "the inner distribution")
    named = _named(process, directions)
    chosen = next(iter(named)) if order is None else order
    if chosen not in named:
        raise UnknownName("order", str(chosen), list(named))
    run = named[chosen]
    mass = 0.0 - math.expm1(log_finite(run))
    if mass >= 1:
        raise Unsupported(
            "the probability of a finite privacy loss rounds to 0: nearly every run has an outcome that "
            "identifies one of the neighbours"
        )
    classes = [(n, resolved_class(pair)) for pair, n in run]
    mean, variance = (math.fsum(n * getattr(c, name) for n, c in classes) for name in ("mean", "variance"))
    return InnerDistribution(chosen, mean, variance, mass, closed_form(run))
