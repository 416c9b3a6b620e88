"""Numbers as users write them. Oracle: Python's own arithmetic on the text."""

from __future__ import annotations

import math

import numpy as np
import pytest

from wpriv.errors import UsageError
from wpriv.numerics import numbers


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("1e-5", 1e-5),
        ("2^20", 2**20),
        ("10^-5", 1e-5),
        ("2 ** -20", 2.0**-20),
        (" 2 ** 3 ", 8),
        ("256/60000", 256 / 60000),
        ("256/60,000", 256 / 60000),
        ("60_000", 60000),
        ("1,234,567", 1234567),
        ("1,234.5", 1234.5),
        ("10%", 0.1),
        ("1%", 0.01),
        (" 0.5 % ", 0.005),
        ("3e-1%", 0.003),
        (7, 7),
        (np.float32(0.5), 0.5),
    ],
)
def test_number_reads_exponents_powers_fractions_thousands_and_percentages(written, value):
    assert numbers.number(written, "x") == value


@pytest.mark.parametrize(
    ("written", "advice"),
    [
        ("1,5", "write 1.5 or 15"),
        ("60,00", "write 60.00 or 6000"),
        ("60,000", "write 60.000 or 60000"),
        ("0,001", "write 0.001;"),
    ],
)
def test_a_number_with_one_comma_is_refused_with_what_to_write(written, advice):
    with pytest.raises(UsageError, match=advice):
        numbers.number(written, "x")


@pytest.mark.parametrize("written", ["1_5", "60__000", "1,234,56", "12,34,567", "1_000e2", "_1", "1.5_000", "%", "5%%"])
def test_separators_that_group_no_thousands_are_refused(written):
    for read in (numbers.number, numbers.whole):
        with pytest.raises(UsageError):
            read(written, "x")


@pytest.mark.parametrize("written", ["", "x", "1/0", "nan", "inf", "1e400", "9^9999", "1,5", True, None, b"1", 10**400])
def test_number_refuses_what_is_no_finite_number_by_its_name(written):
    with pytest.raises(UsageError, match="--x"):
        numbers.number(written, "--x")


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("1000", 1000),
        ("60,000", 60000),
        ("60_000", 60000),
        ("9,007,199,254,740,993", 2**53 + 1),
        ("1e4", 10**4),
        ("2^60", 2**60),
        ("9" * 30, int("9" * 30)),
        (3.0, 3),
    ],
)
def test_whole_keeps_every_digit(written, value):
    assert numbers.whole(written, "n") == value


@pytest.mark.parametrize("written", ["1.5", 2.5, "1/3", math.inf, "x", "100%", "1,5"])
def test_whole_refuses_fractions(written):
    with pytest.raises(UsageError, match=r"n (must be|is a count|has a comma)"):
        numbers.whole(written, "n")


@pytest.mark.parametrize(
    ("written", "value"),
    [("2^20", 2**20), ("2**3", 8), (1e6, 10**6), (7, 7), (1.5, 1.5), ("60,000", 60000), ("x", "x"), ("9^9999",) * 2],
)
def test_to_int_converts_counts_and_leaves_the_rest_to_a_validator(written, value):
    assert numbers.to_int(written) == value


@pytest.mark.parametrize(("value", "whole"), [(np.int64(3), True), (np.float64(3), True), (2.5, False), (2**70, True)])
def test_finite_number_is_of_a_type_of_python(value, whole):
    assert type(numbers.finite_number(value, "x", whole=whole)) is (int if whole else float)


def test_typed_follows_the_words_of_the_annotation():
    assert numbers.typed("2^3", {"int"}, "x") == 8
    assert numbers.typed("True", {"bool"}, "x") is True
    assert numbers.typed("2^3", {"str"}, "x") == "2^3"


@pytest.mark.parametrize(
    ("written", "advice"),
    [("60.000", "write 60000, or 60;"), ("1.500", "write 1500;"), ("1.000.000", "write 1000000, or 1;")],
)
def test_a_count_with_dots_of_thousands_is_refused_with_what_to_write(written, advice):
    with pytest.raises(UsageError, match=advice):
        numbers.whole(written, "n")
    with pytest.raises(ValueError, match=advice):
        numbers.to_int(written)


@pytest.mark.parametrize(("written", "value"), [("10.0", 10), ("1e3", 1000), ("2.5e4", 25000), ("1000.000", 1000)])
def test_a_count_may_have_other_dots(written, value):
    assert numbers.whole(written, "n") == value


@pytest.mark.parametrize("written", ["1/2%", "1%/2", "1,234/1", "1,234/5%"])
def test_a_fraction_of_percentages_or_of_one_comma_is_refused(written):
    with pytest.raises(UsageError):
        numbers.number(written, "rate")


def test_a_fraction_of_two_numbers_with_a_comma_is_the_same_in_both_readings():
    assert numbers.number("1,024/60,000", "rate") == 1024 / 60000
