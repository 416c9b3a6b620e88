"""Privacy buckets: brackets of exact deltas, never tighter than what is certified, and the grid that was asked for."""

from __future__ import annotations

import dataclasses
import math

import mpmath
import numpy as np
import pytest

import wpriv
from wpriv import Gauss, Laplace, Poisson, Process, RandomizedResponse, Step, Uniform
from wpriv.accounting import evaluate
from wpriv.accounting.mechanisms.gauss import GaussPair
from wpriv.errors import Unsupported, UsageError
from wpriv.papers.accountants import buckets
from wpriv.papers.mechanisms.projection import Projection

PROCESSES = {
    "gauss": Process((Step(Gauss(20.0), 100),)),
    "laplace": Process((Step(Laplace(20.0), 201),)),
    "sgd": Process((Step(Gauss(1.5), 1000, Poisson(0.01)),)),
    "events": Process((Step(RandomizedResponse(0.3, 1e-4), 37),)),
    "mixed": Process((Step(Gauss(30.0), 40), Step(Laplace(20.0), 30))),
}


@pytest.mark.parametrize("name", PROCESSES)
def test_both_ends_hold_the_certified_bracket(name: str) -> None:
    """Oracle: pld, an engine that shares no discretisation with it."""
    curve, pld = buckets.account(PROCESSES[name], number=4000), evaluate.curve(PROCESSES[name], "pld")
    for eps in (0.0, 1.0):
        delta, certified = curve.at(eps=eps).delta, pld.at(eps=eps).delta
        assert delta.lower <= certified.upper * (1 + 1e-12)
        assert delta.upper >= certified.lower * (1 - 1e-12)
    for delta in (0.1, 1e-6):
        eps, certified = curve.epsilon_bracket(delta), pld.at(delta=delta).epsilon
        assert eps.lower <= certified.upper * (1 + 1e-12)
        assert eps.upper >= certified.lower * (1 - 1e-12)


@pytest.mark.parametrize(("eps0", "n", "eps"), [(0.1, 10, 0.5), (0.5, 31, 4.0), (1.0, 1, 0.2)])
def test_losses_on_the_ends_of_buckets_are_not_rounded(eps0: float, n: int, eps: float) -> None:
    """Oracle: the binomial sum of n randomised responses, in mpmath."""
    with mpmath.workdps(40):
        p = 1 / (1 + mpmath.exp(-mpmath.mpf(eps0)))
        exact = mpmath.fsum(
            mpmath.binomial(n, k) * p**k * (1 - p) ** (n - k) * (1 - mpmath.exp(eps - eps0 * (2 * k - n)))
            for k in range(n + 1)
            if eps0 * (2 * k - n) > eps
        )
    delta = buckets.account(Process((Step(RandomizedResponse(eps0), n),)), number=1024).at(eps=eps).delta
    assert delta.lower <= float(exact) <= delta.upper
    assert delta.upper == pytest.approx(float(exact), rel=1e-9, abs=1e-12)


def test_the_bound_of_the_rounding_covers_a_composition_in_forty_digits() -> None:
    """Oracle: direct convolution of the same masses in exact sums (math.fsum), without a Fourier transform."""
    start = buckets.buckets_of(GaussPair(0.5), 0.05, 200, upward=True)
    composed, direct = buckets.summed([(start, 2)]), [0.0] * (2 * start.mass.size - 1)
    for shift in range(len(direct)):
        direct[shift] = math.fsum(
            float(start.mass[i]) * float(start.mass[shift - i])
            for i in range(max(0, shift - start.mass.size + 1), min(start.mass.size, shift + 1))
        )
    half = start.mass.size // 2
    merged = dataclasses.replace(composed, mass=np.array(direct)).merged().mass[half:-half]
    assert composed.width == 0.1
    assert np.max(np.abs(np.cumsum(composed.mass - merged))) < composed.error < 1e-11


def test_more_buckets_are_tighter_and_more_releases_drift() -> None:
    few, many = (buckets.account(PROCESSES["gauss"], number=n).at(eps=1.0).delta for n in (1000, 10_000))
    assert few.lower < many.lower < many.upper < few.upper
    widths = []
    for n in (1, 64, 4096):
        delta = buckets.account(Process((Step(Gauss(20.0 * math.sqrt(n)), n),)), number=1000).at(eps=0.0).delta
        widths.append(delta.upper / delta.lower)
    assert widths == sorted(widths)


def test_the_grid_is_the_one_that_was_given() -> None:
    """Losses beyond number/2 buckets count as infinite: oracle, their probability in closed form."""
    factor, number = 1.05, 20
    row = buckets.account(Process((Step(Gauss(2.0)),)), factor=factor, number=number).at(eps=10.0)
    reach = number / 2 * math.log(factor)
    beyond = float(mpmath.ncdf(-(reach - 0.125) / 0.5))
    assert row.delta.upper == pytest.approx(beyond, rel=1e-9)
    assert row.delta.lower == 0
    assert "factor 1.05, 20 buckets" in row.source


def test_distinguishing_events_are_in_both_ends() -> None:
    delta = buckets.account(Process((Step(Uniform(outcomes=10), 4),)), number=100).at(eps=0.7).delta
    assert delta.lower == pytest.approx(1 - 0.9**4, rel=1e-12)
    assert delta.upper == pytest.approx(1 - 0.9**4, rel=1e-10)


@pytest.mark.parametrize("options", [{"factor": 0.5}, {"factor": 1.0}, {"number": 7}, {"number": 1e9}])
def test_a_faulty_grid_is_refused(options: dict[str, float]) -> None:
    with pytest.raises(UsageError, match="even"):
        buckets.account(PROCESSES["gauss"], **options)


def test_losses_known_between_two_others_only_are_refused() -> None:
    with pytest.raises(Unsupported, match="exact privacy loss distribution"):
        buckets.account(Process((Step(Projection(d=50, k=20, sigma=4.0), 3),)))


@pytest.mark.parametrize("sigma", [1e-3, 1e-5, 1e-8])
def test_tiny_noise_has_a_factor_beyond_floats_and_still_a_bracket(sigma):
    row = wpriv.budget("gauss", sigma=sigma, eps=1, accountant="buckets").delta
    assert 0 <= row.lower <= 1 - 1e-12 <= row.upper + 1e-9
