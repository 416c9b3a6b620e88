"""Noise from a cryptographic stream: 64 bits a number from SHAKE-256, turned into Gauss or Laplace noise by inversion.

Whoever knows the record behind one report knows its noise; from the noise of a statistical generator its state, and so the noise of all
other reports, could be found. The output of SHAKE-256 under a secret key shows nothing of the key or of its other output.
"""

from __future__ import annotations

import hashlib
import secrets
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

Array = NDArray[Any]
KEY_BYTES = 32


def key(seed: int | None) -> bytes:
    """256 secret bits from the operating system, or 256 bits from a seed that anybody who knows it can repeat."""
    return (
        secrets.token_bytes(KEY_BYTES)
        if seed is None
        else hashlib.sha3_256(f"wpriv privatize, seed {seed}".encode()).digest()
    )


def words(own: bytes, block: int, count: int) -> Array:
    """[count] uint64, all 64 bits uniform: those of one numbered block of the key's stream."""
    stream = hashlib.shake_256(own + block.to_bytes(8, "little"))
    return np.frombuffer(stream.digest(8 * count), "<u8")


def gauss(bits: Array) -> Array:
    """Standard normal noise: one bit is the sign, 63 bits are the chance of a value farther out on its side, 2^-65 to 1/2."""
    return _signed(-ndtri((_magnitudes(bits) + 0.5) * 2.0**-64), bits)


def laplace(bits: Array) -> Array:
    """Laplace noise of scale 1: one bit is the sign, 63 bits are the chance of a value farther out on its side, 2^-65 to 1/2."""
    return _signed(-np.log((_magnitudes(bits) + 0.5) * 2.0**-63), bits)


def _magnitudes(bits: Array) -> Array:
    return (bits >> np.uint64(1)).astype(np.float64)


def _signed(size: Array, bits: Array) -> Array:
    found: Array = np.where(bits & np.uint64(1), size, -size)
    return found
