"""Gauss, Laplace and their truncated forms against 60-digit closed forms and quadrature of the noise densities."""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.points import GOLDEN
from wpriv.accounting.mechanisms.gauss import Gauss, GaussPair
from wpriv.accounting.mechanisms.laplace import Laplace, LaplacePair
from wpriv.accounting.mechanisms.truncated_gauss import TruncatedGauss, TruncatedGaussPair
from wpriv.accounting.mechanisms.truncated_laplace import TruncatedLaplace, TruncatedLaplacePair
from wpriv.errors import UsageError


def golden(prefix: str) -> list[str]:
    found = sorted(k for k in GOLDEN if k.startswith(prefix))
    assert found
    return found


def decades(low: float, high: float) -> st.SearchStrategy[float]:
    return st.floats(low, high).map(lambda v: 10**v)


# --- Gauss ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ident", golden("002-thm5-"))
def test_the_golden_deltas_of_composed_gauss(ident):
    point = GOLDEN[ident]
    eps, sigma, shift = (float(point["inputs"][k]) for k in ("eps", "sigma", "s"))
    pair = Gauss(sigma, shift).pair().self_compose(int(point["inputs"]["n"]))
    assert float(np.exp(pair.log_delta(eps))) == pytest.approx(float(point["value"]), rel=float(point["rtol"]))


@pytest.mark.slow
@given(decades(-7, 1.5), st.floats(-30, 30))
@settings(max_examples=300, deadline=None)
def test_the_gauss_profile_keeps_its_digits_on_both_sides_of_zero(mu, deviations):
    eps = deviations * mu
    a, m = mp.mpf(eps) / mp.mpf(mu), mp.mpf(mu)
    with mp.workdps(300):
        exact = mp.log(mp.ncdf(m / 2 - a) - mp.exp(mp.mpf(eps)) * mp.ncdf(-a - m / 2))
    assert float(GaussPair(mu).log_delta(eps)) == pytest.approx(float(exact), rel=2e-13, abs=1e-13)


# --- Laplace -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ident", golden("002-lapdelta-"))
def test_the_golden_deltas_of_laplace(ident):
    point = GOLDEN[ident]
    pair = LaplacePair(float(point["inputs"]["t"]))
    found = float(np.exp(pair.log_delta(float(point["inputs"]["eps"]))))
    assert found == pytest.approx(float(point["value"]), rel=float(point["rtol"]), abs=0)


@pytest.mark.parametrize("ident", golden("002-lapclass-"))
def test_the_golden_loss_class_of_laplace_is_in_its_tails(ident):
    """Mean and variance by Gauss-Legendre integrals of P(L > y): E L = int (P(L > y) - [y < 0]) dy."""
    point = GOLDEN[ident]
    t = float(point["inputs"]["t"])
    nodes, weights = np.polynomial.legendre.leggauss(60)
    y, w = t * (nodes + 1) / 2, t * weights / 2
    above, below = np.exp(LaplacePair(t).tails(y).sf_p), np.exp(LaplacePair(t).tails(-y).cdf_p)
    mean, square = w @ (above - below), 2 * w @ (y * (above + below))
    expected = [float(v) for v in point["value"]]
    np.testing.assert_allclose([mean, square - mean**2], expected, rtol=float(point["rtol"]))


@pytest.mark.parametrize("ident", [k for k in golden("000-rdplap-") if float(GOLDEN[k]["inputs"]["alpha"]) > 1])
def test_the_golden_renyi_divergences_of_laplace(ident):
    point = GOLDEN[ident]
    alpha, scale = (float(point["inputs"][k]) for k in ("alpha", "lam"))
    found = Laplace(scale).pair().renyi(np.array([alpha]))[0]
    assert found == pytest.approx(float(point["value"]), rel=1e-12)


@pytest.mark.slow
@given(decades(-9, 4), decades(-6, 6))
@settings(max_examples=300, deadline=None)
def test_the_renyi_divergence_of_laplace_keeps_its_digits(t, rate):
    s, x = mp.mpf(1 + rate) - 1, mp.mpf(t)
    exact = mp.log(((s + 1) * mp.exp(s * x) + s * mp.exp(-(s + 1) * x)) / (2 * s + 1)) / s
    assert float(LaplacePair(t).renyi(np.array(1 + rate))) == pytest.approx(float(exact), rel=1e-13)


