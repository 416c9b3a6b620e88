"""A training small enough to know everything about: a linear model on twelve made-up records."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from wpriv import strategies
from wpriv.accounting.mechanisms.gauss import Gauss
from wpriv.accounting.mechanisms.matrix_gauss import MatrixGauss
from wpriv.config.train_schema import Optimizer, Privacy
from wpriv.core.kinds import Sampling
from wpriv.core.process import Step
from wpriv.randomness import training_seeds
from wpriv.training.engine import batch_gradient
from wpriv.training.engine.job import Job, Schedule
from wpriv.training.engine.loop import Engine
from wpriv.training.noise.recursion import recursion

RECORDS, BATCH = 12, 4
LOSS = functools.partial(cross_entropy, reduction="none")


def records() -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(3)
    return torch.tensor(rng.normal(size=(RECORDS, 5)), dtype=torch.float32), torch.tensor(rng.integers(0, 3, RECORDS))


def batches(physical: int = RECORDS) -> batch_gradient.Batches:
    x, y = records()
    model = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3))
    return batch_gradient.Batches(
        model, LOSS, lambda places: (x[torch.from_numpy(places)], y[torch.from_numpy(places)]), physical
    )


def schedule(
    steps: int = 30,
    *,
    kind: str = "poisson",
    multiplier: float = 0.7,
    every: float = 60.0,
    run: int = 1,
    strategy: str = "",
    **own: Any,
) -> Schedule:
    """The schedule of the toy; with a strategy of correlated noise for whole passes of random allocation."""
    sampling = Sampling("allocation" if strategy else kind, 1.0 if kind == "none" else BATCH / RECORDS)
    step = Step(Gauss(multiplier), sampling.pass_steps, sampling) if multiplier else None
    if strategy:
        step = Step(MatrixGauss(multiplier, strategy), steps, sampling)
        own["recursion"] = recursion(strategies.strategy(strategy, steps, sampling.pass_steps))
    optimizer = Optimizer(lr=0.2, momentum=0.9, decay="cosine")
    return Schedule(
        sampling,
        RECORDS,
        RECORDS if kind == "none" else BATCH,
        steps,
        step,
        multiplier,
        "add-remove",
        optimizer,
        run=run,
        every=every,
        **own,
    )


def engine(
    folder: Path, plan: Schedule | None = None, *, seed: int | None = 0, identity: str = "toy", **how: bool
) -> Engine:
    folder.mkdir(parents=True, exist_ok=True)
    own = training_seeds(seed)
    torch.manual_seed(own.model)
    made, plan = batches(5), plan or schedule()
    form = "exact" if plan.exact else "rounded"
    private = Privacy(sigma=1.0, delta=1e-5, clip=0.5, noise=form) if plan.step else None
    job = Job(
        made.model, batch_gradient.make_aggregator(made, private, "add-remove", plan.batch), lambda: {"accuracy": 0.5}
    )
    return Engine(job, plan, own, folder, torch.device("cpu"), identity=identity, **how)


def weights(own: Engine) -> torch.Tensor:
    return torch.cat([p.detach().reshape(-1) for p in own.job.model.parameters()]).clone()
