"""Columns as steps and bins: the same as cell by cell in exact arithmetic, however they are stored."""

from __future__ import annotations

import datetime
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wpriv.files.columns import Cells
from wpriv.releases import values
from wpriv.releases.bounding import Grid
from wpriv.releases.tables import Frame, coded

GRIDS = [
    Grid(Fraction(lo), Fraction(hi), Fraction(step))
    for lo, hi, step in (
        (0, 60, 1), (-10, 60, "1/2"), ("-1/3", "7/2", "1/100"), (0, 2**47, 1), (-(2**61), 2**61, 1), (0, 100, "1/3"),
        (-5, -2, 1), (0, 1, "1/1073741824"), (0, 10**6, 1000), (-(2**60), 2**62, 4), (0, "1/1000", "1/100000"),
    )
]  # fmt: skip
grids = st.sampled_from(GRIDS)
near = st.builds(  # close to the middle of two steps
    lambda grid, k, shift: float((k + Fraction(1, 2)) * grid.step) * (1 + shift * 2.0**-52),
    grids, st.integers(-5, 200), st.integers(-3, 3),
)  # fmt: skip
floats = st.floats() | near | st.floats(-100, 100)
texts = (
    st.decimals(allow_nan=True, allow_infinity=True).map(str) | floats.map(repr) | st.integers().map(str)
    | st.builds("{}.{}5".format, st.integers(-20, 80), st.integers(0, 99))
    | st.sampled_from(["", " 7 ", "1_0", "sNaN", "nan1", "1e999999999999", "-1e-999999999", "0.125", "٣", "x", "+.5"])
)  # fmt: skip


def one_by_one(cells, grid):
    """The oracle: each cell by Fraction, as the specification says it."""
    results = []
    for cell in cells:
        try:
            value = None if isinstance(cell, str) and "_" in cell else Decimal(cell)
        except ArithmeticError:
            value = None
        if value is None or value.is_nan():
            results.append(None)
        elif value.is_infinite() or abs(value) > Decimal(2) ** 70:
            results.append(grid.most if value > 0 else grid.least)
        else:
            exact = Fraction(value) if not value or value.adjusted() > -400 else Fraction(0)
            clipped = min(max(exact, grid.lo), grid.hi)
            results.append(min(max(round(clipped / grid.step), grid.least), grid.most))
    return results


def by_columns(cells, grid):
    steps, present = values.steps(cells, grid)
    return [int(step) if there else None for step, there in zip(steps, present, strict=True)]


@settings(max_examples=150, deadline=None)
@given(st.lists(floats, max_size=30), grids)
def test_floats_are_rounded_exactly(numbers, grid):
    wanted = one_by_one(numbers, grid)
    assert by_columns(Cells(np.array(numbers, np.float64)), grid) == wanted
    assert by_columns(coded(numbers), grid) == wanted


@settings(max_examples=150, deadline=None)
@given(st.lists(texts, max_size=30), grids)
def test_texts_are_rounded_exactly(cells, grid):
    assert by_columns(coded(cells), grid) == one_by_one(cells, grid)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-2000, 2000), max_size=30), grids)
def test_integers_are_rounded_exactly(numbers, grid):
    wanted = one_by_one(numbers, grid)
    assert by_columns(Cells(np.array(numbers, np.int64)), grid) == wanted
    assert by_columns(coded([str(number) for number in numbers]), grid) == wanted
    assert by_columns(coded(numbers), grid) == wanted
    unsigned = [number + 2**63 for number in numbers]
    assert by_columns(Cells(np.array(unsigned, np.uint64)), grid) == one_by_one(unsigned, grid)


EDGES = [Decimal(edge) for edge in ("-1.5", "0", "0.1", "0.3", "7", "9007199254740993")]


@settings(max_examples=150, deadline=None)
@given(st.lists(floats | st.sampled_from([float(edge) for edge in EDGES]), max_size=30))
def test_bins_are_those_of_exact_comparisons(numbers):
    """Oracle: each value against each edge, as Decimals."""
    known = [value for value in numbers if value == value]
    wanted = [sum(Decimal(value) >= edge for edge in EDGES) - 1 for value in known]
    wanted = [place - (Decimal(value) == EDGES[-1]) for place, value in zip(wanted, known, strict=True)]
    for cells in (Cells(np.array(numbers, np.float64)), coded(numbers)):
        places, present = values.bins(cells, EDGES, dates=False)
        assert present.tolist() == [value == value for value in numbers]
        assert places[present].tolist() == wanted


def test_edges_are_exact_for_text_and_integers():
    places, _ = values.bins(coded(["0.1", "0.10", "0.09999999999999999999", "0.3", "1e-1"]), EDGES, dates=False)
    assert places.tolist() == [2, 2, 1, 3, 2]
    whole = np.array([9007199254740992, 9007199254740993, 9007199254740994, 7, 6])
    assert values.bins(Cells(whole), EDGES, dates=False)[0].tolist() == [4, 4, 5, 4, 3]
    assert values.bins(coded(whole.tolist()), EDGES, dates=False)[0].tolist() == [4, 4, 5, 4, 3]


def test_dates_and_timestamps_count_as_their_day():
    days = Grid(Fraction(0), Fraction(40000), is_date=True)
    first = datetime.date(2026, 1, 31)
    wanted = [first.toordinal() - datetime.date(1970, 1, 1).toordinal()]
    arrays = np.array(["2026-01-31T23:59", "NaT"], "datetime64[m]")
    for column in (arrays, [first, None], [datetime.datetime(2026, 1, 31, 23, 59), None], ["2026-01-31", ""]):
        (block,) = Frame.open({"day": column}).blocks(["day"])
        assert by_columns(block.cells["day"], days) == [*wanted, None]
        assert by_columns(block.cells["day"], GRIDS[0]) == ([None, None])
    (block,) = Frame.open({"day": arrays}).blocks(["day"])
    edges = [Decimal(wanted[0]), Decimal(wanted[0] + 1)]
    assert values.bins(block.cells["day"], edges, dates=True)[0].tolist() == [0, 0]


@pytest.mark.parametrize("kind", ["i1", "u1", "i4", "u8", "f2", "f4", "?"])
def test_columns_of_any_width_are_read(kind):
    (block,) = Frame.open({"x": np.array([0, 1, 1], kind)}).blocks(["x"])
    assert by_columns(block.cells["x"], GRIDS[0]) == [0, 1, 1]
