"""Nodes of a group, and the tilted PMFs on them."""

from __future__ import annotations

import math
import warnings

import mpmath
import numpy as np
import pytest

import wpriv
from wpriv.accounting.mechanisms.gauss import GaussPair
from wpriv.accounting.pld import constants
from wpriv.accounting.pld.discretize import _stretch, choose_nodes, split_by_node_count
from wpriv.accounting.pld.lattice import tilt_pmf
from wpriv.accounting.pld.saddle_point import approximate_pmf, group_pairs
from wpriv.core.subsampled_pairs import poisson


def test_the_parts_of_a_group_are_all_of_it_and_need_like_numbers_of_nodes():
    # oracle: the nodes of each pair by itself
    pairs = {poisson(GaussPair(1 / (0.8 + 0.02 * i)), 0.01): 3 + i for i in range(50)}
    (group,) = group_pairs(pairs)
    parts = split_by_node_count(group, approximate_pmf(*group.members), 4.0)
    assert 1 < len(parts) < 6
    assert {pair: n for part, _ in parts for pair, n in zip(part.members, part.counts.tolist(), strict=True)} == pairs
    for part, part_pmf in parts:
        assert part_pmf.mass.shape[0] == len(part.members)
        alone = [
            choose_nodes(group_pairs({pair: 1})[0], approximate_pmf(pair), 5e-4, 4.0, 1e-13, 1e-12).size
            for pair in part.members
        ]
        assert max(alone) <= 1.4 * constants.MAX_NODE_COUNT_RATIO * min(alone)
        assert choose_nodes(part, part_pmf, 5e-4, 4.0, 1e-13, 1e-12).size <= 1.4 * max(alone)


@pytest.mark.parametrize("extra", [1e-9, 0.3, 5.0])
def test_the_spacing_spends_the_error_that_it_may_where_there_is_least_mass(extra):
    rng = np.random.default_rng(6)
    y = np.sort(rng.normal(size=300))
    share = np.exp(-rng.random(300) * 40)
    share[::7] = 0.0
    share /= share.sum()
    wider = _stretch(y, share, extra)
    assert float(share @ (wider**2 - 1)) == pytest.approx(extra, rel=1e-5)
    # spacing cubed times density is one number wherever it is wider than the lattice's
    stretched = (wider > 1) & (share > 0)
    level = (wider**3 * share / np.gradient(y))[stretched]
    assert level.max() == pytest.approx(level.min(), rel=1e-9)
    assert np.all((share / np.gradient(y))[wider == 1] >= level.max() * (1 - 1e-9))


def test_spacings_where_there_is_almost_no_mass_overflow_without_a_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.all(_stretch(np.array([0.0, 1.0]), np.full(2, 1e-320), 1.0) > 1)


@pytest.mark.parametrize("tilt", [0.3, 1.0, 9.0])
def test_the_moment_of_a_rare_large_loss_keeps_its_digits(tilt):
    # oracle: mpmath; n steps multiply an error of ln E[e^{tilt Y}] by n, up to 2^40
    rare = 1e-7 * math.exp(-40 * tilt)
    mass, y = np.array([[1 - rare, rare]]), np.array([0.0, 40.0])
    pmf = tilt_pmf(np.array([0, 40]), mass, y, tilt, np.ones(1), 0.0)
    with mpmath.workdps(40):
        exact = mpmath.log1p(mpmath.mpf(rare) * mpmath.expm1(40 * mpmath.mpf(tilt)))
        assert abs(float(pmf.log_norm[0] - exact)) < 1e-20


def test_a_mass_at_infinity_below_rounding_is_missing_from_the_moment():
    # oracle: ln(1 - w) of a PMF at zero; the masses themselves add up to one in floating point
    pmf = tilt_pmf(np.array([0]), np.ones((2, 1)), np.zeros(1), 2.0, np.ones(2), np.array([1e-17, 9e-15]))
    np.testing.assert_allclose(pmf.log_norm, [-1e-17, -9e-15], rtol=1e-12)


def test_a_claim_about_losses_beyond_every_lattice_stays_open_and_does_not_overflow():
    """At sigma / sensitivity 1/20 and delta 1e-300 a loss is 2^63 times the spacing that the tolerance asks for."""
    job = {"mech": "gauss", "sigma": 0.1, "sensitivity": 2, "sampling": "poisson", "rate": 0.3, "n": 300}
    assert wpriv.verify_claim("eps=0,delta=1e-300", **job).verdict == "open"
