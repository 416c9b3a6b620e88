"""The projection mechanism: its bracket of the projected length, its moments, and its budgets."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import ndtr

from wpriv.accounting.accountants import pld, rdp, renyi
from wpriv.accounting.mechanisms.gauss import GaussPair
from wpriv.core.kinds import Sampling
from wpriv.core.process import Process, Step
from wpriv.errors import Unsupported, UsageError
from wpriv.numerics import counted_work
from wpriv.papers import projected_length
from wpriv.papers.mechanisms.projection import Projection, ProjectionPair
from wpriv.papers.projected_length import length_bracket, log_moment


def inversion(k: int, d: int, sigma: float, n: int, eps: float) -> float:
    """delta by the contour integral of the moment generating function 1F1(1/2; d/2; s(s+1)/(2 sigma^2))^(k n)."""
    with mp.workdps(20):
        c = mp.mpf(2)

        def part(u: mp.mpf) -> mp.mpf:
            s = c + 1j * u
            return mp.re(
                mp.hyp1f1(0.5, mp.mpf(d) / 2, s * (s + 1) / (2 * mp.mpf(sigma) ** 2)) ** (k * n)
                * mp.exp(-s * eps)
                / (s * (1 + s))
            )

        return float(mp.quad(part, [0, 1, 2, 4, 8, 16, 40, 100]) / mp.pi)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("k", "d", "sigma", "n", "eps"), [(200, 784, 1.0, 1, 1.0), (30, 50, 2.0, 3, 0.5), (40, 20, 2.5, 20, 2.0)]
)
def test_the_bracket_holds_the_contour_integral_of_the_moments(k, d, sigma, n, eps):
    bracket = pld.account(Process((Step(Projection(d=d, k=k, sigma=sigma), n),))).at(eps=eps).delta
    truth = inversion(k, d, sigma, n, eps)
    assert bracket.lower <= truth <= bracket.upper
    assert bracket.upper - bracket.lower <= 1.5e-3 * truth


@pytest.mark.parametrize(
    ("k", "d", "eps", "delta"),
    [(200, 784, 1.0, 0.007436255344475325), (1, 5, 0.5, 0.04251280229247906)],
)
def test_the_bracket_holds_the_golden_deltas(k, d, eps, delta):
    """Golden 001-delta-0 and -1: contour of 1F1^k, and Beta quadrature; sigma = 1, one release."""
    bracket = pld.account(Process((Step(Projection(d=d, k=k, sigma=1.0)),))).at(eps=eps).delta
    assert bracket.lower <= delta <= bracket.upper


@pytest.mark.parametrize("d", [2, 3, 7])
@pytest.mark.parametrize("sigma", [0.05, 0.8, 20.0])
def test_one_direction_is_the_quadrature_over_its_beta_distribution(d, sigma):
    """Oracle: the Gaussian profile integrated over u = sin(angle), whose density is cos(angle)^(d-2)."""
    norm = quad(lambda a: math.cos(a) ** (d - 2), 0, math.pi / 2)[0]
    for eps in (0.01 / sigma, 0.5 / sigma):

        def profile(a: float, eps: float = eps) -> float:
            mu = math.sin(a) / sigma
            return math.exp(float(GaussPair(mu).log_delta(eps))) * math.cos(a) ** (d - 2)

        truth = quad(profile, 1e-12, math.pi / 2, limit=400, epsabs=1e-14)[0] / norm
        bracket = pld.account(Process((Step(Projection(d=d, k=1, sigma=sigma)),))).at(eps=eps).delta
        assert bracket.lower * (1 - 1e-9) - 1e-13 <= truth <= bracket.upper * (1 + 1e-9) + 1e-13


@pytest.mark.slow
def test_sampled_steps_agree_with_draws_of_the_directions():
    """400,000 draws of U: the profile of one fixed-size step is within 5 standard errors of the bracket."""
    k, d, sigma, rate = 20, 30, 0.5, 0.1
    rng = np.random.default_rng(7)
    mu = np.sqrt(sum(rng.beta(0.5, (d - 1) / 2, 400_000) for _ in range(k))) / sigma
    for eps in (0.05, 0.3):
        inner = math.log1p(math.expm1(eps) / rate)
        each = rate * (ndtr(mu / 2 - inner / mu) - math.exp(inner) * ndtr(-mu / 2 - inner / mu))
        bracket = (
            pld.account(Process((Step(Projection(d=d, k=k, sigma=sigma), 1, Sampling("fixed", rate)),)))
            .at(eps=eps)
            .delta
        )
        error = 5 * each.std() / math.sqrt(each.size)
        assert bracket.lower - error <= each.mean() <= bracket.upper + error


@pytest.mark.parametrize(
    ("k", "d", "delta", "sigma"),
    [
        (200, 784, 1e-5, 1.9137),
        (1000, 784, 1e-5, 4.2268),
        (2000, 8192, 1e-6, 2.0918),
        (100, 50, 1e-3, 3.6880),
        (1000, 100, 1e-6, 13.4138),
    ],
)
def test_calibrated_noise_of_one_release_agrees_with_a_fine_grid(k, d, delta, sigma):
    """Oracle: the law of H on a grid of 1e-5 by FFT, split with the mean kept; eps = 1 at the noise to five digits."""
    found = pld.account(Process((Step(Projection(d=d, k=k, sigma=sigma)),))).at(delta=delta).epsilon
    assert found.lower <= 1 + 5e-5
    assert found.upper >= 1 - 5e-5
    assert found.upper - found.lower <= 1e-3


def test_sixty_thousand_sampled_steps_are_bracketed_to_a_thousandth():
    """The certified eps lies below the moments of the exact divergences, on the mechanism's own mixture."""
    process = Process((Step(Projection(d=784, k=1000, sigma=0.84), 60_000, Sampling("fixed", 1 / 600)),))
    found = pld.account(process).at(delta=1e-5).epsilon
    assert found.upper - found.lower <= 1.2e-3 * found.upper
    assert found.lower < rdp.account(process).at(delta=1e-5).epsilon.safe


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 300), st.integers(2, 2000), st.floats(0.05, 50.0))
def test_length_bracket_brackets_mean_and_profile(k, d, sigma):
    """E[H] of the dominating distribution is above k/d, that of the dominated one below; likewise the profiles."""
    low, high = length_bracket(k, d, sigma, 1e-3)
    for law in (low, high):
        assert law.weight.sum() == pytest.approx(1, abs=1e-12)
        assert np.all(np.diff(law.u) > 0)
        assert law.u[0] > 0
    means = [float(law.weight @ law.u**2) * d / k for law in (low, high)]
    assert means[0] <= 1 + 1e-9 <= means[1] + 2e-9
    if sigma * math.sqrt(d / k) > 1:  # where total variation saturates, equal steps of it are long ones of u
        assert means[1] - means[0] <= 2.5e-3
    ends = ProjectionPair(k, d, sigma).sandwich(3e-3)
    eps = np.array([0.0, 0.1, 1.0, 5.0]) * math.sqrt(k / d) / sigma
    assert np.all(ends[0].log_delta(eps) <= ends[1].log_delta(eps) + 1e-12)


