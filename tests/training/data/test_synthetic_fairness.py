"""Synthetic fairness data have the documented distribution: closed-form expectations, within five standard errors."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from wpriv.errors import MissingResource, UsageError
from wpriv.training import data

N = 20_000


@pytest.fixture(scope="module")
def drawn():
    return data.read("synthetic-fairness", size=N, test_size=N)


def near(values, expected):
    """Assert that the mean of independent values is within five standard errors of its expectation."""
    values = np.asarray(values, float)
    assert abs(values.mean() - expected) < 5 * values.std() / np.sqrt(len(values))


@pytest.mark.parametrize("part", ["train", "test"])
def test_labels_groups_and_responses_have_their_distribution(drawn, part):
    y, a, response = (getattr(drawn, f"{name}_{part}") for name in ("y", "sensitive", "response"))
    assert np.array_equal(y == 1, response.sum(axis=1, dtype=float) > 1)
    near(y, 1 / 2)
    near(a == y, 0.7)
    near(a[y == 0] == 0, 0.7)  # the agreement is independent of the label
    # the centroids of both triangles are 1/3 and 2/3, mixed 0.3 and 0.7 where A = 1
    near(response[a == 1, 0], 0.3 / 3 + 0.7 * 2 / 3)
    near(response[a == 0, 1], 0.7 / 3 + 0.3 * 2 / 3)
    assert response.min() >= 0
    assert response.max() <= 1


@pytest.mark.parametrize("part", ["train", "test"])
def test_columns_are_response_and_group_with_noise_of_their_variance(drawn, part):
    x, a, response = (getattr(drawn, f"{name}_{part}") for name in ("x", "sensitive", "response"))
    means = np.concatenate([np.tile(response, 4), np.repeat(a[:, None], 8, axis=1)], axis=1)
    noise = x - means
    for column, variance in enumerate([0.2] * 8 + [0.4] * 8):
        near(noise[:, column], 0)
        near(noise[:, column] ** 2, variance)
        near(noise[:, column] * noise[:, (column + 1) % 16], 0)


def test_training_and_test_records_are_independent_and_depend_on_the_seed(drawn):
    others = ({"size": N}, {"size": N, "draw_seed": 1}, {})
    same, other, longer = (data.read("synthetic-fairness", test_size=N, **more) for more in others)
    assert same.fingerprint == drawn.fingerprint != other.fingerprint
    assert np.array_equal(longer.x_test, drawn.x_test)
    assert abs(np.corrcoef(drawn.x_train[:, 0], drawn.x_test[:, 0])[0, 1]) < 5 / np.sqrt(N)


@pytest.mark.parametrize("given", [{"agreement": 1.5}, {"core": 3}, {"size": 0}, {"core_variance": -1.0}])
def test_invalid_distribution_parameters_are_refused(given):
    with pytest.raises(UsageError):
        data.read("synthetic-fairness", **given)


def test_responses_of_another_shape_are_refused(drawn):
    with pytest.raises(MissingResource, match=r"\[20000, 2\]; found none"):
        dataclasses.replace(drawn, response_test=None)
    with pytest.raises(MissingResource, match=r"\[20000, 1\]"):
        dataclasses.replace(drawn, response_train=drawn.response_train[:, :1])


def test_limited_keeps_groups_and_responses(drawn):
    few = drawn.limited(10)
    assert np.array_equal(few.response_train, drawn.response_train[:10])
    assert np.array_equal(few.sensitive_test, drawn.sensitive_test[:10])
