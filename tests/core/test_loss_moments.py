"""Moments of the loss and its class, against golden values, closed forms and mpmath's quadrature."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.points import GOLDEN
from wpriv.accounting.accountants._moment_bounds import LogMoments
from wpriv.accounting.mechanisms.discrete_gauss import DiscreteGauss
from wpriv.accounting.mechanisms.gauss import GaussPair
from wpriv.accounting.mechanisms.laplace import LaplacePair
from wpriv.accounting.mechanisms.randomized_response import RandomizedResponse
from wpriv.accounting.mechanisms.truncated_gauss import TruncatedGauss
from wpriv.accounting.mechanisms.uniform import Uniform
from wpriv.core.atomic_pair import AtomicPair
from wpriv.core.loss_moments import LossClass, log_moment, loss_class
from wpriv.core.loss_pair import LossPair, Tails
from wpriv.core.subsampled_pairs import fixed, poisson
from wpriv.numerics.arrays import Array
from wpriv.papers.accountants._normal_approximation import composed


def golden(prefix: str, least: int) -> list[str]:
    found = [key for key in GOLDEN if key.startswith(prefix)]
    assert len(found) >= least
    return found


def subsampled(inputs: dict[str, str]) -> LossPair:
    pair = poisson(GaussPair(1 / float(inputs["sigma"])), float(inputs["q"]))
    return pair if inputs["direction"] == "remove" else pair.reverse()


class NumericGauss(GaussPair):
    """The Gauss pair without its closed moments, so that the quadrature is what is tested."""

    def renyi(self, orders: Array) -> Array | None:  # type: ignore[override]
        return None


class Exponential(LossPair):
    """A loss with density c e^{-c y}, y > 0, under P: E_P e^{lam L} = c/(c - lam), which diverges from lam = c on."""

    def __init__(self, c: float):
        self.c, self.mass_at_minus_infinity, self.support, self.atoms = c, 1 / (c + 1), (0.0, math.inf), np.zeros(1)

    def tails(self, eps: Array) -> Tails:
        y = np.asarray(eps, dtype=float)
        up = np.maximum(y, 0.0)
        sf_p, sf_q = -self.c * up, math.log(self.c / (self.c + 1)) - (self.c + 1) * up
        with np.errstate(divide="ignore"):
            cdf_q = np.where(y < 0, math.log(self.mass_at_minus_infinity), np.log1p(-np.exp(sf_q)))
            return Tails(sf_p, np.log(-np.expm1(sf_p)), sf_q, cdf_q)


@pytest.mark.parametrize("key", golden("002-rdp-", 9))
def test_the_golden_renyi_divergences_of_subsampled_gauss(key: str) -> None:
    lam = float(GOLDEN[key]["inputs"]["alpha"]) - 1
    value = log_moment(subsampled(GOLDEN[key]["inputs"]), np.array([lam]))[0] / lam
    assert value == pytest.approx(float(GOLDEN[key]["value"]), rel=1e-12)


@pytest.mark.parametrize("key", golden("002-class-", 2))
def test_the_golden_classes_of_subsampled_gauss(key: str) -> None:
    found = loss_class(subsampled(GOLDEN[key]["inputs"]))
    assert [found.mean, found.variance, found.third] == pytest.approx(
        [float(v) for v in GOLDEN[key]["value"]], rel=1e-12
    )


@pytest.mark.parametrize("key", golden("002-lapclass-", 4))
def test_the_golden_classes_of_laplace(key: str) -> None:
    found = loss_class(LaplacePair(float(GOLDEN[key]["inputs"]["t"])))
    assert [found.mean, found.variance] == pytest.approx([float(v) for v in GOLDEN[key]["value"]], rel=1e-9)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(mu=st.floats(-6, 3).map(lambda x: 10**x), reduced=st.floats(-6, 1.5).map(lambda x: 10**x))
def test_quadrature_meets_the_closed_moments_of_gauss(mu: float, reduced: float) -> None:
    """Oracle: D_alpha = alpha mu^2/2;
    mean mu^2/2, variance mu^2 and E|L - mean|^3 = sqrt(8/pi) mu^3 of the normal loss.
    """
    pair, lam = NumericGauss(mu), reduced / mu
    assert log_moment(pair, np.array([lam]))[0] == pytest.approx(lam * (lam + 1) * mu**2 / 2, rel=1e-11)
    found = loss_class(pair)
    assert [found.mean, found.variance, found.third] == pytest.approx(
        [mu**2 / 2, mu**2, math.sqrt(8 / math.pi) * mu**3], rel=1e-10
    )


@settings(max_examples=40, deadline=None)
@given(
    t=st.floats(-6, 2.5).map(lambda x: 10**x), rate=st.floats(0.001, 0.999), lam=st.floats(-3, 2).map(lambda x: 10**x)
)
def test_the_sum_of_sampled_randomized_response_is_right_to_the_last_digits(t: float, rate: float, lam: float) -> None:
    """Oracle: the two terms q e^{alpha l} of Poisson-sampled randomized response, in 40 digits."""
    with mp.workdps(40):
        p, a = 1 / (1 + mp.exp(-mp.mpf(t))), mp.mpf(lam) + 1
        ratios = [1 - mp.mpf(rate) + mp.mpf(rate) * mp.exp(s * mp.mpf(t)) for s in (1, -1)]
        exact = float(mp.log(mp.exp(-mp.mpf(t)) * p * ratios[0] ** a + p * ratios[1] ** a))
    found = log_moment(poisson(RandomizedResponse(t).pair(), rate), np.array([lam]))[0]
    # the losses themselves carry a rounding of 1e-16, and the moment is of second order in them
    assert found == pytest.approx(exact, rel=1e-9 + 1e-15 / t)


@pytest.mark.slow
@pytest.mark.parametrize(("rate", "mu"), [(0.2, 1 / 18), (0.01, 1.0), (0.001, 0.01)])
def test_quadrature_meets_mpmath_for_batches_of_fixed_size(rate: float, mu: float) -> None:
    """Oracle:
    E e^{lam L} - 1 = integral over x > mu/2 of dQ (e^{(lam+1) r} - 1)(1 - e^{-lam r}), r the loss at x, in 30 digits.
    """
    for lam in (0.5, 3.0, 30.0):
        with mp.workdps(30):
            m, a = mp.mpf(mu), mp.mpf(lam)

            def part(x: mp.mpf, m: mp.mpf = m, a: mp.mpf = a) -> mp.mpf:
                r = mp.log(1 - rate + rate * mp.exp(m * x - m * m / 2))
                return mp.npdf(x) * mp.expm1((a + 1) * r) * -mp.expm1(-a * r)

            exact = float(mp.log1p(mp.quad(part, [m / 2, 1, 2, 4, 8, 16, 30, 60])))
        assert log_moment(fixed(GaussPair(mu), rate), np.array([lam]))[0] == pytest.approx(exact, rel=1e-11)


@pytest.mark.slow
@pytest.mark.parametrize(("sigma", "bound"), [(1.0, 3.0), (40.0, 100.0)])
def test_moments_of_the_finite_loss_omit_distinguishing_events(sigma: float, bound: float) -> None:
    """Oracle: mpmath's quadrature of the truncated normal densities over the outcomes that both neighbours can have."""
    pair = TruncatedGauss(sigma=sigma, bound=bound).pair()
    with mp.workdps(30):
        s, b = mp.mpf(sigma), mp.mpf(bound)
        mass = mp.ncdf(b / s) - mp.ncdf(-b / s)
        points = mp.linspace(1 - b, b, 9)

        def mean_of(f: object) -> mp.mpf:
            return mp.quad(lambda x: f((x - 0.5) / s**2) * mp.npdf((x - 1) / s) / s / mass, points)

        finite = mean_of(lambda y: 1)
        mean = mean_of(lambda y: y) / finite
        exact = [mean, mean_of(lambda y: (y - mean) ** 2) / finite]
        moments = [mp.log(mean_of(lambda y, a=a: mp.exp(a * y))) for a in (0.5, 2, 20)]
    found = loss_class(pair)
    assert [found.mean, found.variance] == pytest.approx([float(v) for v in exact], rel=1e-10)
    assert found.mass_at_plus_infinity == pytest.approx(float(1 - finite), rel=1e-12)
    assert log_moment(pair, np.array([0.5, 2, 20]), finite=True) == pytest.approx([float(v) for v in moments], rel=1e-8)
    assert np.all(log_moment(pair, np.array([0.5, 2, 20])) == np.inf)


