"""The noise of a release and its account, beside enumeration and the figures of other calculations."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from tests import nightly
from wpriv.accounting import evaluate
from wpriv.accounting.mechanisms.discrete_gauss import DiscreteGauss
from wpriv.accounting.mechanisms.dp import Dp
from wpriv.core.process import Process, Step
from wpriv.errors import Unsupported, UsageError
from wpriv.releases.noise_plan import Budget, solve, total
from wpriv.releases.outputs import BinCounts, Count, Limits, Mean, Quantile, Sum

TARGET = Budget(1.0, 1e-6)
PURE = Budget(1.0, 0.0, "laplace")


def planned(outputs, limits, budget=TARGET, *, by=False, keys=None):
    parts = []
    for place, output in enumerate(outputs):
        parts += output.parts(place, limits, by and not output.overall)
    return solve(parts, budget, keys=keys)


def spreads(plan):
    return [noise.spread for noise in plan.noises if noise is not None]


# numbered as the cases of the specification; values by `wpriv calibrate --mech discrete-gauss` and closed forms
@pytest.mark.parametrize(
    ("outputs", "limits", "budget", "by", "wanted"),
    [
        ([Count()], Limits(), TARGET, False, [4.2307794]),  # 1
        ([Count()], Limits(), PURE, False, [1.0]),  # 2
        ([Count("rows")], Limits(rows=3), TARGET, False, [12.667839]),  # 3
        ([Count()], Limits(2), TARGET, True, [5.9766427]),  # 7
        ([Sum("x", 0, 100, "2^-14")], Limits(rows=1), TARGET, False, [6921714.8]),  # 14
        ([Sum("x", 0, 100, "0.01")], Limits(rows=1), Budget(0.5, 1e-7), False, [89956.827]),  # 15
        ([Sum("x", 0, "2^47")], Limits(rows=1), TARGET, False, [4.2245 * 2**47]),  # 24
    ],
)
def test_one_output_gets_the_least_noise(outputs, limits, budget, by, wanted):
    plan = planned(outputs, limits, budget, by=by)
    assert spreads(plan) == pytest.approx(wanted, rel=1e-6 if wanted[0] < 1e9 else 1e-4)
    assert plan.guarantee.epsilon.safe <= budget.eps
    assert plan.guarantee.claim == "exact"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("outputs", "limits", "by", "wanted"),
    nightly.sharded(
        [
            ([Sum("x", 0, 60)], Limits(rows=3), False, [760.44234]),  # 4
            ([Sum("x", -10, 60)], Limits(rows=1), False, [253.48066]),  # 5
            ([Mean("x", 0, 60)], Limits(rows=3), False, [17.9238, 537.714]),  # 6
            ([Count("rows")], Limits(2, 3), True, [17.922339]),  # 9
            ([BinCounts("x", (0, 7, 30, 60))], Limits(2, 2), False, [11.950684]),  # 10
            ([Count(overall=True), Count()], Limits(2), True, [5.975342, 8.45041]),  # 11
            ([Count(), Sum("x", 0, 60)], Limits(rows=3), False, [5.974599, 1075.428]),  # 12
            ([Count(), Sum("x", 0, 60, weight=2)], Limits(rows=3), False, [9.44667, 850.2003]),  # 13
        ],
        3,
    ),
)
def test_several_outputs_share_one_multiplier(outputs, limits, by, wanted):
    plan = planned(outputs, limits, by=by)
    assert spreads(plan) == pytest.approx(wanted, rel=1e-6)
    assert 0.99999 <= plan.guarantee.epsilon.safe <= 1


@pytest.mark.slow
def test_quantiles_share_the_multiplier():
    quartiles = planned([Quantile("x", 0, 60, at=(".25", ".5", ".75"))], Limits(rows=1))  # 17
    assert quartiles.ranges[0] == pytest.approx(0.350342, abs=1e-6)
    mixed = planned([Count(), Quantile("x", 0, 60)], Limits(rows=1))  # 18
    assert spreads(mixed) == pytest.approx([5.5109], rel=1e-5)
    assert mixed.ranges[1] == pytest.approx(0.362917, abs=1e-6)


@pytest.mark.parametrize(
    ("groups", "budget", "spread", "threshold", "leak", "spent"),
    [
        (1, TARGET, 4.255732, 23, 5.82e-8, 0.997665),  # 19
        (3, TARGET, 7.3564346, 41, 5.394e-8, 0.997428),  # 20
        (1, Budget(1.0, 1e-6, "laplace"), 1.0, 14, 6.079e-7, 1.0),  # 22
        (1, Budget(1.0, 1e-6, key_delta=0.5), 4.374, 22, None, None),
        (3, Budget(1.0, 1e-6, "laplace"), 3.0, 44, None, None),
    ],
)
def test_unknown_keys_have_a_threshold(groups, budget, spread, threshold, leak, spent):
    plan = planned([Count()], Limits(groups), budget, by=True, keys=0)
    assert spreads(plan) == pytest.approx([spread], rel=1e-4 if leak is None else 1e-7)
    assert plan.threshold == threshold
    if leak is not None:
        assert plan.leak == pytest.approx(leak, rel=1e-3)
        assert plan.guarantee.epsilon.safe == pytest.approx(spent, abs=2e-6)


def pair(sigma, shift):
    k = np.arange(-math.ceil(14 * sigma) - shift, math.ceil(14 * sigma) + shift + 1)
    w = [np.exp(-(((k - at) / sigma) ** 2) / 2) for at in (0, shift)]
    return tuple(each / each.sum() for each in w)


def enumerated(pairs, eps):
    """The larger of both hockey-stick divergences of a product, by a sum over all outcomes."""
    p = q = np.ones(1)
    for a, b in pairs:
        p, q = np.multiply.outer(p, a).ravel(), np.multiply.outer(q, b).ravel()
    return max(np.maximum(a - math.exp(eps) * b, 0).sum() for a, b in ((p, q), (q, p)))


@pytest.mark.parametrize("eps", [0.1, 0.7])
def test_what_a_person_can_do_costs_at_most_what_the_lines_say_and_the_most_is_attained(eps):
    """A count and two sums of bound 2: every change of the three cells, by enumeration of all outcomes."""
    lines = Process((Step(DiscreteGauss(sigma=2.0)), Step(DiscreteGauss(sigma=3.0, sensitivity=2), 2)))
    stated = evaluate.curve(lines, "pld").at(eps=eps).delta
    deltas = {
        change: enumerated([pair(2.0, change[0]), pair(3.0, change[1]), pair(3.0, change[2])], eps)
        for change in itertools.product((0, 1), range(3), range(3))
    }
    assert max(deltas.values()) <= stated.safe * (1 + 1e-8)
    assert deltas[1, 2, 2] == pytest.approx(stated.safe, rel=1e-6)


@pytest.mark.parametrize("sigma", [1.0, 2.0])
def test_an_unknown_key_costs_at_most_its_noise_and_its_leak(sigma):
    """The distribution of what a key shows (nothing, or its noisy count), of n and n + 1 persons, by enumeration."""
    threshold, eps = 6, 0.5
    k = np.arange(-60, 61)
    w = np.exp(-((k / sigma) ** 2) / 2)
    w /= w.sum()
    leak = float(w[k >= threshold].sum())

    def distribution(persons):
        if persons == 0:
            return {None: 1.0}
        shown = persons + k > threshold
        counts = {int(persons + z): p for z, p in zip(k[shown], w[shown], strict=True)}
        return {None: float(w[~shown].sum()), **counts}

    worst = 0.0
    for persons in (0, 1, 3, threshold, 30):
        p, q = distribution(persons), distribution(persons + 1)
        for one, other in ((p, q), (q, p)):
            loss = sum(max(one.get(x, 0) - math.exp(eps) * other.get(x, 0), 0) for x in {*p, *q})
            worst = max(worst, loss)
    lines = Process((Step(DiscreteGauss(sigma=sigma)), Step(Dp(eps0=0.0, delta0=leak))))
    assert worst <= evaluate.curve(lines, "pld").at(eps=eps).delta.safe


def test_laplace_shares_add_up_to_eps_exactly():
    plan = planned([Count(), Sum("x", 0, 7, 1, weight=3)], Limits(2, 3), PURE, by=True)
    assert sum(2 * s / noise.spread for s, noise in zip((1, 21), plan.noises, strict=True)) <= 1
    assert plan.guarantee.epsilon.safe == pytest.approx(1.0, rel=1e-7)


def test_the_ledger_is_part_of_a_total():
    before = Process((Step(DiscreteGauss(sigma=10.0)),), "add-remove")
    plan = planned([Count()], Limits(), Budget(1.0, 1e-6, before=before))
    in_all = total(before, plan.guarantee)
    assert plan.guarantee.epsilon.safe < in_all.epsilon.safe <= 1
    assert spreads(plan)[0] > 4.2307794


def test_what_cannot_be_is_refused_by_name():
    with pytest.raises(Unsupported, match="unknown keys"):
        planned([Count()], Limits(1), PURE, by=True, keys=0)
    with pytest.raises(UsageError, match="max_groups"):
        planned([Count()], Limits(), by=True)
    with pytest.raises(UsageError, match="max_rows"):
        planned([Sum("x", 0, 5)], Limits())
    with pytest.raises(UsageError, match="coarser"):
        planned([Sum("x", 0, 100, "2^-20")], Limits(rows=1), PURE)
    with pytest.raises(UsageError, match="coarser"):
        planned([Sum("x", 0, "2^60")], Limits(rows=1))
    with pytest.raises(UsageError, match="bounds"):
        Sum("x")
