"""Trainings with correlated noise: plan, ledger, statement and loops of one's own have the eps of the calculator.

Oracle: ``wpriv.budget`` on the numbers that were given by hand. The noise itself is tried in
tests/training/engine/test_correlated_noise.py, the certified bracket in tests/accounting/mechanisms.
"""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
import yaml

import wpriv
from tests.command_line import call as command
from wpriv.accounting import ledger
from wpriv.accounting.mechanisms.matrix_gauss import MatrixGauss
from wpriv.core.kinds import Allocation
from wpriv.core.process import Process, Step
from wpriv.errors import Interrupted, UsageError
from wpriv.results import storage
from wpriv.training import train, training_run

# 300 records in 6 bins of 50
RECIPE = """\
kind: train
source: "a test"
task: classify
data: {name: digits, limit: 300}
model: {name: mlp, width: 3, depth: 1, activation: tanh}
privacy: {sigma: 3, delta: 1e-5, noise: {strategy: "lambda:0.5"}}
optimizer: {name: sgd, lr: 1.0}
batch: 50
epochs: 2
"""
BINS = {"sampling": "balls-in-bins", "bins": 6, "epochs": 2}


def expected(strategy: str, sigma: float = 3.0) -> float:
    return wpriv.budget("matrix-gauss", sigma=sigma, strategy=strategy, delta=1e-5, **BINS).epsilon.safe


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "toy.yaml"
    path.write_text(RECIPE)
    return path


@pytest.mark.slow
def test_plan_ledger_and_statement_give_the_eps_of_the_calculator(recipe, tmp_path, capsys):
    plan = json.loads(command(capsys, "train", recipe, "--dry-run", "--json")[1])
    done = train.train(recipe, out="out")
    eps = expected("lambda:0.5")
    assert plan["epsilon"] == done.guarantees[0].epsilon.safe == eps
    # a part of the steps is a part of one release
    assert [(row["step"], row["epsilon"]) for row in plan["epochs"]] == [(6, eps), (12, eps)]
    assert json.loads(command(capsys, "budget", "--history", "out", "--delta", "1e-5", "--json")[1])["epsilon"] == eps
    [row] = done.statement["process"]
    assert (row["mech"], row["strategy"], row["n"]) == ("matrix-gauss", "lambda:0.5,n=12", 12)
    text = (tmp_path / "out" / storage.STATEMENT_TEXT).read_text()
    for words in (
        "balls-in-bins, rate 0.166667 (batch 50 of 300), passes of 6 steps",
        "every record draws one of the 1 / rate bins",
        "row t of C^-1 Z in step t, Z of standard deviation 3, strategy C = lambda:0.5,n=12 (that of the last "
        "step is drawn again from the stream)",
        "keeps it in every epoch",
    ):
        assert words in text
    kept = yaml.safe_load((tmp_path / "out" / "recipe.yaml").read_text())["privacy"]["noise"]
    assert kept == {"strategy": "lambda:0.5"}


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["identity", "banded:2", "blt:1", "bisr:3"])
def test_every_strategy_is_planned_at_the_eps_of_the_calculator(recipe, strategy):
    plan, _ = training_run.planned(
        train.recipe_of(recipe, changes={"privacy.noise": {"strategy": strategy}}), recipe.parent / "out"
    )
    assert plan.eps() == expected(strategy)


@pytest.mark.slow
def test_noise_found_for_a_target_keeps_it_and_less_noise_would_not(recipe):
    recipe.write_text(RECIPE.replace("sigma: 3", "eps: 2").replace("batch: 50", "batch: 150"))
    plan, _ = training_run.planned(train.recipe_of(recipe), recipe.parent / "out")
    bins = {"sampling": "balls-in-bins", "bins": 2, "epochs": 2, "strategy": "lambda:0.5", "delta": 1e-5}
    assert wpriv.budget("matrix-gauss", sigma=plan.multiplier, **bins).epsilon.safe <= 2
    assert wpriv.budget("matrix-gauss", sigma=0.98 * plan.multiplier, **bins).epsilon.safe > 2


def test_a_run_that_was_stopped_ends_with_the_weights_of_one_that_was_not(recipe):
    seeded = train.recipe_of(recipe, changes={"seed": 3})
    whole = train.run(seeded, recipe.parent / "whole", stop=lambda: None)
    steps = []
    with pytest.raises(Interrupted):
        train.run(
            seeded, recipe.parent / "part", stop=lambda: steps.append(0) or ("a test" if len(steps) == 4 else None)
        )
    rest = train.run(seeded, recipe.parent / "part", resume=True)
    one, other = (torch.load(run.out / storage.MODEL, weights_only=True)["weights"] for run in (whole, rest))
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.slow
def test_a_fork_of_a_stopped_run_states_both_trainings_whole(recipe):
    steps = []
    with pytest.raises(Interrupted):
        train.run(
            train.recipe_of(recipe),
            recipe.parent / "out",
            stop=lambda: steps.append(0) or ("a test" if len(steps) == 4 else None),
        )
    forked = train.run(train.recipe_of(recipe, changes={"optimizer.lr": 0.5}), recipe.parent / "out", fork=True)
    assert [row["n"] for row in forked.statement["process"]] == [12, 12]
    assert forked.statement["cut_passes"] == [{"run": 1, "steps": 4, "pass_steps": 12, "correlated": True}]
    text = (forked.out / storage.STATEMENT_TEXT).read_text()
    assert "run 1 took 4 of the 12 steps of its training, whose noise is correlated: it is accounted for as" in text
    row = wpriv.budget(Process((Step(MatrixGauss(3.0, "lambda:0.5"), 12, Allocation(1 / 6)),) * 2), delta=1e-5)
    assert forked.guarantees[0].epsilon.safe == row.epsilon.safe > 1.3 * expected("lambda:0.5")


