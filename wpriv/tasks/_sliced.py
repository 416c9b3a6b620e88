"""What the tasks share whose steps release a clipped (sliced) Wasserstein gradient: options, penalty, directions, codes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from wpriv import models
from wpriv.config.document import Key
from wpriv.config.field_types import Count, Field, Positive, StrictModel
from wpriv.config.train_schema import Train
from wpriv.engine import release_spec
from wpriv.engine.penalty.penalty import Penalty
from wpriv.errors import UsageError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

EVALUATED_ALONG = 50


class Options(StrictModel):
    """The clips of the Wasserstein gradient; C, the clip of the loss gradients, is ``privacy.clip``."""

    bound: Positive = Field(1.0, description="M, to which scores are projected")
    lipschitz: Positive = Field(1.0, description="L, to which the Jacobian of each record's scores is clipped")
    clipping: Literal["per-coordinate", "spectral"] = "per-coordinate"
    sensitivity: Literal["tight", "paper"] = Field("tight", description="the constant of the gradient's sensitivity")
    directions: Count = Field(50, description="directions drawn at each step, where scores are vectors")


def validate(recipe: Train) -> list[tuple[Key, str]]:
    """What does not go with these tasks."""
    private = recipe.privacy
    if private is None:
        return []
    found: list[tuple[Key, str]] = []
    if private.sampling != "fixed":
        told = f"batches of a Wasserstein gradient have fixed sizes: give sampling: fixed; found {private.sampling}"
        found.append((("privacy", "sampling"), told))
    if private.clip == "batch-mean":
        found.append(
            (
                ("privacy", "clip"),
                "clip is C here, to which the gradient of each record's loss is clipped: give a number",
            )
        )
    return found


def shares(recipe: Train, counts: Sequence[int]) -> list[int]:
    """What a step takes of each group: the recipe's share of it, rounded down so that no rate exceeds it, and at least 1.

    Raises:
        UsageError: the batch is larger than all groups together.
    """
    records = sum(counts)
    _, batch = release_spec.sampling_of(recipe, records)
    return [max(1, count * batch // records) for count in counts]


def pairs(counts: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """First and second, third and fourth, ...: the groups that are compared."""
    return tuple(zip(counts[::2], counts[1::2], strict=True))


def counted(sizes: Mapping[str, int]) -> list[int]:
    """The records of each group, in the order of the sizes that a task names."""
    return [count for name, count in sizes.items() if name != "records"]


def penalty(recipe: Train, options: Options, alpha: float, sizes: Sequence[int], **own: Any) -> Penalty:
    """Groups, or a group and points, of these sizes in the batch, pair after pair."""
    clip = 1.0 if recipe.privacy is None else float(recipe.privacy.clip)
    return Penalty(
        alpha=alpha,
        bound=options.bound,
        lipschitz=options.lipschitz,
        sizes=pairs(sizes),
        clip=clip if alpha < 1 else 0.0,
        clipping=options.clipping,
        formula=options.sensitivity,
        **own,
    )


def drawn(width: int, count: int, device: torch.device) -> Callable[[], Tensor]:
    """Draws the directions [width, count] of a step."""
    from wpriv.transport.sliced import random_directions

    return lambda: random_directions(width, count, generator()).to(device)


def generator() -> torch.Generator:
    """A fresh generator on the CPU, seeded from torch's global one: what it draws is the same on every device."""
    import torch

    return torch.Generator().manual_seed(int(torch.randint(2**62, ())))


def fixed(width: int, count: int) -> Tensor:
    """Directions [width, count] to measure along, always the same."""
    import torch

    from wpriv.transport.sliced import random_directions

    return random_directions(width, count, torch.Generator().manual_seed(0))


def distance(x: Tensor, z: Tensor) -> float:
    """Sliced W_2^2 between [n, d] and [m, d] along 50 directions that are always the same, nothing clipped."""
    from wpriv.engine.penalty.gradient import weights

    return float(weights(x, z, fixed(x.shape[1], EVALUATED_ALONG).to(x)).cost)


def autoencoder(recipe: Train, shape: tuple[int, ...]) -> Any:
    """The model of a recipe, which must give codes and what is made of them.

    Raises:
        UsageError: it is none that does.
    """
    found = models.build(recipe.model, shape, 1)
    if not (hasattr(found, "encoder") and hasattr(found, "decoder")):
        raise UsageError(f"task {recipe.task} needs a model with codes, as autoencoder is; found {recipe.model.name}")
    return found


def width(model: Any, inputs: Tensor) -> int:
    """The numbers in a code of records in the shape of ``inputs``, found by one of zeros."""
    import torch

    with torch.no_grad():
        return int(model(torch.zeros_like(inputs[:1]))[0].shape[1])


def squared(outputs: Any, targets: Tensor) -> Tensor:
    """The squared error [n] of what was made of the codes (the second output), summed over the numbers of a record."""
    found: Tensor = (outputs[1] - targets).flatten(1).square().sum(dim=1)
    return found
