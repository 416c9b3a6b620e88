"""Thresholds for unknown keys; the oracle is the supremum over the numbers of unknown keys in mpmath."""

from __future__ import annotations

import json
import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from wpriv import Gauss, GaussThreshold, LaplaceThreshold, Process, Step, budget, calibrate
from wpriv.cli.main import main
from wpriv.errors import Unsupported


def gauss_profile(t: mp.mpf, mu: mp.mpf) -> mp.mpf:
    if mu == 0:
        return max(mp.mpf(0), 1 - t)
    eps = mp.log(t)
    return mp.ncdf(mu / 2 - eps / mu) - t * mp.ncdf(-mu / 2 - eps / mu)


def laplace_profile(t: mp.mpf, shift: mp.mpf) -> mp.mpf:
    if shift == 0:
        return max(mp.mpf(0), 1 - t)
    eps = mp.log(t)
    if eps >= shift:
        return mp.mpf(0)
    return 1 - mp.e ** ((eps - shift) / 2) if eps >= 0 else 1 - t + t * laplace_profile(1 / t, shift)


def worst(eps: float, keys: int, release: mp.mpf, known) -> tuple[mp.mpf, mp.mpf]:
    """The largest delta over the numbers of unknown keys, in both orders of the neighbours."""
    remove, add, t = mp.mpf(0), mp.mpf(0), mp.e ** mp.mpf(eps)
    for unknown in range(keys + 1):
        kept = (1 - release) ** unknown
        remove = max(remove, 1 - kept + kept * known(t / kept, keys - unknown))
        add = max(add, known(t * kept, keys - unknown))
    return remove, add


def gauss_oracle(eps: float, sigma: float, threshold: float, keys: int, size: float) -> tuple[mp.mpf, mp.mpf]:
    release = mp.ncdf((mp.mpf(size) - threshold) / sigma)
    return worst(eps, keys, release, lambda t, m: gauss_profile(t, mp.mpf(size) * mp.sqrt(m) / sigma))


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(
    st.floats(0.15, 30), st.floats(-2, 12), st.integers(1, 6), st.floats(0.1, 5), st.sampled_from([0.0, 0.01, 0.5, 3.0])
)
def test_one_release_has_the_worst_delta_over_the_numbers_of_unknown_keys(sigma, excess, keys, size, eps):
    threshold = max(size + excess * sigma, 1e-3)
    pair = GaussThreshold(sigma, threshold, keys, size).pair()
    for order, exact in zip((pair, pair.reverse()), gauss_oracle(eps, sigma, threshold, keys, size), strict=True):
        delta = math.exp(float(order.log_delta(eps)))
        assert delta == pytest.approx(float(exact), rel=1e-8, abs=1e-250)


@pytest.mark.parametrize(("scale", "threshold"), [(1.0, 12.0), (2.0, 1.5), (0.5, 0.3), (20.0, 300.0)])
def test_laplace_noise_with_one_key_has_the_worst_of_a_known_and_an_unknown_key(scale, threshold):
    excess = (mp.mpf(threshold) - 1) / scale
    release = mp.e**-excess / 2 if excess >= 0 else 1 - mp.e**excess / 2
    pair = LaplaceThreshold(scale, threshold).pair()
    for eps in (0.0, 0.03, 0.4, 1.5):
        exact = worst(eps, 1, release, lambda t, m: laplace_profile(t, mp.mpf(m) / scale))
        for order, value in zip((pair, pair.reverse()), exact, strict=True):
            assert math.exp(float(order.log_delta(eps))) == pytest.approx(float(value), rel=1e-11, abs=1e-15)


@pytest.mark.parametrize("sigma", [1e3, 1e6, 1e9])
def test_adding_a_person_keeps_the_digits_of_a_tiny_delta(sigma):
    reverse = GaussThreshold(sigma, 10 * sigma).pair().reverse()
    for eps in (0.0, 0.1 / sigma, 2 / sigma):
        _, add = gauss_oracle(eps, sigma, 10 * sigma, 1, 1.0)
        assert float(reverse.log_delta(eps)) == pytest.approx(float(mp.log(add)), abs=1e-13)


