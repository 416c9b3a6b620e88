"""Where randomness comes from: the operating system by default, a fixed seed where somebody wants to repeat a run exactly.

Sampling, noise and initialisation have streams of their own. Whoever knows a seed, or a saved state of the first two, can take the
noise off again: a run with a fixed seed protects nobody from those who know it.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass

import numpy as np
import torch


@dataclass(frozen=True)
class Seeds:
    """One seed for each stream."""

    sampling: int
    noise: int
    model: int


def seeds(fixed: int | None, run: int = 1) -> Seeds:
    """Three independent streams, from the operating system or from one fixed number.

    Args:
        run: the number of the run in its ledger. A fork must not draw the noise of the run before it again: the difference of two
            sums with the same noise has none.
    """
    entropy: int | list[int] = [fixed or 0, run] if run > 1 else fixed or 0
    root = np.random.SeedSequence(secrets.randbits(128) if fixed is None else entropy)
    sampling, noise, model = (int.from_bytes(part.generate_state(2, np.uint64).tobytes(), "little") for part in root.spawn(3))
    # torch's generators take 64 bits
    return Seeds(sampling, noise % 2**64, model % 2**64)


def sampling_generator(own: Seeds) -> np.random.Generator:
    """The numpy generator that draws which records join a step."""
    return np.random.Generator(np.random.PCG64(own.sampling))


def noise_generator(own: Seeds, device: torch.device) -> torch.Generator:
    """The torch generator that draws the noise."""
    generator = torch.Generator(device=device)
    generator.manual_seed(own.noise)
    return generator


def seed_model(own: Seeds) -> None:
    """Seeds torch's global generators, from which models draw their first weights (and dropout its masks)."""
    torch.manual_seed(own.model)
