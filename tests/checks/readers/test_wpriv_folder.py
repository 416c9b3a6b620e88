"""A results folder of wpriv: its ledger against the claim of its statement."""

from __future__ import annotations

import json

import pytest

import wpriv
import wpriv.errors
from wpriv.accounting.ledger import Ledger
from wpriv.core.kinds import Poisson
from wpriv.core.process import Step


def folder(path, eps, *, group=1, seed=None, **more):
    """Three steps in a ledger, and a statement that claims an eps of them."""
    ledger = Ledger(path / "ledger.jsonl", 1, 3, adjacency="add-remove", stream="0" * 16)
    for number in range(1, 4):
        ledger.spend(number, Step(wpriv.Gauss(sigma=2.0), 1, Poisson(0.25)))
    ledger.close()
    at = ledger.position()
    claim = {"notion": "approximate-dp", "claim": "certified", "accountant": "pld", "epsilon": eps, "delta": 1e-5}
    statement = {"ledger": {"lines": at.lines, "digest": at.digest}, "guarantees": [claim], "unit": "a record", **more}
    statement |= {"group": group} if group > 1 else {}
    statement |= {"versions": {"wpriv": "0.2.0"}, "seed": seed, "data": {"records": 200}}
    (path / "statement.json").write_text(json.dumps(statement))
    return path


@pytest.mark.parametrize("group", [1, 2])
def test_the_claim_of_a_statement_is_proved_by_the_ledger_and_a_smaller_one_refuted(tmp_path, group):
    steps = {"sigma": 2.0, "sampling": "poisson", "rate": 0.25, "n": 3, "group": group, "delta": 1e-5}
    bracket = wpriv.budget("gauss", **steps).epsilon
    verdict = wpriv.check(folder(tmp_path, bracket.safe, group=group))
    assert (verdict.verdict, verdict.adjacency) == ("proved", "add-remove")
    assert dict(verdict.facts())["read"] == "ledger.jsonl (3 steps), statement.json"
    (tmp_path / "less").mkdir()
    assert wpriv.check(folder(tmp_path / "less", 0.99 * bracket.lower, group=group)).verdict == "refuted"


def test_a_recorded_seed_is_a_note_and_the_best_of_several_runs_has_no_process(tmp_path):
    (tmp_path / "best").mkdir()
    verdict = wpriv.check(folder(tmp_path, 5.0, seed=1))
    assert verdict.verdict == "proved"
    assert any("must stay secret" in words for label, words in verdict.facts() if label == "note")
    with pytest.raises(wpriv.errors.Unsupported, match="best of a random number of runs"):
        wpriv.check(folder(tmp_path / "best", 5.0, tuning={"repeats": {}}))


def test_a_release_that_a_ledger_elsewhere_paid_for_is_judged_by_its_own_lines(tmp_path):
    table, count = {"id": ["a", "b", "c"]}, {"person": "id", "outputs": [wpriv.Count()], "delta": 0}
    for name, eps in (("first", 1.0), ("second", 0.5)):
        wpriv.release(table, eps=eps, ledger=tmp_path / "all.jsonl", out=tmp_path / name, **count)
    for name, eps in (("first", 1.0), ("second", 0.5)):
        verdict = wpriv.check(tmp_path / name)
        assert (verdict.verdict, verdict.epsilon[1]) == ("proved", eps)  # noise of scale 1 / eps on one count
        assert dict(verdict.facts())["read"] == "all.jsonl (1 step), statement.json"
        assert all(label and words for label, words in verdict.facts())
    assert wpriv.budget(history=tmp_path / "second", delta=0).epsilon.safe == 1.5
    (tmp_path / "all.jsonl").unlink()
    with pytest.raises(wpriv.errors.WprivError):
        wpriv.check(tmp_path / "first")
