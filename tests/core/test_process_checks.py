"""Validation of processes on creation: numbers of any library become Python's, anything else is refused by name."""

from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
import pytest

from wpriv.accounting.mechanisms.gauss import Gauss
from wpriv.accounting.mechanisms.laplace import Laplace
from wpriv.accounting.mechanisms.uniform import Uniform
from wpriv.core import registry, theorems
from wpriv.core.kinds import SAMPLINGS, Adjacency, Sampling, default_adjacency
from wpriv.core.process import Process, Step
from wpriv.core.sampled_step import defined_under
from wpriv.errors import Unsupported, UsageError

ONE = Step(Gauss(1.0))


@pytest.mark.parametrize("number", [4, np.int64(4), np.float32(4), np.float64(4), np.uint8(4), Fraction(4)])
def test_a_number_of_any_library_is_a_python_float(number):
    made = Gauss(number)
    assert type(made.sigma) is float
    assert made == Gauss(4.0)
    json.dumps(made.describe())


@pytest.mark.parametrize("number", [10, np.int64(10), 10.0, np.float32(10)])
def test_a_whole_parameter_is_a_python_int(number):
    made = Uniform(number)
    assert type(made.outcomes) is int
    assert made == Uniform(10)


@pytest.mark.parametrize("n", [7, np.int64(7), np.uint16(7), 7.0])
def test_n_is_a_python_int(n):
    step = Step(Gauss(1.0), n)
    assert type(step.n) is int
    assert step == Step(Gauss(1.0), 7)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Gauss(np.int64(-1)), "gauss: sigma must be greater than 0; found -1"),
        (lambda: Gauss("4"), "gauss: sigma must be a number; found '4'"),
        (lambda: Gauss(None), "gauss: sigma must be a number; found None"),
        (lambda: Gauss(True), "gauss: sigma must be a number; found True"),
        (lambda: Gauss(np.array([4.0])), "gauss: sigma must be a number; found array"),
        (lambda: Gauss(np.float64("nan")), "gauss: sigma must be a finite number; found nan"),
        (lambda: Gauss(10**5000), "gauss: sigma"),
        (lambda: Gauss(1.0, sensitivity="1"), "gauss: sensitivity must be a number; found '1'"),
        (lambda: Uniform(10.5), "uniform: outcomes must be a whole number; found 10.5"),
        (lambda: Uniform(np.bool_(True)), "uniform: outcomes must be a number"),
        (lambda: Step(Gauss(1.0), np.int64(0)), "from 1 to 2^40; found 0"),
        (lambda: Step(Gauss(1.0), "3"), "n, the number of compositions, must be a number; found '3'"),
        (lambda: Step(Gauss(1.0), 2.5), "must be a whole number; found 2.5"),
        (lambda: Step(Gauss(1.0), True), "must be a number; found True"),
        (lambda: Step(Gauss(1.0), 10**5000), "n, the number of compositions,"),
        (lambda: Step("gauss"), "a step needs a mechanism"),
        (lambda: Step(Gauss(1.0), 3, "poisson"), "Sampling('poisson', rate); found 'poisson'"),
        (lambda: Sampling("poisson", "0.1"), "the sampling rate must be a number; found '0.1'"),
        (lambda: Sampling("poisson", np.float64(2)), "(0, 1]; found 2"),
        (lambda: Process(ONE), "a tuple of Steps"),
        (lambda: Process((1,)), "a tuple of Steps"),
        (lambda: Process(()), "at least one step"),
        (lambda: Process((ONE,), 3), "adjacency must be one of"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_by_name(make, words):
    with pytest.raises(UsageError) as caught:
        make()
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_steps_may_be_given_as_a_list():
    assert Process([ONE]) == Process((ONE,))


def test_adding_a_step_or_a_process_composes_them():
    sampled = Step(Gauss(2.0), 5, Sampling("poisson", 0.1))
    assert Process((ONE,)) + sampled == Process((ONE, sampled))
    assert Process((ONE,)) + Process((sampled, ONE)) == Process((ONE, sampled, ONE))
    assert (Process((ONE,), "replace-one") + ONE).adjacency == "replace-one"


def test_processes_of_different_adjacency_are_not_composed():
    with pytest.raises(UsageError, match="add-remove"):
        Process((ONE,)) + Process((ONE,), "replace-one")
    with pytest.raises(Unsupported, match="add-remove"):
        Process((ONE,), "replace-one") + Step(Laplace(2.0), 5, Sampling("poisson", 0.1))
    with pytest.raises(UsageError, match="3 and 1"):
        Process((ONE,), group=3) + Process((ONE,))
    with pytest.raises(TypeError):
        Process((ONE,)) + Gauss(1.0)


def test_every_adjacency_of_a_mechanism_has_a_meaning():
    classes = [registry.mechanism(name) for name in registry.names("mechanisms")]
    assert {a for cls in classes for a in defined_under(cls)} == set(Adjacency)
    assert all(len(each.meaning) > 20 for each in Adjacency)


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_the_default_adjacency_of_a_sampling_is_proven(sampling):
    adjacency = Process((Step(Gauss(1.0), 1, Sampling(sampling, 1.0)),)).adjacency
    assert adjacency == default_adjacency(sampling)
    assert adjacency in theorems.adjacencies(sampling)
    assert type(adjacency) is str  # written to JSON and YAML
