"""budget and calibrate as Python functions.

Oracles: the analytic Gauss mechanism (Balle and Wang 2018) written here with erfc, and golden values.
"""

from __future__ import annotations

import inspect
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_ndtr

import wpriv
from wpriv.accounting import budget, build_process, evaluate
from wpriv.accounting import budget as verb
from wpriv.accounting.mechanisms.gauss import Gauss
from wpriv.accounting.search import Evaluation, Search, Unknown, Unreachable
from wpriv.accounting.target import TOL
from wpriv.core.guarantee import Curve, Guarantee
from wpriv.core.process import Process, Step
from wpriv.errors import CheckFailed, Unsupported, UsageError
from wpriv.numerics.bracket import Bracket

ONE = Process((Step(Gauss(1.0)),))


def gauss_delta(eps: float, sigma: float, n: int) -> float:
    """delta of n Gauss releases of sensitivity 1, exact."""
    mu = math.sqrt(n) / sigma
    return math.exp(log_ndtr(mu / 2 - eps / mu)) - math.exp(eps + log_ndtr(-mu / 2 - eps / mu))


def test_the_verbs_are_documented_and_typed_functions_of_the_package():
    for function in (wpriv.budget, wpriv.calibrate):
        assert function.__doc__
        signature = inspect.signature(function)
        assert signature.return_annotation == {"budget": "Guarantee", "calibrate": "Calibration"}[function.__name__]
        assert all(p.annotation not in (p.empty, "Any") or p.name == "observed" for p in signature.parameters.values())


def test_budget_answers_one_guarantee():
    found = wpriv.budget(mech="gauss", sigma=4, n=2**16, sampling="poisson", rate=0.01, delta=1e-4, accountant="pld")
    assert isinstance(found, Guarantee)
    # 2.300765: Laplace inversion in high precision
    assert found.epsilon.lower <= 2.300765 <= found.epsilon.upper


@pytest.mark.parametrize("question", [{}, {"eps": 1, "delta": 1e-5}])
def test_budget_wants_one_question(question):
    with pytest.raises(UsageError, match="eps"):
        wpriv.budget("gauss", sigma=1, **question)


def test_an_unknown_parameter_is_a_usage_error_not_a_type_error():
    with pytest.raises(UsageError, match="no parameter 'sigmas'"):
        wpriv.budget("gauss", sigmas=1, delta=1e-5)


def curve_answering(epsilon: Bracket) -> Curve:
    return Curve(ONE, "stub", "approximate-dp", "certified", "", lambda _: Bracket.exact(0.0), lambda _: epsilon)


def test_an_infinite_eps_is_refused():
    with pytest.raises(Unsupported, match="no finite eps"):
        evaluate.ask(curve_answering(Bracket(math.inf, 1.0, math.inf)), delta=1e-5)


@pytest.mark.parametrize(
    "bad", [Bracket(math.nan), Bracket(-1.0, -1.0, 0.0), Bracket(1.0, 2.0, 3.0), Bracket(2.0, 1.0, 1.5)]
)
def test_an_answer_that_is_no_ordered_bracket_is_a_bug(bad):
    with pytest.raises(ArithmeticError, match="ordered bracket"):
        evaluate.ask(curve_answering(bad), delta=1e-5)


def test_the_chance_of_a_distinguishing_event_composes():
    # 002-unif-0: 1 - 0.9^4
    process = build_process.process([{"mech": "uniform", "outcomes": 10, "n": 4}])
    assert evaluate.infinity_mass(process) == pytest.approx(0.3439, rel=1e-14)


@pytest.mark.slow
def test_a_table_holds_answers_and_refusals():
    job = build_process.described_process("laplace", scale=20, n=100)
    rows, refused = budget.by_accountants(job, ["gdp", "pld"], delta=1e-5)
    assert [row.accountant for row in rows] == ["pld"]
    assert [refusal.accountant for refusal in refused] == ["gdp"]
    with pytest.raises(Unsupported, match="no accountant has an answer: gdp"):
        budget.by_accountants(job, ["gdp"], delta=1e-5)
    with pytest.raises(UsageError, match="no accountant called"):
        budget.by_accountants(job, ["pld", "gpd"], delta=1e-5)


def test_curves_end_where_they_were_asked_to():
    job = build_process.described_process("gauss", sigma=1)
    assert budget.along_eps(job, "pld", eps=3)[-1].epsilon.safe == 3
    assert budget.along_eps(job, "pld", delta=1e-3)[-1].delta.safe == pytest.approx(1e-3, rel=1e-9)
    revealed = build_process.described_process("randomized-response", eps0=1, delta0=0.01)
    assert budget.along_eps(revealed, "pld")[-1].delta.safe == pytest.approx(0.1, rel=1e-6)


def test_max_eps_fails_only_above_the_limit():
    job = build_process.described_process("gauss", sigma=1)
    rows = [verb.answer(job, "pld", delta=1e-5)]
    budget.check_max_eps(rows, rows[0].epsilon.safe)
    with pytest.raises(CheckFailed, match=r"found 4\.37718"):
        budget.check_max_eps(rows, 4.37)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.floats(1e-3, 30), st.floats(-100, -0.4), st.integers(1, 10**6))
