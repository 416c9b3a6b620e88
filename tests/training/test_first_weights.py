"""First weights that another recipe trains: ``init: {file: ..., recipe: ...}``. Oracle: the two commands one by one."""

from __future__ import annotations

import hashlib

import pytest
import torch

from wpriv.errors import UsageError
from wpriv.training import train

FIRST = """
kind: train
source: ours
task: classify
data: {name: digits, limit: 300}
model: {name: logistic}
optimizer: {name: sgd, lr: 1.0}
batch: 50
steps: 3
seed: 1
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "first.yaml").write_text(f"{FIRST}privacy: none\n")
    (tmp_path / "second.yaml").write_text(
        f"{FIRST}privacy: {{eps: 3, delta: 1e-5}}\n"
        "init: {file: results/first/model.safetensors, recipe: first.yaml, records: public}\n"
    )
    return tmp_path


def weights(folder):
    return torch.load(folder / "model.pt", weights_only=True)["weights"]


def test_a_missing_file_is_trained_first_and_a_present_one_is_not_trained_again(folder):
    train.train("second.yaml", out="out")
    written = (folder / "results" / "first" / "model.safetensors").stat().st_mtime_ns
    train.train("first.yaml", out="alone")
    one, other = weights(folder / "results" / "first"), weights(folder / "alone")
    assert all(torch.equal(one[name], other[name]) for name in one)
    train.train("second.yaml", out="again")
    assert (folder / "results" / "first" / "model.safetensors").stat().st_mtime_ns == written
    one, other = weights(folder / "out"), weights(folder / "again")
    assert all(torch.equal(one[name], other[name]) for name in one)
    content = (folder / "results" / "first" / "model.safetensors").read_bytes()
    assert hashlib.sha256(content).hexdigest() in (folder / "out" / "recipe.yaml").read_text()


def test_a_finished_training_is_found_again(folder):
    train.train("second.yaml", out="out")
    assert train.train("second.yaml", out="out").found


def test_a_recipe_with_privacy_gives_no_first_weights(folder):
    (folder / "first.yaml").write_text(f"{FIRST}privacy: {{eps: 3, delta: 1e-5}}\n")
    with pytest.raises(UsageError, match=r"init: first\.yaml must be one training without privacy"):
        train.train("second.yaml", out="out")


def test_a_recipe_that_writes_elsewhere_is_refused(folder):
    text = (folder / "second.yaml").read_text().replace("first/model.safetensors", "first/weights.safetensors")
    (folder / "second.yaml").write_text(text)
    with pytest.raises(UsageError, match=r"first\.yaml writes no file results/first/weights\.safetensors"):
        train.train("second.yaml", out="out")
