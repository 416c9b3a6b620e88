"""What tasks share whose steps release a clipped sliced Wasserstein gradient: its options, its penalty, its directions, its codes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import Field

from wpriv import models
from wpriv.core.document import Key
from wpriv.core.fields import Count, Positive, Strict
from wpriv.core.schema_train import Train
from wpriv.errors import UsageError
from wpriv.train.penalty import Penalty

if TYPE_CHECKING:
    import torch
    from torch import Tensor

EVALUATED_ALONG = 50


class Options(Strict):
    """The clips of the Wasserstein gradient; C, the clip of the loss gradients, is ``privacy.clip``."""

    bound: Positive = Field(1.0, description="M, to which scores are projected")
    lipschitz: Positive = Field(1.0, description="L, to which the Jacobian of each record's scores is clipped")
    clipping: Literal["per-coordinate", "spectral"] = "per-coordinate"
    sensitivity: Literal["tight", "paper"] = Field("tight", description="the constant of the gradient's sensitivity")
    directions: Count = Field(50, description="directions drawn at each step")


def faults(recipe: Train) -> list[tuple[Key, str]]:
    """What does not go with these tasks."""
    private = recipe.privacy
    if private is None:
        return []
    found: list[tuple[Key, str]] = []
    if private.sampling != "fixed":
        told = f"batches of a Wasserstein gradient have fixed sizes: sampling: fixed; found {private.sampling}"
        found.append((("privacy", "sampling"), told))
    if private.clip == "batch-mean":
        found.append((("privacy", "clip"), "clip is C here, to which the gradient of each record's loss is clipped: give a number"))
    return found


def share(recipe: Train, count: int, records: int) -> int:
    """A group's part of the batch, as large a share of it as the batch is of all records: rounded down, and at least 1."""
    return count if recipe.batch is None else max(1, count * recipe.batch // records)


def penalty(recipe: Train, options: Options, alpha: float, sizes: tuple[int, int], **own: Any) -> Penalty:
    """One pair of groups, or of a group and points, of these sizes in the batch."""
    clip = 1.0 if recipe.privacy is None else float(recipe.privacy.clip)
    return Penalty(
        alpha=alpha,
        bound=options.bound,
        lipschitz=options.lipschitz,
        sizes=(sizes,),
        clip=clip if alpha < 1 else 0.0,
        clipping=options.clipping,
        formula=options.sensitivity,
        **own,
    )


def drawn(width: int, count: int, device: torch.device) -> Callable[[], Tensor]:
    """Draws the directions [width, count] of a step."""
    import torch

    from wpriv.transport.sliced import random_directions

    def directions() -> Tensor:
        # a generator of its own, seeded from torch's, draws alike on every device
        own = torch.Generator().manual_seed(int(torch.randint(2**62, ())))
        return random_directions(width, count, own).to(device)

    return directions


def distance(x: Tensor, z: Tensor) -> float:
    """Sliced W_2^2 between [n, d] and [m, d] along 50 directions that are always the same, nothing clipped."""
    import torch

    from wpriv.train.wasserstein import weights
    from wpriv.transport.sliced import random_directions

    axes = random_directions(x.shape[1], EVALUATED_ALONG, torch.Generator().manual_seed(0)).to(x)
    return float(weights(x, z, axes).cost)


def autoencoder(recipe: Train, shape: tuple[int, ...]) -> Any:
    """The model of a recipe, which must give codes and what is made of them.

    Raises:
        UsageError: it is none that does.
    """
    found = models.build(recipe.model, shape, 1)
    if not (hasattr(found, "encoder") and hasattr(found, "decoder")):
        raise UsageError(f"task {recipe.task} needs a model with codes, as autoencoder is; found {recipe.model.name}")
    return found


def squared(outputs: Any, targets: Tensor) -> Tensor:
    """The squared error [n] of what was made of the codes (the second output), summed over the numbers of a record."""
    found: Tensor = (outputs[1] - targets).flatten(1).square().sum(dim=1)
    return found


def as_float(x: Any) -> Any:
    """Records as float32, bytes in [0, 1]; a copy, since what a reader returns may be the file itself."""
    return x.astype(np.float32) / np.float32(255 if x.dtype == np.uint8 else 1)
