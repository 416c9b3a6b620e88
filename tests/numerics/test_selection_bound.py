"""Bounds for the best of K runs, against the exact output distributions of runs with few outcomes."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wpriv.accounting.best_of_runs import ProfileTable, Selection
from wpriv.core.repeats import Repeats

KINDS = [
    Repeats("geometric", 20),
    Repeats("geometric", 2),
    Repeats("logarithmic", 20),
    Repeats("negative-binomial", 20, eta=-0.5),
    Repeats("negative-binomial", 5, eta=3),
    Repeats("poisson", 20),
    Repeats("poisson", 0.3),
    Repeats("binomial", 20, runs=40),
]


def delta(p: np.ndarray, q: np.ndarray, eps: float) -> float:
    """The larger delta of both orders."""
    t = math.exp(eps)
    return max(float(np.maximum(p - t * q, 0).sum()), float(np.maximum(q - t * p, 0).sum()))


def best_run(repeats: Repeats, p: np.ndarray, ranks: list[list[int]]) -> np.ndarray:
    """The distribution of the best of K runs, and of nothing at all, if outcomes of one rank count as equally good.

    With F the probability of a worse rank, the best has this rank with probability f(F + p) - f(F); among equal runs
    each is as likely to be taken.
    """
    law, worse = np.zeros(p.size + 1), 0.0
    for rank in ranks:
        mass = p[rank].sum()
        f_low, f_high = (1 - float(repeats.reach(min(1.0, max(0.0, 1 - f)))) for f in (worse, worse + mass))
        law[rank] = (f_high - f_low) * p[rank] / mass
        worse += mass
    law[-1] = 1 - law[:-1].sum()
    return law


def orders(size: int) -> list[list[list[int]]]:
    """All strict orders, and the one that does not distinguish any outcomes."""
    strict = [[[i] for i in permutation] for permutation in itertools.permutations(range(size))]
    return [*strict, [list(range(size))]]


def selection(repeats: Repeats, p: np.ndarray, q: np.ndarray, points: int = 200) -> Selection:
    top = float(np.max(np.abs(np.log(p / q))))
    eps = np.linspace(0, top, points)
    exact = np.array([delta(p, q, e) for e in eps])
    table = ProfileTable(eps, exact * (1 + 1e-12) + 1e-16, np.maximum(exact * (1 - 1e-12) - 1e-16, 0))
    return Selection(table, repeats)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(KINDS),
    st.lists(st.tuples(st.floats(-4, 4), st.floats(-2, 2)), min_size=2, max_size=4),
    st.floats(0, 4),
)
def test_the_bracket_holds_the_worst_order_of_the_outcomes(repeats, logits, eps):
    one, change = np.array(logits).T
    p, q = (np.exp(x - x.max()) / np.exp(x - x.max()).sum() for x in (one, one + change))
    bounds = selection(repeats, p, q, 60)
    worst = max(delta(*(best_run(repeats, x, ranks) for x in (p, q)), eps) for ranks in orders(p.size))
    assert worst <= bounds.upper(eps) * (1 + 1e-9) + 1e-12
    assert bounds.lower(eps) <= worst + 1e-12


@pytest.mark.parametrize("repeats", [k for k in KINDS if k.kind in ("geometric", "logarithmic", "negative-binomial")])
@pytest.mark.parametrize("eps0", [0.05, 1.0])
def test_pure_dp_costs_no_more_than_the_published_bound(repeats, eps0):
    """(2 + eta) eps0 for an eps0-DP run: Liu, Talwar (2019) for eta = 1, Papernot, Steinke (2022) for every eta.

    The bracket is sharper: one run costs eps0, and the ratio of the densities is at most rho^(eta + 1), where rho - 1 =
    (e^eps0 - rho) / (e^eps0 + 1) (1 - gamma) / gamma.
    """
    keep = math.exp(eps0) / (1 + math.exp(eps0))
    p, q = np.array([keep, 1 - keep]), np.array([1 - keep, keep])
    bounds = selection(repeats, p, q)
    odds = (1 - repeats.gamma) / repeats.gamma
    rho = (1 + odds * keep) / (1 + odds * (1 - keep))
    bound = eps0 + (repeats.eta + 1) * math.log(rho)
    assert bound < (2 + repeats.eta) * eps0
    assert bounds.upper(bound + 1e-4) < 1e-6 < bounds.upper(0.98 * bound)


@pytest.mark.parametrize(
    "repeats", [Repeats("poisson", 20), Repeats("geometric", 20), Repeats("binomial", 20, runs=40)]
)
@pytest.mark.parametrize("eps0", [1.0, 13.0, 15.0])
def test_the_lines_are_nowhere_below_the_supremum_of_the_theorem(repeats, eps0):
    """phi(t) = sup_x (f'(1 - x) t - c f'(1 - g(x))) by trying x, with the g of randomized response in closed form.

    At large eps0 the slope of g is so steep that tangents of f'(1 - g(x)) fall below 0 inside a cell.
    """
    keep = 1 / (1 + math.exp(-eps0))
    eps = np.linspace(0, eps0, 160)
    profile = np.maximum(keep - np.exp(eps) * math.exp(-eps0) * keep, 0.0)
    profile[-1] = 0.0
    table = ProfileTable(eps, profile, profile)
    bounds = Selection(table, repeats)
    x = np.concatenate([np.geomspace(1e-9, 1, 20_001), np.linspace(0, 2 * math.exp(-eps0), 20_001).clip(max=1)])
    g = np.minimum(math.exp(eps0) * x, 1 - math.exp(-eps0) * (1 - x))
    gain, cost = repeats.slope(x), repeats.slope(g)
    slopes, heights = bounds._lines
    for t in np.exp(np.linspace(-5, 15, 41)):
        assert np.max(gain * t - cost) <= np.max(slopes * t - heights) * (1 + 1e-12)


def test_a_single_run_costs_what_it_costs():
    """With a mean near 1 the best of K runs is the run itself."""
    p, q = np.array([0.5, 0.3, 0.2]), np.array([0.4, 0.25, 0.35])
    bounds = selection(Repeats("geometric", 1 + 1e-9), p, q)
    for eps in (0.0, 0.2, 0.4):
        assert bounds.upper(eps) == pytest.approx(delta(p, q, eps), abs=1e-6)


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(st.sampled_from(KINDS), st.floats(0.01, 3), st.lists(st.floats(0, 12), min_size=2, max_size=8))
def test_bounds_fall_with_eps_and_are_ordered(repeats, eps0, points):
    keep = math.exp(eps0) / (1 + math.exp(eps0))
    bounds = selection(repeats, np.array([keep, 1 - keep]), np.array([1 - keep, keep]), 40)
    upper = [bounds.upper(eps) for eps in sorted(points)]
    lower = [bounds.lower(eps) for eps in sorted(points)]
    assert all(a >= b * (1 - 1e-9) for a, b in itertools.pairwise(upper))
    assert all(0 <= a <= b <= 1 for a, b in zip(lower, upper, strict=True))


@pytest.mark.slow
def test_the_formula_of_the_best_run_agrees_with_simulation():
    """Monte Carlo with 400,000 draws; five standard errors."""
    generator, draws = np.random.default_rng(7), 400_000
    p, repeats = np.array([0.5, 0.3, 0.2]), Repeats("geometric", 3)
    counts = generator.geometric(1 / 3, draws)
    best = np.array([generator.choice(3, size=k, p=p).max() for k in counts[:40_000]])
    exact = best_run(repeats, p, [[0], [1], [2]])
    for outcome in range(3):
        share, error = np.mean(best == outcome), math.sqrt(exact[outcome] / best.size)
        assert abs(share - exact[outcome]) < 5 * error
