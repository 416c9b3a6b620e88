"""Releases of which only a guarantee is known (dp, gdp, zcdp, rdp-curve), beside others, and the exponential mechanism.

Oracles: composition theorems in closed form, conversion formulas, sums over all outcomes, and minimisation on a grid.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import gammaln

import wpriv
from wpriv import Dp, Exponential, Gauss, Gdp, Laplace, Poisson, Process, RandomizedResponse, RdpCurve, Step, Zcdp
from wpriv.accounting.accountants import pld, rdp, rdp_filter, renyi, zcdp
from wpriv.accounting.mechanisms.exponential import BoundedRangePair, SupremumPair
from wpriv.accounting.mechanisms.rdp_curve import RdpCurvePair
from wpriv.core import registry
from wpriv.errors import MissingResource, Unsupported, UsageError

ALL_ACCOUNTANTS = registry.names("accountants")
BY_DIVERGENCES = {"rdp", "rdp-mironov", "rdp-filter", "moments"}


def kov_delta(eps0: float, delta0: float, n: int, eps: float) -> float:
    """delta of n adaptively composed (eps0, delta0)-DP releases: Kairouz, Oh, Viswanath (2015)."""
    total = 0.0
    for k in range(n + 1):
        choose = math.exp(gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1))
        p, q = (math.exp(j * eps0 - n * math.log1p(math.exp(eps0))) for j in (k, n - k))
        total += choose * max(p - math.exp(eps) * q, 0.0)
    return 1 - (1 - delta0) ** n + (1 - delta0) ** n * total


@pytest.mark.parametrize(("eps0", "delta0", "n"), [(0.5, 1e-6, 1), (0.5, 1e-6, 7), (0.1, 0.0, 40), (2.0, 0.01, 3)])
@pytest.mark.parametrize("eps", [0.0, 0.3, 1.0])
def test_releases_of_given_dp_compose_optimally(eps0, delta0, n, eps):
    row = wpriv.budget("dp", eps0=eps0, delta0=delta0, n=n, eps=eps)
    assert row.claim == "exact"
    assert row.delta.safe == pytest.approx(kov_delta(eps0, delta0, n, eps), rel=1e-10, abs=1e-15)


def test_given_dp_at_eps_zero_is_total_variation():
    assert wpriv.budget("dp", eps0=0, delta0=0.01, n=3, eps=0.5).delta.safe == pytest.approx(1 - 0.99**3, rel=1e-12)


def test_given_dp_has_the_pair_of_randomized_response():
    eps = np.linspace(-2, 2, 41)
    one, two = (mech(eps0=0.7, delta0=1e-3).pair() for mech in (Dp, RandomizedResponse))
    np.testing.assert_array_equal(one.log_delta(eps), two.log_delta(eps))


@settings(max_examples=40, deadline=None)
@given(eps0=st.floats(0.01, 5), log_delta0=st.floats(-25, -1), rate=st.floats(1e-4, 0.9))
def test_sampled_given_dp_is_amplified_as_balle_barthe_and_gaboardi_prove(eps0, log_delta0, rate):
    """(ln(1 + q(e^eps0 - 1)), q delta0) in Balle, Barthe, Gaboardi (2018), which is tight for this pair."""
    delta0 = math.exp(log_delta0)
    process = Process((Step(Dp(eps0, delta0), 1, Poisson(rate)),))
    amplified = math.log1p(rate * math.expm1(eps0))
    assert wpriv.budget(process, eps=amplified * (1 + 1e-9)).delta.safe == pytest.approx(rate * delta0, rel=1e-6)


def test_given_gdp_is_gaussian_noise_of_its_mu():
    steps = (Step(Gdp(0.5), 3), Step(Gauss(4.0), 2))
    mu = math.sqrt(3 * 0.25 + 2 / 16)
    row, whole = wpriv.budget(Process(steps), delta=1e-6), wpriv.budget(Gauss(1 / mu), delta=1e-6)
    assert row.claim == "exact"
    assert row.epsilon.safe == pytest.approx(whole.epsilon.safe, rel=1e-12)
    assert wpriv.budget(Process(steps), delta=1e-6, accountant="gdp").epsilon.safe == row.epsilon.safe


def test_the_rho_of_given_zcdp_adds_up_with_that_of_noise():
    process = Process((Step(Zcdp(0.4), 3), Step(Gauss(2.0), 5), Step(Laplace(4.0), 2)))
    rho = 3 * 0.4 + 5 / 8 + 2 * (0.25 + math.exp(-0.25) - 1)  # of Laplace noise its mean loss
    expected = rho + 2 * math.sqrt(rho * math.log(1e6))  # Bun, Steinke 2016, Proposition 1.3
    assert zcdp.account(process).at(delta=1e-6).epsilon.safe == pytest.approx(expected, rel=1e-12)


def test_rdp_of_given_zcdp_is_the_best_order_of_a_line():
    """Canonne, Kamath, Steinke (2020), Proposition 12, minimised on a grid of orders."""
    a = 1 + np.geomspace(1e-3, 1e3, 2_000_001)
    eps = np.min(2.63 * a + np.log(1e10) / (a - 1) + np.log1p(-1 / a) - np.log(a) / (a - 1))
    row = wpriv.budget("zcdp", rho=2.63, delta=1e-10, accountant="rdp")
    assert (row.claim, row.epsilon.lower) == ("upper-bound", 0.0)
    assert row.epsilon.safe == pytest.approx(eps, rel=1e-9)


@settings(max_examples=30, deadline=None)
@given(sigma=st.floats(0.3, 100), n=st.integers(1, 1000), log_delta=st.floats(-40, -1))
def test_given_zcdp_is_never_below_gaussian_noise_of_its_rho(sigma, n, log_delta):
    given_rho = Process((Step(Zcdp(1 / (2 * sigma**2)), n),))
    delta = math.exp(log_delta)
    for accountant in (rdp, zcdp, rdp_filter):
        same = accountant.account(Process((Step(Gauss(sigma), n),))).at(delta=delta).epsilon.safe
        bound = accountant.account(given_rho).at(delta=delta).epsilon.safe
        assert bound == pytest.approx(same, rel=1e-6)
    assert bound >= wpriv.budget(Gauss(sigma), n=n, delta=delta).epsilon.safe


@pytest.mark.parametrize("name", ALL_ACCOUNTANTS)
def test_only_accountants_by_divergences_answer_for_given_divergences(name, tmp_path):
    file = tmp_path / "curve.csv"
    file.write_text("order,epsilon\n2,0.1\n8,0.4\n")
    for mechanism, others in ((Zcdp(0.1), {"zcdp", "renyi"}), (RdpCurve(str(file)), {"renyi"})):
        if name in BY_DIVERGENCES | others:
            row = wpriv.budget(mechanism, n=3, delta=None if name == "renyi" else 1e-5, accountant=name)
            assert row.claim == "upper-bound"
            assert 0 < row.epsilon.safe < math.inf
        else:
            with pytest.raises(Unsupported):
                wpriv.budget(mechanism, n=3, delta=1e-5, accountant=name)


def test_given_guarantees_stand_beside_a_training():
    training = Step(Gauss(1.1), 1000, Poisson(0.01))
    alone = rdp.account(Process((training,))).at(delta=1e-6).epsilon.safe
    both = rdp.account(Process((training, Step(Zcdp(0.05))))).at(delta=1e-6).epsilon.safe
    assert alone < both < alone + wpriv.budget("zcdp", rho=0.05, delta=1e-6, accountant="rdp").epsilon.safe
    published = wpriv.budget(Process((training, Step(Dp(1.0, 1e-6)))), delta=1e-5)
    assert published.claim == "certified"
    assert published.epsilon.safe < 1 + wpriv.budget(Process((training,)), delta=9e-6).epsilon.safe


def test_the_renyi_divergence_of_a_given_guarantee_is_an_upper_bound():
    row = renyi.account(Process((Step(Zcdp(0.3), 2), Step(Gauss(1.0)))), order=4).at(delta=1e-5)
    assert (row.claim, row.epsilon.lower) == ("upper-bound", 0.0)
    assert row.epsilon.safe == pytest.approx(4 * (0.6 + 0.5), rel=1e-12)


def test_no_divergence_beyond_the_orders_of_a_table_is_claimed(tmp_path):
    file = tmp_path / "curve.csv"
    file.write_text("order,epsilon\n2,0.1\n8,0.4\n")
    with pytest.raises(Unsupported, match="order 9"):
        wpriv.budget("rdp-curve", file=str(file), accountant="renyi:order=9")


def test_adaptively_chosen_steps_may_be_given_guarantees():
    process = Process((Step(Zcdp(0.1), 4),))
    row = wpriv.budget(process, delta=1e-6, adaptive=True)
    assert (row.accountant, row.claim) == ("rdp-filter", "upper-bound")


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one", "replace-within-group", "any-two"])
@pytest.mark.parametrize("mechanism", [Dp(1.0, 1e-6), Gdp(1.0), Zcdp(1.0)])
def test_a_guarantee_is_given_for_the_neighbours_that_are_named(mechanism, adjacency):
    row = wpriv.budget(
        mechanism, adjacency=adjacency, delta=1e-4, accountant="rdp" if mechanism == Zcdp(1.0) else "pld"
    )
    assert row.as_dict()["adjacency"] == adjacency
    assert any("taken as given" in line for line in row.extra["reading"])


@pytest.mark.parametrize(
    ("mech", "values"),
    [
        ("dp", {"eps0": -1}),
        ("dp", {"eps0": 1, "delta0": 1}),
        ("dp", {"eps0": 1e308}),
        ("randomized-response", {"eps0": 1e308}),
        ("gauss", {"sigma": 1e-300, "sensitivity": 1e300}),
        ("matrix-gauss", {"sigma": 1e-300, "sensitivity": 1e300, "strategy": "prefix:n=10"}),
        ("gdp", {"mu": 0}),
        ("gdp", {"mu": 1e200}),
        ("zcdp", {"rho": 0}),
        ("zcdp", {"rho": 1e200}),
        ("exponential", {"eps0": 0}),
        ("exponential", {"eps0": 1e-9}),
    ],
)
def test_guarantees_out_of_range_are_refused(mech, values):
    with pytest.raises(UsageError, match=mech):
        wpriv.budget(mech, **values, delta=1e-5)


# Renyi divergences from a table


def test_between_the_orders_of_a_table_the_bound_is_the_lower_hull():
    """The oracle tries every chord between two points of the table, (1, 0) included."""
    orders, epsilon = np.array([1.5, 2.0, 3.0, 6.0, 20.0]), np.array([0.3, 0.25, 0.9, 1.0, 6.0])
    bound = RdpCurvePair(orders, epsilon)
    points = [(1.0, 0.0), *zip(orders, (orders - 1) * epsilon, strict=True)]
    for alpha in np.linspace(1.01, 20, 500):
        chords = [
            y0 + (y1 - y0) * (alpha - x0) / (x1 - x0)
            for (x0, y0), (x1, y1) in itertools.combinations(points, 2)
            if x0 <= alpha <= x1
        ]
        assert bound.renyi(np.array([alpha]))[0] == pytest.approx(min(chords) / (alpha - 1), rel=1e-9)
    assert np.all(np.isinf(bound.renyi(np.array([20.001, 1e6]))))


@settings(max_examples=60, deadline=None)
@given(
    scale=st.floats(0.1, 20),
    orders=st.lists(st.floats(1.001, 200), min_size=1, max_size=12, unique=True),
    alpha=st.floats(1.001, 200),
)
def test_a_table_of_a_mechanism_bounds_its_divergences_between_the_orders(scale, orders, alpha):
    """The oracle is the closed form of Laplace noise (Mironov 2017, Table II)."""
    truth = Laplace(scale).pair()
    table = RdpCurvePair(np.array(orders), truth.renyi(np.array(orders)))
    assert table.renyi(np.array([alpha]))[0] >= truth.renyi(np.array([alpha]))[0] * (1 - 1e-9)


def test_a_fine_table_of_gauss_costs_little_more_than_gauss(tmp_path):
    orders = np.arange(1.25, 64, 0.25)
    file = tmp_path / "gauss.csv"
    file.write_text("order,epsilon\n" + "".join(f"{a},{a / 2}\n" for a in orders))
    table = wpriv.budget("rdp-curve", file=str(file), n=3, delta=1e-6, accountant="rdp").epsilon.safe
    exact = wpriv.budget(Gauss(1.0), n=3, delta=1e-6, accountant="rdp").epsilon.safe
    assert exact <= table <= exact * 1.002


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("", "order,epsilon"),
        ("alpha,eps\n2,1\n", ":1"),
        ("order,epsilon\n", "rows"),
        ("order,epsilon\n2,1\n1,0.5\n", ":3"),
        ("order,epsilon\n2,-1\n", ":2"),
        ("order,epsilon\n2,nan\n", ":2"),
        ("order,epsilon\n2,1\n1e200,1\n", ":3"),
        ("order,epsilon\n2,inf\n", ":2"),
        ("order,epsilon\n2,one\n", ":2"),
        ("order,epsilon\n2\n", ":2"),
    ],
)
def test_a_faulty_table_is_refused_with_its_line(text, place, tmp_path):
    file = tmp_path / "curve.csv"
    file.write_text(text)
    with pytest.raises(UsageError, match=place):
        wpriv.budget("rdp-curve", file=str(file), delta=1e-5, accountant="rdp")


def test_a_missing_table_is_named(tmp_path):
    with pytest.raises(MissingResource, match=r"nothing\.csv"):
        wpriv.budget("rdp-curve", file=str(tmp_path / "nothing.csv"), delta=1e-5, accountant="rdp")
    with pytest.raises(MissingResource):
        wpriv.budget("rdp-curve", file=str(tmp_path), delta=1e-5, accountant="rdp")


# The exponential mechanism


def two_outcomes(r: float, t: float) -> tuple[np.ndarray, np.ndarray]:
    """P and Q of generalised randomised response with losses t and t - r (Dong, Durfee, Rogers 2020)."""
    p = math.exp(r - t) * math.expm1(t - r) / -math.expm1(r) * math.exp(t)
    q = p * math.exp(-t)
    return np.array([p, 1 - p]), np.array([q, 1 - q])


def composed_delta(eps: float, pairs: list[tuple[np.ndarray, np.ndarray]]) -> float:
    """delta of independent releases, by the sum over all their outcomes."""
    p, q = np.ones(1), np.ones(1)
    for a, b in pairs:
        p, q = np.multiply.outer(p, a).ravel(), np.multiply.outer(q, b).ravel()
    return float(np.maximum(p - math.exp(eps) * q, 0.0).sum())


@pytest.mark.parametrize("r", [0.01, 0.5, 3.0])
@pytest.mark.parametrize("share", [0.0, 0.2, 0.7])
def test_the_profile_of_one_selection_is_the_largest_over_all_pairs_of_two_outcomes(r, share):
    eps = share * r
    largest = max(composed_delta(eps, [two_outcomes(r, t)]) for t in np.linspace(0, r, 20_001)[1:-1])
    row = wpriv.budget("exponential", eps0=r, eps=eps)
    assert row.claim == "exact"
    assert row.delta.safe == pytest.approx(largest, rel=1e-6)


@settings(max_examples=60, deadline=None)
@given(
    st.floats(0.05, 3),
    st.lists(st.tuples(st.floats(-1, 1), st.floats(-3, 3)), min_size=2, max_size=8),
    st.floats(0, 0.99),
)
def test_an_exponential_mechanism_with_any_scores_is_dominated(eps0, scores, share):
    """Scores of sensitivity 1 on up to eight outcomes; the sum over outcomes is the oracle, in both directions."""
    change, score = np.array(scores).T
    weights = [np.exp(eps0 * u / 2) for u in (score + change, score)]
    p, q = (w / w.sum() for w in weights)
    for one, two in ((p, q), (q, p)):
        delta = composed_delta(share * eps0, [(one, two)])
        assert delta <= math.exp(float(SupremumPair(eps0).log_delta(share * eps0))) * (1 + 1e-9) + 1e-15


@pytest.mark.parametrize(("r", "n"), [(0.5, 2), (0.5, 10), (2.0, 4), (0.1, 12)])
def test_the_bracket_of_several_selections_holds_every_choice_of_worst_cases(r, n):
    generator = np.random.default_rng(n)
    curve = wpriv.curve(Process((Step(Exponential(r), n),)))
    for eps in (0.0, 0.1 * n * r, 0.3 * n * r):
        bracket = curve.at(eps=eps).delta
        middle = composed_delta(eps, [two_outcomes(r, r / 2)] * n)
        choices = [[two_outcomes(r, t) for t in r * generator.random(n)] for _ in range(20)]
        choices += [[two_outcomes(r, t)] * n for t in r * np.linspace(0.05, 0.95, 19)]
        largest = max(composed_delta(eps, choice) for choice in choices)
        # the lower end is that of a strategy that chooses each selection by the outcomes before it
        assert bracket.lower >= middle * (1 - 2e-3)
        assert largest <= bracket.upper * (1 + 1e-9)


@settings(max_examples=100, deadline=None)
@given(st.floats(1e-3, 20), st.floats(1.01, 200))
def test_the_largest_divergence_is_that_of_the_worst_two_outcomes(r, alpha):
    largest = 0.0
    for t in np.linspace(0, r, 401)[1:-1]:
        p, q = (np.log(part) for part in two_outcomes(r, t))
        largest = max(largest, float(np.logaddexp.reduce(alpha * p + (1 - alpha) * q)) / (alpha - 1))
    value = float(BoundedRangePair(r).renyi(np.array([alpha]))[0])
    assert largest * (1 - 1e-9) - 1e-14 / (alpha - 1) <= value
    assert value <= min(largest * 1.01 + 1e-12 / (alpha - 1), alpha * r * r / 8, r)


def test_many_selections_cost_half_as_much_as_pure_dp():
    """By the variance of the loss, eps0^2/4 at most, against eps0^2 of randomized response."""
    selections = wpriv.budget("exponential", eps0=0.02, n=1000, delta=1e-6).epsilon
    pure = wpriv.budget("dp", eps0=0.02, n=1000, delta=1e-6).epsilon
    assert 0.45 * pure.safe < selections.lower < selections.safe < 0.56 * pure.safe


@settings(max_examples=40, deadline=None)
@given(st.floats(-13.8, 4), st.integers(1, 2000), st.floats(-60, -1))
def test_brackets_of_selections_are_ordered_over_a_wide_box(log_eps0, n, log_delta):
    process = Process((Step(Exponential(math.exp(log_eps0)), n),))
    bracket = pld.account(process).at(delta=math.exp(log_delta)).epsilon
    assert 0 <= bracket.lower <= bracket.upper <= n * math.exp(log_eps0) * (1 + 1e-9)


def test_the_bound_that_is_named_for_groups_is_rounded_up():
    # 2/3 and 1e-5 (e^(2/3) - 1)/(e^(1/3) - 1) = 2.3956124e-5
    with pytest.raises(Unsupported, match=r"eps0 = 0\.666667 and delta0 = 2\.39562e-5"):
        wpriv.budget("dp", eps0=1 / 3, delta0=1e-5, group=2, eps=1)
