"""The task next-token. Oracles: torch's cross-entropy, token by token, and GPT2LMHeadModel of transformers."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from wpriv.errors import MissingResource, UsageError
from wpriv.training import train
from wpriv.training.data import read
from wpriv.training.models._networks import Gpt2
from wpriv.training.tasks import next_token


def recipe(tmp_path, **changes):
    """A recipe on 60 records of tokens below 20, written to a file."""
    tokens = np.random.default_rng(0).integers(0, 20, (60, 9))
    np.savez(tmp_path / "tokens.npz", x=tokens, y=np.zeros(60, int))
    keys = {
        "data": "{name: arrays, file: tokens.npz, tokens: 20}",
        "model": "{name: gpt2, width: 8, depth: 1, heads: 2}",
        "privacy": "none",
        **changes,
    }
    lines = "".join(f"{key}: {value}\n" for key, value in keys.items())
    path = tmp_path / "lm.yaml"
    head = "kind: train\nsource: ours\ntask: next-token\nbatch: 20\nsteps: 2\n"
    path.write_text(f"{head}optimizer: {{name: adam, lr: 0.01}}\n{lines}")
    return path


def test_the_loss_of_a_record_is_the_mean_over_its_tokens():
    logits, tokens = torch.randn(3, 5, 7, dtype=torch.float64), torch.randint(0, 7, (3, 5))
    for row, value in enumerate(next_token.loss(logits, tokens)):
        each = [cross_entropy(logits[row, place], tokens[row, place]) for place in range(5)]
        assert math.isclose(value, sum(each) / 5, rel_tol=1e-12)


@pytest.mark.parametrize("privacy", ["none", "{eps: 8, delta: 1e-3}"])
def test_the_perplexity_is_that_of_the_network_of_transformers_with_the_saved_weights(tmp_path, privacy):
    transformers = pytest.importorskip("transformers")
    trained = train.train(recipe(tmp_path, privacy=privacy), out=tmp_path / "out")
    weights = torch.load(tmp_path / "out" / "model.pt", weights_only=True)["weights"]
    config = transformers.GPT2Config(vocab_size=20, n_positions=8, n_embd=8, n_layer=1, n_head=2, bos_token_id=None)
    network = transformers.GPT2LMHeadModel(config).eval()
    network.load_state_dict(weights)
    tokens = torch.tensor(read("arrays", file=str(tmp_path / "tokens.npz"), tokens=20).x_test)
    with torch.no_grad():
        losses = [float(cross_entropy(network(input_ids=row[None, :-1]).logits[0], row[1:])) for row in tokens]
    assert math.isclose(trained.metrics[-1]["perplexity"], math.exp(sum(losses) / len(losses)), rel_tol=1e-5)


def test_a_statement_says_that_a_record_is_one_sequence(tmp_path):
    pytest.importorskip("transformers")
    train.train(recipe(tmp_path, privacy="{eps: 8, delta: 1e-3}"), out=tmp_path / "out")
    assert "A record is one sequence of tokens" in (tmp_path / "out" / "statement.md").read_text()


def test_records_that_are_no_tokens_are_refused(tmp_path):
    with pytest.raises(UsageError, match="next-token takes records of at least two tokens"):
        train.train(recipe(tmp_path, data="{name: arrays, file: tokens.npz}"), out=tmp_path / "out")


def test_a_missing_transformers_is_named_with_its_extra(monkeypatch):
    monkeypatch.delitem(sys.modules, "wpriv.training.models._gpt2_logits", raising=False)
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingResource, match=r"pip install 'wpriv\[llm\]'"):
        Gpt2().build((8,), 20)
