"""Intersect a certified bracket that is wider than asked with other proven bounds of the same process.

Every bound here is a theorem about the same process and adjacency, so that the true value lies in the intersection. A
bracket that is as narrow as asked is left alone: an upper bound cannot lie below its lower end.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from scipy.special import ndtr

from wpriv.core import registry
from wpriv.core.guarantee import Curve, OrderDelta, curve_of_pair, epsilon_at
from wpriv.core.kinds import PASSES
from wpriv.core.loss_moments import log_moment
from wpriv.core.loss_pair import Bounds, LossPair, gaussian_mu, log_profile_ends
from wpriv.core.membership import without_sampling
from wpriv.core.process import Process, WeightedPairs, closed_form, log_finite, sandwich
from wpriv.errors import Unsupported
from wpriv.numerics.bracket import TINY, Bracket

UNSAMPLED = "the same releases without sampling"
SECOND_MOMENT = "the second moment of the likelihood ratio (Scarf 1958)"
OPTIMAL = "the recursion for the optimal adaptive composition"
GAUSS_FIRST = "the optimal adaptive composition after all Gaussian releases"
# nodes of the profile that Gaussian noise is added to, steps between them, and ln of the delta at which it ends
NODES, CELLS, LOG_LAST, BISECTIONS = 513, 2**15, -60.0, 30
ONE = "the largest losses of the releases, the distinguishing events of all, and Chernoff's bound of 1 - delta"
# thresholds for the largest loss, in units of eps
THRESHOLDS = np.array([0.9, 0.95, 0.98, 1.0, 1.005, 1.01, 1.02, 1.05, 1.1, 1.2, 1.5, 2.0])
# the largest eps for which e^eps is a number with room to spare; probabilities below the second may have lost digits
MAX_EXPONENT, TINY_TAIL = 700.0, 1e-300
# relative gain below which another bound differs by rounding alone, and is not named
GAIN = 1e-9
# relative distance from a largest loss within which losses count as that, and rounding of sums and logarithms
NEAR_TOP, ROUNDING = 1e-13, 1e-12
# relative allowance for the quadrature of a second moment
MOMENT_ROUNDING = 1e-9
# relative width of the sandwich that replaces a pair whose PLD is not known exactly, for a lower bound
SANDWICH_TOL = 1e-2

Ask = Callable[[Curve], Bracket]


def intersect(curve: Curve, accountants: Sequence[Sequence[str]]) -> Curve:
    """Intersect the brackets of a certified curve that are wider than its ``tol`` with other proven bounds.

    Where the curve has no answer, the other bounds give one alone, and the guarantee says so.

    Args:
        accountants: groups of accountants with rigorous upper bounds; of each group the first that has an answer is
            used.
    Returns:
        A curve of the same claim; ``Bracket.by`` names the bound that gave an end.
    """
    others = OtherBounds(curve.process, accountants)

    def delta(eps: float) -> Bracket:
        if others.unsampled is not None:
            bracket = others.unsampled.delta_bracket(eps)
            if bracket.safe <= TINY:  # a composition would resolve ever smaller deltas
                return Bracket.between(0.0, bracket.safe, f"upper end by {UNSAMPLED}")
        return others.narrowed(curve, lambda c: c.delta_bracket(eps), partial(others.delta_lower_bound, eps), 1.0)

    def epsilon(value: float) -> Bracket:
        lower = partial(others.epsilon_lower_bound, value)
        return others.narrowed(curve, lambda c: c.epsilon_bracket(value), lower, math.inf)

    def order(ask: OrderDelta) -> OrderDelta:
        return lambda eps, width=0.0: others.order_narrowed(curve, ask, eps, width)

    orders = tuple(map(order, curve.orders))
    return dataclasses.replace(curve, delta_bracket=delta, epsilon_bracket=epsilon, orders=orders)


@dataclass(frozen=True)
class OtherBounds:
    """Bounds of one process that are quick to compute, each built when it is first needed."""

    process: Process
    accountants: Sequence[Sequence[str]]

    @cached_property
    def upper_bounds(self) -> list[tuple[str, Curve]]:
        """Curves of upper bounds, with their names."""
        curves = [named for group in self.accountants if (named := _first(group, self.process)) is not None]
        more: tuple[tuple[str, Curve | None], ...] = (
            (SECOND_MOMENT, _by_second_moment(self.process)),
            (UNSAMPLED, self.unsampled),
            (GAUSS_FIRST, _gauss_first(self.process)),
        )
        return [*curves, *((name, curve) for name, curve in more if curve is not None)]

    @cached_property
    def unsampled(self) -> Curve | None:
        """The exact curve without sampling, in closed form; None where nothing is sampled or none is known.

        It bounds that of the sampled process: docs/theory/subsampling.md, Corollary 3. A pass of random allocation, or
        of shuffled batches, is a mixture over the step that a record takes part in, so that one release without
        sampling bounds a whole pass in the same way, and so it does for groups and for Poisson sampling under
        replace-one. A largest batch is no such mixture, since a record may take the place of another.
        """
        samplings = [step.sampling for step in self.process.steps]
        if all(each.kind == "none" for each in samplings) or any(each.max_batch for each in samplings):
            return None
        whole = without_sampling(self.process)
        pairs = [closed_form(run) for run in whole.directions()]
        known = [pair for pair in pairs if pair is not None]
        return curve_of_pair(whole, known, accountant="pld", source=UNSAMPLED) if len(known) == len(pairs) else None

    @cached_property
    def dominated(self) -> list[WeightedPairs]:
        """Pairs that those of the process dominate, for each direction."""
        directions = self.process.directions()
        ends = [sandwich(pairs, SANDWICH_TOL) for pairs in directions]
        return [pairs if end is None else end[0] for pairs, end in zip(directions, ends, strict=True)]

    @cached_property
    def optimal(self) -> Curve | None:
        """The optimal adaptive composition of releases of one kind, where it is known between two bounds."""
        if any(step.sampling.kind != "none" for step in self.process.steps):
            return None
        forward = self.process.directions()[0]
        pairs = {pair for pair, _ in forward}
        return _optimal(self.process, pairs.pop()) if len(pairs) == 1 else None

    def delta_lower_bound(self, eps: float) -> float:
        """A lower bound of delta at eps."""

        # from the largest loss of equal releases; dropping the others is post-processing
        def alone(run: WeightedPairs) -> float:
            return max(math.exp(min(_log_largest(pair, n, eps), 0.0)) for pair, n in run) * (1 - 1e-12)

        return max(max(-math.expm1(log_finite(run)), alone(run)) for run in self.dominated)

    def epsilon_lower_bound(self, delta: float) -> float:
        """A lower bound of eps at delta."""
        # loaded here, since most questions need no lower bound
        from wpriv.accounting.pld.step_groups import epsilon_far_below

        ends = (_one_epsilon, _all_epsilon, epsilon_far_below)
        return max(end(run, delta) for run in self.dominated for end in ends)

    def order_narrowed(self, curve: Curve, ask: OrderDelta, eps: float, width: float) -> Bracket:
        """Return the delta of one order of the neighbours, its upper end at most that of any bound of the worse one."""
        try:
            bracket = ask(eps, width)
        except Unsupported:
            bracket = Bracket(1.0, 0.0, 1.0)
        if not dataclasses.replace(curve, tol=max(width, curve.tol or 0.0)).is_wide(bracket):
            return bracket
        high = min([bracket.safe, *(_answer(other, lambda c: c.delta_bracket(eps)) for _, other in self.upper_bounds)])
        return Bracket.between(min(bracket.lower or 0.0, high), high)

    def narrowed(self, curve: Curve, ask: Ask, lower_bound: Callable[[], float], maximum: float) -> Bracket:
        """The curve's own bracket, intersected with other bounds if wider than asked; Unsupported if none answers."""
        refusal: Unsupported | None = None
        try:
            bracket = ask(curve)
        except Unsupported as error:
            refusal, bracket = error, Bracket(maximum, 0.0, maximum)
        if refusal is None and not curve.is_wide(bracket):
            return bracket
        low, high = bracket.lower or 0.0, bracket.safe
        upper, lower = "", ""
        for name, other in self.upper_bounds:
            end = _answer(other, ask)
            if end < high * (1 - GAIN):
                high, upper = end, f"upper end by {name}" + ("" if other.source == name else f" ({other.source})")
        optimal = Bracket.above(math.inf) if self.optimal is None else ask(self.optimal)
        if optimal.safe < high * (1 - GAIN):
            high, upper = optimal.safe, f"upper end by {OPTIMAL}"
        if refusal is not None and not high < maximum:
            raise refusal
        if low > high * (1 + 1e-8):
            most = f"another proven bound is at most {high!r}"
            raise ArithmeticError(f"{curve.accountant} is certified to be at least {low!r}, but {most}")
        if (optimal.lower or 0.0) > low * (1 + GAIN):
            low, lower = optimal.lower or 0.0, f"lower end by {OPTIMAL}"
        if (end := lower_bound()) > low * (1 + GAIN):
            low, lower = end, f"lower end by {ONE}"
        by = "; ".join(part for part in (upper, lower) if part)
        return Bracket.between(min(low, high), high, by, str(refusal or ""))


