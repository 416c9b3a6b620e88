"""Exact noise: its table beside probabilities in high precision, its words, and its frequencies."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from mpmath import mp, mpf
from scipy.stats import binom, chi2

from tests import nightly
from wpriv import Mean
from wpriv.releases import aggregate, sampling
from wpriv.releases.sampling import GAUSS, LAPLACE, WORD, Noise

KEY = bytes(range(32))


def exact_weights(noise: Noise, reach: int) -> dict[int, mpf]:
    """Literal probabilities by mpmath, to 120 digits, of k from -reach to reach."""
    s = mpf(noise.spread)
    power = (lambda k: -(mpf(k) ** 2) / (2 * s**2)) if noise.family == GAUSS else (lambda k: -abs(k) / s)
    weights = {k: mp.exp(power(k)) for k in range(-reach, reach + 1)}
    total = sum(weights.values())
    return {k: weight / total for k, weight in weights.items()}


@pytest.mark.parametrize(
    ("family", "spread"), [(GAUSS, 0.3), (GAUSS, 1.0), (GAUSS, 4.2307794), (LAPLACE, 1.0), (LAPLACE, 2.7)]
)
def test_the_table_has_the_whole_parts_of_exact_cumulative_probabilities(family, spread):
    with mp.workdps(120):
        noise = Noise(family, spread)
        reach = int(40 * spread + 20) if family == GAUSS else int(300 * spread)
        p = exact_weights(noise, reach)
        entries, first = sampling._entries(family, spread)
        cumulative = mp.mpf(0)
        wanted = {}
        for k in range(-reach, reach + 1):
            cumulative += p[k]
            wanted[k] = int(mp.floor(cumulative * 2**WORD))
        for place, entry in enumerate(entries[:-1].tolist()):
            assert entry == wanted[first + place]
        assert wanted[first - 1] == 0, "words below the table name no value without further words"


def test_a_word_on_a_boundary_is_decided_by_further_words():
    noise = Noise(GAUSS, 1.0)
    entries, first = sampling._entries(GAUSS, 1.0)
    place = 25
    finer, start = sampling._thresholds(GAUSS, 1.0, 2 * WORD)
    boundary = finer[first + place - start]
    assert boundary >> WORD == entries[place], "both tables hold the same cumulative probability"
    rest = boundary & (2**WORD - 1)
    below = noise.of_words(entries[place : place + 1], lambda: (rest - 1).to_bytes(8, "little"))
    above = noise.of_words(entries[place : place + 1], lambda: (rest + 1).to_bytes(8, "little"))
    assert below.tolist() == [first + place]
    assert above.tolist() == [first + place + 1]


def test_the_least_and_the_largest_word_reach_far_into_the_tails():
    words = np.array([0, 2**64 - 1], np.uint64)
    low, _ = Noise(GAUSS, 1.0).of_words(words, lambda: (2**63).to_bytes(8, "little")).tolist()
    assert low <= -9  # P(Z <= -9) is below 2^-62


@pytest.mark.parametrize(
    ("noise", "table"),
    [
        (Noise(GAUSS, 4.2307794), True),
        (Noise(LAPLACE, 3.0), True),
        (Noise(GAUSS, 3.3), False),
        (Noise(LAPLACE, 2.5), False),
    ],
)
def test_frequencies_of_draws_are_those_of_the_distribution(noise, table, monkeypatch):
    """Chi-squared over all values expected ten times or more; a right sampler fails once in a million."""
    if not table:
        monkeypatch.setattr(sampling, "TABLE", 0.0)
    count = 50_000 if table else 6_000
    draws = Counter(noise.draw(KEY, 3, count))
    with mp.workdps(30):
        p = {k: float(value) for k, value in exact_weights(noise, 60).items()}
    often = [k for k in p if p[k] * count >= 10]
    rest = 1 - sum(p[k] for k in often)
    seen = [draws[k] for k in often] + [count - sum(draws[k] for k in often)]
    wanted = [p[k] * count for k in often] + [rest * count]
    statistic = sum((s - w) ** 2 / w for s, w in zip(seen, wanted, strict=True))
    assert statistic < chi2.isf(1e-6, len(often))


@pytest.mark.parametrize(
    ("noise", "variance", "half"),
    [
        (Noise(GAUSS, 0.5), 0.215013, 1),
        (Noise(GAUSS, 1.0), 0.9999998, 2),
        (Noise(GAUSS, 4.2307794), 17.8995, 8),
        (Noise(LAPLACE, 1.0), 1.84135, 3),
        (Noise(GAUSS, 12.667839), 160.474, 25),
        (Noise(GAUSS, 760.44234), 578273, 1490),
    ],
)
def test_variance_and_interval_are_those_of_the_specification(noise, variance, half):
    assert noise.variance() == pytest.approx(variance, rel=3e-6)
    assert noise.half_width() == half


@pytest.mark.parametrize("family", [GAUSS, LAPLACE])
def test_the_interval_is_the_least_that_holds_enough(family):
    for spread in (0.2, 0.9, 3.0, 17.3):
        noise = Noise(family, spread)
        with mp.workdps(30):
            p = exact_weights(noise, int(60 * spread) + 10)
        inside = [sum(p[k] for k in range(-h, h + 1)) for h in range(noise.half_width() + 1)]
        assert inside[-1] >= 0.95
        assert len(inside) == 1 or inside[-2] < 0.95


def test_the_two_formulas_for_wide_noise_meet():
    at = sampling.SUMMED
    for low, high in pairwise([Noise(GAUSS, at * factor) for factor in (0.9999, 1.0001)]):
        assert 0 <= high.half_width() - low.half_width() <= 2
        assert low.tail(round(3 * at)) == pytest.approx(high.tail(round(3 * at)), rel=5e-3)


def test_tails_are_bounds_from_above():
    for noise in (Noise(GAUSS, 2.0), Noise(LAPLACE, 1.5)):
        with mp.workdps(30):
            p = exact_weights(noise, 120)
            exact = float(sum(p[k] for k in range(7, 121)))
        assert exact <= noise.tail(7) <= exact * (1 + 1e-8)


def test_parts_of_a_key_have_other_draws_and_a_key_repeats_its_own():
    noise = Noise(GAUSS, 100.0)
    assert noise.draw(KEY, 0, 8) == noise.draw(KEY, 0, 8)
    assert noise.draw(KEY, 0, 8) != noise.draw(KEY, 1, 8)


def test_wide_noise_is_drawn_too():
    draws = np.array(Noise(GAUSS, 5.9e14).draw(KEY, 0, 400), float) / 5.9e14
    assert abs(draws.mean()) < 0.3
    assert 0.8 < draws.std() < 1.2


# exact rationals, tails, and independence


def exponential(x: Fraction, terms: int = 60) -> tuple[Fraction, Fraction]:
    """Rational bounds of e^-x from its series at x / 2^s <= 1/2, squared s times; the rest is below the last term."""
    doublings = max(0, math.ceil(math.log2(x)) + 1) if x > 0 else 0
    small = x / 2**doublings
    term, low, high = Fraction(1), Fraction(0), Fraction(0)
    for place in range(terms):
        low, high = low + term, high + term
        term = -term * small / (place + 1)
    low, high = min(low, low + term), max(high, high + term)
    for _ in range(doublings):
        low, high = (Fraction(math.floor(low**2 * 2**400), 2**400), Fraction(math.ceil(high**2 * 2**400), 2**400))
    return low, high


@pytest.mark.parametrize(("family", "spread"), [(GAUSS, 0.7), (GAUSS, 2.0), (LAPLACE, 0.5), (LAPLACE, 1.1)])
def test_entries_lie_between_exact_rationals(family, spread):
    """F(k) from rational bounds of each weight, and of the tail by a geometric series: no rounding anywhere."""
    entries, first = sampling._entries(family, spread)
    exact, reach = Fraction(spread), 3 - first
    weights = [exponential(k**2 / (2 * exact**2) if family == GAUSS else k / exact) for k in range(1, reach)]
    ratio = exponential((reach + Fraction(1, 2)) / exact**2 if family == GAUSS else 1 / exact)[1]
    tail = exponential(reach**2 / (2 * exact**2) if family == GAUSS else reach / exact)[1] / (1 - ratio)
    low_half, high_half = sum(low for low, _ in weights), sum(high for _, high in weights) + tail
    below_low = below_high = Fraction(0)
    checked = 0
    for k in range(1 - reach, reach):
        low, high = (Fraction(1), Fraction(1)) if k == 0 else weights[abs(k) - 1]
        below_low, below_high = below_low + low, below_high + high
        if not 0 <= k - first < len(entries) - 1:
            continue
        entry = int(entries[k - first])
        assert entry <= (below_high + tail) / (1 + 2 * low_half) * 2**WORD
        assert entry + 1 > below_low / (1 + 2 * high_half) * 2**WORD
        checked += 1
    assert checked == len(entries) - 1


@pytest.mark.parametrize("family", [GAUSS, LAPLACE])
@pytest.mark.parametrize("table", [True, False])
def test_tails_are_as_frequent_as_they_should_be(family, table, monkeypatch):
    """Draws beyond 1.5, 3 and 4 spreads on either side: binomial, so that a right sampler fails once in a million."""
    if not table:
        monkeypatch.setattr(sampling, "TABLE", 0.0)
    noise, count = Noise(family, 6.0), 200_000 if table else 4_000
    draws = np.array(noise.draw(KEY, 5, count))
    with mp.workdps(30):
        p = exact_weights(noise, 240)
    for far in (9, 18, 24):
        chance = float(sum(p[k] for k in range(far, 241)))
        for number in ((draws >= far).sum(), (draws <= -far).sum()):
            assert min(binom.sf(number - 1, count, chance), binom.cdf(number, count, chance)) > 1e-6 / 24


def test_neighbouring_draws_are_independent():
    """Chi-squared on pairs of successive draws, and of draws of two parts; a right sampler fails once in a million."""
    noise = Noise(GAUSS, 3.0)
    draws = np.array(noise.draw(KEY, 1, 40_001))
    other = np.array(noise.draw(KEY, 2, 40_000))
    classes = np.digitize(draws, [-2, 0, 1, 3])
    for second in (classes[1:], np.digitize(other, [-2, 0, 1, 3])):
        table = np.zeros((5, 5))
        np.add.at(table, (classes[:-1], second), 1)
        wanted = table.sum(1, keepdims=True) * table.sum(0, keepdims=True) / table.sum()
        assert ((table - wanted) ** 2 / wanted).sum() < chi2.isf(1e-6, 16)


# intervals


@pytest.mark.parametrize("people", [10, 30, 300, 3000])
def test_fiellers_interval_of_a_mean_holds_it_as_often_as_is_said(people):
    """Coverage of .949 to .951 for 10 to 3000 rows, within five standard errors of the draws; a delta method has .996
    at 10 rows."""
    draws = 20_000 if nightly.WHOLE else 2_000
    output, count, total = Mean("x", 0, 60), Noise(GAUSS, 5.9745993), Noise(GAUSS, 179.24)
    exact = people * 12
    counts = np.array(count.draw(KEY, 0, draws)) + people
    sums = np.array(total.draw(KEY, 1, draws)) + exact
    inside = 0
    for number, sum_ in zip(counts.tolist(), sums.tolist(), strict=True):
        value, interval, _ = aggregate.mean(output, number, sum_, count, total, 4, "")
        low, high = map(float, interval)
        inside += low <= 30 + 12 <= high
        assert number < 1 or low - 1e-4 <= value <= high + 1e-4
    assert abs(inside / draws - 0.95) < 0.001 + 5 * math.sqrt(0.95 * 0.05 / draws)


@pytest.mark.parametrize("noise", [Noise(GAUSS, 4.2307794), Noise(LAPLACE, 180.0), Noise(GAUSS, 5000.0)])
def test_the_interval_of_a_count_holds_it_as_often_as_is_said(noise):
    """With probability .95 or more, and less than the mass of two more values beyond it, in 20,000 draws."""
    draws = np.abs(noise.draw(KEY, 7, 20_000))
    half, error = noise.half_width(), 5 * math.sqrt(0.95 * 0.05 / 20_000)
    assert (draws <= half).mean() >= 0.95 - error
    assert (draws <= half - 1).mean() < 0.95 + error
