"""The growing plan: the values of the specification, pld of the same list, and a state that is kept."""

from __future__ import annotations

import random

import numpy as np
import pytest
from scipy.special import logsumexp

from wpriv import Dp, FixedSize, Gauss, Laplace, Poisson, Process, Step
from wpriv.accounting import evaluate
from wpriv.ledger import reading
from wpriv.ledger.growing import MOMENTS, Atoms, GrowingPlan
from wpriv.ledger.service import Ledger


def distinct(source: random.Random) -> Step:
    """The releases of the specification's figures."""
    kind = source.randrange(4)
    if kind == 0:
        return Step(Gauss(sigma=source.uniform(300, 900)))
    if kind == 1:
        return Step(Laplace(scale=source.uniform(300, 900)))
    if kind == 2:
        return Step(Gauss(sigma=source.uniform(2, 8)), sampling=Poisson(source.uniform(0.001, 0.008)))
    return Step(Dp(eps0=source.uniform(0.001, 0.004), delta0=1e-12))


def grown(count: int) -> GrowingPlan:
    source, plan = random.Random(1), GrowingPlan(3.0, 1e-6)
    for number in range(1, count + 1):
        plan.add(Process((distinct(source),)))
        if number in (10, 100, 1000):
            plan.drop(plan.epsilon(1e-6)[1])
    return plan


@pytest.mark.parametrize(
    ("count", "lower", "upper"),
    [
        (10, 0.0190324, 0.0190415),
        pytest.param(100, 0.0726165, 0.0726530, marks=pytest.mark.slow),
        pytest.param(1000, 0.2393573, 0.2394107, marks=pytest.mark.nightly),
    ],
)
def test_the_bracket_is_narrow_and_overlaps_the_right_one(count, lower, upper):
    low, high = grown(count).epsilon(1e-6)
    assert low <= upper
    assert lower <= high
    assert (high - low) / high <= 5e-4


@pytest.mark.parametrize(
    ("count", "ends"),
    [(10, (0.0190372, 0.0190378)), pytest.param(100, (0.0726354, 0.0726383), marks=pytest.mark.nightly)],
)
def test_the_bracket_contains_that_of_pld(count, ends):
    source, plan = random.Random(1), grown(count)
    whole = Process(tuple(distinct(source) for _ in range(count)))
    bracket = evaluate.ask(evaluate.curve(whole, "pld", 1e-4), delta=1e-6).epsilon
    low, high = plan.epsilon(1e-6)
    assert low <= bracket.lower <= bracket.upper <= high
    assert (bracket.lower, bracket.upper) == pytest.approx(ends, abs=2e-7)


def test_the_delta_of_what_ran_overlaps_that_of_pld():
    source, plan = random.Random(1), grown(10)
    whole = Process(tuple(distinct(source) for _ in range(10)))
    least, most = plan.delta(0.01)
    exact = evaluate.curve(whole, "pld", 1e-4).delta_bracket(0.01)
    assert least <= exact.upper
    assert exact.lower <= most


def test_a_state_that_was_kept_goes_on_as_before():
    plan = grown(10)
    copy = GrowingPlan.of_state(plan.state(), 3.0, 1e-6)
    for each in (plan, copy):
        each.add(Process((Step(Gauss(sigma=300)),)), 3)
    assert copy.epsilon(1e-6) == plan.epsilon(1e-6)


def test_pairs_that_only_bound_give_no_lower_end():
    process = Process((Step(Gauss(sigma=4), sampling=FixedSize(0.01)),), "replace-one")
    plan = GrowingPlan(1.0, 1e-6)
    plan.add(process)
    assert evaluate.is_bound_only(process)
    assert plan.epsilon(1e-6)[0] == 0.0 < evaluate.curve(process, "pld", 1e-3).delta_bracket(0.0).safe


def test_status_tells_what_many_kinds_cost_if_fixed_in_advance(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "MAX_KINDS", 2)
    monkeypatch.setattr(reading, "KEPT_EVERY", 3)
    with Ledger.create(f"sqlite:///{tmp_path}/b.db", eps=1, delta=1e-6) as ledger:
        steps = [Step(Gauss(sigma=100)), Step(Laplace(scale=100)), Step(Gauss(sigma=90)), Step(Gauss(sigma=80))]
        figures = []
        for number, step in enumerate(steps, start=1):
            ledger.begin(ledger.reserve(step).release) if number % 2 else ledger.spend(step)
            words = str(ledger.status().fixed)
            figures.append(float(words.split("eps = ")[1].split()[0]))
            whole = Process(tuple(steps[:number]))
            right = evaluate.ask(evaluate.curve(whole, "pld", 1e-3), delta=1e-6).epsilon
            assert right.lower <= figures[-1] == pytest.approx(right.safe, rel=2e-3)
        with ledger.store.transaction(write=False) as connection:
            kept = ledger.store.grown(connection)
        assert kept is not None
        ledger.check()


@pytest.mark.parametrize("sigma", [0.12, 4.0])
def test_moments_that_bound_the_wrap_around_hold_for_both_sides(sigma):
    """Beyond the largest node the optimistic side has atoms on it, which the pessimistic one counts as infinite."""
    atoms = Atoms.of(Process((Step(Gauss(sigma=sigma)),)).directions()[0][0][0], 1e-13)
    for masses in atoms.masses:
        assert np.all(logsumexp(MOMENTS[:, None] * atoms.losses, b=masses, axis=1) <= atoms.log_moments() + 1e-9)
