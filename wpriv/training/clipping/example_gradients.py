"""Gradients of single examples: how they are scaled before they are summed, and what layers contribute to them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from wpriv.config.train_parts import STABILITY
from wpriv.errors import UsageError
from wpriv.training.clipping.record_trees import Records, raw
from wpriv.training.noise import library


@dataclass(frozen=True)
class Automatic:
    """Automatic clipping: a gradient g becomes g / (|g| + stability), which is shorter than 1 whatever g is.

    Source: Bu, Wang, Zha, Karypis (2023), "Automatic Clipping: Differentially Private Deep Learning Made Easier and
        Stronger", AUTO-S; docs/theory/clipping.md has the proof of the sensitivity.
    """

    stability: float = STABILITY

    def __post_init__(self) -> None:
        if not 0 < self.stability < math.inf:
            raise UsageError(f"the stability of automatic clipping must be finite and above 0; found {self.stability}")


@dataclass(frozen=True)
class Groups:
    """Clipping by groups of parameters: the part of a gradient in each group is clipped to a norm of its own.

    Args:
        members: the names of the parameters of each group. norms: C > 0 of each; together the root of their squares.
    """

    members: tuple[tuple[str, ...], ...]
    norms: tuple[float, ...]


# a clipping norm C > 0, or automatic clipping
Scaling = float | Automatic


def bound(scaling: Scaling | Groups) -> float:
    """Return the norm that no scaled gradient exceeds: C, 1, or the root of the sum of the squares of all groups."""
    if isinstance(scaling, Groups):
        return math.hypot(*(bound(norm) for norm in scaling.norms)) * (1 + 2.0**-50)
    if isinstance(scaling, Automatic):
        return 1.0
    if not 0 < scaling < math.inf:
        raise UsageError(f"the clipping norm must be finite and above 0; found {scaling}")
    return scaling


def factors_of(lengths: Tensor, scaling: Scaling) -> Tensor:
    """Return min(1, C / length), or 1 / (length + stability), for lengths [B] that are rounded upwards."""
    if isinstance(scaling, Automatic):
        return 1.0 / (lengths + scaling.stability)
    return (scaling / lengths).clamp(max=1.0)


# --- the losses of a batch, clip factors, and the sum that a clipping method gives ---

# (outputs, targets) -> losses [B]; outputs and targets are tensors [B, ...], or trees of them
Loss = Callable[[Any, Any], Tensor]
# relative error of a gradient's length under torch's settings for float32 products (full, TF32, bfloat16)
PRODUCTS = {"highest": 0.0, "high": 2.0**-8, "medium": 2.0**-5}


@dataclass(frozen=True)
class Summed:
    """Clipped sums by trainable parameter, squared norms [B] before clipping by parameter name, and losses [B]."""

    parts: list[Tensor]
    squares: dict[str, Tensor]
    losses: Tensor


def losses_of(outputs: Any, targets: Records, loss: Loss) -> Tensor:
    """Return the losses [B] of a batch."""
    losses = loss(outputs, raw(targets))
    if not isinstance(losses, Tensor):
        raise UsageError(f"the loss must give a tensor [B], one number for each record; found {type(losses).__name__}")
    if losses.shape != targets.shape[:1]:
        raise UsageError(
            f"the loss must give one number for each of {len(targets)} examples; found shape {tuple(losses.shape)}. "
            f"Losses of torch need reduction='none'"
        )
    if not losses.requires_grad and torch.is_inference_mode_enabled():
        raise UsageError("gradients cannot be computed within torch.inference_mode; take the steps outside of it")
    if not losses.requires_grad:
        raise UsageError("the loss does not depend on the model's trainable parameters")
    return losses


def gradients_of(losses: Tensor, weights: Sequence[Tensor]) -> list[Tensor]:
    """Return the dense gradients of the sum of some losses, zeros for weights without influence."""
    grads = torch.autograd.grad(losses.sum(), weights, allow_unused=True, materialize_grads=True)
    return [grad.to_dense() if grad.is_sparse else grad for grad in grads]


def total(squares: dict[str, Tensor]) -> Tensor:
    """Return the squared norms [B] over all parameters."""
    return torch.stack(list(squares.values())).sum(dim=0)


def roughness(dtype: torch.dtype) -> float:
    """Return the relative error of a product in this precision under torch's settings."""
    coarse = PRODUCTS[torch.get_float32_matmul_precision()] if dtype == torch.float32 else 0.0
    return torch.finfo(dtype).eps + coarse


