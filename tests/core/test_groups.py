"""Groups of records, largest batches and replaced records under sampling, against mixtures of explicit distributions.

The oracles are 40-digit closed forms of one step, integrals over explicit densities, Laplace inversion for compositions
(tests/oracles.py), sums over all batches, and the loss distributions of dp-accounting 0.6.0.
"""

from __future__ import annotations

import itertools
import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, hypergeom

from tests import nightly, oracles
from wpriv.accounting.accountants import pld
from wpriv.accounting.mechanisms.discrete_laplace import DiscreteLaplace
from wpriv.accounting.mechanisms.dp import Dp
from wpriv.accounting.mechanisms.exponential import Exponential
from wpriv.accounting.mechanisms.gauss import Gauss, GaussPair
from wpriv.accounting.mechanisms.gdp import Gdp
from wpriv.accounting.mechanisms.laplace import Laplace, LaplacePair
from wpriv.accounting.mechanisms.zcdp import Zcdp
from wpriv.core.group_pairs import (
    FixedGaussGroupPair,
    GaussGroupPair,
    LaplaceGroupPair,
    binomial_weights,
    hypergeometric_weights,
)
from wpriv.core.kinds import FixedSize, Poisson, Sampling
from wpriv.core.process import Process, Step
from wpriv.core.subsampled_pairs import ReplacedGaussPair, fixed, poisson, truncated_poisson
from wpriv.errors import Unsupported, UsageError
from wpriv.papers.mechanisms.projection import Projection

EPS = (-0.5, -1e-3, 0.0, 1e-4, 0.1, 1.0, 5.0)
MU = st.floats(1e-3, 5.0)
RATE = st.one_of(st.floats(1e-9, 0.99), st.floats(-9, -1).map(lambda v: 10**v))
STEP = 0.0005
LINE = np.arange(-14, 22, STEP) + STEP / 2


def gauss_pairs(mu: float, group: int) -> list[GaussPair]:
    return [GaussPair(mu * count) for count in range(1, group + 1)]


def normal(mean: float) -> np.ndarray:
    return np.exp(-((LINE - mean) ** 2) / 2) / math.sqrt(2 * math.pi)


def mixture(weights: np.ndarray, means: np.ndarray) -> np.ndarray:
    return sum(w * normal(mean) for w, mean in zip(weights, means, strict=True))


def divergence(p: np.ndarray, q: np.ndarray, eps: float) -> float:
    return float(np.maximum(p - math.exp(eps) * q, 0).sum() * STEP)


def exact_delta(mu: float, q: float, group: int, eps: float, *, adding: bool) -> mp.mpf:
    """H of the mixture of binomially many records, or of the reverse, in closed form at the root of its loss."""
    mu, q, eps = mp.mpf(mu), mp.mpf(q), mp.mpf(eps)
    weights = [mp.binomial(group, j) * q**j * (1 - q) ** (group - j) for j in range(group + 1)]

    def loss(x: mp.mpf) -> mp.mpf:
        return mp.log(sum(w * mp.e ** (j * mu * x - (j * mu) ** 2 / 2) for j, w in enumerate(weights)))

    target, low, high = (-eps if adding else eps), mp.mpf(-30000), mp.mpf(30000)
    if loss(low) >= target:
        return mp.mpf(0) if adding else 1 - mp.e**eps
    for _ in range(170):
        middle = (low + high) / 2
        low, high = (low, middle) if loss(middle) > target else (middle, high)

    def above(x: mp.mpf) -> mp.mpf:
        return mp.erfc(x / mp.sqrt(2)) / 2

    with_group = sum(w * above((j * mu - low) if adding else (low - j * mu)) for j, w in enumerate(weights))
    without = above(-low if adding else low)
    return without - mp.e**eps * with_group if adding else with_group - mp.e**eps * without


