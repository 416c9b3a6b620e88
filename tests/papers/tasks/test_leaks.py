"""Tasks that pass private records through a model refuse one that leaks before they write; the others allow it."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
import yaml
from torch import Tensor, nn

from tests import nightly
from tests.papers.tasks.test_adapt import recipe as adapting
from tests.papers.tasks.test_fair import RECIPE as FAIR
from tests.papers.tasks.test_sliced_tasks import AUTOENCODE, MATCH, REPRESENT
from wpriv.cli.main import main
from wpriv.errors import Unsupported
from wpriv.training import models, train

pytestmark = pytest.mark.slow

CLASSIFY = """\
kind: train
source: "a test"
task: classify
data: {name: digits, limit: 300}
model: {name: mlp, width: 16, depth: 1}
privacy: {eps: 4, delta: 1e-5}
optimizer: {name: sgd, lr: 1.0}
batch: 50
steps: 3
seed: 1
"""
RECIPES = {
    "classify": yaml.safe_load(CLASSIFY),
    "classify, method named": {**yaml.safe_load(CLASSIFY), "privacy": {"eps": 4, "delta": 1e-5, "method": "vmap"}},
    "fair": yaml.safe_load(FAIR % "parity"),
    "represent": yaml.safe_load(REPRESENT),
    "match": yaml.safe_load(MATCH),
    "autoencode": yaml.safe_load(AUTOENCODE),
    **{f"adapt, {name}": adapting(name) for name in ("dp-dann", "dp-dann-paper", "dp-swd", "dp-swd-projections")},
}


class CentreInTraining(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x - x.mean(dim=0) if self.training else x


class Centre(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x - x.mean(dim=0)


class KeepsLastBatch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("last", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        self.last = x.detach().clone()
        return x


LEAKS = {
    CentreInTraining: "mixes the records of a batch",
    Centre: "mixes the records of a batch",
    KeepsLastBatch: "last' of the model changes",
}


def with_leak(model: nn.Module, leak: type[nn.Module]) -> nn.Module:
    """The model with a leaking module behind what a task trains on private records."""
    for name in ("features", "encoder"):
        if hasattr(model, name):
            setattr(model, name, nn.Sequential(getattr(model, name), leak()))
            return model
    return nn.Sequential(model, leak())


@pytest.fixture
def root(tmp_path):
    rng = np.random.default_rng(1)
    for name, shift in (("source", 0.0), ("target", 1.0)):
        y = np.arange(50) % 2
        np.savez(tmp_path / f"{name}.npz", x=rng.normal(size=(len(y), 5)) + 2 * y[:, None] + shift, y=y)
    return tmp_path


def leaking(monkeypatch, leak):
    real = models.build
    monkeypatch.setattr(models, "build", lambda *given: with_leak(real(*given), leak))


@pytest.mark.parametrize(("name", "leak"), nightly.sharded(itertools.product(RECIPES, LEAKS), 2))
def test_a_model_that_leaks_is_refused_before_anything_is_written(name, leak, root, monkeypatch):
    if name == "adapt, dp-swd-projections" and leak is CentreInTraining:
        pytest.skip("records pass through features in evaluation mode alone")
    leaking(monkeypatch, leak)
    path = root / "toy.yaml"
    path.write_text(yaml.safe_dump(RECIPES[name]))
    with pytest.raises(Unsupported, match=LEAKS[leak]):
        train.train(path, out=root / "done", data_root=root)
    assert not (root / "done").exists()


def test_the_command_names_the_module_and_ends_with_the_code_of_what_is_not_supported(root, monkeypatch, capsys):
    leaking(monkeypatch, CentreInTraining)
    path = root / "toy.yaml"
    path.write_text(CLASSIFY)
    assert main(["train", str(path), "--out", str(root / "done")]) == 3
    assert "'1' (CentreInTraining) mixes the records of a batch in training mode" in capsys.readouterr().err
    assert not (root / "done").exists()


@pytest.mark.parametrize(
    "privacy", ["none", {"sigma": 1.0, "delta": 1e-5, "clip": "batch-mean", "norm": 1.0}], ids=["none", "batch-mean"]
)
def test_a_model_that_mixes_records_may_train_where_nothing_is_promised_of_them(privacy, root, monkeypatch):
    leaking(monkeypatch, CentreInTraining)
    path = root / "toy.yaml"
    accountants = {} if privacy == "none" else {"accountants": ["wdp"]}
    path.write_text(yaml.safe_dump({**RECIPES["classify"], "privacy": privacy, **accountants}))
    assert train.train(path, out=root / "done").metrics


def test_a_refused_fork_leaves_the_run_before_as_it_was(root, monkeypatch):
    path = root / "toy.yaml"
    path.write_text(CLASSIFY.replace("eps: 4", "sigma: 3"))
    train.train(path, out=root / "done")
    before = {file.name: file.read_bytes() for file in (root / "done").iterdir()}
    leaking(monkeypatch, KeepsLastBatch)
    with pytest.raises(Unsupported):
        train.train(path, out=root / "done", set={"optimizer.lr": 0.5}, fork=True)
    assert before == {file.name: file.read_bytes() for file in (root / "done").iterdir()}
