"""The test that breaks a claimed (eps, delta): call the record "in" where the privacy loss exceeds eps; its simulation.

Gaussian steps draw their output and compute the loss from it; sampled steps also draw whether the record takes part,
and the loss is that of the mixture. Discrete pairs draw an outcome. Any other pair with exact tails draws a loss by
inverting its distribution function. This program shares no code with the composition that bounds delta.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from wpriv.core.atomic_pair import AtomicPair
from wpriv.core.loss_pair import LossPair, Reversed, gaussian_mu
from wpriv.core.process import WeightedPairs, closed_form, sandwich
from wpriv.core.subsampled_pairs import poisson_parts
from wpriv.core.trade_off import PROFILE_ROUNDING, DeltaEnds, Line, outward
from wpriv.numerics.arrays import Array
from wpriv.numerics.log_space import log_mixture

# the most losses that are drawn, by a formula and by inverting a distribution function; losses drawn at a time
MAX_DRAWS, MAX_INVERTED = 60_000_000, 600_000
CHUNK = 1_000_000
# relative distance from an atom up to which an inverted loss is that atom; steps of bisection; the largest |loss|
ATOM, BISECTIONS, FAR = 1e-9, 60, 700.0

Draw = Callable[[np.random.Generator, int, bool], Array]


@dataclass(frozen=True)
class Simulation:
    """Counts of one simulation.

    Args:
        seed: of the generator. trials: in each of the two worlds.
        tpr, fpr: the shares of losses above the threshold, with the record and without it.
        advantage: TPR - e^eps FPR. standard_error: of the advantage.
    """

    seed: int
    trials: int
    tpr: float
    fpr: float
    advantage: float
    standard_error: float


# false positives from which on their number is nearly normal, and an eps whose exponential is finite
SEEN, LARGEST_EPS = 10, 700.0


def trials_needed(tpr: float, fpr: float, eps: float, gap: float, deviations: float) -> float:
    """The number of trials at which ``gap`` is so many standard errors of TPR - e^eps FPR; inf for no gap.

    Where fewer than ``SEEN`` of them are false positives, so many that e^eps times the largest FPR that leaves none,
    but for the chance of so many standard errors, is below ``gap``.
    """
    if not gap > 0:
        return math.inf
    errors = deviations / gap  # the square of a tiny gap is 0
    trials = errors * errors * _variance(tpr, fpr, eps)
    if trials * fpr >= SEEN:
        return trials
    unseen = math.exp(min(eps, LARGEST_EPS)) * deviations * errors / 2
    return max(trials, min(unseen, SEEN / fpr if fpr > 0 else math.inf))


def simulate(pairs: WeightedPairs, eps: float, trials: int, seed: int) -> Simulation:
    """Draw ``trials`` losses of one order, with positive ``most_trials``, in each world; count those above eps."""
    shares = []
    for with_record in (True, False):
        generator = np.random.default_rng([seed, int(with_record)])
        above = 0
        for start in range(0, trials, CHUNK):
            size = min(CHUNK, trials - start)
            above += int(np.count_nonzero(_losses(pairs, generator, size, with_record) > eps))
        shares.append(above / trials)
    tpr, fpr = shares
    error = math.sqrt(_variance(tpr, fpr, eps) / trials)
    return Simulation(seed, trials, tpr, fpr, tpr - math.exp(eps) * fpr, error)


def most_trials(pairs: WeightedPairs) -> int:
    """The most trials that can be simulated; 0 where some pair is not known exactly, or has too many compositions."""
    if sandwich(pairs, 1.0) is not None:
        return 0
    draws = [(_draw(pair), n) for pair, n in _parts(pairs)]
    inverted = sum(n for (_, is_inverted), n in draws if is_inverted)
    total = sum(n for _, n in draws)
    return min(MAX_DRAWS // total, MAX_INVERTED // inverted if inverted else MAX_DRAWS)


def _parts(pairs: WeightedPairs) -> WeightedPairs:
    """The pairs to draw from: one pair where the composition is a single Gaussian one, else every step by itself."""
    exact = closed_form(pairs)
    return pairs if exact is None or gaussian_mu(exact) is None else [(exact, 1)]


def _losses(pairs: WeightedPairs, generator: np.random.Generator, size: int, with_record: bool) -> Array:
    total = np.zeros(size)
    for pair, n in _parts(pairs):
        draw, _ = _draw(pair)
        for _ in range(n):
            total += draw(generator, size, with_record)
    return total


def _variance(tpr: float, fpr: float, eps: float) -> float:
    """The variance of one trial of TPR - e^eps FPR, in each world."""
    return tpr * (1 - tpr) + math.exp(2 * eps) * fpr * (1 - fpr)


def _draw(pair: LossPair) -> tuple[Draw, bool]:
    """A function that draws losses under P or under Q, and whether it inverts a distribution function."""
    mu = gaussian_mu(pair)
    if mu is not None:
        return _gaussian(mu), False
    if isinstance(pair, AtomicPair):
        return _atomic(pair), False
    mixture = poisson_parts(pair)
    if mixture is not None:
        base, is_inverted = _draw(mixture[0])
        return _mixed(base, mixture[1]), is_inverted
    if isinstance(pair, Reversed):
        forward, is_inverted = _draw(pair.forward)
        return (lambda generator, size, with_record: -forward(generator, size, not with_record)), is_inverted
    return _inverted(pair), True


def _gaussian(mu: float) -> Draw:
    def draw(generator: np.random.Generator, size: int, with_record: bool) -> Array:
        # the output is N(mu, 1) with the record and N(0, 1) without it; ln of the ratio of the two densities
        output = generator.standard_normal(size) + (mu if with_record else 0.0)
        return mu * (output - mu / 2)

    return draw


def _mixed(base: Draw, rate: float) -> Draw:
    def draw(generator: np.random.Generator, size: int, with_record: bool) -> Array:
        taking_part = generator.random(size) < rate if with_record else np.zeros(size, dtype=bool)
        losses = base(generator, size, False)
        count = int(taking_part.sum())
        losses[taking_part] = base(generator, count, True)
        return np.asarray(log_mixture(losses, rate))

    return draw


def _atomic(pair: AtomicPair) -> Draw:
    losses = np.concatenate([[-np.inf], pair.losses, [np.inf]])
    with_record = np.concatenate([[0.0], np.exp(pair.log_p), [pair.mass_at_plus_infinity]])
    without = np.concatenate([[pair.mass_at_minus_infinity], np.exp(pair.log_q), [0.0]])
    cumulated = {True: np.cumsum(with_record), False: np.cumsum(without)}
    last = {True: np.flatnonzero(with_record)[-1], False: np.flatnonzero(without)[-1]}

    def draw(generator: np.random.Generator, size: int, with_record: bool) -> Array:
        at = np.searchsorted(cumulated[with_record], generator.random(size), side="right")
        return np.asarray(losses[np.minimum(at, last[with_record])])

    return draw


def _inverted(pair: LossPair) -> Draw:
    """Draw by bisection of the distribution function: the least loss y with P(L <= y) >= u, u uniform."""
    ends = max(pair.support[0], -FAR), min(pair.support[1], FAR)

    def draw(generator: np.random.Generator, size: int, with_record: bool) -> Array:
        uniform = generator.random(size)
        low, high = np.full(size, ends[0] - 1e-6), np.full(size, ends[1] + 1e-6)
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            tails = pair.probabilities(middle)
            reached = (tails.cdf_p if with_record else tails.cdf_q) >= uniform
            low, high = np.where(reached, low, middle), np.where(reached, middle, high)
        for atom in pair.atoms if pair.atoms.size <= 100 else ():
            high = np.where(np.abs(high - atom) <= ATOM * max(1.0, abs(atom)), atom, high)
        infinite = uniform > 1 - pair.mass_at_plus_infinity if with_record else uniform < pair.mass_at_minus_infinity
        return np.where(infinite, np.inf if with_record else -np.inf, high)

    return draw


# For t = e^eps the test has TPR - t FPR = H_t(P||Q), the largest of all tests. Its two rates follow from bounds of the
# profile f(t) at t and at points on both sides: -FPR is a slope of the convex f. docs/theory/refuting-tests.md has the
# proof.

# distances in eps at which the profile is evaluated beside the threshold; each gives a bound, and the best is taken
DISTANCES = (0.1, 0.02)


@dataclass(frozen=True)
class ThresholdTest:
    """The test "loss > threshold" of one order of the neighbours, with bounds of its rates and of its advantage.

    Args:
        threshold: eps, in nats.
        order: the order of the neighbours, an index into ``Process.directions``.
        fpr_lower, fpr_upper: Q(L > eps). tpr_lower, tpr_upper: P(L > eps).
        delta_lower, delta_upper: TPR - e^eps FPR, which is the profile at eps.
    """

    threshold: float
    order: int
    fpr_lower: float
    fpr_upper: float
    tpr_lower: float
    tpr_upper: float
    delta_lower: float
    delta_upper: float


def threshold_test(pairs: WeightedPairs, delta_ends: DeltaEnds, eps: float, order: int) -> ThresholdTest:
    """Bound the rates of the test that calls the record "in" where the loss of all steps together exceeds eps."""
    low, high = delta_ends(eps)
    # the tails of a pair that is only known between two others are not its own
    exact = closed_form(pairs) if sandwich(pairs, 1.0) is None else None
    if exact is not None:
        tails = exact.tails(np.array(eps))
        rates = [math.exp(float(tail)) for tail in (tails.sf_q, tails.sf_p)]
        fpr, tpr = ((rate * (1 - PROFILE_ROUNDING), min(rate * (1 + PROFILE_ROUNDING), 1.0)) for rate in rates)
    else:
        fpr = _fpr(delta_ends, eps)
        t = math.exp(eps)
        # TPR = f(t) + t FPR; and a rate is at most 1
        tpr = low + t * fpr[0], min(high + t * fpr[1], 1.0)
    return ThresholdTest(eps, order, *fpr, *tpr, low, high)


def _fpr(delta_ends: DeltaEnds, eps: float) -> tuple[float, float]:
    """Bounds of Q(L > eps), which lies between minus the slopes of the chords of f on both sides of t."""
    at = _line(delta_ends, eps)
    lower, upper = 0.0, math.exp(-eps)  # P(L > eps) >= t Q(L > eps)
    for distance in DISTANCES:
        lower = max(lower, at.rates_between(_line(delta_ends, eps + distance))[0])
        if eps - distance >= 0:
            upper = min(upper, _line(delta_ends, eps - distance).rates_between(at)[1])
    return min(lower, upper), upper


def _line(delta_ends: DeltaEnds, eps: float) -> Line:
    return Line(eps, *outward(delta_ends(eps)))
