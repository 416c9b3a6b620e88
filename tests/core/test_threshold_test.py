"""The test "loss > eps": its rates against closed forms and against a simulation that is written here."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

from tests import nightly
from wpriv.accounting import evaluate
from wpriv.accounting.claims.loss_threshold import most_trials, simulate, threshold_test, trials_needed
from wpriv.accounting.mechanisms.gauss import Gauss
from wpriv.accounting.mechanisms.laplace import Laplace
from wpriv.accounting.mechanisms.randomized_response import RandomizedResponse
from wpriv.core.kinds import FixedSize, Poisson
from wpriv.core.process import Process, Step


def rates_of(process, eps, order=0):
    curve = evaluate.curve(process, "pld", 1e-5)

    def ends(x):
        bracket = curve.orders[order](x)
        return bracket.lower, bracket.safe

    return threshold_test(process.directions()[order], ends, eps, order)


@pytest.mark.parametrize(("sigma", "eps"), [(1.0, 0.0), (1.0, 1.0), (3.0, 0.5), (0.5, 3.0)])
def test_the_rates_of_a_gaussian_release_are_normal_tails(sigma, eps):
    test = rates_of(Process((Step(Gauss(sigma)),)), eps)
    fpr = float(mpmath.ncdf(-eps * sigma - 1 / (2 * sigma)))
    tpr = float(mpmath.ncdf(-eps * sigma + 1 / (2 * sigma)))
    assert test.fpr_lower <= fpr <= test.fpr_upper
    assert test.tpr_lower <= tpr <= test.tpr_upper
    assert math.isclose(tpr - math.exp(eps) * fpr, test.delta_lower, rel_tol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("order", [0, 1])
def test_the_rates_of_sampled_gaussian_steps_hold_a_simulation(order):
    q, sigma, n, eps, trials = 0.3, 0.8, 3, 0.4, 400_000
    test = rates_of(Process((Step(Gauss(sigma), n, Poisson(q)),)), eps, order)
    generator = np.random.default_rng(7)
    shares = []
    for with_record in (True, False):
        taking_part = (generator.random((trials, n)) < q) & with_record
        output = generator.normal(0, sigma, (trials, n)) + taking_part
        losses = np.log(1 - q + q * np.exp((output - 0.5) / sigma**2)).sum(axis=1)
        # in the order "add" the data set without the record is the one called "in"
        shares.append(float(np.mean(losses > eps)) if order == 0 else float(np.mean(-losses > eps)))
    tpr, fpr = shares if order == 0 else shares[::-1]
    error = 4 * math.sqrt(0.25 / trials)  # four standard errors at most
    assert test.tpr_lower - error <= tpr <= test.tpr_upper + error
    assert test.fpr_lower - error <= fpr <= test.fpr_upper + error
    assert test.tpr_upper - test.tpr_lower < 0.05


@pytest.mark.slow
@pytest.mark.parametrize(
    ("process", "eps"),
    nightly.sharded(
        [
            (Process((Step(Gauss(1.0), 4),)), 1.0),
            (Process((Step(Laplace(1.0), 3),)), 1.5),
            (Process((Step(Laplace(1.0), 3, Poisson(0.4)),)), 0.5),
            (Process((Step(RandomizedResponse(1.0), 4),)), 1.5),
            (Process((Step(Gauss(1.0), 3, FixedSize(0.3)),)), 0.5),
            (Process((Step(Gauss(1.0), 3, Poisson(0.3)), Step(Laplace(2.0)))), 0.5),
        ],
        3,
    ),
)
def test_a_simulation_agrees_with_the_certified_delta(process, eps):
    curve = evaluate.curve(process, "pld", 1e-4)
    for order, pairs in enumerate(process.directions()):
        bracket = curve.orders[order](eps)
        seen = simulate(pairs, eps, min(most_trials(pairs), 100_000), 5)
        assert abs(seen.advantage - bracket.safe) < 4.5 * seen.standard_error + 1e-4


def test_a_simulation_depends_on_its_seed_alone():
    pairs = Process((Step(Gauss(1.0), 3, Poisson(0.3)),)).directions()[0]
    assert simulate(pairs, 0.5, 1000, 3) == simulate(pairs, 0.5, 1000, 3) != simulate(pairs, 0.5, 1000, 4)


def test_the_number_of_trials_follows_from_the_standard_error():
    # variance 1/4 + 1/4 and a gap of 0.1: (6 / 0.1)^2 / 2
    assert math.isclose(trials_needed(0.5, 0.5, 0.0, 0.1, 6.0), 1800.0)
    assert math.isinf(trials_needed(0.5, 0.5, 0.0, 0.0, 6.0))


def test_a_false_positive_rate_that_no_trials_show_needs_as_many_as_bound_it():
    # none of N: the rate is below 18/N but for a chance of e^-18, and e^100 of it is to be below 1
    assert math.isclose(trials_needed(1.0, 1e-80, 100.0, 1.0, 6.0), 18 * math.exp(100))
    assert math.isclose(trials_needed(1.0, 1e-6, 100.0, 1.0, 6.0), 36 * math.exp(200) * 1e-6, rel_tol=1e-5)


def test_a_simulation_of_losses_that_are_only_bracketed_is_not_offered():
    from wpriv.core.kinds import Allocation

    process = Process((Step(Gauss(1.0), 10, Allocation(0.1)),))
    assert most_trials(process.directions()[0]) == 0
