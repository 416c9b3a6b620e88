"""The statements of Yang, Qi, Zhou (2024), "Wasserstein Differential Privacy", for the table ``claims``."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product

import numpy as np

from wpriv.accountants import _wdp_formulas
from wpriv.numerics import wasserstein_1d
from wpriv.numerics.normal_moments import absolute_moment
from wpriv.tables._statement import Case, Statement

# eps and the probability of a successful attack as printed in Table 2, by data set and framework
TABLE_2 = {
    "MNIST, DP": (2.2, 0.898),
    "MNIST, BDP": (0.95, 0.721),
    "MNIST, WDP": (0.76, 0.681),
    "CIFAR-10, DP": (8.0, 0.999),
    "CIFAR-10, BDP": (0.76, 0.681),
    "CIFAR-10, WDP": (0.52, 0.627),
    "SVHN, DP": (5.0, 0.999),
    "SVHN, BDP": (0.87, 0.705),
    "SVHN, WDP": (0.40, 0.599),
    "Fashion-MNIST, DP": (2.9, 0.623),
    "Fashion-MNIST, BDP": (0.91, 0.713),
    "Fashion-MNIST, WDP": (0.45, 0.611),
}


def _samples() -> Iterator[tuple[list[float], list[float], list[float]]]:
    """Yield triples of small samples on the line, the simplest first."""
    rng = np.random.default_rng(0)
    yield [0.0], [1.0], [2.0]
    yield [0.0, 1.0], [1.0, 3.0], [0.0, 5.0]
    for _ in range(20):
        yield rng.normal(size=5).tolist(), rng.exponential(size=3).tolist(), rng.normal(2, 3, size=4).tolist()


def _symmetry() -> Iterator[Case]:
    for (p, q, _), mu in product(_samples(), (1, 2.5)):
        yield f"two samples, mu={mu:g}", wasserstein_1d.samples(q, p, mu), wasserstein_1d.samples(p, q, mu)


def _triangle() -> Iterator[Case]:
    for (p, q, r), mu in product(_samples(), (1, 2.5)):
        through = wasserstein_1d.samples(p, q, mu) + wasserstein_1d.samples(q, r, mu)
        yield f"three samples, mu={mu:g}", through, wasserstein_1d.samples(p, r, mu)


def _positive() -> Iterator[Case]:
    for p, q, _ in _samples():
        yield "two samples, mu=1", wasserstein_1d.samples(p, q, 1), 0.0


def _monotone() -> Iterator[Case]:
    for rate, mu in product((0.01, 0.5, 1.0), (1, 1.5, 4, 30)):
        low, high = (wasserstein_1d.subsampled_gauss(rate, 1, 1, order) for order in (mu, 2 * mu))
        yield f"Gauss sigma=1, d=1, q={rate:g}: mu={mu:g} by {2 * mu:g}", high, low


def _parallel() -> Iterator[Case]:
    # each part is counted, and one record moves from part 1 to part 2: (1, 0) becomes (0, 1)
    yield (
        "two counts, a record moves between the parts",
        _wdp_formulas.parallel([1.0, 1.0]),
        wasserstein_1d.shift([1, -1]),
    )


def _sequential() -> Iterator[Case]:
    for k in (0.0, 1.0, 2.0):
        # the first release is the bit f(D); the second multiplies that release by k and does not access the data
        yield (
            f"release a bit, then {k:g} times what was released",
            _wdp_formulas.sequential([1.0, 0.0]),
            wasserstein_1d.shift([1, k]),
        )


def _laplace() -> Iterator[Case]:
    for b, mu in product((1.0, 2.0, 3.0, 5.0), (1, 2, 10)):
        yield f"b={b:g}, Delta=1, mu={mu}", _wdp_formulas.published_laplace(1, b, mu), wasserstein_1d.shift(1)


def _gauss() -> Iterator[Case]:
    for sigma, mu in product((1.0, 2.0, 3.0, 5.0), (1, 2, 10)):
        yield f"sigma={sigma:g}, Delta=1, mu={mu}", _wdp_formulas.published_gauss(1, sigma, mu), wasserstein_1d.shift(1)


def _laplace_kl() -> Iterator[Case]:
    for delta in (1.0, 2.0):
        # the divergence inside the root, which is that of sensitivity 1 in print
        published = (2 * _wdp_formulas.published_laplace(delta, 1, 1) / delta) ** 2 / 2
        yield f"b=1, Delta={delta:g}", published, delta + math.expm1(-delta)


def _units() -> Iterator[Case]:
    for k in (1.0, 10.0):
        published = _wdp_formulas.published_gauss(k, k, 1)
        yield f"sigma=1, Delta=1, mu=1, output times {k:g}", published, k * _wdp_formulas.published_gauss(1, 1, 1)


def _gauss_order() -> Iterator[Case]:
    for sigma in (1.0, 0.2):
        low, high = (_wdp_formulas.published_gauss(1, sigma, mu) for mu in (1, 7))
        yield f"sigma={sigma:g}, Delta=1: mu=1 by 7", high, low


def _total_variation() -> Iterator[Case]:
    variation = math.erf(1 / (2 * math.sqrt(2)))  # of N(0, 1) and N(1, 1), half of ||P - Q||
    for mu in (1, 2):
        yield f"Gauss sigma=1, Delta=1, mu={mu}", 0.5 * (2 * variation) ** (1 / mu), variation ** (1 / mu)


def _from_dp() -> Iterator[Case]:
    for b, mu in product((1.0, 10.0), (1, 2)):
        yield (
            f"Laplace b={b:g}, Delta=1: eps={1 / b:g}, mu={mu}",
            _wdp_formulas.published_from_dp(1 / b, 1, mu),
            wasserstein_1d.shift(1),
        )


def _from_rdp() -> Iterator[Case]:
    for sigma, mu in product((1.0, 5.0), (1, 2)):
        eps = 2 / (2 * sigma**2)
        yield (
            f"Gauss sigma={sigma:g}, Delta=1: (2, {eps:g})-RDP, mu={mu}",
            _wdp_formulas.published_from_rdp(eps, 1, mu),
            wasserstein_1d.shift(1),
        )


def _to_dp() -> Iterator[Case]:
    for delta in (1.0, 2.0, 4.0):
        yield (
            f"Laplace b=1 (L=1), Delta={delta:g}, mu=1",
            _wdp_formulas.published_to_rdp(delta, 1, 1),
            _wdp_formulas.noise_to_dp(delta, 1),
        )


def _processing() -> Iterator[Case]:
    yield "a value 0 or 1 without noise, doubled", 1.0, _wdp_formulas.post_processing(1, 2)


def _group() -> Iterator[Case]:
    for k in (2, 3, 10):
        yield f"additive noise, Delta=1, k={k}", _wdp_formulas.group(1, k), wasserstein_1d.shift(k)


def _theorem_1() -> Iterator[Case]:
    for beta in (1.0, 2.0, 10.0):
        # the sum of the losses is 0 or 1 with probability 1/2 each, so Pr[sum >= 1] = 1/2
        yield (
            f"loss 0 or 1 by a fair coin, eps=1, beta={beta:g}",
            math.exp(_wdp_formulas.published_log_delta(0.5, beta, 1)),
            0.5,
        )


def _theorem_2() -> Iterator[Case]:
    for q, d, sigma, mu in ((0.5, 1, 1, 2), (0.5, 10, 1, 2), (0.01, 1, 0.01, 2), (0.01, 1, 0.01, 5)):
        at = f"q={q:g}, d={d}, sigma={sigma:g}, mu={mu}"
        yield at, _wdp_formulas.published_step([d], q, sigma, mu), wasserstein_1d.subsampled_gauss(q, d, sigma, mu)


def _unused() -> Iterator[Case]:
    for sigma in (1.0, 10.0):
        at = f"q=0, d=1, sigma={sigma:g}, mu=1"
        yield at, _wdp_formulas.published_step([1], 0, sigma, 1), wasserstein_1d.subsampled_gauss(0, 1, sigma, 1)


def _coordinates() -> Iterator[Case]:
    for n in (1, 4):
        # without sampling and next to no noise the loss is d, however many coordinates the gradient has
        published = _wdp_formulas.published_step([1], 1, 1e-6, 2, coordinates=n)
        yield f"q=1, d=1, sigma=1e-6, mu=2, n={n}", published, wasserstein_1d.subsampled_gauss(1, 1, 1e-6, 2)


def _mixture() -> Iterator[Case]:
    for q, d in ((0.5, 1), (0.5, 10)):
        # A with probability 1-q, else B: its variance; in print it is that of the sum (1-q) A + q B
        yield f"q={q:g}, d={d}, sigma=1", (1 - q) ** 2 + q**2, 1 + q * (1 - q) * d**2


def _corollary_1() -> Iterator[Case]:
    for beta in (1.0, 2.0, 5.0):
        # with the coin of Theorem 1, Pr[sum >= eps] = 1/2 > 1/4 for every eps up to 1
        yield (
            f"the same coin, delta=1/4, beta={beta:g}",
            _wdp_formulas.published_epsilon(0.5, beta, math.log(0.25)),
            1.0,
        )


def _lemma_1() -> Iterator[Case]:
    for mu, mean in product((2, 2.5, 7), (0.1, 1.0, 4.0)):
        yield f"mean={mean:g}, sigma=1, mu={mu:g}", float(absolute_moment(mean, 1, mu)), _quadrature(mean, mu)


def _quadrature(mean: float, mu: float) -> float:
    """E|Z|^mu of N(mean, 1) by Gauss-Legendre panels on either side of 0, independently of Lemma 1."""
    x, w = np.polynomial.legendre.leggauss(40)
    edges = np.linspace(0, mean + 16, 33) ** 2 / (mean + 16)  # finer towards 0, where |z|^mu is not smooth
    half = np.diff(edges)[:, None] / 2
    z = edges[:-1, None] + half * (1 + x)
    density = np.exp(-((z - mean) ** 2) / 2) + np.exp(-((z + mean) ** 2) / 2)
    return float(np.sum(half * w * z**mu * density) / math.sqrt(2 * math.pi))


def _equation_125() -> Iterator[Case]:
    for q, d, mu in ((0.3, 2.0, 2), (0.3, 2.0, 3)):
        variance = 2 - 2 * q + 2 * q * q
        # 4^n instead of 2^n in the denominators is Lemma 1 at a mean that is too small by a factor sqrt(2)
        means = (math.sqrt((q * d) ** 2 / 2), q * d)
        published, exact = (float(absolute_moment(mean, math.sqrt(variance), mu)) for mean in means)
        yield f"q={q:g}, d={d:g}, sigma=1, mu={mu}", published, exact


def _attack() -> Iterator[Case]:
    for eps in (1.0, 0.1):
        yield f"a value 0 or {eps:g} without noise: eps={eps:g}", 1 / (1 + math.exp(-eps)), 1.0


def _printed() -> Iterator[Case]:
    # an error of at most one unit in the last printed digit is accepted
    for eps, printed in sorted(set(TABLE_2.values())):
        exact = 1 / (1 + math.exp(-eps))
        yield f"eps={eps:g}", printed, printed if abs(printed - exact) <= 1e-3 else exact


def _furthest() -> Iterator[Case]:
    """Yield the printed probability that is furthest from its formula."""
    cases = ((f"{where}, eps={eps:g}", printed, 1 / (1 + math.exp(-eps))) for where, (eps, printed) in TABLE_2.items())
    yield max(cases, key=lambda case: abs(case[1] - case[2]))


STATEMENTS = (
    Statement("Proposition 1", "W is symmetric", _symmetry, equal=True),
    Statement("Proposition 2", "W keeps the triangle inequality", _triangle),
    Statement("Proposition 3", "W >= 0", _positive),
    Statement("Proposition 4", "W grows with mu", _monotone),
    Statement("Proposition 5", "parallel composition: the largest budget", _parallel, error=8),
    Statement("Proposition 6", "sequential (Theorem 1: adaptive) composition: the sum", _sequential, error=9),
    Statement("Proposition 7", "Laplace noise: (1/2) Delta sqrt(2 [1/b + e^(-1/b) - 1])^(1/mu)", _laplace, error=1),
    Statement("Proposition 8", "Gauss noise: (1/2) (Delta/sigma)^(1/mu)", _gauss, error=1),
    Statement("Proposition 7, KL", "1/b + e^(-1/b) - 1 also at other sensitivities", _laplace_kl, equal=True, error=4),
    Statement("Proposition 8, units", "the budget has the unit of the output", _units, equal=True, error=4),
    Statement("Proposition 8, order", "it grows with mu (Proposition 4)", _gauss_order, error=5),
    Statement("Equation 37", "inf Pr[X != Y]^(1/mu) is (1/2) ||P - Q||^(1/mu)", _total_variation, equal=True, error=3),
    Statement("Proposition 9", "eps-DP gives WDP: (1/2) Delta (2 eps (e^eps - 1))^(1/(2 mu))", _from_dp, error=6),
    Statement("Proposition 10", "RDP gives WDP: (1/2) Delta (2 eps)^(1/(2 mu))", _from_rdp, error=7),
    Statement("Proposition 11", "WDP gives DP: L eps^(mu/(mu+1))", _to_dp, error=10),
    Statement("Proposition 12", "any post-processing keeps eps", _processing, error=11),
    Statement("Proposition 13", "groups of k: k eps", _group),
    Statement("Theorem 1", "delta = exp(beta sum E W - beta eps)", _theorem_1, error=12),
    Statement("Theorem 2", "step loss (E|Z|^mu)^(1/mu), Z ~ N(q d, (2-2q+2q^2) sigma^2)", _theorem_2, error=14),
    Statement("Theorem 2, q = 0", "the step loss is W, also of data that are not used", _unused, equal=True, error=14),
    Statement("Theorem 2, n", "... and of a gradient of n coordinates", _coordinates, equal=True, error=15),
    Statement("Equation 92", "a subsampled output is (1-q) A + q B: its variance", _mixture, equal=True, error=13),
    Statement("Corollary 1", "eps = sum W - ln(delta)/beta", _corollary_1, error=12),
    Statement("Lemma 1", "E|Z|^mu through 1F1", _lemma_1, equal=True),
    Statement("Equation 125", "the series of Lemma 1, last line", _equation_125, equal=True, error=17),
    Statement("Table 2", "chance of a successful attack 1/(1 + e^-eps)", _attack, error=16),
    Statement("Table 2, digits", "its printed chances are 1/(1 + e^-eps)", _printed, equal=True, error=16),
    Statement(
        "Table 2, worst digit", "the printed chance furthest from 1/(1 + e^-eps)", _furthest, equal=True, error=16
    ),
)
