"""Refreshing own numbers from finished results: the same as by a run, and only from the whole recipe as it is."""

from __future__ import annotations

import pytest

from tests.oracles import gauss_delta
from wpriv.cli.main import main
from wpriv.config import yaml_document
from wpriv.results import storage

COMMIT = "0123456789abcdef"
RECIPE = """\
kind: compare
source: "a test"
process: [{mech: gauss, sigma: 1}]
accountants: [pld]
sweep: {over: eps, values: [0.5, 1]}
expect:
  - {where: {eps: 0.5}, delta: 0.9, within: 0.1, held: false, kind: published, source: "Table 1"}
  - {where: {eps: 0.5}, delta: 0.5, within: 1e-3, held: false, kind: own, source: "this program"}   # 0.5
  - {where: {eps: 1}, delta: 0.5, within: 1e-3, held: false, kind: own, source: "this program"}
quick: {sweep: {over: eps, values: [0.5]}}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a recipe, and its finished results by a program of some commit."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(storage, "commit", lambda folder=".": COMMIT)
    (tmp_path / "toy.yaml").write_text(RECIPE)
    assert main(["compare", "toy.yaml", "--out", "results", "--quiet"]) == 0
    # what runs now is of another commit, and has changed files
    monkeypatch.setattr(storage, "commit", lambda folder=".": "fedcba9876543210+")
    return tmp_path


def test_own_numbers_are_those_of_the_results_with_the_commit_of_the_results(folder, capsys):
    assert main(["recipe", "refresh", "toy.yaml", "--from", "results"]) == 0
    rows = yaml_document.read(folder / "toy.yaml").data["expect"]
    assert [row["delta"] for row in rows[1:]] == pytest.approx([gauss_delta(eps, 1.0) for eps in (0.5, 1.0)], rel=2e-5)
    assert [row.get("commit") for row in rows] == [None, COMMIT[:12], COMMIT[:12]]
    assert rows[0]["delta"] == 0.9
    assert "# 0.5" in (folder / "toy.yaml").read_text()
    assert "changed beyond the tolerance" in capsys.readouterr().out
    # the results are those of the recipe still, since only its expected numbers have changed
    text = (folder / "toy.yaml").read_text()
    assert main(["recipe", "refresh", "toy.yaml", "--from", "results"]) == 0
    assert (folder / "toy.yaml").read_text() == text


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("toy.yaml", "sigma: 1", "sigma: 2"),
        ("toy.yaml", "[0.5, 1]", "[0.5, 1, 2]"),
        ("results/provenance.json", '"quick": false', '"quick": true'),
        ("results/provenance.json", COMMIT, COMMIT + "+"),
        ("results/provenance.json", '"quick": false', '"quick": false, "trainings": 5, "finished": 4'),
    ],
)
def test_results_of_another_a_quick_a_partial_or_an_unnamed_run_are_refused(folder, capsys, file, old, new):
    path = folder / file
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))
    before = (folder / "toy.yaml").read_text()
    assert main(["recipe", "refresh", "toy.yaml", "--from", "results"]) == 2
    assert "results" in capsys.readouterr().err
    assert (folder / "toy.yaml").read_text() == before


def test_a_number_that_the_results_lack_stays_and_the_exit_code_is_1(folder, capsys):
    path = folder / "toy.yaml"
    path.write_text(path.read_text().replace("where: {eps: 1}", "where: {eps: 1, accountant: pld}"))
    assert main(["recipe", "refresh", "toy.yaml", "--from", "results"]) == 1
    assert "no answer: kept" in capsys.readouterr().out
    rows = yaml_document.read(path).data["expect"]
    assert [row.get("commit") for row in rows] == [None, COMMIT[:12], None]


@pytest.mark.parametrize("words", [["--out", "x"], ["--at-most", "1h"], ["--data-root", "x"]])
def test_from_runs_nothing_and_flags_of_runs_are_refused(folder, capsys, words):
    assert main(["recipe", "refresh", "toy.yaml", "--from", "results", *words]) == 2
    assert words[0] in capsys.readouterr().err


def test_folders_without_results_are_refused(folder, capsys):
    assert main(["recipe", "refresh", "toy.yaml", "--from", "nowhere"]) == 4
    assert "nowhere" in capsys.readouterr().err
    assert main(["recipe", "refresh", "all", "--from", "results"]) == 4
    assert "--from results holds no finished results" in capsys.readouterr().err