@pytest.mark.parametrize(
    ("mu", "q", "group"), [(1e-3, 0.01, 2), (0.05, 1e-6, 20), (0.25, 0.3, 5), (1.0, 0.01, 3), (4.0, 0.9, 2)]
)
@pytest.mark.parametrize("adding", [False, True])
def test_the_profile_of_a_group_is_that_of_the_binomial_mixture(mu, q, group, adding):
    pair = GaussGroupPair(gauss_pairs(mu, group), q)
    pair = pair.reverse() if adding else pair
    for eps in EPS:
        exact = exact_delta(mu, q, group, eps, adding=adding)
        computed = float(pair.log_delta(eps))
        if exact < mp.mpf("1e-4000"):
            assert computed < -9000
        else:
            assert computed == pytest.approx(float(mp.log(exact)), rel=1e-12, abs=1e-11), eps


@given(mu=MU, q=RATE)
@settings(max_examples=60, deadline=None)
def test_a_group_of_one_is_one_record(mu, q):
    eps = np.array([-0.3, -1e-6, 0.0, 1e-9, 1e-3, 0.5, 4.0])
    for group, single in (
        (GaussGroupPair(gauss_pairs(mu, 1), q), poisson(GaussPair(mu), q)),
        (LaplaceGroupPair([LaplacePair(mu)], q), poisson(LaplacePair(mu), q)),
    ):
        for one, other in ((group, single), (group.reverse(), single.reverse())):
            assert np.exp(one.log_delta(eps)) == pytest.approx(np.exp(other.log_delta(eps)), rel=1e-9, abs=1e-15)
            for a, b in zip(one.probabilities(eps), other.probabilities(eps), strict=True):
                assert a == pytest.approx(b, rel=1e-9, abs=1e-14)


@given(mu=MU, q=RATE, group=st.integers(2, 12))
@settings(max_examples=60, deadline=None)
def test_tails_are_ordered_and_agree_with_the_profile_and_larger_groups_cost_more(mu, q, group):
    eps = np.linspace(-0.2, 3, 40)
    pair, smaller = GaussGroupPair(gauss_pairs(mu, group), q), GaussGroupPair(gauss_pairs(mu, group - 1), q)
    laplace = LaplaceGroupPair([LaplacePair(mu * j) for j in range(1, group + 1)], q)
    for each in (pair, pair.reverse(), laplace, laplace.reverse()):
        tails = each.tails(eps)
        assert not any(np.isnan(tail).any() for tail in tails)
        assert all(
            np.all(np.diff(sign * np.exp(tail)) <= 1e-14) for sign, tail in zip((1, -1, 1, -1), tails, strict=True)
        )
        profile = np.exp(tails.sf_p) - np.exp(eps) * np.exp(tails.sf_q)
        assert np.exp(each.log_delta(eps)) == pytest.approx(profile, rel=1e-7, abs=1e-13)
    assert np.all(pair.log_delta(eps) >= smaller.log_delta(eps) - 1e-9)


@pytest.mark.parametrize(("t", "q"), [(0.1, 0.01), (1.0, 0.4), (3.0, 0.05)])
def test_a_group_with_laplace_noise_is_the_mixture_of_laplace_distributions(t, q):
    weights, _ = binomial_weights(3, q)
    x = np.linspace(-40, 50, 900_001) + 1e-7

    def density(centre: float) -> np.ndarray:
        return np.exp(-np.abs(x - centre)) / 2

    p, base = sum(w * density(j * t) for j, w in enumerate(weights)), density(0.0)
    pair = LaplaceGroupPair([LaplacePair(t * j) for j in (1, 2, 3)], q)
    for eps in (-0.3, 0.0, 0.05, 0.3, 1.0, 2.0):
        for one, other, each in ((p, base, pair), (base, p, pair.reverse())):
            exact = np.maximum(one - math.exp(eps) * other, 0).sum() * 1e-4
            assert math.exp(each.log_delta(eps)) == pytest.approx(exact, abs=2e-6)


