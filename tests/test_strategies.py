"""Strategies of correlated noise: against literal matrices, all patterns and closed forms."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from wpriv.errors import UsageError
from wpriv.numerics.strategy_sensitivity import strategy_sensitivity
from wpriv.strategies import KINDS, Problem, _products, _reciprocal, strategy

NAMES = ("identity", "prefix", "root:5", "bsr:4", "banded:5", "blt:2", "blt:3", "bisr:4", "bandinv:5", "lambda:0.7")
OPTIMAL = [("banded:5", 1), ("banded:5", 6), ("blt:2", 1), ("blt:3", 1), ("bandinv:4", 1), ("bandinv:4", 6)]


@pytest.mark.parametrize("name", NAMES)
def test_the_inverse_and_the_errors_are_those_of_the_matrix(name):
    ours = strategy(name, steps=40, separation=8)
    inverse = np.linalg.inv(ours.matrix())
    assert np.allclose(inverse[:, 0], ours.inverse, atol=1e-12)
    assert np.all(ours.column >= 0)
    errors = np.linalg.norm(np.tril(np.ones((40, 40))) @ inverse, axis=1)
    assert np.allclose(ours.errors(), errors, rtol=1e-12)
    sensitivity = ours.sensitivity(8, 3)
    assert ours.loss(8, 3) == pytest.approx(sensitivity * math.sqrt(np.mean(errors**2)))
    assert ours.loss(8, 3, "max") == pytest.approx(sensitivity * errors.max())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("separation", "participations"), [(1, 0), (5, 0), (8, 3), (7, 2)])
def test_the_sensitivity_is_that_of_the_worst_pattern(name, separation, participations):
    ours = strategy(name, steps=40, separation=separation, participations=participations)
    ends = strategy_sensitivity(ours.matrix(), separation, participations)
    assert ends.lower * (1 - 1e-12) <= ours.sensitivity(separation, participations) <= ends.upper


@pytest.mark.parametrize("name", [name for name in NAMES if name.partition(":")[0] not in ("prefix", "root")])
def test_the_first_column_has_length_one(name):
    assert np.linalg.norm(strategy(name, steps=30).column) == pytest.approx(1)


def test_the_root_of_the_prefix_sums_multiplies_to_them():
    root = strategy("root", steps=40).matrix()
    assert np.allclose(root @ root, np.tril(np.ones((40, 40))))
    assert np.array_equal(strategy("root:n=40,bands=3").matrix(), np.tril(np.triu(root, -2)))


def test_the_inverse_of_bisr_has_the_bands_of_the_inverse_root():
    inverse = strategy("bisr:4", steps=40).inverse
    assert np.allclose(inverse / inverse[0], [1, -1 / 2, -1 / 8, -1 / 16, *np.zeros(36)])


def test_the_loss_of_the_root_has_the_known_limit():
    """The squared norm of the root is (log n + gamma + 4 log 2) / pi + o(1), and its largest loss is that square."""
    loss = strategy("root", steps=8192).loss(8192, 1, "max")
    assert loss == pytest.approx((math.log(8192) + np.euler_gamma + 4 * math.log(2)) / math.pi, abs=1e-4)


def test_no_toeplitz_matrix_has_a_smaller_largest_loss_than_the_root():
    root = strategy("root", steps=300)
    _, gradient = Problem(300, 300, 1, "max").value(root.column, root.inverse)
    assert np.abs(gradient).max() < 1e-12


@pytest.mark.parametrize("loss", ["mean", "max"])
@pytest.mark.parametrize(("name", "participations"), OPTIMAL)
def test_the_loss_does_not_fall_in_any_direction_at_the_optimum(name, participations, loss):
    kind, _, width = name.partition(":")
    best = strategy(f"{name},loss={loss}", 60, 10, participations)
    least = best.loss(10, participations, loss)
    if kind == "blt":
        others = [_blt(best, 1 + 1e-4 * sign * unit) for unit in np.eye(4 * int(width)) for sign in (-1, 1)]
    else:
        series = best.inverse if kind == "bandinv" else best.column
        others = [series * (1 + 1e-4 * sign * unit) for unit in np.eye(60)[: int(width)] for sign in (-1, 1)]
    for other in others:
        column = np.linalg.inv(_toeplitz(other))[:, 0] if kind == "bandinv" else other
        inverse = np.linalg.inv(_toeplitz(column))[:, 0]
        value, _ = Problem(60, 10, participations, loss).value(column, inverse)
        assert math.exp(value / 2) >= least * (1 - 1e-9)
        assert math.exp(value / 2) <= least * (1 + 1e-5)


def _toeplitz(column: np.ndarray) -> np.ndarray:
    return sum(np.diag(np.full(column.size - k, value), -k) for k, value in enumerate(column))


def _blt(best, factors):
    """The inverse of a sum of decaying exponentials whose weights and decays are changed by some factors."""
    pairs = np.array(best.buffers)
    weights, decays = (pairs * factors[: pairs.size].reshape(pairs.shape)).T
    inverse = np.append(1.0, -(weights @ decays[:, None] ** np.arange(best.column.size - 1)))
    return np.linalg.inv(_toeplitz(inverse))[:, 0]


def test_buffers_make_the_inverse():
    blt = strategy("blt:3", steps=50)
    noise = np.random.default_rng(1).normal(size=50)
    state, drawn = np.zeros(3), []
    weights, decays = np.array(blt.buffers).T
    for z in noise:
        drawn.append(blt.inverse[0] * (z - weights @ state))
        state = decays * state + z
    assert np.allclose(drawn, _toeplitz(blt.inverse) @ noise)


def test_more_bands_and_more_buffers_lose_less():
    for kind, widths in (("banded", (1, 2, 4, 8, 16)), ("blt", (1, 2, 3, 4)), ("bandinv", (1, 2, 4, 8))):
        losses = [strategy(f"{kind}:{width}", 200, 20, 5).loss(20, 5) for width in widths]
        assert all(b <= a * (1 + 1e-6) for a, b in itertools.pairwise(losses)), (kind, losses)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("bandd:4", "did you mean 'banded'"),
        ("banded:4,n=10,n=20", "n is given twice"),
        ("banded:4,bands=5", "bands is given twice"),
        ("banded:4,loss=median", "loss is mean or max"),
        ("banded:0,n=9", "bands from 1"),
        ("blt:11,n=99", "buffers from 1 to 10"),
        ("banded:4", "n from 1 to 8192"),
        ("lambda:1,n=9", "from 0 to below 1"),
        ("lambda:0.9,loss=max,n=9", "no option 'loss'"),
        ("identity:3,n=9", "no option '3'"),
        ("banded:x,n=9", "banded: bands"),
    ],
)
def test_a_wrong_name_is_refused_with_what_was_wanted(text, words):
    with pytest.raises(UsageError, match=words):
        strategy(text)


def test_two_numbers_of_steps_are_refused():
    with pytest.raises(UsageError, match=r"n = 10 steps, and the training 20"):
        strategy("banded:4,n=10", steps=20)
    assert all(strategy(name, steps=1).column.size == 1 for name in KINDS)


# losses that jax_privacy 2.0.0 reaches in float64 (L-BFGS of optax): name, steps, separation, participations, loss
OF_JAX_PRIVACY = [
    ("banded:4", 100, 100, 1, "mean", 3.916143277602982),
    ("banded:4", 100, 100, 1, "max", 5.32476445103614),
    ("banded:16", 1000, 1000, 1, "mean", 6.278161934263987),
    ("banded:100", 1000, 1000, 1, "max", 4.519911251727219),
    ("blt:1", 1000, 1000, 1, "max", 3.850204991054124),
    ("blt:2", 1000, 1000, 1, "max", 3.321261737650109),
    ("blt:3", 1000, 1000, 1, "max", 3.26991780594341),
    ("blt:1", 1000, 100, 10, "mean", 12.449438667014125),
]


@pytest.mark.parametrize(("name", "steps", "separation", "participations", "loss", "theirs"), OF_JAX_PRIVACY)
def test_the_losses_are_those_that_jax_privacy_reaches(name, steps, separation, participations, loss, theirs):
    ours = strategy(f"{name},loss={loss}", steps, separation, participations).loss(separation, participations, loss)
    assert ours == pytest.approx(theirs, rel=1e-9)


def test_the_loss_of_two_buffers_is_stationary_where_jax_privacy_finds_its_least():
    """The golden values of its tests (buffered_toeplitz_test, test_optimize_single_participation_golden)."""
    size, weights, decays = 100_000, [0.0122853238, 0.1878393665], [0.9999528892, 0.9857068667]
    powers = np.array(decays)[:, None] ** np.arange(size - 1)
    column = np.append(1.0, weights @ powers)
    inverse = _reciprocal(column)
    _, relative = Problem(size, size, 1, "max").value(column, inverse)
    # a change of the column by a direction is one of c(x) by 1 + e direction(x) / c(x)
    by_weight = [np.append(0.0, row) for row in powers]
    by_decay = [
        np.append(0.0, w * np.arange(size - 1) * row / d) for w, d, row in zip(weights, decays, powers, strict=True)
    ]
    for scale, direction in zip([*weights, *(1 - np.array(decays))], [*by_weight, *by_decay], strict=True):
        slope = direction @ _products(relative, inverse)
        assert abs(slope * scale) < 1e-5


@pytest.mark.parametrize("steps", [10, 100, 1000, 4000])
def test_the_losses_come_near_the_known_bound(steps):
    """1 + log(n) / pi bounds the least of all matrices (Mathias 1993; Dvijotham et al. 2024, (2.8))."""
    root = strategy("root", steps).loss(steps, 1, "max")
    blt = strategy("blt:3,loss=max", steps, steps, 1).loss(steps, 1, "max")
    assert root <= blt * (1 + 1e-12) <= 1.01 * root
    assert root <= 1.07 + math.log(steps) / math.pi
