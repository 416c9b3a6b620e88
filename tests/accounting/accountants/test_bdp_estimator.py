"""The Bayesian estimator against an independent run of its authors' method, scipy.stats, and Renyi divergences."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from wpriv.accounting.mechanisms.gauss import GaussPair
from wpriv.core.loss_moments import log_moment
from wpriv.core.subsampled_pairs import poisson
from wpriv.errors import Unsupported, UsageError
from wpriv.papers.accountants import bdp

DISTANCES = np.array([0.5, 1.0, 2.0, 1.5, 0.7])


@pytest.mark.parametrize(("steps", "cost"), [(1, 473.5616), (10, 466.4971)])
def test_costs_are_those_of_an_independent_run(steps, cost):
    assert bdp.step_cost(DISTANCES, 0.01, 1.0, 16, steps) == pytest.approx(cost, abs=6e-5)


def test_the_log_moment_is_the_published_figure_and_the_renyi_divergence():
    assert float(bdp.log_moments(np.array([1.0]), 0.01, 1.0, 16)[0]) == pytest.approx(57.7123, abs=5e-5)
    for order, q, d in ((1, 0.01, 1.0), (4, 0.1, 0.3), (7, 0.5, 2.0), (3, 1e-4, 1e-3)):
        # by quadrature, at an order 1e-9 off that of the closed form
        exact = float(log_moment(poisson(GaussPair(d), q), np.array([order + 1e-9]))[0])
        assert float(bdp.log_moments(np.array([d]), q, 1.0, order)[0]) == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize(("pairs", "published"), [(8, 382.1), (28, 17.69), (50, 12.14), (1225, 8.326)])
def test_the_confidence_limit_uses_students_quantile(pairs, published):
    quantile = float(stats.t.isf(bdp.FAILURE, pairs - 1))
    assert quantile == pytest.approx(published, rel=3e-4)
    rng = np.random.default_rng(0)
    d = rng.uniform(0.1, 0.5, pairs)
    grown = np.exp(bdp.log_moments(d, 0.1, 1.0, 2))
    limit = grown.mean() + quantile * grown.std() / math.sqrt(pairs - 1)
    assert bdp.step_cost(d, 0.1, 1.0, 2, 1) == pytest.approx(math.log(limit), rel=1e-9)


def test_equal_pairs_cost_their_log_moment_whatever_the_declared_steps():
    d = np.full(9, 0.8)
    for steps in (1, 10, 1000):
        assert bdp.step_cost(d, 0.05, 1.0, 3, steps) == pytest.approx(
            float(bdp.log_moments(d, 0.05, 1.0, 3)[0]), rel=1e-9
        )


def test_huge_distances_do_not_overflow():
    assert math.isfinite(bdp.step_cost(np.array([1e6, 2e6, 3e6]), 0.01, 1e-3, 16, 100))
    assert bdp.step_cost(np.array([1e200, 1e200, 1e200]), 0.01, 1e-200, 16, 100) == math.inf
    assert bdp.step_cost(np.zeros(4), 0.01, 1.0, 16, 100) == 0.0


def test_too_few_pairs_and_orders_that_are_no_whole_numbers_are_refused():
    with pytest.raises(Unsupported, match="found 2"):
        bdp.step_cost(np.array([1.0, 2.0]), 0.1, 1.0, 2, 1)
    with pytest.raises(UsageError, match=r"2\.5"):
        bdp.log_moments(np.array([1.0]), 0.1, 1.0, 2.5)


def test_confidence_lost_adds_up_over_the_steps():
    assert math.exp(bdp.log_failure(1)) == pytest.approx(2.0**-53, rel=1e-9)
    assert math.exp(bdp.log_failure(10**6)) == pytest.approx(10**6 * 2.0**-53, rel=1e-6)
