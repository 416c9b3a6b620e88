"""Shared parts of tasks that release a clipped (sliced) Wasserstein gradient: options, penalty, directions, codes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from wpriv.config.field_types import Count, Field, Positive, StrictModel
from wpriv.config.train_schema import Train
from wpriv.errors import UsageError
from wpriv.papers.penalty.penalty import Penalty
from wpriv.training import models
from wpriv.training.engine import release_spec
from wpriv.training.tasks import Fault

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from wpriv.papers.penalty.objective import Objective

EVALUATION_DIRECTIONS = 50


class Options(StrictModel):
    """The clips of the Wasserstein gradient; C, the clip of the loss gradients, is ``privacy.clip``."""

    bound: Positive = Field(1.0, description="M, the norm to which scores are clipped")
    lipschitz: Positive = Field(1.0, description="L, the norm to which the Jacobian of each record's scores is clipped")
    clipping: Literal["per-coordinate", "spectral"] = Field(
        "per-coordinate",
        description="how Jacobians are clipped: the gradient of each coordinate of the scores, as published, or their "
        "singular values, which keeps more of them at the same sensitivity",
    )
    sensitivity: Literal["tight", "paper"] = Field(
        "tight", description="the constant of the gradient's sensitivity: corrected (tight), or as published"
    )
    directions: Count = Field(50, description="directions drawn at each step, where scores are vectors")


def validate(recipe: Train) -> Iterator[Fault]:
    """Faults of the privacy section for these tasks: another sampling than fixed, or a clip that is not a number."""
    private = recipe.privacy
    if private is None:
        return
    if private.sampling != "fixed":
        message = "a Wasserstein gradient needs batches of a fixed size: write sampling: fixed"
        yield ("privacy", "sampling"), f"{message}; found {private.sampling}"
    if private.clip == "batch-mean":
        message = "clip is C, the norm to which the gradient of each record's loss is clipped: give a number"
        yield ("privacy", "clip"), message


def batch_sizes(recipe: Train, counts: Sequence[int]) -> list[int]:
    """Records of each group in a step: in proportion, rounded down below the recipe's rate, and at least 1."""
    records = sum(counts)
    _, batch = release_spec.sampling_of(recipe, records)
    return [max(1, count * batch // records) for count in counts]


def as_pairs(counts: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Return the sizes of groups that are compared: first and second, third and fourth, ..."""
    return tuple(zip(counts[::2], counts[1::2], strict=True))


def group_counts(sizes: Mapping[str, int]) -> list[int]:
    """Return the records of each group, in the order of the sizes that a task names."""
    return [count for name, count in sizes.items() if name != "records"]


def penalty(recipe: Train, options: Options, alpha: float, sizes: Sequence[int], **fields: Any) -> Penalty:
    """Return the penalty of weight ``alpha`` for groups (or a group and points) of these sizes in a batch."""
    clip = 1.0 if recipe.privacy is None else float(recipe.privacy.clip)
    return Penalty(
        alpha=alpha,
        bound=options.bound,
        lipschitz=options.lipschitz,
        sizes=as_pairs(sizes),
        clip=clip if alpha < 1 else 0.0,
        clipping=options.clipping,
        formula=options.sensitivity,
        **fields,
    )


def group_penalty(recipe: Train, options: Any, counts: Sequence[int]) -> Penalty:
    """Return the penalty of weight ``options.alpha`` between groups of so many records."""
    return penalty(recipe, options, options.alpha, batch_sizes(recipe, counts))


def direction_sampler(width: int, count: int, device: torch.device) -> Callable[[], Tensor]:
    """Return a function that draws the directions [width, count] of a step."""
    from wpriv.transport.sliced import random_directions

    return lambda: random_directions(width, count, seeded_generator()).to(device)


def seeded_generator() -> torch.Generator:
    """Return a generator on the CPU seeded from torch's global one, so that its draws are the same for every device."""
    import torch

    return torch.Generator().manual_seed(int(torch.randint(2**62, ())))


def fixed_directions(width: int, count: int) -> Tensor:
    """Return directions [width, count] for evaluation, the same at every call."""
    import torch

    from wpriv.transport.sliced import random_directions

    return random_directions(width, count, torch.Generator().manual_seed(0))


def distance(x: Tensor, z: Tensor) -> float:
    """Return sliced W_2^2 between [n, d] and [m, d] along 50 fixed directions, without clipping."""
    from wpriv.papers.penalty.gradient import weights

    return float(weights(x, z, fixed_directions(x.shape[1], EVALUATION_DIRECTIONS).to(x)).cost)


def build_autoencoder(recipe: Train, shape: tuple[int, ...]) -> Any:
    """Build the model of a recipe, which must have an ``encoder`` and a ``decoder``."""
    model = models.build(recipe.model, shape, 1)
    if not {"encoder", "decoder"} <= {name for name, _ in model.named_children()}:
        raise UsageError(
            f"task {recipe.task} needs a model with an encoder and a decoder, such as autoencoder; "
            f"found {recipe.model.name}"
        )
    return model


def code_width(model: Any, inputs: Tensor) -> int:
    """Return the numbers of a code, from the code of a record of zeros in the shape of ``inputs``."""
    import torch

    with torch.no_grad():
        return int(model(torch.zeros_like(inputs[:1]))[0].shape[1])


def squared_errors(outputs: Any, targets: Tensor) -> Tensor:
    """Return the squared errors [n] of the reconstructions, the second output, summed over the numbers of a record."""
    errors: Tensor = (outputs[1] - targets).flatten(1).square().sum(dim=1)
    return errors


def autoencoder_objective(
    model: Any,
    inputs: Tensor,
    tests: Tensor,
    options: Any,
    penalty: Penalty,
    draw_points: Callable[[Any], Tensor] | None = None,
) -> Objective:
    """Return the reconstruction loss with the penalty between codes, on records ``inputs``."""
    import torch

    from wpriv.papers.penalty.objective import Objective

    scale = 1 / inputs[0].numel() if options.error == "mean" else 1.0

    def fetch(indices: Any) -> tuple[Tensor, Tensor]:
        records = inputs.index_select(0, torch.from_numpy(indices).to(inputs.device))
        return records, records

    def loss(outputs: Any, targets: Tensor) -> Tensor:
        return squared_errors(outputs, targets) * scale

    directions = direction_sampler(code_width(model, tests), options.directions, inputs.device)
    return Objective(model, loss, fetch, penalty, lambda outputs: outputs[0], directions, draw_points)