def test_the_inner_loss_of_uniform_noise_is_zero() -> None:
    """Oracle: Example 2: w(0) = 1 - 1/m, w(inf) = 1/m, so that E[e^{lam L}; L < inf] = 1 - 1/m at every lam."""
    found = loss_class(Uniform(outcomes=10).pair())
    assert (found.mass_at_plus_infinity, found.variance) == (pytest.approx(0.1), pytest.approx(0, abs=1e-30))
    assert found.mean == pytest.approx(0, abs=1e-16)
    assert log_moment(Uniform(outcomes=10).pair(), np.array([0.1, 5, 500]), finite=True) == pytest.approx(math.log(0.9))


def test_a_divergent_moment_is_infinite_and_a_finite_one_is_accurate() -> None:
    """Oracle: c/(c - lam), and +inf from lam = c on."""
    found = log_moment(Exponential(3.0), np.array([0.1, 1.0, 2.5, 3.0, 3.5, 100.0]))
    assert found[:3] == pytest.approx([math.log(3 / (3 - lam)) for lam in (0.1, 1.0, 2.5)], rel=1e-11)
    assert np.all(np.isinf(found[3:]))


def test_atomic_sums_keep_tiny_losses() -> None:
    """Oracle: the two-term sums in 50 digits; losses of +-1e-9, whose moments are 1 + 1e-18."""
    with mp.workdps(50):
        t = mp.mpf(1e-9)
        p = 1 / (1 + mp.exp(-t))
        exact = float(mp.log(p * mp.exp(5 * t) + (1 - p) * mp.exp(-5 * t)))
        mean = float((2 * p - 1) * t)
    pair = RandomizedResponse(1e-9).pair()
    assert log_moment(pair, np.array([5.0]))[0] == pytest.approx(exact, rel=1e-9)
    assert loss_class(pair).mean == pytest.approx(mean, rel=1e-6)


