"""Lower bounds of eps from the scores of canaries and the coins that decided whether they took part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wpriv.numerics import audit_bounds
from wpriv.numerics.safe_rounding import rounded
from wpriv.run.audit.audited_training import Outcome

CONFIDENCE = 0.95
SHARES = (0.05, 0.1, 0.25, 0.5)
"""Shares of the canaries that are guessed: half of them those with the lowest scores, half with the highest ones."""


@dataclass(frozen=True)
class Test:
    """One test of the audit and the bound that it gives.

    Args:
        statistic: ``sums`` or ``differences``, see wpriv/run/audit/scores.py.
        guesses, correct: how many canaries were guessed, and how many of the guesses were right.
        epsilon_at_least: the lower bound, rounded down. error: the largest chance that it is wrong.
    """

    statistic: str
    guesses: int
    correct: int
    epsilon_at_least: float
    error: float


def guess_tests(outcomes: Sequence[Outcome], delta: float) -> tuple[Test, ...]:
    """Guess the coins of the canaries with the most extreme scores, for every statistic and share of guesses.

    The canaries of all trainings are one set: each of them is in one training only.

    Returns:
        The tests, which together err with a chance of at most 5% (a union bound).
    """
    coins = np.concatenate([outcome.coins for outcome in outcomes])
    statistics = list(outcomes[0].scores)
    error = (1 - CONFIDENCE) / (len(statistics) * len(SHARES))
    tests = []
    for name in statistics:
        order = np.argsort(np.concatenate([outcome.scores[name] for outcome in outcomes]), kind="stable")
        for share in SHARES:
            guesses = max(1, round(share * len(coins)))
            out, present = order[: guesses // 2], order[len(coins) - (guesses - guesses // 2) :]
            correct = int((~coins[out]).sum() + coins[present].sum())
            eps = audit_bounds.eps_of_guesses(guesses, correct, len(coins), delta, error)
            tests.append(Test(name, guesses, correct, rounded(eps, up=False), error))
    return tuple(tests)


def rate_tests(outcomes: Sequence[Outcome], delta: float) -> tuple[Test, ...]:
    """Bound the error rates of a threshold on the score of the one canary of each training.

    The first half of the trainings sets the threshold, and the second half is counted.

    Returns:
        A test for each statistic; together they err with a chance of at most 5% (a union bound).
    """
    statistics = list(outcomes[0].scores)
    error = (1 - CONFIDENCE) / len(statistics)
    coins = np.array([bool(outcome.coins[0]) for outcome in outcomes])
    half = len(coins) // 2
    tests = []
    for name in statistics:
        scores = np.array([float(outcome.scores[name][0]) for outcome in outcomes])
        threshold = _best_threshold(scores[:half], coins[:half], delta, error)
        positive = scores[half:] > threshold
        present, missing = _counts(positive, coins[half:])
        eps = audit_bounds.eps_of_rates(present, missing, delta, error)
        correct = present[0] + missing[1] - missing[0]
        tests.append(Test(name, present[1] + missing[1], correct, rounded(eps, up=False), error))
    return tuple(tests)


def _best_threshold(scores: NDArray[np.float64], coins: NDArray[np.bool_], delta: float, error: float) -> float:
    """Return the threshold between two scores that would give the largest bound on these trainings.

    Among thresholds of one bound, such as 0, it is the one with the largest difference of the two rates.
    """
    ordered = np.sort(scores)

    def quality(threshold: float) -> tuple[float, float]:
        present, missing = _counts(scores > threshold, coins)
        difference = present[0] / max(present[1], 1) - missing[0] / max(missing[1], 1)
        return audit_bounds.eps_of_rates(present, missing, delta, error), difference

    candidates: list[float] = ((ordered[1:] + ordered[:-1]) / 2).tolist()
    return max(candidates, key=quality)


def _counts(positive: NDArray[np.bool_], coins: NDArray[np.bool_]) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the positives and the trials with the canary, and the same without it."""
    present, missing = positive[coins], positive[~coins]
    return (int(present.sum()), len(present)), (int(missing.sum()), len(missing))


METHODS: dict[str, Callable[[Sequence[Outcome], float], tuple[Test, ...]]] = {
    "one-run": guess_tests,
    "two-worlds": rate_tests,
}
