"""Selections by noisy scores: no score vector leaks more than the pair says, and the exact ones are attained.

Oracles: the probability of every outcome of small selections, by enumeration of all orders (permute-and-flip) and by
quadrature of the noise (all others); nothing of wpriv but the answer is used.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy.special import ndtr

import wpriv
from wpriv.core.kinds import Sampling
from wpriv.core.process import Process, Step
from wpriv.errors import Unsupported, UsageError

NODES, WEIGHTS = np.polynomial.legendre.leggauss(24)
# density, and distribution function, of noise of scale 1
NOISE: dict[str, tuple[Callable, Callable]] = {
    "laplace": (
        lambda z: np.exp(-np.abs(z)) / 2,
        lambda z: np.where(z < 0, np.exp(np.minimum(z, 0)) / 2, 1 - np.exp(-np.maximum(z, 0)) / 2),
    ),
    "exponential": (
        lambda z: np.where(z < 0, 0.0, np.exp(-np.maximum(z, 0))),
        lambda z: -np.expm1(-np.maximum(z, 0)),
    ),
    "gumbel": (lambda z: np.exp(-z - np.exp(-z)), lambda z: np.exp(-np.exp(-z))),
    "gauss": (lambda z: np.exp(-z * z / 2) / math.sqrt(2 * math.pi), ndtr),
}
EPS = (0.0, 0.2, 0.5, 0.9)


def nodes(kinks: np.ndarray, reach: float = 40.0) -> tuple[np.ndarray, np.ndarray]:
    """Points and weights of a quadrature on the line, whose panels end at the kinks."""
    low, high = kinks.min() - reach, kinks.max() + reach
    edges = np.unique(np.concatenate([kinks, np.linspace(low, high, 161)]))
    middle, half = (edges[1:] + edges[:-1]) / 2, np.diff(edges) / 2
    return (middle[:, None] + half[:, None] * NODES).ravel(), (half[:, None] * WEIGHTS).ravel()


def noisy_max(scores: np.ndarray, noise: str) -> np.ndarray:
    """The probability that each candidate is reported, with noise of scale 1."""
    density, below = NOISE[noise]
    x, weight = nodes(scores)
    others = [np.prod([below(x - u) for j, u in enumerate(scores) if j != i], axis=0) for i in range(scores.size)]
    return np.array([weight @ (density(x - u) * rest) for u, rest in zip(scores, others, strict=True)])


def permute_and_flip(scores: np.ndarray, eps0: float) -> np.ndarray:
    """The literal algorithm, over all orders, with score sensitivity 1."""
    chance, result = np.exp(eps0 * (scores - scores.max()) / 2), np.zeros(scores.size)
    orders = list(itertools.permutations(range(scores.size)))
    for order in orders:
        left = 1.0
        for place in order:
            result[place] += left * chance[place] / len(orders)
            left *= 1 - chance[place]
    return result


def top_two(scores: np.ndarray, noise: str) -> np.ndarray:
    """The probability of each ordered pair of the two largest noisy scores."""
    density, below = NOISE[noise]
    x, weight = nodes(scores)
    rows = []
    for first, second in itertools.permutations(range(scores.size), 2):
        rest = [below(x - u) for j, u in enumerate(scores) if j not in (first, second)]
        above = 1 - below(x - scores[first])
        rows.append(weight @ (density(x - scores[second]) * above * np.prod(rest, axis=0)))
    return np.array(rows)


def sparse_vector(queries: Callable[[tuple[int, ...]], float], length: int, answers: int, scales: tuple[float, float]):
    """The probability of each history of answers (1 is above): the queries may depend on the history so far."""
    threshold, query = scales
    below = NOISE["laplace"][1]
    values = [queries(h) for k in range(length) for h in itertools.product((0, 1), repeat=k) if sum(h) < answers]
    r, weight = nodes(np.array([0.0, *values]), 40 * max(scales))
    start = weight * np.exp(-np.abs(r) / threshold) / (2 * threshold)
    outcomes = []

    def go(history: tuple[int, ...], mass: np.ndarray) -> None:
        if len(history) == length or sum(history) == answers:
            outcomes.append(mass.sum())
            return
        no = below((r - queries(history)) / query)
        go((*history, 0), mass * no)
        go((*history, 1), mass * (1 - no))

    go((), start)
    return np.array(outcomes)


def delta(p: np.ndarray, q: np.ndarray, eps: float) -> float:
    return float(np.maximum(p - math.exp(eps) * q, 0).sum())


def bounds(eps: float, mech: str, **parameters: object) -> tuple[float, float]:
    row = wpriv.budget(mech, eps=eps, **parameters).delta
    return row.lower or 0.0, row.safe


def changes(rng: np.random.Generator, size: int, monotone: bool) -> np.ndarray:
    """Moves of the scores by at most 1, most of them as far as they can."""
    moves = rng.choice([0.0, 1.0] if monotone else [-1.0, 1.0], size)
    return moves if rng.random() < 0.7 else moves * rng.random(size)


@pytest.mark.parametrize("noise", NOISE)
@pytest.mark.parametrize("monotone", [False, True])
@pytest.mark.parametrize("size", [2, 3, 5])
def test_no_scores_leak_more_than_the_pair_of_noisy_max(noise, monotone, size):
    rng, scale = np.random.default_rng(size), 1.4
    given = {"distribution": noise, "scale": scale, "monotone": monotone}
    given |= {"candidates": size} if noise == "gauss" else {}
    upper = {eps: bounds(eps, "noisy-max", **given)[1] for eps in EPS}
    for _ in range(12):
        before = rng.normal(0, 1.5, size)
        after = before + changes(rng, size, monotone)
        p, q = noisy_max(before / scale, noise), noisy_max(after / scale, noise)
        assert p.sum() == pytest.approx(1, abs=1e-11)
        for eps in EPS:
            assert max(delta(p, q, eps), delta(q, p, eps)) <= upper[eps] * (1 + 1e-9) + 1e-12


@pytest.mark.parametrize("noise", NOISE)
@pytest.mark.parametrize("monotone", [False, True])
def test_the_lower_end_is_that_of_two_candidates(noise, monotone):
    """The candidate that gains is behind by half of the move, and then ahead by as much."""
    scale, move = 1.4, 1 if monotone else 2
    given = {"distribution": noise, "scale": scale, "monotone": monotone, "candidates": 2}
    pair = wpriv.NoisyMax(**given).pair()
    p, q = (noisy_max(np.array([sign * move / 2, 0.0]) / scale, noise) for sign in (1, -1))
    least = pair.sandwich(1e-3)[0]
    for eps in (0.0, 0.1, 0.3):
        assert math.exp(float(least.log_delta(eps))) == pytest.approx(delta(p, q, eps), rel=1e-9, abs=1e-13)
    if noise == "exponential":
        assert pair.sandwich(1e-3)[0].losses[-1] == pytest.approx(
            math.log(2 * math.exp(move / scale / 2) - 1), rel=1e-12
        )


@pytest.mark.parametrize("eps0", [0.01, 0.7, 4.0])
def test_permute_and_flip_is_exact_at_every_eps(eps0):
    """Two candidates whose scores differ by as much as eps asks for; no other distance leaks more."""
    for share in (0.0, 0.3, 0.8, 0.99):
        eps, worst = share * eps0, 0.0
        for gap in np.linspace(-2, 4, 4001):
            p, q = (permute_and_flip(np.array([0.0, -gap + sign]), eps0) for sign in (0, -2))
            worst = max(worst, delta(p, q, eps), delta(q, p, eps))
        row = wpriv.budget("permute-and-flip", eps0=eps0, eps=eps)
        assert row.claim == "exact"
        assert worst <= row.delta.safe * (1 + 1e-9)
        assert row.delta.safe == pytest.approx(-math.expm1((eps - eps0) / 2), rel=1e-9)
        assert worst == pytest.approx(row.delta.safe, rel=2e-3)


@pytest.mark.parametrize("size", [2, 3, 4, 5])
def test_no_scores_leak_more_than_permute_and_flip_and_its_noise_is_exponential(size):
    rng, eps0 = np.random.default_rng(size), 1.3
    for _ in range(20):
        before = rng.normal(0, 2, size)
        p, q = (permute_and_flip(scores, eps0) for scores in (before, before + changes(rng, size, False)))
        assert p == pytest.approx(noisy_max(before * eps0 / 2, "exponential"), abs=1e-11)
        for eps in (0.0, 0.4, 0.9, 1.25):
            bound = wpriv.budget("permute-and-flip", eps0=eps0, eps=eps).delta.safe
            assert max(delta(p, q, eps), delta(q, p, eps)) <= bound * (1 + 1e-9) + 1e-14


def test_permute_and_flip_is_not_of_bounded_range():
    """opendp#2911: scores 0, 0 and 1, -1 at eps 2; the exponential mechanism is 0.5-zCDP, this one is not."""
    q, p = (permute_and_flip(np.array(scores, float), 2.0) for scores in ((1, -1), (0, 0)))
    assert math.log((p * p / q).sum()) / 2 == pytest.approx(0.6885, abs=5e-5)
    assert wpriv.verify_claim("rho=0.5", "permute-and-flip", eps0=2).verdict == "refuted"
    assert wpriv.verify_claim("rho=0.5", "exponential", eps0=2).verdict == "proved"
    assert wpriv.verify_claim("eps=2", "permute-and-flip", eps0=2).verdict == "proved"
    assert wpriv.verify_claim("eps=1.99", "permute-and-flip", eps0=2).verdict == "refuted"
    # small eps, where no delta shows it, and the rho that does hold: eps0 - 1 + e^-eps0
    assert wpriv.verify_claim("rho=0.00000125", "permute-and-flip", eps0=0.01).verdict == "refuted"
    assert wpriv.verify_claim(f"rho={1.000000001 + math.exp(-2)}", "permute-and-flip", eps0=2).verdict == "proved"


