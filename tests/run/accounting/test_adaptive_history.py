"""Parameters that depend on earlier outputs: what the filters promise holds against adversaries, and fixed-in-advance
figures do not.

Oracles: mu^2 adds up (closed form); a / (2 sigma^2) is the Renyi divergence of Gauss noise; the exact delta of an
adversary of two steps, by quadrature over the first output and the closed form of the second step; simulated
adversaries.
"""

from __future__ import annotations

import json
import math
from functools import cache

import numpy as np
import pytest
from scipy.integrate import trapezoid
from scipy.stats import norm

import wpriv
from tests.run.accounting.test_budget_verb import gauss_delta
from wpriv.accountants import rdp_filter
from wpriv.cli.main import main
from wpriv.core.process import Process, Step
from wpriv.core.sampling.kinds import Sampling
from wpriv.engine import ledger
from wpriv.errors import Unsupported, UsageError
from wpriv.mechanisms.gauss import Gauss
from wpriv.mechanisms.truncated_gauss import TruncatedGauss
from wpriv.run.accounting import adaptive_history, evaluate
from wpriv.run.accounting.explain import explain

POISSON = Sampling("poisson", 0.01)


def converted(order: float, divergence: float, delta: float) -> float:
    """eps of (order, divergence)-RDP: Canonne, Kamath, Steinke 2020, Proposition 12."""
    return divergence + math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1)


@pytest.mark.parametrize("order", [1.5, 4.0, 32.0])
def test_the_filter_adds_up_the_divergences_of_one_order(order):
    process = Process((Step(Gauss(5.0), 20), Step(Gauss(9.0, 2.0), 7)))
    divergence = order / 2 * (20 / 25 + 7 * 4 / 81)
    found = rdp_filter.account(process, order=order).epsilon(delta=1e-6)
    assert found == pytest.approx(converted(order, divergence, 1e-6), rel=1e-12)


def renyi(sigma: float, n: int, lam: np.ndarray) -> np.ndarray:
    """Renyi divergences of n steps at rate 0.01, by the accountant of that notion."""
    given = {"sigma": sigma, "n": n, "sampling": "poisson", "rate": 0.01, "delta": 0.5}
    return np.array(
        [wpriv.budget("gauss", **given, accountant=f"renyi:order={1 + x!r}").epsilon.safe for x in lam.tolist()]
    )


def test_the_orders_depend_on_the_first_kind_of_step_alone():
    first, later = Step(Gauss(1.1), 1000, POISSON), Step(Gauss(0.9), 300, POISSON)
    planned = Process((Step(Gauss(1.1), 2000, POISSON),))
    orders = rdp_filter.orders(planned, delta=1e-5)
    for process in (planned, Process((first, later, first))):
        assert np.array_equal(rdp_filter.orders(rdp_filter.first_kind(process), delta=1e-5).lam, orders.lam)


def test_the_shares_of_the_orders_make_up_delta():
    orders = rdp_filter.orders(Process((Step(Gauss(1.1), 1000, POISSON),)), delta=1e-5)
    assert orders.share.sum() == pytest.approx(1, abs=1e-15)
    assert orders.share.max() == 0.5
    assert orders.lam.min() > 0


def test_the_figure_is_the_least_over_the_orders_each_at_its_share_of_delta():
    process = Process((Step(Gauss(1.1), 1000, POISSON), Step(Gauss(0.9), 300, POISSON)))
    orders = rdp_filter.orders(rdp_filter.first_kind(process), delta=1e-5)
    few = orders.lam < 8  # those whose divergences are of any use here
    spent = renyi(1.1, 1000, orders.lam[few]) + renyi(0.9, 300, orders.lam[few])
    least = min(
        converted(1 + lam, d, 1e-5 * w) for lam, d, w in zip(orders.lam[few], spent, orders.share[few], strict=True)
    )
    assert rdp_filter.account(process).epsilon(delta=1e-5) == pytest.approx(least, rel=1e-9)


@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-12])
def test_the_filter_costs_a_run_that_went_as_planned_half_of_delta(delta):
    process = Process((Step(Gauss(1.1), 1000, POISSON),))
    best = rdp_filter.best_order(process, delta=delta)
    least = evaluate.curve(process, "rdp").at(delta=delta).epsilon.safe
    assert least <= rdp_filter.account(process).epsilon(delta=delta) <= least + math.log(2) / (best - 1) + 1e-9