@pytest.mark.slow
@given(decades(-3, 7), decades(-2, 2), st.floats(-1.3, 1.3))
@settings(max_examples=300, deadline=None)
def test_laplace_tails_and_profile_are_the_integrals_of_its_density(scale, sensitivity, where):
    pair = Laplace(scale, sensitivity).pair()
    t = sensitivity / scale
    eps = where * t
    assume(abs(eps) != t)
    x = (mp.mpf(eps) + mp.mpf(t)) / 2  # the outcome, in units of the scale, from which on the loss exceeds eps
    if abs(eps) > t:
        exact = [-mp.inf, 0, -mp.inf, 0] if eps > t else [0, -mp.inf, 0, -mp.inf]
    else:
        exact = [mp.log1p(-mp.exp(x - t) / 2), x - t - mp.log(2), -x - mp.log(2), mp.log1p(-mp.exp(-x) / 2)]
    for found, value in zip(pair.tails(np.array(eps)), exact, strict=True):
        assert float(found) == pytest.approx(float(value), rel=2e-14, abs=1e-15)
    delta = -mp.expm1(min((mp.mpf(eps) - t) / 2, 0)) if eps >= -t else -mp.expm1(mp.mpf(eps))
    found = mp.mpf(float(np.exp(pair.log_delta(eps))))
    assert abs(found - delta) <= 1e-14 * delta + 1e-15 * t


# --- truncated noise -----------------------------------------------------------------------------------------------


def mp_truncated_gauss(mu: float, beta: float, eps: float) -> list[mp.mpf]:
    """The four tails from normal probabilities of intervals of outcomes."""
    m, b, y = mp.mpf(mu), mp.mpf(beta), mp.mpf(eps)

    def mass(low: mp.mpf, high: mp.mpf) -> mp.mpf:
        return (
            (mp.erf(high / mp.sqrt(2)) - mp.erf(low / mp.sqrt(2))) / (2 * mp.erf(b / mp.sqrt(2)))
            if high > low
            else mp.mpf(0)
        )

    x = min(max(y / m + m / 2, m - b), b)
    return [mass(x - m, b), mass(-b, x - m), mass(x, b), mass(-b, x)]


@pytest.mark.slow
@given(decades(-6, 1), st.floats(0.02, 8), st.floats(-1.2, 1.2))
@settings(max_examples=300, deadline=None)
def test_truncated_gauss_is_exact(mu, beta, where):
    assume(2 * beta > 1.001 * mu)
    assume(abs(abs(where) - 1) > 1e-6)
    pair = TruncatedGaussPair(mu, beta)
    top = pair.support[1]
    eps = where * top
    exact = mp_truncated_gauss(mu, beta, eps)
    # the outcome is a difference of numbers of size beta: near an end a rounding moves the mass left there
    rel = 1e-13 + 1e-15 * (1 + beta) ** 2 / ((2 * beta - mu) * abs(1 - abs(where)))
    for found, value in zip(pair.tails(np.array(eps)), exact, strict=True):
        assert float(np.exp(found)) == pytest.approx(float(value), rel=rel, abs=1e-300)
    delta = exact[0] - mp.exp(mp.mpf(eps)) * exact[2]
    assert float(np.exp(pair.log_delta(eps))) == pytest.approx(float(delta), rel=1e-12)
    assert (
        pair.mass_at_plus_infinity
        == pair.mass_at_minus_infinity
        == pytest.approx(float(mp_truncated_gauss(mu, beta, 1e9)[0]), rel=1e-13)
    )


@pytest.mark.slow
@pytest.mark.parametrize(("mu", "beta"), [(1e-3, 30.0), (0.5, 38.0), (5.0, 30.0)])
def test_truncated_gauss_keeps_its_digits_below_the_smallest_float(mu, beta):
    """ln of masses down to e^-700 (60-digit normal tails)."""
    pair = TruncatedGaussPair(mu, beta)
    with mp.workdps(500):
        exact = mp.log(mp_truncated_gauss(mu, beta, 1e9)[0])
        assert pair.log_infinity == pytest.approx(float(exact), rel=1e-13)
        for eps in (0.1 * pair.support[1], 0.7 * pair.support[1]):
            expected = [float(mp.log(v)) for v in mp_truncated_gauss(mu, beta, eps)]
            np.testing.assert_allclose([float(v) for v in pair.tails(np.array(eps))], expected, rtol=1e-12, atol=1e-300)


def mp_truncated_laplace(t: float, beta: float, eps: float) -> list[mp.mpf]:
    """The four tails by integrals of e^-|x| over the outcomes of each loss, split at the kinks."""
    m, b, y = mp.mpf(t), mp.mpf(beta), mp.mpf(eps)
    top = min(m, 2 * b - m)

    def mass(low: mp.mpf, high: mp.mpf) -> mp.mpf:
        def cdf(x: mp.mpf) -> mp.mpf:
            return mp.exp(x) / 2 if x < 0 else 1 - mp.exp(-x) / 2

        return (cdf(min(high, b)) - cdf(max(low, -b))) / (1 - mp.exp(-b)) if min(high, b) > max(low, -b) else mp.mpf(0)

    if y >= top:
        x = b
    elif y < -top:
        x = m - b
    else:
        x = (y + m) / 2
    return [mass(x - m, b), mass(-b, x - m), mass(x, b), mass(-b, x)]


