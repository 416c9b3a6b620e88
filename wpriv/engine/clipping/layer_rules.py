"""Rules of layers: norms and weighted sums of the examples' gradients, from a layer's input and output gradient.

A rule is a function (layer, h, delta) -> {parameter: Share}: h [B, ...] is the input of one call of the layer, and
delta [B, ...] the gradient at its output of the loss of each example. It does not depend on the loss, so that one call
serves any number of losses. Another kind of layer needs one rule and one entry of RULES.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wpriv.engine.clipping.common import roughness
from wpriv.engine.clipping.conv_unfold import Windows


@dataclass(frozen=True)
class Share:
    """Gradients g_i of a parameter by example: upper bounds of |g_i|^2 [B], and sum_i f_i g_i for factors f [B]."""

    squares: Tensor
    weighted: Callable[[Tensor], Tensor]


Rule = Callable[[Any, Tensor, Tensor], dict[str, Share]]


def linear(layer: nn.Linear, h: Tensor, delta: Tensor) -> dict[str, Share]:
    """Linear layer of h [B, ..., D], delta [B, ..., p]: the gradient is the sum of delta h^T over positions."""
    result = {}
    if h.dim() > 2:
        h, delta = h.flatten(1, -2), delta.flatten(1, -2)
    if layer.weight.requires_grad:
        result["weight"] = _outer(h, delta) if h.dim() == 2 else _products(h, delta)
    if _trains(layer.bias):
        result["bias"] = explicit(delta if delta.dim() == 2 else delta.sum(dim=1))
    return result


def convolution(layer: nn.Conv1d | nn.Conv2d, h: Tensor, delta: Tensor) -> dict[str, Share]:
    """Convolution: a linear layer on the windows of its input, in each of its groups."""
    result = {}
    if layer.weight.requires_grad:
        result["weight"] = _conv_weight(layer, h, delta)
    if _trains(layer.bias):
        result["bias"] = explicit(delta.flatten(2).sum(dim=2))
    return result


def _conv_weight(layer: nn.Conv1d | nn.Conv2d, h: Tensor, delta: Tensor) -> Share:
    windows = Windows(layer, h, delta)
    if _pairing_is_cheaper(windows.positions, windows.size, windows.channels):
        squares = h.new_empty(len(h), layer.groups)
        for chunk, values, d in windows.chunks():
            squares[chunk] = paired_squares(values, d.transpose(1, 2)).view(-1, layer.groups)
        return Share(squares.sum(dim=1), windows.weighted)
    # in pieces: the allocator returns large blocks to the system, and getting them again takes longer than filling them
    pieces = [
        (chunk, explicit((d @ values).view(-1, layer.groups, windows.channels, windows.size)))
        for chunk, values, d in windows.chunks()
    ]

    def weighted(factors: Tensor) -> Tensor:
        total = h.new_zeros(layer.groups, windows.channels, windows.size)
        for chunk, piece in pieces:
            total += piece.weighted(factors[chunk])
        return windows.as_weight(total)

    return Share(torch.cat([piece.squares for _, piece in pieces]), weighted)


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
    squares = rows.new_zeros(batch).index_add_(0, owner, _squares(rows))

    def weighted(factors: Tensor) -> Tensor:
        return rows.new_zeros(layer.weight.shape).index_add_(0, word, rows * factors[owner].unsqueeze(1))

    return {"weight": Share(squares, weighted)}


def group_norm(layer: nn.GroupNorm, h: Tensor, delta: Tensor) -> dict[str, Share]:
    """Group normalisation: the gradients are sums over positions of delta times the normalised input, and of delta."""
    result = {}
    if layer.weight.requires_grad:
        normal = F.group_norm(h, layer.num_groups, eps=layer.eps)
        result["weight"] = explicit((normal * delta).reshape(*h.shape[:2], -1).sum(dim=2))
    if _trains(layer.bias):
        result["bias"] = explicit(delta.reshape(*h.shape[:2], -1).sum(dim=2))
    return result


def layer_norm(layer: nn.LayerNorm, h: Tensor, delta: Tensor) -> dict[str, Share]:
    """Layer normalisation: as ``group_norm``, with positions before the normalised dimensions."""
    shape, result = tuple(layer.normalized_shape), {}
    if layer.weight.requires_grad:
        normal = F.layer_norm(h, shape, eps=layer.eps)
        result["weight"] = explicit((normal * delta).reshape(len(h), -1, *shape).sum(dim=1))
    if _trains(layer.bias):
        result["bias"] = explicit(delta.reshape(len(h), -1, *shape).sum(dim=1))
    return result


def explicit(grads: Tensor) -> Share:
    """Return the share of gradients [B, ...] that are given explicitly."""
    flat = grads.flatten(1)
    return Share(_squares(flat), lambda factors: torch.mv(flat.T, factors).view(grads.shape[1:]))


def paired_squares(h: Tensor, d: Tensor) -> Tensor:
    """Return |sum_t d_t h_t^T|^2 [B] of h [B, T, D] and d [B, T, p] without forming the sums.

    It is the sum over t and s of (h_t . h_s)(d_t . d_s). The terms have both signs; a bound on their rounding error,
    from the sum of their sizes, is added.
    """
    inputs, deltas = h @ h.transpose(1, 2), d @ d.transpose(1, 2)
    sizes = (inputs.diagonal(dim1=1, dim2=2) * deltas.diagonal(dim1=1, dim2=2)).sqrt().sum(dim=1)
    rough = roughness(h.dtype) * math.sqrt(h.shape[2] + d.shape[2])
    return (inputs * deltas).sum(dim=(1, 2)).clamp(min=0.0) + sizes.square() * rough


def _pairing_is_cheaper(positions: int, inputs: int, outputs: int) -> bool:
    """Return whether a sum over positions has more than twice the size of its factors, so that pairing is cheaper."""
    return 2 * positions * (inputs + outputs) < inputs * outputs


def _outer(h: Tensor, d: Tensor) -> Share:
    """Return the share of d_i h_i^T, of norm |d_i| |h_i|, without forming it."""
    return Share(_squares(h) * _squares(d), lambda factors: (d * factors.unsqueeze(1)).T @ h)


def _products(h: Tensor, d: Tensor) -> Share:
    """Return the share of the sums over t of d_it h_it^T, for h [B, T, D] and d [B, T, p]."""
    if _pairing_is_cheaper(h.shape[1], h.shape[2], d.shape[2]):
        return Share(
            paired_squares(h, d), lambda factors: (d * factors.view(-1, 1, 1)).flatten(0, 1).T @ h.flatten(0, 1)
        )
    return explicit(d.transpose(1, 2) @ h)


def _squares(rows: Tensor) -> Tensor:
    """Return the squared norms [B] of rows [B, k], plus a bound on what underflow may have removed."""
    norms: Tensor = torch.linalg.vector_norm(rows, dim=1)
    return norms.square() + rows.shape[1] * torch.finfo(rows.dtype).tiny


def _trains(parameter: Tensor | None) -> bool:
    return parameter is not None and parameter.requires_grad


RULES: dict[type[nn.Module], Rule] = {
    nn.Linear: linear,
    nn.Conv1d: convolution,
    nn.Conv2d: convolution,
    nn.Embedding: embedding,
    nn.GroupNorm: group_norm,
    nn.LayerNorm: layer_norm,
}