@pytest.mark.parametrize(("sigma", "threshold"), [(0.9, 0.001), (0.18, 1.5), (0.1, 0.7)])
def test_the_worst_number_of_unknown_keys_is_found_where_deltas_are_one_up_to_rounding(sigma, threshold):
    keys = 40
    pair = GaussThreshold(sigma, threshold, keys).pair()
    for eps in (0.0, 10.0, 40.0, 80.0, 150.0, 300.0, 600.0, 1300.0):
        for order, exact in zip((pair, pair.reverse()), gauss_oracle(eps, sigma, threshold, keys, 1.0), strict=True):
            log_delta = float(mp.log(exact)) if exact > 0 else -math.inf
            assert float(order.log_delta(eps)) == pytest.approx(log_delta, rel=1e-12, abs=1e-12)


@pytest.mark.slow
def test_a_budget_is_exact_for_one_release_and_a_bracket_for_several():
    row = budget("gauss-threshold", sigma=5, threshold=30, keys=3, delta=1e-5)
    assert row.claim == "exact"
    assert max(gauss_oracle(row.epsilon.safe, 5, 30, 3, 1)) == pytest.approx(1e-5, rel=1e-9)
    ten = budget("gauss-threshold", sigma=5, threshold=30, keys=3, n=10, delta=1e-4)
    assert ten.claim == "certified"
    # ten releases in which all keys are known, or all unknown
    known = budget("gauss", sigma=5, sensitivity=math.sqrt(3), n=10, delta=1e-4)
    assert known.epsilon.safe * (1 - 1e-3) <= ten.epsilon.lower <= ten.epsilon.upper
    leak = 1 - (1 - norm.sf(29 / 5)) ** 30
    alone = budget("gauss", sigma=5, sensitivity=math.sqrt(3), n=10, delta=1e-4 - leak)
    assert ten.epsilon.upper <= alone.epsilon.safe * (1 + 1e-3)


@pytest.mark.parametrize("unknown", [0, 1, 2])
def test_simulated_releases_stay_below_the_profile(unknown):
    """200000 pairs of releases, two keys of the person, of which some are unknown; four standard errors."""
    rng, draws, sigma, threshold, eps = np.random.default_rng(5), 200_000, 1.0, 2.5, 0.4
    profile = math.exp(float(GaussThreshold(sigma, threshold, 2).pair().log_delta(eps)))
    known = 2 - unknown
    # the known keys have a count of 20 without the person, and the likelihood ratio of their noisy counts is known
    counts = 20 + rng.normal(size=(draws, known)) * sigma
    with_person = counts + 1
    shown = (1 + rng.normal(size=(draws, unknown)) * sigma > threshold).any(axis=1)

    def loss(x):
        kept = (1 - norm.sf((threshold - 1) / sigma)) ** unknown
        return np.log(kept) + ((x - 20) - 0.5).sum(axis=1) / sigma**2

    in_set = shown | (loss(with_person) > eps)
    estimate = in_set.mean() - math.exp(eps) * (loss(counts) > eps).mean()
    error = 4 * math.sqrt((1 + math.exp(2 * eps)) / 4 / draws)
    assert estimate <= profile + error


@pytest.mark.slow
@settings(deadline=None, max_examples=20)
@given(st.floats(0.3, 20), st.floats(0.5, 9), st.integers(1, 60))
def test_a_larger_threshold_and_fewer_keys_are_more_private(sigma, excess, keys):
    eps = np.array([0.0, 0.2, 1.0, 4.0])
    threshold = 1 + excess * sigma
    delta = GaussThreshold(sigma, threshold, keys).pair().log_delta(eps)
    assert np.all(np.diff(delta) <= 1e-12)
    assert np.all(GaussThreshold(sigma, threshold + 0.3 * sigma, keys).pair().log_delta(eps) <= delta + 1e-9)
    if keys < 40:
        assert np.all(delta <= GaussThreshold(sigma, threshold, keys + 1).pair().log_delta(eps) + 1e-9)


