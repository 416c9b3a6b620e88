"""Lower bounds of eps from the outcome of an audit, each wrong with at most a stated chance.

docs/theory/audits.md states the theorems and proves them.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr, betaincinv, gammaln, xlog1py, xlogy

from wpriv.errors import UsageError

STEP = 0.01
"""Width of the intervals of eps that are rejected one after another."""
MAX_EPS = 50.0
SLACK = 1e-9
"""Relative error that is allowed for in binomial probabilities and their inverses."""


def guess_chance(guesses: int, correct: int, coins: int, eps: float, delta: float, *, width: float = 0.0) -> float:
    """Return a bound on the chance of at least ``correct`` right guesses of coins from an (eps, delta)-DP output.

    Args:
        guesses: the number of coins that are guessed, fixed in advance. coins: of all fair coins, each of which
            decides on one record; those that are not guessed are abstained from.
        eps: the bound holds for every eps in [``eps - width``, ``eps``].
    Raises:
        UsageError: not 0 <= correct <= guesses <= coins, or eps, delta or width is out of range.
    Source:
        Theorem 1 of docs/theory/audits.md; for delta = 0 it is that of Steinke, Nasr, Jagielski (2023).
    """
    if not 0 <= correct <= guesses <= coins:
        raise UsageError(
            f"needs 0 <= `correct` <= `guesses` <= `coins`; found correct = {correct}, guesses = {guesses} and "
            f"coins = {coins}"
        )
    if not (0 <= width <= eps < math.inf and 0 <= delta <= 1):
        raise UsageError(f"needs 0 <= `width` <= `eps` < inf and a `delta` from 0 to 1; found {width}, {eps}, {delta}")
    if correct == 0:
        return 1.0
    wrong = 1 / (1 + math.exp(eps))
    # v or more are right where r - v or fewer are wrong
    chance = float(bdtr(guesses - correct, guesses, wrong))
    # the mean number of guesses that delta makes right is at most this; j of them turn v - j right ones into v
    mean = coins * delta / (1 + math.exp(eps - width))
    lacking = np.arange(1, correct + 1)
    masses = _binomial(guesses, guesses - correct + lacking, wrong)
    needed = np.cumsum(lacking * masses)
    full = int(np.searchsorted(needed, mean, side="right"))
    chance += float(masses[:full].sum())
    if full < correct:
        chance += (mean - (float(needed[full - 1]) if full else 0.0)) / float(lacking[full])
    return min(chance * (1 + SLACK), 1.0)


def eps_of_guesses(guesses: int, correct: int, coins: int, delta: float, error: float) -> float:
    """Return an eps that exceeds the true one with a chance of at most ``error``; 0 where nothing can be said.

    Every smaller eps is rejected: under it so many right guesses would have a chance of at most ``error``.

    Args:
        guesses, correct, coins, delta: as in ``guess_chance``. error: one minus the confidence, in (0, 1).
    Raises:
        UsageError: as ``guess_chance``, or the error is out of range.
    """
    _require_error(error)
    rejected = 0.0
    for number in range(1, round(MAX_EPS / STEP) + 1):
        eps = number * STEP
        if guess_chance(guesses, correct, coins, eps, delta, width=eps - rejected) > error:
            break
        rejected = eps
    return rejected


def rate_bounds(hits: int, trials: int, error: float) -> tuple[float, float]:
    """Return a lower and an upper bound of the chance of a hit, each wrong with a chance of at most ``error``.

    Raises:
        UsageError: not 0 <= hits <= trials, or the error is out of range.
    Source:
        Clopper, Pearson (1934).
    """
    _require_error(error)
    if not 0 <= hits <= trials:
        raise UsageError(f"needs 0 <= `hits` <= `trials`; found {hits} and {trials}")
    low = 0.0 if hits == 0 else float(betaincinv(hits, trials - hits + 1, error)) * (1 - SLACK)
    # the upper bound of hits is one minus the lower bound of misses
    misses = trials - hits
    high = 1.0 if misses == 0 else 1 - float(betaincinv(misses, hits + 1, error)) * (1 - SLACK)
    return low, high


def eps_of_rates(
    true_positives: tuple[int, int], false_positives: tuple[int, int], delta: float, error: float
) -> float:
    """Return an eps that exceeds the true one with a chance of at most ``error``, from a test of "was it there?".

    Args:
        true_positives: hits and trials with the record. false_positives: hits and trials without it.
        delta: from 0 to 1. error: one minus the confidence, in (0, 1); each rate may err with half of it.
    Raises:
        UsageError: as ``rate_bounds``.
    Source:
        Theorem 2 of docs/theory/audits.md (Kairouz, Oh, Viswanath 2015; Jagielski, Ullman, Oprea 2020).
    """
    _require_error(error)
    tpr = rate_bounds(*true_positives, error / 2)[0]
    fpr = rate_bounds(*false_positives, error / 2)[1]
    ratios = [(tpr - delta, fpr), (1 - fpr - delta, 1 - tpr)]
    bounds = [math.log(above / below) for above, below in ratios if above > 0 and below > 0]
    return max([0.0, *bounds])


def _require_error(error: float) -> None:
    if not 0 < error < 1:
        raise UsageError(f"one minus the confidence must lie strictly between 0 and 1; found {error}")


def _binomial(trials: int, hits: NDArray[np.int64], chance: float) -> NDArray[np.float64]:
    """Return the probabilities of so many hits."""
    choose = gammaln(trials + 1) - gammaln(hits + 1) - gammaln(trials - hits + 1)
    masses: NDArray[np.float64] = np.exp(choose + xlogy(hits, chance) + xlog1py(trials - hits, -chance))
    return masses
