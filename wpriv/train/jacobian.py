"""Jacobians of single examples, known by the lengths and inner products of their rows, and never held for a whole batch.

The rows of J_i are the gradients of the d numbers that a model gives for example i. One pass back to the outputs of the layers for
each of the d numbers is enough to know J_i J_i^T, from which follows the matrix P_i that clips J_i to P_i^T J_i.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import functional_call, jacrev
from torch.func import vmap as batched

from wpriv.errors import Unsupported
from wpriv.train.bound import clip_factors, roughness, total
from wpriv.train.ghost import Call, shares
from wpriv.train.persample import HELD

Deltas = list[Tensor | None]


def passes(numbers: Tensor, calls: list[Call]) -> list[Deltas]:
    """The gradients at the outputs of the calls of each column of ``numbers`` [B, d] in turn. They hold the graph for more to come."""
    edges = [call.output for call in calls]
    found: list[Deltas] = []
    for column in range(numbers.shape[1]):
        cotangent = torch.zeros_like(numbers)
        cotangent[:, column] = 1.0
        found.append(list(torch.autograd.grad(numbers, edges, cotangent, retain_graph=True, allow_unused=True)))
    return found


def squares(calls: list[Call], deltas: Deltas) -> Tensor:
    """The squared lengths [B] of the gradients that belong to one pass."""
    with torch.autocast(calls[0].input.device.type, enabled=False):
        return total({name: share.squares for name, share in shares(calls, deltas).items()})


def row_squares(numbers: Tensor, calls: list[Call]) -> Tensor:
    """The squared lengths [B, d] of the rows of the Jacobians of ``numbers`` [B, d], one pass at a time."""
    columns = (passes(numbers[:, [column]], calls)[0] for column in range(numbers.shape[1]))
    with torch.no_grad():
        return torch.stack([squares(calls, deltas) for deltas in columns], dim=1)


def grams(numbers: Tensor, calls: list[Call]) -> Tensor:
    """J_i J_i^T [B, d, d] of the Jacobians of ``numbers`` [B, d].

    By 2 <a, b> = |a + b|^2 - |a|^2 - |b|^2, so that the rules of the layers need to know about lengths only; a + b needs no pass.
    """
    found = passes(numbers, calls)
    with torch.no_grad():
        own = [squares(calls, deltas) for deltas in found]
        out = torch.diag_embed(torch.stack(own, dim=1))
        for i, first in enumerate(found):
            for j, second in enumerate(found[:i]):
                both = [a if b is None else b if a is None else a + b for a, b in zip(first, second, strict=True)]
                out[:, i, j] = out[:, j, i] = (squares(calls, both) - own[i] - own[j]) / 2
    return out


def formed_grams(model: nn.Module, numbers: Callable[..., Tensor], inputs: Tensor, targets: Tensor | None) -> Tensor:
    """J_i J_i^T [B, d, d] for any model that torch.func can batch: the Jacobians of as many examples as fit are formed at a time.

    Args:
        numbers: (outputs [B, ...], targets [B, ...]) -> [B, d].
    Raises:
        Unsupported: torch.func cannot batch the model.
    """
    trainable = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}
    rest = {name: p.detach() for name, p in model.named_parameters() if not p.requires_grad} | dict(model.named_buffers())

    def one(values: dict[str, Tensor], x: Tensor, y: Tensor | None) -> Tensor:
        outputs = functional_call(model, {**values, **rest}, (x.unsqueeze(0),))
        return numbers(outputs, None if y is None else y.unsqueeze(0)).squeeze(0)

    each = batched(jacrev(one), in_dims=(None, 0, None if targets is None else 0), randomness="different")
    pieces, at, size = [], 0, 1
    while at < len(inputs):
        near = slice(at, at + size)
        try:
            rows = each(trainable, inputs[near], None if targets is None else targets[near])
        except RuntimeError as error:
            reason = str(error).strip().partition("\n")[0]
            raise Unsupported(f"torch.func cannot batch this model ({reason}); use layers with a rule of their own") from error
        flat = torch.cat([row.flatten(2) for row in rows.values()], dim=2)
        pieces.append(flat @ flat.transpose(1, 2))
        at, size = near.stop, max(1, HELD // flat[0].numel())
    return torch.cat(pieces)


def row_factors(squares: Tensor, norm: float) -> Tensor:
    """The diagonals [B, d] of P_i: each row of J_i is scaled down to norm/sqrt(d), so that |P_i^T J_i| <= norm (Remark A.2)."""
    own = norm / math.sqrt(squares.shape[1])
    return torch.stack([clip_factors({"row": column}, own, None) for column in squares.unbind(dim=1)], dim=1)


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
        values, vectors = torch.linalg.eigh(grams[long].double())
        values = values.clamp(min=0.0) + slack * trace[long].double().unsqueeze(1)
        factors = (norm / values.sqrt()).clamp(max=1.0)
        out[long] = ((vectors * factors.unsqueeze(1)) @ vectors.transpose(1, 2)).to(out.dtype)
    return out


def along(grams: Tensor, slopes: Tensor) -> Tensor:
    """The squared norms [B] of J_i^T r_i for slopes r_i [B, d], never too small: r^T (J J^T) r, with what rounding may have hidden."""
    found = torch.einsum("bi,bij,bj->b", slopes, grams, slopes).clamp(min=0.0)
    return found if grams.shape[1] == 1 else found + _slack(grams) * _trace(grams) * slopes.square().sum(dim=1)


def _trace(grams: Tensor) -> Tensor:
    return grams.diagonal(dim1=1, dim2=2).sum(dim=1)


def _slack(grams: Tensor) -> float:
    """A bound, in units of the trace, on what rounding did to the matrix, each entry of which is a difference of three squared lengths."""
    return 4 * (grams.shape[1] + 1) * (64 * torch.finfo(grams.dtype).eps + roughness(grams.dtype))
