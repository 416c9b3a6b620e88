"""Discrete noise, randomised response and uniform noise against sums in 60-digit arithmetic and golden values."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracles import atoms_delta
from tests.points import GOLDEN
from wpriv.accounting.mechanisms.discrete_gauss import DiscreteGauss, LatticePair, _log_normaliser
from wpriv.accounting.mechanisms.discrete_laplace import DiscreteLaplace
from wpriv.accounting.mechanisms.gauss import GaussPair
from wpriv.accounting.mechanisms.randomized_response import MAX_POWER, RandomizedResponse
from wpriv.accounting.mechanisms.uniform import Uniform
from wpriv.core.atomic_pair import AtomicPair
from wpriv.errors import Unsupported, UsageError


def hockey_stick(p: dict[int, mp.mpf], q: dict[int, mp.mpf], eps: float) -> mp.mpf:
    return mp.fsum(max(p.get(k, 0) - mp.exp(mp.mpf(eps)) * q.get(k, 0), 0) for k in p)


# --- discrete Gauss ------------------------------------------------------------------------------------------------


def mp_discrete_gauss(sigma: float, shift: int, reach: int) -> dict[int, mp.mpf]:
    terms = {
        k: mp.exp(-(mp.mpf(k - shift) ** 2) / (2 * mp.mpf(sigma) ** 2)) for k in range(shift - reach, shift + reach + 1)
    }
    total = mp.fsum(terms.values())
    return {k: v / total for k, v in terms.items()}


@pytest.mark.slow
@given(st.floats(0.15, 6.0), st.integers(1, 4), st.floats(-3, 3))
@settings(max_examples=60, deadline=None)
def test_discrete_gauss_is_its_sum_atom_by_atom_and_through_closed_tails(sigma, shift, deviations):
    """Hockey-stick sums over 15 sigma in 60 digits, for atoms and for closed tails."""
    eps = deviations * shift / sigma
    reach = math.ceil(15 * sigma) + shift + 3
    p, q = mp_discrete_gauss(sigma, shift, reach), mp_discrete_gauss(sigma, 0, reach)
    exact = float(hockey_stick(p, q, eps))
    for pair in (DiscreteGauss(sigma, shift).pair(), LatticePair(sigma, shift)):
        rel = 1e-12 + 1e-15 * (shift / sigma) ** 2
        assert float(np.exp(pair.log_delta(eps))) == pytest.approx(exact, rel=rel, abs=1e-40)


@pytest.mark.parametrize("sigma", [0.05, 0.4, 1.0, 1.3, 7.0, 1e3, 1e6])
def test_the_normaliser_is_the_theta_function(sigma):
    with mp.workdps(30):
        exact = (
            mp.log(mp.jtheta(3, 0, mp.exp(-1 / (2 * mp.mpf(sigma) ** 2))))
            if sigma < 20
            else mp.log(sigma * mp.sqrt(2 * mp.pi))
        )
    assert _log_normaliser(sigma) == pytest.approx(float(exact), rel=1e-15, abs=1e-16)


@pytest.mark.parametrize(("sigma", "shift"), [(18.0, 1), (90.0, 7), (1500.0, 1), (1500.0, 400)])
def test_closed_tails_and_atoms_agree_on_every_lattice_point_and_between(sigma, shift):
    lattice, atoms = LatticePair(sigma, shift), DiscreteGauss(sigma, shift).pair()
    assert isinstance(atoms, AtomicPair)
    k = (
        np.unique(np.round(np.linspace(-34, 34, 333) * sigma)) + 0.5
    )  # between the lattice points, where rounding decides nothing
    eps = shift * (2 * k - shift) / (2 * sigma**2)
    for found, expected in zip(lattice.tails(eps), atoms.tails(eps), strict=True):
        np.testing.assert_allclose(found, expected, rtol=3e-13, atol=2e-14)
    np.testing.assert_allclose(lattice.log_delta(eps), atoms.log_delta(eps), rtol=3e-13, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("deviations", [0.0, 0.31, 4.0, 9.0])
def test_a_wide_discrete_gauss_is_its_sum(deviations):
    """sigma = 100,000: terms p(1 - e^(eps - loss)) > 0 over 40 sigma, added without rounding error by math.fsum."""
    sigma, shift = 1e5, 3
    pair = DiscreteGauss(sigma, shift).pair()
    assert isinstance(pair, LatticePair)
    eps = deviations * shift / sigma
    first = math.floor(eps * sigma**2 / shift + shift / 2) + 1
    k = np.arange(first, first + 14 * sigma)
    mass = np.exp(-(((k - shift) / sigma) ** 2) / 2) / (sigma * math.sqrt(2 * math.pi))
    exact = math.fsum(mass * -np.expm1(eps - shift * (2 * k - shift) / (2 * sigma**2)))
    # the loss above eps is a difference of numbers of size 1e-4 deviations, right to 1e-16 of them
    assert float(np.exp(pair.log_delta(eps))) == pytest.approx(exact, rel=1e-10)
    tails = pair.tails(np.array(eps))
    assert float(np.exp(tails.sf_p)) == pytest.approx(math.fsum(mass), rel=1e-12)


@given(st.floats(0.2, 6).map(lambda v: 10**v), st.integers(1, 10**6), st.floats(-1e9, 1e9))
@settings(max_examples=200, deadline=None)
def test_closed_tails_never_fail_and_sum_to_one(sigma, shift, eps):
    tails = LatticePair(sigma, shift).tails(np.array([eps, eps / 1e6, -np.inf, np.inf]))
    for above, below in ((tails.sf_p, tails.cdf_p), (tails.sf_q, tails.cdf_q)):
        np.testing.assert_allclose(np.exp(above) + np.exp(below), 1.0, rtol=0, atol=1e-14)
        assert np.all(above <= 0)


# --- discrete Laplace ----------------------------------------------------------------------------------------------


@given(st.floats(-1, 2).map(lambda v: 10**v), st.integers(1, 12), st.floats(-1.2, 1.2))
@settings(max_examples=60, deadline=None)
def test_discrete_laplace_is_its_sum(scale, shift, where):
    """Hockey-stick over the outcomes between the centres, and the two geometric sides in closed form, in 60 digits."""
    a, eps = mp.exp(-1 / mp.mpf(scale)), where * shift / scale
    side, t = 1 / (1 + a), mp.exp(mp.mpf(eps))
    p = {0: side * a**shift, shift: side, **{k: side * (1 - a) * a ** (shift - k) for k in range(1, shift)}}
    q = {0: side, shift: side * a**shift, **{k: side * (1 - a) * a**k for k in range(1, shift)}}
    assert abs(mp.fsum(p.values()) - 1) < 1e-50
    pair = DiscreteLaplace(scale, shift).pair()
    exact = mp.fsum(max(p[k] - t * q[k], 0) for k in p)
    assert abs(mp.mpf(float(np.exp(pair.log_delta(eps)))) - exact) <= 1e-13 * exact + 1e-15 * shift / scale
    assert pair.support == pytest.approx((-shift / scale, shift / scale))


# --- randomised response -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ident", ["002-arr-0", "002-arr-1", "002-arr-3"])
def test_the_golden_deltas_of_approximate_randomised_response(ident):
    point = GOLDEN[ident]
    xi, reveal, eps = (float(point["inputs"][k]) for k in ("xi", "Delta", "eps"))
    pair = RandomizedResponse(xi, reveal).pair().self_compose(int(point["inputs"]["n"]))
    assert float(np.exp(pair.log_delta(eps))) == pytest.approx(float(point["value"]), rel=float(point["rtol"]))


def test_randomised_response_corrects_the_printed_formula():
    """plc error 1: the published exponent gives 0.12 where the truth is 0.396."""
    point = GOLDEN["002-arr-pub"]
    found = float(np.exp(RandomizedResponse(0.5, 0.01).pair().self_compose(10).log_delta(1.0)))
    assert found > 3 * float(point["value"])


@pytest.mark.slow
@given(
    st.floats(-4, 1).map(lambda v: 10**v),
    st.one_of(st.just(0.0), st.floats(0, 0.9)),
    st.integers(1, 60),
    st.floats(-1.2, 1.2),
)
@settings(max_examples=100, deadline=None)
def test_composed_randomised_response_is_the_binomial_sum(eps0, delta0, n, where):
    eps = where * n * eps0
    p, t = 1 / (1 + mp.exp(-mp.mpf(eps0))), mp.exp(mp.mpf(eps))
    keep = (1 - mp.mpf(delta0)) ** n
    terms = [
        mp.binomial(n, k) * max(p**k * (1 - p) ** (n - k) - t * p ** (n - k) * (1 - p) ** k, 0) for k in range(n + 1)
    ]
    exact = 1 - keep + keep * mp.fsum(terms)
    pair = RandomizedResponse(eps0, delta0).pair().self_compose(n)
    assert abs(mp.mpf(float(np.exp(pair.log_delta(eps)))) - exact) <= 1e-12 * exact + 1e-15 * n * eps0


@pytest.mark.slow
def test_composing_in_two_parts_is_composing_at_once():
    one = RandomizedResponse(0.02, 1e-4).pair()
    whole, eps = one.self_compose(5000), np.linspace(-3, 10, 40)
    for parts in (one.self_compose(2000).compose_with(one.self_compose(3000)), one.self_compose(50).self_compose(100)):
        np.testing.assert_allclose(parts.log_delta(eps), whole.log_delta(eps), rtol=1e-11)
    assert one.self_compose(MAX_POWER + 1) is None
    assert one.self_compose(MAX_POWER).compose_with(one) is None
    other = RandomizedResponse(0.03).pair()
    both, laws = one.compose_with(other), [(pair.losses, np.exp(pair.log_p), 1) for pair in (one, other)]
    for at in (-0.02, 0.005, 0.04):
        assert math.exp(float(both.log_delta(at))) == pytest.approx(atoms_delta(laws, at), rel=1e-9)


def test_the_largest_power_of_randomised_response_adds_up():
    pair = RandomizedResponse(1e-3, 1e-9).pair().self_compose(MAX_POWER)
    middle = pair.tails(np.array([0.0, 0.5]))
    np.testing.assert_allclose(np.exp(middle.sf_p) + np.exp(middle.cdf_p), 1.0, atol=1e-12)
    np.testing.assert_allclose(np.exp(middle.sf_q) + np.exp(middle.cdf_q), 1.0, atol=1e-12)
    assert pair.mass_at_plus_infinity == pytest.approx(-math.expm1(MAX_POWER * math.log1p(-1e-9)), rel=1e-15)


# --- uniform -------------------------------------------------------------------------------------------------------


def test_the_golden_infinity_mass_of_uniform_noise():
    point = GOLDEN["002-unif-0"]
    pair = Uniform(int(point["inputs"]["m"])).pair().self_compose(int(point["inputs"]["n"]))
    assert pair.mass_at_plus_infinity == pytest.approx(float(point["value"]), rel=1e-14)
    assert pair.mass_at_plus_infinity == pair.mass_at_minus_infinity


@given(st.integers(2, 10**9), st.integers(1, 2**40), st.floats(-5, 5))
@settings(max_examples=100, deadline=None)
def test_uniform_noise_loses_its_infinity_mass_at_every_eps_of_at_least_zero(outcomes, n, eps):
    keep = (1 - 1 / mp.mpf(outcomes)) ** n
    pair = Uniform(outcomes).pair().self_compose(n)
    exact = 1 - keep + keep * max(0, -mp.expm1(mp.mpf(eps)))
    assert float(np.exp(pair.log_delta(eps))) == pytest.approx(float(exact), rel=1e-13)


def test_uniform_noise_composes_with_uniform_noise_of_another_width():
    pair = Uniform(10).pair().self_compose(3).compose_with(Uniform(7, 2).pair())
    assert pair.mass_at_plus_infinity == pytest.approx(1 - 0.9**3 * 5 / 7, rel=1e-14)
    assert Uniform(10).pair().compose_with(RandomizedResponse(1.0).pair()) is None


# --- refusals ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "error", "parameter"),
    [
        (lambda: DiscreteGauss(1.0, 1.5), UsageError, "sensitivity"),
        (lambda: DiscreteGauss(1e-120), UsageError, "sensitivity/sigma"),
        (lambda: DiscreteLaplace(1.0, 0), UsageError, "sensitivity"),
        (lambda: DiscreteLaplace(1.0, 2**21), Unsupported, "sensitivity"),
        (lambda: Uniform(1), UsageError, "outcomes"),
        (lambda: Uniform(2.5), UsageError, "outcomes"),
        (lambda: Uniform(10, 10), UsageError, "outcomes"),
        (lambda: Uniform(float("inf")), UsageError, "outcomes"),
        (lambda: Uniform(True), UsageError, "outcomes"),
        (lambda: RandomizedResponse(0.0), UsageError, "eps0"),
        (lambda: RandomizedResponse(1.0, 1.0), UsageError, "delta0"),
        (lambda: RandomizedResponse(1.0, -0.1), UsageError, "delta0"),
    ],
)
def test_discrete_mechanisms_name_a_bad_parameter(make, error, parameter):
    with pytest.raises(error, match=parameter):
        make()


def test_a_whole_number_may_be_written_as_a_float():
    assert Uniform(10.0).outcomes == 10
    assert isinstance(DiscreteGauss(1.0, 2.0).sensitivity, int)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("sigma", [1e-8, 1e-3, 300.0, 1e5, 3.5e9, 3e11, 4e14])
def test_discrete_gauss_has_no_nan_at_any_sigma(sigma):
    """Oracle where sigma is large: the Gauss mechanism, of which the discrete one is then the limit."""
    pair = DiscreteGauss(sigma).pair()
    eps = np.concatenate([np.linspace(-5, 5, 101), np.geomspace(1e-14, 1e6, 80)])
    for values in (*pair.tails(eps), pair.log_delta(eps), pair.reverse().log_delta(eps)):
        assert not np.isnan(values).any()
        assert values.max() <= 1e-12
    if sigma >= 1e5:
        near = np.array([0.0, 1.0, 3.0]) / sigma
        np.testing.assert_allclose(pair.log_delta(near), GaussPair(1 / sigma).log_delta(near), rtol=10 / sigma + 1e-12)
