"""Loss pairs against their definition: discrete distributions summed in exact or 60-digit arithmetic."""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.points import GOLDEN
from wpriv.accounting.mechanisms.gauss import GaussPair
from wpriv.accounting.mechanisms.laplace import LaplacePair
from wpriv.core.atomic_pair import AtomicPair
from wpriv.core.loss_pair import LossPair, Reversed, Tails, reversed_log_delta


@st.composite
def distributions(draw):
    """Two distributions on k outcomes; some outcomes are possible under one only."""
    k = draw(st.integers(1, 8))
    weight = st.one_of(st.just(0.0), st.floats(-60, 0).map(lambda v: 2.0**v))
    p, q = (np.array(draw(st.lists(weight, min_size=k, max_size=k))) for _ in "pq")
    p[draw(st.integers(0, k - 1))] += 1.0
    q[draw(st.integers(0, k - 1))] += 1.0
    return p / p.sum(), q / q.sum()


def pair_of(p: np.ndarray, q: np.ndarray) -> AtomicPair:
    both = (p > 0) & (q > 0)
    losses = np.log(p[both]) - np.log(q[both])
    return AtomicPair(losses, np.log(p[both]), float(p[q == 0].sum()), float(q[p == 0].sum()), log_q=np.log(q[both]))


def hockey_stick(p: np.ndarray, q: np.ndarray, eps: float) -> mp.mpf:
    """sum of max(p - e^eps q, 0), the definition."""
    return mp.fsum(max(mp.mpf(a) - mp.exp(mp.mpf(eps)) * mp.mpf(b), 0) for a, b in zip(p, q, strict=True))


@pytest.mark.slow
@given(distributions(), st.floats(-50, 50))
@settings(max_examples=300, deadline=None)
def test_a_discrete_profile_is_its_hockey_stick_sum_in_both_directions(pmfs, eps):
    p, q = pmfs
    pair = pair_of(p, q)
    for found, (a, b) in ((pair, (p, q)), (pair.reverse(), (q, p))):
        value, expected = float(np.exp(found.log_delta(eps))), hockey_stick(a, b, eps)
        # the losses are rounded to a relative 2e-16 of at most 42, which moves each p - e^eps q by as much of p
        assert abs(value - expected) <= 1e-13 * expected + 4e-14 * sum(
            x for x, y in zip(a, b, strict=True) if x > np.exp(eps) * y / 2
        )


@pytest.mark.slow
@given(distributions(), st.floats(-50, 50))
@settings(max_examples=200, deadline=None)
def test_discrete_tails_are_plain_sums_and_atoms_count_below(pmfs, eps):
    p, q = pmfs
    pair = pair_of(p, q)
    for at in (eps, *pair.losses[:2], np.inf, -np.inf):
        tails = pair.tails(np.array(at))
        with np.errstate(divide="ignore", invalid="ignore"):
            loss = np.where(q == 0, np.inf, np.where(p == 0, -np.inf, np.log(p) - np.log(q)))
        counted = (loss > at) | ((loss == np.inf) & (p > 0))
        keep = (p > 0) | (q > 0)
        if at == -np.inf:
            counted &= loss > -np.inf
        np.testing.assert_allclose(np.exp(tails.sf_p), p[counted & keep].sum(), rtol=1e-13, atol=1e-300)
        np.testing.assert_allclose(np.exp(tails.cdf_p), p[~counted & keep].sum(), rtol=1e-13, atol=1e-300)
        np.testing.assert_allclose(np.exp(tails.sf_q), q[counted & keep].sum(), rtol=1e-13, atol=1e-300)
        np.testing.assert_allclose(np.exp(tails.cdf_q), q[~counted & keep].sum(), rtol=1e-13, atol=1e-300)


@given(st.floats(1e-14, 1.0), st.floats(0.01, 0.99), st.floats(-1.5, 1.5))
@settings(max_examples=200, deadline=None)
def test_the_profile_of_nearly_equal_distributions_keeps_its_digits(scale, share, where):
    """Losses of size 1e-14 give deltas of that size, right to 13 digits (60-digit sums of the same losses)."""
    losses = np.array([-share, 0.1 * share, 1 - share]) * scale
    weights = [mp.mpf(1 - share), mp.mpf("0.3"), mp.mpf(share)]
    log_p = np.array([float(mp.log(w / 3)) for w in weights])
    pair = AtomicPair(losses, log_p)
    eps = where * scale
    expected = mp.fsum(
        mp.exp(mp.mpf(lp)) * (1 - mp.exp(mp.mpf(eps) - mp.mpf(y)))
        for lp, y in zip(log_p, losses, strict=True)
        if y > eps
    )
    if eps >= losses[0]:  # below the losses the sum depends on the masses adding up to one
        assert abs(float(np.exp(pair.log_delta(eps))) - expected) <= 1e-12 * expected


