"""The tables behind the recipes of wgrad and ldp, against finite differences, golden values and the accountants themselves."""

from __future__ import annotations

import numpy as np
import pytest

import wpriv
from tests.points import GOLDEN
from wpriv.errors import UsageError
from wpriv.tables import gauss_formulas, limit_error, wgrad_sensitivity, wp_gradient


def by_case(rows):
    return {row["case"]: row for row in rows}


def distance(x, z, p, theta):
    """W_p of two samples of one size, by sorting."""
    return float(np.mean(np.abs(np.sort(x + theta) - np.sort(z)) ** p) ** (1 / p))


@pytest.mark.parametrize("p", [1, 1.3, 2, 3])
@pytest.mark.parametrize("theta", [-0.31, -0.02, 0.0, 0.03, 0.2])
def test_slopes_of_w_p_are_those_of_finite_differences(p, theta):
    n, h = 7, 1e-6
    i = np.arange(1, n + 1)
    found = by_case(wp_gradient.rows(wp_gradient.Params(order=p, records=n, theta=theta)))
    for x, value, slope in ((i / n, "value", "slope"), ((i - 1) / n, "value_replaced", "slope_replaced")):
        low, high = (distance(x, (2 * i - 1) / (2 * n), p, theta + step) for step in (-h, h))
        assert found["W_p"][slope] == pytest.approx((high - low) / (2 * h), rel=1e-6)
        assert found["W_p^p"][slope] == pytest.approx((high**p - low**p) / (2 * h), rel=1e-6)
        assert found["W_p"][value] == pytest.approx((low + high) / 2, rel=1e-9)


def test_at_a_kink_there_is_no_slope():
    found = by_case(wp_gradient.rows(wp_gradient.Params(order=1, records=10, theta=-0.05)))
    assert found["W_p"]["slope"] is None
    assert found["W_p^p"]["sensitivity"] is None
    assert by_case(wp_gradient.rows(wp_gradient.Params(order=2, records=10, theta=-0.05)))["W_p^p"][
        "slope"
    ] == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("n", [1, 10, 1000])
def test_what_w_2_squared_shows_stays_below_its_bound(n):
    found = by_case(wp_gradient.rows(wp_gradient.Params(order=2, records=n)))
    assert found["W_p^p"]["sensitivity"] <= found["bound on W_2^2"]["sensitivity"]


def test_samples_beyond_memory_are_refused():
    with pytest.raises(UsageError, match="1,000,000"):
        wp_gradient.rows(wp_gradient.Params(order=2, records=10**7))


@pytest.mark.parametrize(("case", "ident"), [("as published", "003-eq7-0"), ("corrected", "003-eq7-t")])
def test_sensitivities_are_the_golden_ones(case, ident):
    given = {k: float(v) for k, v in GOLDEN[ident]["inputs"].items()}
    sizes = {"size_x": given["n0"], "size_z": given["n1"]}
    params = wgrad_sensitivity.Params(
        given["M"], given["L"], given["L"], **sizes, alpha=given["alpha"], clip=given["C"]
    )
    assert by_case(wgrad_sensitivity.rows(params))[case]["sensitivity"] == pytest.approx(
        float(GOLDEN[ident]["value"]), rel=1e-12
    )


@pytest.mark.parametrize("formula", ["uniform", "poisson"])
def test_the_noise_of_a_limit_meets_its_target_by_that_limit_and_its_bracket_is_the_certified_one(formula):
    rows = by_case(limit_error.rows(limit_error.Params(target=1.5, rate=0.05, steps=300, delta=1e-6)))
    row = rows[f"noise by the {formula} limit"]
    job = {"sigma": row["multiplier"], "sampling": "fixed", "rate": 0.05, "n": 300, "delta": 1e-6}
    assert wpriv.budget("gauss", **job, accountant=f"gdp-clt:formula={formula}").epsilon.estimate == pytest.approx(
        1.5, rel=1e-7
    )
    finer = wpriv.budget("gauss", **job, tol=1e-6).epsilon
    assert row["epsilon_lower"] <= finer.upper
    assert finer.lower <= row["epsilon_upper"]
    assert row["ratio"] == row["epsilon_upper"] / 1.5


def test_formulas_for_sigma_have_the_eps_that_the_calculator_gives_them():
    rows = by_case(gauss_formulas.rows(gauss_formulas.Params(target=35, delta=1e-4)))
    assert rows["equation (4)"]["sigma"] == pytest.approx(2 * float(GOLDEN["004-eq4-1"]["value"]), rel=1e-12)
    for row in rows.values():
        found = wpriv.budget("local-gauss", sigma=row["sigma"], radius=1, delta=1e-4)
        assert found.epsilon.upper == pytest.approx(row["epsilon"], rel=1e-9)
    assert rows["exact"]["epsilon"] <= 35 < rows["equation (4) at the radius, Corollary 2"]["epsilon"]
    assert [row["claim"] for row in rows.values()] == ["exact", "upper-bound", "as-published", "as-published"]


def test_a_delta_beyond_the_formula_is_refused():
    with pytest.raises(UsageError, match="below 1/2"):
        gauss_formulas.rows(gauss_formulas.Params(target=1, delta=0.5))
