"""The update rules against torch.optim, which computes the same numbers."""

import itertools

import pytest
import torch
from torch import nn

from wpriv.config.train_schema import Optimizer
from wpriv.training.engine.update_rules import UpdateRule

TORCH = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
PLANS = [
    *({"name": "sgd", **extra} for extra in ({}, {"momentum": 0.9}, {"momentum": 0.9, "nesterov": True})),
    *({"name": name, "betas": betas} for name in ("adam", "adamw") for betas in ([0.9, 0.999], [0.5, 0.9])),
]
CASES = [{**plan, "weight_decay": decay} for plan, decay in itertools.product(PLANS, (0.0, 0.01))]


def network(dtype: torch.dtype) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(1)
    shapes = ((4, 3, 3, 3), (4,), (), (0, 2))
    weights = [nn.Parameter(torch.randn(shape, generator=generator, dtype=dtype)) for shape in shapes]
    weights[0].data = weights[0].data.contiguous(memory_format=torch.channels_last)
    return weights


def take(steps: range, weights: list[nn.Parameter], optimizer) -> None:
    """Take steps on gradients that depend on the number of the step alone; some weights have none at some steps."""
    for step in steps:
        generator = torch.Generator().manual_seed(100 + step)
        for place, weight in enumerate(weights):
            grad = torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
            weight.grad = None if place == 1 and step in (0, 3) else grad
        optimizer.param_groups[0]["lr"] = 0.1 / (1 + step)
        optimizer.step()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_weights_are_bit_for_bit_those_of_torch(case, dtype):
    mine, theirs = network(dtype), network(dtype)
    plan = Optimizer(lr=0.1, **case)
    arguments = {"lr": 0.1, **{key: tuple(v) if key == "betas" else v for key, v in case.items() if key != "name"}}
    take(range(6), mine, UpdateRule(mine, plan))
    take(range(6), theirs, TORCH[plan.name](theirs, **arguments))
    assert all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_rule_continues_from_its_state(case):
    plan, whole, parts = Optimizer(lr=0.1, **case), network(torch.float32), network(torch.float32)
    take(range(6), whole, UpdateRule(whole, plan))
    first, second = UpdateRule(parts, plan), UpdateRule(parts, plan)
    take(range(4), parts, first)
    second.load_state_dict(first.state_dict())
    take(range(4, 6), parts, second)
    assert all(torch.equal(a, b) for a, b in zip(whole, parts, strict=True))
