"""Tuned trainings: what is kept, what resuming does, and what is refused; privacy figures against the calculator."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys

import numpy as np
import pytest
from safetensors import safe_open

import wpriv
from tests import nightly
from tests.command_line import call
from tests.points import ROOT
from tests.training.tuning_kills import RECIPE, digest
from wpriv.cli.main import main
from wpriv.core.repeats import Repeats
from wpriv.errors import Interrupted, UsageError
from wpriv.results import storage
from wpriv.training import train, train_data, training_grid, tuning
from wpriv.training.metric_logs import Logs
from wpriv.training.tuning import Draw

FINGERPRINT = "of the records"


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "tuned.yaml"
    path.write_text(RECIPE)
    return path


def run(capsys, *words):
    return call(capsys, "train", *words)


def test_the_number_of_runs_has_the_distribution_of_the_recipe():
    repeats = Repeats("geometric", 4)
    draws = [tuning.draw(repeats, 3, FINGERPRINT, seed) for seed in range(4000)]
    counts = np.array([len(each.candidates) for each in draws])
    # P(K = k) = (1/4) (3/4)^(k - 1); five standard errors
    for k in (1, 2, 5):
        share = 0.25 * 0.75 ** (k - 1)
        assert abs(np.mean(counts == k) - share) < 5 * math.sqrt(share * (1 - share) / counts.size)
    drawn = np.bincount([number for each in draws for number in each.candidates], minlength=3)
    assert np.all(np.abs(drawn / drawn.sum() - 1 / 3) < 5 * math.sqrt(2 / 9 / drawn.sum()))
    assert all(len(each.ties) == len(each.candidates) for each in draws)


def test_choices_without_a_seed_are_not_repeated_and_runs_have_different_seeds():
    free = [tuning.draw(Repeats("geometric", 20), 10, FINGERPRINT, None) for _ in range(4)]
    assert len({str(each) for each in free}) == 4
    assert len({training_grid.seed_of_run(7, number) for number in range(50)}) == 50
    assert training_grid.seed_of_run(None, 3) is None


@pytest.mark.parametrize(
    ("metrics", "best", "score"),
    [
        ([{"accuracy": 0.2}, {"accuracy": 0.5}], "highest", 0.5),
        ([{"accuracy": 0.5}], "lowest", -0.5),
        ([{"accuracy": math.nan}], "highest", -math.inf),
        ([{"loss": 1.0}], "lowest", -math.inf),
        ([], "highest", -math.inf),
    ],
)
def test_a_score_that_is_no_number_is_the_worst(metrics, best, score):
    assert tuning.score_of(metrics, "accuracy", best) == score


def test_choices_that_are_lost_or_of_other_records_are_not_made_again(tmp_path):
    choices = Draw([0, 1], [5, 6], FINGERPRINT)
    assert tuning.read_draw(tmp_path, FINGERPRINT) is None
    tuning.write_draw(choices, tmp_path)
    assert tuning.read_draw(tmp_path, FINGERPRINT) == choices
    with pytest.raises(UsageError, match="other records"):
        tuning.read_draw(tmp_path, "others")
    (tmp_path / tuning.FILE).write_text("{")
    with pytest.raises(UsageError, match="must not be drawn a second time"):
        tuning.read_draw(tmp_path, FINGERPRINT)
    (tmp_path / tuning.FILE).unlink()
    (tmp_path / "0").mkdir()
    with pytest.raises(UsageError, match="must not be drawn a second time"):
        tuning.read_draw(tmp_path, FINGERPRINT)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("tune.score.records=private", "a release of every run"),
        ("tune.score.column=loss", "Its scores: accuracy"),
        ("tune.repeats=fixed:5", "a fixed number of runs has no bound"),
        ("privacy.eps=2", "give eps (the noise is solved for) or sigma, and not both"),
        ("privacy=none", "use sweep, or give privacy"),
        ("sweep={over: batch, values: [20, 40]}", "give one of tune and sweep"),
        ("tune.sweep={over: seed, values: [1, 2]}", "seed is the same for all candidates"),
        ("tune.sweep={over: privacy.delta, values: [1e-5]}", "privacy.delta is the same for all candidates"),
        ("tune.sweep={over: kind_of, settings: {a: {data.limit: 50}}}", "data.limit is the same for all candidates"),
        ("tune.sweep={over: privacy.clip, values: [1.0, batch-mean]}", "the published procedure"),
        ("accountants=[wdp]", "wdp observes gradients of one run"),
        ("tune.score=5", "score"),
        ("tune.repeat=5", "unknown key 'repeat'; did you mean 'repeats'"),
    ],
)
def test_faults_of_a_recipe_are_named(recipe, capsys, change, words):
    code, out, err = run(capsys, recipe, "--set", change, "--dry-run")
    assert (code, out) == (2, "")
    assert words in err


@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        (["--fresh"], 2, "--fresh is for one training"),
        (["--fork"], 2, "--fork is for one training"),
        (["--jobs", "2"], 2, "--jobs"),
        (["--certificate", "c.json"], 2, "--certificate holds the bracket of one training"),
        (["--set", "tune.repeats=geometric:mean=501", "--dry-run"], 3, "means of up to 500"),
        (
            [
                "--set",
                "tune.sweep={over: privacy.sampling, values: [poisson, fixed]}",
                "--set",
                "batch=40",
                "--dry-run",
            ],
            3,
            "no common cost",
        ),
    ],
)
def test_flags_of_one_training_and_impossible_tunings_are_refused(recipe, capsys, flags, code, words):
    result = run(capsys, recipe, *flags)
    assert result[0] == code
    assert words in result[2]


def test_an_audit_of_a_tuned_training_is_refused(recipe, capsys):
    assert main(["audit", str(recipe)]) == 2
    assert "keeps the best (tune)" in capsys.readouterr().err


@pytest.mark.slow
def test_a_dry_run_states_the_cost_of_the_whole_beside_that_of_one_run(recipe, capsys):
    code, out, _ = run(capsys, recipe, "--dry-run", "--json", "--set", "batch=40")
    plan = json.loads(out)
    step = {"sigma": 2, "sampling": "poisson", "rate": 40 / 120, "n": 3, "delta": 1e-5}
    assert code == 0
    whole = wpriv.budget("gauss", **step, repeats="geometric:mean=2.5").epsilon
    assert plan["guarantees"][0]["epsilon"] == pytest.approx(whole.safe, rel=1e-4)
    assert plan["guarantees"][0]["claim"] == "upper-bound"
    one = wpriv.budget("gauss", **step).epsilon.safe
    assert plan["guarantees"][0]["repeats"]["one_run"] == pytest.approx(one, rel=1e-5)
    assert (plan["runs_mean"], len(plan["candidates"])) == (2.5, 3)
    # P(K > k) = 0.6^k: 0.6^9 = 0.0101, 0.6^10 = 0.006
    assert plan["runs_99"] == 10
    text = run(capsys, recipe, "--dry-run", "--set", "batch=40")[1]
    assert "  one run  eps = " in text
    assert "the best of K runs, K geometric with mean 2.5" in text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("batch", "axes"),
    [  # with all records in each step the account is quick
        (120, "{over: steps, values: [1, 3]}"),
        pytest.param(40, "{over: batch, values: [20, 40]}", marks=pytest.mark.nightly),
    ],
)
def test_a_target_holds_for_the_whole_and_for_candidates_of_several_costs(recipe, capsys, batch, axes):
    target = ("--set", "privacy={eps: 3, sigma: null, delta: 1e-5}", "--set", f"batch={batch}")
    code, out, err = run(capsys, recipe, "--dry-run", "--json", *target)
    assert code == 0, err
    plan = json.loads(out)
    assert 3 * (1 - 1e-3) <= plan["guarantees"][0]["epsilon"] <= 3
    code, out, err = run(capsys, recipe, "--dry-run", "--json", *target, "--set", f"tune.sweep={axes}")
    assert code == 0, err
    several = json.loads(out)
    sigmas = [row["sigma"] for row in several["candidates"]]
    assert several["guarantees"][0]["epsilon"] <= 3
    assert sigmas[0] < sigmas[1] == pytest.approx(plan["candidates"][0]["sigma"], rel=0.05)


@pytest.mark.slow
def test_only_the_best_run_is_left_and_the_statement_is_about_the_whole(recipe, tmp_path, capsys):
    code, out, err = run(capsys, recipe, "--out", "done")
    assert code == 0, err
    kept = (set(storage.TRAINING) - {storage.DIAGNOSTICS}) | {storage.CANDIDATE}
    assert {path.name for path in (tmp_path / "done").rglob("*")} == kept
    statement = json.loads((tmp_path / "done" / storage.STATEMENT).read_text())
    assert statement["tuning"]["one_run"]["pld"] < statement["guarantees"][0]["epsilon"]
    assert statement["tuning"]["chosen"] in statement["tuning"]["candidates"]
    assert len({path.stat().st_mtime // 60 for path in (tmp_path / "done").iterdir()}) <= 2
    assert not re.search(r"step \d+ of|training \d+ of|loss", err)
    words = (tmp_path / "done" / storage.STATEMENT_TEXT).read_text()
    for part in ("the best of K runs", "one run alone, not chosen among others", "who observes them may learn K"):
        assert part in words
    assert "the best of K runs" in " ".join(out.split())
    # the same command shows the results again, other trainings do not continue from them
    assert run(capsys, recipe, "--out", "done")[0] == 0
    other = tmp_path / "other.yaml"
    other.write_text(RECIPE.partition("tune:")[0])
    for flag in ("--fork", "--fresh", "--resume"):
        assert run(capsys, other, "--out", "done", flag)[0] == 2
    assert main(["verify", str(tmp_path / "done")]) == 3


@pytest.mark.slow
def test_weights_report_and_checklist_state_the_guarantee_of_the_whole(recipe, tmp_path, capsys):
    assert run(capsys, recipe, "--out", "out")[0] == 0
    statement = json.loads((tmp_path / "out" / storage.STATEMENT).read_text())
    with safe_open(tmp_path / "out" / storage.WEIGHTS, framework="np") as weights:
        header = weights.metadata()
    whole = statement["guarantees"][0]["epsilon"]
    assert float(header["epsilon"]) == whole > statement["tuning"]["one_run"]["pld"]
    assert main(["report", "out"]) == 0
    assert "fits statement.json" in capsys.readouterr().out
    assert main(["report", "out", "--as", "checklist"]) == 0
    assert "The guarantee is that of the best of K runs" in capsys.readouterr().out


@pytest.mark.slow
def test_a_tuned_training_sends_no_figures(recipe):
    with pytest.raises(UsageError, match="`log` sends the numbers of one training"):
        train.run(train.recipe_of(recipe), recipe.parent / "out", logs=Logs(("tensorboard",)))


@pytest.mark.slow
def test_the_kept_files_do_not_depend_on_the_other_runs(recipe, tmp_path, monkeypatch):
    """The run of lr = 1, with one seed, wins against several numbers of other runs, at several places among them."""
    job = train.recipe_of(recipe)
    folders = []
    for name, candidates, place in (("alone", [1], 0), ("first", [1, 0, 0], 0), ("last", [0, 2, 1], 2)):
        monkeypatch.setattr(tuning, "draw", lambda *_, of=candidates: Draw(of, list(range(len(of))), _fingerprint(job)))
        monkeypatch.setattr(
            training_grid, "seed_of_run", lambda seed, number, at=place: 100 if number == at else number
        )
        scores = iter([float(number == place) for number in range(len(candidates))])
        monkeypatch.setattr(tuning, "score_of", lambda *_, scores=scores: next(scores))
        tuning.run(job, tmp_path / name)
        folders.append(digest(tmp_path / name))
    assert folders[0] == folders[1] == folders[2]


def _fingerprint(job):
    return train_data.data(job, None).fingerprint


@pytest.mark.slow
def test_where_no_run_is_drawn_only_the_statement_is_released(recipe, tmp_path, monkeypatch, capsys):
    job = train.recipe_of(recipe, changes={"tune.repeats": "poisson:mean=0.5"})
    monkeypatch.setattr(tuning, "draw", lambda *_: Draw([], [], _fingerprint(job)))
    code, out, err = run(capsys, recipe, "--set", "tune.repeats=poisson:mean=0.5", "--out", "none")
    assert (code, "nothing is released" in out) == (0, True), err
    assert not (tmp_path / "none" / storage.MODEL).exists()
    statement = json.loads((tmp_path / "none" / storage.STATEMENT).read_text())
    assert statement["tuning"]["chosen"] is None
    assert statement["guarantees"][0]["epsilon"] > 0
    again = run(capsys, recipe, "--set", "tune.repeats=poisson:mean=0.5", "--out", "none", "--json")
    assert json.loads(again[1])["metrics"] is None
    trained = wpriv.train(recipe, set={"tune.repeats": "poisson:mean=0.5"}, out="none")
    assert "none" in repr(trained)
    assert [row["accountant"] for row in trained.results()] == ["pld"]
    about = json.loads((tmp_path / "none" / storage.PROVENANCE).read_text())
    (tmp_path / "none" / storage.PROVENANCE).write_text(json.dumps(about | {"data_fingerprint": "of others"}))
    code, _, err = run(capsys, recipe, "--set", "tune.repeats=poisson:mean=0.5", "--out", "none")
    assert (code, "other records" in err) == (2, True)


@pytest.mark.slow
def test_a_stopped_tuning_continues_only_with_resume_and_says_nothing_of_its_runs(recipe, tmp_path, capsys):
    job, calls = train.recipe_of(recipe), iter([None] * 4 + ["SIGTERM"] * 50)
    with pytest.raises(Interrupted, match="stopped by SIGTERM; everything is saved") as stopped:
        tuning.run(job, tmp_path / "out", stop=lambda: next(calls))
    assert not re.search(r"\d", str(stopped.value).replace(str(tmp_path), ""))
    code, _, err = run(capsys, recipe, "--out", "out")
    assert (code, "Continue it with --resume" in err) == (2, True)
    code, _, err = run(capsys, recipe, "--out", "out", "--resume", "--set", "batch=30")
    assert (code, "another recipe" in err) == (2, True)
    assert run(capsys, recipe, "--out", "out", "--resume")[0] == 0
    tuning.run(job, tmp_path / "whole")
    assert digest(tmp_path / "out") == digest(tmp_path / "whole")


@pytest.mark.slow
def test_killed_at_any_change_to_a_file_it_resumes_with_the_same_choices_and_result(tmp_path):
    """Also that the number of runs is drawn once; the runs' ledgers and noise follow from the equal files."""
    command = [sys.executable, "-m", "tests.training.tuning_kills", str(tmp_path), "2" if nightly.WHOLE else "9"]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    results = json.loads(process.stdout)
    assert len(results["killed"]) >= 4
    assert all(status == 0 and same for _, status, same in results["killed"])
    assert set(results["drawn"]) == {1}
