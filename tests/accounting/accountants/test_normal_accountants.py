"""clt, berry-esseen, nagaev and gdp-clt, against golden values and the exact deltas that the brackets must hold."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.points import GOLDEN
from wpriv.accounting.accountants import gdp, gdp_clt
from wpriv.accounting.mechanisms.gauss import Gauss, GaussPair
from wpriv.accounting.mechanisms.laplace import Laplace
from wpriv.accounting.mechanisms.randomized_response import RandomizedResponse
from wpriv.accounting.mechanisms.uniform import Uniform
from wpriv.core.atomic_pair import AtomicPair
from wpriv.core.kinds import Sampling
from wpriv.core.process import Process, Step
from wpriv.errors import Unsupported
from wpriv.papers.accountants import berry_esseen, clt, nagaev
from wpriv.papers.accountants._normal_approximation import composed

SGD = Process((Step(Gauss(4.0), 65536, Sampling("poisson", 0.01)),))


@pytest.mark.parametrize("key", ["002-thm6-0", "002-thm6-2"])
def test_the_golden_brackets_of_theorem_6(key: str) -> None:
    order = 0 if GOLDEN[key]["inputs"]["direction"] == "remove" else 1
    bracket = composed(SGD.directions()[order]).bracket(1.0, nonuniform=False)
    centre, upper = (float(value) for value in GOLDEN[key]["value"])
    assert (bracket.estimate, bracket.upper) == (pytest.approx(centre, rel=1e-8), pytest.approx(upper, rel=1e-8))
    assert bracket.lower == pytest.approx(2 * centre - upper, rel=1e-8)


def test_the_published_deltas_of_the_class_and_its_error() -> None:
    """Oracle: reference notes, mixture over N0 at n = 2^16; the error term is .003262."""
    for eps, delta in ((0, 0.25482), (0.5, 0.10270), (1, 0.027683), (1.5, 0.0047231), (2, 0.00049102)):
        assert clt.account(SGD).at(eps=eps).delta.safe == pytest.approx(
            delta, abs=0.6 * 10 ** (math.floor(math.log10(delta)) - 4)
        )
    assert composed(SGD.directions()[0]).error(1.0, nonuniform=True) == pytest.approx(0.003262, abs=5e-7)


@pytest.mark.parametrize(
    "key", [k for k in GOLDEN if k.startswith(("002-sgn-remove-", "002-lapn-", "002-lapbig-", "002-thm5-"))]
)
@pytest.mark.parametrize("accountant", [berry_esseen, nagaev])
def test_the_brackets_hold_the_golden_deltas(accountant: object, key: str) -> None:
    i = GOLDEN[key]["inputs"]
    if "q" in i:
        process = Process((Step(Gauss(float(i["sigma"])), int(i["n"]), Sampling("poisson", float(i["q"]))),))
    elif "sigma" in i:
        process = Process((Step(Gauss(float(i["sigma"])), int(i["n"])),))
    else:
        process = Process((Step(Laplace(float(i["b"]) if "b" in i else 1 / float(i["t"])), int(i["n"])),))
    value = accountant.account(process).at(eps=float(i["eps"])).delta  # type: ignore[attr-defined]
    assert value.lower <= float(GOLDEN[key]["value"]) * (1 + 1e-9)
    assert float(GOLDEN[key]["value"]) <= value.upper * (1 + 1e-9)


@settings(max_examples=40, deadline=None)
@given(
    eps0=st.floats(-3, 1).map(lambda x: 10**x),
    delta0=st.sampled_from([0.0, 1e-3, 0.2]),
    n=st.integers(1, 300),
    z=st.floats(-3, 6),
    accountant=st.sampled_from([berry_esseen, nagaev]),
    split=st.booleans(),
)
def test_the_brackets_hold_the_exact_randomized_response(
    eps0: float, delta0: float, n: int, z: float, accountant: object, split: bool
) -> None:
    """Oracle: the n-fold atoms themselves, in one step or in two unequal halves of the same mechanism."""
    step = RandomizedResponse(eps0, delta0)
    process = Process((Step(step, n), Step(step, 2 * n)) if split else (Step(step, n),))
    total = 3 * n if split else n
    composition = step.pair().self_compose(total)
    assert composition is not None
    eps = max(0.0, total * eps0 * math.tanh(eps0 / 2) + z * math.sqrt(total) * eps0)
    exact = math.exp(float(composition.log_delta(eps)))
    bracket = accountant.account(process).at(eps=eps).delta  # type: ignore[attr-defined]
    assert bracket.lower - 1e-12 <= exact <= bracket.upper + 1e-12


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    mu=st.floats(-2, 1).map(lambda x: 10**x), n=st.integers(0, 20).map(lambda k: 2**k), log_delta=st.floats(-40, -0.3)
)
def test_the_eps_brackets_hold_the_exact_gauss(mu: float, n: int, log_delta: float) -> None:
    """Oracle: Theorem 5, by the gdp accountant."""
    process, delta = Process((Step(Gauss(math.sqrt(n) / mu), n),)), math.exp(log_delta)
    exact = gdp.account(process).at(delta=delta).epsilon.safe
    ends = [a.account(process).at(delta=delta).epsilon for a in (berry_esseen, nagaev)]
    for bracket in ends:
        assert bracket.lower <= exact * (1 + 1e-9)
        assert exact <= bracket.upper * (1 + 1e-9)
        assert bracket.lower <= bracket.estimate <= bracket.upper
    assert ends[1].upper <= ends[0].upper * (1 + 1e-9)
    assert clt.account(process).at(delta=delta).epsilon.safe == pytest.approx(exact, rel=1e-7, abs=1e-12)


def test_the_nagaev_bound_at_one_step_is_the_corrected_one() -> None:
    """Oracle: plc error 12: loss 5 with probability 1e-4; at eps 2, printed 5.04e-6 < true 9.50e-5."""
    rest = math.log((1 - 1e-4) / (1 - 1e-4 * math.exp(-5)))
    pair = AtomicPair(np.array([rest, 5.0]), np.log([1 - 1e-4, 1e-4]))
    bracket = composed([(pair, 1)]).bracket(2.0, nonuniform=True)
    exact = 1e-4 * -math.expm1(-3.0)
    assert (bracket.lower, bracket.upper) == (0.0, pytest.approx(4.03e-2, rel=2e-3))
    assert bracket.upper > exact


def test_a_delta_below_the_error_is_out_of_reach_of_berry_esseen_only() -> None:
    bracket = berry_esseen.account(SGD).at(delta=1e-4).epsilon
    assert bracket.upper == math.inf
    assert bracket.lower < 2.300765 < nagaev.account(SGD).at(delta=1e-4).epsilon.upper < math.inf


def test_the_constant_for_equal_steps_is_used_for_equal_steps_only() -> None:
    """The constants that Sommer et al. (2019) state: Lemma 13 for equal steps, the remark after it for any others."""
    same, other = GaussPair(0.1), GaussPair(0.2)
    for pairs, uniform in (
        ([(same, 5)], 0.4748),
        ([(same, 2), (GaussPair(0.1), 3)], 0.4748),
        ([(same, 5), (other, 1)], 0.5600),
    ):
        bracket = composed(pairs)
        ratio = bracket.third / bracket.variance**1.5
        assert bracket.error(math.inf, nonuniform=False) == pytest.approx(uniform * ratio, rel=1e-12)
        far = bracket.mean + 100 * math.sqrt(bracket.variance)
        tail = {0.4748: 25.80, 0.5600: 31.935}[uniform]
        assert bracket.error(far, nonuniform=True) == pytest.approx(tail * ratio / (1 + 1e6), rel=1e-12)


def test_a_constant_inner_loss_is_bracketed_exactly() -> None:
    """Uniform noise: the inner loss is 0, so delta = 1 - (1 - 1/m)^n at every eps (golden 002-unif-0)."""
    process, want = Process((Step(Uniform(outcomes=10), 4),)), float(GOLDEN["002-unif-0"]["value"])
    for accountant in (clt, berry_esseen, nagaev):
        bracket = accountant.account(process).at(eps=0.7).delta
        assert bracket.safe == pytest.approx(want, rel=1e-12)


def test_the_limit_formulas_of_gdp() -> None:
    """Oracle: golden 003-gdp-0/1 (mu) through 003-gdpeps-0 and Lemma 2.3's delta."""
    inputs = GOLDEN["003-gdpeps-0"]["inputs"]
    fixed = Process((Step(Gauss(5.0), 500, Sampling("fixed", 0.2)),))
    value = gdp_clt.account(fixed).at(delta=float(inputs["delta"])).epsilon.safe
    assert value == pytest.approx(float(GOLDEN["003-gdpeps-0"]["value"]), rel=1e-9)
    for key, kind in (("003-gdp-0", "fixed"), ("003-gdp-1", "poisson")):
        i = GOLDEN[key]["inputs"]
        step = Step(Gauss(float(i["sigma"])), int(i["T"]), Sampling(kind, float(i["p"])))
        whole = Process((Step(Gauss(1 / float(GOLDEN[key]["value"]))),))
        delta = gdp.account(whole).at(eps=0.7).delta.safe
        assert gdp_clt.account(Process((step,))).at(eps=0.7).delta.safe == pytest.approx(delta, rel=1e-10)


