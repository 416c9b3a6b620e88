"""Sweeps whose last training cannot begin: refused before the first one does."""

from __future__ import annotations

import pytest

from wpriv.config import recipe, yaml_document
from wpriv.errors import WprivError
from wpriv.training import plan, sweep, train_data, training_grid

RECIPE = """\
kind: train
source: "a test"
task: classify
data: {name: digits, limit: 300}
model: {name: mlp, width: 16, depth: 1}
privacy: {sigma: 2, delta: 1e-5}
optimizer: {name: sgd, lr: 1.0}
batch: 50
epochs: 3
"""


def loaded(text):
    return recipe.check(yaml_document.parse(text, "toy.yaml"))


@pytest.mark.parametrize(
    ("axis", "last", "code"),
    [
        ("batch, values: [50, 100000]", "batch=100000", 2),
        ("privacy.noise, settings: {a: {privacy.sigma: 1}, b: {privacy: {eps: 1e-300, delta: 1e-5}}}", "b", 3),
        ("of, settings: {a: {data.limit: 200}, b: {data.name: usps}}", "of=b", 4),
    ],
)
def test_a_sweep_is_refused_before_its_first_training_where_the_last_cannot_begin(
    tmp_path, monkeypatch, axis, last, code
):
    monkeypatch.setenv("WPRIV_DATA", str(tmp_path))
    with pytest.raises(WprivError, match=last) as error:
        sweep.run(loaded(RECIPE + f"sweep: {{over: {axis}}}\n"), tmp_path / "out")
    assert error.value.exit_code == code
    assert not (tmp_path / "out").exists()


def test_a_sweep_is_refused_where_the_folder_of_a_training_holds_something_else(tmp_path):
    (tmp_path / "batch=60").mkdir()
    (tmp_path / "batch=60" / "thesis.txt").write_text("important")
    with pytest.raises(WprivError, match=r"batch=60: .*not results of a training"):
        sweep.run(loaded(RECIPE + "sweep: {over: batch, values: [50, 60]}\n"), tmp_path)


def test_data_are_loaded_once_and_runs_that_differ_in_the_seed_are_planned_once(tmp_path, monkeypatch):
    loads, plans = [], []
    load, make_plan = train_data.data, plan.plan
    monkeypatch.setattr(train_data, "data", lambda *args: loads.append(1) or load(*args))
    monkeypatch.setattr(plan, "plan", lambda *args: plans.append(1) or make_plan(*args))
    axes = "sweep: [{over: batch, values: [50, 60]}, {over: data.limit, values: [200, 300]}]\nseed: 1\nseeds: 3\n"
    training_grid.Grid(sweep.cells(loaded(RECIPE + axes)), tmp_path).require_plans()
    assert (len(loads), len(plans)) == (2, 4)


@pytest.mark.parametrize("figure", ["losses", "measures", "training"])
def test_a_sweep_is_refused_with_a_figure_of_the_course_of_one_training(figure):
    with pytest.raises(WprivError, match=f"'{figure}' draws one training over its course"):
        loaded(RECIPE + f"sweep: {{over: batch, values: [50, 60]}}\nfigure: {figure}\n")
