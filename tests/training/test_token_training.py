"""Networks on tokens: embeddings with attention, and LSTMs, each record's gradient clipped."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset

import wpriv
from wpriv.cli.main import main
from wpriv.errors import FaultyRecords, UsageError
from wpriv.training.clipping.clip import clipped_sum

WORDS, LENGTH = 40, 8
RNG = np.random.default_rng(0)
Y = RNG.integers(0, 2, 600)
X = RNG.integers(10, 30, (600, LENGTH))
X[:, ::3] = np.where(Y[:, None] == 1, RNG.integers(30, WORDS, (600, 3)), RNG.integers(0, 10, (600, 3)))
OPTIONS = {"eps": 8, "delta": 1e-4, "batch": 100, "epochs": 6, "lr": 2.0, "seed": 3, "progress": False}
NET = """
import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, words=40, width=8):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(64, width)
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.head = nn.Linear(width, 2)

    def forward(self, x):
        vectors = self.words(x) + self.places(torch.arange(x.shape[1]))
        return self.head(self.attention(vectors, vectors, vectors, need_weights=False)[0].mean(dim=1))


class Recurrent(nn.Module):
    def __init__(self, words=40, width=8):
        super().__init__()
        self.words, self.lstm = nn.Embedding(words, width), nn.LSTM(width, width, batch_first=True)
        self.head = nn.Linear(width, 2)

    def forward(self, x):
        return self.head(self.lstm(self.words(x))[0][:, -1])
"""
defined: dict = {}
exec(NET, defined)
NETWORKS = ("Attention", "Recurrent")
pytestmark = pytest.mark.filterwarnings("ignore:.*seed")


def network(name) -> nn.Module:
    torch.manual_seed(0)
    return defined[name]()


def losses(outputs, targets):
    return nn.functional.cross_entropy(outputs, targets, reduction="none")


@pytest.mark.parametrize("name", NETWORKS)
def test_the_sum_is_that_of_clipped_gradients_of_single_records(name):
    """Oracle: autograd on one record after another."""
    model, x, y = network(name), torch.tensor(X[:12]), torch.tensor(Y[:12])
    wanted = [torch.zeros_like(p) for p in model.parameters()]
    norms = []
    for k in range(len(x)):
        parts = torch.autograd.grad(losses(model(x[k : k + 1]), y[k : k + 1]).sum(), list(model.parameters()))
        norms.append(float(sum(part.square().sum() for part in parts).sqrt()))
        wanted = [sum_ + part * min(1.0, 0.5 / norms[-1]) for sum_, part in zip(wanted, parts, strict=True)]
    assert max(norms) > 0.5  # some are clipped
    clipped = clipped_sum(model, losses, x, y, norm=0.5, adjacency="add-remove")
    for part, other in zip(clipped.total.parts, wanted, strict=True):
        assert torch.allclose(part, other, rtol=1e-3, atol=1e-4)
    assert clipped.norms.tolist() == pytest.approx(norms, rel=2e-2)


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_a_text_classifier_learns_from_tokens_in_a_call_and_in_a_loop(tmp_path, name):
    test = (X[500:], Y[500:])
    trained = wpriv.train(network(name), (X[:500], Y[:500]), test=test, tokens=WORDS, out=tmp_path / "call", **OPTIONS)
    assert trained.guarantee.epsilon.safe <= 8
    assert trained.metrics[-1]["accuracy"] > 0.8
    options = {key: value for key, value in OPTIONS.items() if key != "progress"}
    model = network(name)
    with wpriv.training_loop(
        model, (X[:500], Y[:500]), test=test, tokens=WORDS, out=tmp_path / "loop", **options
    ) as run:
        for batch in run:
            assert batch.inputs.dtype == torch.int64
            run.step()
    assert all(
        torch.equal(one, other) for one, other in zip(model.parameters(), trained.model.parameters(), strict=True)
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_a_recipe_trains_on_tokens_of_a_file(tmp_path, name, capsys):
    np.savez(tmp_path / "text.npz", x=X, y=Y)
    (tmp_path / "net.py").write_text(NET)
    recipe = tmp_path / "text.yaml"
    recipe.write_text(
        "kind: train\nsource: a test\ntask: classify\n"
        f"data: {{name: arrays, file: {tmp_path / 'text.npz'}, tokens: 40}}\n"
        f"model: {{file: net.py, name: {name}, width: 8}}\nprivacy: {{eps: 8, delta: 1e-4}}\n"
        "optimizer: {name: sgd, lr: 2.0}\nbatch: 100\nepochs: 6\nseed: 3\n"
    )
    assert main(["train", str(recipe), "--out", str(tmp_path / "out")]) == 0
    assert wpriv.train(recipe, out=tmp_path / "out").metrics[-1]["accuracy"] > 0.7
    capsys.readouterr()
    for changes, word in (
        (["data.tokens=20"], "from 0 to 19, as declared"),
        (["data.tokens=0"], "give the data set tokens"),
        (["data.tokens=50"], "tokens from 0 to 49: the embedding must have at least 50 rows"),
        (["options={normalise: {mean: [0], std: [1]}}"], "normalise"),
        (["data.tokens=-1"], "at least 0"),
        (["model.name=mlp", "model.file=null", "model.sha256=null"], "a network takes by an embedding"),
        (["task=cgan"], "takes the numbers of a record for quantities"),
    ):
        flags = [flag for change in changes for flag in ("--set", change)]
        assert main(["train", str(recipe), "--out", str(tmp_path / "other"), *flags]) == 2
        message = capsys.readouterr().err
        assert word in message
        assert "Traceback" not in message


def test_whole_numbers_for_an_embedding_need_the_vocabulary(tmp_path):
    with pytest.raises(UsageError, match=r"`tokens`, the size of the vocabulary \(40 or 64 here\)"):
        wpriv.train(network("Attention"), (X, Y), out=tmp_path / "r", **OPTIONS)
    with pytest.raises(UsageError, match="above 0; found -3"):
        wpriv.train(network("Attention"), (X, Y), tokens=-3, out=tmp_path / "r", **OPTIONS)
    with pytest.raises(FaultyRecords, match=r"found 3[0-9] in example"):
        wpriv.train(network("Attention"), (X, Y), tokens=30, out=tmp_path / "r", **OPTIONS)
    with pytest.raises(UsageError, match=r"`tokens` belongs to a network"):
        wpriv.train("quick/digits", tokens=30)


class Pairs(Dataset):
    """A map-style Dataset of single records."""

    def __init__(self, count: int):
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, k: int):
        return torch.tensor(X[k]), int(Y[k])


def test_a_dataset_in_the_style_of_a_map_is_read_record_by_record(tmp_path):
    options = OPTIONS | {"epochs": None, "steps": 2}
    trained = wpriv.train(network("Recurrent"), Pairs(200), tokens=WORDS, out=tmp_path / "a", **options)
    same = wpriv.train(network("Recurrent"), (X[:200], Y[:200]), tokens=WORDS, out=tmp_path / "b", **options)
    for one, other in zip(trained.model.parameters(), same.model.parameters(), strict=True):
        assert torch.equal(one, other)
