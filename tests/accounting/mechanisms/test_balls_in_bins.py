"""Correlated noise with balls in bins: against importance sampling, random allocation and order."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.nightly import sharded
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


def gram_of(matrix, sigma, bins):
    moves = np.stack([matrix[:, place::bins].sum(axis=1) for place in range(bins)])
    return moves @ moves.T / sigma**2


def sampled_delta(gram, eps, draws, seed, tilts=(1.0, 1.5, 2.0, 3.0, 5.0, 8.0, 13.0), sign=1):
    """Importance sampling of H(P||Q) (or, with sign -1, of H(Q||P)): mean and standard error.

    Y is shifted by tilt times the covariances of a uniform bin, with the tilt of the least error of a short run.
    """
    bins, half, random = len(gram), np.diagonal(gram) / 2, np.random.default_rng(seed)
    values, vectors = np.linalg.eigh(gram)
    root = vectors * np.sqrt(np.maximum(values, 0))

    def draw(tilt, count):
        shift = tilt * gram[random.integers(bins, size=count)] if sign > 0 else -tilt * gram.mean(axis=0)
        y = random.standard_normal((count, bins)) @ root.T + shift
        if sign > 0:
            weight = np.exp(tilt * y - tilt**2 * half).mean(axis=1)
            return np.maximum(np.exp(y - half).mean(axis=1) - math.exp(eps), 0) / weight
        weight = np.exp(-tilt * y.mean(axis=1) - tilt**2 * gram.mean() / 2)
        return np.maximum(1 - math.exp(eps) * np.exp(y - half).mean(axis=1), 0) / weight

    trials = [(draw(tilt, draws // 20), tilt) for tilt in tilts]
    tilt = min(trials, key=lambda each: each[0].std() / max(each[0].mean(), 1e-300) if each[0].any() else math.inf)[1]
    result = draw(tilt, draws)
    return result.mean(), result.std() / math.sqrt(draws)


def random_job(seed):
    """A column of nonnegative entries or a named strategy, with bins, epochs, sigma and delta."""
    random = np.random.default_rng(seed)
    bins, epochs = int(random.choice([2, 3, 5, 8, 10, 12, 16, 20, 32, 60])), int(random.integers(1, 11))
    size = bins * epochs
    kind = random.choice(["column", "column", "banded:3", "bisr:4", "blt:3", "lambda:.7"])
    column = np.append(1.0, random.uniform(0, 1, random.integers(1, 4)))[:size]
    matrix = (
        sum(np.diag(np.full(size - k, v), -k) for k, v in enumerate(column / np.linalg.norm(column)))
        if kind == "column" or size < 5
        else toeplitz(str(kind), size, bins).matrix()
    )
    sigma = float(random.uniform(0.6, 2.5) * math.sqrt(epochs) * random.choice([1.0, 1.5]))
    return matrix, bins, epochs, sigma, float(random.choice([1e-4, 1e-5, 1e-6, 1e-8, 1e-10, 1e-12]))


@pytest.mark.parametrize("seed", sharded(range(200), of=100))
def test_ends_of_random_jobs_hold_the_sampled_truth(seed, tmp_path):
    matrix, bins, epochs, sigma, delta = random_job(seed)
    np.save(tmp_path / "strategy.npy", matrix)
    row = binned(str(tmp_path / "strategy.npy"), sigma, bins, epochs, delta=delta).epsilon
    gram = gram_of(matrix, sigma, bins)
    # 3.29 standard errors: 99.9%
    mean, error = sampled_delta(gram, row.upper, 60_000, seed)
    assert mean - 3.29 * error <= delta
    mean, error = sampled_delta(gram, row.upper, 60_000, seed, sign=-1)
    assert mean - 3.29 * error <= delta
    if row.lower > 0:
        mean, error = sampled_delta(gram, row.lower, 60_000, seed)
        other, error_other = sampled_delta(gram, row.lower, 60_000, seed, sign=-1)
        assert max(mean + 3.29 * error, other + 3.29 * error_other) >= delta


def test_a_column_much_longer_than_the_others_is_answered(tmp_path):
    """Bounds of the masses of such sums may exceed every number."""
    matrix = np.eye(4)
    matrix[1, 0] = 5
    np.save(tmp_path / "strategy.npy", matrix)
    row = binned(str(tmp_path / "strategy.npy"), 3, 2, 2, delta=1e-5).epsilon
    assert 0 < row.lower < row.upper
    for end, share in ((row.upper, -3.29), (row.lower, 3.29)):
        mean, error = sampled_delta(gram_of(matrix, 3, 2), end, 60_000, 0)
        assert (mean + share * error <= 1e-5) == (end == row.upper)


@pytest.mark.parametrize(("strategy", "sigma"), [("banded:4", 6), ("blt", 12), ("bisr", 6), ("lambda:.9", 12)])
def test_bracket_holds_the_importance_sampled_delta(strategy, sigma):
    row = binned(strategy, sigma, 10, 10, eps=1)
    mean, error = sampled_delta(gram_of(toeplitz(strategy, 100, 10).matrix(), sigma, 10), 1.0, 200_000, seed=1)
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


@pytest.mark.parametrize("sigma", [1e5, 1e7, 1e9])
def test_lower_end_with_very_large_noise_is_below_the_mean_of_all_covariances(sigma):
    """With much noise the ratio is e^(mu Z) with mu^2 the mean entry, and delta at eps = 0 is mu over sqrt(2 pi)."""
    row = binned("banded:2", sigma, 4, 1, eps=0)
    gram = gram_of(toeplitz("banded:2", 4, 4).matrix(), sigma, 4)
    assert row.delta.lower <= math.sqrt(gram.mean() / (2 * math.pi)) * (1 + 1e-9)
    assert row.delta.lower <= row.delta.upper


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