def test_a_lattice_of_losses_is_summed_as_by_mpmath() -> None:
    """Oracle: the sums over the integers in 40 digits;
    the discrete Gauss loss is (2 k + 1)/(2 sigma^2) shifted by the sensitivity.
    """
    sigma = 2.5
    with mp.workdps(40):
        s2 = mp.mpf(sigma) ** 2
        total = mp.nsum(lambda k: mp.exp(-(k**2) / (2 * s2)), [-mp.inf, mp.inf])
        lam = mp.mpf(3.5)
        terms = [
            mp.exp(-mp.mpf((k - 1) ** 2) / (2 * s2)) / total * mp.exp(lam * (2 * k - 1) / (2 * s2))
            for k in range(-80, 120)
        ]
        exact = float(mp.log(mp.fsum(terms)))
    assert log_moment(DiscreteGauss(sigma=sigma).pair(), np.array([3.5]))[0] == pytest.approx(exact, rel=1e-11)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    sigma=st.floats(-2, 6).map(lambda x: 10**x),
    rate=st.floats(-8, 0).map(lambda x: 10**x),
    add=st.booleans(),
)
def test_the_cumulant_of_any_subsampled_gauss_is_convex_and_starts_at_its_mean(
    sigma: float, rate: float, add: bool
) -> None:
    """Oracle: convexity of ln E e^{lam L}, K(0) = 0, K'(0) = mean, K''(0) = variance."""
    pair = poisson(GaussPair(1 / sigma), rate)
    pair = pair.reverse() if add else pair
    found = loss_class(pair)
    lam = np.geomspace(1e-6, 1e3, 28) / max(math.sqrt(found.variance), 1.0)
    k = log_moment(pair, lam)
    finite = np.isfinite(k)
    assert np.all(np.diff(finite.astype(int)) <= 0)  # once infinite, infinite
    slope = k[finite] / lam[finite]
    assert np.all(np.diff(slope) >= -1e-9 * slope[1:])
    assert finite[0]
    assert slope[0] == pytest.approx(found.mean + lam[0] * found.variance / 2, rel=1e-3)
    assert found.variance >= 0
    if found.variance > 1e-20 * found.mean**2:  # a loss that varies by more than its own rounding
        assert found.third >= found.variance**1.5 * (1 - 1e-9)


