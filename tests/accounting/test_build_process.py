"""Plain data becomes a checked process; a fault names the flag that mends it."""

from __future__ import annotations

import contextlib
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

import wpriv
from wpriv.accounting import build_process
from wpriv.accounting.mechanisms.gauss import Gauss
from wpriv.core.kinds import Sampling
from wpriv.core.process import Step
from wpriv.core.repetition import Repetition, repetition
from wpriv.errors import MissingResource, UsageError
from wpriv.numerics.numbers import number

POISSON = {"sampling": "poisson"}


def test_a_step_is_read_from_text_and_from_numbers_alike():
    text = {"mech": "gauss", "sigma": "4", "sampling": "poisson", "rate": "256/60000", "n": "2^20"}
    numbers = {"mech": "gauss", "sigma": 4, "sampling": "poisson", "rate": 256 / 60000, "n": 1048576}
    assert (
        build_process.step(text)
        == build_process.step(numbers)
        == Step(Gauss(4.0), 2**20, Sampling("poisson", 256 / 60000))
    )


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({}, "needs a mechanism"),
        ({"mech": 3}, "needs a mechanism"),
        ({"mech": "laplacee"}, "did you mean 'laplace'?"),
        ({"mech": "laplace"}, "`scale`"),
        ({"mech": "randomized-response"}, "`eps0=...`"),
        ({"mech": "gauss", "sigma": 1, "sensitivty": 1}, "did you mean 'sensitivity'?"),
        ({"mech": "gauss", "sigma": True}, "must be a finite number"),
        ({"mech": "gauss", "sigma": [1]}, "must be a number"),
        ({"mech": "gauss", "sigma": None}, "must be a number"),
        ({"mech": "uniform", "outcomes": 2.5}, "whole number"),
        ({"mech": "gauss", "sigma": 1, "n": "many"}, "n must be a number"),
    ],
)
def test_a_faulty_step_says_what_to_change(spec, words):
    with pytest.raises(UsageError) as caught:
        build_process.step(spec)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_equal_neighbouring_steps_are_merged():
    found = build_process.process(
        [{"mech": "gauss", "sigma": 4, "n": 3}, {"mech": "gauss", "sigma": 4.0, "n": 4}, {"mech": "gauss", "sigma": 5}]
    )
    assert [step.n for step in found.steps] == [7, 1]


SPELLINGS = [
    ("1e-5", 1e-5),
    ("2^20", 2.0**20),
    ("2**-3", 0.125),
    ("1/4", 0.25),
    (" 3 ", 3.0),
    ("1/2/3", None),
    ("1e400", None),
]


@pytest.mark.parametrize(("text", "wanted"), SPELLINGS)
def test_numbers_are_read_as_users_write_them(text, wanted):
    if wanted is None:
        with pytest.raises(UsageError):
            number(text, "x")
    else:
        assert number(text, "x") == wanted


@given(st.text(max_size=30))
def test_any_text_is_a_finite_number_or_a_usage_error(text):
    for read in (build_process.number, build_process.whole):
        with contextlib.suppress(UsageError):
            assert math.isfinite(read(text, "x"))


@pytest.mark.slow
@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(max_size=5), lambda inner: st.lists(inner, max_size=3)
    )
)
def test_any_value_of_a_field_is_read_or_refused(value):
    with contextlib.suppress(UsageError):
        assert build_process.step({"mech": "gauss", "sigma": value, "n": value}).n >= 1


@given(st.integers(1, 10**6), st.integers(0, 10**6), st.integers(1, 1000))
def test_steps_from_epochs_are_the_exact_ratio_rounded_up_once(batch, more, epochs):
    records = batch + more
    found = repetition(batch=batch, records=records, epochs=epochs, **POISSON)
    # exact in integers
    assert found.n == -(-epochs * records // batch)
    assert found.rate == batch / records


def test_epochs_at_a_round_rate_make_no_extra_step():
    # 60 / 0.01 is 6000.000000000001 or 5999.999... in other roundings; it must be 6000
    for rate, steps in ((0.01, 6000), (0.03, 2000), (0.07, 858)):
        assert repetition(rate=rate, epochs=60, **POISSON).n == steps


def test_nothing_said_stays_unsaid():
    assert repetition() == Repetition(None, None, ())


def test_history_reads_both_of_its_forms(tmp_path):
    file = tmp_path / "steps.json"
    file.write_text(json.dumps([{"mech": "laplace", "scale": 3, "n": 2}, {"mech": "gauss", "sigma": 1}]))
    assert [s["mech"] for s in build_process.read_history(file).steps] == ["laplace", "gauss"]
    file.write_text(json.dumps([[1.5, 0.25, 10], [2.0, 1, 3], [1.5, 0.25, 5]]))
    assert build_process.described_process(history=file).process.steps == (
        Step(Gauss(1.5), 15, Sampling("poisson", 0.25)),
        Step(Gauss(2.0), 3),
    )


def test_a_missing_history_is_a_missing_resource(tmp_path):
    with pytest.raises(MissingResource, match="cannot be read"):
        build_process.read_history(tmp_path / "none.json")


def test_a_history_with_a_key_twice_is_refused(tmp_path):
    file = tmp_path / "steps.json"
    file.write_text('[{"mech": "gauss", "sigma": 1, "sigma": 100}]')
    with pytest.raises(UsageError, match="'sigma' stands twice"):
        build_process.read_history(file)


def test_history_stands_alone():
    with pytest.raises(UsageError, match="sigma"):
        build_process.described_process(sigma=1, history="steps.json")


@pytest.mark.parametrize("noise", [{"noise_multiplier": 1.1}, {"sigma": "1.1"}])
def test_noise_without_a_mechanism_is_gaussian_and_said_so(noise):
    keys = {"sampling": "poisson", "batch": 256, "records": 60000, "epochs": 10}
    found = build_process.described_process(**noise, **keys)
    assert found.process == build_process.described_process("gauss", **noise, **keys).process
    assert build_process.GAUSSIAN in found.notes
    with pytest.raises(UsageError, match="add `mech='gauss'` and `sampling='poisson'`"):
        build_process.described_process(batch=256, records=60000, epochs=10)
    answer = wpriv.calibrate(sigma=4, eps=1, delta=1e-5)
    assert answer.value == wpriv.calibrate("gauss", sigma=4, eps=1, delta=1e-5).value
    assert build_process.GAUSSIAN in answer.guarantee.extra["reading"]


def test_a_noise_multiplier_between_replaced_records_is_warned_about_in_its_own_numbers():
    keys = {"sampling": "fixed", "rate": 0.1, "delta": 1e-5}
    (warning,) = wpriv.budget("gauss", noise_multiplier=1.4, **keys).warnings
    assert "noise of 1.4 x that norm is a noise multiplier of 0.7 here" in warning
    by_sigma = wpriv.budget("gauss", sigma=1.4, **keys)
    assert warning in by_sigma.extra["reading"]
    assert by_sigma.warnings == wpriv.budget("gauss", noise_multiplier=1.4, sensitivity=2, **keys).warnings == ()


def test_default_sensitivities_of_several_mechanisms_name_them():
    notes = build_process.described_process("gauss sigma=4 + laplace scale=20").notes
    assert "sensitivity of gauss = 1 (l2 norm), since none was given" in notes
    assert "sensitivity of laplace = 1 (l1 norm), since none was given" in notes


def test_a_history_of_bare_numbers_says_how_they_are_read(tmp_path):
    path = tmp_path / "steps.json"
    path.write_text("[[1.1, 0.01, 1000]]")
    assert any("Poisson rate and steps" in note for note in build_process.described_process(history=path).notes)
