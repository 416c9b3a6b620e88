"""Sums of clipped records without floating-point error: each is cut to a grid, and sums on a grid are exact.

A sum in floating point may move between neighbours by more than the clipping norm: the error of its additions hangs
on all records, norms and factors are rounded, and so are the forward and backward passes, whose kernels may treat a
record in another way in a batch of another size. None of this is left here:

- Each record passes through the model by itself, in tensors of its own, so that its gradient is a function of the
  record, the weights and its random draws alone, whatever the passes do to it. (Kernels must be deterministic; where
  cuDNN offers a choice they are.)
- That gradient g, in floating point, is taken as it is. Its norm is taken in float64, where each square of a float32
  is exact and a sum of d of them, in any order, is off by at most d 2^-53 relative; ``SLACK`` more covers the root,
  the quotient and the products.
- f g, with f = min(1, C / (|g| (1 + slack))), is cut towards zero to multiples of the grid: its norm is at most C,
  never more.
- Multiples of the grid add up without rounding in float64, in any order, while they stay below 2^53 of it.

So the sum is an exact function of the records that moves by at most C when one is added or removed, and 2 C when one
is replaced.

Source:
    Casacuberta, Shoemate, Vadhan, Wagaman (2022), "Widespread Underestimation of Sensitivity in Differentially
    Private Libraries".
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from wpriv.engine.clipping.common import Loss, losses_of
from wpriv.engine.release import Bounded
from wpriv.errors import UsageError

BITS = 31
"""The grid is 2^-31 of the clipping norm, or up to twice as fine."""
MOST = 2**20
"""Records of one step: as many clipped ones, each at most 2^32 of the grid in any coordinate, stay below 2^53."""
SLACK = 32


def grid_of(norm: float) -> float:
    """The power of two in (2^-32, 2^-31] of the clipping norm."""
    return math.ldexp(1.0, math.frexp(norm)[1] - 1 - BITS)


class Sum:
    """The exact sum of vectors, each given in parts, and clipped to ``norm`` on its way in.

    Args:
        like: tensors whose shapes, device and precision are those of the parts of a release. norm: C > 0.
    """

    def __init__(self, like: Sequence[Tensor], norm: float):
        self.like, self.norm, self.grid = like, norm, grid_of(norm)
        count = sum(part.numel() for part in like)
        self.slack = (count + SLACK) * 2.0**-52
        self.flat = torch.zeros(count, dtype=torch.float64, device=like[0].device)
        self.records = 0

    def add(self, parts: Sequence[Tensor]) -> Tensor:
        """Add one record's vector, clipped; returns its norm before clipping, not finite where the vector is not.

        Raises:
            UsageError: there are more than 2^20 records.
        """
        self.records += 1
        if self.records > MOST:
            raise UsageError(f"noise: exact adds up to {MOST} records a step; take a smaller batch")
        vector = torch.cat([part.detach().reshape(-1) for part in parts]).double()
        length = vector.square().sum().sqrt()
        factor = (self.norm / (length * (1 + self.slack))).clamp(max=1.0)
        # dividing by a power of two rounds nothing
        self.flat += vector.mul_(factor / self.grid).trunc_()
        return length

    def bounded(self, adjacency: str) -> Bounded:
        """The sum so far, with its sensitivity: C under add-remove, otherwise 2 C."""
        sensitivity = self.norm if adjacency == "add-remove" else 2 * self.norm
        flat = torch.split(self.flat * self.grid, [part.numel() for part in self.like])
        parts = [part.view(like.shape) for part, like in zip(flat, self.like, strict=True)]
        return Bounded(parts, sensitivity, adjacency, self.grid, self.like[0].dtype)


def gradients(
    model: nn.Module, loss: Loss, inputs: Tensor, targets: Tensor, norm: float, weights: Tensor | None = None
) -> tuple[Sum, Tensor, Tensor]:
    """The exact sum of the records' clipped gradients, their norms [B] before clipping, and their losses [B].

    Args:
        weights: [B] of zeros and ones; records of weight 0 are left out of the sum.
    """
    trainable = [p for p in model.parameters() if p.requires_grad]
    total, lengths, losses = Sum(trainable, norm), [], []
    with _same_kernels():
        for place in range(len(inputs)):
            # copies, which begin where all tensors begin: kernels may hang on where in a batch a record lies
            own, goal = inputs[place : place + 1].clone(), targets[place : place + 1].clone()
            of_record = losses_of(model(own), goal, loss)
            grads = torch.autograd.grad(of_record.sum(), trainable, allow_unused=True, materialize_grads=True)
            taken = weights is None or bool(weights[place] != 0)
            dense = [grad.to_dense() if grad.is_sparse else grad for grad in grads]
            lengths.append(total.add(dense) if taken else total.flat.new_zeros(()))
            losses.append(of_record.detach())
    return total, torch.stack(lengths), torch.cat(losses)


@contextmanager
def _same_kernels() -> Iterator[None]:
    """Within it, cuDNN takes deterministic kernels, and the same ones for the same shapes."""
    settings = torch.backends.cudnn
    before = settings.deterministic, settings.benchmark
    settings.deterministic, settings.benchmark = True, False
    try:
        yield
    finally:
        settings.deterministic, settings.benchmark = before
