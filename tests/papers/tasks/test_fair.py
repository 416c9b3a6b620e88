"""The task fair: measures against hand-computed values, refused recipes, and trainings against their statements."""

from __future__ import annotations

import csv
import math
from types import SimpleNamespace

import numpy as np
import pytest

import wpriv
from tests import nightly
from wpriv.accounting import load_recipe
from wpriv.core import registry
from wpriv.errors import MissingResource, UsageError
from wpriv.figures._records import scores
from wpriv.figures._trainings import losses, noise
from wpriv.papers.tasks import _fairness, fair
from wpriv.training import data, sweep, train, training_run

odds, parity = (registry.load("figures", name) for name in ("odds", "parity"))

RECIPE = """\
kind: train
source: "a test"
task: fair
data: {name: synthetic-fairness, size: 2000, test_size: 2000}
model: {name: logistic}
options: {notion: %s, alpha: 0.5}
privacy: {eps: 4, delta: 1e-5, sampling: fixed, clip: 5}
optimizer: {name: sgd, lr: 0.5}
batch: 400
steps: 10
seed: 1
"""
REGRESSION = RECIPE.replace("notion: %s", "kind: regression, notion: parity, bound: 0.7, lipschitz: 1.4").replace(
    "name: logistic", "name: mlp, width: 4, depth: 1"
)


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write(text):
        path = tmp_path / "toy.yaml"
        path.write_text(text)
        return path

    return write


# ---------------- measures


def test_decisions_are_measured_as_the_paper_defines_it():
    groups, labels = np.array([0] * 5 + [1] * 5), np.array([0, 0, 1, 1, 1, 0, 0, 1, 1, 1])
    chosen = np.array([1, 0, 1, 0, 0, 1, 1, 1, 1, 0], bool)
    found = _fairness.decision_measures(chosen, groups, labels)
    # by hand, decisions 1: 2 of 5 in group 0, 4 of 5 in group 1; label 0: 1 of 2, 2 of 2; label 1: 1 of 3, 2 of 3
    expected = {"accuracy": 4 / 10, "disparate_impact": 0.5, "parity_gap": 0.4, "eo0": 0.5, "eo1": 0.5, "odds_gap": 0.5}
    assert found == pytest.approx(expected)


def test_what_is_not_defined_is_left_out():
    groups, labels = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
    none = _fairness.decision_measures(np.zeros(4, bool), groups, labels)
    assert none.keys() == {"accuracy", "parity_gap", "odds_gap"}
    one_sided = _fairness.decision_measures(np.array([True, True, False, False]), groups, labels)
    assert one_sided["disparate_impact"] == math.inf
    alone = _fairness.decision_measures(np.ones(2, bool), np.zeros(2, int), np.array([0, 1]))
    assert alone == {"accuracy": 0.5}


def test_the_best_decision_of_synthetic_data_has_the_disparate_impact_of_its_distribution():
    """Y itself: P(Y = 1 | A = 0) / P(Y = 1 | A = 1) = (1 - p) / p, and no gap between odds."""
    made = data.read("synthetic-fairness")
    found = _fairness.decision_measures(made.y_test == 1, made.sensitive_test, made.y_test)
    assert found["disparate_impact"] == pytest.approx(3 / 7, abs=0.02)
    assert found["odds_gap"] == 0
    assert _fairness.shares_above_antidiagonal(made.y_test == 1, made.sensitive_test) == pytest.approx(
        {"od0": 0.3, "od1": 0.7}, abs=0.02
    )


def test_densities_of_scores_add_up_to_one_and_points_are_few():
    rng = np.random.default_rng(0)
    values, groups, labels = rng.random((500, 1)), rng.integers(0, 2, 500), rng.integers(0, 2, 500)
    rows = _fairness.score_rows(values, groups, labels)
    for group in (0, 1):
        for label in (0, 1):
            own = [row["density"] for row in rows if (row["group"], row["label"]) == (group, label)]
            assert sum(own) / _fairness.BINS == pytest.approx(1)
    assert all("label" not in row for row in _fairness.score_rows(values, groups, None))
    plane = _fairness.score_rows(rng.random((5000, 2)), rng.integers(0, 2, 5000), None)
    assert len(plane) == 2 * _fairness.POINTS_SHOWN


# ---------------- trainings


