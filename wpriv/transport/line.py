"""Optimal transport on the line: W_p^p between two samples of any sizes, weighted or not, and its derivatives.

Sorting dominates: O((n + m) log(n + m)) time and O(n + m) memory, without an n by m plan. The derivatives are
computed with the value, from the same sorted samples; a backward pass only scales them.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from wpriv.errors import UsageError
from wpriv.transport import _rows


class Gradients(NamedTuple):
    """W_p^p and its derivatives in both samples, in the shapes of the samples."""

    cost: Tensor
    x: Tensor
    y: Tensor


def wasserstein(
    x: Tensor, y: Tensor, p: float = 2.0, *, x_weights: Tensor | None = None, y_weights: Tensor | None = None
) -> Tensor:
    """W_p^p between two samples on the line; with two dimensions, one value per column.

    Differentiable (once) in the positions, by the weights of ``gradients``.

    Args:
        x: [n] or [n, k] positions in the units of the data, float32 or float64, on any device; each column is its own
            problem.
        y: [m] or [m, k] positions, with the dtype and device of ``x``; m need not be n.
        p: order of the ground cost, p >= 1.
        x_weights, y_weights: [n] or [n, k], [m] or [m, k] nonnegative masses, normalised to sum 1; equal by default.
    Returns:
        A scalar or [k] costs, in units**p: the p-th power and not the distance.
    Raises:
        UsageError: shapes, dtypes, devices or weights do not match; p < 1; a position is not finite; the power
            overflows.
    Source:
        The quantile form of transport on the line (Santambrogio 2015, Prop. 2.17); p = 2: Rodriguez-Vitores et al.
        2025, Prop. 3.1.

    >>> wasserstein(torch.tensor([0.0, 1.0]), torch.tensor([3.0, 2.0, 2.0, 5.0]), p=1)
    tensor(2.5000)
    """
    weights = _check(x, y, p, x_weights, y_weights)
    cost: Tensor = _Wasserstein.apply(x, y, float(p), weights)  # type: ignore[no-untyped-call]
    return cost


def gradients(
    x: Tensor, y: Tensor, p: float = 2.0, *, x_weights: Tensor | None = None, y_weights: Tensor | None = None
) -> Gradients:
    """W_p^p together with the derivative in every position of both samples; arguments and errors as in ``wasserstein``.

    For p = 2 the derivative in x_i is ``2 sum_j R_ij (x_i - y_j)`` with the optimal plan R. The plan is not unique if
    positions tie: ties get the mean over their ranks (by weight), so that the result is invariant under permutations
    of the records, which the sensitivity of a private gradient requires. For p = 1 it is a subgradient, 0 where two
    matched positions coincide.

    Returns:
        The cost, a scalar or [k], and the derivatives in the shapes of ``x`` and ``y``, in units**(p - 1). Autograd
        records nothing.
    Source:
        Rodriguez-Vitores et al. 2025, Prop. 3.2; the rule for ties is our addition.

    >>> found = gradients(torch.tensor([0.0, 0.0]), torch.tensor([-1.0, 2.0]))
    >>> found.cost, found.x, found.y
    (tensor(2.5000), tensor([-0.5000, -0.5000]), tensor([-1.,  2.]))
    """
    weights = _check(x, y, p, x_weights, y_weights)
    result = _rows.solve(_as_rows(x), _as_rows(y), float(p), (True, True), weights)
    return Gradients(_like(result.cost, x), _like(result.x, x), _like(result.y, y))


class _Wasserstein(torch.autograd.Function):
    """Compute the cost and the required derivatives in the forward pass; scale the derivatives in the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, p: float, weights: tuple[Tensor, Tensor] | None) -> Tensor:
        needs = (ctx.needs_input_grad[0], ctx.needs_input_grad[1])
        result = _rows.solve(_as_rows(x), _as_rows(y), p, needs, weights)
        slopes = ((result.x, x), (result.y, y))
        ctx.save_for_backward(*(None if slope is None else _like(slope, sample) for slope, sample in slopes))
        return _like(result.cost, x)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        x, y = (None if slope is None else slope * upstream for slope in ctx.saved_tensors)
        return x, y, None, None


def _as_rows(sample: Tensor) -> Tensor:
    """Convert [n] or [n, k] to contiguous [k, n]."""
    return sample.detach()[None].contiguous() if sample.ndim == 1 else sample.detach().T.contiguous()


def _like(rows: Tensor | None, sample: Tensor) -> Tensor:
    """Convert [k, n] to the shape of its sample, and [k] to a scalar if the sample is one column."""
    assert rows is not None
    return rows[0] if sample.ndim == 1 else rows.mT if rows.ndim == 2 else rows


def _check(
    x: Tensor, y: Tensor, p: float, x_weights: Tensor | None, y_weights: Tensor | None
) -> tuple[Tensor, Tensor] | None:
    """Validate the arguments; return the weights as rows that sum to 1, or None if there are none."""
    check_pair(x, y, p)
    if x.ndim not in (1, 2) or x.ndim != y.ndim or x.shape[1:] != y.shape[1:]:
        raise UsageError(
            f"wanted x [n] and y [m], or x [n, k] and y [m, k]; found x {list(x.shape)} and y {list(y.shape)}"
        )
    return as_masses(x, y, x_weights, y_weights)


def check_pair(x: Tensor, y: Tensor, p: float) -> None:
    """Raise UsageError unless x and y are samples of the same type and p is a valid order."""
    for name, sample in (("x", x), ("y", y)):
        if not isinstance(sample, Tensor) or sample.dtype not in (torch.float32, torch.float64):
            kind = sample.dtype if isinstance(sample, Tensor) else type(sample).__name__
            raise UsageError(f"{name} must be a tensor of float32 or float64; found {kind}")
    if x.dtype != y.dtype or x.device != y.device:
        raise UsageError(
            f"x and y must share dtype and device; found {x.dtype} on {x.device} and {y.dtype} on {y.device}"
        )
    if 0 in x.shape or 0 in y.shape:
        raise UsageError(f"a sample needs at least one position; found x {list(x.shape)} and y {list(y.shape)}")
    if not 1 <= p < math.inf:
        raise UsageError(f"the order p must be a finite number of at least 1; found {p}")


def as_masses(x: Tensor, y: Tensor, x_weights: Tensor | None, y_weights: Tensor | None) -> tuple[Tensor, Tensor] | None:
    """Return the weights as rows [1 or k, n] that sum to 1, or None if neither sample has any."""
    if x_weights is None and y_weights is None:
        return None
    return _masses("x", x, x_weights), _masses("y", y, y_weights)


def _masses(name: str, sample: Tensor, weights: Tensor | None) -> Tensor:
    n = len(sample)
    if weights is None:
        return torch.full((1, n), 1 / n, dtype=torch.float64, device=sample.device)
    if weights.device != sample.device or weights.shape not in ((n,), sample.shape):
        shapes = f"[{n}]" if sample.ndim == 1 else f"[{n}] or {list(sample.shape)}"
        raise UsageError(
            f"{name}_weights must be {shapes} on {sample.device}; found {list(weights.shape)} on {weights.device}"
        )
    if weights.requires_grad:
        raise UsageError(
            f"{name}_weights must not require a gradient, only positions may; pass {name}_weights.detach()"
        )
    rows = _as_rows(weights.double())
    total = rows.sum(1, keepdim=True)
    if not bool((rows >= 0).all() and ((total > 0) & total.isfinite()).all()):
        raise UsageError(f"{name}_weights must be finite, nonnegative and not all 0")
    return rows / total
