"""Canaries: records with a known gradient, each in or out by a fair coin, which an audit adds to a training.

A canary has a weight of the model for itself, and its gradient is a multiple of that coordinate, ``LENGTH`` times as
long as the clipping norm. It is clipped, summed, drawn and gets noise by the functions of every training: only the
aggregation of its job is wrapped, and the noisy sums are read before they change the weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from wpriv.errors import Unsupported, UsageError
from wpriv.training.clipping.example_gradients import Automatic, Scaling, bound
from wpriv.training.engine import batch_gradient
from wpriv.training.engine.batch_gradient import BatchGradient
from wpriv.training.engine.job import Job
from wpriv.training.engine.loop import Engine
from wpriv.training.engine.sampler import Indices

# length of a canary's gradient before clipping to a norm, in clipping norms
LENGTH = 10.0
# the largest number of coordinates without a canary that are observed, which show the noise alone
IDLE = 500


class Coordinates(nn.Module):
    """A model of which each record's output is one weight of another model, times a factor.

    Args:
        model: the other model, whose parameters are those of this one. factor: the length of each gradient.
    """

    def __init__(self, model: nn.Module, factor: float):
        super().__init__()
        self.model, self.factor = model, factor

    def forward(self, places: Tensor) -> Tensor:
        """Return [B] from the places [B] of the weights among all trainable ones."""
        return self.factor * batch_gradient.flat(p for p in self.model.parameters() if p.requires_grad)[places]


@dataclass
class Canaries:
    """The canaries of one training and what was observed of them.

    Args:
        records: number of the records of the training; the canaries follow behind them, and empty places behind these.
        count: of canaries; ``fewer`` allows for as many as the model has weights.
        absent: what a canary that does not take part adds in its place, as a multiple of its gradient: 0, or -1 where
            neighbours replace one record by another.
        norm: the clipping norm, or automatic clipping. exact: sums without floating-point error.
        subtract: whether the other records' sum is subtracted from what is observed, see docs/theory/audits.md.
        generator: of the coins and of the canaries' coordinates.
        coins: [m] whether each canary takes part; drawn by ``insert``. steps: the observations.
    """

    records: int
    count: int
    fewer: bool
    absent: float
    norm: Scaling
    exact: bool
    subtract: bool
    generator: np.random.Generator
    coins: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    steps: list[Tensor] = field(default_factory=list)
    _others: Tensor | None = None
    _divisor: float = 1.0
    _places: Tensor | None = None

    def insert(self, job: Job) -> Job:
        """Return the job with the canaries behind its records."""
        if job.aggregate is None:
            raise Unsupported("an audit needs a training whose steps sum up the gradients of records")
        trainable = [p for p in job.model.parameters() if p.requires_grad]
        weights = sum(p.numel() for p in trainable)
        if self.count > weights and not self.fewer:
            raise UsageError(f"`canaries` must be at most {weights}, the weights of the model; found {self.count}")
        self.coins = self.generator.random(min(self.count, weights)) < 0.5
        order = self.generator.permutation(weights)[: len(self.coins) + IDLE]
        self._places = torch.from_numpy(order).to(trainable[0].device)
        return replace(job, aggregate=self._wrapped(job.aggregate, job.model))

    def _wrapped(
        self, aggregate: Callable[[Indices], BatchGradient], model: nn.Module
    ) -> Callable[[Indices], BatchGradient]:
        batches = batch_gradient.Batches(
            Coordinates(model, _length(self.norm)), lambda outputs, signs: outputs * signs, self._fetch, len(self.coins)
        )

        def both(indices: Indices) -> BatchGradient:
            base = aggregate(indices[indices < self.records])
            drawn = indices[(indices >= self.records) & (indices < self.records + len(self.coins))] - self.records
            added = batch_gradient.per_example(
                batches,
                drawn if self.absent else drawn[self.coins[drawn]],
                norm=self.norm,
                adjacency=base.total.adjacency,
                divisor=1.0,
                method="loop" if self.exact else "vmap",
                exact=self.exact,
            )
            self._others = self._observed(base.total.parts) if self.subtract else None
            self._divisor = base.divisor or max(float(base.diagnostics[0]), 1.0)
            return replace(base, total=batch_gradient.joined([base.total, added.total]))

        return both

    def _fetch(self, canaries: Indices) -> tuple[Tensor, Tensor]:
        assert self._places is not None
        signs = torch.from_numpy(np.where(self.coins[canaries], 1.0, self.absent))
        rows = torch.from_numpy(canaries).to(self._places.device)
        return self._places[rows], signs.to(self._places.device, torch.float32)

    def _observed(self, parts: list[Tensor]) -> Tensor:
        assert self._places is not None
        return batch_gradient.flat(parts).double()[self._places]

    def watch(self, engine: Engine) -> None:
        """Observe the noisy sum of every step before it changes the weights."""

        def observe(parts: list[Tensor]) -> None:
            sums = self._observed(parts) * self._divisor
            self.steps.append(((sums if self._others is None else sums - self._others) / bound(self.norm)).cpu())

        engine.before_update = observe

    def observations(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the noisy sums along each canary [steps, m], and along other coordinates, in clipping norms."""
        sums = torch.stack(self.steps).numpy()
        return sums[:, : len(self.coins)], sums[:, len(self.coins) :]


def _length(norm: Scaling) -> float:
    """Return the length of a canary's gradient: by automatic clipping it keeps 0.999 of the largest share."""
    return 999 * norm.stability if isinstance(norm, Automatic) else LENGTH * norm
