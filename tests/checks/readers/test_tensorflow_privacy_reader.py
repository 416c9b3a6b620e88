"""Statements that the source of TensorFlow Privacy 0.9.0 wrote, and configurations: fault F10."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import wpriv
from tests.checks.readers.standins import GOLDEN, golden
from wpriv.checks.readers import tensorflow_privacy as reader

FOLDER = GOLDEN / "tensorflow_privacy-0.9.0"
KNOWN = {"records_public": True, "max_per_unit": 1, "sampling.kind": "poisson"}


def values(found):
    return {fact.field: fact.value for fact in found.facts}


def test_a_statement_is_proved_at_its_own_delta():
    result = wpriv.check(FOLDER / "f10.txt", premises=KNOWN)
    assert result.verdict == "proved"
    assert result.epsilon == pytest.approx((2.38169, 2.38169), abs=1e-5)


@pytest.mark.parametrize("eps", [None, 2.5967])
def test_an_eps_quoted_at_another_delta_is_refuted(eps):
    result = wpriv.check(FOLDER / "f10.txt", eps=eps, delta=1e-7, premises=KNOWN)
    assert result.verdict == "refuted"
    assert result.epsilon == pytest.approx((2.98428, 2.98429), abs=1.1e-5)
    assert "eps belongs to delta 1e-5" in str(result.facts())


def test_microbatches_double_what_a_record_adds():
    """Beside their RDP figure 2.437 at delta 1e-6: noise multiplier 1, rate .01, 1000 steps."""
    result = wpriv.check(FOLDER / "microbatches.txt", premises=KNOWN)
    same = wpriv.budget("gauss", sigma=1, sampling="poisson", rate=0.01, n=1000, delta=1e-6)
    assert result.verdict == "proved"
    assert result.epsilon[1] == pytest.approx(same.epsilon.upper, rel=1e-6)


def test_the_claim_for_users_is_that_of_a_statement_that_bounds_their_examples():
    found = values(reader.read(FOLDER / "users.txt", {}))
    assert (found["claim.eps"], found["max_per_unit"]) == (2.601, 3)
    assert values(reader.read(FOLDER / "pld.txt", {}))["claim.eps"] == 2.382


def test_how_records_were_drawn_is_asked_for():
    result = wpriv.check(FOLDER / "f10.txt", premises={"records_public": True, "max_per_unit": 1})
    assert result.verdict == "incomplete"
    assert [each.field for each in result.missing] == ["sampling.kind"]


@pytest.mark.parametrize("form", ["file", "mapping", "live", "model"])
def test_a_configuration_shows_noise_and_clipping(form):
    config = golden("tensorflow_privacy-0.9.0/optimizer.json")
    state = SimpleNamespace(**config["global_state"])
    forms = {
        "file": FOLDER / "optimizer.json",
        "mapping": config,
        "live": SimpleNamespace(_global_state=state, _num_microbatches=256),
        "model": SimpleNamespace(_l2_norm_clip=1.5, _noise_multiplier=1.1, _num_microbatches=256),
    }
    assert reader.recognises(forms[form])
    found = values(reader.read(forms[form], {}))
    assert found["noise.multiplier"] == pytest.approx(1.1)
    assert (found["clip.norm"], found["divisor"]) == ((1.5,), "constant")
    assert "clip.per" not in found


def test_without_microbatches_each_record_is_clipped():
    found = reader.read({"global_state": {"l2_norm_clip": 1.0, "stddev": 1.0}, "num_microbatches": None}, {})
    assert values(found)["clip.per"] == "record"


def test_a_mapping_of_a_library_is_no_mapping_of_premises():
    config = golden("tensorflow_privacy-0.9.0/optimizer.json")
    result = wpriv.check(config, eps=1, delta=1e-5, premises={**KNOWN, "steps": 100, "sampling.rate": 0.01})
    assert result.verdict == "proved"