def test_calibrated_sigma_is_least_and_meets_the_target(eps, log10_delta, n):
    delta = 10**log10_delta
    found = wpriv.calibrate("gauss", eps=eps, delta=delta, n=n).guarantee
    sigma = found.extra["calibrated"]["value"]
    assert found.epsilon.upper <= eps
    assert gauss_delta(eps, sigma, n) <= delta * (1 + 1e-9)
    assert gauss_delta(eps, sigma * (1 - 1e-6), n) > delta
    assert sigma == float(f"{sigma:.7e}")  # eight digits say it in full


@settings(max_examples=40, deadline=None)
@given(st.floats(0.5, 300), st.floats(0.05, 20), st.floats(-30, -0.4))
def test_calibrated_n_is_the_largest(sigma, eps, log10_delta):
    delta = 10**log10_delta
    if gauss_delta(eps, sigma, 1) > delta:
        with pytest.raises(Unsupported, match="n = 1"):
            wpriv.calibrate("gauss", sigma=sigma, eps=eps, delta=delta)
        return
    n = wpriv.calibrate("gauss", sigma=sigma, eps=eps, delta=delta).value
    assert isinstance(n, int)
    assert gauss_delta(eps, sigma, n) <= delta * (1 + 1e-9)
    more = n + 1 if n < 40000 else math.ceil(n * (1 + 1e-4))
    assert gauss_delta(eps, sigma, more) > delta * (1 - 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("accountant", ["pld", "rdp", "gdp-clt"])
@pytest.mark.parametrize("missing", ["sigma", "n", "rate"])
def test_every_unknown_and_accountant_ends_on_the_safe_side(accountant, missing):
    job = {"sigma": 1.5, "n": 2000, "rate": 0.01}
    eps = 1.5
    del job[missing]
    found = wpriv.calibrate("gauss", eps=eps, delta=1e-5, sampling="poisson", accountant=accountant, **job).guarantee
    value = found.extra["calibrated"]["value"]
    assert found.epsilon.safe <= eps
    worse = {"sigma": value * (1 - 1e-3), "n": math.ceil(value * (1 + 2e-3)), "rate": value * (1 + 1e-3)}[missing]
    again = wpriv.budget(
        "gauss", delta=1e-5, sampling="poisson", accountant=accountant, tol=1e-4, **job, **{missing: worse}
    )
    assert again.epsilon.safe > eps


@pytest.mark.slow
def test_the_same_pricing_of_the_answer_meets_the_target_again():
    found = wpriv.calibrate("laplace", eps=2, delta=1e-6, n=500).guarantee
    scale = found.extra["calibrated"]["value"]
    assert wpriv.budget("laplace", scale=scale, n=500, delta=1e-6, tol=TOL).epsilon.upper == found.epsilon.upper <= 2


def test_eps_zero_is_met_by_total_variation_alone():
    # delta(0) of Gauss is erf(sqrt(n) / (2 sqrt(2) sigma))
    sigma = wpriv.calibrate("gauss", eps=0, delta=0.01, n=10).value
    assert math.erf(math.sqrt(10) / (2 * math.sqrt(2) * sigma)) <= 0.01
    assert math.erf(math.sqrt(10) / (2 * math.sqrt(2) * sigma * (1 - 1e-6))) > 0.01


def test_few_evaluations_suffice(monkeypatch):
    asked = []
    real = evaluate.curve
    monkeypatch.setattr(evaluate, "curve", lambda *a, **k: asked.append(a) or real(*a, **k))
    wpriv.calibrate("gauss", eps=1, delta=1e-5, n=10000, sampling="poisson", rate=0.01)
    assert len(asked) <= 10  # two thirds of them by wide brackets, which are quick


def test_more_noise_may_mean_less_privacy():
    # a valley: the target is met between 2 and 5 only, and the search starts far to the right of it
    search = Search(Unknown("x", +1, 1e-6, 1e9), lambda x: Evaluation(abs(x - 3.5) - 1.5))
    found = search.solve(1000.0, -1.0, 1e-5)
    assert 2 <= found.value <= 2 * (1 + 2e-5)


def test_an_unreachable_target_names_the_best_value():
    with pytest.raises(Unreachable) as caught:
        Search(Unknown("x", +1, 1e-3, 1e3), lambda x: Evaluation(1 + 1 / x)).solve(1.0, -1.0, 1e-5)
    assert caught.value.miss == pytest.approx(1.0, abs=0.01)


@given(st.floats(1e-5, 1e5), st.floats(0.1, 50), st.floats(-3, 3))
def test_the_search_ends_on_the_least_grid_value(root, slope, off):
    calls = []

    def ask(x: float) -> Evaluation:
        calls.append(x)
        return Evaluation(slope * math.log(root / x))

    search = Search(Unknown("x", +1, 1e-12, 1e15), ask)
    found = search.solve(root * math.exp(off), -slope * math.exp(off / 3), 1e-5).value
    assert root * (1 - 1e-15) <= found <= root * (1 + 3e-5)
    assert found == float(f"{found:.5e}")
    assert len(calls) <= 30


def test_a_count_out_of_reach_is_told_after_few_evaluations():
    asked = []
    search = Search(Unknown("n", -1, 1, 2**40, whole=True), lambda n: asked.append(n) or Evaluation(1 + n))
    with pytest.raises(Unreachable):
        search.solve(1e6, -0.55, 2e-5)
    assert len(asked) <= 20
