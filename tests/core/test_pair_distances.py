"""Observed steps: pair distances as written down by hand, clipping, independent pairs, refusals."""

from __future__ import annotations

import numpy as np
import pytest

from wpriv.accounting.mechanisms.gauss import Gauss
from wpriv.core.pair_distances import of_distances, of_gradients, pair_distances
from wpriv.core.process import Process, Step
from wpriv.errors import UsageError

SQUARE = np.array([[0.0, 0.0], [3.0, 4.0], [0.0, 4.0], [3.0, 0.0]])


def test_pairs_come_in_the_order_of_their_records():
    assert list(pair_distances(SQUARE)) == [5.0, 4.0, 3.0, 3.0, 4.0, 5.0]


def test_independent_pairs_share_no_record():
    rng = np.random.default_rng(0)
    for records in (4, 5, 9):
        g = rng.normal(size=(2, records, 3))
        found = of_gradients(g).independent()
        wanted = [[np.linalg.norm(step[i] - step[i + 1]) for i in range(0, records - 1, 2)] for step in g]
        assert found == pytest.approx(np.array(wanted), rel=1e-14)


def test_clipped_gradients_lie_within_the_unit():
    seen = of_gradients(10 * SQUARE, unit=2.0, clip=True)
    assert seen.distances.max() <= 4.0
    assert seen.distances[0, 0] == pytest.approx(2.0)  # the origin and a gradient clipped to norm 2
    assert seen.coordinates == 2


def test_equal_arrays_are_equal_observations_and_others_are_not():
    a, b, c = of_distances([1.0, 2.0]), of_distances(np.array([1.0, 2.0])), of_distances([1.0, 2.0], unit=2.0)
    assert a == b
    assert hash(a) == hash(b)
    assert a != c
    assert Step(Gauss(1.0), 3, observed=a) == Step(Gauss(1.0), 3, observed=b)


def test_a_step_describes_its_observations_and_requires_as_many_as_it_has_steps():
    seen = of_distances(np.ones((5, 3)))
    assert "5 x 3 distances" in Process((Step(Gauss(1.0), 5, observed=seen),)).describe()[0]["observed"]
    with pytest.raises(UsageError, match=r"6 .* 5"):
        Step(Gauss(1.0), 6, observed=seen)
    assert Step(Gauss(1.0), 6, observed=of_distances(np.ones(3))).n == 6


@pytest.mark.parametrize(
    ("build", "parameter"),
    [
        (lambda: of_distances([]), "distances"),
        (lambda: of_distances([-1.0]), "distances"),
        (lambda: of_distances([np.nan]), "distances"),
        (lambda: of_distances([1.0], unit=0.0), "unit"),
        (lambda: of_distances(np.ones((2, 3)), unit=np.ones(3)), "unit"),
        (lambda: of_distances(np.ones((2, 3)), unit=np.ones((2, 1))), "unit"),
        (lambda: of_gradients([[1.0, 2.0]]), "gradients"),
        (lambda: of_gradients(np.full((3, 2), np.inf)), "gradients"),
        (lambda: of_gradients(np.ones((2, 3, 2)), unit=np.ones(3)), "unit"),
        (lambda: of_distances([1.0]).independent(), "gradients"),
    ],
)
def test_invalid_observations_are_refused_by_name(build, parameter):
    with pytest.raises(UsageError, match=parameter):
        build()
