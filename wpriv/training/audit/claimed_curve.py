"""What an audit tests: a claimed trade-off curve; and the families of curves that bound eps from below."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from wpriv.accounting import build_process, evaluate
from wpriv.config import plain_words
from wpriv.config.plain_words import CLAIM_FORMS, Claim, parse_claim
from wpriv.core.guarantee import Curve, Guarantee
from wpriv.core.mechanism import Mechanism
from wpriv.core.membership import Membership
from wpriv.core.process import Process, Step
from wpriv.core.trade_off import MAX_LOG_T, TradeOff, gaussian_mu_of_advantage
from wpriv.errors import Unsupported, UsageError
from wpriv.numerics.arrays import Array
from wpriv.numerics.numbers import finite_number, shown

MAX_EPS = 50.0
# a curve is taken at so many losses, up to so many standard deviations from 0, at a relative width of delta
POINTS, REACH, TOL = 81, 5.0, 1e-4
# noise of a family of processes, over that of the claimed one
LEAST_NOISE, MOST_NOISE = 1 / 16, 16.0
# relative width at which the search for a bound ends, for numbers below 1 absolute
WIDTH = 0.002
DELTA = 1e-5
"""delta of the lower bound of eps where the claim names none."""


@dataclass(frozen=True, eq=False)
class Null:
    """The largest true-positive rate that a claim allows at each false-positive rate, from above, by straight pieces.

    Positive means "in". It is the concave function through the points (``fpr``, ``tpr``), from (0, delta) to (1, 1),
    and no test of a canary of a run with the claimed curve is above it. The last two points have the rate 1.
    """

    fpr: Array
    tpr: Array

    @classmethod
    def of_lines(cls, trade_off: TradeOff) -> Null:
        """The lower envelope of the lines TPR <= t FPR + f(t) of a trade-off function."""
        hull = trade_off.hull
        points = [(0.0, hull[-1].error_rates(0.0)[0])]
        for left, right in reversed(list(pairwise(hull))):
            fpr = min(max(left.meets(right), points[-1][0]), 1.0)
            points.append((fpr, min(left.error_rates(fpr)[0], right.error_rates(fpr)[0])))
        last = hull[0]
        most = 1 - last.delta_high if last.log_t < 0 else (1 - last.delta_high) / last.t
        points += [(max(min(most, 1.0), points[-1][0]), 1.0), (1.0, 1.0)]
        fpr, tpr = np.array(points).T
        return cls(fpr, np.maximum.accumulate(np.maximum(tpr, fpr)))

    def tpr_at(self, fpr: Array) -> Array:
        """The largest true-positive rates at these false-positive rates."""
        values: Array = np.interp(fpr, self.fpr, self.tpr)
        return values

    def fpr_at(self, tpr: Array) -> Array:
        """The least false-positive rates at these true-positive rates; 0 up to the rate that costs none."""
        values: Array = np.interp(tpr, self.tpr[:-1], self.fpr[:-1])
        return values

    @cached_property
    def symmetric(self) -> Null:
        """The least such function above this one and above that of tests for "out"."""
        points = np.concatenate([np.stack([self.fpr, self.tpr]), np.stack([1 - self.tpr, 1 - self.fpr])], axis=1).T
        hull: list[Array] = []
        for point in points[np.lexsort((-points[:, 1], points[:, 0]))]:
            while len(hull) >= 2 and _turns_up(hull[-2], hull[-1], point):
                hull.pop()
            if not hull or point[0] > hull[-1][0]:
                hull.append(point)
        fpr, tpr = np.array([*hull, (1.0, 1.0)]).T
        return Null(fpr, np.maximum.accumulate(tpr))

    def weights(self, present: int, missing: int) -> Array:
        """The privacy loss that the claimed curve has at each rank of the scores, the highest score first.

        Args:
            present, missing: the numbers of scores of canaries that were in, and out.
        """
        in_mass, out_mass = np.diff(self.tpr), np.diff(self.fpr)
        with np.errstate(divide="ignore", invalid="ignore"):
            loss = np.log(in_mass) - np.log(out_mass)
        finite = loss[np.isfinite(loss)]
        most = float(np.abs(finite).max()) + 1 if finite.size else 1.0
        loss = np.clip(np.nan_to_num(loss, nan=0.0, posinf=most, neginf=-most), -most, most)
        total = present + missing
        reached = (present * self.tpr[1:] + missing * self.fpr[1:]) / total
        at = np.searchsorted(reached, (np.arange(total) + 0.5) / total)
        # nonincreasing by concavity; rounding of tiny pieces must not break it
        weights: Array = np.minimum.accumulate(loss[np.minimum(at, len(loss) - 1)])
        return weights


def _turns_up(first: Array, middle: Array, last: Array) -> bool:
    """Tell whether the middle point is on or below the line through the others."""
    ahead, beyond = middle - first, last - first
    return bool(ahead[0] * beyond[1] - ahead[1] * beyond[0] >= 0)


def of_eps(eps: float, delta: float) -> Null:
    """The hypothesis of (eps, delta)-DP."""
    ends = (delta, delta)
    trade_off = TradeOff(lambda _: ends, lambda _: ends)
    loss = min(eps, MAX_LOG_T)  # beyond it the curve is the same to 1e-260
    trade_off.evaluate([loss, -loss])
    return Null.of_lines(trade_off)


def of_curve(curve: Curve) -> Null:
    """The hypothesis of a certified curve: the neighbour without the record is "out"."""
    membership = Membership(curve)
    scale = gaussian_mu_of_advantage(membership.advantage()[1])
    trade_off = membership.trade_offs[0]
    trade_off.evaluate([*membership.kinks(0), *(scale * np.linspace(-REACH, REACH, POINTS)).tolist()])
    return Null.of_lines(trade_off)


@dataclass(frozen=True)
class Family:
    """Curves that are less private the larger a number is, of which the claim is one.

    Args:
        premise: what a lower bound of eps by this family assumes; empty if nothing.
        null, eps: the curve at a number, and the least eps of it at delta. low, high: the range of the number.
    """

    premise: str
    null: Callable[[float], Null]
    eps: Callable[[float], float]
    low: float
    high: float

    def bound(self, rejects: Callable[[Null], bool]) -> float:
        """The least eps of the last curve that is refuted, as all more private ones then are, to two decimals down."""
        low, high = self.low, self.high
        if not rejects(self.null(low)):
            return 0.0
        while high - low > WIDTH * max(high, 1.0):
            # factors of noise are halved by ratio
            middle = math.sqrt(low * high) if low > 0 and self.premise else (low + high) / 2
            if rejects(self.null(middle)):
                low = middle
            else:
                high = middle
        return math.floor(100 * self.eps(low)) / 100


def general(delta: float) -> Family:
    """The family of (eps, delta)-DP at one delta, which assumes nothing."""
    return Family("", lambda eps: of_eps(eps, delta), lambda eps: eps, 0.0, MAX_EPS)


@dataclass(frozen=True)
class Tested:
    """A claim as an audit tests it.

    Args:
        label: the claim in words. eps, delta: the claim at one delta; eps is the upper end that it promises.
        null: its curve. own: the family of the claim, with a premise; None where there is no such family.
        is_point: whether it is one (eps, delta), and not a whole curve.
        process: what ran, where the claim is that of a process.
    """

    label: str
    eps: float
    delta: float
    null: Null
    own: Family | None
    is_point: bool
    process: Process | None = None


def read_claim(claim: str | Claim | Process | Mechanism, delta: float | None = None) -> Tested:
    """Read a claim: ``"eps=4,delta=1e-5"``, ``"mu=1"``, a process in words, a ``Process`` or a mechanism.

    Args:
        delta: at which eps is bounded from below, for mu and for processes; 1e-5 by default.
    Raises:
        UsageError: it is none of these. Unsupported: no proven curve is known of the process.
    """
    if delta is not None and not 0 < finite_number(delta, "`delta`") < 1:
        raise UsageError(f"`delta` must lie strictly between 0 and 1; found {shown(delta)}")
    if isinstance(claim, str):
        claim = _process_of(claim) if plain_words.is_sentence(claim) else parse_claim(claim)
    if isinstance(claim, Claim):
        return _of_claim(claim, delta)
    if isinstance(claim, (Process, Mechanism)):
        process = claim if isinstance(claim, Process) else build_process.described_process(claim).process
        return _of_process(process, DELTA if delta is None else delta)
    raise UsageError(
        f"`claim` is one of {CLAIM_FORMS}; or a process, such as 'gauss sigma=4 n=10'; found {shown(claim)}"
    )


def _process_of(text: str) -> Process:
    return build_process.described_process(text).process


def _of_claim(claim: Claim, delta: float | None) -> Tested:
    if claim.notion == "zcdp" or claim.fpr:
        raise Unsupported(
            f"an audit tests a trade-off curve, which {claim} does not name. Claim eps=3,delta=1e-5; mu=1; or the "
            f"process, such as 'gauss sigma=4 n=10' or 'zcdp rho=0.5'"
        )
    if claim.notion == "gdp":
        if claim.mu == 0:
            return read_claim("eps=0", delta)
        at = DELTA if delta is None else delta
        return replace(_of_process(_process_of(f"gdp mu={claim.mu!r}"), at), label=str(claim), process=None)
    if delta is not None:
        raise UsageError(f"the claim {claim} has its delta; leave out `delta`")
    null = of_eps(claim.eps, claim.delta)
    return Tested(str(claim), claim.eps, claim.delta, null, None, True)


def _of_process(process: Process, delta: float) -> Tested:
    curve = proven_curve(process)
    eps = evaluate.ask(curve, delta=delta).epsilon.safe
    return Tested(str(process), eps, delta, of_curve(curve), family(process, delta), False, process)


def family(process: Process, delta: float) -> Family | None:
    """The process with all of its noise multiplied by a number; None where some step has no noise of that kind."""
    names = [_noise_name(step.mechanism) for step in process.steps]
    if any(name is None for name in names):
        return None

    def at(factor: float) -> Curve:
        steps = zip(process.steps, names, strict=True)
        return proven_curve(process.with_steps(tuple(_scaled(step, str(name), factor) for step, name in steps)))

    def eps(factor: float) -> float:
        row: Guarantee = evaluate.ask(at(factor), delta=delta)
        return max(row.epsilon.lower or 0.0, 0.0)

    premise = "the run is this process, with more or less noise"
    if names == ["mu"]:
        premise = "the run's curve is that of mu-GDP for some mu"
    return Family(premise, lambda factor: of_curve(at(factor)), eps, 1 / MOST_NOISE, 1 / LEAST_NOISE)


def _noise_name(mechanism: Mechanism) -> str | None:
    known = {each.name for each in fields(mechanism)}
    return next((name for name in ("sigma", "mu", "scale") if name in known), None)


def _scaled(step: Step, name: str, factor: float) -> Step:
    value: float = getattr(step.mechanism, name)
    changed = {name: value * factor if name == "mu" else value / factor}
    return replace(step, mechanism=replace(step.mechanism, **changed))


def proven_curve(process: Process) -> Curve:
    """The curve by the first accountant with proven bounds that has an answer.

    Raises:
        Unsupported: none has.
    """
    reasons = []
    for accountant in evaluate.PROVING:
        try:
            return evaluate.curve(process, accountant, TOL)
        except Unsupported as error:
            reasons.append(str(error))
    raise Unsupported(reasons[0])
