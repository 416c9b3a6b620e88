"""The rate at which a linear generator a Z approaches the distribution of X with the number of records Y = X + N.

X ~ N(0, s^2), Z ~ N(0, 1). From n privatised records the generator learns the a_n that minimises the entropic cost
between the population of a Z and those n records. The W_2 distance of its distribution to that of X is |a_n - s|, of
order n^(-1/2): to first order a_n^2 - s^2 is the error of the mean of Y^2, so that sqrt(n) times it converges to (s^2 +
sigma^2) / (sqrt(2) s). The excess is the population cost at a_n minus its minimum, which Theorem 2 bounds by an
unspecified constant times n^(-1/2); here it is quadratic in the distance, of order n^(-1).

Source: Reshetova, Chen, Ozgur (2023), Theorem 2; Janati et al. (2020) for the cost between Gaussians.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from wpriv.core.parameters import Parameters, parameter
from wpriv.errors import UsageError
from wpriv.papers.tables import linear_generator

COLUMNS = ("w2", "scaled", "settles", "excess", "spread", "marginal_error")
SHOWN = ("w2", "scaled", "settles", "excess")


@dataclass(frozen=True)
class Params(Parameters):
    """The distributions, the number of records, and the number of repetitions."""

    noise: str = parameter("gauss (p = 2) or laplace (p = 1)", default="gauss", choices=("gauss", "laplace"))
    s: float = parameter("standard deviation of the data X", default=1.0, exclusive_minimum=0)
    scale: float = parameter(
        "sigma of Gaussian noise, b of Laplace noise; lambda is 2 sigma^2, or b", default=1.0, exclusive_minimum=0
    )
    records: int = parameter("privatised records", default=1000, minimum=2)
    draws: int = parameter("number of data sets", default=32, minimum=2)
    seed: int = parameter("seed of the data sets", default=0, minimum=0)


def rows(params: Params) -> list[dict[str, Any]]:
    """Root mean square distance, the same times sqrt(n), ``spread`` (its relative standard error), mean excess."""
    import torch

    problem = linear_generator.Params(noise=params.noise, s=params.s, scale=params.scale)
    z, weights = linear_generator.latent_grid(problem)
    rng = np.random.default_rng(params.seed)
    errors: list[float] = []
    factors = []
    for _ in range(params.draws):
        noise = (rng.normal if params.noise == "gauss" else rng.laplace)(0.0, params.scale, params.records)
        y = torch.from_numpy(rng.normal(0.0, params.s, params.records) + noise)[:, None]
        factors.append(math.sqrt(linear_generator.minimiser(problem, z, y, weights, None, errors, tol=1e-6)))
    square = (np.array(factors) - params.s) ** 2
    w2 = math.sqrt(square.mean())
    gauss = params.noise == "gauss"
    excess = [cost(a, problem) - cost(params.s, problem) for a in factors] if gauss else None
    return [
        {
            "w2": w2,
            "scaled": w2 * math.sqrt(params.records),
            "settles": (params.s**2 + params.scale**2) / (math.sqrt(2) * params.s) if gauss else None,
            "excess": None if excess is None else float(np.mean(excess)),
            # to first order, for the root of a mean of squares
            "spread": float(square.std(ddof=1)) / (2 * w2**2 * math.sqrt(params.draws)),
            "marginal_error": max(errors),
            "reason": None,
        }
    ]


def cost(a: float, problem: linear_generator.Params) -> float:
    """Return W_{2,lambda} between N(0, a^2) and N(0, s^2 + sigma^2), lambda = 2 sigma^2."""
    if problem.noise != "gauss":
        raise UsageError(f"the cost has a closed form for Gaussian noise only; found {problem.noise!r}")
    lam, product = problem.regularisation, a * a * (problem.s**2 + problem.scale**2)
    if product == 0:
        return problem.s**2 + problem.scale**2
    c = math.sqrt(lam * lam / 16 + product) - lam / 4
    return a * a + problem.s**2 + problem.scale**2 - 2 * c - lam / 2 * math.log1p(-c * c / product)
