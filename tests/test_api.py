"""The verbs as library users call them: wrong types, missing arguments, numbers of numpy; only errors of wpriv."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import wpriv
from wpriv.accounting.budget import MechanismParameters
from wpriv.accounting.comparison.compare import ComparisonKeys
from wpriv.config.schema import Compare
from wpriv.core import registry
from wpriv.errors import UsageError, WprivError
from wpriv.training.local.privatize import ReaderParameters

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


@pytest.mark.slow
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


@pytest.mark.slow
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


def test_the_keywords_that_editors_show_are_the_parameters_of_the_plugins():
    """Oracle: the fields of the plug-ins and of the recipe schema themselves."""
    mechanisms = {f.name for name in registry.names("mechanisms") for f in dataclasses.fields(registry.mechanism(name))}
    assert set(MechanismParameters.__annotations__) == mechanisms
    readers = {
        f.name for name in registry.names("data") for f in dataclasses.fields(registry.load("data", name).Params)
    }
    # a radius is that of the clip ball here; a data set's own is given in a recipe
    assert set(ReaderParameters.__annotations__) | {"radius"} == readers
    of_recipes = {"kind", "source", "time", "quick", "printed", "procedure"}
    assert set(ComparisonKeys.__annotations__) | of_recipes == set(Compare.model_fields)


ONE = wpriv.Process((wpriv.Step(wpriv.Gauss(1)),))


def test_objects_and_names_give_the_same_answers():
    named = wpriv.budget("gauss", sigma=4, sensitivity=1, sampling="poisson", rate=0.01, n=1000, delta=1e-5)
    step = wpriv.Step(wpriv.Gauss(sigma=4), 1000, wpriv.Poisson(0.01))
    assert wpriv.budget(wpriv.Gauss(sigma=4), sampling=wpriv.Poisson(0.01), n=1000, delta=1e-5) == named
    process = wpriv.Process((step,))
    assert wpriv.budget(process, delta=1e-5).epsilon == named.epsilon
    assert wpriv.curve(process).epsilon(delta=1e-5) == float(named.epsilon)
    fixed = wpriv.budget("laplace", scale=20, sensitivity=1, sampling="fixed", rate=0.1, n=10, eps=1)
    assert wpriv.budget(wpriv.Laplace(20), sampling=wpriv.FixedSize(0.1), n=10, eps=1) == fixed
    calibration = wpriv.calibrate(wpriv.Gauss, eps=1, delta=1e-5, n=100)
    assert calibration == wpriv.calibrate("gauss", eps=1, delta=1e-5, n=100)
    assert float(calibration) == calibration.value == calibration.guarantee.process.steps[0].mechanism.sigma
    rows = wpriv.compare(process=process, accountants=["pld"], delta=1e-5, tol=1e-6).rows
    assert rows[0]["epsilon"] == pytest.approx(float(named.epsilon), rel=1e-6)


@pytest.mark.parametrize(
    "call",
    [
        lambda: wpriv.budget(wpriv.Gauss(1), sigma=2, delta=1e-5),
        lambda: wpriv.budget(ONE, n=3, delta=1e-5),
        lambda: wpriv.budget(ONE, adjacency="replace-one", delta=1e-5),
        lambda: wpriv.budget(wpriv.Gauss(1), sampling=wpriv.Poisson(0.1), rate=0.2, delta=1e-5),
        lambda: wpriv.calibrate(wpriv.Process, eps=1, delta=1e-5),
        lambda: wpriv.curve(ONE).epsilon(delta=2),
        lambda: wpriv.curve(ONE).delta(eps=-1),
        lambda: ONE + wpriv.Process(ONE.steps, "replace-one"),
    ],
)
def test_objects_that_contradict_other_arguments_are_refused(call):
    with pytest.raises(UsageError):
        call()
