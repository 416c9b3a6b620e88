"""The gradient of a step of penalised training: clipped, or without privacy the plain one."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from wpriv.config.train_schema import Privacy
from wpriv.core.kinds import Adjacency
from wpriv.papers.penalty.gradient import method_for, pair_slopes, penalised_gradient
from wpriv.papers.penalty.penalty import Penalty
from wpriv.training.clipping.example_gradients import Loss, losses_of
from wpriv.training.engine.batch_gradient import BatchGradient
from wpriv.training.engine.sampler import Indices
from wpriv.training.noise.release import Bounded

# the objective is a mean over each group's fixed part of the batch
DIVISOR = 1.0


@dataclass(frozen=True)
class Objective:
    """(1-alpha) mean loss + (alpha/R) sum over pairs of groups of (sliced) W_2^2 between scores; places in group order.

    Args:
        model, loss: as in ``penalised_gradient``. fetch: inputs and targets of the records at some places.
        penalty: the groups' sizes in the batch, alpha and the clips.
        scores: outputs -> [n, d], compared between groups. directions: draws those of one step, [d, k]; None if d = 1.
        points: with ``penalty.fixed``, the second groups [m, d] of a step, from its places or drawn; ``fetch`` gives
            the first groups alone.
    """

    model: nn.Module
    loss: Loss | None
    fetch: Callable[[Indices], tuple[Tensor, Tensor | None]]
    penalty: Penalty
    scores: Callable[[Any], Tensor]
    directions: Callable[[], Tensor] | None = None
    points: Callable[[Indices], Tensor] | None = None

    def make_aggregator(
        self, private: Privacy | None, inputs: Tensor, targets: Tensor | None
    ) -> Callable[[Indices], BatchGradient]:
        """Return ``clipped`` for a private training, after a test of the model on made-up examples; else ``plain``."""
        if private is None:
            return self.plain
        loss, goals = self.loss if self.penalty.alpha < 1 else None, None if targets is None else targets[:0]
        method_for(self.model, loss, inputs[:0], goals, scores=self.scores)
        return self.clipped

    def clipped(self, indices: Indices) -> BatchGradient:
        """Return the gradient with bounded sensitivity; ``diagnostics`` has the objective in place of the losses."""
        records = self.fetch(indices)
        directions, points = self._compared(indices)
        gradient = penalised_gradient(
            self.model, self.loss, *records, self.penalty, directions=directions, points=points, scores=self.scores
        )
        over = math.nan if gradient.norms is None else (gradient.norms > self.penalty.clip).sum()
        return BatchGradient(gradient.total, DIVISOR, self._diagnostics(gradient.losses, gradient.cost, over))

    def plain(self, indices: Indices) -> BatchGradient:
        """Return the gradient without clipping and projection, for training without privacy."""
        inputs, targets = self.fetch(indices)
        with torch.enable_grad():
            outputs = self.model(inputs)
            scores = self.scores(outputs)
            value, cost = penalty_of(scores, self.penalty.sizes, *self._compared(indices))
            objective, losses = self.penalty.alpha * value, None
            if self.loss is not None and targets is not None:
                losses = losses_of(outputs, targets, self.loss)
                objective = objective + (1 - self.penalty.alpha) * losses.mean()
            trainable = [p for p in self.model.parameters() if p.requires_grad]
            parts = list(torch.autograd.grad(objective, trainable, allow_unused=True, materialize_grads=True))
        return BatchGradient(
            Bounded(parts, 0.0, Adjacency.WITHIN_GROUP),
            DIVISOR,
            self._diagnostics(None if losses is None else losses.detach(), cost, math.nan),
        )

    def _compared(self, indices: Indices) -> tuple[Tensor | None, Tensor | None]:
        """The directions and the points of a step, in this order of their draws."""
        directions = None if self.directions is None else self.directions()
        return directions, None if self.points is None else self.points(indices)

    def _diagnostics(self, losses: Tensor | None, cost: Tensor, over: Tensor | float) -> Tensor:
        value = self.penalty.alpha * cost
        if losses is not None:
            value = value + (1 - self.penalty.alpha) * losses.mean()
        return torch.stack(
            [cost.new_tensor(self.penalty.batch), value * self.penalty.batch, torch.as_tensor(over).to(cost)]
        )


def penalty_of(
    scores: Tensor, sizes: tuple[tuple[int, int], ...], directions: Tensor | None, points: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return the mean over pairs of groups of (sliced) W_2^2 between their scores [n, d], in group order.

    With ``points`` the scores are of the first groups alone, and the points [m, d] those of the second ones.

    Returns:
        A number with the derivatives of the mean in the scores (but not its value), and the mean itself.
    """
    slopes, cost = pair_slopes(scores.detach(), None if points is None else points.to(scores.dtype), directions, sizes)
    return (scores * slopes).sum() / len(sizes), cost