@given(
    angles=st.lists(st.floats(0, 2 * math.pi), min_size=3, max_size=3),
    lengths=st.lists(st.floats(0, 1), min_size=3, max_size=3),
    mu=st.floats(0.2, 2.5),
    q=st.floats(0.05, 0.95),
    eps=st.floats(-0.5, 2.0),
)
@settings(max_examples=40, deadline=None)
def test_no_directions_of_three_records_in_the_plane_are_worse_than_one_common_direction(angles, lengths, mu, q, eps):
    grid = np.arange(-8, 8, 0.05)
    a, b = np.meshgrid(grid, grid)
    base = np.exp(-(a * a + b * b) / 2) / (2 * math.pi)
    vectors = [mu * r * np.array([math.cos(v), math.sin(v)]) for r, v in zip(lengths, angles, strict=True)]
    released = np.zeros_like(base)
    for taken in itertools.product((0, 1), repeat=3):
        shift = sum((t * v for t, v in zip(taken, vectors, strict=True)), np.zeros(2))
        weight = q ** sum(taken) * (1 - q) ** (3 - sum(taken))
        released += weight * np.exp(-((a - shift[0]) ** 2 + (b - shift[1]) ** 2) / 2) / (2 * math.pi)
    pair = GaussGroupPair(gauss_pairs(mu, 3), q)
    for one, other, each in ((released, base, pair), (base, released, pair.reverse())):
        observed = np.maximum(one - math.exp(eps) * other, 0).sum() * 0.05**2
        assert observed <= math.exp(each.log_delta(eps)) + 2e-4


def test_a_group_at_rate_one_has_that_many_times_the_sensitivity():
    for sampling in (Poisson(1.0), FixedSize(1.0), Sampling()):
        process = Process((Step(Gauss(4.0), 10, sampling),), group=3)
        alone = Process((Step(Gauss(4.0, 3.0), 10, sampling),))
        assert pld.account(process).at(delta=1e-5).epsilon == pld.account(alone).at(delta=1e-5).epsilon


@pytest.mark.parametrize(
    ("step", "alone"),
    [
        (Laplace(20.0), Laplace(20.0, 3.0)),
        (Gdp(0.5), Gdp(1.5)),
        (Dp(0.2), DiscreteLaplace(5.0, 3)),
        (Exponential(0.2), Exponential(0.2 * 3)),
    ],
)
def test_guarantees_of_one_record_give_guarantees_of_groups(step, alone):
    group, other = Process((Step(step, 20),), group=3), Process((Step(alone, 20),))
    assert pld.account(group).at(delta=1e-6).epsilon == pld.account(other).at(delta=1e-6).epsilon


def test_rho_of_a_group_is_its_square_times_that_of_a_record():
    assert Zcdp(0.01).grouped(3).rho == pytest.approx(0.09)


@pytest.mark.parametrize(
    ("sigma", "q", "n", "group", "delta", "eps"),
    [
        # dp-accounting 0.6.0, from_mixture_gaussian_mechanism, pessimistic, connect-dots, interval 1e-4
        (1.1, 256 / 60000, 14040, 2, 1e-5, 5.2600312904762525),
        (1.1, 256 / 60000, 14040, 4, 1e-5, 12.135164311437522),
        (4.0, 0.01, 1000, 3, 1e-6, 1.0373985334072748),
        (0.8, 0.3, 20, 2, 1e-6, 37.67910194520955),
    ],
)
def test_compositions_agree_with_another_library(sigma, q, n, group, delta, eps):
    bracket = pld.account(Process((Step(Gauss(sigma), n, Poisson(q)),), group=group), tol=1e-6).at(delta=delta).epsilon
    assert bracket.lower <= eps
    assert bracket.upper == pytest.approx(eps, rel=2e-5)


def log_moment(upper: np.ndarray, lower: np.ndarray) -> oracles.LogMoment:
    """ln E_P[(P/Q)^s] of densities on LINE, without cancellation near 0."""
    with np.errstate(divide="ignore"):
        ratio = np.log(upper) - np.log(lower)
    weight = lower * STEP

    def at(s: np.ndarray) -> np.ndarray:
        power = (s + 1)[:, None]
        growth = np.exp(np.minimum((power * ratio).real, 600) + 1j * (power * ratio).imag)
        return np.log1p((growth - 1 - power * np.expm1(ratio)) @ weight)

    return at