def records():
    rng = np.random.default_rng(0)
    return rng.normal(size=(60, 4)).astype("float32"), rng.integers(0, 3, 60)


LOOP = {"sigma": 3.0, "delta": 1e-5, "noise": {"strategy": "lambda:0.5"}, "batch": 10, "epochs": 2, "lr": 0.1}


def test_a_loop_of_ones_own_pays_for_all_planned_steps_however_many_it_takes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with wpriv.training_loop(torch.nn.Linear(4, 3), records(), test=records(), **LOOP) as run:
        for batch in run:
            run.step()
            if batch.step == 5:
                run.finish()
                break
    eps = expected("lambda:0.5")
    assert run.result.guarantees[0].epsilon.safe == eps
    assert len(ledger.entries(run.result.out / storage.LEDGER)) == 5
    text = (run.result.out / storage.STATEMENT_TEXT).read_text()
    assert "the guarantee is that of all planned steps." in text  # and none is named for those that ran


def test_a_parameter_keeps_its_digits_in_what_runs_and_is_accounted_for(recipe):
    changes = {"privacy.noise": {"strategy": "lambda", "value": 0.123456789}, "epochs": 1, "batch": 150}
    plan, _ = training_run.planned(train.recipe_of(recipe, changes=changes), recipe.parent / "out")
    assert plan.step.mechanism.strategy == "lambda:value=0.123456789,n=2"
    assert plan.recursion.draws[1] / plan.recursion.draws[0] == -0.123456789


def test_a_name_alone_is_the_strategy(recipe):
    named, given = (
        train.recipe_of(recipe, changes={"privacy.noise": noise})
        for noise in ("lambda:0.5", {"strategy": "lambda:0.5"})
    )
    assert named == given


def test_a_network_of_ones_own_takes_noise_as_a_keyword(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = wpriv.train(torch.nn.Linear(4, 3), records(), test=records(), progress=False, **LOOP)
    assert done.guarantees[0].epsilon.safe == expected("lambda:0.5")
    assert done.statement["noise"]["strategy"] == "lambda:0.5,n=12"


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"privacy.noise": {"strategy": "lamda"}}, "no strategy called 'lamda'; did you mean 'lambda'"),
        ({"privacy.noise": {"strategy": "lambda", "bands": 3}}, "lambda has no option 'bands'"),
        ({"privacy.noise": {"strategy": "lambda", "value": 1.5}}, "value: must be less than 1; found 1.5"),
        ({"privacy.noise": "lamda:0.5"}, "no strategy called 'lamda'; did you mean 'lambda'"),
        ({"privacy.noise": {"stratgy": "lambda"}}, "unknown key 'stratgy'; did you mean 'strategy'"),
        ({"privacy.noise": {"strategy": "C.npy"}}, "takes a strategy by name"),
        ({"privacy.noise": {"strategy": "lambda:n=12"}}, "leave out n=12"),
        ({"privacy.noise": "exakt"}, "noise: must be 'rounded' or 'exact'"),
        ({"privacy.sampling": "poisson"}, "records that keep one bin; found sampling: poisson"),
        ({"privacy.adjacency": "replace-one"}, "accounted for under add-remove"),
        ({"privacy.group": 2}, "no proof for groups of records"),
        ({"privacy.clip": "batch-mean"}, "sums of records that are clipped one by one"),
        ({"privacy.adapt": {}}, "correlated noise is on sums of one norm"),
        ({"privacy.eps": 1.0}, "give eps or sigma"),
        ({"accountants": ["bdp"]}, "steps with independent noise"),
        ({"steps": 7}, "whole passes, here of 6 steps"),
        ({"privacy.noise": {"strategy": "bsr:3"}, "shard_weights": True}, "keeps 2 vectors of earlier noise"),
    ],
)
def test_what_is_not_proven_is_refused_before_anything_is_spent(recipe, changed, words):
    with pytest.raises((UsageError, wpriv.errors.Unsupported)) as refusal:
        training_run.planned(train.recipe_of(recipe, changes=changed), recipe.parent / "out")
    assert words in str(refusal.value)
    assert not (recipe.parent / "out").exists()


def test_an_audit_is_refused_since_its_scores_take_steps_for_independent(recipe, capsys):
    code, _, err = command(capsys, "audit", recipe)
    assert code == 3
    assert "correlated noise" in err
