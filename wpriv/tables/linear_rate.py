"""How fast a linear generator a Z comes to the law of X as the privatised records Y = X + N grow in number.

X ~ N(0, s^2), Z ~ N(0, 1). From n records the generator takes the a_n at which the entropic cost between the whole law of a Z and those n
records is least. The 2-Wasserstein distance of its law to that of X is |a_n - s|; the excess is what the cost of whole laws at a_n is above
its least. Theorem 2 bounds the excess by a constant of no known size times n^(-1/2); here, where the class holds the law of X, the distance
falls with n^(-1/2) and the excess, which is quadratic in it, with n^(-1).

Source:
    Reshetova, Chen, Ozgur (2023), Theorem 2; Janati et al. (2020) for the cost between Gaussians. To first order a_n^2 - s^2 is the
    error of the mean of Y^2, as that is what the cost sees of a Gauss law; so sqrt(n) times the distance settles at
    (s^2 + sigma^2) / (sqrt(2) s).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from wpriv.core.parameters import Parameters, parameter
from wpriv.errors import UsageError
from wpriv.tables import linear_generator

COLUMNS = ("w2", "scaled", "settles", "excess", "spread", "marginal_error")
SHOWN = ("w2", "scaled", "settles", "excess")


@dataclass(frozen=True)
class Params(Parameters):
    """The laws, and how many records are seen how often."""

    noise: str = parameter("gauss (p = 2) or laplace (p = 1)", default="gauss", choices=("gauss", "laplace"))
    s: float = parameter("standard deviation of the data X", default=1.0, exclusive_minimum=0)
    scale: float = parameter(
        "sigma of Gauss noise, b of Laplace noise; lambda is 2 sigma^2, or b", default=1.0, exclusive_minimum=0
    )
    records: int = parameter("privatised records", default=1000, minimum=2)
    draws: int = parameter("data sets of so many records", default=32, minimum=2)
    seed: int = parameter("seed of the data sets", default=0, minimum=0)


def rows(params: Params) -> list[dict[str, Any]]:
    """One row: the root mean square distance over the data sets, the same times sqrt(n), and the mean excess.

    ``spread`` is the standard error of ``w2``, relative.
    """
    import torch

    law = linear_generator.Params(noise=params.noise, s=params.s, scale=params.scale)
    z, _, weights, _ = linear_generator._grids(law)
    rng = np.random.default_rng(params.seed)
    errors: list[float] = []
    found = []
    for _ in range(params.draws):
        added = (rng.normal if params.noise == "gauss" else rng.laplace)(0.0, params.scale, params.records)
        y = torch.from_numpy(rng.normal(0.0, params.s, params.records) + added)[:, None]
        found.append(math.sqrt(linear_generator.minimiser(law, z, y, weights, None, errors, tol=1e-6)))
    square = (np.array(found) - params.s) ** 2
    w2 = math.sqrt(square.mean())
    gauss = params.noise == "gauss"
    excess = [cost(a, law) - cost(params.s, law) for a in found] if gauss else None
    return [
        {
            "w2": w2,
            "scaled": w2 * math.sqrt(params.records),
            "settles": (params.s**2 + params.scale**2) / (math.sqrt(2) * params.s) if gauss else None,
            "excess": None if excess is None else float(np.mean(excess)),
            # of a root of a mean of squares, to first order
            "spread": float(square.std(ddof=1)) / (2 * w2**2 * math.sqrt(params.draws)),
            "marginal_error": max(errors),
            "reason": None,
        }
    ]


def cost(a: float, law: linear_generator.Params) -> float:
    """W_{2,lambda} between N(0, a^2) and N(0, s^2 + sigma^2), lambda = 2 sigma^2.

    Raises:
        UsageError: the noise is not Gauss.
    """
    if law.noise != "gauss":
        raise UsageError("the cost is known in closed form for Gauss noise only")
    lam, product = law.regulariser, a * a * (law.s**2 + law.scale**2)
    if product == 0:
        return law.s**2 + law.scale**2
    c = math.sqrt(lam * lam / 16 + product) - lam / 4
    return a * a + law.s**2 + law.scale**2 - 2 * c - lam / 2 * math.log1p(-c * c / product)
