"""The statements of Rodriguez-Vitores, Lalanne, Loubes (2025) on Wasserstein gradients, for the table ``claims``.

Scores U of n records and V of m records are numbers; R_ij is the length of the intersection of the i-th of n and the
j-th of m equal parts of (0, 1]. The sensitivities of Theorems 4.1 and 6.1 are in ``papers/mechanisms/wgrad.py``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from itertools import combinations_with_replacement, product

import numpy as np
from scipy.special import ndtr

from wpriv.numerics import wasserstein_1d
from wpriv.numerics.arrays import Array
from wpriv.papers.mechanisms.wgrad import penalised_gradient, wasserstein_gradient
from wpriv.papers.tables._declared import LimitError, WpGradient
from wpriv.papers.tables._statement import Case, Claims

NORMS = ((1.0, 1.0), (1.0, 0.0), (0.0, 1.0), (1.0, 3.0), (2.0, 1.0), (1.0, 0.5))  # L1 and L2
SIZES = ((1, 1), (2, 2), (2, 3), (3, 2))  # n and m
DELTA = 0.1 / 30000  # of the experiments of Appendix B


def gauss_delta(eps: float, mu: float) -> float:
    """Lemma 2.3: delta of Gaussian noise, mu = sensitivity / sigma."""
    return float(ndtr(-eps / mu + mu / 2) - math.exp(eps) * ndtr(-eps / mu - mu / 2))


def amplified(eps: float, rate: float) -> float:
    """Lemma 5.1: eps' = ln(1 + p (e^eps - 1)) of a mechanism on a sample of a share p of the records."""
    return math.log1p(rate * math.expm1(eps))


def weights(n: int, m: int) -> Array:
    """[n, m] weights R of Section 3."""
    i, j = np.arange(1, n + 1)[:, None], np.arange(1, m + 1)
    lengths = np.minimum(i / n, j / m) - np.maximum((i - 1) / n, (j - 1) / m)
    return np.asarray(np.maximum(0.0, lengths))


def plan(u: Array, v: Array) -> Array:
    """[n, m] weights R at the ranks of the scores; tied scores are ranked by their position, which is one choice."""
    ranks = [np.argsort(np.argsort(scores, kind="stable")) for scores in (u, v)]
    return weights(len(u), len(v))[np.ix_(*ranks)]


def squared_distance(u: Array, v: Array) -> float:
    """Proposition 3.1: W_2^2 of two samples."""
    return float(np.sum(plan(u, v) * np.subtract.outer(u, v) ** 2))


def squared_distance_in_proof(u: Array, v: Array) -> float:
    """W_2^2 by the second line of the proof of Proposition 3.1, which prints j/n for j/m."""
    n, m = len(u), len(v)
    edges = np.union1d(np.arange(n + 1) / n, np.append(np.arange(m) / m, np.arange(1, m + 1) / n))
    edges = edges[edges <= 1]
    t = (edges[:-1] + edges[1:]) / 2
    first = np.sort(u)[np.minimum((t * n).astype(int), n - 1)]
    j = np.arange(1, m + 1)[:, None]
    second = np.sort(v) @ (((j - 1) / m < t) & (t <= j / n))
    return float(np.sum(np.diff(edges) * (first - second) ** 2))


def derivatives(u: Array, v: Array, r: Array) -> tuple[Array, Array]:
    """Proposition 3.2: derivatives of W_2^2 in U and in V, for the weights r of ``plan`` or ``shared_plan``."""
    gaps = 2 * r * np.subtract.outer(u, v)
    return gaps.sum(1), -gaps.sum(0)


def shared_plan(u: Array, v: Array) -> Array:
    """[n, m] weights R at the ranks of the scores, averaged over tied scores: invariant under permutations."""
    r = plan(u, v)
    for scores, axis in ((u, 0), (v, 1)):
        same = np.equal.outer(scores, scores) / np.equal.outer(scores, scores).sum(1, keepdims=True)
        r = same @ r if axis == 0 else r @ same
    return r


