"""Recipes are loaded from files, down to the mechanism, and nothing is computed on the way."""

from __future__ import annotations

from pathlib import Path

import pytest

from wpriv.accounting import evaluate, history, load_recipe
from wpriv.core.pair_distances import Observed
from wpriv.errors import UsageError

RECIPE = """\
kind: compare
source: "a test"
process:
  - {mech: histogram, file: h.csv, n: 2}
accountants: [pld]
eps: 0
"""


def test_files_of_a_step_are_read_beside_the_recipe(tmp_path: Path):
    (tmp_path / "r.yaml").write_text(RECIPE)
    (tmp_path / "h.csv").write_text("outcome,p,q\n0,0.5,0.25\n1,0.5,0.75\n")
    loaded = load_recipe.read(tmp_path / "r.yaml")
    assert loaded.data["process"][0]["file"] == str((tmp_path / "h.csv").resolve())


@pytest.mark.parametrize(
    ("step", "word"),
    [
        ("{mech: gauss, sigma: -1}", r"r.yaml:4:5: .*sigma"),
        ("{mech: gauss}", r"r.yaml:4:5: .*sigma"),
        ("{mech: gauss, sigma: 1, rate: 0.1}", r"r.yaml:4:5: .*rate"),
    ],
)
def test_what_a_mechanism_refuses_has_the_place_of_its_step(tmp_path, step, word):
    (tmp_path / "r.yaml").write_text(RECIPE.replace("{mech: histogram, file: h.csv, n: 2}", step))
    with pytest.raises(UsageError, match=word):
        load_recipe.read(tmp_path / "r.yaml")


def test_a_swept_parameter_need_not_be_given(tmp_path):
    text = (
        RECIPE.replace("{mech: histogram, file: h.csv, n: 2}", "{mech: gauss}")
        + "sweep: {over: sigma, values: [1, 2]}\n"
    )
    (tmp_path / "r.yaml").write_text(text)
    assert load_recipe.read(tmp_path / "r.yaml").kind == "compare"


@pytest.mark.parametrize(
    "text",
    [
        "kind: privatize\ndata: {file: x.npy}\nmech: local-gauss\nradius: 4\neps: 3\ndelta: 1e-4\n",
        "kind: calibrate\nprocess: [{mech: gauss, n: 10}]\neps: 1\ndelta: 1e-5\n",
        'kind: budget\nprocess: [{mech: gauss, sigma: 4, observed: "weibull:shape=0.5"}]\ndelta: 1e-5\n',
    ],
)
def test_loading_neither_accounts_nor_draws(tmp_path, monkeypatch, text):
    def refuse(*_args, **_given):
        pytest.fail("a number was computed")

    monkeypatch.setattr(evaluate, "curve", refuse)
    monkeypatch.setattr(history, "observed", refuse)
    monkeypatch.setattr(Observed, "__post_init__", refuse, raising=False)
    (tmp_path / "r.yaml").write_text(text)
    assert load_recipe.read(tmp_path / "r.yaml").kind in text
