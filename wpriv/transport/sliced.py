"""Sliced transport: the mean or maximum over directions of W_p^p between (optionally noisy) projections of samples.

Directions are processed in chunks within a memory budget, with one matrix product for the projections of a chunk and
one for its contribution to the gradient.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from wpriv.errors import UsageError
from wpriv.transport import line
from wpriv.transport.line import as_masses, check_pair

ORIGIN_RECORDS = 16  # from which the origin is estimated
FAR = 16  # in units of the spread: data that are nearer lose at most four of their bits
RECORDS_PER_BLOCK = 4096  # shifted to the origin at once


def find_origin(x: Tensor, y: Tensor) -> Tensor | None:
    """Return a centre of the records if they lie so far from 0 that their projections would lose digits; else None.

    The distance is invariant under a common shift. Centre and spread are estimated from a few evenly spaced records,
    which is cheap and affects only rounding errors.
    """
    few = torch.cat([sample[:: len(sample) // ORIGIN_RECORDS + 1] for sample in (x, y)])
    centre = few.mean(0)
    far = centre.norm() > FAR * (few - centre).square().sum(1).mean().sqrt()
    return centre if bool(far) else None


def blocks(sample: Tensor, origin: Tensor | None) -> Iterator[tuple[slice, Tensor]]:
    """Yield all records unchanged, or in blocks relative to the origin, so that no second copy of them is held."""
    step = len(sample) if origin is None else RECORDS_PER_BLOCK
    for start in range(0, len(sample), step):
        rows = slice(start, start + step)
        yield rows, sample if origin is None else sample[rows] - origin


def project(sample: Tensor, directions: Tensor, origin: Tensor | None) -> Tensor:
    """Return the projections [k, n] of the records."""
    out = sample.new_empty(directions.shape[1], len(sample))
    for rows, block in blocks(sample, origin):
        out[:, rows] = directions.T @ block.T
    return out


def gradient_of_directions(sample: Tensor, slopes: Tensor, origin: Tensor | None) -> Tensor:
    """Return the derivative [d, k] in the directions from the slopes [k, n] in the projections."""
    gradient = sample.new_zeros(sample.shape[1], len(slopes))
    for rows, block in blocks(sample, origin):
        gradient.addmm_(block.T, slopes[:, rows].T)
    return gradient


BUDGET = 256 * 2**20
HALVINGS = 30


class MaxSliced(NamedTuple):
    """The largest W_p^p found over directions, and its unit direction [d]."""

    cost: Tensor
    direction: Tensor


def random_directions(
    dim: int, count: int, generator: torch.Generator, *, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Draw independent uniform unit directions, the columns of [dim, count], on the generator's device.

    They are drawn in double precision and rounded, so that float32 and float64 get the same directions.

    >>> random_directions(3, 5, torch.Generator().manual_seed(0)).square().sum(0)
    tensor([1., 1., 1., 1., 1.])
    """
    if dim < 1 or count < 1:
        raise UsageError(f"directions need at least one dimension and a count of at least 1; found {dim} and {count}")
    normal = torch.randn(dim, count, generator=generator, device=generator.device, dtype=torch.float64)
    unit: Tensor = normal / normal.norm(dim=0)
    return unit.to(dtype)


def wasserstein(
    x: Tensor,
    y: Tensor,
    p: float = 2.0,
    *,
    directions: Tensor,
    sigma: float = 0.0,
    generator: torch.Generator | None = None,
    x_weights: Tensor | None = None,
    y_weights: Tensor | None = None,
    budget: int = BUDGET,
) -> Tensor:
    """SW_p^p between two samples: the mean over the columns u of ``directions`` of W_p^p between x u and y u.

    With ``sigma`` > 0, fresh noise N(0, sigma^2) is first added to every projection of every record of both samples.
    The result then estimates the smoothed distance, between the distributions convolved with the noise; an accountant
    determines its privacy. Differentiable (once) in the samples and in the entries of ``directions``.

    Args:
        x: [n, d] records, float32 or float64, on any device.
        y: [m, d] records, with the dtype and device of ``x``; m need not be n.
        p: order of the ground cost, p >= 1.
        directions: [d, k], one direction a column, as from ``random_directions``; they are not normalised here.
        sigma: standard deviation of the noise of one projection, in the units of the data.
        generator: source of that noise, required if sigma > 0. The draws do not depend on the budget.
        x_weights, y_weights: [n] and [m] nonnegative masses, normalised to sum 1; equal by default.
        budget: memory in bytes for a chunk of directions, beside the samples, the result and its gradient.
    Returns:
        A scalar in units**p, the p-th power and not the distance.
    Raises:
        UsageError: shapes, dtypes, devices or weights do not match; p < 1; a record is not finite; noise without a
            generator.
    Source:
        Rakotomamonjy and Ralaivola 2021, eq. (4), and Algorithm 1 with noise; Bonneel et al. 2015.

    >>> x, y = torch.zeros(4, 2), torch.ones(3, 2)
    >>> wasserstein(x, y, directions=torch.tensor([[1.0, 0.6], [0.0, 0.8]]))
    tensor(1.4800)
    """
    weights = _check(x, y, p, directions, x_weights, y_weights)
    if not 0 <= sigma < math.inf:
        raise UsageError(f"sigma must be a finite number of at least 0; found {sigma}")
    if sigma > 0 and generator is None:
        raise UsageError("noise needs a generator; pass generator=torch.Generator().manual_seed(...)")
    cost: Tensor = _Sliced.apply(  # type: ignore[no-untyped-call]
        x, y, directions, float(p), _Noise(float(sigma), generator), weights, int(budget)
    )
    return cost