@pytest.mark.parametrize(
    "later", [Step(Gauss(0.6), 300, POISSON), Step(Gauss(1.1), 20_000, POISSON), Step(Gauss(8.0), 1000, POISSON)]
)
def test_steps_unlike_the_first_ones_still_have_a_finite_figure(later):
    process = Process((Step(Gauss(1.1), 1000, POISSON), later))
    least = evaluate.curve(process, "rdp").at(delta=1e-5).epsilon.safe
    assert least <= rdp_filter.account(process).epsilon(delta=1e-5) <= 1.5 * least


@pytest.mark.parametrize("order", [1.0, 0.5, -3.0])
def test_an_order_of_at_most_one_is_refused(order):
    with pytest.raises(UsageError):
        rdp_filter.account(Process((Step(Gauss(1.0)),)), order=order)


def test_distinguishing_events_are_refused():
    with pytest.raises(Unsupported):
        adaptive_history.account_for_history(Process((Step(TruncatedGauss(12.0, 50.0)),)), delta=1e-3, tol=1e-3)


def test_plain_gauss_steps_lose_nothing_by_adaptive_noise():
    process = Process((Step(Gauss(11.0), 10), Step(Gauss(15.0), 10), Step(Gauss(7.0, 0.5), 3)))
    sigma = (10 / 121 + 10 / 225 + 3 * 0.25 / 49) ** -0.5
    both = adaptive_history.account_for_history(process, delta=1e-5, tol=1e-6)
    assert both.adaptive.claim == both.fixed.claim == "exact"
    assert both.adaptive.epsilon.safe == pytest.approx(both.fixed.epsilon.safe, rel=1e-12)
    assert gauss_delta(both.adaptive.epsilon.safe, sigma, 1) == pytest.approx(1e-5, rel=1e-9)


def sampled_delta(eps: np.ndarray, q: float, mu: float) -> np.ndarray:
    """delta of one release of ((1-q) N(0) + q N(mu), N(0)) at any real eps, in closed form."""
    grown = (np.exp(eps) - (1 - q)) / q
    with np.errstate(divide="ignore", invalid="ignore"):
        x = np.log(grown)
        tail = norm.sf(x / mu - mu / 2) - grown * norm.sf(x / mu + mu / 2)
    return np.where(grown > 0, q * np.nan_to_num(tail), -np.expm1(eps))


def divergence(q: float, mu: float, order: float) -> float:
    """The Renyi divergence of the pair of ``sampled_delta``, by quadrature."""
    x = np.linspace(-12, 12 + order * mu, 20_001)
    log_ratio = np.logaddexp(math.log1p(-q) if q < 1 else -math.inf, math.log(q) + mu * x - mu * mu / 2)
    return math.log(trapezoid(np.exp(order * log_ratio + norm.logpdf(x)), x)) / (order - 1)


ORDER, FIRST = 3.0, (0.2, 1.0)


def adversary(eps: float, menu: list[tuple[float, float]]) -> float:
    """delta of ``FIRST`` followed by the worst step of the menu after its output, by quadrature over that output."""
    q, mu = FIRST
    x = np.linspace(-12, 14, 20_001)
    loss = np.log1p(q * np.expm1(mu * x - mu * mu / 2))
    density = (1 - q) * norm.pdf(x) + q * norm.pdf(x - mu)
    return float(trapezoid(density * np.max([sampled_delta(eps - loss, *step) for step in menu], axis=0), x))


@cache
def menu() -> list[tuple[float, float]]:
    """Steps of very different rates and one divergence of order ``ORDER``."""
    spent, steps = divergence(0.05, 1.5, ORDER), []
    for q in (0.05, 0.2, 1.0):
        low, high = 1e-3, 3.0
        for _ in range(45):
            mu = (low + high) / 2
            low, high = (mu, high) if divergence(q, mu, ORDER) < spent else (low, mu)
        steps.append((q, low))
    return steps


@pytest.mark.parametrize("eps", [0.5, 1.0, 2.0, 3.0])
def test_an_adversary_that_picks_the_noise_by_what_it_saw_keeps_the_bound_of_the_filter(eps):
    steps = menu()
    bound = rdp_filter.account(_after_first(steps[0]), order=ORDER).delta(eps=eps)
    assert adversary(eps, steps) <= bound * (1 + 1e-6)
    # the orders that are there without being asked for keep an adversary that spends no more by any one of them than by
    # all of these steps
    worst = max(rdp_filter.account(_after_first(step)).delta(eps=eps) for step in steps)
    assert adversary(eps, steps) <= worst * (1 + 1e-6)


