"""Shuffled batches: the wide bracket against quadrature, simulation of a loader, closed forms and limits."""

from __future__ import annotations

import itertools
import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wpriv
from tests import nightly
from wpriv.accounting import evaluate
from wpriv.accounting.basis import explain
from wpriv.accounting.interpretations import compare_interpretations
from wpriv.cli.main import main
from wpriv.core import registry, shuffled_pair
from wpriv.core.shuffled_pair import ErrorRates, Noise, dominated_pair, witness_pair
from wpriv.errors import Unsupported, UsageError
from wpriv.numerics.sums import score_sum_rates


def budget(sigma, steps, passes, **question):
    return wpriv.budget("gauss", sigma=sigma, n=steps * passes, sampling=wpriv.Shuffle(1 / steps), **question)


def profile(pair, eps):
    return math.exp(float(pair.log_delta(eps)))


def density(family, scale, x):
    if family == "gauss":
        return np.exp(-((x / scale) ** 2) / 2) / (scale * math.sqrt(2 * math.pi))
    return np.exp(-np.abs(x) / scale) / (2 * scale)


def two_batch_profile(family, scale, eps):
    """H_t(P||Q) and H_t(Q||P) of the witness of two batches, by a midpoint sum over both batch sums."""
    reach, width = (10, 0.01) if family == "gauss" else (30, 0.02)
    x = np.arange(-reach * scale, 2 + reach * scale, width * scale) + width * scale / 2
    at = [density(family, scale, x - centre) for centre in (0, 1, 2)]
    p, q = ((np.outer(at[k], at[0]) + np.outer(at[0], at[k])) / 2 for k in (2, 1))
    area = (width * scale) ** 2
    return tuple(float(np.maximum(a - math.exp(eps) * b, 0).sum()) * area for a, b in ((p, q), (q, p)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "scale", "eps"),
    nightly.sharded(
        [
            (*law, eps)
            for law in (("gauss", 0.6), ("gauss", 1.5), ("gauss", 6.0), ("laplace", 1.0))
            for eps in (0.0, 0.3, 1.0)
        ],
        4,
    ),
)
def test_lower_end_is_below_the_exact_profile_of_two_batches_and_near_it(family, scale, eps):
    exact = two_batch_profile(family, scale, eps)
    pair = witness_pair(family, scale, 2)
    for lower, value in zip((profile(pair, eps), profile(pair.reverse(), eps)), exact, strict=True):
        assert lower <= value + 1e-6
        assert lower >= 0.9 * value - 1e-5


@pytest.mark.slow
@pytest.mark.parametrize(("sigma", "steps"), nightly.sharded([(0.8, 200), (1.5, 50), (3.0, 100)], 3))
def test_lower_end_agrees_with_the_simulated_likelihood_ratio(sigma, steps):
    rng, draws = np.random.default_rng(5), 100_000
    pair = witness_pair("gauss", sigma, steps)
    for sign, centre, ordered in ((1, 2, pair), (-1, 1, pair.reverse())):
        x = rng.normal(0, sigma, (draws, steps))
        x[:, 0] += centre
        loss = sign * np.log(np.exp((2 * x - 2) / sigma**2).sum(axis=1) / np.exp((x - 0.5) / sigma**2).sum(axis=1))
        for eps in (0.05, 0.3, 1.0):
            gain = np.maximum(-np.expm1(eps - loss), 0)
            error = 4 * gain.std() / math.sqrt(draws)
            assert profile(ordered, eps) <= gain.mean() + error + 1e-6
            assert profile(ordered, eps) >= 0.94 * gain.mean() - error - 1e-5


