"""Layers made of several linear maps, whose inputs and outputs are recorded: recurrent layers and cells, attention.

For clipping these layers are computed as torch computes them, one linear map after another, and the rule of a linear
layer applies to each map.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from wpriv.errors import Unsupported
from wpriv.training.clipping.example_gradients import BY_AUTO, Record, Rule, Share, explicit, outer, products, trains


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
    """Multi-head attention; arguments as those of torch's layer."""
    if layer.bias_k is not None or layer.add_zero_attn:
        raise Unsupported(f"attention with extra keys (add_bias_kv, add_zero_attn) has no rule; {BY_AUTO}")
    if query.is_nested or query.dim() != 3 or (is_causal and attn_mask is None):
        raise Unsupported(f"attention needs a batch of sequences of one length, and a mask if causal; {BY_AUTO}")
    maps = _maps(layer, record, query, key, value)
    q, k, v = (x.view(*x.shape[:2], layer.num_heads, layer.head_dim).transpose(1, 2) for x in maps)
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
    width = layer.embed_dim
    sources = [x if layer.batch_first else x.transpose(0, 1) for x in (query, key, value)]
    parts = [slice(n * width, (n + 1) * width) for n in range(3)]
    if not layer._qkv_same_embed_dim:
        names = ("q_proj_weight", "k_proj_weight", "v_proj_weight")
        return [
            _linear(record, x, layer, "", name, "in_proj_bias", slice(None), part)
            for x, name, part in zip(sources, names, parts, strict=True)
        ]
    if query is key and key is value:
        return list(_linear(record, sources[0], layer, "", "in_proj_weight", "in_proj_bias").chunk(3, dim=2))
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


# --- recurrent layers and cells ---


def recurrent(
    layer: nn.RNNBase, record: Record, x: Tensor, hx: Any = None
) -> tuple[Tensor, Tensor | tuple[Tensor, Tensor]]:
    """LSTM, GRU or RNN, one position after another."""
    if isinstance(x, PackedSequence):
        raise Unsupported(f"{type(layer).__name__} has no rule for packed sequences; {BY_AUTO}")
    if not isinstance(x, Tensor) or x.dim() != 3:
        raise Unsupported(f"{type(layer).__name__} needs a batch of sequences of one length; {BY_AUTO}")
    if layer.proj_size:
        raise Unsupported(f"an LSTM with projections (proj_size) has no rule; {BY_AUTO}")
    if not layer.batch_first:
        x = x.transpose(0, 1)
    ways = 2 if layer.bidirectional else 1
    zeros = x.new_zeros(layer.num_layers * ways, len(x), layer.hidden_size)
    states = (zeros, zeros) if hx is None else hx if isinstance(hx, tuple) else (hx, hx)
    last_h, last_c = [], []
    for depth in range(layer.num_layers):
        outputs = []
        for way in range(ways):
            suffix, place = f"_l{depth}{'_reverse' * way}", depth * ways + way
            direction = _long_memory if isinstance(layer, nn.LSTM) else _direction
            output, h, c = direction(layer, record, suffix, x, states[0][place], states[1][place], way == 1)
            outputs.append(output)
            last_h.append(h)
            last_c.append(c)
        x = torch.cat(outputs, dim=2) if ways == 2 else outputs[0]
        if layer.dropout and depth < layer.num_layers - 1:
            x = F.dropout(x, layer.dropout, layer.training)
    final: Any = torch.stack(last_h)
    if isinstance(layer, nn.LSTM):
        final = (final, torch.stack(last_c))
    return x if layer.batch_first else x.transpose(0, 1), final


NAMES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