def full_convolutions() -> bool:
    """Return whether torch computes convolutions on a CPU in the precision of their inputs, as it does by default."""
    settings = getattr(torch.backends.mkldnn, "conv", None)
    return getattr(settings, "fp32_precision", "none") in ("none", "ieee")


def factors_by_name(
    squares: dict[str, Tensor], norm: Scaling | Groups, weights: Tensor | None = None
) -> dict[str, Tensor]:
    """Return the factors [B] of each parameter: those of ``clip_factors``, over all of them or over each group."""
    if not isinstance(norm, Groups):
        return dict.fromkeys(squares, clip_factors(squares, norm, weights))
    factors: dict[str, Tensor] = {}
    for members, each in zip(norm.members, norm.norms, strict=True):
        if present := {name: squares[name] for name in members if name in squares}:
            factors |= dict.fromkeys(present, clip_factors(present, each, weights))
    return factors


def clip_factors(squares: dict[str, Tensor], norm: Scaling, weights: Tensor | None = None) -> Tensor:
    """Return min(1, norm / length) [B], times the weight, rounded down: the scaled length is at most ``norm``.

    With automatic clipping it is 1 / (length + stability), and the scaled length at most 1.

    A squared length is a sum of terms of one sign, of which few are added one after another (``squares_of``), so that
    the relative error of the length, and of scaling the gradient, is at most 60 units in the last place; 64 are
    allowed for. Where products are computed in less than full precision, the slack includes theirs.
    """
    length = total(squares).sqrt()
    slack = 63 * torch.finfo(length.dtype).eps + roughness(length.dtype)
    factors = factors_of(length * (1 + slack), norm)
    return factors if weights is None else factors * weights.to(factors.dtype)


# --- gradients of one parameter by example, as norms, weighted sums, or explicitly; and sums of several of them ---


@dataclass(frozen=True)
class Share:
    """Gradients g_i of a parameter by example, as one call of a layer contributes to them.

    Args:
        squares: [B] upper bounds of |g_i|^2. weighted: gives sum_i f_i g_i for factors f [B].
        each: gives the g_i themselves, [B, *parameter].
        factors: h [B, T, D] and d [B, T, p] where g_i is the sum over t of d_it h_it^T.
    """

    squares: Tensor
    weighted: Callable[[Tensor], Tensor]
    each: Callable[[], Tensor]
    factors: tuple[Tensor, Tensor] | None = None


# (input [B, ...], gradient at the output [B, ...]) of a call -> shares of parameters, by name
Rule = Callable[[Tensor, Tensor], dict[str, Share]]
# notes a linear map within a layer: its input [B, ...], its output in the graph, and its rule
Record = Callable[[Tensor, Tensor, Rule], None]
BY_AUTO = "use the clipping method 'auto'"
BLOCK = 512


def together(shares: Sequence[Share]) -> Share:
    """Return the share of the sum of several gradients of one parameter, such as those of several calls of a layer."""
    if len(shares) == 1:
        return shares[0]
    pairs = [share.factors for share in shares if share.factors is not None]
    if len(pairs) == len(shares):
        h, d = (torch.cat(parts, dim=1) for parts in zip(*pairs, strict=True))
        return products(h, d)
    return explicit(torch.stack([share.each() for share in shares]).sum(dim=0))


def explicit(grads: Tensor) -> Share:
    """Return the share of gradients [B, ...] that are given explicitly."""
    flat = grads.reshape(len(grads), -1)
    return Share(squares_of(flat), lambda factors: torch.mv(flat.T, factors).view(grads.shape[1:]), lambda: grads)


def outer(h: Tensor, d: Tensor) -> Share:
    """Return the share of d_i h_i^T, of norm |d_i| |h_i|, for h [B, D] and d [B, p], without forming it."""
    return Share(
        squares_of(h) * squares_of(d),
        lambda factors: (d * factors.unsqueeze(1)).T @ h,
        lambda: d.unsqueeze(2) * h.unsqueeze(1),
        (h.unsqueeze(1), d.unsqueeze(1)),
    )


