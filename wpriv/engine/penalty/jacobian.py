"""Jacobians of single examples, known by the lengths and inner products of their rows, and never held for a whole batch.

The rows of J_i are the gradients of the d numbers that a model gives for example i. One pass back to the outputs of the layers for
each of the d numbers is enough to know J_i J_i^T, from which follows the matrix P_i that clips J_i to P_i^T J_i.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, jacrev
from torch.func import vmap as batched

from wpriv.engine.clipping.common import clip_factors, roughness, total
from wpriv.engine.clipping.ghost import Call, shares
from wpriv.engine.clipping.layer_rules import explicit
from wpriv.engine.clipping.per_sample import MAX_VALUES
from wpriv.errors import Unsupported

Deltas = list[Tensor | None]


def back(numbers: Tensor, column: int, calls: list[Call]) -> Deltas:
    """The gradients of one column of ``numbers`` [B, d] at the outputs of the calls. The graph is held for more to come."""
    cotangent = torch.zeros_like(numbers)
    cotangent[:, column] = 1.0
    found = torch.autograd.grad(
        numbers, [call.output for call in calls], cotangent, retain_graph=True, allow_unused=True
    )
    return list(found)


def row_squares(numbers: Tensor, calls: list[Call]) -> Tensor:
    """The squared lengths [B, d] of the rows of the Jacobians of ``numbers`` [B, d], one pass at a time."""
    units = [_unit(call) for call in calls]
    columns = []
    for column in range(numbers.shape[1]):
        deltas = back(numbers, column, calls)
        found = [_squares(*of_layer) for of_layer in zip(calls, units, deltas, strict=True)]
        columns.append(torch.stack(found).sum(dim=0))
    return torch.stack(columns, dim=1)


def grams(numbers: Tensor, calls: list[Call]) -> Tensor:
    """J_i J_i^T [B, d, d] of the Jacobians of ``numbers`` [B, d]: the sum over layers of the products of their rows."""
    deltas = [back(numbers, column, calls) for column in range(numbers.shape[1])]
    found = [_products(call, _unit(call), list(of_layer)) for call, *of_layer in zip(calls, *deltas, strict=True)]
    return torch.stack(found).sum(dim=0)


def _unit(call: Call) -> Tensor | None:
    """For a linear layer on vectors: the product [B] of two gradients in units of that of the gradients at its output; else None."""
    layer = call.layer
    if not isinstance(layer, nn.Linear) or call.input.dim() > 2:
        return None
    found = (
        explicit(call.input.to(layer.weight.dtype)).squares
        if layer.weight.requires_grad
        else call.input.new_zeros(len(call.input))
    )
    return found + 1 if layer.bias is not None and layer.bias.requires_grad else found


def _squares(call: Call, unit: Tensor | None, delta: Tensor | None) -> Tensor:
    """The squared lengths [B] of the gradients of a layer's parameters, from the gradients at its output."""
    with torch.no_grad(), torch.autocast(call.input.device.type, enabled=False):
        like = next(call.layer.parameters())
        if delta is None:
            return like.new_zeros(len(call.input))
        if unit is not None:
            return unit * explicit(delta.to(like.dtype)).squares
        return total({name: share.squares for name, share in shares([call], [delta]).items()})


def _products(call: Call, unit: Tensor | None, deltas: Deltas) -> Tensor:
    """The products [B, d, d] of d gradients of a layer's parameters.

    Without a unit by 2 <a, b> = |a + b|^2 - |a|^2 - |b|^2, so that the rules of the layers need to know about lengths only. Rules that
    pair positions allow for their rounding where positions cancel; should they cancel in nearly all digits, the products lose theirs,
    and only the lengths, which per-coordinate clipping goes by, stay bounds.
    """
    out = torch.diag_embed(torch.stack([_squares(call, unit, delta) for delta in deltas], dim=1))
    with torch.no_grad(), torch.autocast(call.input.device.type, enabled=False):
        for i, first in enumerate(deltas):
            for j, second in enumerate(deltas[:i]):
                if first is None or second is None:
                    continue
                if unit is None:
                    pair = (_squares(call, None, first + second) - out[:, i, i] - out[:, j, j]) / 2
                else:
                    pair = unit * (first * second).to(out.dtype).sum(dim=1)
                out[:, i, j] = out[:, j, i] = pair
    return out


Read = Callable[[Any, Tensor | None], tuple[Tensor, Tensor | None]]


