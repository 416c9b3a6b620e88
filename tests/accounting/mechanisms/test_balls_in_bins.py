"""Correlated noise with balls in bins: against importance sampling, random allocation and order."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from wpriv import budget, calibrate
from wpriv.accounting.interpretations import interpretations_of
from wpriv.errors import Unsupported, UsageError
from wpriv.strategies import strategy as toeplitz

FOUR = np.array([1, 0.5, 0.25, 0.125]) / math.sqrt(1.328125)


def saved(folder, column, size):
    matrix = sum(np.diag(np.full(size - place, value), -place) for place, value in enumerate(column))
    np.save(folder / "strategy.npy", matrix)
    return {"strategy": str(folder / "strategy.npy")}


def binned(strategy, sigma, bins, epochs, **question):
    job = {"sampling": "balls-in-bins", "bins": bins, "epochs": epochs, **question}
    return budget("matrix-gauss", sigma=sigma, strategy=strategy, **job)


def sampled_delta(matrix, sigma, bins, eps, draws, seed, tilt=1.8):
    """Importance sampling of H(P||Q): mean and standard error, with Y shifted by tilt G[:, i] for a uniform i."""
    moves = np.stack([matrix[:, place::bins].sum(axis=1) for place in range(bins)])
    gram = moves @ moves.T / sigma**2
    random, half = np.random.default_rng(seed), np.diagonal(gram) / 2
    root = np.linalg.cholesky(gram + 1e-12 * np.eye(bins))
    y = random.standard_normal((draws, bins)) @ root.T + tilt * gram[random.integers(bins, size=draws)]
    weight = np.exp(tilt * y - tilt**2 * half).mean(axis=1)
    values = np.maximum(np.exp(y - half).mean(axis=1) - math.exp(eps), 0) / weight
    return values.mean(), values.std() / math.sqrt(draws)


@pytest.mark.parametrize(("strategy", "sigma"), [("banded:4", 6), ("blt", 12), ("bisr", 6), ("lambda:.9", 12)])
def test_bracket_holds_the_importance_sampled_delta(strategy, sigma):
    row = binned(strategy, sigma, 10, 10, eps=1)
    mean, error = sampled_delta(toeplitz(strategy, 100, 10).matrix(), sigma, 10, 1.0, 200_000, seed=1)
    assert row.delta.lower <= mean + 3.3 * error
    assert row.delta.upper >= mean - 3.3 * error


@pytest.mark.parametrize("bins", [2, 10])
def test_identity_is_one_pass_of_random_allocation(bins):
    ours = binned("identity", 1.5, bins, 1, delta=1e-6)
    other = budget("gauss", sigma=1.5, sampling="allocation", rate=1 / bins, epochs=1, delta=1e-6)
    assert ours.epsilon.upper == pytest.approx(other.epsilon.upper, rel=1e-6)


def test_identity_over_epochs_is_a_pass_of_less_noise():
    ours = binned("identity", 3, 10, 9, delta=1e-6)
    other = budget("gauss", sigma=1, sampling="allocation", rate=0.1, epochs=1, delta=1e-6)
    assert ours.epsilon.upper == pytest.approx(other.epsilon.upper, rel=1e-6)


@settings(max_examples=8, deadline=None, phases=[Phase.generate])
@given(
    column=st.lists(st.floats(0, 1), min_size=1, max_size=4),
    bins=st.integers(2, 6),
    sigma=st.floats(1, 8),
    delta=st.sampled_from([1e-4, 1e-8, 1e-12]),
)
def test_ends_are_ordered_and_below_no_amplification(tmp_path_factory, column, bins, sigma, delta):
    strategy = saved(tmp_path_factory.mktemp("c"), [1.0, *column], 3 * bins)
    row = binned(strategy["strategy"], sigma, bins, 3, delta=delta)
    whole = budget("matrix-gauss", sigma=sigma, **strategy, separation=bins, delta=delta)
    assert 0 <= row.epsilon.lower <= row.epsilon.upper <= whole.epsilon.upper * (1 + 1e-9)


def test_a_strategy_with_a_negative_entry_is_refused(tmp_path):
    strategy = saved(tmp_path, [1.0, -0.5], 20)["strategy"]
    with pytest.raises(UsageError, match=r"without negative entries; .* has -0.5 in row 1, column 0"):
        binned(strategy, 4, 10, 2, delta=1e-5)


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"strategy": "prefix:n=99"}, UsageError, "has 99 steps; found n = 100"),
        ({"strategy": "lambda:1.5"}, UsageError, "from 0 to below 1"),
        ({"strategy": "banded:4", "separation": 3}, UsageError, "leave out `separation`"),
        ({"strategy": "banded:4", "rate": 0.1}, UsageError, "`bins` and `rate` both"),
        ({"strategy": "banded:4", "adjacency": "replace-one"}, Unsupported, "no proven pair"),
    ],
)
def test_what_is_not_covered_is_refused(given, error, words):
    job = {"sampling": "balls-in-bins", "bins": 10, "epochs": 10, "sigma": 4, "delta": 1e-5, **given}
    with pytest.raises(error, match=words):
        budget("matrix-gauss", **job)


def test_calibrated_noise_meets_the_target():
    job = {"strategy": "lambda:.9", "sampling": "balls-in-bins", "bins": 3, "epochs": 2, "delta": 1e-6}
    answer = calibrate("matrix-gauss", eps=2, **job)
    assert budget("matrix-gauss", sigma=answer.value, **job).epsilon.upper <= 2


def test_why_shows_cyclic_poisson_and_no_amplification_beside():
    job = {"mech": "matrix-gauss", "strategy": "banded:2", "sampling": "balls-in-bins", "bins": 4, "epochs": 2}
    rows = interpretations_of({**job, "sigma": 4})
    assert [row.spec.get("sampling", "none") for row in rows] == ["allocation", "poisson", "none"]
    assert (rows[1].spec["n"], rows[1].spec["rate"]) == (4, 0.5)