def _after_first(step: tuple[float, float]) -> Process:
    """The release of ``FIRST`` and then that of one step, fixed in advance."""
    samplings = [Sampling("poisson", rate) if rate < 1 else Sampling() for rate in (FIRST[0], step[0])]
    return Process((Step(Gauss(1 / FIRST[1]), 1, samplings[0]), Step(Gauss(1 / step[1]), 1, samplings[1])))


@pytest.mark.slow
def test_an_adversary_that_picks_the_noise_by_what_it_saw_breaks_the_figures_of_noise_fixed_in_advance():
    # which is why a fork needs a figure of its own
    steps = menu()
    fixed = [adversary(1.0, [step]) for step in steps]
    for step, delta in zip(steps, fixed, strict=True):
        certified = evaluate.curve(_after_first(step), "pld", 1e-6).at(eps=1.0).delta
        assert delta <= certified.upper * (1 + 1e-5)
        # the lower end of the adaptive figure is one adversary's
        assert certified.lower <= adversary(1.0, steps) * (1 + 1e-5)
    assert adversary(1.0, steps) > 1.1 * max(fixed)


def test_the_privacy_loss_stays_below_its_bound_however_noise_and_end_are_chosen():
    """20,000 runs of up to 60 steps, with the worst noise for the loss so far, stopped once the bound is exceeded."""
    rng, order, delta = np.random.default_rng(7), 5.0, 0.05
    loss, spent, broken = np.zeros(20_000), np.zeros(20_000), np.zeros(20_000, dtype=bool)
    for _ in range(60):
        # large steps where the bound is near, small ones elsewhere
        mu = np.where(loss > 0.5 * (spent + math.log(1 / delta) / (order - 1)), 0.5, 0.15)
        drawn = mu**2 / 2 + mu * rng.standard_normal(loss.size)
        loss, spent = loss + np.where(broken, 0.0, drawn), spent + np.where(broken, 0.0, order * mu**2 / 2)
        broken |= loss > spent + math.log(1 / delta) / (order - 1)
    assert broken.mean() <= delta


def test_the_bound_of_the_loss_is_the_least_over_the_orders():
    process = Process((Step(Gauss(1.1), 1000, POISSON), Step(Gauss(0.9), 300, POISSON)))
    both = adaptive_history.account_for_history(process, delta=1e-5, tol=1e-4)
    orders = rdp_filter.orders(rdp_filter.first_kind(process), delta=1e-5)
    assert both.orders == tuple(1 + orders.lam)
    few = orders.lam < 8
    spent = renyi(1.1, 1000, orders.lam[few]) + renyi(0.9, 300, orders.lam[few])
    assert both.loss == pytest.approx(
        float(np.min(spent - np.log(1e-5 * orders.share[few]) / orders.lam[few])), rel=1e-9
    )
    assert (
        both.fixed.epsilon.lower
        == both.adaptive.epsilon.lower
        < both.fixed.epsilon.upper
        < both.adaptive.epsilon.safe
        < both.loss
    )


def written(path, *runs: tuple[Step, int]):
    """A ledger of several runs, each of n equal releases."""
    for number, (step, n) in enumerate(runs, start=1):
        book = ledger.Ledger(path, number, n, adjacency="add-remove", stream=f"{number}")
        for place in range(1, n + 1):
            book.spend(place, step)
        book.close()
    return path


SAMPLED = Step(Gauss(1.1), 1, Sampling("poisson", 0.05))
LATER = Step(Gauss(0.9), 1, Sampling("poisson", 0.05))


def answer(capsys, line: str) -> tuple[int, dict, str]:
    code = main(line.split())
    out, err = capsys.readouterr()
    return code, json.loads(out) if out.startswith("{") else {}, err


def test_a_history_of_two_runs_shows_both_figures_and_what_each_assumes(tmp_path, capsys):
    path = written(tmp_path / "ledger.jsonl", (SAMPLED, 30), (LATER, 20))
    code, found, err = answer(capsys, f"budget --history {path} --delta 1e-5 --json")
    assert code == 0
    figures = found["parameters"]
    assert figures["runs"] == 2
    assert figures["fixed"]["epsilon"] == found["epsilon"] < figures["adaptive"]["epsilon"]
    assert figures["fixed"]["assumes"] != figures["adaptive"]["assumes"]
    assert "2 runs" in err
    assert "holds instead (--adaptive)" in err
    assert found["accountant"] == "pld"


