"""The squared length H of a unit vector after k random projections: bracket of its distribution, moments, tail.

H is the sum of k independent Beta(1/2, (d-1)/2) variables, and u = sqrt(H). Given H, a release with Gaussian noise has
the pair N(u/sigma, 1) against N(0, 1), and H is public, so its privacy profile is the average over H of Gaussian
profiles f(t; u), t = e^eps. Two facts give a bracket of second order in the spacing of a discrete distribution, with
sums of positive terms only:

- Let x(u) = erf(c u), c = 1/(2 sqrt 2 sigma), the total variation at u. df/dx is proportional to exp(-(eps sigma/u)^2 /
  2), which grows with u: f is increasing and convex in x, for every t. So splitting points among neighbouring nodes
  with the mean of x kept raises the profile, and merging points with the mean of x kept lowers it.
- Domination is preserved when an independent release is added (Zhu, Dong, Wang 2022, Theorem 10), so bracketing
  distributions of H for k1 and k2 directions may be convolved, split (or merged) again, and so on: k directions take
  about 2 log2 k convolutions of small distributions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import betainc, betaincc, betaln, erf, erfc, erfcinv, erfinv

from wpriv.numerics import counted_work
from wpriv.numerics.arrays import Array, Counts

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
        k: number of directions, >= 1.
        d: dimension of the space, >= 2.
        sigma: noise in units of the vector's length, > 0; the bracket holds at this noise only.
        accuracy: relative excess of E[H] allowed in the dominating distribution; the dominated one falls short by about
            half.
    Returns:
        The dominated and the dominating distribution.
    Source:
        Rakotomamonjy, Ralaivola (2021), Lemma 1 for the distribution of one projection; the bracket is wpriv's.
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
        d: dimension, >= 2.
        s: >= 0, of any shape and size.
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
    """Evaluate ln of weight times y^(1/2) (1-y)^(b-1/2) e^(s y) d logit(y) at 241 nodes y along the last axis.

    Returns:
        The logarithms and the nodes y.
    """
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
