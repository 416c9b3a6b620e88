"""Flower 1.42.0, from files that it wrote: faults F15 and F16, and its accountant for replaced clients."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import wpriv
from tests.checks.readers.standins import GOLDEN, golden, standin
from wpriv.checks.readers import flower
from wpriv.errors import UsageError

FOLDER = GOLDEN / "flower-1.42.0"
OBJECTS = golden("flower-1.42.0/objects.json")
PUBLIC = {"records_public": True}


def values(found):
    return {fact.field: fact.value for fact in found.facts}


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("poisson", {"mech": "gauss", "sigma": 4.0, "sampling": "poisson", "rate": 0.1, "n": 20}),
        ("no-amplification", {"mech": "gauss", "sigma": 4.0, "n": 20}),
        (
            "without-replacement",
            {"mech": "gauss", "sigma": 4.0, "sensitivity": 1, "sampling": "fixed", "rate": 0.1, "n": 20},
        ),
    ],
)
def test_the_state_of_an_accountant_is_read_as_a_file_and_as_a_mapping(name, step):
    found = flower.read(FOLDER / f"{name}.json", {})
    assert found.accounted == (step,)
    assert found == flower.read(golden(f"flower-1.42.0/{name}.json"), {})
    assert {key: values(found)[key] for key in ("unit", "clip.per", "records", "steps")} == {
        "unit": "client",
        "clip.per": "client",
        "records": 100,
        "steps": 20,
    }


def test_the_figures_of_its_accountant_are_proved_for_what_it_takes_the_noise_for():
    spent = OBJECTS["spent"]
    known = {**PUBLIC, "sampling.kind": "poisson"}
    assert wpriv.check(FOLDER / "poisson.json", eps=spent["poisson"], premises=known).verdict == "proved"
    no_amplification = wpriv.check(FOLDER / "no-amplification.json", eps=spent["no-amplification"], premises=PUBLIC)
    assert no_amplification.verdict == "proved"


@pytest.mark.slow
def test_a_replaced_client_moves_the_sum_by_twice_the_clipping_norm():
    known = {**PUBLIC, "noise.relative_to": "clip"}
    result = wpriv.check(FOLDER / "without-replacement.json", eps=0.9465, premises=known)
    assert result.verdict == "refuted"
    assert result.epsilon[1] == pytest.approx(1.11806, abs=1e-5)


def test_a_strategy_with_an_accountant_shows_that_noise_is_of_the_clipping_norm():
    config = SimpleNamespace(
        target_delta=1e-5,
        population_size=100,
        neighboring_relation=SimpleNamespace(value="replace-one"),
        sampling_method=SimpleNamespace(value="without-replacement"),
    )
    event = SimpleNamespace(noise_multiplier=4.0, sample_size=10, population_size=100)
    strategy = standin(OBJECTS["fixed"])
    strategy.accountant = SimpleNamespace(_config=config, _compositions=[(event, 20)])
    found = flower.read(strategy, {})
    assert found == flower.read(FOLDER / "without-replacement.json", {"strategy": strategy})
    assert values(found)["noise.relative_to"] == "clip"
    assert found.ran[0]["noise_multiplier"] == 4.0


def test_unequal_weights_without_an_accountant_are_seen():
    """F15: one of ten clients holds half, so that noise of 4/10 is a multiplier of .8."""
    claim = {"claim.eps": 0.4804, "claim.delta": 1e-5, "sampling.kind": "poisson", "steps": 20}
    messages = [
        SimpleNamespace(content=SimpleNamespace(metric_records={"m": {"num-examples": n}})) for n in [900] + [100] * 9
    ]
    for replies in (messages, [{"num-examples": 900}, *[{"num-examples": 100}] * 9], [900] + [100] * 9):
        result = wpriv.check(standin(OBJECTS["fixed"]), premises={**PUBLIC, **claim}, replies=replies)
        assert result.verdict == "refuted"
        assert result.epsilon == pytest.approx((5.67891, 5.67893), abs=1.1e-5)
    asked = wpriv.check(standin(OBJECTS["fixed"]), premises={**PUBLIC, **claim})
    assert "sampling.max_weight" in [each.field for each in asked.missing] or asked.verdict == "refuted"


def test_rounds_whose_epsilon_does_not_grow_forgot_the_ones_before():
    """F16: thirty rounds, of which each printed 2.8648."""
    rounds = {index: {"epsilon": 2.8648, "loss": 1.0} for index in range(1, 31)}
    known = {"noise.multiplier": 1, "sampling.kind": "poisson", "sampling.rate": 0.1, "steps": 10, "max_per_unit": 1}
    result = wpriv.check(SimpleNamespace(train_metrics_clientapp=rounds), delta=1e-5, premises={**PUBLIC, **known})
    assert result.verdict == "refuted"
    assert result.epsilon == pytest.approx((12.3978, 12.3979), abs=1.1e-4)


def test_rounds_of_one_accountant_are_one_run():
    rounds = {index: {"epsilon": index / 10} for index in range(1, 31)}
    found = values(flower.read(SimpleNamespace(train_metrics_clientapp=rounds), {}))
    assert found == {"claim.eps": 3.0}


def test_adaptive_clipping_pays_for_its_count():
    found = values(flower.read(standin(OBJECTS["adaptive"]), {}))
    assert found["clip.adaptive"] == "noisy"
    # the multiplier of the updates, made larger so that both together have 4
    both = (found["noise.multiplier"] ** -2 + (2 * found["clip.count_std"]) ** -2) ** -0.5
    assert both == pytest.approx(4.0)


def test_a_local_modifier_is_checked_for_any_two_updates():
    local = standin(OBJECTS["local"])
    assert wpriv.check(local, premises=PUBLIC).verdict == "proved"
    result = wpriv.check(local, premises={**PUBLIC, "adjacency": "replace-one"})
    exact = wpriv.budget("gauss", sigma=9.689610525210778, sensitivity=2, delta=1e-5)
    assert result.verdict == "refuted"
    assert result.epsilon[1] == pytest.approx(exact.epsilon.upper, rel=1e-6)


def test_weights_that_are_none_are_refused():
    with pytest.raises(UsageError, match="no weight above 0"):
        flower.read(standin(OBJECTS["fixed"]), {"replies": []})
