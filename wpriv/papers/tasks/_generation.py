"""Shared parts of tasks that train generators of labelled images: options, generator, measurements and samples."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from wpriv.config.field_types import Count, Field, PluginRef, StrictModel
from wpriv.config.train_schema import Train
from wpriv.core import registry
from wpriv.errors import UsageError
from wpriv.training import models

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from wpriv.training.data import Data
    from wpriv.training.engine.job import CustomStep, Job
    from wpriv.training.engine.update_rules import UpdateRule
    from wpriv.training.models._layers import Generator

# accuracy on test images of classifiers that learn from samples alone, and sliced distance of samples to test images
RESULTS = ("logistic", "mlp", "sliced")
# metrics of the judge of images (``_quality.Judge.scores``)
SCORES = ("confidence", "entropy", "coverage", "frechet-small-cnn", "w2")
FIELDS: dict[str, Any] = {
    "results": RESULTS,
    "figures": {"samples.npz": "samples"},
    "publishable": {"samples.npz": "made by the generator alone: post-processing"},
    "reads_labels": True,
}
"""What these tasks have in common, as fields of ``TaskSpec``."""
# samples that are measured after an epoch; at the end of the run ``options.samples``
SAMPLES_PER_EPOCH = 1000
COMPARED, DIRECTIONS = 1000, 200
SAMPLES_SHOWN = 100
CHUNK = 1000
# of the latents and directions of measurements, which draw no random number of the training
SEED = 0


class Options(StrictModel):
    """Keys under ``options`` that these tasks share."""

    dimension: Count = Field(784, description="declared numbers of one image")
    classes: Count = Field(10, description="declared number of classes")
    generated: Count = Field(
        100, description="images generated for one update of the generator, equally many per class"
    )
    samples: Count = Field(
        60_000, description="images generated at the end, equally many per class, from which classifiers learn"
    )
    learners: list[Literal["logistic", "mlp"]] = Field(
        default=["logistic", "mlp"],
        description="the classifiers that learn from samples and are evaluated on test images",
    )


def build_generator(recipe: Train, data: Data, options: Options, device: torch.device) -> Generator:
    """Build the generator of a recipe."""
    from wpriv.training.models._layers import Generator

    for name, declared, actual in (
        ("dimension", options.dimension, int(data.x_train[0].size)),
        ("classes", options.classes, len(data.classes)),
    ):
        if declared != actual:
            raise UsageError(
                f"options: {name}: the recipe declares {declared}, on which the privacy may depend; found {actual} in "
                f"{data.name}. Change one of them"
            )
    generator = models.build(recipe.model, data.shape, len(data.classes))
    if not isinstance(generator, Generator):
        raise UsageError(
            f"{recipe.task} trains a generator of labelled images (merf-generator, celeba-generator); "
            f"found the model {recipe.model.name!r}"
        )
    return generator.to(device)


def latent_of(model: PluginRef, task: str) -> int:
    """Return how many numbers enter the generator of a recipe."""
    params = registry.params("models", model.name, model.parameters())
    if not hasattr(params, "latent"):
        raise UsageError(
            f"{task} trains a generator, and {model.name} is none; take dcgan-28 for images or mlp-generator"
        )
    latent: int = params.latent
    return latent


def descend(loss: Tensor, optimizer: UpdateRule) -> None:
    """Take one step of an optimizer on a loss."""
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()


def build_job(
    generator: Generator,
    modules: dict[str, nn.Module],
    custom_step: CustomStep,
    data: Data,
    options: Options,
    **fields: Any,
) -> Job:
    """Return the job of one of these tasks: the generator is measured and leaves samples."""
    from torch import nn

    from wpriv.training.engine.job import Job

    return Job(
        nn.ModuleDict({"generator": generator, **modules}),
        None,
        lambda: evaluate(generator, data, options, at_end=False),
        custom_step=custom_step,
        save_artifacts=lambda folder: save_samples(generator, options.classes, folder),
        conclude=lambda: evaluate(generator, data, options, at_end=True),
        **fields,
    )


def image_tensors(x: Any, y: Any, device: torch.device) -> tuple[Tensor, Tensor]:
    """Records as float32 images [N, C, H, W] and classes, each clamped alone to [0, 1] for the sensitivity."""
    import torch

    from wpriv.training.data import scaled

    return torch.tensor(scaled(x), device=device).clamp_(0, 1), torch.tensor(y, device=device).long()


def balanced_labels(count: int, classes: int, device: torch.device) -> Tensor:
    """Return ``count`` labels in ascending order, with class sizes that differ by at most 1."""
    import torch

    return torch.arange(count, device=device) * classes // count


def generate(model: Generator, count: int, classes: int) -> tuple[Tensor, Tensor]:
    """Generate images and their labels on the CPU; the same images for the same weights."""
    import torch

    from wpriv.training.engine.job import evaluating

    device = next(model.parameters()).device
    random = torch.Generator().manual_seed(SEED)
    labels = balanced_labels(count, classes, device)
    with torch.no_grad(), evaluating(model):
        images = [model(model.inputs(part, random)).cpu() for part in labels.split(CHUNK)]  # type: ignore[no-untyped-call]
    return torch.cat(images), labels.cpu()


def evaluate(model: Generator, data: Data, options: Options, *, at_end: bool) -> dict[str, float]:
    """Measure generated samples by the names in RESULTS, against test images; no training image is used."""
    import torch

    from wpriv.papers.tasks._quality import downstream, test_tensors
    from wpriv.transport import sliced

    classes = len(data.classes)
    x, y = generate(model, options.samples if at_end else min(options.samples, SAMPLES_PER_EPOCH), classes)
    results: dict[str, float] = {}
    if classes > 1:
        learners = options.learners if at_end else options.learners[:1]
        results = {learner: downstream(x, y, data, learner, seed=SEED) for learner in learners}
    random = torch.Generator().manual_seed(SEED)
    compared = x[torch.randperm(len(x), generator=random)[:COMPARED]].flatten(1)
    directions = sliced.random_directions(compared.shape[1], DIRECTIONS, random)
    real = test_tensors(data)[0][:COMPARED].flatten(1)
    return {**results, "sliced": float(sliced.wasserstein(compared, real, directions=directions).sqrt())}


def picture(rows: Mapping[str, Any], samples: Any, columns: int, most: int) -> dict[str, Any]:
    """Return the arrays of samples.npz: a row each of the images that are enough for one, then rows of samples."""
    kept = {name: images[:columns] for name, images in rows.items() if len(images) >= columns}
    count = min(most, len(samples) // columns)
    names = np.array([*kept, "generated", *[""] * (count - 1)])
    return {"samples": np.concatenate([*kept.values(), samples[: count * columns]]), "names": names}


def save_samples(model: Generator, classes: int, folder: Path) -> None:
    """Write samples.npz, a grid of samples with one class per row where there are classes."""
    x, y = generate(model, SAMPLES_SHOWN, classes)
    np.savez(folder / "samples.npz", samples=x.numpy(), labels=y.numpy())
