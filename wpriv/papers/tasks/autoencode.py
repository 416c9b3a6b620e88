"""Private sliced-Wasserstein autoencoder: codes are pulled to the uniform distribution on a ball, for generation.

A step releases the gradient of (1 - alpha) mean squared error + alpha sliced W_2^2 between codes and fresh points of
the ball. The decoder maps points of the ball to samples.

Source:
    Kolouri, Pope, Martin, Rohde (2018) for the autoencoder; Rodriguez-Vitores, Lalanne, Loubes (2025), Theorem A.1, for
    the gradient.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np

from wpriv.config.field_types import Field, Positive, Share
from wpriv.config.train_schema import Train
from wpriv.errors import Unsupported
from wpriv.papers.penalty.penalty import Penalty, penalised_release
from wpriv.papers.tasks import _generation, _sliced
from wpriv.training.data import scaled
from wpriv.training.engine import release_spec
from wpriv.training.tasks import Fault, TaskSpec

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from wpriv.training.engine.job import Job

SAMPLES_SHOWN, PAIRS_SHOWN = 100, 12  # for figures: samples, and test images with their reconstructions
MAX_EVALUATED = 2000  # test records that are measured
UNIT = "one training record: the values of one, replaced by any other"


class Options(_sliced.Options):
    """Keys under ``options`` of a recipe; C, the clip of the loss gradients, is ``privacy.clip``."""

    alpha: Share = Field(description="weight of the sliced distance; the reconstruction has the rest")
    error: Literal["mean", "sum"] = Field(
        "sum", description="the squared error of a record: mean or sum over its numbers"
    )
    radius: Positive = Field(1.0, description="radius of the ball that codes should fill")
    judged: Annotated[int, Field(ge=0, le=10_000)] = Field(
        1000, description="samples that a small classifier judges at each evaluation, of images; 0 leaves them out"
    )


def validate(recipe: Train) -> Iterator[Fault]:
    """Faults: those of all sliced tasks, and a ball that clipped codes cannot fill."""
    yield from _sliced.validate(recipe)
    options = Options.model_validate(recipe.options)
    if options.radius > options.bound:
        message = (
            f"codes are clipped to the norm {options.bound:g} (bound) and cannot fill a larger ball; found a radius of "
            f"{options.radius:g}"
        )
        yield ("options", "radius"), message


def release(recipe: Train, sizes: Mapping[str, int]) -> release_spec.ReleaseSpec:
    """Return the release of a step: the penalised gradient over a batch of fixed size and public points of the ball."""
    penalty = _penalty(recipe, sizes["records"])
    drawn = (
        "every step takes a fresh uniformly random set of exactly the batch size, without replacement: all records are "
        "one group"
    )
    return penalised_release(recipe, penalty, [(sizes["records"], penalty.batch)], unit=UNIT, drawn=drawn)


def build_job(recipe: Train, data: Any, device: torch.device, *, adjacency: str) -> Job:
    """Build the autoencoder of a recipe on its data."""
    import torch

    from wpriv.papers.tasks import _quality
    from wpriv.training.engine.job import Job

    options = Options.model_validate(recipe.options)
    if options.judged and len(data.shape) != 3:
        raise Unsupported(f"{data.name} has no images for a classifier to judge: write options: judged: 0")
    inputs, tests = (torch.tensor(scaled(x), device=device) for x in (data.x_train, data.x_test[:MAX_EVALUATED]))
    model = _sliced.build_autoencoder(recipe, tuple(inputs.shape[1:])).to(device)
    width = _sliced.code_width(model, tests)
    penalty = _penalty(recipe, len(inputs))
    judge = _quality.fit_judge(data) if options.judged else None
    # the same points at every evaluation, so that epochs differ by the weights alone
    count = max(MAX_EVALUATED, options.judged)
    ball_points = ball(count, width, options.radius, torch.Generator().manual_seed(0)).to(device)

    def draw_points(indices: Any) -> Tensor:
        return ball(len(indices), width, options.radius, _sliced.seeded_generator()).to(device)

    def evaluate() -> dict[str, float]:
        with torch.no_grad():
            codes, reconstructions = model(tests)
            results = {
                "reconstruction": float((reconstructions - tests).square().mean()),
                "distance": _sliced.distance(codes, ball_points[:MAX_EVALUATED]),
            }
            if judge is not None:
                results |= judge.scores(_to_displayable(model.decoder(ball_points[: options.judged])))
            return results

    def save_artifacts(folder: Path) -> None:
        with torch.no_grad():
            samples = model.decoder(ball_points[:SAMPLES_SHOWN])
            pairs = torch.stack([tests[:PAIRS_SHOWN], model(tests[:PAIRS_SHOWN])[1]])
        if tests.dim() == 4 or tests.shape[1] == 2:
            np.savez(folder / "samples.npz", samples=_to_displayable(samples).numpy())
        if tests.dim() == 4:
            images, names = _to_displayable(pairs.flatten(0, 1)).numpy(), np.array(["original", "reconstructed"])
            np.savez(folder / "reconstructions.npz", samples=images, names=names)

    objective = _sliced.autoencoder_objective(model, inputs, tests, options, penalty, draw_points)
    aggregate = objective.make_aggregator(recipe.privacy, inputs, inputs)
    return Job(
        model, aggregate, evaluate, groups=[(np.arange(len(inputs)), penalty.batch)], save_artifacts=save_artifacts
    )


def ball(count: int, width: int, radius: float, generator: torch.Generator) -> Tensor:
    """Draw [count, width] uniform points of the centred ball: uniform directions times radius * u^(1/width)."""
    import torch

    normal = torch.randn(count, width, generator=generator, dtype=torch.float64)
    lengths = torch.rand(count, 1, generator=generator, dtype=torch.float64) ** (1 / width)
    points: Tensor = radius * lengths * normal / normal.norm(dim=1, keepdim=True)
    return points.float()


def _to_displayable(x: Tensor) -> Tensor:
    """Images clamped to [0, 1], or rows unchanged, on the CPU."""
    return (x.clamp(0, 1) if x.dim() == 4 else x).cpu()


def _penalty(recipe: Train, records: int) -> Penalty:
    """The penalty between the batch, which alone is private, and as many points of the ball."""
    options = Options.model_validate(recipe.options)
    batch = release_spec.sampling_of(recipe, records)[1]
    return _sliced.penalty(recipe, options, options.alpha, (batch, batch), fixed=True, private="x")


TASK = TaskSpec(
    options=Options,
    results=("reconstruction", "distance", *_generation.SCORES, "loss"),
    build_job=build_job,
    validate=validate,
    release=release,
    figures={"samples.npz": "samples", "reconstructions.npz": "samples"},
    publishable={"samples.npz": "made by the decoder from drawn codes alone: post-processing"},
)
