"""Budgets and charges: the right values of the specification, and pld as a second way to each charge."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import ndtri

from tests.ledger.adversary import normal_profile
from wpriv import (
    Allocation,
    DiscreteGauss,
    Dp,
    Gauss,
    Laplace,
    LaplaceThreshold,
    Poisson,
    Process,
    Step,
    TopK,
    Zcdp,
)
from wpriv.accounting import evaluate
from wpriv.accounting.mechanisms.matrix_gauss import MatrixGauss
from wpriv.errors import Unsupported, UsageError
from wpriv.ledger import charges, filters
from wpriv.ledger.filters import UNITS, Filter, Limit, gaussian_budget

ONE, THREE = Limit(1.0, 1e-6), Limit(3.0, 1e-10)
GAUSS = Step(Gauss(sigma=100))
SAMPLED = Step(Gauss(sigma=4), sampling=Poisson(0.01))


def fit(step: Step, by: Filter, tier: int = 0) -> int:
    """How many releases of one kind all accounts of a filter hold, at one floor."""
    ((unit, _),) = charges.units_of(Process((step,)))
    return min(UNITS // amount for amount in by.units(charges.of_unit(unit, by, tier)) if amount)


@pytest.mark.parametrize(
    ("limit", "budget", "order"),
    [
        (ONE, 0.05602896, 21.98),
        (THREE, 0.23513433, 14.73),
        (Limit(3.0, 1e-6), 0.41954966, 8.92),
        (Limit(1.0, 1e-10), 0.02904375, 39.24),
    ],
)
def test_budget_and_order_of_a_limit(limit, budget, order):
    (gauss,), (renyi,) = filters.of_limit(limit, "gauss"), filters.of_limit(limit, "rdp")
    assert gauss.accounts[0][1] == pytest.approx(budget, rel=1e-7)
    assert renyi.order == pytest.approx(order, abs=0.01)


@pytest.mark.parametrize(
    ("rule", "leaks", "counts"),
    [
        ("gauss", None, (560, 2351)),
        ("rdp", None, (487, 2157)),
        ("residue", 0.02, (559, 2349)),
        ("residue", None, (559, 2349)),
    ],
)
def test_gaussian_releases_that_fit(rule, leaks, counts):
    for limit, count in zip((ONE, THREE), counts, strict=True):
        (by,) = filters.of_limit(limit, rule, leaks=None if leaks is None else leaks * limit.delta)
        assert fit(GAUSS, by) == count


def test_a_limit_in_rho_admits_349():
    # rho + 2 sqrt(rho ln 1/delta) = eps at (1, 1e-6)
    log = math.log(1e6)
    rho = (math.sqrt(log + 1) - math.sqrt(log)) ** 2
    (by,) = filters.of_limit(Limit(rho=rho), "rdp")
    assert fit(GAUSS, by) == 349


def of_the_table() -> Filter:
    budget = gaussian_budget(1.0, 0.98e-6)
    return Filter("residue", (("T", budget), ("A", 0.04e-6)), 0.02e-6 / budget)


@pytest.mark.parametrize(
    ("step", "values"),
    [
        (Step(Laplace(scale=100)), (1.565e-4, 1.016e-4, 1.002e-4, 9.98e-5)),
        (Step(Laplace(scale=20)), (3.835e-3, 3.160e-3, 2.712e-3, 2.531e-3)),
        (SAMPLED, (2.663e-5, 7.21e-6, 6.78e-6, 6.60e-6)),
        (Step(Dp(eps0=0.01)), (1.571e-4, 1.019e-4, 1.005e-4, 1.002e-4)),
    ],
    ids=["laplace 100", "laplace 20", "sampled", "given"],
)
def test_charges_at_the_floors(step, values):
    ((unit, _),) = charges.units_of(Process((step,)))
    for tier, value in zip((6, 5, 3, 1), values, strict=True):  # floors 0, T/64, T/16, T/4
        assert charges.residue_charge(unit, of_the_table(), tier)[0] == pytest.approx(value, rel=3e-3)


def test_a_given_guarantee_without_a_floor_costs_its_least_mu():
    ((unit, _),) = charges.units_of(Process((Step(Dp(eps0=0.01)),)))
    least = (2 * ndtri(math.exp(0.01) / (1 + math.exp(0.01)))) ** 2
    cost = charges.residue_charge(unit, of_the_table(), 6)[0]
    assert least * (1 - 3e-4) <= cost <= least * (1 + 1e-3)  # a little less by kappa


@pytest.mark.parametrize(
    ("step", "tier"),
    [
        pytest.param(step, tier, marks=() if (step is SAMPLED and tier == 5) else pytest.mark.slow)
        for step in (Step(Laplace(scale=100)), Step(Laplace(scale=20)), SAMPLED)
        for tier in (5, 3, 1)
    ],
)
def test_pld_of_a_release_beside_the_floor_is_within_its_charge_and_near_it(step, tier):
    by = of_the_table()
    ((unit, _),) = charges.units_of(Process((step,)))
    cost, floor = charges.residue_charge(unit, by, tier)[0], by.floor(tier)
    curve = evaluate.curve(Process((step, Step(Gauss(sigma=floor**-0.5)))), "pld", 1e-5)
    near = []
    for eps in np.linspace(0.0, 6 * math.sqrt(floor + cost), 20):
        allowed = normal_profile(floor + cost, eps) + by.kappa * cost
        lower = curve.delta_bracket(float(eps)).lower or 0.0
        assert lower <= allowed
        near.append(1 - lower / allowed)
    assert min(near) <= 3e-4  # that of the specification is 2e-5 to 3e-4; charges here are a little tighter


@pytest.mark.parametrize(
    ("step", "count", "tier"),
    [
        pytest.param(Step(Laplace(scale=20)), 20, 3, marks=pytest.mark.slow),
        pytest.param(Step(Gauss(sigma=1), sampling=Poisson(0.01)), 50, 1, marks=pytest.mark.nightly),
    ],
)
def test_pld_of_equal_steps_beside_the_floor_needs_their_joint_charge_and_hardly_less(step, count, tier):
    (by,) = filters.of_limit(ONE, "residue")
    ((unit, _),) = charges.units_of(Process((step,)))
    cost, floor = charges.residue_charge(unit, by, tier, count)[0], by.floor(tier)
    assert cost < 0.95 * count * charges.residue_charge(unit, by, tier)[0]
    whole = Process((Step(step.mechanism, count, step.sampling), Step(Gauss(sigma=floor**-0.5))))
    curve = evaluate.curve(whole, "pld", 1e-3)
    scan = np.linspace(0.0, 6 * math.sqrt(floor + cost), 100).tolist()
    lower = [curve.delta_bracket(eps).lower or 0.0 for eps in scan]

    def covers(c: float) -> bool:
        rows = zip(scan, lower, strict=True)
        return all(delta <= normal_profile(floor + c, eps) + by.kappa * c for eps, delta in rows)

    assert covers(cost)
    assert not covers(0.98 * cost)


@pytest.mark.parametrize("count", [2, 3, 7, 12])
def test_sums_of_losses_are_those_of_all_combinations_and_never_below_them(count):
    """Oracle: convolution of the losses themselves, which are whole multiples of one number."""
    losses, masses = np.array([-0.3, -0.1, 0.0, 0.2, 0.5]), np.array([0.1, 0.2, 0.3, 0.25, 0.1])
    sums = {0: 1.0}
    for _ in range(count):
        longer: dict[int, float] = {}
        for total, p in sums.items():
            for loss, q in zip((-3, -1, 0, 2, 5), masses, strict=True):
                longer[total + loss] = longer.get(total + loss, 0.0) + p * q
        sums = longer
    composed = charges.Atoms(losses, masses, 0.01).times(count, 0.0)
    assert composed.infinity == count * 0.01
    for eps in np.linspace(-1.0, 4.0, 41):
        exact = sum(p * max(-math.expm1(min(eps - total / 10, 0.0)), 0.0) for total, p in sums.items())
        above = float(-np.expm1(np.minimum(eps - composed.losses, 0.0)) @ composed.masses)
        assert exact <= above * (1 + 1e-12) + 1e-300
        assert above <= exact + 1e-3


def test_sums_of_many_losses_leave_out_no_more_than_is_asked():
    composed = charges.Atoms(np.array([-0.1, 0.1]), np.array([0.475, 0.525]), 0.0).times(5000, 1e-20)
    assert composed.infinity <= 2 * 5000 * 1e-20
    assert composed.masses.sum() == pytest.approx(1.0, rel=1e-8)
    assert float(composed.masses @ composed.losses) == pytest.approx(5000 * 0.1 * 0.05, rel=1e-3)


def test_heavy_tails_need_a_part_of_delta():
    (by,) = filters.of_limit(Limit(mu=0.2), "residue")
    ((unit, _),) = charges.units_of(Process((SAMPLED,)))
    with pytest.raises(Unsupported, match="without a part of delta"):
        charges.of_unit(unit, by, 0)


def test_fifty_leaks_fit_and_the_fifty_first_is_refused():
    (by,) = filters.of_limit(ONE, "residue", leaks=5e-8)
    assert fit(Step(Dp(eps0=0.0, delta0=1e-9)), by) == 50


def test_sums_of_given_guarantees_are_exact_decimals():
    (by,) = filters.of_limit(Limit(1.0, 0.0), "basic")
    assert fit(Step(Dp(eps0=0.002)), by) == 500
    assert fit(Step(Laplace(scale=10)), by) == 10


@pytest.mark.parametrize(
    ("step", "limit", "budget"),
    [
        pytest.param(Step(Gauss(sigma=1), 60, Poisson(0.01)), ONE, 0.026588, marks=pytest.mark.slow),
        pytest.param(Step(Gauss(sigma=1), 120, Poisson(0.01)), ONE, 0.000286, marks=pytest.mark.slow),
        pytest.param(Step(Gauss(sigma=4), 4000, Poisson(0.01)), ONE, 0.029953, marks=pytest.mark.nightly),
        pytest.param(Step(Gauss(sigma=1), 200, Poisson(0.01)), THREE, 0.153439, marks=pytest.mark.nightly),
        pytest.param(Step(Gauss(sigma=1), 500, Poisson(0.01)), THREE, 0.061414, marks=pytest.mark.nightly),
    ],
)
def test_what_a_declared_plan_leaves(step, limit, budget):
    assert gaussian_budget(limit.eps, limit.delta, Process((step,))) == pytest.approx(budget, rel=2e-3)


def test_a_declared_plan_beyond_the_limit_is_refused():
    with pytest.raises(Unsupported, match="exceeds the limit"):
        gaussian_budget(1.0, 1e-6, Process((Step(Gauss(sigma=1), 121, Poisson(0.01)),)))


@pytest.mark.parametrize("rule", ["residue", "gauss", "union"])
def test_limits_beyond_the_range_of_floating_point_are_refused_by_name(rule):
    with pytest.raises(Unsupported, match="kept up to eps = 100"):
        filters.of_limit(Limit(1000.0, 1e-6), rule)
    with pytest.raises(Unsupported, match="kept up to 10"):
        filters.of_limit(Limit(mu=11), rule)
    assert filters.of_limit(Limit(1000.0, 1e-6), "basic")


def test_pld_is_refused_as_a_rule_by_name():
    with pytest.raises(UsageError, match="pld is no rule"):
        filters.of_limit(ONE, "pld")


@pytest.mark.parametrize(
    ("rule", "step", "words"),
    [
        ("gauss", Step(Laplace(scale=20)), "plain Gaussian noise alone"),
        ("basic", GAUSS, "has no bound"),
        ("residue", Step(Zcdp(rho=0.01)), "zcdp"),
        ("rdp", Step(Dp(eps0=0.1, delta0=1e-9)), "Give `leaks`"),
    ],
)
def test_a_release_without_a_charge_is_refused_by_name(rule, step, words):
    (by,) = filters.of_limit(ONE, rule)
    ((unit, _),) = charges.units_of(Process((step,)))
    with pytest.raises(Unsupported, match=words):
        charges.of_unit(unit, by, 0)


@pytest.mark.parametrize(
    "given",
    [
        *({}, {"eps": 1}, {"rho": 1, "mu": 1}, {"rho": -1}, {"eps": 1, "delta": 1}),
        *({"eps": 1e-300, "delta": 1e-6}, {"eps": 1, "delta": 1e-300}, {"rho": 1e300}, {"mu": 1e-200}),
    ],
)
def test_a_limit_is_one_of_three(given):
    with pytest.raises(UsageError, match="limit"):
        Limit(**given)


@pytest.mark.parametrize(
    "step",
    [
        Step(Gauss(sigma=2), 10, Allocation(1 / 10)),
        Step(DiscreteGauss(sigma=20.0)),
        Step(TopK(scale=100.0, k=2)),
        Step(Gauss(sigma=10), sampling=Poisson(1e-3)),
        Step(LaplaceThreshold(scale=20.0, threshold=500.0)),
    ],
    ids=lambda step: f"{step.mechanism.name} {step.sampling.kind}",
)
def test_releases_of_any_kind_have_a_charge_that_covers_them(step):
    (by,) = filters.of_limit(Limit(1.0, 1e-6), "residue")
    ((unit, count),) = charges.units_of(Process((step,)))
    cost, leak = (count * float(part) for part in charges.of_unit(unit, by, 3))
    floor = by.floor(3)
    curve = evaluate.curve(Process((step, Step(Gauss(sigma=floor**-0.5)))), "pld", 1e-3)
    for eps in (0.0, 0.5, 1.0):
        assert (curve.delta_bracket(eps).lower or 0.0) <= normal_profile(floor + cost, eps) + leak * (1 + 1e-9)


def test_a_release_known_by_rho_is_paid_from_a_limit_in_rho():
    (by,) = filters.of_limit(Limit(rho=0.5), "rdp")
    assert fit(Step(Zcdp(rho=0.001)), by) == 500
    assert fit(Step(Gauss(sigma=10)), by) == 100


def test_a_training_with_correlated_noise_is_one_unit_and_those_that_fit_keep_the_limit():
    # two epochs of two bins; a unit of one pass would have half of the strategy
    training = Step(MatrixGauss(9.0, "lambda:0.5"), 4, Allocation(0.5))
    ((unit, count),) = charges.units_of(Process((training, training)))
    assert (unit.process.steps, count) == ((training,), 2)
    (by,) = filters.of_limit(Limit(3.0, 1e-6), "residue", leaks=2e-8)
    most = fit(training, by)
    guarantee = evaluate.ask(evaluate.curve(Process((training,) * most), "pld", 1e-2), delta=1e-6)
    assert most >= 2
    assert guarantee.epsilon.safe <= 3