@pytest.mark.slow
@given(distributions(), st.floats(1e-6, 200.0))
@settings(max_examples=200, deadline=None)
def test_the_renyi_divergence_of_a_discrete_pair_is_its_sum(pmfs, rate):
    p, q = pmfs
    found = float(pair_of(p, q).renyi(np.array(1 + rate)))
    if np.any((p > 0) & (q == 0)):
        assert found == np.inf
        return
    s = mp.mpf(1 + rate) - 1
    mass = sum(mp.mpf(a) for a in p)  # one up to rounding, which matters at rate 1e-6
    moment = mp.fsum(
        mp.mpf(a) / mass * mp.exp(s * mp.log(mp.mpf(a) / mp.mpf(b))) for a, b in zip(p, q, strict=True) if a > 0
    )
    assert found == pytest.approx(float(mp.log(moment) / s), rel=1e-9, abs=1e-15 / min(rate, 1))


def test_the_renyi_divergence_of_a_tiny_loss_keeps_its_digits():
    """Randomised response at 1e-9, by its two-term sum in 60 digits."""
    x = 1e-9
    p = 1 / (1 + mp.exp(-mp.mpf(x)))
    pair = AtomicPair(np.array([-x, x]), np.array([float(mp.log(1 - p)), float(mp.log(p))]))
    for alpha in (1.5, 2.0, 30.0):
        exact = mp.log(p**alpha * (1 - p) ** (1 - alpha) + (1 - p) ** alpha * p ** (1 - alpha)) / (alpha - 1)
        assert float(pair.renyi(np.array(alpha))) == pytest.approx(float(exact), rel=1e-13)


def test_the_dual_of_the_golden_pair():
    point = GOLDEN["002-dual-0"]
    y, w = (np.array(point["inputs"][k], dtype=float) for k in ("y", "w"))
    lost = 1 - float(np.sum(w * np.exp(-y)))
    dual = AtomicPair(
        y, np.log(w), mass_at_plus_infinity=float(point["inputs"]["winf"]), mass_at_minus_infinity=lost
    ).reverse()
    expected = [float(v) for v in point["value"]]
    np.testing.assert_allclose(np.sort(np.exp(dual.log_p)), np.sort(expected[:3]), rtol=1e-12)
    assert dual.mass_at_plus_infinity == pytest.approx(expected[3], rel=1e-12)
    assert dual.mass_at_minus_infinity == 0.1


def test_disjoint_supports_give_delta_one():
    pair = AtomicPair(np.empty(0), np.empty(0), mass_at_plus_infinity=1.0, mass_at_minus_infinity=1.0, symmetric=True)
    eps = np.array([-np.inf, -3.0, 0.0, 3.0, np.inf])
    np.testing.assert_array_equal(pair.log_delta(eps), 0.0)
    np.testing.assert_array_equal(pair.tails(eps).sf_p, 0.0)
    np.testing.assert_array_equal(pair.tails(eps).cdf_q, 0.0)


class Plain(LossPair):
    """A pair through its tails alone, so that the general profile and the general reversal are exercised."""

    def __init__(self, inner: LossPair):
        self.inner, self.mass_at_plus_infinity, self.mass_at_minus_infinity = (
            inner,
            inner.mass_at_plus_infinity,
            inner.mass_at_minus_infinity,
        )
        self.support, self.atoms = inner.support, inner.atoms

    def tails(self, eps: np.ndarray) -> Tails:
        return self.inner.tails(eps)


@pytest.mark.parametrize(
    "inner", [GaussPair(0.8), LaplacePair(1.3), AtomicPair(np.log([2.0, 0.5]), np.log([0.5, 0.2]), 0.3, 0.35)]
)
def test_the_general_reversal_agrees_with_the_closed_one(inner):
    general, closed = Plain(inner).reverse(), inner.reverse()
    assert isinstance(general, Reversed)
    eps = np.concatenate([np.linspace(-4, 4, 81), inner.atoms, -inner.atoms, [-np.inf, np.inf]])
    for a, b in zip(general.tails(eps), closed.tails(eps), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(np.exp(general.log_delta(eps)), np.exp(closed.log_delta(eps)), rtol=1e-10, atol=1e-15)
    np.testing.assert_allclose(
        np.exp(Plain(inner).log_delta(eps)), np.exp(inner.log_delta(eps)), rtol=1e-10, atol=1e-15
    )
    assert general.reverse().inner is inner
    assert (general.mass_at_plus_infinity, general.mass_at_minus_infinity) == (
        inner.mass_at_minus_infinity,
        inner.mass_at_plus_infinity,
    )


def test_reversed_log_delta_of_a_gaussian_is_its_own_profile():
    pair, eps = GaussPair(0.7), np.linspace(-5, 0, 50)
    np.testing.assert_allclose(reversed_log_delta(eps, pair.log_delta(-eps)), pair.log_delta(eps), rtol=1e-13)
