"""Audits of small trainings: honest ones are consistent, and every fault of the engine that is put in is detected."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.figure import Figure
from scipy import stats

from tests import nightly
from tests.training.audit import sabotage
from wpriv.accounting.mechanisms.gauss import Gauss
from wpriv.cli.main import main
from wpriv.core.guarantee import CLAIMS, RIGOROUS, STATISTICAL
from wpriv.core.kinds import FixedSize, Poisson
from wpriv.core.process import Process, Step
from wpriv.errors import CheckFailed, Unsupported
from wpriv.figures._trainings import audit as figure
from wpriv.training import plan, train_data
from wpriv.training.audit import audited_training
from wpriv.training.audit.audit import audit
from wpriv.training.audit.audited_training import Outcome, eps_of_guesses
from wpriv.training.train import recipe_of

WHOLE = Process((Step(Gauss(1.0)),))
RECIPE = """\
kind: train
source: "a test"
task: classify
data: {{name: digits, records: 1438, first: 300}}
model: {{name: mlp, width: 8, depth: 1, activation: tanh}}
privacy: {privacy}
optimizer: {{name: sgd, lr: 0.5}}
seed: 1
{more}
"""
SAMPLED = "batch: 30\nsteps: 60"


@pytest.fixture
def recipe(tmp_path):
    def written(privacy: str = "{eps: 3, delta: 1.0e-5}", more: str = SAMPLED) -> str:
        path = tmp_path / "small.yaml"
        path.write_text(RECIPE.format(privacy=privacy, more=more))
        return str(path)

    return written


def observed(path: str, canaries: int = 200, **changes: object) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Observations of the canaries and of other coordinates, the coins, and the noise multiplier of a training."""
    loaded = recipe_of(path, changes=changes)
    data = train_data.data(loaded, None)
    job = plan.plan(loaded, train_data.sizes_of(loaded, data))
    kept = []

    def sums(inner, others, rate, absent):
        kept.append((inner, others))
        return inner.sum(axis=0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(audited_training, "sums", sums)
        outcome = audited_training.train(job, data, canaries=canaries, fewer=False, run=1, seed=5, device="cpu")
    return *kept[0], outcome.coins, job.multiplier


@pytest.mark.slow
def test_a_canary_adds_its_clipped_gradient_in_a_poisson_sample_of_the_steps_where_it_is_in(recipe):
    inner, others, coins, sigma = observed(recipe("{sigma: 0.01, delta: 1.0e-5}"))
    assert inner.shape == (60, 200)
    assert 70 <= coins.sum() <= 130
    assert np.abs(others).max() < 7 * sigma
    assert np.abs(inner[:, ~coins]).max() < 7 * sigma
    there = inner[:, coins] > 0.5
    # a canary's gradient is ten times as long as the clipping norm
    assert np.abs(inner[:, coins] - there).max() < 7 * sigma
    assert stats.binomtest(int(there.sum()), there.size, 0.1).pvalue > 1e-3
    assert (
        stats.chisquare(
            np.bincount(np.minimum(there.sum(axis=0), 10), minlength=11),
            coins.sum() * np.append(stats.binom.pmf(range(10), 60, 0.1), stats.binom.sf(9, 60, 0.1)),
        ).pvalue
        > 1e-3
    )


@pytest.mark.slow
def test_the_noise_that_canaries_see_is_the_noise_of_the_plan(recipe):
    inner, others, coins, sigma = observed(recipe())
    noise = np.concatenate([others.ravel(), inner[:, ~coins].ravel()])
    assert stats.kstest(noise / sigma, "norm").pvalue > 1e-3


@pytest.mark.slow
def test_under_replace_one_a_canary_that_is_out_adds_the_opposite(recipe):
    inner, _, coins, sigma = observed(
        recipe("{sigma: 0.01, delta: 1.0e-5, sampling: none, adjacency: replace-one}", "steps: 2")
    )
    assert np.abs(inner - np.where(coins, 1.0, -1.0)).max() < 14 * sigma


@pytest.mark.slow
def test_exact_sums_hold_canaries_too(recipe):
    path = recipe("{sigma: 0.01, delta: 1.0e-5, noise: exact, sampling: none}", "steps: 1")
    inner, _, coins, sigma = observed(path, canaries=20)
    assert np.abs(inner - coins).max() < 7 * sigma


@pytest.mark.slow
@pytest.mark.parametrize("seed", nightly.sharded(range(20), 4))
def test_an_honest_training_is_consistent(seed, recipe):
    result = audit(recipe(), canaries=600, set={"seed": seed})
    assert not result.violated
    result.require()


@pytest.mark.slow
@pytest.mark.parametrize(("sampling", "more"), [("fixed", SAMPLED), ("none", "steps: 5")])
def test_an_honest_training_of_replaced_records_is_consistent_and_says_something(sampling, more, recipe):
    privacy = f"{{eps: 3, delta: 1.0e-5, sampling: {sampling}, adjacency: replace-one}}"
    result = audit(recipe(privacy, more), canaries=600, runs=2)
    assert 0 < result.best.epsilon_at_least < result.certified.epsilon.lower
    assert {test.statistic for test in result.tests} == {"sums"}


DETECTED = [fault for name, fault in sabotage.FAULTS.items() if name != "shuffled"]


@pytest.mark.slow
@pytest.mark.parametrize("fault", nightly.sharded(DETECTED, 3), ids=lambda fault: fault.__name__)
def test_a_fault_of_the_engine_is_detected(fault, monkeypatch):
    fault(monkeypatch)
    result = audit("quick/digits")
    assert result.violated
    with pytest.raises(CheckFailed, match="exceeds the certified upper end 3"):
        result.require()


@pytest.mark.slow
def test_an_honest_training_by_random_allocation_is_consistent(recipe):
    result = audit(recipe("{eps: 3, delta: 1.0e-5, sampling: allocation}"), canaries=600)
    assert 0 < result.best.epsilon_at_least < result.certified.epsilon.lower


@pytest.mark.slow
def test_weak_noise_without_sampling_is_detected(recipe, monkeypatch):
    sabotage.weak_noise(monkeypatch)
    monkeypatch.setattr(sabotage, "SHARE", 0.2)
    assert audit(recipe("{eps: 3, delta: 1.0e-5, sampling: none}", "steps: 5"), canaries=600).violated


@pytest.mark.slow
def test_two_worlds_of_an_honest_training_are_consistent(recipe):
    runs = 40 if nightly.WHOLE else 20
    honest = audit(recipe("{eps: 0.5, delta: 1.0e-5, sampling: none}", "steps: 1"), method="two-worlds", runs=runs)
    assert not honest.violated
    assert (honest.canaries, honest.runs) == (1, runs)


@pytest.mark.slow
def test_two_worlds_detect_a_training_almost_without_noise(recipe, monkeypatch):
    # with 20 trainings to count, no bound exceeds about 0.8
    sabotage.weak_noise(monkeypatch)
    monkeypatch.setattr(sabotage, "SHARE", 0.01)
    path = recipe("{eps: 0.5, delta: 1.0e-5, sampling: none}", "steps: 1")
    assert audit(path, method="two-worlds", runs=40).violated


def test_guesses_are_of_the_extreme_scores_and_the_levels_of_all_tests_add_up_to_five_percent():
    coins = np.arange(200) % 2 == 0
    outcomes = [
        Outcome(half, {"sums": half.astype(float), "differences": np.zeros(100)}, WHOLE)
        for half in (coins[:100], coins[100:])
    ]
    tests = audited_training.guess_tests(outcomes, 0.0)
    assert sum(test.error for test in tests) == pytest.approx(0.05)
    assert [test.guesses for test in tests if test.statistic == "sums"] == [10, 20, 50, 100]
    assert all(test.correct == test.guesses for test in tests if test.statistic == "sums")
    best = tests[3].epsilon_at_least
    assert best <= eps_of_guesses(100, 100, 200, 0.0, 0.05 / 8)


def scored(process, canaries, seed, noise=1e-9):
    """An outcome whose scores show the canaries that are drawn in some step, with a little normal noise."""
    rng = np.random.default_rng(seed)
    coins = rng.random(canaries) < 0.5
    (step,) = process.steps
    seen = rng.random(canaries) < 1 - (1 - step.sampling.rate) ** step.n
    replaced = process.adjacency == "replace-one"
    shown = np.where(coins, 1.0, -1.0 if replaced else 0.0) * (seen if step.sampling.rate < 1 else 1)
    score = shown + noise * rng.standard_normal(canaries)
    return Outcome(coins, {"sums": score, "differences": rng.standard_normal(canaries)}, process)


DESIGNS = {
    "few steps": (Process((Step(Gauss(1.0), 23, Poisson(0.089)),)), True),
    "fewest steps": (Process((Step(Gauss(1.0), 50, Poisson(0.01)),)), True),
    "many steps": (Process((Step(Gauss(1.0), 500, Poisson(0.089)),)), False),
    "all records": (WHOLE, False),
    "replaced": (Process((Step(Gauss(1.0), 10, FixedSize(0.1)),), "replace-one"), False),
}


@pytest.mark.parametrize("name", DESIGNS)
def test_the_ceiling_is_the_bound_of_a_training_without_noise(name):
    process, one_sided = DESIGNS[name]
    assert audited_training.is_one_sided(process, 2000, 1e-5, 2) == one_sided
    outcome = scored(process, 2000, 1)
    bound = max(test.epsilon_at_least for test in audited_training.guess_tests([outcome], 1e-5))
    assert bound == pytest.approx(audited_training.ceiling([outcome], 1e-5, "one-run"), abs=0.02)
    most = max(eps_of_guesses(r, r, 2000, 1e-5, 0.05 / 8) for r in (500, 1000))
    assert 3.5 < bound <= most
    assert audited_training.ceiling([outcome], 0.01, "one-run") == 0


def test_the_ceiling_of_two_worlds_counts_the_canaries_that_no_step_draws():
    process = Process((Step(Gauss(1.0), 23, Poisson(0.089)),))
    outcomes = [scored(process, 1, seed) for seed in range(400)]
    bound = max(test.epsilon_at_least for test in audited_training.rank_tests(outcomes, 1e-5))
    assert bound == pytest.approx(audited_training.ceiling(outcomes, 1e-5, "two-worlds"), abs=0.2)


@pytest.mark.parametrize("eps", [0.5, 2.0])
def test_guesses_of_in_alone_err_as_rarely_as_stated(eps):
    # scores that say "in" by randomised response of each coin: the guesses are exactly eps-DP in it
    process, rng, wrong = DESIGNS["fewest steps"][0], np.random.default_rng(5), 0
    audits = 300 if nightly.WHOLE else 100
    for _ in range(audits):
        coins = rng.random(400) < 0.5
        answers = coins ^ (rng.random(400) < 1 / (1 + np.exp(eps)))
        outcome = Outcome(coins, {"sums": answers + 1e-3 * rng.standard_normal(400)}, process)
        wrong += max(test.epsilon_at_least for test in audited_training.guess_tests([outcome], 0.0)) > eps
    assert wrong <= audits * 0.05 + 4 * np.sqrt(audits * 0.05 * 0.95)


@pytest.mark.slow
def test_an_audit_that_could_not_contradict_says_so(recipe, tmp_path, capsys):
    path = recipe("{eps: 8, delta: 1.0e-5}", "batch: 30\nsteps: 3")
    assert main(["audit", path, "--canaries", "100", "--out", str(tmp_path / "out"), "--json"]) == 3
    out, err = capsys.readouterr()
    answer = json.loads(out)
    assert answer["verdict"] == "cannot contradict"
    assert answer["epsilon_at_least"] <= answer["ceiling"] < 8
    assert "cannot contradict eps = 8" in err


@pytest.mark.slow
def test_the_certified_eps_is_that_of_the_group_that_the_recipe_protects(recipe):
    more = "batch: 30\nsteps: 3"
    one = audit(recipe("{sigma: 4, delta: 1.0e-5}", more), canaries=50)
    three = audit(recipe("{sigma: 4, delta: 1.0e-5, group: 3}", more), canaries=50)
    assert three.certified.process.group == 3
    assert three.certified.epsilon.safe > 2 * one.certified.epsilon.safe
    assert any("up to 3 records" in line for line in three.as_dict()["warnings"])


def test_two_worlds_count_the_most_extreme_scores():
    rng = np.random.default_rng(0)
    coins = rng.random(400) < 0.5
    score = coins * 4.0 + rng.standard_normal(400)
    outcomes = [Outcome(coins[[i]], {"sums": score[[i]]}, WHOLE) for i in range(400)]
    (test,) = audited_training.rank_tests(outcomes, 0.0)
    assert test.epsilon_at_least > 2.5
    reversed_coins = [replace(outcome, coins=~outcome.coins) for outcome in outcomes]
    assert audited_training.rank_tests(reversed_coins, 0.0)[0].epsilon_at_least == 0


def test_the_claim_of_an_audit_is_no_claim_of_an_accountant():
    assert STATISTICAL not in CLAIMS
    assert STATISTICAL not in RIGOROUS


@pytest.mark.slow
def test_the_files_hold_the_answer(recipe, tmp_path, capsys):
    path = recipe("{eps: 1, delta: 1.0e-5}", "batch: 30\nsteps: 3")
    assert main(["audit", path, "--canaries", "600", "--out", str(tmp_path / "out"), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    stored = json.loads((tmp_path / "out" / "audit.json").read_text())
    assert printed["claim"] == stored["claim"] == "statistical"
    assert stored["schema"] == "wpriv.audit/1"
    assert stored["verdict"] == "consistent"
    assert stored["epsilon_at_least"] <= stored["certified"]["epsilon_lower"] <= stored["certified"]["epsilon_upper"]
    assert (stored["canaries"], stored["runs"], stored["confidence"]) == (600, 1, 0.95)
    assert {name.name for name in (tmp_path / "out").iterdir()} == {
        "audit.json",
        "audit.csv",
        "audit.png",
        "recipe.yaml",
    }
    # again: an earlier audit is replaced
    assert main(["audit", path, "--canaries", "600", "--out", str(tmp_path / "out")]) == 0
    assert "with 95% confidence (statistical, not a guarantee)" in " ".join(capsys.readouterr().out.split())


@pytest.mark.slow
def test_a_violation_is_printed_and_exits_with_1(recipe, tmp_path, capsys, monkeypatch):
    sabotage.no_clipping(monkeypatch)
    assert main(["audit", recipe(), "--out", str(tmp_path / "out")]) == 1
    out, err = capsys.readouterr()
    assert out.startswith("VIOLATED: the audit's lower bound exceeds the certified upper end")
    assert "the training is not as private as certified" in err
    assert json.loads((tmp_path / "out" / "audit.json").read_text())["verdict"] == "VIOLATED"


def test_the_figure_marks_the_gap_or_the_violation():
    row = {"statistic": "sums", "guesses": 10, "correct": 9, "certified_lower": 1.9, "certified_upper": 2.0}
    for bound, word in ((0.5, "gap 1.5"), (2.5, "VIOLATED by 0.5")):
        axes = Figure().subplots()
        figure.draw([{**row, "epsilon_at_least": bound}], axes)
        assert word in [text.get_text() for text in axes.texts]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--method", "two-runs"], 2, "two-worlds"),
        (["--method", "two-worlds", "--canaries", "5"], 2, "--canaries 5"),
        (["--method", "two-worlds", "--runs", "2"], 2, "--runs must be from 8"),
        (["--canaries", "0"], 2, "--canaries must be at least 1"),
        (["--canaries", "100000"], 2, "--canaries must be at most"),
        (["--runs", "0"], 2, "--runs must be from 1"),
        (["--device", "tpu"], 2, "--device must be cpu or cuda"),
        (["--set", "privacy=none"], 3, "without privacy"),
        (
            ["--set", "privacy.eps=null", "--set", "privacy.sigma=1", "--set", "privacy.clip=batch-mean"],
            3,
            "Give clip a number",
        ),
        (["--set", "privacy.sampling=shuffle"], 2, "shuffled"),
    ],
)
def test_what_cannot_be_audited_is_refused_by_name(words, code, message, recipe, tmp_path, capsys):
    assert main(["audit", recipe(), "--out", str(tmp_path / "out"), *words]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert not (tmp_path / "out").exists()


def test_sweeps_and_other_folders_are_refused_by_name(recipe, tmp_path, capsys):
    assert main(["audit", recipe(more=SAMPLED + "\nsweep: {over: seed, values: [1, 2]}")]) == 2
    assert "is a sweep" in capsys.readouterr().err
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("")
    assert main(["audit", recipe(), "--out", str(tmp_path / "full")]) == 2
    assert "Name another folder with --out" in capsys.readouterr().err


def test_the_tasks_that_can_be_audited_are_named(capsys):
    # before its data are read
    assert main(["audit", "dpswd/table2-mnist-merf"]) == 3
    assert "as the tasks classify and fit release them; found the task merf" in capsys.readouterr().err


def test_several_processes_are_refused(recipe, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(Unsupported, match="torchrun"):
        audit(recipe(), canaries=10)
