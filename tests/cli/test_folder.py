"""Whatever is done to the folder of a training, no step of it goes unpaid: it is refused, or all steps are stated."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests import forked
from tests.command_line import call
from tests.points import ROOT
from tests.training.engine.test_distributed import group_of_two
from wpriv.accounting import ledger
from wpriv.cli.main import main
from wpriv.files import durable_writes
from wpriv.results import storage
from wpriv.training import plan

pytestmark = pytest.mark.slow

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


def folder_of(name, tmp_path_factory, *words):
    folder = tmp_path_factory.mktemp(name)
    (folder / "toy.yaml").write_text(RECIPE)
    with contextlib.chdir(folder):
        assert main(["train", "toy.yaml", "--out", "out", *words]) == 0
    return folder / "out"


@pytest.fixture(scope="module")
def first_run(tmp_path_factory):
    return folder_of("first", tmp_path_factory)


@pytest.fixture(scope="module")
def free_run(tmp_path_factory):
    return folder_of("free", tmp_path_factory, "--set", "privacy=none")


@pytest.fixture
def trained(out, first_run):
    """A finished training in ``out``."""
    return shutil.copytree(first_run, out)


def run(capsys, *words):
    code, _, err = call(capsys, "train", "toy.yaml", "--out", "out", *words)
    return code, err


def budget(capsys, *words):
    return call(capsys, "budget", *words)


def stop_after(monkeypatch, steps):
    """Makes the next training stop by itself."""
    from wpriv.training.engine.loop import Engine

    real = Engine.batches

    def stopped(self, **how):
        return real(self, **{**how, "stop": lambda: "a test" if self.steps_done == steps else None})

    monkeypatch.setattr(Engine, "batches", stopped)


def statement(out):
    return json.loads((out / storage.STATEMENT).read_text())


def chained(releases):
    """A ledger that somebody wrote by hand, with a sound chain: (run, step, planned, fields) each."""
    previous, lines = ledger.FORMAT, []
    for run, step, planned, fields in releases:
        line = json.dumps({"run": run, "step": step, "of": planned, **fields, "previous": previous}).encode()[:-1]
        line = ledger.sealed_line(line)
        previous = ledger.digest_of(line)
        lines.append(line + b"\n")
    return b"".join(lines)


@pytest.mark.parametrize(
    "gone", [[], [storage.PROVENANCE], [storage.STATEMENT, storage.STATEMENT_TEXT], [storage.METRICS]]
)
def test_every_fork_is_paid_for_whatever_else_is_deleted_between(out, trained, capsys, gone):
    assert run(capsys, "--fork", "--set", "optimizer.lr=0.25")[0] == 0
    for name in gone:
        (out / name).unlink()
    assert run(capsys, "--fork", "--set", "optimizer.lr=0.125")[0] == 0
    assert statement(out)["steps"] == 3 * STEPS
    assert [entry.run for entry in ledger.entries(out / storage.LEDGER)] == [1] * STEPS + [2] * STEPS + [3] * STEPS


def test_a_run_number_that_was_edited_into_the_provenance_changes_nothing(out, trained, capsys):
    about = json.loads((out / storage.PROVENANCE).read_text())
    (out / storage.PROVENANCE).write_text(json.dumps({**about, "run": 7}))
    assert run(capsys, "--fork", "--set", "optimizer.lr=0.25")[0] == 0
    assert statement(out)["steps"] == 2 * STEPS


def cut(path, lines):
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:lines]))


def louder(path):
    """Every sigma ten times as large, with a sound chain."""
    releases = []
    for line in path.read_text().splitlines():
        fields = json.loads(line)
        del fields["previous"], fields["digest"]
        fields["sigma"] *= 10
        releases.append((fields.pop("run"), fields.pop("step"), fields.pop("of"), fields))
    path.write_bytes(chained(releases))


@pytest.mark.parametrize("change", [lambda path: cut(path, 5), lambda path: cut(path, 0), Path.unlink, louder])
@pytest.mark.parametrize("concluded", [True, False])
def test_nothing_is_stated_by_a_ledger_that_was_changed_after_the_run(out, trained, capsys, change, concluded):
    change(out / storage.LEDGER)
    if not concluded:
        (out / storage.STATEMENT).unlink()
    for words in ([], ["--resume"], ["--fork", "--set", "optimizer.lr=0.25"]):
        assert run(capsys, *words)[0] == USAGE
    assert (out / storage.STATEMENT).is_file() == concluded
    if concluded and (out / storage.LEDGER).is_file():
        code, answer, _ = budget(capsys, "--history", out / storage.LEDGER, "--delta", "1e-5")
        assert (code, answer) == (USAGE, "")


def test_a_plan_that_was_changed_in_the_ledger_and_the_model_is_held_against_the_recipe(out, trained, capsys):
    from wpriv.files import checkpoint

    (out / storage.STATEMENT).unlink()
    louder(out / storage.LEDGER)
    for name, fields in ((storage.MODEL, checkpoint.WEIGHTS), (storage.DIAGNOSTICS, checkpoint.METRICS)):
        stored = checkpoint.load(out / name, fields=checkpoint.POSITION | fields)
        stored["ledger"] = ledger.position(ledger.entries(out / storage.LEDGER)).as_dict()
        checkpoint.save(out / name, stored)
    assert run(capsys)[0] == USAGE
    assert not (out / storage.STATEMENT).exists()


def test_a_ledger_cut_short_is_not_accounted_for_and_that_of_an_unfinished_run_is_with_a_note(
    out, capsys, monkeypatch, tmp_path
):
    with monkeypatch.context() as patch:
        stop_after(patch, 4)
        assert run(capsys)[0] == 75
    code, answer, notes = budget(capsys, "--history", out / storage.LEDGER, "--delta", "1e-5")
    assert code == 0
    assert f"4 of its {STEPS} planned steps" in answer + notes
    assert run(capsys, "--resume")[0] == 0
    assert budget(capsys, "--history", out / storage.LEDGER, "--delta", "1e-5")[0] == 0
    alone = tmp_path / "alone.jsonl"
    shutil.copy(out / storage.LEDGER, alone)
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
    (out / storage.CHECKPOINT).unlink()
    code, message = run(capsys, *words)
    assert code == USAGE
    assert "--fresh" in message
    assert len(ledger.entries(out / storage.LEDGER)) == 4


def test_a_fork_whose_checkpoint_is_gone_does_not_begin_again_unpaid(out, trained, capsys, monkeypatch):
    with monkeypatch.context() as patch:
        stop_after(patch, 4)
        assert run(capsys, "--fork", "--set", "optimizer.lr=0.25")[0] == 75
    (out / storage.CHECKPOINT).unlink()
    for words in ([], ["--resume"]):
        assert run(capsys, "--set", "optimizer.lr=0.25", *words)[0] == USAGE
    assert run(capsys, "--set", "optimizer.lr=0.25", "--fork")[0] == 0
    assert statement(out)["steps"] == STEPS + 4 + STEPS


def test_what_was_spent_before_a_fresh_start_is_named_with_the_cost_of_all_together(out, trained, capsys):
    alone = statement(out)["guarantees"][0]["epsilon"]
    assert run(capsys, "--fresh", "--set", "privacy.sigma=3")[0] == 0
    stated = statement(out)
    assert [(row["folder"], row["steps"], row["problem"]) for row in stated["earlier_runs"]] == [
        ("before-1", STEPS, None)
    ]
    [sentence] = [line for line in stated["warnings"] if "earlier runs" in line]
    assert "before-1: 6 steps" in sentence
    assert sentence in (out / storage.STATEMENT_TEXT).read_text()
    # oracle: the calculator on the steps of both runs
    (out / "both.json").write_text(json.dumps(stated["earlier_runs"][0]["process"] + stated["process"]))
    code, answer, _ = budget(capsys, "--history", out / "both.json", "--delta", "1e-5", "--json")
    together = float(sentence.partition("eps = ")[2].partition(" ")[0])
    assert code == 0
    assert together == pytest.approx(json.loads(answer)["epsilon"], rel=2e-3)
    assert together > alone


def test_a_run_without_privacy_that_was_moved_aside_is_named(out, free_run, capsys):
    shutil.copytree(free_run, out)
    assert run(capsys, "--fresh")[0] == 0
    assert [row["problem"] for row in statement(out)["earlier_runs"]] == ["trained without privacy"]


@pytest.mark.parametrize("content", [None, b"", b"PK\x03\x04 nothing"])
def test_a_finished_run_whose_model_is_gone_or_broken_is_not_shown_as_done(out, trained, capsys, content):
    (out / storage.MODEL).unlink()
    if content is not None:
        (out / storage.MODEL).write_bytes(content)
    assert run(capsys)[0] == USAGE


def test_a_finished_run_is_answered_by_its_statement_and_computed_again_where_nothing_vouches_for_it(
    out, capsys, monkeypatch
):
    Path("toy.yaml").write_text(RECIPE.replace("sigma: 2", "eps: 3").replace("[pld]", "[rdp, gdp-clt, pld]"))
    assert run(capsys)[0] == 0

    def asked(*words):
        code, answer, _ = call(capsys, "train", "toy.yaml", "--out", "out", *words)
        assert code == 0
        return {**json.loads(answer), "files": None} if words else answer

    plan._noises.clear()
    plan._kept_guarantee.cache_clear()
    solved, computed = [], []
    solve, guarantees = plan.solve_for, plan.guarantees
    monkeypatch.setattr(plan, "solve_for", lambda *job: solved.append(job) or solve(*job))
    monkeypatch.setattr(plan, "guarantees", lambda *job: computed.append(job) or guarantees(*job))
    found = asked(), asked("--json")
    assert (solved, computed) == ([], [])
    (out / storage.WEIGHTS).unlink()
    assert (asked(), asked("--json")) == found
    assert (len(solved), len(computed)) == (0, 2)
    # the ledger has the noise that ran, whatever the statement says
    stated = statement(out)
    (out / storage.STATEMENT).write_text(json.dumps({**stated, "noise": {**stated["noise"], "multiplier": 7.0}}))
    assert run(capsys)[0] == USAGE


def test_a_second_training_in_a_folder_is_refused_while_the_first_holds_it(out, capsys, monkeypatch):
    with monkeypatch.context() as patch:
        stop_after(patch, 4)
        assert run(capsys)[0] == 75
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    with durable_writes.locked(out / durable_writes.LOCK, "held"):
        for words in (["--resume"], ["--fresh"], ["--fork"]):
            code, message = run(capsys, *words)
            assert (code, "another process" in message) == (USAGE, True)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    assert run(capsys, "--resume")[0] == 0
    assert not (out / durable_writes.LOCK).exists()


def test_of_several_processes_at_once_one_trains_and_no_step_is_lost(out, capsys):
    ends = forked.at_once(["train", "toy.yaml", "--out", "out"], [{}] * 3, out.parent)
    assert 0 in [code for code, _ in ends]
    assert {code for code, _ in ends} <= {0, USAGE}, ends
    assert len(ledger.entries(out / storage.LEDGER)) == STEPS
    assert run(capsys)[0] == 0


def test_a_lock_is_free_again_after_its_holder_was_killed(tmp_path):
    script = (
        "import os, sys, pathlib; from wpriv.files.durable_writes import locked\n"
        "with locked(pathlib.Path(sys.argv[1]), ''): os._exit(9)"
    )
    path = tmp_path / "a" / durable_writes.LOCK
    done = subprocess.run([sys.executable, "-c", script, str(path)], env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert (done.returncode, path.exists()) == (9, True)
    with durable_writes.locked(path, "held"):
        assert path.exists()
    assert not path.exists()
    assert path.parent.exists()  # it was there before


def test_a_read_only_folder_is_an_error_of_the_environment(out, capsys, monkeypatch):

    def refuse(*_args, **_given):
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(durable_writes.os, "makedirs", refuse)
        code, message = run(capsys)
    assert (code, "Permission denied" in message) == (ENVIRONMENT, True)
    assert not out.exists()


def test_a_checkpoint_of_another_run_does_not_go_on_behind_this_runs_steps(out, capsys, monkeypatch):
    # the same recipe, so that both ledgers have the same releases: what tells the runs apart is their noise
    for stop, words in ((2, []), (5, ["--fresh"])):
        with monkeypatch.context() as patch:
            stop_after(patch, stop)
            assert run(capsys, *words)[0] == 75
    entries = ledger.entries(out / storage.LEDGER)
    assert {entry.stream for entry in entries}.isdisjoint(
        entry.stream for entry in ledger.entries(out / "before-1" / storage.LEDGER)
    )
    shutil.copy(out / "before-1" / storage.CHECKPOINT, out / storage.CHECKPOINT)
    assert run(capsys, "--resume")[0] == USAGE
    assert ledger.entries(out / storage.LEDGER) == entries


def test_a_checkpoint_from_before_the_first_step_draws_no_second_noise_for_steps_that_are_spent(
    out, capsys, monkeypatch
):
    with monkeypatch.context() as patch:
        stop_after(patch, 0)
        patch.setattr("wpriv.training.engine.loop.Engine.step", lambda self, indices: None)
        assert run(capsys)[0] == 75
    first = (out / storage.CHECKPOINT).read_bytes()
    with monkeypatch.context() as patch:
        stop_after(patch, 4)
        assert run(capsys, "--fresh")[0] == 75
    (out / storage.CHECKPOINT).write_bytes(first)
    assert run(capsys, "--resume")[0] == USAGE
    assert len(ledger.entries(out / storage.LEDGER)) == 4


@pytest.mark.parametrize("change", [Path.unlink, lambda path: cut(path, 2), lambda path: cut(path, 0), louder])
def test_an_earlier_run_whose_ledger_was_changed_is_named_as_not_known(out, trained, capsys, change):
    assert run(capsys, "--fresh", "--set", "optimizer.lr=0.25")[0] == 0
    change(out / "before-1" / storage.LEDGER)
    # the statement of the run after it no longer fits what is there, and says so
    assert run(capsys, "--set", "optimizer.lr=0.25")[0] == USAGE
    (out / storage.STATEMENT).unlink()
    assert run(capsys, "--set", "optimizer.lr=0.25")[0] == 0
    [row] = statement(out)["earlier_runs"]
    assert (row["folder"], "6 entries" in row["problem"]) == ("before-1", True)
    assert not any("All runs together" in line for line in statement(out)["warnings"])


def test_a_private_run_that_went_on_without_privacy_has_no_cost_together_with_a_later_one(out, trained, capsys):
    assert run(capsys, "--fork", "--set", "privacy=none")[0] == 0
    assert run(capsys, "--fresh")[0] == 0
    [row] = statement(out)["earlier_runs"]
    assert (row["steps"], row["problem"]) == (STEPS, "trained without privacy")
    assert not any("All runs together" in line for line in statement(out)["warnings"])


@pytest.mark.parametrize("gone", [storage.MODEL, storage.LEDGER, storage.RECIPE, storage.STATEMENT])
@pytest.mark.parametrize("moved", [True, False])
def test_a_run_without_privacy_is_named_whatever_of_it_is_deleted(out, free_run, capsys, gone, moved):
    shutil.copytree(free_run, out)
    if moved:
        assert run(capsys, "--fresh", "--set", "optimizer.lr=0.25")[0] == 0
        (out / "before-1" / gone).unlink()
    else:
        (out / gone).unlink()
    assert run(capsys, "--fresh")[0] == 0
    assert "trained without privacy" in [row["problem"] for row in statement(out)["earlier_runs"]]


@pytest.mark.parametrize("before", [[], ["--fork"]])
def test_weights_trained_without_privacy_are_known_by_themselves_and_not_by_their_recipe(out, capsys, before):
    if before:
        assert run(capsys)[0] == 0
    assert run(capsys, *before, "--set", "privacy=none")[0] == 0
    recipe = out / storage.RECIPE
    recipe.write_text(recipe.read_text().replace("privacy: none", "privacy: {sigma: 2.0, delta: 1.0e-05}"))
    assert run(capsys, "--fork", "--set", "optimizer.lr=0.25")[0] == UNSUPPORTED


def test_runs_with_the_same_noise_have_no_figure_together(out, capsys):
    assert run(capsys, "--set", "seed=3")[0] == 0
    assert run(capsys, "--set", "seed=3", "--fresh", "--set", "optimizer.lr=0.25")[0] == 0
    [sentence] = [line for line in statement(out)["warnings"] if "earlier runs" in line]
    assert ("same noise" in sentence, "All runs together" in sentence) == (True, False)


def test_a_dry_run_shows_the_plan_beside_other_results_and_changes_nothing(out, trained, capsys):
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    line = ("train", "toy.yaml", "--out", "out", "--dry-run")
    code, text, notes = call(capsys, *line, "--set", "privacy.sigma=4")
    assert code == 0
    assert text.startswith(f"toy: {STEPS} steps of 10 of 40 records")
    assert "the training itself would be refused: out holds a run of another recipe" in notes
    code, text, _ = call(capsys, *line, "--json")
    assert (code, "out holds the results of this training" in json.loads(text)["warnings"][0]) == (0, True)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_steps_under_other_neighbours_are_not_added_up(out, capsys):
    # replacing a record moves a sum twice as far as adding one: its steps cost more than the ledger of the first run
    # says
    recipe = RECIPE.replace("delta: 1e-5", "delta: 1e-5, sampling: none, adjacency: ADJ").replace("batch: 10\n", "")
    (out.parent / "toy.yaml").write_text(recipe.replace("ADJ", "add-remove"))
    assert run(capsys)[0] == 0
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    words = ["--set", "privacy.adjacency=replace-one"]
    assert run(capsys, "--fork", *words)[0] == UNSUPPORTED
    assert run(capsys, "--fork", "--dry-run", *words)[0] == UNSUPPORTED
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    assert run(capsys, "--fresh", *words)[0] == 0
    [row] = statement(out)["earlier_runs"]
    assert (row["steps"], row["problem"]) == (STEPS, None)
    assert not any("All runs together" in line for line in statement(out)["warnings"])
    code, answer, _ = budget(capsys, "--history", out / storage.LEDGER, "--delta", "1e-5", "--json")
    assert (code, json.loads(answer)["adjacency"]) == (0, "replace-one")
    assert budget(capsys, "--history", out / storage.LEDGER, "--delta", "1e-5", "--adjacency", "add-remove")[0] == USAGE


def test_a_fork_under_other_sampling_is_refused_before_its_first_step(out, trained, capsys):
    assert run(capsys, "--fork", "--set", "privacy.sampling=fixed")[0] == UNSUPPORTED
    assert len(ledger.entries(out / storage.LEDGER)) == STEPS
    assert run(capsys)[0] == 0


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b"[]", b"\xff", None, "steps", "earlier_runs", "process"],
)
def test_a_statement_that_is_not_that_of_its_folder_is_refused_and_written_anew_where_it_is_deleted(
    out, trained, capsys, content
):
    assert run(capsys, "--fresh")[0] == 0
    right = statement(out)
    if content is None:
        content = (out / "before-1" / storage.STATEMENT).read_bytes()
    elif isinstance(content, str):
        changed = {"steps": 1, "earlier_runs": [], "process": [{**right["process"][0], "sigma": 20.0}]}[content]
        content = json.dumps({**right, content: changed}).encode()
    (out / storage.STATEMENT).write_bytes(content)
    code, message = run(capsys)
    assert (code, "Delete" in message) == (USAGE, True)
    (out / storage.STATEMENT).unlink()
    assert run(capsys)[0] == 0
    assert statement(out)["guarantees"] == right["guarantees"]


def test_a_statement_that_names_earlier_runs_by_something_else_than_a_list_is_refused(out, trained, capsys):
    assert run(capsys, "--fresh")[0] == 0
    (out / storage.STATEMENT).write_text(json.dumps({**statement(out), "earlier_runs": 5}))
    assert run(capsys)[0] == USAGE


def test_the_statement_of_the_run_before_a_fork_is_not_that_of_the_fork(out, trained, capsys):
    old = (out / storage.STATEMENT).read_bytes()
    assert run(capsys, "--fork", "--set", "optimizer.lr=0.25")[0] == 0
    (out / storage.STATEMENT).write_bytes(old)
    assert run(capsys, "--set", "optimizer.lr=0.25")[0] == USAGE


@pytest.mark.parametrize("content", [None, b"", b"a,b\n1,2\n", b"\xff\n"])
def test_metrics_that_are_lost_are_written_anew_from_the_model(out, trained, capsys, content):
    right = (out / storage.METRICS).read_text()
    (out / storage.METRICS).unlink()
    if content is not None:
        (out / storage.METRICS).write_bytes(content)
    assert run(capsys)[0] == USAGE
    (out / storage.STATEMENT).unlink()
    assert run(capsys)[0] == 0
    assert (out / storage.METRICS).read_text() == right


@pytest.mark.parametrize("content", [b"a,b\n1,2\n", b"epoch,step\n1,x\n", b"\xff\n1\n"])
def test_a_run_goes_on_once_metrics_that_were_changed_are_deleted(out, capsys, monkeypatch, content):
    with monkeypatch.context() as patch:
        stop_after(patch, 5)
        assert run(capsys)[0] == 75
    (out / storage.METRICS).write_bytes(content)
    assert run(capsys, "--resume")[0] == USAGE
    (out / storage.METRICS).unlink()
    assert run(capsys, "--resume")[0] == 0
    assert len((out / storage.METRICS).read_text().splitlines()) == 1 + 2  # both epochs


def test_a_ledger_cut_short_is_held_against_the_checkpoint_where_there_is_no_statement_yet(
    out, trained, capsys, monkeypatch
):
    with monkeypatch.context() as patch:
        stop_after(patch, 4)
        assert run(capsys, "--fork", "--set", "optimizer.lr=0.25")[0] == 75
    for lines in (STEPS + 2, STEPS):
        cut(out / storage.LEDGER, lines)
        code, answer, _ = budget(capsys, "--history", out / storage.LEDGER, "--delta", "1e-5")
        assert (code, answer) == (USAGE, "")


def test_a_ledger_is_held_against_its_statement_also_through_a_link(out, trained, capsys):
    assert run(capsys, "--fork", "--set", "optimizer.lr=0.25")[0] == 0
    link = out.parent / "link.jsonl"
    link.symlink_to(out / storage.LEDGER)
    assert budget(capsys, "--history", link, "--delta", "1e-5")[0] == 0
    cut(out / storage.LEDGER, STEPS)
    assert budget(capsys, "--history", link, "--delta", "1e-5")[0] == USAGE


def test_a_ledger_with_runs_before_it_is_accounted_for_with_a_note(out, trained, capsys):
    assert run(capsys, "--fresh")[0] == 0
    code, answer, notes = budget(capsys, "--history", out / storage.LEDGER, "--delta", "1e-5")
    assert (code, "before-1" in answer + notes) == (0, True)


def test_a_dry_run_counts_the_steps_before_a_fork_that_was_killed_before_its_first(out, trained, capsys, monkeypatch):
    class Killed(BaseException):
        pass

    def kill(*_args, **_given):
        raise Killed

    words = ["toy.yaml", "--out", "out", "--set", "optimizer.lr=0.25"]
    with monkeypatch.context() as patch:
        patch.setattr("wpriv.training.engine.loop.Engine.__init__", kill)
        with pytest.raises(Killed):
            main(["train", *words, "--fork"])
    capsys.readouterr()
    assert main(["train", *words, "--dry-run", "--json"]) == 0
    foreseen = json.loads(capsys.readouterr().out)["epsilon"]
    assert main(["train", *words]) == 0
    assert statement(out)["steps"] == 2 * STEPS
    # oracle: what pld says of the ledger
    assert statement(out)["guarantees"][0]["epsilon"] == pytest.approx(foreseen, rel=1e-3)


def test_a_fork_that_does_not_fit_the_weights_leaves_the_folder_as_it_was(out, trained, capsys):
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    assert run(capsys, "--fork", "--set", "model.width=4")[0] == USAGE
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    assert run(capsys)[0] == 0


def test_a_sweep_and_a_training_do_not_overwrite_each_other(out, trained, capsys):
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    (out.parent / "toy.yaml").write_text(RECIPE + "sweep: {over: optimizer.lr, values: [0.5, 0.25]}\n")
    assert run(capsys)[0] == USAGE
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    assert main(["train", "toy.yaml", "--out", "grid"]) == 0
    (out.parent / "toy.yaml").write_text(RECIPE)
    before = {path.name: path.read_bytes() for path in (out.parent / "grid").iterdir() if path.is_file()}
    for words in ([], ["--fresh"], ["--fork"]):
        assert main(["train", "toy.yaml", "--out", "grid", *words]) == USAGE
    assert {path.name: path.read_bytes() for path in (out.parent / "grid").iterdir() if path.is_file()} == before


def test_the_lock_does_not_hang_on_a_variable_that_other_launchers_set(out, capsys, monkeypatch):
    monkeypatch.setenv("RANK", "1")  # without WORLD_SIZE: this process is alone
    with durable_writes.locked(out / durable_writes.LOCK, "held"):
        assert run(capsys)[0] == USAGE
    assert main(["train", "toy.yaml", "--out", "out"]) == 0
    assert "eps = " in capsys.readouterr().out


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.EACCES, errno.EIO])
def test_a_file_system_without_locks_is_an_error_of_the_environment_and_nothing_is_left_there(
    out, capsys, monkeypatch, number
):
    def refuse(*_args):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    assert run(capsys)[0] == ENVIRONMENT
    assert not out.exists()


def test_a_name_that_is_too_long_is_an_error_of_the_user(out, capsys):
    assert main(["train", "toy.yaml", "--out", "a" * 300]) == USAGE


@pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch has no torch.distributed")
def test_all_processes_of_a_launch_are_refused_alike_where_another_holds_the_folder(out):
    with durable_writes.locked(out / durable_writes.LOCK, "held"):
        ends = forked.at_once(["train", "toy.yaml", "--out", "out"], group_of_two(), out.parent)
    assert [code for code, _ in ends] == [USAGE, USAGE], ends
    assert not out.exists()
