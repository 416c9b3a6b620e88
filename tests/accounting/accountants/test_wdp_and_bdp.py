"""The Wasserstein and Bayesian accountants: published figures, exact ones beside them, refusals and warnings."""

from __future__ import annotations

import math

import pytest

import wpriv
from tests.points import POINTS
from wpriv.accounting.accountants import moments, rdp_filter, renyi
from wpriv.accounting.history import observed
from wpriv.accounting.mechanisms.gauss import Gauss
from wpriv.accounting.mechanisms.laplace import Laplace
from wpriv.accounting.mechanisms.randomized_response import RandomizedResponse
from wpriv.accounting.membership_figures import chance_of_right_guess
from wpriv.core.guarantee import Guarantee
from wpriv.core.kinds import Sampling
from wpriv.core.pair_distances import of_distances
from wpriv.core.process import Process, Step
from wpriv.errors import Unsupported, UsageError
from wpriv.numerics.bracket import Bracket
from wpriv.numerics.wasserstein_1d import subsampled_gauss
from wpriv.papers.accountants import bdp, wdp

SEEN = of_distances([0.3, 0.8, 1.5, 2.0], coordinates=10)
POISSON = Sampling("poisson", 0.01)


def seen(sigma: float = 1.0, n: int = 10, sampling: Sampling = POISSON, what=SEEN) -> Process:
    return Process((Step(Gauss(sigma), n, sampling, what),))


# eps after 100 steps at delta = 1e-5, order 16, by an independent run of the authors' methods (seed 0): DP, BDP, WDP
COMPOSITION = [
    (0.05, 0, 84267, 93048, 14055),
    (0.50, 0, 84267, 66654, 16578),
    (0.99, 0, 84267, 37066, 22038),
    (0.05, 1, 84267, 37969, 14055),
    (0.75, 1, 84267, 37893, 17914),
]


@pytest.mark.slow
@pytest.mark.parametrize(("quantile", "clip", "dp", "bayes", "wasserstein"), COMPOSITION)
def test_figures_2_and_4_are_those_of_an_independent_run(quantile, clip, dp, bayes, wasserstein):
    text = f"weibull:shape=0.5,records=50,coordinates=1000,steps=100,quantile={quantile},clip={clip}"
    process = Process((Step(Gauss(0.2, 2.0), 100, Sampling("poisson", 0.001), observed(text)),))
    for module, options, published in ((moments, {}, dp), (bdp, {}, bayes), (wdp, {"variant": "code"}, wasserstein)):
        value = module.account(process, order=16, **options).at(delta=1e-5).epsilon.safe
        assert value == pytest.approx(published, abs=0.51)


def test_wdp_and_bdp_refuse_processes_without_observations():
    for module in (wdp, bdp):
        with pytest.raises(Unsupported, match="observed"):
            module.account(Process((Step(Gauss(1.0), 10, POISSON),)))


def test_the_exact_variant_is_the_length_of_a_shift_and_sees_no_noise():
    for mechanism in (Gauss(0.01, 3.0), Gauss(100.0, 3.0), Laplace(7.0, 3.0)):
        row = wdp.account(Process((Step(mechanism),)), variant="exact", order=7).at(delta=1e-5)
        assert (row.claim, row.notion) == ("exact", "wdp")
        assert row.epsilon.safe == 3.0
    many = wdp.account(Process((Step(Gauss(1.0), 5),)), variant="exact").at(delta=1e-5)
    assert (many.claim, many.epsilon.safe) == ("upper-bound", 5.0)
    charged, several = (
        wdp.account(Process((Step(Gauss(1.0)),)), variant="exact", **o).claim for o in ({"beta": 1.0}, {"group": 2.0})
    )
    assert (charged, several) == ("as-published", "upper-bound")


def test_the_exact_variant_takes_the_furthest_observed_pair_and_says_so():
    row = wdp.account(seen(0.5, 3), variant="exact", order=4).at(delta=0.5)
    assert row.claim == "approximate"
    assert row.epsilon.safe == pytest.approx(3 * subsampled_gauss(0.01, 2.0, 0.5, 4), rel=1e-12)
    assert len(row.warnings) == 2


def test_kantorovich_dp_is_order_one():
    row = wdp.account(seen(0.5, 1), variant="exact", order=1).at(delta=0.5)
    assert row.epsilon.safe == pytest.approx(0.01 * 2.0, rel=1e-14)


