"""Brackets of probabilistic DP, the probability that the loss exceeds eps.

Oracles: the tail of one Gauss loss (Sommer et al. 2019, Corollary 5.1), hidden from the accountant; sums over outcomes.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.special import log_ndtr, ndtri_exp

from wpriv.accountants.pdp import account
from wpriv.core.atomic_pair import AtomicPair
from wpriv.core.guarantee import Curve
from wpriv.core.process import Process, Step
from wpriv.core.sampling.kinds import Sampling
from wpriv.mechanisms.gauss import Gauss, GaussPair
from wpriv.pld.composition import Composition
from wpriv.pld.loss_tail import LossTail


class HiddenGauss(GaussPair):
    """A Gauss pair without its closed form of composition."""

    def self_compose(self, n: int) -> GaussPair | None:  # type: ignore[override]
        return self if n == 1 else None


JOBS = [(1.5, 3), (0.3, 40), (0.05, 1000)]


@pytest.mark.slow
@pytest.mark.parametrize(("mu", "n"), JOBS)
@pytest.mark.parametrize("z", [-0.5, 0.0, 1.0, 4.0, 10.0])
def test_the_bracket_holds_the_gauss_tail(mu, n, z):
    whole = mu * math.sqrt(n)
    eps = max(0.0, whole * whole / 2 + z * whole)
    low, high = LossTail(Composition([(HiddenGauss(mu), n)]), 3e-5).probability(eps)
    truth = math.exp(log_ndtr(whole / 2 - eps / whole))
    assert low <= truth <= high
    assert high - low <= 0.05 * truth


@pytest.mark.slow
@pytest.mark.parametrize(("mu", "n"), JOBS)
@pytest.mark.parametrize("log_delta", [-0.7, -5.0, -20.0, -70.0])
def test_the_bracket_holds_the_gauss_eps(mu, n, log_delta):
    whole = mu * math.sqrt(n)
    low, high = LossTail(Composition([(HiddenGauss(mu), n)]), 3e-5).epsilon(math.exp(log_delta))
    truth = max(0.0, whole * whole / 2 - whole * ndtri_exp(log_delta))
    assert low <= truth <= high
    assert high - low <= 0.02 * max(truth, whole)


def test_the_bracket_holds_a_sum_over_all_outcomes():
    p, q, n = np.array([0.5, 0.3, 0.15, 0.05]), np.array([0.4, 0.25, 0.35, 0.0]), 5
    losses = np.log(p[:3] / q[:3])
    pair = AtomicPair(losses, np.log(p[:3]), mass_at_plus_infinity=0.05, mass_at_minus_infinity=0.0)
    tail = LossTail(Composition([(pair, n)]), 3e-5)
    sums = [(sum(losses[list(word)]), math.prod(p[list(word)])) for word in itertools.product(range(3), repeat=n)]
    revealed = 1 - 0.95**n
    for eps in (0.0, 0.2, 0.5, 0.9, 1.5):
        low, high = tail.probability(eps)
        truth = revealed + math.fsum(mass for loss, mass in sums if loss > eps)
        assert low * (1 - 1e-14) <= truth <= high * (1 + 1e-14)
    assert tail.epsilon(0.9 * revealed) == (math.inf, math.inf)


def fixed_size_curve() -> Curve:
    return account(Process((Step(Gauss(3.0), 100, Sampling("fixed", 0.1)),)))


@pytest.mark.slow
def test_an_answer_does_not_depend_on_earlier_questions():
    """A PMF composed for the far tail has no accuracy in the bulk, and must not be used there."""
    fresh, used = fixed_size_curve(), fixed_size_curve()
    used.delta_bracket(300.0)
    for delta in (0.4, 1e-3):
        a, b = fresh.epsilon_bracket(delta), used.epsilon_bracket(delta)
        assert a.lower <= b.upper
        assert b.lower <= a.upper
        assert b.upper <= 1.05 * a.upper


def test_eps_and_delta_agree():
    curve = fixed_size_curve()
    for delta in (0.1, 1e-8, 1e-30):
        bracket = curve.epsilon_bracket(delta)
        assert curve.delta_bracket(bracket.upper).lower <= delta
        assert curve.delta_bracket(bracket.lower).upper >= delta
