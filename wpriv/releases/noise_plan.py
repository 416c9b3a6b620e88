"""The noise of a release: one multiplier for all of its outputs, found from the guarantee of the whole.

A part with sensitivity c in each of L cells and weight w gets sigma = z c sqrt(L) / w, so that equal weights spend
equal shares; quantiles get eps0 = 2 w / (z sqrt(L Q)). At delta = 0 noise is Laplace with b = c L / eps_o. Steps are
exact for the noise that is drawn: discrete-gauss and discrete-laplace, exponential, and dp(0, leak) for unknown keys
(docs/theory/thresholds.md, Theorem 1).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

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
from wpriv.numerics.numbers import rounded
from wpriv.releases.outputs import Part
from wpriv.releases.sampling import GAUSS, LAPLACE, Noise

ACCOUNTANT = "pld"
DIGITS = 8  # of sigma and b, as calibrate gives them
MOST_SIGMA = 1e15
MOST_LAPLACE, MOST_GAUSS = 2**20, 2**53  # grid steps of a sensitivity
COARSER = "take a coarser `grid`, or closer `bounds`"


@dataclass(frozen=True)
class Budget:
    """What a release may spend as a whole, and on which noise.

    Args:
        eps: above 0. delta: 0 for pure DP, of Laplace noise. family: gauss or laplace. key_delta: the share of delta
            for unknown keys. before: what a ledger holds already, if the target is for all of it.
    """

    eps: float
    delta: float
    family: str = GAUSS
    key_delta: float = 0.1
    before: Process | None = None

    def __post_init__(self) -> None:
        if not 0 < self.eps < math.inf:
            raise UsageError(f"`eps` must be a finite number above 0; found {self.eps}")
        if not 0 <= self.delta < 1:
            raise UsageError(f"`delta` must be at least 0 and below 1; found {self.delta}")
        if self.family not in (GAUSS, LAPLACE):
            raise UsageError(f"`noise` must be gauss or laplace; found {self.family!r}")
        if not 0 < self.key_delta < 1:
            raise UsageError(f"`key_delta` is a share of delta, above 0 and below 1; found {self.key_delta}")
        if self.delta == 0 and self.family == GAUSS:
            raise UsageError("Gaussian noise has no finite eps at delta = 0: give `delta`, or `noise` laplace")


@dataclass(frozen=True)
class NoisePlan:
    """The noise of each part, and its account.

    Args:
        noises: of each part; None of a quantile. ranges: eps0 of each part that is a quantile, else 0.
        threshold, leak: of unknown keys: noisy counts above the first are released, which costs the second; 0 without.
        guarantee: of the release alone. total: with what was spent before; None without.
    """

    noises: tuple[Noise | None, ...]
    ranges: tuple[float, ...]
    threshold: int
    leak: float
    guarantee: Guarantee
    total: Guarantee | None = None

    @property
    def process(self) -> Process:
        return self.guarantee.process


@dataclass(frozen=True)
class _Spread:
    """The noise at one value of the multiplier."""

    noises: tuple[Noise | None, ...]
    ranges: tuple[float, ...]
    threshold: int
    leak: float
    process: Process


def solve(parts: Sequence[Part], budget: Budget, *, keys: int | None = None) -> NoisePlan:
    """Find the least noise with which all parts together meet a target.

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
    if budget.family == LAPLACE:
        spread = _laplace(parts, budget, keys)
        return _planned(spread, budget)
    alone = len(parts) == 1 and keys is None and parts[0].role != "quantile"
    first = parts[0].sensitivity * math.sqrt(parts[0].copies) / parts[0].weight if alone else 1.0

    def process(value: float) -> Process:
        spread = _gauss(parts, budget, keys, value / first, searches=True)
        return spread.process if budget.before is None else budget.before + spread.process

    unknown = Unknown("sigma" if alone else "the noise multiplier", +1, 1e-6, MOST_SIGMA)
    solution = solve_for(unknown, process, ACCOUNTANT, Target(budget.eps, budget.delta), TOL)
    return _planned(_gauss(parts, budget, keys, solution.value / first), budget)


def _planned(spread: _Spread, budget: Budget) -> NoisePlan:
    """The plan with its guarantee, checked against the target."""
    row = _row(spread.process, budget.delta)
    total = None if budget.before is None else _row(budget.before + spread.process, budget.delta)
    if (total or row).epsilon.safe > budget.eps:
        raise Unsupported(f"no noise of this kind meets eps = {budget.eps:g} at delta = {budget.delta:g}")
    return NoisePlan(spread.noises, spread.ranges, spread.threshold, spread.leak, row, total)


