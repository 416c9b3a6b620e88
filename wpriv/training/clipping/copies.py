"""Several copies of each record in a batch: the wrapped model, and rules of layers for the sum over a record's copies.

The rules of layers (layer_rules.py) see records in the first dimension. Where each of B records has K copies, a layer
sees B K rows, of which K follow each other for each record. The functions here arrange them so that the same rules
give the norm of the SUM of a record's copies: the copies become further positions of a linear layer, or are put one
below the other as one high image for a convolution.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wpriv.errors import Unsupported
from wpriv.training.clipping.example_gradients import Loss, Share, explicit
from wpriv.training.clipping.layer_rules import RULES, rule_of
from wpriv.training.clipping.record_trees import Records, called, mapped, raw, records_of


class Copies(nn.Module):
    """``model`` on K >= 1 copies of each record, row by row: [B, K, ...] to [B K, ...], with its parameters."""

    takes_trees = True

    def __init__(self, model: nn.Module, count: int):
        super().__init__()
        self.model, self.count = model, count

    def forward(self, inputs: Records) -> Any:
        """Return the outputs of all copies."""
        return called(self.model, mapped(inputs, lambda leaf: leaf.flatten(0, 1)))


def split_copies(rows: Tensor, count: int) -> Tensor:
    """Return [B, count, ...] from the rows [B count, ...] of all copies."""
    return rows.view(-1, count, *rows.shape[1:]) if len(rows) else rows.view(0, count, *rows.shape[1:])


def mean_loss(loss: Loss, count: int) -> Loss:
    """Return the mean of a loss over the copies of each record: (outputs [B K, ...], targets [B, ...]) -> [B]."""

    def mean(outputs: Any, targets: Any) -> Tensor:
        records = records_of(targets, "targets")
        each = loss(outputs, raw(mapped(records, lambda leaf: leaf.repeat_interleave(count, dim=0))))
        if each.shape != (len(records) * count,):
            return each  # which the caller refuses with the shape
        return each.view(len(records), count).mean(dim=1)

    return mean


def person_loss(loss: Loss, count: int) -> Loss:
    """Return the mean of a loss over the records of each person.

    It maps outputs [B K, ...] and targets ([B, K, ...], [B, K]) to losses [B]; the second part is true for records and
    false for padding, which counts nothing. A person without records has loss 0.
    """

    def mean(outputs: Any, targets: Any) -> Tensor:
        of_records, present = targets
        each = loss(outputs, raw(mapped(records_of(of_records, "targets"), lambda leaf: leaf.flatten(0, 1))))
        if each.shape != (present.numel(),):
            return each  # which the caller refuses with the shape
        counted = torch.where(present, each.view(-1, count), 0.0)
        losses: Tensor = counted.sum(dim=1) / present.sum(dim=1).clamp(min=1)
        return losses

    return mean


def count_of(model: nn.Module) -> int:
    """Return the number of copies of each record that a model takes; 1 for every model but ``Copies``."""
    return model.count if isinstance(model, Copies) else 1


def shares_of_sums(layer: nn.Module, h: Tensor, delta: Tensor, count: int) -> dict[str, Share]:
    """Return what the rule of a layer gives, for the sum over the ``count`` copies of each record."""
    rule = rule_of(layer)
    if count == 1 and rule is not None:
        return rule(layer, h, delta)
    if type(layer) not in ARRANGED:
        raise Unsupported(
            f"{type(layer).__name__} has no rule for several copies of a record; use the clipping method 'vmap'"
        )
    return ARRANGED[type(layer)](layer, h, delta, count)


def _as_positions(layer: nn.Linear | nn.LayerNorm, h: Tensor, delta: Tensor, count: int) -> dict[str, Share]:
    """Layers on the last dimensions: the copies are further positions."""
    return RULES[type(layer)](layer, split_copies(h, count), split_copies(delta, count))


def _group_norm(layer: nn.GroupNorm, h: Tensor, delta: Tensor, count: int) -> dict[str, Share]:
    """Group normalisation of each copy by itself; the sums over positions are then summed over copies."""
    result = {}
    if layer.weight.requires_grad:
        normal = F.group_norm(h, layer.num_groups, eps=layer.eps)
        result["weight"] = explicit(_sum_of_positions(normal * delta, count))
    if layer.bias is not None and layer.bias.requires_grad:
        result["bias"] = explicit(_sum_of_positions(delta, count))
    return result


def _sum_of_positions(values: Tensor, count: int) -> Tensor:
    return values.reshape(-1, count, values.shape[1], values[0, 0].numel()).sum(dim=(1, 3))


def _convolution(layer: nn.Conv1d | nn.Conv2d, h: Tensor, delta: Tensor, count: int) -> dict[str, Share]:
    """Convolution: the padded copies of a record, one below the other, are one image that needs no padding.

    Each copy is extended to a height that is a multiple of the stride, so that the windows of a copy are those of the
    high image at the rows of its own outputs. Windows that begin in one copy and end in the next get no gradient.
    """
    mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
    h = F.pad(h, layer._reversed_padding_repeated_twice, mode=mode)
    stride = layer.stride[0]
    spare = -h.shape[2] % stride
    height = (h.shape[2] + spare) // stride  # rows of outputs that belong to a copy in the high image
    missing = height - delta.shape[2]  # those without a window inside of the copy; never negative
    tail = (0,) * (2 * (h.dim() - 3))
    high = _stacked(F.pad(h, (*tail, 0, spare)), count)
    gradient = _stacked(F.pad(delta, (*tail, 0, missing)), count)
    window = layer.dilation[0] * (layer.kernel_size[0] - 1) + 1
    fitting = (high.shape[2] - window) // stride + 1
    unpadded = copy.copy(layer)
    unpadded.padding, unpadded.padding_mode = (0,) * len(layer.kernel_size), "zeros"
    unpadded._reversed_padding_repeated_twice = [0] * len(layer._reversed_padding_repeated_twice)
    return RULES[type(layer)](unpadded, high, gradient[:, :, :fitting])


def _stacked(images: Tensor, count: int) -> Tensor:
    """Return [B, C, count rows, ...] from images [B count, C, rows, ...]."""
    return split_copies(images, count).movedim(1, 2).flatten(2, 3)


ARRANGED: dict[type[nn.Module], Callable[[Any, Tensor, Tensor, int], dict[str, Share]]] = {
    nn.Linear: _as_positions,
    nn.LayerNorm: _as_positions,
    nn.GroupNorm: _group_norm,
    nn.Conv1d: _convolution,
    nn.Conv2d: _convolution,
}
