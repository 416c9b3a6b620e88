"""What the tasks that make labelled images share: their options, the generator, and how its samples are measured and left."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from wpriv import models
from wpriv.config.field_types import Count, Field, StrictModel
from wpriv.config.train_schema import Train
from wpriv.errors import UsageError

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from wpriv.data import Data
    from wpriv.engine.job import CustomStep, Job
    from wpriv.models._generator import Generator

# shares of test images that classifiers get right which learnt from samples alone, and the sliced distance of samples to test images
RESULTS = ("logistic", "mlp", "sliced")
FIGURES = {"samples.npz": "samples"}
PUBLISHABLE = {"samples.npz": "made by the generator alone: post-processing"}
# of these an epoch is measured; the end of the run by as many as the recipe says
AN_EPOCH = 1000
COMPARED, DIRECTIONS = 1000, 200
SHOWN = 100
AT_ONCE = 1000
# of codes and directions that measure, so that measuring moves no random number of the training
SEED = 0


class Options(StrictModel):
    """What every recipe of them may say under ``options``."""

    dimension: Count = Field(784, description="numbers in one image, which the recipe counts on")
    classes: Count = Field(10, description="classes of the images, which the recipe counts on")
    generated: Count = Field(100, description="images made for one move of the generator, as many of every class")
    samples: Count = Field(
        60_000, description="images made at the end, as many of every class, from which classifiers learn"
    )
    learners: list[Literal["logistic", "mlp"]] = Field(
        default=["logistic", "mlp"], description="the classifiers that learn from samples and are tried on test images"
    )


def generator(train: Train, data: Data, options: Options, device: torch.device) -> Generator:
    """The generator of a recipe, its first weights from torch's global generator.

    Raises:
        UsageError: the model is no generator, or the data are not those that the recipe counts on.
    """
    from wpriv.models._generator import Generator

    found = {"dimension": int(data.x_train[0].size), "classes": len(data.classes)}
    for name, number in found.items():
        if getattr(options, name) != number:
            told = f"options: {name}: the recipe counts on {getattr(options, name)}, on which the privacy may hang; {data.name} has {number}"
            raise UsageError(f"{told}. Change one of them")
    made = models.build(train.model, data.shape, len(data.classes))
    if not isinstance(made, Generator):
        raise UsageError(
            f"{train.task} trains a generator (merf-generator, celeba-generator); found the model {train.model.name!r}"
        )
    return made.to(device)


def job(
    generator: Generator,
    others: dict[str, nn.Module],
    custom_step: CustomStep,
    data: Data,
    options: Options,
    **engine: Any,
) -> Job:
    """What the engine is given by all of these tasks: the generator alone is measured, and leaves samples.

    Args:
        others: by name, the modules that are saved with the generator. engine: further fields of ``Job``.
    """
    from torch import nn

    from wpriv.engine.job import Job

    return Job(
        nn.ModuleDict({"generator": generator, **others}),
        None,
        lambda: measured(generator, data, options, at_the_end=False),
        custom_step=custom_step,
        save_artifacts=lambda folder: save_artifacts(generator, options.classes, folder),
        conclude=lambda: measured(generator, data, options, at_the_end=True),
        **engine,
    )


def images(x: Any, y: Any, device: torch.device) -> tuple[Tensor, Tensor]:
    """Records as float32 in [0, 1], [N, C, H, W], and their classes."""
    import torch

    from wpriv.data import scaled

    # below 0 lies no pixel, and the bounds of sensitivity count on it; a record at a time, so that it protects
    return torch.tensor(scaled(x), device=device).clamp_(0, 1), torch.tensor(y, device=device).long()


def even(count: int, classes: int, device: torch.device) -> Tensor:
    """So many labels, as many of every class as can be, in order."""
    import torch

    return torch.arange(count, device=device) * classes // count


def sampled(model: Generator, count: int, classes: int) -> tuple[Tensor, Tensor]:
    """So many images and their labels, on the CPU and the same for the same weights."""
    import torch

    device = next(model.parameters()).device
    random = torch.Generator().manual_seed(SEED)
    labels = even(count, classes, device)
    was = model.training
    model.eval()
    with torch.no_grad():
        made = [model(model.inputs(part, random)).cpu() for part in labels.split(AT_ONCE)]  # type: ignore[no-untyped-call]
    model.train(was)
    return torch.cat(made), labels.cpu()


def measured(model: Generator, data: Data, options: Options, *, at_the_end: bool) -> dict[str, float]:
    """Figures of the generator by the names in RESULTS; test images are real, and no training image is looked at."""
    import torch

    from wpriv.tasks._quality import downstream, held_out
    from wpriv.transport import sliced

    classes = len(data.classes)
    x, y = sampled(model, options.samples if at_the_end else min(options.samples, AN_EPOCH), classes)
    found: dict[str, float] = {}
    if classes > 1:
        learners = options.learners if at_the_end else options.learners[:1]
        found = {learner: downstream(x, y, data, learner, seed=SEED) for learner in learners}
    random = torch.Generator().manual_seed(SEED)
    few = x[torch.randperm(len(x), generator=random)[:COMPARED]].flatten(1)
    directions = sliced.random_directions(few.shape[1], DIRECTIONS, random)
    real = held_out(data)[0][:COMPARED].flatten(1)
    return {**found, "sliced": float(sliced.wasserstein(few, real, directions=directions).sqrt())}


def save_artifacts(model: Generator, classes: int, folder: Path) -> None:
    """Writes a grid of samples, a class a row where there are some."""
    import numpy as np

    x, y = sampled(model, SHOWN, classes)
    np.savez(folder / "samples.npz", samples=x.numpy(), labels=y.numpy())