def test_a_simulated_loader_with_a_short_last_batch_has_the_rates_of_the_maximum():
    rng, records, size, sigma, threshold, draws = np.random.default_rng(3), 11, 4, 0.7, 1.6, 40_000
    rates = {}
    for contribution in (1.0, 0.0):
        values = np.full((draws, records), -1.0)
        values[:, 0] = contribution
        values = rng.permuted(values, axis=1)
        batches = [values[:, at : at + size] for at in range(0, records, size)]
        sums = np.stack([batch.sum(axis=1) + batch.shape[1] for batch in batches], axis=1)
        largest = (sums + rng.normal(0, sigma, sums.shape)).max(axis=1)
        rates[contribution] = (largest > threshold).mean()
    noise = Noise("gauss", sigma)
    for contribution, centre in ((1.0, 2.0), (0.0, 1.0)):
        at = noise.log_cdf(np.array([threshold, threshold - centre]))
        assert abs(rates[contribution] - -math.expm1(2 * at[0] + at[1])) < 4 * 0.5 / math.sqrt(draws)


@pytest.mark.parametrize("family", ["gauss", "laplace"])
def test_distribution_functions_agree_with_mpmath(family):
    for x in (-20.0, -3.0, -0.2, 0.0, 0.7, 5.0, 9.0):
        if family == "gauss":
            exact = mpmath.log(mpmath.ncdf(mpmath.mpf(x) / 2))
        else:
            tail = mpmath.exp(-abs(mpmath.mpf(x)) / 2) / 2
            exact = mpmath.log(tail if x < 0 else 1 - tail)
        assert float(Noise(family, 2.0).log_cdf(np.array([x]))[0]) == pytest.approx(float(exact), rel=1e-13)


def test_rates_of_the_maximum_are_on_the_safe_side_of_mpmath():
    sigma, steps = 0.9, 300
    rates = shuffled_pair._maximum(Noise("gauss", sigma), steps)
    tau = 3.7
    p, q = (1 - mpmath.ncdf(tau / sigma) ** (steps - 1) * mpmath.ncdf((tau - centre) / sigma) for centre in (2, 1))
    at = int(np.argmin(np.abs(rates.tpr - float(p))))
    # neighbouring thresholds enclose the exact point: more false positives buy no more power than is there
    assert rates.fpr[at + 1] < float(q) < rates.fpr[at - 1]
    assert np.all(rates.fpr + rates.tnr == pytest.approx(1, abs=2e-11))
    assert np.all(rates.tpr + rates.fnr == pytest.approx(1, abs=2e-11))


def test_tails_of_a_sum_of_scores_agree_with_direct_convolution():
    rng = np.random.default_rng(0)
    scores = np.array([-3, -1, 0, 2, 5])
    usual, other = (rng.dirichlet(np.ones(5)) for _ in range(2))
    on_line = [np.zeros(9), np.zeros(9)]
    for masses, line in zip((usual, other), on_line, strict=True):
        line[scores + 3] = masses
    total = on_line[1]
    for _ in range(6):
        total = np.convolve(total, on_line[0])
    (above,), (below,), error = score_sum_rates(scores, usual, [other], 7, 128)
    assert error < 1e-11
    first = round(7 * float(usual @ scores)) - 64
    for k in range(-21, 36):
        exact = total[max(k + 21, 0) :].sum()
        assert abs(above[k - first] - exact) <= error + 1e-14
        assert abs(below[k - first] - (1 - exact)) <= error + 1e-14


