"""Observe distances between gradients of pairs of records during training, for data-dependent accountants (bdp, wdp).

The distances are computed from the private records without noise and are not accounted for: whoever sees them, or an
eps computed from them, learns something that no guarantee covers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
from torch import Tensor, nn

from wpriv.config.train_schema import Privacy, Train
from wpriv.engine.batch_gradient import Batches, left_out_distances, scaling_of, single_distances
from wpriv.engine.sampler import Indices
from wpriv.errors import UsageError

DATA_DEPENDENT = ("bdp", "wdp")
_MIXING = nn.modules.batchnorm._BatchNorm


def make_observer(batches: Batches, recipe: Train, adjacency: str) -> Callable[[Indices, list[Tensor]], Tensor] | None:
    """Return what the engine calls at every step with the places of its records and the mask.

    Returns:
        A function (places, mask) -> [pairs] distances; None if no accountant of the recipe uses them.
    """
    private = recipe.privacy
    if private is None or not any(word.partition(":")[0] in DATA_DEPENDENT for word in recipe.accountants):
        return None
    if private.clip == "batch-mean":
        return functools.partial(_left_out, batches, private)
    return functools.partial(_singles, batches, private, adjacency)


def _left_out(batches: Batches, private: Privacy, indices: Indices, mask: list[Tensor]) -> Tensor:
    mixing = any(isinstance(module, _MIXING) for module in batches.model.modules())
    chosen = _evenly_spaced(len(indices), private.pairs)
    mask = mask or [weight.new_ones(weight.shape) for weight in batches.trainable()]
    return left_out_distances(batches, indices, chosen, norm=private.norm, mask=mask, mixing=mixing)


def _singles(batches: Batches, private: Privacy, adjacency: str, indices: Indices, mask: list[Tensor]) -> Tensor:
    chosen = indices[_evenly_spaced(len(indices), private.pairs)]
    return single_distances(batches, chosen, norm=scaling_of(private), adjacency=adjacency)


def _evenly_spaced(size: int, count: int) -> Indices:
    """Return ``count`` places spread evenly over a batch, whose records are random already."""
    if size < count:
        raise UsageError(
            f"bdp and wdp compare {count} records of every step; found a step of {size}. "
            f"Take a larger batch, or fewer pairs"
        )
    return np.arange(count) * size // count
