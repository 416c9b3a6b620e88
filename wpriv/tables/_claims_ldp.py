"""The statements of Reshetova, Chen, Ozgur (2023) on learning from local reports, for the table ``claims``."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product

import numpy as np

from wpriv.numerics import gaussian_calibration
from wpriv.tables import _ldp_formulas
from wpriv.tables._statement import Case, Statement

Generator = tuple[tuple[float, ...], tuple[float, ...]]  # points and their weights

ZERO: Generator = ((0.0,), (1.0,))
# a generator that the loss prefers to a single point, and whose divergence in the printed direction is larger
RARE: Generator = ((0.0, 6.0), (0.999, 0.001))
NEAR = math.sqrt(0.0096)
RADII = ((1.0,), (1.0, 0.0))


def _laplace() -> Iterator[Case]:
    for eps, x, other in ((1.0, [0.0], [1.0]), (0.5, [0.0], [3.0]), (2.0, [1.0, 0.0], [0.0, 1.0])):
        diameter = sum(abs(a - b) for a, b in zip(x, other, strict=True))
        at = f"eps={eps:g}, d={len(x)}, |x - x'|_1={diameter:g}"
        yield at, eps, _ldp_formulas.largest_loss(x, other, diameter / eps)


def _equation_4() -> Iterator[Case]:
    for eps, delta in product((1.0, 0.01, 0.1, 5.0, 35.0, 196.0), (1e-4, 1e-10, 0.4)):
        at = f"eps={eps:g}, delta={delta:g}, Delta=1"
        yield at, gaussian_calibration.zhao(eps, delta), gaussian_calibration.exact(eps, delta)


def _entropy() -> Iterator[Case]:
    for p, sigma in product((1.0, 2.0), (1.0, 0.1)):
        y, w = _ldp_formulas.quadrature([0.0], (40.0 if p == 1 else 12.0) * sigma)
        logs = _ldp_formulas.log_density(y, *ZERO, p, sigma)
        yield (
            f"p={p:g}, sigma={sigma:g}",
            _ldp_formulas.noise_entropy(p, sigma),
            -float(np.sum(w * np.exp(logs) * logs)),
        )


def _least_cost() -> Iterator[Case]:
    for s, sigma in ((1.0, 1.0), (2.0, 0.7)):
        published = _ldp_formulas.least_cost(2, sigma, _gauss_entropy(s, sigma))
        yield _normal(s, sigma), published, _cost(s, sigma)


def _equation_14() -> Iterator[Case]:
    for s, sigma in ((1.0, 1.0), (2.0, 0.7)):
        published = _ldp_formulas.published_least_cost(2, sigma, _gauss_entropy(s, sigma))
        yield _normal(s, sigma), published, _cost(s, sigma)


def _gauss_entropy(s: float, sigma: float) -> float:
    return 0.5 * math.log(2 * math.pi * math.e * (s**2 + sigma**2))


def _cost(s: float, sigma: float, a: float | None = None, mean: float = 0.0) -> float:
    """W_{2, 2 sigma^2} between the generator N(mean, a^2), by default the data N(0, s^2), and the reports."""
    return _ldp_formulas.gauss_cost(mean, s if a is None else a, math.hypot(s, sigma), 2 * sigma**2)


def _normal(s: float, sigma: float) -> str:
    return f"X ~ N(0, {s * s:g}), Gauss noise sigma={sigma:g}"


def _recovery() -> Iterator[Case]:
    for s, sigma in ((1.0, 1.0), (2.0, 0.7), (1.0, 5.0)):
        learned = _ldp_formulas.gauss_variance_learned(s**2 + sigma**2, 2 * sigma**2)
        yield f"variance learned, {_normal(s, sigma)}", s**2, learned


def _lambda() -> Iterator[Case]:
    for diameter, eps in ((1.0, 1.0), (2.0, 1.0), (1.0, 0.5)):
        scale, lam = diameter / eps, _ldp_formulas.published_lambda(eps, diameter)
        at = f"variance learned, Var X=1, Delta1={diameter:g}, eps={eps:g}: b={scale:g}, lambda={lam:g}"
        yield at, 1.0, _ldp_formulas.laplace_variance_learned(1.0, scale, lam)


def _corollary_1() -> Iterator[Case]:
    for eps, x in product((1.0, 196.0), RADII):
        # |x|_1 <= 1, noise of scale 1/eps; the input -x is as good
        exact = _ldp_formulas.largest_loss(x, [-value for value in x], 1 / eps)
        yield f"eps={eps:g}, d={len(x)}, x and -x of norm Delta1=1", eps, exact


def _corollary_2() -> Iterator[Case]:
    for eps in (1.0, 35.0):
        sigma = gaussian_calibration.zhao(eps, 1e-4)
        exact = gaussian_calibration.epsilon(sigma / 2, 1e-4)
        yield f"delta=1e-4, eps={eps:g}, x and -x of norm Delta2=1", eps, exact


def _missed() -> Iterator[Case]:
    """Yield (10) where no generator is the data, with the minimum over G of the distance of G, which is meant."""
    for p, sigma in ((2.0, 2.0), (2.0, 0.1), (1.0, 0.1)):
        at = f"X=0, one generator: the point 1, p={p:g}, sigma={sigma:g}"
        yield at, 1.0, _ldp_formulas.divergence(((1.0,), (1.0,)), ZERO, p, sigma)


def _direction() -> Iterator[Case]:
    best, bound = _preferred()
    at = "X=0, sigma=1; G: 6 with chance 0.001, else 0; or sqrt(0.0096)"
    yield at, bound, _ldp_formulas.divergence(best, ZERO, 2, 1)


def _right_side() -> Iterator[Case]:
    best, bound = _preferred()
    yield "the same two generators", _squared_distance(best), bound


def _preferred() -> tuple[Generator, float]:
    """Return the generator of least W_{2,2} to N(0, 1), of RARE and the point NEAR, and the least W_2^2 to 0."""
    generators: tuple[Generator, ...] = (RARE, ((NEAR,), (1.0,)))
    costs = (_ldp_formulas.cost_of_two_points((0.0, 6.0), (0.999, 0.001), 1), 1 + NEAR**2)
    best = generators[costs.index(min(costs))]
    return best, min(_squared_distance(generator) for generator in generators)


def _squared_distance(generator: Generator) -> float:
    """W_2^2 of a discrete generator to the point 0."""
    return sum(weight * point**2 for point, weight in zip(*generator, strict=True))


def _corrected() -> Iterator[Case]:
    one: Generator = ((1.0,), (1.0,))
    for p, sigma in ((2.0, 2.0), (2.0, 0.1), (1.0, 0.1)):
        at = f"X=0, one generator: the point 1, p={p:g}, sigma={sigma:g}"
        yield at, 1 / (p * sigma**p), _ldp_formulas.divergence(ZERO, one, p, sigma)
    best, bound = _preferred()
    yield (
        "X=0, sigma=1; G: 6 with chance 0.001, else 0; or sqrt(0.0096)",
        bound / 2,
        _ldp_formulas.divergence(ZERO, best, 2, 1),
    )


def _lemma_51() -> Iterator[Case]:
    for s, sigma, a, mean in _generators():
        published = (_cost(s, sigma, a, mean) - _cost(s, sigma)) / (2 * sigma**2)
        exact = _ldp_formulas.gauss_divergence(mean, s**2 + sigma**2, a**2 + sigma**2)
        yield f"{_normal(s, sigma)}, G ~ N({mean:g}, {a * a:g})", published, exact


def _equation_25() -> Iterator[Case]:
    for s, sigma, a, mean in _generators():
        published = mean**2 + (a - s) ** 2
        yield (
            f"{_normal(s, sigma)}, G ~ N({mean:g}, {a * a:g})",
            published,
            _cost(s, sigma, a, mean) - _cost(s, sigma),
        )


def _generators() -> Iterator[tuple[float, float, float, float]]:
    """Yield s, sigma, and the standard deviation and the mean of a generator."""
    for (s, sigma), (a, mean) in product(((1.0, 1.0), (2.0, 0.7)), ((0.5, 0.0), (3.0, 0.0), (0.5, 1.0))):
        yield s, sigma, a, mean


def _subgaussian() -> Iterator[Case]:
    for s, dimension in ((1.0, 1), (1.0, 2), (2.0, 784)):
        at = f"N(0, {s * s:g} I), d={dimension}"
        yield at, s**2, _ldp_formulas.subgaussian(s, dimension)


def _batch() -> Iterator[Case]:
    # one report and one generated point have one plan, so that the mean loss of a generator a Z is a^2 + E Y^2
    yield "variance learned, X ~ N(0, 1), batches of 1", 1.0, 0.0


STATEMENTS = (
    Statement("Section 2.1, Laplace", "noise of scale Delta/eps: eps-LDP", _laplace),
    Statement("Equation 4", "Gauss noise that suffices", _equation_4),
    Statement("Equation 4, least", "the same, read as the least noise (not claimed)", _equation_4, equal=True, error=3),
    Statement("Theorem 1 (i)", "the least cost is p sigma^p (h(Y) - ln(C_N sigma))", _least_cost, equal=True),
    Statement("Theorem 1 (ii)", "KL at most min W_p^p, without a constant", _missed, error=4),
    Statement("Theorem 1 (ii), order", "KL(G* + N || X + N) is bounded at all", _direction, error=5),
    Statement("Theorem 1 (ii), right", "W(G*, X) is the minimum over G", _right_side, equal=True, error=6),
    Statement("Theorem 1 (ii), corrected", "KL(X + N || G* + N) <= min W_p^p / (p sigma^p)", _corrected),
    Statement("Corollary 1, lambda", "lambda = eps/Delta1 recovers X", _lambda, equal=True, error=1),
    Statement("Corollary 1, noise", "|x|_1 <= Delta1, scale Delta1/eps: eps-LDP", _corollary_1, error=2),
    Statement("Corollary 2, lambda", "lambda = 2 sigma^2 recovers X", _recovery, equal=True),
    Statement("Corollary 2, noise", "|x|_2 <= Delta2, sigma by (4): (eps, delta)-LDP", _corollary_2, error=2),
    Statement("Section 5.1, entropy", "h(N) = 1/p + ln(sigma C_N)", _entropy, equal=True),
    Statement("Equation 14, line 2", "the least cost, as printed", _equation_14, equal=True, error=7),
    Statement("Lemma 5.1", "KL(Y || G + N) <= (W(Y, G) - W(Y, X)) / (2 sigma^2)", _lemma_51),
    Statement("Equation 25", "W(G, Y) - W(X, Y) <= W_2^2(G, X)", _equation_25),
    Statement("Section 5.3", "sigma(N) = sigma^2", _subgaussian, equal=True, error=8),
    Statement("Algorithm 1", "batches of any size recover X", _batch, equal=True, error=9),
)
