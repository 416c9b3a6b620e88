"""Curves and brackets: what may be asked, what is answered, and the exact curve of a closed form."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.points import GOLDEN
from wpriv.accounting.mechanisms.gauss import Gauss, GaussPair
from wpriv.accounting.mechanisms.uniform import Uniform
from wpriv.core.guarantee import SCHEMA, Curve, curve_of_pair, epsilon_at
from wpriv.core.process import Process, Step
from wpriv.errors import UsageError
from wpriv.numerics.bracket import Bracket, monotone


def gauss_curve(sigma: float, n: int = 1) -> Curve:
    process = Process((Step(Gauss(sigma), n),))
    return curve_of_pair(process, [GaussPair(math.sqrt(n) / sigma)], accountant="test", source="here")


def test_the_golden_eps_of_composed_gauss() -> None:
    point = GOLDEN["002-eps-0"]
    i = point["inputs"]
    found = gauss_curve(float(i["sigma"]), int(i["n"])).at(delta=float(i["delta"])).epsilon
    assert found.safe == pytest.approx(float(point["value"]), rel=1e-11)


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(sigma=st.floats(-2, 4).map(lambda x: 10**x), log_delta=st.floats(-230, -0.5))
def test_the_eps_of_a_delta_meets_it_and_a_hair_less_does_not(sigma: float, log_delta: float) -> None:
    curve, delta = gauss_curve(sigma), math.exp(log_delta)
    eps = curve.at(delta=delta).epsilon.safe
    assert curve.at(eps=eps).delta.safe <= delta * (1 + 1e-12)
    if eps > 0:
        assert curve.at(eps=eps * (1 - 1e-9)).delta.safe > delta * (1 - 1e-12)
    else:
        assert curve.at(eps=0.0).delta.safe <= delta


def test_a_delta_below_the_distinguishing_events_is_reached_by_no_eps() -> None:
    process = Process((Step(Uniform(outcomes=10)),))
    curve = curve_of_pair(process, [Uniform(outcomes=10).pair()], accountant="test", source="here")
    assert curve.at(delta=0.09).epsilon.safe == math.inf
    assert curve.at(delta=0.11).epsilon.safe == 0.0


def test_a_profile_that_never_gets_there_is_infinite() -> None:
    assert epsilon_at(lambda eps: -1.0, 1e-5) == math.inf
    assert epsilon_at(lambda eps: -1.0, 1e-5, high=3.0) == math.inf
    assert epsilon_at(lambda eps: -eps, 1e-5) == pytest.approx(-math.log(1e-5))


@pytest.mark.parametrize(
    "question",
    [
        {},
        {"eps": 1.0, "delta": 0.1},
        *({"eps": x} for x in (-1.0, math.inf, math.nan)),
        *({"delta": x} for x in (-0.1, 1.0, math.nan)),
    ],
)
def test_a_question_without_an_answer_is_a_usage_error(question: dict[str, float]) -> None:
    with pytest.raises(UsageError):
        gauss_curve(1.0).at(**question)


def test_a_bracket_promises_its_safe_end() -> None:
    assert Bracket(2.0).safe == 2.0
    assert Bracket(2.0, 1.0, 3.0).safe == 3.0
    assert Bracket.above(4.0) == Bracket(4.0, 0.0, 4.0)
    assert Bracket.exact(4.0) == Bracket(4.0, 4.0, 4.0)


def test_a_guarantee_is_one_flat_row_with_its_provenance() -> None:
    row = gauss_curve(2.0, 3).at(eps=1.0).with_extra(note="x").as_dict()
    assert row["schema"] == SCHEMA
    assert (row["epsilon"], row["epsilon_lower"], row["epsilon_upper"]) == (1.0, 1.0, 1.0)
    assert row["delta_lower"] <= row["delta"] <= row["delta_upper"]
    assert row["process"] == [{"mech": "gauss", "sigma": 2.0, "sensitivity": 1.0, "n": 3, "sampling": "none"}]
    assert (row["adjacency"], row["claim"], row["note"]) == ("add-remove", "exact", "x")


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=8))
def test_monotone_brackets_fall_and_lie_within_the_given_ones(triples: list[tuple[float, float, float]]) -> None:
    given_ones = [Bracket(middle, low, high) for low, middle, high in map(sorted, triples)]
    found = monotone(given_ones)
    for old, new in zip(given_ones, found, strict=True):
        assert new.lower is not None
        assert new.lower <= new.estimate <= new.safe <= old.safe
    for left, right in itertools.pairwise(found):
        assert (left.lower or 0.0) >= (right.lower or 0.0)
        assert left.estimate >= right.estimate
        assert left.safe >= right.safe


def test_monotone_keeps_every_value_of_a_decreasing_function() -> None:
    truth = [0.9, 0.5, 0.2, 0.1]
    brackets = [Bracket(0.9, 0.1, 0.95), Bracket(0.5, 0.45, 1.0), Bracket(0.2, 0.0, 0.3), Bracket(0.1, 0.05, 1.0)]
    for value, bracket in zip(truth, monotone(brackets), strict=True):
        assert bracket.lower <= value <= bracket.safe


@given(st.floats(-1e6, 0))
def test_a_probability_is_never_rounded_below_itself(log_value: float) -> None:
    bracket = Bracket.exact_exp(log_value)
    assert bracket.safe > 0
    assert math.log(bracket.safe) >= log_value - 1e-12
    assert bracket.lower == 0 or math.log(bracket.lower) <= log_value + 1e-12


def test_the_estimate_of_a_wide_bracket_is_its_safe_end() -> None:
    assert Bracket.between(0.0, 1.0).estimate == 1.0
    assert 0.99 < Bracket.between(0.99, 1.0).estimate < 1.0
    assert Bracket.exact_exp(-math.inf) == Bracket.exact(0.0)
