"""The statements of Reshetova, Chen, Ozgur (2023) on learning from local reports, for the table ``claims``.

A function named ``published_*`` gives the number of the paper where that is not the correct one; the others are
correct. Y = X + N with noise of density f_N(x) = (C_N sigma)^-1 exp(-|x|^p / (p sigma^p)) on each coordinate: Laplace
noise of scale sigma for p = 1, Gaussian noise for p = 2. Everything here is on the line.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise, product

import numpy as np
from scipy.special import logsumexp

from wpriv.numerics import conversions
from wpriv.numerics.arrays import Array
from wpriv.papers.tables._statement import Case, Claims, panels

Generator = tuple[tuple[float, ...], tuple[float, ...]]  # points and their weights

ZERO: Generator = ((0.0,), (1.0,))
# a generator that the loss prefers to a single point, and whose divergence in the printed direction is larger
RARE: Generator = ((0.0, 6.0), (0.999, 0.001))
NEAR = math.sqrt(0.0096)
RADII = ((1.0,), (1.0, 0.0))


def normaliser(p: float) -> float:
    """C_N of the noise density: 2 for p = 1, sqrt(2 pi) for p = 2."""
    return 2 * math.pow(p, 1 / p) * math.gamma(1 + 1 / p)


def noise_entropy(p: float, sigma: float) -> float:
    """h(N) = 1/p + ln(sigma C_N), below equation (14)."""
    return 1 / p + math.log(sigma * normaliser(p))


def least_cost(p: float, sigma: float, entropy: float) -> float:
    """W_{p, p sigma^p}(P_X, P_Y) = p sigma^p (h(Y) - ln(C_N sigma)), the least over all generators; above (25)."""
    return p * math.pow(sigma, p) * (entropy - math.log(normaliser(p) * sigma))


def published_least_cost(p: float, sigma: float, entropy: float) -> float:
    """The second line of (14) as printed, whose first term has the wrong sign."""
    return p * math.pow(sigma, p) * (math.log(sigma * normaliser(p)) + entropy)


def laplace_variance_learned(variance: float, scale: float, lam: float) -> float:
    """Variance of the best generator for Laplace noise of scale b and 0 <= lambda <= b: Var X + 2 b^2 - 2 lambda^2.

    The least W_{1, lambda}(P_G, P_Y) is at P_G * Lap(lambda) = P_Y, thus at P_X convolved with the mixture of 0, with
    weight (lambda/b)^2, and Lap(b).
    """
    return variance + 2 * scale**2 - 2 * lam**2


def gauss_variance_learned(variance: float, lam: float) -> float:
    """Variance a^2 of the best generator N(0, a^2) for data N(0, variance) and p = 2, by the root of the slope.

    The optimal coupling of N(0, a^2) and N(0, s^2) has the correlation r that minimises
    a^2 + s^2 - 2 r a s - (lambda/2) ln(1 - r^2); by the envelope theorem the slope in a is 2 a - 2 r s.
    """
    from scipy.optimize import brentq

    s = math.sqrt(variance)

    def slope(a: float) -> float:
        return a - _covariance(a, s, lam) / a

    return float(brentq(slope, 1e-6 * s, s, xtol=1e-15, rtol=1e-14)) ** 2


def gauss_cost(mean: float, s1: float, s2: float, lam: float) -> float:
    """W_{2, lambda} of N(0, s1^2) and N(mean, s2^2): Janati et al. (2020)."""
    c = _covariance(s1, s2, lam)
    return mean**2 + s1**2 + s2**2 - 2 * c - lam / 2 * math.log1p(-((c / (s1 * s2)) ** 2))


def _covariance(s1: float, s2: float, lam: float) -> float:
    """Covariance of the optimal coupling of two normal distributions."""
    # -lam/4 + sqrt(lam^2/16 + s1^2 s2^2), without cancellation
    product = (s1 * s2) ** 2
    return product / (lam / 4 + math.sqrt(lam * lam / 16 + product))


def gauss_divergence(mean: float, variance1: float, variance2: float) -> float:
    """KL(N(mean, variance1) || N(0, variance2))."""
    return (mean**2 / variance2 + variance1 / variance2 - 1 - math.log(variance1 / variance2)) / 2


def largest_loss(x: Sequence[float], other: Sequence[float], scale: float) -> float:
    """Compute the largest log ratio of the densities of a report from x and from ``other``, by search.

    Laplace noise of this scale on every coordinate; the outputs run through all points whose coordinates are those of
    the inputs or lie beyond both, where the ratio has its corners.
    """
    a, b = np.asarray(x, dtype=float), np.asarray(other, dtype=float)
    low, high = np.minimum(a, b), np.maximum(a, b)
    axes = [np.array([low_k - 1, low_k, high_k, high_k + 1]) for low_k, high_k in zip(low, high, strict=True)]
    outputs = np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, len(a))
    losses = (np.abs(outputs - b).sum(1) - np.abs(outputs - a).sum(1)) / scale
    return float(losses.max())


def log_density(y: Array, points: Sequence[float], weights: Sequence[float], p: float, sigma: float) -> Array:
    """Log density of a discrete generator plus noise."""
    gaps = np.abs(np.subtract.outer(y, np.asarray(points, dtype=float)))
    logs = np.log(weights) - gaps**p / (p * sigma**p) - math.log(normaliser(p) * sigma)
    return np.asarray(logsumexp(logs, axis=-1))


def divergence(first: Generator, second: Generator, p: float, sigma: float) -> float:
    """KL of one discrete generator plus noise from another, by quadrature."""
    points = sorted({*first[0], *second[0]})
    y, w = quadrature(points, (40.0 if p == 1 else 12.0) * sigma)
    one, other = (log_density(y, *generator, p, sigma) for generator in (first, second))
    return float(np.sum(w * np.exp(one) * (one - other)))


def quadrature(points: Sequence[float], reach: float) -> tuple[Array, Array]:
    """Lay Gauss-Legendre nodes and weights from ``reach`` below the first point to ``reach`` above the last one."""
    corners = [points[0] - reach, *points, points[-1] + reach]
    edges = np.concatenate([np.linspace(a, b, 25)[:-1] for a, b in pairwise(corners)])
    return panels(np.append(edges, corners[-1]), 40)


def cost_of_two_points(points: tuple[float, float], weights: tuple[float, float], sigma: float) -> float:
    """W_{2, 2 sigma^2} between two points with weights and N(0, sigma^2), by the dual problem in one potential."""
    from scipy.optimize import brentq

    lam = 2 * sigma**2
    y, w = quadrature(sorted({0.0, *points}), 12 * sigma)
    mass = w * np.exp(log_density(y, [0.0], [1.0], 2, sigma))
    costs = np.subtract.outer(y, np.asarray(points)) ** 2

    def exponents(potential: float) -> Array:
        return np.asarray(np.log(weights) + (np.array([0.0, potential]) - costs) / lam)

    def excess(potential: float) -> float:
        logs = exponents(potential)
        return float(np.sum(mass * np.exp(logs[:, 1] - logsumexp(logs, axis=1)))) - weights[1]

    best = float(brentq(excess, -200 * lam, 200 * lam, xtol=1e-14))
    return weights[1] * best - lam * float(np.sum(mass * logsumexp(exponents(best), axis=1)))


def subgaussian(s: float, dimension: int) -> float:
    """sigma of N(0, s^2 I_d) above Theorem 2: the least at which (1 - s^2 / (d sigma^2))^(-d/2) is at most 2."""
    return s / math.sqrt(-dimension * math.expm1(-2 / dimension * math.log(2)))


STATEMENTS = Claims()
upper = STATEMENTS.claim
equal = partial(STATEMENTS.claim, equal=True)


@upper(
    "Section 2.1, Laplace",
    "noise of scale Delta/eps: eps-LDP",
    ((1.0, [0.0], [1.0]), (0.5, [0.0], [3.0]), (2.0, [1.0, 0.0], [0.0, 1.0])),
)
def _(eps: float, x: Sequence[float], other: Sequence[float]) -> Case:
    diameter = sum(abs(a - b) for a, b in zip(x, other, strict=True))
    at = f"eps={eps:g}, d={len(x)}, |x - x'|_1={diameter:g}"
    return at, eps, largest_loss(x, other, diameter / eps)


@upper("Equation 4", "Gaussian noise that suffices")
def _() -> Iterator[Case]:
    for eps, delta in product((1.0, 0.01, 0.1, 5.0, 35.0, 196.0), (1e-4, 1e-10, 0.4)):
        at = f"eps={eps:g}, delta={delta:g}, Delta=1"
        yield at, conversions.zhao(eps, delta), conversions.exact(eps, delta)


def _gauss_entropy(s: float, sigma: float) -> float:
    return 0.5 * math.log(2 * math.pi * math.e * (s**2 + sigma**2))


def _normal(s: float, sigma: float) -> str:
    return f"X ~ N(0, {s * s:g}), Gaussian noise sigma={sigma:g}"


def _cost(s: float, sigma: float, a: float | None = None, mean: float = 0.0) -> float:
    """W_{2, 2 sigma^2} between the generator N(mean, a^2), by default the data N(0, s^2), and the reports."""
    return gauss_cost(mean, s if a is None else a, math.hypot(s, sigma), 2 * sigma**2)


@equal("Theorem 1 (i)", "the least cost is p sigma^p (h(Y) - ln(C_N sigma))", ((1.0, 1.0), (2.0, 0.7)))
def _(s: float, sigma: float) -> Case:
    published = least_cost(2, sigma, _gauss_entropy(s, sigma))
    return _normal(s, sigma), published, _cost(s, sigma)


@upper("Theorem 1 (ii)", "KL at most min W_p^p, without a constant", ((2.0, 2.0), (2.0, 0.1), (1.0, 0.1)), error=3)
def _(p: float, sigma: float) -> Case:
    """Yield (10) where no generator is the data, with the minimum over G of the distance of G, which is meant."""
    at = f"X=0, one generator: the point 1, p={p:g}, sigma={sigma:g}"
    return at, 1.0, divergence(((1.0,), (1.0,)), ZERO, p, sigma)


def _squared_distance(generator: Generator) -> float:
    """W_2^2 of a discrete generator to the point 0."""
    return sum(weight * point**2 for point, weight in zip(*generator, strict=True))


def _preferred() -> tuple[Generator, float]:
    """Return the generator of least W_{2,2} to N(0, 1), of RARE and the point NEAR, and the least W_2^2 to 0."""
    generators: tuple[Generator, ...] = (RARE, ((NEAR,), (1.0,)))
    costs = (cost_of_two_points((0.0, 6.0), (0.999, 0.001), 1), 1 + NEAR**2)
    best = generators[costs.index(min(costs))]
    return best, min(_squared_distance(generator) for generator in generators)


@upper("Theorem 1 (ii), order", "KL(G* + N || X + N) is bounded at all", error=4)
def _() -> Iterator[Case]:
    best, bound = _preferred()
    at = "X=0, sigma=1; G: 6 with chance 0.001, else 0; or sqrt(0.0096)"
    yield at, bound, divergence(best, ZERO, 2, 1)


@equal("Theorem 1 (ii), right", "W(G*, X) is the minimum over G", error=5)
def _() -> Iterator[Case]:
    best, bound = _preferred()
    yield "the same two generators", _squared_distance(best), bound


@upper("Theorem 1 (ii), corrected", "KL(X + N || G* + N) <= min W_p^p / (p sigma^p)")
def _() -> Iterator[Case]:
    one: Generator = ((1.0,), (1.0,))
    for p, sigma in ((2.0, 2.0), (2.0, 0.1), (1.0, 0.1)):
        at = f"X=0, one generator: the point 1, p={p:g}, sigma={sigma:g}"
        yield at, 1 / (p * sigma**p), divergence(ZERO, one, p, sigma)
    best, bound = _preferred()
    at = "X=0, sigma=1; G: 6 with chance 0.001, else 0; or sqrt(0.0096)"
    yield at, bound / 2, divergence(ZERO, best, 2, 1)


@equal("Corollary 1, lambda", "lambda = eps/Delta1 recovers X", ((1.0, 1.0), (2.0, 1.0), (1.0, 0.5)), error=1)
def _(diameter: float, eps: float) -> Case:
    scale, lam = diameter / eps, eps / diameter  # Theorem 1 with p = 1 has lambda = b = Delta1/eps
    at = f"variance learned, Var X=1, Delta1={diameter:g}, eps={eps:g}: b={scale:g}, lambda={lam:g}"
    return at, 1.0, laplace_variance_learned(1.0, scale, lam)


@upper("Corollary 1, noise", "|x|_1 <= Delta1, scale Delta1/eps: eps-LDP", product((1.0, 196.0), RADII), error=2)
def _(eps: float, x: Sequence[float]) -> Case:
    # |x|_1 <= 1, noise of scale 1/eps; the input -x is as good
    exact = largest_loss(x, [-value for value in x], 1 / eps)
    return f"eps={eps:g}, d={len(x)}, x and -x of norm Delta1=1", eps, exact


@equal("Corollary 2, lambda", "lambda = 2 sigma^2 recovers X", ((1.0, 1.0), (2.0, 0.7), (1.0, 5.0)))
def _(s: float, sigma: float) -> Case:
    learned = gauss_variance_learned(s**2 + sigma**2, 2 * sigma**2)
    return f"variance learned, {_normal(s, sigma)}", s**2, learned


@upper("Corollary 2, noise", "|x|_2 <= Delta2, sigma by (4): (eps, delta)-LDP", (1.0, 35.0), error=2)
def _(eps: float) -> Case:
    sigma = conversions.zhao(eps, 1e-4)
    exact = conversions.epsilon(sigma / 2, 1e-4)
    return f"delta=1e-4, eps={eps:g}, x and -x of norm Delta2=1", eps, exact


@equal("Section 5.1, entropy", "h(N) = 1/p + ln(sigma C_N)", product((1.0, 2.0), (1.0, 0.1)))
def _(p: float, sigma: float) -> Case:
    y, w = quadrature([0.0], (40.0 if p == 1 else 12.0) * sigma)
    logs = log_density(y, *ZERO, p, sigma)
    return f"p={p:g}, sigma={sigma:g}", noise_entropy(p, sigma), -float(np.sum(w * np.exp(logs) * logs))


@equal("Equation 14, line 2", "the least cost, as printed", ((1.0, 1.0), (2.0, 0.7)), error=6)
def _(s: float, sigma: float) -> Case:
    published = published_least_cost(2, sigma, _gauss_entropy(s, sigma))
    return _normal(s, sigma), published, _cost(s, sigma)


def _generators() -> Iterator[tuple[float, float, float, float]]:
    """Yield s, sigma, and the standard deviation and the mean of a generator."""
    for (s, sigma), (a, mean) in product(((1.0, 1.0), (2.0, 0.7)), ((0.5, 0.0), (3.0, 0.0), (0.5, 1.0))):
        yield s, sigma, a, mean


@upper("Lemma 5.1", "KL(Y || G + N) <= (W(Y, G) - W(Y, X)) / (2 sigma^2)", _generators())
def _(s: float, sigma: float, a: float, mean: float) -> Case:
    published = (_cost(s, sigma, a, mean) - _cost(s, sigma)) / (2 * sigma**2)
    exact = gauss_divergence(mean, s**2 + sigma**2, a**2 + sigma**2)
    return f"{_normal(s, sigma)}, G ~ N({mean:g}, {a * a:g})", published, exact


@upper("Equation 25", "W(G, Y) - W(X, Y) <= W_2^2(G, X)", _generators())
def _(s: float, sigma: float, a: float, mean: float) -> Case:
    published = mean**2 + (a - s) ** 2
    return f"{_normal(s, sigma)}, G ~ N({mean:g}, {a * a:g})", published, _cost(s, sigma, a, mean) - _cost(s, sigma)


@equal("Section 5.3", "sigma(N) = sigma^2", ((1.0, 1), (1.0, 2), (2.0, 784)), error=7)
def _(s: float, dimension: int) -> Case:
    at = f"N(0, {s * s:g} I), d={dimension}"
    return at, s**2, subgaussian(s, dimension)
