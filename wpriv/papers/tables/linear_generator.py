"""The variance that a linear generator a Z learns from privatised data Y = X + N by entropic transport.

X ~ N(0, s^2), Z ~ N(0, 1). With Gaussian noise of variance sigma^2 (p = 2), the population loss W_{2,lambda}(a Z, Y)
has its minimum at a^2 = s^2 + sigma^2 - lambda / 2, or at 0 if that is negative: lambda = 2 sigma^2 removes the noise,
a smaller one only part of it. With Laplace noise of scale b (p = 1), the minimum is at s^2 for lambda = b. On batches
of finite size, as in training, the minimum differs.

Source:
    Reshetova, Chen, Ozgur (2023), Theorem 1 and Corollaries 1 (whose lambda is 1/b in print) and 2; Janati et al.
    (2020) for Gaussians.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import log_ndtr

from wpriv.core.parameters import Parameters, parameter
from wpriv.errors import Unsupported
from wpriv.numerics.arrays import Array

if TYPE_CHECKING:
    from torch import Tensor

COLUMNS = ("data", "exact", "grid", "sampled", "marginal_error")
SHOWN = ("data", "exact", "grid", "sampled", "marginal_error")
ORDERS = {"gauss": 2, "laplace": 1}
MAX_AXIS = 801
"""The largest number of points of Z, and for Gaussian noise of Y, of a quadrature."""
LAPLACE_POINTS, AGREEMENT = (801, 1201, 1601), 1e-2
"""Points of Y for Laplace noise, and how far the variances of two of these grids may lie apart, as a share."""


@dataclass(frozen=True)
class Params(Parameters):
    """The distributions, the regularisation, and the batches."""

    noise: str = parameter("gauss (p = 2) or laplace (p = 1)", default="gauss", choices=tuple(ORDERS))
    s: float = parameter("standard deviation of the data X", default=1.0, exclusive_minimum=0)
    scale: float = parameter(
        "sigma of Gaussian noise, b of Laplace noise; far from s, the column grid stays empty",
        default=1.0,
        exclusive_minimum=0,
    )
    lam: float = parameter("lambda, as a multiple of the theorem's: 2 sigma^2, or b", default=1.0, exclusive_minimum=0)
    batch: int = parameter("points on either side of a batch", default=200, minimum=1)
    draws: int = parameter(
        "batches whose mean loss is minimised, each with Z and with -Z; 0 omits them", default=4, minimum=0
    )
    seed: int = parameter("seed of the batches", default=0, minimum=0)

    @property
    def regularisation(self) -> float:
        """lambda, in units of the cost."""
        return self.lam * (2 * self.scale**2 if self.noise == "gauss" else self.scale)


def rows(params: Params) -> list[dict[str, Any]]:
    """Return one row: the variance a^2 in closed form if known, by quadrature on grids, and on batches of samples.

    The second is left out where no grid of moderate size resolves it, with the reason if there is no other answer.
    """
    errors: list[float] = []
    grid, reason = None, None
    try:
        grid = _on_grids(params, errors)
    except Unsupported as error:
        reason = str(error)
    sampled = minimiser(params, *_batches(params), errors, tol=1e-4) if params.draws else None
    variances = {"data": params.s**2, "exact": exact(params), "grid": grid, "sampled": sampled}
    answered = any(variances[name] is not None for name in ("exact", "grid", "sampled"))
    return [{**variances, "marginal_error": max(errors, default=None), "reason": None if answered else reason}]


def exact(params: Params) -> float | None:
    """Return the variance at the minimum of the population loss, or None if it is unknown."""
    if params.noise == "gauss":
        return max(params.s**2 + params.scale**2 - params.regularisation / 2, 0.0)
    return params.s**2 if params.lam == 1 else None


def minimiser(
    params: Params, z: Tensor, y: Tensor, a: Tensor | None, b: Tensor | None, errors: list[float], tol: float
) -> float:
    """Find the variance a^2 that minimises the mean entropic loss between a z and y, by the zero of its slope.

    The slope follows from the envelope theorem.

    Args:
        z, y: [..., n, 1] and [..., m, 1] points; a, b: their weights.
        errors: the marginal error of each evaluation is appended to it.
        tol: tolerance of the marginal error, and roughly of the variance.
    """
    import torch
    from scipy.optimize import brentq

    from wpriv.transport.sinkhorn import entropic

    def slope(factor: float) -> float:
        x = torch.tensor(factor, dtype=torch.float64, requires_grad=True)
        loss = entropic(x * z, y, params.regularisation, ORDERS[params.noise], a=a, b=b, tol=tol, max_iterations=5000)
        errors.append(float(loss.marginal_error.max()))
        return float(torch.autograd.grad(loss.value.mean(), x)[0])

    width = math.hypot(params.s, 2 * params.scale)
    low, high = min(0.05 * width, 0.2 * params.s), 3 * width
    # the loss is even in a, so 0 is always stationary; it is the minimum if the slope beside it is positive
    if slope(low) >= 0:
        return 0.0
    while slope(high) < 0:  # in a small batch all of z may be near 0
        high *= 2
    return float(brentq(slope, low, high, xtol=tol * width, rtol=tol)) ** 2


def _on_grids(params: Params, errors: list[float]) -> float:
    """Return the variance at the minimum of the population loss, by quadrature.

    For p = 1 the slope of the loss has small steps where points of a Z and Y coincide, so that a grid may have zeros of
    its own, the more so the wider the noise is. There a variance is only returned if two grids agree on it.
    """
    if params.noise == "gauss":
        return minimiser(params, *population_grids(params), errors, tol=1e-8)
    values: list[float] = []
    for count in LAPLACE_POINTS:
        value = minimiser(params, *population_grids(params, count), errors, tol=1e-8)
        for other in values:
            if abs(value - other) <= AGREEMENT * value:
                return other
        values.append(value)
    raise Unsupported("the variances by quadrature on three grids disagree: the noise is too wide beside the data")


def population_grids(params: Params, count: int = LAPLACE_POINTS[0]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return uniform grids for Z and Y and their weights, proportional to the densities, for quadrature.

    Args:
        count: points of Y for Laplace noise. For Gaussian noise there are as many as the kernel requires.
    """
    import torch

    s, b = params.s, params.scale
    z, weights = latent_grid(params)
    if params.noise == "gauss":
        y = _axis(8 * math.hypot(s, b), least=121, spacing=_kernel_width(params))
        log_density = -y * y / (2 * (s * s + b * b))
    else:
        y = np.linspace(-1, 1, count) * (6 * s + 16 * b)
        log_density = np.logaddexp(log_ndtr(y / s - s / b) - y / b, log_ndtr(-y / s - s / b) + y / b)
        if y[-1] - y[-2] > 0.2 * s:
            raise Unsupported(f"noise of scale {b:g} is too wide for a quadrature beside data of deviation {s:g}")
    return z, torch.from_numpy(y)[:, None], weights, torch.softmax(torch.from_numpy(log_density), 0)


