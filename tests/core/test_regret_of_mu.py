"""The regret of mu: how far the trade-off curve of mu-GDP lies below that of the process."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial import ConvexHull
from scipy.special import ndtr, ndtri

import wpriv
from wpriv import Gauss, Laplace, Poisson, Process, Step


def literal_regret(false_positives, false_negatives, mu):
    """The largest diagonal distance of points of a trade-off curve from G_mu, each by bisection in its definition."""
    low, high = np.full_like(false_positives, -0.5), np.full_like(false_positives, 0.5)
    for _ in range(60):
        middle = (low + high) / 2
        alpha, beta = false_positives - middle, false_negatives - middle
        # the point moved down the diagonal is below G_mu, or outside the square
        inside = (alpha > 0) & (beta > 0)
        below = ~inside | (beta < ndtr(-ndtri(np.where(inside, alpha, 0.5)) - mu))
        low, high = np.where(below, low, middle), np.where(below, middle, high)
    return float(low.max())


@pytest.mark.parametrize(("sigma", "rate"), [(0.7, 0.01), (0.7, 0.3), (2.0, 0.5)])
def test_regret_of_one_sampled_step_is_the_largest_distance_of_its_threshold_tests(sigma, rate):
    mu = wpriv.curve(Process((Step(Gauss(sigma=sigma), 1, Poisson(rate)),))).mu(fpr=1e-6)
    # the tests of the order "remove" are thresholds, and the other order exchanges both rates; mixtures fill the hull
    z = np.linspace(-9, 9, 20_001)
    false_positives = ndtr(-z)
    false_negatives = (1 - rate) * ndtr(z) + rate * ndtr(z - 1 / sigma)
    truth = hull_regret(false_positives, false_negatives, mu.upper)
    assert truth <= mu.regret <= 1.02 * truth + 2e-5


def hull_regret(a, b, mu):
    """The literal regret of the lower hull of a curve and of its mirror image."""
    points = np.concatenate([np.stack([a, b], axis=1), np.stack([b, a], axis=1)])
    corners = points[ConvexHull(points).vertices]
    lower = corners[corners.sum(axis=1) < 1]
    lower = lower[np.argsort(lower[:, 0])]
    shares = np.linspace(0, 1, 20, endpoint=False)[:, None, None]
    fine = (lower[:-1] + shares * np.diff(lower, axis=0)).reshape(-1, 2)
    return literal_regret(fine[:, 0], fine[:, 1], mu)


@pytest.mark.parametrize("steps", [1, 7])
def test_a_gaussian_curve_has_no_regret(steps):
    mu = wpriv.curve(Process((Step(Gauss(sigma=3.0), steps),))).mu()
    assert (mu.exact, mu.regret) == (True, 0.0)


def test_regret_of_laplace_noise_is_that_of_its_closed_form():
    mu = wpriv.curve(Process((Step(Laplace(scale=1.0)),))).mu()
    # the trade-off function of Laplace noise: Dong, Roth, Su 2019, Proposition 2.12
    a = np.linspace(1e-6, 1 - 1e-6, 100_001)
    b = np.where(a < np.exp(-1) / 2, 1 - np.e * a, np.where(a <= 0.5, np.exp(-1) / (4 * a), np.exp(-1) * (1 - a)))
    truth = literal_regret(a, b, mu.upper)
    assert truth <= mu.regret <= 1.02 * truth + 2e-5


def test_regret_is_nearly_zero_where_a_training_is_nearly_gaussian():
    mu = wpriv.curve(Process((Step(Gauss(sigma=4.0), 65536, Poisson(0.01)),))).mu(fpr=0.4)
    assert 0 < mu.regret < 1e-4


def test_an_upper_bound_states_the_regret_of_its_own_curve():
    process = Process((Step(Gauss(sigma=4.0), 65536, Poisson(0.01)),))
    mu = wpriv.curve(process, "rdp").mu()
    assert mu.lower == 0
    assert 0 < mu.regret < 0.05
