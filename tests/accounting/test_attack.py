"""True-positive rates against exact trade-off functions, such as TPR = Phi(Phi^-1(FPR) + mu) of two normals."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr, ndtri

import wpriv
from wpriv.accounting import build_process, evaluate
from wpriv.accounting.membership_figures import attack_bounds
from wpriv.core.guarantee import Curve
from wpriv.numerics.bracket import Bracket


def attacks(spec: dict, accountant: str = "pld", rates: tuple[float, ...] = (1e-3, 1e-2)) -> dict:
    found = attack_bounds(evaluate.curve(build_process.process([spec]), accountant), rates)
    assert found is not None
    return found


@settings(max_examples=100, deadline=None)
@given(st.floats(-5, 1.3), st.floats(-6, -0.1))
def test_gauss_is_bracketed_closely(log10_mu, log10_rate):
    mu, rate = 10**log10_mu, 10**log10_rate
    found = attacks({"mech": "gauss", "sigma": 1 / mu}, "gdp", (rate,))
    point = found["tpr_at_fpr"][0]
    exact = float(ndtr(ndtri(rate) + mu))
    assert point["tpr_lower"] <= exact * (1 + 1e-12)
    assert point["tpr_upper"] >= exact * (1 - 1e-12)
    assert point["tpr_upper"] - point["tpr_lower"] <= 3e-3 * exact
    # the total variation of N(0, 1) and N(mu, 1)
    assert found["advantage_upper"] == pytest.approx(math.erf(mu / (2 * math.sqrt(2))), rel=1e-9)


@pytest.mark.parametrize("rate", [1e-3, 1e-2, 0.3])
def test_laplace_is_bracketed(rate):
    # trade-off of two Laplace laws at distance t: 1 - e^t a for a <= e^-t / 2 (Dong, Roth, Su 2019, Proposition A.6)
    t = 0.7
    point = attacks({"mech": "laplace", "scale": 1 / t}, rates=(rate,))["tpr_at_fpr"][0]
    exact = math.exp(t) * rate if rate <= math.exp(-t) / 2 else 1 - math.exp(-t) / (4 * rate)
    assert point["tpr_lower"] <= exact * (1 + 1e-9)
    assert point["tpr_upper"] >= exact * (1 - 1e-9)
    assert point["tpr_upper"] <= exact * 1.01


def test_revealed_records_are_caught_at_any_rate():
    # with chance 0.2 the answer is revealed: no false alarm is needed to catch those
    point = attacks({"mech": "uniform", "outcomes": 5})["tpr_at_fpr"][0]
    exact = 0.2 + 1e-3
    assert point["tpr_lower"] <= exact <= point["tpr_upper"] * (1 + 1e-12)
    assert point["tpr_upper"] == pytest.approx(exact, rel=1e-6)


def test_dp_sgd_agrees_with_the_published_truth():
    # 0.00604: Laplace inversion of the profile, minimised over eps (a public tool says 0.00553)
    spec = {"mech": "gauss", "sigma": 1.1, "sampling": "poisson", "rate": 256 / 60000, "n": 14040}
    point = attacks(spec)["tpr_at_fpr"][0]
    assert point["tpr_lower"] - 5e-6 <= 0.00604 <= point["tpr_upper"] + 5e-6
    assert point["tpr_upper"] / point["tpr_lower"] < 1.003


def test_rates_rise_with_the_allowed_false_alarms():
    rows = attacks({"mech": "gauss", "sigma": 2}, rates=(1e-4, 1e-3, 1e-2, 0.1, 0.5))["tpr_at_fpr"]
    for key in ("tpr_lower", "tpr_upper"):
        values = [row[key] for row in rows]
        assert values == sorted(values)


def test_nothing_is_said_of_an_upper_bound_or_a_limit():
    for claim, notion in (
        ("upper-bound", "approximate-dp"),
        ("approximate", "approximate-dp"),
        ("certified", "probabilistic-dp"),
    ):
        curve = Curve(
            build_process.process([{"mech": "gauss", "sigma": 1}]),
            "stub",
            notion,
            claim,
            "",
            Bracket.above,
            Bracket.above,
        )
        assert attack_bounds(curve) is None
    assert "attack" not in wpriv.budget("gauss", sigma=1, delta=1e-5, accountant="rdp", attack=True).extra


def test_bounds_out_of_work_for_further_points_are_wider_and_hold(monkeypatch):
    spec = {"mech": "gauss", "sigma": 1.0, "n": 100, "sampling": "poisson", "rate": 0.01}
    full = attacks(spec)
    monkeypatch.setattr("wpriv.core.membership.MAX_WORK", -1.0)
    hasty = attacks(spec)
    for wide, narrow in zip(hasty["tpr_at_fpr"], full["tpr_at_fpr"], strict=True):
        assert wide["tpr_lower"] <= narrow["tpr_upper"]
        assert narrow["tpr_lower"] <= wide["tpr_upper"] <= 2 * wide["fpr"] + hasty["advantage_upper"]
        assert wide["fpr"] <= wide["tpr_lower"]