@pytest.mark.parametrize(("answers", "length", "scales"), [(1, 1, (1.0, 2.0)), (1, 5, (3.0, 3.0)), (2, 4, (2.0, 6.0))])
@pytest.mark.parametrize("monotone", [False, True])
def test_no_stream_of_adaptive_queries_leaks_more_than_above_threshold(answers, length, scales, monotone):
    rng = np.random.default_rng(length)
    given = {"threshold_scale": scales[0], "query_scale": scales[1], "answers": answers, "monotone": monotone}
    upper = {eps: bounds(eps, "above-threshold", **given)[1] for eps in EPS}
    for _ in range(10):
        histories = [h for k in range(length) for h in itertools.product((0, 1), repeat=k)]
        values = dict(zip(histories, rng.normal(0, 3, len(histories)), strict=True))
        moved = dict(zip(histories, changes(rng, len(histories), monotone), strict=True))
        p = sparse_vector(lambda h, v=values: v[h], length, answers, scales)
        q = sparse_vector(lambda h, v=values, w=moved: v[h] + w[h], length, answers, scales)
        assert p.sum() == pytest.approx(1, abs=1e-10)
        for eps in EPS:
            assert max(delta(p, q, eps), delta(q, p, eps)) <= upper[eps] * (1 + 1e-9) + 1e-12


