"""Bounding: a function of each person's rows alone, and integers without overflow."""

from __future__ import annotations

import datetime
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wpriv.errors import UsageError
from wpriv.releases import bounding
from wpriv.releases.bounding import Grid, Persons, bound
from wpriv.releases.tables import coded

DAYS = Grid(Fraction(0), Fraction(60))
KEYS = ("a", "b", "c")
LIMITS = [(1, 1, 0, 3), (2, 1, 0, 3), (2, 2, -1, 3), (3, 2, -2, 2), (1, 3, -3, 1)]


def of_persons(cells):
    known = Persons()
    known.add(coded(cells))
    return known.coded()


def cell_sums(rows, key, groups, most, lo, hi):
    """Sums of bounded values of each key, as a release computes them."""
    persons = of_persons([person for person, _, _ in rows])
    cells = np.array([KEYS.index(name) for _, name, _ in rows], np.int64)
    values = np.array([min(max(value, lo), hi) for _, _, value in rows], np.int64)
    marks = bounding.cell_digests(KEYS)
    kept = bounding.kept(key, persons, cells, marks, values, groups=groups, rows=most)
    return np.array(bounding.sums(kept, len(KEYS)))


rows_of = st.lists(st.tuples(st.sampled_from(("p", "q")), st.sampled_from(KEYS), st.integers(-3, 4)), max_size=6)
rows_of_new = st.lists(st.tuples(st.just("new"), st.sampled_from(KEYS), st.integers(-3, 4)), max_size=7)


@settings(max_examples=120, deadline=None)
@given(
    rows_of,
    rows_of_new,
    st.binary(min_size=32, max_size=32),
    st.sampled_from(LIMITS),
    st.randoms(use_true_random=False),
)
def test_a_person_changes_few_cells_by_little_whatever_key_and_order(others, added, key, limits, random):
    groups, most, lo, hi = limits
    both = others + added
    random.shuffle(both)
    change = np.abs(cell_sums(both, key, groups, most, lo, hi) - cell_sums(others, key, groups, most, lo, hi))
    assert (change > 0).sum() <= groups
    assert change.max(initial=0) <= most * max(abs(lo), abs(hi))


def test_the_largest_change_is_attained():
    rows = [("new", name, 3) for name in KEYS for _ in range(4)]
    assert cell_sums(rows, bytes(32), 2, 2, -1, 3).tolist().count(6) == 2


@settings(max_examples=60, deadline=None)
@given(rows_of, st.randoms(use_true_random=False))
def test_the_order_of_rows_plays_no_part(rows, random):
    shuffled = list(rows)
    random.shuffle(shuffled)
    first, second = (cell_sums(each, b"k" * 32, 1, 1, -3, 3).tolist() for each in (rows, shuffled))
    assert first == second


def test_which_rows_are_kept_depends_on_the_key_and_is_nearly_uniform():
    rows = [("p", "a", value) for value in (1, 2, 3)]
    kept = [int(cell_sums(rows, seed.to_bytes(32, "big"), 1, 1, 0, 3)[0]) for seed in range(600)]
    assert all(140 < kept.count(value) < 260 for value in (1, 2, 3))  # 200 +- 5 standard deviations


@pytest.mark.parametrize(
    ("cell", "steps"),
    [
        ("3", 3), (" 7 ", 7), ("2.5", 2), ("3.5", 4), ("70", 60), ("-4", 0), ("inf", 60), ("-Infinity", 0), ("1e3", 60),
        ("1e999999999999", 60), ("0e999999999", 0), ("-1e999999999", 0), ("1e-999999999", 0), ("9" * 5000, 60),
        ("-0.0", 0), (True, 1),
        (2.5, 2), (float("inf"), 60), (10**5000, 60), (Decimal("3.50"), 4), (np.float64(5), 5), (np.int64(6), 6),
        ("", None), ("nan", None), ("sNaN", None), ("oops", None), ("1_0", None), (None, None), (float("nan"), None),
        ((1, 2), None), ([1], None), (b"3", None),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_every_cell_is_a_bounded_integer_or_missing(cell, steps):
    assert DAYS.steps(cell) == steps


def test_decimals_are_exact_on_a_grid_of_hundredths():
    grid = Grid(Fraction(0), Fraction(100), Fraction(1, 100))
    assert [grid.steps(cell) for cell in (".10", ".20", ".30", "0.155", "0.145")] == [10, 20, 30, 16, 14]


def test_dates_are_days():
    grid = Grid(bound("2026-01-01", "x", dates=True), bound("2026-12-31", "x", dates=True), is_date=True)
    first = grid.steps("2026-01-01")
    assert grid.steps(datetime.date(2026, 1, 3)) == first + 2
    assert grid.steps("2025-06-01") == first
    assert grid.steps("no date") is None


def test_bounds_inside_one_step_of_the_grid_are_refused():
    with pytest.raises(UsageError, match="finer"):
        Grid(Fraction(1, 4), Fraction(3, 4))
    with pytest.raises(UsageError, match="coarser"):
        Grid(Fraction(0), Fraction(1), Fraction(1, 2**70))


def test_sums_do_not_overflow():
    count = 65536
    kept = bounding.Contributions(np.zeros(count, np.int64), np.full(count, 2**47))
    assert bounding.sums(kept, 1) == [2**63]
    assert bounding.sums(bounding.Contributions(np.zeros(2, np.int64), np.full(2, -(2**62))), 1) == [-(2**63)]


def test_identifiers_are_compared_exactly():
    codes = of_persons(["007", "7", 7, "", None, 9007199254740993, 9007199254740992, 10**5000]).codes.tolist()
    assert codes == [0, 1, 2, -1, -1, 3, 4, 5]
