"""Objects of jax_privacy 2.0.0, from files that it wrote: faults F4 to F6, right runs R7, R8 and R11."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import wpriv
from tests.checks.readers.standins import GOLDEN, golden, standin
from wpriv.checks.readers import jax_privacy
from wpriv.errors import Unsupported

DATA = golden("jax_privacy-2.0.0/objects.json")
PUBLIC = {"records_public": True, "max_per_unit": 1}


def plan(name, **more):
    data = DATA["plans"][name]
    fields = {"dp_event": standin(data["dp_event"]), "batch_selection_strategy": standin(data["strategy"]), **more}
    return type("DPExecutionPlan", (), fields)()


def values(found):
    return {fact.field: fact.value for fact in found.facts}


@pytest.mark.parametrize(
    ("name", "updates", "verdict", "truth"),
    [
        ("f4", None, "refuted", (6.99922, 6.99923)),
        ("r11", None, "proved", (1.25955, 1.25956)),
        ("f5", None, "refuted", (5.61341, 5.61343)),
        ("f6", 17, "refuted", (2.53201, 2.53203)),
    ],
)
def test_keras_configurations_have_the_verdicts_and_truths_of_the_specification(name, updates, verdict, truth):
    optimizer = None if updates is None else SimpleNamespace(iterations=updates)
    result = wpriv.check(standin(DATA["keras"][name]), optimizer=optimizer, premises=PUBLIC)
    assert result.verdict == verdict
    assert result.epsilon == pytest.approx(truth, abs=1.1e-5)


def test_draws_of_their_own_for_the_parts_of_an_update_are_counted_where_the_rate_alone_does_not_refute():
    """Eight draws at rate .01 are Binomial(8, .01) copies, a group of eight: 6.748, where rate .08 has 5.613."""
    found = values(jax_privacy.read(standin({**DATA["keras"]["f5"], "epsilon": 6.0}), {}))
    assert (found["sampling.workers"], found["sampling.rate"]) == (8, 0.01)
    result = wpriv.check(standin({**DATA["keras"]["f5"], "epsilon": 6.0, "train_steps": 2}), premises=PUBLIC)
    same = wpriv.budget("gauss", sigma=1, sampling="poisson", rate=0.01, n=2, group=8, delta=1e-5)
    assert result.epsilon[1] == pytest.approx(same.epsilon.upper, rel=1e-5)


def test_a_configuration_is_read_from_its_repr():
    found = jax_privacy.read(GOLDEN / "jax_privacy-2.0.0" / "f5.txt", {})
    assert found == jax_privacy.read(standin(DATA["keras"]["f5"]), {})


def test_a_noise_multiplier_of_fit_is_asked_for():
    found = jax_privacy.read(standin(DATA["keras"]["uncalibrated"]), {})
    assert "noise.multiplier" not in values(found)
    assert any("get_noise_multiplier" in note for note in found.notes)


def test_a_binomial_size_with_a_choice_without_replacement_is_poisson_sampling():
    result = wpriv.check(plan("dpsgd"), eps=1.828244, delta=1e-5, premises=PUBLIC)  # R7
    assert result.verdict == "proved"
    assert result.epsilon == pytest.approx((1.828236, 1.828237), abs=1.1e-6)


def test_more_steps_accounted_than_ran_are_proved_with_a_note():
    result = wpriv.check(standin(DATA["r8"]), eps=3.99588, delta=2e-5, premises={**PUBLIC, "steps": 43})  # R8
    assert result.verdict == "proved"
    assert result.epsilon == pytest.approx((0.187869, 0.187870), abs=1.1e-6)
    assert "43 steps ran, 11049 are accounted for" in str(result.facts())


def test_bands_are_a_cycle_in_which_a_record_takes_part_once():
    found = jax_privacy.read(plan("banded"), {})
    assert (
        found.ran == found.accounted == ({"mech": "gauss", "sigma": 1.0, "sampling": "poisson", "rate": 0.4, "n": 250},)
    )


def test_equal_parts_contradict_neighbours_of_another_size():
    relation = standin({"module": "dp_accounting", "type": "NeighboringRelation", "member": "ADD_OR_REMOVE_ONE"})
    found = jax_privacy.read(plan("banded", neighboring_relation=relation), {})
    assert values(found)["adjacency"] == "add-remove"
    assert any("EQUAL_SPLIT" in line for line in found.contradictions)
    assert not jax_privacy.read(plan("dpsgd", neighboring_relation=relation), {}).contradictions


@pytest.mark.parametrize("name", ["dpsgd", "banded"])
def test_a_configuration_of_a_plan_shows_what_its_plan_does_without_making_it(name):
    config = standin(DATA["plans"][name]["config"])
    config.accountant = SimpleNamespace(_neighboring_relation=standin(DATA["plans"][name]["relation"]))
    found, made = jax_privacy.read(config, {}), jax_privacy.read(plan(name), {})
    assert (found.accounted, found.ran) == (made.accounted, made.ran)
    assert values(found)["adjacency"] == "zero-out"


def test_the_names_of_later_versions_are_known():
    fields = {"iterations": 1000, "expected_participations": 10.0, "strategy": [1.0], "noise_multiplier": 1.0}
    config = type("BandMFConfig", (), {**fields, "l2_clip_norm": 1.0, "num_examples": None})()
    found = jax_privacy.read(config, {})
    assert found.accounted == ({"mech": "gauss", "sigma": 1.0, "sampling": "poisson", "rate": 0.01, "n": 1000},)
    assert values(found)["adjacency"] == "add-remove"


def strategy(name):
    return jax_privacy.read(standin(DATA["strategies"][name]), {"event": plan("dpsgd").dp_event})


@pytest.mark.parametrize(
    ("name", "kind"),
    [("poisson", "poisson"), ("balls", "allocation"), ("fixed", "fixed"), ("fixed-replace", "weighted")],
)
def test_strategies_say_how_batches_are_drawn(name, kind):
    assert values(strategy(name))["sampling.kind"] == kind


def test_balls_in_bins_are_one_cycle_of_less_noise():
    """The same step of ten cycles: the mean of its releases has noise sigma / sqrt(10)."""
    (step,) = strategy("balls").ran
    assert step == {"mech": "gauss", "sigma": pytest.approx(10**-0.5), "sampling": "allocation", "rate": 0.1, "n": 10}


def test_users_and_largest_batches_are_read():
    assert values(strategy("user"))["unit"] == "person"
    assert values(strategy("truncated"))["sampling.truncated"] == 64


def test_a_least_separation_is_named_as_unproven():
    with pytest.raises(Unsupported, match="BMinSepSampling"):
        strategy("minsep")
