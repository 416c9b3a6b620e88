"""Sommer, Meiser, Mohammadi (2019), "Privacy Loss Classes", Sections 2 to 4 and its formulas, for the table ``claims``.

Each function ``published_*`` gives the number of the paper, which errs at the inputs of the table. The accountants use
the right forms; docs/papers/plc.md lists the differences. ``t`` is sensitivity / scale of Laplace noise.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cache, partial
from itertools import product

import numpy as np
from scipy.special import erfcinv

from wpriv.accounting.accountants import rdp_mironov
from wpriv.accounting.mechanisms.gauss import Gauss
from wpriv.accounting.mechanisms.randomized_response import RandomizedResponse
from wpriv.core.atomic_pair import AtomicPair
from wpriv.core.kinds import Sampling
from wpriv.core.process import Process, Step
from wpriv.numerics.arrays import Array
from wpriv.numerics.conversions import normal_log_delta
from wpriv.papers.accountants import markov
from wpriv.papers.tables._statement import Case, Claims, panels

# pairs (A, B) of distributions on few outcomes, the simplest first
PAIRS = (([0.9, 0.1], [0.5, 0.5]), ([0.2, 0.3, 0.5], [0.4, 0.4, 0.2]), ([0.5, 0.3, 0.2, 0.0], [0.4, 0.35, 0.0, 0.25]))


def published_response_delta(n: int, xi: float, reveal: float, eps: float) -> float:
    """Example 1: delta of n-fold randomized response, with e^(xi (n-k)) where e^(xi k) is right.

    The index is capped at n, so that a negative term remains where eps > n xi and the sum should be empty.
    """
    first = max(0, min(n, math.ceil((eps + n * xi) / (2 * xi))))
    total = math.fsum(
        math.comb(n, k) * -math.expm1(eps - xi * (2 * k - n)) * math.exp(xi * (n - k)) for k in range(first, n + 1)
    )
    return (1 - reveal) ** n / (1 + math.exp(xi)) ** n * total + 1 - (1 - reveal) ** n


def published_sigma(eps: float, delta: float, n: int = 1, distance: float = 1.0) -> float:
    """Corollary 5.2: the smallest sigma for (eps, delta)-PDP, with sqrt(2 eps) where sqrt(2) eps is right."""
    z = float(erfcinv(2 * delta))
    return distance * math.sqrt(n) / math.sqrt(2 * eps) * (z + math.sqrt(z * z + eps))


def pair_of(p: Sequence[float] | Array, q: Sequence[float] | Array) -> AtomicPair:
    """The loss pair of two distributions on the same outcomes."""
    a, b = np.array(p), np.array(q)
    common = (a > 0) & (b > 0)
    losses, log_p = np.log(a[common] / b[common]), np.log(a[common])
    return AtomicPair(losses, log_p, float(a[b == 0].sum()), float(b[a == 0].sum()), log_q=np.log(b[common]))


def delta_of(p: Array, q: Array, eps: float) -> float:
    """Definition 5: the largest A(S) - e^eps B(S), from the probabilities of all outcomes."""
    return float(np.maximum(p - math.exp(eps) * q, 0).sum())


STATEMENTS = Claims()
upper = STATEMENTS.claim
equal = partial(STATEMENTS.claim, equal=True)
lower = partial(STATEMENTS.claim, lower=True)


@upper("Section 2.1", "M(0), M(1) are worst for symmetric noise at sensitivity 1", (1, 5), error=18)
def _(m: float) -> Case:
    # noise uniform on -m..m: outputs at distance 1/2 have no value in common
    return f"uniform noise on -{m}..{m}, queries 1/2 apart, eps=0", 1 / (2 * m + 1), 1.0


def _product(p: Sequence[float], n: int) -> Array:
    outcomes = np.ones(1)
    for _ in range(n):
        outcomes = np.multiply.outer(outcomes, p).ravel()
    return outcomes


@equal("Lemma 1", "the masses of all losses sum to 1, that of infinity included")
def _() -> Iterator[Case]:
    for (p, q), n in product(PAIRS, (1, 2)):
        pair = pair_of(p, q).self_compose(n)
        assert isinstance(pair, AtomicPair)
        # the outcomes of all n releases that B cannot have, by the probabilities of the outcomes of A
        infinity = 1 - math.fsum(a for a, b in zip(p, q, strict=True) if b > 0) ** n
        yield f"{len(p)} outcomes, n={n}", float(np.exp(pair.log_p).sum()) + infinity, 1.0


@equal("Theorem 1", "composition convolves privacy loss distributions")
def _() -> Iterator[Case]:
    for (p, q), n, eps in product(PAIRS, (2, 3), (0.0, 0.5)):
        composed = pair_of(p, q).self_compose(n)
        assert composed is not None
        exact = delta_of(_product(p, n), _product(q, n), eps)
        yield f"{len(p)} outcomes, n={n}, eps={eps:g}", math.exp(float(composed.log_delta(eps))), exact


@equal("Lemma 2", "the dual is the loss distribution of B over A")
def _() -> Iterator[Case]:
    for (p, q), eps in product(PAIRS, (0.0, 0.5)):
        dual = pair_of(p, q).reverse()
        at = f"{len(p)} outcomes, eps={eps:g}"
        yield at, math.exp(float(dual.log_delta(eps))), delta_of(np.array(q), np.array(p), eps)


@equal(
    "Lemma 3",
    "the inner distribution is that of the conditioned mechanism",
    (([0.5, 0.5, 0.0], [0.0, 0.5, 0.5]), ([0.5, 0.5, 0.0], [0.0, 1.0, 0.0])),
    error=3,
)
def _(p: Sequence[float], q: Sequence[float]) -> Case:
    a, b = np.array(p), np.array(q)
    common = (a > 0) & (b > 0)
    inner = float(b[common].sum() / a[common].sum())
    # the mechanism conditioned on its common outcomes has a privacy loss distribution, so its mean is 1
    return f"A={tuple(p)}, B={tuple(q)}: E e^-loss".replace(".0,", ",").replace(".0)", ")"), inner, 1.0


@upper("Lemma 4", "a bound B of the inner part gives w(inf) + (1 - w(inf)) B")
def _() -> Iterator[Case]:
    p, q = np.array(PAIRS[2][0]), np.array(PAIRS[2][1])
    for eps in (0.0, 0.2):
        infinity = float(p[q == 0].sum())
        inner = delta_of(p[q > 0], q[q > 0], eps) / (1 - infinity)
        yield f"4 outcomes, eps={eps:g}", infinity + (1 - infinity) * inner, delta_of(p, q, eps)


@equal("Lemma 5", "delta* is the largest A(S) - e^eps B(S) over all sets S")
def _() -> Iterator[Case]:
    for (p, q), eps in product(PAIRS, (0.0, 0.2)):
        sets = np.array(list(product((0.0, 1.0), repeat=len(p))))
        largest = float(np.max(sets @ p - math.exp(eps) * (sets @ q)))
        yield f"{len(p)} outcomes, eps={eps:g}", math.exp(float(pair_of(p, q).log_delta(eps))), largest


def _response(n: int, xi: float, reveal: float, eps: float) -> Case:
    pair = RandomizedResponse(xi, reveal).pair().self_compose(n)
    assert pair is not None
    at = f"n={n}, xi={xi:g}, Delta={reveal:g}, eps={eps:g}"
    published = published_response_delta(n, xi, reveal, eps)
    return at, published, math.exp(float(pair.log_delta(eps)))


equal("Example 1", "delta of randomized response, exactly", [(1, 1.0, 0.0, 0.0)], error=1)(_response)
equal("Example 1, n = 10", "delta of randomized response, exactly", [(10, 0.5, 0.01, 1.0)], error=1)(_response)
equal("Example 1, index", "its first index is at most n", [(1, 1.0, 0.1, 2.0)], error=2)(_response)
equal("Example 2, sum", "ten outcomes of probability 1/9 each", error=4)(lambda: ("ten outcomes", 10 * (1 / 9), 1.0))


@equal("Example 2", "w_n(inf) = 1 - (8/9)^n", error=4)
def _() -> Iterator[Case]:
    noise = np.full(10, 1 / 10)
    infinity = float(noise[:1].sum())  # the one outcome that the shifted noise lacks
    yield "n=4", 1 - (8 / 9) ** 4, 1 - (1 - infinity) ** 4


@equal("Lemma 6", "delta at every real eps determines the loss distribution")
def _() -> Iterator[Case]:
    for p, q in PAIRS:
        for a, b in ((a, b) for a, b in zip(p, q, strict=True) if a > 0 and b > 0):
            # over x = e^eps the graph consists of lines, whose slope changes by B's mass where x is the ratio A/B
            below, at, above = (delta_of(np.array(p), np.array(q), math.log(a / b * x)) for x in (0.98, 1.0, 1.02))
            yield f"{len(p)} outcomes, the mass of the loss {math.log(a / b):.3g}", (below - 2 * at + above) / 0.02, a


def _smallest_exception(p: Array, q: Array, eps: float) -> float:
    """Definition 7 literally: the least probability of a set without which every set keeps pure eps-DP."""
    subsets = np.array(list(product((0.0, 1.0), repeat=p.size)))
    keeps = [np.all(subsets @ (p * (1 - s)) <= math.exp(eps) * (subsets @ (q * (1 - s))) + 1e-12) for s in subsets]
    return float(min(p @ s for s, keep in zip(subsets, keeps, strict=True) if keep))


@equal("Lemma 7", "tight PDP is the larger tail of the loss and its dual")
def _() -> Iterator[Case]:
    p, q = np.array(PAIRS[2][0]), np.array(PAIRS[2][1])
    for eps in (0.0, 0.2):
        tails = [math.exp(float(order.tails(np.array(eps)).sf_p)) for order in (pair_of(p, q), pair_of(q, p))]
        yield f"4 outcomes, eps={eps:g}", max(tails), max(_smallest_exception(a, b, eps) for a, b in ((p, q), (q, p)))


@equal("Equation 4", "Renyi divergences are moments of e^loss")
def _() -> Iterator[Case]:
    for (p, q), lam in product(PAIRS[:2], (0.5, 1.0, 3.0)):
        a, b = np.array(p), np.array(q)
        divergence = math.log(float(np.sum(b * (a / b) ** (lam + 1)))) / lam
        yield f"{len(p)} outcomes, lambda={lam:g}", float(pair_of(p, q).renyi(np.array(lam + 1))), divergence


def _gauss_delta(eps: float, sigma: float) -> float:
    return math.exp(normal_log_delta(eps, 1 / (2 * sigma**2), 1 / sigma**2))


@upper("Section 4.6", "delta = alpha D_alpha - alpha eps", (2.0, 20.0), error=6)
def _(eps: float) -> Case:
    # D_alpha = alpha/2, so that the least value is at alpha = eps
    return f"Gauss sigma=1, eps={eps:g}", -(eps**2) / 2, _gauss_delta(eps, 1.0)


@upper("Section 4.6, exp", "the same with the missing exponential", (2.0, 5.0, 10.0, 20.0), error=6)
def _(eps: float) -> Case:
    return f"Gauss sigma=1, eps={eps:g}", math.exp(-(eps**2) / 2), _gauss_delta(eps, 1.0)


@upper("Section 4.6, corrected", "delta = exp((alpha - 1)(D_alpha - eps))", (2.0, 5.0, 10.0, 20.0))
def _(eps: float) -> Case:
    alphas = np.linspace(1.01, 2 * eps + 1, 2000)
    bound = float(np.exp(np.min((alphas - 1) * (alphas / 2 - eps))))
    return f"Gauss sigma=1, eps={eps:g}", bound, _gauss_delta(eps, 1.0)


@equal("Lemma 8", "divergences of whole orders determine delta, of moments that grow slowly")
def _() -> Iterator[Case]:
    for (p, q), eps in product(PAIRS[:2], (0.0, 0.3)):
        pair, size = pair_of(p, q), len(p)
        moments = [1.0, *(math.exp(lam * float(pair.renyi(np.array(lam + 1.0)))) for lam in range(1, 2 * size))]
        # the Hankel matrices of the moments have the values of e^loss for their generalised eigenvalues
        hankel = [np.array([moments[i + j : i + j + size] for i in range(size)]) for j in (0, 1)]
        ratios = np.linalg.eigvals(np.linalg.solve(*hankel)).real
        masses = np.linalg.solve(np.vander(ratios, increasing=True).T, moments[:size])
        delta = float(np.sum(masses * np.maximum(1 - math.exp(eps) / ratios, 0)))
        yield f"{size} outcomes, eps={eps:g}", delta, delta_of(np.array(p), np.array(q), eps)


@equal("Lemma 8, condition", "without that growth a second distribution has the same moments", range(-1, 7))
def _(lam: float) -> Case:
    z = np.arange(-14, 14, 0.05)  # the trapezoid rule has an error below 1e-15 for Gaussian integrands
    y = 0.5 + lam + z
    weight = np.exp(-((y - 0.5) ** 2) / 2 + lam * y) / math.sqrt(2 * math.pi) * 0.05
    perturbed = float(np.sum(weight * (1 + np.sin(2 * math.pi * (y - 0.5)))))
    return f"Gauss sigma=1, E e^({lam} loss)", perturbed, math.exp(lam * (lam + 1) / 2)


@lower("Lemma 8, delta", "... and a smaller delta")
def _() -> Iterator[Case]:
    y, weight = panels(np.linspace(1, 14, 53))
    density = np.exp(-((y - 0.5) ** 2) / 2) / math.sqrt(2 * math.pi) * (1 + np.sin(2 * math.pi * (y - 0.5)))
    at = "Gauss sigma=1, its density times 1 + sin(2 pi (y - 1/2)), eps=1"
    yield at, float(np.sum(weight * density * -np.expm1(1 - y))), _gauss_delta(1, 1)


def _inner_divergences(p: Array, q: Array, alpha: float) -> tuple[float, float]:
    """Renyi divergences of the inner distribution, and of the mechanism conditioned on the outcomes of both inputs."""
    common = (p > 0) & (q > 0)
    a, b = p[common], q[common]
    inner = float(np.sum(a / a.sum() * (a / b) ** (alpha - 1)))
    conditioned = float(np.sum((a / a.sum()) ** alpha * (b / b.sum()) ** (1 - alpha)))
    return math.log(inner) / (alpha - 1), math.log(conditioned) / (alpha - 1)


@equal(
    "Corollary 2.1",
    "the inner distribution has the divergences of the conditioned mechanism",
    (((0.5, 0.5, 0.0), (0.0, 0.5, 0.5)), ((0.5, 0.5, 0.0), (0.0, 1.0, 0.0))),
    error=3,
)
def _(p: Sequence[float], q: Sequence[float]) -> Case:
    at = f"A=({', '.join(f'{x:g}' for x in p)}), B=({', '.join(f'{x:g}' for x in q)}), alpha=2"
    return at, *_inner_divergences(np.array(p), np.array(q), 2.0)


@equal("Corollary 2.1, truncated", "... which is true where both inputs are as likely to give a common outcome")
def _() -> Iterator[Case]:
    # noise N(0, 1) within +-2.5, inputs 0 and 1: the common outcomes are [-1.5, 2.5], equally likely under both
    x, w = panels(np.array([-1.5, 2.5]), 60)
    for alpha in (2.0, 10.0):
        p, q = w * np.exp(-(x**2) / 2), w * np.exp(-((x - 1) ** 2) / 2)
        yield f"Gauss sigma=1 within 2.5, alpha={alpha:g}", *_inner_divergences(p, q, alpha)


def _tail(y: float) -> float:
    """The tail bound of the loss of Gaussian noise with sigma = 1."""
    return markov.markov_tail(lambda lam: lam * (lam + 1) / 2, y)


@upper("Theorem 3", "Markov-ADP, with [T(y_i) - T(y_(i-1))]", error=5)
def _() -> Iterator[Case]:
    # the sum behind the tail at the last of the points, 8, has the other sign
    published = 2 * _tail(8.0) - markov.markov_sum(_tail, 1.0, 0.05, 140)
    yield "Gauss sigma=1, eps=1, 140 cells of 0.05", published, _gauss_delta(1, 1)


@upper("Theorem 3, corrected", "Markov-ADP, with [T(y_(i-1)) - T(y_i)]")
def _() -> Iterator[Case]:
    for eps in (1.0, 3.0):
        at = f"Gauss sigma=1, eps={eps:g}, 140 cells of 0.05"
        yield at, markov.markov_sum(_tail, eps, 0.05, 140), _gauss_delta(eps, 1)


@cache
def _dp_sgd() -> Process:
    return Process((Step(Gauss(sigma=4), 2**16, Sampling("poisson", 0.01)),))


@upper("Theorem 3, tail", "Markov-ADP is at most the tail bound of RDP (Mironov 2017)", (1.0, 2.0, 4.0))
def _(eps: float) -> Case:
    ours, theirs = (module.account(_dp_sgd()).delta(eps=eps) for module in (markov, rdp_mironov))
    return f"DP-SGD q=.01, sigma=4, n=2^16, eps={eps:g}", theirs, ours


@upper(
    "Section 6.1.2, Gauss", "Markov-ADP of orders up to 128 is behind zCDP, on the upper half of the axis of Figure 5"
)
def _() -> Iterator[Case]:
    # the paper states neither orders nor grid; over all orders and fine grids the bound is a thousandth of that of zCDP
    rho, lam = 2**22 / (2 * 900_000**2), np.arange(1.0, 129.0)
    for eps in (0.005, 0.0075):
        tail = markov.markov_sum(
            lambda y: min(1.0, float(np.exp(np.min(rho * lam * (lam + 1) - lam * y)))), eps, (0.01 - eps) / 50, 50
        )
        yield f"Gauss sigma=900000, n=2^22, eps={eps:g}", tail, math.exp(-((eps - rho) ** 2) / (4 * rho))