def max_wasserstein(
    x: Tensor,
    y: Tensor,
    p: float = 2.0,
    *,
    directions: Tensor,
    steps: int = 50,
    tol: float = 1e-6,
    budget: int = BUDGET,
) -> MaxSliced:
    """Compute max-sliced W_p^p: gradient ascent on the unit sphere, from the best of the given directions.

    The cost is that of the returned direction, hence a lower bound of the maximum over all directions: the ascent may
    end at a local maximum. With ``steps=0`` it is the maximum over the given directions. Differentiable (once) in the
    samples at the fixed direction, which is the gradient of the maximum if its direction is unique (envelope
    theorem).

    Args:
        directions: [d, k] starting points, one a column; they are normalised.
        steps: maximum number of ascent steps; each increases the cost, by backtracking.
        tol: relative gain of a step below which the ascent stops.
        x, y, p, budget: as in ``wasserstein``.
    Source:
        Deshpande et al. 2019.

    >>> widest = max_wasserstein(torch.zeros(4, 2), torch.tensor([[3.0, 4.0]]), directions=torch.eye(2))
    >>> widest.cost, widest.direction.abs()
    (tensor(25.), tensor([0.6000, 0.8000]))
    """
    _check(x, y, p, directions, None, None)
    if not bool((directions.norm(dim=0) > 0).all()):
        raise UsageError("directions must have positive length; found a column of zeros")
    with torch.no_grad():
        starts = directions / directions.norm(dim=0)
        costs = _chunked(x, y, starts, float(p), _NO_NOISE, None, budget, (False, False, False)).costs
        best = starts[:, int(costs.argmax())]
        for _ in range(steps):
            step = _ascend(x, y, best, float(p))
            if step is None:
                break
            gain, best = step
            if gain < tol:
                break
    return MaxSliced(wasserstein(x, y, p, directions=best[:, None]), best)


def _ascend(x: Tensor, y: Tensor, direction: Tensor, p: float) -> tuple[float, Tensor] | None:
    """Return the relative gain and a better unit direction; None if no step along the gradient increases the cost."""
    current = _chunked(x, y, direction[:, None], p, _NO_NOISE, None, BUDGET, (False, False, True))
    assert current.directions is not None
    cost, slope = float(current.costs[0]), current.directions[:, 0]
    tangent = slope - (slope @ direction) * direction
    angle = math.atan2(float(tangent.norm()), float(slope @ direction))
    if not angle > 0:
        return None
    # the cost is homogeneous: the full angle to the slope is a step of the power method, exact for p = 2 at a fixed
    # plan
    tangent = tangent / tangent.norm()
    for _ in range(HALVINGS):
        candidate = math.cos(angle) * direction + math.sin(angle) * tangent
        candidate = candidate / candidate.norm()
        new_cost = float(_chunked(x, y, candidate[:, None], p, _NO_NOISE, None, BUDGET, (False, False, False)).costs[0])
        if new_cost > cost:
            return (new_cost - cost) / new_cost, candidate
        angle /= 2
    return None


class _Noise(NamedTuple):
    """Noise N(0, sigma^2) on projections, drawn one direction at a time so that chunks do not change the draws."""

    sigma: float
    generator: torch.Generator | None

    def add(self, *samples: Tensor) -> None:
        """Add noise to the rows of [k, n] and [k, m] in place."""
        if self.generator is not None and self.sigma > 0:
            for rows in zip(*samples, strict=True):
                for row in rows:
                    generator, device = self.generator, self.generator.device
                    noise = torch.randn(len(row), generator=generator, device=device, dtype=row.dtype)
                    row += self.sigma * noise.to(row.device)