@pytest.mark.slow
@pytest.mark.parametrize("adding", [False, True])
@pytest.mark.parametrize(
    ("sigma", "q", "n", "group", "eps"), nightly.sharded([(1.5, 0.2, 8, 2, 1.0), (2.0, 0.05, 40, 3, 2.0)], 2)
)
def test_compositions_of_groups_are_bracketed(sigma, q, n, group, eps, adding):
    weights, _ = binomial_weights(group, q)
    with_group, without = mixture(weights, np.arange(group + 1) / sigma), normal(0.0)
    steps = [(log_moment(without, with_group) if adding else log_moment(with_group, without), n)]
    pair = GaussGroupPair(gauss_pairs(1 / sigma, group), q)
    exact = oracles.contour_delta(steps, eps, rtol=1e-8)
    from wpriv.accounting.pld.composition import Composition

    low, high = Composition([(pair.reverse() if adding else pair, n)]).delta(eps, 1e-6)
    assert low * (1 - 1e-7) <= exact <= high * (1 + 1e-7)


@given(mu=MU, share=st.integers(1, 99))
@settings(max_examples=60, deadline=None)
def test_a_fixed_size_group_of_one_is_one_record(mu, share):
    eps = np.array([-2.0, -0.1, -1e-9, 0.0, 1e-9, 1e-3, 0.5, 4.0])
    group, single = FixedGaussGroupPair(gauss_pairs(mu, 1), share, 100), fixed(GaussPair(mu), share / 100)
    assert np.exp(group.log_delta(eps)) == pytest.approx(np.exp(single.log_delta(eps)), rel=1e-9, abs=1e-15)
    for a, b in zip(group.probabilities(eps), single.probabilities(eps), strict=True):
        assert a == pytest.approx(b, rel=1e-9, abs=1e-14)


@pytest.mark.parametrize(("group", "batch", "records"), [(3, 10, 60000), (5, 6, 9), (4, 2, 1000), (2, 8, 9)])
def test_a_batch_holds_hypergeometrically_many_records_of_a_group(group, batch, records):
    expected = hypergeom.pmf(np.arange(group + 1), records, group, batch)
    assert hypergeometric_weights(group, batch, records) == pytest.approx(expected, rel=1e-9)


@given(
    records=st.lists(st.floats(0, 1), min_size=7, max_size=7),
    batch=st.integers(1, 4),
    mu=st.floats(0.3, 3.0),
    eps=st.floats(-1, 2),
)
@settings(max_examples=60, deadline=None)
def test_sums_of_fixed_size_batches_on_data_sets_with_two_replaced_records_are_dominated(records, batch, mu, eps):
    others, first, second = records[:3], records[3:5], records[5:]

    def output(group: list[float]) -> np.ndarray:
        sums = [mu * sum(chosen) for chosen in itertools.combinations((*others, *group), batch)]
        return np.mean([normal(each) for each in sums], axis=0)

    pair = FixedGaussGroupPair(gauss_pairs(mu, 2), batch, 5)
    observed = divergence(output(first), output(second), eps)
    assert observed <= math.exp(pair.log_delta(eps)) + 1e-6


@pytest.mark.parametrize(("mu", "batch", "records", "group"), [(1.0, 10, 1000, 3), (0.5, 500, 1000, 2), (2.0, 3, 7, 4)])
def test_the_pair_of_a_fixed_size_group_is_attained_at_zero_and_dominates_the_aligned_mixture(
    mu, batch, records, group
):
    weights = hypergeom.pmf(np.arange(group + 1), records, group, batch)
    shifts = mu * np.arange(group + 1)
    pair = FixedGaussGroupPair(gauss_pairs(mu, group), batch, records)
    centred = divergence(mixture(weights, shifts / 2), mixture(weights, -shifts / 2), 0.0)
    assert math.exp(pair.log_delta(0.0)) == pytest.approx(centred, abs=1e-6)
    for eps in (0.0, 0.1, 0.5, 1.0, 3.0):
        aligned = divergence(mixture(weights, shifts), normal(0.0), eps)
        assert aligned <= math.exp(pair.log_delta(eps)) + 1e-7


