"""The statements of Rodriguez-Vitores, Lalanne, Loubes (2025) on Wasserstein gradients, against independent values."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from tests.oracles import contour_eps, fixed_gauss
from tests.points import GOLDEN
from wpriv.papers.mechanisms.wgrad import wasserstein_gradient
from wpriv.papers.tables import _claims_wgrad as formulas
from wpriv.papers.tables.claims import STATEMENTS
from wpriv.transport import line

WGRAD = {statement.proposition: statement for statement in STATEMENTS["wgrad"]}
FAILS = {
    "Proof of 3.1, line 2": 5,
    "Section 3, ties": 2,
    "Section 1.1": 1,
    "Section 5.3, limit": 3,
    "Section 5.3, Opacus": 3,
    "Appendix D, line 2": 5,
}


@pytest.mark.parametrize("name", WGRAD)
def test_true_statements_hold_and_false_ones_fail(name):
    row = WGRAD[name].row()
    assert row["verdict"] == ("fails" if name in FAILS else "holds")
    assert row["error"] == FAILS.get(name)


@pytest.mark.parametrize(
    ("name", "published", "exact"),
    [
        ("Proof of 3.1, line 2", 0.185, 0.088333333333),  # golden 003-w2-0; 0.185 by the integral of steps, by hand
        ("Section 3, ties", 3.0, 4.0),
        ("Section 1.1", 16.0, 8.0),
        ("Section 5.3, limit", 3.52, 3.669),
        ("Section 5.3, Opacus", 1.0, 1.0192),
        ("Equation 7", float(GOLDEN["003-eq7-0"]["value"]), float(GOLDEN["003-eq7-t"]["value"])),
        ("Appendix D, line 2", -0.05, 0.05),
    ],
)
def test_counterexamples_equal_those_computed_by_hand(name, published, exact):
    row = WGRAD[name].row()
    assert row["published"] == pytest.approx(published, rel=3e-4)
    assert row["exact"] == pytest.approx(exact, rel=3e-4)


def test_tied_scores_change_the_gradient_by_4_at_every_size():
    exact = {at: value for at, _, value in WGRAD["Section 3, ties"].cases()}
    assert list(exact.values()) == pytest.approx([4.0] * 3)
    *_, (_, published, _) = WGRAD["Section 3, ties"].cases()
    assert published == pytest.approx(0.12)  # 12 / 100


@pytest.mark.parametrize("seed", range(5))
def test_shared_weights_give_the_gradients_of_transport_on_the_line(seed):
    import torch

    rng = np.random.default_rng(seed)
    u, v = rng.integers(-2, 3, size=5).astype(float), rng.integers(-2, 3, size=3).astype(float)
    expected = line.gradients(torch.from_numpy(u), torch.from_numpy(v))
    by_u, by_v = formulas.derivatives(u, v, formulas.shared_plan(u, v))
    assert by_u == pytest.approx(expected.x.numpy(), abs=1e-12)
    assert by_v == pytest.approx(expected.y.numpy(), abs=1e-12)
    assert formulas.squared_distance(u, v) == pytest.approx(float(expected.cost), abs=1e-12)


@pytest.mark.parametrize(("l1", "l2"), [(1.0, 1.0), (1.0, 0.0), (0.0, 1.0), (1.0, 3.0), (2.0, 1.0)])
def test_no_random_pair_of_data_sets_exceeds_the_largest_change(l1, l2):
    rng = np.random.default_rng(0)
    n, m, most = 3, 2, 0.0
    for _ in range(3000):
        u, v = rng.uniform(-1, 1, size=n), rng.uniform(-1, 1, size=m)
        slopes, z_slopes = (rng.choice([-1.0, 1.0], size=k) for k in (n, m))
        by_u, by_v = formulas.derivatives(u, v, formulas.shared_plan(u, v))
        before = l1 * by_u @ slopes + l2 * by_v @ z_slopes
        u[0], slopes[0] = rng.uniform(-1, 1), rng.choice([-1.0, 1.0])
        by_u, by_v = formulas.derivatives(u, v, formulas.shared_plan(u, v))
        most = max(most, abs(l1 * by_u @ slopes + l2 * by_v @ z_slopes - before))
    largest = formulas.largest_change(1, l1, l2, n, m)
    assert 0.5 * largest < most <= largest + 1e-12
    assert largest == pytest.approx(wasserstein_gradient(1, l1, l2, n), rel=1e-12)


def test_the_certified_eps_of_section_53_equals_the_contour_integral():
    cases = {at: exact for at, _, exact in WGRAD["Section 5.3, limit"].cases()}
    (at, exact) = next((at, exact) for at, exact in cases.items() if at.startswith("p=0.01"))
    multiplier = float(at.rpartition(" ")[2])
    assert exact == pytest.approx(contour_eps([(fixed_gauss(0.01, 1 / multiplier), 1000)], 1e-5), rel=1e-3)


def test_sampled_response_is_that_of_a_direct_enumeration():
    # one of two bits is drawn and reported by randomized response at eps = 1
    kept = 1 / (1 + math.exp(-1))
    chance = {bits: sum(kept if bit else 1 - kept for bit in bits) / 2 for bits in itertools.product((0, 1), repeat=2)}
    pairs = [((0, 0), (0, 1)), ((0, 1), (1, 1))]
    exact = max(abs(math.log(f(chance[a]) / f(chance[b]))) for a, b in pairs for f in (lambda p: p, lambda p: 1 - p))
    assert formulas.sampled_response(1.0, (2,)) == pytest.approx(exact, rel=1e-12)
    assert formulas.amplified(1.0, 0.2) == pytest.approx(float(GOLDEN["003-lem51-0"]["value"][0]), rel=1e-12)


@pytest.mark.parametrize("ident", ["003-R-0", "003-R-1"])
def test_the_weights_equal_the_golden_values(ident):
    n, m = (int(GOLDEN[ident]["inputs"][key]) for key in ("n", "m"))
    assert formulas.weights(n, m).ravel() == pytest.approx([float(v) for v in GOLDEN[ident]["value"]], abs=1e-15)
