"""Sums of clipped records without floating-point error: each record is rounded to a grid, on which sums are exact.

Each record passes through the model alone; its gradient is clipped with a margin (``SLACK``) for the rounding of its
norm, rounded towards zero to the grid, and added without rounding. So the sum is an exact function of the records. It
changes by at most C when one is added or removed, and by at most 2 C when one is replaced:
docs/concepts/floating-point.md has the proof.

Source: Casacuberta, Shoemate, Vadhan, Wagaman (2022), "Widespread Underestimation of Sensitivity in Differentially
    Private Libraries".
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from wpriv.errors import UsageError
from wpriv.training.clipping import example_gradients
from wpriv.training.clipping.example_gradients import Loss, Scaling, gradients_of, losses_of
from wpriv.training.clipping.record_trees import Records, called
from wpriv.training.noise.release import Bounded

# the grid is 2^-31 of the clipping norm, or up to twice as fine
BITS = 31
# records of one step: so many clipped ones, each at most 2^32 of the grid in any coordinate, stay below 2^53
MAX_RECORDS = 2**20
SLACK = 32


def grid_of(norm: float) -> float:
    """Return the power of two in (2^-32, 2^-31] of the clipping norm."""
    return math.ldexp(1.0, math.frexp(norm)[1] - 1 - BITS)


class ExactSum:
    """The exact sum of vectors, each given in parts and clipped to ``norm`` when it is added.

    Args:
        like: tensors with the shapes, device and precision of the parts of a release.
        norm: C > 0, or automatic clipping, whose C is 1.
    """

    def __init__(self, like: Sequence[Tensor], norm: Scaling):
        self.like, self.norm, self.bound = like, norm, example_gradients.bound(norm)
        self.grid = grid_of(self.bound)
        count = sum(part.numel() for part in like)
        self.slack = (count + SLACK) * 2.0**-52
        self.flat = torch.zeros(count, dtype=torch.float64, device=like[0].device)
        self.records = 0

    def add(self, parts: Sequence[Tensor]) -> Tensor:
        """Add the vector of one record, clipped, or zero where it is not finite; return its norm, then infinite."""
        self.records += 1
        if self.records > MAX_RECORDS:
            raise UsageError(f"noise: exact sums up to {MAX_RECORDS} records per step; use a smaller batch")
        vector = torch.cat([part.detach().reshape(-1) for part in parts]).double()
        square = vector.square().sum()
        longest = (square + len(vector) * torch.finfo(torch.float64).tiny).sqrt() * (1 + self.slack)
        factor = example_gradients.factors_of(longest, self.norm)
        finite = square.isfinite()
        # division by a power of two is exact
        self.flat += vector.mul_(factor / self.grid).trunc_().masked_fill_(~finite, 0.0)
        return square.sqrt().masked_fill(~finite, math.inf)

    def bounded(self, adjacency: str) -> Bounded:
        """Return the sum so far with its sensitivity: C under add-remove, otherwise 2 C."""
        sensitivity = self.bound if adjacency == "add-remove" else 2 * self.bound
        flat = torch.split(self.flat * self.grid, [part.numel() for part in self.like])
        parts = [part.view(like.shape) for part, like in zip(flat, self.like, strict=True)]
        return Bounded(parts, sensitivity, adjacency, self.grid, self.like[0].dtype)


def sum_of_gradients(
    model: nn.Module, loss: Loss, inputs: Records, targets: Records, norm: Scaling, weights: Tensor | None = None
) -> tuple[ExactSum, Tensor, Tensor]:
    """Return the exact sum of the records' clipped gradients, their norms [B] before clipping, and their losses [B].

    Args:
        weights: [B] of zeros and ones; records of weight 0 are left out of the sum.
    """
    trainable = [p for p in model.parameters() if p.requires_grad]
    total, lengths, losses = ExactSum(trainable, norm), [], []
    with _deterministic_kernels():
        for place in range(len(inputs)):
            # copies, which are aligned as all tensors are: kernels may depend on a record's place in a batch
            single_input, target = inputs[place : place + 1].clone(), targets[place : place + 1].clone()
            record_loss = losses_of(called(model, single_input), target, loss)
            grads = gradients_of(record_loss, trainable)
            included = weights is None or bool(weights[place] != 0)
            lengths.append(total.add(grads) if included else total.flat.new_zeros(()))
            losses.append(record_loss.detach())
    return total, torch.stack(lengths), torch.cat(losses)


@contextmanager
def _deterministic_kernels() -> Iterator[None]:
    """Make cuDNN use deterministic kernels, and the same ones for the same shapes."""
    settings = torch.backends.cudnn
    before = settings.deterministic, settings.benchmark
    settings.deterministic, settings.benchmark = True, False
    try:
        yield
    finally:
        settings.deterministic, settings.benchmark = before
