"""Items of a history are steps with the same words as in a recipe."""

from __future__ import annotations

import json

import pytest

import wpriv
from wpriv.accounting.build_process import described_process, described_steps
from wpriv.errors import Unsupported, UsageError

STEPS = [
    {"mech": "gauss", "sigma": 1.3, "sampling": "poisson", "batch": 256, "records": 60000, "epochs": 10},
    {"mech": "gauss", "sigma": 1.3, "sampling": "poisson", "rate": 0.004, "epochs": 2},
    {"mech": "gauss", "sigma": 4, "sampling": "poisson", "rate": 0.01, "n": 1000, "bands": 4},
    {"mech": "gauss", "sigma": 4, "sampling": "poisson", "batch": 30, "records": 60000, "n": 7, "max_batch": 80},
    {"mech": "laplace", "scale": 20, "n": "2^3"},
    {"mech": "gauss", "sigma": 2, "sampling": "allocation", "batch": 1000, "records": 60000, "epochs": 3},
]


def written(path, steps):
    path.write_text(json.dumps(steps))
    return path


@pytest.mark.parametrize("step", STEPS, ids=lambda step: ",".join(step))
def test_an_item_is_the_step_that_a_recipe_has(tmp_path, step):
    history = described_process(history=written(tmp_path / "h.json", [step]))
    recipe = described_steps([step])
    assert history.process == recipe.process
    assert set(recipe.notes) <= set(history.notes)
    assert history.records == recipe.records


def test_equal_steps_are_merged_however_they_are_written(tmp_path):
    steps = [*STEPS[:1], STEPS[4], {**STEPS[0], "epochs": 5}, {"mech": "laplace", "scale": 20}]
    history = described_process(history=written(tmp_path / "h.json", steps))
    assert [(step.mechanism.name, step.n) for step in history.process.steps] == [("gauss", 2344 + 1172), ("laplace", 9)]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"records": None}, "records"),
        ({"n": 3}, "epochs"),
        ({"rate": 0.1}, "rate"),
        ({"epochs": -1}, "epochs"),
        ({"batch": "x"}, "batch"),
    ],
)
def test_a_faulty_item_is_refused_with_its_place(tmp_path, change, words):
    path = written(tmp_path / "h.json", [STEPS[4], {**STEPS[0], **change}])
    with pytest.raises(UsageError, match=rf"h\.json, entry 2: .*{words}"):
        wpriv.budget(history=path, delta=1e-5)


@pytest.mark.parametrize(
    "step",
    [
        {**STEPS[0], "bands": 4, "max_batch": 300},
        {"mech": "laplace", "scale": 5, "sampling": "poisson", "rate": 0.25, "n": 4, "bands": 4},
    ],
)
def test_an_item_without_a_theorem_is_refused(tmp_path, step):
    with pytest.raises(Unsupported):
        wpriv.budget(history=written(tmp_path / "h.json", [step]), delta=1e-5)


@pytest.mark.parametrize(
    ("step", "same"),
    [
        ({"mech": "laplace", "epsilon": 0.5}, {"mech": "laplace", "scale": 2}),
        ({"mechanism": "laplacian", "eps": "0.5", "sensitivity": 3}, {"mech": "laplace", "scale": 6, "sensitivity": 3}),
        ({"mech": "dp", "epsilon": 1, "delta": 1e-6}, {"mech": "dp", "eps0": 1, "delta0": 1e-6}),
    ],
)
def test_a_step_may_be_given_by_its_eps(tmp_path, step, same):
    paths = (written(tmp_path / f"{i}.json", [each]) for i, each in enumerate((step, same)))
    first, second = (described_process(history=path).process for path in paths)
    assert first == second


def test_noise_for_an_eps_is_rounded_to_the_private_side(tmp_path):
    row = wpriv.budget(history=written(tmp_path / "h.json", [{"mech": "laplace", "epsilon": 0.3}]), delta=0)
    assert row.epsilon.safe <= 0.3
    assert 1 / row.process.steps[0].mechanism.scale <= 0.3


@pytest.mark.parametrize(
    ("step", "word"),
    [
        ({"mech": "gauss", "epsilon": 1, "delta": 1e-6}, '"mech": "dp", "eps0"'),
        ({"mech": "laplace", "epsilon": 1, "scale": 2}, "scale and epsilon"),
        ({"mech": "laplace", "epsilon": 0}, "greater than 0"),
        ({"mech": "zcdp", "epsilon": 1}, "rho"),
    ],
)
def test_an_eps_without_a_meaning_is_refused_with_the_word_to_write(tmp_path, step, word):
    with pytest.raises(UsageError, match=rf"h\.json, entry 1: .*{word}"):
        wpriv.budget(history=written(tmp_path / "h.json", [step]), delta=1e-5)
