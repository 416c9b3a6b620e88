"""rdp, rdp-mironov, moments, markov and zcdp, against closed forms, published figures and exact deltas."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad

from tests.points import GOLDEN
from wpriv.accounting.accountants import gdp, moments, rdp, rdp_mironov, zcdp
from wpriv.accounting.accountants._moment_bounds import LogMoments
from wpriv.accounting.mechanisms.gauss import Gauss
from wpriv.accounting.mechanisms.laplace import Laplace
from wpriv.accounting.mechanisms.randomized_response import RandomizedResponse
from wpriv.accounting.mechanisms.uniform import Uniform
from wpriv.core.kinds import Sampling
from wpriv.core.process import Process, Step
from wpriv.errors import Unsupported
from wpriv.papers.accountants import markov

SGD = Process((Step(Gauss(4.0), 65536, Sampling("poisson", 0.01)),))
UPPER = (rdp, rdp_mironov, moments, markov)


def gauss(sigma: float, n: int = 1) -> Process:
    return Process((Step(Gauss(sigma), n),))


def test_the_golden_deltas_of_both_conversions_are_those_of_the_accountants() -> None:
    for accountant, key in ((rdp_mironov, "002-rdp2dp-0"), (rdp, "002-rdp2dp-1")):
        value = accountant.account(gauss(1.0)).at(eps=5.0).delta.safe
        assert value == pytest.approx(float(GOLDEN[key]["value"]), rel=1e-11)


@pytest.mark.parametrize(
    ("process", "delta", "eps"),
    [
        (gauss(100.0, 1000), 1e-5, 1.3085),
        (gauss(100.0, 1000), 1e-15, 2.512),
        (SGD, 1e-4, 2.540),
        (SGD, 1e-12, 4.752),
        (Process((Step(Gauss(1.1), 14040, Sampling("poisson", 256 / 60000)),)), 1e-5, 2.594),
        (Process((Step(Gauss(0.6), 10**6, Sampling("poisson", 1e-4)),)), 1e-8, 3.827),
        (Process((Step(Gauss(50.0), 10**6, Sampling("poisson", 0.5)),)), 1e-5, 96.1),
    ],
)
def test_real_orders_are_at_most_and_barely_below_the_published_rdp_figures(
    process: Process, delta: float, eps: float
) -> None:
    """Oracle: the figures of dp_accounting and Opacus, whose orders are a finite list."""
    value = rdp.account(process).at(delta=delta).epsilon.safe
    assert 0.997 * eps < value < eps * 1.0005


def test_the_published_deltas_of_markov_and_rdp_for_dpsgd() -> None:
    """Oracle: plc error 5, three figures of each."""
    for eps, by_markov, by_rdp in ((1, 0.1386, 0.0641), (2, 0.00409, 0.00171), (4, 4.6e-9, 1.8e-9)):
        assert markov.account(SGD).at(eps=eps).delta.safe == pytest.approx(by_markov, rel=0.012)
        assert rdp.account(SGD).at(eps=eps).delta.safe == pytest.approx(by_rdp, rel=0.012)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    mu=st.floats(-5, 1).map(lambda x: 10**x),
    log_delta=st.floats(-230, -1),
    name=st.sampled_from(range(4)),
    n=st.integers(0, 40).map(lambda k: 2**k),
)
def test_the_bound_lies_above_the_exact_gauss_and_is_consistent(mu: float, log_delta: float, name: int, n: int) -> None:
    """Oracle: Theorem 5 (the gdp accountant) for any n up to 2^40."""
    process, delta = gauss(math.sqrt(n) / mu, n), math.exp(log_delta)
    curve, exact = UPPER[name].account(process), gdp.account(process)
    eps = curve.at(delta=delta).epsilon.safe
    assert eps >= exact.at(delta=delta).epsilon.safe * (1 - 1e-9)
    if math.isfinite(eps):
        assert curve.at(eps=eps).delta.safe <= delta * (1 + 1e-3)
        assert curve.at(eps=eps).delta.safe >= exact.at(eps=eps).delta.safe * (1 - 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("key", [k for k in GOLDEN if k.startswith(("002-sgn-", "002-lapn-", "002-lapbig-"))])
def test_the_bound_lies_above_the_golden_deltas(key: str) -> None:
    i = GOLDEN[key]["inputs"]
    if "q" in i:
        process = Process((Step(Gauss(float(i["sigma"])), int(i["n"]), Sampling("poisson", float(i["q"]))),))
    else:
        process = Process((Step(Laplace(float(i["b"]) if "b" in i else 1 / float(i["t"])), int(i["n"])),))
    for accountant in UPPER:
        assert accountant.account(process).at(eps=float(i["eps"])).delta.safe >= float(GOLDEN[key]["value"])


def test_the_better_conversion_is_never_worse() -> None:
    for process in (SGD, gauss(3.0), Process((Step(Laplace(2.0), 20, Sampling("fixed", 0.1)),))):
        for delta in (0.3, 1e-3, 1e-10, 1e-60):
            ends = [a.account(process).at(delta=delta).epsilon.safe for a in (rdp, rdp_mironov, moments)]
            assert ends == sorted(ends)


def test_integer_orders_are_the_ones_summed_by_abadi() -> None:
    """Oracle: eps = min over l = 1..256 of (l (l+1)/(2 sigma^2) n + ln(1/delta))/l for Gauss, as in the paper."""
    lam = np.arange(1, 257)
    for sigma, n, delta in ((4.0, 10, 1e-5), (0.3, 3, 1e-5), (1e3, 5, 1e-5)):
        exact = float(np.min((n * lam * (lam + 1) / (2 * sigma**2) + math.log(1 / delta)) / lam))
        assert moments.account(gauss(sigma, n)).at(delta=delta).epsilon.safe == pytest.approx(exact, rel=1e-12)


def test_pure_dp_caps_the_bound() -> None:
    """Ten Laplace releases of scale 2 are 5-DP: delta is 0 at eps 5, and eps never exceeds it."""
    process = Process((Step(Laplace(2.0), 10),))
    for accountant in UPPER:
        curve = accountant.account(process)
        assert curve.at(eps=5.0 + 1e-9).delta.safe == 0.0
        assert curve.at(delta=1e-300).epsilon.safe <= 5.0 + 1e-9


def test_moments_refuse_distinguishing_events_and_markov_counts_them() -> None:
    process = Process((Step(Uniform(outcomes=10), 4),))
    for accountant in (rdp, rdp_mironov, moments, zcdp):
        with pytest.raises(Unsupported):
            accountant.account(process)
    assert markov.account(process).at(eps=1.0).delta.safe == pytest.approx(float(GOLDEN["002-unif-0"]["value"]))
    assert markov.account(process).at(delta=0.3).epsilon.safe == math.inf
    assert markov.account(process).at(delta=0.35).epsilon.safe == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("key", ["002-thm3-0", "002-thm3-1"])
def test_the_golden_sums_of_theorem_3(key: str) -> None:
    """With Gauss's exact tail bound T(y) = exp(-(y - m)^2/(2 v)), and again with T by the search over moments."""
    i = {name: float(value) for name, value in GOLDEN[key]["inputs"].items()}
    variance = i["n"] / i["sigma"] ** 2
    log_moments = LogMoments(gauss(i["sigma"], int(i["n"])).directions()[0])
    for tail in (
        lambda y: math.exp(-(max(y - variance / 2, 0) ** 2) / (2 * variance)),
        lambda y: markov.markov_tail(log_moments, y),
    ):
        delta = markov.markov_sum(tail, i["eps"], i["step"], int(i["k"]))
        assert delta == pytest.approx(float(GOLDEN[key]["value"]), rel=1e-11)