@given(mu=MU, q=RATE)
@settings(max_examples=60, deadline=None)
def test_the_pair_of_a_replaced_record_is_two_mirrored_mixtures(mu, q):
    pair = ReplacedGaussPair(GaussPair(mu), mu, q)
    p, other = mixture((1 - q, q), (0.0, mu)), mixture((1 - q, q), (0.0, -mu))
    eps = np.array([-1.0, -0.01, 0.0, 1e-3, 0.3, 2.0])
    tails = pair.tails(eps)
    for at, each in enumerate(eps):
        exact = divergence(p, other, each)
        assert math.exp(pair.log_delta(each)) == pytest.approx(exact, abs=1e-6)
        assert math.exp(tails.sf_p[at]) - math.exp(each) * math.exp(tails.sf_q[at]) == pytest.approx(exact, abs=1e-6)


@given(
    angles=st.lists(st.floats(0, 2 * math.pi), min_size=2, max_size=2),
    lengths=st.lists(st.floats(0, 1), min_size=2, max_size=2),
    mu=st.floats(0.2, 2.5),
    q=st.floats(0.05, 0.95),
    eps=st.floats(-0.5, 2.0),
)
@settings(max_examples=40, deadline=None)
def test_no_two_records_in_the_plane_are_worse_to_replace_than_opposite_ones(angles, lengths, mu, q, eps):
    grid = np.arange(-8, 8, 0.05)
    a, b = np.meshgrid(grid, grid)

    def density(at: np.ndarray) -> np.ndarray:
        return np.exp(-((a - at[0]) ** 2 + (b - at[1]) ** 2) / 2) / (2 * math.pi)

    ends = [mu * r * np.array([math.cos(v), math.sin(v)]) for r, v in zip(lengths, angles, strict=True)]
    p, other = ((1 - q) * density(np.zeros(2)) + q * density(end) for end in ends)
    observed = np.maximum(p - math.exp(eps) * other, 0).sum() * 0.05**2
    assert observed <= math.exp(ReplacedGaussPair(GaussPair(mu), mu, q).log_delta(eps)) + 2e-4


def test_the_profile_of_a_replaced_record_is_a_number_at_infinite_and_at_huge_eps():
    pair = ReplacedGaussPair(GaussPair(0.5), 0.5, 0.1)
    assert pair.log_delta(np.array([np.inf, 1e200])).tolist() == [-np.inf, -np.inf]
    assert pair.log_delta(np.array([-np.inf, -1e200])).tolist() == [0.0, 0.0]


def test_replacing_a_record_at_rate_one_is_the_step_without_sampling():
    sampled = Process((Step(Gauss(4.0, 2.0), 10, Poisson(1 - 1e-13)),), "replace-one")
    plain = Process((Step(Gauss(4.0, 2.0), 10),), "replace-one")
    eps = pld.account(sampled, tol=1e-6).epsilon(delta=1e-5)
    assert eps == pytest.approx(pld.account(plain).epsilon(delta=1e-5), rel=1e-5)


