"""The statements of Reshetova, Chen, Ozgur (2023) on learning from local reports, for the table ``claims``."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product

import numpy as np

from wpriv.numerics import gaussian_calibration
from wpriv.tables import _ldp_formulas
from wpriv.tables._statement import Case, Claims

Generator = tuple[tuple[float, ...], tuple[float, ...]]  # points and their weights

ZERO: Generator = ((0.0,), (1.0,))
# a generator that the loss prefers to a single point, and whose divergence in the printed direction is larger
RARE: Generator = ((0.0, 6.0), (0.999, 0.001))
NEAR = math.sqrt(0.0096)
RADII = ((1.0,), (1.0, 0.0))

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
    return at, eps, _ldp_formulas.largest_loss(x, other, diameter / eps)


def _equation_4() -> Iterator[Case]:
    for eps, delta in product((1.0, 0.01, 0.1, 5.0, 35.0, 196.0), (1e-4, 1e-10, 0.4)):
        at = f"eps={eps:g}, delta={delta:g}, Delta=1"
        yield at, gaussian_calibration.zhao(eps, delta), gaussian_calibration.exact(eps, delta)


upper("Equation 4", "Gauss noise that suffices")(_equation_4)
equal("Equation 4, least", "the same, read as the least noise (not claimed)", error=3)(_equation_4)


def _gauss_entropy(s: float, sigma: float) -> float:
    return 0.5 * math.log(2 * math.pi * math.e * (s**2 + sigma**2))


def _normal(s: float, sigma: float) -> str:
    return f"X ~ N(0, {s * s:g}), Gauss noise sigma={sigma:g}"


def _cost(s: float, sigma: float, a: float | None = None, mean: float = 0.0) -> float:
    """W_{2, 2 sigma^2} between the generator N(mean, a^2), by default the data N(0, s^2), and the reports."""
    return _ldp_formulas.gauss_cost(mean, s if a is None else a, math.hypot(s, sigma), 2 * sigma**2)


@equal("Theorem 1 (i)", "the least cost is p sigma^p (h(Y) - ln(C_N sigma))", ((1.0, 1.0), (2.0, 0.7)))
def _(s: float, sigma: float) -> Case:
    published = _ldp_formulas.least_cost(2, sigma, _gauss_entropy(s, sigma))
    return _normal(s, sigma), published, _cost(s, sigma)


@upper("Theorem 1 (ii)", "KL at most min W_p^p, without a constant", ((2.0, 2.0), (2.0, 0.1), (1.0, 0.1)), error=4)
def _(p: float, sigma: float) -> Case:
    """Yield (10) where no generator is the data, with the minimum over G of the distance of G, which is meant."""
    at = f"X=0, one generator: the point 1, p={p:g}, sigma={sigma:g}"
    return at, 1.0, _ldp_formulas.divergence(((1.0,), (1.0,)), ZERO, p, sigma)


def _squared_distance(generator: Generator) -> float:
    """W_2^2 of a discrete generator to the point 0."""
    return sum(weight * point**2 for point, weight in zip(*generator, strict=True))


def _preferred() -> tuple[Generator, float]:
    """Return the generator of least W_{2,2} to N(0, 1), of RARE and the point NEAR, and the least W_2^2 to 0."""
    generators: tuple[Generator, ...] = (RARE, ((NEAR,), (1.0,)))
    costs = (_ldp_formulas.cost_of_two_points((0.0, 6.0), (0.999, 0.001), 1), 1 + NEAR**2)
    best = generators[costs.index(min(costs))]
    return best, min(_squared_distance(generator) for generator in generators)


@upper("Theorem 1 (ii), order", "KL(G* + N || X + N) is bounded at all", error=5)
def _() -> Iterator[Case]:
    best, bound = _preferred()
    at = "X=0, sigma=1; G: 6 with chance 0.001, else 0; or sqrt(0.0096)"
    yield at, bound, _ldp_formulas.divergence(best, ZERO, 2, 1)


@equal("Theorem 1 (ii), right", "W(G*, X) is the minimum over G", error=6)
def _() -> Iterator[Case]:
    best, bound = _preferred()
    yield "the same two generators", _squared_distance(best), bound


@upper("Theorem 1 (ii), corrected", "KL(X + N || G* + N) <= min W_p^p / (p sigma^p)")
def _() -> Iterator[Case]:
    one: Generator = ((1.0,), (1.0,))
    for p, sigma in ((2.0, 2.0), (2.0, 0.1), (1.0, 0.1)):
        at = f"X=0, one generator: the point 1, p={p:g}, sigma={sigma:g}"
        yield at, 1 / (p * sigma**p), _ldp_formulas.divergence(ZERO, one, p, sigma)
    best, bound = _preferred()
    at = "X=0, sigma=1; G: 6 with chance 0.001, else 0; or sqrt(0.0096)"
    yield at, bound / 2, _ldp_formulas.divergence(ZERO, best, 2, 1)


@equal("Corollary 1, lambda", "lambda = eps/Delta1 recovers X", ((1.0, 1.0), (2.0, 1.0), (1.0, 0.5)), error=1)
def _(diameter: float, eps: float) -> Case:
    scale, lam = diameter / eps, eps / diameter  # Theorem 1 with p = 1 has lambda = b = Delta1/eps
    at = f"variance learned, Var X=1, Delta1={diameter:g}, eps={eps:g}: b={scale:g}, lambda={lam:g}"
    return at, 1.0, _ldp_formulas.laplace_variance_learned(1.0, scale, lam)


@upper("Corollary 1, noise", "|x|_1 <= Delta1, scale Delta1/eps: eps-LDP", product((1.0, 196.0), RADII), error=2)
def _(eps: float, x: Sequence[float]) -> Case:
    # |x|_1 <= 1, noise of scale 1/eps; the input -x is as good
    exact = _ldp_formulas.largest_loss(x, [-value for value in x], 1 / eps)
    return f"eps={eps:g}, d={len(x)}, x and -x of norm Delta1=1", eps, exact


@equal("Corollary 2, lambda", "lambda = 2 sigma^2 recovers X", ((1.0, 1.0), (2.0, 0.7), (1.0, 5.0)))
def _(s: float, sigma: float) -> Case:
    learned = _ldp_formulas.gauss_variance_learned(s**2 + sigma**2, 2 * sigma**2)
    return f"variance learned, {_normal(s, sigma)}", s**2, learned


@upper("Corollary 2, noise", "|x|_2 <= Delta2, sigma by (4): (eps, delta)-LDP", (1.0, 35.0), error=2)
def _(eps: float) -> Case:
    sigma = gaussian_calibration.zhao(eps, 1e-4)
    exact = gaussian_calibration.epsilon(sigma / 2, 1e-4)
    return f"delta=1e-4, eps={eps:g}, x and -x of norm Delta2=1", eps, exact


@equal("Section 5.1, entropy", "h(N) = 1/p + ln(sigma C_N)", product((1.0, 2.0), (1.0, 0.1)))
def _(p: float, sigma: float) -> Case:
    y, w = _ldp_formulas.quadrature([0.0], (40.0 if p == 1 else 12.0) * sigma)
    logs = _ldp_formulas.log_density(y, *ZERO, p, sigma)
    return f"p={p:g}, sigma={sigma:g}", _ldp_formulas.noise_entropy(p, sigma), -float(np.sum(w * np.exp(logs) * logs))


@equal("Equation 14, line 2", "the least cost, as printed", ((1.0, 1.0), (2.0, 0.7)), error=7)
def _(s: float, sigma: float) -> Case:
    published = _ldp_formulas.published_least_cost(2, sigma, _gauss_entropy(s, sigma))
    return _normal(s, sigma), published, _cost(s, sigma)


def _generators() -> Iterator[tuple[float, float, float, float]]:
    """Yield s, sigma, and the standard deviation and the mean of a generator."""
    for (s, sigma), (a, mean) in product(((1.0, 1.0), (2.0, 0.7)), ((0.5, 0.0), (3.0, 0.0), (0.5, 1.0))):
        yield s, sigma, a, mean


@upper("Lemma 5.1", "KL(Y || G + N) <= (W(Y, G) - W(Y, X)) / (2 sigma^2)", _generators())
def _(s: float, sigma: float, a: float, mean: float) -> Case:
    published = (_cost(s, sigma, a, mean) - _cost(s, sigma)) / (2 * sigma**2)
    exact = _ldp_formulas.gauss_divergence(mean, s**2 + sigma**2, a**2 + sigma**2)
    return f"{_normal(s, sigma)}, G ~ N({mean:g}, {a * a:g})", published, exact


@upper("Equation 25", "W(G, Y) - W(X, Y) <= W_2^2(G, X)", _generators())
def _(s: float, sigma: float, a: float, mean: float) -> Case:
    published = mean**2 + (a - s) ** 2
    return f"{_normal(s, sigma)}, G ~ N({mean:g}, {a * a:g})", published, _cost(s, sigma, a, mean) - _cost(s, sigma)


@equal("Section 5.3", "sigma(N) = sigma^2", ((1.0, 1), (1.0, 2), (2.0, 784)), error=8)
def _(s: float, dimension: int) -> Case:
    at = f"N(0, {s * s:g} I), d={dimension}"
    return at, s**2, _ldp_formulas.subgaussian(s, dimension)


@equal("Algorithm 1", "batches of any size recover X", error=9)
def _() -> Iterator[Case]:
    # one report and one generated point have one plan, so that the mean loss of a generator a Z is a^2 + E Y^2
    yield "variance learned, X ~ N(0, 1), batches of 1", 1.0, 0.0