@pytest.mark.parametrize("variant", ["paper", "code"])
def test_published_wdp_grows_with_the_noise_and_exact_wdp_does_not(variant):
    published = [wdp.account(seen(s), variant=variant).at(delta=1e-5).epsilon.safe for s in (0.1, 1.0, 10.0)]
    exact = [wdp.account(seen(s), variant="exact").at(delta=1e-5).epsilon.safe for s in (0.1, 1.0, 10.0)]
    assert published == sorted(published)
    assert published[-1] > 10 * published[0] - 100 * 1.0  # proportional to sigma but for the charge of delta
    assert exact == sorted(exact, reverse=True)


def test_the_published_figure_carries_the_exact_one_and_where_it_lies():
    low = wdp.account(seen(1e-3, 1, what=of_distances([1.0] * 3)), variant="code").warnings
    assert any("BELOW" in line for line in low)
    assert any("above" in line for line in wdp.account(seen(10.0)).warnings)


@pytest.mark.parametrize("variant", ["paper", "code", "exact"])
def test_orders_up_to_1000_and_extreme_scales_give_numbers(variant):
    for order in (1, 1.5, 37.3, 1000):
        process = seen(1e-6, 3, what=of_distances([1e6, 2e6, 1.0], coordinates=10**6))
        value = wdp.account(process, variant=variant, order=order).at(delta=1e-10).epsilon.safe
        assert math.isfinite(value)
        assert value > 0


@pytest.mark.parametrize("variant", ["table1", "exact"])
def test_budgets_without_path_randomness_grow_with_the_order(variant):
    """Below 1 in noise units; above, the printed Gauss budget falls with mu (wdp error 5)."""
    values = [
        wdp.account(Process((Step(Gauss(2.0)),)), variant=variant, order=mu).at(delta=0.1).epsilon.safe
        for mu in (1, 2, 10, 100)
    ]
    assert values == sorted(values)
    falling = [
        wdp.account(Process((Step(Gauss(0.2)),)), variant="table1", order=mu).at(delta=0.1).epsilon.safe
        for mu in (1, 2, 10)
    ]
    assert falling == sorted(falling, reverse=True)


def test_delta_and_eps_of_corollary_1_invert_each_other():
    curve = wdp.account(seen(), variant="code", order=3, beta=2.0)
    for delta in (1e-3, 1e-10):
        assert curve.delta(eps=curve.epsilon(delta=delta)) == pytest.approx(delta, rel=1e-9)


def test_groups_cost_as_many_times_as_they_have_records():
    one, three = (wdp.account(seen(), variant="code", group=k).at(delta=1e-5).epsilon.safe for k in (1, 3))
    assert three == pytest.approx(3 * one, rel=1e-12)


def test_conversions_start_from_the_mechanisms_own_guarantee():
    laplace, gauss = Process((Step(Laplace(10.0)),)), Process((Step(Gauss(5.0)),))
    assert wdp.account(laplace, variant="prop9", order=1).at(delta=0.1).epsilon.safe == pytest.approx(0.0725, abs=5e-5)
    assert wdp.account(gauss, variant="prop10", order=1, alpha=2).at(delta=0.1).epsilon.safe == pytest.approx(
        0.1414, abs=5e-5
    )
    back = wdp.account(Process((Step(Laplace(1.0, 4.0)),)), variant="prop11", order=1, lipschitz=1).at(delta=0.1)
    assert (back.notion, back.claim, back.epsilon.safe) == ("approximate-dp", "as-published", 2.0)


@pytest.mark.parametrize(
    ("module", "options", "error"),
    [
        (wdp, {"variant": "papr"}, UsageError),
        (wdp, {"order": 0.5}, UsageError),
        (wdp, {"beta": -1.0}, UsageError),
        (wdp, {"group": 1.5}, UsageError),
        (wdp, {"variant": "code", "coordinates": 10.0}, UsageError),
        (wdp, {"variant": "exact", "alpha": 3.0}, UsageError),
        (wdp, {"lipschitz": 1.0}, UsageError),
        (wdp, {"variant": "prop9"}, Unsupported),
        (bdp, {"form": "mild"}, UsageError),
        (bdp, {"order": 1.5}, UsageError),
        (bdp, {"pairs": "independent"}, UsageError),
        (renyi, {"order": 0.5}, UsageError),
        (moments, {"order": 1.5}, UsageError),
        *((module, {"order": 1e13}, UsageError) for module in (moments, renyi, rdp_filter)),
        (wdp, {"variant": "prop10", "alpha": 1e13}, UsageError),
    ],
)
def test_options_that_mean_nothing_are_refused(module, options, error):
    with pytest.raises(error):
        module.account(seen(), **options)