@pytest.mark.slow
def test_many_keys_are_bracketed_by_blocks_of_numbers_of_unknown_keys():
    row = budget("gauss-threshold", sigma=50, threshold=400, keys=1000, delta=1e-6)
    assert row.claim == "certified"
    exact = [max(gauss_oracle(end, 50, 400, 1000, 1)) for end in (row.epsilon.lower, row.epsilon.upper)]
    assert exact[0] >= 1e-6 * (1 - 1e-6)
    assert exact[1] <= 1e-6
    assert row.epsilon.upper - row.epsilon.lower < 1e-3 * row.epsilon.upper


@pytest.mark.slow
def test_calibrate_solves_for_the_threshold():
    answer = calibrate("gauss-threshold", sigma=5, keys=3, eps=2, delta=1e-6)
    assert answer.parameter == "threshold"
    # at the least threshold all three unknown keys are released with probability delta
    release = 1 - (1 - 1e-6) ** (1 / 3)
    assert answer.value == pytest.approx(1 + 5 * norm.isf(release), rel=2e-5)
    assert max(gauss_oracle(2, 5, answer.value, 3, 1)) <= 1e-6


def test_it_composes_with_other_steps():
    both = budget(Process((Step(GaussThreshold(5, 40)), Step(Gauss(3)))), delta=1e-5)
    plain = budget(Process((Step(Gauss(5)), Step(Gauss(3)))), delta=1e-5)
    assert plain.epsilon.safe * (1 - 1e-9) <= both.epsilon.upper <= plain.epsilon.safe * (1 + 1e-3)


@pytest.mark.parametrize("mechanism", [GaussThreshold(5, 40), LaplaceThreshold(5, 90)])
def test_groups_and_replaced_records_are_refused_with_what_to_ask(mechanism):
    with pytest.raises(Unsupported, match="Take the person for the record"):
        budget(mechanism, group=2, delta=1e-5)
    with pytest.raises(Unsupported, match="add-remove"):
        budget(mechanism, adjacency="replace-one", delta=1e-5)


@pytest.mark.slow
def test_laplace_noise_with_more_keys_is_between_one_known_key_and_all_of_them():
    row = budget("laplace-threshold", scale=10, threshold=250, keys=3, delta=1e-6)
    assert row.claim == "certified"
    assert 0.09 < row.epsilon.lower <= 0.1 + 1e-9
    assert 0.29 < row.epsilon.upper <= 0.3


@pytest.mark.parametrize(
    ("flags", "code", "named"),
    [
        (["--param", "threshold=0"], 2, "threshold"),
        (["--param", "threshold=20", "--param", "keys=0"], 2, "keys"),
        (["--param", "threshold=20", "--param", "keys=1.5"], 2, "keys"),
        ([], 2, "--param threshold="),
        (["--param", "threshold=20", "--group", "2"], 3, "--param keys="),
        (["--param", "threshold=2", "--param", "keys=2"], 3, "distinguishing events"),
    ],
)
def test_errors_of_the_command_line_name_the_value(capsys, flags, code, named):
    assert main(["budget", "--mech", "gauss-threshold", "--sigma", "2", *flags, "--delta", "1e-5"]) == code
    answer = capsys.readouterr()
    assert not answer.out
    assert named in answer.err


def test_json_has_the_parameters(capsys):
    flags = ["--mech", "laplace-threshold", "--scale", "1", "--param", "threshold=20"]
    assert main(["budget", *flags, "--delta", "1e-6", "--json"]) == 0
    row = json.loads(capsys.readouterr().out)
    expected = {"mech": "laplace-threshold", "scale": 1.0, "threshold": 20.0, "keys": 1, "sensitivity": 1.0}
    assert row["process"] == [{**expected, "n": 1, "sampling": "none"}]
    assert 0.99 < row["epsilon"] <= 1
