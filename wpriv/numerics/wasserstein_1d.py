"""Distances on the line: exact Wasserstein distances, and absolute moments of the normal distribution.

On the line the monotone coupling is optimal for every order mu >= 1, so W_mu^mu = integral over u in (0,1) of
|F_P^-1(u) - F_Q^-1(u)|^mu. For a shift it is the length of the shift, whatever the noise. For a subsampled record the
integral is taken over the outcomes y of the mixture, u = F_P(y), which needs no inverse of the mixture's distribution
function.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln, hyp1f1, log_ndtr, logsumexp, ndtri_exp

from wpriv.errors import UsageError
from wpriv.numerics.arrays import Array

MAX_ORDER = 1000.0
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
_REACH = 40.0  # standard deviations, or scales, beyond which a tail is below 1e-300 or known in closed form


def check_order(order: float) -> float:
    """Return the order mu as a float."""
    if not 1 <= order <= MAX_ORDER:
        raise UsageError(f"the order mu of a Wasserstein distance must lie in [1, {MAX_ORDER:g}]; found {order}")
    return float(order)


def shift(distance: ArrayLike) -> float:
    """W_mu between Z and Z + v: ||v|| for every noise, attained by translation and least by Jensen's inequality."""
    return float(np.linalg.norm(np.atleast_1d(np.asarray(distance, dtype=float))))


def samples(x: ArrayLike, y: ArrayLike, order: float) -> float:
    """Compute W_mu between the empirical distributions of two samples on the line, of any sizes.

    Args:
        x, y: [n] and [m] numbers in the units of the output. order: mu in [1, 1000].
    Returns:
        The distance, in those units.
    """
    check_order(order)
    a, b = np.sort(np.ravel(x)), np.sort(np.ravel(y))
    if a.size == 0 or b.size == 0:
        raise UsageError(f"both samples must hold at least one number; found {a.size} and {b.size}")
    levels = np.union1d(np.arange(1, a.size + 1) / a.size, np.arange(1, b.size + 1) / b.size)
    middle = levels - np.diff(levels, prepend=0.0) / 2
    one, two = (x[np.minimum((middle * x.size).astype(int), x.size - 1)] for x in (a, b))
    return _norm(np.abs(one - two), np.log(np.diff(levels, prepend=0.0)), order)


def subsampled_gauss(rate: float, distance: float, sigma: float, order: float) -> float:
    """Compute W_mu between (1-q) N(0, sigma^2) + q N(d, sigma^2) and N(0, sigma^2).

    In R^k it holds for a shift of length d: the coordinates orthogonal to the shift have the same distribution on both
    sides and are coupled to themselves. The distance never exceeds q^(1/mu) d. At mu = 1 it is q d: by duality
    E_P f - E_Q f at f(y) = y, since every outcome moves in the same direction.

    Args:
        rate: q in [0, 1]. distance, sigma: d >= 0 and sigma >= 0, in the units of the output. order: mu in [1, 1000].
    Returns:
        The distance in the units of the output, right to about 1e-12 relative, and to 1e-16 sigma where it is smaller.
    Source: The monotone coupling (Bobkov and Ledoux 2019, Theorem 2.10).
    """
    closed = _closed_form(rate, distance, sigma, order)
    if closed is not None:
        return closed
    return sigma * gauss_mixture([1 - rate, rate], [0.0, distance / sigma], [1.0, 1.0], order)


def gauss_mixture(weights: Sequence[float], means: Sequence[float], sigmas: Sequence[float], order: float) -> float:
    """Compute W_mu between a mixture of normal distributions and N(0, 1).

    Args:
        weights: of the components, >= 0 with sum 1.
        means, sigmas: of the components, in units of the standard deviation of the second distribution.
        order: mu in [1, 1000].
    Returns:
        The distance in the same units.
    """
    check_order(order)
    components = [(w, m, s) for w, m, s in zip(weights, means, sigmas, strict=True) if w > 0]
    weight, mean, sigma = (np.array(column)[:, None] for column in zip(*components, strict=True))
    log_w = np.log(weight)
    # far out the cost |y - x|^mu can outweigh the falling density, by no more than the mixture can move an outcome
    # there
    wide = math.sqrt(2 * order * float(np.max(-log_w))) if len(components) > 1 else 0.0
    reach = _REACH + min(wide, order * float(np.max(np.abs(mean))) + 1) + 2 * math.sqrt(order)
    spans = [(m, -reach * s, reach * s) for _, m, s in components]
    centre, z, log_dz = _panels(spans, 0.5 * min(s for _, _, s in components))
    standardised = (centre - mean + z) / sigma
    below, above = logsumexp(log_w + log_ndtr(standardised), axis=0), logsumexp(log_w + log_ndtr(-standardised), axis=0)
    log_density = logsumexp(log_w - standardised * standardised / 2 - np.log(sigma), axis=0)
    log_density = log_density - 0.5 * math.log(2 * math.pi)
    with np.errstate(invalid="ignore"):
        x = np.where(below < above, ndtri_exp(np.minimum(below, 0.0)), -ndtri_exp(np.minimum(above, 0.0)))
    gaps = np.where(np.isfinite(x), np.abs(centre + (z - x)), 0.0)
    return _norm(gaps, log_density + log_dz, order)


