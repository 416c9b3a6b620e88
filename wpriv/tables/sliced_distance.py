"""Sliced distances with and without noise between Gaussians of distant means: samples beside the closed form.

Rakotomamonjy and Ralaivola (2021), Section 6.1 and Figure 2: N(0, I) against N(c 1, I) in d dimensions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any

from wpriv.core.parameters import Parameters, parameter

LABELS = ("case",)
COLUMNS = ("distance", "spread")
SHOWN = ("case", "distance", "spread", "claim")


@dataclass(frozen=True)
class Params(Parameters):
    """The two distributions, their samples, and the noise."""

    c: float = parameter("every coordinate of the second mean; the first is 0", default=0.5)
    sigma: float = parameter("standard deviation of the noise on every projection", default=1.0, exclusive_minimum=0.0)
    d: int = parameter("dimensions", default=5, minimum=1)
    records: int = parameter("records drawn from each distribution", default=1000, minimum=1)
    k: int = parameter("directions", default=200, minimum=1)
    draws: int = parameter("number of independent repetitions", default=5, minimum=2)
    seed: int = parameter("seed of the draws, which are the same at every c and sigma", default=0, minimum=0)


def rows(params: Params) -> list[dict[str, Any]]:
    """Return SW_2 of samples without and with noise (mean and standard deviation over the draws), and its limit."""
    distances = zip(*(_sampled_distances(params, draw) for draw in range(params.draws)), strict=True)
    inputs = {"c": params.c, "sigma": params.sigma, "records": params.records}
    sampled = [
        {**inputs, "case": case, "distance": mean(values), "spread": stdev(values), "claim": "approximate"}
        for case, values in zip(("SWD", "DP-SWD"), distances, strict=True)
    ]
    # u.m has the mean square |m|^2 / d = c^2 over directions u, and both projections the variance 1 + sigma^2
    limit = abs(params.c)
    return [*sampled, {**inputs, "case": "closed form", "distance": limit, "spread": 0.0, "claim": "exact"}]


def _sampled_distances(params: Params, draw: int) -> tuple[float, float]:
    """Return SW_2 without and with noise, on the same samples and directions."""
    import torch

    from wpriv.transport import sliced

    # a known seed is safe, since the data are synthetic, and makes the result reproducible
    generator = torch.Generator().manual_seed(params.seed * 1_000_003 + draw)
    x, y = torch.randn(2, params.records, params.d, generator=generator, dtype=torch.float64)
    y += params.c
    directions = sliced.random_directions(params.d, params.k, generator, dtype=torch.float64)
    plain = sliced.wasserstein(x, y, directions=directions)
    noisy = sliced.wasserstein(x, y, directions=directions, sigma=params.sigma, generator=generator)
    return math.sqrt(float(plain)), math.sqrt(float(noisy))
