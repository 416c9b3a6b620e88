"""Faults that are put into the engine, one at a time, which an audit of a training must detect."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from wpriv.training.clipping import ghost
from wpriv.training.engine import loop
from wpriv.training.engine.sampler import Sampler
from wpriv.training.noise import release

SHARE = 0.4
"""Share of the accounted noise that ``weak_noise`` adds."""


def weak_noise(patch: pytest.MonkeyPatch) -> None:
    """Add noise of a share of the accounted standard deviation."""
    patch.setattr(
        loop, "add_noise", lambda total, sigma, *rest, **more: release.add_noise(total, SHARE * sigma, *rest, **more)
    )


def no_clipping(patch: pytest.MonkeyPatch) -> None:
    """Sum up gradients as they are."""

    def factors(squares, norm, weights=None):
        ones = torch.ones_like(next(iter(squares.values())))
        return dict.fromkeys(squares, ones if weights is None else weights.to(ones.dtype))

    patch.setattr(ghost, "factors_by_name", factors)


def all_records(patch: pytest.MonkeyPatch) -> None:
    """Take every record in every step."""
    patch.setattr(Sampler, "draw", lambda sampler: np.arange(sampler.records))


def shuffled(patch: pytest.MonkeyPatch) -> None:
    """Cut a random order of the records into batches, a new one for each pass."""
    queues: dict[int, list[np.ndarray]] = {}

    def draw(sampler: Sampler) -> np.ndarray:
        queue = queues.setdefault(id(sampler), [])
        if not queue:
            order = sampler.rng.permutation(sampler.records)
            queue += np.array_split(order, round(sampler.records / sampler.batch))
        return np.sort(queue.pop())

    patch.setattr(Sampler, "draw", draw)


def repeated_noise(patch: pytest.MonkeyPatch) -> None:
    """Add the noise of every odd step to the step after it too."""
    calls = {"count": 0, "state": ""}

    def add_noise(total, sigma, noise, **more):
        if calls["count"] % 2:
            noise.restore(calls["state"])
        calls["count"] += 1
        calls["state"] = noise.state()
        return release.add_noise(total, sigma, noise, **more)

    patch.setattr(loop, "add_noise", add_noise)


def noise_of_every_second_step(patch: pytest.MonkeyPatch) -> None:
    """Add noise in every second step only."""
    calls = {"count": 0}

    def add_noise(total, sigma, noise, *, private, exact):
        calls["count"] += 1
        return release.add_noise(total, sigma * (calls["count"] % 2), noise, private=False, exact=exact)

    patch.setattr(loop, "add_noise", add_noise)


FAULTS = {
    fault.__name__: fault
    for fault in (weak_noise, no_clipping, all_records, shuffled, repeated_noise, noise_of_every_second_step)
}
