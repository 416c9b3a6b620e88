"""Parameters that depend on earlier outputs: what the filters promise holds against adversaries, and fixed-in-advance
figures do not.

Oracles: mu^2 adds up (closed form); a / (2 sigma^2) is the Renyi divergence of Gaussian noise; the exact delta of an
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
from tests.accounting.test_budget_verb import gauss_delta
from wpriv.accounting import adaptive_history, evaluate, ledger
from wpriv.accounting.accountants import rdp_filter
from wpriv.accounting.basis import explain
from wpriv.accounting.mechanisms.dp import Dp
from wpriv.accounting.mechanisms.gauss import Gauss
from wpriv.accounting.mechanisms.laplace import Laplace
from wpriv.accounting.mechanisms.truncated_gauss import TruncatedGauss
from wpriv.cli.main import main
from wpriv.core.kinds import Poisson, Sampling
from wpriv.core.process import Process, Step
from wpriv.errors import Unsupported, UsageError

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
    given = {"sigma": sigma, "n": n, "sampling": "poisson", "rate": 0.01}
    return np.array(
        [wpriv.budget("gauss", **given, accountant=f"renyi:order={1 + x!r}").epsilon.safe for x in lam.tolist()]
    )


FIRST_KIND, LATER_KIND = Step(Gauss(1.1), 1000, POISSON), Step(Gauss(0.9), 300, POISSON)
HISTORIES = {
    "two trainings": (FIRST_KIND, LATER_KIND),
    "a count before a training": (Step(Gauss(50.0)), Step(Gauss(0.7), 2000, POISSON)),
    "counts and a training": (Step(Laplace(20.0), 6), Step(Gauss(1.3), 2000, Sampling("poisson", 0.004))),
    "rare large losses": (Step(Gauss(0.6), 1000, Sampling("poisson", 0.001)), Step(Gauss(200.0), 3)),
    "given guarantees": (Step(Dp(0.0, 1e-7)), Step(Gauss(20.0)), Step(Dp(0.1, 1e-8), 5)),
}


@pytest.mark.parametrize(
    ("eps", "delta", "order"), [(1, 1e-6, 21.98), (3, 1e-10, 14.73), (3, 1e-6, 8.926), (1, 1e-10, 39.23), (30, 0.1, 0)]
)
def test_the_order_of_a_limit_is_the_one_that_allows_the_most_gaussian_noise(eps, delta, order):
    # oracle: the ratio of the divergence that converts to (eps, delta) to that of one Gauss release, on a fine grid
    a = 1 + np.geomspace(1e-3, 1e3, 200_001)
    allowed = eps - np.log1p(-1 / a) + (math.log(delta) + np.log(a)) / (a - 1)
    best = a[np.argmax(allowed / a)]
    assert rdp_filter.limit_order(eps, delta) == pytest.approx(best, rel=1e-3)
    assert not order or best == pytest.approx(order, abs=0.01)


@pytest.mark.parametrize("delta", [1e-4, 1e-6])
@pytest.mark.parametrize("name", HISTORIES)
def test_the_figure_does_not_depend_on_the_order_of_the_steps(name, delta):
    steps = HISTORIES[name]
    curve, reverse = (rdp_filter.account(Process(order)) for order in (steps, steps[::-1]))
    assert curve.epsilon(delta=delta) == pytest.approx(reverse.epsilon(delta=delta), rel=1e-12)
    assert curve.delta(eps=0.3) == pytest.approx(reverse.delta(eps=0.3), rel=1e-12)


@pytest.mark.parametrize("delta", [1e-4, 1e-6])
@pytest.mark.parametrize("name", HISTORIES)
def test_the_delta_at_the_eps_of_a_delta_is_that_delta(name, delta):
    curve = rdp_filter.account(Process(HISTORIES[name]))
    assert curve.delta(eps=curve.epsilon(delta=delta)) == pytest.approx(delta, rel=1e-8)


@pytest.mark.parametrize("delta", [1e-5, 1e-9])
@pytest.mark.parametrize("name", list(HISTORIES)[:-1])
def test_the_figure_lies_between_that_of_steps_fixed_in_advance_and_twice_it(name, delta):
    process = Process(HISTORIES[name])
    least = evaluate.curve(process, "rdp").at(delta=delta).epsilon.safe
    assert least < rdp_filter.account(process).epsilon(delta=delta) < 1.6 * least


def test_the_figure_is_the_least_over_the_orders_each_at_its_share_of_delta():
    # oracle: the divergences that the accountant of that notion states, at the orders that the figure names
    process = Process((FIRST_KIND, LATER_KIND))
    eps = rdp_filter.account(process).epsilon(delta=1e-5)
    orders = np.array(rdp_filter.orders(eps, 1e-5))
    share = np.array([0.75, *[0.25 / 11] * 11])
    orders, share = orders[orders < 10], share[orders < 10]  # those whose divergences are of any use here
    spent = renyi(1.1, 1000, orders - 1) + renyi(0.9, 300, orders - 1)
    least = [converted(a, d, 1e-5 * w) for a, d, w in zip(orders, spent, share, strict=True)]
    assert eps == pytest.approx(min(least), rel=1e-9)


@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-12])
def test_many_small_releases_cost_little_more_than_if_fixed_in_advance(delta):
    process = Process((Step(Gauss(4.0), 8000, POISSON),))
    least = evaluate.curve(process, "rdp").at(delta=delta).epsilon.safe
    assert least <= rdp_filter.account(process).epsilon(delta=delta) <= 1.05 * least


def test_pure_guarantees_add_up():
    process = Process((Step(Laplace(1.0), 2), Step(Dp(0.25, 0.0))))
    assert rdp_filter.account(process).epsilon(delta=1e-12) == pytest.approx(2.25, rel=1e-12)
    assert rdp_filter.account(process).delta(eps=2.2500001) == 0


def test_the_delta_of_given_guarantees_is_subtracted():
    rest = Process((Step(Gauss(30.0), 10), Step(Gauss(1.0), 100, POISSON)))
    both = rest.with_steps((Step(Dp(0.0, 2e-6), 2), *rest.steps))
    leak = 2 * 2e-6 - 4e-12
    curve = rdp_filter.account(both)
    assert curve.epsilon(delta=1e-5) == pytest.approx(rdp_filter.account(rest).epsilon(delta=1e-5 - leak), rel=1e-5)
    assert curve.delta(eps=2.0) == pytest.approx(rdp_filter.account(rest).delta(eps=2.0) + leak, rel=1e-5)
    with pytest.raises(Unsupported):
        evaluate.ask(curve, delta=3.9e-6)


def test_an_adversary_that_decides_by_outputs_where_a_release_may_reveal_all_keeps_the_bound():
    """Exact delta of every strategy of 4 releases: reveal with probability 0.02 (at most twice) or a pure 0.5."""
    eps, pure, leak = 0.8, 0.5, 0.02

    def worst(rounds: int, leaks: int, pures: int, loss: float) -> float:
        best = max(0.0, -math.expm1(eps - loss))
        if rounds and leaks:
            best = max(best, leak + (1 - leak) * worst(rounds - 1, leaks - 1, pures, loss))
        if rounds and pures:
            right = 1 / (1 + math.exp(-pure))  # randomised response
            after = (worst(rounds - 1, leaks, pures - 1, loss + sign * pure) for sign in (1, -1))
            best = max(best, sum(p * value for p, value in zip((right, 1 - right), after, strict=True)))
        return best

    bound = rdp_filter.account(Process((Step(Dp(0.0, leak), 2), Step(Dp(pure, 0.0), 2)))).delta(eps=eps)
    assert 2 * leak - leak**2 < worst(4, 2, 2, 0.0) <= bound < 0.5


@pytest.mark.parametrize("order", [1.0, 0.5, -3.0])
def test_an_order_of_at_most_one_is_refused(order):
    with pytest.raises(UsageError):
        rdp_filter.account(Process((Step(Gauss(1.0)),)), order=order)


def test_distinguishing_events_are_part_of_delta():
    process = Process((Step(TruncatedGauss(12.0, 50.0)),))
    leak = evaluate.infinity_mass(process)
    figures = adaptive_history.account_for_history(process, delta=2 * leak, tol=1e-3)
    assert figures.fixed.epsilon.lower <= figures.adaptive.epsilon.safe < 10
    assert "only one of two" in figures.as_dict()["adaptive"]["assumes"]
    assert figures.loss is None
    with pytest.raises(Unsupported):
        adaptive_history.account_for_history(process, delta=0.9 * leak, tol=1e-3)


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


def test_the_bound_of_the_loss_is_the_least_over_the_fixed_orders():
    process = Process((FIRST_KIND, LATER_KIND))
    both = adaptive_history.account_for_history(process, delta=1e-5, tol=1e-4)
    assert both.orders[1:] == tuple(1 + 2.0 ** np.arange(-1, 10))
    lam = 2.0 ** np.arange(-1, 3)  # those whose divergences are of any use here
    spent = renyi(1.1, 1000, lam) + renyi(0.9, 300, lam)
    assert both.loss == pytest.approx(float(np.min(spent - np.log(1e-5 / 11) / lam)), rel=1e-9)
    fixed, adaptive = both.fixed.epsilon, both.adaptive.epsilon
    assert fixed.lower == adaptive.lower < fixed.upper < adaptive.safe < both.loss


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


def test_orders_follow_from_the_limit_and_not_from_the_first_kind_of_step():
    sampled = Step(Gauss(4.0), 5000, Poisson(0.01))
    few, leaks = Step(Laplace(1000.0)), Step(Dp(eps0=0.0, delta0=1e-8), 3)
    figures = [
        adaptive_history.account_for_history(Process(steps), delta=1e-6, tol=1e-3).adaptive.epsilon.safe
        for steps in ((sampled, few), (few, sampled), (leaks, few, sampled))
    ]
    assert figures[0] == pytest.approx(figures[1], rel=1e-12)
    assert figures[0] < figures[2] < 1.01 * figures[0] < 0.84
