"""Norms and inner products of the rows of single examples' Jacobians, without forming them for a whole batch.

The rows of J_i are the gradients of the d outputs of a model for example i. One backward pass to the outputs of the
layers for each of the d numbers determines J_i J_i^T, and so the matrix P_i that clips J_i to P_i^T J_i.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, jacrev
from torch.func import vmap as batched

from wpriv.errors import Unsupported
from wpriv.training.clipping.example_gradients import clip_factors, explicit, roughness
from wpriv.training.clipping.ghost import MAX_VALUES, Call, groups, shares
from wpriv.training.clipping.model_state import own_tensors

Deltas = list[Tensor | None]


def back(numbers: Tensor, column: int, calls: list[Call]) -> Deltas:
    """Return the gradients of one column of ``numbers`` [B, d] at the outputs of the calls; the graph is retained."""
    cotangent = torch.zeros_like(numbers)
    cotangent[:, column] = 1.0
    outputs = [call.output for call in calls]
    return list(torch.autograd.grad(numbers, outputs, cotangent, retain_graph=True, allow_unused=True))


def row_squares(numbers: Tensor, calls: list[Call]) -> Tensor:
    """Return the squared norms [B, d] of the rows of the Jacobians of ``numbers`` [B, d], one pass at a time."""
    places = groups(calls)
    grouped = [[calls[place] for place in group] for group in places]
    units = [_unit(group) for group in grouped]
    columns = []
    for column in range(numbers.shape[1]):
        deltas = back(numbers, column, calls)
        rows = [[deltas[place] for place in group] for group in places]
        squares = [_squares(*layer) for layer in zip(grouped, units, rows, strict=True)]
        columns.append(torch.stack(squares).sum(dim=0))
    return torch.stack(columns, dim=1)


def grams(numbers: Tensor, calls: list[Call]) -> Tensor:
    """Return J_i J_i^T [B, d, d] of the Jacobians of ``numbers`` [B, d]: the sum over layers of products of rows."""
    deltas = [back(numbers, column, calls) for column in range(numbers.shape[1])]
    products = []
    for places in groups(calls):
        group = [calls[place] for place in places]
        products.append(_products(group, _unit(group), [[row[place] for place in places] for row in deltas]))
    return torch.stack(products).sum(dim=0)


def _unit(group: list[Call]) -> Tensor | None:
    """Return the product [B] of two gradients of a linear layer over that of its output gradients; None for others."""
    call, layer = group[0], group[0].layer
    if len(group) > 1 or not isinstance(layer, nn.Linear) or call.input.dim() > 2:
        return None
    trained = layer.weight.requires_grad
    unit = explicit(call.input.to(layer.weight.dtype)).squares if trained else call.input.new_zeros(len(call.input))
    return unit + 1 if layer.bias is not None and layer.bias.requires_grad else unit


def _squares(group: list[Call], unit: Tensor | None, deltas: Deltas, precision: torch.dtype | None = None) -> Tensor:
    """Return the squared norms [B] of the gradients of the parameters of calls, from the gradients at their outputs."""
    first, delta = group[0], deltas[0]
    with torch.no_grad(), torch.autocast(first.input.device.type, enabled=False):
        like = next(first.layer.parameters())
        if all(each is None for each in deltas):
            return like.new_zeros(len(first.input))
        if unit is not None and delta is not None:
            return unit * explicit(delta.to(like.dtype)).squares
        by_parameter = shares(group, deltas, precision).values()
        return torch.stack([share.squares for share in by_parameter]).sum(dim=0)


def _products(group: list[Call], unit: Tensor | None, deltas: list[Deltas]) -> Tensor:
    """Return the products [B, d, d] of d gradients of the parameters of calls.

    Without a unit they come from 2 <a, b> = |a + b|^2 - |a|^2 - |b|^2, so that the rules of the layers need to compute
    norms only. Where positions cancel, the rounding error of a norm in float32, or the bound that a rule adds for it,
    can exceed the norm: norms remain bounds, but differences of them would not be products of any vectors. So these
    norms are computed in float64.
    """
    like = next(group[0].layer.parameters())
    precision = torch.float64 if unit is None and len(deltas) > 1 else None
    if precision is not None:
        deltas = [[None if each is None else each.to(precision) for each in delta] for delta in deltas]
    out = torch.diag_embed(torch.stack([_squares(group, unit, delta, precision) for delta in deltas], dim=1))
    with torch.no_grad(), torch.autocast(group[0].input.device.type, enabled=False):
        for i, first in enumerate(deltas):
            for j, second in enumerate(deltas[:i]):
                if unit is None:
                    sums = [_plus(a, b) for a, b in zip(first, second, strict=True)]
                    pair = (_squares(group, None, sums, precision) - out[:, i, i] - out[:, j, j]) / 2
                elif first[0] is None or second[0] is None:
                    continue
                else:
                    pair = unit * (first[0] * second[0]).to(out.dtype).sum(dim=1)
                out[:, i, j] = out[:, j, i] = pair
    return out.to(like.dtype)


def _plus(first: Tensor | None, second: Tensor | None) -> Tensor | None:
    return second if first is None else first if second is None else first + second


Read = Callable[[Any, Tensor | None], tuple[Tensor, Tensor | None]]


def formed_grams(model: nn.Module, read: Read, inputs: Tensor, targets: Tensor | None) -> Tensor:
    """Return J_i J_i^T of scores and loss, for any model that torch.func can batch; Jacobians are formed in chunks.

    Args:
        read: (outputs, targets) -> scores [B, d], and losses [B] or None; losses are the last row of the Jacobian.
    Returns:
        [B, d, d] or [B, d + 1, d + 1].
    """
    trainable = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}
    rest = {name: p.detach() for name, p in model.named_parameters() if not p.requires_grad} | dict(
        model.named_buffers()
    )

    def one(values: dict[str, Tensor], x: Tensor, y: Tensor | None) -> Tensor:
        outputs = functional_call(model, {**values, **rest}, (x.unsqueeze(0),))
        scores, losses = read(outputs, None if y is None else y.unsqueeze(0))
        return scores.squeeze(0) if losses is None else torch.cat([scores.squeeze(0), losses.to(scores.dtype)])

    # no random numbers: a Jacobian of other draws than those of the gradient would not bound it
    each = batched(jacrev(one), in_dims=(None, 0, None if targets is None else 0), randomness="error")
    pieces, at, size = [], 0, 1
    while at < len(inputs):
        chunk = slice(at, at + size)
        try:
            with own_tensors(model):
                rows = each(trainable, inputs[chunk], None if targets is None else targets[chunk])
        except RuntimeError as error:
            reason = str(error).strip().partition("\n")[0]
            raise Unsupported(
                f"torch.func cannot batch this model ({reason}); use layers with a clipping rule"
            ) from error
        pieces.append(torch.stack([_products_of_rows(row) for row in rows.values()]).sum(dim=0))
        at, size = chunk.stop, max(1, MAX_VALUES // sum(row[0].numel() for row in rows.values()))
    return torch.cat(pieces)


def _products_of_rows(rows: Tensor) -> Tensor:
    """Return the inner products [B, d, d] of rows [B, d, ...] of one parameter, in their precision.

    They are summed in float64: the error of a float32 product grows with the length of the rows, beyond what
    ``clip_factors`` allows for.
    """
    wide = rows.double().reshape(*rows.shape[:2], -1)
    return (wide @ wide.transpose(1, 2)).to(rows.dtype)


def row_factors(squares: Tensor, norm: float) -> Tensor:
    """Return the diagonals [B, d] of P_i: rows are clipped to norm/sqrt(d), so |P_i^T J_i| <= norm (Remark A.2)."""
    row_norm = norm / math.sqrt(squares.shape[1])
    return torch.stack([clip_factors({"row": column}, row_norm) for column in squares.unbind(dim=1)], dim=1)


def spectral_factors(grams: Tensor, norm: float) -> Tensor:
    """Return P_i [B, d, d] that clips the singular values of J_i to ``norm`` and leaves smaller ones unchanged.

    With J J^T = Q diag(l) Q^T it is P = Q diag(min(1, norm/sqrt(l))) Q^T, since then P J J^T P has no eigenvalue above
    norm^2. A bound t on the rounding error of the matrix is added to each l: if the true matrix is at most the computed
    one plus t, then P times both sides keeps the inequality.
    """
    d = grams.shape[1]
    trace, slack = _trace(grams), _slack(grams)
    out = torch.eye(d, dtype=grams.dtype, device=grams.device).repeat(len(grams), 1, 1)
    # the largest eigenvalue is at most the trace: only matrices with a larger trace are decomposed
    large = (trace * (1 + slack) > norm**2).nonzero().squeeze(1)
    if len(large):
        clip = _spectral_clip_2x2 if d == 2 else _spectral_clip
        out[large] = clip(grams[large].double(), slack * trace[large].double(), norm).to(out.dtype)
    return out


def _spectral_clip(grams: Tensor, rounding: Tensor, norm: float) -> Tensor:
    """Return min(1, norm/sqrt(G + t)) [B, d, d] of matrices G and numbers t [B], by their eigenvalues."""
    values, vectors = torch.linalg.eigh(grams)
    clip: Tensor = (vectors * _factors(values, rounding.unsqueeze(1), norm).unsqueeze(1)) @ vectors.transpose(1, 2)
    return clip


def _spectral_clip_2x2(grams: Tensor, rounding: Tensor, norm: float) -> Tensor:
    """Return the same for 2 x 2 matrices without eigenvectors, since P is a polynomial of degree 1 in G.

    With the mean m and half the gap h of the eigenvalues, P is (f(m+h) + f(m-h))/2 plus (G - m)/h times half their
    difference.
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
    """Return upper bounds [B] of |J_i^T r_i|^2 for slopes r_i [B, d]: r^T (J J^T) r plus its rounding error."""
    squares = torch.einsum("bi,bij,bj->b", slopes, grams, slopes).clamp(min=0.0)
    return squares if grams.shape[1] == 1 else squares + _slack(grams) * _trace(grams) * slopes.square().sum(dim=1)


def _trace(grams: Tensor) -> Tensor:
    return grams.diagonal(dim1=1, dim2=2).sum(dim=1)


def _slack(grams: Tensor) -> float:
    """Return a bound on the rounding error over the trace; each entry is a difference of three squared norms."""
    return 4 * (grams.shape[1] + 1) * (64 * torch.finfo(grams.dtype).eps + roughness(grams.dtype))
