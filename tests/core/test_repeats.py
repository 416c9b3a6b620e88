"""Distributions of the number of runs; the oracles are sums over the probabilities of K."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import gammaln

from wpriv.core.repeats import FixedRuns, Repeats, parse
from wpriv.errors import UsageError

EXAMPLES = [
    Repeats("geometric", 20),
    Repeats("geometric", 1.5),
    Repeats("logarithmic", 12),
    Repeats("negative-binomial", 20, eta=-0.5),
    Repeats("negative-binomial", 8, eta=3),
    Repeats("poisson", 7),
    Repeats("binomial", 5, runs=20),
    Repeats("binomial", 0.5, runs=1),
]


def probabilities(repeats: Repeats, most: int = 200_000) -> np.ndarray:
    """P(K = 0), P(K = 1), ... in the definitions of Papernot, Steinke (2022), up to normalisation."""
    k = np.arange(1, most)
    if repeats.kind == "poisson":
        return np.exp(np.concatenate([[0], k * math.log(repeats.mean) - gammaln(k + 1)]) - repeats.mean)
    if repeats.kind == "binomial":
        p, n = repeats.mean / repeats.runs, repeats.runs
        k = np.arange(n + 1)
        return np.exp(gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)) * p**k * (1 - p) ** (n - k)
    eta, gamma = repeats.eta, repeats.gamma
    # (1 - gamma)^k times the product over l < k of (l + eta) / (l + 1), for k >= 1 divided by eta
    logs = k * math.log1p(-gamma) + np.concatenate([[0], np.cumsum(np.log((k[:-1] + eta) / (k[:-1] + 1)))])
    weights = np.exp(logs)
    return np.concatenate([[0.0], weights / weights.sum()])


@pytest.mark.parametrize("repeats", EXAMPLES, ids=str)
def test_generating_function_and_mean_are_those_of_the_probabilities(repeats):
    p = probabilities(repeats)
    k = np.arange(p.size)
    assert p.sum() == pytest.approx(1, rel=1e-9)
    assert p @ k == pytest.approx(repeats.mean, rel=1e-6)
    for x in (0.0, 1e-6, 0.01, 0.3, 1.0):
        powers = np.concatenate([[1.0], np.exp(k[1:] * math.log1p(-x))]) if x < 1 else (k == 0).astype(float)
        slope = p @ (k * np.concatenate([[0.0], powers[:-1]]))
        assert float(repeats.slope(x)) == pytest.approx(slope, rel=1e-6)
        assert float(repeats.reach(x)) == pytest.approx(p @ (1 - powers), rel=1e-6, abs=1e-12)


@pytest.mark.parametrize("repeats", EXAMPLES, ids=str)
def test_the_logarithmic_derivative_is_that_of_the_slope(repeats):
    x, h = np.linspace(0.01, 0.99, 50), 1e-6
    numeric = -(np.log(repeats.slope(x + h)) - np.log(repeats.slope(x - h))) / (2 * h)
    np.testing.assert_allclose(repeats.log_fall(x), numeric, rtol=1e-6, atol=1e-8)


# the least K of some has a probability that underflows
@pytest.mark.parametrize("repeats", [*EXAMPLES, Repeats("poisson", 400), Repeats("binomial", 199.9, runs=200)], ids=str)
def test_quantiles_are_those_of_the_probabilities(repeats):
    cumulative = np.cumsum(probabilities(repeats, 20_000))
    for share in (1e-6, 0.1, 0.5, 0.9, 0.999):
        exact = int(np.searchsorted(cumulative, share))
        assert abs(repeats.quantile(share) - exact) <= (abs(cumulative[exact] - share) < 1e-9)
    assert repeats.draw() >= (0 if repeats.may_be_none else 1)


@pytest.mark.parametrize("eps", [0.0, 1e-9, 0.01, 0.5, 30.0])
@pytest.mark.parametrize(
    "repeats",
    [
        *EXAMPLES,
        Repeats("poisson", 1000),
        Repeats("binomial", 1999, runs=2000),
        Repeats("negative-binomial", 1e6, eta=1000),
    ],
    ids=str,
)
def test_the_pure_bound_is_just_above_its_formula_for_any_number_of_runs(repeats, eps):
    """eps + ln f'(1 - x) - ln f'(x) at x = 1 / (1 + e^eps), from the closed forms of f' in mpmath."""
    import mpmath

    with mpmath.workdps(40):
        x = 1 / (1 + mpmath.exp(eps))
        if repeats.kind == "poisson":
            fall = mpmath.mpf(repeats.mean) * (1 - 2 * x)
        elif repeats.kind == "binomial":
            p = mpmath.mpf(repeats.mean) / repeats.runs
            fall = (repeats.runs - 1) * mpmath.log((1 - p * x) / (1 - p * (1 - x)))
        else:
            gamma = mpmath.mpf(repeats.gamma)
            fall = (repeats.eta + 1) * mpmath.log((gamma + (1 - gamma) * (1 - x)) / (gamma + (1 - gamma) * x))
        exact = eps + fall
        assert exact <= repeats.pure_eps(eps) <= exact * (1 + 1e-11)


@settings(max_examples=100, deadline=None)
@given(st.floats(-0.9, 50), st.floats(1.0001, 1e6))
def test_gamma_of_a_negative_binomial_gives_its_mean(eta, mean):
    """E[K] = eta (1 - gamma) / (gamma (1 - gamma^eta)), in mpmath."""
    import mpmath

    repeats = Repeats("negative-binomial", mean, eta=eta)
    with mpmath.workdps(40):
        gamma, shape = mpmath.mpf(repeats.gamma), mpmath.mpf(eta)
        value = (
            (1 / gamma - 1) / mpmath.log(1 / gamma)
            if abs(eta) < 1e-9
            else shape * (1 - gamma) / (gamma * (1 - gamma**shape))
        )
    assert float(value) == pytest.approx(mean, rel=1e-6)


def test_a_distribution_is_read_from_text():
    assert parse("geometric:mean=20") == Repeats("geometric", 20.0)
    assert parse("Negative_Binomial:eta=0.5,mean=20") == Repeats("negative-binomial", 20.0, eta=0.5)
    assert parse("binomial:runs=40,mean=2^3") == Repeats("binomial", 8.0, runs=40)
    for repeats in EXAMPLES:
        assert parse(str(repeats)) == repeats


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("geometri:mean=3", "did you mean 'geometric'"),
        ("geometric", "needs mean"),
        ("geometric:mean=1", "above 1"),
        ("geometric:mean=nan", "mean"),
        ("geometric:mean=3,eta=1", "no parameter 'eta'"),
        ("poisson:mean=0", "above 0"),
        ("poisson:mean=1e12", "at most 1e\\+09"),
        ("negative-binomial:eta=-1,mean=3", "eta must lie between -0.9"),
        ("binomial:runs=3,mean=4", "at most 3"),
        ("binomial:runs=0,mean=1", "runs"),
        ("", "no distribution"),
    ],
)
def test_faulty_distributions_are_refused(text, words):
    with pytest.raises(UsageError, match=words):
        parse(text)


@pytest.mark.parametrize(("text", "runs"), [("20", 20), ("fixed:20", 20), ("fixed:k=20", 20), ("fixed", None)])
def test_a_fixed_number_of_runs_is_refused_with_its_number(text, runs):
    with pytest.raises(FixedRuns, match="no bound below that of composition") as error:
        parse(text)
    assert error.value.runs == runs


def test_a_binomial_number_that_is_always_the_largest_is_a_fixed_one():
    with pytest.raises(FixedRuns):
        Repeats("binomial", 5, runs=5)
