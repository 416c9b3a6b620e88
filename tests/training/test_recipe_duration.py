"""How long a recipe takes: what it states, a guess where it states nothing or was changed, and shares of a sweep."""

from __future__ import annotations

import json

import pytest

from wpriv.cli.main import main
from wpriv.config import recipe_files
from wpriv.numerics import numbers

TRAIN = """\
kind: train
source: "a test"
task: classify
data: {name: digits, limit: 100}
model: {name: mlp, width: 4, depth: 1}
privacy: none
optimizer: {name: sgd, lr: 1.0}
batch: 50
steps: 2
"""
TIME = "time: {seconds: 7200, known: extrapolated}\n"
# a task without a guess
OTHER = """\
kind: train
source: "a test"
task: fair
data: {name: synthetic-fairness, records: 30000}
model: {name: logistic}
options: {kind: classification, notion: parity, alpha: 0.5}
privacy: none
optimizer: {name: sgd, lr: 1.0}
batch: 50
steps: 2
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def dry(capsys, text, *words):
    with open("r.yaml", "w", encoding="utf-8") as file:
        file.write(text)
    assert main(["train", "r.yaml", "--dry-run", "--json", *words]) == 0
    return json.loads(capsys.readouterr().out)["time"]


def test_a_dry_run_tells_the_time_that_the_recipe_states_and_how_it_is_known(capsys):
    found = dry(capsys, TRAIN + TIME)
    assert found == {"seconds": 7200, "device": "cpu", "known": "extrapolated", "as_shipped": False}
    assert main(["train", "r.yaml", "--dry-run"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "takes about 2 h of one core, extrapolated from a part of a run" in out


def test_a_recipe_that_states_no_time_is_guessed_from_its_model_or_said_to_be_unknown(capsys):
    assert dry(capsys, TRAIN)["known"] == "estimated"
    assert dry(capsys, OTHER) is None


def test_the_time_of_a_changed_recipe_is_guessed_or_said_to_be_that_before_the_change(capsys):
    assert dry(capsys, TRAIN + TIME, "--set", "steps=3")["known"] == "estimated"
    found = dry(capsys, OTHER + TIME, "--set", "steps=3")
    assert (found["seconds"], found["as_shipped"]) == (7200, True)


@pytest.mark.slow
def test_a_sweep_takes_the_share_of_its_time_that_its_unfinished_trainings_are(capsys, tmp_path):
    text = TRAIN + TIME + "sweep: {over: seed, values: [1, 2, 3, 4]}\n"
    assert dry(capsys, text)["seconds"] == pytest.approx(7200)
    assert dry(capsys, text, "--shard", "1/2")["seconds"] == pytest.approx(3600)
    assert main(["train", "r.yaml", "--shard", "1/4"]) == 0
    capsys.readouterr()
    assert dry(capsys, text, "--out", "results/r")["seconds"] == pytest.approx(5400)


def test_a_sweep_that_states_no_time_is_the_sum_of_its_trainings(capsys):
    text = TRAIN + "sweep: {over: seed, values: [1, 2]}\n"
    one = dry(capsys, TRAIN)["seconds"]
    assert dry(capsys, text)["seconds"] == pytest.approx(2 * one, rel=0.1)


def test_a_quick_run_has_a_time_of_its_own_or_none(capsys):
    text = OTHER + TIME + "quick: {steps: 1}\n"
    assert dry(capsys, text, "--quick") is None
    assert (
        dry(capsys, text.replace("steps: 1}", "steps: 1, time: {seconds: 6, known: measured}}"), "--quick")["seconds"]
        == 6
    )


WORDS = {0.94: "0.94 s", 65: "65 s", 119: "119 s", 125: "2.1 min", 9728: "2.7 h", 4e5: "111 h"}


@pytest.mark.parametrize(("seconds", "words"), WORDS.items())
def test_a_duration_is_written_in_the_unit_in_which_it_is_read(seconds, words):
    assert numbers.duration(seconds) == words


def test_the_list_of_recipes_shows_kind_time_and_data(capsys):
    rows = {row.name: row for row in recipe_files.listing()}
    assert (rows["dpsgd/mnist"].kind, rows["dpsgd/mnist"].data) == ("train", "mnist")
    assert rows["dpswd/table1-mnist-usps"].data == "mnist to usps"
    assert rows["plc/fig6-timing"].data == "synthetic-timing.csv"
    assert (rows["plc/fig2-dpsgd"].kind, rows["plc/fig2-dpsgd"].data) == ("compare", "")
    assert main(["recipe", "ls"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["recipe", "kind", "time", "data", "source"]
    assert len(lines) == len(rows) + 1
