"""The verbs as library users call them: wrong types, missing arguments, numbers of numpy; only errors of wpriv."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import wpriv
from wpriv.errors import UsageError, WprivError

GAUSS = {"mech": "gauss", "sigma": 4, "sampling": "poisson", "rate": 0.01, "n": 100, "delta": 1e-5, "tol": 1e-2}
TARGET = {"mech": "gauss", "sampling": "poisson", "rate": 0.01, "n": 100, "eps": 1, "delta": 1e-5, "tol": 1e-2}
COMPARE = {"process": [{"mech": "laplace", "scale": 20, "n": 10}], "accountants": ["rdp"], "eps": 3}
ODD = [
    None, "", "x", "\0", [], {}, (1,), set(), True, object(), b"1", 1j, float("nan"), float("inf"), -1, 0, 10**400,
    np.array([1, 2]), np.bool_(True), Path("/"), print,
]  # fmt: skip


def message(verb, **arguments) -> str:
    """What wpriv's error says, or nothing where there is an answer; any other error is the test's failure."""
    try:
        verb(**arguments)
    except WprivError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("value", ODD, ids=lambda v: repr(v)[:20])
@pytest.mark.parametrize(
    "name", [*GAUSS, "batch", "records", "epochs", "adjacency", "history", "accountant", "sensitivity"]
)
def test_an_odd_argument_is_answered_or_refused_by_wpriv(name, value):
    left_out = {"batch": ("rate",), "epochs": ("n",), "history": ("mech", "sigma", "sampling", "rate", "n")}.get(
        name, ()
    )
    for verb, base in ((wpriv.budget, GAUSS), (wpriv.calibrate, TARGET)):
        if verb is wpriv.calibrate and name == "history":
            continue
        arguments = {key: x for key, x in base.items() if key not in left_out}
        told = message(verb, **{**arguments, name: value})
        assert "\n" not in told
        assert len(told) < 700


@pytest.mark.parametrize("value", ODD, ids=lambda v: repr(v)[:20])
@pytest.mark.parametrize(
    "name", [*COMPARE, "sweep", "delta", "tol", "adjacency", "figure", "table", "cases", "out", "recipe", "other"]
)
def test_an_odd_key_of_a_comparison_is_answered_or_refused_by_wpriv(name, value, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert len(message(wpriv.compare, **{**COMPARE, name: value})) < 2000


def test_missing_arguments_are_usage_errors():
    for call in (
        wpriv.budget, wpriv.calibrate, wpriv.compare, lambda: wpriv.budget("gauss"), lambda: wpriv.calibrate("gauss"),
        lambda: wpriv.calibrate("gauss", eps=1), lambda: wpriv.calibrate(eps=1, delta=1e-5),
        lambda: wpriv.compare(eps=1),
    ):  # fmt: skip
        with pytest.raises(UsageError):
            call()


def test_numbers_of_numpy_and_text_are_read_like_pythons():
    plain = wpriv.budget("gauss", sigma=4, n=100, delta=1e-5)
    for n, sigma, delta in ((np.int64(100), np.float32(4), np.float64(1e-5)), ("1e2", "2^2", "1/100000")):
        assert wpriv.budget("gauss", sigma=sigma, n=n, delta=delta) == plain
    target = wpriv.calibrate("gauss", n=100, eps=1, delta=1e-5).guarantee
    assert wpriv.calibrate("gauss", n=np.int32(100), eps=np.int64(1), delta=np.float64(1e-5)).guarantee == target
    assert type(target.epsilon.upper) is float


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(["sigma", "n", "delta", "tol", "sensitivity"]),
    st.one_of(st.floats(), st.integers(), st.text(max_size=6)),
)
def test_any_number_or_text_is_answered_or_refused_by_wpriv(name, value):
    try:
        found = wpriv.budget(**{"mech": "gauss", "sigma": 4, "n": 100, "delta": 1e-5, name: value})
    except WprivError:
        return
    assert 0 <= found.epsilon.upper < float("inf")
