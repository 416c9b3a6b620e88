"""Sensitivity of strategy matrices; the oracles are all patterns and signs of small matrices, and closed forms."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wpriv.numerics.strategy_sensitivity import bands, strategy_sensitivity


def patterns(size: int, separation: int, most: int) -> list[list[int]]:
    """All sets of up to ``most`` steps that lie at least ``separation`` apart."""
    chosen = []
    for count in range(1, most + 1):
        for pattern in itertools.combinations(range(size), count):
            if all(b - a >= separation for a, b in itertools.pairwise(pattern)):
                chosen.append(list(pattern))
    return chosen


def norm_of_signs(matrix: np.ndarray, separation: int, most: int) -> float:
    """The largest |C x| with entries of x in -1, 0, 1 on a pattern: a lower end for contributions of norm 1."""
    best = 0.0
    for pattern in patterns(len(matrix), separation, most):
        for signs in itertools.product([1.0, -1.0], repeat=len(pattern) - 1):
            best = max(best, float(np.linalg.norm(matrix[:, pattern] @ np.array([1.0, *signs]))))
    return best


def norm_of_vectors(matrix: np.ndarray, pattern: list[int], rng: np.random.Generator) -> float:
    """|C x| for contributions in random directions of the plane."""
    angles = rng.uniform(0, 2 * np.pi, len(pattern))
    return float(np.linalg.norm(matrix[:, pattern] @ np.stack([np.cos(angles), np.sin(angles)], axis=1)))


@st.composite
def problems(draw: st.DrawFn, signed: bool) -> tuple[np.ndarray, int, int]:
    size = draw(st.integers(1, 8))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    width, scale = draw(st.integers(1, size)), 10.0 ** draw(st.integers(-90, 90))
    values = rng.normal(size=(size, size)) if signed else rng.random((size, size))
    matrix = np.tril(np.triu(values * rng.integers(0, 2, (size, size)), 1 - width)) + np.eye(size) * rng.random()
    return matrix * scale, draw(st.integers(1, size)), draw(st.integers(0, size))


@settings(deadline=None, max_examples=150)
@given(problems(signed=False))
def test_without_negative_entries_the_bracket_holds_the_best_pattern_and_closes_on_it_within_two_separations(problem):
    matrix, separation, participations = problem
    best = norm_of_signs(matrix, separation, participations or len(matrix))
    bounds = strategy_sensitivity(matrix, separation, participations)
    assert bounds.lower <= best * (1 + 1e-13)
    assert bounds.upper >= best * (1 - 1e-15)
    if bands(matrix) <= 2 * separation or participations == 1:
        assert bounds.upper <= bounds.lower * (1 + 1e-12)


@settings(deadline=None, max_examples=150)
@given(problems(signed=True), st.integers(0, 2**32))
def test_with_negative_entries_the_bracket_holds_contributions_of_every_direction(problem, seed):
    matrix, separation, participations = problem
    most = participations or len(matrix)
    bounds = strategy_sensitivity(matrix, separation, participations)
    assert bounds.lower <= bounds.upper
    assert norm_of_signs(matrix, separation, most) <= bounds.upper * (1 + 1e-15)
    rng = np.random.default_rng(seed)
    for pattern in patterns(len(matrix), separation, most)[::7]:
        assert norm_of_vectors(matrix, pattern, rng) <= bounds.upper * (1 + 1e-15)
    if bands(matrix) <= separation:
        assert bounds.upper <= bounds.lower * (1 + 1e-12)


@settings(deadline=None, max_examples=60)
@given(problems(signed=True))
def test_the_reported_pattern_keeps_the_separation_and_the_number_of_participations(problem):
    matrix, separation, participations = problem
    pattern = strategy_sensitivity(matrix, separation, participations).pattern
    assert list(pattern) in patterns(len(matrix), separation, participations or len(matrix))


@pytest.mark.parametrize(("n", "separation", "times"), [(60, 1, 0), (60, 7, 0), (60, 7, 3), (61, 60, 2), (60, 60, 0)])
def test_prefix_sums_are_worst_for_the_earliest_pattern(n, separation, times):
    """Row t holds the number of participations up to t: the norm is a sum of squares of whole numbers."""
    most = min(times, math.ceil(n / separation)) if times else math.ceil(n / separation)
    exact = math.sqrt(sum(min(most, t // separation + 1) ** 2 for t in range(n)))
    bounds = strategy_sensitivity(np.tril(np.ones((n, n))), separation, times)
    assert bounds.lower <= exact * (1 + 1e-15)
    assert exact * (1 - 1e-12) <= bounds.lower <= exact * (1 + 1e-15)
    assert exact * (1 - 1e-15) <= bounds.upper <= exact * (1 + 1e-12)


def test_the_identity_costs_the_root_of_the_participations():
    assert strategy_sensitivity(np.eye(50), 1, 9).upper == pytest.approx(3, rel=1e-12)
    assert strategy_sensitivity(np.eye(50), 7).upper == pytest.approx(math.sqrt(8), rel=1e-12)


def test_disjoint_columns_add_their_squares_whatever_their_signs():
    """Banded Toeplitz matrices: every column but the last few has the same norm, Choquette-Choo et al. 2023."""
    row = np.array([1.0, -0.5, 0.25, -0.125])
    matrix = sum(value * np.eye(40, k=-place) for place, value in enumerate(row))
    for times in (1, 3, 10):
        bounds = strategy_sensitivity(matrix, 4, times)
        # ten participations 4 apart in 40 steps start at step 0 and end at step 36, whose column is complete
        exact = math.sqrt(times * float(row @ row))
        assert bounds.lower == pytest.approx(exact, rel=1e-13)
        assert exact * (1 - 1e-15) <= bounds.upper <= exact * (1 + 1e-12)


def test_signs_of_contributions_turn_negative_overlaps_into_positive_ones():
    matrix = np.array([[1.0, 0.0], [-0.9, 1.0]])
    exact = math.hypot(1.0, 1.9)
    bounds = strategy_sensitivity(matrix, 1)
    assert bounds.lower == pytest.approx(exact, rel=1e-13)
    assert bounds.upper == pytest.approx(exact, rel=1e-13)


def test_vectors_may_cost_more_than_signs_and_the_upper_end_covers_them():
    """Three columns whose overlaps have a negative product: directions in the plane beat every choice of signs."""
    overlaps = np.array([[1.0, 0.4, 0.4], [0.4, 1.0, -0.4], [0.4, -0.4, 1.0]])
    matrix = np.linalg.cholesky(overlaps[::-1, ::-1])[::-1, ::-1].T
    assert np.allclose(matrix.T @ matrix, overlaps)
    bounds = strategy_sensitivity(np.tril(matrix), 1)
    assert bounds.upper >= math.sqrt(3 + 6 * 0.4 * 0.5) - 1e-12
    assert bounds.lower == pytest.approx(norm_of_signs(matrix, 1, 3), rel=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "separation", "times"), [(400, 20, 0), (400, 20, 5), (300, 1, 0), (300, 1, 40)])
def test_the_root_of_the_prefix_sums_is_worst_for_the_earliest_pattern(n, separation, times):
    """Toeplitz with falling entries: Kalinin, Lampert 2024, Theorem 2."""
    row = np.append(1.0, np.cumprod(1 - 0.5 / np.arange(1, n)))
    matrix = np.array([[row[i - j] if i >= j else 0.0 for j in range(n)] for i in range(n)])
    pattern = np.arange(0, n, separation)[: times or None]
    exact = float(np.linalg.norm(matrix[:, pattern].sum(axis=1)))
    bounds = strategy_sensitivity(matrix, separation, times)
    assert bounds.lower == pytest.approx(exact, rel=1e-12)
    assert bounds.upper == pytest.approx(exact, rel=1e-11)