def test_reversing_a_pair_twice_keeps_its_class() -> None:
    pair = AtomicPair(
        np.array([-0.5, 0.2, 1.5]), np.log([0.2, 0.3, 0.4]), mass_at_plus_infinity=0.1, mass_at_minus_infinity=0.3
    )
    assert loss_class(pair.reverse().reverse()) == loss_class(pair)


class Revealing(LossPair):
    """Two laws without a common outcome, given by their tails."""

    mass_at_plus_infinity = mass_at_minus_infinity = 1.0
    support = (0.0, 0.0)
    symmetric = True

    def tails(self, eps: Array) -> Tails:
        zero = np.zeros_like(np.asarray(eps, dtype=float))
        return Tails(zero, zero - np.inf, zero - np.inf, zero)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("pair", [TruncatedGauss(1.0, 0.4).pair(), Revealing()], ids=["atomic", "tails"])
def test_loss_class_of_disjoint_supports_has_no_finite_loss(pair):
    """By definition: the sums are empty, so that moments are 0 (their ln -inf) and the whole mass is at infinity."""
    lam = np.array([0.5, 2.0])
    assert np.all(log_moment(pair, lam) == np.inf)
    assert np.all(log_moment(pair, lam, finite=True) == -np.inf)
    assert loss_class(pair) == LossClass(0.0, 0.0, 0.0, 1.0)
    run = LogMoments([(pair, 3)])
    assert run.mass_at_plus_infinity == 1.0
    assert np.all(run(lam) == -np.inf)
    assert composed([(pair, 3)]).mass_at_plus_infinity == 1.0


@pytest.mark.parametrize("infinity", [0.0, 0.1])
def test_many_orders_of_many_atoms_are_right_on_either_side_of_the_plain_sum(infinity: float) -> None:
    """Oracle: the sum in mpmath at 50 digits, at orders whose ln moment is from 1e-9 to 1e3."""
    rng = np.random.default_rng(5)
    p, q = rng.dirichlet(np.full(300, 3.0)), rng.dirichlet(np.full(300, 3.0))
    pair = AtomicPair(
        np.log(p * (1 - infinity) / q), np.log(p * (1 - infinity)), mass_at_plus_infinity=infinity, log_q=np.log(q)
    )
    lam = np.array([1e-9, 1e-5, 1e-3, 0.1, 1.0, 30.0, 1e3])
    found = log_moment(pair, lam, finite=True)
    with mp.workdps(50):
        for at, value in zip(lam, found, strict=True):
            total = mp.fsum(
                mp.mpf(float(b)) * mp.exp((1 + mp.mpf(float(at))) * mp.mpf(float(a)))
                for a, b in zip(pair.losses, np.exp(pair.log_q), strict=True)
            )
            assert value == pytest.approx(float(mp.log(total)), rel=1e-9, abs=1e-15)


ATOMS = [
    ((0.5866, 0.1296, 0.0904, 0.1934), (0.59, 0.13, 0.09, 0.19)),
    ((1e-15, 0.5 - 1e-15, 0.5), (0.9, 0.1 - 1e-15, 1e-15)),
]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("lam", [1e-15, 1e-12, 1e-9, 1e-6])
@pytest.mark.parametrize(("p", "q"), ATOMS)
def test_moments_of_atoms_keep_their_digits_at_orders_next_to_one(
    lam: float, p: tuple[float, ...], q: tuple[float, ...]
) -> None:
    """Oracle: ln of 1 + E_Q [e^((1+lam) L) - 1 - (1+lam) (e^L - 1)], as E_Q e^L = 1, in mpmath."""
    losses, order = np.log(np.array(p) / np.array(q)), 1 + mp.mpf(lam)
    exact = [mp.mpf(float(loss)) for loss in losses]
    excess = [mp.e ** (order * loss) - 1 - order * (mp.e**loss - 1) for loss in exact]
    truth = mp.log1p(mp.fdot([mp.mpf(value) for value in q], excess))
    pair = AtomicPair(losses, np.log(p), 0.0, 0.0)
    assert float(log_moment(pair, np.array([lam]))[0]) == pytest.approx(float(truth), rel=1e-11, abs=0.0)
