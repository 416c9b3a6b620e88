"""Kantorovich DP, generalised WDP and WDP to zCDP, against integrals, binomial tails and the least rho in mpmath."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

from wpriv import (
    DiscreteLaplace,
    FixedSize,
    Gauss,
    Laplace,
    Poisson,
    Process,
    RandomizedResponse,
    Step,
    TruncatedLaplace,
)
from wpriv.accounting.mechanisms.laplace import LaplacePair
from wpriv.core.pair_distances import of_distances
from wpriv.errors import Unsupported, UsageError
from wpriv.papers.accountants import wdp


@pytest.mark.parametrize("rate", [1.0, 0.2])
@pytest.mark.parametrize("noise", ["gauss", "laplace"])
def test_kdp_is_the_area_between_the_distribution_functions(rate: float, noise: str) -> None:
    """Oracle: W_1 = integral of |F_P - F_Q|, whose potential has the slope sign(F_Q - F_P), in mpmath."""
    d, scale = 3.0, 1.5
    cdf = {
        "gauss": lambda x: mpmath.ncdf(x / scale),
        "laplace": lambda x: mpmath.exp(x / scale) / 2 if x < 0 else 1 - mpmath.exp(-x / scale) / 2,
    }[noise]
    area = mpmath.quad(lambda x: abs(rate * (cdf(x) - cdf(x - d))), [-60, -5, 0, d, 8, 60])
    mechanism = {"gauss": Gauss(scale, d), "laplace": Laplace(scale, d)}[noise]
    process = Process((Step(mechanism, 1, Poisson(rate)) if rate < 1 else Step(mechanism),))
    row = wdp.account(process, variant="kdp").at(delta=1e-5)
    assert row.epsilon.safe == pytest.approx(float(area), rel=1e-6)
    assert row.claim == "exact"
    exact = wdp.account(process, variant="exact", order=1.0).at(delta=1e-5).epsilon.safe
    assert row.epsilon.safe == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize(
    "step",
    [Step(TruncatedLaplace(2.0, bound=9.0)), Step(DiscreteLaplace(2.0, 3), 5), Step(Gauss(1.0), 4, FixedSize(0.1))],
)
def test_kdp_covers_every_additive_noise_and_says_what_attains_it(step: Step) -> None:
    row = wdp.account(Process((step,)), variant="kdp").at(delta=1e-5)
    noise = step.mechanism.additive_noise()
    assert row.epsilon.safe == pytest.approx(step.n * step.sampling.rate * noise.sensitivity, rel=1e-12)
    assert any("attained by the query" in line for line in row.warnings)


def test_generalised_wdp_bounds_the_tail_of_the_sum_of_the_losses() -> None:
    """Oracle: losses of 0 or 1 with probability 1/2 in 60 steps, whose sum has a binomial tail, in exact integers."""
    steps, share = 60, np.tile([0.0, 1.0], 30)
    process = Process((Step(Gauss(1.0), steps, observed=of_distances(share[:, None])),), adjacency="replace-one")
    curve = wdp.account(process, variant="generalised")
    assert curve.claim == "approximate"
    for above in (5, 10, 20):
        tail = sum(math.comb(steps, k) for k in range(30 + above, steps + 1)) / 2**steps
        delta = curve.delta_bracket(30.0 + above).safe
        assert tail <= delta == pytest.approx(math.exp(-2 * above**2 / steps))
        assert curve.epsilon_bracket(delta).safe == pytest.approx(30.0 + above)
    assert curve.delta_bracket(60.0).safe == 0
    assert curve.epsilon_bracket(1e-300).safe == 60


def test_generalised_wdp_without_observations_is_the_exact_sum_with_no_chance() -> None:
    process = Process((Step(Gauss(1.0), 7), Step(Laplace(2.0, 0.5), 2)))
    curve = wdp.account(process, variant="generalised", group=2.0)
    assert curve.claim == "upper-bound"
    assert curve.epsilon_bracket(1e-9).safe == 2 * (7 + 1)
    assert curve.delta_bracket(16.0).safe == 0


def test_observations_beyond_the_sensitivity_do_not_bound_the_losses() -> None:
    process = Process((Step(Gauss(1.0), 3, observed=of_distances([5.0])),))
    with pytest.raises(Unsupported, match="Clip"):
        wdp.account(process, variant="generalised")


@pytest.mark.parametrize(("distance", "scale"), [(4.0, 1.0), (1.0, 1.0), (0.5, 2.0)])
def test_the_printed_rho_is_compared_with_the_least_one(distance: float, scale: float) -> None:
    """Oracle: (1/2) (L eps^(mu/(mu+1)))^2, eps = Delta; the least rho of Laplace noise is its mean loss."""
    process = Process((Step(Laplace(scale, distance)),))
    row = wdp.account(process, variant="to-zcdp", order=1.0, lipschitz=1 / scale).at(delta=1e-5)
    printed = (math.sqrt(distance) / scale) ** 2 / 2
    assert row.epsilon.safe == pytest.approx(printed + 2 * math.sqrt(printed * math.log(1e5)))
    assert (row.claim, row.notion) == ("as-published", "approximate-dp")
    least = LaplacePair(distance / scale).zcdp_rho()
    assert ("BELOW" if printed < least else "above") in row.warnings[-1]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"variant": "kdp", "order": 3.0}, "order 1"),
        ({"variant": "kdp", "beta": 1.0}, "beta"),
        ({"variant": "to-zcdp", "lipschitz": 1.0, "group": 2.0}, "group"),
        ({"variant": "to-zcdp"}, "Lipschitz"),
        ({"variant": "generalised", "lipschitz": 1.0}, "prop11"),
    ],
)
def test_options_that_have_no_meaning_are_refused(options: dict[str, object], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        wdp.account(Process((Step(Laplace(1.0)),)), **options)


def test_kdp_needs_additive_noise() -> None:
    with pytest.raises(Unsupported, match="additive noise"):
        wdp.account(Process((Step(RandomizedResponse(1.0)),)), variant="kdp")
