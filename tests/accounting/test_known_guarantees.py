"""Bounds on attackers from a pair, from mu, from rho and from a process, against attacks on real mechanisms."""

from __future__ import annotations

import itertools
import math
from statistics import NormalDist

import mpmath
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import wpriv
from wpriv.accounting.accountants import rdp
from wpriv.accounting.membership_figures import Mu, Pair, Rho, curve_of, ran
from wpriv.core.membership import Membership
from wpriv.core.process import Process, Step

RATES = (1e-2, 1e-3, 1e-4, 1e-5)
EPS = st.floats(0.0, 20.0)
DELTA = st.one_of(st.just(0.0), st.floats(1e-12, 0.5))


def best_tpr(p, q, fpr):
    """The true-positive rate of the best test of P against Q on finitely many outcomes: Neyman and Pearson."""
    order = sorted(zip(p, q, strict=True), key=lambda pair: -(pair[0] / pair[1] if pair[1] else math.inf))
    tpr, left = 0.0, fpr
    for high, low in order:
        share = 1.0 if low <= left else left / low
        tpr, left = tpr + share * high, max(0.0, left - low)
    return min(1.0, tpr)


def hockey_stick(p, q, eps):
    return math.fsum(max(0.0, a - math.exp(eps) * b) for a, b in zip(p, q, strict=True))


def worst_of(eps, delta):
    """The mechanism of Kairouz, Oh and Viswanath that dominates every (eps, delta)-DP one, on four outcomes."""
    p = [delta, (1 - delta) * math.exp(eps) / (1 + math.exp(eps)), (1 - delta) / (1 + math.exp(eps)), 0.0]
    return p, p[::-1]


@pytest.mark.parametrize(("eps", "delta"), [(0.0, 0.0), (1.0, 1e-5), (0.3, 0.1), (50.0, 1e-9), (5.0, 0.99)])
@pytest.mark.parametrize("fpr", [0.0, 0.001, 0.1, 1.0])
def test_the_bounds_of_a_pair_are_attained_by_the_worst_mechanism(eps, delta, fpr):
    p, q = worst_of(eps, delta)
    bounds = Pair(eps, delta).attacks([fpr])
    assert bounds.tpr[fpr] == pytest.approx(best_tpr(p, q, fpr), abs=1e-12)
    assert bounds.advantage == pytest.approx(hockey_stick(p, q, 0.0), abs=1e-12)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.floats(0.0, 1.0), st.floats(0.0, 1.0)), min_size=2, max_size=6), st.floats(0.0, 4.0))
def test_no_test_of_random_distributions_exceeds_the_bounds_of_their_pair(masses, eps):
    p, q = (np.array(side) for side in zip(*masses, strict=True))
    assume(p.sum() > 0.01 and q.sum() > 0.01)
    p, q = p / p.sum(), q / q.sum()
    delta = max(hockey_stick(p, q, eps), hockey_stick(q, p, eps))
    assume(delta < 1)
    bounds = Pair(eps, delta).attacks([0.001, 0.05, 0.3, 0.9])
    assert hockey_stick(p, q, 0.0) <= bounds.advantage + 1e-12
    for fpr, most in bounds.tpr.items():
        assert best_tpr(p, q, fpr) <= most + 1e-12
        assert best_tpr(q, p, fpr) <= most + 1e-12


@settings(max_examples=100, deadline=None)
@given(st.integers(2, 6), st.integers(0, 2**32 - 1), st.floats(0.05, 3.0))
def test_nobody_names_one_of_m_values_more_often_than_the_rate_at_one_in_m(values, seed, eps):
    # oracle: the best guess among M equally likely values, each a row of a random channel; the neighbour without the
    # record answers by a row of its own
    rows = np.random.default_rng(seed).dirichlet(np.ones(8), size=values + 1)
    pairs = [(row, rows[0]) for row in rows[1:]] + [(rows[0], row) for row in rows[1:]]
    delta = max(hockey_stick(p, q, eps) for p, q in pairs)
    success = rows[1:].max(axis=0).sum() / values
    assert success <= Pair(eps, delta).attacks([1 / values]).tpr[1 / values] + 1e-12


@pytest.mark.parametrize("mu", [0.01, 1.0, 4.0, 12.0])
def test_the_bounds_of_mu_are_those_of_two_normal_distributions(mu):
    bounds = Mu(mu, 1e-5).attacks(RATES)
    with mpmath.workdps(40):
        exact = mpmath.erf(mpmath.mpf(mu) / mpmath.sqrt(8))
        assert bounds.advantage == pytest.approx(float(exact), rel=1e-11)
        for fpr, most in bounds.tpr.items():
            quantile = -mpmath.sqrt(2) * mpmath.erfinv(1 - 2 * mpmath.mpf(fpr))
            assert most == pytest.approx(float(mpmath.ncdf(quantile + mu)), rel=1e-11)


