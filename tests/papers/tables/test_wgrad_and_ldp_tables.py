"""The tables of the recipes of wgrad and ldp, against finite differences, golden values and the accountants."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import wpriv
from tests.points import GOLDEN
from wpriv.errors import UsageError
from wpriv.papers.tables import linear_generator
from wpriv.papers.tables._declared import GaussFormulas, LimitError, WgradSensitivity, WpGradient


def by_case(rows):
    return {row["case"]: row for row in rows}


def distance(x, z, p, theta):
    """W_p of two samples of equal size, by sorting."""
    return float(np.mean(np.abs(np.sort(x + theta) - np.sort(z)) ** p) ** (1 / p))


@pytest.mark.parametrize("p", [1, 1.3, 2, 3])
@pytest.mark.parametrize("theta", [-0.31, -0.02, 0.0, 0.03, 0.2])
def test_wp_gradient_slopes_equal_finite_differences(p, theta):
    n, h = 7, 1e-6
    i = np.arange(1, n + 1)
    found = by_case(WpGradient(order=p, records=n, theta=theta).rows())
    for x, value, slope in ((i / n, "value", "slope"), ((i - 1) / n, "value_replaced", "slope_replaced")):
        low, high = (distance(x, (2 * i - 1) / (2 * n), p, theta + step) for step in (-h, h))
        assert found["W_p"][slope] == pytest.approx((high - low) / (2 * h), rel=1e-6)
        assert found["W_p^p"][slope] == pytest.approx((high**p - low**p) / (2 * h), rel=1e-6)
        assert found["W_p"][value] == pytest.approx((low + high) / 2, rel=1e-9)


def test_wp_gradient_has_no_slope_at_a_kink():
    found = by_case(WpGradient(order=1, records=10, theta=-0.05).rows())
    assert found["W_p"]["slope"] is None
    assert found["W_p^p"]["sensitivity"] is None
    smooth = by_case(WpGradient(order=2, records=10, theta=-0.05).rows())
    assert smooth["W_p^p"]["slope"] == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("n", [1, 10, 1000])
def test_the_sensitivity_of_w_2_squared_is_below_its_bound(n):
    found = by_case(WpGradient(order=2, records=n).rows())
    assert found["W_p^p"]["sensitivity"] <= found["bound on W_2^2"]["sensitivity"]


def test_the_slope_of_w_p_survives_powers_that_underflow():
    row = by_case(WpGradient(order=200.0, records=1000).rows())["W_p"]
    # oracle: all gaps are 1/(2n) before the record is replaced, and -1/(2n) after, so that W_p is |theta +- 1/(2n)|
    assert (row["value"], row["slope"]) == pytest.approx((1 / 2000, 1.0))
    assert (row["value_replaced"], row["slope_replaced"]) == pytest.approx((1 / 2000, -1.0))


def test_wp_gradient_refuses_too_many_records():
    with pytest.raises(UsageError, match="1,000,000"):
        WpGradient(order=2, records=10**7).rows()


@pytest.mark.parametrize(("case", "ident"), [("as published", "003-eq7-0"), ("corrected", "003-eq7-t")])
def test_wgrad_sensitivities_equal_the_golden_values(case, ident):
    inputs = {k: float(v) for k, v in GOLDEN[ident]["inputs"].items()}
    bound, lipschitz = inputs["M"], inputs["L"]
    sizes = {"size_x": inputs["n0"], "size_z": inputs["n1"]}
    params = WgradSensitivity(bound, lipschitz, lipschitz, **sizes, alpha=inputs["alpha"], clip=inputs["C"])
    sensitivity = by_case(params.rows())[case]["sensitivity"]
    assert sensitivity == pytest.approx(float(GOLDEN[ident]["value"]), rel=1e-12)


@pytest.mark.parametrize("formula", ["uniform", "poisson"])
def test_limit_error_noise_meets_its_target_and_the_bracket_is_certified(formula):
    rows = by_case(LimitError(target=1.5, rate=0.05, steps=300, delta=1e-6).rows())
    row = rows[f"noise by the {formula} limit"]
    process = {"sigma": row["multiplier"], "sampling": "fixed", "rate": 0.05, "n": 300, "delta": 1e-6}
    limit = wpriv.budget("gauss", **process, accountant=f"gdp-clt:formula={formula}").epsilon
    assert limit.estimate == pytest.approx(1.5, rel=1e-7)
    finer = wpriv.budget("gauss", **process, tol=1e-6).epsilon
    assert row["epsilon_lower"] <= finer.upper
    assert finer.lower <= row["epsilon_upper"]
    assert row["ratio"] == row["epsilon_upper"] / 1.5


def test_limit_error_finds_noise_below_a_third_of_the_sensitivity():
    rows = by_case(LimitError(target=1.0, rate=1e-4, steps=10, delta=1e-5).rows())
    for formula in ("uniform", "poisson"):
        process = {"sigma": rows[f"noise by the {formula} limit"]["multiplier"], "sampling": "fixed", "rate": 1e-4}
        limit = wpriv.budget("gauss", **process, n=10, delta=1e-5, accountant=f"gdp-clt:formula={formula}").epsilon
        assert limit.estimate == pytest.approx(1.0, rel=1e-7)


@pytest.mark.parametrize(("s", "scale"), [(0.1, 1.0), (0.3, 3.0)])
def test_a_linear_generator_learns_a_variance_far_below_that_of_the_noise(s, scale):
    (row,) = linear_generator.rows(linear_generator.Params(s=s, scale=scale, draws=0))
    # oracle: Theorem 1 of Reshetova, Chen, Ozgur (2023)
    assert row["grid"] == pytest.approx(s**2, rel=1e-6)


@pytest.mark.parametrize(
    ("noise", "s", "scale", "within"),
    [("gauss", 1, 0.05, 1e-5), ("gauss", 1e-6, 1e-6, 1e-6), ("laplace", 1, 2, 1e-3), ("laplace", 1e3, 500, 1e-5)],
)
def test_a_linear_generator_learns_the_variance_of_the_data_at_every_scale(noise, s, scale, within):
    (row,) = linear_generator.rows(linear_generator.Params(noise=noise, s=s, scale=scale, draws=0))
    # oracle: Theorem 1 of Reshetova, Chen, Ozgur (2023)
    assert row["grid"] == pytest.approx(s**2, rel=within)


@pytest.mark.parametrize(("noise", "scale"), [("laplace", 30), ("laplace", 0.001), ("gauss", 0.001)])
def test_a_variance_that_no_grid_resolves_is_left_out(noise, scale):
    (row,) = linear_generator.rows(linear_generator.Params(noise=noise, scale=scale, draws=0))
    assert (row["data"], row["grid"], row["reason"]) == (1, None, None)
    assert row["exact"] == pytest.approx(1)


def test_where_no_variance_is_known_the_row_says_why():
    (row,) = linear_generator.rows(linear_generator.Params(noise="laplace", scale=30, lam=0.5, draws=0))
    assert (row["exact"], row["grid"], row["sampled"]) == (None, None, None)
    assert "too wide for a quadrature" in row["reason"]


def test_a_batch_of_small_inputs_has_its_large_factor():
    z, y = (torch.tensor(values, dtype=torch.float64)[..., None] for values in ([-0.02, 0.01], [-5.0, 5.0]))
    z, y = torch.stack([z, -z]), torch.stack([y, y])
    params = linear_generator.Params(s=1, scale=0.01)
    # oracle: at so small a lambda points are paired in order, and the factor is that of least squares
    factor = (0.03 * 10) / (2 * (0.02**2 + 0.01**2))
    assert linear_generator.minimiser(params, z, y, None, None, [], tol=1e-6) == pytest.approx(factor**2, rel=1e-4)


def test_gauss_formulas_have_the_eps_of_the_calculator():
    rows = by_case(GaussFormulas(target=35, delta=1e-4).rows())
    assert rows["equation (4)"]["sigma"] == pytest.approx(2 * float(GOLDEN["004-eq4-1"]["value"]), rel=1e-12)
    for row in rows.values():
        guarantee = wpriv.budget("local-gauss", sigma=row["sigma"], radius=1, delta=1e-4)
        assert guarantee.epsilon.upper == pytest.approx(row["epsilon"], rel=1e-9)
    assert rows["exact"]["epsilon"] <= 35 < rows["equation (4) at the radius, Corollary 2"]["epsilon"]
    assert [row["claim"] for row in rows.values()] == ["exact", "upper-bound", "as-published", "as-published"]


def test_gauss_formulas_refuse_a_delta_beyond_their_range():
    with pytest.raises(UsageError, match=r"0\.5"):
        GaussFormulas(target=1, delta=0.5).rows()