@pytest.mark.slow
@given(decades(-6, 1.3), decades(-2, 1.6), st.floats(-1.2, 1.2))
@settings(max_examples=300, deadline=None)
def test_truncated_laplace_is_exact(t, beta, where):
    assume(2 * beta > 1.001 * t)
    assume(abs(abs(where) - 1) > 1e-6)
    pair = TruncatedLaplacePair(t, beta)
    eps = where * pair.support[1]
    exact = mp_truncated_laplace(t, beta, eps)
    rel = 1e-13 + 1e-15 * (1 + t + beta) / min(1.0, beta, (2 * beta - t) * abs(1 - abs(where)))
    for found, value in zip(pair.tails(np.array(eps)), exact, strict=True):
        assert float(np.exp(found)) == pytest.approx(float(value), rel=rel, abs=1e-300)
    delta = exact[0] - mp.exp(mp.mpf(eps)) * exact[2]
    assert float(np.exp(pair.log_delta(eps))) == pytest.approx(float(delta), rel=1e-12)
    assert (
        pair.mass_at_plus_infinity
        == pair.mass_at_minus_infinity
        == pytest.approx(float(mp_truncated_laplace(t, beta, 1e9)[0]), rel=1e-13)
    )


def test_truncated_laplace_has_atoms_only_if_the_overlap_contains_both_centres():
    wide, narrow = TruncatedLaplacePair(1.0, 3.0), TruncatedLaplacePair(1.0, 0.8)
    for pair, jumps in ((wide, True), (narrow, False)):
        top = pair.support[1]
        before, at = pair.tails(np.nextafter(top, 0)), pair.tails(np.array(top))
        assert (float(np.exp(before.sf_p) - np.exp(at.sf_p)) > 1e-3) is jumps
    assert wide.support == (-1.0, 1.0)
    assert narrow.support == pytest.approx((-0.6, 0.6))


@pytest.mark.parametrize(("kind", "free"), [(TruncatedGauss, GaussPair(0.5)), (TruncatedLaplace, LaplacePair(0.5))])
def test_a_larger_bound_is_more_private_and_tends_to_no_bound(kind, free):
    eps = np.array([0.0, 0.1, 0.4, 1.0])
    deltas = [np.exp(kind(2.0, bound).pair().log_delta(eps)) for bound in (0.3, 0.51, 0.6, 1.0, 1.5, 3.0, 10.0, 60.0)]
    assert np.all(np.diff(deltas, axis=0) <= 1e-15)
    np.testing.assert_array_equal(deltas[0], 1.0)  # no outcome in common
    np.testing.assert_allclose(kind(2.0, 200.0).pair().log_delta(eps[:3]), free.log_delta(eps[:3]), rtol=1e-12)


def test_truncated_noise_by_monte_carlo():
    """Attack success of the likelihood-ratio test at eps = 0.3 on 400,000 draws; five standard errors."""
    rng = np.random.default_rng(7)
    noise = rng.normal(0, 1.5, 2_000_000)
    noise = noise[np.abs(noise) <= 2.0][:400_000]
    p, q = noise + 1.0, noise

    def loss(x: np.ndarray) -> np.ndarray:
        finite = (2 * x - 1) / (2 * 1.5**2)
        return np.where(x > 2.0, np.inf, np.where(x < -1.0, -np.inf, finite))

    found = float(np.exp(TruncatedGauss(1.5, 2.0).pair().log_delta(0.3)))
    estimate = np.mean(loss(p) > 0.3) - np.exp(0.3) * np.mean(loss(q) > 0.3)
    assert found == pytest.approx(estimate, abs=5 * 1.2 / np.sqrt(noise.size))


@pytest.mark.parametrize(
    ("make", "parameter"),
    [
        (lambda: Laplace(0.0), "scale"),
        (lambda: Laplace(float("nan")), "scale"),
        (lambda: Laplace(1e-200, 1e200), "sensitivity/scale"),
        # a ratio of infinity would have a delta of 0
        (lambda: Gauss(1e-320), "sensitivity/sigma"),
        (lambda: Gauss(1.0, 1e200), "sensitivity/sigma"),
        (lambda: TruncatedGauss(1.0, -1.0), "bound"),
        (lambda: TruncatedGauss(float("inf"), 1.0), "sigma"),
        (lambda: TruncatedLaplace(1e-150, 1.0), "sensitivity/scale"),
    ],
)
def test_continuous_mechanisms_name_a_bad_parameter(make, parameter):
    with pytest.raises(UsageError, match=parameter):
        make()
