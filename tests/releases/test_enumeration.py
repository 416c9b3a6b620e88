"""The whole privacy loss of small releases: all small neighbouring tables, and all that a release can say of each.

A release adds independent noise to integers. So its loss on two tables is that of the shift of the integers, which is
read from the release itself without noise; its divergence is a sum over all outcomes in doubles. The statement of the
release must be at least the largest, and equal to it where it is called exact.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from tests import nightly
from wpriv import BinCounts, Count, Mean, Sum
from wpriv.accounting import evaluate
from wpriv.accounting.mechanisms.exponential import Exponential
from wpriv.core.process import Process, Step
from wpriv.releases import aggregate, plan, tables
from wpriv.releases.noise_plan import Budget
from wpriv.releases.outputs import Limits
from wpriv.releases.plan import Question
from wpriv.releases.sampling import GAUSS, Selection

WIDE = Budget(3.0, 0.05)  # little noise, so that few outcomes matter
PURE = Budget(3.0, 0.0, "laplace")
LEVELS = (0.2, 1.0, 2.5)
KEYS, VALUES = ("A", "B"), ("0", "2", "-1")
ROWS = [(key, value) for key in KEYS for value in (*VALUES, "")]


def planned(outputs, groups, rows, budget, by, keys=KEYS):
    about = {"by": "key", "keys": keys} if by else {}
    return plan.plan(Question("id", tuple(outputs), Limits(groups, rows), budget, **about), "t")


def exact_integers(about, rows, key):
    """The integers of each number before noise, by (output, key, bin); for unknown keys, of all that someone holds."""
    columns = {name: [row[place] for row in rows] for place, name in enumerate(("id", "key", "x"))}
    numbers = aggregate.released(about, tables.table(columns).blocks(list(columns)), key)
    return {
        (each["name"], each["key"], each.get("bin")): tuple(each["parts"].values())
        if "parts" in each
        else (int(Fraction(each["value"]) / grid(each)),)
        for each in numbers
    }


def grid(number):
    return Fraction(number["grid"] or 1)


def small_tables(others, most):
    """Rows of other people, and of one person, up to a number of each."""
    for base in range(others + 1):
        for some in itertools.combinations_with_replacement(ROWS, base):
            rest = [(f"q{place % 2}", *row) for place, row in enumerate(some)]
            yield (
                rest,
                [
                    [("p", *row) for row in mine]
                    for size in range(1, most + 1)
                    for mine in itertools.combinations_with_replacement(ROWS, size)
                ],
            )


@functools.cache
def distribution(noise, reach):
    k = np.arange(-reach, reach + 1)
    w = np.exp(-((k / noise.spread) ** 2) / 2) if noise.family == GAUSS else np.exp(-np.abs(k) / noise.spread)
    return k, w / w.sum()


def reach_of(noise):
    return math.ceil(7 * noise.spread if noise.family == GAUSS else 24 * noise.spread) + 2


def shifted(noise, shift):
    """The two distributions of one noisy integer, over the same outcomes."""
    w = distribution(noise, reach_of(noise))[1]
    zeros = np.zeros(abs(shift))
    return np.concatenate([w, zeros]), np.concatenate([zeros, w])


def divergence(pairs, eps):
    """The larger of both hockey-stick divergences of a product of pairs."""
    p = q = np.ones(1)
    for a, b in pairs:
        p, q = np.multiply.outer(p, a).ravel(), np.multiply.outer(q, b).ravel()
    t = math.exp(eps)
    return max(float(np.maximum(p - t * q, 0).sum()), float(np.maximum(q - t * p, 0).sum()))


# outputs, L, M, by, and whether one person attains all maxima
RELEASES = [
    ("persons", [Count()], None, None, False, True),
    ("rows", [Count("rows")], None, 2, False, True),
    ("sum", [Sum("x", -1, 2, 1)], None, 2, False, True),
    ("mean", [Mean("x", 0, 3, 1)], None, 2, False, True),
    ("histogram", [BinCounts("x", (-1, 1, 2))], 2, 1, False, True),
    ("histogram of persons", [BinCounts("x", (-1, 0, 2), of="persons", outside="clip")], 1, None, False, True),
    ("persons by key", [Count()], 2, None, True, True),
    ("one key of two", [Count("rows")], 1, 2, True, True),
    ("sum by key", [Sum("x", 0, 2, 1)], 2, 1, True, True),
    ("all and by key", [Count(overall=True), Count()], 2, None, True, True),
    ("count and sum", [Count(), Sum("x", -1, 2, 1, weight=2)], None, 1, False, True),
    ("rows and a clipped sum", [Count("rows"), Sum("x", -1, 0, 1)], None, 2, False, True),
    ("sum and opposite bins", [Sum("x", -1, 2, 1), BinCounts("x", (-1, 0))], 1, 1, False, False),
]  # fmt: skip


CASES = [
    pytest.param(*case, budget, id=f"{name}, {budget.family}") for name, *case in RELEASES for budget in (WIDE, PURE)
]


@pytest.mark.parametrize(("outputs", "groups", "rows", "by", "attained", "budget"), nightly.sharded(CASES, 3))
def test_no_neighbours_lose_more_than_is_stated(noiseless, outputs, groups, rows, by, attained, budget):
    about = planned(outputs, groups, rows, budget, by)
    others, most = (2, 3) if nightly.WHOLE else (1, 2)
    shifts = set()
    for key in (b"k" * 32, b"l" * 32):
        for rest, persons in small_tables(others, most):
            before = exact_integers(about, rest, key)
            for mine in persons:
                after = exact_integers(about, [*mine[:1], *rest, *mine[1:]], key)
                assert before.keys() == after.keys()
                shifts.add(tuple(abs(a - b) for at in before for a, b in zip(after[at], before[at], strict=True)))
    noises = []
    for place, output in enumerate(about.question.outputs):
        parts = [about.noise.noises[part] for part in about.parts_of(place)]
        noises += parts * (len(output.bins()) * (len(KEYS) if about.question.has_keys(output) else 1))
    curve = evaluate.curve(about.process, "pld")
    for eps in LEVELS:
        losses = [
            divergence([shifted(noise, by_) for by_, noise in zip(shift, noises, strict=True) if by_], eps)
            for shift in shifts
        ]
        stated = curve.at(eps=eps).delta.safe
        assert max(losses) <= stated * (1 + 1e-7) + 1e-11
        if attained:
            assert max(losses) == pytest.approx(stated, rel=1e-5, abs=1e-9)


# unknown keys


def pair_of_key(integers, noises, threshold):
    """The two distributions of what one unknown key shows: nothing, which comes first, or its noisy integers."""
    held = [each for each in integers if each is not None]
    grids = [
        np.arange(min(values) - reach_of(noise), max(values) + reach_of(noise) + 1)
        for noise, values in zip(noises, zip(*held, strict=True), strict=True)
    ]
    grids[0] = np.arange(threshold + 1, max(grids[0][-1], threshold + 1) + 1)
    pair = []
    for each in integers:
        shown = np.ones(1)
        for noise, grid_, value in zip(noises, grids, each or [None] * len(grids), strict=True):
            k, w = distribution(noise, reach_of(noise))
            p = np.zeros(len(grid_)) if value is None else np.interp(grid_ - value, k, w, left=0, right=0)
            shown = np.multiply.outer(shown, p).ravel()
        pair.append(np.concatenate([[1 - shown.sum()], shown]))
    return tuple(pair)


@pytest.mark.parametrize("outputs", [[Count()], [Count(), Sum("x", -1, 2, 1)]], ids=["persons", "persons and sum"])
@pytest.mark.parametrize("budget", [WIDE, Budget(3.0, 0.05, "laplace")], ids=["gauss", "laplace"])
def test_no_neighbours_with_unknown_keys_lose_more_than_is_stated(noiseless, outputs, budget):
    """Keys of a person that 0, 1, or about as many others as the threshold hold."""
    about = planned(outputs, 2 if len(outputs) == 1 else 1, 1, budget, by=True, keys="unknown")
    noises, threshold = about.noise.noises, about.noise.threshold
    shows_all = dataclasses.replace(about, noise=dataclasses.replace(about.noise, threshold=0))
    names = [output.name for output in about.question.outputs]

    def of_keys(rows):
        exact = exact_integers(shows_all, rows, b"k" * 32)
        held = {key for _, key, _ in exact}
        return [tuple(v for name in names for v in exact[name, key, None]) if key in held else None for key in KEYS]

    seen = set()
    sizes = (0, 1, 2, threshold, 12) if nightly.WHOLE else (0, 1, threshold)
    for many, few in itertools.combinations_with_replacement(sizes, 2):
        rest = [(f"q{key}{i}", key, "2") for key, size in zip(KEYS, (many, few), strict=True) for i in range(size)]
        before = of_keys(rest)
        for mine in itertools.chain(*(itertools.combinations(ROWS, size) for size in (1, 2))):
            after = of_keys([("p", *row) for row in mine] + rest)
            seen.add(tuple(pair for pair in zip(before, after, strict=True) if pair[0] != pair[1]))
    assert len(seen) > 5
    curve = evaluate.curve(about.process, "pld")
    for eps in LEVELS:
        worst = max(divergence([pair_of_key(pair, noises, threshold) for pair in pairs], eps) for pairs in seen)
        assert 0 < worst <= curve.at(eps=eps).delta.safe * (1 + 1e-7)


# quantiles


def weights(selection, values):
    """The weight of each point of the grid."""
    stretches = list(selection.segments(values))
    each = selection.weights([distance for _, _, distance in stretches])
    return np.array([float(w) for w, (_, width, _) in zip(each, stretches, strict=True) for _ in range(width)])


@pytest.mark.parametrize(
    ("share", "eps0", "rows", "points", "most"),
    [
        ("1/2", 1.0, 1, 5, 4),
        ("1/2", 1.0, 2, 4, 3),
        ("1/4", 1.0, 1, 5, 3),
        ("9/10", 1.0, 1, 4, 3),
        ("1/2", 90.0, 1, 4, 6),
    ],
)
def test_a_quantile_loses_at_most_its_range_and_attains_it(share, eps0, rows, points, most):
    """All tables of up to ``most`` rows on a few points, and all rows of one person more; at 90 weights are capped."""
    selection = Selection(Fraction(share), eps0, rows, 0, points - 1)
    stated = evaluate.curve(Process((Step(Exponential(eps0=eps0)),)), "pld")
    widest, worst = 0.0, dict.fromkeys((0.1 * eps0, 0.5 * eps0, 0.9 * eps0), 0.0)
    for size in range(most + 1):
        for values in itertools.combinations_with_replacement(range(points), size):
            p = weights(selection, values)
            for more in range(1, rows + 1):
                for added in itertools.combinations_with_replacement(range(points), more):
                    q = weights(selection, sorted(values + added))
                    loss = np.log(p / p.sum()) - np.log(q / q.sum())
                    widest = max(widest, float(np.ptp(loss)))
                    for eps in worst:
                        worst[eps] = max(worst[eps], divergence([(p / p.sum(), q / q.sum())], eps))
    assert widest <= eps0 * (1 + 1e-12)
    if share == "1/2":
        assert widest == pytest.approx(eps0)
    assert all(loss <= stated.at(eps=eps).delta.safe for eps, loss in worst.items())


def test_a_quantile_weighs_points_as_a_literal_count_of_ranks_does():
    rng = np.random.default_rng(1)
    for share in ("1/2", "1/4", "9/10", "1/3"):
        selection = Selection(Fraction(share), 0.7, 3, -4, 9)
        a, b = selection.share.numerator, selection.share.denominator
        for size in (0, 1, 2, 17):
            values = sorted(rng.integers(-4, 10, size).tolist())
            literal = [
                abs((b - a) * sum(x < y for x in values) - a * sum(x > y for x in values)) for y in range(-4, 10)
            ]
            distances = [distance for _, width, distance in selection.segments(values) for _ in range(width)]
            assert distances == literal
            exact = np.exp(-0.7 * (np.array(literal) - min(literal)) / (2 * 3 * max(a, b - a)))
            assert weights(selection, values) / 2.0**200 == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize(
    ("share", "eps0", "values"),
    [("1/2", 1.0, [7] * 50), ("9/10", 0.3, list(range(0, 64, 3)) * 9), ("1/4", 2.0, []), ("1/2", 0.1, [3] * 5),
     ("1/2", 1.0, [0] * 7844 + [1] * 4841 + [2] * 7315), ("9/10", 1.0, [9] * 100_000)],
)  # fmt: skip
def test_the_error_in_ranks_holds_as_often_as_is_said(share, eps0, values):
    """Exact probabilities: the score is within 2 Delta / eps0 ln(points / .05) of the best with .95 or more.

    With thousands of ties the best distance is itself in the thousands: a cap of distances makes all points alike.
    """
    selection = Selection(Fraction(share), eps0, 1, 0, 63)
    distances = np.repeat(*zip(*((distance, width) for _, width, distance in selection.segments(values)), strict=True))
    w = weights(selection, values)
    near = distances - distances.min() <= selection.rank_error() * selection.share.denominator
    assert w[near].sum() >= 0.95 * w.sum()
