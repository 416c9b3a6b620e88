"""Normal and Laplace noise by inversion: every number is the quantile that 64 bits of a key's stream name.

One bit is the sign; 63 bits k are the tail probability (k + 1/2) 2^-64 of a value farther out on its side, from 2^-65
to 1/2. So magnitudes end at 9.2 standard deviations of the normal and at 44.4 scales of the Laplace distribution.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from wpriv.numerics.arrays import Array
from wpriv.randomness.keystream import BLOCK_BYTES, Keystream

Words = NDArray[np.uint64]


def words(key: bytes, part: int, count: int) -> Words:
    """Return [count] uint64 of random bits: the first ones of one numbered part of the key's stream.

    Args:
        part: 0 to 2^64 - 1. Parts do not overlap: each has 2^64 values of the counter.
    """
    bits = np.empty(count + BLOCK_BYTES // 8, "<u8")
    Keystream(key, part << 64).fill(bits.data.cast("B"), 8 * count)
    return bits[:count]


def normal(bits: Words) -> Array:
    """Return standard normal noise, one number for each uint64."""
    return _signed(-ndtri((_magnitudes(bits) + 0.5) * 2.0**-64), bits)


def laplace(bits: Words) -> Array:
    """Return Laplace noise of scale 1, one number for each uint64."""
    return _signed(-np.log((_magnitudes(bits) + 0.5) * 2.0**-63), bits)


def chance_of_gaps(p: int, cells: float) -> float:
    """The chance of a number so far out that consecutive quantiles lie more than one point of a grid apart.

    A report there may exclude records, since no noise leads from them to it.

    Args:
        p: 2 for normal noise, 1 for Laplace noise.
        cells: points of the grid in a standard deviation or scale, 1 to 2^60.
    """
    if p == 1:
        return cells * 2.0**-63  # the quantiles k and k + 1 are about 1 / (k + 1/2) scales apart
    distance = math.sqrt(2 * math.log(2.0**64 / (cells * math.sqrt(2 * math.pi))))
    return math.erfc(distance / math.sqrt(2))


def _magnitudes(bits: Words) -> Array:
    return (bits >> np.uint64(1)).astype(np.float64)


def _signed(magnitudes: Array, bits: Words) -> Array:
    noise: Array = np.where(bits & np.uint64(1), magnitudes, -magnitudes)
    return noise
