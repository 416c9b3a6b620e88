"""Tests of a claimed trade-off curve from scores of canaries that were in a run and of canaries that were not.

A test gives a p-value for every claim (``Null``): under the claim it is at most alpha with a chance of at most alpha,
whatever the scores are. No test assumes that scores are normal. docs/theory/audits.md has the theorems and proofs.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, betaincinv

from wpriv.numerics.arrays import Array
from wpriv.training.audit.claimed_curve import Null

Bools = NDArray[np.bool_]
CONFIDENCE = 0.95

SHARES = (0.05, 0.1, 0.25, 0.5)
"""Shares of the canaries that are guessed in one run: each share "in" alone, and half "in" and half "out"."""
COUNTED = (0.01, 0.05, 0.2, 0.5)
"""Shares of the scores, from either end, of which those of canaries that were in are counted."""
EXTREMES = (0.01,)
"""The same beside the ranks of all scores, and the part of the error that both ends have then."""
OF_EXTREMES = 0.1
SIMULATIONS, ENOUGH, FOR_BOUNDS = 1999, 200, 399
"""Simulated rankings of a p-value; so many at least as extreme are enough; and the rankings of a bound of eps."""
CELLS = 2000
"""Cells of the integral over an order statistic, which is rounded up."""
TILTS = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
"""Stakes of the sequential test on a block, by standard deviations of its sum, of which it holds equal parts."""
BLOCK = 8
"""Scores of a block of the sequential test."""
SPREAD = math.sqrt(BLOCK**2 * (BLOCK + 1) / 48)
"""Standard deviation of the sum of its ranks that are in, if half of them are by chance."""


@dataclass(frozen=True)
class Part:
    """One statistic of a test.

    Args:
        name: of the statistic. share: the part of the error that it has. number, of: what was counted, and of how many.
        p_value: of this statistic alone.
    """

    name: str
    share: float
    number: int
    of: int
    p_value: float


@dataclass(frozen=True)
class Ranked:
    """Labels in the order of the scores, the highest first; equal scores stand in random order.

    Args:
        included: [n] whether the canary of each rank was in. coins: [n] whether a coin decided on it, for guesses.
        seed: of equal scores and of simulated rankings.
    """

    included: Bools
    coins: Bools
    seed: int = 0

    @classmethod
    def of(cls, scores: Array, included: Bools, seed: int = 0, coins: Bools | None = None) -> Ranked:
        """Rank scores, of which none is NaN."""
        shuffled = np.random.default_rng([seed, 1]).permutation(len(scores))
        order = shuffled[np.argsort(-scores[shuffled], kind="stable")]
        return cls(included[order], np.ones(len(order), bool) if coins is None else coins[order], seed)

    @property
    def present(self) -> int:
        return int(self.included.sum())

    @property
    def missing(self) -> int:
        return len(self.included) - self.present


@dataclass(frozen=True)
class Guesses:
    """One run, whose canaries may depend on each other in any way; each was in by a fair coin of its own.

    The highest scores are guessed to be in and, in half of the statistics, the lowest to be out.
    """

    ranked: Ranked

    def parts(self, null: Null) -> tuple[Part, ...]:
        """The p-value of each number of right guesses, by Theorem 1 of docs/theory/audits.md."""
        counts = self._counts(null)
        return tuple(
            Part(name, 1 / len(counts), right, guesses, guess_chance(curve, coins, guesses, right))
            for name, curve, coins, guesses, right in counts
        )

    def rejects(self, null: Null, error: float) -> bool:
        """Whether the claim is refuted with at most this chance of a false alarm."""
        counts = self._counts(null)
        return not all(is_possible(*count[1:], error / len(counts)) for count in counts)

    def _counts(self, null: Null) -> list[tuple[str, Null, float, int, int]]:
        """Each statistic: its name, and the first arguments of ``is_possible``."""
        included = self.ranked.included[self.ranked.coins]
        total, counts = len(included), list[tuple[str, Null, float, int, int]]()
        for share in SHARES:
            guesses = max(1, round(share * total))
            counts.append(("in", null, total / 2, guesses, int(included[:guesses].sum())))
            low = guesses // 2
            right = int(included[: guesses - low].sum() + (~included[total - low :]).sum())
            counts.append(("in or out", null.symmetric, float(total), guesses, right))
        return counts


def is_possible(null: Null, coins: float, guesses: int, right: int, chance: float) -> bool:
    """Tell whether a run under the claim could have so many right guesses, or more, with this chance.

    Args:
        null: for guesses of "in" alone that of the claim, else its ``symmetric``.
        coins: of all fair coins, whether guessed or not; half of them for guesses of "in" alone.
        guesses: how many are guessed, fixed in advance. right: how many of the guesses are right. chance: in (0, 1].
    Source: Theorem 1 of docs/theory/audits.md, after Mahloujifar, Melis, Chaudhuri (2024), Theorem 3.2.
    """
    tpr, fpr = null.tpr.tolist()[:-1], null.fpr.tolist()[:-1]
    # ``known``: the chance of all counts from c on; ``rights`` and ``wrongs``: the mean numbers of guesses there
    known, rights, wrongs = chance, right * chance, (guesses - right) * chance
    for c in range(right, 0, -1):
        rate = rights / coins
        if rate > 1:
            return False
        at = bisect.bisect_left(tpr, rate)
        if at == 0:
            least = 0.0
        else:
            step = (rate - tpr[at - 1]) / (tpr[at] - tpr[at - 1])
            least = coins * (fpr[at - 1] + step * (fpr[at] - fpr[at - 1]))
        if least > wrongs:
            mass = (least - wrongs) / (guesses - c + 1)
            known, rights, wrongs = known + mass, rights + (c - 1) * mass, least
            if known > 1:
                return False
    return True


def guess_chance(null: Null, coins: float, guesses: int, right: int) -> float:
    """The largest chance that ``is_possible`` allows, rounded up by at most 1%; the arguments are those of it."""
    if right == 0 or is_possible(null, coins, guesses, right, 1.0):
        return 1.0
    low, high = math.log(1e-12), 0.0
    if not is_possible(null, coins, guesses, right, math.exp(low)):
        return math.exp(low)
    while high - low > 0.01:
        middle = (low + high) / 2
        if is_possible(null, coins, guesses, right, math.exp(middle)):
            low = middle
        else:
            high = middle
    return math.exp(high)


@dataclass(frozen=True)
class Ranks:
    """Scores that do not depend on each other, given which canaries were in: of many runs, or of one.

    Of a whole curve: the sum, over the canaries that were in, of the privacy losses that the claim has at their ranks;
    and the number of them among the most extreme scores. Of one (eps, delta): these numbers at several shares.

    Args:
        weights: [n] of the ranks, nonincreasing; None to count alone.
    """

    ranked: Ranked
    weights: Array | None = None

    def parts(self, null: Null, simulations: int = SIMULATIONS) -> tuple[Part, ...]:
        """The p-value of each statistic, by Theorem 2 of docs/theory/audits.md."""
        shares, error = (COUNTED, 1.0) if self.weights is None else (EXTREMES, OF_EXTREMES)
        parts = []
        if self.weights is not None:
            p = self._of_all(null, simulations)
            parts.append(Part("ranks of all", 1 - OF_EXTREMES, self.ranked.present, len(self.ranked.included), p))
        for share in shares:
            number = max(1, round(share * len(self.ranked.included)))
            each = error / (2 * len(shares))
            parts += [Part(name, each, k, number, p) for name, k, p in self._of_extremes(null, number)]
        return tuple(parts)

    def rejects(self, null: Null, error: float) -> bool:
        """Whether the claim is refuted with at most this chance of a false alarm."""
        return any(part.p_value <= part.share * error for part in self.parts(null, FOR_BOUNDS))

    def _of_all(self, null: Null, simulations: int) -> float:
        """The p-value by simulated rankings under the claim; exact for every number of them (Besag, Clifford 1991)."""
        assert self.weights is not None
        random = np.random.default_rng([self.ranked.seed, 2])
        observed = float(self.weights[self.ranked.included].sum())
        observed -= 1e-9 * float(np.abs(self.weights).sum())  # a sum in another order is as large
        hits = 0
        for done in range(1, simulations + 1):
            present = np.sort(null.fpr_at(random.random(self.ranked.present)))
            missing = np.sort(random.random(self.ranked.missing))
            ranks = np.arange(len(present)) + np.searchsorted(missing, present)
            hits += float(self.weights[ranks].sum()) >= observed
            if hits == ENOUGH:
                return hits / done
        return (hits + 1) / (simulations + 1)

    def _of_extremes(self, null: Null, number: int) -> list[tuple[str, int, float]]:
        """Canaries that were in among the highest scores, and those that were out among the lowest ones."""
        included, present, missing = self.ranked.included, self.ranked.present, self.ranked.missing
        top, bottom = int(included[:number].sum()), int((~included[len(included) - number :]).sum())
        reversed_null = Null(1 - null.tpr[::-1], 1 - null.fpr[::-1])
        return [
            ("in, of the highest", top, count_chance(null, present, missing, number, top)),
            ("out, of the lowest", bottom, count_chance(reversed_null, missing, present, number, bottom)),
        ]


def count_chance(null: Null, present: int, missing: int, number: int, count: int) -> float:
    """The chance, under the claim, of at least ``count`` canaries that were in among the ``number`` highest scores.

    That is the chance that the count-th highest score of those that were in exceeds the (number - count + 1)-th highest
    of the others. The false-positive and true-positive rates at both are beta distributed and independent. The integral
    is rounded up by at most 2 / CELLS, and by less where it is small.

    Args:
        null: the claim. present, missing: numbers of scores of canaries that were in and out.
    Source: Theorem 2 of docs/theory/audits.md.
    """
    others = number - count + 1
    if count == 0 or others > missing:
        return 1.0
    if count > present:
        return 0.0
    masses, rates = _order_statistic(others, missing)
    return min(1.0, float(masses @ betainc(count, present - count + 1, null.tpr_at(rates))))


@functools.lru_cache(maxsize=64)
def _order_statistic(rank: int, number: int) -> tuple[Array, Array]:
    """The chances of CELLS cells of the rank-th smallest of so many uniform numbers, and their upper ends.

    The cells are narrow where that number is large, since small chances to exceed it come from there.
    """
    ends = 1 - np.linspace(1, 0, CELLS + 1) ** 2
    return np.diff(ends), betaincinv(rank, number - rank + 1, ends[1:])


@dataclass(frozen=True)
class Sequential:
    """Independent scores in the order in which they came: a test martingale that may be looked at after every score.

    A block is BLOCK scores. The stake on it grows with the sum of the ranks, within the block, of the canaries that
    were in (the statistic of Wilcoxon, 1945), given how many there are.
    """

    scores: Array
    included: Bools
    seed: int = 0

    @cached_property
    def blocks(self) -> list[tuple[int, Bools]]:
        """For each full block the number of scores until its end, and its labels from the highest score on.

        Blocks without a canary that was in, or without one that was not, show nothing and are left out.
        """
        full = []
        for end in range(BLOCK, len(self.scores) + 1, BLOCK):
            rows = slice(end - BLOCK, end)
            labels = Ranked.of(self.scores[rows], self.included[rows], self.seed * 1_000_003 + end).included
            if 0 < labels.sum() < BLOCK:
                full.append((end, labels))
        return full

    def wealth(self, null: Null) -> list[tuple[int, float]]:
        """The logarithm of the test martingale after each full block, with the number of scores until then."""
        stakes = self._stakes(null)
        if not len(stakes):
            return []
        logs = np.cumsum(np.log(stakes), axis=0)
        largest = logs.max(axis=1)
        means = largest + np.log(np.mean(np.exp(logs - largest[:, None]), axis=1))
        return [(end, float(log)) for (end, _), log in zip(self.blocks, means, strict=True)]

    def parts(self, null: Null) -> tuple[Part, ...]:
        """One part: the largest value so far, whose inverse is a p-value at all times (Ville 1939)."""
        wealth = self.wealth(null)
        end, most = max(wealth, key=lambda each: each[1], default=(0, 0.0))
        return (Part("test martingale", 1.0, end, len(self.scores), min(1.0, math.exp(-min(most, 700.0)))),)

    def rejects(self, null: Null, error: float) -> bool:
        """Whether the martingale has reached 1 / error."""
        return self.parts(null)[0].p_value <= error

    def _stakes(self, null: Null) -> Array:
        """[blocks, tilts] what each stake is multiplied by; 1 on average under the claim's least favourable scores."""
        ranks, tilts = np.arange(BLOCK)[::-1] / SPREAD, np.array(TILTS)
        laws = {
            present: block_law(null, present, BLOCK - present) for present in {int(b.sum()) for _, b in self.blocks}
        }
        costs = {
            present: np.log(sum(p * np.exp(tilts * ranks[np.array(labels)].sum()) for labels, p in law.items()))
            for present, law in laws.items()
        }
        rows = [tilts * ranks[labels].sum() - costs[int(labels.sum())] for _, labels in self.blocks]
        stakes: Array = np.exp(np.array(rows).reshape(-1, len(tilts)))
        return stakes


