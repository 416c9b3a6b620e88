"""Lower bounds of eps from the outcome of an audit, each wrong with at most a stated chance.

The outcome is the scores of canaries and the coins that decided whether they took part.
docs/theory/audits.md states the theorems and proves them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from wpriv.core.kinds import Adjacency
from wpriv.core.process import Process
from wpriv.training.audit.audited_training import Outcome
from wpriv.training.audit.claimed_curve import general, of_eps
from wpriv.training.audit.score_tests import CONFIDENCE, Ranked, Ranks, is_possible


def eps_of_guesses(
    guesses: int, correct: int, coins: int, delta: float, error: float, *, one_sided: bool = False
) -> float:
    """Return an eps that exceeds the true one with a chance of at most ``error``; 0 where nothing can be said.

    Args:
        guesses: the number of coins that are guessed, fixed in advance. coins: of all fair coins, each of which
            decides on one record; those that are not guessed are abstained from. one_sided: all guesses are "in".
        error: one minus the confidence, in (0, 1).
    Source: Theorem 1 of docs/theory/audits.md.
    """
    number = coins / 2 if one_sided else float(coins)
    return general(delta).bound(lambda null: not is_possible(null, number, guesses, correct, error))


SHARES = (0.05, 0.1, 0.25, 0.5)
"""Shares of the canaries that are guessed."""


@dataclass(frozen=True)
class Test:
    """One test of the audit and the bound that it gives.

    Args:
        statistic: ``sums`` or ``differences``, see wpriv/training/audit/audited_training.py.
        guesses, correct: how many canaries were guessed, and how many of the guesses were right; with two
            worlds, how many of the most extreme scores were counted, and how many were as their end says.
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
            eps = eps_of_guesses(guesses, correct, len(coins), delta, error, one_sided=one_sided)
            tests.append(Test(name, guesses, correct, eps, error))
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
        bounds.append(eps_of_guesses(guesses, min(guesses, correct), canaries, delta, error, one_sided=one_sided))
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
        present, missing = int(coins.sum()), int((~coins).sum())
        hits = round(design(process, present, missing).seen_in * present)
        # canaries that are in and not seen stand at random among those that are out
        score = np.concatenate([np.ones(hits), np.zeros(present - hits + missing)])
        ranked = Ranked.of(score, np.arange(len(coins)) < present)
        return _rank_test("", ranked, delta, (1 - CONFIDENCE) / statistics).epsilon_at_least
    plan = design(process, float(coins.sum()), float((~coins).sum()))
    return _most(plan, is_one_sided(process, len(coins), delta, statistics), delta, statistics)


def rank_tests(outcomes: Sequence[Outcome], delta: float) -> tuple[Test, ...]:
    """Count the trainings with the canary among those with the highest scores, and those without it among the lowest.

    Returns:
        A test for each statistic; together they err with a chance of at most 5% (a union bound).
    """
    coins = np.array([bool(outcome.coins[0]) for outcome in outcomes])
    statistics = list(outcomes[0].scores)
    scores = {name: np.array([float(outcome.scores[name][0]) for outcome in outcomes]) for name in statistics}
    error = (1 - CONFIDENCE) / len(statistics)
    return tuple(_rank_test(name, Ranked.of(scores[name], coins), delta, error) for name in statistics)


def _rank_test(name: str, ranked: Ranked, delta: float, error: float) -> Test:
    """The bound of one statistic, and the count that gives it."""
    ranks = Ranks(ranked)
    eps = general(delta).bound(partial(ranks.rejects, error=error))
    best = min(ranks.parts(of_eps(eps, delta)), key=lambda part: part.p_value / part.share)
    return Test(name, best.of, best.number, eps, error)


METHODS: dict[str, Callable[[Sequence[Outcome], float], tuple[Test, ...]]] = {
    "one-run": guess_tests,
    "two-worlds": rank_tests,
}