@pytest.mark.slow
@pytest.mark.parametrize(("notion", "groups"), [("parity", 2), ("odds", 4)])
def test_a_training_draws_from_the_groups_that_it_accounts_for(recipe, notion, groups):
    done = wpriv.train(recipe(RECIPE % notion), out="done")
    statement = done.statement
    sizes = statement["data"]["groups"]
    assert len(sizes) == groups
    assert sum(sizes.values()) == 2000
    parts = [count * 400 // 2000 for count in sizes.values()]
    assert statement["sampling"]["batch"] == sum(parts)
    assert (
        statement["sampling"]["rate"]
        == max(part / whole for part, whole in zip(parts, sizes.values(), strict=True))
        <= 0.2
    )
    assert statement["adjacency"] == "replace-within-group"
    # oracle: Theorem 6.1 with the corrected constant, written out
    sensitivity = 0.5 * 2 * 5 / sum(parts) + 0.5 / (groups / 2) * 8 / min(parts)
    assert statement["noise"]["sensitivity"] == pytest.approx(sensitivity)
    assert done.results()[0]["noise"] == pytest.approx(statement["noise"]["multiplier"] * sensitivity)
    assert done.guarantees[0].epsilon.safe <= 4
    assert any("NOT protected" in warning for warning in statement["warnings"])
    assert statement["unit"] == fair.UNIT[notion]
    assert fair.GROUPS in statement["not_covered"]


@pytest.mark.slow
def test_declared_sizes_plan_a_recipe_without_data_and_are_checked_against_them(recipe, tmp_path):
    made = data.read("synthetic-fairness", size=2000)
    counts = [int((made.sensitive_train == group).sum()) for group in (0, 1)]
    given = {"options.groups": counts}
    path = recipe(RECIPE % "parity")
    planned, _ = training_run.planned(train.recipe_of(path, changes=given), tmp_path / "none")
    assert list(planned.sizes.values()) == [2000, *counts]
    assert planned.multiplier == training_run.planned(train.recipe_of(path), tmp_path / "none")[0].multiplier
    with pytest.raises(UsageError, match=r"groups: .*\[1000, 1000\]"):
        wpriv.train(path, out="done", set={"options.groups": [1000, 1000]})


@pytest.mark.slow
def test_the_papers_constant_asks_for_more_noise_at_the_same_eps(recipe, tmp_path):
    path = recipe(RECIPE % "parity")
    made = [train.recipe_of(path, changes={"options.sensitivity": name}) for name in ("tight", "paper")]
    tight, paper = (training_run.planned(each, tmp_path / "none")[0] for each in made)
    assert tight.multiplier == pytest.approx(paper.multiplier)
    smallest = min(count * 400 // 2000 for name, count in tight.sizes.items() if name != "records")
    # (7): 8 ML / min more, with the weight 0.5
    assert paper.release.sensitivity - tight.release.sensitivity == pytest.approx(0.5 * 8 / smallest)


@pytest.mark.slow
def test_a_penalty_brings_the_groups_together_at_the_price_of_accuracy(recipe):
    path = recipe((RECIPE % "parity").replace("steps: 10", "steps: 100"))
    free, fairer = (
        wpriv.train(path, out=f"a{a}", set={"options.alpha": a, "privacy": "none"}).metrics[-1] for a in (0.0, 0.9)
    )
    assert fairer["disparate_impact"] > free["disparate_impact"] + 0.3
    assert fairer["distance"] < free["distance"] / 5
    assert fairer["accuracy"] < free["accuracy"]
    assert free["accuracy"] > 0.75


@pytest.mark.slow
@pytest.mark.figures
def test_a_regression_leaves_points_and_shares_above_the_antidiagonal(recipe):
    done = wpriv.train(recipe(REGRESSION), out="done")
    assert {"accuracy", "od0", "od1", "risk", "distance"} <= done.metrics[-1].keys()
    assert "disparate_impact" not in done.metrics[-1]
    with (done.out / "scores.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert all(0 <= float(row["x"]) <= 1 for row in rows)
    assert (done.out / "scores.png").stat().st_size > 5000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"privacy.sampling": "poisson"}, "sampling: fixed; found poisson"),
        ({"options.alpha": 1.5}, "alpha"),
        ({"options.ranges": {"age": [3, 2]}}, "found \\[3, 2\\]"),
        ({"options.ranges": {"cor0": [0, 1]}}, "'cor0'.*'core0'"),
        ({"batch": 3000}, "batch: 3000"),
        ({"privacy.clip": "batch-mean"}, "clip is C"),
    ],
)
def test_keys_that_do_not_fit_the_task_are_refused(recipe, change, message):
    with pytest.raises(UsageError, match=message):
        wpriv.train(recipe(RECIPE % "parity"), out="done", set=change)


def test_data_that_cannot_be_compared_are_refused(recipe):
    digits = (RECIPE % "parity").replace("name: synthetic-fairness, size: 2000, test_size: 2000", "name: digits")
    with pytest.raises(UsageError, match=r"digits.*sensitive"):
        wpriv.train(recipe(digits), out="done")
    one = SimpleNamespace(
        name="d", sensitive="s", classes=("0", "1"), sensitive_train=np.zeros(3, int), y_train=np.array([0, 1, 1])
    )
    with pytest.raises(UsageError, match="s=1"):
        _fairness.groups(one)
    one.sensitive_train = np.array([0, 1, 2])
    with pytest.raises(UsageError, match="3 groups"):
        _fairness.groups(one)


