"""Bounds of eps from right guesses, against closed forms and enumerated and simulated mechanisms."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wpriv.training.audit.audited_training import eps_of_guesses
from wpriv.training.audit.claimed_curve import of_eps
from wpriv.training.audit.score_tests import guess_chance


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
        assert chance <= guess_chance(of_eps(eps, delta), float(coins), coins, correct) * (1 + 1e-9)


sizes = st.integers(1, 60).flatmap(lambda r: st.tuples(st.just(r), st.integers(0, r), st.integers(r, 200)))


@given(sizes, st.floats(0, 12), st.floats(0, 0.5))
def test_the_chance_is_a_probability_that_falls_with_the_right_guesses_and_grows_with_delta_and_eps(size, eps, delta):
    guesses, correct, coins = size

    def chance(eps, delta, correct=correct):
        return guess_chance(of_eps(eps, delta), float(coins), guesses, correct)

    near = 1.02  # a chance is rounded up by at most 1%
    assert 0 <= chance(eps, delta) <= 1
    assert chance(eps, delta) <= chance(eps, min(0.9, 2 * delta)) * near
    assert chance(eps, delta) <= chance(eps + 0.5, delta) * near
    if correct:
        assert chance(eps, delta) <= chance(eps, delta, correct - 1) * near


def test_all_right_guesses_without_delta_give_the_closed_form():
    # q^r = error at q = e^eps / (1 + e^eps)
    right = 0.05 ** (1 / 200)
    exact = math.log(right / (1 - right))
    assert exact - 0.02 <= eps_of_guesses(200, 200, 500, 0.0, 0.05) <= exact


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