def test_the_pair_of_a_large_group_at_a_small_rate_is_right_where_its_weights_underflow():
    """Oracle: the terms of up to 4 of 64 records, of which a fifth has a probability of 1e-28, in mpmath."""
    pair = GaussGroupPair([GaussPair(float(j)) for j in range(1, 65)], 1e-7)
    eps = np.array([-1e-7, 0.0, 1e-9, 1e-5, 1e-2, 1.0, 40.0, 600.0])
    with np.errstate(all="raise", under="ignore"):
        values = pair.log_delta(eps), pair.reverse().log_delta(eps), *pair.tails(eps)
    assert not any(np.isnan(value).any() for value in values)
    q = mp.mpf(1e-7)
    weights = {j: mp.binomial(64, j) * q**j * (1 - q) ** (64 - j) for j in range(1, 5)}

    def excess(x: mp.mpf) -> mp.mpf:
        return sum(w * mp.expm1(j * x - mp.mpf(j * j) / 2) for j, w in weights.items())

    for y in eps[:4]:
        growth = mp.expm1(mp.mpf(y))
        x = mp.findroot(lambda x, goal=growth: (excess(x) - goal) / q, 0.5)
        exact = sum(w * (mp.ncdf(j - x) - mp.ncdf(-x)) for j, w in weights.items()) - growth * mp.ncdf(-x)
        assert math.exp(float(pair.log_delta(y))) == pytest.approx(float(exact), rel=1e-9)


def truncated_output(q: float, max_batch: int, others: tuple[float, ...], record: float | None) -> np.ndarray:
    """The output density of a sum of a truncated Poisson batch, over all draws and all ways to cut them."""
    values = (*others, *(() if record is None else (record,)))
    density = np.zeros_like(LINE)
    for taken in itertools.product((0, 1), repeat=len(values)):
        drawn = [value for value, t in zip(values, taken, strict=True) if t]
        weight = q ** len(drawn) * (1 - q) ** (len(values) - len(drawn))
        kept = list(itertools.combinations(drawn, min(max_batch, len(drawn))))
        for each in kept:
            density += weight / len(kept) * normal(sum(each))
    return density


@pytest.mark.parametrize("q", [0.2, 0.7])
@pytest.mark.parametrize("max_batch", [1, 2, 3])
@pytest.mark.parametrize("eps", [-0.5, 0.0, 0.5, 1.5])
def test_the_two_pairs_of_a_largest_batch_enclose_the_worst_records(q, max_batch, eps):
    low, high = truncated_poisson(GaussPair(1.0), GaussPair(2.0), q, max_batch, 5).sandwich(1e-6)
    observed = []
    for others in ((0.0,) * 4, (-1.0,) * 4, (1.0,) * 4, (-1.0, 0.5, 0.0, 1.0)):
        p, base = truncated_output(q, max_batch, others, 1.0), truncated_output(q, max_batch, others, None)
        observed.append((divergence(p, base, eps), divergence(base, p, eps)))
    removed, added = np.max(observed, axis=0)
    assert math.exp(low.log_delta(eps)) - 1e-6 <= removed <= math.exp(high.log_delta(eps)) + 1e-6
    assert math.exp(low.reverse().log_delta(eps)) - 1e-6 <= added <= math.exp(high.reverse().log_delta(eps)) + 1e-6
    # the dominated pair is that of records that contribute nothing besides the one
    assert math.exp(low.log_delta(eps)) == pytest.approx(observed[0][0], abs=1e-5)


def test_a_largest_batch_of_all_records_changes_nothing_and_smaller_ones_cost_more():
    plain = Process((Step(Gauss(4.0), 1000, Poisson(0.01)),))

    def eps(max_batch: int) -> tuple[float, float]:
        cut = Process((Step(Gauss(4.0), 1000, Poisson(0.01, max_batch)),), records=60000)
        bracket = pld.account(cut).at(delta=1e-6).epsilon
        return bracket.lower, bracket.upper

    assert eps(60000) == tuple(getattr(pld.account(plain).at(delta=1e-6).epsilon, end) for end in ("lower", "upper"))
    uppers = [eps(size)[1] for size in (610, 640, 700, 800)]
    assert uppers == sorted(uppers, reverse=True)
    assert eps(800)[1] == pytest.approx(eps(60000)[1], rel=2e-3)


def test_a_largest_batch_of_all_draws_is_a_replaced_record():
    low, high = truncated_poisson(GaussPair(1.0), GaussPair(2.0), 1.0, 5, 10).sandwich(1e-6)
    assert high == GaussPair(2.0)
    assert math.exp(low.log_delta(0.1)) == pytest.approx(math.exp(poisson(GaussPair(1.0), 0.5).log_delta(0.1)))


