"""Whatever is done to the folder of a training, no step of it goes unpaid: it is refused, or all steps are stated."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from wpriv.cli.main import main
from wpriv.run import folder, lock
from wpriv.train import ledger

ROOT = Path(__file__).parents[2]
STEPS = 6
RECIPE = f"""\
kind: train
source: "a test"
task: classify
data: {{name: digits, limit: 40}}
model: {{name: mlp, width: 3, depth: 1, activation: tanh}}
privacy: {{sigma: 2, delta: 1e-5}}
optimizer: {{name: sgd, lr: 0.5}}
batch: 10
steps: {STEPS}
accountants: [pld]
"""
USAGE, UNSUPPORTED, ENVIRONMENT = 2, 3, 4


@pytest.fixture
def out(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toy.yaml").write_text(RECIPE)
    return tmp_path / "out"


def run(capsys, *words):
    code = main(["train", "toy.yaml", "--out", "out", *words])
    captured = capsys.readouterr()
    return code, captured.err


def budget(capsys, *words):
    code = main(["budget", *map(str, words)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def stop_after(monkeypatch, steps):
    """Makes the next training stop by itself."""
    from wpriv.train.loop import Engine

    real = Engine.run

    def stopped(self, **how):
        return real(self, **{**how, "stop": lambda: "a test" if self.done == steps else None})

    monkeypatch.setattr(Engine, "run", stopped)


def statement(out):
    return json.loads((out / folder.STATEMENT).read_text())


def chained(releases):
    """A ledger that somebody wrote by hand, with a sound chain: (run, step, planned, fields) each."""
    previous, lines = ledger.FORMAT, []
    for run, step, planned, fields in releases:
        line = json.dumps({"run": run, "step": step, "of": planned, **fields, "previous": previous}).encode()
        previous = hashlib.sha256(line).hexdigest()[: ledger.DIGEST]
        lines.append(line + b"\n")
    return b"".join(lines)


@pytest.mark.parametrize("gone", [[], [folder.PROVENANCE], [folder.STATEMENT, folder.TOLD], [folder.METRICS]])
def test_every_fork_is_paid_for_whatever_else_is_deleted_between(out, capsys, gone):
    assert run(capsys)[0] == 0
    assert run(capsys, "--fork", "--set", "optimizer.lr=0.25")[0] == 0
    for name in gone:
        (out / name).unlink()
    assert run(capsys, "--fork", "--set", "optimizer.lr=0.125")[0] == 0
    assert statement(out)["steps"] == 3 * STEPS
    assert [entry.run for entry in ledger.entries(out / folder.LEDGER)] == [1] * STEPS + [2] * STEPS + [3] * STEPS


def test_a_run_number_that_was_edited_into_the_provenance_changes_nothing(out, capsys):
    assert run(capsys)[0] == 0
    about = json.loads((out / folder.PROVENANCE).read_text())
    (out / folder.PROVENANCE).write_text(json.dumps({**about, "run": 7}))
    assert run(capsys, "--fork", "--set", "optimizer.lr=0.25")[0] == 0
    assert statement(out)["steps"] == 2 * STEPS


def cut(path, lines):
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:lines]))


def louder(path):
    """Every sigma ten times as large, with a sound chain."""
    releases = []
    for line in path.read_text().splitlines():
        fields = json.loads(line)
        fields.pop("previous")
        fields["sigma"] *= 10
        releases.append((fields.pop("run"), fields.pop("step"), fields.pop("of"), fields))
    path.write_bytes(chained(releases))


@pytest.mark.parametrize("change", [lambda path: cut(path, 5), lambda path: cut(path, 0), Path.unlink, louder])
@pytest.mark.parametrize("concluded", [True, False])
def test_nothing_is_stated_by_a_ledger_that_was_changed_after_the_run(out, capsys, change, concluded):
    assert run(capsys)[0] == 0
    change(out / folder.LEDGER)
    if not concluded:
        (out / folder.STATEMENT).unlink()
    for words in ([], ["--resume"], ["--fork", "--set", "optimizer.lr=0.25"]):
        assert run(capsys, *words)[0] == USAGE
    assert (out / folder.STATEMENT).is_file() == concluded
    if concluded and (out / folder.LEDGER).is_file():
        code, answer, _ = budget(capsys, "--history", out / folder.LEDGER, "--delta", "1e-5")
        assert (code, answer) == (USAGE, "")


def test_a_plan_that_was_changed_in_the_ledger_and_the_model_is_held_against_the_recipe(out, capsys):
    from wpriv.train import checkpoint

    assert run(capsys)[0] == 0
    (out / folder.STATEMENT).unlink()
    louder(out / folder.LEDGER)
    stored = checkpoint.load(out / folder.MODEL)
    stored["ledger"] = ledger.position(ledger.entries(out / folder.LEDGER)).as_dict()
    checkpoint.save(out / folder.MODEL, stored)
    assert run(capsys)[0] == USAGE
    assert not (out / folder.STATEMENT).exists()


def test_a_ledger_cut_short_is_not_accounted_for_and_that_of_an_unfinished_run_is_with_a_note(out, capsys, monkeypatch, tmp_path):
    with monkeypatch.context() as patch:
        stop_after(patch, 4)
        assert run(capsys)[0] == 75
    code, answer, notes = budget(capsys, "--history", out / folder.LEDGER, "--delta", "1e-5")
    assert code == 0
    assert f"4 of its {STEPS} planned steps" in answer + notes
    assert run(capsys, "--resume")[0] == 0
    assert budget(capsys, "--history", out / folder.LEDGER, "--delta", "1e-5")[0] == 0
    alone = tmp_path / "alone.jsonl"
    shutil.copy(out / folder.LEDGER, alone)
    assert budget(capsys, "--history", alone, "--delta", "1e-5")[0] == 0
    for lines in range(STEPS):
        cut(alone, lines)
        code, answer, _ = budget(capsys, "--history", alone, "--delta", "1e-5")
        assert (code, answer) == (USAGE, "")


@pytest.mark.parametrize("words", [[], ["--resume"]])
def test_steps_whose_checkpoint_is_gone_are_not_dropped_without_a_word(out, capsys, monkeypatch, words):
    with monkeypatch.context() as patch:
        stop_after(patch, 4)
        assert run(capsys)[0] == 75
    (out / folder.CHECKPOINT).unlink()
    code, message = run(capsys, *words)
    assert code == USAGE
    assert "--fresh" in message
    assert len(ledger.entries(out / folder.LEDGER)) == 4


def test_a_fork_whose_checkpoint_is_gone_does_not_begin_again_unpaid(out, capsys, monkeypatch):
    assert run(capsys)[0] == 0
    with monkeypatch.context() as patch:
        stop_after(patch, 4)
        assert run(capsys, "--fork", "--set", "optimizer.lr=0.25")[0] == 75
    (out / folder.CHECKPOINT).unlink()
    for words in ([], ["--resume"]):
        assert run(capsys, "--set", "optimizer.lr=0.25", *words)[0] == USAGE
    assert run(capsys, "--set", "optimizer.lr=0.25", "--fork")[0] == 0
    assert statement(out)["steps"] == STEPS + 4 + STEPS


def test_what_was_spent_before_a_fresh_start_is_named_with_the_cost_of_all_together(out, capsys):
    assert run(capsys)[0] == 0
    alone = statement(out)["guarantees"][0]["epsilon"]
    assert run(capsys, "--fresh", "--set", "privacy.sigma=3")[0] == 0
    stated = statement(out)
    assert [(row["folder"], row["steps"], row["problem"]) for row in stated["earlier_runs"]] == [("before-1", STEPS, None)]
    [sentence] = [line for line in stated["warnings"] if "earlier runs" in line]
    assert "before-1: 6 steps" in sentence
    assert sentence in (out / folder.TOLD).read_text()
    # oracle: the calculator on the steps of both runs
    (out / "both.json").write_text(json.dumps(stated["earlier_runs"][0]["process"] + stated["process"]))
    code, answer, _ = budget(capsys, "--history", out / "both.json", "--delta", "1e-5", "--json")
    together = float(sentence.partition("eps = ")[2].partition(" ")[0])
    assert code == 0
    assert together == pytest.approx(json.loads(answer)["epsilon"], rel=2e-3)
    assert together > alone


def test_a_run_without_privacy_that_was_moved_aside_is_named(out, capsys):
    assert run(capsys, "--set", "privacy=none")[0] == 0
    assert run(capsys, "--fresh")[0] == 0
    assert [row["problem"] for row in statement(out)["earlier_runs"]] == ["trained without privacy"]


@pytest.mark.parametrize("content", [None, b"", b"PK\x03\x04 nothing"])
def test_a_finished_run_whose_model_is_gone_or_broken_is_not_shown_as_done(out, capsys, content):
    assert run(capsys)[0] == 0
    (out / folder.MODEL).unlink()
    if content is not None:
        (out / folder.MODEL).write_bytes(content)
    assert run(capsys)[0] == USAGE


def test_a_second_training_in_a_folder_is_refused_while_the_first_holds_it(out, capsys, monkeypatch):
    with monkeypatch.context() as patch:
        stop_after(patch, 4)
        assert run(capsys)[0] == 75
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    with lock.locked(out / lock.LOCK, "held"):
        for words in (["--resume"], ["--fresh"], ["--fork"]):
            code, message = run(capsys, *words)
            assert (code, "another process" in message) == (USAGE, True)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    assert run(capsys, "--resume")[0] == 0
    assert not (out / lock.LOCK).exists()


def test_of_several_processes_at_once_one_trains_and_no_step_is_lost(out, capsys):
    words = [sys.executable, "-m", "wpriv", "train", "toy.yaml", "--out", "out"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    children = [
        subprocess.Popen(words, cwd=out.parent, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) for _ in range(3)
    ]
    ends = [(child.communicate()[1].decode(), child.returncode) for child in children]
    assert 0 in [code for _, code in ends]
    assert {code for _, code in ends} <= {0, USAGE}, ends
    assert len(ledger.entries(out / folder.LEDGER)) == STEPS
    assert run(capsys)[0] == 0


def test_a_lock_is_free_again_after_its_holder_was_killed(tmp_path):
    script = "import os, sys, pathlib; from wpriv.run.lock import locked\nwith locked(pathlib.Path(sys.argv[1]), ''): os._exit(9)"
    path = tmp_path / "a" / lock.LOCK
    done = subprocess.run([sys.executable, "-c", script, str(path)], env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert (done.returncode, path.exists()) == (9, True)
    with lock.locked(path, "held"):
        assert path.exists()
    assert not path.exists()
    assert path.parent.exists()  # it was there before


def test_a_read_only_folder_is_an_error_of_the_environment(out, capsys, monkeypatch):
    from wpriv.train import durable

    def refuse(*_args, **_given):
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(durable.os, "makedirs", refuse)
        code, message = run(capsys)
    assert (code, "Permission denied" in message) == (ENVIRONMENT, True)
    assert not out.exists()
