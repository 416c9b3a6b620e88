"""What each kind of layer knows about the gradients of single examples, from its input and the gradient at its output.

A rule is a function (layer, h, delta) -> {parameter: Share}: h [B, ...] is the input of one call of the layer, and delta [B, ...] the
gradient at its output of a loss of each example. It asks nothing about the loss, so that one call serves as many losses as there are.
Adding a kind of layer is one rule and one entry of RULES.
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
    """The gradients g_i of one parameter, one for each example: |g_i|^2 [B], never too small, and sum_i f_i g_i for factors f [B]."""

    squares: Tensor
    weighted: Callable[[Tensor], Tensor]


Rule = Callable[[Any, Tensor, Tensor], dict[str, Share]]


def linear(layer: nn.Linear, h: Tensor, delta: Tensor) -> dict[str, Share]:
    """Of h [B, ..., D] and delta [B, ..., p]: the weight's gradient is the sum over the positions between of delta h^T."""
    found = {}
    if h.dim() > 2:
        h, delta = h.flatten(1, -2), delta.flatten(1, -2)
    if layer.weight.requires_grad:
        found["weight"] = _outer(h, delta) if h.dim() == 2 else _products(h, delta)
    if _trains(layer.bias):
        found["bias"] = held(delta if delta.dim() == 2 else delta.sum(dim=1))
    return found


def convolution(layer: nn.Conv1d | nn.Conv2d, h: Tensor, delta: Tensor) -> dict[str, Share]:
    """A linear layer on the windows of its input, in each of its groups."""
    found = {}
    if layer.weight.requires_grad:
        found["weight"] = _conv_weight(layer, h, delta)
    if _trains(layer.bias):
        found["bias"] = held(delta.flatten(2).sum(dim=2))
    return found


def _conv_weight(layer: nn.Conv1d | nn.Conv2d, h: Tensor, delta: Tensor) -> Share:
    windows = Windows(layer, h, delta)
    if _short(windows.positions, windows.size, windows.channels):
        squares = h.new_empty(len(h), layer.groups)
        for near, seen, d in windows.chunks():
            squares[near] = paired(seen, d.transpose(1, 2)).view(-1, layer.groups)
        return Share(squares.sum(dim=1), windows.weighted)
    # in pieces, since the allocator gives large blocks back to the system, and fetching them anew costs more than filling them
    pieces = [
        (near, held((d @ seen).view(-1, layer.groups, windows.channels, windows.size)))
        for near, seen, d in windows.chunks()
    ]

    def weighted(factors: Tensor) -> Tensor:
        total = h.new_zeros(layer.groups, windows.channels, windows.size)
        for near, piece in pieces:
            total += piece.weighted(factors[near])
        return windows.as_weight(total)

    return Share(torch.cat([piece.squares for _, piece in pieces]), weighted)


def embedding(layer: nn.Embedding, h: Tensor, delta: Tensor) -> dict[str, Share]:
    """Of words h [B, ...]: an example's gradient has one row for each word in it, the sum of delta over the word's positions."""
    batch, words = len(h), h.reshape(len(h), -1)
    delta = delta.reshape(words.numel(), -1)
    if layer.padding_idx is not None:
        delta = delta.masked_fill((words == layer.padding_idx).view(-1, 1), 0.0)
    owner = torch.arange(batch, device=h.device).unsqueeze(1)
    # positions in order of example and word; each run of equal ones is a slot, and the slots left over stay zero
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
    """The gradients are sums over positions: of delta times the normalised input, and of delta."""
    found = {}
    if layer.weight.requires_grad:
        found["weight"] = held(
            (F.group_norm(h, layer.num_groups, eps=layer.eps) * delta).reshape(*h.shape[:2], -1).sum(dim=2)
        )
    if _trains(layer.bias):
        found["bias"] = held(delta.reshape(*h.shape[:2], -1).sum(dim=2))
    return found


def layer_norm(layer: nn.LayerNorm, h: Tensor, delta: Tensor) -> dict[str, Share]:
    """As for ``group_norm``, with positions before the normalised dimensions."""
    shape, found = tuple(layer.normalized_shape), {}
    if layer.weight.requires_grad:
        normal = F.layer_norm(h, shape, eps=layer.eps)
        found["weight"] = held((normal * delta).reshape(len(h), -1, *shape).sum(dim=1))
    if _trains(layer.bias):
        found["bias"] = held(delta.reshape(len(h), -1, *shape).sum(dim=1))
    return found


def held(grads: Tensor) -> Share:
    """The share of gradients [B, ...] that are there in full."""
    flat = grads.flatten(1)
    return Share(_squares(flat), lambda factors: torch.mv(flat.T, factors).view(grads.shape[1:]))


def paired(h: Tensor, d: Tensor) -> Tensor:
    """|sum_t d_t h_t^T|^2 [B] of h [B, T, D] and d [B, T, p] without the sums: the sum over t and s of (h_t . h_s)(d_t . d_s).

    Its terms have both signs. What rounding can hide in them is bounded by the sum of their sizes, and is added.
    """
    inputs, deltas = h @ h.transpose(1, 2), d @ d.transpose(1, 2)
    sizes = (inputs.diagonal(dim1=1, dim2=2) * deltas.diagonal(dim1=1, dim2=2)).sqrt().sum(dim=1)
    rough = roughness(h.dtype) * math.sqrt(h.shape[2] + d.shape[2])
    return (inputs * deltas).sum(dim=(1, 2)).clamp(min=0.0) + sizes.square() * rough


def _short(positions: int, inputs: int, outputs: int) -> bool:
    """Whether a sum over so few positions is better paired than formed: where it would be over twice the size of what it is made of."""
    return 2 * positions * (inputs + outputs) < inputs * outputs


def _outer(h: Tensor, d: Tensor) -> Share:
    """d_i h_i^T, of norm |d_i| |h_i|: none of them is ever formed."""
    return Share(_squares(h) * _squares(d), lambda factors: (d * factors.unsqueeze(1)).T @ h)


def _products(h: Tensor, d: Tensor) -> Share:
    """The sums over t of d_it h_it^T, for h [B, T, D] and d [B, T, p]."""
    if _short(h.shape[1], h.shape[2], d.shape[2]):
        return Share(paired(h, d), lambda factors: (d * factors.view(-1, 1, 1)).flatten(0, 1).T @ h.flatten(0, 1))
    return held(d.transpose(1, 2) @ h)


def _squares(rows: Tensor) -> Tensor:
    """Squared norms [B] of rows [B, k], with what their squares may have lost to underflow."""
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
