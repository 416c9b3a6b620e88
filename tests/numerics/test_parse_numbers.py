"""Numbers as users write them. Oracle: Python's own arithmetic on the text."""

from __future__ import annotations

import math

import numpy as np
import pytest

from wpriv.errors import UsageError
from wpriv.numerics import numbers


@pytest.mark.parametrize(
    ("written", "value"),
    [("1e-5", 1e-5), ("2^20", 2**20), (" 2 ** 3 ", 8), ("256/60000", 256 / 60000), (7, 7), (np.float32(0.5), 0.5)],
)
def test_number_reads_exponents_powers_and_fractions(written, value):
    assert numbers.number(written, "x") == value


@pytest.mark.parametrize("written", ["", "x", "1/0", "nan", "inf", "1e400", "9^9999", "1,5", True, None, b"1", 10**400])
def test_number_refuses_what_is_no_finite_number_by_its_name(written):
    with pytest.raises(UsageError, match="--x"):
        numbers.number(written, "--x")


@pytest.mark.parametrize(
    ("written", "value"), [("1000", 1000), ("1e4", 10**4), ("2^60", 2**60), ("9" * 30, int("9" * 30)), (3.0, 3)]
)
def test_whole_keeps_every_digit(written, value):
    assert numbers.whole(written, "n") == value


@pytest.mark.parametrize("written", ["1.5", 2.5, "1/3", math.inf, "x"])
def test_whole_refuses_fractions(written):
    with pytest.raises(UsageError, match="n must be"):
        numbers.whole(written, "n")


@pytest.mark.parametrize(
    ("written", "value"), [("2^20", 2**20), ("2**3", 8), (1e6, 10**6), (7, 7), (1.5, 1.5), ("x", "x"), ("9^9999",) * 2]
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
