"""Rounding to the safe side, against exact rational arithmetic."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wpriv.numerics.numbers import echo, rounded, text

positive = st.floats(1e-300, 1e300)


@given(positive, st.integers(1, 12))
def test_rounding_never_crosses_the_number_and_stays_near(x, digits):
    up, down = rounded(x, up=True, digits=digits), rounded(x, up=False, digits=digits)
    assert down <= x <= up
    assert Fraction(up) - Fraction(down) <= Fraction(x) * Fraction(1001, 1000) / 10 ** (digits - 1)


@given(positive, st.booleans())
def test_text_reads_back_as_the_rounded_number(x, up):
    assert float(text(x, up=up)) == rounded(x, up=up)


CASES = [
    (1e-5, True, "1e-5"),
    (50.0, True, "50"),
    (2.3016759, True, "2.30168"),
    (2.3016759, False, "2.30167"),
    (0.0, True, "0"),
    (1048576.0, True, "1048580"),
    (3e40, False, "3e40"),
]


@pytest.mark.parametrize(("x", "up", "expected"), CASES)
def test_numbers_look_as_people_write_them(x, up, expected):
    assert text(x, up=up) == expected


@given(positive, st.floats(-1e-5, 1e-5))
def test_more_digits_are_shown_where_six_would_cross_the_limit(x, away):
    limit = x * (1 + away)
    shown = float(text(x, up=True, limit=limit))
    assert shown >= x
    assert (shown <= limit) == (x <= limit)


@given(st.floats(0, 1e300))
def test_a_given_number_is_repeated_in_full(x):
    assert float(echo(x)) == x


@pytest.mark.parametrize(
    ("x", "expected"), [(1.0, "1"), (1e-5, "1e-5"), (1.0000001, "1.0000001"), (0.1, "0.1"), (1e6, "1000000")]
)
def test_a_given_number_looks_as_it_was_written(x, expected):
    assert echo(x) == expected
