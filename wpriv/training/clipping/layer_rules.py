"""Rules of layers: norms and weighted sums of the examples' gradients, from a layer's input and output gradient.

A rule is a function (layer, h, delta) -> {parameter: Share}: h [B, ...] is the input of one call of the layer, and
delta [B, ...] the gradient at its output of the loss of each example. It does not depend on the loss, so that one
call serves any number of losses. Another kind of layer needs one rule and one entry of RULES.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from wpriv.errors import Unsupported
from wpriv.training.clipping.conv_rules import convolution, transposed
from wpriv.training.clipping.example_gradients import Loss, Share, explicit, outer, products, squares_of, trains
from wpriv.training.clipping.record_trees import Records, called, mapped, raw, records_of

LayerRule = Callable[[Any, Tensor, Tensor], dict[str, Share]]


def group_norm(layer: nn.GroupNorm, h: Tensor, delta: Tensor) -> dict[str, Share]:
    """Group normalisation of channels in the second dimension."""
    return _scaled(layer, delta, lambda: F.group_norm(h, layer.num_groups, eps=layer.eps), _by_channel)


def instance_norm(layer: _NormBase, h: Tensor, delta: Tensor) -> dict[str, Share]:
    """Instance normalisation: each channel of an example by its own mean, or in evaluation by a running one."""
    if layer.track_running_stats and not layer.training:
        return batch_norm(layer, h, delta)
    return _scaled(layer, delta, lambda: F.instance_norm(h, eps=layer.eps), _by_channel)


def batch_norm(layer: _NormBase, h: Tensor, delta: Tensor) -> dict[str, Share]:
    """Batch normalisation by running means and variances, which does not mix examples; models that do are refused."""
    mean, var = layer.running_mean, layer.running_var
    assert mean is not None
    assert var is not None
    return _scaled(layer, delta, lambda: F.batch_norm(h, mean.to(h.dtype), var.to(h.dtype), eps=layer.eps), _by_channel)


def last_dimensions_norm(layer: nn.LayerNorm | nn.RMSNorm, h: Tensor, delta: Tensor) -> dict[str, Share]:
    """Layer normalisation, or by the root mean square, with positions before the normalised dimensions."""
    shape = tuple(layer.normalized_shape)
    norm: Callable[..., Tensor] = F.rms_norm if isinstance(layer, nn.RMSNorm) else F.layer_norm
    return _scaled(
        layer,
        delta,
        lambda: norm(h, shape, eps=layer.eps),
        lambda values: values.reshape(len(h), -1, *shape).sum(dim=1),
    )


def _scaled(
    layer: Any, delta: Tensor, normal: Callable[[], Tensor], sums: Callable[[Tensor], Tensor]
) -> dict[str, Share]:
    """Return the shares of the scale and shift of ``normal``, whose gradients are ``sums`` over the positions."""
    result = {}
    if trains(layer.weight):
        result["weight"] = explicit(sums(normal() * delta))
    if trains(getattr(layer, "bias", None)):
        result["bias"] = explicit(sums(delta))
    return result


def _by_channel(values: Tensor) -> Tensor:
    return values.reshape(*values.shape[:2], -1).sum(dim=2)


def linear(layer: Any, h: Tensor, delta: Tensor, swapped: bool = False) -> dict[str, Share]:
    """Linear layer of h [B, ..., D], delta [B, ..., p]: the gradient is the sum of delta h^T over positions.

    Args:
        swapped: the weight is transposed, and so is the gradient.
    """
    result = {}
    if h.dim() > 2:
        h, delta = h.flatten(1, -2), delta.flatten(1, -2)
    if layer.weight.requires_grad:
        pair = (delta, h) if swapped else (h, delta)
        result["weight"] = outer(*pair) if h.dim() == 2 else products(*pair)
    if trains(layer.bias):
        result["bias"] = explicit(delta if delta.dim() == 2 else delta.sum(dim=1))
    return result


def embedding(layer: nn.Embedding, h: Tensor, delta: Tensor) -> dict[str, Share]:
    """Embedding of words h [B, ...]: a gradient has a row for each word, the sum of delta over its positions."""
    batch, words = len(h), h.reshape(len(h), -1)
    delta = delta.reshape(words.numel(), -1)
    if layer.padding_idx is not None:
        delta = delta.masked_fill((words == layer.padding_idx).view(-1, 1), 0.0)
    owner = torch.arange(batch, device=h.device).unsqueeze(1)
    # positions sorted by example and word; each run of equal ones is a slot, and the remaining slots stay zero
    keys, order = (owner * layer.num_embeddings + words).flatten().sort()
    slot = torch.cat([keys.new_zeros(1), (keys[1:] != keys[:-1]).cumsum(0)])
    key = torch.zeros_like(keys).scatter_(0, slot, keys)
    rows = torch.zeros_like(delta).index_add_(0, slot, delta[order])
    owner, word = key // layer.num_embeddings, key % layer.num_embeddings
    squares = rows.new_zeros(batch).index_add_(0, owner, squares_of(rows))

    def weighted(factors: Tensor) -> Tensor:
        return rows.new_zeros(layer.weight.shape).index_add_(0, word, rows * factors[owner].unsqueeze(1))

    def each() -> Tensor:
        flat = rows.new_zeros(batch * layer.num_embeddings, rows.shape[1]).index_add_(0, key, rows)
        return flat.view(batch, *layer.weight.shape)

    return {"weight": Share(squares, weighted, each)}


def prelu(layer: nn.PReLU, h: Tensor, delta: Tensor) -> dict[str, Share]:
    """Rectifier with a slope for negative inputs: one for all channels, or one for each."""
    slopes = (delta * h.clamp(max=0.0)).reshape(len(h), h.shape[1] if h.dim() > 1 else 1, -1).sum(dim=2)
    return {"weight": explicit(slopes if layer.num_parameters > 1 else slopes.sum(dim=1, keepdim=True))}


RULES: dict[type[nn.Module], LayerRule] = {
    nn.Linear: linear,
    nn.Conv1d: convolution,
    nn.Conv2d: convolution,
    nn.Conv3d: convolution,
    nn.ConvTranspose1d: transposed,
    nn.ConvTranspose2d: transposed,
    nn.ConvTranspose3d: transposed,
    nn.Embedding: embedding,
    nn.PReLU: prelu,
    nn.GroupNorm: group_norm,
    nn.LayerNorm: last_dimensions_norm,
    nn.RMSNorm: last_dimensions_norm,
    nn.InstanceNorm1d: instance_norm,
    nn.InstanceNorm2d: instance_norm,
    nn.InstanceNorm3d: instance_norm,
    nn.BatchNorm1d: batch_norm,
    nn.BatchNorm2d: batch_norm,
    nn.BatchNorm3d: batch_norm,
}


def rule_of(layer: nn.Module) -> LayerRule | None:
    """Return the rule of a layer, by its type; None if it has none. ``Conv1D`` of transformers is a linear layer."""
    kind = type(layer)
    if kind.__name__ == "Conv1D" and kind.__module__ == "transformers.pytorch_utils":
        return functools.partial(linear, swapped=True)
    return RULES.get(kind)


# dimensions of a batch, where not 2; with fewer, the layer takes its input for a single example
MIN_DIMENSIONS = {
    nn.Embedding: 1,
    nn.Conv1d: 3,
    nn.Conv2d: 4,
    nn.Conv3d: 5,
    nn.ConvTranspose1d: 3,
    nn.ConvTranspose2d: 4,
    nn.ConvTranspose3d: 5,
    nn.InstanceNorm1d: 3,
    nn.InstanceNorm2d: 4,
    nn.InstanceNorm3d: 5,
}


# --- several copies of each record in a batch: the wrapped model, and rules for the sum over a record's copies ---
#
# Where each of B records has K copies, a layer sees B K rows, of which K follow each other for each record. They are
# arranged so that the same rules give the norm of the SUM of a record's copies: the copies become further positions of
# a linear layer, or are put one below the other as one high image for a convolution.


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

    def sums(values: Tensor) -> Tensor:
        return values.reshape(-1, count, values.shape[1], values[0, 0].numel()).sum(dim=(1, 3))

    return _scaled(layer, delta, lambda: F.group_norm(h, layer.num_groups, eps=layer.eps), sums)


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
