"""The time of a training that is continued: with that of its part before."""

from __future__ import annotations

import csv
import json

import pytest

from tests.training.test_plan_ahead import RECIPE, loaded
from wpriv.results import storage
from wpriv.training import train

BEFORE = 5000.0


class Killed(Exception):
    """Ends a training from outside."""


def kill(line):
    if line.startswith("step"):
        raise Killed


def test_seconds_go_on_from_the_last_epoch_before_a_training_was_cut_off(tmp_path):
    with pytest.raises(Killed):
        train.run(loaded(RECIPE), tmp_path, say=kill)
    metrics = tmp_path / storage.METRICS
    with metrics.open() as file:
        (row,) = csv.DictReader(file)
    row["seconds"] = BEFORE
    with metrics.open("w") as file:
        writer = csv.DictWriter(file, row)
        writer.writeheader()
        writer.writerow(row)
    trained = train.run(loaded(RECIPE), tmp_path, resume=True)
    seconds = [row["seconds"] for row in trained.metrics]
    assert seconds == sorted(seconds)
    assert seconds[0] >= BEFORE
    about = json.loads((tmp_path / storage.PROVENANCE).read_text())
    assert about["wall_seconds"] >= seconds[-1] - 0.1
