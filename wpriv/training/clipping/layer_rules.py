"""Rules of layers: norms and weighted sums of the examples' gradients, from a layer's input and output gradient.

A rule is a function (layer, h, delta) -> {parameter: Share}: h [B, ...] is the input of one call of the layer, and
delta [B, ...] the gradient at its output of the loss of each example. It does not depend on the loss, so that one
call serves any number of losses. Another kind of layer needs one rule and one entry of RULES.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from wpriv.training.clipping.conv_rules import convolution, transposed
from wpriv.training.clipping.example_gradients import Share, explicit, outer, products, squares_of, trains

LayerRule = Callable[[Any, Tensor, Tensor], dict[str, Share]]


def group_norm(layer: nn.GroupNorm, h: Tensor, delta: Tensor) -> dict[str, Share]:
    """Group normalisation of channels in the second dimension."""
    return _by_channel(layer, delta, lambda: F.group_norm(h, layer.num_groups, eps=layer.eps))


def instance_norm(layer: _NormBase, h: Tensor, delta: Tensor) -> dict[str, Share]:
    """Instance normalisation: each channel of an example by its own mean, or in evaluation by a running one."""
    if layer.track_running_stats and not layer.training:
        return batch_norm(layer, h, delta)
    return _by_channel(layer, delta, lambda: F.instance_norm(h, eps=layer.eps))


def batch_norm(layer: _NormBase, h: Tensor, delta: Tensor) -> dict[str, Share]:
    """Batch normalisation by running means and variances, which does not mix examples; models that do are refused."""
    mean, var = layer.running_mean, layer.running_var
    assert mean is not None
    assert var is not None
    return _by_channel(layer, delta, lambda: F.batch_norm(h, mean.to(h.dtype), var.to(h.dtype), eps=layer.eps))


def layer_norm(layer: nn.LayerNorm, h: Tensor, delta: Tensor) -> dict[str, Share]:
    """Layer normalisation, with positions before the normalised dimensions."""
    shape, result = tuple(layer.normalized_shape), {}
    if layer.weight.requires_grad:
        normal = F.layer_norm(h, shape, eps=layer.eps)
        result["weight"] = explicit((normal * delta).reshape(len(h), -1, *shape).sum(dim=1))
    if trains(layer.bias):
        result["bias"] = explicit(delta.reshape(len(h), -1, *shape).sum(dim=1))
    return result


def rms_norm(layer: nn.RMSNorm, h: Tensor, delta: Tensor) -> dict[str, Share]:
    """Normalisation by the root mean square, with positions before the normalised dimensions."""
    shape = tuple(layer.normalized_shape)
    normal = F.rms_norm(h, shape, eps=layer.eps)
    return {"weight": explicit((normal * delta).reshape(len(h), -1, *shape).sum(dim=1))}


def _by_channel(
    layer: nn.GroupNorm | nn.modules.batchnorm._NormBase, delta: Tensor, normal: Callable[[], Tensor]
) -> dict[str, Share]:
    result = {}
    if trains(layer.weight):
        result["weight"] = explicit((normal() * delta).reshape(*delta.shape[:2], -1).sum(dim=2))
    if trains(layer.bias):
        result["bias"] = explicit(delta.reshape(*delta.shape[:2], -1).sum(dim=2))
    return result


def linear(layer: nn.Linear, h: Tensor, delta: Tensor) -> dict[str, Share]:
    """Linear layer of h [B, ..., D], delta [B, ..., p]: the gradient is the sum of delta h^T over positions."""
    result = {}
    if h.dim() > 2:
        h, delta = h.flatten(1, -2), delta.flatten(1, -2)
    if layer.weight.requires_grad:
        result["weight"] = outer(h, delta) if h.dim() == 2 else products(h, delta)
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
    nn.LayerNorm: layer_norm,
    nn.RMSNorm: rms_norm,
    nn.InstanceNorm1d: instance_norm,
    nn.InstanceNorm2d: instance_norm,
    nn.InstanceNorm3d: instance_norm,
    nn.BatchNorm1d: batch_norm,
    nn.BatchNorm2d: batch_norm,
    nn.BatchNorm3d: batch_norm,
}


def _of_transformers(layer: nn.Conv1d, h: Tensor, delta: Tensor) -> dict[str, Share]:
    """``Conv1D`` of transformers: a linear layer whose weight is transposed."""
    result = {}
    if h.dim() > 2:
        h, delta = h.flatten(1, -2), delta.flatten(1, -2)
    if layer.weight.requires_grad:
        result["weight"] = outer(delta, h) if h.dim() == 2 else products(delta, h)
    if trains(layer.bias):
        result["bias"] = explicit(delta if delta.dim() == 2 else delta.sum(dim=1))
    return result


def rule_of(layer: nn.Module) -> LayerRule | None:
    """Return the rule of a layer, by its type; None if it has none."""
    kind = type(layer)
    if kind.__name__ == "Conv1D" and kind.__module__ == "transformers.pytorch_utils":
        return _of_transformers
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