def test_columns_are_brought_from_their_ranges_and_cut():
    x = np.array([[10.0, 5.0], [90.0, 7.0]], np.float32)
    found = fair._to_unit_ranges(x, ("age", "rest"), fair.Options(alpha=0.5, ranges={"age": [20, 60]}))
    assert found.tolist() == [[0.0, 5.0], [1.0, 7.0]]


# ---------------- sweeps and figures

SHIPPED = ["fig1-parity", "fig2-odds", "fig9-regression", "tight-or-paper", "adult", "german"]


@pytest.mark.slow
@pytest.mark.parametrize("name", nightly.sharded(SHIPPED, 6))
@pytest.mark.figures
def test_a_shipped_recipe_runs_with_its_quick_settings(name, tmp_path):
    made = load_recipe.read(f"wgrad/{name}", quick=True)
    try:
        done = sweep.run(made, tmp_path)
    except MissingResource as error:
        pytest.skip(str(error))
    assert len(done.rows) == done.cells == 2
    assert (tmp_path / "figure.png").stat().st_size > 5000
    assert (tmp_path / "scores.png").stat().st_size > 5000


@pytest.mark.slow
def test_a_sweep_puts_together_what_its_trainings_leave(recipe, tmp_path, capsys):
    from wpriv.cli.main import main

    grid = "figure: parity\nsweep: [{over: options.alpha, values: [0]}, {over: privacy.eps, values: ['inf', 4]}]\n"
    assert main(["train", str(recipe((RECIPE % "parity") + grid)), "--out", "grid"]) == 0
    names = {path.name for path in (tmp_path / "grid").iterdir() if path.is_file()}
    assert names == {
        "table.csv",
        "metrics.csv",
        "scores.csv",
        "recipe.yaml",
        "figure.png",
        "scores.png",
        "losses.png",
        "provenance.json",
        "statement.json",
        "statement.md",
    }
    with (tmp_path / "grid" / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {(row["panel"], row["case"]) for row in rows} == {("α = 0", "ε = ∞"), ("α = 0", "ε = 4")}
    with (tmp_path / "grid" / "scores.csv").open() as file:
        assert {row["panel"] for row in csv.DictReader(file)} == {"α = 0, ε = ∞", "α = 0, ε = 4"}
    again = load_recipe.read(tmp_path / "grid" / "recipe.yaml")
    assert again.data == train.recipe_of("toy.yaml").data
    capsys.readouterr()
    assert main(["plot", "grid", "--format", "svg"]) == 0
    assert capsys.readouterr().out.split() == ["grid/figure.svg", "grid/scores.svg", "grid/losses.svg"]


def drawn(module, rows):
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    module.draw(rows, axes)
    axes.figure.canvas.draw()
    return axes


@pytest.mark.slow
def test_fairness_is_drawn_over_alpha_with_a_line_for_each_eps_and_measure():
    rows = [
        {
            "options.alpha": a,
            "privacy.eps": e,
            "seed": s,
            "accuracy": 0.8 + 0.01 * s,
            "disparate_impact": a,
            "odds_gap": 1 - a,
        }
        for a in (0, 0.5)
        for e in (math.inf, 1)
        for s in (0, 1)
    ]
    axes = drawn(parity, rows)
    legend = [text.get_text() for text in axes.get_legend().get_texts()]
    assert legend == ["accuracy, ε = ∞", "disparate impact, ε = ∞", "accuracy, ε = 1", "disparate impact, ε = 1"]
    assert list(axes.lines[0].get_ydata()) == pytest.approx([0.805, 0.805])
    over_eps = drawn(odds, [row for row in rows if row["options.alpha"] == 0])
    assert [tick.get_text() for tick in over_eps.get_xticklabels()] == ["1", "∞"]
    with pytest.raises(KeyError):
        drawn(parity, [{"accuracy": 1.0}])


@pytest.mark.slow
def test_noise_losses_and_scores_are_drawn():
    rows = [
        {"options.sensitivity": s, "privacy.eps": e, "noise": (1 + (s == "paper")) / e, "loss": 0.2}
        for s in ("tight", "paper")
        for e in (5, 1)
    ]
    axes = drawn(noise, rows)
    assert [line.get_ydata()[-1] for line in axes.lines] == [1.0, 2.0]
    curves = drawn(losses, [{"case": c, "step": t, "loss": 1 / t} for c in ("ε = 1", "ε = ∞") for t in (1, 2)])
    assert [text.get_text() for text in curves.get_legend().get_texts()] == ["ε = 1", "ε = ∞"]
    plane = drawn(scores, [{"group": g, "x": 0.5, "y": 0.25} for g in (0, 1)])
    assert plane.get_xlabel() == "first predicted number"
    lines = drawn(
        scores,
        [{"group": g, "label": y, "x": x, "density": 2.0 * x} for g in (0, 1) for y in (0, 1) for x in (0.0, 0.5)],
    )
    assert len(lines.get_legend().get_texts()) == 4
