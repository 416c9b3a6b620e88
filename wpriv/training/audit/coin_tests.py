"""Lower bounds of eps from the outcome of an audit, each wrong with at most a stated chance.

The outcome is the scores of canaries and the coins that decided whether they took part.
docs/theory/audits.md states the theorems and proves them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr, betaincinv, gammaln, xlog1py, xlogy

from wpriv.core.kinds import Adjacency
from wpriv.core.process import Process
from wpriv.errors import UsageError
from wpriv.numerics.numbers import rounded
from wpriv.training.audit.audited_training import Outcome

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
    Source: Theorem 1 of docs/theory/audits.md; for delta = 0 it is that of Steinke, Nasr, Jagielski (2023).
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
    """Clopper and Pearson's (1934) bounds of the chance of a hit, each wrong with a chance of at most ``error``."""
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
    Source: Theorem 2 of docs/theory/audits.md (Kairouz, Oh, Viswanath 2015; Jagielski, Ullman, Oprea 2020).
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


CONFIDENCE = 0.95
SHARES = (0.05, 0.1, 0.25, 0.5)
"""Shares of the canaries that are guessed."""


@dataclass(frozen=True)
class Test:
    """One test of the audit and the bound that it gives.

    Args:
        statistic: ``sums`` or ``differences``, see wpriv/training/audit/audited_training.py.
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

    The highest scores are guessed to be in. Half of the guesses are the lowest scores, guessed to be out, unless
    guesses of "in" alone can show more (``is_one_sided``). The canaries of all trainings are one set: each of them is
    in one training only.

    Returns:
        The tests, which together err with a chance of at most 5% (a union bound).
    """
    coins = np.concatenate([outcome.coins for outcome in outcomes])
    statistics = list(outcomes[0].scores)
    error = (1 - CONFIDENCE) / (len(statistics) * len(SHARES))
    one_sided = is_one_sided(outcomes[0].process, len(coins), delta, len(statistics))
    tests = []
    for name in statistics:
        order = np.argsort(np.concatenate([outcome.scores[name] for outcome in outcomes]), kind="stable")
        for share in SHARES:
            guesses = max(1, round(share * len(coins)))
            low = 0 if one_sided else guesses // 2  # guesses that a canary is out
            out, present = order[:low], order[len(coins) - (guesses - low) :]
            correct = int((~coins[out]).sum() + coins[present].sum())
            eps = eps_of_guesses(guesses, correct, len(coins), delta, error)
            tests.append(Test(name, guesses, correct, rounded(eps, up=False), error))
    return tuple(tests)


@dataclass(frozen=True)
class Design:
    """What an audit can see where its trainings have no noise at all.

    Args:
        present, missing: the number of canaries that are in, and out.
        seen_in, seen_out: the chance that the outputs show the coin of such a canary: without noise it is shown where
            the canary is drawn in some step, and under add-remove neighbours a canary that is out is never drawn.
    """

    present: float
    missing: float
    seen_in: float
    seen_out: float

    def right(self, guesses: int, low: int) -> float:
        """The expected number of right guesses, of which ``low`` are "out"; coins not shown are guessed by chance."""
        unseen = (1 - self.seen_in) * self.present, (1 - self.seen_out) * self.missing
        blind = sum(unseen)
        total = 0.0
        for number, shown, other in (
            (guesses - low, self.present - unseen[0], unseen[0]),
            (low, self.missing - unseen[1], unseen[1]),
        ):
            sure = min(float(number), shown)
            total += sure + (min(number - sure, blind) * other / blind if blind > 0 else 0.0)
        return total


def design(process: Process, present: float, missing: float) -> Design:
    """The design of an audit of a process with so many canaries in and out."""
    steps = process.steps
    seen = 1.0
    if all(step.sampling.kind in ("poisson", "fixed") and step.sampling.rate < 1 for step in steps):
        seen = -math.expm1(math.fsum(step.n * math.log1p(-step.sampling.rate) for step in steps))
    whole = any(step.sampling.rate == 1 for step in steps)
    shows_out = seen if process.adjacency != Adjacency.ADD_REMOVE else 1.0 if whole else 0.0
    # where every record is drawn for certain, what does not show is out
    return Design(present, missing, seen, 1.0 if seen == 1 else shows_out)


def _most(plan: Design, one_sided: bool, delta: float, statistics: int) -> float:
    """The largest bound of guesses over all shares, at the expected number of right ones."""
    canaries = round(plan.present + plan.missing)
    error = (1 - CONFIDENCE) / (statistics * len(SHARES))
    bounds = []
    for share in SHARES:
        guesses = max(1, round(share * canaries))
        correct = round(plan.right(guesses, 0 if one_sided else guesses // 2))
        bounds.append(eps_of_guesses(guesses, min(guesses, correct), canaries, delta, error))
    return max(bounds)


def is_one_sided(process: Process, canaries: int, delta: float, statistics: int) -> bool:
    """Decide, before any coin is known, whether guesses of "in" alone can show more than those of both kinds.

    They do where a canary that is in may be drawn in no step, so that it looks as if it were out.
    """
    plan = design(process, canaries / 2, canaries / 2)
    return _most(plan, True, delta, statistics) > _most(plan, False, delta, statistics)


def ceiling(outcomes: Sequence[Outcome], delta: float, method: str) -> float:
    """The bound that trainings without any noise would have given, on average: the most that the design can show."""
    process, statistics = outcomes[0].process, len(outcomes[0].scores)
    coins = np.concatenate([outcome.coins for outcome in outcomes])
    if method == "two-worlds":
        coins = coins[len(coins) // 2 :]
        present, missing = int(coins.sum()), int((~coins).sum())
        hits = round(design(process, present, missing).seen_in * present)
        eps = eps_of_rates((hits, present), (0, missing), delta, (1 - CONFIDENCE) / statistics)
    else:
        plan = design(process, float(coins.sum()), float((~coins).sum()))
        eps = _most(plan, is_one_sided(process, len(coins), delta, statistics), delta, statistics)
    return rounded(eps, up=False)


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
        eps = eps_of_rates(present, missing, delta, error)
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
        return eps_of_rates(present, missing, delta, error), difference

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
