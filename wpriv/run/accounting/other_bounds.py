"""Other proven bounds of a process, intersected with a certified answer that came out wider than asked.

Every bound here is a theorem about the same process and the same neighbours, so that the truth lies in all of their intervals and in
the intersection. A bracket that is as narrow as asked is left alone: an upper bound cannot lie below its lower end.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from wpriv.core import registry
from wpriv.core.guarantee import Bracket, Curve, curve_of_pair, epsilon_at
from wpriv.core.loss_pair import LossPair
from wpriv.core.process import Process, WeightedPairs, closed_form, log_finite, sandwich
from wpriv.errors import Unsupported

UNSAMPLED = "the same releases without sampling"
ONE = "the largest loss of releases of one kind, and the distinguishing events of all"
# thresholds that the largest loss is held against, in units of eps
THRESHOLDS = np.array([0.9, 0.95, 0.98, 1.0, 1.005, 1.01, 1.02, 1.05, 1.1, 1.2, 1.5, 2.0])
# the width at which a pair that is known only between two is placed, for a lower end
OUTER = 1e-2

Ask = Callable[[Curve], Bracket]


def intersect(curve: Curve, accountants: Sequence[Sequence[str]]) -> Curve:
    """A certified curve whose brackets, where they are wider than its ``tol``, are intersected with other proven bounds.

    Where the curve itself refuses a question, the other bounds answer it alone, and the row says so.

    Args:
        accountants: groups of those whose rigorous upper bounds are tried: of each the first that does not refuse the process.
    Returns:
        A curve of the same claim. ``Bracket.by`` names the bound that gave an end, which becomes part of the row's source.
    """
    others = OtherBounds(curve.process, accountants)

    def delta(eps: float) -> Bracket:
        return others.narrowed(curve, lambda c: c.delta_bracket(eps), others.least_delta(eps), 1.0)

    def epsilon(value: float) -> Bracket:
        return others.narrowed(curve, lambda c: c.epsilon_bracket(value), others.least_epsilon(value), math.inf)

    return dataclasses.replace(curve, delta_bracket=delta, epsilon_bracket=epsilon)


@dataclass(frozen=True)
class OtherBounds:
    """The bounds of one process that are quick to ask, each built when first needed."""

    process: Process
    accountants: Sequence[Sequence[str]]

    @cached_property
    def above(self) -> list[tuple[str, Curve]]:
        """Curves of upper bounds by name."""
        curves = [named for group in self.accountants if (named := _first(group, self.process)) is not None]
        unsampled = _unsampled(self.process)
        return curves if unsampled is None else [*curves, (UNSAMPLED, unsampled)]

    @cached_property
    def below(self) -> list[WeightedPairs]:
        """One run for each order of the neighbours, whose pairs are dominated by those of the process."""
        runs = self.process.directions()
        ends = [sandwich(run, OUTER) for run in runs]
        return [run if end is None else end[0] for run, end in zip(runs, ends, strict=True)]

    def least_delta(self, eps: float) -> Callable[[], float]:
        """A lower bound of delta at eps."""
        return lambda: max(max(-math.expm1(log_finite(run)), _one_delta(run, eps)) for run in self.below)

    def least_epsilon(self, delta: float) -> Callable[[], float]:
        """A lower bound of eps at delta."""
        return lambda: max(_one_epsilon(run, delta) for run in self.below)

    def narrowed(self, curve: Curve, ask: Ask, least: Callable[[], float], most: float) -> Bracket:
        """The curve's own answer to a question, intersected with the other bounds where it is wider than asked.

        Args:
            ask: the question. least: a lower bound of its answer. most: what the answer cannot exceed.
        Raises:
            Unsupported: the curve refuses, and no other bound says anything.
        """
        refusal: Unsupported | None = None
        try:
            bracket = ask(curve)
        except Unsupported as error:
            refusal, bracket = error, Bracket(most, 0.0, most)
        if refusal is None and not curve.is_wide(bracket):
            return bracket
        low, high = bracket.lower or 0.0, bracket.safe
        upper, lower = "", ""
        for name, other in self.above:
            end = _answer(other, ask)
            if end < high:
                high, upper = end, f"upper end by {name}" + (f" ({other.source})" if name != UNSAMPLED else "")
        if refusal is not None and not high < most:
            raise refusal
        if low > high * (1 + 1e-8):
            raise ArithmeticError(
                f"{curve.accountant} is certified to be at least {low!r}, and another proven bound is at most {high!r}"
            )
        if (end := least()) > low:
            low, lower = end, f"lower end by {ONE}"
        by = "; ".join(part for part in (upper, lower) if part)
        return Bracket.between(min(low, high), high, by, str(refusal or ""))


def _first(accountants: Sequence[str], process: Process) -> tuple[str, Curve] | None:
    """The first of some accountants that does not refuse a process, and its curve."""
    for name in accountants:
        try:
            return name, registry.load("accountants", name).account(process)
        except Unsupported:
            continue
    return None


def _answer(curve: Curve, ask: Ask) -> float:
    """The safe end of another bound, inf where it refuses."""
    try:
        return ask(curve).safe
    except Unsupported:
        return math.inf


def _unsampled(process: Process) -> Curve | None:
    """The exact curve of the process with every step run on all records, where it has a closed form; None where nothing is sampled.

    It bounds that of the sampled one. The sampled pair is a mixture: under Poisson sampling ((1-q) Q + q P, Q). The hockey-stick
    divergence H_t is jointly convex, H_t(Q || Q) = max(1-t, 0) and H_t(P || Q) >= 1-t, so that H_t of the mixture, in either order,
    is at most (1-q) max(1-t, 0) + q H_t(P || Q) <= H_t(P || Q) for every t. The same holds of fixed-size sampling, whose pair is such
    a mixture for t >= 1 and its mirror image below. A dominating pair stays one under adaptive composition (Zhu, Dong, Wang 2022,
    Theorem 10).
    """
    if all(step.sampling.kind == "none" for step in process.steps):
        return None
    steps = tuple(dataclasses.replace(step, n=step.n, sampling=type(step.sampling)()) for step in process.steps)
    whole = Process(steps, process.adjacency)
    pairs = [closed_form(run) for run in whole.directions()]
    known = [pair for pair in pairs if pair is not None]
    return curve_of_pair(whole, known, accountant="pld", source=UNSAMPLED) if len(known) == len(pairs) else None


def _one_delta(run: WeightedPairs, eps: float) -> float:
    """The largest delta at eps of releases of one kind, by their largest loss: leaving out all else is post-processing."""
    return max(math.exp(min(_log_largest(pair, n, eps), 0.0)) for pair, n in run) * (1 - 1e-12)


def _one_epsilon(run: WeightedPairs, delta: float) -> float:
    """The largest eps at delta of releases of one kind, rounded down; 0 where none is finite, which is left to the other ends."""
    if -math.expm1(log_finite(run)) > delta:
        return math.inf
    ends = []
    for pair, n in run:
        # the bound by the largest loss is not monotone between its thresholds: what it is at eps holds at every smaller one
        found = epsilon_at(lambda eps, pair=pair, n=n: _log_largest(pair, n, eps), delta, high=pair.support[1])  # type: ignore[misc]
        below = found * (1 - 1e-11)
        ends.append(below if _log_largest(pair, n, below) >= math.log(delta) else 0.0)
    return max(ends)


def _log_largest(pair: LossPair, n: int, eps: float) -> float:
    """ln of the delta at eps of telling n releases apart by their largest loss: P(some loss > t) - e^eps Q(some loss > t), for the best of
    some t.

    One release alone is never better told apart than by its own profile, which is among them.
    """
    alone = float(pair.log_delta(eps))
    if n == 1:
        return alone
    tails = pair.probabilities(eps * THRESHOLDS)
    with np.errstate(divide="ignore"):
        p, q = (-np.expm1(n * np.log1p(-np.minimum(tail, 1.0))) for tail in (tails.sf_p, tails.sf_q))
    best = float(np.max(p * (1 - 1e-12) - math.exp(min(eps, 700.0)) * q * (1 + 1e-12)))
    return max(alone, math.log(best)) if best > 0 else alone
