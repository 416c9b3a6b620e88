"""One figure for a run wherever it is asked, and two for a fork, each with what it assumes of the parameters.

Oracles: the accountants themselves on the steps that the ledger should hold.
"""

from __future__ import annotations

import json
import re

import pytest

from wpriv.accounting import evaluate
from wpriv.accounting.accountants import rdp_filter
from wpriv.accounting.mechanisms.gauss import Gauss
from wpriv.cli.main import main
from wpriv.core.kinds import Sampling
from wpriv.core.process import Process, Step
from wpriv.results import storage

pytestmark = pytest.mark.slow

RECIPE = """\
kind: train
source: "a test"
task: classify
data: {name: digits, limit: 300}
model: {name: mlp, width: 3, depth: 1, activation: tanh}
privacy: {eps: 3, delta: 1e-5}
optimizer: {name: sgd, lr: 1.0}
batch: 50
epochs: 3
accountants: [pld, rdp]
"""


@pytest.fixture
def trained(tmp_path, monkeypatch, capsys):
    """Train by the recipe, with keys changed, and give the statement."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toy.yaml").write_text(RECIPE)

    def train(*words: str) -> dict:
        assert main(["train", "toy.yaml", "--out", "out", *words]) == 0
        capsys.readouterr()
        return json.loads((tmp_path / "out" / storage.STATEMENT).read_text())

    return train


def budget(capsys, *words: str) -> dict:
    assert main(["budget", "--history", "out/ledger.jsonl", "--delta", "1e-5", "--json", *words]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_statement_and_the_history_of_a_run_give_one_figure(trained, capsys):
    (pld, rdp) = trained()["guarantees"]
    for row in (pld, rdp):
        found = budget(capsys, "--accountant", row["accountant"])
        for key in ("epsilon", "epsilon_lower", "epsilon_upper"):
            assert found[key] == row[key]
    assert 3 * (1 - 2e-6) < pld["epsilon"] <= 3


def test_the_last_epoch_of_the_metrics_has_the_figure_of_the_statement(trained, tmp_path):
    pld = trained()["guarantees"][0]
    lines = (tmp_path / "out" / storage.METRICS).read_text().splitlines()
    last = dict(zip(lines[0].split(","), lines[-1].split(","), strict=True))
    assert float(last["epsilon"]) == pytest.approx(pld["epsilon"], rel=1e-12)


def test_a_run_that_stops_before_its_target_states_no_more_than_it(trained):
    statement = trained("--set", "privacy.sigma=1.2")
    assert statement["steps"] < 18
    assert statement["guarantees"][0]["epsilon"] <= 3


def test_a_run_without_a_fork_has_one_figure(trained, capsys):
    assert "parameters" not in trained()
    assert "parameters" not in budget(capsys)


def test_the_statement_of_a_fork_holds_both_figures_and_what_each_assumes(trained, capsys, tmp_path):
    first = trained()
    statement = trained("--fork", "--set", "privacy.eps=5")
    figures = statement["parameters"]
    assert figures == budget(capsys)["parameters"]
    assert figures["runs"] == 2
    assert figures["fixed"]["epsilon"] == statement["guarantees"][0]["epsilon"] <= 5
    assert figures["adaptive"]["accountant"] == "rdp-filter"
    noise, rate = first["noise"]["multiplier"], first["sampling"]["rate"]
    steps = (
        Step(Gauss(noise), first["steps"], Sampling("poisson", rate)),
        Step(Gauss(statement["noise"]["multiplier"]), statement["steps"] - first["steps"], Sampling("poisson", rate)),
    )
    curve = rdp_filter.account(Process(steps))
    assert figures["adaptive"]["epsilon"] == pytest.approx(curve.epsilon(delta=1e-5), rel=1e-12)
    assert (
        figures["adaptive"]["epsilon_lower"] == evaluate.curve(Process(steps), "pld", 1e-6).at(delta=1e-5).epsilon.lower
    )
    # the noise was found for eps = 5 as if both runs had been planned together
    assert figures["adaptive"]["epsilon"] > 5
    assert any("led to this fork" in line for line in statement["warnings"])
    told = (tmp_path / "out" / storage.STATEMENT_TEXT).read_text()
    assert figures["fixed"]["assumes"] in told
    assert figures["adaptive"]["assumes"] in told


def test_the_plan_of_a_fork_names_what_the_runs_before_it_cost(trained, capsys):
    trained()
    assert main(["train", "toy.yaml", "--out", "out", "--fork", "--set", "privacy.eps=5", "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"the runs before it cost eps = (2\.99\d+|3) alone", printed), printed


def test_a_fork_of_plain_gauss_steps_costs_no_more_for_being_one(trained, tmp_path):
    (tmp_path / "toy.yaml").write_text(
        RECIPE.replace("batch: 50\n", "").replace("privacy: {", "privacy: {sampling: none, ")
    )
    trained()
    statement = trained("--fork", "--set", "privacy.eps=5")
    figures = statement["parameters"]
    assert figures["adaptive"]["accountant"] == "gdp"
    assert figures["adaptive"]["epsilon"] == pytest.approx(figures["fixed"]["epsilon"], rel=1e-12)
    assert figures["fixed"]["epsilon"] <= 5
    assert not any("led to this fork" in line for line in statement["warnings"])
