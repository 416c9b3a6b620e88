"""The ledger loses no step and pays for none twice, whatever is cut off where."""

from __future__ import annotations

import json

import pytest

from wpriv.core.process import Process, Sampling, Step
from wpriv.errors import UsageError
from wpriv.mechanisms.gauss import Gauss
from wpriv.train import ledger
from wpriv.train.ledger import Ledger

STEP = Step(Gauss(1.5, 1.0), 1, Sampling("poisson", 0.1))
OTHER = Step(Gauss(2.0, 2.0), 1, Sampling("none"))


def test_what_was_spent_comes_back_as_a_process(tmp_path):
    book = Ledger(tmp_path / "l.jsonl")
    for number in (1, 2, 3):
        book.spend(number, STEP)
    book.close()
    book = Ledger(tmp_path / "l.jsonl", run=2)
    book.spend(1, OTHER)
    book.close()
    spent = ledger.entries(tmp_path / "l.jsonl")
    assert ledger.process(spent, "add-remove") == Process(
        (Step(Gauss(1.5), 3, Sampling("poisson", 0.1)), Step(Gauss(2.0, 2.0))), "add-remove"
    )


def test_a_step_is_on_disk_before_spend_returns(tmp_path):
    book = Ledger(tmp_path / "l.jsonl")
    for number in (1, 2):
        book.spend(number, STEP)
        assert len(ledger.entries(tmp_path / "l.jsonl")) == number


def test_a_step_made_again_is_not_paid_again_and_another_release_in_its_place_is_refused(tmp_path):
    book = Ledger(tmp_path / "l.jsonl")
    for number in (1, 2, 3):
        book.spend(number, STEP)
    again = Ledger(tmp_path / "l.jsonl")
    for number in (2, 3, 4):
        again.spend(number, STEP)
    assert len(ledger.entries(tmp_path / "l.jsonl")) == 4
    with pytest.raises(UsageError, match="cannot be made again"):
        again.spend(2, OTHER)
    with pytest.raises(UsageError, match="wanted step 5"):
        again.spend(7, STEP)


@pytest.mark.parametrize("left", range(1, 40, 7))
def test_a_line_cut_short_is_forgotten_and_written_again(tmp_path, left):
    path = tmp_path / "l.jsonl"
    book = Ledger(path)
    book.spend(1, STEP)
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:left])
    assert len(ledger.entries(path)) == 1
    again = Ledger(path)
    again.spend(2, STEP)
    assert [e.step for e in ledger.entries(path)] == [1, 2]


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{}",
        b"[1]",
        b"nonsense",
        b'{"run": 1, "step": 3, "mech": "gauss"}',
        b'{"run": 0, "step": 2}',
        b'{"run": true, "step": 2}',
        b"\xff",
    ],
)
def test_a_ledger_that_something_else_has_written_is_refused(tmp_path, line):
    path = tmp_path / "l.jsonl"
    Ledger(path).spend(1, STEP)
    path.write_bytes(path.read_bytes() + line + b"\n")
    with pytest.raises(UsageError, match=r"l\.jsonl:2"):
        ledger.entries(path)


def test_an_earlier_run_cannot_go_on_behind_a_later_one(tmp_path):
    Ledger(tmp_path / "l.jsonl", run=2).spend(1, STEP)
    with pytest.raises(UsageError, match="only ever added to"):
        Ledger(tmp_path / "l.jsonl", run=1)


def test_a_line_holds_all_that_budget_needs(tmp_path):
    Ledger(tmp_path / "l.jsonl").spend(1, STEP)
    about = json.loads((tmp_path / "l.jsonl").read_text())
    assert about == {"run": 1, "step": 1, "mech": "gauss", "sigma": 1.5, "sensitivity": 1.0, "sampling": "poisson", "rate": 0.1}
