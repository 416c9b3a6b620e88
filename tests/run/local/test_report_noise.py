"""The noise: Gauss and Laplace to the last of its 2^64 chances, and nothing but the key decides it."""

from __future__ import annotations

import hashlib

import mpmath
import numpy as np
import pytest
from scipy import stats

from wpriv.run.local import report_noise

LEVEL = 1e-6  # chance that a test of a law fails though the law is right, for a seed drawn at random; these are fixed
DRAWS = {"gauss": (report_noise.gauss, stats.norm.cdf), "laplace": (report_noise.laplace, stats.laplace.cdf)}


@pytest.mark.parametrize("law", DRAWS)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_law_is_right_by_kolmogorov_and_smirnov(law, seed):
    draw, cdf = DRAWS[law]
    found = draw(report_noise.words(report_noise.key(seed), 0, 200_000))
    assert stats.kstest(found, cdf).pvalue > LEVEL
    # signs and magnitudes come from different bits: independent, by a rank correlation
    assert stats.spearmanr(np.signbit(found), np.abs(found)).pvalue > LEVEL
    assert stats.spearmanr(found[:-1], found[1:]).pvalue > LEVEL


@pytest.mark.parametrize(
    ("law", "chance"),
    [("gauss", lambda z: mpmath.erfc(z / mpmath.sqrt(2)) / 2), ("laplace", lambda z: mpmath.exp(-z) / 2)],
)
def test_every_word_is_the_quantile_that_its_bits_name(law, chance):
    sizes = np.array([0, 1, 2, 1000, 2**40, 2**53, 2**62, 2**63 - 1], np.uint64)
    for sign in (0, 1):
        found = DRAWS[law][0](sizes << np.uint64(1) | np.uint64(sign))
        assert (found >= 0).all() if sign else (found <= 0).all()
        for k, z in zip(sizes, np.abs(found), strict=True):
            wanted = (mpmath.mpf(int(k)) + 0.5) / 2**64  # the chance of a larger value, by mpmath
            assert abs(chance(mpmath.mpf(float(z))) / wanted - 1) < 1e-13


def test_the_ends_of_the_tails_are_those_that_the_statement_names():
    last = np.zeros(1, np.uint64)
    assert f"{report_noise.gauss(last)[0]:.1f} {report_noise.laplace(last)[0]:.1f}" == "-9.2 -44.4"


def test_blocks_of_a_key_differ_and_keys_of_the_system_differ():
    own = report_noise.key(7)
    assert own == report_noise.key(7) != report_noise.key(8)
    first, second = report_noise.words(own, 0, 1000), report_noise.words(own, 1, 1000)
    assert not np.intersect1d(first, second).size
    assert np.array_equal(report_noise.words(own, 0, 10), first[:10])
    assert report_noise.key(None) != report_noise.key(None)
    assert len(report_noise.key(None)) == 32


def test_the_stream_is_that_of_shake_256():
    own = bytes(range(32))
    wanted = hashlib.shake_256(own + (3).to_bytes(8, "little")).digest(16)
    assert report_noise.words(own, 3, 2).tolist() == [
        int.from_bytes(wanted[:8], "little"),
        int.from_bytes(wanted[8:], "little"),
    ]
