"""Tests of recipes whose ``claims`` are not reproduced: screen, JSON and results folder."""

from __future__ import annotations

import json

import pytest

from tests.command_line import call

pytestmark = pytest.mark.slow

CLAIMS = """\
claims:
  - {paper: "the mean grows", found: "it falls from 2 to 1", because: "of a sign"}
"""
CLAIM = {"paper": "the mean grows", "found": "it falls from 2 to 1", "because": "of a sign", "verdict": "contradicted"}
COMPARE = """\
kind: compare
source: "a test"
process: [{mech: gauss, sigma: 1}]
accountants: [gdp]
eps: 1
"""
TRAIN = """\
kind: train
source: "a test"
task: classify
data: {name: digits, limit: 100}
model: {name: mlp, width: 4, depth: 1}
privacy: {eps: 4, delta: 1e-5}
optimizer: {name: sgd, lr: 1.0}
batch: 50
steps: 2
seed: 1
quick: {steps: 1}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(capsys, *words):
    return call(capsys, *words)[:2]


def provenance(path):
    return json.loads((path / "provenance.json").read_text())


def test_a_comparison_prints_its_claims_after_the_table_and_keeps_them(folder, capsys):
    (folder / "r.yaml").write_text(COMPARE + CLAIMS)
    code, out = run(capsys, "compare", "r.yaml", "--out", "out")
    assert code == 0
    assert out.index("gdp") < out.index(
        "the paper says: the mean grows\nwe find: it falls from 2 to 1\nbecause: of a sign\n"
    )
    assert provenance(folder / "out")["claims"] == [CLAIM]
    code, out = run(capsys, "compare", "r.yaml", "--json")
    assert json.loads(out)["claims"] == [CLAIM]
    assert "the paper says" not in run(capsys, "compare", "r.yaml", "--quiet")[1]


def test_a_training_prints_its_claims_and_keeps_them_and_a_quick_one_has_none(folder, capsys):
    (folder / "r.yaml").write_text(TRAIN + CLAIMS)
    code, out = run(capsys, "train", "r.yaml", "--out", "out")
    assert (code, "the paper says: the mean grows" in out) == (0, True)
    assert provenance(folder / "out")["claims"] == [CLAIM]
    assert json.loads(run(capsys, "train", "r.yaml", "--out", "out", "--json")[1])["claims"] == [CLAIM]
    code, out = run(capsys, "train", "r.yaml", "--quick", "--out", "quick")
    assert (code, "the paper says" in out) == (0, False)
    assert provenance(folder / "quick")["claims"] == []


def test_a_sweep_prints_its_claims_once_and_keeps_them_in_its_own_folder(folder, capsys):
    (folder / "r.yaml").write_text(TRAIN + CLAIMS + "sweep: {over: seed, values: [1, 2]}\n")
    code, out = run(capsys, "train", "r.yaml", "--out", "out")
    assert (code, out.count("the paper says")) == (0, 1)
    about = provenance(folder / "out")
    assert about["claims"] == [CLAIM]
    assert (about["trainings"], about["finished"]) == (2, 2)
    assert json.loads(run(capsys, "train", "r.yaml", "--out", "out", "--json")[1])["claims"] == [CLAIM]
    assert provenance(folder / "out" / "seed=1")["claims"] == []


@pytest.mark.parametrize(("kind", "text"), [("compare", COMPARE), ("train", TRAIN)])
def test_claims_that_are_written_later_do_not_make_results_those_of_another_recipe(kind, text, folder, capsys):
    (folder / "r.yaml").write_text(text)
    assert run(capsys, kind, "r.yaml", "--out", "out")[0] == 0
    (folder / "r.yaml").write_text(text + CLAIMS)
    assert run(capsys, kind, "r.yaml", "--out", "out")[0] == 0


@pytest.mark.parametrize("broken", ["found: ", "becuase: ", "because: ''"])
def test_a_claim_that_lacks_a_part_is_refused(broken, folder, capsys):
    (folder / "r.yaml").write_text(
        COMPARE
        + CLAIMS.replace('found: "it falls from 2 to 1"' if "found" in broken else 'because: "of a sign"', broken)
    )
    assert run(capsys, "compare", "r.yaml")[0] == 2