@pytest.mark.parametrize("d", [2, 3, 50, 784, 8192])
@pytest.mark.parametrize("s", [1e-8, 0.1, 5.0, 19.9, 20.1, 40.0, 300.0, 2500.0])
def test_the_moment_of_one_projection_is_the_confluent_function(d, s):
    """Oracle: 1F1(1/2; d/2; s) in mpmath."""
    with mp.workdps(40):
        truth = float(mp.log(mp.hyp1f1(mp.mpf(1) / 2, mp.mpf(d) / 2, mp.mpf(s))))
    assert float(log_moment(d, np.array([s]))[0]) == pytest.approx(truth, rel=1e-12)


@pytest.mark.parametrize(
    ("k", "d", "sigma", "order", "value"),
    [
        (200, 784, 4.74, 8.0, 0.045488944532703391215901697974738),
        (2000, 8192, 0.37, 5.0, 4.4985933642138251728454310292837),
        (1, 2, 1.0, 64.0, 31.93052894939669391135606685725),
    ],
)
def test_the_divergence_is_the_golden_one(k, d, sigma, order, value):
    """Golden 001-rdp-0, -1 and -3 (mpmath)."""
    found = renyi.account(Process((Step(Projection(d=d, k=k, sigma=sigma)),)), order=order)
    assert found.claim == "exact"
    assert found.at(delta=0.1).epsilon.safe == pytest.approx(value, rel=1e-12)


def test_many_directions_in_a_large_space_are_one_gauss():
    """At k = 10,000 and d = 100,000 H is near its mean k/d, and eps near that of a Gauss of mu^2 = k/d."""
    found = pld.account(Process((Step(Projection(d=100_000, k=10_000, sigma=1.0)),))).at(delta=1e-5).epsilon
    exact = pld.account(Process((Step(Projection(d=100_000, k=10_000, sigma=1.0)),)))
    assert found.safe == pytest.approx(1.17, abs=0.2)
    assert exact.at(eps=found.upper).delta.lower <= 1e-5


def test_poisson_sampling_and_small_spaces_are_refused_with_the_reason():
    with pytest.raises(Unsupported, match="sampling='fixed'"):
        Process((Step(Projection(d=5, k=2, sigma=1.0), 1, Sampling("poisson", 0.1)),))
    with pytest.raises(UsageError, match="d must"):
        Projection(d=1, k=2, sigma=1.0)
    with pytest.raises(Unsupported, match="replace-one"):
        Process((Step(Projection(d=5, k=2, sigma=1.0)),), "add-remove")


def test_the_tail_of_the_length_is_the_golden_one():
    """Golden 001-wtail-0 (contour inversion), 001-wk1-0 (incomplete beta), and the quantile of dpswd error 1."""
    assert math.exp(projected_length.log_tail(200, 784, 0.37)) == pytest.approx(3.09347875067585179e-5, rel=1e-8)
    assert math.exp(projected_length.log_tail(1, 50, 0.3)) == pytest.approx(3.1835719580566748619e-5, rel=1e-12)
    assert projected_length.quantile(200, 784, math.log(1e5)) == pytest.approx(0.37848, abs=1e-5)


def test_the_sums_of_projected_lengths_are_counted():
    start = counted_work.total()
    length_bracket(7, 31, 1.25, 1e-4)
    assert counted_work.total() - start > 1e6
    with counted_work.stop_at(counted_work.total()), pytest.raises(Unsupported):
        length_bracket(7, 31, 1.26, 1e-4)