def test_what_leaves_the_window_of_a_sum_is_in_its_error():
    scores = np.array([-1, 1])
    (above,), (below,), error = score_sum_rates(scores, np.array([0.5, 0.5]), [np.array([0.5, 0.5])], 400, 64)
    # P(sum >= 20) of 400 coin flips, by the binomial distribution
    exact = sum(math.comb(400, k) for k in range(210, 401)) / 2**400
    assert 1e-3 < error < 1
    assert abs(above[20 + 32] - exact) <= error
    assert abs(below[20 + 32] - (1 - exact)) <= error


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 9), st.floats(-2, 3))
def test_a_pair_of_tests_is_dominated_by_the_pair_that_they_are_tests_of(seed, size, eps):
    rng = np.random.default_rng(seed)
    p, q = rng.dirichlet(np.full(size, 0.5)) + 1e-9, rng.dirichlet(np.full(size, 0.5)) + 1e-9
    p, q = p / p.sum(), q / q.sum()
    sets = rng.random((12, size)) < 0.5
    sets = sets[sets.any(axis=1) & ~sets.all(axis=1)]
    if not len(sets):
        return
    rates = ErrorRates(sets @ q + 1e-12, (~sets) @ q - 1e-12, sets @ p - 1e-12, (~sets) @ p + 1e-12)
    pair = dominated_pair(rates)
    assert math.fsum(np.exp(pair.log_p)) == pytest.approx(1, abs=1e-14)
    assert math.fsum(np.exp(pair.log_q)) == pytest.approx(1, abs=1e-14)
    t = math.exp(eps)
    assert profile(pair, eps) <= np.maximum(p - t * q, 0).sum() + 1e-14
    assert profile(pair.reverse(), eps) <= np.maximum(q - t * p, 0).sum() + 1e-14
    # and the best single test is kept, up to merged losses
    best = max((sets @ p - t * (sets @ q)).max(), 1 - t, 0)
    assert profile(pair, eps) >= best - 0.05 * (1 + t) * 0.5


# sigma, batches of a pass, passes, delta; the lower end of a separate program that uses the maximum alone, and eps of
# one Gaussian release a pass from the closed form of Balle and Wang (2018)
TRIALS = [
    (0.5, 1000, 1, 1e-6, 10.996, 10.997),
    (0.8, 1000, 20, 1e-6, 16.07, 41.48),
    (1.1, 234, 60, 1e-5, 10.869, 54.05),
    (4.0, 100, 656, 1e-4, 1.233, 43.5),
]


@pytest.mark.slow
@pytest.mark.parametrize(("sigma", "steps", "passes", "delta", "low", "high"), TRIALS)
def test_bracket_is_at_least_that_of_a_trial_with_the_maximum_alone(sigma, steps, passes, delta, low, high):
    row = budget(sigma, steps, passes, delta=delta)
    assert row.claim == "certified"
    assert row.process.adjacency == "zero-out"
    assert low * (1 - 1e-4) <= row.epsilon.lower <= row.epsilon.upper
    assert row.epsilon.upper == pytest.approx(high, rel=2e-3)
    mu = math.sqrt(passes) / sigma
    eps = row.epsilon.upper
    exact = mpmath.ncdf(mu / 2 - eps / mu) - mpmath.exp(eps) * mpmath.ncdf(-mu / 2 - eps / mu)
    assert float(exact) == pytest.approx(delta, rel=1e-5)


def test_the_lower_end_exceeds_poisson_sampling_also_at_large_noise():
    poisson = wpriv.budget("gauss", sigma=4, n=65600, sampling=wpriv.Poisson(0.01), delta=1e-4)
    assert budget(4, 100, 656, delta=1e-4).epsilon.lower > 1.1 * poisson.epsilon.upper


@pytest.mark.slow
def test_very_small_and_very_large_noise_and_very_long_passes_have_sensible_ends():
    row = budget(0.01, 50, 2, delta=1e-5)
    assert 1000 < row.epsilon.lower < row.epsilon.upper
    close = budget(0.1, 50, 2, delta=1e-5).epsilon
    assert close.lower == pytest.approx(close.upper, rel=1e-3)
    assert budget(1e5, 50, 2, delta=1e-5).epsilon.upper == 0
    # without the scores of batches on enough places the sum would drift out of its window
    assert profile(witness_pair("gauss", 4.0, 10**6), 0.0) > 1e-4
    assert profile(witness_pair("gauss", 1.0, 10**12), 0.0) >= 0


