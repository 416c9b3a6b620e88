"""Correlated noise with balls in bins: against importance sampling, random allocation and order."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.special import logsumexp, softmax
from scipy.stats import norm

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


def shifts_to(gram, eps, sign, less):
    """[j, b] a such that the mean of e^(y - less) at y = gram a is e^(sign eps), and |y| is small.

    Along gram a with fixed shares of the bins, a single one or all, and along the shares that terms have at this y,
    where |y| in the norm of gram^-1 is stationary among all y of this mean.
    """
    bins = len(gram)

    def scaled(shares):
        move = shares @ gram
        high = (eps + less.max() + math.log(bins)) / move.max(axis=1) if sign > 0 else eps / move.min(axis=1)
        low = np.zeros(len(move))
        for _ in range(30):
            middle = (low + high) / 2
            far = sign * (logsumexp(sign * middle[:, None] * move - less, axis=1) - math.log(bins)) > eps
            low, high = np.where(far, low, middle), np.where(far, middle, high)
        return sign * high[:, None] * shares

    shares = np.full((1, bins), 1 / bins) if sign < 0 else np.concatenate([np.eye(bins), np.full((1, bins), 1 / bins)])
    fixed = moved = scaled(shares)
    for step in range(20):
        shares = shares + (softmax(moved @ gram - less, axis=1) - shares) / (step + 2)
        moved = scaled(shares)
    return np.concatenate([fixed, moved])


def sampled_delta(gram, eps, seed, sign=1, draws=30_000, negligible=0.0):
    """Importance sampling of H(P||Q) (or, with sign -1, of H(Q||P)): mean and standard error.

    Y is drawn from a mixture of Gaussians around likely places with this eps, so that no weight is large where the
    mean comes from. Drawn again until the error is a tenth of the mean, or half of one far below ``negligible``: zeros
    alone are no answer.
    """
    bins, half, random = len(gram), np.diagonal(gram) / 2, np.random.default_rng(seed)
    values, vectors = np.linalg.eigh(gram)
    root, results = vectors * np.sqrt(np.maximum(values, 0)), np.zeros(0)
    # y moves by half a variance where terms vary together, and by nothing where their deviations average out
    shifts = np.concatenate([shifts_to(gram, eps, sign, share * half) for share in (0, 0.5, 1)])
    squares = np.einsum("ji,ik,jk->j", shifts, gram, shifts)
    for _ in range(20):
        y = random.standard_normal((draws, bins)) @ root.T + (shifts @ gram)[random.integers(len(shifts), size=draws)]
        weight = logsumexp(y @ shifts.T - squares / 2, axis=1) - math.log(len(shifts))
        ratio = logsumexp(y - half, axis=1) - math.log(bins)
        # (S - e^eps)_+ or (1 - e^eps S)_+, over the density of the mixture
        share, scale = (eps - ratio, ratio - weight) if sign > 0 else (eps + ratio, -weight)
        results = np.append(results, np.maximum(-np.expm1(share), 0) * np.exp(scale))
        mean, error = results.mean(), results.std() / math.sqrt(results.size)
        if error <= 0.1 * mean or (error <= 0.5 * mean and mean + 10 * error <= negligible):
            return mean, error
    raise AssertionError(f"{results.size} draws are too few at eps = {eps}: {mean} +- {error}")


@pytest.mark.parametrize("delta", [1e-5, 1e-12])
@pytest.mark.parametrize("sign", [1, -1])
def test_sampler_meets_the_gaussian_of_equal_bins(sign, delta):
    mu = 0.7
    eps = brentq(lambda e: norm.sf(e / mu - mu / 2) - math.exp(e) * norm.sf(e / mu + mu / 2) - delta, 0, 50, xtol=1e-14)
    mean, error = sampled_delta(np.full((20, 20), mu**2), eps, 1, sign)
    assert mean == pytest.approx(delta, abs=4 * error)
    assert error < 0.02 * delta


@pytest.mark.parametrize("eps", [1.0, 5.0])
@pytest.mark.parametrize("scale", [0.3, 2.0])
def test_sampler_meets_the_integral_over_two_independent_bins(eps, scale):
    # a call of the second term given the first one, by the formula of Black and Scholes
    z, deviation = np.linspace(-12, 20, 200_001), math.sqrt(scale)
    strike = 2 * math.exp(eps) - np.exp(deviation * z - scale / 2)
    upper = (scale / 2 - np.log(np.maximum(strike, 1e-300))) / deviation
    call = np.where(strike > 0, norm.cdf(upper) - strike * norm.cdf(upper - deviation), 1 - strike) / 2
    mean, error = sampled_delta(scale * np.eye(2), eps, 1)
    assert mean == pytest.approx(np.trapezoid(call * norm.pdf(z), z), abs=4 * error)


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
    mean, error = sampled_delta(gram, row.upper, seed)
    assert mean - 3.29 * error <= delta
    mean, error = sampled_delta(gram, row.upper, seed, sign=-1, negligible=1e-3 * delta)
    assert mean - 3.29 * error <= delta
    if row.lower > 0:
        mean, error = sampled_delta(gram, row.lower, seed)
        other, error_other = sampled_delta(gram, row.lower, seed, sign=-1, negligible=1e-3 * delta)
        assert max(mean + 3.29 * error, other + 3.29 * error_other) >= delta


def test_a_column_much_longer_than_the_others_is_answered(tmp_path):
    """Bounds of the masses of such sums may exceed every number."""
    matrix = np.eye(4)
    matrix[1, 0] = 5
    np.save(tmp_path / "strategy.npy", matrix)
    row = binned(str(tmp_path / "strategy.npy"), 3, 2, 2, delta=1e-5).epsilon
    assert 0 < row.lower < row.upper
    for end, share in ((row.upper, -3.29), (row.lower, 3.29)):
        mean, error = sampled_delta(gram_of(matrix, 3, 2), end, 0)
        assert (mean + share * error <= 1e-5) == (end == row.upper)


@pytest.mark.parametrize(("strategy", "sigma"), [("banded:4", 6), ("blt", 12), ("bisr", 6), ("lambda:.9", 12)])
def test_bracket_holds_the_importance_sampled_delta(strategy, sigma):
    row = binned(strategy, sigma, 10, 10, eps=1)
    mean, error = sampled_delta(gram_of(toeplitz(strategy, 100, 10).matrix(), sigma, 10), 1.0, 1)
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


@settings(max_examples=5, deadline=None, phases=[Phase.generate])
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