@pytest.mark.parametrize("rho", [1e-30, 1e-14, 1e-6, 0.05, 0.5, 2.63, 30.0])
def test_the_bounds_of_rho_lie_above_gaussian_noise_and_binary_responses_and_not_above_rdp(rho):
    bounds = Rho(rho, 1e-5).attacks(RATES)
    # Gaussian noise has mu^2 / 2-zCDP; a binary response of eps has at most eps^2 / 2-zCDP (Bun, Steinke 2016)
    mu = eps = math.sqrt(2 * rho)
    assert bounds.advantage >= max(Mu(mu, 1e-5).attacks(()).advantage, Pair(eps, 0.0).attacks(()).advantage) - 1e-12
    assert bounds.advantage <= math.sqrt(rho / 2) * (1 + 1e-11)  # Pinsker
    assert bounds.advantage <= math.sqrt(-math.expm1(-rho))  # Bretagnolle, Huber
    curve = Membership(rdp.account(Process((Step(wpriv.Zcdp(rho)),)), tol=1e-6))
    assert bounds.advantage <= curve.advantage()[1]
    for point in curve.error_rates(RATES):
        assert NormalDist().cdf(NormalDist().inv_cdf(point.fpr) + mu) <= bounds.tpr[point.fpr] * (1 + 1e-9)
        assert bounds.tpr[point.fpr] <= point.tpr_upper * (1 + 1e-3)


@pytest.mark.parametrize(("rho", "xi"), [(0.05, 0.0), (0.5, 0.0), (2.63, 0.0), (0.05, 0.3), (0.5, 0.1)])
@pytest.mark.parametrize("fpr", [0.01, 1e-4])
def test_a_test_above_the_bound_of_rho_has_a_divergence_that_zcdp_forbids(rho, xi, fpr):
    tpr = Rho(rho, 1e-5, xi).attacks([fpr]).tpr[fpr] * 1.001

    def excess(order):
        ways = ((tpr, fpr), (fpr, tpr))
        return (
            max(
                mpmath.log(p**order * q ** (1 - order) + (1 - p) ** order * (1 - q) ** (1 - order)) / (order - 1)
                for p, q in ways
            )
            - rho * order
            - xi
        )

    with mpmath.workdps(30):
        assert max(excess(1 + mpmath.mpf(2) ** k) for k in np.linspace(-8, 10, 400)) > 0


@pytest.mark.parametrize(("eps", "delta", "times"), [(0.5, 0.0, 5), (0.3, 0.01, 4), (2.0, 1e-5, 3)])
def test_several_releases_give_the_best_guess_about_independent_answers(eps, delta, times):
    p, q = worst_of(eps, delta)
    joint = [
        (math.prod(p[i] for i in word), math.prod(q[i] for i in word))
        for word in itertools.product(range(4), repeat=times)
    ]
    exact = hockey_stick(*zip(*joint, strict=True), 0.0)
    several = Pair(eps, delta).repeated(times)
    assert exact * (1 - 1e-12) <= several.attacks(()).advantage <= exact * 1.001
    total, share = several.pair()
    assert hockey_stick(*zip(*joint, strict=True), total) <= share + 1e-15


@pytest.mark.parametrize(("eps", "delta"), [(0.5, 1e-3), (1.0, 0.0), (0.0, 0.01)])
def test_the_pair_of_a_group_holds_for_the_ends_of_a_chain_of_neighbours(eps, delta):
    # a chain of distributions that are each as far from the last as (eps, delta) allows on every outcome in turn
    chain = [np.full(12, 1 / 12)]
    for step in range(4):
        p = chain[-1].copy()
        head = p[: 3 + step].sum()
        grown = min(math.exp(eps) * head + delta, 1 - math.exp(-eps) * max(0.0, 1 - head - delta))
        p[: 3 + step] *= grown / head
        p[3 + step :] *= (1 - grown) / (1 - head)
        for a, b in ((p, chain[-1]), (chain[-1], p)):
            assert hockey_stick(a, b, eps) <= delta + 1e-12
        chain.append(p)
    for people in (1, 2, 4):
        total, share = Pair(eps, delta).grouped(people).pair()
        assert (
            max(hockey_stick(chain[people], chain[0], total), hockey_stick(chain[0], chain[people], total))
            <= share + 1e-12
        )
    assert Pair(eps, delta).grouped(1) == Pair(eps, delta)


