"""Certified brackets against closed forms and inversion without a loss grid (oracles.py), and each other."""

from __future__ import annotations

import gc
import itertools
import math
import warnings
import weakref

import mpmath
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests import oracles
from wpriv.accounting.mechanisms.discrete_gauss import DiscreteGauss
from wpriv.accounting.mechanisms.discrete_laplace import DiscreteLaplace
from wpriv.accounting.mechanisms.gauss import GaussPair
from wpriv.accounting.mechanisms.laplace import LaplacePair
from wpriv.accounting.mechanisms.randomized_response import RandomizedResponse
from wpriv.accounting.mechanisms.truncated_gauss import TruncatedGauss
from wpriv.accounting.mechanisms.truncated_laplace import TruncatedLaplace
from wpriv.accounting.pld import composition
from wpriv.accounting.pld.composition import Composition
from wpriv.core.atomic_pair import AtomicPair
from wpriv.core.loss_pair import LossPair
from wpriv.core.process import WeightedPairs
from wpriv.core.subsampled_pairs import fixed, poisson
from wpriv.errors import Unsupported


@pytest.fixture(autouse=True)
def _warnings_are_errors():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def sgd(q: float, sigma: float, n: int, order: str = "remove") -> WeightedPairs:
    pair = poisson(GaussPair(1 / sigma), q)
    return [(pair if order == "remove" else pair.reverse(), n)]


@pytest.mark.slow
@pytest.mark.parametrize("delta", [0.3, 1e-6, 1e-30, 1e-100])
@pytest.mark.parametrize(
    ("q", "sigma", "n", "order"),
    [
        (0.01, 4.0, 65536, "remove"),
        (0.01, 4.0, 65536, "add"),
        (0.3, 2.0, 64, "remove"),
        (0.3, 2.0, 64, "add"),
        (1e-3, 0.8, 10**6, "remove"),
        (1e-5, 1.0, 2**32, "add"),
        (0.05, 2.0, 1000, "fixed"),
        (1e-6, 5.0, 2**40, "fixed"),
    ],
)
def test_subsampled_gauss_at_any_delta_agrees_with_inversion(q, sigma, n, order, delta):
    pair = fixed(GaussPair(1 / sigma), q) if order == "fixed" else sgd(q, sigma, n, order)[0][0]
    log_m = oracles.fixed_gauss(q, 1 / sigma) if order == "fixed" else oracles.poisson_gauss(q, 1 / sigma, order)
    low, high = Composition([(pair, n)]).epsilon(delta, 1e-3)
    assert 0 <= low <= high < math.inf
    assert high - low <= 1.01e-3 * high
    assert low == 0 or oracles.contour_delta([(log_m, n)], low) >= delta * (1 - 1e-8)
    assert oracles.contour_delta([(log_m, n)], high) <= delta * (1 + 1e-8)


@pytest.mark.slow
@pytest.mark.parametrize(("q", "sigma"), [(1e-7, 0.7), (1e-6, 5.0), (1e-3, 1000.0)])
def test_rounding_over_two_to_the_forty_steps_is_inside_the_bracket(q, sigma):
    for order in ("remove", "add"):
        log_m = oracles.poisson_gauss(q, 1 / sigma, order)
        low, high = Composition(sgd(q, sigma, 2**40, order)).epsilon(1e-5, 1e-3)
        assert oracles.contour_delta([(log_m, 2**40)], low) >= 1e-5 * (1 - 1e-8)
        assert oracles.contour_delta([(log_m, 2**40)], high) <= 1e-5 * (1 + 1e-8)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    log_sigma=st.floats(-3, 6),
    log_n=st.floats(0, 40),
    log_delta=st.floats(math.log10(1e-100), math.log10(0.45)),
    tol=st.sampled_from([1e-2, 1e-3]),
)
def test_gauss_over_the_whole_box(log_sigma, log_n, log_delta, tol):
    """Oracle: Theorem 5 in closed form (tested against mpmath elsewhere)."""
    sigma, n, delta = 10**log_sigma, int(2**log_n), 10**log_delta
    mu = math.sqrt(n) / sigma
    whole = GaussPair(mu)
    if float(whole.log_delta(0.9e6)) > math.log(delta):  # the limit is 10^6, met by an estimate
        try:
            low, _ = Composition([(GaussPair(1 / sigma), n)]).epsilon(delta, tol)
        except Unsupported:
            return
        assert float(whole.log_delta(low)) >= math.log(delta) - 1e-8
        return
    low, high = Composition([(GaussPair(1 / sigma), n)]).epsilon(delta, tol)
    assert 0 <= low <= high < math.inf
    if low > 0:
        assert float(whole.log_delta(low)) >= math.log(delta) - 1e-8
    assert float(whole.log_delta(high)) <= math.log(delta) + 1e-8
    # eps itself, not zero, is asked for, and a step's loss is not so large that its lattice is coarser than a nat
    if float(whole.log_delta(0.02 * mu)) > math.log(delta) and 1 / sigma < 3:
        assert high - low <= 1.01 * tol * high


