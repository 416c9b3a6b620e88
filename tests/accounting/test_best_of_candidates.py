"""The best of K runs: pure DP, candidates of several costs, bounds on attacks, and readings of one run.

The oracle is the exact distribution of the best of K runs with few outcomes, for all orders of the outcomes.
"""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wpriv
from tests import nightly
from tests.numerics.test_selection_bound import KINDS, best_run, delta
from wpriv import Gauss, Process, RandomizedResponse, Step
from wpriv.accounting import best_of_runs
from wpriv.cli.main import main
from wpriv.core.repeats import Repeats
from wpriv.errors import UsageError


def response(eps: float) -> tuple[np.ndarray, np.ndarray]:
    """The outcomes of randomized response on two neighbours."""
    keep = 1 / (1 + math.exp(-eps))
    return np.array([keep, 1 - keep]), np.array([1 - keep, keep])


def processes(*eps: float) -> list[Process]:
    return [Process((Step(RandomizedResponse(eps0=each)),)) for each in eps]


@pytest.mark.parametrize("repeats", KINDS, ids=str)
@given(eps=st.floats(0.01, 8))
@settings(max_examples=30, deadline=None)
def test_the_pure_bound_is_the_largest_fall_of_the_slope_for_randomized_response(repeats, eps):
    """sup_x ln f'(1 - x) / f'(1 - g(x)) over a fine grid, g the region of randomized response."""
    x = np.unique(np.concatenate([np.linspace(0, 1, 20_001), [1 / (1 + math.exp(eps))]]))
    g = np.minimum(np.minimum(math.exp(eps) * x, 1 - math.exp(-eps) * (1 - x)), 1.0)
    largest = eps + float(np.max(np.log(repeats.slope(x)) - np.log(repeats.slope(g))))
    assert repeats.pure_eps(eps) == pytest.approx(largest, rel=1e-9)
    assert repeats.pure_eps(eps) >= eps
    assert repeats.pure_eps(math.inf) == math.inf


@pytest.mark.parametrize("repeats", KINDS, ids=str)
@given(eps=st.floats(0.05, 4))
@settings(max_examples=20, deadline=None)
def test_the_pure_bound_holds_for_every_order_of_two_outcomes(repeats, eps):
    p, q = response(eps)
    for ranks in ([[0], [1]], [[1], [0]], [[0, 1]]):
        bound = repeats.pure_eps(eps)
        # the oracle rounds probabilities to about 1e-16, and e^eps multiplies those of one side
        assert delta(*(best_run(repeats, x, ranks) for x in (p, q)), bound) <= 1e-14 * (1 + math.exp(bound))


@pytest.mark.parametrize(
    "repeats", nightly.sharded(["geometric:mean=20", "poisson:mean=20", "binomial:runs=40,mean=20"], 3)
)
@pytest.mark.parametrize(
    "step",
    [{"mech": "dp", "eps0": 1}, {"mech": "laplace", "scale": 1}, {"mech": "laplace", "scale": 5, "n": 3}],
    ids=str,
)
def test_pld_is_never_above_rdp_nor_above_pure_composition(step, repeats):
    rows = {name: wpriv.budget(**step, delta=1e-9, accountant=name, repeats=repeats) for name in ("pld", "rdp")}
    assert rows["pld"].epsilon.safe <= rows["rdp"].epsilon.safe
    assert rows["pld"].epsilon.lower <= rows["pld"].epsilon.safe
    parts = {"dp": 1.0, "laplace": step.get("n", 1) / step.get("scale", 1)}
    kind = wpriv.core.repeats.parse(repeats)
    assert rows["pld"].epsilon.safe <= kind.pure_eps(parts[step["mech"]]) * (1 + 1e-9)
    assert wpriv.budget(**step, eps=20 * parts[step["mech"]], repeats=repeats).delta.safe == 0


@pytest.mark.parametrize(
    "repeats", [Repeats("geometric", 4), Repeats("poisson", 3), Repeats("binomial", 3, runs=6)], ids=str
)
@pytest.mark.parametrize("costs", [(0.3, 0.3), (0.2, 1.0), (1.5, 0.1)])
@pytest.mark.parametrize("eps", [0.0, 0.4, 1.2])
def test_the_bracket_holds_the_best_of_runs_that_draw_their_candidate(repeats, costs, eps):
    weights = (0.5, 0.5)
    p, q = (np.concatenate([0.5 * response(cost)[side] for cost in costs]) for side in (0, 1))
    orders = [[[i] for i in order] for order in itertools.permutations(range(4))] + [[[0, 1, 2, 3]], [[0, 2], [1, 3]]]
    worst = max(delta(*(best_run(repeats, x, ranks) for x in (p, q)), eps) for ranks in orders)
    bracket = best_of_runs.of_candidates(processes(*costs), weights, "pld", 1e-6, repeats).delta_bracket(eps)
    assert bracket.lower <= worst * (1 + 1e-9) + 1e-12
    assert worst <= bracket.safe


