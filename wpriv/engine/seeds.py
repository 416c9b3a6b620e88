"""Where randomness comes from: the operating system by default, a fixed seed where somebody wants to repeat a run exactly.

Sampling, noise and initialisation have streams of their own. Whoever knows a fixed seed can take the noise off again: such a run
protects nobody from those who know it.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass

import numpy as np
import torch

from wpriv.engine.noise_stream import KEY_BYTES, Noise


@dataclass(frozen=True)
class Seeds:
    """One seed for each stream: 128 bits for numpy's generator, the key of the noise, 64 bits for torch's generators."""

    sampling: int
    noise: bytes
    model: int


def seeds(fixed: int | None, run: int = 1) -> Seeds:
    """Three independent seeds, each from the operating system by itself, or all from one fixed number.

    Args:
        run: the number of the run in its ledger. A fork must not draw the noise of the run before it again: the difference of two
            sums with the same noise has none.
    """
    if fixed is None:
        return Seeds(secrets.randbits(128), secrets.token_bytes(KEY_BYTES), secrets.randbits(64))
    sampling, noise, model = np.random.SeedSequence([fixed, run] if run > 1 else fixed).spawn(3)
    return Seeds(_number(sampling, 16), noise.generate_state(KEY_BYTES // 8, "<u8").tobytes(), _number(model, 8))


def sampling_generator(own: Seeds) -> np.random.Generator:
    """The numpy generator that draws which records join a step."""
    return np.random.Generator(np.random.PCG64(own.sampling))


def stream(own: Seeds) -> str:
    """A digest that names the noise of a run and does not tell its key."""
    return hashlib.sha256(b"wpriv.stream" + own.noise).hexdigest()[:16]


def noise_source(own: Seeds, device: torch.device) -> Noise:
    """Where the noise of the run comes from."""
    return Noise(own.noise, device)


def seed_model(own: Seeds) -> None:
    """Seeds torch's global generators, from which models draw their first weights (and dropout its masks)."""
    torch.manual_seed(own.model)


def _number(part: np.random.SeedSequence, size: int) -> int:
    return int.from_bytes(part.generate_state(size // 8, np.uint64).tobytes(), "little")
