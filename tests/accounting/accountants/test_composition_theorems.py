"""basic, advanced and kov, against enumeration, closed forms and the exact compositions they bound."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.points import GOLDEN
from wpriv.accounting.accountants import advanced, basic, gdp, kov
from wpriv.accounting.accountants.basic import SingleRelease, single_releases
from wpriv.accounting.accountants.kov import response_log_delta
from wpriv.accounting.mechanisms.dp import Dp
from wpriv.accounting.mechanisms.gauss import Gauss, GaussPair
from wpriv.accounting.mechanisms.laplace import Laplace
from wpriv.accounting.mechanisms.randomized_response import RandomizedResponse
from wpriv.core.kinds import Sampling
from wpriv.core.process import Process, Step
from wpriv.errors import Unsupported


def summed(n: int, eps0: float, delta0: float, eps: float) -> mp.mpf:
    """The binomial sum of Example 1 (corrected), term by term in 60 digits."""
    e0, d0, e = mp.mpf(eps0), mp.mpf(delta0), mp.mpf(eps)
    p = 1 / (1 + mp.exp(-e0))
    hinges = [(k, 1 - mp.exp(e - e0 * (2 * k - n))) for k in range(n + 1) if e0 * (2 * k - n) > e]
    return (
        1
        - (1 - d0) ** n
        + (1 - d0) ** n * mp.fsum(mp.binomial(n, k) * p**k * (1 - p) ** (n - k) * h for k, h in hinges)
    )


@pytest.mark.parametrize("key", [k for k in GOLDEN if k.startswith("002-arr-") and k != "002-arr-pub"])
def test_the_golden_deltas_of_randomized_response(key: str) -> None:
    i = GOLDEN[key]["inputs"]
    log_delta0 = math.log(float(i["Delta"])) if float(i["Delta"]) else -math.inf
    value = math.exp(response_log_delta(int(i["n"]), float(i["xi"]), log_delta0, float(i["eps"])))
    assert value == pytest.approx(float(GOLDEN[key]["value"]), rel=1e-12)
    process = Process((Step(RandomizedResponse(float(i["xi"]), float(i["Delta"])), int(i["n"])),))
    assert kov.account(process).at(eps=float(i["eps"])).delta.safe == pytest.approx(
        float(GOLDEN[key]["value"]), rel=1e-11
    )


@settings(max_examples=50, deadline=None)
@given(
    n=st.integers(1, 120),
    eps0=st.floats(-4, 1.3).map(lambda x: 10**x),
    delta0=st.sampled_from([0.0, 1e-12, 0.01]),
    part=st.floats(0, 1.02),
)
def test_the_binomial_sum_is_right_to_the_last_digits(n: int, eps0: float, delta0: float, part: float) -> None:
    """Oracle: ``summed``."""
    eps = part * n * eps0
    with mp.workdps(60):
        exact = summed(n, eps0, delta0, eps)
        value = mp.exp(mp.mpf(response_log_delta(n, eps0, math.log(delta0) if delta0 else -math.inf, eps)))
        # whether a loss of exactly eps counts depends on the rounding of eps
        assert abs(value - exact) <= 1e-12 * exact + mp.mpf(10) ** -15 * abs(eps)


@pytest.mark.parametrize("n", [2**20, 2**24, 2**40])
def test_the_sum_of_many_terms_tends_to_gauss_from_the_safe_side(n: int) -> None:
    """Oracle: eps0 = 1/sqrt(n) is a random walk, whose limit is Theorem 5 at mu = 1, within 1e-3 of the lattice."""
    for eps in (0.5, 3.0, 20.0):
        value = response_log_delta(n, 1 / math.sqrt(n), -math.inf, eps)
        limit = float(GaussPair(1.0).log_delta(eps))
        assert value == pytest.approx(limit, abs=0.02 if n == 2**20 else 2e-3)


def test_blocks_of_terms_bound_the_sum_from_above_and_closely() -> None:
    """Oracle: the regularised beta function, at an n whose terms are summed in blocks."""
    from scipy.special import betainc

    n, eps0, eps = 2**24, 2.0**-12, 3.0
    p, first = 1 / (1 + math.exp(-eps0)), math.floor((eps / eps0 + n) / 2) + 1
    exact = betainc(first, n - first + 1, p) - math.exp(eps) * betainc(first, n - first + 1, 1 - p)
    value = math.exp(response_log_delta(n, eps0, -math.inf, eps))
    assert exact * (1 - 1e-9) <= value <= exact * (1 + 1e-4)


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(
    eps0=st.floats(-2, 0.5).map(lambda x: 10**x),
    delta0=st.sampled_from([0.0, 1e-6]),
    n=st.integers(2, 400),
    z=st.floats(0, 8),
)
def test_kov_is_exact_for_randomized_response(eps0: float, delta0: float, n: int, z: float) -> None:
    """Oracle: the n-fold pair of randomized response itself."""
    step = RandomizedResponse(eps0, delta0)
    composition = step.pair().self_compose(n)
    assert composition is not None
    eps = min(math.sqrt(n) * eps0 * z, 0.999 * n * eps0)
    exact = math.exp(float(composition.log_delta(eps)))
    assert kov.account(Process((Step(step, n),))).at(eps=eps).delta.safe == pytest.approx(exact, rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("accountant", [basic, advanced, kov])
@pytest.mark.parametrize(("sigma", "n"), [(3.0, 1), (3.0, 20), (100.0, 1000), (1e4, 2**20)])
def test_the_bound_lies_above_the_exact_gauss_and_is_consistent(accountant: object, sigma: float, n: int) -> None:
    """Oracle: Theorem 5, by the gdp accountant; at n = 1 every theorem gives the profile itself back."""
    process = Process((Step(Gauss(sigma), n),))
    curve, exact = accountant.account(process), gdp.account(process)  # type: ignore[attr-defined]
    for delta in (0.1, 1e-5, 1e-40):
        eps, smallest = curve.at(delta=delta).epsilon.safe, exact.at(delta=delta).epsilon.safe
        assert eps >= smallest * (1 - 1e-9)
        if n == 1 and accountant is not advanced:
            assert eps == pytest.approx(smallest, rel=1e-4)
        assert curve.at(eps=eps).delta.safe <= delta * (1 + 1e-4)


@pytest.mark.slow
def test_the_theorems_are_ordered_from_loose_to_tight() -> None:
    for process in (Process((Step(Gauss(50.0), 500),)), Process((Step(Laplace(20.0), 1000),))):
        ends = [a.account(process).at(delta=1e-6).epsilon.safe for a in (kov, advanced, basic)]
        assert ends == sorted(ends)


def test_basic_composition_by_hand() -> None:
    """Oracle: n times the eps of one release at delta/n; two kinds of steps do no worse than equal shares."""
    one = gdp.account(Process((Step(Gauss(8.0)),)))
    alike = basic.account(Process((Step(Gauss(8.0), 30),)))
    assert alike.at(delta=3e-5).epsilon.safe == pytest.approx(30 * one.at(delta=1e-6).epsilon.safe)
    other = gdp.account(Process((Step(Gauss(80.0)),)))
    equal = 30 * one.at(delta=1e-6).epsilon.safe + 10 * other.at(delta=1e-6).epsilon.safe
    value = basic.account(Process((Step(Gauss(8.0), 30), Step(Gauss(80.0), 10)))).at(delta=4e-5).epsilon.safe
    assert 0.95 * equal < value < equal


def test_pure_dp_composes_by_the_printed_closed_forms() -> None:
    """Oracle: Kairouz, Oh, Viswanath, Theorem 3.5 at delta_i = 0: the minimum of its three forms."""
    e, n, d = 0.05, 1000, 1e-6
    drift, root = n * e * math.tanh(e / 2), e * math.sqrt(2 * n)
    want = min(
        n * e,
        drift + root * math.sqrt(math.log(1 / d)),
        drift + root * math.sqrt(math.log(math.e + e * math.sqrt(n) / d)),
    )
    value = advanced.account(Process((Step(RandomizedResponse(e), n),))).at(delta=d).epsilon.safe
    assert value <= want * (1 + 1e-9)
    assert value == pytest.approx(want, rel=1e-3)


@settings(max_examples=300, deadline=None)
@given(n=st.floats(0, 16).map(lambda x: int(2**x)), eps0=st.floats(-4, 1).map(lambda x: 10**x), z=st.floats(-1, 12))
def test_the_closed_form_lies_above_the_optimal_composition(n: int, eps0: float, z: float) -> None:
    """Oracle: the exact binomial sum: KOV's closed forms are bounds of it at every n, eps0 and eps."""
    plain, drift, square = n * eps0, n * eps0 * math.tanh(eps0 / 2), n * eps0**2
    eps = max(0.0, drift + z * math.sqrt(square))
    bound = float(advanced._log_rest(np.array(plain), np.array(drift), np.array(square), eps))
    assert bound >= response_log_delta(n, eps0, -math.inf, eps) - 1e-9