@pytest.mark.slow
@pytest.mark.parametrize("tol", [1e-4, 2.8e-7, 1e-8])
def test_what_lies_far_below_the_question_does_not_move_it(tol):
    """Oracle: Theorem 5 in closed form. Nearly all mass of the single step lies below the first node."""
    pair, delta = GaussPair(1 / 95.86965030792393), 6.057521396829795e-54
    low, high = Composition([(pair, 1)]).epsilon(delta, tol)
    assert float(pair.log_delta(low)) >= math.log(delta) - 1e-8
    assert float(pair.log_delta(high)) <= math.log(delta) + 1e-8


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(t=st.floats(0.01, 5), n=st.integers(1, 20), share=st.floats(0.0, 0.95))
def test_few_laplace_steps_hold_the_exact_delta(t, n, share):
    eps = share * n * t
    exact = oracles.laplace_delta(t, n, eps)
    assume(exact > 1e-200)
    low, high = Composition([(LaplacePair(t), n)]).delta(eps, 1e-2)
    assert low * (1 - 1e-9) <= exact <= high * (1 + 1e-9)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_few_atoms_at_incommensurate_losses_hold_the_enumerated_delta(seed):
    """Two kinds of two or three atoms, with and without mass at infinity; oracle: enumeration."""
    rng = np.random.default_rng(seed)
    run: WeightedPairs = []
    pmfs = []
    for _ in range(int(rng.integers(1, 3))):
        k, n = int(rng.integers(2, 4)), int(rng.integers(1, 12))
        p, q = rng.dirichlet(np.ones(k)), rng.dirichlet(np.ones(k))
        q = p * (q / p) ** 10 ** rng.uniform(-2, 0)
        infinity = float(rng.choice([0.0, 1e-3]))
        p, q = (1 - infinity) * p / p.sum(), q / q.sum()
        pair = AtomicPair(np.log(p / q), np.log(p), infinity, log_q=np.log(q))
        run.append((pair, n))
        pmfs.append((pair.losses, np.exp(pair.log_p), n))
    composition = Composition(run)
    for eps in (0.0, 0.3 * composition.max_loss, 0.8 * composition.max_loss):
        exact = oracles.atoms_delta(pmfs, eps)
        low, high = composition.delta(eps, 1e-2)
        assert low * (1 - 1e-9) <= exact <= high * (1 + 1e-9)


ANY: dict[str, WeightedPairs] = {
    "discrete gauss": [(DiscreteGauss(sigma=8.0).pair(), 100)],
    "discrete laplace": [(DiscreteLaplace(scale=20.0, sensitivity=3).pair(), 40)],
    "truncated gauss": [(TruncatedGauss(sigma=4.0, bound=20.0).pair(), 20)],
    "truncated laplace": [(TruncatedLaplace(scale=4.0, bound=60.0).pair(), 20)],
    "poisson laplace": [(poisson(LaplacePair(1.0), 0.01), 1000)],
    "poisson laplace, reversed": [(poisson(LaplacePair(1.0), 0.01).reverse(), 1000)],
    "fixed laplace": [(fixed(LaplacePair(0.5), 0.1), 300)],
    "two incommensurate laplace": [(LaplacePair(0.1), 50), (LaplacePair(0.1 * math.sqrt(2)), 70)],
    "gauss, laplace and coin": [
        (GaussPair(0.2), 30),
        (LaplacePair(0.05), 100),
        (RandomizedResponse(eps0=0.3).pair(), 20),
    ],
    "answers that may be revealed": [(RandomizedResponse(eps0=0.1, delta0=1e-6).pair(), 100), (GaussPair(0.1), 10)],
    "rare large losses": [(poisson(GaussPair(1 / 0.5), 1e-5), 10**7)],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ANY)
