"""Sliced transport: the mean, or the maximum, over directions of W_p^p between projected samples; with noisy projections, its private kind.

Directions are worked on in chunks within a memory budget, with one matrix product for the projections of a chunk and one for its part of
the gradient.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from wpriv.errors import UsageError
from wpriv.transport import _rows
from wpriv.transport.line import as_masses, check_pair

BUDGET = 256 * 2**20
SAMPLED = 16  # records that the origin is estimated from
FAR = 16  # times the spread: nearer data lose at most four of their bits
BLOCK = 4096  # records moved to the origin at once
HALVINGS = 30


class Widest(NamedTuple):
    """The largest W_p^p found over directions, and the unit direction [d] where it was found."""

    cost: Tensor
    direction: Tensor


def random_directions(
    dim: int, count: int, generator: torch.Generator, *, dtype: torch.dtype = torch.float32
) -> Tensor:
    """``count`` independent uniform unit directions, the columns of [dim, count], on the generator's device.

    Drawn in double precision and rounded, so that float32 and float64 see the same ones.

    >>> random_directions(3, 5, torch.Generator().manual_seed(0)).square().sum(0)
    tensor([1., 1., 1., 1., 1.])
    """
    if dim < 1 or count < 1:
        raise UsageError(f"directions need at least one dimension and a count of at least 1; found {dim} and {count}")
    drawn = torch.randn(dim, count, generator=generator, device=generator.device, dtype=torch.float64)
    unit: Tensor = drawn / drawn.norm(dim=0)
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

    With ``sigma`` > 0 fresh noise N(0, sigma^2) is added to every projection of every record of both samples first. The result is then an
    estimate of the smoothed distance, that of the laws convolved with the noise; whether noise makes a release private is for the
    accountant to say. Differentiable (once) in the samples and in the entries of ``directions``.

    Args:
        x: [n, d] records, float32 or float64, on any device.
        y: [m, d] records, with the dtype and device of ``x``; m need not be n.
        p: order of the ground cost, p >= 1.
        directions: [d, k], one direction a column, as ``random_directions`` draws them; they are not normalised here.
        sigma: standard deviation of the noise of one projection, in the units of the data.
        generator: where that noise is drawn from; needed if sigma > 0. The same draws whatever the budget.
        x_weights, y_weights: [n] and [m] masses, not negative, divided by their sum. Equal by default.
        budget: bytes that a chunk of directions may take beside the samples, the result and its gradient.
    Returns:
        A scalar in units**p, the p-th power and not the distance.
    Raises:
        UsageError: shapes, dtypes, devices or weights do not fit; p < 1; a record is not finite; noise without a generator.
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


def widest(
    x: Tensor,
    y: Tensor,
    p: float = 2.0,
    *,
    directions: Tensor,
    steps: int = 50,
    tol: float = 1e-6,
    budget: int = BUDGET,
) -> Widest:
    """Max-sliced W_p^p: the best of the given directions, then improved on the unit sphere by at most ``steps`` steps of ascent.

    The cost is that of the direction returned, so it is a lower bound of the maximum over all directions: the ascent may end at a local
    one. With ``steps=0`` it is the maximum over the given directions. Differentiable (once) in the samples, with the direction held fixed,
    which is the gradient of the maximum where its direction is unique (envelope theorem).

    Args:
        directions: [d, k] starting points, one a column; they are normalised.
        steps: how often to improve the direction; each step makes the cost larger, by backtracking.
        tol: stop once a step gains less than this share of the cost.
        x, y, p, budget: as in ``wasserstein``.
    Source:
        Deshpande et al. 2019.

    >>> found = widest(torch.zeros(4, 2), torch.tensor([[3.0, 4.0]]), directions=torch.eye(2))
    >>> found.cost, found.direction.abs()
    (tensor(25.), tensor([0.6000, 0.8000]))
    """
    _check(x, y, p, directions, None, None)
    if not bool((directions.norm(dim=0) > 0).all()):
        raise UsageError("a direction of length 0 leads nowhere; leave it out")
    with torch.no_grad():
        starts = directions / directions.norm(dim=0)
        costs = _chunked(x, y, starts, float(p), _NO_NOISE, None, budget, (False, False, False)).costs
        best = starts[:, int(costs.argmax())]
        for _ in range(steps):
            better = _climb(x, y, best, float(p))
            if better is None:
                break
            gain, best = better
            if gain < tol:
                break
    return Widest(wasserstein(x, y, p, directions=best[:, None]), best)


def _climb(x: Tensor, y: Tensor, at: Tensor, p: float) -> tuple[float, Tensor] | None:
    """A better unit direction and what it gains, relative to the cost; None where no step along the gradient gains anything."""
    here = _chunked(x, y, at[:, None], p, _NO_NOISE, None, BUDGET, (False, False, True))
    assert here.directions is not None
    cost, slope = float(here.costs[0]), here.directions[:, 0]
    across = slope - (slope @ at) * at
    angle = math.atan2(float(across.norm()), float(slope @ at))
    if not angle > 0:
        return None
    # the cost is homogeneous: all the way to the slope is a step of the power method, which solves p = 2 where the plan stays the same
    across = across / across.norm()
    for _ in range(HALVINGS):
        there = math.cos(angle) * at + math.sin(angle) * across
        there = there / there.norm()
        found = float(_chunked(x, y, there[:, None], p, _NO_NOISE, None, BUDGET, (False, False, False)).costs[0])
        if found > cost:
            return (found - cost) / found, there
        angle /= 2
    return None


class _Noise(NamedTuple):
    """What is added to projections: N(0, sigma^2), drawn direction by direction so that chunks do not change the draws."""

    sigma: float
    generator: torch.Generator | None

    def add(self, *samples: Tensor) -> None:
        """Adds noise to the rows of [k, n] and [k, m] in place."""
        if self.generator is not None and self.sigma > 0:
            for rows in zip(*samples, strict=True):
                for row in rows:
                    device = self.generator.device
                    row += self.sigma * torch.randn(
                        len(row), generator=self.generator, device=device, dtype=row.dtype
                    ).to(row.device)


_NO_NOISE = _Noise(0.0, None)


class _Found(NamedTuple):
    """Costs [k] of the directions, and what was asked for beside: derivatives of their sum, or the slopes they are made of."""

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
) -> _Found:
    """Costs of all directions and derivatives of their sum, a chunk of directions at a time.

    Where there are fewer directions than dimensions, ``x`` and ``y`` hold the slopes [k, n] and [k, m] in the projected positions, and the
    product with the directions is left to the backward pass; else they hold the derivatives [n, d] and [m, d].
    """
    k, (n, d), m = directions.shape[1], x.shape, len(y)
    origin = _origin(x, y)
    costs = x.new_empty(k)
    late = k <= d
    gradients = [
        (sample.new_empty(k, len(sample)) if late else torch.zeros_like(sample)) if need else None
        for sample, need in zip((x, y), needs[:2], strict=True)
    ]
    turned = torch.zeros_like(directions) if needs[2] else None
    chunk = max(1, budget // (2 * (n + m) * x.element_size()))
    for start in range(0, k, chunk):
        part = slice(start, start + chunk)
        own = directions[:, part]
        projected = [_project(sample, own, origin) for sample in (x, y)]
        noise.add(*projected)
        found = _rows.solve(projected[0], projected[1], p, (needs[0] or needs[2], needs[1] or needs[2]), weights)
        costs[part] = found.cost
        for sample, slopes, gradient in zip((x, y), found[1:], gradients, strict=True):
            if slopes is None:
                continue
            if turned is not None:
                turned[:, part] += _turn(sample, slopes, origin)
            if gradient is not None and late:
                gradient[part] = slopes
            elif gradient is not None:
                gradient.addmm_(slopes.T, own.T)
    return _Found(costs, gradients[0], gradients[1], turned)


def _origin(x: Tensor, y: Tensor) -> Tensor | None:
    """A point amid the records, where they lie so far from 0 that their projections would lose digits; else None.

    Moving both samples moves no distance. The point and the spread are those of a few records, spaced evenly: they cost nothing and decide
    nothing but how the rounding falls.
    """
    few = torch.cat([sample[:: len(sample) // SAMPLED + 1] for sample in (x, y)])
    centre = few.mean(0)
    far = centre.norm() > FAR * (few - centre).square().sum(1).mean().sqrt()
    return centre if bool(far) else None


def _blocks(sample: Tensor, origin: Tensor | None) -> Iterator[tuple[slice, Tensor]]:
    """All records as they are, or from the origin in blocks, so that no second copy of them is held."""
    step = len(sample) if origin is None else BLOCK
    for start in range(0, len(sample), step):
        rows = slice(start, start + step)
        yield rows, sample if origin is None else sample[rows] - origin


def _project(sample: Tensor, directions: Tensor, origin: Tensor | None) -> Tensor:
    """Projections [k, n] of the records."""
    out = sample.new_empty(directions.shape[1], len(sample))
    for rows, block in _blocks(sample, origin):
        out[:, rows] = directions.T @ block.T
    return out


def _turn(sample: Tensor, slopes: Tensor, origin: Tensor | None) -> Tensor:
    """The derivative [d, k] in the directions from the slopes [k, n] in the projections."""
    turned = sample.new_zeros(sample.shape[1], len(slopes))
    for rows, block in _blocks(sample, origin):
        turned.addmm_(block.T, slopes[:, rows].T)
    return turned


class _Sliced(torch.autograd.Function):
    """The mean over directions in the forward pass; the backward pass scales what was found, or multiplies the slopes by the directions."""

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
        found = _chunked(x.detach(), y.detach(), u.detach(), p, noise, weights, budget, needs)
        ctx.save_for_backward(u, *found[1:])
        return found.costs.double().mean().to(x.dtype)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        u, x, y, turned = ctx.saved_tensors
        share = upstream / u.shape[1]
        if u.shape[1] <= u.shape[0]:
            x, y = (None if slopes is None else slopes.T @ (share * u.T) for slopes in (x, y))
        else:
            x, y = (None if gradient is None else share * gradient for gradient in (x, y))
        return x, y, None if turned is None else share * turned, None, None, None, None


def _check(
    x: Tensor, y: Tensor, p: float, directions: Tensor, x_weights: Tensor | None, y_weights: Tensor | None
) -> tuple[Tensor, Tensor] | None:
    """The weights as rows that sum to 1, or None where there are none."""
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
