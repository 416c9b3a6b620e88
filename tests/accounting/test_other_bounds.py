"""A certified answer is never worse than another proven bound of the same process, and curves fall.

Oracles: Laplace inversion (tests/oracles.py), sums over atoms, and the other accountants themselves.
"""

from __future__ import annotations

import json
import math
from itertools import pairwise

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

import wpriv
from tests.oracles import atoms_delta, contour_log_delta, poisson_gauss
from wpriv.accounting import budget, build_process, evaluate, other_bounds
from wpriv.accounting.mechanisms.discrete_gauss import DiscreteGauss
from wpriv.accounting.mechanisms.discrete_laplace import DiscreteLaplace
from wpriv.accounting.mechanisms.gauss import Gauss
from wpriv.accounting.mechanisms.laplace import Laplace
from wpriv.accounting.mechanisms.randomized_response import RandomizedResponse
from wpriv.cli.main import main
from wpriv.core.guarantee import Curve
from wpriv.core.kinds import Sampling
from wpriv.core.process import Process, Step
from wpriv.core.subsampled_pairs import fixed, poisson
from wpriv.errors import Unsupported
from wpriv.numerics.bracket import Bracket

FEW = Process((Step(Gauss(4.0), 100, Sampling("poisson", 0.01)),))
FEDERATED = Process((Step(DiscreteGauss(1.517), 43510, Sampling("poisson", 0.001457)),))


def log_truth(eps: float) -> float:
    """ln delta of ``FEW`` by Laplace inversion, in the worse order of the neighbours."""
    return max(contour_log_delta([(poisson_gauss(0.01, 0.25, order), 100)], eps) for order in ("remove", "add"))


@pytest.mark.slow
def test_a_certified_delta_falls_as_eps_grows_and_holds_the_truth():
    curve = evaluate.curve(FEW, "pld")
    rows = [curve.at(eps=eps).delta for eps in (0.2, 0.5, 1.0, 2.0, 5.0)]
    for low, high in pairwise(rows):
        assert high.safe < low.safe
    for eps in (0.02, 0.2):
        bracket = curve.at(eps=eps).delta
        assert math.log(bracket.lower) <= log_truth(eps) <= math.log(bracket.safe)


@pytest.mark.slow
@pytest.mark.parametrize(("process", "eps"), [(FEW, 1.0), (FEW, 5.0), (FEDERATED, 1.531)])
def test_a_certified_delta_is_never_above_another_proven_bound(process, eps):
    found = evaluate.curve(process, "pld").at(eps=eps).delta
    for name in ("rdp", "kov", "basic", "markov"):
        assert found.safe <= evaluate.curve(process, name).at(eps=eps).delta.safe
    assert found.lower <= found.estimate <= found.safe < 1e-3


@pytest.mark.slow
def test_a_vacuous_eps_is_replaced_by_the_least_other_bound_and_the_source_names_it(monkeypatch):
    vacuous = Curve(
        FEW,
        "pld",
        "approximate-dp",
        "certified",
        "own",
        lambda _: Bracket(0.3, 0.0, 1.0),
        lambda _: Bracket(1e4, 0.0, 1e5),
        tol=1e-3,
    )
    curve = other_bounds.intersect(vacuous, (("rdp",), ("kov", "basic")))
    row = curve.at(delta=1e-6)
    least = min(evaluate.curve(FEW, name).at(delta=1e-6).epsilon.safe for name in ("rdp", "kov", "basic"))
    assert row.epsilon.safe <= least
    assert row.epsilon.lower <= row.epsilon.estimate <= row.epsilon.safe
    assert "upper end by rdp" in row.source
    assert "lower end by the largest loss" in row.source
    # both ends hold a certified bracket of the truth
    certified = evaluate.curve(FEW, "pld").at(delta=1e-6).epsilon
    assert row.epsilon.lower <= certified.lower <= certified.safe <= row.epsilon.safe


def test_a_narrow_bracket_asks_nobody_else(monkeypatch):
    monkeypatch.setattr(other_bounds, "_first", lambda *_: pytest.fail("another accountant was built"))
    row = wpriv.budget("gauss", sigma=4, sampling="poisson", rate=0.01, n=65536, delta=1e-4)
    assert "upper end by" not in row.source


