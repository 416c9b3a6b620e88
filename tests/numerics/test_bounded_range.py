"""The optimal adaptive composition of bounded range, against strategies and formulas that do not use a lattice."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

import wpriv
from wpriv import Exponential, Gauss, Process, Step
from wpriv.accounting.mechanisms.exponential import profile


def one(r: float, eps: float) -> float:
    """delta of one release: (e^(r/2) - e^(eps/2))^2 / (e^r - 1), and 1 - e^eps + e^eps delta(-eps) below 0."""
    if eps < 0:
        return 1 - math.exp(eps) + math.exp(eps) * one(r, -eps)
    return (math.exp(r / 2) - math.exp(min(eps, r) / 2)) ** 2 / math.expm1(r)


def two(r: float, eps: float) -> float:
    """delta of two adaptively chosen releases: the first is searched over all t, the second has its closed form."""

    def value(t: float) -> float:
        p = (math.exp(r) - math.exp(t)) / math.expm1(r)
        return -(p * one(r, eps - t) + (1 - p) * one(r, eps - t + r))

    grid = np.linspace(0, r, 2001)
    t = grid[int(np.argmin([value(x) for x in grid]))]
    found = minimize_scalar(value, bounds=(max(0, t - r / 1000), min(r, t + r / 1000)), options={"xatol": 1e-12})
    return max(-found.fun, -value(t))


@pytest.mark.parametrize("r", [0.01, 0.5, 2.0])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 1.4, 1.9])
def test_two_releases_are_those_of_a_direct_search(r, share):
    low, high = profile(r, 2, 2 * r).delta(share * r)
    exact = two(r, share * r)
    assert low <= exact * (1 + 1e-9) + 1e-15
    assert exact <= high * (1 + 1e-9) + 1e-15
    assert high - low <= 0.02 * high + 1e-9


def test_one_release_has_its_closed_form():
    known = profile(1.5, 1, 1.5)
    for eps in known.eps[::17]:
        low, high = known.delta(float(eps))
        assert low <= one(1.5, eps) * (1 + 1e-9) + 1e-12
        assert high == pytest.approx(one(1.5, eps), rel=1e-3, abs=1e-5)
        assert high >= one(1.5, eps) * (1 - 1e-9)


@pytest.mark.parametrize("r", [1e-9, 1e-5, 0.3])
def test_one_release_of_any_range_lies_between_the_ends_to_the_last_digit(r):
    # oracle: the closed form in 40 digits
    known = profile(r, 1, r)
    with mpmath.workdps(40):
        for eps in np.concatenate([known.eps[:-1], known.eps[:-1] * 0.3 + known.eps[1:] * 0.7]).tolist():
            exact = (mpmath.exp(mpmath.mpf(r) / 2) - mpmath.exp(mpmath.mpf(eps) / 2)) ** 2 / mpmath.expm1(r)
            low, high = known.delta(eps)
            assert low <= exact <= high
            if exact > 1e-3 * r:
                eps_low, eps_high = known.epsilon(float(exact))
                assert eps_low <= eps * (1 + 1e-13) + 1e-15 * r
                assert eps <= eps_high * (1 + 1e-13) + 1e-15 * r


def strategy(r: float, n: int, eps: float, choose, draws: int, generator) -> tuple[float, float]:
    """Monte Carlo of delta for a strategy that chooses t from the loss so far; the mean and its standard error."""
    loss = np.zeros(draws)
    for k in range(n):
        t = np.clip(choose(eps - loss, n - k), 1e-9, r - 1e-9)
        p = (math.exp(r) - np.exp(t)) / math.expm1(r)
        loss += np.where(generator.random(draws) < p, t, t - r)
    gain = np.maximum(-np.expm1(eps - loss), 0)
    return float(gain.mean()), float(gain.std() / math.sqrt(draws))


@pytest.mark.slow
@pytest.mark.parametrize(("r", "n", "eps"), [(0.5, 10, 1.0), (0.1, 100, 0.5), (1.0, 20, 4.0)])
def test_no_strategy_exceeds_the_upper_end(r, n, eps):
    generator = np.random.default_rng(n)
    low, high = profile(r, n, n * r).delta(eps)
    best = 0.0
    for choose in (
        lambda rest, left: np.full_like(rest, r / 2),
        lambda rest, left: (rest / left + r) / 2,
        lambda rest, left: np.where(rest > 0, 0.6 * r, 0.4 * r),
    ):
        mean, error = strategy(r, n, eps, choose, 100_000, generator)
        assert mean - 5 * error <= high
        best = max(best, mean + 5 * error)
    assert best >= 0.9 * low


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.floats(-13, 3), st.integers(1, 60), st.floats(0, 1))
def test_bounds_are_ordered_and_between_those_of_single_pairs(log_r, n, share):
    """At least randomized response at r / 2 throughout, at most r-DP releases, which bounded range implies."""
    r = math.exp(log_r)
    known = profile(r, n, n * r)
    eps = share * n * r
    if known is None:
        return
    low, high = known.delta(eps)
    middle = wpriv.budget("dp", eps0=r / 2, n=n, eps=eps).delta.safe
    widest = wpriv.budget("dp", eps0=r, n=n, eps=eps).delta.safe
    assert 0 <= low <= high
    assert high >= middle * (1 - 1e-9) - 1e-15
    assert low <= widest * (1 + 1e-9) + 1e-15
    assert np.all(np.diff(known.upper) <= 0)
    assert np.all(np.diff(known.lower) <= 0)


def test_a_profile_too_long_is_left_out():
    assert profile(1e-3, 10_000_000, 10.0) is None


@pytest.mark.slow
def test_several_selections_have_a_narrow_bracket():
    row = wpriv.budget("exponential", eps0=0.1, n=100, delta=1e-6)
    assert row.claim == "certified"
    assert row.epsilon.safe - row.epsilon.lower < 2e-3 * row.epsilon.safe
    assert "optimal adaptive composition" in row.source
    again = wpriv.budget("exponential", eps0=0.1, n=100, eps=row.epsilon.safe)
    assert again.delta.lower <= 1e-6 * (1 + 1e-6)


@pytest.mark.parametrize(("r", "mu"), [(0.5, 0.3), (2.0, 1.0), (0.1, 0.02)])
@pytest.mark.parametrize("share", [0.2, 0.6])
def test_gaussian_releases_first_are_the_worst_order(r, mu, share):
    """One selection beside one Gaussian release, in both orders, each with the best choice after the first."""
    gauss = Gauss(1 / mu)
    eps = share * (r + mu)
    z = np.linspace(-12, 12, 6001)
    weight = np.exp(-z * z / 2) / math.sqrt(2 * math.pi) * (z[1] - z[0])
    first = float(weight @ [one(r, eps - mu * mu / 2 - mu * each) for each in z])
    curve = wpriv.curve(Process((Step(gauss),)))

    def rest(y: float) -> float:
        known = curve.at(eps=abs(y)).delta.safe
        return known if y >= 0 else 1 - math.exp(y) + math.exp(y) * known

    p = [(t, (math.exp(r) - math.exp(t)) / math.expm1(r)) for t in np.linspace(0, r, 101)]
    last = max(chance * rest(eps - t) + (1 - chance) * rest(eps - t + r) for t, chance in p)
    assert last <= first * (1 + 1e-6)
    for steps in ((Step(gauss), Step(Exponential(r))), (Step(Exponential(r)), Step(gauss))):
        bracket = wpriv.budget(Process(steps), eps=eps).delta
        assert bracket.lower <= last * (1 + 1e-6)
        assert first * (1 - 1e-9) <= bracket.safe <= first * (1 + 2e-3)


def test_selections_beside_other_steps_keep_their_bracket():
    process = Process((Step(Exponential(0.1), 10), Step(Gauss(5.0))))
    bracket = wpriv.budget(process, delta=1e-6).epsilon
    assert 0 < bracket.lower < bracket.safe
