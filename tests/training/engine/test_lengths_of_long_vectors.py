"""Lengths of vectors of many equal numbers, whose float32 sums round in one direction, against sums in float64."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests import nightly
from wpriv.papers.penalty.gradient import penalised_gradient
from wpriv.papers.penalty.penalty import Penalty
from wpriv.papers.tasks._projected import RowEncoder
from wpriv.papers.tasks._swd_generate_options import Options
from wpriv.training.clipping import example_gradients
from wpriv.training.engine.batch_gradient import Batches, per_example

UNIT = torch.finfo(torch.float32).eps


class OwnWeights(nn.Module):
    """A linear score whose weights lie in no layer, so that its Jacobian is formed."""

    def __init__(self, count: int):
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(count))

    def forward(self, x: Tensor) -> Tensor:
        return (x @ self.weights).unsqueeze(1)


@pytest.mark.parametrize(
    ("clipping", "number"),
    # by default each clipping with one number
    nightly.sharded([("per-coordinate", 0.0333), ("per-coordinate", 0.3), ("spectral", 0.3), ("spectral", 0.0333)], 2),
)
def test_a_formed_jacobian_of_a_million_numbers_is_no_longer_than_the_bound(number, clipping):
    penalty = Penalty(1.0, bound=1.0, lipschitz=0.5, sizes=((1, 1),), fixed=True, clipping=clipping)
    record, point = torch.full((1, 1_000_000), number), torch.ones(1, 1)
    gradient = penalised_gradient(OwnWeights(1_000_000), None, record, None, penalty, points=point, method="vmap")
    # the score is 0 and its derivative 2 (0 - 1), so that the gradient is -2 times the clipped Jacobian
    length = float(gradient.total.parts[0].double().norm()) / 2
    assert 0.499 < length <= 0.5 * (1 + 1e-12)


@pytest.mark.parametrize("width", [512, 3072, 49_152])
def test_the_length_of_a_sum_over_positions_is_not_underestimated(width):
    for number in np.linspace(0.11, 0.97, 25).tolist():
        inputs, deltas = torch.full((1, 4, width), number), torch.full((1, 4, 16), 0.5)
        exact = (4 * number_of(inputs) * 0.5) ** 2 * width * 16
        assert float(example_gradients.paired_squares(inputs, deltas)) >= exact * (1 - UNIT)


def number_of(rows: Tensor) -> float:
    """Return the number that all entries are, as float32 rounds it."""
    return float(rows[0, 0, 0].double())


def test_no_row_of_a_large_bright_image_is_longer_than_one():
    options = Options(dimension=3 * 128 * 128, bound=1.0, labels="none")
    encode = RowEncoder(options, (3, 128, 128), torch.device("cpu"))
    for number in np.linspace(0.15, 0.95, 17).tolist():
        rows, clipped = encode(torch.full((1, 3, 128, 128), number))
        assert bool(clipped)
        assert 1 - 1e-4 < math.sqrt(float(rows.double().square().sum())) <= 1 + 1e-12


def test_counts_of_a_step_are_whole_under_losses_of_half_precision():
    # one clipped record more must move the count that an adapted norm releases by one, and not by four
    model, records = nn.Linear(1, 1, bias=False), torch.full((1200, 1), 0.01)
    batches = Batches(model, lambda outputs, _: outputs[:, 0], lambda at: (records[at], records[at, 0]), 4096)
    for clipped in (514, 515, 516):
        records[:clipped] = 4.0
        with torch.autocast("cpu", dtype=torch.bfloat16):
            step = per_example(batches, np.arange(1031), norm=1.0, adjacency="add-remove", divisor=1.0)
        count, _, over = step.diagnostics.tolist()
        assert (count, over) == (1031, clipped)
