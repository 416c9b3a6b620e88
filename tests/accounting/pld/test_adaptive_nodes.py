"""Scans: the tails of both directions at once, and a Chernoff bound that is above the truth wherever it is finite."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from tests import oracles
from wpriv.accounting.mechanisms.gauss import GaussPair
from wpriv.accounting.mechanisms.laplace import LaplacePair
from wpriv.accounting.mechanisms.truncated_laplace import TruncatedLaplace
from wpriv.accounting.pld import constants
from wpriv.accounting.pld.composition import Composition
from wpriv.accounting.pld.saddle_point import scan_tails
from wpriv.core.loss_moments import log_moment
from wpriv.core.loss_pair import LossPair
from wpriv.core.subsampled_pairs import poisson

DEPTH = 1e-50
BOUNDED: dict[str, LossPair] = {
    "poisson gauss, reversed": poisson(GaussPair(0.25), 0.01).reverse(),
    "rare large losses, reversed": poisson(GaussPair(1 / 0.6), 1e-4).reverse(),
    "rarest, reversed": poisson(GaussPair(2.0), 1e-7).reverse(),
    "half of the records, reversed": poisson(GaussPair(1.0), 0.5).reverse(),
    "laplace": LaplacePair(0.3),
    "poisson laplace": poisson(LaplacePair(1.0), 0.1),
    "poisson laplace, reversed": poisson(LaplacePair(1.0), 0.1).reverse(),
    "truncated laplace": TruncatedLaplace(scale=1.0, bound=3.0).pair(),
}


@pytest.fixture(autouse=True)
def _warnings_are_errors():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.mark.parametrize("name", BOUNDED)
@pytest.mark.parametrize("tilt", [0.3, 1.0, 5.0, 30.0])
def test_the_chernoff_bound_lies_just_above_the_moment(name, tilt):
    # oracle: quadrature of the profile (core/loss_moments.py), right to about 1e-9
    pair = BOUNDED[name]
    exact = float(log_moment(pair, np.array([tilt]), finite=True)[0])
    bound = scan_tails(pair, depth=DEPTH).bound_moment(tilt)
    (found,), (beyond,) = bound.log_moment, bound.mass_above
    assert beyond == pytest.approx(pair.mass_at_plus_infinity, abs=1e-15)
    assert exact * (1 - 1e-8) - 1e-15 <= found <= 1.1 * exact + 1e-11


@pytest.mark.parametrize("name", [name for name in BOUNDED if "gauss" in name])
def test_a_mirrored_scan_holds_the_tails_of_the_reverse_pair(name):
    pair = BOUNDED[name]
    found = scan_tails(pair, depth=DEPTH)
    np.testing.assert_allclose(found.tails[:, 0], np.exp(pair.tails(found.y)), rtol=1e-12)
    assert np.all(np.diff(found.y) > 0)


def test_nodes_of_representative_pairs_serve_the_whole_batch():
    # oracle: each pair's own scan, and the bound from it
    members = tuple(
        poisson(GaussPair(1 / (0.8 + 0.03 * i)), 0.005 + 0.0007 * ((7 * i) % 20)).reverse() for i in range(30)
    )
    together = scan_tails(*members, depth=1e-25)
    mass, other = together.cell_masses()
    assert mass.max() < 2 * constants.ROUGH_CELL_SHARES[0]
    assert other.max() < 2 * constants.ROUGH_CELL_SHARES[0]
    alone = [scan_tails(pair, depth=1e-25) for pair in members]
    assert together.y.size < 0.8 * max(one.y.size for one in alone)
    for tilt in (1.0, 10.0, 100.0):
        assert together.bound_moment(tilt).log_moment == pytest.approx(
            [float(one.bound_moment(tilt).log_moment[0]) for one in alone], rel=0.05
        )


@pytest.mark.parametrize("rare", [0.0, 1e-30])
def test_losses_without_a_bound_are_bounded_up_to_the_rare(rare):
    # oracle: quadrature of the profile (core/loss_moments.py), right to about 1e-9
    pair = poisson(GaussPair(1.0), 0.1)
    exact = float(log_moment(pair, np.array([3.0]))[0])
    found = scan_tails(pair, depth=DEPTH).bound_moment(3.0, rare)
    assert exact * (1 - 1e-8) <= found.log_moment[0] <= 1.1 * exact
    assert 0 < found.mass_above[0] <= rare + 1e-304


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sigma", "q", "n", "delta"), [(0.6, 1e-4, 10**6, 1e-8), (1.5, 0.02, 300, 1e-5), (4.0, 0.01, 65536, 1e-30)]
)
def test_a_direction_is_dismissed_only_where_it_lies_below(sigma, q, n, delta):
    # oracle: inverse Laplace transform of the composed moment generating function (tests/oracles.py)
    exact = oracles.contour_eps([(oracles.poisson_gauss(q, 1 / sigma, "add"), n)], delta)
    run = [(poisson(GaussPair(1 / sigma), q).reverse(), n)]
    for enough in (0.5 * exact, 0.999 * exact):
        low, high = Composition(run).epsilon(delta, 1e-3, enough)
        assert low <= exact <= high
        assert high > enough
    for enough in (1.01 * exact, 3 * exact):
        assert Composition(run).epsilon(delta, 1e-3, enough)[1] <= enough
        assert exact <= enough
    far = Composition(run)
    far.epsilon(delta, 1e-3, 3 * exact)
    assert not far.recent
