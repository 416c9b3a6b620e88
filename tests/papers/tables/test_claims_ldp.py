"""The statements of Reshetova, Chen, Ozgur (2023) on learning from local reports, against independent values."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

import wpriv
from tests.points import GOLDEN
from wpriv.papers.tables import _claims_ldp as formulas
from wpriv.papers.tables.claims import STATEMENTS

LDP = {statement.proposition: statement for statement in STATEMENTS["ldp"]}
FAILS = {
    "Theorem 1 (ii)": 3,
    "Theorem 1 (ii), order": 4,
    "Theorem 1 (ii), right": 5,
    "Corollary 1, lambda": 1,
    "Corollary 1, noise": 2,
    "Corollary 2, noise": 2,
    "Equation 14, line 2": 6,
    "Section 5.3": 7,
}


@pytest.mark.parametrize("name", LDP)
def test_true_statements_hold_and_false_ones_fail(name):
    row = LDP[name].row()
    assert row["verdict"] == ("fails" if name in FAILS else "holds")
    assert row["error"] == FAILS.get(name)


def test_every_error_with_a_number_has_a_row():
    assert set(FAILS.values()) == set(range(1, 8))


@pytest.mark.parametrize(
    ("name", "published", "exact"),
    [
        ("Theorem 1 (ii)", 1.0, float(GOLDEN["004-thm1ii-0"]["value"])),
        ("Theorem 1 (ii), order", 0.0096, 0.01025),
        ("Theorem 1 (ii), right", 0.036, 0.0096),
        ("Corollary 1, lambda", 1.0, 1 + 2 * 4 - 2 / 4),
        ("Corollary 1, noise", 1.0, 2.0),
        ("Section 5.3", 1.0, float(GOLDEN["004-kappa-0"]["value"])),
    ],
)
def test_counterexamples_equal_those_computed_by_hand(name, published, exact):
    row = LDP[name].row()
    assert row["published"] == pytest.approx(published, rel=5e-4)
    assert row["exact"] == pytest.approx(exact, rel=5e-4)


def test_the_noise_of_corollary_2_has_the_eps_of_the_calculator():
    cases = {published: exact for _, published, exact in LDP["Corollary 2, noise"].cases()}
    for eps, exact in cases.items():
        sigma = float(GOLDEN["004-eq4-0" if eps == 1 else "004-eq4-1"]["value"])
        guarantee = wpriv.budget("local-gauss", sigma=sigma, radius=1, delta=1e-4)
        assert guarantee.epsilon.upper == pytest.approx(exact, rel=1e-9)
    assert cases[35.0] == pytest.approx(94.71140787661, rel=1e-9)  # root of the exact profile, mpmath


def test_the_noise_of_corollary_1_has_the_eps_of_the_calculator():
    for _, eps, exact in LDP["Corollary 1, noise"].cases():
        deltas = [wpriv.budget("local-laplace", scale=1 / eps, radius=1, eps=exact * f).delta for f in (1, 0.99)]
        assert deltas[0].upper <= 1e-12 < deltas[1].lower


def test_costs_of_gaussians_equal_the_golden_values():
    mean, s1, s2, lam = (float(GOLDEN["004-eot-0"]["inputs"][key]) for key in ("m", "s1", "s2", "lam"))
    assert formulas.gauss_cost(mean, s1, s2, lam) == pytest.approx(float(GOLDEN["004-eot-0"]["value"]), rel=1e-12)
    entropy = 0.5 * math.log(2 * math.pi * math.e * (4 + 0.49))
    assert formulas.least_cost(2, 0.7, entropy) == pytest.approx(float(GOLDEN["004-eot-1"]["value"]), rel=1e-12)


@pytest.mark.parametrize("lam", [0.5, 0.98, 2.0])
def test_the_variance_learned_under_gauss_noise_is_that_of_the_closed_form(lam):
    assert formulas.gauss_variance_learned(4.49, lam) == pytest.approx(4.49 - lam / 2, rel=1e-12)


def test_divergences_equal_closed_forms():
    one, zero = ((1.0,), (1.0,)), ((0.0,), (1.0,))
    assert formulas.divergence(one, zero, 2, 0.1) == pytest.approx(50, rel=1e-12)
    assert formulas.divergence(one, zero, 1, 0.1) == pytest.approx(10 + math.exp(-10) - 1, rel=1e-12)
    rare = ((0.0, 6.0), (0.999, 0.001))

    def density(y, weights):
        return sum(w * mpmath.npdf(y, c, 1) for c, w in zip((0, 6), weights, strict=True))

    def loss(y):
        return density(y, (0.999, 0.001)) * mpmath.log(density(y, (0.999, 0.001)) / mpmath.npdf(y))

    exact = float(mpmath.quad(loss, [-12, 0, 3, 6, 18]))
    assert formulas.divergence(rare, zero, 2, 1) == pytest.approx(exact, rel=1e-10)


def test_the_loss_prefers_the_generator_of_the_counterexample():
    """By Sinkhorn's iteration on a grid of the reports, which the dual problem in one potential does not use."""
    torch = pytest.importorskip("torch")
    from wpriv.transport.sinkhorn import entropic

    y = torch.linspace(-9, 9, 1801, dtype=torch.float64)
    b = torch.softmax(-y * y / 2, 0)
    x, a = torch.tensor([[0.0], [6.0]], dtype=torch.float64), torch.tensor([0.999, 0.001], dtype=torch.float64)
    cost = float(entropic(x, y[:, None], 2.0, a=a, b=b, tol=1e-10, max_iterations=20000).value)
    assert formulas.cost_of_two_points((0.0, 6.0), (0.999, 0.001), 1) == pytest.approx(cost, abs=1e-6)
    assert cost < 1 + 0.0096  # the cost of the other generator, a point


