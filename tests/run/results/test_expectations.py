"""Verdicts on published numbers, against differences worked out by hand."""

from __future__ import annotations

import math

import pytest

from wpriv.config import recipe, yaml_document
from wpriv.run.results import expectations

TEXT = """\
kind: compare
source: "a test"
process: [{mech: gauss, sigma: 1}]
accountants: [pld]
sweep: {over: eps, values: [0.1, 0.3]}
expect:
  - {where: {eps: 0.3}, delta: 0.5, within: 0.1, source: "x"}
  - {where: {eps: 0.1}, delta: 0.5, within: 0.1, absolute: true, source: "y"}
  - {where: {eps: 0.7}, delta: 0.5, within: 0.1, source: "no such row"}
"""


def verdicts(rows, quick=False):
    return expectations.verdicts(recipe.check(yaml_document.parse(TEXT, "r.yaml"), quick=quick), rows)


def test_differences_are_relative_unless_said_and_grid_points_match_through_rounding():
    rows = [{"epsilon": 0.1 + 0.2, "delta": 0.54}, {"epsilon": 0.1, "delta": 0.54}]
    relative, absolute, _ = verdicts(rows)
    assert math.isclose(relative.difference, 0.08)
    assert relative.ok
    assert math.isclose(absolute.difference, 0.04)
    assert absolute.ok


@pytest.mark.parametrize("delta", [0.61, None, math.inf, 0.4])
def test_a_number_outside_the_tolerance_or_missing_is_a_miss(delta):
    assert not verdicts([{"epsilon": 0.3, "delta": delta}])[0].ok


def test_a_row_that_is_not_there_or_not_the_only_one_is_a_miss():
    rows = [{"epsilon": 0.3, "delta": 0.5}] * 2
    assert [v.ok for v in verdicts(rows)] == [False, False, False]


def test_a_quick_run_leaves_out_what_is_not_on_its_grid():
    assert [v.source for v in verdicts([{"epsilon": 0.3, "delta": 0.5}], quick=True)] == ["x"]
