"""The best of K runs: published bounds by independent minimisation, and exact distributions of small runs."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
from scipy.special import gammaln, ndtr

import wpriv
from tests import nightly
from tests.numerics.test_selection_bound import best_run, delta
from wpriv import Gauss, Poisson, Process, RandomizedResponse, Step
from wpriv.accounting import best_of_runs
from wpriv.cli.main import main
from wpriv.core.repeats import Repeats
from wpriv.errors import Unsupported, UsageError
from wpriv.numerics import counted_work


def converted(orders: np.ndarray, divergences: np.ndarray, log_delta: float) -> float:
    """Canonne, Kamath, Steinke (2020), Proposition 12."""
    return float(np.min(divergences + np.log1p(-1 / orders) - (log_delta + np.log(orders)) / (orders - 1)))


def gauss_delta(sigma: float, eps: np.ndarray) -> np.ndarray:
    """The profile of Gaussian noise of sensitivity 1: Balle, Wang (2018), Theorem 8."""
    return ndtr(0.5 / sigma - eps * sigma) - np.exp(eps) * ndtr(-0.5 / sigma - eps * sigma)


def papernot_steinke(sigma: float, repeats: Repeats, log_delta: float) -> float:
    """Papernot, Steinke (2022), Theorems 2 (truncated negative binomial) and 6 (Poisson), for Gaussian noise."""
    order = 1 + np.geomspace(0.01, 2000, 4000)
    base = order / (2 * sigma**2)
    if repeats.kind == "poisson":
        inner = np.log1p(1 / (order - 1))
        total = base + repeats.mean * gauss_delta(sigma, inner) + math.log(repeats.mean) / (order - 1)
    else:
        eta, other = repeats.eta, order
        fixed = (1 + eta) * ((1 - 1 / other) * other / (2 * sigma**2) + math.log(1 / repeats.gamma) / other)
        total = base + fixed.min() + math.log(repeats.mean) / (order - 1)
    return converted(order, total, log_delta)


def koskela(sigma: float, repeats: Repeats, at: float) -> float:
    """delta of the best run is at most m delta(eps1) at eps1 + (eta + 1) ln(e^eps2 + (1 - gamma)/gamma delta(eps2))."""
    eps = np.linspace(0, 20 / sigma, 400_001)
    odds = (1 - repeats.gamma) / repeats.gamma
    shift = (repeats.eta + 1) * float(np.min(np.log(np.exp(eps) + odds * gauss_delta(sigma, eps))))
    return float(eps[np.searchsorted(-gauss_delta(sigma, eps), -at / repeats.mean)]) + shift


@pytest.mark.parametrize("sigma", [1.0, 5.0, 50.0])
@pytest.mark.parametrize(
    "repeats",
    [
        Repeats("geometric", 20),
        Repeats("logarithmic", 100),
        Repeats("negative-binomial", 20, eta=-0.5),
        Repeats("negative-binomial", 5, eta=3),
        Repeats("poisson", 10),
    ],
    ids=str,
)
def test_the_bound_is_below_the_published_ones(sigma, repeats):
    row = wpriv.budget(Gauss(sigma), delta=1e-6, repeats=repeats)
    assert row.claim == "upper-bound"
    assert row.epsilon.safe <= papernot_steinke(sigma, repeats, math.log(1e-6))
    if repeats.kind != "poisson":
        assert row.epsilon.safe <= koskela(sigma, repeats, 1e-6) * (1 + 1e-4)
    one = wpriv.budget(Gauss(sigma), delta=1e-6).epsilon.safe
    # a Poisson number of runs is 0 with probability e^-10
    assert one <= row.epsilon.lower * (1 + 1e-4)
    assert row.epsilon.lower < row.epsilon.safe
    assert row.extra["repeats"]["one_run"] == pytest.approx(one)


def test_the_lower_end_pays_for_the_mean_number_of_runs():
    """A score that ranks by the loss releases a rare event of one run almost m times as often."""
    row = wpriv.budget(Gauss(5.0), delta=1e-6, repeats="geometric:mean=20")
    assert row.epsilon.lower == pytest.approx(wpriv.budget(Gauss(5.0), delta=1e-6 / 20).epsilon.safe, rel=0.06)


@pytest.mark.parametrize("sigma", [5.0, 1.0])
@pytest.mark.parametrize(
    "repeats",
    nightly.sharded(
        [
            Repeats("geometric", 20),
            Repeats("logarithmic", 10),
            Repeats("negative-binomial", 5, eta=0.5),
            Repeats("poisson", 20),
            Repeats("binomial", 5, runs=10),
        ],
        2,
    ),
    ids=str,
)
def test_the_lower_end_is_that_of_the_larger_or_the_smaller_privacy_loss_as_the_score(repeats, sigma):
    """Oracle: normal tails of one run's loss, and the generating function of K as a sum over its probabilities."""
    k = np.arange(1500)
    weights = np.zeros(1500)
    first, log_probability = repeats._least()
    weights[first] = math.exp(log_probability)
    for i in range(first, 1499):
        weights[i + 1] = weights[i] * repeats._ratio(i)
    assert weights.sum() == pytest.approx(1, abs=1e-9)
    mu = 1 / sigma
    t = np.linspace(-6 * mu, 10 * mu + mu * mu, 801)
    p, q = ndtr(mu / 2 - t / mu), ndtr(-mu / 2 - t / mu)
    eps = 3 * mu
    largest = [weights @ (1 - (1 - x[None, :]) ** k[:, None]) for x in (p, q)]  # some run is above the threshold
    smallest = [weights[1:] @ x[None, :] ** k[1:, None] for x in (p, q)]  # all runs are
    scores = max(float(np.max(a - math.exp(eps) * b)) for a, b in (largest, smallest))
    bracket = wpriv.budget(Gauss(sigma), eps=eps, repeats=repeats).delta
    assert bracket.lower == pytest.approx(scores, rel=5e-3)
    assert scores <= bracket.safe


