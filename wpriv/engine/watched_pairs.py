"""Distances between gradients of pairs of records while training, for the accountants that price what a run showed (bdp, wdp).

They are computed from the private records and are neither noisy nor accounted: whoever sees them, or an eps made from them, learns
something that no guarantee covers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
from torch import Tensor, nn

from wpriv.config.train_schema import Privacy, Train
from wpriv.engine.batch_gradient import Batches, left_out_distances, single_distances
from wpriv.engine.sampler import Indices
from wpriv.errors import UsageError

PRICED = ("bdp", "wdp")
_MIXING = nn.modules.batchnorm._BatchNorm


def wanted(recipe: Train) -> bool:
    """Whether some accountant of a recipe prices observations."""
    return recipe.privacy is not None and any(word.partition(":")[0] in PRICED for word in recipe.accountants)


def of(batches: Batches, recipe: Train, adjacency: str) -> Callable[[Indices, list[Tensor]], Tensor] | None:
    """What the engine calls at every step with the records of the batch and the mask; None where nobody prices it."""
    private = recipe.privacy
    if private is None or not wanted(recipe):
        return None
    if private.clip == "batch-mean":
        return functools.partial(_left_out, batches, private)
    return functools.partial(_singles, batches, private, adjacency)


def _left_out(batches: Batches, private: Privacy, indices: Indices, keep: list[Tensor]) -> Tensor:
    mixing = any(isinstance(module, _MIXING) for module in batches.model.modules())
    chosen = _evenly(len(indices), private.pairs)
    keep = keep or [weight.new_ones(weight.shape) for weight in batches.trainable()]
    return left_out_distances(batches, indices, chosen, norm=private.norm, keep=keep, mixing=mixing)


def _singles(batches: Batches, private: Privacy, adjacency: str, indices: Indices, keep: list[Tensor]) -> Tensor:
    return single_distances(
        batches, indices[_evenly(len(indices), private.pairs)], norm=float(private.clip), adjacency=adjacency
    )


def _evenly(size: int, wanted: int) -> Indices:
    """Places evenly spread over a batch, whose records are random already."""
    if size < wanted:
        raise UsageError(
            f"bdp and wdp compare {wanted} records of every step, and one step has {size}; take a larger batch or fewer pairs"
        )
    return np.arange(wanted) * size // wanted
