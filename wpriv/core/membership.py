"""What a privacy curve says of membership inference: trade-off functions of both orders of the neighbours, and mu.

The delta of each order of the neighbours is its own profile, where the accountant gives it. Where it gives only the
worse of both, that one stands for either order: every bound on attacks holds all the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from scipy.special import ndtri

from wpriv.core.atomic_pair import AtomicPair
from wpriv.core.kinds import Adjacency, Sampling
from wpriv.core.loss_pair import gaussian_mu
from wpriv.core.process import Process, closed_form
from wpriv.core.trade_off import (
    DEFAULT_FPR,
    LEAST_REGRET,
    MU_TOL,
    DeltaEnds,
    GaussianMu,
    TradeOff,
    atomic_points,
    gaussian_mu_of_advantage,
    least_mu,
    regret,
)
from wpriv.errors import Unsupported, UsageError
from wpriv.numerics import counted_work
from wpriv.numerics.bracket import Bracket
from wpriv.numerics.numbers import finite_number

# relative width of the bounds of an error rate
RATE_TOL = 2e-4
# counted work (nanoseconds of a usual processor) after which no further point of a curve is computed
MAX_WORK = 2e9
# multiple of it at which a point is given up
MAX_WORK_RATIO = 1.5
# relative width of delta at the first evaluation of a point, share of the width of an error rate that each point may
# take, and factor by which a width is made smaller than seems enough
COARSE_WIDTH, POINT_SHARE, WIDTH_SHARE = 1e-2, 0.3, 0.5
# largest losses beyond this are not worth a point of their own
MAX_KINK = 50.0
# the first points lie this many standard deviations apart, and reach this far beyond the rates; rounds of refinement
FIRST_SPACING, MARGIN, MAX_ROUNDS = 0.5, 0.75, 12


class ProvenCurve(Protocol):
    """What is needed of a ``Curve``; see there."""

    @property
    def process(self) -> Process: ...
    @property
    def accountant(self) -> str: ...
    @property
    def notion(self) -> str: ...
    @property
    def claim(self) -> str: ...
    @property
    def is_proven(self) -> bool: ...
    @property
    def delta_bracket(self) -> Callable[[float], Bracket]: ...
    @property
    def orders(self) -> Sequence[Callable[[float, float], Bracket]]: ...


@dataclass(frozen=True)
class ErrorRates:
    """The best test at one false-positive rate: bounds of its true-positive and its false-negative rate.

    Args:
        fpr: the false-positive rate.
        tpr_lower, tpr_upper: no test has a true-positive rate above ``tpr_upper``, and some test has ``tpr_lower``.
        fnr_lower, fnr_upper: 1 less these, with all digits where they are small.
    """

    fpr: float
    tpr_lower: float
    tpr_upper: float
    fnr_lower: float
    fnr_upper: float


class Membership:
    """Bounds on membership inference from one curve; points of the curve are computed once.

    Args:
        curve: of approximate DP, by a rigorous accountant.
        work: amount of ``numerics.counted_work`` after which bounds at further points follow from those known, as
            delta decreases in eps.
    """

    def __init__(self, curve: ProvenCurve, *, work: float = MAX_WORK):
        if not curve.is_proven:
            raise Unsupported(
                f"bounds on attacks need proven bounds of (eps, delta)-DP at every eps; {curve.accountant} gives "
                f"{curve.notion} numbers of the claim {curve.claim}. Use `accountant='pld'`"
            )
        self.curve = curve
        self._is_out_of_work = counted_work.limit(work)
        self._work_end = counted_work.total() + MAX_WORK_RATIO * work
        # distance of the two ends of delta that suffices
        self._enough = 0.0
        self._known: list[dict[float, tuple[float, float]]] = [{} for _ in curve.orders or (None,)]
        forward, backward = self._ends(0), self._ends(-1)
        self.trade_offs = [TradeOff(forward, backward)]
        if len(curve.orders) > 1:
            self.trade_offs.append(TradeOff(backward, forward))

    def kinks(self, index: int) -> list[float]:
        """ln t at which the profile of an order may have a kink: 0, and the largest loss of either order."""
        try:
            tops = [math.fsum(n * pair.support[1] for pair, n in run) for run in self.curve.process.directions()]
        except Unsupported:
            return [0.0]
        tops = tops if index == 0 else tops[::-1]
        return [0.0, *(s for s in (tops[0], -tops[-1]) if abs(s) < MAX_KINK)]

    def _atomic_points(self, index: int, fprs: Sequence[float]) -> list[float]:
        """ln t at which the exact profile of a discrete process gives its error rates to rounding."""
        directions = self.curve.process.directions() if self.curve.claim == "exact" else []
        pair = closed_form(directions[min(index, len(directions) - 1)]) if directions else None
        return [s for fpr in fprs for s in atomic_points(pair, fpr)] if isinstance(pair, AtomicPair) else []

    @property
    def names(self) -> tuple[str, ...]:
        """The orders: "remove" has the neighbour without the record as null hypothesis, "add" the one with it."""
        return order_names(self.curve.process, len(self.trade_offs))

    def advantage(self) -> tuple[float, float]:
        """Bounds of the largest TPR minus FPR: delta at eps = 0, the total variation distance."""
        self._enough = 0.0
        ends = [self._ends(index)(0.0) for index in range(len(self._known))]
        low = 0.0 if self.curve.claim == "upper-bound" else max(low for low, _ in ends)
        return low, min(high for _, high in ends)

    def mu(self, fpr: float = DEFAULT_FPR, tol: float = MU_TOL) -> GaussianMu:
        """The least mu of Gaussian DP for all tests with both error rates at least ``fpr``.

        Raises:
            UsageError: ``fpr`` is outside (0, 1/2].
        """
        fpr = finite_number(fpr, "`fpr`")
        if not 0 < fpr <= 0.5:
            raise UsageError(
                f"`fpr` is the smallest false-positive rate for which mu holds, above 0 and at most 0.5; found {fpr:g}"
            )
        mu = exact_mu(self.curve)
        if mu is not None:
            return GaussianMu(fpr, mu, mu, (("both", mu, mu),), exact=True)
        advantage = self.advantage()[1]
        for index, trade_off in enumerate(self.trade_offs):
            trade_off.evaluate(self.kinks(index))
        ends = [least_mu(trade_off, advantage, fpr, tol) for trade_off in self.trade_offs]
        unsampled = mu_without_sampling(self.curve.process)
        ends = [(low, max(min(high, unsampled), low)) for low, high in ends]
        ends = [(0.0 if self.curve.claim == "upper-bound" else low, high) for low, high in ends]
        orders = tuple((name, *pair) for name, pair in zip(self.names, ends, strict=True))
        lower, upper = max(low for low, _ in ends), max(high for _, high in ends)
        return GaussianMu(fpr, lower, upper, orders, regret=self._regret(upper))

    def _regret(self, mu: float) -> float:
        """The regret of mu, rounded up: how far its Gaussian trade-off curve is below that of both orders of the
        neighbours; below the proven one, where no lower end of delta is known."""
        if math.isinf(mu):
            return 0.5
        self._enough = LEAST_REGRET / 2
        ends = self._worst_ends
        return regret(TradeOff(ends, ends), mu)

    def _worst_ends(self, eps: float) -> tuple[float, float]:
        if not self.curve.orders and self.curve.claim != "upper-bound":
            return delta_ends(self.curve.delta_bracket, eps)
        ends = [self._ends(index)(eps) for index in range(len(self._known))]
        return max(low for low, _ in ends), max(high for _, high in ends)

    def error_rates(self, fprs: Sequence[float], tol: float = RATE_TOL) -> list[ErrorRates]:
        """The best test of either order at each false-positive rate."""
        orders = [self.order_rates(trade_off, fprs, tol) for trade_off in self.trade_offs]
        return [_worst(points) for points in zip(*orders, strict=True)]

    def order_rates(self, trade_off: TradeOff, fprs: Sequence[float], tol: float = RATE_TOL) -> list[ErrorRates]:
        """The same for one order of the neighbours."""
        for fpr in fprs:
            if not 0 < finite_number(fpr, "a false-positive rate") <= 1:
                raise UsageError(f"a false-positive rate is above 0 and at most 1; found {fpr:g}")
        scale = gaussian_mu_of_advantage(self.advantage()[1])
        inner = [fpr for fpr in fprs if fpr < 1]
        self._enough = POINT_SHARE * tol * min(inner, default=1.0)
        trade_off.evaluate([*_first_points(inner, scale), *self.kinks(self.trade_offs.index(trade_off))])
        trade_off.evaluate(self._atomic_points(self.trade_offs.index(trade_off), inner))
        trade_off.cover(min(inner, default=0.5), max(inner, default=0.5), scale)
        least = min((trade_off.tpr_upper(fpr)[1] for fpr in inner), default=1.0)
        if least < min(inner, default=1.0):
            self._enough = POINT_SHARE * tol * least
            trade_off.evaluate_again()
        rates = [_refined(trade_off, fpr, tol) if fpr < 1 else ErrorRates(1.0, 1.0, 1.0, 0.0, 0.0) for fpr in fprs]
        if self.curve.claim == "upper-bound":
            rates = [replace(point, tpr_lower=point.fpr, fnr_upper=1 - point.fpr) for point in rates]
        return rates

    def _ends(self, index: int) -> DeltaEnds:
        known, widths = self._known[index], dict[float, float]()

        def ends(eps: float) -> tuple[float, float]:
            enough = self._enough
            for share in (COARSE_WIDTH, WIDTH_SHARE, 0.0):
                low, high = known.get(eps, (0.0, math.inf))
                if high - low <= enough:
                    break
                # first coarsely, then as narrow as seems enough, then as narrow as the curve can
                width = share if eps not in known else min(share * enough / high, share) if high > 0 else 0.0
                if (enough == 0 and share > 0) or not width < widths.get(eps, math.inf):
                    continue
                if known and self._is_out_of_work():
                    break
                with counted_work.stop_at(self._work_end):
                    least, most = self._delta(index, eps, width)
                known[eps], widths[eps] = (max(least, low), min(most, high)), width
            return known[eps] if eps in known else _between(known, eps)

        return ends

    def _delta(self, index: int, eps: float, width: float) -> tuple[float, float]:
        if self.curve.orders:
            low, high = delta_ends(lambda eps: self.curve.orders[index](eps, width), eps)
        else:
            # which order a lower bound of the worse one belongs to is not known
            low, high = 0.0, delta_ends(self.curve.delta_bracket, eps)[1]
        # bounds from above are refined as if they were exact; no lower end is made of them
        return (high if self.curve.claim == "upper-bound" else min(low, high)), high


def order_names(process: Process, count: int) -> tuple[str, ...]:
    """Names of the orders of the neighbours, which are one where both have the same curve: which world P stands for."""
    if count == 1:
        return ("both",)
    return ("remove", "add") if process.adjacency == Adjacency.ADD_REMOVE else ("P over Q", "Q over P")


def _first_points(fprs: Sequence[float], scale: float) -> list[float]:
    """ln t at which to begin: those of the best tests between two normal distributions, and some beside them."""
    quantiles = [-float(ndtri(fpr)) for fpr in fprs]
    low, high = min(quantiles, default=0.0) - MARGIN, max(quantiles, default=0.0) + MARGIN
    count = math.ceil((high - low) / min(FIRST_SPACING, (high - low) / 4))
    return [scale * (low + (high - low) * k / count - scale / 2) for k in range(count + 1)]


def _refined(trade_off: TradeOff, fpr: float, tol: float) -> ErrorRates:
    """The error rates at one false-positive rate, from further points until they are known within ``tol``."""
    for count in range(MAX_ROUNDS + 1):
        upper, fnr_lower = trade_off.tpr_upper(fpr)
        lower = min(trade_off.tpr_lower(fpr), upper)
        rates = ErrorRates(fpr, lower, upper, fnr_lower, max(1 - lower, fnr_lower))
        if upper - lower <= tol * min(upper, rates.fnr_upper) or count == MAX_ROUNDS:
            break
        trade_off.evaluate(trade_off.around(trade_off.active(fpr), 2))
    return rates


def _worst(points: Sequence[ErrorRates]) -> ErrorRates:
    """The error rates of the better test of several orders of the neighbours."""
    return ErrorRates(
        points[0].fpr,
        max(point.tpr_lower for point in points),
        max(point.tpr_upper for point in points),
        min(point.fnr_lower for point in points),
        min(point.fnr_upper for point in points),
    )


def delta_ends(bracket_at: Callable[[float], Bracket], eps: float) -> tuple[float, float]:
    """Both ends of delta at eps; the trivial ones where the accountant has no answer."""
    try:
        bracket = bracket_at(eps)
    except Unsupported:
        return 0.0, 1.0
    return float(bracket.lower or 0.0), min(1.0, float(bracket.safe))


def _between(known: Mapping[float, tuple[float, float]], eps: float) -> tuple[float, float]:
    """Bounds of delta at eps from those at the known points on either side."""
    return (
        max((low for at, (low, _) in known.items() if at >= eps), default=0.0),
        min((high for at, (_, high) in known.items() if at <= eps), default=1.0),
    )


def exact_mu(curve: ProvenCurve) -> float | None:
    """mu of a process that is one Gaussian release in closed form, which is then exact at every false-positive rate."""
    if curve.claim != "exact":
        return None
    pair = closed_form(curve.process.directions()[0])
    return None if pair is None else gaussian_mu(pair)


def without_sampling(process: Process) -> Process:
    """The process with all records in each step, and with one step in the place of each pass."""
    steps = (replace(step, n=step.releases, sampling=Sampling()) for step in process.steps)
    return process.with_steps(tuple(steps))


def mu_without_sampling(process: Process) -> float:
    """mu of Gaussian steps if all records took part, which bounds that of the sampled steps; inf for other steps.

    A sampled pair is a mixture, whose hockey-stick divergences are at most those of the whole pair in either order. A
    largest batch is no such mixture, since a record may take the place of another.
    """
    if any(step.sampling.max_batch for step in process.steps):
        return math.inf
    try:
        pair = closed_form(without_sampling(process).directions()[0])
    except Unsupported:
        return math.inf
    mu = None if pair is None else gaussian_mu(pair)
    return math.inf if mu is None else mu * (1 + 1e-14)
