"""Subsampled pairs against their definition:
explicit mixtures, 60-digit closed forms and the golden one-step deltas.
"""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.points import GOLDEN
from wpriv.accounting.mechanisms.gauss import GaussPair
from wpriv.accounting.mechanisms.laplace import LaplacePair
from wpriv.accounting.mechanisms.truncated_gauss import TruncatedGaussPair
from wpriv.accounting.mechanisms.truncated_laplace import TruncatedLaplacePair
from wpriv.core.atomic_pair import AtomicPair
from wpriv.core.loss_pair import LossPair, Tails
from wpriv.core.subsampled_pairs import fixed, poisson
from wpriv.numerics.log_space import log_mixture

RATES = st.one_of(
    st.floats(1e-12, 0.5), st.floats(-12, -0.3).map(lambda v: 1 - 10**v), st.floats(-12, -0.3).map(lambda v: 10**v)
)


class Plain(LossPair):
    """A pair that hides the class of another, so that the general maps are used on discrete ones as well."""

    def __init__(self, inner: LossPair):
        self.inner, self.mass_at_plus_infinity, self.mass_at_minus_infinity, self.symmetric = (
            inner,
            inner.mass_at_plus_infinity,
            inner.mass_at_minus_infinity,
            inner.symmetric,
        )
        self.support, self.atoms = inner.support, inner.atoms

    def tails(self, eps: np.ndarray) -> Tails:
        return self.inner.tails(eps)


def explicit(p: np.ndarray, q: np.ndarray) -> AtomicPair:
    both = (p > 0) & (q > 0)
    return AtomicPair(
        np.log(p[both] / q[both]),
        np.log(p[both]),
        float(p[q == 0].sum()),
        float(q[p == 0].sum()),
        log_q=np.log(q[both]),
    )


P, Q = np.array([0.5, 0.2, 0.1, 0.15, 0.05, 0.0]), np.array([0.1, 0.2, 0.4, 0.1, 0.0, 0.2])
MIRROR_P, MIRROR_Q = np.array([0.05, 0.4, 0.1, 0.2, 0.25, 0.0]), np.array([0.0, 0.1, 0.4, 0.2, 0.25, 0.05])


