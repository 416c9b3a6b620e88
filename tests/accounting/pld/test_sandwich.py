"""Ends of brackets that come from closed forms on either side."""

from __future__ import annotations

import math

import mpmath
import pytest

import wpriv
from wpriv.accounting.accountants.pld import account
from wpriv.accounting.mechanisms.gauss import Gauss
from wpriv.accounting.mechanisms.gauss_threshold import GaussThreshold
from wpriv.accounting.mechanisms.matrix_gauss import StrategyPair
from wpriv.accounting.pld.composition import Composition
from wpriv.accounting.pld.sandwich import SandwichedComposition
from wpriv.core.kinds import Poisson, Shuffle
from wpriv.core.process import Process, Step, sandwich

SHUFFLED = Process((Step(Gauss(4.0), 10, Shuffle(0.1)),), "zero-out")


def gauss_delta(mu: mpmath.mpf, eps: float) -> mpmath.mpf:
    """Balle and Wang (2018), in 40 digits."""
    e = mpmath.mpf(eps)
    return mpmath.ncdf(mu / 2 - e / mu) - mpmath.e**e * mpmath.ncdf(-mu / 2 - e / mu)


@pytest.mark.parametrize("end", ["dominated", "dominating"])
def test_an_end_that_is_attained_lies_outside_of_the_truth(end):
    # oracle: the curve of the one mu at 40 digits, to which the other end lies close
    with mpmath.workdps(40):
        for mu, n in ((0.7, 3), (1.3, 2), (0.01, 7)):
            ends = (mu, 1.01 * mu) if end == "dominated" else (0.99 * mu, mu)
            composition, total = SandwichedComposition([(StrategyPair(*ends), n)], 1e-3), mpmath.sqrt(n) * mu
            for eps in (0.0, 0.1, 0.5, 1.7, 4.0):
                low, high = composition.delta(eps, 1e-3)
                exact = gauss_delta(total, eps)
                assert low < exact < high
            for delta in (1e-3, 1e-5, 1e-9):
                low, high = composition.epsilon(delta, 1e-3)
                # the profile falls, so that delta at an end tells on which side of the truth it lies
                assert gauss_delta(total, low) > delta or low == 0
                assert gauss_delta(total, high) < delta or high == 0


def test_a_delta_too_small_for_a_double_is_not_zero():
    # oracle: Gaussian noise has a delta above 0 at every eps; here it is about 1e-314 and 1e-3000
    composition = SandwichedComposition([(StrategyPair(1.0, 1.1), 1)], 1e-3)
    for eps in (42.0, 130.0):
        low, high = composition.delta(eps, 1e-3)
        assert 0 <= low < high == 1e-300
    curve = account(SHUFFLED)
    assert curve.delta(eps=30.0) > 0
    assert math.isfinite(curve.epsilon(delta=1e-6))


def test_a_bound_that_differs_by_rounding_is_not_named_as_another():
    # both ends of one shuffled pass are the closed forms that the other bounds evaluate as well
    assert "end by" not in wpriv.budget(SHUFFLED, eps=1.0).source


@pytest.mark.parametrize("tol", [1e-2, 1e-3])
def test_an_atom_next_to_the_lowest_node_counts_once(tol):
    """Oracle: where all n losses are at least y, delta(n y) = 1 - e^(n y) Q(P > 0)^n, in 40 digits."""
    mechanism = GaussThreshold(sigma=5.107833713579709, threshold=1.00001e-12, keys=10)
    added = Process((Step(mechanism, 245, Poisson(0.0003406718622851382)),)).directions()[1]
    _, run = sandwich(added, 1e-2)
    pair, n = run[0]
    with mpmath.workdps(40):
        y = mpmath.mpf(pair.support[0])
        truth = float(-mpmath.expm1(n * (y + mpmath.log1p(-mpmath.mpf(pair.mass_at_minus_infinity)))))
    low, high = Composition(run).delta(float(n * y), tol)
    # the mass at -infinity has a rounding of 1e-16, relative to the difference of two losses of 2e-14
    assert low * (1 - 1e-4) <= truth <= high * (1 + 1e-4)
    assert high <= 1.05 * low