def subsampled_laplace(rate: float, distance: float, scale: float, order: float) -> float:
    """Compute W_mu between (1-q) Lap(0, b) + q Lap(d, b) and Lap(0, b).

    Arguments and result are those of ``subsampled_gauss``, with the scale b for sigma. Outside [0, d] the coupling
    moves every outcome by the same amount, so both tails are closed forms; between, quadrature in panels that end where
    the moved outcome crosses 0.
    """
    closed = _closed_form(rate, distance, scale, order)
    if closed is not None:
        return closed
    q, r = rate, distance / scale
    low = -math.log1p(q * math.expm1(-r))
    share = float(np.logaddexp(math.log1p(-q) - r, math.log(q)))  # beyond both centres every outcome moves by r + share
    gaps, logs = [low, r + share], [-math.log(2) - low, -math.log(2) + share]
    reach = _REACH + 4 * order
    middle = _median(q, r)
    near, far = (0.0, 0.0, min(r, reach)), (r, -min(r, reach), 0.0)
    centre, z, log_dz = _panels([near, far], 0.5, breaks=(middle,))
    y, rest = centre + z, centre - r + z  # the distances from both centres, one of which is z exactly
    above = np.logaddexp(math.log1p(-q) - y - math.log(2), math.log(q) + np.log1p(-np.exp(np.minimum(rest, 0.0)) / 2))
    below = np.logaddexp(math.log1p(-q) + np.log1p(-np.exp(-y) / 2), math.log(q) + rest - math.log(2))
    x = np.where(above < below, -above - math.log(2), below + math.log(2))
    density = np.logaddexp(math.log1p(-q) - y, math.log(q) + rest) - math.log(2)
    inner = np.maximum(centre + (z - x), 0.0)
    return scale * _norm(np.concatenate([gaps, inner]), np.concatenate([logs, density + log_dz]), order)


def _median(q: float, r: float) -> float:
    """Median of the mixture of Laplace distributions around 0 and r: q e^-r z^2 + (1-2q) z - (1-q) = 0 at z = e^y."""
    asymmetry = abs(1 - 2 * q)
    with np.errstate(divide="ignore"):
        root = np.logaddexp(np.log(asymmetry), np.logaddexp(2 * np.log(asymmetry), math.log(4 * q * (1 - q)) - r) / 2)
    y = math.log(2 * (1 - q)) - root if q < 0.5 else root - math.log(2 * q) + r
    return min(max(float(y), 0.0), r)


def _closed_form(rate: float, distance: float, scale: float, order: float) -> float | None:
    """Return the distance in the cases with a closed form (no record, a shift, no noise, order 1), else None."""
    check_order(order)
    if not (0 <= rate <= 1 and 0 <= distance < math.inf and 0 <= scale < math.inf):
        raise UsageError(
            f"the rate must lie in [0, 1], the distance and the noise must be finite and at least 0; "
            f"found {rate}, {distance} and {scale}"
        )
    if rate == 0 or distance == 0:
        return 0.0
    if rate == 1 or order == 1:
        return rate * distance
    if scale == 0 or distance / scale > 1e15:  # the shifted component moves as a whole
        return distance * math.exp(math.log(rate) / order)
    return None


def _panels(
    spans: list[tuple[float, float, float]], width: float, breaks: tuple[float, ...] = ()
) -> tuple[Array, Array, Array]:
    """Lay Gauss-Legendre nodes on panels of at most this width that cover all spans once and end at the breaks.

    Args:
        spans: (centre, low, high), both ends relative to the centre, which keeps the digits around a distant centre.
    Returns:
        The centre of every node, its position relative to it, and the logarithm of its weight.
    """
    centres, positions, log_weights = [], [], []
    end = -math.inf
    for centre, low, high in sorted(spans, key=lambda span: span[0] + span[1]):
        start = max(low, end - centre)
        if high <= start:
            continue
        inside = [b - centre for b in breaks if start < b - centre < high]
        edges = np.unique(np.append(np.linspace(start, high, math.ceil((high - start) / width) + 1), inside))
        half = np.diff(edges)[:, None] / 2
        positions.append((edges[:-1, None] + half * (_NODES + 1)).ravel())
        log_weights.append((np.log(half) + np.log(_WEIGHTS)).ravel())
        centres.append(np.full(positions[-1].shape, centre))
        end = centre + high
    return np.concatenate(centres), np.concatenate(positions), np.concatenate(log_weights)


