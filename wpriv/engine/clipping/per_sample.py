"""Clipped sums from the gradients of single examples: batched by torch.func, or one example after another."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value
from torch.func import vmap as batched

from wpriv.engine.clipping.common import Loss, Summed, clip_factors, losses_of
from wpriv.engine.clipping.scale_factors import Scaling
from wpriv.engine.clipping.shares import squares_of
from wpriv.errors import Unsupported

MAX_VALUES = 2**26
"""The largest number of gradient values in memory at a time: 256 MiB in float32."""


def vmap(
    model: nn.Module, loss: Loss, inputs: Tensor, targets: Tensor, norm: Scaling, weights: Tensor | None
) -> Summed:
    """Return the clipped sum by torch.func, over as many examples at a time as fit into memory.

    Raises:
        Unsupported: torch.func cannot batch the model.
    """
    trainable = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}
    rest = {name: p.detach() for name, p in model.named_parameters() if not p.requires_grad} | dict(
        model.named_buffers()
    )

    def one(values: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        outputs = functional_call(model, {**values, **rest}, (x.unsqueeze(0),))
        return losses_of(outputs, y.unsqueeze(0), loss).squeeze(0)

    each = batched(grad_and_value(one), in_dims=(None, 0, 0), randomness="different")
    size = max(1, MAX_VALUES // sum(p.numel() for p in trainable.values()))
    pieces = []
    for at in range(0, len(inputs), size):
        near = slice(at, at + size)
        try:
            with warnings.catch_warnings():
                # attention and LSTMs are batched one example at a time: slower, and right
                warnings.filterwarnings("ignore", "There is a performance drop", UserWarning)
                grads, losses = each(trainable, inputs[near], targets[near])
        except RuntimeError as error:
            reason = str(error).strip().partition("\n")[0]
            raise Unsupported(
                f"torch.func cannot batch this model ({reason}); use the clipping method 'loop'"
            ) from error
        # under autocast the layers may compute in half precision; norms and sums stay in that of the parameters
        with torch.autocast(inputs.device.type, enabled=False):
            squares = {name: squares_of(grad.reshape(len(grad), -1)) for name, grad in grads.items()}
            factors = clip_factors(squares, norm, None if weights is None else weights[near])
            parts = [torch.tensordot(factors, grads[name], dims=1) for name in trainable]
        pieces.append(Summed(parts, squares, losses))
    return _joined(pieces)


def loop(
    model: nn.Module, loss: Loss, inputs: Tensor, targets: Tensor, norm: Scaling, weights: Tensor | None
) -> Summed:
    """Return the clipped sum by definition, one example after another. Slow; for tests and unusual models."""
    trainable = {name: p for name, p in model.named_parameters() if p.requires_grad}
    pieces = []
    for at in range(len(inputs)):
        near = slice(at, at + 1)
        losses = losses_of(model(inputs[near]), targets[near], loss)
        grads = torch.autograd.grad(losses.sum(), list(trainable.values()), allow_unused=True, materialize_grads=True)
        dense = [grad.to_dense() if grad.is_sparse else grad for grad in grads]
        squares = {name: squares_of(grad.reshape(1, -1)) for name, grad in zip(trainable, dense, strict=True)}
        (factor,) = clip_factors(squares, norm, None if weights is None else weights[near])
        pieces.append(Summed([grad * factor for grad in dense], squares, losses.detach()))
    return _joined(pieces)


def _joined(pieces: list[Summed]) -> Summed:
    """Return the sum over all pieces, with their norms and losses concatenated."""
    if len(pieces) == 1:
        return pieces[0]
    parts = [torch.stack(same).sum(dim=0) for same in zip(*(piece.parts for piece in pieces), strict=True)]
    squares = {name: torch.cat([piece.squares[name] for piece in pieces]) for name in pieces[0].squares}
    return Summed(parts, squares, torch.cat([piece.losses for piece in pieces]))
