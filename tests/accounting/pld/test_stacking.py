"""Batched pairs must give the same results as each pair by itself."""

from __future__ import annotations

import numpy as np
import pytest

from wpriv.accounting.mechanisms.gauss import GaussPair
from wpriv.accounting.mechanisms.laplace import LaplacePair
from wpriv.accounting.mechanisms.randomized_response import RandomizedResponse
from wpriv.accounting.pld import constants
from wpriv.accounting.pld.composition import Composition
from wpriv.accounting.pld.discretize import cell_masses, discretize_optimistic, discretize_pessimistic
from wpriv.accounting.pld.saddle_point import approximate_pmf, cumulants, group_pairs
from wpriv.core.loss_pair import LossPair
from wpriv.core.subsampled_pairs import fixed, poisson

FAMILIES = {
    "gauss": [GaussPair(mu) for mu in (0.5, 0.52, 0.55)],
    "poisson gauss": [poisson(GaussPair(1 / s), q) for s, q in ((0.9, 0.01), (1.0, 0.011), (1.05, 0.0095))],
    "poisson gauss, reversed": [
        poisson(GaussPair(1 / s), q).reverse() for s, q in ((0.9, 0.01), (1.0, 0.011), (1.05, 0.0095))
    ],
    "fixed gauss": [fixed(GaussPair(1 / s), q) for s, q in ((2.0, 0.05), (2.1, 0.055))],
}


def batch(name: str) -> tuple[list[LossPair], LossPair]:
    members = FAMILIES[name]
    return members, members[0].batched(members)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_rows_of_batched_tails_are_the_tails_of_the_members(name):
    members, whole = batch(name)
    y = np.concatenate([-np.geomspace(1e-6, 3, 40)[::-1], [0.0], np.geomspace(1e-6, 30, 60)])
    found = whole.tails(y)
    for k, pair in enumerate(members):
        for row, one in zip(found, pair.tails(y), strict=True):
            np.testing.assert_allclose(row[k], one, rtol=1e-13)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_rows_of_batched_discretisations_are_those_of_the_members(name):
    members, whole = batch(name)
    # beyond the last member's support and into its empty tail as well
    y = np.arange(-400, 1200) * 2e-3
    cells = cell_masses(whole, y)
    (upper, infinity), lower = discretize_pessimistic(cells, 0.0), discretize_optimistic(cells, 0.0)
    for k, pair in enumerate(members):
        one = cell_masses(pair, y)
        mass, beyond = discretize_pessimistic(one, 0.0)
        np.testing.assert_allclose(upper[k], mass, rtol=1e-11, atol=1e-17)
        np.testing.assert_allclose(lower[k], discretize_optimistic(one, 0.0), rtol=1e-9, atol=1e-16)
        assert infinity[k] == pytest.approx(float(beyond), rel=1e-12)


@pytest.mark.parametrize("name", FAMILIES)
def test_approximate_pmf_of_several_pairs_agrees_with_each_alone(name):
    members, _ = batch(name)
    together, count = approximate_pmf(*members), np.array([1])
    for tilt in (0.0, 2.0, 9.0):
        c = cumulants([together], [np.ones(len(members), dtype=np.int64)], tilt)
        apart = [cumulants([approximate_pmf(pair)], [count], tilt) for pair in members]
        assert c.means[0] == pytest.approx([one.mean for one in apart], rel=0.02)
        assert c.variances[0] == pytest.approx([one.variance for one in apart], rel=0.02)
        assert c.cgf == pytest.approx(sum(one.cgf for one in apart), rel=0.01, abs=1e-12)


def test_only_like_pairs_without_mass_at_infinity_share_a_group():
    alike, apart = (
        [GaussPair(1.0), GaussPair(1.05)],
        [GaussPair(1.0 * constants.BATCH_PARAMETER_RATIO**3), LaplacePair(1.0), LaplacePair(1.05)],
    )
    revealing = [RandomizedResponse(eps0=0.5, delta0=0.01).pair(), RandomizedResponse(eps0=0.51, delta0=0.01).pair()]
    groups = group_pairs({pair: n for n, pair in enumerate([*alike, *apart, *revealing], 1)})
    assert sorted(len(group.members) for group in groups) == [1, 1, 1, 1, 1, 2]
    together = max(groups, key=lambda group: len(group.members))
    assert set(together.members) == set(alike)
    assert sum(int(group.counts.sum()) for group in groups) == sum(range(1, 8))


@pytest.mark.slow
@pytest.mark.parametrize("order", ["removed", "added"])
def test_steps_composed_in_groups_agree_with_steps_composed_alone(monkeypatch, order):
    # oracle: the same program with every pair in a group of its own
    pairs = [poisson(GaussPair(1 / (0.8 + 0.05 * i)), 0.005 + 0.0005 * i) for i in range(14)]
    run = [(pair if order == "removed" else pair.reverse(), 20 + 3 * i) for i, pair in enumerate(pairs)]
    together = Composition(run).epsilon(1e-6, 1e-3)
    monkeypatch.setattr(constants, "MAX_BATCH_SIZE", 1)
    alone = Composition(run)
    assert len(alone.groups) == 14
    low, high = alone.epsilon(1e-6, 1e-4)
    assert together[0] <= high
    assert low <= together[1]
    assert together[1] - together[0] <= 1.01e-3 * together[1]
