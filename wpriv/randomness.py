"""Randomness of releases: the cryptographic stream, noise from its bits, and the seeds and keys.

The stream is AES-256 in counter mode under a secret key. An adversary who knows all records but one has two candidates
for the noise of a release. Of the output of a statistical generator only one fits the generator's equations, which
reveals the record and all other noise. No test is known that distinguishes AES under an unknown key from random bits.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from dataclasses import dataclass

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray
from scipy.special import ndtri

from wpriv.numerics.arrays import Array

KEY_BYTES = 32
BLOCK_BYTES = 16
_ZEROS = bytes(2**16)


def new_key() -> bytes:
    """Return 256 secret bits from the operating system."""
    return secrets.token_bytes(KEY_BYTES)


class Keystream:
    """The random bits of a key from one value of the 128-bit counter on; each value gives a block of 16 bytes.

    Args:
        key: 32 bytes. start: the first value of the counter. Streams of one key whose counters overlap repeat bits.
    """

    def __init__(self, key: bytes, start: int = 0):
        counter = modes.CTR(start.to_bytes(BLOCK_BYTES, "big"))
        self._cipher = Cipher(algorithms.AES256(key), counter).encryptor()

    def read(self, count: int) -> bytes:
        """Return the next ``count`` bytes of the stream."""
        return self._cipher.update(bytes(count))

    def fill(self, memory: memoryview, count: int) -> None:
        """Write the next ``count`` bytes of the stream to ``memory``, which must have room for one block more."""
        for start in range(0, count, len(_ZEROS)):
            self._cipher.update_into(memoryview(_ZEROS)[: count - start], memory[start:])


# Normal and Laplace noise by inversion: every number is the quantile that 64 bits of a key's stream name.
#
# One bit is the sign; 63 bits k are the tail probability (k + 1/2) 2^-64 of a value farther out on its side, from 2^-65
# to 1/2. So magnitudes end at 9.2 standard deviations of the normal and at 44.4 scales of the Laplace distribution.

Words = NDArray[np.uint64]


def permuted(key: bytes, blocks: Words) -> Words:
    """[n, 2] uint64: the images of [n, 2] uint64, 16 bytes each, under AES-256 of the key, a permutation of blocks."""
    cipher = Cipher(algorithms.AES256(key), modes.ECB()).encryptor()
    return np.frombuffer(cipher.update(blocks.astype("<u8").tobytes()), "<u8").reshape(-1, 2).astype(np.uint64)


def words(key: bytes, part: int, count: int) -> Words:
    """[count] uint64 random bits: the first of part 0 to 2^64 - 1 of the key's stream, which do not overlap."""
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


# Seeds and keys: from the operating system by default, or from a fixed number, where a run is to be repeated exactly.
#
# Sampling, noise and initialisation have streams of their own. Whoever knows a fixed seed can subtract the noise again:
# such a run gives no privacy against those who know it.

# raised whenever the same seed begins to give other records, noise or initial weights than before; and with it the
# format of checkpoints, since a resumed run must draw the noise of steps that are spent already once more
NOISE_VERSION = 1


@dataclass(frozen=True)
class Seeds:
    """The seeds of a training: 128 bits for numpy's generator, the key of the noise, 64 bits for torch's generators.

    Torch's generator on a CPU uses the lower 32 of them. ``fixed``: they follow from a number that was given.
    """

    sampling: int
    noise: bytes
    model: int
    fixed: bool = False


def training_seeds(fixed: int | None, run: int = 1) -> Seeds:
    """Return three independent seeds, each from the operating system, or all from one fixed number.

    Args:
        run: the number of the run in its ledger. A fork must not repeat the noise of the run before it: the difference
            of two sums with the same noise has none.
    """
    if fixed is None:
        return Seeds(secrets.randbits(128), new_key(), secrets.randbits(64))
    sampling, noise, model = np.random.SeedSequence([fixed, run] if run > 1 else fixed).spawn(3)
    return Seeds(
        _number(sampling, 16), noise.generate_state(KEY_BYTES // 8, "<u8").tobytes(), _number(model, 8), fixed=True
    )


def key(verb: str, fixed: int | None) -> bytes:
    """Return the key of one call of a verb: from the operating system, or from a fixed number and the verb's name."""
    return new_key() if fixed is None else hashlib.sha3_256(f"wpriv {verb}, seed {fixed}".encode()).digest()


def sampling_generator(seeds: Seeds) -> np.random.Generator:
    """Return the numpy generator that draws the records of each step."""
    return np.random.Generator(np.random.PCG64(seeds.sampling))


def key_digest(key: bytes) -> str:
    """Return the digest by which ledgers name the noise of a key, which it does not reveal."""
    return hashlib.sha256(b"wpriv.stream" + key).hexdigest()[:16]


def augmentation_key(seeds: Seeds) -> int:
    """Return the key of 64 bits from which the random changes of records are drawn; no privacy depends on it."""
    digest = hashlib.sha256(b"wpriv.augmentation" + seeds.model.to_bytes(8, "little")).digest()
    return int.from_bytes(digest[:8], "little") >> 1  # as large as the integers of checkpoints


def _number(sequence: np.random.SeedSequence, size: int) -> int:
    return int.from_bytes(sequence.generate_state(size // 8, np.uint64).tobytes(), "little")
