"""A training whose weights are divided between two processes: what ``test_sharding.py`` runs in each of them."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import torch
from torch import Tensor, nn

from tests.training.engine import toys
from wpriv.config.train_schema import Optimizer, Train
from wpriv.errors import Interrupted
from wpriv.randomness import training_seeds
from wpriv.training.engine import batch_gradient, distributed, sharding
from wpriv.training.engine.job import Job, Schedule
from wpriv.training.engine.loop import Engine

STEPS, STOP = 12, 5
RECIPE = {
    "kind": "train",
    "source": "a toy",
    "task": "classify",
    "data": {"name": "digits"},
    "model": {"name": "logistic"},
    "privacy": {"sigma": 0.7, "delta": 1e-5, "clip": 0.5},
    "optimizer": {"name": "adam", "lr": 0.05},
    "shard_weights": True,
}


class Scale(nn.Module):
    """A layer without a rule, whose weights stay whole in every process."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.linspace(0.5, 1.5, 9))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor


def network() -> nn.Module:
    """A convolution, two normalisations and two linear layers: seven, four, nine and three rows for two processes."""
    torch.manual_seed(5)
    return nn.Sequential(
        nn.Unflatten(1, (1, 5)), nn.Conv1d(1, 7, 2), nn.GroupNorm(1, 7), nn.Flatten(), nn.Linear(28, 9), nn.Tanh(),
        Scale(), nn.LayerNorm(9), nn.Linear(9, 3),
    )  # fmt: skip


def schedule(name: str = "adam", multiplier: float = 0.7) -> Schedule:
    optimizer = Optimizer(name=name, lr=0.05, momentum=0.9 if name == "sgd" else 0.0)
    return replace(toys.schedule(STEPS, multiplier=multiplier), optimizer=optimizer)


def job(physical: int, *, private: bool = True, method: str = "ghost") -> Job:
    x, y = toys.records()
    batches = batch_gradient.Batches(
        network(), toys.LOSS, lambda places: (x[torch.from_numpy(places)], y[torch.from_numpy(places)]), physical
    )
    recipe = Train.model_validate(RECIPE)
    aggregate = batch_gradient.make_aggregator(
        batches, recipe.privacy if private else None, "add-remove", toys.BATCH, method
    )
    return Job(batches.model, aggregate, lambda: {"accuracy": 0.5}, batches=batches, method=method if private else "")


def train(
    folder: Path, own: Job, plan: Schedule, *, resume: bool = False, stop: Callable[[], str | None] = lambda: None
) -> Engine:
    """Train, or go on, until the end or until ``stop`` has a reason."""
    folder.mkdir(parents=True, exist_ok=True)
    engine = Engine(own, plan, training_seeds(3), folder, torch.device("cpu"), identity="toy", resume=resume)
    engine.run(stop=stop)
    return engine


def divided(physical: int, *, private: bool = True) -> Job:
    recipe = Train.model_validate(RECIPE if private else {**RECIPE, "privacy": "none"})
    return sharding.divided(job(physical, private=private), recipe)


def flat(model: nn.Module) -> Tensor:
    return torch.cat([weight.reshape(-1) for weight in sharding.whole_weights(model).values()])


def stop_after(steps: int) -> Callable[[], str | None]:
    left = iter(range(steps, -1, -1))
    return lambda: "a test" if next(left) == 1 else None


def parallel(folder: Path) -> dict[str, Tensor]:
    """Train in several ways in this process of two; return the final weights of each."""
    results = {}
    results["whole"] = flat(train(folder / "whole", job(12), schedule()).job.model)
    for name, physical in (("divided", 12), ("divided in small passes", 1)):
        results[name] = flat(train(folder / name, divided(physical), schedule()).job.model)
    # processes wait for each other where they save, which their clocks alone would let them do after different steps
    clock = mock.Mock(monotonic=itertools.count(step=100 * distributed.rank()).__next__)
    with mock.patch("wpriv.training.engine.loop.time", clock):
        results["clocks that differ"] = flat(train(folder / "clocks", divided(12), schedule()).job.model)
    with_strategy = replace(toys.schedule(STEPS, strategy="lambda:0.9"), optimizer=schedule("sgd").optimizer)
    results["correlated"] = flat(train(folder / "correlated", divided(12), with_strategy).job.model)
    results["sgd"] = flat(train(folder / "sgd", divided(12), schedule("sgd")).job.model)
    results["plain"] = flat(train(folder / "plain", divided(5, private=False), schedule(multiplier=0.0)).job.model)
    path = folder / "stopped"
    try:
        train(path, divided(12), schedule(), stop=stop_after(STOP))
    except Interrupted:
        (path / f"checkpoint-99-{distributed.rank() + 1}-of-2.pt").touch()  # of a save that a crash cut short
    else:
        raise AssertionError("not stopped")
    engine = train(path, divided(12), schedule(), resume=True)
    results["stopped"] = flat(engine.job.model)
    model = engine.job.model
    engine.job.batches.fetch(np.arange(2))
    model(toys.records()[0][:2])
    results["rows"] = torch.tensor([len(sharding.local(weight)) for weight in model.parameters()])
    results["kept"] = torch.tensor(
        sum(
            sharding.local(value).numel()
            for state in engine.optimizers["model"].state.values()
            for value in state.values()
            if isinstance(value, torch.Tensor)
        )
    )
    return results


if __name__ == "__main__":
    distributed.join()
    torch.save(parallel(Path(sys.argv[1])), Path(sys.argv[1]) / f"rank{distributed.rank()}.pt")
    distributed.leave()
    # on a busy machine such a process was seen to abort with threads of torch still open: end without waiting for them
    os._exit(0)
