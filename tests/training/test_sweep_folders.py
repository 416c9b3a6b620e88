"""The folder of a sweep: shards that end together, trainings of an earlier form, and workers that are killed."""

from __future__ import annotations

import json
import os
import signal
import threading
from types import SimpleNamespace

import pytest

from wpriv.config import recipe as recipes
from wpriv.config import yaml_document
from wpriv.errors import MissingResource
from wpriv.files import durable_writes
from wpriv.training import sweep, training_grid

RECIPE = """\
kind: train
source: "a test"
task: classify
data: {name: digits, limit: 60}
model: {name: mlp, width: 2, depth: 1, activation: tanh}
privacy: {sigma: 20, delta: 1e-5, sampling: none}
optimizer: {name: sgd, lr: 1.0}
steps: 2
"""


def loaded(values):
    text = RECIPE + f"sweep: {{over: privacy.sigma, values: {values}}}\n"
    return recipes.check(yaml_document.parse(text, "toy.yaml"))


def statement(out):
    return json.loads((out / "statement.json").read_text())


@pytest.mark.slow
def test_a_shard_that_ends_while_another_one_merges_is_in_the_statement_of_all(tmp_path, monkeypatch):
    recipe, arrived, threads = loaded([20, 40]), threading.Event(), []
    plain_lock, plain_provenance = durable_writes.locked, sweep.storage.provenance

    def locked(path, busy, **options):
        if threads and threading.current_thread() is threads[0]:
            arrived.set()
        return plain_lock(path, busy, **options)

    def other_shard():
        try:
            sweep.run(recipe, tmp_path, part="2/2")
        finally:
            arrived.set()

    def provenance():
        # the first shard has listed the finished trainings, and has written nothing yet
        trained = (tmp_path / "privacy.sigma=20" / "statement.json").is_file()
        if threading.current_thread() is threading.main_thread() and not threads and trained:
            threads.append(threading.Thread(target=other_shard))
            threads[0].start()
            arrived.wait()
        return plain_provenance()

    monkeypatch.setattr(sweep, "locked", locked)
    monkeypatch.setattr(sweep.storage, "provenance", provenance)
    sweep.run(recipe, tmp_path, part="1/2")
    threads[0].join()
    assert (statement(tmp_path)["finished"], statement(tmp_path)["together"]["trainings"]) == (2, 2)
    assert not (tmp_path / ".lock").exists()


@pytest.mark.slow
def test_the_statement_of_a_sweep_names_trainings_that_its_recipe_has_no_longer(tmp_path):
    assert sweep.run(loaded([20, 40]), tmp_path).statement["warnings"] == []
    later = sweep.run(loaded([20]), tmp_path).statement
    assert later["together"]["trainings"] == 1
    assert [line.partition(":")[0] for line in later["warnings"]] == ["privacy.sigma=40"]
    assert sweep.run(loaded([40, 20]), tmp_path).statement["warnings"] == []


@pytest.mark.slow
def test_a_worker_that_is_killed_is_an_error_of_the_environment(tmp_path, monkeypatch):
    def killed(grid, cell):
        os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(training_grid, "_train_alone", killed)
    cells = [SimpleNamespace(name=str(number)) for number in range(2)]
    with pytest.raises(MissingResource, match="killed"):
        training_grid.Grid(cells, tmp_path).run_in_workers(2, "loky")