def test_processes_that_are_not_covered_are_refused():
    fixed = Process((Step(Gauss(1.0), 2, Sampling("fixed", 0.1), SEEN),))
    response = Process((Step(RandomizedResponse(0.5), 2, observed=SEEN),))
    for module, options in ((bdp, {}), (wdp, {"variant": "exact"}), (wdp, {"variant": "table1"})):
        for process in (fixed, response):
            with pytest.raises(Unsupported):
                module.account(process, **options)
    with pytest.raises(Unsupported, match="coordinates"):
        wdp.account(seen(what=of_distances([1.0, 2.0, 3.0])))
    assert wdp.account(seen(what=of_distances([1.0, 2.0, 3.0])), coordinates=10).at(delta=0.1).epsilon.safe > 0


def test_bdp_spends_its_confidence_and_warns_of_shared_records_and_many_steps():
    curve = bdp.account(seen(n=1000), order=2)
    assert curve.epsilon(delta=999 * 2.0**-53) == math.inf
    assert math.isfinite(curve.epsilon(delta=1e-12))
    assert bdp.SHARED in curve.warnings
    assert any("declared 10" in line for line in bdp.account(seen(n=1000), steps=10).warnings)
    drawn = observed("weibull:shape=0.5,records=12,coordinates=5")
    assert bdp.SHARED not in bdp.account(seen(what=drawn), pairs="independent").warnings


def test_bdp_is_no_worse_at_the_best_order_and_in_the_weak_form():
    at = {"delta": 1e-6}
    best = bdp.account(seen()).at(**at).epsilon.safe
    for order in bdp.ORDERS:
        strong, weak = (
            bdp.account(seen(), order=order, form=form).at(**at).epsilon.safe for form in ("strong", "weak")
        )
        assert best <= strong * (1 + 1e-12)
        assert weak <= strong


def test_the_renyi_accountant_answers_table_1():
    t = 1.0
    assert renyi.account(Process((Step(Laplace(1.0)),)), order=1).at(delta=0.1).epsilon.safe == pytest.approx(
        t + math.exp(-t) - 1, rel=1e-9
    )
    assert renyi.account(Process((Step(Gauss(2.0), 3),)), order=5).at(delta=0.1).epsilon.safe == pytest.approx(
        3 * 5 / 8, rel=1e-12
    )


def golden_attacks() -> list[dict]:
    return [p for p in POINTS if p["id"].startswith("000-attack-")]


@pytest.mark.parametrize("point", golden_attacks(), ids=lambda p: p["id"])
def test_the_golden_attack_probabilities(point):
    process = Process((Step(Gauss(1.0)),))
    row = Guarantee("wdp", "as-published", "wdp", Bracket(float(point["inputs"]["eps"])), Bracket(1e-5), process, "")
    assert chance_of_right_guess(row)["paper"] == pytest.approx(float(point["value"]), rel=1e-12)


def test_the_paper_s_reading_stands_beside_what_the_notion_bounds():
    wide = {
        "sigma": 0.2,
        "sampling": "poisson",
        "rate": 0.01,
        "delta": 1e-5,
        "observed": [0.1, 0.2, 0.3, 0.2],
        "attack": True,
    }
    attack = wpriv.budget("gauss", accountant="wdp:variant=code", **wide).extra["attack_reading"]
    assert 0.5 < attack["paper"] < attack["bound"] == 1.0
    row = wpriv.budget("gauss", accountant="bdp", **wide)
    bayes, eps = row.extra["attack_reading"], row.epsilon.safe
    assert bayes["bound"] == pytest.approx((math.exp(eps) + 1e-5) / (1 + math.exp(eps)), rel=1e-12)
    assert "attack_reading" not in wpriv.budget("gauss", sigma=1.0, delta=1e-5, attack=True).extra


@pytest.mark.parametrize("order", [16385, 1e9, 1e300])
def test_an_order_of_bdp_that_needs_too_many_terms_is_refused(order: float) -> None:
    with pytest.raises(UsageError, match="at most 16,384"):
        bdp.account(seen(0.5, 3), order=order)


@pytest.mark.parametrize("accountant", ["moments", "renyi", "rdp-filter"])
def test_a_huge_order_is_refused_rather_than_answered_from_products_that_overflow(accountant):
    """eps0 of the exponential mechanism is its divergence of order infinity; at 1e300 the answer was eps = 0."""
    delta = None if accountant == "renyi" else 1e-5
    with pytest.raises(UsageError, match="at most 1e"):
        wpriv.budget("exponential", eps0=1, delta=delta, accountant=f"{accountant}:order=1e300")
    row = wpriv.budget("exponential", eps0=1, delta=delta, accountant=f"{accountant}:order=1e12")
    assert row.epsilon.safe == pytest.approx(1, abs=1e-10)