_NO_NOISE = _Noise(0.0, None)


class _CostsAndGradients(NamedTuple):
    """Costs [k] of the directions, and the requested derivatives of their sum, or the slopes in the projections."""

    costs: Tensor
    x: Tensor | None
    y: Tensor | None
    directions: Tensor | None


def _chunked(
    x: Tensor,
    y: Tensor,
    directions: Tensor,
    p: float,
    noise: _Noise,
    weights: tuple[Tensor, Tensor] | None,
    budget: int,
    needs: tuple[bool, bool, bool],
) -> _CostsAndGradients:
    """Compute costs of all directions and derivatives of their sum, a chunk of directions at a time.

    With at most as many directions as dimensions, ``x`` and ``y`` hold the slopes [k, n] and [k, m] in the
    projections, and the backward pass multiplies them by the directions; otherwise they hold the derivatives [n, d]
    and [m, d].
    """
    k, (n, d), m = directions.shape[1], x.shape, len(y)
    origin = find_origin(x, y)
    costs = x.new_empty(k)
    keep_slopes = k <= d
    gradients = [
        (sample.new_empty(k, len(sample)) if keep_slopes else torch.zeros_like(sample)) if need else None
        for sample, need in zip((x, y), needs[:2], strict=True)
    ]
    direction_gradient = torch.zeros_like(directions) if needs[2] else None
    chunk = max(1, budget // (2 * (n + m) * x.element_size()))
    for start in range(0, k, chunk):
        part = slice(start, start + chunk)
        block = directions[:, part]
        projected = [project(sample, block, origin) for sample in (x, y)]
        noise.add(*projected)
        result = line.solve(projected[0], projected[1], p, (needs[0] or needs[2], needs[1] or needs[2]), weights)
        costs[part] = result.cost
        for sample, slopes, gradient in zip((x, y), result[1:], gradients, strict=True):
            if slopes is None:
                continue
            if direction_gradient is not None:
                direction_gradient[:, part] += gradient_of_directions(sample, slopes, origin)
            if gradient is not None and keep_slopes:
                gradient[part] = slopes
            elif gradient is not None:
                gradient.addmm_(slopes.T, block.T)
    return _CostsAndGradients(costs, gradients[0], gradients[1], direction_gradient)


class _Sliced(torch.autograd.Function):
    """Compute the mean over directions and its derivatives (or slopes) in the forward pass; complete them backward."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        y: Tensor,
        u: Tensor,
        p: float,
        noise: _Noise,
        weights: tuple[Tensor, Tensor] | None,
        budget: int,
    ) -> Tensor:
        needs = tuple(ctx.needs_input_grad[:3])
        result = _chunked(x.detach(), y.detach(), u.detach(), p, noise, weights, budget, needs)
        ctx.save_for_backward(u, *result[1:])
        return result.costs.double().mean().to(x.dtype)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        u, x, y, direction_gradient = ctx.saved_tensors
        share = upstream / u.shape[1]
        if u.shape[1] <= u.shape[0]:
            x, y = (None if slopes is None else slopes.T @ (share * u.T) for slopes in (x, y))
        else:
            x, y = (None if gradient is None else share * gradient for gradient in (x, y))
        u_gradient = None if direction_gradient is None else share * direction_gradient
        return x, y, u_gradient, None, None, None, None


def _check(
    x: Tensor, y: Tensor, p: float, directions: Tensor, x_weights: Tensor | None, y_weights: Tensor | None
) -> tuple[Tensor, Tensor] | None:
    """Validate the arguments; return the weights as rows that sum to 1, or None if there are none."""
    check_pair(x, y, p)
    if x.ndim != 2 or y.ndim != 2 or x.shape[1] != y.shape[1]:
        raise UsageError(f"wanted x [n, d] and y [m, d]; found x {list(x.shape)} and y {list(y.shape)}")
    if directions.ndim != 2 or directions.shape[0] != x.shape[1] or directions.shape[1] == 0:
        raise UsageError(
            f"directions must be [d, k] with d = {x.shape[1]} and k of at least 1; found {list(directions.shape)}"
        )
    if directions.dtype != x.dtype or directions.device != x.device:
        raise UsageError(f"directions must be {x.dtype} on {x.device}; found {directions.dtype} on {directions.device}")
    return as_masses(x[:, 0], y[:, 0], x_weights, y_weights)
