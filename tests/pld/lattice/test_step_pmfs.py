"""Nodes of a group; and optimistic PMFs of bulks that a lattice does not resolve, which are points at zero."""

from __future__ import annotations

import math
import warnings

import mpmath
import numpy as np
import pytest
from scipy.stats import poisson as poisson_counts

from wpriv.core.atomic_pair import AtomicPair
from wpriv.core.sampling.poisson_pair import poisson
from wpriv.errors import Unsupported
from wpriv.mechanisms.gauss import GaussPair
from wpriv.pld import constants
from wpriv.pld.composition import Composition
from wpriv.pld.lattice import compose_on_lattices
from wpriv.pld.lattice.discretize import cell_masses, discretize_bulk
from wpriv.pld.lattice.jump_cut import max_jump_count
from wpriv.pld.lattice.staging import StagePlan
from wpriv.pld.lattice.step_nodes import _stretch, choose_nodes, split_by_node_count
from wpriv.pld.lattice.step_pmfs import _optimistic_bulk, discretize_with_jumps, tilt_pmf
from wpriv.pld.saddle_point import approximate_pmf
from wpriv.pld.stacking import group_pairs


@pytest.mark.parametrize("tilt", [0.0, 4.0])
def test_a_bulk_narrower_than_a_cell_is_a_point_at_zero(tilt):
    # oracle: Jensen; the point has the bulk's P-mass and lies ln kappa above its place
    index, step = np.array([-1, 0, 1, 2]), 1e-3
    fallen = np.array([[0.999, 0.0, 0.0, 0.0], [0.1, 0.2, 0.6, 0.1]])
    pmf, eps_slack = _optimistic_bulk(index, fallen, step, tilt, np.array([1e-7, 1e-7]))
    assert eps_slack.tolist() == [1e-7, 0.0]
    first = pmf.rows[0] * np.exp(pmf.log_norm[0] - tilt * pmf.losses(step))
    assert first.sum() == pytest.approx(0.999, rel=1e-14)
    assert first[pmf.index == 0].sum() == pytest.approx(0.999, rel=1e-14)
    # the other row is left as it was
    second = pmf.rows[1] * np.exp(pmf.log_norm[1] - tilt * pmf.losses(step))
    np.testing.assert_allclose(second, fallen[1], rtol=1e-13)


def test_a_point_at_zero_exists_where_no_optimistic_mass_was_at_zero():
    pmf, _ = _optimistic_bulk(np.array([-1, 0, 1]), np.array([[1.0, 0.0, 0.0]]), 0.01, 2.0, np.zeros(1))
    assert pmf.index.tolist() == [0]
    assert pmf.rows.tolist() == [[1.0]]


def test_the_point_lies_below_the_bulk_it_stands_for():
    # oracle: the pair's own tails between the cuts
    pair, y = poisson(GaussPair(1.0), 1e-6), np.array([-1, 0, 1]) * 1e-2
    rest, _, _, lower, inner = discretize_bulk(cell_masses(pair, y), False)
    pmf, eps_slack = _optimistic_bulk(
        np.array([-1, 0, 1]), np.atleast_2d(lower / rest), 1e-2, 3.0, np.atleast_1d(max(float(inner), 0.0))
    )
    ends = pair.tails(y[[0, -1]])
    for eps in (-1e-3, -1e-5, 0.0, 1e-5):
        at = pair.tails(np.array([eps]))
        bulk = float(
            np.exp(at.sf_p[0]) - np.exp(ends.sf_p[1]) - math.exp(eps) * (np.exp(at.sf_q[0]) - np.exp(ends.sf_q[1]))
        )
        mass = pmf.rows[0] * np.exp(pmf.log_norm[0] - 3.0 * pmf.losses(1e-2)) * float(rest)
        loss = pmf.losses(1e-2) - float(eps_slack[0])
        point = float((mass * np.maximum(-np.expm1(eps - loss), 0.0)).sum())
        assert point <= bulk + 4e-16  # tails near 1 are right to an ulp or two


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


def test_the_tails_of_the_numbers_of_jumps_add_up_to_the_tail_of_the_composition(monkeypatch):
    jump_tails, sums = [], []
    discretize, compose = compose_on_lattices.discretize_with_jumps, compose_on_lattices.compose_pmfs

    def with_jumps(group, *args):
        jump_tails.append(len(group.members) * args[-1])
        return discretize(group, *args)

    def composed(*args, upper, tail, **options):
        if upper:  # the first composition of newly discretised steps
            sums.append((sum(jump_tails), tail))
            jump_tails.clear()
        return compose(*args, upper=upper, tail=tail, **options)

    monkeypatch.setattr(compose_on_lattices, "discretize_with_jumps", with_jumps)
    monkeypatch.setattr(compose_on_lattices, "compose_pmfs", composed)
    monkeypatch.setattr("wpriv.pld.composition.METHODS", (compose_on_lattices.compose_on_lattices,))
    Composition([(poisson(GaussPair(1 / (0.5 + 0.004 * i)), 1e-4), 10**5) for i in range(20)]).epsilon(1e-6, 1e-2)
    assert any(spent > 0 for spent, _ in sums)
    assert all(spent <= tail * (1 + 1e-9) for spent, tail in sums)


