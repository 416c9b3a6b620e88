"""Laws of sums of lognormal terms and the covariances they need: against closed forms, sampling and the order."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import norm

from wpriv.accounting.mechanisms import _lognormal_chains
from wpriv.accounting.mechanisms._covariance_choice import (
    Ring,
    factored,
    line_of,
    pairs_of,
    pilot,
    ring_above,
    ring_below,
)
from wpriv.accounting.mechanisms._few_values import values_above, values_below
from wpriv.accounting.mechanisms._lognormal_chains import added_variable, chain_law
from wpriv.accounting.mechanisms._lognormal_sums import (
    LATTICES,
    Factored,
    Grid,
    completed,
    lattice_variance,
    law_above,
    law_below,
    nodes_of,
    offset_rounding,
    rows_above,
    rows_below,
    rule,
)

DELTA = 1e-5


def banded_gram(bins, scale=0.28, correlations=(0.5, 0.23, 0.09)):
    row = np.zeros(bins)
    row[0] = 1
    for k, value in enumerate(correlations, start=1):
        row[k] = value
    return scale * row[np.abs(np.subtract.outer(np.arange(bins), np.arange(bins)))]


def call(law, k):
    return float(law.mass @ np.maximum(law.values - k, 0)) + law.lost


def sampled_call(covariance, k, draws=100_000):
    """The call of the mean of lognormal terms, from terms that are shifted towards a random one of them."""
    bins, random = len(covariance), np.random.default_rng(3)
    half = np.diagonal(covariance) / 2
    root = np.linalg.cholesky(covariance + 1e-12 * np.eye(bins))
    y = random.standard_normal((draws, bins)) @ root.T + 1.5 * covariance[random.integers(bins, size=draws)]
    weight = np.exp(1.5 * y - 1.5**2 * half).mean(axis=1)
    values = np.maximum(np.exp(y - half).mean(axis=1) - k, 0) / weight
    return float(values.mean()), float(values.std()) / math.sqrt(draws)


def test_one_term_has_the_calls_of_black_and_scholes():
    variance = 0.5
    covariance = Factored(0.0, np.zeros((1, 0)), np.array([variance]))
    above, below = (law_of(covariance, DELTA, 2.0, 1e9) for law_of in (law_above, law_below))
    for k in (0.7, 1.5, 4.0):
        upper = (-math.log(k) + variance / 2) / math.sqrt(variance)
        exact = ndtr(upper) - k * ndtr(upper - math.sqrt(variance))
        assert call(below, k) <= exact <= call(above, k)
        assert call(above, k) == pytest.approx(call(below, k), rel=0.05, abs=1e-6)


@pytest.mark.parametrize("reach", [40, 300])
def test_terms_above_keep_their_mass_and_lose_the_call_at_the_last_place_alone(reach):
    variance, grid = 0.6, Grid(0.01, 1024, reach)
    rows = rows_above(np.array([0.0, 0.5]), variance, 2, grid)
    last = grid.step * (rows.masses.shape[1] - 1)
    for scale, masses, beyond in zip(np.exp(rows.logs) / 2, rows.masses, rows.beyond, strict=True):
        upper = (math.log(scale / last) + variance / 2) / math.sqrt(variance)
        call_beyond = scale * ndtr(upper) - last * ndtr(upper - math.sqrt(variance))
        assert 1 <= masses.sum() <= 1 + 1e-8
        assert beyond == pytest.approx(call_beyond, rel=1e-9)
        assert masses @ grid.places[: masses.size] + beyond >= scale * (1 - 1e-15)


@pytest.mark.parametrize(("variance", "step"), [(0.3, 1e-4), (0.05, 2e-3)])
def test_means_of_places_are_right_to_their_rounding(variance, step):
    grid, bins = Grid(step, 1 << 16, 40_000), 100
    rows = rows_below(np.array([0.7]), variance, bins, grid, 1e-10)
    rounding, deviation = offset_rounding(variance, rows.off.shape[1], grid), mpmath.sqrt(variance)
    kept = np.flatnonzero(rows.masses[0])
    with mpmath.workdps(40):
        mean = mpmath.exp(0.7) / bins
        for place in kept[1 :: kept.size // 10].tolist():
            low, high = (
                (mpmath.log(step * (place + half)) - mpmath.log(mean)) / deviation + deviation / 2
                for half in (-0.5, 0.5)
            )
            mass = mpmath.ncdf(high) - mpmath.ncdf(low)
            share = mpmath.ncdf(high - deviation) - mpmath.ncdf(low - deviation)
            assert abs(float(mean * share / mass - step * place) - rows.off[0, place]) <= rounding


def test_a_law_below_raises_no_outcome_to_the_value_of_a_lower_one():
    """Of four outcomes above the mean the third has the least known value."""
    places, mass = np.array([0.2, 0.9, 1.4, 1.5, 2.0, 2.5]), np.array([0.2, 0.4, 0.1, 0.1, 0.1, 0.05])
    low = np.array([0.0, 0.0, 0.0, 0.0, 0.08, 0.0])
    law = completed(mass, low, np.zeros(6), places, 0.0)
    for k in (1.3, 1.6, 2.2):
        assert call(law, k) <= mass @ np.maximum(places - low / mass - k, 0) + 1e-12


@pytest.mark.parametrize("sign", [-1, 1])
def test_law_with_factors_holds_the_sampled_call(sign):
    random = np.random.default_rng(0)
    covariance = Factored(0.0, random.normal(0, 0.25, (5, 2)), random.uniform(0.1, 0.3, 5))
    law = (law_above if sign > 0 else law_below)(covariance, DELTA, 1.0, 1e9)
    for k in (1.3, 2.0):
        mean, error = sampled_call(covariance.matrix, k)
        assert sign * (call(law, k) - mean) >= -3.3 * error
        assert call(law, k) == pytest.approx(mean, rel=0.03, abs=4 * error)


def ring_gram(bins, less=0.0):
    """Correlations with both neighbours on a ring, of which the last bin has less, as after the last step."""
    gram = banded_gram(bins, 0.28, (0.3, 0.1, 0.02))
    for k, value in enumerate((0.3, 0.1, 0.02), start=1):
        gram += 0.28 * value * (np.abs(np.subtract.outer(np.arange(bins), np.arange(bins))) == bins - k)
    factors = np.ones(bins)
    factors[-2:] -= less
    return gram * np.outer(factors, factors)


def chains(sign):
    gram, ones = ring_gram(14, 0.1 if sign < 0 else 0.0), np.ones((14, 14))
    ring = ring_above(gram[0], ones[0]) if sign > 0 else ring_below(gram + 0.05, ones)
    return {"ring": ring, "line": line_of(gram, ones, sign), "pairs": pairs_of(gram, ones, sign)}


@pytest.fixture
def little_work(monkeypatch):
    """Laws of chains that take less time, and are less narrow."""
    for name in ("LINE_WORK", "RING_WORK"):
        monkeypatch.setattr(_lognormal_chains, name, {1: 6e8, -1: 3e8})


@pytest.mark.parametrize("kind", ["ring", "line", "pairs"])
@pytest.mark.parametrize("sign", [-1, 1])
def test_law_of_a_chain_holds_the_sampled_call(sign, kind, little_work):
    chain = chains(sign)[kind]
    law = chain_law(chain, 14, sign, 1e-3)
    size = len(chain.matrix)
    whole = np.zeros((size, size) if sign > 0 else (14, 14))
    whole[:size, :size] = chain.matrix - chain.common
    mean, error = sampled_call(whole, 1.5)
    assert sign * (call(law, 1.5) - mean) >= -3.3 * error
    assert call(law, 1.5) == pytest.approx(mean, rel=0.1)
    # puts, of which the order of the neighbours is about
    put = float(law.mass @ np.maximum(0.6 - law.values, 0)) + 0.6 * law.at_zero
    sampled, error = sampled_call(whole, 0.6)
    assert sign * (put - (sampled - 1 + 0.6)) >= -3.3 * error
    assert put == pytest.approx(sampled - 1 + 0.6, rel=0.2, abs=4 * error)


@pytest.mark.parametrize("kind", ["ring", "line", "pairs"])
@pytest.mark.parametrize("sign", [-1, 1])
def test_a_chain_is_on_its_side_of_the_matrix_for_all_positive_vectors(sign, kind):
    chain, gram = chains(sign)[kind], ring_gram(14, 0.1 if sign < 0 else 0.0) + 0.05 * (sign < 0 and kind == "ring")
    size = len(chain.matrix)
    vectors = np.random.default_rng(2).exponential(size=(20_000, size)) ** 3
    if kind == "line" and sign > 0:
        # over some of the bins, of which the first and the last are no neighbours
        gram = banded_gram(14, 0.28, (0.3, 0.1, 0.02))
    difference = sign * (chain.matrix - gram[:size, :size])
    assert np.einsum("ni,ij,nj->n", vectors, difference, vectors).min() >= -1e-12


def test_covariance_of_a_ring_with_a_weak_link_is_the_inverse_of_its_precision():
    apart = np.abs(np.subtract.outer(np.arange(14), np.arange(14)))
    shares = np.append(np.ones(11), [0.96, 0.9, 0.8])
    ring = ring_below(0.3 * (0.7**apart + 0.6 * 0.7 ** (14 - apart)) * np.outer(shares, shares), np.ones((14, 14)))
    assert isinstance(ring, Ring)
    assert ring.link < ring.decay
    assert len(ring.runs) > 1
    precision = np.zeros((14, 14))
    for first, second, decay in [*((k, k + 1, ring.decay) for k in range(13)), (13, 0, ring.link)]:
        precision[[first, second], [first, second]] += 1 / (1 - decay**2)
        precision[first, second] = precision[second, first] = -decay / (1 - decay**2)
    precision -= np.eye(14)
    factors = np.concatenate([np.full(count, factor) for factor, count in ring.runs])
    whole = ring.common + np.outer(factors, factors) * ring.variance * np.linalg.inv(precision)
    assert np.allclose(whole + ring.specific * np.eye(14), ring.matrix, atol=1e-12)
    # the density of the chain, whose whole mass the decay around the ring gives
    assert np.linalg.slogdet(precision)[1] == pytest.approx(
        2 * math.log(1 - ring.returning) - 13 * math.log(1 - ring.decay**2) - math.log(1 - ring.link**2)
    )


@pytest.mark.parametrize(("size", "count"), [(1024, 100), (1536, 40), (256, 129)])
def test_what_is_added_to_a_sum_has_masses_mean_zero_and_no_high_frequencies(size, count):
    added = added_variable(size, count, 1e-9)
    spectrum = np.append(added.spectrum, np.zeros(size // 2 + 1 - added.spectrum.size))
    masses = np.fft.irfft(spectrum, size)
    places = (np.arange(size) + size // 2) % size - size // 2
    assert masses.min() >= -1e-15
    assert masses.sum() == pytest.approx(1, abs=1e-12)
    assert masses @ np.where(places == -(size // 2), 0, places) == pytest.approx(0, abs=1e-9)
    assert masses[np.abs(places) > added.far].sum() <= added.beyond
    means = np.fft.irfft(np.append(added.first, np.zeros(size // 2 + 1 - added.first.size)), size)
    assert np.abs(means - masses * np.where(places == -(size // 2), 0, places)).sum() <= added.rest


@pytest.mark.parametrize("factors", [0, 2, 4])
@pytest.mark.parametrize("sign", [-1, 1])
def test_chosen_covariance_is_on_its_side_for_all_positive_vectors(sign, factors):
    gram = banded_gram(8)
    weights = pilot(gram, DELTA).weights
    covariance = factored(gram, weights, factors, sign)
    # positive semidefinite plus nonnegative is copositive
    vectors = np.random.default_rng(2).exponential(size=(20_000, 8)) ** 3
    difference = sign * (covariance.matrix - gram)
    assert np.einsum("ni,ij,nj->n", vectors, difference, vectors).min() >= -1e-12
    assert abs((weights * difference).sum()) < {0: 0.5, 2: 0.2, 4: 0.1}[factors] * (weights * gram).sum()


def test_law_below_has_mass_and_mean_one():
    law = law_below(Factored(0.0, np.full((4, 1), 0.3), np.full(4, 0.2)), DELTA, 1.0, 1e9)
    assert law.mass.sum() == pytest.approx(1, abs=1e-12)
    assert law.mass @ law.values == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("factors", [1, 3, 4])
def test_rule_integrates_a_posterior_to_its_bound(factors):
    # the likelihood of one observation of precision 8 of each normal, at a place that is off the grid
    precision = 9.0
    ratio, error = rule(factors, 1e-7, halved=factors == 4)
    h = math.sqrt(ratio / precision)
    places = np.arange(-40, 41)
    terms = h * norm.pdf(h * places) * np.exp(-8 * (h * places - 0.37 * h) ** 2 / 2)
    even, odd = terms[places % 2 == 0].sum(), terms[places % 2 == 1].sum()
    exact = math.exp(-8 * (0.37 * h) ** 2 / 2 / precision) / math.sqrt(precision)
    value = (even + odd) ** factors
    if factors == 4:
        value += (even - odd) ** factors
    assert abs(value - exact**factors) <= error


def test_nodes_have_the_mass_and_the_means_of_their_factors():
    covariance = Factored(0.0, np.random.default_rng(1).normal(0, 0.3, (6, 4)), np.full(6, 0.15))
    nodes = nodes_of(covariance, DELTA, 1e6)
    assert nodes.mass.sum() == pytest.approx(1, abs=1e-6)
    assert np.allclose(nodes.mass @ np.exp(nodes.logs), 1, atol=1e-6)


def test_a_scale_between_two_of_the_lattice_is_below_a_small_lognormal():
    # Lemma 4: calls of the worst variables, on two scales, against those of the lognormal
    lattice = LATTICES[-1]
    deviation = math.sqrt(lattice_variance(lattice))
    for position in np.linspace(0.01, 0.99, 21):
        low, high = math.exp(-position * lattice), math.exp((1 - position) * lattice)
        for k in np.linspace(low, high, 15):
            upper = -math.log(k) / deviation + deviation / 2
            lognormal = ndtr(upper) - k * ndtr(upper - deviation)
            assert lognormal >= (high - k) * (1 - low) / (high - low)


@pytest.mark.parametrize("count", [6, 11, 30])
def test_few_values_enclose_the_calls_of_every_sum_of_powers_of_a_normal(count):
    loads, z = np.array([0.7, 0.5, 0.2]), np.linspace(-12, 14, 400_001)
    below, above = values_below(loads, count, 2.0), values_above(loads, count, 2.0, 1e-9)
    powers = np.exp(np.outer(loads, z) - loads[:, None] ** 2 / 2)
    for weights in ((1, 0, 0), (0, 0, 1), (0.1, 2, 0.5), (1, 1, 1)):
        exact = np.array(weights) @ powers
        for k in (0.3, 1.0, 2.5, 9.0):
            call = np.trapezoid(np.maximum(exact - k, 0) * norm.pdf(z), z)
            low = below.mass @ np.maximum(np.array(weights) @ below.factors - k, 0)
            high = above.mass @ np.maximum(np.array(weights) @ above.factors - k, 0) + above.lost * sum(weights)
            assert low <= call * (1 + 1e-7) + 1e-12
            assert high >= call * (1 - 1e-7)


@pytest.mark.parametrize("correlations", [(0.5,), (0.6, 0.25), (0.73, 0.49, 0.25)])
def test_a_line_above_is_above_the_mean_over_a_ring_of_bins(correlations, little_work):
    bins = 13
    gram = banded_gram(bins, 0.3, correlations)
    for k, value in enumerate(correlations, start=1):
        gram += 0.3 * value * (np.abs(np.subtract.outer(np.arange(bins), np.arange(bins))) == bins - k)
    law = chain_law(line_of(gram, np.ones((bins, bins)), 1), bins, 1, 1e-3)
    for k in (1.3, 2.0):
        mean, error = sampled_call(gram, k)
        assert call(law, k) >= mean - 3.3 * error
        assert call(law, k) <= 2.2 * mean
