"""Clipping: the nearest point of the ball, which is exactly inside the ball once it is on the grid."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from wpriv.errors import UsageError
from wpriv.numerics import ball_projection

finite = st.floats(-1e100, 1e100, allow_subnormal=False)
rows = arrays.arrays(
    np.float64, st.tuples(st.integers(1, 4), st.integers(1, 8)), elements=st.one_of(finite, st.floats(-3, 3))
)
radii = st.floats(1e-6, 1e6)


def by_bisection(row: np.ndarray, radius: float) -> np.ndarray:
    """Projection onto the l1 ball:
    |x| lowered by the theta that makes the sum the radius, by bisection, not by sorting.
    """
    size = np.abs(row)
    if size.sum() <= radius:
        return row
    low, high = 0.0, size.max()
    for _ in range(200):
        theta = (low + high) / 2
        low, high = (theta, high) if np.maximum(size - theta, 0).sum() > radius else (low, theta)
    return np.copysign(np.maximum(size - high, 0), row)


@pytest.mark.parametrize("d", [1, 2, 3, 10, 784])
@pytest.mark.parametrize("radius", [0.1, 1.0, 7.0])
def test_the_l1_projection_is_the_one_found_by_bisection(d, radius):
    x = np.random.default_rng(d).normal(size=(20, d)) * np.logspace(-2, 2, 20)[:, None]
    expected = np.stack([by_bisection(row, radius) for row in x])
    np.testing.assert_allclose(
        ball_projection.nearest(x, radius, 1), expected, rtol=0, atol=1e-12 * radius + 1e-14 * np.abs(x).max()
    )


@settings(max_examples=150, deadline=None)
@given(
    arrays.arrays(np.float64, (1, 5), elements=st.floats(-10, 10)),
    st.floats(0.01, 10),
    st.sampled_from([1, 2]),
    st.integers(0, 2**32),
)
def test_no_point_of_the_ball_is_nearer(x, radius, p, seed):
    projected = ball_projection.nearest(x, radius, p)[0]
    others = np.random.default_rng(seed).laplace(size=(500, 5))
    others *= radius / np.linalg.norm(others, p, axis=1, keepdims=True)  # on its surface, where the nearest point is
    others = np.concatenate([others, 0.999 * projected + 0.001 * others])
    assert np.linalg.norm(projected - x[0]) <= np.linalg.norm(others - x[0], axis=1).min() * (1 + 1e-12) + 1e-12


@settings(max_examples=100, deadline=None)
@given(rows, radii, st.sampled_from([1, 2]))
def test_rows_inside_are_untouched_and_rows_outside_land_on_the_surface(x, radius, p):
    projected = ball_projection.nearest(x, radius, p)
    norms = np.linalg.norm(projected, p, axis=1)
    outside = np.linalg.norm(x / radius, p, axis=1) > 1 + 1e-9
    np.testing.assert_allclose(norms[outside], radius, rtol=1e-9)
    inside = np.linalg.norm(x / radius, p, axis=1) < 1 - 1e-9
    assert np.array_equal(projected[inside], x[inside])


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(rows, radii, st.floats(1e-3, 1e30), st.sampled_from([1, 2]))
def test_the_clip_holds_exactly_in_rational_arithmetic(x, radius, noise, p):
    step = ball_projection.spacing(radius, noise * radius)
    cells = ball_projection.on_grid(ball_projection.nearest(x, radius, p), radius, p, step)
    assert np.array_equal(cells, np.trunc(cells))
    assert not np.signbit(cells[cells == 0]).any()
    for row in cells * step:  # exact: a power of two
        assert sum(abs(Fraction(float(v))) ** p for v in row) <= Fraction(radius) ** p


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(rows, radii, st.sampled_from([1, 2]))
def test_the_grid_moves_no_number_by_more_than_two_cells(x, radius, p):
    step = ball_projection.spacing(radius, radius)
    assert step <= radius * 2.0**-25
    near = ball_projection.nearest(x, radius, p)
    assert np.abs(ball_projection.on_grid(near, radius, p, step) * step - near).max() <= 2 * step


@pytest.mark.parametrize("p", [1, 2])
def test_points_of_the_surface_that_rounding_puts_outside_are_brought_back(p):
    radius = 1 - 2.0**-53  # not a multiple of any cell
    step = ball_projection.spacing(radius, 1.0)
    limit = int(radius / step)
    x = np.array([[radius, 0.0], [limit * step + step, 0.0], [radius / 2 ** (1 / p), radius / 2 ** (1 / p)]])
    cells = ball_projection.on_grid(x, radius, p, step)
    assert (np.sum(np.abs(cells) ** p, axis=1) <= limit**p).all()
    assert cells[0, 0] == limit


def test_spacing_leaves_room_for_noise_of_any_size():
    for radius, noise in ((1.0, 1e-9), (1.0, 1.0), (1.0, 1e12), (1e-9, 1e21), (3e5, 2.0)):
        step = ball_projection.spacing(radius, noise)
        assert np.frexp(step)[0] == 0.5  # a power of two
        assert (radius + 45 * noise) / step < 2**53


@pytest.mark.parametrize(
    ("radius", "noise", "parameter"),
    [(1e-10, 1, "radius"), (1e10, 1e10, "radius"), (1, 1e-5, "noise"), (1, 1e31, "noise")],
)
def test_check_refuses_a_ball_that_the_grid_cannot_represent(radius, noise, parameter):
    with pytest.raises(UsageError, match=parameter):
        ball_projection.check(radius, noise)