def test_the_orders_of_a_ledger_are_those_of_its_first_run_as_planned(tmp_path, capsys):
    forks = [written(tmp_path / f"{k}.jsonl", (SAMPLED, 30), (LATER, k)) for k in (5, 40)]
    found = [answer(capsys, f"budget --history {path} --delta 1e-5 --adaptive --json")[1] for path in forks]
    orders = [row["parameters"]["adaptive"]["orders"] for row in found]
    planned = Process((Step(Gauss(1.1), 30, Sampling("poisson", 0.05)),))
    assert orders[0] == orders[1] == (1 + rdp_filter.orders(planned, delta=1e-5).lam).tolist()


@pytest.mark.slow
def test_the_adaptive_answer_is_an_upper_bound_with_the_lower_end_of_pld(tmp_path, capsys):
    path = written(tmp_path / "ledger.jsonl", (SAMPLED, 30), (LATER, 20))
    fixed = answer(capsys, f"budget --history {path} --delta 1e-5 --json")[1]
    code, found, _ = answer(capsys, f"budget --history {path} --delta 1e-5 --adaptive --json")
    assert code == 0
    assert (found["claim"], found["accountant"]) == ("upper-bound", "rdp-filter")
    assert (
        found["epsilon_lower"]
        == fixed["epsilon_lower"]
        < fixed["epsilon"]
        < found["epsilon"]
        == fixed["parameters"]["adaptive"]["epsilon"]
    )
    # the gate decides on the figure that is shown
    between = (fixed["epsilon"] + found["epsilon"]) / 2
    assert main(f"budget --history {path} --delta 1e-5 --max-eps {between} --quiet".split()) == 0
    assert main(f"budget --history {path} --delta 1e-5 --adaptive --max-eps {between} --quiet".split()) == 1


@pytest.mark.slow
def test_a_fork_of_the_same_noise_is_adaptive_in_its_length(tmp_path, capsys):
    """46 equal steps in one run were planned; 23 and 23 were not, and cost more unless the noise is unsampled Gauss."""
    one, two = written(tmp_path / "1.jsonl", (SAMPLED, 46)), written(tmp_path / "2.jsonl", (SAMPLED, 23), (SAMPLED, 23))
    single, forked = (answer(capsys, f"budget --history {path} --delta 1e-5 --json") for path in (one, two))
    assert single[1]["epsilon"] == forked[1]["epsilon"]
    assert "parameters" not in single[1]
    assert "2 runs" not in single[2]
    assert forked[1]["parameters"]["adaptive"]["epsilon"] > forked[1]["epsilon"]
    plain = Step(Gauss(20.0))
    _, gauss, err = answer(
        capsys, f"budget --history {written(tmp_path / '3.jsonl', (plain, 23), (plain, 23))} --delta 1e-5 --json"
    )
    assert gauss["parameters"]["adaptive"]["epsilon"] == gauss["epsilon"]
    assert "2 runs" not in err


@pytest.mark.slow
def test_a_delta_at_a_given_eps_has_both_figures_too(tmp_path, capsys):
    path = written(tmp_path / "ledger.jsonl", (SAMPLED, 30), (LATER, 20))
    code, found, _ = answer(capsys, f"budget --history {path} --eps 3 --adaptive --json")
    assert code == 0
    assert found["parameters"]["fixed"]["delta"] < found["delta"]
    assert found["delta_lower"] == found["parameters"]["fixed"]["delta_lower"]
    assert found["parameters"]["loss"] is None


@pytest.mark.slow
def test_adaptive_names_its_accountant_itself(tmp_path, capsys):
    path = written(tmp_path / "ledger.jsonl", (SAMPLED, 3))
    assert main(f"budget --history {path} --delta 1e-5 --adaptive --accountant rdp".split()) == 2
    assert main(f"budget --history {path} --delta 1e-5 --adaptive --curve".split()) == 2
    with pytest.raises(UsageError):
        wpriv.budget(history=path, delta=1e-5, adaptive=True, accountant="rdp")
    assert wpriv.budget(history=path, delta=1e-5, adaptive=True).accountant == "rdp-filter"


@pytest.mark.parametrize(
    ("accountant", "step", "word"),
    [
        ("pld", SAMPLED, "fixed before"),
        ("rdp", SAMPLED, "fixed before"),
        ("rdp-filter", SAMPLED, "whatever the outputs"),
        ("gdp", Step(Gauss(4.0)), "whatever the outputs"),
        ("pld", Step(Gauss(4.0)), "whatever the outputs"),
        ("basic", SAMPLED, "fixed before"),
    ],
)
def test_the_explanation_says_for_each_accountant_what_may_depend_on_outputs(accountant, step, word):
    row = evaluate.ask(evaluate.curve(Process((step,)), accountant), delta=1e-5)
    assert sum(word in line for line in explain(row)["assumptions"]) == 1
