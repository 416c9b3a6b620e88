"""The sensitivity of clipped Wasserstein gradients: golden closed forms, and gradients of small samples computed by
their definition.

The oracle is the released gradient itself, 2 sum_ij R_ij (u_i - v_j) (grad u_i - grad v_j), with R the overlaps of rank
cells in exact fractions, averaged over tied ranks; no formula of wpriv enters it.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from tests.points import GOLDEN
from wpriv.errors import UsageError
from wpriv.papers.mechanisms.wgrad import penalised_gradient, wasserstein_gradient

CONSTANTS = [(1, 0), (1, 1), (0, 1), (1, 0.3), (0.3, 1), (2, 1)]


@cache
def overlaps(n: int, m: int) -> np.ndarray:
    """[n, m] lengths of ((i-1)/n, i/n] cap ((j-1)/m, j/m]."""
    rows = [
        [min(Fraction(i + 1, n), Fraction(j + 1, m)) - max(Fraction(i, n), Fraction(j, m)) for j in range(m)]
        for i in range(n)
    ]
    return np.array([[float(max(cell, Fraction(0))) for cell in row] for row in rows])


def shares(scores: np.ndarray, *, by_position: bool = False) -> np.ndarray:
    """[n, n] share of record i in rank r;
    tied records share their ranks evenly (or take them in the order of the rows).
    """
    if by_position:
        return np.eye(scores.size)[np.argsort(np.argsort(scores, kind="stable"))]
    below = (scores[None, :] < scores[:, None]).sum(axis=1)
    alike = (scores[None, :] == scores[:, None]).sum(axis=1)
    ranks = np.arange(scores.size)
    return ((ranks >= below[:, None]) & (ranks < (below + alike)[:, None])) / alike[:, None]


def gradient(u, du, v, dv, **ties) -> np.ndarray:
    """[d] gradient of W_2^2 from scores u [n], v [m] and their gradients du [n, d], dv [m, d]."""
    plan = shares(u, **ties) @ overlaps(u.size, v.size) @ shares(v, **ties).T
    weight = 2 * plan * (u[:, None] - v[None, :])
    return weight.sum(axis=1) @ du - weight.sum(axis=0) @ dv


def moved(u, du, v, dv, new_u, new_du) -> float:
    """Distance by which the gradient moves when the first record of X is replaced."""
    after, d_after = u.copy(), du.copy()
    after[0], d_after[0] = new_u, new_du
    return float(np.linalg.norm(gradient(u, du, v, dv) - gradient(after, d_after, v, dv)))


@pytest.mark.parametrize("kind", ["0", "t"])
def test_the_golden_sensitivities_of_theorem_4_1(kind):
    formula = {"0": "paper", "t": "tight"}[kind]
    point = GOLDEN[f"003-thm41a-{kind}"]
    given = {k: float(v) for k, v in point["inputs"].items()}
    assert wasserstein_gradient(given["M"], given["L1"], given["L2"], given["n"], formula=formula) == pytest.approx(
        float(point["value"])
    )
    point = GOLDEN["003-thm41b-0"]
    given = {k: float(v) for k, v in point["inputs"].items()}
    found = wasserstein_gradient(given["M"], given["L1"], given["L2"], given["n"], given["m"], formula="paper")
    assert found == pytest.approx(float(point["value"]), rel=1e-12)


@pytest.mark.parametrize(("ident", "formula"), [("003-eq7-0", "paper"), ("003-eq7-t", "tight"), ("003-eq8-0", "paper")])
def test_the_golden_sensitivities_of_the_fairness_losses(ident, formula):
    point = GOLDEN[ident]
    given = {k: float(v) for k, v in point["inputs"].items()}
    sizes = (given["n0"], given["n1"]) if "n0" in given else (given["nmin"], given["nmin"])
    penalty = wasserstein_gradient(given["M"], given["L"], given["L"], *sizes, formula=formula)
    found = penalised_gradient(given["alpha"], given["C"], given["n"], penalty, int(given.get("R", 1)))
    assert found == pytest.approx(float(point["value"]), rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(("l1", "l2"), CONSTANTS)
def test_the_sensitivity_bounds_every_small_sample_and_some_attain_it(l1, l2):
    """Scores and gradients at the ends of their ranges, where the convex bound is largest, and anywhere between;
    M = 1.
    """
    rng = np.random.default_rng(7)
    worst = 0.0
    for trial in range(3000):
        n, m = rng.integers(1, 6 if trial % 4 else 3, size=2)
        if trial % 2:  # near the vertices: ties are broken by tiny differences
            levels, signs = np.array([-1, -1 + 1e-5, 0, 1 - 1e-5, 1]), np.array([-1.0, 1.0])
            draw = [rng.choice(levels, size) for size in (n + 1, m)] + [
                rng.choice(signs, (size, 1)) for size in (n + 1, m)
            ]
        else:
            draw = [rng.uniform(-1, 1, size) for size in (n + 1, m)] + [
                rng.normal(size=(size, 2)) for size in (n + 1, m)
            ]
            draw[2:] = [g / np.linalg.norm(g, axis=1, keepdims=True) for g in draw[2:]]
        u, v, du, dv = draw
        found = moved(u[1:], l1 * du[1:], v, l2 * dv, u[0], l1 * du[0])
        bound = wasserstein_gradient(1, l1, l2, n)
        assert found <= bound * (1 + 1e-12)
        worst = max(worst, found / bound)
    assert worst > 0.999


@pytest.mark.parametrize("n", [1, 3, 50])
@pytest.mark.parametrize("m", [1, 4, 30])
@pytest.mark.parametrize(("l1", "l2"), CONSTANTS)
def test_the_sensitivity_is_attained_at_any_sample_sizes_if_l1_is_the_larger(n, m, l1, l2):
    """All of Z at -M, and record 1 at M with a gradient that is reversed: the result moves by 8 M L1 / n."""
    u, v = np.linspace(-1, 0, n), -np.ones(m)
    u[0] = 1
    found = moved(u, l1 * np.ones((n, 1)), v, l2 * np.ones((m, 1)), 1.0, -l1 * np.ones(1))
    assert found == pytest.approx(8 * l1 / n, rel=1e-12)
    if l1 >= l2:
        assert found == pytest.approx(wasserstein_gradient(1, l1, l2, n), rel=1e-12)


def test_the_published_constant_is_never_smaller_and_twice_as_large_for_equal_gradients():
    rng = np.random.default_rng(1)
    for bound, l1, l2 in rng.exponential(size=(200, 3)):
        paper, tight = (wasserstein_gradient(bound, l1, l2, 10, 20, formula=name) for name in ("paper", "tight"))
        assert tight <= paper
    assert wasserstein_gradient(1, 2, 2, 9, 7, formula="paper") == pytest.approx(
        2 * wasserstein_gradient(1, 2, 2, 9, 7)
    )


def test_with_both_samples_private_the_roles_may_be_exchanged():
    assert wasserstein_gradient(1, 0.3, 2, 30, 11) == wasserstein_gradient(1, 2, 0.3, 11, 30)
    assert wasserstein_gradient(1, 1, 0, 30, 30) == wasserstein_gradient(1, 1, 0, 30)


@pytest.mark.parametrize("n", [2, 10, 100])
def test_ties_broken_by_position_void_the_sensitivity_and_shared_ties_do_not(n):
    """All scores are 0, gradients +1 for half of the records and -1 for the others:
    reversing the order changes nothing.
    """
    u, du = np.zeros(n), np.repeat([1.0, -1.0], n // 2)[:, None]
    v, dv = np.repeat([-1.0, 1.0], n // 2), np.zeros((n, 1))
    by_position = [gradient(u, g, v, dv, by_position=True) for g in (du, du[::-1])]
    shared = [gradient(u, g, v, dv) for g in (du, du[::-1])]
    assert np.abs(by_position[0] - by_position[1]) == pytest.approx(4.0)
    assert np.abs(shared[0] - shared[1]) == pytest.approx(0.0, abs=1e-12)
    assert wasserstein_gradient(1, 1, 0, n) == pytest.approx(8 / n)


@pytest.mark.parametrize(
    ("arguments", "parameter"),
    [((1, 1, 1, 0), "size_x"), ((1, 1, 1, 5, 0), "size_z"), ((1, 1, 1, 5, 5, "loose"), "formula")],
)
def test_wasserstein_gradient_names_a_bad_parameter(arguments, parameter):
    with pytest.raises(UsageError, match=parameter):
        wasserstein_gradient(*arguments[:5], **({"formula": arguments[5]} if len(arguments) > 5 else {}))


def test_penalised_gradient_refuses_a_weight_beyond_one():
    with pytest.raises(UsageError, match="alpha"):
        penalised_gradient(1.2, 1, 10, 1)
