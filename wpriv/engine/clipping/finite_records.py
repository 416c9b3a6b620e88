"""Leave records out of a clipped sum whose gradient is not a finite number, or too long for its square.

No rule of clipping bounds such a gradient, and an error about it would tell everybody that its record is there: so it
adds zero, which is within every bound, and nothing is said of it. Where a pass has such records, each is replaced by
another record of the batch with the factor 0, and the pass is repeated with the same random draws, so that all other
records add what they would have added without it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from wpriv.engine.clipping.common import Summed, total

Run = Callable[[Tensor, Tensor, Tensor | None], Summed]
"""(inputs, targets, weights [B] of zeros and ones or None) -> clipped sum."""


def finite_sum(run: Run, inputs: Tensor, targets: Tensor, weights: Tensor | None = None) -> Summed:
    """Return the clipped sum of the records with a finite gradient.

    The squared norms that are returned are infinite for the others. Synchronises with the device once, unless there are
    such records.
    """
    begin = draws(inputs.device)
    summed = run(inputs, targets, weights)
    faulty = ~total(summed.squares).isfinite()
    if not bool(faulty.any()):
        return summed
    squares = {name: square.masked_fill(faulty, torch.inf) for name, square in summed.squares.items()}
    return replace(_without(run, inputs, targets, weights, faulty, begin), squares=squares, losses=summed.losses)


def _without(
    run: Run, inputs: Tensor, targets: Tensor, weights: Tensor | None, faulty: Tensor, begin: Callable[[], None]
) -> Summed:
    """Return the sum without the ``faulty`` records [B]; ``begin`` restores the random draws of the first pass."""
    first = run
    while bool((~faulty).any()):
        rows = torch.where(faulty, (~faulty).nonzero()[0], torch.arange(len(faulty), device=faulty.device))
        kept = (~faulty).to(inputs.dtype if inputs.is_floating_point() else torch.float32)
        begin()
        summed = first(inputs[rows], targets[rows], kept if weights is None else kept * weights)
        further = ~total(summed.squares).isfinite()
        if not bool(further.any()):
            return summed
        if not bool((further & ~faulty).any()):
            # a replaced record met draws under which it has no finite gradient: leave the places empty
            good = ~faulty
            inputs, targets, weights = inputs[good], targets[good], None if weights is None else weights[good]
            faulty = faulty[good]
            continue
        faulty = faulty | further
    return run(inputs[:0], targets[:0], None)


def draws(device: torch.device) -> Callable[[], None]:
    """Return a function that restores the present state of all global random generators."""
    python, numpy, cpu = random.getstate(), np.random.get_state(), torch.get_rng_state()
    cuda = torch.cuda.get_rng_state(device) if device.type == "cuda" else None

    def restore() -> None:
        random.setstate(python)
        np.random.set_state(numpy)
        torch.set_rng_state(cpu)
        if cuda is not None:
            torch.cuda.set_rng_state(cuda, device)

    return restore
