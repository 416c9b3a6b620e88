"""Bulks that a lattice does not resolve: from below they are points, and stay below the law they stand for."""

from __future__ import annotations

import math

import numpy as np
import pytest

from wpriv.core.grid import cells, within
from wpriv.core.lattice import _resolved
from wpriv.core.sampling import poisson
from wpriv.mechanisms.gauss import GaussPair


@pytest.mark.parametrize("tilt", [0.0, 4.0])
def test_a_bulk_narrower_than_a_cell_is_a_point_at_zero(tilt):
    # oracle: Jensen; the point has the bulk's P-mass and lies ln kappa above its place
    index, step = np.array([-1, 0, 1, 2]), 1e-3
    fallen = np.array([[0.999, 0.0, 0.0, 0.0], [0.1, 0.2, 0.6, 0.1]])
    law, fall = _resolved(index, fallen, step, tilt, np.array([1e-7, 1e-7]))
    assert fall.tolist() == [1e-7, 0.0]
    first = law.rows[0] * np.exp(law.log_norm[0] - tilt * law.losses(step))
    assert first.sum() == pytest.approx(0.999, rel=1e-14)
    assert first[law.index == 0].sum() == pytest.approx(0.999, rel=1e-14)
    # the other row is left as it was
    second = law.rows[1] * np.exp(law.log_norm[1] - tilt * law.losses(step))
    np.testing.assert_allclose(second, fallen[1], rtol=1e-13)


def test_a_point_where_no_lower_mass_was_at_zero_is_no_empty_law():
    law, _ = _resolved(np.array([-1, 0, 1]), np.array([[1.0, 0.0, 0.0]]), 0.01, 2.0, np.zeros(1))
    assert law.index.tolist() == [0]
    assert law.rows.tolist() == [[1.0]]


def test_the_point_lies_below_the_bulk_it_stands_for():
    # oracle: the pair's own tails between the cuts
    pair, y = poisson(GaussPair(1.0), 1e-6), np.array([-1, 0, 1]) * 1e-2
    rest, _, _, lower, inner = within(cells(pair, y), False)
    law, fall = _resolved(np.array([-1, 0, 1]), np.atleast_2d(lower / rest), 1e-2, 3.0, np.atleast_1d(max(float(inner), 0.0)))
    ends = pair.tails(y[[0, -1]])
    for eps in (-1e-3, -1e-5, 0.0, 1e-5):
        at = pair.tails(np.array([eps]))
        bulk = float(np.exp(at.sf_p[0]) - np.exp(ends.sf_p[1]) - math.exp(eps) * (np.exp(at.sf_q[0]) - np.exp(ends.sf_q[1])))
        mass = law.rows[0] * np.exp(law.log_norm[0] - 3.0 * law.losses(1e-2)) * float(rest)
        loss = law.losses(1e-2) - float(fall[0])
        point = float((mass * np.maximum(-np.expm1(eps - loss), 0.0)).sum())
        assert point <= bulk + 4e-16  # tails near 1 are right to an ulp or two