def _optimal(process: Process, pair: LossPair) -> Curve | None:
    """A curve of ``LossPair.optimal_composition``, at whose largest eps of interest delta is small."""
    n = sum(step.n for step in process.steps)
    if n == 1 or pair.optimal_composition(n, pair.support[1]) is None:
        return None
    spread = math.sqrt(n) * pair.support[1]

    def bounds(top: float) -> tuple[Bounds, Bounds]:
        known = pair.optimal_composition(n, top)
        return known if known is not None else (lambda eps: (0.0, 1.0), lambda delta: (0.0, math.inf))

    def delta(eps: float) -> Bracket:
        # one of few ends, so that several questions share a profile
        top = 2 * spread * 1.5 ** max(0, math.ceil(math.log(max(eps / spread, 1.0)) / math.log(1.5)))
        return Bracket.between(*bounds(max(top, eps + spread))[0](eps))

    def epsilon(delta: float) -> Bracket:
        rho = pair.zcdp_rho()
        reach = math.inf if rho is None else n * rho + 2 * math.sqrt(n * rho * math.log(1 / delta))
        return Bracket.between(*bounds(1.1 * reach + pair.support[1])[1](delta))

    return Curve(process, "pld", "approximate-dp", "certified", OPTIMAL, delta, epsilon)


