"""Stored results beside the numbers that a recipe expects today."""

from __future__ import annotations

import json
import math
from dataclasses import replace

from wpriv.accounting import load_recipe
from wpriv.accounting.comparison import compare
from wpriv.config import yaml_document
from wpriv.config.field_types import Expect
from wpriv.config.recipe import Check
from wpriv.papers.reproduction import reproduce
from wpriv.results import expectations, storage
from wpriv.results.expectations import Verdict

ROW = {"panel": "", "where": {}, "column": "delta", "kind": "published", "expected": 0.5, "ours": 0.5}
ROW |= {"difference": 0.0, "within": 0.1, "absolute": False, "ok": True, "held": True, "source": "a test"}
RECIPE = """\
kind: compare
source: "a test"
process: [{mech: gauss, sigma: 1}]
accountants: [gdp]
sweep: {over: eps, values: [0.5, 1]}
figure: delta-over-eps
expect:
  - {where: {eps: 1}, delta: 0.126936737507, within: 1e-9, kind: reference, source: "Balle and Wang 2018"}
"""


def stored_run(tmp_path, text=RECIPE):
    path = tmp_path / "toy.yaml"
    path.write_text(text)
    recipe = load_recipe.read(path)
    compare.run(recipe, tmp_path / "out", draw=False)
    return path, tmp_path / "out"


def test_texts_figures_and_expected_numbers_do_not_decide_whose_results_a_folder_holds(tmp_path):
    path, out = stored_run(tmp_path)
    path.write_text(RECIPE.replace("a test", "another").replace("0.1269", "0.2269").replace("delta-over-eps", "curves"))
    assert reproduce.is_of(load_recipe.read(path), out)
    path.write_text(RECIPE.replace("sigma: 1", "sigma: 2"))
    assert not reproduce.is_of(load_recipe.read(path), out)
    assert not reproduce.is_of(load_recipe.read(path), tmp_path / "nowhere")


def test_files_of_observations_are_known_by_their_names():
    data = {"kind": "compare", "process": [{"mech": "histogram", "file": "/a/b/times.csv"}]}
    elsewhere = {"kind": "compare", "process": [{"mech": "histogram", "file": "/c/times.csv"}]}
    assert reproduce.essence(data) == reproduce.essence(elsewhere)
    assert reproduce.with_names_of_files(data)["process"][0]["file"] == "times.csv"


def test_the_verdict_is_on_the_numbers_of_today_and_a_new_one_is_taken_from_the_table(tmp_path):
    path, out = stored_run(tmp_path)
    new = '  - {where: {eps: 0.5}, delta: 0.5, within: 0.1, kind: published, source: "none"}\n'
    path.write_text(RECIPE.replace("0.126936737507", "0.2") + new)
    recipe, entries = load_recipe.read(path), expectations.read(out / "expect.json")
    rows = reproduce.today(recipe, entries, storage.table(out / "table.csv"))
    # delta of sigma = 1 at eps = 0.5, Balle and Wang 2018: Phi(0) - e^0.5 Phi(-1)
    delta = 0.5 - math.exp(0.5) * math.erfc(1 / math.sqrt(2)) / 2
    expected = [(0.2, 0.126936738, False), (0.5, round(delta, 9), False)]
    assert [(row.expected, round(row.ours, 9), row.ok) for row in rows] == expected
    assert [row.is_missed for row in rows] == [True, True]


def test_a_new_number_that_the_stored_results_do_not_hold_is_not_measured_and_not_missed(tmp_path):
    path, out = stored_run(tmp_path)
    new = '  - {where: {eps: 0.7}, delta: 0.5, within: 0.1, kind: published, source: "none"}\n'
    path.write_text(RECIPE + new)
    entries, table = expectations.read(out / "expect.json"), storage.table(out / "table.csv")
    rows = reproduce.today(load_recipe.read(path), entries, table)
    assert [row.word for row in rows] == ["met", "not measured"]
    assert expectations.counts(rows) == "1 of 1"
    assert not any(row.is_missed for row in rows)
    # a quick run has a grid of its own
    assert len(reproduce.today(replace(load_recipe.read(path), quick=True), entries, table)) == 1


def test_answers_are_found_at_places_that_name_a_claim_or_a_number_of_seeds():
    place = {"claim": "exact", "seeds": 5, "case": "a"}
    entry = Verdict(**ROW | {"where": place, "column": "accuracy", "ours": "nan", "claim": "measured", "seeds": 5})
    check = Check("", Expect(where=place, within=0.1, accuracy=0.9, source="x"))
    verdict = reproduce.answered(check, "accuracy", 0.9, [entry])
    assert (math.isnan(verdict.ours), verdict.ok, verdict.seeds, verdict.claim) == (True, False, 5, "measured")
    verdict = reproduce.answered(check, "accuracy", 0.9, [entry.with_entries(ours=0.85)])
    assert (verdict.ours, verdict.ok) == (0.85, True)
    assert reproduce.answered(check, "accuracy", 0.9, [entry.with_entries(where={**place, "case": "b"})]) is None


def test_a_bound_from_one_side_says_which_and_a_value_does_not(tmp_path):
    path, out = stored_run(tmp_path)
    sides = []
    for extra in ("", "at_least: true, ", "at_most: true, "):
        path.write_text(RECIPE.replace("within: 1e-9, ", f"within: 1e-9, {extra}"))
        (row,) = reproduce.today(load_recipe.read(path), expectations.read(out / "expect.json"))
        sides.append(row.side)
    assert sides == [None, "at least", "at most"]


def test_a_number_has_the_claim_of_its_row_and_measurements_are_so_called(tmp_path):
    _, out = stored_run(tmp_path)
    entries = expectations.read(out / "expect.json")
    table = [{"epsilon": 0.5, "claim": "exact"}, {"epsilon": 1, "claim": "certified"}]
    assert [row.claim for row in reproduce.with_claims(entries, table, "compare")] == ["certified"]
    # two rows of different claims: none can be named
    table.append({"epsilon": 1, "claim": "exact"})
    assert [row.claim for row in reproduce.with_claims(entries, table, "compare")] == [None]
    accuracy = [entries[0].with_entries(column="accuracy")]
    assert [row.claim for row in reproduce.with_claims(accuracy, table, "train")] == ["measured"]
    assert json.loads((out / "expect.json").read_text())["expect"] == [entry.as_dict() for entry in entries]
    assert yaml_document.read(out / "recipe.yaml").data["kind"] == "compare"


def test_an_own_number_of_the_commit_of_the_results_is_not_counted_as_met():
    own = Verdict(**ROW | {"kind": "own", "commit": "0123456789ab"})
    others = ({"kind": "published"}, {"commit": "ba9876543210"}, {"ok": False})
    rows = [own, *(own.with_entries(**entries) for entries in others)]
    marked = reproduce.with_same_commit(rows, "0123456789abcdef")
    assert [row.word for row in marked] == ["same commit", "met", "met", "missed"]
    assert expectations.counts(marked) == "2 of 3, 1 missed"
    assert expectations.counts(marked[:1]) == ""
    assert reproduce.with_same_commit(rows, None) == rows


def test_an_infinite_answer_that_was_stored_is_compared_again_and_missed(tmp_path):
    _, out = stored_run(tmp_path)
    recipe = load_recipe.read(tmp_path / "toy.yaml")
    entries = expectations.read(out / "expect.json")
    (row,) = reproduce.today(recipe, [entries[0].with_entries(ours=math.inf, difference=None, ok=False)])
    assert (row.ours, row.ok) == (float("inf"), False)