def formed_grams(model: nn.Module, read: Read, inputs: Tensor, targets: Tensor | None) -> Tensor:
    """J_i J_i^T of scores and loss together, for any model that torch.func can batch: as many Jacobians as fit are formed at a time.

    Args:
        read: (outputs, targets) -> scores [B, d] and losses [B] or None, the last row of the Jacobian if they are there.
    Returns:
        [B, d, d] or [B, d + 1, d + 1].
    Raises:
        Unsupported: torch.func cannot batch the model, or it draws random numbers.
    """
    trainable = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}
    rest = {name: p.detach() for name, p in model.named_parameters() if not p.requires_grad} | dict(
        model.named_buffers()
    )

    def one(values: dict[str, Tensor], x: Tensor, y: Tensor | None) -> Tensor:
        outputs = functional_call(model, {**values, **rest}, (x.unsqueeze(0),))
        scores, losses = read(outputs, None if y is None else y.unsqueeze(0))
        return scores.squeeze(0) if losses is None else torch.cat([scores.squeeze(0), losses.to(scores.dtype)])

    # no random numbers: a Jacobian of other draws than those of the gradient would bound nothing
    each = batched(jacrev(one), in_dims=(None, 0, None if targets is None else 0), randomness="error")
    pieces, at, size = [], 0, 1
    while at < len(inputs):
        near = slice(at, at + size)
        try:
            rows = each(trainable, inputs[near], None if targets is None else targets[near])
        except RuntimeError as error:
            reason = str(error).strip().partition("\n")[0]
            raise Unsupported(
                f"torch.func cannot batch this model ({reason}); use layers with a rule of their own"
            ) from error
        flat = torch.cat([row.flatten(2) for row in rows.values()], dim=2)
        pieces.append(flat @ flat.transpose(1, 2))
        at, size = near.stop, max(1, MAX_VALUES // flat[0].numel())
    return torch.cat(pieces)


def row_factors(squares: Tensor, norm: float) -> Tensor:
    """The diagonals [B, d] of P_i: each row of J_i is scaled down to norm/sqrt(d), so that |P_i^T J_i| <= norm (Remark A.2)."""
    own = norm / math.sqrt(squares.shape[1])
    return torch.stack([clip_factors({"row": column}, own) for column in squares.unbind(dim=1)], dim=1)


def spectral_factors(grams: Tensor, norm: float) -> Tensor:
    """P_i [B, d, d]: the singular values of J_i above ``norm`` are brought down to it, and all else is left as it is.

    With J J^T = Q diag(l) Q^T it is P = Q diag(min(1, norm/sqrt(l))) Q^T, since then P J J^T P has no eigenvalue above norm^2. To each l
    is added a bound t on what rounding did to the matrix: if the true one is at most that found plus t, so are both seen through P.
    """
    d = grams.shape[1]
    trace, slack = _trace(grams), _slack(grams)
    out = torch.eye(d, dtype=grams.dtype, device=grams.device).repeat(len(grams), 1, 1)
    # the largest eigenvalue is at most the trace: what is short needs no decomposition
    long = (trace * (1 + slack) > norm**2).nonzero().squeeze(1)
    if len(long):
        shortened = _shortened_pairs if d == 2 else _shortened
        out[long] = shortened(grams[long].double(), slack * trace[long].double(), norm).to(out.dtype)
    return out


def _shortened(grams: Tensor, rounding: Tensor, norm: float) -> Tensor:
    """min(1, norm/sqrt(G + t)) [B, d, d] of matrices G and numbers t [B], by their eigenvalues."""
    values, vectors = torch.linalg.eigh(grams)
    found: Tensor = (vectors * _factors(values, rounding.unsqueeze(1), norm).unsqueeze(1)) @ vectors.transpose(1, 2)
    return found


def _shortened_pairs(grams: Tensor, rounding: Tensor, norm: float) -> Tensor:
    """The same of 2 x 2 matrices without decomposing them: the line through the eigenvalues, since P is a polynomial of degree 1 in G.

    In the mean m and half the gap h of the eigenvalues P is (f(m+h) + f(m-h))/2 plus (G - m)/h times half their difference.
    """
    mean = _trace(grams) / 2
    lean, cross = (grams[:, 0, 0] - grams[:, 1, 1]) / 2, grams[:, 0, 1]
    half = torch.hypot(lean, cross)
    upper, lower = (_factors(mean + sign * half, rounding, norm) for sign in (1, -1))
    slope = (upper - lower) / 2 / half.clamp(min=torch.finfo(half.dtype).tiny)
    level = (upper + lower) / 2
    cross = slope * cross
    return torch.stack([level + slope * lean, cross, cross, level - slope * lean], dim=1).view(-1, 2, 2)


def _factors(values: Tensor, rounding: Tensor, norm: float) -> Tensor:
    lengths = (values.clamp(min=0.0) + rounding).sqrt()
    return torch.reciprocal(lengths).mul(norm).clamp(max=1.0)


def along(grams: Tensor, slopes: Tensor) -> Tensor:
    """The squared norms [B] of J_i^T r_i for slopes r_i [B, d], never too small: r^T (J J^T) r, with what rounding may have hidden."""
    found = torch.einsum("bi,bij,bj->b", slopes, grams, slopes).clamp(min=0.0)
    return found if grams.shape[1] == 1 else found + _slack(grams) * _trace(grams) * slopes.square().sum(dim=1)


def _trace(grams: Tensor) -> Tensor:
    return grams.diagonal(dim1=1, dim2=2).sum(dim=1)


def _slack(grams: Tensor) -> float:
    """A bound, in units of the trace, on what rounding did to the matrix, each entry of which is a difference of three squared lengths."""
    return 4 * (grams.shape[1] + 1) * (64 * torch.finfo(grams.dtype).eps + roughness(grams.dtype))