def _row(process: Process, delta: float) -> Guarantee:
    return evaluate.checked(evaluate.curve(process, ACCOUNTANT, TOL).at(delta=delta))


def _gauss(parts: Sequence[Part], budget: Budget, keys: int | None, z: float, *, searches: bool = False) -> _Spread:
    noises: list[Noise | None] = []
    ranges: list[float] = []
    steps: list[Step] = []
    for part in parts:
        if part.role == "quantile":
            count = part.copies * len(part.at)
            eps0 = rounded(2 * part.weight / (z * math.sqrt(count)), up=False, digits=DIGITS)
            noises.append(None)
            ranges.append(eps0)
            steps.append(Step(Exponential(eps0=eps0), count))
            continue
        least = z * part.sensitivity * math.sqrt(part.copies) / part.weight
        sigma = rounded(least, up=True, digits=DIGITS)
        if sigma > MOST_SIGMA:
            raise UsageError(f"the noise is wider than 1e15 steps of the grid: {COARSER}")
        noises.append(Noise(GAUSS, sigma))
        ranges.append(0.0)
        steps.append(Step(DiscreteGauss(sigma=sigma, sensitivity=part.sensitivity), part.copies))
    return _with_keys(parts, budget, keys, noises, ranges, steps, searches=searches)


def _laplace(parts: Sequence[Part], budget: Budget, keys: int | None) -> _Spread:
    """Noise of shares of eps that add up to at most eps, in exact arithmetic."""
    if budget.before is not None:
        raise Unsupported("`total` solves for Gaussian noise; leave it out, or leave out `noise` laplace")
    shares = [Fraction(part.weight) for part in parts]
    eps, whole = Fraction(repr(budget.eps)), sum(shares)
    noises: list[Noise | None] = []
    ranges: list[float] = []
    steps: list[Step] = []
    for part, share in zip(parts, shares, strict=True):
        own = eps * share / whole
        if part.role == "quantile":
            count = part.copies * len(part.at)
            eps0 = _within(own / count, up=False)
            noises.append(None)
            ranges.append(eps0)
            steps.append(Step(Exponential(eps0=eps0), count))
            continue
        if part.sensitivity > MOST_LAPLACE:
            raise UsageError(f"one person changes a cell by more than 2^20 steps of the grid: {COARSER}")
        scale = _within(part.sensitivity * part.copies / own, up=True)
        noises.append(Noise(LAPLACE, scale))
        ranges.append(0.0)
        steps.append(Step(DiscreteLaplace(scale=scale, sensitivity=part.sensitivity), part.copies))
    return _with_keys(parts, budget, keys, noises, ranges, steps)


def _within(exact: Fraction, *, up: bool) -> float:
    """A number of few digits, not below (``up``) or not above an exact one, both as written and as a double."""
    value = rounded(float(exact), up=up, digits=DIGITS)
    while not all((each >= exact) if up else (each <= exact) for each in (Fraction(value), Fraction(repr(value)))):
        value = rounded(math.nextafter(value, math.inf if up else 0.0), up=up, digits=DIGITS)
    return value


def _with_keys(
    parts: Sequence[Part],
    budget: Budget,
    keys: int | None,
    noises: list[Noise | None],
    ranges: list[float],
    steps: list[Step],
    *,
    searches: bool = False,
) -> _Spread:
    """Add the threshold of unknown keys, by the least whole number whose leak is within its share of delta."""
    threshold, leak = 0, 0.0
    if keys is not None:
        noise, copies = noises[keys], parts[keys].copies
        assert noise is not None  # a count of persons
        most = budget.delta * (1.0 if budget.family == LAPLACE else budget.key_delta)
        # while the noise is searched, its whole share is spent: what a threshold leaks jumps with the noise
        leak = most
        if not searches:
            threshold = _least(lambda tau: _leak(noise, tau, copies) <= most)
            leak = _leak(noise, threshold, copies)
        steps.append(Step(Dp(eps0=0.0, delta0=leak)))
    process = Process(tuple(steps), Adjacency.ADD_REMOVE)
    return _Spread(tuple(noises), tuple(ranges), threshold, leak, process)


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
