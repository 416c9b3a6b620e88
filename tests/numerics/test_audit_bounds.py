"""Bounds of audits against enumeration in exact fractions, linear programming and simulated mechanisms."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.stats import binom, binomtest

from wpriv.errors import UsageError
from wpriv.training.audit.coin_tests import STEP, eps_of_guesses, eps_of_rates, guess_chance, rate_bounds


@pytest.mark.parametrize(("guesses", "correct"), [(1, 1), (6, 4), (9, 9), (9, 0), (12, 7)])
@pytest.mark.parametrize("odds", [1, 2, 5])  # e^eps
def test_without_delta_the_chance_is_that_of_independent_guesses_counted_one_by_one(guesses, correct, odds):
    right = Fraction(odds, odds + 1)
    exact = sum(
        math.prod((right if hit else 1 - right) for hit in outcome)
        for outcome in itertools.product((0, 1), repeat=guesses)
        if sum(outcome) >= correct
    )
    assert guess_chance(guesses, correct, guesses, math.log(odds), 0.0) == pytest.approx(float(exact), rel=1e-8)


@pytest.mark.parametrize("delta", [1e-6, 1e-3, 0.02, 0.3])
@pytest.mark.parametrize("eps", [0.1, 1.0, 3.0])
def test_with_delta_the_chance_is_the_optimum_of_the_linear_program_of_the_proof(eps, delta):
    guesses, correct, coins = 20, 17, 40
    right = 1 / (1 + math.exp(-eps))
    lacking = np.arange(1, correct + 1)
    masses = binom.pmf(correct - lacking, guesses, right)
    budget = coins * delta / (1 + math.exp(eps))
    program = linprog(-np.ones(correct), A_ub=[lacking], b_ub=[budget], bounds=[(0, mass) for mass in masses])
    oracle = min(1.0, binom.sf(correct - 1, guesses, right) - program.fun)
    assert guess_chance(guesses, correct, coins, eps, delta) == pytest.approx(oracle, rel=1e-6, abs=1e-12)


@pytest.mark.parametrize(("eps", "delta"), [(0.5, 0.0), (0.5, 0.05), (2.0, 0.01)])
def test_no_mechanism_that_was_enumerated_exceeds_the_chance(eps, delta):
    """Three coins by randomized response that reveals each coin with chance delta: all 2^3 coins and 4^3 answers."""
    coins, right = 3, 1 / (1 + math.exp(-eps))
    # answers to a coin b: b revealed (guess right, sure), or a noisy guess
    outcomes = [(1, delta + (1 - delta) * right), (0, (1 - delta) * (1 - right))]
    for correct in range(1, coins + 1):
        chance = sum(
            math.prod(mass for _, mass in row)
            for row in itertools.product(outcomes, repeat=coins)
            if sum(hit for hit, _ in row) >= correct
        )
        assert chance <= guess_chance(coins, correct, coins, eps, delta)


sizes = st.integers(1, 60).flatmap(lambda r: st.tuples(st.just(r), st.integers(0, r), st.integers(r, 200)))


@given(sizes, st.floats(0, 12), st.floats(0, 0.5), st.floats(0, 1))
def test_the_chance_is_a_probability_that_falls_with_the_right_guesses_and_grows_with_delta_and_width(
    size, eps, delta, share
):
    guesses, correct, coins = size
    chance = guess_chance(guesses, correct, coins, eps, delta)
    assert 0 <= chance <= 1
    near = 1 + 1e-7
    assert chance <= guess_chance(guesses, correct, coins, eps, min(1.0, 2 * delta)) * near
    assert guess_chance(guesses, correct, coins, share * eps, delta) <= 1
    inside = guess_chance(guesses, correct, coins, eps * (1 - share / 2), delta)
    assert inside <= guess_chance(guesses, correct, coins, eps, delta, width=eps * share) * near + 1e-12
    if correct:
        assert chance <= guess_chance(guesses, correct - 1, coins, eps, delta) * near + 1e-12


def test_all_right_guesses_without_delta_give_the_closed_form():
    # q^r = error at q = e^eps / (1 + e^eps)
    right = 0.05 ** (1 / 200)
    exact = math.log(right / (1 - right))
    assert exact - STEP <= eps_of_guesses(200, 200, 500, 0.0, 0.05) <= exact


def test_guesses_by_chance_say_nothing():
    assert eps_of_guesses(100, 50, 100, 1e-5, 0.05) == 0
    assert eps_of_guesses(0, 0, 10, 1e-5, 0.05) == 0


@pytest.mark.slow
@pytest.mark.parametrize(("eps", "delta"), [(0.5, 1e-3), (2.0, 0.0), (2.0, 1e-3)])
def test_the_bound_of_guesses_exceeds_the_true_eps_as_rarely_as_stated(eps, delta):
    # randomized response that reveals each coin with chance delta is (eps, delta)-DP in every coin
    rng = np.random.default_rng(3)
    right = delta + (1 - delta) / (1 + math.exp(-eps))
    hits = rng.binomial(300, right, size=4000)
    bounds = {int(v): eps_of_guesses(300, int(v), 300, delta, 0.05) for v in np.unique(hits)}
    wrong = np.mean([bounds[int(v)] > eps for v in hits])
    assert wrong <= 0.05 + 4 * math.sqrt(0.05 * 0.95 / len(hits))


@pytest.mark.parametrize(("hits", "trials"), [(0, 10), (3, 10), (10, 10), (97, 100)])
def test_rate_bounds_are_those_of_scipy(hits, trials):
    for alternative, end in (("greater", 0), ("less", 1)):
        interval = binomtest(hits, trials, alternative=alternative).proportion_ci(0.975, method="exact")
        assert rate_bounds(hits, trials, 0.025)[end] == pytest.approx(interval[end], rel=1e-6)


def test_the_chance_that_a_rate_bound_is_wrong_is_as_stated_by_enumeration():
    for rate in (0.03, 0.2, 0.5):
        masses = binom.pmf(np.arange(41), 40, rate)
        low = sum(mass for hits, mass in enumerate(masses) if rate_bounds(hits, 40, 0.05)[0] > rate)
        high = sum(mass for hits, mass in enumerate(masses) if rate_bounds(hits, 40, 0.05)[1] < rate)
        assert max(low, high) <= 0.05


def test_a_perfect_test_in_a_hundred_trials_each_gives_the_closed_form():
    # bounds of 100 of 100 and 0 of 100 at error 0.025: 0.025^(1/100) and its complement
    tpr = 0.025**0.01
    assert eps_of_rates((100, 100), (0, 100), 0.0, 0.05) == pytest.approx(math.log(tpr / (1 - tpr)), rel=1e-6)
    assert eps_of_rates((50, 100), (50, 100), 0.0, 0.05) == 0


def test_rates_that_delta_alone_explains_say_nothing():
    # no positives, and no trials without the record: TPR - delta and 1 - FPR - delta are both below 0
    assert eps_of_rates((0, 10), (0, 0), 0.02, 0.05) == 0


def test_a_rare_detection_counts_by_the_other_ratio():
    # nobody is accused without the record, and half are with it: only the false-positive rate tells
    low, high = 0.4015, 1 - 0.025 ** (1 / 1000)
    assert eps_of_rates((500, 1000), (0, 1000), 1e-5, 0.05) >= math.log((low - 1e-5) / high)


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: guess_chance(5, 6, 10, 1.0, 0.0), "`correct` <= `guesses`"),
        (lambda: guess_chance(11, 6, 10, 1.0, 0.0), "`guesses` <= `coins`"),
        (lambda: guess_chance(5, 5, 10, math.nan, 0.0), "eps"),
        (lambda: guess_chance(5, 5, 10, 1.0, 2.0), "delta"),
        (lambda: eps_of_guesses(5, 5, 10, 0.0, 0.0), "confidence"),
        (lambda: rate_bounds(3, 2, 0.05), "hits"),
        (lambda: eps_of_rates((1, 2), (1, 2), 0.0, 1.0), "confidence"),
    ],
)
def test_arguments_out_of_range_are_refused(call, word):
    with pytest.raises(UsageError, match=word):
        call()
