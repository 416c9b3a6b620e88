"""The data set ``toy`` has the moments of its distributions, and a recipe may privatise a data set before training."""

from __future__ import annotations

import json

import numpy as np
import pytest

import wpriv
from wpriv.config.document import Document
from wpriv.config.recipe import check
from wpriv.core import registry
from wpriv.errors import MissingResource, UsageError
from wpriv.training import data, train, train_data, training_run


@pytest.mark.parametrize("law", registry.load("data", "toy").LAWS)
def test_toy_has_its_total_variance_and_depends_on_its_seed(law):
    found = data.read("toy", law=law, points=20_000, tests=10, spread=0.1, size=2.0)
    again = data.read("toy", law=law, points=20_000, tests=10, spread=0.1, size=2.0)
    assert np.array_equal(found.x_train, again.x_train)
    other = data.read("toy", law=law, points=20_000, tests=10, spread=0.1, size=2.0, draw=1)
    assert not np.array_equal(found.x_train, other.x_train)
    # total variance in closed form: of the centres (the radius of a spiral is 2 sqrt(u), u uniform), and of two
    # Gaussians
    variance = {"gauss": 0.0, "ring": 4.0, "spirals": 2.0, "ends": 4.0}[law] + 2 * 0.01
    # for 20000 points, 3 percent are at least three standard errors
    assert float(found.x_train.var(0).sum()) == pytest.approx(variance, rel=0.03)
    assert found.y_train.max() + 1 == len(found.classes)
    assert "synthetic" in found.source


def recipe(**options):
    noise = {"mech": "local-gauss", "sigma": 0.5, "delta": 1e-3, "radius": 3, **options}
    plain = {
        "kind": "train",
        "source": "s",
        "task": "denoise",
        "data": {"name": "toy", "points": 2000, "privatize": noise},
    }
    rest = {"model": {"name": "mlp-generator"}, "privacy": "none", "optimizer": {"lr": 0.1}, "batch": 10, "steps": 1}
    return check(Document("toy", [], {**plain, **rest, "seed": 4}))


def test_a_recipe_adds_the_noise_of_privatize_with_its_seed():
    clear = data.read("toy", points=2000)
    found = train_data.privatised(recipe(), clear, None)
    alone = wpriv.privatize(clear.x_train, "local-gauss", sigma=0.5, delta=1e-3, radius=3, seed=4)
    assert np.array_equal(found.x_train, alone.x)
    assert np.array_equal(found.x_test, clear.x_test)
    assert (found.noise.p, found.noise.scale, found.noise.lam, found.noise.domain) == (2, 0.5, 0.5, "as read")
    assert found.noise.statement["guarantees"] == alone.statement["guarantees"]
    assert set(found.y_train) == {0}
    other = train_data.privatised(recipe(seed=5), clear, None)
    assert not np.array_equal(other.x_train, found.x_train)
    laplace = recipe(mech="local-laplace", sigma=None, scale=2.0, delta=None, dct=True)
    assert train_data.privatised(laplace, clear, None).noise.domain == "dct"


def test_noise_without_a_seed_or_on_noisy_records_is_refused(tmp_path):
    made = recipe()
    clear = data.read("toy", points=50)
    with pytest.raises(UsageError, match="data: privatize"):
        train_data.privatised(made, train_data.privatised(made, clear, None), None)
    without = check(Document("toy", [], {key: value for key, value in made.data.items() if key != "seed"}))
    with pytest.raises(UsageError, match="seed"):
        train_data.privatised(without, clear, None)
    with pytest.raises(UsageError, match=r"toy: data: privatize: .*`radius`"):
        train_data.privatised(recipe(radius=None), clear, None)


def test_first_limits_only_training_records(tmp_path):
    made = train.changed(recipe(), {"data.first": 30})
    assert training_run.planned(made, tmp_path / "out")[0].records == 30
    found = train_data.data(made, None)
    assert (len(found.x_train), len(found.x_test)) == (30, 2000)


def test_evaluation_records_must_have_the_shape_of_the_reports(tmp_path):
    wpriv.privatize(np.zeros((4, 3)), "local-laplace", radius=1, scale=1, out=tmp_path / "a.npz")
    with pytest.raises(MissingResource, match=r"toy.*\[2\].*\[3\]"):
        data.read("privatized", root=tmp_path, file="a.npz", test="toy")
    json.loads((tmp_path / "a.statement.json").read_text())
