"""plc: the least of three bounds against each of them, exact deltas, and the counterexample to what is printed."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

import wpriv
from wpriv import Gauss, Laplace, Poisson, Process, RandomizedResponse, Step, TruncatedLaplace
from wpriv.accounting import evaluate
from wpriv.core.atomic_pair import AtomicPair
from wpriv.core.loss_moments import raw_third_moment
from wpriv.errors import Unsupported, UsageError
from wpriv.papers.accountants import plc
from wpriv.papers.accountants._normal_approximation import composed
from wpriv.papers.mechanisms.projection import Projection

SGD = Process((Step(Gauss(4.0), 65536, Poisson(0.01)),))
PROCESSES = {
    "sgd": SGD,
    "mixed": Process((Step(Gauss(30.0), 40), Step(Laplace(20.0), 300))),
    "events": Process((Step(TruncatedLaplace(20.0, bound=300.0), 100),)),
    "response": Process((Step(RandomizedResponse(0.05, 1e-7), 200),)),
}


@pytest.mark.parametrize("name", PROCESSES)
def test_the_answer_is_the_least_of_the_three_and_says_which(name: str) -> None:
    process = PROCESSES[name]
    rest = {other: evaluate.curve(process, other) for other in ("berry-esseen", "nagaev", "markov")}
    for eps in (0.0, 0.3, 1.0, 2.0):
        row = plc.account(process).at(eps=eps)
        least = min(rest, key=lambda other: rest[other].delta(eps=eps))
        assert row.delta.safe == pytest.approx(rest[least].delta(eps=eps), rel=1e-12)
        assert row.delta.lower == pytest.approx(rest["nagaev"].at(eps=eps).delta.lower, rel=1e-12)
        assert plc.NAMES[least] in row.source
    for delta in (0.1, 1e-4, 1e-9):
        answer = plc.account(process).at(delta=delta).epsilon
        assert answer.safe == pytest.approx(min(curve.epsilon(delta=delta) for curve in rest.values()), rel=1e-9)


@pytest.mark.parametrize("n", [1, 30, 1000])
@pytest.mark.parametrize("z", [0.0, 1.0, 4.0])
def test_the_bracket_holds_the_exact_gauss(n: int, z: float) -> None:
    """Oracle: Theorem 5 in mpmath, one Gaussian of mu = sqrt(n) / sigma."""
    with mpmath.workdps(40):
        mu = mpmath.sqrt(n) / 20
        eps = mu * mu / 2 + z * mu
        exact = float(mpmath.ncdf(mu / 2 - eps / mu) - mpmath.exp(eps) * mpmath.ncdf(-mu / 2 - eps / mu))
    delta = plc.account(Process((Step(Gauss(20.0), n),))).at(eps=float(eps)).delta
    assert delta.lower <= exact <= delta.upper


@pytest.mark.parametrize(
    ("eps", "source"), [(1.0, "Berry-Esseen (Theorem 6)"), (3.0, "Markov (Theorem 3)")], ids=["bulk", "tail"]
)
def test_near_the_bulk_it_is_the_normal_approximation_and_in_the_tail_markovs(eps: float, source: str) -> None:
    assert plc.account(SGD).at(eps=eps).source.endswith(source)


def test_without_exact_losses_it_is_markovs_bound_alone() -> None:
    process = Process((Step(Projection(d=50, k=20, sigma=4.0), 3),))
    row = plc.account(process).at(eps=1.0)
    assert (row.claim, row.accountant) == ("upper-bound", "plc")
    assert row.delta == evaluate.curve(process, "markov").at(eps=1.0).delta


def test_the_printed_theorem_6_lies_below_the_truth() -> None:
    """Oracles: plc error 12 (loss 5 with probability 1e-4, eps 2: 5.04e-6 < 9.50e-5); pld on DP-SGD."""
    rest = math.log((1 - 1e-4) / (1 - 1e-4 * math.exp(-5)))
    pair = AtomicPair(np.array([rest, 5.0]), np.log([1 - 1e-4, 1e-4]))
    printed = plc._printed_class([(pair, 1)])
    bound = math.exp(printed.log_delta(2.0)) + printed.error(2.0, nonuniform=True)
    assert bound == pytest.approx(5.04e-6, rel=2e-3)
    assert bound < 1e-4 * -math.expm1(-3.0)
    row = plc.account(SGD, variant="paper").at(eps=1.0)
    assert (row.claim, row.delta.lower) == ("as-published", None)
    assert row.delta.safe < evaluate.curve(SGD, "pld").at(eps=1.0).delta.lower
    assert plc.account(SGD).at(eps=1.0).delta.safe > row.delta.safe


@pytest.mark.parametrize("scale", [0.5, 2.0, 30.0])
def test_the_raw_third_moment_of_laplace_is_its_integral(scale: float) -> None:
    """Oracle: atoms 1/2 at t and e^-t/2 at -t, density e^((y-t)/2)/4 between, in mpmath."""
    t = mpmath.mpf(1) / scale
    middle = mpmath.quad(lambda y: abs(y) ** 3 * mpmath.exp((y - t) / 2) / 4, [-t, 0, t])
    assert raw_third_moment(Laplace(scale).pair()) == pytest.approx(
        float(t**3 / 2 + t**3 * mpmath.exp(-t) / 2 + middle), rel=1e-9
    )


def test_the_raw_third_moment_of_atoms_is_their_sum_and_exceeds_no_definition() -> None:
    """Oracle: plc error 11, A = (.99, .01), B = (.5, .5): raw .9143 of sigma^3 below centred .9415."""
    p, q = np.array([0.99, 0.01]), np.array([0.5, 0.5])
    pair = AtomicPair(np.log(p / q), np.log(p))
    assert raw_third_moment(pair) == pytest.approx(float(p @ np.abs(np.log(p / q)) ** 3), rel=1e-12)
    assert raw_third_moment(pair) < composed([(pair, 1)]).third


def test_what_it_cannot_answer_is_refused() -> None:
    with pytest.raises(UsageError, match="corrected, paper"):
        plc.account(SGD, variant="printed")
    with pytest.raises(Unsupported, match="equal steps"):
        plc.account(PROCESSES["mixed"], variant="paper")


@pytest.mark.parametrize("sigma", [3e-8, 1e-8, 1e-12])
def test_losses_beyond_double_precision_have_markovs_bound_alone(sigma):
    """Oracle: one deviation below the mean loss delta is nearly Phi(1), since e^(eps - loss) is then 0."""
    for name in ("berry-esseen", "nagaev"):
        with pytest.raises(Unsupported, match="double precision"):
            wpriv.budget("gauss", sigma=sigma, delta=0.9, accountant=name)
    row = wpriv.budget("gauss", sigma=sigma, eps=0.5 / sigma**2 - 1 / sigma, accountant="plc")
    assert row.claim == "upper-bound"
    assert row.delta.upper >= 0.84


@pytest.mark.parametrize("sigma", [1e-4, 1e-2, 1e2, 1e6])
def test_the_bracket_holds_the_exact_delta_of_gauss_at_any_noise(sigma):
    """Oracle: Phi(1/(2 s) - s eps) - e^eps Phi(-1/(2 s) - s eps) at the mean loss and one deviation beyond, mpmath."""
    with mpmath.workdps(60):
        s = mpmath.mpf(sigma)
        for eps in (1 / (2 * s**2), 1 / (2 * s**2) + 1 / s):
            asked = mpmath.mpf(float(eps))
            exact = mpmath.ncdf(1 / (2 * s) - s * asked) - mpmath.exp(asked) * mpmath.ncdf(-1 / (2 * s) - s * asked)
            row = wpriv.budget("gauss", sigma=sigma, eps=float(eps), accountant="plc").delta
            assert row.lower <= exact <= row.upper