def products(h: Tensor, d: Tensor) -> Share:
    """Return the share of the sums over t of d_it h_it^T, for h [B, T, D] and d [B, T, p]."""
    if pairing_is_cheaper(h.shape[1], h.shape[2], d.shape[2]):
        return Share(
            paired_squares(h, d),
            lambda factors: (d * factors.view(-1, 1, 1)).flatten(0, 1).T @ h.flatten(0, 1),
            lambda: _sums_of_products(h, d),
            (h, d),
        )
    share = explicit(_sums_of_products(h, d))
    return Share(share.squares, share.weighted, share.each, (h, d))


def _sums_of_products(h: Tensor, d: Tensor) -> Tensor:
    """Return the sums over t of d_it h_it^T [B, p, D], each computed from its own record, whatever the others are."""
    work = h.shape[1] * h.shape[2] * d.shape[2]
    if h.device.type == "cpu" and h.dtype == d.dtype == torch.float32 and work >= library.COMPILE:
        functions = library.library()
        if functions is not None:  # a convolution with windows of one pixel
            first, second = h.transpose(1, 2).unsqueeze(2), d.transpose(1, 2).unsqueeze(2)
            sums = library.kernel_gradients(functions, first, second, (1, 1), (1, 1), (0, 0), (1, 1))
            return sums.view(-1, d.shape[2], h.shape[2])
    return d.transpose(1, 2) @ h


def paired_squares(h: Tensor, d: Tensor) -> Tensor:
    """Return |sum_t d_t h_t^T|^2 [B] of h [B, T, D] and d [B, T, p] without forming the sums.

    It is the sum over t and s of (h_t . h_s)(d_t . d_s). The terms have both signs; a bound on their rounding error,
    from the sum of their sizes, is added.
    """
    inputs, deltas = _inner_products(h), _inner_products(d)
    sizes = (inputs.diagonal(dim1=1, dim2=2) * deltas.diagonal(dim1=1, dim2=2)).sqrt().sum(dim=1)
    rough = roughness(h.dtype) * math.sqrt(h.shape[2] + d.shape[2])
    return (inputs * deltas).sum(dim=(1, 2)).clamp(min=0.0) + sizes.square() * rough


def _inner_products(rows: Tensor) -> Tensor:
    """Return the inner products [B, T, T] of rows [B, T, D].

    A matrix product may add its D terms one after another, so that its error grows with D: each one takes ``BLOCK``
    numbers of a row.
    """
    first, *others = torch.split(rows, BLOCK, dim=2)
    products = first @ first.transpose(1, 2)
    for block in others:
        products += block @ block.transpose(1, 2)
    return products


def pairing_is_cheaper(positions: int, inputs: int, outputs: int) -> bool:
    """Return whether a sum over positions has more than twice the size of its factors, so that pairing is cheaper."""
    return 2 * positions * (inputs + outputs) < inputs * outputs


def squares_of(rows: Tensor) -> Tensor:
    """Return the squared norms [B] of rows [B, k], plus a bound on what underflow may have removed.

    Torch adds the squares of a norm one after another, in as many sums as a register holds, so that their error grows
    with k: a norm is taken of at most ``BLOCK`` numbers at a time, and the squares of these norms are added in pairs.
    """
    rows, length = rows.contiguous(), rows.shape[1]
    slack = length * torch.finfo(rows.dtype).tiny
    if length <= BLOCK:
        return _squared_norm(rows) + slack
    count = -(-length // BLOCK)
    size = BLOCK if length % count else length // count  # equal blocks where there are some
    whole = length - length % size
    squares = _squared_norm(rows[:, :whole].reshape(len(rows), whole // size, size)).sum(dim=1)
    return (squares if whole == length else squares + _squared_norm(rows[:, whole:])) + slack


def _squared_norm(rows: Tensor) -> Tensor:
    norms: Tensor = torch.linalg.vector_norm(rows, dim=-1)
    return norms.square()


def trains(parameter: Tensor | None) -> bool:
    """Return whether a layer has this parameter and it is trained."""
    return parameter is not None and parameter.requires_grad
