"""A private sliced distance in one call: its noise, its expectation, its guarantee and its refusals."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import kstest

import wpriv
from wpriv import randomness
from wpriv.errors import UsageError
from wpriv.papers import sliced_distance

RNG = np.random.default_rng(7)
BASE = {"directions": 4, "sigma": 2.0, "delta": 1e-5}
ROWS = RNG.normal(size=(40, 3)) / 10


def test_the_noise_is_normal_and_independent_of_the_directions_and_of_the_block(monkeypatch):
    x, y = np.zeros((300, 3)), np.zeros((200, 3))
    made = {}
    for block in (10**6, 1500):
        monkeypatch.setattr(sliced_distance, "BLOCK", block)
        parts = list(sliced_distance._projected([x, y], 6, 2.5, 2.0**-25, randomness.key("test", 1)))
        made[block] = np.concatenate([np.concatenate(part) for part in parts], axis=1)
        assert len(parts) == (1 if block > 3000 else 2)
        # rows of zeros leave the noise alone
        assert kstest(made[block].ravel() / 2.5, "norm").pvalue > 1e-4
        correlations = np.corrcoef(made[block].T) - np.eye(6)
        assert abs(correlations).max() < 5 / math.sqrt(500)


def test_projections_are_those_of_unit_directions():
    x = np.eye(3) / 2
    ((directions, _),) = sliced_distance._projected([x, x], 5000, 1e-9, 2.0**-40, randomness.key("test", 2))
    # the rows of half the identity give back the directions
    u = 2 * directions
    assert np.allclose(np.linalg.norm(u, axis=0), 1, atol=1e-6)
    # each squared coordinate is Beta(1/2, (d-1)/2) (Lemma 1)
    assert kstest(u[0] ** 2, "beta", args=(0.5, 1.0)).pvalue > 1e-4


def test_the_part_between_the_means_has_no_bias_by_the_noise():
    n, m, d, k, sigma = 30, 20, 4, 3000, 1.5
    gap = np.array([0.3, -0.2, 0.1, 0.0])
    x, y = np.zeros((n, d)), np.broadcast_to(gap, (m, d))
    answer = wpriv.private_sliced_distance(x, y, directions=k, sigma=sigma, delta=1e-5, accountant="paper")
    noise = sigma**2 * (1 / n + 1 / m)
    expected = gap @ gap / d  # E (u'z)^2 = |z|^2 / d
    # variances of (u'z)^2 and of the square of a normal number with that mean, over k directions
    beta = (gap @ gap) ** 2 * 2 * (d - 1) / (d**2 * (d + 2))
    error = math.sqrt((beta + 2 * noise**2 + 4 * noise * expected) / k)
    assert abs(answer.means - expected) < 5 * error
    assert answer.power > answer.means  # the noise of single rows and that of the means


def test_the_distance_of_normal_samples_is_that_of_smoothed_normal_distributions():
    n, d, k, sigma = 20_000, 3, 30, 0.05
    x, y = 0.1 * RNG.normal(size=(n, d)), 0.05 * RNG.normal(size=(n, d)) + [0.2, 0.0, 0.0]
    answer = wpriv.private_sliced_distance(x, y, directions=k, sigma=sigma, delta=1e-5, accountant="paper", seed=1)
    # directions of the same key, and the closed form of W_2 between normal distributions on each
    normal = randomness.normal(randomness.words(randomness.key("private_sliced_distance", 1), 0, d * k)).reshape(d, k)
    u = normal / np.linalg.norm(normal, axis=0)
    widths = math.hypot(0.1, sigma) - math.hypot(0.05, sigma)
    exact = np.mean((0.2 * u[0]) ** 2 + widths**2)
    assert answer.power == pytest.approx(exact, rel=0.02)
    assert answer.distance == float(answer) == pytest.approx(math.sqrt(answer.power))


def test_the_guarantee_is_that_of_the_projection_mechanism_for_rows_up_to_two_radii_apart():
    answer = wpriv.private_sliced_distance(ROWS, ROWS, radius=0.5, **BASE)
    same = wpriv.budget("projection", d=3, k=4, sigma=2.0, sensitivity=1.0, delta=1e-5)
    assert answer.guarantee.epsilon == same.epsilon
    assert answer.guarantee.process.adjacency == "replace-one"
    assert answer.warnings == ()


def test_the_published_bound_is_that_of_proposition_2():
    k, d, sigma, delta = 4, 3, 2.0, 1e-5
    answer = wpriv.private_sliced_distance(ROWS, ROWS, radius=0.5, accountant="paper", **BASE)
    log = math.log(2 / delta)
    w = k / d + 2 / 3 * log + 2 / d * math.sqrt(k * (d - 1) / (d + 2) * log)
    # the best order of alpha w / (2 sigma^2) + ln(2/delta) / (alpha - 1)
    exact = w / (2 * sigma**2) + math.sqrt(2 * w * log) / sigma
    assert answer.guarantee.epsilon.safe == pytest.approx(exact, rel=1e-9)


def test_noise_is_found_for_an_eps():
    answer = wpriv.private_sliced_distance(ROWS, ROWS, directions=4, eps=2, delta="1e-5", accountant="paper")
    assert answer.guarantee.epsilon.safe <= 2
    assert answer.sigma == answer.guarantee.extra["calibrated"]["value"]


def test_longer_rows_count_as_rows_of_the_radius():
    far, on_sphere = 10 * ROWS, ROWS / np.linalg.norm(ROWS, axis=1, keepdims=True) / 100
    long, unit = (
        wpriv.private_sliced_distance(rows, ROWS, radius=0.01, seed=3, accountant="paper", **BASE)
        for rows in (far, on_sphere)
    )
    assert long.power == pytest.approx(unit.power, rel=1e-6)
    assert "clipped to the norm 0.01" in dict(long.facts())["samples"]


def test_a_seed_repeats_the_answer_with_a_warning_and_no_seed_does_not():
    answers = [wpriv.private_sliced_distance(ROWS, ROWS, seed=s, accountant="paper", **BASE) for s in (5, 5, 6, None)]
    assert answers[0].distance == answers[1].distance
    assert len({answer.distance for answer in answers}) == 3
    assert "fixed" in answers[0].warnings[-1]
    assert not any("fixed" in line for line in answers[3].warnings)


def test_samples_of_other_sizes_and_orders_have_no_part_between_the_means():
    answer = wpriv.private_sliced_distance(ROWS, ROWS[:7], p=1, accountant="paper", **BASE)
    assert answer.shape == (40, 7, 3)
    assert answer.means is None
    assert str(answer).startswith(f"sliced W_1 of the noisy samples = {answer.distance:.6g}, with noise 2; eps = ")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"x": [1.0, 2.0]}, r"found \[2\]"),
        ({"x": [["a", "b"]]}, "array of numbers"),
        ({"y": [[1.0, math.nan, 0.0]]}, "not finite"),
        ({"y": [[1.0, 2.0]]}, "equally many columns; found 3 and 2"),
        ({"eps": 1}, "found both"),
        ({"sigma": None}, "found neither"),
        ({"sigma": 0}, "sigma"),
        ({"directions": 0}, "`directions` must be greater than 0"),
        ({"p": 0.5}, "order"),
        ({"radius": 0}, "radius"),
        ({"accountant": "papre"}, "papre"),
        ({"x": np.zeros((3, 1)), "y": np.zeros((3, 1))}, r"found \[3, 1\]"),
    ],
)
def test_wrong_arguments_are_refused(arguments, words):
    with pytest.raises(UsageError, match=words):
        wpriv.private_sliced_distance(**{"x": ROWS, "y": ROWS, **BASE, **arguments})


@pytest.mark.parametrize(("scale", "sigma"), [(1e-3, 1e-2), (1.0, 100.0)])
def test_a_high_order_gives_nearly_the_largest_gap_and_no_overflow(scale, sigma):
    """Oracle: means of powers grow with the order, up to the largest value."""
    x = np.random.default_rng(3).normal(size=(30, 3)) * scale
    answers = [
        wpriv.private_sliced_distance(x, x, directions=5, sigma=sigma, delta=1e-5, p=p, seed=1) for p in (1, 2, 1000)
    ]
    distances = [answer.distance for answer in answers]
    assert 0 < distances[0] < distances[1] < distances[2] < math.inf


def test_noise_below_the_grid_of_projections_is_refused():
    x = np.ones((5, 3))
    with pytest.raises(UsageError, match="1/16384 of the radius"):
        wpriv.private_sliced_distance(x, x, directions=5, sigma=1e-12, delta=1e-5)
    with pytest.raises(UsageError, match="complex"):
        wpriv.private_sliced_distance(x + 1j, x, directions=5, sigma=1, delta=1e-5)
