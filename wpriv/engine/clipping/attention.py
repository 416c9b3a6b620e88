"""Multi-head attention, computed from its linear maps, whose inputs and outputs are recorded for clipping."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wpriv.engine.clipping.shares import INSTEAD, Record, Share, explicit, products, trains
from wpriv.errors import Unsupported


def attention(
    layer: nn.MultiheadAttention,
    record: Record,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Multi-head attention; arguments as those of torch's layer.

    Raises:
        Unsupported: there are extra keys, one example without a batch, or ``is_causal`` without a mask.
    """
    if layer.bias_k is not None or layer.add_zero_attn:
        raise Unsupported(f"attention with extra keys (add_bias_kv, add_zero_attn) has no rule; {INSTEAD}")
    if query.is_nested or query.dim() != 3 or (is_causal and attn_mask is None):
        raise Unsupported(f"attention needs a batch of sequences of one length, and a mask if causal; {INSTEAD}")
    q, k, v = (_heads(layer, x) for x in _maps(layer, record, query, key, value))
    mask = _mask(attn_mask, key_padding_mask, q, k)
    drop = layer.dropout if layer.training else 0.0
    if need_weights:
        scores = q @ k.transpose(2, 3) / math.sqrt(layer.head_dim)
        weights = F.dropout((scores if mask is None else scores + mask).softmax(dim=3), drop)
        heads = weights @ v
    else:
        weights, heads = None, F.scaled_dot_product_attention(q, k, v, mask, drop)
    out = _linear(record, heads.transpose(1, 2).flatten(2), layer.out_proj, "out_proj.", "weight", "bias")
    if weights is not None and average_attn_weights:
        weights = weights.mean(dim=1)
    return out if layer.batch_first else out.transpose(0, 1), weights


def _maps(layer: nn.MultiheadAttention, record: Record, query: Tensor, key: Tensor, value: Tensor) -> list[Tensor]:
    """Return the maps of queries, keys and values [B, positions, width]."""
    width, same = layer.embed_dim, query is key and key is value
    sources = [x if layer.batch_first else x.transpose(0, 1) for x in (query, key, value)]
    if not layer._qkv_same_embed_dim:
        names = ("q_proj_weight", "k_proj_weight", "v_proj_weight")
        return [
            _linear(record, x, layer, "", name, "in_proj_bias", slice(None), slice(n * width, (n + 1) * width))
            for n, (x, name) in enumerate(zip(sources, names, strict=True))
        ]
    if same:
        return list(_linear(record, sources[0], layer, "", "in_proj_weight", "in_proj_bias").chunk(3, dim=2))
    parts = [slice(n * width, (n + 1) * width) for n in range(3)]
    return [
        _linear(record, x, layer, "", "in_proj_weight", "in_proj_bias", part, part)
        for x, part in zip(sources, parts, strict=True)
    ]


def _linear(
    record: Record,
    x: Tensor,
    holder: nn.Module,
    prefix: str,
    weight_name: str,
    bias_name: str,
    rows: slice = slice(None),
    bias_rows: slice = slice(None),
) -> Tensor:
    """Apply the linear map of some rows of a weight and of a bias, and record it."""
    weight, bias = getattr(holder, weight_name), getattr(holder, bias_name)
    out = F.linear(x, weight[rows], None if bias is None else bias[bias_rows])

    def rule(h: Tensor, delta: Tensor) -> dict[str, Share]:
        shares = {}
        if weight.requires_grad:
            shares[prefix + weight_name] = products(h, _among(delta, rows, len(weight)))
        if trains(bias):
            shares[prefix + bias_name] = explicit(_among(delta.sum(dim=1), bias_rows, len(bias)))
        return shares

    record(x, out, rule)
    return out


def _among(delta: Tensor, rows: slice, count: int) -> Tensor:
    """Return delta [..., rows] with zeros for the other rows of the parameter."""
    first, last, _ = rows.indices(count)
    return F.pad(delta, (first, count - last))


def _heads(layer: nn.MultiheadAttention, x: Tensor) -> Tensor:
    return x.view(*x.shape[:2], layer.num_heads, layer.head_dim).transpose(1, 2)


def _mask(attn_mask: Tensor | None, padding: Tensor | None, q: Tensor, k: Tensor) -> Tensor | None:
    """Return what is added to the scores [B, heads, queries, keys]: minus infinity where a mask is true."""
    masks = []
    if attn_mask is not None:
        masks.append(attn_mask if attn_mask.dim() == 2 else attn_mask.view(*q.shape[:3], k.shape[2]))
    if padding is not None:
        masks.append(padding[:, None, None, :])
    added = [
        torch.zeros_like(mask, dtype=q.dtype).masked_fill(mask, -math.inf) if mask.dtype == torch.bool else mask
        for mask in masks
    ]
    return sum(added[1:], added[0]) if added else None
