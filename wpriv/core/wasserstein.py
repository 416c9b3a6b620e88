"""Wasserstein distances between two laws on the line, exact: what a WDP budget is meant to bound.

On the line the monotone coupling is optimal for every order mu >= 1, so W_mu^mu = integral over u in (0,1) of |F_P^-1(u) - F_Q^-1(u)|^mu.
For a shift it is the length of the shift, whatever the noise. For a subsampled record the integral is taken over the outcomes y of
the mixture, u = F_P(y), which needs no inverse of the mixture's distribution function.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_ndtr, logsumexp, ndtri_exp

from wpriv.core.pair import Array
from wpriv.errors import UsageError

MAX_ORDER = 1000.0
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
_REACH = 40.0  # standard deviations, or scales, beyond which a tail weighs less than 1e-300 or is known in closed form


def check_order(order: float) -> float:
    """The order mu itself where it is a number in [1, 1000]; UsageError elsewhere."""
    if not 1 <= order <= MAX_ORDER:
        raise UsageError(f"the order mu of a Wasserstein distance must lie in [1, {MAX_ORDER:g}]; found {order}")
    return float(order)


def shift(distance: ArrayLike) -> float:
    """W_mu between the laws of Z and Z + v: ||v||, for every noise law and every order (translate; Jensen's inequality below)."""
    return float(np.linalg.norm(np.atleast_1d(np.asarray(distance, dtype=float))))


def samples(x: ArrayLike, y: ArrayLike, order: float) -> float:
    """W_mu between the empirical laws of two samples on the line, of any sizes.

    Args:
        x, y: [n] and [m] numbers in the units of the output; order: mu in [1, 1000].
    Returns:
        The distance itself, in those units.
    """
    check_order(order)
    a, b = np.sort(np.ravel(x)), np.sort(np.ravel(y))
    if a.size == 0 or b.size == 0:
        raise UsageError(f"a distance between samples needs at least one number on each side; found {a.size} and {b.size}")
    levels = np.union1d(np.arange(1, a.size + 1) / a.size, np.arange(1, b.size + 1) / b.size)
    middle = levels - np.diff(levels, prepend=0.0) / 2
    gaps = np.abs(a[np.minimum((middle * a.size).astype(int), a.size - 1)] - b[np.minimum((middle * b.size).astype(int), b.size - 1)])
    return _norm(gaps, np.log(np.diff(levels, prepend=0.0)), order)


def subsampled_gauss(rate: float, distance: float, sigma: float, order: float) -> float:
    """W_mu between (1-q) N(0, sigma^2) + q N(d, sigma^2) and N(0, sigma^2); also in R^k for a shift of length d.

    In R^k the coordinates across the shift have the same law on both sides and are coupled to themselves. It never exceeds q^(1/mu) d,
    and at mu = 1 it is q d: by duality E_P f - E_Q f at f(y) = y, since every outcome moves the same way.

    Args:
        rate: q in [0, 1]. distance, sigma: d >= 0 and sigma >= 0, in the units of the output. order: mu in [1, 1000].
    Returns:
        The distance in the units of the output, right to about 1e-12 relative, and to 1e-16 sigma where it is smaller than that.
    Source:
        The monotone coupling (Bobkov and Ledoux 2019, Theorem 2.10).
    """
    known = _simple(rate, distance, sigma, order)
    if known is not None:
        return known
    return sigma * gauss_mixture([1 - rate, rate], [0.0, distance / sigma], [1.0, 1.0], order)


def gauss_mixture(weights: Sequence[float], means: Sequence[float], sigmas: Sequence[float], order: float) -> float:
    """W_mu between a mixture of normal laws and N(0, 1).

    Args:
        weights: of the components, >= 0 with sum 1; means, sigmas: theirs, in units of the second law's standard deviation.
        order: mu in [1, 1000].
    Returns:
        The distance in the same units.
    """
    check_order(order)
    kept = [(w, m, s) for w, m, s in zip(weights, means, sigmas, strict=True) if w > 0]
    log_w, mean, sigma = np.log([w for w, _, _ in kept])[:, None], *(np.array([k[i] for k in kept])[:, None] for i in (1, 2))

    # far out the cost |y - x|^mu can outweigh a falling density: by at most what the mixture can move an outcome there
    wide = math.sqrt(2 * order * float(np.max(-log_w))) if len(kept) > 1 else 0.0
    reach = _REACH + min(wide, order * float(np.max(np.abs(mean))) + 1) + 2 * math.sqrt(order)
    edges = _edges([(m - reach * s, m + reach * s) for _, m, s in kept], 0.5 * min(s for _, _, s in kept))
    y, log_dy = _panels(edges)
    z = (y - mean) / sigma
    below, above = logsumexp(log_w + log_ndtr(z), axis=0), logsumexp(log_w + log_ndtr(-z), axis=0)
    log_density = logsumexp(log_w - z * z / 2 - np.log(sigma), axis=0) - 0.5 * math.log(2 * math.pi)
    with np.errstate(invalid="ignore"):
        x = np.where(below < above, ndtri_exp(np.minimum(below, 0.0)), -ndtri_exp(np.minimum(above, 0.0)))
    gaps = np.where(np.isfinite(x), np.abs(y - x), 0.0)
    return _norm(gaps, log_density + log_dy, order)


def subsampled_laplace(rate: float, distance: float, scale: float, order: float) -> float:
    """W_mu between (1-q) Lap(0, b) + q Lap(d, b) and Lap(0, b); arguments and result as ``subsampled_gauss``, with b for sigma.

    Outside [0, d] the coupling moves every outcome by the same amount, so both tails are closed forms; between, quadrature in panels
    that end where the moved outcome crosses 0.
    """
    known = _simple(rate, distance, scale, order)
    if known is not None:
        return known
    q, r = rate, distance / scale
    low = -math.log1p(q * math.expm1(-r))
    high = math.log1p(-q) + np.logaddexp(0.0, math.log(q / (1 - q)) + r)
    gaps, logs = [low, float(high)], [-math.log(2) - low, -math.log(2) + float(high) - r]
    reach = _REACH + 4 * order
    breaks = [0.0, _median(q, r), r]
    edges = np.unique(np.concatenate([breaks, _edges([(0.0, min(r, reach)), (max(r - reach, 0.0), r)], 0.5)]))
    y, log_dy = _panels([(a, b) for a, b in pairwise(edges) if b - a < 0.6 or b <= reach])
    above = np.logaddexp(math.log1p(-q) - y - math.log(2), math.log(q) + np.log1p(-np.exp(y - r) / 2))
    below = np.logaddexp(math.log1p(-q) + np.log1p(-np.exp(-y) / 2), math.log(q) + y - r - math.log(2))
    x = np.where(above < below, -above - math.log(2), below + math.log(2))
    density = np.logaddexp(math.log1p(-q) - y, math.log(q) + y - r) - math.log(2)
    inner = np.maximum(y - x, 0.0)
    return scale * _norm(np.concatenate([gaps, inner]), np.concatenate([logs, density + log_dy]), order)


def _median(q: float, r: float) -> float:
    """Where the mixture of Laplace laws around 0 and r has half its mass: q e^-r z^2 + (1-2q) z - (1-q) = 0 at z = e^y."""
    lean = abs(1 - 2 * q)
    with np.errstate(divide="ignore"):
        root = np.logaddexp(np.log(lean), np.logaddexp(2 * np.log(lean), math.log(4 * q * (1 - q)) - r) / 2)
    y = math.log(2 * (1 - q)) - root if q < 0.5 else root - math.log(2 * q) + r
    return min(max(float(y), 0.0), r)


def _simple(rate: float, distance: float, scale: float, order: float) -> float | None:
    """The cases in closed form: no record, a plain shift, no noise, order 1."""
    check_order(order)
    if not (0 <= rate <= 1 and 0 <= distance < math.inf and 0 <= scale < math.inf):
        raise UsageError(
            f"wanted a rate in [0, 1] and a distance and a noise that are finite and at least 0; found {rate}, {distance} and {scale}"
        )
    if rate == 0 or distance == 0:
        return 0.0
    if rate == 1 or order == 1:
        return rate * distance
    if distance / scale > 1e12 if scale else True:  # the shifted part moves as a whole
        return distance * math.exp(math.log(rate) / order)
    return None


def _edges(spans: list[tuple[float, float]], width: float) -> Array:
    """The ends of panels of at most this width that cover all spans, but not the gaps between them."""
    points: list[Array] = []
    end = -math.inf
    for low, high in sorted(spans):
        start = max(low, end)
        if high > start:
            points.append(np.linspace(start, high, math.ceil((high - start) / width) + 1))
            end = high
    return np.unique(np.concatenate(points))


def _panels(edges: Array | list[tuple[float, float]]) -> tuple[Array, Array]:
    """Gauss-Legendre nodes of all panels and the logs of their weights."""
    ends = np.array(edges) if isinstance(edges, list) else np.stack([edges[:-1], edges[1:]], axis=1)
    half = (ends[:, 1] - ends[:, 0])[:, None] / 2
    y = ends[:, :1] + half * (_NODES + 1)
    return y.ravel(), (np.log(half) + np.log(_WEIGHTS)).ravel()


def _norm(gaps: Array, log_mass: Array, order: float) -> float:
    """(sum of mass gap^mu)^(1/mu) in log space."""
    with np.errstate(divide="ignore"):
        logs = order * np.log(gaps) + log_mass
    return float(np.exp(logsumexp(logs) / order)) if logs.size else 0.0
