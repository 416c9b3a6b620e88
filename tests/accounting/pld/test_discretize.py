"""Pessimistic and optimistic discretisations must bracket the privacy profile of the pair, at every eps."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from wpriv.accounting.mechanisms.discrete_gauss import DiscreteGauss
from wpriv.accounting.mechanisms.gauss import GaussPair
from wpriv.accounting.mechanisms.laplace import LaplacePair
from wpriv.accounting.mechanisms.randomized_response import RandomizedResponse
from wpriv.accounting.mechanisms.truncated_gauss import TruncatedGauss
from wpriv.accounting.mechanisms.truncated_laplace import TruncatedLaplace
from wpriv.accounting.pld.discretize import cell_masses, discretize_jumps, discretize_optimistic, discretize_pessimistic
from wpriv.core.atomic_pair import AtomicPair
from wpriv.core.loss_pair import LossPair
from wpriv.core.subsampled_pairs import fixed, poisson
from wpriv.errors import Unsupported

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


def test_masses_that_do_not_add_up_are_refused_and_not_scaled():
    cells = cell_masses(GaussPair(1.0), np.linspace(-8, 8, 400))
    twice = dataclasses.replace(cells, atoms=np.where(np.arange(400) == 200, 0.1, 0.0))
    with pytest.raises(Unsupported, match="cannot be told apart"):
        discretize_pessimistic(twice, 0.0)


@pytest.mark.parametrize("step", [1e-3, 5e-4])
def test_the_losses_above_a_cut_lie_above_their_optimistic_discretisation(step):
    # oracle: the tails of the pair; the profile of the losses above the cut is P(L > eps) - e^eps Q(L > eps) from it on
    pair, first = poisson(GaussPair(1.0), 0.01), round(0.02 / step)
    y = np.arange(first, 80 * first) * step
    low = discretize_jumps(cell_masses(pair, y), 0.0)
    eps = np.linspace(y[0], 0.9 * y[-1], 300)
    exact = np.exp(pair.log_delta(eps))
    assert np.all(profile(y, low, 0.0, eps) <= exact * (1 + 1e-9) + 1e-15)
    assert low.sum() == pytest.approx(math.exp(float(pair.tails(y[:1]).sf_p[0])), rel=0.01)


def test_an_atom_on_the_cut_is_counted_with_the_bulk_alone():
    # oracle: the masses that are given
    pair = AtomicPair(np.array([-0.6, 0.0, 0.16, 0.6]), np.log([1e-5, 1 - 1.3e-4, 1e-4, 2e-5]))
    low = discretize_jumps(cell_masses(pair, np.arange(4, 17) * 0.04), 0.0)
    assert low[0] == 0
    assert math.fsum(low.tolist()) == pytest.approx(2e-5, rel=1e-9)