def test_few_steps_of_few_losses_are_summed_exactly_at_any_delta():
    # sensitivity 1: two losses, +-1/2; twice that is 1, whose probability is (e^.5 / (1 + e^.5))^2 > 1e-12
    process = Process((Step(DiscreteLaplace(2.0), 2),))
    row = evaluate.ask(evaluate.curve(process, "pld"), delta=1e-12)
    p = math.exp(0.5) / (1 + math.exp(0.5))
    law = (np.array([0.5, -0.5]), np.array([p, 1 - p]), 2)
    # solved for eps: 1 + ln(1 - 1e-12 / p^2)
    assert row.epsilon.lower * (1 - 1e-12) <= 1 + math.log1p(-1e-12 / p**2) <= row.epsilon.safe * (1 + 1e-14)
    assert row.epsilon.safe <= 1 + 1e-9
    assert atoms_delta([law], row.epsilon.safe - 1e-6) > 1e-12
    assert row.claim == "exact"
    assert wpriv.calibrate("discrete-laplace", eps=1, delta=1e-12, n=2).value == 2.0


def test_a_refusal_stays_one_where_no_other_bound_says_anything():
    def refuse(_: float) -> Bracket:
        raise Unsupported("too many cells")

    curve = other_bounds.intersect(Curve(FEW, "pld", "approximate-dp", "certified", "", refuse, refuse, tol=1e-3), ())
    others = other_bounds.OtherBounds(Process((Step(Laplace(1.0), 3),)), ())
    with pytest.raises(Unsupported, match="too many cells"):
        others.narrowed(curve, lambda c: refuse(0.0), lambda: 0.0, 1.0)


@pytest.mark.slow
@given(st.floats(0.05, 5.0), st.floats(0.01, 1.0), st.floats(-4.0, 4.0))
@settings(max_examples=200, deadline=None)
def test_sampling_only_helps(mu, rate, eps):
    """The profile of a sampled pair lies below that of its base at every eps, in both directions."""
    for base in (Gauss(1 / mu).pair(), Laplace(1 / mu).pair(), DiscreteGauss(1 / mu).pair()):
        for pair in (poisson(base, rate), poisson(base, rate).reverse(), fixed(base, rate)):
            assert float(pair.log_delta(eps)) <= float(base.log_delta(eps)) + 1e-9


@pytest.mark.slow
def test_a_table_over_eps_falls_in_both_ends(capsys):
    job = build_process.described_process("gauss", sigma=4.0, n=100, sampling="poisson", rate=0.01)
    rows = budget.along_eps(job, "pld", eps=0.25)
    for left, right in pairwise(rows):
        assert left.epsilon.safe < right.epsilon.safe
        for end in ("lower", "estimate", "upper"):
            assert getattr(left.delta, end) >= getattr(right.delta, end)
    sweep = "--sweep eps=0.2,1,2,5 --accountant pld --json"
    assert main(f"compare --mech gauss --sigma 4 --sampling poisson --rate 0.01 --n 100 {sweep}".split()) == 0
    found = json.loads(capsys.readouterr().out)["rows"]
    for left, right in pairwise(found):
        for end in ("delta", "delta_lower", "delta_estimate", "delta_upper"):
            assert left[end] >= right[end]
    assert found[-1]["delta"] <= 1e-200


def test_points_of_a_sweep_in_any_order_are_one_curve():
    from wpriv.accounting.comparison.compare import monotone_rows
    from wpriv.accounting.comparison.grid import Cell

    def row(low: float, high: float) -> dict:
        ends = {"delta": high, "delta_lower": low, "delta_upper": high, "delta_estimate": high}
        return {"claim": "certified", "notion": "approximate-dp", "reason": None, **ends}

    spec = ({"mech": "gauss", "sigma": 1.0, "n": 1},)
    cells = [Cell("bounds", {}, spec, None, "pld", eps=eps) for eps in (2.0, 1.0, 3.0)]
    rows = monotone_rows(cells, [[row(0.2, 0.9)], [row(0.1, 0.5)], [row(0.0, 0.7)]])
    # eps = 1: [.1, .5] and .2 from eps = 2 below; the others: at most .5
    assert [(r["delta_lower"], r["delta_upper"]) for r in rows] == [(0.2, 0.5), (0.2, 0.5), (0.0, 0.5)]