def _gauss_first(process: Process) -> Curve | None:
    """Releases of one kind with an optimal adaptive composition, beside Gaussian ones; None where there is more.

    Whatever the order, delta is at most that of all Gaussian releases first: docs/theory/bounded-range.md, Theorem 2.
    """
    if any(step.sampling.kind != "none" for step in process.steps):
        return None
    mus = [(gaussian_mu(pair), pair, n) for pair, n in process.directions()[0]]
    others = {pair for mu, pair, _ in mus if mu is None}
    variance = math.fsum(n * mu * mu for mu, _, n in mus if mu is not None)
    if len(others) != 1 or not 0 < variance < MAX_EXPONENT:
        return None
    pair, n = others.pop(), sum(n for mu, _, n in mus if mu is None)
    rho = pair.zcdp_rho()
    if rho is None:
        return None
    top = min(n * pair.support[1], n * rho + 2 * math.sqrt(-n * rho * LOG_LAST))
    known = pair.optimal_composition(n, top)
    if known is None:
        return None
    # upper ends at -top to top, between nodes by chords in e^y, and in a cell by the value at its left end
    nodes = top * np.arange(NODES) / (NODES - 1)
    upper = np.array([known[0](y)[1] for y in nodes.tolist()])
    y = np.linspace(-top, top, CELLS + 1)
    above = np.interp(np.expm1(np.abs(y)), np.expm1(nodes), upper)
    above = np.where(y < 0, -np.expm1(np.minimum(y, 0.0)) + np.exp(np.minimum(y, 0.0)) * above, above)
    mu = math.sqrt(variance)

    def delta(eps: float) -> float:
        """E of the profile at eps - L, L the loss of the Gaussian releases, N(mu^2/2, mu^2)."""
        z = (y - eps + variance / 2) / mu
        left, right = ndtr(z), ndtr(-z)
        mass = np.where(z[1:] < 0, np.diff(left), -np.diff(right))
        total = float(left[0] + above[:-1] @ mass + above[-1] * right[-1])
        return min(total * (1 + 1e-10), 1.0)

    def epsilon(goal: float) -> Bracket:
        low, high = 0.0, top + variance / 2 + mu * 40
        if delta(high) > goal:
            return Bracket.above(math.inf)
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            low, high = (low, middle) if delta(middle) <= goal else (middle, high)
        return Bracket.above(high)

    def bracket(eps: float) -> Bracket:
        return Bracket.above(delta(eps))

    return Curve(process, "pld", "approximate-dp", "upper-bound", GAUSS_FIRST, bracket, epsilon)


