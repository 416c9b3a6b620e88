"""The distribution of the squared projected length H: a sample, its density, the normal approximation, and tail bounds.

H is the sum of k independent Beta(1/2, (d-1)/2) variables: the squared length of a unit vector of R^d under k random
projections. Its tail bounds determine the privacy of a release.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import betaln

from wpriv.accountants import _projected_length_tails
from wpriv.core.parameters import Parameters, parameter
from wpriv.errors import UsageError

LABELS = ("part", "name")
COLUMNS = ("x", "density", "drawn", "normal")
SHOWN = ("part", "name", "x", "density", "drawn", "normal", "claim")
# the claim of each tail bound w, as a statement about P(H > w) <= p
CLAIMS = {
    "bernstein": "upper-bound",
    "bernstein-code": "upper-bound",
    "root": "upper-bound",
    "clt": "approximate",
    "quantile": "exact",
}


@dataclass(frozen=True)
class Params(Parameters):
    """The dimension, the number of directions, and the histogram."""

    d: int = parameter("dimension of the space", default=784, minimum=2)
    k: int = parameter("number of random directions: 1, or at least 30", default=200, minimum=1)
    draws: int = parameter("values of H drawn for the histogram", default=10_000, minimum=1)
    bins: int = parameter("bins of the histogram", default=100, minimum=1)
    delta: float = parameter("probability p that H exceeds the marked bounds", default=1e-5, exclusive_minimum=0)
    seed: int = parameter("seed of the draws", default=0, minimum=0)


def rows(params: Params) -> list[dict[str, Any]]:
    """Return one row for each bin and one for each bound.

    A bin (``part`` = bin) has its middle ``x`` and the drawn, exact and normal densities; a bound (``part`` = bound)
    has w.

    Raises:
        UsageError: k is from 2 to 29, for which the numerical inversion of the density is not implemented; or delta
            >= 1.
    """
    d, k = params.d, params.k
    min_k = _projected_length_tails.MIN_INVERTED
    if 1 < k < min_k or params.delta >= 1:
        raise UsageError(
            f"projection-law wants k = 1 or k >= {min_k}, and delta below 1; found k = {k}, delta = {params.delta:g}"
        )
    rng = np.random.default_rng(params.seed)
    drawn = np.array([rng.beta(0.5, (d - 1) / 2, k).sum() for _ in range(params.draws)])
    heights, edges = np.histogram(drawn, params.bins, density=True)
    middle, spread = (edges[1:] + edges[:-1]) / 2, math.sqrt(k * _projected_length_tails.variance(d))
    normal = np.exp(-(((middle - k / d) / spread) ** 2) / 2) / (spread * math.sqrt(2 * math.pi))
    if k == 1:
        exact = np.exp(-0.5 * np.log(middle) + (d - 3) / 2 * np.log1p(-middle) - betaln(0.5, (d - 1) / 2))
    else:
        exact = _projected_length_tails.density(k, d, middle)
    bins = [
        {"part": "bin", "name": None, "x": x, "density": e, "drawn": h, "normal": n, "claim": "exact"}
        for x, e, h, n in zip(middle.tolist(), exact.tolist(), heights.tolist(), normal.tolist(), strict=True)
    ]
    log_inverse = -math.log(params.delta)
    bounds = {name: width(k, d, log_inverse) for name, width in _projected_length_tails.WIDTHS.items()}
    return bins + [
        {"part": "bound", "name": name, "x": w, "density": None, "drawn": None, "normal": None, "claim": CLAIMS[name]}
        for name, w in bounds.items()
    ]
