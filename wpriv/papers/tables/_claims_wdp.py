"""The statements of Yang, Qi, Zhou (2024), "Wasserstein Differential Privacy", for the table ``claims``."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from itertools import product

import numpy as np

from wpriv.numerics import wasserstein_1d
from wpriv.numerics.wasserstein_1d import absolute_moment
from wpriv.papers.accountants import wdp
from wpriv.papers.tables._statement import Case, Claims, panels

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

STATEMENTS = Claims()
upper = STATEMENTS.claim
equal = partial(STATEMENTS.claim, equal=True)


def _samples() -> Iterator[tuple[list[float], list[float], list[float]]]:
    """Yield triples of small samples on the line, the simplest first."""
    rng = np.random.default_rng(0)
    yield [0.0], [1.0], [2.0]
    yield [0.0, 1.0], [1.0, 3.0], [0.0, 5.0]
    for _ in range(20):
        yield rng.normal(size=5).tolist(), rng.exponential(size=3).tolist(), rng.normal(2, 3, size=4).tolist()


@equal("Proposition 1", "W is symmetric")
def _() -> Iterator[Case]:
    for (p, q, _), mu in product(_samples(), (1, 2.5)):
        yield f"two samples, mu={mu:g}", wasserstein_1d.samples(q, p, mu), wasserstein_1d.samples(p, q, mu)


@upper("Proposition 2", "W keeps the triangle inequality")
def _() -> Iterator[Case]:
    for (p, q, r), mu in product(_samples(), (1, 2.5)):
        through = wasserstein_1d.samples(p, q, mu) + wasserstein_1d.samples(q, r, mu)
        yield f"three samples, mu={mu:g}", through, wasserstein_1d.samples(p, r, mu)


@upper("Proposition 3", "W >= 0", _samples())
def _(p: float, q: float, _: float) -> Case:
    return "two samples, mu=1", wasserstein_1d.samples(p, q, 1), 0.0


@upper("Proposition 4", "W grows with mu", product((0.01, 0.5, 1.0), (1, 1.5, 4, 30)))
def _(rate: float, mu: float) -> Case:
    low, high = (wasserstein_1d.subsampled_gauss(rate, 1, 1, order) for order in (mu, 2 * mu))
    return f"Gauss sigma=1, d=1, q={rate:g}: mu={mu:g} by {2 * mu:g}", high, low


@upper("Proposition 5", "parallel composition: the largest budget", error=8)
def _() -> Iterator[Case]:
    # each part is counted, and one record moves from part 1 to part 2: (1, 0) becomes (0, 1)
    at = "two counts, a record moves between the parts"
    yield at, 1.0, wasserstein_1d.shift([1, -1])


@upper("Proposition 6", "sequential composition, of releases that are fixed in advance: the sum", (1.0, 2.0))
def _(k: float) -> Case:
    # independent releases of two queries, which one record moves by 1 and by k
    at = f"two queries with noise, moved by 1 and by {k:g}"
    return at, 1 + k, wasserstein_1d.shift([1, k])


@upper(
    "Proposition 7",
    "Laplace noise: (1/2) Delta sqrt(2 [1/b + e^(-1/b) - 1])^(1/mu)",
    product((1.0, 2.0, 3.0, 5.0), (1, 2, 10)),
    error=1,
)
def _(b: float, mu: float) -> Case:
    return f"b={b:g}, Delta=1, mu={mu}", wdp.published_laplace(1, b, mu), wasserstein_1d.shift(1)


@upper(
    "Proposition 8", "Gaussian noise: (1/2) (Delta/sigma)^(1/mu)", product((1.0, 2.0, 3.0, 5.0), (1, 2, 10)), error=1
)
def _(sigma: float, mu: float) -> Case:
    return f"sigma={sigma:g}, Delta=1, mu={mu}", wdp.published_gauss(1, sigma, mu), wasserstein_1d.shift(1)


@equal("Proposition 7, KL", "1/b + e^(-1/b) - 1 also at other sensitivities", (1.0, 2.0), error=4)
def _(delta: float) -> Case:
    # the divergence inside the root, which is that of sensitivity 1 in print
    published = (2 * wdp.published_laplace(delta, 1, 1) / delta) ** 2 / 2
    return f"b=1, Delta={delta:g}", published, delta + math.expm1(-delta)


@equal("Proposition 8, units", "the budget has the unit of the output", (1.0, 10.0), error=4)
def _(k: float) -> Case:
    published = wdp.published_gauss(k, k, 1)
    return f"sigma=1, Delta=1, mu=1, output times {k:g}", published, k * wdp.published_gauss(1, 1, 1)


@upper("Proposition 8, order", "it grows with mu (Proposition 4)", (1.0, 0.2), error=5)
def _(sigma: float) -> Case:
    low, high = (wdp.published_gauss(1, sigma, mu) for mu in (1, 7))
    return f"sigma={sigma:g}, Delta=1: mu=1 by 7", high, low


@equal("Equation 37", "inf Pr[X != Y]^(1/mu) is (1/2) ||P - Q||^(1/mu)", error=3)
def _() -> Iterator[Case]:
    variation = math.erf(1 / (2 * math.sqrt(2)))  # of N(0, 1) and N(1, 1), half of ||P - Q||
    for mu in (1, 2):
        yield f"Gauss sigma=1, Delta=1, mu={mu}", 0.5 * (2 * variation) ** (1 / mu), variation ** (1 / mu)


@upper(
    "Proposition 9",
    "eps-DP gives WDP: (1/2) Delta (2 eps (e^eps - 1))^(1/(2 mu))",
    product((1.0, 10.0), (1, 2)),
    error=6,
)
def _(b: float, mu: float) -> Case:
    at = f"Laplace b={b:g}, Delta=1: eps={1 / b:g}, mu={mu}"
    return at, wdp.published_from_dp(1 / b, 1, mu), wasserstein_1d.shift(1)


@upper("Proposition 10", "RDP gives WDP: (1/2) Delta (2 eps)^(1/(2 mu))", product((1.0, 5.0), (1, 2)), error=7)
def _(sigma: float, mu: float) -> Case:
    eps = 2 / (2 * sigma**2)
    at = f"Gauss sigma={sigma:g}, Delta=1: (2, {eps:g})-RDP, mu={mu}"
    return at, wdp.published_from_rdp(eps, 1, mu), wasserstein_1d.shift(1)


@upper("Proposition 11", "WDP gives DP: L eps^(mu/(mu+1))", (1.0, 2.0, 4.0), error=10)
def _(delta: float) -> Case:
    at = f"Laplace b=1 (L=1), Delta={delta:g}, mu=1"
    return at, wdp.published_to_rdp(delta, 1, 1), delta


@upper("WDP to zCDP", "WDP gives (1/2) (L eps^(mu/(mu+1)))^2-zCDP", (1.0, 2.0, 4.0), error=10)
def _(delta: float) -> Case:
    # the least rho is at least the Renyi divergence of order 1, of Laplace noise that of Table 1
    published = wdp.published_to_rdp(delta, 1, 1) ** 2 / 2
    return f"Laplace b=1 (L=1), Delta={delta:g}, mu=1: KL", published, delta + math.expm1(-delta)


upper("Proposition 12", "any post-processing keeps eps", error=11)(
    lambda: ("a value 0 or 1 without noise, doubled", 1.0, 2.0)
)


@upper("Proposition 13", "groups of k: k eps", (2, 3, 10))
def _(k: int) -> Case:
    return f"additive noise, Delta=1, k={k}", float(k), wasserstein_1d.shift(k)


@upper("Theorem 1", "delta = exp(beta sum E W - beta eps)", (1.0, 2.0, 10.0), error=12)
def _(beta: float) -> Case:
    # the sum of the losses is 0 or 1 with probability 1/2 each, so Pr[sum >= 1] = 1/2
    at = f"loss 0 or 1 by a fair coin, eps=1, beta={beta:g}"
    return at, math.exp(wdp.published_log_delta(0.5, beta, 1)), 0.5


@upper("Equation 83", "the distance of an adaptive composition is at most the sum", (0.0, 1.0, 2.0), error=9)
def _(k: float) -> Case:
    # the first release is the bit f(D); the second multiplies that release by k and does not access the data
    at = f"release a bit, then {k:g} times what was released"
    return at, 1.0, wasserstein_1d.shift([1, k])


@upper(
    "Theorem 2",
    "step loss (E|Z|^mu)^(1/mu), Z ~ N(q d, (2-2q+2q^2) sigma^2)",
    ((0.5, 1, 1, 2), (0.5, 10, 1, 2), (0.01, 1, 0.01, 2), (0.01, 1, 0.01, 5)),
    error=14,
)
def _(q: float, d: float, sigma: float, mu: float) -> Case:
    at = f"q={q:g}, d={d}, sigma={sigma:g}, mu={mu}"
    return at, wdp.published_step([d], q, sigma, mu), wasserstein_1d.subsampled_gauss(q, d, sigma, mu)


@equal("Theorem 2, q = 0", "the step loss is W, also of data that are not used", (1.0, 10.0), error=14)
def _(sigma: float) -> Case:
    at = f"q=0, d=1, sigma={sigma:g}, mu=1"
    return at, wdp.published_step([1], 0, sigma, 1), wasserstein_1d.subsampled_gauss(0, 1, sigma, 1)


@equal("Theorem 2, n", "... and of a gradient of n coordinates", (1, 4), error=15)
def _(n: int) -> Case:
    # without sampling and next to no noise the loss is d, however many coordinates the gradient has
    published = wdp.published_step([1], 1, 1e-6, 2, coordinates=n)
    return f"q=1, d=1, sigma=1e-6, mu=2, n={n}", published, wasserstein_1d.subsampled_gauss(1, 1, 1e-6, 2)


@equal("Equation 92", "a subsampled output is (1-q) A + q B: its variance", ((0.5, 1), (0.5, 10)), error=13)
def _(q: float, d: float) -> Case:
    # A with probability 1-q, else B: its variance; in print it is that of the sum (1-q) A + q B
    return f"q={q:g}, d={d}, sigma=1", (1 - q) ** 2 + q**2, 1 + q * (1 - q) * d**2


@upper("Theorem 3", "log delta = beta sum inf_d (E|Z|^mu)^(1/mu) - beta eps", (1.0, 2.0, 10.0), error=12)
def _(beta: float) -> Case:
    # without noise and with q = 1 the step loss is the distance, 0 or 1 by a fair coin; the infimum over it is 0
    step = min(wdp.published_step([d], 1, 1e-9, 1) for d in (0, 1))
    published = math.exp(wdp.published_log_delta(step, beta, 1))
    return f"d = 0 or 1 by a fair coin, q=1, sigma=1e-9, eps=1, beta={beta:g}", published, 0.5


@upper("Corollary 1", "eps = sum W - ln(delta)/beta", (1.0, 2.0, 5.0), error=12)
def _(beta: float) -> Case:
    # with the coin of Theorem 1, Pr[sum >= eps] = 1/2 > 1/4 for every eps up to 1
    return f"the same coin, delta=1/4, beta={beta:g}", wdp.published_epsilon(0.5, beta, math.log(0.25)), 1.0


def _quadrature(mean: float, mu: float) -> float:
    """E|Z|^mu of N(mean, 1) by Gauss-Legendre panels on either side of 0, independently of Lemma 1."""
    # finer towards 0, where |z|^mu is not smooth
    z, weight = panels(np.linspace(0, mean + 16, 33) ** 2 / (mean + 16), 40)
    density = np.exp(-((z - mean) ** 2) / 2) + np.exp(-((z + mean) ** 2) / 2)
    return float(np.sum(weight * z**mu * density) / math.sqrt(2 * math.pi))


@equal("Lemma 1", "E|Z|^mu through 1F1", product((2, 2.5, 7), (0.1, 1.0, 4.0)))
def _(mu: float, mean: float) -> Case:
    return f"mean={mean:g}, sigma=1, mu={mu:g}", float(absolute_moment(mean, 1, mu)), _quadrature(mean, mu)


@equal("Equation 125", "the series of Lemma 1, last line", ((0.3, 2.0, 2), (0.3, 2.0, 3)), error=17)
def _(q: float, d: float, mu: float) -> Case:
    variance = 2 - 2 * q + 2 * q * q
    # 4^n instead of 2^n in the denominators is Lemma 1 at a mean that is too small by a factor sqrt(2)
    means = (math.sqrt((q * d) ** 2 / 2), q * d)
    published, exact = (float(absolute_moment(mean, math.sqrt(variance), mu)) for mean in means)
    return f"q={q:g}, d={d:g}, sigma=1, mu={mu}", published, exact


@upper("Table 2", "chance of a successful attack 1/(1 + e^-eps)", (1.0, 0.1), error=16)
def _(eps: float) -> Case:
    return f"a value 0 or {eps:g} without noise: eps={eps:g}", 1 / (1 + math.exp(-eps)), 1.0


@equal("Table 2, digits", "its printed chances are 1/(1 + e^-eps)", sorted(set(TABLE_2.values())), error=16)
def _(eps: float, printed: float) -> Case:
    exact = 1 / (1 + math.exp(-eps))
    return f"eps={eps:g}", printed, printed if abs(printed - exact) <= 1e-3 else exact


@equal("Table 2, worst digit", "the printed chance furthest from 1/(1 + e^-eps)", error=16)
def _() -> Iterator[Case]:
    """Yield the printed probability that is furthest from its formula."""
    cases = ((f"{where}, eps={eps:g}", printed, 1 / (1 + math.exp(-eps))) for where, (eps, printed) in TABLE_2.items())
    yield max(cases, key=lambda case: abs(case[1] - case[2]))
