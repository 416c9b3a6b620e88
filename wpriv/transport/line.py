"""Optimal transport on the line: W_p^p between two samples of any sizes, weighted or not, and its derivatives in the positions.

Sorting is all the work: O((n + m) log(n + m)) time and O(n + m) memory, never an n by m plan. The derivatives come with the value, from the
same sorted samples, so that a backward pass only scales them.
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
        x: [n] or [n, k] positions in the units of the data, float32 or float64, on any device; each column is its own problem.
        y: [m] or [m, k] positions, with the dtype and device of ``x``; m need not be n.
        p: order of the ground cost, p >= 1.
        x_weights, y_weights: [n] or [n, k], [m] or [m, k] masses, not negative; each sample's are divided by their sum. Equal by default.
    Returns:
        A scalar, or [k]: costs in units**p, the p-th power and not the distance.
    Raises:
        UsageError: shapes, dtypes, devices or weights do not fit; p < 1; a position is not finite; the power overflows.
    Source:
        the quantile form of transport on the line (Santambrogio 2015, Prop. 2.17); p = 2: Rodriguez-Vitores et al. 2025, Prop. 3.1.

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

    For p = 2 the derivative in x_i is ``2 sum_j R_ij (x_i - y_j)``, R the optimal plan. Where positions tie the plan is not unique: ties
    take the mean over their ranks (by weight), so that the answer does not change when records are permuted, and a private gradient keeps
    its sensitivity. For p = 1 it is a subgradient, 0 where two positions that are matched coincide.

    Returns:
        cost: a scalar, or [k]; x: the shape of ``x``, in units**(p - 1); y: the shape of ``y``. Nothing is recorded for autograd.
    Source:
        Rodriguez-Vitores et al. 2025, Prop. 3.2; the rule for ties is ours, which the sensitivity needs (records with equal scores may
        come in any order).

    >>> found = gradients(torch.tensor([0.0, 0.0]), torch.tensor([-1.0, 2.0]))
    >>> found.cost, found.x, found.y
    (tensor(2.5000), tensor([-0.5000, -0.5000]), tensor([-1.,  2.]))
    """
    weights = _check(x, y, p, x_weights, y_weights)
    found = _rows.solve(_as_rows(x), _as_rows(y), float(p), (True, True), weights)
    return Gradients(_like(found.cost, x), _like(found.x, x), _like(found.y, y))


class _Wasserstein(torch.autograd.Function):
    """The cost in the forward pass, with the derivatives that will be asked for; the backward pass scales them."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, p: float, weights: tuple[Tensor, Tensor] | None) -> Tensor:
        needs = (ctx.needs_input_grad[0], ctx.needs_input_grad[1])
        found = _rows.solve(_as_rows(x), _as_rows(y), p, needs, weights)
        ctx.save_for_backward(*(s if s is None else _like(s, sample) for s, sample in ((found.x, x), (found.y, y))))
        return _like(found.cost, x)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        x, y = (s if s is None else s * upstream for s in ctx.saved_tensors)
        return x, y, None, None


def _as_rows(sample: Tensor) -> Tensor:
    """[n] or [n, k] as contiguous [k, n]."""
    return sample.detach()[None].contiguous() if sample.ndim == 1 else sample.detach().T.contiguous()


def _like(rows: Tensor | None, sample: Tensor) -> Tensor:
    """[k, n] in the shape of the sample it came from, [k] as one number where the sample is one column."""
    assert rows is not None
    return rows[0] if sample.ndim == 1 else rows.mT if rows.ndim == 2 else rows


def _check(
    x: Tensor, y: Tensor, p: float, x_weights: Tensor | None, y_weights: Tensor | None
) -> tuple[Tensor, Tensor] | None:
    """The weights as rows that sum to 1, or None where there are none."""
    check_pair(x, y, p)
    if x.ndim not in (1, 2) or x.ndim != y.ndim or x.shape[1:] != y.shape[1:]:
        raise UsageError(
            f"wanted x [n] and y [m], or x [n, k] and y [m, k]; found x {list(x.shape)} and y {list(y.shape)}"
        )
    return as_masses(x, y, x_weights, y_weights)


def check_pair(x: Tensor, y: Tensor, p: float) -> None:
    """Refuses what is no pair of samples, or no order."""
    for name, sample in (("x", x), ("y", y)):
        if not isinstance(sample, Tensor) or sample.dtype not in (torch.float32, torch.float64):
            found = sample.dtype if isinstance(sample, Tensor) else type(sample).__name__
            raise UsageError(f"{name} must be a tensor of float32 or float64; found {found}")
    if x.dtype != y.dtype or x.device != y.device:
        raise UsageError(
            f"x and y must share dtype and device; found {x.dtype} on {x.device} and {y.dtype} on {y.device}"
        )
    if 0 in x.shape or 0 in y.shape:
        raise UsageError(f"a sample needs at least one position; found x {list(x.shape)} and y {list(y.shape)}")
    if not 1 <= p < math.inf:
        raise UsageError(f"the order p must be a finite number of at least 1; found {p}")


def as_masses(x: Tensor, y: Tensor, x_weights: Tensor | None, y_weights: Tensor | None) -> tuple[Tensor, Tensor] | None:
    """The weights as rows [1 or k, n] that sum to 1, or None where neither sample has any."""
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
        raise UsageError(f"{name}_weights cannot be differentiated: only positions can; pass {name}_weights.detach()")
    rows = _as_rows(weights.double())
    total = rows.sum(1, keepdim=True)
    if not bool((rows >= 0).all() and ((total > 0) & total.isfinite()).all()):
        raise UsageError(f"{name}_weights must be finite, not negative and not all 0")
    return rows / total
