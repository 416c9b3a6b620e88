"""Seeds and keys: from the operating system by default, or from a fixed number, where a run is to be repeated exactly.

Sampling, noise and initialisation have streams of their own. Whoever knows a fixed seed can subtract the noise again:
such a run gives no privacy against those who know it.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass

import numpy as np

from wpriv.randomness.keystream import KEY_BYTES, new_key

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


def report_key(fixed: int | None) -> bytes:
    """Return the key of the noise of local reports: from the operating system, or from a fixed number."""
    return new_key() if fixed is None else hashlib.sha3_256(f"wpriv privatize, seed {fixed}".encode()).digest()


def sampling_generator(seeds: Seeds) -> np.random.Generator:
    """Return the numpy generator that draws the records of each step."""
    return np.random.Generator(np.random.PCG64(seeds.sampling))


def stream_digest(seeds: Seeds) -> str:
    """Return a digest that names the noise of a run and does not reveal its key."""
    return key_digest(seeds.noise)


def key_digest(key: bytes) -> str:
    """Return the digest by which ledgers name the noise of a key."""
    return hashlib.sha256(b"wpriv.stream" + key).hexdigest()[:16]


def augmentation_key(seeds: Seeds) -> int:
    """Return the key of 64 bits from which the random changes of records are drawn; no privacy depends on it."""
    digest = hashlib.sha256(b"wpriv.augmentation" + seeds.model.to_bytes(8, "little")).digest()
    return int.from_bytes(digest[:8], "little") >> 1  # as large as the integers of checkpoints


def _number(sequence: np.random.SeedSequence, size: int) -> int:
    return int.from_bytes(sequence.generate_state(size // 8, np.uint64).tobytes(), "little")