def assert_same_pair(found: LossPair, expected: LossPair) -> None:
    """Equal tails on and around every atom, and equal profiles."""
    mids = np.linspace(-3, 3, 61) + 0.00123
    atoms = np.unique(np.round(expected.atoms, 12))
    eps = np.concatenate([mids, atoms - 1e-9, atoms + 1e-9, [-np.inf, np.inf]])
    for a, b in zip(found.tails(eps), expected.tails(eps), strict=True):
        np.testing.assert_allclose(np.exp(a), np.exp(b), rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(np.exp(found.log_delta(mids)), np.exp(expected.log_delta(mids)), rtol=1e-11, atol=1e-15)
    assert found.mass_at_plus_infinity == pytest.approx(expected.mass_at_plus_infinity, abs=1e-15)
    assert found.mass_at_minus_infinity == pytest.approx(expected.mass_at_minus_infinity, abs=1e-15)
    np.testing.assert_allclose(found.support, expected.support, rtol=1e-12, atol=1e-15)
    atoms = found.atoms  # on the listed atoms themselves the mass counts below
    at, before = found.tails(atoms), found.tails(np.nextafter(atoms, -np.inf))
    near, below = expected.tails(atoms + 1e-9), expected.tails(atoms - 1e-9)
    np.testing.assert_allclose(np.exp(at.cdf_p), np.exp(near.cdf_p), rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(np.exp(before.cdf_p), np.exp(below.cdf_p), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("wrap", [lambda pair: pair, Plain], ids=["discrete", "general"])
@pytest.mark.parametrize("rate", [1e-3, 0.3, 0.999])
def test_poisson_sampling_is_the_explicit_mixture_in_both_directions(wrap, rate):
    mixture = (1 - rate) * Q + rate * P
    found = poisson(wrap(explicit(P, Q)), rate)
    assert_same_pair(found, explicit(mixture, Q))
    assert_same_pair(found.reverse(), explicit(Q, mixture))


@pytest.mark.parametrize("wrap", [lambda pair: pair, Plain], ids=["discrete", "general"])
@pytest.mark.parametrize("rate", [1e-3, 0.3, 0.999])
def test_fixed_size_sampling_joins_the_two_mixtures_at_loss_zero(wrap, rate):
    """H_t((1-g)Q + gP || Q) for t >= 1, H_t(P || (1-g)P + gQ) for t < 1, each an explicit sum."""
    base = explicit(MIRROR_P, MIRROR_Q)
    base.symmetric = True
    found = fixed(wrap(base), rate)
    assert found.symmetric
    for eps in np.linspace(-3, 3, 61) + 0.00123:
        if eps >= 0:
            a, b = (1 - rate) * MIRROR_Q + rate * MIRROR_P, MIRROR_Q
        else:
            a, b = MIRROR_P, (1 - rate) * MIRROR_P + rate * MIRROR_Q
        expected = np.maximum(a - np.exp(eps) * b, 0).sum()
        assert float(np.exp(found.log_delta(eps))) == pytest.approx(expected, rel=1e-11, abs=1e-15)
        tails = found.tails(np.array(eps))
        assert float(np.exp(tails.sf_q)) == pytest.approx(b[a > np.exp(eps) * b].sum(), rel=1e-11, abs=1e-15)
        assert float(np.exp(tails.sf_p) - np.exp(eps + tails.sf_q)) == pytest.approx(expected, abs=1e-13)


def test_general_and_atomic_fixed_size_sampling_agree():
    base = explicit(MIRROR_P, MIRROR_Q)
    base.symmetric = True
    assert_same_pair(fixed(Plain(base), 0.3), fixed(base, 0.3))


@pytest.mark.parametrize("ident", sorted(k for k in GOLDEN if k.startswith("002-sg1-")))
def test_the_golden_one_step_deltas_of_the_subsampled_gaussian(ident):
    point = GOLDEN[ident]
    rate, sigma, eps = (float(point["inputs"][k]) for k in ("q", "sigma", "eps"))
    pair = poisson(GaussPair(1 / sigma), rate)
    pair = pair.reverse() if point["inputs"]["direction"] == "add" else pair
    expected = float(point["value"])
    found = float(np.exp(pair.log_delta(eps)))
    assert found == pytest.approx(expected, rel=max(float(point["rtol"]), 1e-12), abs=0)


def mp_delta_gauss(eps: mp.mpf, mu: mp.mpf) -> mp.mpf:
    return mp.ncdf(-eps / mu + mu / 2) - mp.exp(eps) * mp.ncdf(-eps / mu - mu / 2)


@pytest.mark.parametrize("rate", [1e-8, 0.2, 1 - 1e-9])
@pytest.mark.parametrize("mu", [0.01, 1.0, 3.0])
def test_the_fixed_size_gaussian_profile_is_amplification_and_its_mirror(rate, mu):
    """g delta_Gauss(ln(1 + (t-1)/g)) for t >= 1 (60 digits), and 1 - t + t f(1/t) below."""
    pair = fixed(GaussPair(mu), rate)
    for share in (1e-6, 0.3, 1.0, 3.0):
        eps = float(log_mixture(np.array(share * mu), rate))
        t = mp.exp(mp.mpf(eps))
        exact = mp.mpf(rate) * mp_delta_gauss(mp.log1p((t - 1) / mp.mpf(rate)), mp.mpf(mu))
        assert float(pair.log_delta(eps)) == pytest.approx(float(mp.log(exact)), rel=1e-12)
        below = 1 - 1 / t + exact / t
        assert float(pair.log_delta(-eps)) == pytest.approx(float(mp.log(below)), rel=1e-12)


def mp_laplace_tail(t: mp.mpf, loss: mp.mpf) -> tuple[mp.mpf, mp.mpf]:
    """P(L > loss) and Q(L > loss) by the outcome (loss + t)/2 at which the loss is reached."""
    if loss >= t:
        return mp.mpf(0), mp.mpf(0)
    if loss < -t:
        return mp.mpf(1), mp.mpf(1)
    return 1 - mp.exp((loss - t) / 2) / 2, mp.exp(-(loss + t) / 2) / 2


@pytest.mark.slow
@given(st.floats(-4, 2).map(lambda v: 10**v), RATES, st.floats(-1.2, 1.2).filter(lambda w: abs(abs(w) - 1) > 1e-6))
@settings(max_examples=300, deadline=None)
def test_poisson_over_laplace_is_exact_in_both_directions(t, rate, where):
    pair = poisson(LaplacePair(t), rate)
    reach = float(log_mixture(np.array(t), rate))
    eps = where * reach
    base = 1 + mp.expm1(mp.mpf(eps)) / mp.mpf(rate)
    p, q = mp_laplace_tail(mp.mpf(t), mp.log(base) if base > 0 else mp.mpf(-10) * t)
    mixed = (1 - mp.mpf(rate)) * q + mp.mpf(rate) * p
    tails = pair.tails(np.array(eps))
    # near an end of the support the tail is as sensitive to eps as to the distance from it
    slack = 1e-13 + 1e-15 * float(abs(mp.exp(mp.mpf(eps)) / (rate * base))) * max(1, abs(eps))
    assert float(np.exp(tails.sf_p)) == pytest.approx(float(mixed), rel=slack)
    assert float(np.exp(tails.sf_q)) == pytest.approx(float(q), rel=slack)
    profile = mixed - mp.exp(mp.mpf(eps)) * q
    # a rounding of eps, or of the base loss on the way, moves the profile by its slope
    rounding = 1e-15 * (abs(eps) * q * mp.exp(mp.mpf(eps)) + rate * (t + abs(mp.log(rate))))
    assert abs(mp.mpf(float(np.exp(pair.log_delta(eps)))) - profile) <= 1e-12 * profile + rounding
    other = 1 - mp.exp(-mp.mpf(eps)) + mp.exp(-mp.mpf(eps)) * profile
    found = mp.mpf(float(np.exp(pair.reverse().log_delta(-eps))))
    assert abs(found - other) <= 1e-12 * other + rounding + 1e-15 * abs(eps) * (1 - mixed)


@pytest.mark.parametrize(
    "base", [TruncatedGaussPair(1.0, 2.2), TruncatedLaplacePair(1.0, 3.0), TruncatedLaplacePair(1.0, 0.9)]
)
@pytest.mark.parametrize("rate", [1e-6, 0.25, 1 - 1e-6])
def test_sampling_truncated_noise_keeps_profile_and_tails_together(base, rate):
    """f = P(L > eps) - e^eps Q(L > eps), from two separate pieces of code, with distinguishing mass on both sides."""
    for pair in (poisson(base, rate), poisson(base, rate).reverse(), fixed(base, rate)):
        low, high = (v if np.isfinite(v) else np.sign(v) * 5 for v in pair.support)
        eps = np.unique(np.concatenate([np.linspace(1.5 * low - 0.1, 1.5 * high + 0.1, 301), pair.atoms]))
        tails = pair.tails(eps)
        np.testing.assert_allclose(
            np.exp(pair.log_delta(eps)), np.exp(tails.sf_p) - np.exp(eps + tails.sf_q), rtol=1e-9, atol=3e-14
        )
        np.testing.assert_allclose(
            np.exp(pair.tails(np.array(pair.support[1])).sf_p), pair.mass_at_plus_infinity, rtol=1e-12, atol=1e-300
        )
    removed = poisson(base, rate)
    assert removed.mass_at_plus_infinity == rate * base.mass_at_plus_infinity
    assert removed.mass_at_minus_infinity == 0
    assert removed.reverse().mass_at_plus_infinity == 0
    assert removed.reverse().mass_at_minus_infinity == removed.mass_at_plus_infinity


@pytest.mark.slow
@pytest.mark.parametrize("base", [LaplacePair(0.37), TruncatedLaplacePair(0.37, 4.0)])
@given(rate=RATES)
@settings(max_examples=100, deadline=None)
def test_an_atom_stays_on_its_side_under_rounding_of_the_map(base, rate):
    """The loss at the listed atom counts below it, and just under the atom it counts above;
    exact masses from the base pair.
    """
    for pair in (poisson(base, rate), fixed(base, rate)):
        top = pair.atoms[-1]
        jump = np.exp(pair.tails(np.nextafter(top, -np.inf)).sf_q) - np.exp(pair.tails(top).sf_q)
        expected = np.exp(base.tails(np.nextafter(0.37, 0)).sf_q) - np.exp(base.tails(np.array(0.37)).sf_q)
        assert jump == pytest.approx(expected, rel=1e-9)
    added = poisson(base, rate).reverse()
    low = added.atoms[0]
    jump = np.exp(added.tails(np.nextafter(low, -np.inf)).sf_p) - np.exp(added.tails(low).sf_p)
    assert jump == pytest.approx(expected, rel=1e-9)


def test_full_participation_is_no_sampling():
    base = GaussPair(1.0)
    assert poisson(base, 1.0) is base
    assert fixed(base, 1.0) is base


@pytest.mark.parametrize(("mu", "rate"), [(1.0, 0.01), (10.0, 0.001), (1e-3, 1e-4), (0.5, 0.9)])
def test_integer_orders_of_subsampled_gauss_have_the_closed_form_of_mpmath(mu, rate):
    """E (1 - q + q T)^a term by term in 60 digits; a divergence of 1e-13 keeps its digits."""
    orders = np.array([2.0, 3.0, 17.0, 257.0])
    found = poisson(GaussPair(mu), rate).renyi(orders)
    q, m = mp.mpf(rate), mp.mpf(mu)
    for a, value in zip(orders.astype(int).tolist(), found, strict=True):
        terms = (mp.binomial(a, k) * (1 - q) ** (a - k) * q**k * mp.exp(k * (k - 1) * m * m / 2) for k in range(a + 1))
        assert float(value) == pytest.approx(float(mp.log(mp.fsum(terms)) / (a - 1)), rel=1e-10)


def test_renyi_is_none_without_a_closed_form():
    pair = poisson(GaussPair(1.0), 0.1)
    assert pair.renyi(np.array([2.5])) is None
    assert pair.renyi(np.array([2.0, 1e6])) is None
    assert pair.reverse().renyi(np.array([2.0])) is None
