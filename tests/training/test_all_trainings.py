"""The cost of several trainings together, against closed forms and the composition of one longer training."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracles import gauss_delta
from wpriv import Gauss, Poisson, Process, Step
from wpriv.accounting import evaluate
from wpriv.config.train_schema import DataSet
from wpriv.training.all_trainings import Release, of_reports, together

DELTA = 1e-5


def release(sigma, n=1, *streams, adjacency="add-remove", delta=DELTA, sampling=None):
    step = Step(Gauss(sigma), n, sampling) if sampling else Step(Gauss(sigma), n)
    return Release(Process((step,), adjacency), delta, frozenset(streams))


@settings(max_examples=15, deadline=None)
@given(st.lists(st.floats(3.0, 30.0), min_size=1, max_size=5))
def test_gaussian_trainings_together_are_one_gaussian_whose_squared_means_add_up(sigmas):
    whole = together([release(sigma, 2) for sigma in sigmas])
    mu = sum(2 / sigma**2 for sigma in sigmas) ** 0.5
    assert whole.trainings == len(sigmas)
    assert gauss_delta(whole.epsilon, mu) <= DELTA * (1 + 1e-9)
    assert gauss_delta(whole.epsilon * (1 - 1e-3), mu) > DELTA


def test_n_sampled_trainings_cost_what_one_of_n_times_the_steps_costs():
    runs = [release(1.0, 40, f"stream {k}", sampling=Poisson(0.02)) for k in range(5)]
    one = Process((Step(Gauss(1.0), 200, Poisson(0.02)),), "add-remove")
    long = evaluate.ask(evaluate.curve(one, "pld", 1e-6), delta=DELTA)
    found = together(runs).epsilon
    assert long.epsilon.lower <= found <= long.epsilon.upper * (1 + 1e-3)
    assert found > together(runs[:1]).epsilon


def test_the_largest_delta_of_the_trainings_is_that_of_the_whole():
    assert together([release(10, delta=1e-6), release(10, delta=1e-4)]).delta == 1e-4


def test_trainings_that_protect_different_values_of_a_record_have_no_guarantee_together():
    # with public labels, neighbours have the same labels: replacing a record by one of another label is not covered
    label, image = (replace(release(10.0, 1, unit), unit=unit) for unit in ("a record", "the image of a record"))
    whole = together([label, image])
    assert (whole.epsilon, "different things: a record; and the image" in whole.problem) == (None, True)
    assert together([image, replace(image, streams=frozenset())]).as_dict()["unit"] == "the image of a record"


def test_the_noise_of_one_seed_on_two_sets_of_records_has_no_common_cost():
    def reports(**parameters):
        noise = {"mech": "local-gauss", "sigma": 20, "delta": DELTA, "radius": 1}
        step = {"mech": "local-gauss", "sigma": 20.0, "radius": 1.0, "nonnegative": 0, "n": 1, "sampling": "none"}
        statement = {"seed": 1, "adjacency": "any-two", "guarantees": [{"process": [step], "delta": DELTA}]}
        return DataSet(name="table", privatize=noise, **parameters), statement

    whole = together(of_reports([reports(file="before.csv"), reports(file="after.csv")]))
    assert whole.epsilon is None
    assert "same noise" in whole.problem


@pytest.mark.parametrize(
    ("releases", "word"),
    [
        ([release(2, 1, "a"), release(2, 1, "b", "a")], "same noise"),
        ([release(2), release(2, adjacency="replace-one")], "add-remove and replace-one"),
        ([], "no training is private"),
        ([release(2), replace(release(2), problem="the reports have none")], "reports have none"),
        ([release(2, delta=0.0)], "pure DP"),
    ],
)
def test_trainings_without_a_common_cost_have_none_and_say_why(releases, word):
    whole = together(releases)
    assert whole.epsilon is None
    assert word in whole.problem
    assert whole.as_dict()["problem"] == whole.problem


def test_the_same_reports_are_paid_once_and_other_reports_of_the_same_records_again():
    def reports(seed):
        step = {"mech": "local-gauss", "sigma": 20.0, "radius": 1.0, "nonnegative": 0, "n": 1, "sampling": "none"}
        return {"seed": seed, "adjacency": "any-two", "guarantees": [{"process": [step], "delta": DELTA}]}

    def of_file(name):
        return DataSet(name="privatized", file=name), reports(None)

    toy = DataSet(name="toy", privatize={"mech": "local-gauss", "sigma": 20, "delta": DELTA, "radius": 1})
    once = together(of_reports([(toy, reports(1)), (toy, reports(1))]))
    twice = together(of_reports([(toy, reports(1)), (toy, reports(2))]))
    same_file = together(of_reports([of_file("a.npz"), of_file("a.npz")]))
    # noise from the operating system: two files of one command have equal statements, and independent noise
    two_files = together(of_reports([of_file("a.npz"), of_file("b.npz")]))
    # two points of the ball are at most 2 radii apart
    for whole, mu in ((once, 2 / 20), (twice, 2 / 20 * 2**0.5), (same_file, 2 / 20), (two_files, 2 / 20 * 2**0.5)):
        eps = whole.epsilon
        assert gauss_delta(eps, mu) <= DELTA * (1 + 1e-9)
        assert gauss_delta(eps * (1 - 1e-3), mu) > DELTA
