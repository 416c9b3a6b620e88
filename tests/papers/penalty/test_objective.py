"""A step of penalised training without clips is the plain gradient of the objective, by autograd and POT."""

from __future__ import annotations

import math

import numpy as np
import ot
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wpriv.core.kinds import Adjacency
from wpriv.papers.penalty.objective import DIVISOR, Objective, penalty_of
from wpriv.papers.penalty.penalty import Penalty
from wpriv.transport.sliced import random_directions

SIZES = {"parity": ((9, 6),), "odds": ((9, 6), (4, 11))}


def loss(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.mse_loss(outputs.sigmoid(), targets, reduction="none").sum(dim=1)


def objective(notion: str, d: int, alpha: float, loose: bool = True) -> Objective:
    torch.manual_seed(3)
    sizes = SIZES[notion]
    count = sum(map(sum, sizes))
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, d)).double()
    x, y = torch.randn(count, 4, dtype=torch.float64), torch.rand(count, d, dtype=torch.float64)
    reach = 1e6 if loose else 0.05
    axes = None if d == 1 else random_directions(d, 7, torch.Generator().manual_seed(1), dtype=torch.float64)
    return Objective(
        model,
        loss,
        lambda places: (x[torch.from_numpy(places)], y[torch.from_numpy(places)]),
        Penalty(alpha=alpha, bound=reach, lipschitz=reach, sizes=sizes, clip=reach),
        torch.sigmoid,
        None if axes is None else lambda: axes,
    )


def every(own: Objective) -> np.ndarray:
    return np.arange(own.penalty.batch)


@pytest.mark.slow
@pytest.mark.parametrize("notion", SIZES)
@pytest.mark.parametrize("d", [1, 3])
@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
def test_with_loose_clips_both_ways_are_the_same_step(notion, d, alpha):
    own = objective(notion, d, alpha)
    clipped, plain = own.clipped(every(own)), own.plain(every(own))
    for one, other in zip(clipped.total.parts, plain.total.parts, strict=True):
        assert torch.allclose(one, other, rtol=1e-9, atol=1e-12)
    assert torch.allclose(clipped.diagnostics[:2], plain.diagnostics[:2], rtol=1e-12)
    assert clipped.divisor == plain.divisor == DIVISOR
    assert clipped.total.adjacency == plain.total.adjacency == Adjacency.WITHIN_GROUP
    assert clipped.total.sensitivity == own.penalty.sensitivity
    assert plain.total.sensitivity == 0


@pytest.mark.parametrize("notion", SIZES)
@pytest.mark.parametrize("d", [1, 3])
def test_the_step_and_what_is_seen_are_those_of_the_objective(notion, d):
    """Oracle: the objective with POT's differentiable ``wasserstein_1d`` on each direction, by autograd."""
    own, alpha = objective(notion, d, 0.4), 0.4
    found = own.plain(every(own))
    inputs, targets = own.fetch(every(own))
    outputs = own.model(inputs)
    scores = outputs.sigmoid() if own.directions is None else outputs.sigmoid() @ own.directions()
    groups = torch.split(scores, [size for pair in own.penalty.sizes for size in pair])
    costs = [ot.wasserstein_1d(x, z, p=2).mean() for x, z in zip(groups[::2], groups[1::2], strict=True)]
    value = (1 - alpha) * loss(outputs, targets).mean() + alpha * sum(costs) / len(costs)
    value.backward()
    for part, weight in zip(found.total.parts, own.model.parameters(), strict=True):
        assert torch.allclose(part, weight.grad, rtol=1e-9, atol=1e-12)
    assert float(found.diagnostics[1] / found.diagnostics[0]) == pytest.approx(float(value.detach()))


def test_what_is_clipped_is_counted_and_moves_less():
    own = objective("parity", 1, 0.3, loose=False)
    found = own.clipped(every(own))
    inputs, targets = own.fetch(every(own))
    weights = list(own.model.parameters())
    each = [
        torch.autograd.grad(loss(own.model(x[None]), y[None])[0], weights) for x, y in zip(inputs, targets, strict=True)
    ]
    assert (
        float(found.diagnostics[2])
        == sum(math.sqrt(sum(float(g.square().sum()) for g in one)) > 0.05 for one in each)
        > 0
    )
    length = math.sqrt(sum(float(part.square().sum()) for part in found.total.parts))
    assert length <= 0.7 * 0.05 + 0.3 * 4 * 0.05 * 0.05  # (1 - alpha) C, and alpha times 2 |U - V| L for both groups
    assert math.isnan(float(own.plain(every(own)).diagnostics[2]))


def test_the_mean_distance_is_that_of_pot():
    scores = torch.rand(30, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    own = penalty_of(scores, SIZES["odds"], None)[1]
    x, z, u, v = torch.split(scores[:, 0], [9, 6, 4, 11])
    assert float(own) == pytest.approx((float(ot.wasserstein_1d(x, z, p=2)) + float(ot.wasserstein_1d(u, v, p=2))) / 2)