def test_one_batch_a_pass_is_no_sampling():
    whole = wpriv.budget("gauss", sigma=2, n=7, adjacency="zero-out", delta=1e-5)
    row = budget(2, 1, 7, delta=1e-5)
    assert row.epsilon == whole.epsilon
    assert not any("shuffled" in line for line in row.warnings)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.floats(-4, 4), st.integers(2, 2000), st.integers(1, 200), st.floats(-25, -2), st.booleans())
def test_brackets_are_ordered_numbers(log_scale, steps, passes, log_delta, laplace):
    scale, delta = math.exp(log_scale), math.exp(log_delta)
    step = wpriv.Laplace(scale) if laplace else wpriv.Gauss(scale)
    process = wpriv.Process((wpriv.Step(step, steps * passes, wpriv.Shuffle(1 / steps)),))
    row = wpriv.budget(process, delta=delta, tol=1e-3)
    assert 0 <= row.epsilon.lower <= row.epsilon.upper < math.inf
    row = wpriv.budget(process, eps=0.7, tol=1e-3)
    assert 0 <= row.delta.lower <= row.delta.upper <= 1


def test_more_passes_and_less_noise_cost_more_at_both_ends():
    rows = [[budget(sigma, 50, passes, delta=1e-5).epsilon for passes in (1, 4, 30)] for sigma in (4.0, 1.5, 0.8)]
    for row in (*rows, *zip(*rows, strict=True)):
        for less, more in itertools.pairwise(row):
            assert less.lower < more.lower
            assert less.upper < more.upper


@pytest.mark.parametrize("sampling", [wpriv.Sampling(), wpriv.Poisson(0.1), wpriv.Allocation(0.1)])
def test_zero_out_is_add_remove_where_a_record_does_not_move_others(sampling):
    rows = [
        wpriv.budget("gauss", sigma=2, n=20, sampling=sampling, adjacency=adjacency, delta=1e-5)
        for adjacency in ("zero-out", "add-remove")
    ]
    assert rows[0].epsilon == rows[1].epsilon


def test_shuffled_batches_compose_with_other_steps():
    shuffled = wpriv.Process((wpriv.Step(wpriv.Gauss(2.0), 100, wpriv.Shuffle(0.02)),))
    mixed = shuffled + wpriv.Step(wpriv.Gauss(5.0), 3) + wpriv.Step(wpriv.Gauss(2.0), 50, wpriv.Poisson(0.1))
    alone, together = (wpriv.budget(process, delta=1e-5).epsilon for process in (shuffled, mixed))
    assert alone.lower < together.lower < together.upper
    assert alone.upper < together.upper


def test_accountants_without_a_proof_refuse():
    process = wpriv.Process((wpriv.Step(wpriv.Gauss(2.0), 100, wpriv.Shuffle(0.02)),))
    refused = 0
    for name in registry.names("accountants"):
        if name == "pld":
            continue
        with pytest.raises(Unsupported, match=r"[Uu]se|give"):
            evaluate.curve(process, name).at(delta=1e-6)
        refused += 1
    assert refused >= 15


def test_what_cannot_be_shuffled_is_refused():
    with pytest.raises(UsageError, match="whole number of steps"):
        wpriv.Shuffle(0.3)
    with pytest.raises(UsageError, match="multiple of 100"):
        wpriv.Step(wpriv.Gauss(1.0), 150, wpriv.Shuffle(0.01))
    for adjacency in ("add-remove", "replace-one"):
        with pytest.raises(Unsupported, match="adjacency='zero-out'"):
            wpriv.Process((wpriv.Step(wpriv.Gauss(1.0), 100, wpriv.Shuffle(0.01)),), adjacency)
    for mechanism in (wpriv.DiscreteGauss(2.0), wpriv.TruncatedGauss(1.0, 5.0), wpriv.RandomizedResponse(2.0)):
        with pytest.raises(Unsupported, match="Gaussian noise on a query, Laplace noise on a query"):
            wpriv.Process((wpriv.Step(mechanism, 10, wpriv.Shuffle(0.1)),))
    with pytest.raises(Unsupported, match="adjacency='replace-one'"):
        wpriv.Process((wpriv.Step(wpriv.Gauss(1.0), 10, wpriv.FixedSize(0.1)),), "zero-out")