@functools.lru_cache(maxsize=64)
def block_law(null: Null, present: int, missing: int) -> dict[tuple[bool, ...], float]:
    """The chance of every order of the labels of so many canaries that were in, and that were out.

    It is that of scores that attain the claimed curve. Each piece of the curve has a chance for either kind, and within
    a piece all orders are equally likely.
    """
    number, (start, end, ins, length) = _words(present, missing)
    factor = 1 / np.array([math.factorial(k) for k in range(present + missing + 1)])[length]
    state: Array = np.zeros(len(number))
    state[0] = 1.0
    for p, q in zip(np.diff(null.tpr, prepend=0.0), np.diff(null.fpr, prepend=0.0), strict=True):
        state[:] = np.bincount(end, state[start] * p**ins * q ** (length - ins) * factor, len(number))
    whole = math.factorial(present) * math.factorial(missing)
    return {word: whole * float(state[i]) for word, i in number.items() if len(word) == present + missing}


@functools.lru_cache(maxsize=16)
def _words(present: int, missing: int) -> tuple[dict[tuple[bool, ...], int], NDArray[np.int64]]:
    """All beginnings of the orders of the labels, numbered; and each step from one to one that continues it.

    A step is the number of the shorter one, that of the longer one, and how many labels "in", and labels, it adds.
    """
    words = [word for n in range(present + missing + 1) for word in itertools.product((True, False), repeat=n)]
    words = [word for word in words if word.count(True) <= present and word.count(False) <= missing]
    number = {word: i for i, word in enumerate(words)}
    steps = [
        (number[word[:k]], i, sum(word[k:]), len(word) - k)
        for i, word in enumerate(words)
        for k in range(len(word) + 1)
    ]
    return number, np.array(steps).T