def _norm(gaps: Array, log_mass: Array, order: float) -> float:
    """Compute (sum of mass gap^mu)^(1/mu) in log space."""
    with np.errstate(divide="ignore"):
        logs = order * np.log(gaps) + log_mass
    return float(np.exp(logsumexp(logs) / order)) if logs.size else 0.0


# Absolute moments E|Z|^mu of a normal distribution for real mu, in log space.

_LARGEST = 700.0  # e^this is nearly the largest double
_MAX_TERMS, _CHUNK = 2000, 8192


def log_absolute_moment(mean: ArrayLike, sigma: float, order: float) -> Array:
    """Compute ln E|Z|^mu of Z ~ N(mean, sigma^2) for every mean, without overflow or cancellation.

    Args:
        mean: [...] in the units of the output. sigma: standard deviation >= 0 in the same units.
        order: mu in [1, 1000], real.
    Returns:
        [...] natural logs; -inf where mean and sigma are both 0.
    Source: Yang et al. (2024), Lemma 1 (Winkelbauer 2012, Equation 17): (2 V)^(mu/2) Gamma((mu+1)/2)/sqrt(pi)
        1F1(-mu/2; 1/2; -x) at x = mean^2/(2V). By Kummer's transformation 1F1(-mu/2; 1/2; -x) = e^-x 1F1((mu+1)/2; 1/2;
        x), whose terms are all positive.
    """
    check_order(order)
    m = np.abs(np.asarray(mean, dtype=float))
    if not (0 <= sigma < math.inf and np.all(np.isfinite(m))):
        raise UsageError(f"means must be finite and sigma must be finite and at least 0; found sigma {sigma}")
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        root = m / (sigma * math.sqrt(2)) if sigma > 0 else np.full(m.shape, np.inf)
        x = root * root
        a = (order + 1) / 2
        near = x + 2 * np.sqrt(a * x) < _LARGEST  # an upper bound of ln 1F1((mu+1)/2; 1/2; x)
        small = np.where(near, x, 0.0)
        scale = order * (math.log(sigma) + math.log(2) / 2) if sigma > 0 else -math.inf
        central = scale + float(gammaln(a)) - 0.5 * math.log(math.pi) - small + np.log(hyp1f1(a, 0.5, small))
        if np.all(near):
            return np.asarray(central)
        far = ~near
        logs = np.array(central)
        logs[far] = order * np.log(m[far]) + np.log(_descending(x[far], order))
        return logs


def _descending(x: Array, order: float) -> Array:
    """Compute E|Z/mean|^mu = sum_k (-mu/2)_k ((1-mu)/2)_k / (k! x^k) for large x.

    The series ends for integer mu, and its terms are positive up to k = mu/2. Its error is of the order of e^-x; here x
    > 200.
    """
    inverse = 1 / np.ravel(x)
    total = np.ones_like(inverse)
    for start in range(0, inverse.size, _CHUNK):  # chunks that fit into the processor's cache
        u, part = inverse[start : start + _CHUNK], total[start : start + _CHUNK]
        term, largest = np.ones_like(u), float(u.max())
        bound = 1.0  # on the terms: the term at the smallest x
        for k in range(_MAX_TERMS):
            factor = (k - order / 2) * (k + (1 - order) / 2) / (k + 1)
            term *= factor
            term *= u
            part += term
            bound *= abs(factor) * largest
            if bound <= 1e-17:
                break
    return total.reshape(np.shape(x))


def absolute_moment(mean: ArrayLike, sigma: float, order: float) -> Array:
    """Compute E|Z|^mu; inf, with a RuntimeWarning, where it exceeds the largest double. See ``log_absolute_moment``."""
    logs = log_absolute_moment(mean, sigma, order)
    largest = float(np.max(logs, initial=-math.inf))
    if largest > math.log(np.finfo(float).max):
        warnings.warn(
            f"E|Z|^{order:g} is e^{largest:.6g}, above the largest double; returning inf. Use log_absolute_moment",
            RuntimeWarning,
            stacklevel=2,
        )
    with np.errstate(over="ignore"):
        return np.asarray(np.exp(logs))