def test_kov_refuses_unequal_steps_and_merges_equal_ones() -> None:
    with pytest.raises(Unsupported):
        kov.account(Process((Step(Gauss(2.0)), Step(Gauss(3.0)))))
    split = kov.account(Process((Step(Gauss(9.0), 3), Step(Gauss(9.0), 4)))).at(delta=1e-5).epsilon.safe
    assert split == kov.account(Process((Step(Gauss(9.0), 7),))).at(delta=1e-5).epsilon.safe


@settings(max_examples=40, deadline=None)
@given(sigma=st.floats(-3, 5).map(lambda x: 10**x), log_delta=st.floats(-600, -0.1), rate=st.floats(0.001, 1))
def test_the_eps_of_one_release_is_the_smallest_that_meets_its_delta(
    sigma: float, log_delta: float, rate: float
) -> None:
    (step,) = single_releases(Process((Step(Gauss(sigma), 5, Sampling("poisson", rate)),)))
    eps = float(step.epsilon(np.array([log_delta]))[0])
    assert float(step.log_delta(np.array([eps]))[0]) <= log_delta
    if eps > 0:
        assert float(step.log_delta(np.array([eps * (1 - 1e-9)]))[0]) > log_delta


def test_one_release_of_a_bounded_loss_spends_nothing_at_its_top() -> None:
    (step,) = single_releases(Process((Step(Laplace(2.0), 100, Sampling("poisson", 0.1)),)))
    assert isinstance(step, SingleRelease)
    assert step.top == pytest.approx(math.log1p(0.1 * math.expm1(0.5)))
    assert float(step.epsilon(np.array([-math.inf]))[0]) == step.top


