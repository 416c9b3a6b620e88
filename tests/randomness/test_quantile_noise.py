"""Normal and Laplace noise are right to the last of 2^64 quantiles, and the key alone determines them."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from scipy import stats

from wpriv import randomness
from wpriv.randomness import Keystream

LEVEL = 1e-6  # chance that a test of a distribution fails though it is right, for a random seed; these are fixed
DRAWS = {"normal": (randomness.normal, stats.norm.cdf), "laplace": (randomness.laplace, stats.laplace.cdf)}


@pytest.mark.slow
@pytest.mark.parametrize("kind", DRAWS)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_distribution_is_right_by_kolmogorov_and_smirnov(kind, seed):
    draw, cdf = DRAWS[kind]
    noise = draw(randomness.words(randomness.key("privatize", seed), 0, 200_000))
    assert stats.kstest(noise, cdf).pvalue > LEVEL
    # signs and magnitudes come from different bits: independent, by a rank correlation
    assert stats.spearmanr(np.signbit(noise), np.abs(noise)).pvalue > LEVEL
    assert stats.spearmanr(noise[:-1], noise[1:]).pvalue > LEVEL


@pytest.mark.parametrize(
    ("kind", "chance"),
    [("normal", lambda z: mpmath.erfc(z / mpmath.sqrt(2)) / 2), ("laplace", lambda z: mpmath.exp(-z) / 2)],
)
def test_every_word_is_the_quantile_that_its_bits_name(kind, chance):
    sizes = np.array([0, 1, 2, 1000, 2**40, 2**53, 2**62, 2**63 - 1], np.uint64)
    for sign in (0, 1):
        noise = DRAWS[kind][0](sizes << np.uint64(1) | np.uint64(sign))
        assert (noise >= 0).all() if sign else (noise <= 0).all()
        for k, z in zip(sizes, np.abs(noise), strict=True):
            wanted = (mpmath.mpf(int(k)) + 0.5) / 2**64  # the chance of a larger value, by mpmath
            assert abs(chance(mpmath.mpf(float(z))) / wanted - 1) < 1e-13


def test_the_ends_of_the_tails_are_those_that_the_statement_names():
    last = np.zeros(1, np.uint64)
    assert f"{randomness.normal(last)[0]:.1f} {randomness.laplace(last)[0]:.1f}" == "-9.2 -44.4"


@pytest.mark.parametrize("bits", [10, 25, 40])
@pytest.mark.parametrize(("kind", "p"), [("normal", 2), ("laplace", 1)])
def test_quantiles_are_further_apart_than_the_grid_with_the_stated_chance(kind, p, bits):
    chance, cells = randomness.chance_of_gaps(p, 2.0**bits), 2.0**bits
    for share, is_apart in ((0.9, True), (1.1, False)):  # of the words that are so far out, on both sides
        first = int(chance * share * 2**63)
        with mpmath.workdps(60):
            places = [(mpmath.mpf(first + k) + 0.5) / 2**64 for k in (0, 1)]
            if kind == "normal":
                near, far = (-mpmath.sqrt(2) * mpmath.erfinv(1 - 2 * place) for place in places)
            else:
                near, far = (mpmath.log(2 * place) for place in places)
            assert bool(abs(far - near) * cells > 1) == is_apart


def test_parts_of_a_key_differ_and_keys_of_the_system_differ():
    key = randomness.key("privatize", 7)
    assert key == randomness.key("privatize", 7) != randomness.key("privatize", 8)
    first, second = randomness.words(key, 0, 1000), randomness.words(key, 1, 1000)
    assert not np.intersect1d(first, second).size
    assert np.array_equal(randomness.words(key, 0, 10), first[:10])
    assert randomness.key("privatize", None) != randomness.key("privatize", None)
    assert len(randomness.key("privatize", None)) == 32


def test_words_are_those_of_the_keystream_from_the_counter_of_their_part():
    key = bytes(range(32))
    wanted = Keystream(key, 3 * 2**64).read(16)
    assert randomness.words(key, 3, 2).tolist() == [
        int.from_bytes(wanted[:8], "little"),
        int.from_bytes(wanted[8:], "little"),
    ]