@pytest.mark.parametrize("scales", [(2.0, 5.0), (5.0, 2.0), (3.0, 3.0)])
def test_the_lower_end_of_above_threshold_is_that_of_one_query(scales):
    p, q = (sparse_vector(lambda _, v=sign / 2: v, 1, 1, scales) for sign in (1, -1))
    least = wpriv.AboveThreshold(*scales).pair().sandwich(1e-3)[0]
    for eps in (0.0, 0.05):
        assert math.exp(float(least.log_delta(eps))) == pytest.approx(delta(p, q, eps), rel=1e-9)


def test_the_largest_loss_of_the_sparse_vector_is_that_of_the_theorem():
    """Lyu, Su, Li 2017: eps1 + eps2; and (1 + 6 c) / 4 eps for the scales of Lee and Clifton 2014, sold as eps."""
    eps, c = 0.4, 5
    standard = {"threshold_scale": 2 / eps, "query_scale": 4 * c / eps, "answers": c}
    assert wpriv.budget("above-threshold", delta=0, **standard).epsilon.safe == pytest.approx(eps, rel=1e-12)
    narrow = {"threshold_scale": 4 / eps, "query_scale": 4 / (3 * eps), "answers": c}
    assert wpriv.budget("svt", delta=0, **narrow).epsilon.safe == pytest.approx((1 + 6 * c) / 4 * eps, rel=1e-12)
    values = wpriv.budget("svt", delta=0, **standard, answer_scale=c / eps).epsilon.safe
    assert values == pytest.approx(2 * eps, rel=1e-12)