def test_the_limit_is_exact_without_sampling_and_keeps_its_digits_at_huge_noise() -> None:
    """Oracle: mu^2 = q^2 n / sigma^2 for sigma -> inf, under either sampling."""
    plain = Process((Step(Gauss(3.0), 4), Step(Gauss(5.0), 6)))
    assert gdp_clt.account(plain).at(eps=1.0).delta.safe == pytest.approx(
        gdp.account(plain).at(eps=1.0).delta.safe, rel=1e-10
    )
    want = gdp.account(Process((Step(Gauss(1e6), 100),))).at(eps=1e-6).delta.safe
    for kind in ("poisson", "fixed"):
        process = Process((Step(Gauss(1e6), 10**4, Sampling(kind, 0.1)),))
        assert gdp_clt.account(process).at(eps=1e-6).delta.safe == pytest.approx(want, rel=1e-6)


def test_the_limits_warn_and_certify_nothing() -> None:
    for accountant in (clt, gdp_clt):
        row = accountant.account(SGD).at(delta=1e-4)
        assert row.claim == "approximate"
        assert row.warnings
        assert (row.epsilon.lower, row.epsilon.upper) == (None, None)
    # the true eps is 2.300765: both limits lie below it, hence the warning
    assert clt.account(SGD).at(delta=1e-4).epsilon.safe < 2.300765
    assert gdp_clt.account(SGD).at(delta=1e-4).epsilon.safe == pytest.approx(2.297, abs=1e-3)


def test_gdp_clt_refuses_other_mechanisms_and_overflow() -> None:
    with pytest.raises(Unsupported, match="laplace"):
        gdp_clt.account(Process((Step(Laplace(2.0), 3, Sampling("poisson", 0.1)),)))
    with pytest.raises(Unsupported):
        gdp_clt.account(Process((Step(Gauss(1e-3), 3, Sampling("poisson", 0.1)),)))
