"""Numbers of blocks that steps divide into evenly."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wpriv.pld import constants
from wpriv.pld.lattice.staging import _choose_block_counts, _smooth_divisors


@pytest.mark.parametrize(
    ("count", "wanted", "blocks"),
    [(65536, [1625, 40, 1], [2048, 32, 1]), (14040, [118, 1], [120, 1]), (7919, [89, 1], [89, 1])],
)
def test_blocks_divide_the_steps_where_a_number_near_the_wanted_one_does(count, wanted, blocks):
    assert _choose_block_counts(count, wanted) == blocks


@given(st.integers(1, 2**40), st.integers(1, 5))
def test_blocks_fall_to_one_and_stay_near_the_wanted_numbers(count, stages):
    wanted = [count ** ((stages - s) / stages) for s in range(1, stages + 1)]
    blocks = _choose_block_counts(count, wanted)
    assert blocks[-1] == 1
    for number, near in zip(blocks, wanted, strict=True):
        assert abs(math.log(number / near)) < max(constants.BLOCK_COUNT_LOG_TOLERANCE, math.log(2))


@given(st.integers(1, 10**6))
def test_divisors_are_those_without_a_large_prime(count):
    # oracle: trial of every number up to a thousand
    def smooth(n: int) -> bool:
        for prime in (2, 3, 5, 7):
            while n % prime == 0:
                n //= prime
        return n == 1

    assert sorted(d for d in _smooth_divisors(count) if d <= 1000) == [
        d for d in range(1, min(count, 1000) + 1) if count % d == 0 and smooth(d)
    ]