@pytest.mark.parametrize("variant", ["reused-value", "no-query-noise", "no-cutoff"])
def test_a_broken_sparse_vector_is_refused_with_its_reason(variant):
    with pytest.raises(Unsupported, match="no finite eps"):
        wpriv.AboveThreshold(10, 20, variant=variant)


@pytest.mark.parametrize("noise", ["laplace", "exponential", "gumbel"])
def test_no_scores_leak_more_than_one_shot_top_two(noise):
    rng, scale = np.random.default_rng(7), 2.0
    given = {"distribution": noise, "scale": scale, "k": 2}
    upper = {eps: bounds(eps, "top-k", **given)[1] for eps in EPS}
    for _ in range(12):
        before = rng.normal(0, 1.5, 4)
        p, q = (top_two(scores / scale, noise) for scores in (before, before + changes(rng, 4, False)))
        assert p.sum() == pytest.approx(1, abs=1e-10)
        for eps in EPS:
            assert max(delta(p, q, eps), delta(q, p, eps)) <= upper[eps] * (1 + 1e-9) + 1e-12


def test_one_shot_gumbel_is_so_many_exponential_mechanisms():
    scores = np.array([0.3, -1.0, 0.7, 0.1])
    weights = np.exp(scores)
    peeled = [
        weights[i] / weights.sum() * weights[j] / (weights.sum() - weights[i])
        for i, j in itertools.permutations(range(4), 2)
    ]
    assert top_two(scores, "gumbel") == pytest.approx(peeled, abs=1e-11)
    assert Step(wpriv.TopK(20, 3), 4) == Step(wpriv.Exponential(0.1), 12)
    assert Step(wpriv.TopK(20, 3, monotone=True)) == Step(wpriv.Exponential(0.05), 3)
    # on a sample that all k share, the losses of the k add up instead
    drawn = Step(wpriv.TopK(20, 3), 4, Sampling("poisson", 0.1))
    assert drawn.mechanism == wpriv.TopK(20, 3)
    curve = wpriv.curve(Process((drawn,)))
    assert curve.at(delta=1e-6).epsilon.safe == pytest.approx(
        wpriv.budget("exponential", eps0=0.3, n=4, sampling="poisson", rate=0.1, delta=1e-6).epsilon.safe, rel=1e-6
    )


def test_gaussian_noise_is_exact_for_two_candidates_and_needs_their_number():
    row = wpriv.budget("noisy-max", distribution="gauss", scale=3, candidates=2, eps=0.3)
    assert row.claim == "exact"
    assert row.delta.safe == pytest.approx(wpriv.budget("gauss", sigma=3, sensitivity=math.sqrt(2), eps=0.3).delta.safe)
    with pytest.raises(UsageError, match="candidates"):
        wpriv.NoisyMax(1.0, distribution="gauss")


def test_a_group_moves_the_scores_as_often_as_it_has_records():
    one = wpriv.budget("noisy-max", scale=3, group=2, eps=0.3).delta
    assert one.safe == wpriv.budget("noisy-max", scale=3, sensitivity=2, eps=0.3).delta.safe
    flipped = wpriv.budget("permute-and-flip", eps0=0.5, group=3, eps=0.3).delta
    assert flipped.safe == wpriv.budget("permute-and-flip", eps0=1.5, eps=0.3).delta.safe


@pytest.mark.parametrize("sampling", ["allocation", "shuffle"])
def test_samplings_without_a_proof_are_refused(sampling):
    with pytest.raises(Unsupported, match="noisy-max has no proven pair"):
        wpriv.budget("noisy-max", scale=3, sampling=sampling, rate=0.1, n=10, delta=1e-6)
