"""Deltas and false-positive rates beside a figure are printed with all of their digits.

A delta that is rounded down would promise more than was computed, and so would a rate that is rounded up.
"""

from __future__ import annotations

import pytest

import wpriv
from wpriv import Gauss
from wpriv.cli import audit_output, guarantee_details
from wpriv.cli.main import main
from wpriv.run.audit import coin_tests
from wpriv.run.audit.audit import Audit
from wpriv.run.results import model_header, summary
from wpriv.run.results.statement_facts import Facts

DELTA = 1.23456789e-5
ROW = {
    "notion": "approximate-dp",
    "claim": "exact",
    "accountant": "pld",
    "epsilon": 1.0,
    "delta": DELTA,
}
STATEMENT = {"private": True, "guarantees": [ROW], "unit": "one record"}


@pytest.mark.parametrize(
    "words",
    [
        lambda: summary.guarantee_of_all(ROW),
        lambda: model_header.promise(STATEMENT),
        lambda: Facts(STATEMENT, STATEMENT, ROW, "Central").guarantee,
    ],
    ids=["all trainings", "weights", "registry"],
)
def test_results_name_the_delta_of_their_guarantee(words):
    assert f"at delta = {DELTA}" in words()


def test_an_audit_names_the_delta_of_its_bound(capsys):
    certified = wpriv.budget(Gauss(4.0), delta=DELTA)
    test = coin_tests.Test("sums", 10, 9, 0.1, 0.05)
    audit_output.print_audit(Audit("a", certified, (test,), "one-run", 20, 1), as_json=False)
    assert f"eps at least 0.1 at delta = {DELTA} with" in capsys.readouterr().out


def test_a_dry_run_names_the_delta_of_its_cost(capsys):
    assert main(["train", "quick/digits", "--dry-run", "--set", f"privacy.delta={DELTA}"]) == 0
    assert f"at delta = {DELTA} after the last step" in capsys.readouterr().out


def test_a_bound_on_attacks_names_its_false_positive_rate():
    row = wpriv.calibrate("gauss", tpr=0.02, fpr=0.0123456789).guarantee
    assert any(line.endswith("at a false-positive rate of 0.0123456789") for line in guarantee_details.details(row))
