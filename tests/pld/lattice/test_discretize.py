"""Pessimistic and optimistic discretisations must bracket the privacy profile of the pair, at every eps."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from wpriv.core.atomic_pair import AtomicPair
from wpriv.core.loss_pair import LossPair
from wpriv.core.sampling.fixed_size_pair import fixed
from wpriv.core.sampling.poisson_pair import poisson
from wpriv.errors import Unsupported
from wpriv.mechanisms.discrete_gauss import DiscreteGauss
from wpriv.mechanisms.gauss import GaussPair
from wpriv.mechanisms.laplace import LaplacePair
from wpriv.mechanisms.randomized_response import RandomizedResponse
from wpriv.mechanisms.truncated_gauss import TruncatedGauss
from wpriv.mechanisms.truncated_laplace import TruncatedLaplace
from wpriv.pld import constants
from wpriv.pld.lattice.discretize import (
    cell_masses,
    coarsen,
    discretize_bulk,
    discretize_optimistic,
    discretize_pessimistic,
    round_losses,
)

# a pair, the spacing of the lattice and its first and last index
CASES = {
    "gauss": (GaussPair(0.5), 0.05, -60, 80),
    "gauss, cut short": (GaussPair(0.5), 0.05, -8, 12),
    "gauss, tiny loss": (GaussPair(1e-6), 1e-8, -900, 900),
    "gauss, large loss": (GaussPair(8.0), 0.4, -100, 400),
    "poisson gauss": (poisson(GaussPair(1.0), 0.01), 2e-4, -60, 4000),
    "poisson gauss, reversed": (poisson(GaussPair(1.0), 0.01).reverse(), 2e-4, -4000, 51),
    "poisson gauss, reversed, nodes beyond the support": (poisson(GaussPair(0.25), 0.01).reverse(), 3e-5, -1000, 1000),
    "rare large losses": (poisson(GaussPair(1 / 0.6), 1e-4), 9e-4, -3, 9000),
    "fixed gauss": (fixed(GaussPair(1.0), 0.05), 2e-3, -1000, 1000),
    "laplace on the lattice": (LaplacePair(0.3), 0.01, -30, 30),
    "laplace off the lattice": (LaplacePair(0.3141), 0.01, -32, 32),
    "laplace, nodes beyond the support": (LaplacePair(0.0301), 1e-3, -100, 100),
    "poisson laplace": (poisson(LaplacePair(1.0), 0.1), 0.007, -16, 23),
    "fixed laplace": (fixed(LaplacePair(1.0), 0.1), 0.007, -24, 24),
    "truncated gauss": (TruncatedGauss(sigma=1.0, bound=3.0).pair(), 0.03, -90, 90),
    "truncated laplace": (TruncatedLaplace(scale=1.0, bound=3.0).pair(), 0.03, -40, 40),
    "discrete gauss": (DiscreteGauss(sigma=2.0).pair(), 0.033, -90, 90),
    "randomized response": (RandomizedResponse(eps0=0.5, delta0=0.01).pair(), 0.04, -20, 20),
    "one cell": (LaplacePair(0.3), 1.0, -1, 1),
}


def profile(y: np.ndarray, mass: np.ndarray, infinity: float, eps: np.ndarray) -> np.ndarray:
    """sum of mass (1 - e^{eps - y})_+, term by term in exact addition."""
    return np.array([math.fsum((mass[y > x] * -np.expm1(x - y[y > x])).tolist()) + infinity for x in eps])


def places(y: np.ndarray) -> np.ndarray:
    """Nodes, points inside every cell, and points beyond both ends."""
    inside = [y[:-1] + part * np.diff(y) for part in (0.0, 0.003, 0.25, 0.5, 0.81, 0.9999)]
    found = np.concatenate([*inside, y[0] - np.array([1e-3, 1.0]), y[-1] + np.array([0.0, 1e-3, 1.0])])
    return np.unique(found)[:: max(1, found.size // 3000)]


def q_mass(y: np.ndarray, mass: np.ndarray) -> float:
    return math.fsum((mass * np.exp(-y)).tolist())


def assert_bracketed(pair: LossPair, y: np.ndarray) -> None:
    cells = cell_masses(pair, y)
    upper, infinity = discretize_pessimistic(cells, pair.mass_at_plus_infinity)
    lower = discretize_optimistic(cells, pair.mass_at_plus_infinity)
    assert upper.min() >= 0
    assert lower.min() >= 0
    eps = places(y)
    f = np.exp(pair.log_delta(eps))
    above, below = profile(y, upper, infinity, eps), profile(y, lower, pair.mass_at_plus_infinity, eps)
    # rounding of losses where the profile is steep, and of masses of order one (MINORANT_ROUNDING)
    noise = 2e-11 * f + 1e-15
    assert np.all(above >= f - noise), (f - above).max()
    assert np.all(below <= f + noise), (below - f).max()


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_one_step_lies_between_its_discretisations(name):
    pair, step, first, last = CASES[name]
    assert_bracketed(pair, np.arange(first, last + 1) * step)


@pytest.mark.parametrize("name", CASES)
def test_pessimistic_discretisation_is_a_pair_of_probability_distributions(name):
    pair, step, first, last = CASES[name]
    y = np.arange(first, last + 1) * step
    mass, infinity = discretize_pessimistic(cell_masses(pair, y), pair.mass_at_plus_infinity)
    assert mass.sum() + infinity == pytest.approx(1.0, abs=1e-14)
    assert infinity >= pair.mass_at_plus_infinity
    assert q_mass(y, mass) <= 1 + 1e-12 + math.exp(float(pair.tails(y[:1]).cdf_p[0]) - y[0])


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["gauss", "poisson gauss", "fixed gauss", "laplace on the lattice", "gauss, large loss"]
)
def test_both_errors_fall_with_the_square_of_the_spacing(name):
    pair, step, first, last = CASES[name]

    middle = 0 if first < -20 and last > 20 else last // 3
    eps = (middle + np.linspace(0.0, 4.0, 401)) * step
    f = np.exp(pair.log_delta(eps))

    def widths(h: float, scale: int) -> np.ndarray:
        y = np.arange(first * scale, last * scale + 1) * h
        cells = cell_masses(pair, y)
        (upper, infinity), lower = (
            discretize_pessimistic(cells, pair.mass_at_plus_infinity),
            discretize_optimistic(cells, pair.mass_at_plus_infinity),
        )
        return np.array(
            [
                np.abs(profile(y, upper, infinity, eps) - f).max(),
                np.abs(profile(y, lower, pair.mass_at_plus_infinity, eps) - f).max(),
            ]
        )

    assert np.all(widths(step / 4, 4) < 0.12 * widths(step, 1))


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_few_atoms_lie_between_their_discretisations_on_any_nodes(seed):
    rng = np.random.default_rng(seed)
    pair = random_atoms(rng)
    low, high = pair.support
    stretch = (high - low) * 10 ** rng.uniform(-3, 0.5)
    y = np.unique(
        np.concatenate([rng.uniform(low - stretch, high + stretch, int(rng.integers(2, 60))), [high + stretch]])
    )
    assume(y.size >= 2)
    assert_bracketed(pair, y)


def random_atoms(rng: np.random.Generator) -> AtomicPair:
    """2 to 5 losses of any size, masses from 1e-15 to 1, sometimes with mass at infinity."""
    k = int(rng.integers(2, 6))
    p, q = (np.maximum(rng.dirichlet(np.full(k, rng.choice([0.05, 1.0]))), 1e-15) for _ in range(2))
    q = p * (q / p) ** 10 ** rng.uniform(-3, 0)
    infinity = float(rng.choice([0.0, 10 ** rng.uniform(-9, -1)]))
    p, q = (1 - infinity) * p / p.sum(), q / q.sum()
    return AtomicPair(np.log(p / q), np.log(p), infinity, log_q=np.log(q))


def test_tiny_mass_far_above_a_bulk_cannot_lift_the_lower_profile():
    # the empty and nearly empty cells at the top have no room to be pushed down into
    for tiny in (1e-3, 1e-6, 1e-12):
        losses = np.array([-0.1, 0.155, 0.72, 0.95])
        p = np.array([0.3, 0.4, tiny, tiny**2])
        lowest = math.log(0.3 / (p.sum() - float(p @ np.exp(-losses)) + 0.3 * math.exp(0.1)))
        losses[0] = lowest
        assert_bracketed(AtomicPair(losses, np.log(p / p.sum())), np.arange(-100, 120) * 0.01)


@pytest.mark.parametrize("cut_below", [False, True])
def test_the_bulk_of_a_pld_lies_between_its_discretisations(cut_below):
    # oracle: the tails of the pair; the profile of the losses within [a, b] is P(a < L <= b; L > eps) - e^eps Q(same)
    pair, y = poisson(GaussPair(1.0), 0.01), np.arange(-20, 41) * 5e-4
    rest, log_kappa, upper, lower, inner = discretize_bulk(cell_masses(pair, y), cut_below)
    ends, eps = pair.tails(y[[0, -1]]), np.linspace(y[0], y[-1], 401)[:-1]
    inside = pair.tails(eps)
    exact = np.exp(inside.sf_p) - np.exp(ends.sf_p[1]) - np.exp(eps) * (np.exp(inside.sf_q) - np.exp(ends.sf_q[1]))
    assert np.all(profile(y, upper, 0.0, eps) >= exact - 1e-15)
    assert np.all(profile(y, lower, 0.0, eps) <= exact + 1e-15)
    assert upper.sum() == pytest.approx(rest, rel=1e-14)
    assert q_mass(y, upper) == pytest.approx(rest * math.exp(log_kappa), rel=1e-13)
    # the lower masses stand for what lies between the nodes, whether or not the rest is cut
    p_inside = np.exp(ends.sf_p[0]) - np.exp(ends.sf_p[1])
    q_inside = np.exp(ends.sf_q[0]) - np.exp(ends.sf_q[1])
    assert inner == pytest.approx(math.log(q_inside / p_inside), abs=1e-15)


@pytest.mark.parametrize("pair", [GaussPair(8.0), GaussPair(40.0), poisson(GaussPair(10.0), 0.3), LaplacePair(30.0)])
def test_rounded_losses_bracket_the_profile(pair):
    y = np.arange(-40, 60) * (2.5 * pair.mu if isinstance(pair, GaussPair) else 5.0)
    upper, lower, infinity = round_losses(pair, y)
    eps = places(y)
    f = np.exp(pair.log_delta(eps))
    assert np.all(profile(y, upper, infinity, eps) >= f - 1e-15)
    assert np.all(profile(y, lower, pair.mass_at_plus_infinity, eps) <= f + 1e-15)


@settings(max_examples=80, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_coarser_lattices_bracket_finer_ones(seed):
    """Any lattice PMF against its direct profile; from above P- and Q-mass are kept, from below P-mass."""
    rng = np.random.default_rng(seed)
    k, factor = int(rng.integers(1, 200)), int(rng.integers(2, 40))
    step, tilt, start = (
        10 ** rng.uniform(-6, -0.5),
        float(rng.choice([0.0, 10 ** rng.uniform(-2, 2)])),
        int(rng.integers(-500, 500)),
    )
    assume(tilt * step * factor < constants.MAX_EXPONENT_CELL)
    mass = rng.random(k) ** rng.choice([1, 8]) * np.exp(-((np.arange(k) - k / 2) ** 2) / rng.choice([k, k * k]))
    mass[rng.random(k) < rng.choice([0.0, 0.7])] = 0.0
    mass[0] = mass[-1] = 1e-3
    y = (start + np.arange(k)) * step
    plain = mass * np.exp(-tilt * (y - y[0]))
    total, total_q = plain.sum(), q_mass(y, plain)
    for upper in (True, False):
        first, coarse = coarsen(start, mass, step, factor, tilt, upper=upper)
        node = (first + np.arange(coarse.size)) * step * factor
        untilted = coarse * np.exp(-tilt * (node - y[0]))
        assert coarse.min() >= 0
        assert untilted.sum() == pytest.approx(total, rel=1e-11)
        if upper:
            assert q_mass(node, untilted) == pytest.approx(total_q, rel=1e-11)
        eps = np.unique(np.concatenate([y[:: max(1, k // 40)], node, node + 0.4 * step * factor]))
        f, g = profile(y, plain, 0.0, eps), profile(node, untilted, 0.0, eps)
        noise = 1e-12 * f + 1e-13 * total * step
        assert np.all(g >= f - noise if upper else g <= f + noise), (upper, np.abs(g / np.maximum(f, 1e-300) - 1).max())


def test_a_tilt_beyond_floating_point_within_a_coarse_cell_is_refused():
    with pytest.raises(Unsupported):
        coarsen(347, np.full(100, 0.01), 0.3, 26, 96.0, upper=True)


def test_coarsening_is_second_order_on_smooth_pmfs():
    y = np.arange(-2000, 2001) * 1e-3
    mass = np.exp(-(y**2) / 0.08 + y / 2)
    mass /= mass.sum()
    eps = np.arange(100, 181) * 1e-3
    f = profile(y, mass, 0.0, eps)
    off = []
    for factor in (10, 40):
        for upper in (True, False):
            first, coarse = coarsen(-2000, mass, 1e-3, factor, 0.0, upper=upper)
            node = (first + np.arange(coarse.size)) * 1e-3 * factor
            off.append(np.abs(profile(node, coarse, 0.0, eps) - f).max())
    assert off[0] < off[2] / 10
    assert off[1] < off[3] / 10
    assert max(off[:2]) < 1e-4


def test_masses_that_do_not_add_up_are_refused_and_not_scaled():
    cells = cell_masses(GaussPair(1.0), np.linspace(-8, 8, 400))
    twice = dataclasses.replace(cells, atoms=np.where(np.arange(400) == 200, 0.1, 0.0))
    with pytest.raises(Unsupported, match="cannot be told apart"):
        discretize_pessimistic(twice, 0.0)