@pytest.mark.parametrize(("rate", "largest", "eps"), [(1e-3, 840.0, 850.0), (1e-40, 772.0, 699.0)])
def test_a_lower_bound_of_delta_holds_where_exponentials_leave_the_doubles(rate, largest, eps):
    """No loss exceeds M = ln(1 - rate + rate e^largest) < eps, so that both must exceed eps - M > 15.

    The loss of a record that is not drawn does so with a probability below e^-100 only. Hence delta(eps) <= P(sum of
    both losses > eps) <= (rate + e^-100)^2.
    """
    most = math.log(rate) + largest + 1e-9
    assert most + 15 < eps < 2 * most
    job = Process((Step(Laplace(1 / largest), 2, Sampling("poisson", rate)),))
    assert other_bounds.OtherBounds(job, ()).delta_lower_bound(eps) <= (rate + math.exp(-100)) ** 2


@pytest.mark.filterwarnings("error")
def test_an_eps_far_beyond_the_losses_of_a_mixed_process_has_the_bound_of_rdp() -> None:
    """Truth: delta is at most 1e-300 by the moments of the loss, a computation without lattices."""
    steps = (Step(Gauss(3.7), 100, Sampling("poisson", 0.009)), Step(Laplace(1.16), 3, Sampling("fixed", 0.1)))
    bracket = evaluate.curve(Process(steps, "replace-one"), "pld").at(eps=2.5).delta
    assert bracket.lower == 0
    assert bracket.upper == 1e-300


@given(st.floats(-4, 0), st.floats(0, 3))
@settings(max_examples=60)
def test_the_bound_by_the_second_moment_is_above_the_profile_and_its_eps_is_its_inverse(log_mu, deviations):
    """Oracle: the profile of mu-GDP, Balle and Wang (2018)."""
    mu, sigma = 10**log_mu, 10**-log_mu
    bound = other_bounds._by_second_moment(Process((Step(Gauss(sigma=sigma), 1),)))
    eps = deviations * mu
    exact = ndtr(mu / 2 - eps / mu) - math.exp(eps) * ndtr(-mu / 2 - eps / mu)
    high = bound.delta_bracket(eps).safe
    assert exact <= high <= 1
    assert bound.epsilon_bracket(high).safe == pytest.approx(eps, rel=1e-6, abs=1e-9 * mu)


def test_some_pair_attains_the_bound_by_the_second_moment():
    """Oracle: randomised response at eps 0, whose ratio takes two values: delta is tanh(eps0 / 2)."""
    for eps0 in (1e-8, 1e-4, 1e-2):
        bound = other_bounds._by_second_moment(Process((Step(RandomizedResponse(eps0), 1),)))
        exact = math.tanh(eps0 / 2)
        assert exact <= bound.delta_bracket(0.0).safe <= exact * (1 + eps0)


def test_tiny_losses_that_cannot_be_composed_are_bounded_by_their_variance():
    """Oracle: half the standard deviation of the likelihood ratio, n q^2 (e^(1/sigma^2) - 1), bounds delta(0)."""
    n, rate, sigma = 590_000_000, 1.4e-15, 0.435
    row = wpriv.budget("gauss", sigma=sigma, n=n, sampling="poisson", rate=rate, eps=8.1e-10)
    assert row.delta.upper < 0.5 * math.sqrt(n * rate**2 * math.expm1(1 / sigma**2))
    assert "second moment" in row.delta.by


@pytest.mark.parametrize(("n", "log10"), [(3, -300), (40, -250), (200, -280)])
def test_far_below_all_probabilities_eps_is_that_of_the_largest_losses_together(n: int, log10: int) -> None:
    """Oracle: every Laplace loss is 1 with probability 1/2, so that delta is at least 2^-n (1 - e^(eps - n))."""
    eps = wpriv.budget("laplace", scale=1.0, n=n, delta=10.0**log10).epsilon
    with mpmath.workdps(400):
        alone = n + mpmath.log1p(-(mpmath.mpf(10) ** log10) * 2**n)
    assert float(alone) * (1 - 2e-6) <= eps.lower <= eps.upper <= n


def test_the_bound_by_the_largest_losses_holds_for_randomised_responses() -> None:
    """Oracle: the binomial composition in closed form."""
    pair = RandomizedResponse(0.5).pair()
    for n in (1, 4, 30):
        exact = pair.self_compose(n)
        for delta in (1e-3, 1e-12, 1e-60):
            low = other_bounds._all_epsilon([(pair, n)], delta)
            assert low == 0 or float(exact.log_delta(low)) >= math.log(delta)
