"""Exact noise: its table beside probabilities in high precision, its words, and its frequencies."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from mpmath import mp, mpf
from scipy.stats import chi2

from wpriv.releases import sampling
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