@pytest.mark.parametrize(
    "repeats", [Repeats("geometric", 4), Repeats("poisson", 3), Repeats("binomial", 3, runs=6)], ids=str
)
@pytest.mark.parametrize("eps", [0.0, 0.5, 1.5])
def test_the_bracket_holds_the_best_of_k_runs_of_several_answers(repeats, eps):
    """Four randomized responses in each run: five outcomes by the number of true answers, in all their orders."""
    n, eps0 = 4, 0.3
    k = np.arange(n + 1)
    choose = np.exp(gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1))
    keep = math.exp(eps0) / (1 + math.exp(eps0))
    p, q = (choose * a**k * (1 - a) ** (n - k) for a in (keep, 1 - keep))
    orders = [[[i] for i in order] for order in itertools.permutations(range(n + 1))] + [[list(range(n + 1))]]
    worst = max(delta(*(best_run(repeats, x, ranks) for x in (p, q)), eps) for ranks in orders)
    bracket = wpriv.budget(RandomizedResponse(eps0=eps0), n=n, eps=eps, repeats=repeats).delta
    assert bracket.lower <= worst * (1 + 1e-9) + 1e-12
    assert worst <= bracket.safe


def test_distinguishing_events_of_one_run_are_counted_for_each_run():
    """An outcome that only one neighbour has, of probability w, is released with probability at most m w."""
    w, mean = 1e-4, 5
    row = wpriv.budget("dp", eps0=0.1, delta0=w, eps=3, repeats=f"geometric:mean={mean}")
    assert row.delta.lower <= mean * w / (1 + (mean - 1) * w) * (1 + 1e-6)
    assert mean * w / (1 + (mean - 1) * w) <= row.delta.safe <= mean * w * 1.01
    assert math.isfinite(wpriv.budget("dp", eps0=0.1, delta0=w, delta=1e-3, repeats="geometric:mean=5").epsilon.safe)
    with pytest.raises(Unsupported):
        wpriv.budget("dp", eps0=0.1, delta0=w, delta=4e-4, repeats="geometric:mean=5")


@pytest.mark.slow
def test_both_questions_agree():
    process = Process((Step(Gauss(1.1), 1000, Poisson(0.01)),))
    at_delta = wpriv.budget(process, delta=1e-5, repeats="geometric:mean=20")
    at_eps = wpriv.budget(process, eps=at_delta.epsilon.safe, repeats="geometric:mean=20")
    assert at_eps.delta.safe == pytest.approx(1e-5, rel=0.03)
    assert at_delta.epsilon.lower < at_delta.epsilon.safe < at_delta.extra["repeats"]["all_runs"]


@pytest.mark.slow
def test_calibration_meets_the_target_for_the_best_run():
    answer = wpriv.calibrate("gauss", eps=2, delta=1e-6, repeats="geometric:mean=20")
    again = wpriv.budget("gauss", sigma=answer.value, delta=1e-6, repeats="geometric:mean=20")
    assert answer.parameter == "sigma"
    assert again.epsilon.safe == pytest.approx(2, rel=1e-4)
    assert again.epsilon.safe <= 2 * (1 + 1e-6)
    alone = wpriv.calibrate("gauss", eps=2, delta=1e-6)
    assert answer.value > alone.value


