"""Rounded normal noise has exactly its distribution: every number is that of the infinite bits of the stream."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable

import mpmath
import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from scipy import stats

from wpriv.errors import UsageError
from wpriv.training.noise import noise_stream
from wpriv.training.noise.noise_stream import ERROR_BOUND, Noise

KEY = bytes(range(1, 33))
MP = mpmath.mp.clone()
MP.dps = 400


def words(key: bytes, block: int, size: int) -> bytes:
    """AES-256 in counter mode from one counter on, by its definition: the encryption of the counters."""
    cipher = Cipher(algorithms.AES256(key), modes.ECB()).encryptor()
    count = -(-size // 16)
    return cipher.update(b"".join((block + place).to_bytes(16, "big") for place in range(count)))[:size]


def pairs(key: bytes, count: int) -> list[tuple[int, int]]:
    """The 62 bits of U and 64 of the angle of each pair of a draw, read from the stream by its layout."""
    main = struct.unpack(f"<{3 * count}i", words(key, 2, 12 * count))
    fine = struct.unpack(f"<{count}i", words(key, 2**127, 4 * count))
    share = [((main[k] & (2**31 - 1)) << 31) + (main[count + k] & (2**31 - 1)) for k in range(count)]
    angle = [((main[2 * count + k] << 32) + fine[k]) % 2**64 for k in range(count)]
    return list(zip(share, angle, strict=True))


def more_bits(key: bytes, pair: int, level: int) -> tuple[int, int]:
    block = words(key, 2**127 + 2**126 + (level << 64) + pair, 16)
    return int.from_bytes(block[:8], "big"), int.from_bytes(block[8:], "big")


def long_pair(share: int, angle: int, more: Callable[[int], tuple[int, int]], bits: tuple[int, int], levels: int = 6):
    """Both normal numbers of a pair from its first bits and six times 64 more of each, in 400 digits."""
    for level in range(1, levels + 1):
        words_ = more(level)
        share, angle = (share << 64) + words_[0], (angle << 64) + words_[1]
    u = (MP.mpf(share) + 0.5) / MP.mpf(2) ** (bits[0] + 64 * levels)
    turn = (MP.mpf(angle) + 0.5) / MP.mpf(2) ** (bits[1] + 64 * levels)
    length = MP.sqrt(-2 * MP.log(u))
    return length * MP.cospi(2 * turn), length * MP.sinpi(2 * turn)


def oracle(key: bytes, count: int) -> list[mpmath.mpf]:
    """The normal numbers of a draw of one piece, each to a hundred digits and more."""
    drawn = []
    for pair, (share, angle) in enumerate(pairs(key, count)):
        drawn.append(long_pair(share, angle, lambda level, pair=pair: more_bits(key, pair, level), (62, 64)))
    return [first for first, _ in drawn] + [second for _, second in drawn]


@pytest.mark.slow
def test_float64_noise_is_within_the_bound_on_its_error_that_exact_noise_counts_on():
    # oracle: mpmath in 400 digits on bits that the definition of the stream gives
    ours = Noise(KEY).normal(2000, 1.0, torch.float64).tolist()
    wanted = oracle(KEY, 1000)
    errors = [abs(float(one - other)) for one, other in zip(wanted, ours, strict=True)]
    assert max(errors) < ERROR_BOUND / 4


@pytest.mark.slow
@pytest.mark.parametrize("deviation", [0.3, 7.25, 2.0**20.5, 2.0**30, 2.0**37])
def test_exact_noise_is_the_rounded_normal_number_of_the_infinite_bits(deviation):
    # oracle: mpmath in 400 digits; at 2^37 half of the cells are ambiguous in float64
    ours = Noise(KEY).rounded_normal(600, deviation).tolist()
    assert ours == [float(MP.nint(number * deviation)) for number in oracle(KEY, 300)]


@pytest.mark.parametrize("count", [1, 601])
def test_numbers_that_float64_decides_are_those_that_intervals_decide(count):
    sent = Noise(KEY).rounded_normal(
        count, 2.0**20.5, error_bound=1.0
    )  # a bound of one standard deviation: all go to intervals
    assert torch.equal(sent, Noise(KEY).rounded_normal(count, 2.0**20.5))


@pytest.mark.parametrize("bits", [(1, 1), (8, 5), (20, 30)])
@pytest.mark.parametrize("second", [False, True])
def test_cells_that_the_first_bits_leave_open_are_decided_by_the_bits_that_follow(bits, second):
    # oracle: mpmath on all bits at once. So few of them leave nearly every cell open, and U may be 0
    random, open_cells = np.random.default_rng(bits[0]), 0
    for trial in range(40):
        share, angle = int(random.integers(2 ** bits[0])) * (trial % 3 > 0), int(random.integers(2 ** bits[1]))
        table = [(int(a), int(b)) for a, b in random.integers(2**63, size=(6, 2), dtype=np.uint64)]
        asked: list[int] = []

        def more(level: int, table=table, asked=asked) -> tuple[int, int]:
            asked.append(level)
            return table[level - 1]

        number = noise_stream.nearest(
            noise_stream.Dyadic(share, bits[0]), noise_stream.Dyadic(angle, bits[1]), more, 2.0**21, second=second
        )
        wanted = long_pair(share, angle, lambda level, table=table: table[level - 1], bits)[second]
        assert number == int(MP.nint(wanted * 2**21))
        open_cells += bool(asked)
    assert open_cells >= 35


def test_a_cell_stays_open_until_the_bits_leave_one_half():
    # y = sqrt(-2 ln U) cos(2 pi T) near 1/2: T = 0 to 64 bits, and U so near exp(-1/8) that 190 bits leave both sides
    goal = MP.exp(MP.mpf(-1) / 8)
    digits = int(MP.floor(goal * MP.mpf(2) ** 446))
    first, rest = digits >> 384, [(digits >> (320 - 64 * level)) & (2**64 - 1) for level in range(6)]
    for change, wanted in ((-(2**40), 1), (2**40, 0)):
        table = [*rest[:2], (rest[2] + change) % 2**64, *rest[3:]]
        asked: list[int] = []

        def more(level: int, table=table, asked=asked) -> tuple[int, int]:
            asked.append(level)
            return table[level - 1], 0

        assert (
            noise_stream.nearest(noise_stream.Dyadic(first, 62), noise_stream.Dyadic(0, 64), more, 1.0, second=False)
            == wanted
        )
        assert asked[-1] >= 3


@pytest.mark.parametrize("deviation", [0.4, 1.3, 12.0])
def test_whole_numbers_are_as_frequent_as_the_normal_distribution_says(deviation):
    # oracle: cells of scipy's normal distribution, chi-square at 1e-4; cells of less than 20 are put together
    drawn = Noise(KEY).rounded_normal(400_000, deviation).numpy()
    edges = np.arange(-math.ceil(6 * deviation), math.ceil(6 * deviation) + 1)
    expected = len(drawn) * (stats.norm.cdf((edges + 0.5) / deviation) - stats.norm.cdf((edges - 0.5) / deviation))
    kept = expected > 20
    observed = np.array([(drawn == edge).sum() for edge in edges[kept]])
    rest = len(drawn) - expected[kept].sum()
    table = [*observed, len(drawn) - observed.sum()], [*expected[kept], rest]
    assert stats.chisquare(*table).pvalue > 1e-4


@pytest.mark.slow
def test_on_the_grid_of_a_release_it_is_normal_to_the_far_tails_and_its_last_bits_are_even():
    # oracle: Kolmogorov-Smirnov at 1e-4 (the grid moves the distribution function by under 4e-7, the standard error of
    # the statistic is 1e-3), counts beyond 3 and 4 within 4 standard errors, moments within 4, and chi-square of the
    # last 4 bits
    n, deviation = 1_000_001, 1.7 * 2.0**20
    drawn = Noise(KEY).rounded_normal(n, deviation).numpy()
    assert np.array_equal(drawn, np.round(drawn))
    scaled = drawn / deviation
    assert stats.kstest(scaled, "norm").pvalue > 1e-4
    for limit in (3, 4):
        for side in (scaled > limit, scaled < -limit):
            wanted = n * stats.norm.sf(limit)
            assert abs(side.sum() - wanted) < 4 * math.sqrt(wanted)
    for order, moment, spread in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs((scaled**order).mean() - moment) < 4 * math.sqrt(spread / n)
    assert stats.chisquare(np.bincount(drawn.astype(np.int64) % 16)).pvalue > 1e-4


def test_exact_noise_has_no_end_where_float64_noise_ends(monkeypatch):
    # words of zeros are a U below 2^-62, where the noise in float64 ends at 9.3: further bits decide
    own = Noise(KEY)
    monkeypatch.setattr(own, "_words", lambda _, count, name="words": torch.zeros(count, dtype=torch.int32))
    first, second = own.rounded_normal(2, 2.0**20).tolist()
    share, angle = long_pair(0, 0, lambda level: more_bits(KEY, 0, level), (62, 64))
    assert [first, second] == [float(MP.nint(share * 2**20)), float(MP.nint(angle * 2**20))]
    assert math.hypot(first, second) / 2**20 > math.sqrt(2 * 62 * math.log(2))


def test_the_same_key_draws_the_same_exact_noise_and_leaves_the_same_state():
    one, other = Noise(KEY), Noise(KEY)
    assert torch.equal(one.rounded_normal(1001, 2.0**20), other.rounded_normal(1001, 2.0**20))
    assert one.state() == other.state()
    third = Noise(KEY)
    third.normal(1001)
    assert third.state() == one.state()
    assert torch.equal(one.rounded_normal(1001, 2.0**20), third.rounded_normal(1001, 2.0**20))


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_any_number_of_whole_numbers_can_be_drawn(count):
    assert len(Noise(KEY).rounded_normal(count, 2.0**20)) == count


@pytest.mark.parametrize("deviation", [0.0, -1.0, 2.0**38, math.inf, math.nan])
def test_a_deviation_beyond_the_proven_range_is_refused(deviation):
    with pytest.raises(UsageError):
        Noise(KEY).rounded_normal(2, deviation)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_cuda_draws_the_same_exact_noise_bit_by_bit():
    assert torch.equal(
        Noise(KEY).rounded_normal(600_001, 2.0**20.5), Noise(KEY, "cuda").rounded_normal(600_001, 2.0**20.5).cpu()
    )
