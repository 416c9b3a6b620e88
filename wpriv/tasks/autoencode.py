"""The sliced-Wasserstein autoencoder, privately: codes are pulled to the uniform law on a ball, whose points the decoder makes samples of.

A step releases the gradient of (1 - alpha) mean squared error + alpha sliced W_2^2 between codes and fresh points of the ball.

Source:
    Kolouri, Pope, Martin, Rohde (2018) for the autoencoder; Rodriguez-Vitores, Lalanne, Loubes (2025), Theorem A.1, for the gradient.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np

from wpriv.config.field_types import Field, Positive, Share
from wpriv.config.train_schema import Train
from wpriv.config.yaml_document import Key
from wpriv.data import scaled
from wpriv.engine import release_spec
from wpriv.engine.penalty.penalty import Penalty
from wpriv.errors import Unsupported
from wpriv.tasks import TaskSpec, _quality, _sliced

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from wpriv.engine.job import Job

SHOWN, ACROSS = 100, 12  # samples, and pairs of test images with what becomes of them, that are left for figures
EVALUATED = 2000  # test records that are measured, at most
UNIT = "one training record: the values of one, replaced by any other"


class Options(_sliced.Options):
    """What a recipe may say under ``options``; C, the clip of the loss gradients, is ``privacy.clip``."""

    alpha: Share = Field(description="weight of the sliced distance; the reconstruction has the rest")
    error: Literal["mean", "sum"] = Field(
        "sum", description="the squared error of a record: mean or sum over its numbers"
    )
    radius: Positive = Field(1.0, description="of the ball that the codes are to fill")
    judged: Annotated[int, Field(ge=0, le=10_000)] = Field(
        1000, description="samples that a small classifier judges at each look, of images; 0 leaves them out"
    )


def validate(recipe: Train) -> list[tuple[Key, str]]:
    """What does not go with this task."""
    found = _sliced.validate(recipe)
    options = Options.model_validate(recipe.options)
    if options.radius > options.bound:
        told = f"codes are cut to the norm {options.bound:g} (bound): no more of the ball can be filled; found a radius of {options.radius:g}"
        found.append((("options", "radius"), told))
    return found


def release(recipe: Train, sizes: Mapping[str, int]) -> release_spec.ReleaseSpec:
    """A step releases the penalised gradient over a batch of fixed size; the points of the ball are nobody's."""
    penalty = _penalty(recipe, sizes["records"])
    drawn = "every step takes a fresh uniformly random set of exactly the batch size, without replacement: all records are one group"
    return release_spec.penalised(recipe, penalty, [(sizes["records"], penalty.batch)], unit=UNIT, drawn=drawn)


def build_job(recipe: Train, data: Any, device: torch.device, *, adjacency: str) -> Job:
    """The autoencoder of a recipe on its data: first weights from torch's global generator, which the engine has seeded.

    Raises:
        UsageError: the model makes no codes. Unsupported: samples are to be judged that are no images.
    """
    import torch

    from wpriv.engine.job import Job
    from wpriv.engine.penalty.objective import Objective

    options = Options.model_validate(recipe.options)
    if options.judged and len(data.shape) != 3:
        raise Unsupported(f"{data.name} has no images, which a classifier could judge: write judged: 0")
    inputs, tests = (torch.tensor(scaled(x), device=device) for x in (data.x_train, data.x_test[:EVALUATED]))
    model = _sliced.autoencoder(recipe, tuple(inputs.shape[1:])).to(device)
    width = _sliced.width(model, tests)
    penalty = _penalty(recipe, len(inputs))
    scale = 1 / inputs[0].numel() if options.error == "mean" else 1.0
    judge = _quality.judge(data) if options.judged else None
    # the same points at every look, so that two epochs differ by the weights alone
    looks = ball(max(EVALUATED, options.judged), width, options.radius, torch.Generator().manual_seed(0)).to(device)

    def fetch(places: Any) -> tuple[Tensor, Tensor]:
        found = inputs.index_select(0, torch.from_numpy(places).to(device))
        return found, found

    def points(places: Any) -> Tensor:
        return ball(len(places), width, options.radius, _sliced.generator()).to(device)

    def evaluate() -> dict[str, float]:
        with torch.no_grad():
            codes, made = model(tests)
            found = {
                "reconstruction": float((made - tests).square().mean()),
                "distance": _sliced.distance(codes, looks[:EVALUATED]),
            }
            return found if judge is None else {**found, **judge.scores(_shown(model.decoder(looks[: options.judged])))}

    def save_artifacts(folder: Path) -> None:
        with torch.no_grad():
            made, pairs = model.decoder(looks[:SHOWN]), torch.stack([tests[:ACROSS], model(tests[:ACROSS])[1]])
        if tests.dim() == 4 or tests.shape[1] == 2:
            np.savez(folder / "samples.npz", samples=_shown(made).numpy())
        if tests.dim() == 4:
            np.savez(
                folder / "reconstructions.npz",
                samples=_shown(pairs.flatten(0, 1)).numpy(),
                names=np.array(["original", "reconstructed"]),
            )

    axes = _sliced.drawn(width, options.directions, device)
    objective = Objective(
        model,
        lambda outputs, targets: _sliced.squared(outputs, targets) * scale,
        fetch,
        penalty,
        lambda outputs: outputs[0],
        axes,
        points,
    )
    gather = objective.gather(recipe.privacy, inputs, inputs)
    return Job(model, gather, evaluate, groups=[(np.arange(len(inputs)), penalty.batch)], save_artifacts=save_artifacts)


def ball(count: int, width: int, radius: float, generator: torch.Generator) -> Tensor:
    """[count, width] uniform points of the ball about 0: a uniform direction, and the radius times u^(1/width)."""
    import torch

    drawn = torch.randn(count, width, generator=generator, dtype=torch.float64)
    lengths = torch.rand(count, 1, generator=generator, dtype=torch.float64) ** (1 / width)
    found: Tensor = radius * lengths * drawn / drawn.norm(dim=1, keepdim=True)
    return found.float()


def _shown(x: Tensor) -> Tensor:
    """Images as they are looked at: cut to [0, 1]; rows as they are."""
    return (x.clamp(0, 1) if x.dim() == 4 else x).cpu()


def _penalty(recipe: Train, records: int) -> Penalty:
    """As many points of the ball as records in the batch; these alone are private."""
    options = Options.model_validate(recipe.options)
    batch = release_spec.drawn(recipe, records)[1]
    return _sliced.penalty(recipe, options, options.alpha, (batch, batch), fixed=True, private="x")


TASK = TaskSpec(
    options=Options,
    results=("reconstruction", "distance", *_quality.SCORES, "loss"),
    build_job=build_job,
    validate=validate,
    release=release,
    figures={"samples.npz": "samples", "reconstructions.npz": "samples"},
    publishable={"samples.npz": "made by the decoder from drawn codes alone: post-processing"},
)