@pytest.mark.parametrize("accountant", ["clt", "gdp-clt", "pdp", "renyi"])
def test_only_proven_curves_are_selected_from(accountant):
    with pytest.raises(Unsupported, match="proven curve"):
        wpriv.budget(Gauss(4.0), n=10, delta=1e-5, accountant=accountant, repeats="geometric:mean=20")


def test_repeats_and_adaptive_are_different_questions():
    with pytest.raises(UsageError, match="two questions"):
        wpriv.budget(Gauss(4.0), delta=1e-5, adaptive=True, repeats="geometric:mean=20")
    with pytest.raises(UsageError, match="history"):
        wpriv.calibrate("gauss", eps=1, delta=1e-5, history="h.json", repeats="geometric:mean=20")


@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        ("--repeats 20", 3, "All 20 runs together have eps = "),
        ("--repeats fixed:20", 3, "--repeats geometric:mean=20"),
        ("--repeats geometri:mean=20", 2, "geometric"),
        ("--repeats geometric:mean=0.5", 2, "--repeats"),
        ("--repeats geometric", 2, "mean"),
        ("--repeats geometric:mean=20 --adaptive", 2, "--adaptive and --repeats"),
        ("--repeats geometric:mean=20 --accountant clt", 3, "--accountant pld"),
    ],
)
def test_faulty_repeats_end_with_a_message(capsys, flags, code, words):
    assert main(f"budget --mech gauss --sigma 4 --delta 1e-5 {flags}".split()) == code
    captured = capsys.readouterr()
    assert words in captured.err
    assert captured.out == ""


def test_json_names_the_distribution_and_both_other_figures(capsys):
    assert (
        main(["budget", "--mech", "gauss", "--sigma", "4", "--delta", "1e-5", "--repeats", "poisson:mean=5", "--json"])
        == 0
    )
    row = json.loads(capsys.readouterr().out)
    assert row["repeats"]["kind"] == "poisson"
    assert row["repeats"]["mean"] == 5
    assert row["repeats"]["one_run"] < row["epsilon"]
    assert row["claim"] == "upper-bound"
    assert row["epsilon_lower"] <= row["epsilon"]


@pytest.mark.slow
def test_a_curve_of_the_best_run_falls(capsys):
    assert (
        main(
            [
                "budget",
                "--mech",
                "gauss",
                "--sigma",
                "4",
                "--eps",
                "2",
                "--curve",
                "--repeats",
                "geometric:mean=5",
                "--json",
            ]
        )
        == 0
    )
    rows = json.loads(capsys.readouterr().out)["rows"]
    deltas = [row["delta"] for row in rows]
    assert deltas == sorted(deltas, reverse=True)
    assert all(row["delta_lower"] <= row["delta"] for row in rows)


def test_explain_says_what_must_stay_secret(capsys):
    assert (
        main(
            [
                "budget",
                "--mech",
                "gauss",
                "--sigma",
                "4",
                "--delta",
                "1e-5",
                "--repeats",
                "geometric:mean=5",
                "--explain",
            ]
        )
        == 0
    )
    assert "nobody learns it" in " ".join(capsys.readouterr().out.split())


SLOW_RUNS = {
    "shuffle": {"mech": "gauss", "sigma": 1, "sampling": "shuffle", "rate": 0.01, "n": 1000},
    "max-batch": {"mech": "laplace", "scale": 3, "sampling": "poisson", "rate": 0.01, "n": 300}
    | {"records": 10_000, "max_batch": 110},
}


@pytest.mark.parametrize("name", nightly.sharded(SLOW_RUNS, 2))
def test_a_slow_profile_is_evaluated_once_and_within_its_work(name):
    run = best_of_runs.one_run(wpriv.budget(**SLOW_RUNS[name], delta=0.1).process, "pld", 1e-6)
    top, start = run.top(1e-8), counted_work.total()
    table = run.table(top)
    # the operation that passes the limit is counted, and not done
    assert counted_work.total() - start < 1.5 * best_of_runs.TABLE_WORK
    assert run.table(table.eps[-2]) is table
    assert (np.diff(table.upper) <= 0).all()
    assert table.upper[0] < 1