def _first(accountants: Sequence[str], process: Process) -> tuple[str, Curve] | None:
    """The first accountant that has a curve of the process, and that curve."""
    for name in accountants:
        try:
            return name, registry.load("accountants", name).account(process)
        except Unsupported:
            continue
    return None


def _answer(curve: Curve, ask: Ask) -> float:
    """The upper end of another bound; inf where it has no answer."""
    try:
        return ask(curve).safe
    except Unsupported:
        return math.inf


def _by_second_moment(process: Process) -> Curve | None:
    """Bounds by the Renyi divergence of order 2 alone (docs/theory/certified-pld.md); None where it is infinite or not
    known.

    Where all losses are tiny, they are far below what products of e^(-eps) with moments give.
    """
    if any(step.sampling.kind in PASSES for step in process.steps):
        return None
    lam = np.ones(1)
    totals = [sum(n * float(log_moment(pair, lam)[0]) for pair, n in run) for run in process.renyi_directions()]
    largest = max(totals) * (1 + MOMENT_ROUNDING)
    if not 0 < largest < MAX_EXPONENT:
        return None
    variance = math.expm1(largest)

    def delta(eps: float) -> Bracket:
        x = math.expm1(min(eps, MAX_EXPONENT))
        return Bracket.above(min(variance / (math.hypot(math.sqrt(variance), x) + x) / 2 * (1 + 1e-12), 1.0))

    def epsilon(delta: float) -> Bracket:
        x = max(variance / (4 * delta) - delta, 0.0)
        return Bracket.above(math.log1p(x) * (1 + 1e-12) if x < math.inf else math.inf)

    return Curve(process, "pld", "approximate-dp", "upper-bound", SECOND_MOMENT, delta, epsilon)


def _one_epsilon(run: WeightedPairs, delta: float) -> float:
    """A lower bound of eps at delta from the largest loss of equal releases, rounded down."""
    if -math.expm1(log_finite(run)) > delta:
        return math.inf
    ends = []
    for pair, n in run:
        # the bound is not monotone between its thresholds, but its value at an eps holds at every smaller eps
        at_delta = epsilon_at(partial(_log_largest, pair, n), delta, high=pair.support[1])
        below = at_delta * (1 - 1e-11)
        ends.append(below if _log_largest(pair, n, below) >= math.log(delta) else 0.0)
    return max(ends)


def _all_epsilon(run: WeightedPairs, delta: float) -> float:
    """A lower bound of eps from the event that all losses are near their largest: delta >= p (1 - e^(eps - x))."""
    near = [(n, pair.support[1] * (1 - NEAR_TOP), pair) for pair, n in run]
    x = math.fsum(n * loss for n, loss, _ in near)
    if not 0 < x < math.inf:
        return 0.0
    log_p = math.fsum(n * float(pair.tails(np.array([loss])).sf_p[0]) for n, loss, pair in near)
    share = math.log(delta) - log_p + ROUNDING * abs(log_p)
    return max(x + math.log1p(-math.exp(share)), 0.0) * (1 - ROUNDING) if share < 0 else 0.0


def _log_largest(pair: LossPair, n: int, eps: float) -> float:
    """ln of a lower bound of delta at eps for n releases: P(max loss > t) - e^eps Q(max loss > t), for the best t
    tried.

    The privacy profile of a single release is another lower bound, and included.
    """
    alone = log_profile_ends(pair, eps)[0]
    if n == 1 or eps > MAX_EXPONENT:
        return alone
    tails = pair.probabilities(eps * THRESHOLDS)
    with np.errstate(divide="ignore"):
        p, q = (-np.expm1(n * np.log1p(-np.minimum(tail, 1.0))) for tail in (tails.sf_p, tails.sf_q))
    # a tail that underflows is below TINY_TAIL in each of the n releases
    q = np.maximum(q, n * TINY_TAIL)
    best = float(np.max(p * (1 - 1e-12) - math.exp(eps) * q * (1 + 1e-12)))
    return max(alone, math.log(best)) if best > 0 else alone