def test_candidates_of_several_costs_cost_less_than_the_costliest_alone():
    repeats = Repeats("geometric", 10)
    jobs = [Process((Step(Gauss(sigma)),)) for sigma in (4.0, 8.0)]
    together = best_of_runs.of_candidates(jobs, (0.5, 0.5), "pld", 1e-6, repeats).epsilon(delta=1e-6)
    one = [best_of_runs.of_candidates([job], (1.0,), "pld", 1e-6, repeats).epsilon(delta=1e-6) for job in jobs]
    assert one[1] < together < one[0]


@pytest.mark.parametrize("repeats", [Repeats("geometric", 5), Repeats("poisson", 3)], ids=str)
@pytest.mark.parametrize("eps0", [0.3, 1.5])
def test_no_attack_on_the_best_run_exceeds_the_bounds(repeats, eps0):
    """All tests by likelihood ratio, randomised between outcomes, for all orders of two answers in each run."""
    p, q = (np.array([a * a, 2 * a * (1 - a), (1 - a) ** 2]) for a in response(eps0)[0])
    row = wpriv.budget(RandomizedResponse(eps0=eps0), n=2, delta=1e-6, attack=True, repeats=repeats)
    attack = row.extra["attack"]
    for ranks in ([[i] for i in order] for order in itertools.permutations(range(3))):
        first, second = (best_run(repeats, x, ranks) for x in (p, q))
        assert np.abs(first - second).sum() / 2 <= attack["advantage_upper"] * (1 + 1e-9)
        for point in attack["tpr_at_fpr"]:
            for null, other in ((first, second), (second, first)):
                assert most_powerful(null, other, point["fpr"]) <= point["tpr_upper"] * (1 + 1e-9)


def most_powerful(null: np.ndarray, other: np.ndarray, fpr: float) -> float:
    """The power of the Neyman-Pearson test of this size."""
    power = 0.0
    for i in np.argsort(-other / np.maximum(null, 1e-300)):
        if null[i] >= fpr:
            return power + float(other[i]) * fpr / float(null[i])
        power, fpr = power + float(other[i]), fpr - float(null[i])
    return power


def test_bounds_on_attacks_have_no_lower_ends_and_exceed_those_of_one_run(capsys):
    one = wpriv.budget(Gauss(4.0), delta=1e-5, attack=True).extra["attack"]
    best = wpriv.budget(Gauss(4.0), delta=1e-5, attack=True, repeats="geometric:mean=20").extra["attack"]
    assert best["advantage_lower"] == 0
    assert best["advantage_upper"] > one["advantage_upper"]
    for low, high in zip(one["tpr_at_fpr"], best["tpr_at_fpr"], strict=True):
        assert high["tpr_lower"] == high["fpr"]
        assert high["tpr_upper"] > low["tpr_lower"]
    assert main(["budget", "--mech", "gauss", "--sigma", "4", "--delta", "1e-5", "--repeats", "geometric:mean=20"]) == 0
    out = capsys.readouterr().out
    table = [line.split() for line in out.partition("best membership attack")[2].splitlines()]
    assert table[0] == ["at", "most"]
    assert table[1][:-1] == ["advantage", "(TPR", "minus", "FPR)"]


def test_mu_of_the_best_run_is_refused():
    with pytest.raises(UsageError, match="no mu is derived"):
        wpriv.budget(Gauss(4.0), delta=1e-5, with_mu=True, repeats="geometric:mean=20")


@pytest.mark.slow
def test_why_reads_one_run_in_every_way_and_refuses_estimates(capsys):
    words = "compare --why --mech gauss --sigma 4 --rate 0.1 --n 1 --delta 1e-5 --repeats geometric:mean=20"
    assert main([*words.split(), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    by_name = {row["accountant"]: row for row in rows if row["sampling"] == "poisson"}
    assert {row["repeats"] for row in rows} == {"geometric:mean=20"}
    for name in ("gdp-clt", "clt"):
        assert "proven curve" in by_name[name]["reason"]
    assert all(row["claim"] == "upper-bound" for row in rows if row["reason"] is None)
    step = {"sigma": 4, "sampling": "poisson", "rate": 0.1, "n": 1, "delta": 1e-5, "repeats": "geometric:mean=20"}
    usual = next(row for row in rows if row["accountant"] == "pld")
    assert usual["epsilon"] == pytest.approx(wpriv.budget("gauss", **step).epsilon.safe, rel=2e-3)
    assert main(words.split()) == 0
    assert "the best of K runs (geometric:mean=20)" in capsys.readouterr().out


def test_why_refuses_a_fixed_number_of_runs(capsys):
    assert main(["compare", "--why", "--mech", "gauss", "--sigma", "4", "--delta", "1e-5", "--repeats", "5"]) == 3
    assert "--repeats geometric:mean=20" in capsys.readouterr().err