def test_mu_and_rho_of_groups_and_releases_follow_the_closed_formulas():
    assert Mu(0.5, 1e-5).grouped(3).mu == 1.5
    assert Mu(0.5, 1e-5).repeated(4).mu == pytest.approx(1.0, rel=1e-14)
    assert Rho(0.5, 1e-5).grouped(3).rho == 4.5
    # 3 (1 + 1/2 + 1/3) xi: Bun, Steinke (2016), Proposition 27
    assert Rho(0.5, 1e-5, 0.1).grouped(3).xi == pytest.approx(0.55, rel=1e-12)
    assert Rho(0.5, 1e-5, 0.1).repeated(4).xi == 0.4
    assert Rho(0.5, 1e-5).repeated(4).rho == 2.0


@settings(max_examples=100, deadline=None)
@given(EPS, EPS, DELTA, DELTA, st.integers(1, 9), st.integers(1, 9))
def test_a_larger_guarantee_or_group_never_allows_less(eps, other, delta, share, people, more):
    low, high = Pair(min(eps, other), min(delta, share)), Pair(max(eps, other), max(delta, share))
    few, many = sorted((people, more))
    for small, large in ((low, high), (low.grouped(few), low.grouped(many))):
        a, b = small.attacks(RATES), large.attacks(RATES)
        assert a.advantage <= b.advantage
        assert all(a.tpr[fpr] <= b.tpr[fpr] * (1 + 1e-12) for fpr in RATES)
        assert all(fpr <= a.tpr[fpr] * (1 + 1e-12) for fpr in RATES)


@settings(max_examples=30, deadline=None)
@given(st.floats(1e-6, 30.0), st.floats(1e-6, 30.0))
def test_a_larger_mu_or_rho_never_allows_less(a, b):
    low, high = sorted((a, b))
    for kind in (Mu, Rho):
        small, large = kind(low, 1e-5).attacks(RATES), kind(high, 1e-5).attacks(RATES)
        assert small.advantage <= large.advantage * (1 + 1e-12)
        assert all(small.tpr[fpr] <= large.tpr[fpr] * (1 + 1e-12) for fpr in RATES)


def test_a_process_has_the_bounds_of_its_curve_and_of_its_largest_loss():
    gauss = ran(Process((Step(wpriv.Gauss(sigma=4.0), 16),)), 1e-5)
    bounds, exact = gauss.attacks(RATES), Mu(1.0, 1e-5)
    assert bounds.advantage == pytest.approx(exact.attacks(()).advantage, rel=1e-3)
    assert gauss.pair()[0] == pytest.approx(exact.pair()[0], rel=1e-9)
    # ten times Laplace noise of b = 20 is pure 1/2-DP, whatever of the curve was computed
    laplace = ran(Process((Step(wpriv.Laplace(scale=20.0), 10),)), 1e-5).attacks(RATES)
    pure = Pair(0.5, 0.0).attacks(RATES)
    assert all(laplace.tpr[fpr] <= pure.tpr[fpr] for fpr in RATES)
    assert laplace.advantage <= pure.advantage


def test_groups_of_a_process_use_its_mechanisms_or_else_its_pair():
    gauss = ran(Process((Step(wpriv.Gauss(sigma=4.0), 16),)), 1e-5)
    assert gauss.grouped(2).attacks(()).advantage == pytest.approx(Mu(2.0, 1e-5).attacks(()).advantage, rel=1e-3)
    known = ran(Process((Step(wpriv.Dp(1.0, 1e-6)),)), 1e-6)
    assert known.grouped(2) == Pair(*known.pair()).grouped(2)
    assert curve_of(known.process).accountant == "pld"


@pytest.mark.parametrize("eps", [1e-300, 1e-16, 1.2e-15, 1e-8, 1e-7, 1e-3, 1.0, 30.0, 1e4])
def test_the_advantage_of_pure_dp_is_never_below_its_closed_form_however_small_eps_is(eps):
    with mpmath.workdps(60):
        exact = mpmath.tanh(mpmath.mpf(eps) / 2)
        assert exact <= Pair(eps, 0.0).attacks(()).advantage <= exact * (1 + mpmath.mpf(1e-11))


def test_a_huge_rho_allows_every_test_without_a_warning():
    assert Rho(1e300, 1e-5).attacks((0.01,)).advantage == 1