def _direction(
    layer: nn.RNNBase, record: Record, suffix: str, x: Tensor, h: Tensor, c: Tensor, backwards: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the outputs of one direction of one layer at all positions [B, T, H], and its last states."""
    names = [f"{kind}{suffix}" for kind in NAMES]
    w_x, w_h, b_x, b_h = (getattr(layer, name, None) for name in names)
    inputs = F.linear(x, w_x, b_x)  # type: ignore[arg-type]
    steps, kind = inputs.unbind(dim=1), _kind(layer)
    outputs: list[Tensor] = []
    before: list[Tensor] = []
    scales: list[Tensor] = []
    order = range(len(steps) - 1, -1, -1) if backwards else range(len(steps))
    for position in order:
        before.append(h.detach())
        h, c, scale = kind(steps[position], F.linear(h, w_h, b_h), h, c)  # type: ignore[arg-type]
        outputs.append(h)
        scales.append(scale)
    if backwards:
        outputs, before, scales = outputs[::-1], before[::-1], scales[::-1]
    states = torch.stack(before, dim=1)
    factors = torch.stack(scales, dim=1) if isinstance(layer, nn.GRU) else None
    record(x, inputs, _recurrent_rule(layer, names, states, factors))
    return torch.stack(outputs, dim=1), h, c


def _long_memory(
    layer: nn.RNNBase, record: Record, suffix: str, x: Tensor, h: Tensor, c: Tensor, backwards: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return what ``_direction`` does, for an LSTM, with a backward pass over all positions at once."""
    names = [f"{kind}{suffix}" for kind in NAMES]
    w_x, w_h, b_x, b_h = (getattr(layer, name, None) for name in names)
    assert w_x is not None
    assert w_h is not None
    inputs = F.linear(x, w_x, None if b_x is None or b_h is None else b_x + b_h)
    outputs, c_last, before = LongMemory.apply(inputs, w_h.detach(), h, c, backwards)  # type: ignore[no-untyped-call]
    record(x, inputs, _recurrent_rule(layer, names, before, None))
    return outputs, outputs[:, 0 if backwards else -1], c_last


class LongMemory(torch.autograd.Function):
    """The recurrence of an LSTM: gates i, f, g, o; c' = f c + i g; h' = o tanh(c').

    The operations are those of the layer, position after position, on buffers that all positions share. Backward, what
    multiplies the gradients at a position does not depend on them, and is computed for all positions together.
    """

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any, inputs: Tensor, weight: Tensor, h: Tensor, c: Tensor, backwards: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the states [B, T, H], the last c, and the state before each position [B, T, H].

        Args:
            inputs: [B, T, 4 H] the maps of the inputs with all biases. weight: [4 H, H] of the states.
            h, c: [B, H] the first states. backwards: from the last position to the first.
        """
        batch, length, width = len(inputs), inputs.shape[1], h.shape[1]
        maps = inputs.transpose(0, 1).flip(0) if backwards else inputs.transpose(0, 1)
        gates = maps.clone(memory_format=torch.contiguous_format)
        # row 0 has the first states, row t + 1 those after position t
        states, cells = (first.new_empty(length + 1, batch, width) for first in (h, c))
        states[0], cells[0] = h, c
        bent, of_weight = torch.empty_like(states[1:]), weight.t()
        h_rows, c_rows = states.unbind(0), cells.unbind(0)
        for t, (row, curve) in enumerate(zip(gates.unbind(0), bent.unbind(0), strict=True)):
            row.addmm_(h_rows[t], of_weight)
            i, f, g, o = row.chunk(4, dim=1)
            row[:, : 2 * width].sigmoid_()
            torch.mul(f, c_rows[t], out=c_rows[t + 1]).addcmul_(i, g.tanh_())
            torch.mul(o.sigmoid_(), torch.tanh(c_rows[t + 1], out=curve), out=h_rows[t + 1])
        ctx.save_for_backward(gates, cells, bent, weight)
        ctx.backwards = backwards
        before, after = (rows.transpose(0, 1).contiguous() for rows in (states[:-1], states[1:]))
        if backwards:
            before, after = before.flip(1), after.flip(1)
        ctx.mark_non_differentiable(before)
        return after, cells[-1], before

    @staticmethod
    def backward(ctx: Any, *deltas: Any) -> tuple[Tensor | None, ...]:
        """Return the gradients at the inputs and the first states."""
        gates, cells, bent, weight = ctx.saved_tensors
        length, batch, width = bent.shape
        along = (deltas[0].flip(1) if ctx.backwards else deltas[0]).transpose(0, 1).unbind(0)
        i, f, g, o = gates.view(length, batch, 4, width).unbind(2)
        # the derivatives of the gates, times what each is multiplied with
        slopes = (gates - gates.square()).view(length, batch, 4, width)
        slopes[:, :, 2] = 1 - g.square()
        for place, other in enumerate((g, cells[:-1], i, bent)):
            slopes[:, :, place] *= other
        through = o - o * bent.square()
        total = torch.empty_like(slopes)
        flat, dc, later = total.flatten(2).unbind(0), deltas[1].clone(), None
        parts = (slopes[:, :, :3].unbind(0), slopes[:, :, 3].unbind(0), total[:, :, :3].unbind(0))
        for t in range(length - 1, -1, -1):
            dh = along[t] if later is None else torch.addmm(along[t], later, weight)
            dc.addcmul_(dh, through[t])
            torch.mul(parts[0][t], dc.unsqueeze(1), out=parts[2][t])
            torch.mul(parts[1][t], dh, out=total[t, :, 3])
            dc.mul_(f[t])
            later = flat[t]
        assert later is not None
        at_inputs = total.flatten(2).flip(0) if ctx.backwards else total.flatten(2)
        return at_inputs.transpose(0, 1).contiguous(), None, later @ weight, dc, None


def cell(layer: nn.RNNCellBase, record: Record, x: Tensor, hx: Any = None) -> Tensor | tuple[Tensor, Tensor]:
    """A cell of an LSTM, GRU or RNN at one position."""
    if x.dim() != 2:
        raise Unsupported(f"{type(layer).__name__} needs a batch of vectors; {BY_AUTO}")
    zeros = x.new_zeros(len(x), layer.hidden_size)
    before, c = (zeros, zeros) if hx is None else hx if isinstance(hx, tuple) else (hx, hx)
    inputs = F.linear(x, layer.weight_ih, layer.bias_ih)
    h, c, scale = _kind(layer)(inputs, F.linear(before, layer.weight_hh, layer.bias_hh), before, c)
    record(x, inputs, _recurrent_rule(layer, NAMES, before.detach(), scale if isinstance(layer, nn.GRUCell) else None))
    return (h, c) if isinstance(layer, nn.LSTMCell) else h


def _recurrent_rule(layer: nn.Module, names: Sequence[str], states: Tensor, scale: Tensor | None) -> Rule:
    """Return the rule of both linear maps of a recurrent layer, of its inputs and of its ``states``.

    Both are added, so that the gradients at their outputs agree; in a GRU up to the factors ``scale``.
    """
    trained = [trains(getattr(layer, name, None)) for name in names]

    def rule(h: Tensor, delta: Tensor) -> dict[str, Share]:
        shares, hidden = {}, delta if scale is None else delta * scale.to(delta.dtype)
        for k, (rows, d) in enumerate(((h, delta), (states.to(delta.dtype), hidden))):
            if trained[k]:
                shares[names[k]] = outer(rows, d) if rows.dim() == 2 else products(rows, d)
            if trained[k + 2]:
                shares[names[k + 2]] = explicit(d if d.dim() == 2 else d.sum(dim=1))
        return shares

    return rule


# (map of the input, map of the state, state, cell state) -> state, cell state, factors of the gradient, or any
Kind = Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]


def _kind(layer: nn.Module) -> Kind:
    if isinstance(layer, (nn.LSTM, nn.LSTMCell)):
        return _lstm
    if isinstance(layer, (nn.GRU, nn.GRUCell)):
        return _gru
    bend = torch.relu if layer.nonlinearity == "relu" else torch.tanh

    def rnn(inputs: Tensor, hidden: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return bend(inputs + hidden), c, inputs

    return rnn


def _lstm(inputs: Tensor, hidden: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    i, f, g, o = (inputs + hidden).chunk(4, dim=1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c, inputs


def _gru(inputs: Tensor, hidden: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    x_r, x_z, x_n = inputs.chunk(3, dim=1)
    h_r, h_z, h_n = hidden.chunk(3, dim=1)
    r, z = torch.sigmoid(x_r + h_r), torch.sigmoid(x_z + h_z)
    n = torch.tanh(x_n + r * h_n)
    ones = torch.ones_like(r)
    return n + z * (h - n), c, torch.cat([ones, ones, r.detach()], dim=1)


PROJECTIONS: dict[type[nn.Module], Callable[..., object]] = {
    nn.MultiheadAttention: attention,
    nn.LSTM: recurrent,
    nn.GRU: recurrent,
    nn.RNN: recurrent,
    nn.LSTMCell: cell,
    nn.GRUCell: cell,
    nn.RNNCell: cell,
}
