"""Sums on geometric cells: against all pairs of outcomes in exact fractions, and their order."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wpriv.numerics.sums import Cells, added, grouped, refined, spread


def cells_of(first, mass, spacing=0.1, offset=0.0):
    mass = np.asarray(mass, dtype=float)
    values = np.exp(spacing * (first + np.arange(mass.size) + offset))
    return Cells(spacing, first, mass, mass * values)


masses = st.lists(st.floats(1e-3, 1), min_size=1, max_size=12)


@given(masses, masses, st.integers(-40, 40), st.integers(-40, 40), st.sampled_from([1, 2, 4]), st.floats(0, 0.99))
def test_a_sum_holds_the_mass_and_the_mean_of_all_pairs(a, b, first_a, first_b, refinement, offset):
    one, two = cells_of(first_a, a, offset=offset), cells_of(first_b, b, offset=offset)
    total = added(one, two, refinement)
    assert math.fsum(total.mass) == pytest.approx(math.fsum(a) * math.fsum(b), rel=1e-12)
    mean = math.fsum(one.mean) * math.fsum(b) + math.fsum(two.mean) * math.fsum(a)
    assert math.fsum(total.mean) == pytest.approx(mean, rel=1e-12)


@given(masses, masses, st.integers(-30, 30), st.integers(-30, 30), st.sampled_from([1, 2]))
def test_every_pair_of_ends_is_in_the_cell_of_its_sum(a, b, first_a, first_b, refinement):
    one, two = cells_of(first_a, a), cells_of(first_b, b)
    total = added(one, two, refinement)
    expected = np.zeros(total.mass.size)
    for i, p in zip(one.ends, a, strict=True):
        for j, q in zip(two.ends, b, strict=True):
            expected[math.floor(math.log(i + j) / total.spacing * (1 + 1e-15)) - total.first] += p * q
    assert total.mass == pytest.approx(expected, rel=1e-12, abs=1e-300)


@given(masses, st.integers(-30, 30))
def test_adding_a_variable_to_itself_is_adding_a_copy(a, first):
    one, copy = cells_of(first, a, offset=0.3), cells_of(first, a, offset=0.3)
    for mine, other in zip(added(one, one)[2:4], added(one, copy)[2:4], strict=True):
        assert mine == pytest.approx(other, rel=1e-12)


def test_masses_as_small_as_1e_280_keep_their_digits():
    tiny = cells_of(0, [1.0, 1e-140, 3e-140])
    total = added(tiny, tiny)
    expected = {}
    for i, p in enumerate([Fraction(1), Fraction(1e-140), Fraction(3e-140)]):
        for j, q in enumerate([Fraction(1), Fraction(1e-140), Fraction(3e-140)]):
            k = math.floor(math.log(math.exp(0.1 * i) + math.exp(0.1 * j)) / 0.1)
            expected[k] = expected.get(k, 0) + p * q
    for k, mass in expected.items():
        assert total.mass[k - total.first] == pytest.approx(float(mass), rel=1e-13, abs=0)


@given(masses, st.integers(-20, 20), st.floats(0, 0.99), st.integers(0, 5), st.integers(0, 5))
@settings(max_examples=200)
def test_spread_is_above_and_grouped_is_below(a, first, offset, cut_low, cut_high):
    cells = cells_of(first, np.array(a) / math.fsum(a), offset=offset)
    lowest = first + min(cut_low, len(a) - 1)
    highest = max(first + len(a) - cut_high, lowest + 1)
    values = cells.mean / cells.mass
    above, below = spread(cells, lowest, highest), grouped(cells, lowest, highest)
    assert math.fsum(above.mass) + above.at_zero == pytest.approx(1, abs=1e-12)
    assert math.fsum(above.mean) + above.lost >= math.fsum(cells.mean) * (1 - 1e-12)
    for strike in np.exp(0.1 * np.arange(first - 2, first + len(a) + 3) + 0.03):
        put = float(cells.mass @ np.maximum(strike - values, 0))
        high = float(above.mass @ np.maximum(strike - above.ends, 0)) + strike * above.at_zero
        low = float(np.maximum(strike * below.mass - below.mean, 0).sum())
        assert low <= put * (1 + 1e-12) + 1e-12 * strike
        assert high >= put * (1 - 1e-12) - 1e-12 * strike


def test_shorter_cells_keep_masses_and_ends():
    cells = cells_of(-3, [0.2, 0.3, 0.5])
    finer = refined(cells, 4)
    assert finer.spacing == pytest.approx(0.025)
    assert finer.mass[::4] == pytest.approx(cells.mass)
    assert finer.ends[::4] == pytest.approx(cells.ends)
    assert finer.mass.sum() == pytest.approx(1)
