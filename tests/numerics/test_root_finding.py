"""Root finding and minimisation, on functions whose roots and minima are known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wpriv.errors import Unsupported
from wpriv.numerics.root_finding import minimize_quasiconvex, smallest_meeting

SHAPES = {
    "line": lambda x, r: r - x,
    "steep": lambda x, r: math.expm1(min((r - x) / r * 40, 700.0)),
    "log": lambda x, r: math.log(r) - math.log(x) if x > 0 else math.inf,
    "power": lambda x, r: (r / x) ** 3 - 1 if 0 < r / max(x, 1e-300) < 1e90 else math.inf,
    "jump": lambda x, r: 1e9 if x < r else -1e-300,
    "cliff": lambda x, r: math.inf if x < r else -math.inf,
    "flat": lambda x, r: 1e-12 if x < r else -1.0,
}


@settings(max_examples=200, deadline=None)
@given(
    shape=st.sampled_from(sorted(SHAPES)),
    root=st.floats(-30, 30).map(lambda x: 10**x),
    guess=st.floats(-30, 30).map(lambda x: 10**x),
)
def test_smallest_meeting_meets_the_target_and_slightly_less_does_not(shape: str, root: float, guess: float) -> None:
    calls = 0

    def shortfall(x: float) -> float:
        nonlocal calls
        calls += 1
        return SHAPES[shape](x, root)

    answer = smallest_meeting(shortfall, guess)
    assert shortfall(answer) <= 0
    assert shortfall(answer * (1 - 1e-9)) > 0
    assert calls < 450


def test_a_smooth_function_near_the_guess_takes_few_calls() -> None:
    calls = []
    smallest_meeting(lambda x: calls.append(x) or math.exp(-x) - 1e-9, 15.0)
    assert len(calls) < 20


def test_the_low_end_is_the_answer_where_it_meets_the_target() -> None:
    assert smallest_meeting(lambda x: -1.0, 5.0) == 0.0
    assert smallest_meeting(lambda x: -1.0 - x, 5.0, low=2.0) == 2.0


def test_a_range_below_zero_is_searched() -> None:
    assert smallest_meeting(lambda x: -x - 1e3, -10.0, low=-1e6, high=0.0) == pytest.approx(-1e3, rel=1e-12)


def test_a_target_beyond_the_high_end_is_refused() -> None:
    with pytest.raises(Unsupported, match="10"):
        smallest_meeting(lambda x: 11 - x, 1.0, high=10.0)
    with pytest.raises(Unsupported):
        smallest_meeting(lambda x: 1.0, 1.0)


def test_smallest_meeting_refuses_nan() -> None:
    with pytest.raises(ArithmeticError):
        smallest_meeting(lambda x: math.nan, 1.0)


@given(at=st.floats(-11, 11).map(lambda x: 10**x), power=st.floats(0.3, 3))
def test_minimize_quasiconvex_finds_the_minimum(at: float, power: float) -> None:
    x, value = minimize_quasiconvex(lambda x: np.abs(np.log(x / at)) ** power - 2, 1e-12, 1e12)
    assert x == pytest.approx(at, rel=1e-5)
    assert value == pytest.approx(-2, abs=0.03)


def test_minimize_quasiconvex_avoids_infinite_values() -> None:
    x, value = minimize_quasiconvex(lambda x: np.where(x > 3, np.inf, (x - 2) ** 2), 1e-6, 1e6)
    assert (x, value) == (pytest.approx(2, rel=1e-5), pytest.approx(0, abs=1e-9))
    assert minimize_quasiconvex(lambda x: np.full(x.shape, np.inf), 1.0, 10.0) == (1.0, math.inf)