def test_the_best_generator_under_laplace_noise_with_a_small_lambda_is_wider_than_the_data():
    """X = 0, b = 1, lambda = 1/2: a quarter of the mass at 0 and three quarters of Lap(1) cost less than X."""
    torch = pytest.importorskip("torch")
    from wpriv.transport.sinkhorn import entropic

    y = torch.linspace(-20, 20, 1601, dtype=torch.float64)
    b = torch.softmax(-y.abs(), 0)
    wide = 0.75 * b
    wide[800] += 0.25
    cost = float(entropic(y[:, None], y[:, None], 0.5, p=1, a=wide, b=b, tol=1e-8, max_iterations=20000).value)
    of_data = float((b * y.abs()).sum())  # one point has one coupling
    least = 0.5 * (1 + math.log(2) - math.log(2 * 0.5))  # lambda (h(Y) - ln(2 lambda))
    assert cost == pytest.approx(least, abs=2e-3)
    assert cost < of_data - 0.1
    assert float((wide * y * y).sum()) == pytest.approx(formulas.laplace_variance_learned(0, 1, 0.5), rel=1e-3)


@pytest.mark.parametrize(("s", "dimension"), [(1.0, 1), (1.0, 2), (2.0, 784)])
def test_the_subgaussian_parameter_solves_its_definition(s, dimension):
    sigma = formulas.subgaussian(s, dimension)
    if dimension == 1:
        expectation = mpmath.quad(lambda x: mpmath.exp(x * x / (2 * sigma**2)) * mpmath.npdf(x, 0, s), [-60, 0, 60])
        assert float(expectation) == pytest.approx(2, rel=1e-6)
    assert (1 - s * s / (dimension * sigma**2)) ** (-dimension / 2) == pytest.approx(2, rel=1e-9)


def test_the_largest_loss_is_reached_by_no_random_output():
    rng = np.random.default_rng(0)
    x, other = np.array([0.3, -0.2]), np.array([-0.5, 0.4])
    outputs = rng.laplace(size=(10_000, 2))
    losses = (np.abs(outputs - other).sum(1) - np.abs(outputs - x).sum(1)) / 0.7
    assert losses.max() <= formulas.largest_loss(x, other, 0.7) * (1 + 1e-12)
    assert formulas.largest_loss(x, other, 0.7) == pytest.approx(1.4 / 0.7)
