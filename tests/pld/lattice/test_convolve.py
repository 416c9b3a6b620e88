"""Composition of lattice PMFs against direct convolution and binomial sums."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import gammaln

from wpriv.errors import Unsupported
from wpriv.pld import constants
from wpriv.pld.lattice.convolve import (
    _coarsen,
    _coarsen_optimistic,
    _or_point_mass,
    block_error_share,
    compose_pmfs,
    with_tail_sums,
)
from wpriv.pld.lattice.lattice_pmf import LatticePmf, reach
from wpriv.pld.lattice.spectra import fast_length


def tilted(index: np.ndarray, mass: np.ndarray, step: float, tilt: float) -> LatticePmf:
    weight = mass * np.exp(tilt * index * step)
    return LatticePmf(index, weight / weight.sum(), math.log(weight.sum()))


def delta_of(y: np.ndarray, mass: np.ndarray, eps: float) -> float:
    above = y > eps
    return math.fsum((mass[above] * -np.expm1(eps - y[above])).tolist())


def direct(parts: list[tuple[np.ndarray, np.ndarray, int]], step: float) -> tuple[np.ndarray, np.ndarray]:
    """Losses and masses of the sum, by n - 1 convolutions term by term (no FFT, no tilt)."""
    low, whole = 0, np.ones(1)
    for index, mass, n in parts:
        dense = np.bincount(index - index[0], weights=mass)
        for _ in range(n):
            whole = np.convolve(whole, dense)
        low += n * int(index[0])
    return (low + np.arange(whole.size)) * step, whole


def random_pmf(rng: np.random.Generator, most: int = 12) -> tuple[np.ndarray, np.ndarray]:
    index = np.unique(rng.integers(-15, 16, int(rng.integers(1, most))))
    mass = rng.random(index.size) ** 3 + 1e-6
    return index, mass / mass.sum()


def bracket(pmfs, counts, step, tilt, stages, *, coarse_jumps=(), infinity=0.0, tail=1e-14):
    sides = [
        compose_pmfs(
            pmfs,
            counts,
            step,
            tilt,
            stages,
            coarse_jumps=list(coarse_jumps),
            upper=upper,
            log_finite=math.log1p(-infinity),
            tail=tail,
        )
        for upper in (False, True)
    ]
    return lambda eps: (sides[0].delta(eps, -1), sides[1].delta(eps, +1))


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_one_stage_is_the_convolution_up_to_its_slack(seed):
    rng = np.random.default_rng(seed)
    step, tilt = 10 ** rng.uniform(-4, -0.5), float(rng.choice([0.0, rng.uniform(0, 3)]))
    parts = [(*random_pmf(rng), int(rng.integers(1, 20))) for _ in range(int(rng.integers(1, 4)))]
    infinity = float(rng.choice([0.0, 0.01]))
    pmfs = [tilted(index, mass, step, tilt) for index, mass, _ in parts]
    pmfs[0] = replace(pmfs[0], log_norm=pmfs[0].log_norm + math.log1p(-infinity) / parts[0][2])
    ask = bracket(pmfs, [n for *_, n in parts], step, tilt, [(1, 1)], infinity=infinity)
    y, mass = direct(parts, step)
    for eps in rng.choice(y, 6) + step * rng.choice([0.0, 0.3], 6):
        exact = delta_of(y, mass, float(eps)) * (1 - infinity) + infinity
        low, high = ask(float(eps))
        assert low <= exact * (1 + 1e-13)
        assert exact * (1 - 1e-13) <= high
        centre = sum(n * float(pmf.mass @ pmf.losses(step)) for pmf, (*_, n) in zip(pmfs, parts, strict=True))
        if abs(eps - centre) < 2 * step and exact > 1e-6:  # near the middle of the tilted PMF nothing is lost
            assert high - low <= 1e-9 * exact + 1e-11 * (1 + tilt)  # the slack is some 1e-12, whatever delta is


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_staged_brackets_hold_the_convolution(seed):
    """Several PMFs, uneven counts, two or three stages, merged cells: the exact delta stays inside."""
    rng = np.random.default_rng(seed)
    step, tilt = 10 ** rng.uniform(-4, -1.5), float(rng.choice([0.0, rng.uniform(0, 5)]))
    parts = [(*random_pmf(rng), int(rng.integers(1, 60))) for _ in range(int(rng.integers(1, 4)))]
    most = max(n for *_, n in parts)
    blocks = sorted({int(rng.integers(2, 30)), int(rng.integers(2, 30))} & set(range(most + 1)), reverse=True)
    stages = [(number, int(rng.integers(1, 5))) for number in blocks] + [(1, 1)]
    ask = bracket([tilted(i, m, step, tilt) for i, m, _ in parts], [n for *_, n in parts], step, tilt, stages)
    y, mass = direct(parts, step)
    for eps in rng.choice(y[mass > 1e-20], 5):
        exact = delta_of(y, mass, float(eps))
        low, high = ask(float(eps))
        assert low <= exact * (1 + 1e-12)
        assert exact * (1 - 1e-12) <= high


@pytest.mark.slow
@pytest.mark.parametrize("tilt", [0.0, 3.0, 15.0])
def test_binomial_walks_of_a_million_steps(tilt):
    # oracle: the binomial distribution of n steps of +-h, P(+) = e^h/(1 + e^h), from log gamma
    n, h = 10**6, 1e-3
    p = 1 / (1 + math.exp(-h))
    k = np.arange(n + 1.0)
    log_mass = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1) + k * math.log(p) + (n - k) * math.log1p(-p)
    y = h * (2 * k - n)
    pmf = tilted(np.array([-1, 1]), np.array([1 - p, p]), h, tilt)
    ask = bracket([pmf], [n], h, tilt, [(1, 1)], tail=1e-18)
    mean = n * h * math.tanh(h * (tilt + 0.5))
    for eps in (mean, mean + 1.0, max(mean - 1.0, 0.0)):
        exact = delta_of(y, np.exp(log_mass), eps)
        low, high = ask(eps)
        assert low * (1 - 3e-9) <= exact <= high * (1 + 3e-9)  # log gamma is good to 1e-9 here
        assert high - low <= 6e-6 * exact  # n roundings of the transform, all in the same direction


def test_a_tiny_delta_keeps_its_relative_accuracy():
    # delta near 1e-97: out of reach of any untilted FFT
    h, n, p = 0.1, 4000, 1 / (1 + math.exp(-0.1))
    y, mass = direct([(np.array([-1, 1]), np.array([1 - p, p]), n)], h)
    tilt = 4.0
    ask = bracket([tilted(np.array([-1, 1]), np.array([1 - p, p]), h, tilt)], [n], h, tilt, [(1, 1)], tail=1e-16)
    eps = 150.0
    exact = delta_of(y, mass, eps)
    low, high = ask(eps)
    assert exact < 1e-95
    assert low <= exact * (1 + 1e-11)
    assert exact <= high * (1 + 1e-11)
    assert high - low <= 3e-6 * exact


def test_coarse_jumps_count_like_any_other_losses():
    step, tilt = 0.01, 1.0
    first, jump = (np.array([-1, 0, 1]), np.array([0.2, 0.5, 0.3])), (np.array([0, 40]), np.array([0.999, 0.001]))
    stages = [(5, 2), (1, 1)]
    coarse = tilted(jump[0], jump[1], 2 * step, tilt)
    ask = bracket([tilted(*first, step, tilt)], [40], step, tilt, stages, coarse_jumps=[(coarse, 40)])
    y, mass = direct([(*first, 40), (np.array([0, 80]), jump[1], 40)], step)
    for eps in (0.0, 0.2, 0.9):
        low, high = ask(eps)
        exact = delta_of(y, mass, eps)
        assert low <= exact <= high
        assert high - low <= 0.1 * exact


def test_eps_beyond_every_loss_leaves_only_the_mass_at_infinity():
    ask = bracket([tilted(np.array([-1, 1]), np.array([0.4, 0.6]), 0.1, 0.0)], [10], 0.1, 0.0, [(1, 1)], infinity=0.25)
    low, high = ask(1.01)
    assert low <= 0.25 <= high
    assert high - low < 1e-10


def test_an_infinite_slack_leaves_the_trivial_bracket_at_every_eps():
    index, mass = np.arange(-5, 6), np.full(11, 1 / 11)
    side = replace(with_tail_sums(LatticePmf(index, mass, 0.0), 0.1, 20.0, 1e-9, 0.0, 0.0), slack=math.inf)
    for eps in (-1.0, 0.0, 5.0, 40.0, 1e4):  # from 38 on the factor of the slack underflows
        assert side.delta(eps, +1) == 1.0
        assert side.delta(eps, -1) == 1e-9


@pytest.mark.parametrize(("deviation", "tilt"), [(1e-9, 0.0), (1e-6, 0.0), (1e-6, 1e6), (0.5, 4.0), (60.0, 0.5)])
def test_sums_over_a_window_are_within_their_rounding_of_exact_ones(deviation, tilt):
    # oracle: math.fsum; of narrow PMFs the P-mass above eps exceeds delta by many orders of magnitude
    index = np.arange(-2048, 2048)
    step = deviation / 200
    y = index * step
    mass = np.exp(-((y / deviation) ** 2) / 2) * (1 + 0.1 * np.sin(1.7 * index))
    mass /= mass.sum()
    side = with_tail_sums(LatticePmf(index, mass, -1.0), step, tilt, 0.0, 0.0, 0.0)
    assert (side.above.size > 0) == (deviation < 1)
    for eps in np.array([-2.0, -1.0, 0.001, 0.5, 2.0, 4.0]) * deviation:
        above = y > eps
        weight = mass[above] * np.exp(-tilt * y[above] - 1.0)
        exact = math.fsum((weight * -np.expm1(eps - y[above])).tolist())
        low, high = side.delta(float(eps), -1), side.delta(float(eps), +1)
        assert low <= exact <= high or exact > 1
        assert high - low < 1e-11 * exact or exact > 1


def test_a_window_that_does_not_fit_is_refused():
    pmf = LatticePmf(np.array([-1, 1]), np.array([0.5, 0.5]), 0.0)
    with pytest.raises(Unsupported, match="tol"):
        compose_pmfs(
            [pmf],
            [constants.MAX_WINDOW_CELLS**2],
            1.0,
            0.0,
            [(1, 1)],
            coarse_jumps=[],
            upper=True,
            log_finite=0.0,
            tail=1e-9,
        )


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_reach_leaves_no_more_than_its_tail(seed):
    # oracle: the exact PMF of the sum by convolution
    rng = np.random.default_rng(seed)
    parts = [(*random_pmf(rng), int(rng.integers(1, 15))) for _ in range(2)]
    points = [(index * 0.1, mass[None]) for index, mass, _ in parts]
    moments = [(m @ y, m @ (y - m @ y) ** 2) for y, m in points]
    counts, tail = [np.array([n]) for *_, n in parts], 10 ** rng.uniform(-12, -2)
    left, right = reach(points, moments, counts, -math.log(tail))
    y, mass = direct(parts, 0.1)
    mean = sum(float(n @ mu) for n, (mu, _) in zip(counts, moments, strict=True))
    assert mass[y < mean - left - 1e-9].sum() <= tail * (1 + 1e-9)
    assert mass[y > mean + right + 1e-9].sum() <= tail * (1 + 1e-9)


def test_fast_lengths_are_long_enough_and_smooth():
    for n in [*range(1, 700), 12345, 10**6 + 1, constants.MAX_WINDOW_CELLS]:
        size = fast_length(n)
        assert n <= size
        assert size < 2 * n or n <= 2
        for prime in (2, 3, 5):
            while size % prime == 0:
                size //= prime
        assert size == 1


def test_coarsening_keeps_a_block_of_large_losses_alone():
    # its Q-mass vanishes beside its P-mass: ln(Q / P) is far below zero, where rounding could make it ln of zero
    index = np.concatenate([[-1], np.arange(400, 420)])
    mass = np.append(1e-280, np.full(20, 0.05))
    pmf = LatticePmf(index, mass, 0.0)
    coarse = _coarsen(pmf, 0.1, 4, 1.0, upper=False)
    assert _or_point_mass(pmf, coarse, 0.1, 4, 1.0) == (coarse, 0.0)


def test_optimistic_coarsening_ignores_far_ends_of_rounding():
    # oracle: the same PMF without its ends; noise of 1e-17 beyond a sharp upper edge leaves the convex minorant no room
    rng = np.random.default_rng(8)
    index = np.arange(-3000, 3000)
    bell = np.where(index < 60, np.exp(-np.abs(index - 50.0) / 12) + 1e-9 * np.exp(index / 400), 0.0)
    pmf = LatticePmf(index, bell / bell.sum(), 0.0)
    noisy = LatticePmf(index, pmf.mass + 1e-17 * rng.random(index.size), 0.0)
    step, factor = 1e-6, 30
    plain, kept = (
        _coarsen(noisy, step, factor, 20.0, upper=False),
        _coarsen_optimistic(noisy, step, factor, 20.0, 1e-13)[0],
    )
    clean = _coarsen(pmf, step, factor, 20.0, upper=False)
    means = [float(found.moments(step * factor)[0][0]) / (step * factor) for found in (plain, kept, clean)]
    assert means[0] < means[2] - 0.5
    assert abs(means[1] - means[2]) < 0.01


@pytest.mark.parametrize("seed", range(5))
def test_blocks_that_take_part_in_a_long_sum_cannot_concentrate_it(seed):
    # the sum of half of the others: its largest mass in an interval as wide as a block, by exact convolution
    rng = np.random.default_rng(seed)
    index, mass = random_pmf(rng)
    count, width = 4000, float(index[-1] - index[0])
    dense = np.bincount(index - index[0], weights=mass)
    size = fast_length((count // 2) * dense.size)
    whole = np.maximum(np.fft.irfft(np.fft.rfft(dense, size) ** (count // 2), size), 0.0)
    up_to = np.append(0.0, np.cumsum(whole))
    span = int(width) + 1
    concentration = float(np.max(up_to[span:] - up_to[:-span]))
    share = block_error_share(LatticePmf(index, mass, 0.0), count, 1.0, width)
    assert concentration * (1 - 1e-9) <= share
    if index.size > 1:
        assert share <= 2 * concentration + 0.15
    assert block_error_share(LatticePmf(index, mass, 0.0), 1, 1.0, width) == 1.0
