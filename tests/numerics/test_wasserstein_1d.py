"""W_mu on the line against POT's solver on samples, closed forms, mpmath quadrature and golden values."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import ot
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.points import GOLDEN
from wpriv.errors import UsageError
from wpriv.numerics import wasserstein_1d

DISTANCES = {"gauss": wasserstein_1d.subsampled_gauss, "laplace": wasserstein_1d.subsampled_laplace}


def test_the_golden_distance_of_a_subsampled_record():
    point = GOLDEN["000-wmix-1"]
    q, d, sigma, mu = (float(point["inputs"][k]) for k in ("q", "d", "sigma", "mu"))
    assert wasserstein_1d.subsampled_gauss(q, d, sigma, mu) == pytest.approx(float(point["value"]), rel=1e-12)


def test_the_golden_distance_of_a_shift_is_its_length():
    assert wasserstein_1d.shift(float(GOLDEN["000-W-shift-0"]["inputs"]["Delta"])) == float(
        GOLDEN["000-W-shift-0"]["value"]
    )
    assert wasserstein_1d.shift([3.0, 4.0]) == 5.0


@pytest.mark.parametrize(("m", "s"), [(0.0, 2.0), (3.0, 2.0), (1.0, 0.25), (0.5, 1.0)])
def test_w2_between_two_normal_distributions_has_its_closed_form(m, s):
    assert wasserstein_1d.gauss_mixture([1.0], [m], [s], 2) == pytest.approx(
        math.hypot(m, s - 1), rel=1e-12
    )  # Givens and Shortt 1984


@pytest.mark.parametrize("order", [1, 2, 3.5])
@pytest.mark.parametrize(("n", "m"), [(40, 40), (30, 7), (1, 5)])
def test_distances_of_samples_are_those_of_pots_solver(order, n, m):
    rng = np.random.default_rng(n + m)
    x, y = rng.normal(size=n), rng.exponential(2.0, size=m)
    power = ot.wasserstein_1d(x, y, p=order)  # the mu-th power
    assert wasserstein_1d.samples(x, y, order) == pytest.approx(float(power) ** (1 / order), rel=1e-12)


@pytest.mark.parametrize("order", [1.5, 2, 4])
def test_the_exact_distance_is_that_of_pots_solver_on_large_samples(order):
    """Stratified samples: quantiles of both distributions, so the only error is the discretisation, below 1e-3."""
    q, d, u = 0.3, 2.0, (np.arange(20000) + 0.5) / 20000
    grid = np.linspace(-7, 10, 400001)
    cdf = (1 - q) * np.vectorize(math.erf)(grid[::100] / math.sqrt(2)) / 2 + q * np.vectorize(math.erf)(
        (grid[::100] - d) / math.sqrt(2)
    ) / 2
    x = np.interp(u, cdf + 0.5, grid[::100])
    base = np.vectorize(math.erf)(grid[::100] / math.sqrt(2)) / 2 + 0.5
    y = np.interp(u, base, grid[::100])
    power = float(ot.wasserstein_1d(x, y, p=order))
    assert wasserstein_1d.subsampled_gauss(q, d, 1.0, order) == pytest.approx(power ** (1 / order), rel=2e-3)


def quadrature(kind: str, q: float, d: float, s: float, mu: float) -> float:
    """The integral of |y - x(y)|^mu under the mixture, in mpmath, x through the inverse of the base distribution
    function.
    """
    with mpmath.workdps(30):
        q, d, s, mu = map(mpmath.mpf, (q, d, s, mu))
        if kind == "laplace":

            def sf(y):
                return mpmath.exp(-y / s) / 2 if y > 0 else 1 - mpmath.exp(y / s) / 2

            def pdf(y):
                return mpmath.exp(-abs(y) / s) / (2 * s)

            def inverse(u):
                return -s * mpmath.log(2 * u) if u < 0.5 else s * mpmath.log(2 * (1 - u))

            root = mpmath.findroot(lambda y: (1 - q) * sf(y) + q * sf(y - d) - 0.5, (0, d), solver="anderson")
            ends = sorted([-70 * s, 0, root, d, d + 70 * s])
        else:

            def sf(y):
                return mpmath.erfc(y / (s * mpmath.sqrt(2))) / 2

            def pdf(y):
                return mpmath.npdf(y, 0, s)

            def inverse(u):
                return mpmath.sqrt(2) * s * mpmath.erfinv(1 - 2 * u)

            ends = [-8 * s, -3 * s, 0, d / 2, d, d + 3 * s, d + 8 * s]

        def cost(y):
            return abs(y - inverse((1 - q) * sf(y) + q * sf(y - d))) ** mu * ((1 - q) * pdf(y) + q * pdf(y - d))

        return float(mpmath.quad(cost, ends, maxdegree=5) ** (1 / mu))


@pytest.mark.slow
@pytest.mark.parametrize("kind", DISTANCES)
@pytest.mark.parametrize(("q", "d", "s", "mu"), [(0.01, 1, 0.5, 1.5), (0.3, 2, 1, 5), (0.7, 3, 1, 2)])
def test_distances_of_subsampled_noise_are_those_of_mpmath(kind, q, d, s, mu):
    assert DISTANCES[kind](q, d, s, mu) == pytest.approx(quadrature(kind, q, d, s, mu), rel=1e-11)


@pytest.mark.slow
@pytest.mark.parametrize("kind", DISTANCES)
@settings(max_examples=40, deadline=None)
@given(
    q=st.floats(1e-4, 1.0),
    d=st.floats(1e-3, 1e3),
    s=st.floats(1e-2, 1e2),
    mu=st.floats(1.0, 900.0),
    more=st.floats(1.0, 1.1),
)
def test_distances_grow_with_the_order_and_lie_between_q_d_and_the_whole_shift(kind, q, d, s, mu, more):
    value, higher = DISTANCES[kind](q, d, s, mu), DISTANCES[kind](q, d, s, mu * more)
    # distances far below the noise are accurate relative to the noise only
    assert q * d * (1 - 1e-9) - 1e-13 * s <= value <= q ** (1 / mu) * d * (1 + 1e-9) + 1e-13 * s
    assert value <= higher * (1 + 1e-9) + 1e-13 * s


@pytest.mark.slow
@pytest.mark.parametrize("kind", DISTANCES)
@pytest.mark.parametrize("q", [1e-12, 0.01, 0.5, 1 - 1e-12])
def test_w_mu_of_a_record_far_beyond_the_noise_tends_to_its_limit(kind, q):
    """W -> q^(1/mu) d as d/s grows, from below, however far:
    no digits are lost at a distance of 1e12 standard deviations.
    """
    for distance in (1e8, 1e12, 1e14):
        for order in (1.5, 2, 900):
            limit = q ** (1 / order) * distance
            assert limit * (1 - 1e-5) <= DISTANCES[kind](q, distance, 1.0, order) <= limit * (1 + 1e-12)


@pytest.mark.parametrize("kind", DISTANCES)
@pytest.mark.parametrize("scale", [0.0, 1e-6, 1.0, 1e6])
def test_order_one_is_the_difference_of_the_means_whatever_the_noise(kind, scale):
    assert DISTANCES[kind](0.25, 2.0, scale, 1) == 0.5
    assert DISTANCES[kind](1.0, 2.0, scale, 7) == 2.0
    assert DISTANCES[kind](0.0, 2.0, scale, 7) == 0.0


@pytest.mark.parametrize("kind", DISTANCES)
def test_the_unit_of_the_output_is_the_unit_of_the_distance(kind):
    small, large = DISTANCES[kind](0.1, 1.0, 0.7, 3), DISTANCES[kind](0.1, 1000.0, 700.0, 3)
    assert large == pytest.approx(1000 * small, rel=1e-12)


def test_more_noise_lowers_the_distance_of_a_subsampled_record_to_its_mean_shift():
    """W_mu of an unsampled release does not depend on the noise;
    that of a subsampled one lies between q d and q^(1/mu) d.
    """
    values = [wasserstein_1d.subsampled_gauss(0.1, 1.0, s, 2) for s in (0.01, 0.1, 1.0, 10.0)]
    assert values == sorted(values, reverse=True)
    assert values[0] == pytest.approx(math.sqrt(0.1), rel=0.1)
    assert values[-1] == pytest.approx(0.1, rel=1e-2)


@pytest.mark.parametrize("order", [0.5, 1001, math.nan])
def test_an_order_out_of_range_is_refused(order):
    with pytest.raises(UsageError, match="order"):
        wasserstein_1d.subsampled_gauss(0.1, 1, 1, order)
    with pytest.raises(UsageError):
        wasserstein_1d.samples([0], [1], order)


def test_distances_refuse_bad_arguments():
    for bad in ((-0.1, 1, 1), (0.1, -1, 1), (0.1, 1, math.inf), (0.1, math.nan, 1)):
        with pytest.raises(UsageError, match="rate"):
            wasserstein_1d.subsampled_laplace(*bad, 2)
    with pytest.raises(UsageError, match="samples"):
        wasserstein_1d.samples([], [1], 2)