def test_the_eps_of_basic_can_be_false_where_steps_are_chosen_from_outputs() -> None:
    """Oracle: the exact pair of a procedure of two paths, by enumeration of its six outcomes."""
    delta, rate, eps0 = 2.1e-3, 1e-3, 12.0
    first, small = Step(Dp(eps0), 1, Sampling("poisson", rate)), delta / 100
    limit = basic.account(Process((first, Step(Dp(0.0, small), 99)))).at(delta=delta).epsilon.upper
    other = basic.account(Process((first, Step(Dp(limit))))).at(delta=delta).epsilon.upper
    assert other < limit
    true, right, kept = 1 / (1 + math.exp(-eps0)), 1 / (1 + math.exp(-limit)), (1 - small) ** 99
    p, q = rate * true + (1 - rate) * (1 - true), 1 - true  # of the answer after which one more step follows
    outcomes = [(p * right, q * (1 - right)), (p * (1 - right), q * right)]
    outcomes += [((1 - p) * (1 - kept), 0.0), ((1 - p) * kept, (1 - q) * kept), (0.0, (1 - q) * (1 - kept))]
    assert np.sum(outcomes, axis=0) == pytest.approx([1, 1], rel=1e-12)
    assert math.fsum(max(a - math.exp(limit) * b, 0.0) for a, b in outcomes) > 1.4 * delta
