"""Verdicts on expected numbers, against differences worked out by hand."""

from __future__ import annotations

import json
import math

import pytest

from wpriv.config import recipe, yaml_document
from wpriv.results import expectations

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


def test_the_verdicts_in_a_folder_say_of_each_number_what_it_is(tmp_path):
    text = TEXT.replace('source: "x"', 'kind: published, source: "x"').replace('source: "y"', 'kind: own, source: "y"')
    made = recipe.check(yaml_document.parse(text, "r.yaml"))
    for number, word in ((math.inf, "inf"), (math.nan, "nan")):  # a training that diverged has measures that are NaN
        rows = [{"epsilon": 0.3, "delta": 0.5}, {"epsilon": 0.1, "delta": number}]
        (path,) = expectations.write(tmp_path, made, expectations.verdicts(made, rows))
        kept = json.loads(path.read_text(), parse_constant=pytest.fail)  # strict JSON: no NaN, no Infinity
        assert [row["kind"] for row in kept["expect"]] == ["published", "own", "reference"]
        assert [row["ours"] for row in kept["expect"]] == [0.5, word, None]


def test_a_folder_of_a_recipe_without_expected_numbers_has_no_verdicts(tmp_path):
    made = recipe.check(yaml_document.parse(TEXT.partition("expect:")[0], "r.yaml"))
    assert expectations.write(tmp_path, made, []) == ()
    assert list(tmp_path.iterdir()) == []


def test_a_row_at_infinity_is_at_no_finite_number():
    assert expectations.is_same(math.inf, math.inf)
    assert not expectations.is_same(math.inf, -1)
    assert not expectations.is_same(1.0, -math.inf)
    assert not expectations.is_same(math.nan, 1.0)
