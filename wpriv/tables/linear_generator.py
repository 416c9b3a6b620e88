"""A linear generator a Z learned from privatised data Y = X + N by entropic transport: the variance it ends at, over lambda or batch size.

X ~ N(0, s^2), Z ~ N(0, 1). Through Gauss noise of variance sigma^2 (p = 2) the population loss W_{2,lambda}(a Z, Y) has its minimum at
a^2 = s^2 + sigma^2 - lambda / 2, and at 0 where that is negative: lambda = 2 sigma^2 takes away the noise, a smaller one leaves some of it.
Through Laplace noise of scale b (p = 1) it is at s^2 for lambda = b. On batches of finite size, as in training, the minimum lies elsewhere.

Source:
    Reshetova, Chen, Ozgur (2023), Theorem 1 and Corollaries 1 (whose lambda is 1/b in print) and 2; Janati et al. (2020) for Gaussians.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import log_ndtr

from wpriv.core.parameters import Parameters, parameter
from wpriv.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor

COLUMNS = ("data", "exact", "grid", "sampled", "marginal_error")
SHOWN = ("data", "exact", "grid", "sampled", "marginal_error")
ORDERS = {"gauss": 2, "laplace": 1}


@dataclass(frozen=True)
class Params(Parameters):
    """The laws, the regulariser, and what the loss is computed on."""

    noise: str = parameter("gauss (p = 2) or laplace (p = 1)", default="gauss")
    s: float = parameter("standard deviation of the data X", default=1.0, exclusive_minimum=0)
    scale: float = parameter("sigma of Gauss noise, b of Laplace noise", default=1.0, exclusive_minimum=0)
    lam: float = parameter(
        "lambda, as a multiple of what the theorem asks for: 2 sigma^2, or b", default=1.0, exclusive_minimum=0
    )
    batch: int = parameter("points on either side of a batch", default=200, minimum=1)
    draws: int = parameter(
        "batches whose mean loss is minimised, each with Z and with -Z; 0 leaves them out", default=4, minimum=0
    )
    seed: int = parameter("seed of the batches", default=0, minimum=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.noise not in ORDERS:
            raise UsageError(f"linear-generator: noise must be gauss or laplace; found {self.noise!r}")

    @property
    def regulariser(self) -> float:
        return self.lam * (2 * self.scale**2 if self.noise == "gauss" else self.scale)


def rows(params: Params) -> list[dict[str, Any]]:
    """One row: the variance a^2 in closed form where there is one, by quadrature on grids, and on batches of samples."""
    errors: list[float] = []
    grid = minimiser(params, *_grids(params), errors, tol=1e-8)
    sampled = minimiser(params, *_batches(params), errors, tol=1e-4) if params.draws else None
    found = {"data": params.s**2, "exact": exact(params), "grid": grid, "sampled": sampled}
    return [{**found, "marginal_error": max(errors), "reason": None}]


def exact(params: Params) -> float | None:
    """The variance at the minimum of the population loss, where it is known."""
    if params.noise == "gauss":
        return max(params.s**2 + params.scale**2 - params.regulariser / 2, 0.0)
    return params.s**2 if params.lam == 1 else None


def minimiser(
    params: Params, z: Tensor, y: Tensor, a: Tensor | None, b: Tensor | None, errors: list[float], tol: float
) -> float:
    """The variance a^2 at which the mean entropic loss between a z and y is least: where its slope by the envelope theorem is 0.

    Args:
        z, y: [..., n, 1] and [..., m, 1] points; a, b: their weights. errors: takes the marginal error of each loss computed.
        tol: the marginal error asked for; the variance is right to about as much.
    """
    import torch
    from scipy.optimize import brentq

    from wpriv.transport.sinkhorn import entropic

    def slope(factor: float) -> float:
        x = torch.tensor(factor, dtype=torch.float64, requires_grad=True)
        found = entropic(x * z, y, params.regulariser, ORDERS[params.noise], a=a, b=b, tol=tol, max_iterations=5000)
        errors.append(float(found.marginal_error.max()))
        return float(torch.autograd.grad(found.value.mean(), x)[0])

    wide = math.hypot(params.s, 2 * params.scale)
    near, far = 0.05 * wide, 3 * wide
    # a and -a are the same law, so 0 is always stationary; it is the minimum where the slope beside it is upwards
    return float(brentq(slope, near, far, xtol=tol, rtol=tol)) ** 2 if slope(near) < 0 else 0.0


def _grids(params: Params) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Even grids over the laws of Z and Y with their densities as weights: sums over them are integrals."""
    s, b = params.s, params.scale
    # the cost |x - y| has a kink, so sums over its grid are right to the square of the spacing only
    z, y = (
        (np.linspace(-8, 8, 121), np.linspace(-1, 1, 121))
        if params.noise == "gauss"
        else (np.linspace(-6, 6, 241), np.linspace(-1, 1, 801))
    )
    if params.noise == "gauss":
        y = y * 8 * math.hypot(s, b)
        log_density = -y * y / (2 * (s * s + b * b))
    else:
        y = y * (6 * s + 16 * b)
        log_density = np.logaddexp(log_ndtr(y / s - s / b) - y / b, log_ndtr(-y / s - s / b) + y / b)
    import torch

    points = (torch.from_numpy(z)[:, None], torch.from_numpy(y)[:, None])
    return *points, torch.softmax(torch.from_numpy(-z * z / 2), 0), torch.softmax(torch.from_numpy(log_density), 0)


def _batches(params: Params) -> tuple[Tensor, Tensor, None, None]:
    import torch

    rng = np.random.default_rng(params.seed)
    shape = (params.draws, params.batch, 1)
    noise: Callable[..., Any] = rng.normal if params.noise == "gauss" else rng.laplace
    y = rng.normal(0.0, params.s, shape) + noise(0.0, params.scale, shape)
    z = rng.normal(size=shape)
    # each batch also with -Z, which has the same law: the mean loss is then even in a, as its expectation is
    return torch.from_numpy(np.concatenate([z, -z])), torch.from_numpy(np.concatenate([y, y])), None, None
