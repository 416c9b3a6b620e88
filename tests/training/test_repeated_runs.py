"""Recipes with ``seeds``: runs, means, statement of all trainings together, resuming and refusals."""

from __future__ import annotations

import csv
import json
import statistics

import pytest

import wpriv
from tests.command_line import call
from tests.oracles import gauss_delta
from wpriv.cli.main import main
from wpriv.config import recipe as recipes
from wpriv.config import yaml_document
from wpriv.errors import UsageError
from wpriv.results import plot
from wpriv.training import sweep

RECIPE = """\
kind: train
source: "a test"
task: classify
data: {name: digits, limit: 120}
model: {name: mlp, width: 4, depth: 1, activation: tanh}
privacy: {sigma: 20, delta: 1e-5, sampling: none}
optimizer: {name: sgd, lr: 1.0}
steps: 4
seed: 5
seeds: 3
"""
GRID = "sweep: {over: privacy.sigma, values: [20, 40]}\nfigure: curves\n"


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "toy.yaml"
    path.write_text(RECIPE)
    return path


def run(capsys, *words):
    return call(capsys, "train", *words)


def rows(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def loaded(text, quick=False):
    return recipes.check(yaml_document.parse(text, "toy.yaml"), quick=quick)


def test_runs_with_a_fixed_seed_have_different_derived_seeds_and_without_one_none():
    seeds = [cell.recipe.training.seed for cell in sweep.cells(loaded(RECIPE + GRID))]
    assert len(set(seeds)) == 3
    assert 5 not in seeds
    assert seeds[:3] == seeds[3:]  # each setting has the same three
    free = sweep.cells(loaded(RECIPE.replace("seed: 5\n", "")))
    assert [(cell.labels, cell.recipe.training.seed) for cell in free] == [({"run": k}, None) for k in (1, 2, 3)]


def test_a_quick_run_has_its_own_number_of_seeds_or_one():
    assert not loaded(RECIPE + "quick: {steps: 2}\n", quick=True).training.has_several
    assert loaded(RECIPE + "quick: {steps: 2, seeds: 2}\n", quick=True).training.seeds == 2
    assert "seeds" not in loaded(RECIPE.replace("seeds: 3", "seeds: 1")).data


@pytest.mark.parametrize(
    ("lines", "word"),
    [
        ("seeds: 0\n", "seeds"),
        ("seeds: 1001\n", "seeds"),
        ("seeds: 2\nsweep: {over: run, settings: {a: {}}}\n", "call the axis otherwise"),
        (
            "seeds: 2\ntune: {sweep: {over: optimizer.lr, values: [1, 2]}, repeats: geometric:mean=2, "
            "score: {records: public}}\n",
            "leave out seeds",
        ),
    ],
)
def test_seeds_that_make_no_sense_are_refused(lines, word):
    with pytest.raises(UsageError, match=word):
        loaded(RECIPE.replace("seeds: 3\n", lines))


@pytest.mark.slow
def test_repeated_runs_leave_each_run_their_means_and_the_cost_of_all(recipe, tmp_path, capsys):
    recipe.write_text(RECIPE + 'expect: [{accuracy: 0.5, within: 0.49, absolute: true, source: "any"}]\n')
    code, out, err = run(capsys, recipe, "--out", "done", "--json")
    assert code == 0, err
    answer, out_folder = json.loads(out), tmp_path / "done"
    accuracies = [float(rows(out_folder / f"run={k}" / "metrics.csv")[-1]["accuracy"]) for k in (1, 2, 3)]
    assert len(set(accuracies)) > 1
    (mean,) = answer["rows"]
    assert (mean["seeds"], mean["accuracy"]) == (3, pytest.approx(statistics.fmean(accuracies)))
    assert mean["accuracy_sd"] == pytest.approx(statistics.stdev(accuracies))
    assert [float(row["accuracy"]) for row in rows(out_folder / "runs.csv")] == accuracies
    assert {row["run"] for row in rows(out_folder / "metrics.csv")} == {"1", "2", "3"}
    (check,) = answer["expect"]
    assert (check["ours"], check["seeds"], check["deviation"]) == (mean["accuracy"], 3, mean["accuracy_sd"])
    # the cost of all: 12 Gauss releases of sigma 20 are one of mean sqrt(12) / 20
    whole = answer["statement"]["together"]
    assert whole["trainings"] == 3
    assert gauss_delta(whole["epsilon"], 12**0.5 / 20) <= 1e-5 * (1 + 1e-9)
    assert gauss_delta(whole["epsilon"] * (1 - 1e-3), 12**0.5 / 20) > 1e-5
    assert mean["epsilon"] < mean["epsilon_all_runs"] == whole["epsilon"]
    text = (out_folder / "statement.md").read_text()
    assert "all 3 private trainings together: eps = " in text
    assert "the seed is fixed and recorded" in text
    assert json.loads((out_folder / "statement.json").read_text()) == answer["statement"]
    # a dry run says the same
    code, out, err = run(capsys, recipe, "--out", "done", "--dry-run", "--json")
    plan = json.loads(out)
    assert plan["together"]["epsilon"] == pytest.approx(whole["epsilon"], rel=1e-3)
    assert [row["done"] for row in plan["rows"]] == [True] * 3
    assert "the seed is fixed" in plan["warnings"][0]


@pytest.mark.slow
def test_more_seeds_continue_and_train_no_finished_run_again(recipe, tmp_path, capsys):
    assert run(capsys, recipe, "--out", "grid", "--set", "seeds=2")[0] == 0
    before = {k: (tmp_path / "grid" / f"run={k}" / "model.pt").read_bytes() for k in (1, 2)}
    code, out, err = run(capsys, recipe, "--out", "grid")
    assert (code, "3 of 3 trainings are done" in out) == (0, True), err
    assert "training 2 of 3: run=2 (done before)" in err
    assert {k: (tmp_path / "grid" / f"run={k}" / "model.pt").read_bytes() for k in (1, 2)} == before
    assert "± " in out
    assert "each run:" in out


@pytest.mark.slow
def test_a_sweep_of_repeated_runs_has_means_by_setting_and_bars_in_its_figures(recipe, tmp_path, capsys):
    recipe.write_text(RECIPE.replace("seeds: 3", "seeds: 2") + GRID.replace("curves", "accuracy-over-eps"))
    code, out, err = run(capsys, recipe, "--out", "grid", "--json")
    assert code == 0, err
    answer = json.loads(out)
    assert [(row["privacy.sigma"], row["seeds"]) for row in answer["rows"]] == [(20, 2), (40, 2)]
    assert [(row["privacy.sigma"], row["run"]) for row in answer["runs"]] == [(20, 1), (20, 2), (40, 1), (40, 2)]
    assert all(row["epsilon_all_runs"] > row["epsilon"] for row in answer["rows"])
    # the runs of one number have the same derived seed in both settings, and so the same noise
    assert "same noise" in answer["statement"]["together"]["problem"]
    assert {path.name for path in plot.plot(tmp_path / "grid")} == {"figure.png", "losses.png"}
    assert main(["report", "grid"]) == 0
    assert "together   no number, since some of them drew the same noise" in capsys.readouterr().out


@pytest.mark.slow
def test_what_is_for_one_training_is_refused_with_seeds_and_the_name_of_the_key(recipe, capsys):
    for words in (["--fork"], ["--fresh"], ["--certificate", "c.json"]):
        code, _, err = run(capsys, recipe, *words)
        assert (code, "seeds" in err) == (2, True), words
    with pytest.raises(UsageError, match="seeds to 1"):
        wpriv.train(str(recipe), out="one")
    assert wpriv.train(str(recipe), out="one", set={"seeds": 1}).metrics


@pytest.mark.slow
def test_a_sweep_without_seeds_has_a_statement_of_all_trainings_as_well(recipe, tmp_path, capsys):
    text = RECIPE.replace("seeds: 3\n", "").replace("seed: 5\n", "")
    recipe.write_text(text + "sweep: {over: privacy.sigma, values: [20, 40]}\n")
    code, out, err = run(capsys, recipe, "--out", "grid", "--json")
    assert code == 0, err
    whole = json.loads((tmp_path / "grid" / "statement.json").read_text())["together"]
    alone = [row["epsilon"] for row in json.loads(out)["rows"]]
    assert max(alone) < whole["epsilon"] < sum(alone)
    assert not (tmp_path / "grid" / "runs.csv").exists()