def test_brackets_of_all_tolerances_share_a_point(name):
    """With the truth in each, any two brackets overlap; widths are as asked, and eps and delta agree."""
    run = ANY[name]
    infinity = -math.expm1(sum(n * math.log1p(-pair.mass_at_plus_infinity) for pair, n in run))
    delta = max(1e-5, 3 * infinity)
    brackets = []
    for tol in (1e-2, 1e-3, 1e-4):
        low, high = Composition(run).epsilon(delta, tol)
        assert 0 <= low <= high < math.inf
        assert high - low <= 2.5 * tol * high
        brackets.append((low, high))
    assert max(low for low, _ in brackets) <= min(high for _, high in brackets) * (1 + 1e-9)
    eps = brackets[-1][1]
    low, high = Composition(run).delta(eps, 1e-2)
    assert low <= delta * (1 + 1e-9)
    assert high >= delta * (1 - 0.05)


def overlap(a: tuple[float, float], b: tuple[float, float]) -> bool:
    return a[0] <= b[1] * (1 + 1e-9) and b[0] <= a[1] * (1 + 1e-9)


@pytest.mark.parametrize(
    "make", [lambda: poisson(GaussPair(0.5), 0.02), lambda: fixed(LaplacePair(0.5), 0.1), lambda: LaplacePair(0.1)]
)
def test_a_run_split_in_two_is_the_same_run(make):
    # two equal pairs that do not know of each other are composed as two steps
    whole = Composition([(make(), 700)])
    halves = Composition([(make(), 300), (make(), 400)])
    for delta in (1e-2, 1e-9):
        assert overlap(whole.epsilon(delta, 1e-3), halves.epsilon(delta, 1e-3))


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(
    q=st.floats(1e-4, 0.5),
    sigma=st.floats(0.6, 20),
    n=st.integers(1, 10**5),
    log_delta=st.floats(-12, -1),
    order=st.sampled_from(["remove", "add"]),
)
def test_more_noise_fewer_steps_or_a_larger_delta_never_cost_more(q, sigma, n, log_delta, order):
    def ends(q: float, sigma: float, n: int, delta: float) -> tuple[float, float]:
        return Composition(sgd(q, sigma, n, order)).epsilon(delta, 1e-2)

    delta = 10**log_delta
    here = ends(q, sigma, n, delta)
    assert 0 <= here[0] <= here[1] < math.inf
    for milder in (
        (q * 0.7, sigma, n, delta),
        (q, sigma * 1.3, n, delta),
        (q, sigma, max(n // 2, 1), delta),
        (q, sigma, n, delta * 5),
    ):
        assert ends(*milder)[0] <= here[1] * (1 + 1e-9)


def test_delta_falls_with_eps():
    composition = Composition(sgd(0.01, 4, 65536))
    ends = [composition.delta(eps, 1e-2) for eps in np.linspace(0, 6, 13)]
    assert all(b[0] <= a[1] for a, b in itertools.pairwise(ends))


def test_nothing_is_lost_above_the_largest_loss():
    pair = TruncatedLaplace(scale=1.0, bound=5.0).pair()
    composition = Composition([(pair, 3)])
    infinity = -math.expm1(3 * math.log1p(-pair.mass_at_plus_infinity))
    assert composition.delta(composition.max_loss, 1e-3) == pytest.approx((infinity, infinity), rel=1e-14)
    assert composition.epsilon(infinity / 2, 1e-3) == (math.inf, math.inf)


@pytest.mark.parametrize("method", composition.METHODS)
@pytest.mark.parametrize(
    ("mu", "k", "tol"), [(1e-9, 3.0, 1e-4), (1e-7, 3.0, 1e-8), (1e-8, 0.5, 1e-8), (1e-6, 3.0, 1e-8)]
)
def test_small_losses_are_not_resolved_more_finely_than_rounding_lets(mu, k, tol, method, monkeypatch):
    """Oracle: the closed form of Gaussian noise (Balle, Wang 2018) in 40 digits."""
    monkeypatch.setattr(composition, "METHODS", (method,))
    eps = k * mu * math.sqrt(3)
    low, high = Composition([(GaussPair(mu), 3)]).delta(eps, tol)
    with mpmath.workdps(40):
        whole, at = mpmath.mpf(mu) * mpmath.sqrt(3), mpmath.mpf(eps)
        exact = mpmath.ncdf(whole / 2 - at / whole) - mpmath.exp(at) * mpmath.ncdf(-whole / 2 - at / whole)
        assert low <= exact <= high
    assert high - low <= max(tol, 1e-12 / mu) * high


def test_a_certain_disclosure_has_no_eps():
    pair = AtomicPair(np.empty(0), np.empty(0), mass_at_plus_infinity=1.0, mass_at_minus_infinity=1.0, symmetric=True)
    composition = Composition([(pair, 2)])
    assert composition.epsilon(0.5, 1e-3) == (math.inf, math.inf)
    assert composition.delta(1.0, 1e-3) == (1.0, 1.0)


def test_a_question_that_jumps_of_every_step_would_decide_ends():
    # 65536 tilted steps would have more jumps than steps, whose optimistic composition never ended
    with pytest.raises(Unsupported, match="no lattice"):
        Composition(sgd(0.001, 4.0, 65536)).delta(1.95, 1e-3)


def test_no_privacy_is_refused_with_advice():
    with pytest.raises(Unsupported, match="noise"):
        Composition([(GaussPair(100.0), 10**6)]).epsilon(1e-5, 1e-3)


@pytest.mark.slow
def test_sixty_distinct_steps_with_uneven_counts():
    # oracle: inversion; M of the whole is the product
    rng = np.random.default_rng(1)
    jobs = [(1e-3, 4 + 0.05 * k, int(rng.integers(2000, 5000))) for k in range(60)]
    low, high = Composition([step for job in jobs for step in sgd(*job)]).epsilon(1e-6, 1e-3)
    steps = [(oracles.poisson_gauss(q, 1 / sigma, "remove"), n) for q, sigma, n in jobs]
    assert high - low <= 1e-3 * high
    assert oracles.contour_delta(steps, low) >= 1e-6 * (1 - 1e-8)
    assert oracles.contour_delta(steps, high) <= 1e-6 * (1 + 1e-8)


def test_zero_is_the_answer_where_delta_exceeds_the_total_variation():
    pairs: list[LossPair] = [GaussPair(1e-6), LaplacePair(1e-7), poisson(GaussPair(1.0), 1e-6)]
    for pair in pairs:
        assert Composition([(pair, 1)]).epsilon(0.1, 1e-3) == (0.0, 0.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("q", "sigma", "n", "delta", "order"),
    [
        (1e-3, 0.8, 5000, 1e-5, "remove"),
        (1e-4, 0.6, 10**6, 1e-10, "add"),
        (1.19e-5, 0.486, 34 * 10**6, 6.4e-10, "remove"),
    ],
)
def test_rare_large_losses_are_bracketed_as_narrowly_as_asked(q, sigma, n, delta, order):
    # oracle: Laplace inversion of the exact moment function
    low, high = Composition(sgd(q, sigma, n, order)).epsilon(delta, 1e-3)
    assert high - low <= 1.01e-3 * high
    steps = [(oracles.poisson_gauss(q, 1 / sigma, order), n)]
    assert oracles.contour_delta(steps, low) >= delta * (1 - 1e-8)
    assert oracles.contour_delta(steps, high) <= delta * (1 + 1e-8)


def test_an_eps_far_below_a_tilted_pmf_gets_the_trivial_bracket():
    # e^{tilt (centre - eps)} is beyond double precision there: neither end may be read off
    composition = Composition(sgd(0.01, 4, 65536))
    composition.epsilon(1e-100, 1e-2)
    both = min(composition.recent, key=lambda both: abs(both.upper.centre - 14.0))
    far = both.upper.centre - 800 / both.upper.tilt
    assert both.delta(far) == (0.0, 1.0)


@pytest.mark.slow
def test_an_answered_composition_is_gone_once_it_is_let_go():
    # oracle: a weak reference; a cycle would keep all of its arrays until the garbage collector comes
    gc.collect()
    gc.disable()
    try:
        composition = Composition([(poisson(GaussPair(0.25), 0.01), 1000)])
        composition.epsilon(1e-5, 1e-3)
        last = weakref.ref(composition)
        del composition
        assert last() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("n", [1, 10, 1000])
def test_the_smallest_delta_of_a_double_has_an_eps_within_that_of_pure_dp_and_of_a_larger_delta(n):
    run = [(LaplacePair(0.1), n)]
    low, high = Composition(run).epsilon(5e-324, 1e-2)
    assert Composition(run).epsilon(1e-300, 1e-2)[0] <= high
    assert 0 <= low <= high <= 0.1 * n * (1 + 1e-12)