def masses_of_a_split(losses: list[float], p: list[float], tilt: float) -> list[dict[float, float]]:
    """P-masses of the jumps of a pair with these atoms, from above and from below, cut at 0.16 on either side."""
    pair = AtomicPair(np.array(losses), np.log(p))
    (group,) = group_pairs({pair: 1024})
    plan = StagePlan([(32, 4), (1, 1)], 0.01, 0.04, 4)
    step = discretize_with_jumps(group, approximate_pmf(pair), plan, tilt, 1e-30, 1e-30, 1e-20)
    sides: list[dict[float, float]] = []
    for pmf in (step.jumps.upper, step.jumps.lower):
        plain = pmf.rows[0] * np.exp(pmf.log_norm[0] - tilt * pmf.losses(0.04))
        sides.append(dict(zip(np.round(pmf.losses(0.04), 6).tolist(), plain.tolist(), strict=True)))
    return sides


@pytest.mark.parametrize("tilt", [0.0, 6.0])
def test_an_atom_on_the_cut_is_counted_with_the_bulk_alone(tilt):
    # oracle: the masses that are given, which add up to one; the atoms at -0.16 and 0.16 lie on the cuts
    p = [1e-5, 2e-5, 0.02, 0.97985, 1e-4, 2e-5]
    upper, lower = masses_of_a_split([-0.6, -0.16, -0.01, 0.0, 0.16, 0.6], p, tilt)
    for side in (upper, lower):
        assert math.fsum(side.values()) == pytest.approx(1.0, abs=1e-14)
        assert side[0.0] == pytest.approx(1 - 1e-5 - 2e-5, abs=1e-14)
    assert upper[0.6] == pytest.approx(2e-5, rel=1e-9)
    assert upper[-0.6] == pytest.approx(1e-5, rel=1e-9)


@pytest.mark.parametrize(("mean", "tail"), [(1e-9, 1e-12), (0.3, 1e-20), (50.0, 1e-15), (3e6, 1e-12), (1e11, 1e-9)])
def test_no_more_jumps_than_accounted_for_happen_but_for_the_tail(mean, tail):
    # oracle: the tail of a Poisson distribution, which Chernoff's bound holds for as well
    count = max_jump_count(mean, tail)
    assert count <= max(1.1 * mean, mean + 100)
    assert poisson_counts.sf(count, mean) <= tail


@pytest.mark.parametrize(("share", "refused"), [(1e-9, False), (0.05, True)])
def test_jumps_that_would_shift_eps_too_far_for_their_bound_are_refused(share, refused):
    # with a share of 0.05 the 10,000 steps have some 1000 jumps under the tilt, which shift eps by 0.013 each; Theorem
    # 8 of docs/theory/certified-pld.md needs tilt * shift <= ln((K + 1) / mean), about 0.2
    below = share * -math.expm1(-0.3) / math.expm1(0.05)  # so that Q has the mass one
    pair = AtomicPair(np.array([-0.05, 0.0, 0.3]), np.log([below, 1 - below - share, share]))
    (group,) = group_pairs({pair: 10_000})
    plan = StagePlan([(32, 4), (1, 1)], 0.01, 0.04, 4)
    if refused:
        with pytest.raises(Unsupported):
            discretize_with_jumps(group, approximate_pmf(pair), plan, 5.0, 1e-30, 1e-30, 1e-12)
    else:
        step = discretize_with_jumps(group, approximate_pmf(pair), plan, 5.0, 1e-30, 1e-30, 1e-12)
        assert 0 < step.jumps.log_kappa[0] < 1e-9


@pytest.mark.parametrize("tilt", [0.3, 1.0, 9.0])
def test_the_moment_of_a_rare_large_loss_keeps_its_digits(tilt):
    # oracle: mpmath; n steps multiply an error of ln E[e^{tilt Y}] by n, up to 2^40
    rare = 1e-7 * math.exp(-40 * tilt)
    mass, y = np.array([[1 - rare, rare]]), np.array([0.0, 40.0])
    pmf = tilt_pmf(np.array([0, 40]), mass, y, tilt)
    with mpmath.workdps(40):
        exact = mpmath.log1p(mpmath.mpf(rare) * mpmath.expm1(40 * mpmath.mpf(tilt)))
        assert abs(float(pmf.log_norm[0] - exact)) < 1e-20


def test_a_mass_at_infinity_below_rounding_is_missing_from_the_moment():
    # oracle: ln(1 - w) of a PMF at zero; the masses themselves add up to one in floating point
    pmf = tilt_pmf(np.array([0]), np.ones((2, 1)), np.zeros(1), 2.0, np.array([1e-17, 9e-15]))
    np.testing.assert_allclose(pmf.log_norm, [-1e-17, -9e-15], rtol=1e-12)
