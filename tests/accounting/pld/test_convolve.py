"""Composition of lattice PMFs against direct convolution and binomial sums."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import gammaln

from tests import nightly
from wpriv.accounting.mechanisms.gauss import GaussPair
from wpriv.accounting.mechanisms.laplace import LaplacePair
from wpriv.accounting.pld import constants
from wpriv.accounting.pld.lattice import (
    LatticePmf,
    _product,
    _with_atoms_on_nodes,
    check_cells,
    compose_window,
    fast_length,
    integer_power,
    reach,
    spectrum,
    transform_error,
    with_tail_sums,
)
from wpriv.accounting.pld.saddle_point import group_pairs
from wpriv.errors import Unsupported


def tilted(
    index: np.ndarray, mass: np.ndarray, step: float, tilt: float, n: int = 1, infinity: float = 0.0
) -> LatticePmf:
    """The PMF of a step, of which n have an infinite loss with probability ``infinity``."""
    weight = mass * np.exp(tilt * index * step)
    infinite = -math.expm1(math.log1p(-infinity) / n)
    log_norm = math.log(weight.sum()) + math.log1p(-infinite)
    return LatticePmf(index, weight[None] / weight.sum(), np.array([log_norm]), np.array([n]), np.array([infinite]))


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


def bracket(pmfs, step, tilt, *, tail=1e-14):
    side = compose_window(pmfs, step, tilt, tail, _product)
    return lambda eps: (side.delta(eps, -1), side.delta(eps, +1))


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_a_window_is_the_convolution_up_to_its_slack(seed):
    rng = np.random.default_rng(seed)
    step, tilt = 10 ** rng.uniform(-4, -0.5), float(rng.choice([0.0, rng.uniform(0, 3)]))
    parts = [(*random_pmf(rng), int(rng.integers(1, 20))) for _ in range(int(rng.integers(1, 4)))]
    infinity = float(rng.choice([0.0, 0.01]))
    pmfs = [tilted(*part[:2], step, tilt, part[2], infinity if part is parts[0] else 0.0) for part in parts]
    ask = bracket(pmfs, step, tilt)
    y, mass = direct(parts, step)
    for eps in rng.choice(y, 6) + step * rng.choice([0.0, 0.3], 6):
        exact = delta_of(y, mass, float(eps)) * (1 - infinity) + infinity
        low, high = ask(float(eps))
        assert low <= exact * (1 + 1e-13)
        assert exact * (1 - 1e-13) <= high
        centre = sum(n * float(pmf.mass[0] @ pmf.losses(step)) for pmf, (*_, n) in zip(pmfs, parts, strict=True))
        if abs(eps - centre) < 2 * step and exact > 1e-6:  # near the middle of the tilted PMF nothing is lost
            assert high - low <= 1e-9 * exact + 1e-11 * (1 + tilt)  # the slack is some 1e-12, whatever delta is


@pytest.mark.slow
@pytest.mark.parametrize("tilt", [0.0, 3.0, 15.0])
def test_binomial_walks_of_a_million_steps(tilt):
    # oracle: the binomial distribution of n steps of +-h, P(+) = e^h/(1 + e^h), from log gamma
    n, h = 10**6, 1e-3
    p = 1 / (1 + math.exp(-h))
    k = np.arange(n + 1.0)
    log_mass = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1) + k * math.log(p) + (n - k) * math.log1p(-p)
    y = h * (2 * k - n)
    pmf = tilted(np.array([-1, 1]), np.array([1 - p, p]), h, tilt, n)
    ask = bracket([pmf], h, tilt, tail=1e-18)
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
    ask = bracket([tilted(np.array([-1, 1]), np.array([1 - p, p]), h, tilt, n)], h, tilt, tail=1e-16)
    eps = 150.0
    exact = delta_of(y, mass, eps)
    low, high = ask(eps)
    assert exact < 1e-95
    assert low <= exact * (1 + 1e-11)
    assert exact <= high * (1 + 1e-11)
    assert high - low <= 3e-6 * exact


def test_eps_beyond_every_loss_leaves_only_the_mass_at_infinity():
    ask = bracket([tilted(np.array([-1, 1]), np.array([0.4, 0.6]), 0.1, 0.0, 10, 0.25)], 0.1, 0.0)
    low, high = ask(1.01)
    assert low <= 0.25 <= high
    assert high - low < 1e-10


def test_an_infinite_slack_leaves_the_trivial_bracket_at_every_eps():
    index, mass = np.arange(-5, 6), np.full(11, 1 / 11)
    side = with_tail_sums(0.1, 20.0, index, mass, 0.0, infinity=1e-9, slack=math.inf)
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
    side = with_tail_sums(step, tilt, index, mass, -1.0, infinity=0.0, slack=0.0)
    assert (side.above.size > 0) == (deviation < 1)
    for eps in np.array([-2.0, -1.0, 0.001, 0.5, 2.0, 4.0]) * deviation:
        above = y > eps
        weight = mass[above] * np.exp(-tilt * y[above] - 1.0)
        exact = math.fsum((weight * -np.expm1(eps - y[above])).tolist())
        low, high = side.delta(float(eps), -1), side.delta(float(eps), +1)
        assert low <= exact <= high or exact > 1
        assert high - low < 1e-11 * exact or exact > 1


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


@pytest.mark.parametrize("size", nightly.sharded([1800, 8, 225, 4096, 28_800], 3))
def test_coefficients_of_a_transform_are_exact_to_the_error_they_name(size):
    rng = np.random.default_rng(size)
    flat, spiked = rng.random(size), np.zeros(size)
    spiked[rng.integers(0, size, 3)] = 1.0, 0.5, 0.2
    for mass in (flat, spiked, rng.random(size) ** 30):
        index, mass = np.arange(size), mass / mass.sum()
        some = np.unique(rng.integers(0, size // 2 + 1, 60))
        turns = np.arange(size)[:, None] * some % size
        angles = -2 * np.longdouble("3.14159265358979323846264338327950288") * turns / size
        weight = mass.astype(np.longdouble)
        exact = weight @ np.cos(angles) + 1j * (weight @ np.sin(angles))
        found = spectrum(index, mass, size)[some]
        assert float(np.max(np.abs(found - exact))) <= transform_error(index, size) < 3e-14


@pytest.mark.parametrize("powers", [[1, 1], [7, 2], [900, 31]])
def test_a_product_is_exact_to_the_error_it_names(powers):
    # oracle: extended precision; the spectra of a two-pointed row go down to nothing
    rng = np.random.default_rng(6)
    bell = np.exp(-((np.arange(-40, 41) / 9.0) ** 2)) + 1e-6 * rng.random(81)
    rows = [(np.arange(-40, 41), bell), (np.array([-256, 256]), np.full(2, 0.5))]
    pmfs = [tilted(index, mass, 1.0, 0.0, n) for (index, mass), n in zip(rows, powers, strict=True)]
    size = 4096
    values, error = _product(pmfs, size)
    exact = np.ones(size // 2 + 1, dtype=np.clongdouble)
    for pmf, n in zip(pmfs, powers, strict=True):
        turns = (pmf.index[:, None] % size) * np.arange(size // 2 + 1) % size
        angles = -2 * np.longdouble("3.14159265358979323846264338327950288") * turns / size
        weight = pmf.mass[0].astype(np.longdouble)
        exact = exact * (weight @ np.cos(angles) + 1j * (weight @ np.sin(angles))) ** n
    assert np.all(np.abs(values - exact) <= error + 1e-300)
    assert error.max() <= 1e-10


def test_integer_powers_multiply_by_squaring():
    value = np.array([0.9 + 0.1j, -0.3j])
    for n in (1, 2, 3, 6, 13, 64):
        np.testing.assert_allclose(integer_power(value, n), value**n, rtol=1e-13)
    assert spectrum(np.array([0]), np.ones(1), 8).tolist() == [1.0] * 5


def test_a_window_that_does_not_fit_is_refused():
    with pytest.raises(Unsupported, match="tol"):
        check_cells(constants.MAX_WINDOW_CELLS + 1, constants.MAX_WINDOW_CELLS)


def test_few_atoms_lie_on_nodes():
    # oracle: the atoms themselves; two atoms whose ratio no spacing meets come near nodes
    for scales in ([3.7], [3.7, 7.4], [2.0, 3.0], [3.7, 3.7 * math.pi]):
        groups = [group_pairs({LaplacePair(1 / scale): 3})[0] for scale in scales]
        step = _with_atoms_on_nodes(groups, 1e-3)
        assert 1e-3 / 4 < step <= 1e-3
        places = np.array([1 / scale for scale in scales]) / step
        assert np.abs(places - np.round(places)).max() < (0.1 if math.pi * 3.7 in scales else 1e-7)
    assert _with_atoms_on_nodes([group_pairs({GaussPair(1.0): 3})[0]], 1e-3) == 1e-3