def largest_change(bound: float, lipschitz_x: float, lipschitz_z: float, n: int, m: int) -> float:
    """Search the largest change of the gradient of W_2^2 when one of the n records of X is replaced.

    All scores run through -M, 0 and M, all gradients through +-L: for given scores the largest change is the sum of
    the changes of the weights of the single gradients, since their signs are free. Tied scores share their weights.
    """
    grid = (-bound, 0.0, bound)
    largest = 0.0
    for others, v in product(combinations_with_replacement(grid, n - 1), combinations_with_replacement(grid, m)):
        scores_z = np.array(v)
        samples = [np.array([new, *others]) for new in grid]
        # the weights of the gradients
        sides = [derivatives(u, scores_z, shared_plan(u, scores_z)) for u in samples]
        for (one, by_z), (other, other_by_z) in combinations_with_replacement(sides, 2):
            replaced = abs(one[0]) + abs(other[0]) + np.abs(one[1:] - other[1:]).sum()
            change = lipschitz_x * replaced + lipschitz_z * np.abs(by_z - other_by_z).sum()
            largest = max(largest, float(change))
    return largest


def sampled_response(eps: float, sizes: tuple[int, ...]) -> float:
    """Compute the exact eps of randomized response on one record drawn from each category, by enumeration.

    The parity of the drawn bits is released, and turned over with probability 1 / (1 + e^eps).
    """
    kept = 1 / (1 + math.exp(-eps))
    data = list(product((0, 1), repeat=sum(sizes)))
    starts = [sum(sizes[:k]) for k in range(len(sizes))]

    def ones(records: tuple[int, ...]) -> float:
        shares = [sum(records[a : a + size]) / size for a, size in zip(starts, sizes, strict=True)]
        odd = (1 - math.prod(1 - 2 * share for share in shares)) / 2
        return kept * odd + (1 - kept) * (1 - odd)

    probability = {records: ones(records) for records in data}
    losses = [0.0]
    for records, k in product(data, range(sum(sizes))):
        p, q = probability[records], probability[(*records[:k], 1 - records[k], *records[k + 1 :])]
        losses += [math.log(p / q), math.log((1 - p) / (1 - q))]
    return max(losses)


STATEMENTS = Claims()
upper = STATEMENTS.claim
equal = partial(STATEMENTS.claim, equal=True)


@equal("Lemma 2.3", "delta of Gaussian noise")
def _() -> Iterator[Case]:
    x, w = np.polynomial.legendre.leggauss(60)
    for eps, mu in ((1.0, 0.25), (0.0, 1.0), (1.0, 1.0), (3.0, 2.0)):
        # delta = E (1 - e^(eps - Y))_+ of the loss Y = mu x + mu^2/2, x standard normal, by quadrature
        start = eps / mu - mu / 2
        points = start + 10 * (x + 1)
        density = np.exp(-points * points / 2) / math.sqrt(2 * math.pi)
        exact = float(10 * np.sum(w * density * -np.expm1(eps - mu * points - mu * mu / 2)))
        yield f"eps={eps:g}, mu={mu:g}", gauss_delta(eps, mu), exact


def _samples() -> Iterator[tuple[Array, Array]]:
    """Yield pairs of samples without ties, of equal and of different sizes, the simplest first."""
    yield np.array([0.0]), np.array([1.0])
    yield np.array([0.1, -0.4, 0.7]), np.array([0.3, -0.2])
    rng = np.random.default_rng(0)
    for n, m in ((4, 4), (5, 3), (3, 7)):
        yield rng.normal(size=n), rng.normal(size=m)


def _sizes(u: Array, v: Array) -> str:
    return f"{len(u)} and {len(v)} scores"


@equal("Proposition 3.1", "W_2^2 = sum of R (U - V)^2 at the ranks", _samples())
def _(u: Array, v: Array) -> Case:
    return _sizes(u, v), squared_distance(u, v), wasserstein_1d.samples(u, v, 2) ** 2


