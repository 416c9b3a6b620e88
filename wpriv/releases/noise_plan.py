"""The noise of a release: one multiplier for all of its outputs, found from the guarantee of the whole.

A part with sensitivity c in each of L cells and weight w gets sigma = z c sqrt(L) / w, so that equal weights spend
equal shares; quantiles get eps0 = 2 w / (z sqrt(L Q)). At delta = 0 noise is Laplace with b = c L / eps_o. Steps are
exact for the noise that is drawn: discrete-gauss and discrete-laplace, exponential, and dp(0, leak) for unknown keys
(docs/theory/thresholds.md, Theorem 1).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache

from wpriv.accounting import evaluate
from wpriv.accounting.mechanisms.discrete_gauss import DiscreteGauss
from wpriv.accounting.mechanisms.discrete_laplace import DiscreteLaplace
from wpriv.accounting.mechanisms.dp import Dp
from wpriv.accounting.mechanisms.exponential import Exponential
from wpriv.accounting.search import Unknown
from wpriv.accounting.target import TOL, Target, solve_for
from wpriv.core.guarantee import Guarantee
from wpriv.core.kinds import Adjacency
from wpriv.core.process import Process, Step
from wpriv.errors import Unsupported, UsageError
from wpriv.numerics import conversions
from wpriv.numerics.numbers import rounded
from wpriv.releases.outputs import Part
from wpriv.releases.sampling import GAUSS, LAPLACE, Noise

ACCOUNTANT = "pld"
DIGITS = 8  # of sigma and b, as calibrate gives them
MOST_SIGMA = 1e15
MOST_LAPLACE, MOST_GAUSS = 2**20, 2**53  # grid steps of a sensitivity
NEAR, MOST_STEPS = 3e-7, 7  # of the search for a multiplier: relative distance from the target, and evaluations
COARSER = "take a coarser `grid`, or closer `bounds`"


@dataclass(frozen=True)
class Budget:
    """What a release may spend as a whole, and on which noise.

    Args:
        eps: above 0; None where each part has a standard error that is asked for. delta: 0 for pure DP, of Laplace
            noise. family: gauss or laplace. key_delta: the share of delta for unknown keys. before: what a ledger holds
            already, if the target is for all of it.
    """

    eps: float | None
    delta: float
    family: str = GAUSS
    key_delta: float = 0.1
    before: Process | None = None

    def __post_init__(self) -> None:
        if self.eps is not None and not 0 < self.eps < math.inf:
            raise UsageError(f"`eps` must be a finite number above 0; found {self.eps}")
        if not 0 <= self.delta < 1:
            raise UsageError(f"`delta` must be at least 0 and below 1; found {self.delta}")
        if self.family not in (GAUSS, LAPLACE):
            raise UsageError(f"`noise` must be gauss or laplace; found {self.family!r}")
        if not 0 < self.key_delta < 1:
            raise UsageError(f"`key_delta` is a share of delta, above 0 and below 1; found {self.key_delta}")
        if self.delta == 0 and self.family == GAUSS:
            raise UsageError("Gaussian noise has no finite eps at delta = 0: give `delta`, or `noise` laplace")

    @property
    def key_share(self) -> float:
        """The delta that unknown keys may cost: all of it where the outputs need none."""
        return self.delta * (1.0 if self.family == LAPLACE and self.before is None else self.key_delta)


@dataclass(frozen=True)
class NoisePlan:
    """The noise of each part, and its account.

    Args:
        noises: of each part; None of a quantile. ranges: eps0 of each part that is a quantile, else 0.
        threshold, leak: of unknown keys: noisy counts above the first are released, which costs the second; 0 without.
        guarantee: of the release alone.
    """

    noises: tuple[Noise | None, ...]
    ranges: tuple[float, ...]
    threshold: int
    leak: float
    guarantee: Guarantee

    @property
    def process(self) -> Process:
        return self.guarantee.process


def solve(parts: Sequence[Part], budget: Budget, *, keys: int | None = None) -> NoisePlan:
    """Find the least noise with which all parts together meet a target, or the cost of noise that is given.

    Args:
        keys: the place of the part by whose count unknown keys are released; None for declared keys.
    Raises:
        Unsupported: unknown keys at delta 0, or no noise meets the target. UsageError: the grid is too fine.
    """
    if keys is not None and budget.delta == 0:
        raise Unsupported(
            "unknown keys need `delta` above 0: whether a key shows may depend on one person. Declare the `keys`"
        )
    if any(part.sensitivity > MOST_GAUSS for part in parts):
        raise UsageError(f"one person changes a cell by more than 2^53 steps of the grid: {COARSER}")
    if budget.eps is None:
        return _planned(parts, budget, keys, 1)
    if budget.family == LAPLACE and budget.before is None:
        # shares of eps that add up to at most eps, in exact arithmetic
        whole = sum(Fraction(part.weight) for part in parts)
        return _planned(parts, budget, keys, whole / Fraction(repr(budget.eps)))
    alone = len(parts) == 1 and keys is None and parts[0].role != "quantile" and budget.family == GAUSS
    first = parts[0].sensitivity * math.sqrt(parts[0].copies) / parts[0].weight if alone else 1.0

    def process(value: float) -> Process:
        spread = _process(_noises(parts, budget, value / first), None if keys is None else budget.key_share)
        return spread if budget.before is None else budget.before + spread

    near = _multiplier(process, parts, budget, first)
    if near is not None:
        return _planned(parts, budget, keys, near / first)
    unknown = Unknown("sigma" if alone else "the noise multiplier", +1, 1e-6, MOST_SIGMA)
    solution = solve_for(unknown, process, ACCOUNTANT, Target(budget.eps, budget.delta), TOL)
    return _planned(parts, budget, keys, solution.value / first)


def _multiplier(
    process: Callable[[float], Process], parts: Sequence[Part], budget: Budget, first: float
) -> float | None:
    """A multiplier at which eps is at most the target and less than 3 parts in 10^7 below it, by few evaluations.

    Begins where Gaussian noise of the same shares meets the target, which is next to the solution. None where the
    solution is known exactly, where brackets are wide (quantiles beside noise), or where it was not reached: then all
    brackets are searched.
    """
    eps = budget.eps or 0.0
    if budget.delta == 0 or budget.before is not None or len({part.role == "quantile" for part in parts}) > 1:
        return None
    value = first * conversions.exact(eps, budget.delta) * math.sqrt(sum(part.weight**2 for part in parts))
    slope, last = -1.1, None
    for _ in range(MOST_STEPS):
        value = rounded(value, up=True, digits=DIGITS + 1)
        try:
            row = _row(process(value), budget.delta)
        except Unsupported:
            return None
        excess = math.log(row.epsilon.safe / eps) if 0 < row.epsilon.safe < math.inf else math.inf
        if row.claim == "exact" or abs(excess) > 1:
            return None
        if -NEAR <= excess <= 0:
            return value
        if last is not None and abs(excess - last[1]) > NEAR:
            slope = min(max((excess - last[1]) / math.log(value / last[0]), -2.5), -0.5)
        last = value, excess
        value *= math.exp(-(excess + NEAR / 2) / slope)
    return None


def largest_eps(
    parts: Sequence[Part], budget: Budget, before: Process, limit: float, *, keys: int | None = None
) -> float | None:
    """The eps of a release of these parts with which all of a ledger has an eps of ``limit``; None if none has."""
    equal = [part if part.error is None else replace(part, error=None, weight=_share(part, budget)) for part in parts]
    try:
        return solve(equal, replace(budget, eps=limit, before=before), keys=keys).guarantee.epsilon.safe
    except Unsupported:
        return None


def _share(part: Part, budget: Budget) -> float:
    """The weight of a part whose noise is given, relative to that of others."""
    noise, _, _ = _noise_of(part, budget.family, 1)
    assert noise is not None  # quantiles have no standard error
    return part.sensitivity * math.sqrt(part.copies) / noise.spread


def total(before: Process, row: Guarantee) -> Guarantee:
    """The guarantee of what a ledger holds and of a release together, at the delta of the release."""
    return _row(before + row.process, row.delta.safe)


@lru_cache(maxsize=8)
def _row(process: Process, delta: float) -> Guarantee:
    return evaluate.checked(evaluate.curve(process, ACCOUNTANT, TOL).at(delta=delta))


def _planned(parts: Sequence[Part], budget: Budget, keys: int | None, z: float | Fraction) -> NoisePlan:
    """The plan at one value of the multiplier, checked against the target."""
    noises = _noises(parts, budget, z)
    threshold, leak = 0, 0.0
    if keys is not None:
        noise, copies = noises[keys][0], parts[keys].copies
        assert noise is not None  # a count of persons
        threshold = _least(lambda tau: _leak(noise, tau, copies) <= budget.key_share)
        leak = _leak(noise, threshold, copies)
    row = _row(_process(noises, leak if keys is not None else None), budget.delta)
    both = row if budget.before is None else total(budget.before, row)
    if budget.eps is not None and both.epsilon.safe > budget.eps:
        raise Unsupported(f"no noise of this kind meets eps = {budget.eps:g} at delta = {budget.delta:g}")
    spreads, ranges = [noise for noise, _, _ in noises], [eps0 for _, eps0, _ in noises]
    return NoisePlan(tuple(spreads), tuple(ranges), threshold, leak, row)


PartNoise = tuple[Noise | None, float, Step]
"""The noise of a part that is no quantile, eps0 of one that is, and its step."""


def _noises(parts: Sequence[Part], budget: Budget, z: float | Fraction) -> list[PartNoise]:
    return [_noise_of(part, budget.family, z) for part in parts]


def _process(noises: Sequence[PartNoise], leak: float | None) -> Process:
    """The steps, and what unknown keys leak. While noise is searched that is its whole share: it jumps with noise."""
    steps = [step for _, _, step in noises] + ([] if leak is None else [Step(Dp(eps0=0.0, delta0=leak))])
    return Process(tuple(steps), Adjacency.ADD_REMOVE)


def _noise_of(part: Part, family: str, z: float | Fraction) -> PartNoise:
    """The noise of one part at a value of the multiplier, or that of the standard error asked for."""
    if part.role == "quantile":
        count = part.copies * len(part.at)
        if family == LAPLACE:
            eps0 = _within(Fraction(part.weight) / Fraction(z) / count, up=False)
        else:
            eps0 = rounded(2 * part.weight / (z * math.sqrt(count)), up=False, digits=DIGITS)
        return None, eps0, Step(Exponential(eps0=eps0), count)
    if family == LAPLACE:
        if part.sensitivity > MOST_LAPLACE:
            raise UsageError(f"one person changes a cell by more than 2^20 steps of the grid: {COARSER}")
        if part.error is None:
            scale = _within(part.sensitivity * part.copies / (Fraction(part.weight) / Fraction(z)), up=True)
        else:  # the variance is 1 / (2 sinh(1 / (2 b))^2)
            scale = rounded(1 / (2 * math.asinh(1 / (math.sqrt(2) * part.error))), up=False, digits=DIGITS)
        step = Step(DiscreteLaplace(scale=scale, sensitivity=part.sensitivity), part.copies)
        return Noise(LAPLACE, scale), 0.0, step
    if part.error is None:
        sigma = rounded(z * part.sensitivity * math.sqrt(part.copies) / part.weight, up=True, digits=DIGITS)
    else:  # the variance is at most sigma^2
        sigma = rounded(part.error, up=False, digits=DIGITS)
    if sigma > MOST_SIGMA:
        raise UsageError(f"the noise is wider than 1e15 steps of the grid: {COARSER}")
    return Noise(GAUSS, sigma), 0.0, Step(DiscreteGauss(sigma=sigma, sensitivity=part.sensitivity), part.copies)


def _within(exact: Fraction, *, up: bool) -> float:
    """A number of few digits, not below (``up``) or not above an exact one, both as written and as a double."""
    value = rounded(float(exact), up=up, digits=DIGITS)
    while not all((each >= exact) if up else (each <= exact) for each in (Fraction(value), Fraction(repr(value)))):
        value = rounded(math.nextafter(value, math.inf if up else 0.0), up=up, digits=DIGITS)
    return value


def _leak(noise: Noise, threshold: int, copies: int) -> float:
    """The chance that a key of one person alone is released, of ``copies`` such keys, rounded up."""
    alone = noise.tail(threshold)
    return rounded(-math.expm1(copies * math.log1p(-alone)) if alone < 1 else 1.0, up=True)


def _least(is_enough: Callable[[int], bool]) -> int:
    """The least whole number from 1 on that suffices, of a condition that stays true."""
    high = 1
    while not is_enough(high):
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high
