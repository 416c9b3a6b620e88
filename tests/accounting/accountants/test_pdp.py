"""Brackets of probabilistic DP, the probability that the loss exceeds eps.

Oracles: the tail of one Gauss loss (Sommer et al. 2019, Corollary 5.1), hidden from the accountant; sums over outcomes;
chances under other neighbours and other procedures, from the normal distribution function.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import log_ndtr, ndtr, ndtri_exp

from wpriv.accounting.accountants.pdp import account
from wpriv.accounting.basis import explain
from wpriv.accounting.mechanisms.dp import Dp
from wpriv.accounting.mechanisms.gauss import Gauss, GaussPair
from wpriv.accounting.mechanisms.gdp import Gdp
from wpriv.accounting.mechanisms.randomized_response import RandomizedResponse
from wpriv.accounting.pld.composition import Composition
from wpriv.accounting.pld.sandwich import LossTail
from wpriv.core.atomic_pair import AtomicPair
from wpriv.core.guarantee import Curve
from wpriv.core.kinds import Sampling
from wpriv.core.mechanism import Mechanism
from wpriv.core.process import Process, Step


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


def test_neighbours_that_differ_less_may_exceed_eps_more_often_and_a_warning_says_so() -> None:
    """Oracle: P(L > eps) of a subsampled Gauss whose neighbours differ by 0.38 instead of 1, in closed form."""
    eps, rate, moved = 0.02, 0.01, 0.38 / 0.25
    row = account(Process((Step(Gauss(0.25), 1, Sampling("poisson", rate)),))).at(eps=eps)
    x = moved / 2 + math.log1p(math.expm1(eps) / rate) / moved
    nearer = (1 - rate) * ndtr(-x) + rate * ndtr(moved - x)
    assert nearer > 3 * row.delta.safe
    assert "differ as much as they may" in row.warnings[0]


@pytest.mark.parametrize("mechanism", [Dp(1.0, 1e-5), Gdp(1.0), RandomizedResponse(1.0)])
def test_what_other_releases_of_a_guarantee_may_exceed_has_a_warning(mechanism: Mechanism) -> None:
    assert account(Process((Step(mechanism, 2),))).at(eps=1.0).warnings


def test_gauss_without_sampling_is_about_all_neighbours_of_fixed_queries_only() -> None:
    """Oracle: two Gauss releases, the second of which says nothing where the first loss exceeds eps = 1."""
    row = account(Process((Step(Gauss(1.0), 2),))).at(eps=1.0)
    continued = quad(lambda loss: math.exp(-((loss - 0.5) ** 2) / 2) * ndtr(loss - 0.5), -12, 1)[0]
    assert ndtr(-0.5) + continued / math.sqrt(2 * math.pi) > 1.05 * row.delta.safe
    assert row.warnings == ()
    (assumption,) = [line for line in explain(row)["assumptions"] if "earlier outputs" in line]
    assert assumption.startswith("every query,")
