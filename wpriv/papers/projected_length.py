"""The squared length H of a unit vector of R^d after k random projections: distribution, moments and tail bounds.

H is the sum of k independent Beta(1/2, (d-1)/2) variables, and u = sqrt(H). Given H, which is public, a release with
Gaussian noise has the pair N(u/sigma, 1) against N(0, 1). All profiles are increasing and convex in x(u) = erf(c u), c
= 1/(2 sqrt 2 sigma), so that splitting points with the mean of x kept dominates, and merging them is dominated. k
directions take about 2 log2 k convolutions. docs/theory/random-projections.md has the proofs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import betainc, betaincc, betainccinv, betaln, erf, erfc, erfcinv, erfinv, gammaln, ndtri

from wpriv.numerics import counted_work
from wpriv.numerics.arrays import Array, Counts
from wpriv.numerics.root_finding import minimize_quasiconvex

# -ln of the probability below and above the nodes: the mass below is irrelevant, that above matters to small deltas
DEPTH_LOW, DEPTH_HIGH = 40.0, 140.0
# relative accuracy of a convolution, a sum of positive terms; each one widens the bracket by as much
ROUNDING = 1e-12
# products of weights below it are not computed, but counted at the end of the distribution that is safe
NEGLIGIBLE = 1e-90
# nanoseconds for each sum of two squared lengths
SUM_WORK = 45.0


@dataclass(frozen=True)
class LengthPmf:
    """A discrete distribution of u = sqrt(H): points [J], increasing and positive, and their probabilities [J]."""

    u: Array
    weight: Array


@dataclass(frozen=True)
class _Coordinate:
    """x(u) up to a constant, without cancellation at either end: erf(c u) if all values are small, else -erfc(c u)."""

    c: float
    small: bool

    def of(self, u: Array) -> Array:
        return np.asarray(erf(self.c * u) if self.small else -erfc(self.c * u))

    def inverse(self, x: Array) -> Array:
        return np.asarray((erfinv(x) if self.small else erfcinv(-x)) / self.c)


@lru_cache(maxsize=32)
def length_bracket(k: int, d: int, sigma: float, accuracy: float) -> tuple[LengthPmf, LengthPmf]:
    """Compute discrete distributions of u = sqrt(H) whose privacy profiles lie below and above the exact one.

    Args:
        k: number of directions, >= 1. d: dimension of the space, >= 2.
        sigma: noise in units of the vector's length, > 0; the bracket holds at this noise only.
        accuracy: relative excess of E[H] allowed in the dominating distribution; the dominated one falls short by about
            half.
    Returns:
        The dominated and the dominating distribution.
    Source: Rakotomamonjy, Ralaivola (2021), Lemma 1 for the distribution of one projection; the bracket is wpriv's.
    """
    return _convolved(k, d, sigma, accuracy, upper=False), _convolved(k, d, sigma, accuracy, upper=True)


def _convolved(k: int, d: int, sigma: float, accuracy: float, *, upper: bool) -> LengthPmf:
    """Compute one end of the bracket for k directions by repeated doubling."""
    c = 1 / (math.sqrt(8) * sigma)
    power, size, total, directions = _single(d, c, _nodes(1, d, accuracy), upper), 1, None, 0
    while True:
        if k & size:
            directions += size
            total = power if total is None else _add(total, power, c, _nodes(directions, d, accuracy), upper)
        if directions == k:
            assert total is not None
            return total
        size *= 2
        power = _add(power, power, c, _nodes(size, d, accuracy), upper)


def _nodes(k: int, d: int, accuracy: float) -> Array:
    """Nodes from 0 to sqrt(k), spaced by (density of u)^(-1/2) near its peak and at most 8 times as far elsewhere.

    A spacing s raises E[H] by s^2/6 or lowers it by s^2/12; the doublings share the allowed error in proportion to
    1/sqrt(k).
    """
    centre, spread = math.sqrt((k - 1) / d), math.sqrt((1 + 1 / k) / (2 * d))
    low = math.sqrt(max(k - 2 * math.sqrt(k * DEPTH_LOW), 0.0) / d)
    high = min((math.sqrt(k) + math.sqrt(2 * DEPTH_HIGH)) / math.sqrt(d), math.sqrt(k))
    smallest = math.sqrt(6 * 0.15 * accuracy / math.sqrt(k) * k / d)
    u = np.linspace(low, high, 1000)
    rate = 1 / (smallest * np.minimum(np.exp(((u - centre) / spread) ** 2 / 8), 8.0))
    count = np.concatenate([[0.0], np.cumsum(np.diff(u) * (rate[1:] + rate[:-1]) / 2)])
    inner = np.interp(np.linspace(0, count[-1], math.ceil(count[-1]) + 1), count, u)
    return np.unique(np.concatenate([[0.0], inner, [math.sqrt(k)]]))


def _single(d: int, c: float, nodes: Array, upper: bool) -> LengthPmf:
    """The distribution for one direction, from the probability and the mean of u in every cell, both in closed form."""
    b, square = (d - 1) / 2, np.minimum(nodes**2, 1.0)
    below, above = betainc(0.5, b, square), betaincc(0.5, b, square)
    mass = np.maximum(np.where(above[:-1] < below[1:], above[:-1] - above[1:], np.diff(below)), 0.0)
    with np.errstate(divide="ignore", invalid="ignore", under="ignore"):
        log_rest = b * np.log1p(-square)
        first = np.exp(log_rest[:-1]) * -np.expm1(log_rest[1:] - log_rest[:-1]) / (b * math.exp(_log_beta(b)))
        mean = np.where(mass > 1e-290, first / mass, nodes[:-1] if not upper else nodes[1:])
    a, wide = nodes[:-1], np.diff(nodes)
    share = np.clip((np.clip(mean, a, nodes[1:]) - a) / wide + (1e-9 if upper else -1e-9), 0.0, 1.0)
    coordinate = _coordinate(c, nodes)
    x = coordinate.of(nodes)
    if upper:
        # x is concave in u: in each cell its mean is at most x at the mean of u, and at least its value on the chord
        return _split(coordinate, nodes, np.arange(a.size), a + share * wide, mass)
    return _merge(coordinate, nodes, mass, x[:-1] + share * np.diff(x))


def _add(one: LengthPmf, other: LengthPmf, c: float, nodes: Array, upper: bool) -> LengthPmf:
    """Bracket the distribution of sqrt(u1^2 + u2^2) on new nodes, from above or from below."""
    counted_work.add(SUM_WORK * one.u.size * other.u.size)
    squares = np.add.outer(one.u**2, other.u**2)
    weight = np.multiply.outer(one.weight, other.weight)
    keep = weight > NEGLIGIBLE
    u, weight = np.sqrt(squares[keep]), weight[keep]
    cell = np.clip(np.searchsorted(nodes, u, side="right") - 1, 0, nodes.size - 2)
    coordinate = _coordinate(c, nodes)
    if upper:
        return _split(coordinate, nodes, cell, u, weight)
    mass: Array = np.bincount(cell, weight, nodes.size - 1).astype(float)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.bincount(cell, weight * coordinate.of(u), nodes.size - 1) / mass
    return _merge(coordinate, nodes, mass, np.where(mass > 0, mean, 0.0))


def _coordinate(c: float, nodes: Array) -> _Coordinate:
    return _Coordinate(c, c * float(nodes[-2]) < 0.5)


def _split(coordinate: _Coordinate, nodes: Array, cell: Counts, u: Array, weight: Array) -> LengthPmf:
    """Split points among the ends of their cells, with the mean of x kept and rounding directed upwards."""
    x = coordinate.of(nodes)
    start, wide = x[cell], np.diff(x)[cell]
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(wide > 0, np.clip((coordinate.of(u) - start) / wide + 1e-10, 0.0, 1.0), 1.0)
    mass: Array = np.bincount(cell, weight * (1 - share), nodes.size).astype(float)
    mass += np.bincount(cell + 1, weight * share, nodes.size)
    mass[-1] += mass.size**2 * NEGLIGIBLE
    mass /= mass.sum()
    points = nodes.copy()
    points[0] = 1e-3 * nodes[1]  # a separation of 0 would be an atom of the loss; a slightly larger one is not
    return LengthPmf(points, _shifted(mass, +1))


def _merge(coordinate: _Coordinate, nodes: Array, mass: Array, x: Array) -> LengthPmf:
    """Merge each cell into one point, given its mean of x, with rounding directed downwards."""
    occupied = mass > 0
    u = np.clip(coordinate.inverse(x[occupied]), nodes[:-1][occupied], nodes[1:][occupied]) * (1 - ROUNDING)
    mass = mass[occupied]
    mass[0] += nodes.size**2 * NEGLIGIBLE
    return LengthPmf(u, _shifted(mass / mass.sum(), -1))


def _shifted(mass: Array, direction: int) -> Array:
    """Move the mass that rounding may have misplaced from each point to the next one up (+1) or down (-1)."""
    below = np.cumsum(mass)[:-1]
    above = np.cumsum(mass[::-1])[::-1][1:]
    shifted = mass.copy()
    source, target = (slice(None, -1), slice(1, None)) if direction > 0 else (slice(1, None), slice(None, -1))
    amount = np.minimum(ROUNDING * np.minimum(below, above), mass[source])
    shifted[source] -= amount
    shifted[target] += amount
    return shifted


def log_moment(d: int, s: Array) -> Array:
    """Compute ln E[e^(s Y)] = ln 1F1(1/2; d/2; s) of one Beta(1/2, (d-1)/2) variable Y.

    A series of positive terms for small s; for large s the trapezoid rule on the logit of Y, whose integrand is
    analytic with one peak, after a sinh map about the peak that makes the tails negligible.

    Args:
        d: dimension, >= 2. s: >= 0, of any shape and size.
    Returns:
        Logarithms of the shape of s, right to about 1e-13 relative.
    """
    s = np.asarray(s, dtype=float)
    b, bound = d / 2, max(20.0, d / 4)
    near, far = np.minimum(s, bound), np.maximum(s, bound)[..., None]
    term, series = np.ones_like(s), np.zeros_like(s)
    for n in range(120):
        term = term * (0.5 + n) / (b + n) * near / (n + 1)
        series = series + term
    total = np.logaddexp.reduce(_integrand(b, far)[0], axis=-1) - _log_beta(b - 0.5)
    return np.asarray(np.where(s <= bound, np.log1p(series), total))


def _integrand(b: float, s: Array) -> tuple[Array, Array]:
    """ln of weight times y^(1/2) (1-y)^(b-1/2) e^(s y) d logit(y) at 241 nodes on the last axis, and the nodes."""
    # the peak is where s y^2 + (b - s) y = 1/2, and the curvature there is y (1-y) root
    root = np.hypot(s - b, np.sqrt(2 * s))
    with np.errstate(divide="ignore", invalid="ignore"):
        y = np.where(s > b, (s - b + root) / (2 * s), 1 / (np.abs(s - b) + root))
    rest = (2 * b - 1) / (s + b + root)
    curvature = y * rest * root
    q = np.linspace(-6.0, 6.0, 241)
    logit = np.log(y) - np.log(rest) + np.sinh(q) / np.sqrt(curvature)
    log_y, log_rest = -np.logaddexp(0.0, -logit), -np.logaddexp(0.0, logit)
    y = np.exp(log_y)
    return 0.5 * log_y + (b - 0.5) * log_rest + s * y + np.log(np.cosh(q) * (q[1] - q[0])) - 0.5 * np.log(curvature), y


def tilted(d: int, s: float) -> tuple[Array, Array]:
    """Quadrature nodes and weights of Beta(1/2, (d-1)/2) tilted by e^(s y), s >= 0; exact for smooth functions."""
    log_weight, y = _integrand(d / 2, np.array([max(s, 0.0)]))
    weight = np.exp(log_weight - log_weight.max())
    return y, weight / weight.sum()


def _log_beta(b: float) -> float:
    """Compute ln B(1/2, b) without the cancellation of ln Gamma at large b (Stirling's series)."""
    if b < 50:
        return float(betaln(0.5, b))
    return 0.5 * math.log(math.pi / b) + 1 / (8 * b) - 1 / (192 * b**3) + 1 / (640 * b**5)


# The tail bounds are functions of k, d and ln(1/p), where p is the probability that H exceeds the returned value.

# from this number of directions on, the characteristic function of H falls fast enough to be inverted
MIN_INVERTED = 30


def variance(d: int) -> float:
    """Variance of one squared projection: 2 (d-1) / (d^2 (d+2)); its mean is 1/d."""
    return 2 * (d - 1) / (d * d * (d + 2))


def bernstein(k: int, d: int, log_inverse: float) -> float:
    """w with P(H > w) <= p, rigorous and very loose (Rakotomamonjy, Ralaivola 2021, Lemma 2 as printed)."""
    return k / d + 2 / 3 * log_inverse + math.sqrt(2 * k * variance(d) * log_inverse)


def bernstein_code(k: int, d: int, log_inverse: float) -> float:
    """Lemma 2 as in the authors' program, with k^2 instead of k under the root: still an upper bound, and larger."""
    return k / d + 2 / 3 * log_inverse + k * math.sqrt(2 * variance(d) * log_inverse)


def bernstein_root(k: int, d: int, log_inverse: float) -> float:
    """The exact root of Lemma 2's quadratic, with 1 - 1/d instead of 1, and at most k, which H cannot exceed."""
    slope = (1 - 1 / d) * log_inverse / 3
    return min(k / d + slope + math.sqrt(slope**2 + 2 * k * variance(d) * log_inverse), float(k))


def clt(k: int, d: int, log_inverse: float) -> float:
    """The quantile of a normal distribution with H's mean and variance: no bound, as H is skewed."""
    return k / d + float(-ndtri(math.exp(-log_inverse))) * math.sqrt(k * variance(d))


def quantile(k: int, d: int, log_inverse: float) -> float:
    """The upper quantile of H, to about 1e-9.

    For 2 to 29 directions it is Chernoff's bound with the exact moments, which is rigorous.
    """
    if k == 1:
        return float(betainccinv(0.5, (d - 1) / 2, math.exp(-log_inverse)))
    if k < MIN_INVERTED:
        return _chernoff(k, d, log_inverse)
    low, high = k / d, _chernoff(k, d, log_inverse)
    if log_tail(k, d, low) < -log_inverse:
        low = 0.0
    for _ in range(60):
        middle = (low + high) / 2
        if log_tail(k, d, middle) > -log_inverse:
            low = middle
        else:
            high = middle
        if high - low < 1e-10 * high:
            break
    return min(high, float(k))


WIDTHS: dict[str, Callable[[int, int, float], float]] = {
    "bernstein": bernstein,
    "bernstein-code": bernstein_code,
    "root": bernstein_root,
    "clt": clt,
    "quantile": quantile,
}


def _chernoff(k: int, d: int, log_inverse: float) -> float:
    """The smallest w with E[e^(s (H - w))] <= p for some s > 0."""

    def width(s: Array) -> Array:
        return (k * log_moment(d, s) + log_inverse) / s

    return min(float(minimize_quasiconvex(width, 1e-6, 1e9 * d)[1]), float(k))


def log_tail(k: int, d: int, w: float) -> float:
    """ln P(H > w), to about 1e-9; for k >= 30 by inverting the moment generating function along its saddle.

    The error of the trapezoid rule on that line is the tail at w shifted by whole periods, below 1e-15 at this spacing.
    """
    if k == 1:
        return float(np.log(betaincc(0.5, (d - 1) / 2, min(w, 1.0))))
    s = _saddle(k, d, w)
    y, weight = tilted(d, s)
    log_scale = k * float(log_moment(d, np.array([s]))[0]) - s * w
    spread = math.sqrt(k * float(weight @ (y - weight @ y) ** 2))
    period = max(12 * spread, (45 - log_scale) / s)
    u = 2 * math.pi / period * np.arange(1, _terms(k, d, period))
    ratio = np.exp(1j * np.outer(u, y)) @ weight
    values = np.exp(k * np.log(ratio) - 1j * u * w) / (s + 1j * u)
    return log_scale + math.log((0.5 / s + float(values.real.sum())) * 2 / period)


def density(k: int, d: int, w: Array) -> Array:
    """The density of H at w [m], for k >= 30: its characteristic function, inverted by the trapezoid rule."""
    y, weight = tilted(d, 0.0)
    period = 2 * max(float(np.max(w)), k / d + 12 * math.sqrt(k * variance(d)))
    u = 2 * math.pi / period * np.arange(1, _terms(k, d, period))
    values = np.exp(k * np.log(np.exp(1j * np.outer(u, y)) @ weight))
    return np.asarray((0.5 + np.real(np.exp(-1j * np.outer(w, u)) @ values)) * 2 / period)


def _terms(k: int, d: int, period: float) -> int:
    """Terms until |1 + 2iu/d|^(-k/2), about the size of the characteristic function, falls below 1e-17."""
    reach = d / 2 * math.sqrt(math.expm1(4 * 39 / k))
    return min(max(math.ceil(2 * reach * period / (2 * math.pi)), 64), 20_000)


def _saddle(k: int, d: int, w: float) -> float:
    """The tilt s > 0 at which H has mean w, to one percent; 1 / (standard deviation of H) where w is below the mean."""
    smallest = 1 / math.sqrt(k * variance(d))
    low = high = smallest

    def mean(s: float) -> float:
        y, weight = tilted(d, s)
        return k * float(weight @ y)

    while mean(high) < w and high < 1e12 * smallest:
        low, high = high, 2 * high
    while high > 1.01 * low:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if mean(middle) < w else (low, middle)
    return high


def fixed_size_moment(order: int, rate: float, rho: float) -> float:
    """ln E[e^((a-1) L)] of one step of fixed-size sampling by the published accountant, at a whole order a >= 2.

    Args:
        rate: batch / records. rho: the unsampled step has Renyi divergence a rho at order a and an unbounded loss.
    Source: Wang, Balle, Kasiviswanathan (2019), Theorem 9, with its infinite order unbounded.
    """
    if rate == 1:
        return (order - 1) * order * rho
    j = np.arange(2, order + 1, dtype=float)
    log_terms = (j - 1) * j * rho + math.log(2)
    if 2 * rho < math.log(2):
        log_terms[0] = math.log(4) + math.log(math.expm1(2 * rho))
    choose = gammaln(order + 1) - gammaln(j + 1) - gammaln(order - j + 1)
    return float(np.logaddexp(0.0, np.logaddexp.reduce(choose + j * math.log(rate) + log_terms)))
