"""Experts that get some of the rows of a batch are clipped by the literal loop, and never refused as mixing."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.training.clipping.literal import require_literal
from tests.training.engine.mixers import CLASSES, WIDTH, WORDS, best_experts, experts, plain, sorted_rows, text
from wpriv.training.clipping.clip import choose

LOSS = nn.CrossEntropyLoss(reduction="none")


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("best", [1, 2])
def test_words_that_pass_through_some_experts_are_clipped_as_by_the_literal_loop(best, seed):
    torch.manual_seed(seed)
    model = text(lambda own, x: best_experts(own, x, best), **experts()).double()
    require_literal(model, LOSS, torch.randint(WORDS, (8, 5)), torch.randint(CLASSES, (8,)))


def test_rows_in_the_order_of_their_scores_are_clipped_as_by_the_literal_loop():
    torch.manual_seed(0)
    model = plain(sorted_rows, gate=nn.Linear(WIDTH, 2)).double()
    require_literal(model, LOSS, torch.randn(8, WIDTH, dtype=torch.float64), torch.randint(CLASSES, (8,)))


def test_no_seed_of_experts_is_refused():
    for seed in range(5):  # the numbers of rows that an expert gets differ: of some seeds they divide by the batch
        torch.manual_seed(seed)
        model = text(best_experts, **experts())
        words = torch.zeros(0, 6, dtype=torch.int64)

        assert choose(model, LOSS, words, torch.zeros(0, dtype=torch.int64), batch=40, classes=CLASSES) == "loop"
