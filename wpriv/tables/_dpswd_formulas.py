"""Private sliced Wasserstein distance (Rakotomamonjy, Ralaivola 2021): formulas as printed, for the table ``claims``.

The tail bounds w of the squared sensitivity, printed ones among them, are in wpriv/accountants/_projected_length_tails;
the accountant ``swd-tail`` reproduces Proposition 2 over many steps.
"""

from __future__ import annotations

import math

import numpy as np

from wpriv.numerics.arrays import Array


def published_mean(length: float, d: int) -> float:
    """Remark 4: the mean of the squared projection of a vector of this length, |z| / d; |z|^2 / d is right."""
    return length / d


def published_renyi(w: float, sigma: float, order: float) -> float:
    """Section 3.1: the divergence alpha w / (2 sigma^2), which holds only where the squared length is at most w."""
    return order * w / (2 * sigma**2)


def published_epsilon(w: float, sigma: float, delta: float) -> float:
    """Proposition 2 at its best order 1 + sigma sqrt(2 ln(2/delta)/w), with w taken at delta/2."""
    order = 1 + sigma * math.sqrt(2 * math.log(2 / delta) / w)
    return published_renyi(w, sigma, order) + math.log(2 / delta) / (order - 1)


def published_normalised(rows: Array) -> Array:
    """Algorithm 2, lines 10 and 11: [n, d] rows divided by twice the largest norm of the batch."""
    return rows / (2 * float(np.linalg.norm(rows, axis=1).max()))