def latent_grid(params: Params) -> tuple[Tensor, Tensor]:
    """Return a uniform grid for Z, [n, 1], and its weights; arguments and errors as in ``population_grids``."""
    import torch

    reach, least = (8, 121) if params.noise == "gauss" else (6, 241)
    z = _axis(reach, least=least, spacing=_kernel_width(params) / params.s)
    points = torch.from_numpy(z)
    return points[:, None], torch.softmax(-points * points / 2, 0)


def _kernel_width(params: Params) -> float:
    """The spacing that resolves exp(-cost / lambda): at a smaller lambda than the theorem's the kernel is narrower."""
    share = min(params.lam, 1.0)
    return 1.3 * params.scale * math.sqrt(share) if params.noise == "gauss" else params.scale * share


def _axis(reach: float, *, least: int, spacing: float) -> Array:
    """Return evenly spaced points from -reach to reach, an odd number: at least so many, and so near."""
    count = max(least, 2 * math.ceil(reach / spacing) + 1)
    if count > MAX_AXIS:
        raise Unsupported(
            f"noise or lambda is too small beside the data for a quadrature: it needs {count:,} points, and the limit "
            f"is {MAX_AXIS}"
        )
    return np.linspace(-1, 1, count) * reach


def _batches(params: Params) -> tuple[Tensor, Tensor, None, None]:
    """Draw batches of Z and Y, without weights."""
    import torch

    rng = np.random.default_rng(params.seed)
    shape = (params.draws, params.batch, 1)
    noise: Callable[..., Any] = rng.normal if params.noise == "gauss" else rng.laplace
    y = rng.normal(0.0, params.s, shape) + noise(0.0, params.scale, shape)
    z = rng.normal(size=shape)
    # each batch also with -Z, which has the same distribution: the mean loss is then even in a, like its expectation
    return torch.from_numpy(np.concatenate([z, -z])), torch.from_numpy(np.concatenate([y, y])), None, None
