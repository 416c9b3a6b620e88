"""Events and accountants of dp_accounting 0.6.0, from files that it wrote."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace

import pytest

import wpriv
from tests.checks.readers.standins import GOLDEN, golden, standin
from wpriv.checks.readers import _documents, dp_accounting
from wpriv.errors import Unsupported, UsageError

FOLDER = "dp_accounting-0.6.0"
DATA = golden(f"{FOLDER}/events.json")
EVENTS, REPRS = DATA["events"], DATA["reprs"]
PUBLIC = {"records_public": True, "max_per_unit": 1}
STEPS = {
    "dpsgd": [{"mech": "gauss", "sigma": 1.0, "sampling": "poisson", "rate": 0.01, "n": 1000}],
    "gauss": [{"mech": "gauss", "sigma": 1.0, "n": 1}],
    "laplace": [{"mech": "laplace", "scale": 2.0, "n": 1}],
    "discrete-laplace": [{"mech": "discrete-laplace", "scale": 2.0, "sensitivity": 2, "n": 1}],
    # keep or draw one of two buckets: the odds of the kept one are (1 - p/2) / (p/2) = 3
    "randomized-response": [{"mech": "randomized-response", "eps0": pytest.approx(math.log(3)), "n": 1}],
    "without-replacement": [{"mech": "gauss", "sigma": 4.0, "sampling": "fixed", "rate": 0.1, "records": 100, "n": 20}],
    "truncated": [
        {"mech": "gauss", "sigma": 1.0, "sampling": "poisson", "rate": 0.1, "max_batch": 64, "records": 500, "n": 1}
    ],
    "mixture-poisson": [
        {"mech": "gauss", "sigma": 2.0, "sensitivity": 1.0, "sampling": "poisson", "rate": 0.01, "n": 1}
    ],
    # a leaf of a tree of 12 has 4 nodes above and at it
    "tree": [{"mech": "gauss", "sigma": 2.0, "sensitivity": 2.0, "n": 1}],
    "zcdp": [{"mech": "zcdp", "rho": 0.1, "xi": 0.01, "n": 1}],
    "noop": [],
}


@pytest.mark.parametrize("name", STEPS)
def test_an_event_is_read_alike_as_an_object_as_json_and_as_its_repr(name):
    live = _documents.plain_data(standin(EVENTS[name]), dp_accounting.EVENTS)
    for data in (live, EVENTS[name], _documents.parse(REPRS[name], name)):
        assert list(dp_accounting.steps_of(data)) == STEPS[name]
    assert dp_accounting.recognises(standin(EVENTS[name]))
    assert dp_accounting.recognises(Path(REPRS[name]))


@pytest.mark.parametrize("name", ["with-replacement", "mixture", "repeat", "unsupported", "randomized-response-10"])
def test_an_event_without_a_proven_pair_is_named(name):
    with pytest.raises(Unsupported, match=EVENTS[name]["type"]):
        dp_accounting.read(standin(EVENTS[name]), {})


def test_every_class_of_events_of_the_library_is_known():
    assert {event["type"] for event in EVENTS.values()} <= set(dp_accounting.EVENTS)
    assert len({event["type"] for event in EVENTS.values()}) >= 15


def test_an_event_that_is_not_private_has_no_finite_eps():
    for event in (EVENTS["non-private"], {"type": "GaussianDpEvent", "noise_multiplier": 0.0}):
        composed = {"type": "ComposedDpEvent", "events": [EVENTS["gauss"], event]}
        found = dp_accounting.read(standin(with_module(composed)), {})
        verdict = wpriv.check(standin(with_module(composed)), eps=50.0, delta=1e-5, premises=PUBLIC)
        assert found.accounted == ()
        assert (verdict.verdict, verdict.epsilon) == ("refuted", (math.inf, math.inf))


def with_module(data):
    if isinstance(data, list):
        return [with_module(each) for each in data]
    if not isinstance(data, dict):
        return data
    return {"module": "dp_accounting.dp_event", **{key: with_module(each) for key, each in data.items()}}


def test_the_heterogeneous_event_r9_is_read_whole():
    found = dp_accounting.read(GOLDEN / FOLDER / "r9.json", {})
    assert [step["n"] for step in found.accounted] == [*[100] * 50, 1]
    assert found.accounted[-1] == {"mech": "laplace", "scale": 10.0, "n": 1}
    assert {fact.field: fact.value for fact in found.facts}["sampling.kind"] == "poisson"


def test_gaussians_of_one_sampled_batch_are_one_of_less_noise():
    inner = {"type": "SelfComposedDpEvent", "event": EVENTS["gauss"], "count": 4}
    event = {"type": "PoissonSampledDpEvent", "sampling_probability": 0.1, "event": inner}
    assert dp_accounting.steps_of(event) == (
        {"mech": "gauss", "sigma": 0.5, "sampling": "poisson", "rate": 0.1, "n": 1},
    )
    mixed = {"type": "ComposedDpEvent", "events": [EVENTS["gauss"], EVENTS["laplace"]]}
    with pytest.raises(Unsupported, match="one sampled batch"):
        dp_accounting.steps_of({**event, "event": mixed})


def accountant(row):
    module, _, name = row["type"].rpartition(".")
    live = type(name, (), {"__module__": module, "get_epsilon": lambda self, delta: row["eps"]})()
    live._neighboring_relation = SimpleNamespace(name=row["relation"])
    live._ledger = SimpleNamespace(_event_counts=[(standin(event), n) for event, n in row["event_counts"]])
    return live


@pytest.mark.parametrize(
    "row", golden(f"{FOLDER}/accountants.json"), ids=lambda row: f"{row['type'][-13:-10]}-{row['relation']}"
)
def test_an_accountant_is_checked_under_its_own_relation(row):
    """RDP takes noise for relative to what a replacement changes; PLD doubles the change: 9.9973 instead of 4.3772."""
    doubled = row["relation"] == "REPLACE_ONE" and "PLD" in row["type"]
    verdict = wpriv.check(accountant(row), delta=1e-5, premises=PUBLIC)
    assert verdict.verdict == "proved"
    assert verdict.premises.word("adjacency") == dp_accounting.RELATIONS[row["relation"]]
    assert verdict.epsilon[1] == pytest.approx(9.997256 if doubled else 4.377178, rel=1e-6)


def test_an_unknown_class_is_refused_with_those_that_are_known():
    with pytest.raises(UsageError, match=r"'QuantumDpEvent'; known are NoOpDpEvent"):
        dp_accounting.steps_of({"type": "QuantumDpEvent"})
