"""The formulas of Wasserstein DP as printed hit their golden values, and fail where an exact value refutes them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import logsumexp

from tests.points import POINTS
from wpriv.errors import UsageError
from wpriv.numerics.wasserstein_1d import samples, subsampled_gauss
from wpriv.papers.accountants import wdp

FORMULAS = {
    "000-prop7-": lambda i: wdp.published_laplace(i["Delta"], i["lam"], i["mu"]),
    "000-prop8-": lambda i: wdp.published_gauss(i["Delta"], i["sigma"], i["mu"]),
    "000-prop9-0": lambda i: wdp.published_from_dp(i["eps"], i["Delta"], i["mu"]),
    "000-prop9-1": lambda i: wdp.published_from_dp(i["eps"], i["Delta"], i["mu"]),
    "000-prop10-": lambda i: wdp.published_from_rdp(i["eps"], i["Delta"], i["mu"]),
    "000-prop11-": lambda i: wdp.published_to_rdp(i["eps"], i["L"], i["mu"], i["alpha"]),
    "000-thm2-": lambda i: wdp.published_step([i["d"]], i["q"], i["sigma"], i["mu"], int(i["n"])),
    "000-cor1-": lambda i: wdp.published_epsilon(
        i["T"] * wdp.published_step([i["d"]], i["q"], i["sigma"], i["mu"], int(i["n"])),
        i["beta"],
        math.log(i["delta"]),
    ),
}
GOLDEN = [
    (p, next(f for key, f in FORMULAS.items() if p["id"].startswith(key)))
    for p in POINTS
    if p["id"].startswith(tuple(FORMULAS))
]


def test_the_golden_values_are_seen():
    assert len(GOLDEN) >= 16


@pytest.mark.parametrize(("point", "formula"), GOLDEN, ids=[p["id"] for p, _ in GOLDEN])
def test_the_golden_values_of_the_formulas(point, formula):
    inputs = {name: float(value) for name, value in point["inputs"].items()}
    assert formula(inputs) == pytest.approx(float(point["value"]), rel=1e-11)


@given(noise=st.floats(0.2, 100), mu=st.floats(1, 50))
def test_no_published_budget_of_noise_above_the_shift_reaches_the_exact_one(noise, mu):
    """Exact: the shift itself. Neither published budget has its unit, hence sensitivity 1 and noise of at least 1."""
    assert wdp.published_gauss(1.0, max(noise, 1.0), mu) < 1.0
    assert wdp.published_laplace(1.0, max(noise, 1.0), mu) < 1.0


def test_randomized_response_refutes_the_published_conversion():
    """On outputs {0, 50}, eps-DP: W_mu by its definition, from 100,000 equal atoms a side."""
    eps, diameter, mu = 0.5, 50.0, 2
    truth = math.exp(eps) / (1 + math.exp(eps))
    x = np.where(np.arange(100_000) < truth * 100_000, diameter, 0.0)
    y = diameter - x
    exact = samples(x, y, mu)
    assert wdp.published_from_dp(eps, 1.0, mu) < exact / 10  # sensitivity 1 is what a count of answers has


def test_lipschitz_log_densities_can_have_a_loss_beyond_every_formula_of_w():
    """p = Lap(0,1), q = (1-h) p + h Lap(T,1), h = e^(-T/2): W_1 = h T, loss ln(1 + h (e^T - 1)) on the far side."""
    t = 60.0
    h = math.exp(-t / 2)
    loss = math.log1p(h * math.expm1(t))
    assert wdp.published_to_rdp(h * t, 1.0, 1) < 1e-5 < loss
    assert loss == pytest.approx(t / 2, rel=1e-9)


def test_code_step_sums_over_pairs_and_published_step_over_coordinates():
    d, q, s, mu = np.array([1.0, 2.0, 5.0]), 0.1, 0.7, 4
    single = np.array([wdp.code_step([x], q, s, mu) for x in d])
    assert wdp.code_step(d, q, s, mu) == pytest.approx(math.exp(logsumexp(mu * np.log(single)) / mu), rel=1e-12)
    assert wdp.published_step(d, q, s, mu, 7) == pytest.approx(7 ** (1 / mu) * single[0], rel=1e-12)


def test_published_step_grows_with_the_noise_and_is_positive_without_data():
    losses = [wdp.published_step([1.0], 0.01, s, 2) for s in (0.01, 0.1, 1.0, 10.0)]
    assert losses == sorted(losses)
    assert wdp.published_step([1.0], 0.0, 1.0, 2) == pytest.approx(math.sqrt(2), rel=1e-12)
    assert losses[0] == pytest.approx(0.01726, rel=1e-3)
    assert losses[0] < subsampled_gauss(0.01, 1.0, 0.01, 2) == pytest.approx(0.09734, rel=1e-4)


def test_code_step_of_pure_noise_follows_from_normal_moments():
    """28 pairs at mu = 16: (28 * 15!!)^(1/16) sqrt(2-2q+2q^2) s, about 4.28 s at batches of 1024 out of 60000."""
    double = math.prod(range(1, 16, 2))
    assert wdp.code_step(np.zeros(28), 1e-9, 1.0, 16) == pytest.approx(
        (28 * double) ** (1 / 16) * math.sqrt(2), rel=1e-8
    )
    assert wdp.code_step(np.zeros(28), 1024 / 60000, 1.0, 16) == pytest.approx(4.28, rel=5e-4)


def test_the_published_tail_bound_fails():
    """The sum of ten fair coins of loss 0 or 1 is ten with chance 2^-10 (exact, binomial)."""
    assert wdp.published_epsilon(5.0, 10.0, math.log(2**-10)) < 6.0


@pytest.mark.parametrize(
    "call",
    [
        lambda: wdp.published_gauss(1, 0, 2),
        lambda: wdp.published_gauss(1, 1, 0.5),
        lambda: wdp.published_to_rdp(1, 1, 2, alpha=1),
        lambda: wdp.published_epsilon(1, 0, -1),
        lambda: wdp.code_step([1.0], 1.5, 1, 2),
    ],
)
def test_arguments_out_of_range_are_refused(call):
    with pytest.raises(UsageError):
        call()
