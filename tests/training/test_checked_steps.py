"""Steps in which a training compares real records with records alone: at random, repeatable, and in the statement."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import wpriv
from tests.training.test_own_training import OPTIONS, TEST, X, Y, network, same, weights
from wpriv.errors import Unsupported
from wpriv.files import checkpoint
from wpriv.training.engine import loop

LOOP = {key: value for key, value in OPTIONS.items() if key != "progress"} | {"test": TEST, "seed": 5}


class Hidden(nn.Module):
    """Mixes records once a tensor is not 0, which only a comparison of real records shows."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head, self.share = nn.Linear(5, 8), nn.Linear(8, 2), torch.zeros(1)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(torch.tanh(self.first(x - self.share * x.mean(0))))
        return logits


def checked(folder) -> list[int]:
    stored: list[int] = checkpoint.load(folder / "model.pt")["checked"]
    return stored


def test_mixing_that_begins_between_two_steps_is_seen_at_the_next_step_that_is_checked(tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "CHECK_EVERY", 1)
    model, steps = Hidden(), []

    def train() -> None:
        with wpriv.training_loop(model, (X, Y), out=tmp_path / "r", **LOOP) as run:
            for batch in run:
                steps.append(batch.step)
                model.share.fill_(float(batch.step == 3))
                run.step()

    with pytest.raises(Unsupported, match="the training stops"):
        train()
    assert steps == [1, 2, 3]
    assert not (tmp_path / "r" / "model.pt").exists()


def test_which_steps_are_checked_follows_from_the_run_alone_and_no_step_changes_by_it(tmp_path, monkeypatch):
    wpriv.train(network(), (X, Y), out=tmp_path / "rare", **LOOP, progress=False)
    monkeypatch.setattr(loop, "CHECK_EVERY", 2)
    wpriv.train(network(), (X, Y), out=tmp_path / "whole", **LOOP, progress=False)
    with wpriv.training_loop(network(), (X, Y), out=tmp_path / "cut", **LOOP) as run:
        for batch in run:
            run.step()
            if batch.step == 2:
                break
    wpriv.train(network(), (X, Y), out=tmp_path / "cut", **LOOP, progress=False, resume=True)
    assert checked(tmp_path / "cut") == checked(tmp_path / "whole")
    assert checked(tmp_path / "whole")[0] == 1
    assert checked(tmp_path / "rare") == [1]
    assert same(weights(tmp_path / "cut"), weights(tmp_path / "rare"))


def test_the_statement_says_what_was_checked_and_what_no_check_sees(tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "CHECK_EVERY", 1)
    trained = wpriv.train(network(), (X, Y), out=tmp_path / "r", **LOOP, progress=False)
    (line,) = [line for line in trained.statement["not_assessed"] if "the clipped sum" in line]
    assert "In 4 steps (1, 2, 3, 4)" in line
    assert "no proof" in line
    assert line in (tmp_path / "r" / "statement.md").read_text()
    alone = wpriv.train(network(), (X, Y), out=tmp_path / "a", **LOOP, privacy={"method": "loop"}, progress=False)
    (line,) = [line for line in alone.statement["not_assessed"] if "the clipped sum" in line]
    assert "passes each record through the network by itself" in line