@pytest.mark.slow
def test_calibrate_decides_by_the_upper_end():
    solved = wpriv.calibrate("gauss", eps=2, delta=1e-5, n=200, sampling=wpriv.Shuffle(0.02))
    unsampled = wpriv.calibrate("gauss", eps=2, delta=1e-5, n=4)
    assert solved.value == pytest.approx(unsampled.value, rel=1e-3)
    assert solved.guarantee.epsilon.lower < 1 < solved.guarantee.epsilon.upper <= 2
    most = wpriv.calibrate("gauss", sigma=6, eps=2, delta=1e-5, sampling="shuffle", rate=0.02)
    assert most.value % 50 == 0
    with pytest.raises(UsageError, match="rates 1/t only"):
        wpriv.calibrate("gauss", sigma=1.5, eps=1, delta=1e-6, n=100, sampling="shuffle")


@pytest.mark.parametrize(
    ("flags", "code", "named"),
    [
        ("--rate 0.3 --n 10", 2, "--rate"),
        ("--rate 0.01 --n 150", 2, "multiple of 100"),
        ("--n 100", 2, "--rate"),
        ("--rate 0.01 --n 100 --adjacency add-remove", 3, "--adjacency zero-out"),
        ("--rate 0.01 --n 100 --adjacency replace-one", 3, "--adjacency zero-out"),
        ("--rate 0.01 --n 100 --accountant rdp", 3, "pld"),
    ],
)
def test_command_line_refuses_what_is_not_bracketed(flags, code, named, capsys):
    common = "budget --mech gauss --sigma 2 --delta 1e-5 --sampling shuffle"
    assert main([*common.split(), *flags.split()]) == code
    out = capsys.readouterr()
    assert named in out.err
    assert out.out == ""


def test_training_refuses_shuffled_batches_with_the_reason(tmp_path, capsys):
    recipe = tmp_path / "shuffled.yaml"
    recipe.write_text(
        "kind: train\nsource: a test\ntask: classify\ndata: {name: digits}\nmodel: {name: linear}\n"
        "privacy: {eps: 3, delta: 1e-5, clip: 0.1, sampling: shuffle}\noptimizer: {name: sgd, lr: 0.5}\n"
        "batch: 64\nepochs: 2\n"
    )
    assert main(["recipe", "check", str(recipe)]) == 2
    assert "no amplification is proven" in capsys.readouterr().err


def test_why_has_a_row_for_shuffled_batches_with_both_ends():
    rows = compare_interpretations({"mech": "gauss", "sigma": 2, "rate": 0.02, "n": 100}, delta=1e-5)
    (row,) = [row for row in rows if row["sampling"] == "shuffle"]
    assert (row["adjacency"], row["n"], row["claim"]) == ("zero-out", 100, "certified")
    assert 0 < row["epsilon_lower"] < row["epsilon_upper"]
    assert "at least 0.9" in row["assumption"]
    other = compare_interpretations({"mech": "discrete-gauss", "sigma": 2, "rate": 0.02, "n": 100}, delta=1e-5)
    assert not any(row["sampling"] == "shuffle" for row in other)
    assert any("all other records must keep their batches" in row["assumption"] for row in other)


def test_explanation_says_which_end_is_which():
    lines = explain(budget(2, 50, 2, delta=1e-5))["assumptions"]
    assert any("upper end: one release without sampling" in line and "lower end" in line for line in lines)
    assert any("contributes nothing" in line for line in lines)


def test_a_short_last_batch_counts_as_one_more():
    row = wpriv.budget("gauss", sigma=1.1, sampling="shuffle", batch=256, records=60000, epochs=2, delta=1e-5)
    assert row.process.steps[0].n == 2 * 235
    assert any("235 batches" in note for note in row.extra["reading"])
