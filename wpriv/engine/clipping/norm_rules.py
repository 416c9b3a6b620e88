"""Rules of normalisation layers, whose gradients are sums over positions of delta times the normalised input."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from wpriv.engine.clipping.shares import Share, explicit, trains


def group_norm(layer: nn.GroupNorm, h: Tensor, delta: Tensor) -> dict[str, Share]:
    """Group normalisation of channels in the second dimension."""
    return _by_channel(layer, delta, lambda: F.group_norm(h, layer.num_groups, eps=layer.eps))


def instance_norm(layer: Any, h: Tensor, delta: Tensor) -> dict[str, Share]:
    """Instance normalisation: each channel of an example by its own mean, or in evaluation by a running one."""
    if layer.track_running_stats and not layer.training:
        return batch_norm(layer, h, delta)
    return _by_channel(layer, delta, lambda: F.instance_norm(h, eps=layer.eps))


def batch_norm(layer: Any, h: Tensor, delta: Tensor) -> dict[str, Share]:
    """Batch normalisation by running means and variances, which does not mix examples; models that do are refused."""
    mean, var = layer.running_mean, layer.running_var
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


def _by_channel(layer: Any, delta: Tensor, normal: Any) -> dict[str, Share]:
    result = {}
    if trains(layer.weight):
        result["weight"] = explicit((normal() * delta).reshape(*delta.shape[:2], -1).sum(dim=2))
    if trains(layer.bias):
        result["bias"] = explicit(delta.reshape(*delta.shape[:2], -1).sum(dim=2))
    return result