def test_the_chance_of_a_full_batch_is_binomial():
    high = truncated_poisson(GaussPair(1.0), GaussPair(2.0), 0.01, 640, 60000).sandwich(1e-6)[1]
    assert high.chance == pytest.approx(binom.sf(639, 59999, 0.01), rel=1e-5)
    assert high.chance >= binom.sf(639, 59999, 0.01)


@pytest.mark.parametrize(
    ("records", "rate", "max_batch"), [(10**9, 1e-3, 1_010_000), (2**40, 2.0**-32, 400), (2**40, 2.0**-20, 1_060_000)]
)
def test_the_chance_of_a_full_batch_keeps_its_digits_for_very_many_records(records, rate, max_batch):
    """Oracle: the sum of the binomial probabilities from the first one on, in mpmath."""
    high = truncated_poisson(GaussPair(1.0), GaussPair(2.0), rate, max_batch, records).sandwich(1e-6)[1]
    others, k, q = records - 1, max_batch, mp.mpf(rate)
    choose = mp.loggamma(others + 1) - mp.loggamma(k + 1) - mp.loggamma(others - k + 1)
    term, exact = mp.exp(choose + k * mp.log(q) + (others - k) * mp.log1p(-q)), mp.mpf(0)
    while term > exact * 1e-12:
        exact, term, k = exact + term, term * q / (1 - q) * (others - k) / (k + 1), k + 1
    assert exact <= high.chance <= exact * (1 + 3e-6)


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: Process((Step(Projection(d=5, k=2, sigma=1.0)),), group=2), "projection has no guarantee for groups"),
        (lambda: Process((Step(Dp(0.1, 1e-6)),), group=3), "delta0 = 3.3"),
        (lambda: Process((Step(Dp(0.1), 1, Poisson(0.1)),), group=2), "at rate 0.19"),
        (lambda: Process((Step(Gauss(1.0), 1, Poisson(0.1)),), group=65), "up to 64 records"),
        (lambda: Process((Step(Gauss(1.0), 10, Sampling("allocation", 0.1)),), group=2), "allocation sampling for"),
        (lambda: Process((Step(Gauss(1.0), 1, Poisson(0.1)),), "replace-one", group=2), "add-remove"),
        (lambda: Process((Step(Laplace(1.0), 1, Poisson(0.1)),), "replace-one"), "Gaussian noise"),
        (lambda: Process((Step(Gauss(1.0), 1, Poisson(0.1, 50)),), "replace-one", records=100), "largest batch"),
        (lambda: Process((Step(Gauss(1.0), 1, Poisson(0.1, 50)),), group=2, records=100), "`group` and `max_batch`"),
        (lambda: Process((Step(Dp(1.0), 1, Poisson(0.1, 50)),), records=100), "query, Laplace noise on a query"),
    ],
)
def test_what_has_no_proof_is_refused(build, words):
    with pytest.raises(Unsupported, match=words):
        build()


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: Process((Step(Gauss(1.0)),), group=0), "`group` must be a whole number from 1"),
        (lambda: Process((Step(Gauss(1.0)),), group=1.5), "`group`"),
        (lambda: Process((Step(Gauss(1.0), 1, Poisson(0.1, 50)),)), "needs `records`"),
        (lambda: Process((Step(Gauss(1.0), 1, FixedSize(0.1)),), group=2), "give `batch` with `records`"),
        (lambda: Process((Step(Gauss(1.0), 1, FixedSize(0.1)),), group=2, records=55), "give `batch` with `records`"),
        (lambda: Sampling("fixed", 0.1, 5), "`max_batch`"),
        (lambda: Poisson(0.1, -1), "`max_batch`"),
    ],
)
def test_faulty_groups_and_batches_are_refused(build, words):
    with pytest.raises(UsageError, match=words):
        build()