@equal("Proof of 3.1, line 2", "the same with j/n in print", _samples(), error=5)
def _(u: Array, v: Array) -> Case:
    published = squared_distance_in_proof(u, v)
    return _sizes(u, v), published, wasserstein_1d.samples(u, v, 2) ** 2


@equal("Proposition 3.2", "derivatives of W_2^2 in every score")
def _() -> Iterator[Case]:
    step = 1e-4  # W_2^2 is quadratic while no ranks change, so that central differences have rounding errors alone
    for u, v in _samples():
        published = np.concatenate(derivatives(u, v, plan(u, v)))
        for k, slope in enumerate(published):
            shifts = step * np.eye(len(published))[k]
            up, down = (
                wasserstein_1d.samples(u + sign * shifts[: len(u)], v + sign * shifts[len(u) :], 2) ** 2
                for sign in (1, -1)
            )
            exact = (up - down) / (2 * step)
            # a slope near 0 is compared to 1e-10, not relative to itself
            yield f"{_sizes(u, v)}, score {k + 1}", slope, slope if abs(slope - exact) <= 1e-10 else exact


@upper("Section 3, ties", "a bound also where scores tie, by any choice of ranks", (2, 4, 100), error=2)
def _(n: int) -> Case:
    u, v, slopes = np.zeros(n), np.repeat([-1.0, 1.0], n // 2), np.repeat([1.0, -1.0], n // 2)
    by_u, _ = derivatives(u, v, plan(u, v))
    # the same records in the opposite order: no record is replaced
    at = f"{n} tied scores, L1=1, L2=0: records in reverse order"
    return at, wasserstein_gradient(1, 1, 0, n, formula="paper"), abs(float(by_u @ slopes - by_u @ slopes[::-1]))


@equal("Equation 11", "R has row sums 1/n and column sums 1/m")
def _() -> Iterator[Case]:
    for n, m in ((1, 1), (3, 2), (4, 3), (7, 5)):
        r = weights(n, m)
        for name, published, sums in (("row", 1 / n, r.sum(1)), ("column", 1 / m, r.sum(0))):
            yield f"n={n}, m={m}, a {name}", published, float(sums[np.argmax(np.abs(sums - published))])


def _bounds(n: int, m: int, l1: float, l2: float) -> str:
    return f"n={n}, m={m}, M=1, L1={l1:g}, L2={l2:g}"


def _theorem_41a(formula: str = "paper") -> Iterator[Case]:
    for (n, m), (l1, l2) in product(SIZES, NORMS):
        published = wasserstein_gradient(1, l1, l2, n, formula=formula)
        yield _bounds(n, m, l1, l2), published, largest_change(1, l1, l2, n, m)


upper("Theorem 4.1 (a)", "replacing x: at most 4M (3 L1 + L2)/n")(_theorem_41a)


@upper("Theorem 4.1 (b)", "replacing x or z: 4M max{(3 L1 + L2)/n, (L1 + 3 L2)/m}")
def _() -> Iterator[Case]:
    for (n, m), (l1, l2) in product(SIZES, NORMS):
        over_x = largest_change(1, l1, l2, n, m)
        over_z = largest_change(1, l2, l1, m, n)
        yield _bounds(n, m, l1, l2), wasserstein_gradient(1, l1, l2, n, m, formula="paper"), max(over_x, over_z)


equal("Section 1.1", "Theorem 4.1 is tight", error=1)(_theorem_41a)
equal("Theorem 4.1, corrected", "tight: 4M max(2 L1, L1 + L2)/n", ("tight",))(_theorem_41a)


@upper("Lemma 5.1", "a share p of each category: ln(1 + p (e^eps - 1))", product((0.5, 1.0, 3.0), ((2,), (3,), (2, 4))))
def _(eps: float, sizes: tuple[int, ...]) -> Case:
    at = f"randomized response, eps={eps:g}, one record of {' and '.join(map(str, sizes))}"
    return at, amplified(eps, 1 / min(sizes)), sampled_response(eps, sizes)


def _limit(formula: str) -> Iterator[Case]:
    for target, rate, steps, delta in ((1.0, 0.2, 500, DELTA), (3.52, 0.01, 1000, 1e-5), (1.548, 0.001, 10**4, 1e-6)):
        rows = LimitError(target, rate, steps, delta).rows()
        (row,) = (row for row in rows if row["case"] == f"noise by the {formula} limit")
        at = f"p={rate:g}, T={steps}, delta={delta:.3g}, noise {row['multiplier']:.4g}"
        yield at, target, row["epsilon_lower"]


upper("Section 5.3, limit", "eps by the central limit for fixed-size batches", ("uniform",), error=3)(_limit)
upper("Section 5.3, Opacus", "eps by the default limit of Opacus (Poisson)", ("poisson",), error=3)(_limit)


@upper("Equation 4", "the mean gradient moves by at most 2C/n", ((1, 1.0), (6, 5.0)))
def _(n: int, clip: float) -> Case:
    gradients = np.full(n, clip)
    replaced = gradients.copy()
    replaced[0] = -clip
    return f"n={n}, C={clip:g}", 2 * clip / n, abs(float(gradients.mean() - replaced.mean()))


def _penalty(at: str, size: int, smallest: int, labels: int) -> Iterator[Case]:
    # the exact change: all scores of the group of the replaced record are M, those of the other one are -M, and the
    # gradient of that record turns from L to -L; its loss gradient turns with it, from C to -C
    for alpha in (0.75, 1.0):
        published, exact = (
            penalised_gradient(
                alpha, 5, size, wasserstein_gradient(1, 1, 1, smallest, smallest, formula=formula), labels
            )
            for formula in ("paper", "tight")
        )
        yield f"{at}, alpha={alpha:g}, C=5, M=L=1", published, exact


PARITY, ODDS = ("n=6000, n0=2900, n1=3100", 6000, 2900, 1), ("n=6000, least n_jk=880, R=2", 6000, 880, 2)
upper("Equation 7", "parity: (1-alpha) 2C/n + alpha 16 ML/min n_j", [PARITY])(_penalty)
upper("Equation 8", "odds: (1-alpha) 2C/n + (alpha/R) 16 ML/min n_jk", [ODDS])(_penalty)


@upper("Remark A.2", "rows clipped to L/sqrt(d): spectral norm at most L")
def _() -> Iterator[Case]:
    rng = np.random.default_rng(0)
    for d in (1, 2, 3):
        for name, rows in (("equal rows", np.ones((d, 4))), ("random rows", rng.normal(size=(d, 4)))):
            clipped = rows / np.linalg.norm(rows, axis=1, keepdims=True) / math.sqrt(d)
            yield f"d={d}, L=1, {name} of length L/sqrt(d)", 1.0, float(np.linalg.norm(clipped, 2))


def _wp(order: float, records: int, theta: float = 0.0) -> dict[str, float]:
    (row,) = (row for row in WpGradient(order, records, theta).rows() if row["case"] == "W_p")
    return row


@equal("Appendix D", "one record turns the slope of W_p from 1 to -1", product((1.0, 2.0, 3.0), (1, 10, 1000)))
def _(order: float, records: int) -> Case:
    return f"p={order:g}, n={records}, theta=0", 2.0, _wp(order, records)["sensitivity"]


@equal("Appendix D, line 2", "W_p = theta - 1/(2n) for small theta", (0.0, -0.15), error=5)
def _(theta: float) -> Case:
    # W_p of the replaced sample as printed, for theta <= 1/(2n) and every order p
    return f"n=10, theta={theta:g}", theta - 1 / (2 * 10), _wp(2, 10, theta)["value_replaced"]