def test_the_golden_tail_bound_of_theorem_3() -> None:
    point = GOLDEN["002-thm3-T"]
    value = markov.markov_tail(LogMoments(SGD.directions()[0]), float(point["inputs"]["y"]))
    assert value == pytest.approx(float(point["value"]), rel=1e-9)


@pytest.mark.parametrize(
    ("sigma", "n", "eps"),
    [
        (1.0, 1, 1.0),
        (10.0, 64, 3.0),
        (100.0, 1000, 1.0),
        (1.0, 1, 30.0),
        (1e3, 7, 0.001),
        (0.05, 3, 100.0),
        (100.0, 1, 0.0),
    ],
)
def test_markov_is_the_limit_of_fine_grids(sigma: float, n: int, eps: float) -> None:
    """Oracle: quadrature of e^{eps-y} T(y) with Gauss's T, at most 5e-4 below; a coarse sum lies above both."""
    v = n / sigma**2
    ln_tail = lambda y: -(max(y - v / 2, 0) ** 2) / (2 * v)  # noqa: E731
    peak = ln_tail(eps)
    width = min(60.0, 40 * math.sqrt(v) + max(v / 2 - eps, 0))
    integrand = lambda u: math.exp(ln_tail(eps + u) - peak - u)  # noqa: E731
    limit = sum(quad(integrand, a, b, epsabs=0, epsrel=1e-12)[0] for a, b in pairwise(np.linspace(0, width, 41)))
    value = markov.account(gauss(sigma, n)).at(eps=eps).delta.safe
    assert limit * (1 - 1e-9) <= value * math.exp(-peak) <= limit * (1 + 5e-4)
    grid = markov.markov_sum(lambda y: math.exp(ln_tail(y)), eps, width / 400, 400)
    assert grid >= value * (1 - 1e-4)


def test_zcdp_of_gauss_and_of_pure_dp_by_hand() -> None:
    """Oracle: Gauss n/(2 sigma^2), Laplace its mean loss, pure DP eps_0 tanh(eps_0/2); rho + 2 sqrt(rho ln 1/delta)."""
    process = Process((Step(Gauss(2.0), 3), Step(Laplace(4.0), 5), Step(RandomizedResponse(0.1), 2)))
    rho = 3 / 8 + 5 * (0.25 + math.exp(-0.25) - 1) + 2 * 0.1 * math.tanh(0.05)
    curve = zcdp.account(process)
    assert curve.at(delta=1e-6).epsilon.safe == pytest.approx(rho + 2 * math.sqrt(rho * math.log(1e6)), rel=1e-12)
    assert curve.at(eps=4.0).delta.safe == pytest.approx(math.exp(-((4 - rho) ** 2) / (4 * rho)), rel=1e-10)
    with pytest.raises(Unsupported):
        zcdp.account(SGD)
