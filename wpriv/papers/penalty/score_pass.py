"""The pass of a penalised gradient: scores and losses of a model, and the norms of their gradients for each example."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from wpriv.errors import UsageError
from wpriv.papers.penalty.jacobian import along, formed_grams, grams, row_squares
from wpriv.training.clipping.example_gradients import Loss, losses_of
from wpriv.training.clipping.ghost import Call, forward


class ScorePass(NamedTuple):
    """Scores [n, d] and losses [n] in the graph, and the calls of the layers, which are empty if Jacobians are formed.

    ``read`` computes scores and losses from outputs and targets. ``outputs`` are given if they are the scores, so that
    the losses depend on the scores alone.
    """

    scores: Tensor
    losses: Tensor | None
    calls: list[Call]
    read: Callable[[Any, Tensor | None], tuple[Tensor, Tensor | None]]
    outputs: Tensor | None


class GradientNorms(NamedTuple):
    """Squared norms per example.

    Args:
        rows: [n, d] of the rows of the Jacobians. gram: [n, d, d] their inner products, where they are known.
        losses: [n] of the gradients of the losses; None without losses.
    """

    rows: Tensor
    gram: Tensor | None
    losses: Tensor | None


def run(
    method: str,
    model: nn.Module,
    loss: Loss | None,
    inputs: Tensor,
    targets: Tensor | None,
    scores: Callable[[Any], Tensor] | None,
) -> ScorePass:
    """Pass a batch through the model."""

    def read(outputs: Any, targets: Tensor | None) -> tuple[Tensor, Tensor | None]:
        values = outputs if scores is None else scores(outputs)
        if not isinstance(values, Tensor):
            raise UsageError(
                f"scores must be one tensor; found {type(values).__name__}. "
                f"Select what the penalty compares with scores="
            )
        losses = None if loss is None or targets is None else losses_of(outputs, targets, loss)
        return values.unsqueeze(1) if values.dim() == 1 else values, losses

    outputs, calls = forward(model, inputs, only_rules=True) if method == "ghost" else (model(inputs), [])
    values, losses = read(outputs, targets)
    if values.dim() != 2 or len(values) != len(inputs) or not values.requires_grad:
        raise UsageError(
            f"scores must be numbers [{len(inputs)}, d] that depend on the weights; found shape {tuple(values.shape)}"
        )
    return ScorePass(values, losses, calls, read, outputs if scores is None else None)


def gradient_norms(
    model: nn.Module, batch: ScorePass, inputs: Tensor, targets: Tensor | None, *, with_gram: bool
) -> GradientNorms:
    """Return the norms of the gradients of scores and losses for each example."""
    d = batch.scores.shape[1]
    if not batch.calls:
        joint = formed_grams(model, batch.read, inputs, targets)
        squares = joint.diagonal(dim1=1, dim2=2)
        return GradientNorms(squares[:, :d], joint[:, :d, :d], None if batch.losses is None else squares[:, d])
    # for d = 1 the squared norm is the whole matrix
    gram = grams(batch.scores, batch.calls) if with_gram or d == 1 else None
    rows = row_squares(batch.scores, batch.calls) if gram is None else gram.diagonal(dim1=1, dim2=2)
    if batch.losses is None:
        return GradientNorms(rows, gram, None)
    if gram is not None and batch.outputs is not None:
        (slopes,) = torch.autograd.grad(batch.losses.sum(), batch.outputs, retain_graph=True)
        return GradientNorms(rows, gram, along(gram, slopes.reshape(-1, d)))
    return GradientNorms(rows, gram, row_squares(batch.losses.unsqueeze(1), batch.calls)[:, 0])


def faulty(batch: ScorePass, norms: GradientNorms) -> Tensor:
    """Return [n] which examples have a score or a gradient that is not finite, or too long for its square."""
    numbers = [batch.scores.detach().sum(dim=1), norms.rows.sum(dim=1)]
    if batch.losses is not None and norms.losses is not None:
        numbers += [batch.losses.detach(), norms.losses]
    return ~torch.stack([number.isfinite() for number in numbers]).all(dim=0)
