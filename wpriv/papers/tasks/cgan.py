"""DP-CGAN: a conditional GAN whose discriminator learns by DP-SGD; the generator depends on records through it alone.

At each step the discriminator's gradient on records is clipped record by record, summed, and noise is added. Its
gradient on generated images gets no noise, as it depends on no record. The generator's step is post-processing.

Source:
    Torkzadehmahani, Kairouz, Paten (2019), "DP-CGAN", with Poisson sampling. Their separate clipping of the two losses
    and their noise, which is larger than the records' part needs, are not reproduced.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from wpriv.config.field_types import Count, Field, Positive
from wpriv.config.train_schema import Privacy, Train
from wpriv.papers.tasks import _generation
from wpriv.training.engine import release_spec
from wpriv.training.tasks import Fault, TaskSpec

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from wpriv.training.engine.job import Job, ReleaseGate
    from wpriv.training.noise.release import Bounded


class Options(_generation.Options):
    """Keys under ``options`` of a recipe."""

    width: Count = Field(128, description="units of the discriminator's one hidden layer")
    generator_lr: Positive | None = Field(
        None, description="learning rate of the generator, where it is not that of the discriminator"
    )


def validate(recipe: Train) -> Iterator[Fault]:
    """Faults: the published clipping of batch means, or no batch."""
    if recipe.privacy is not None and (recipe.privacy.clip == "batch-mean" or recipe.privacy.mask):
        message = "the discriminator learns by DP-SGD, which clips each record's gradient: give a norm, and no mask"
        yield ("privacy", "clip"), message
    if recipe.batch is None:
        yield ("batch",), "give 'batch', the number of records of a step"


def release(recipe: Train, sizes: Mapping[str, int]) -> release_spec.ReleaseSpec:
    """Return the release of a step: the sum of the discriminator's clipped gradients on records."""
    return release_spec.gradients(recipe, sizes["records"])


def build_job(recipe: Train, data: Any, device: torch.device, *, adjacency: str) -> Job:
    """Build generator and discriminator, and the step that updates one and then the other."""
    import torch
    from torch import nn
    from torch.nn.functional import one_hot

    from wpriv.training.clipping import clip
    from wpriv.training.engine.update_rules import UpdateRule

    options = Options.model_validate(recipe.options)
    generator = _generation.build_generator(recipe, data, options, device)
    discriminator = nn.Sequential(
        nn.Linear(options.dimension + options.classes, options.width), nn.LeakyReLU(0.2), nn.Linear(options.width, 1)
    ).to(device)  # fmt: skip
    weights = list(discriminator.parameters())
    if recipe.privacy is not None:
        empty = weights[0].new_empty(0, options.dimension + options.classes)
        clip.choose(discriminator, _losses, empty, empty[:, 0], method=clip.method_of(recipe.privacy))
    x, y = _generation.image_tensors(data.x_train, data.y_train, device)
    expected = float(release_spec.expected_batch(recipe, len(x)))
    labels = _generation.balanced_labels(options.generated, options.classes, device)
    lr = options.generator_lr or recipe.optimizer.lr
    optimizers = {
        "judge": UpdateRule(weights, recipe.optimizer),
        "generator": UpdateRule(generator.parameters(), recipe.optimizer.model_copy(update={"lr": lr})),
    }

    def with_labels(images: Tensor, classes: Tensor) -> Tensor:
        """Inputs of the discriminator: images with the one-hot label appended."""
        return torch.cat([images.flatten(1), one_hot(classes, options.classes).to(images.dtype)], dim=1)

    def custom_step(indices: Any, gate: ReleaseGate) -> Tensor:
        rows = torch.from_numpy(indices).to(device)
        total, diagnostics = _on_records(discriminator, with_labels(x[rows], y[rows]), recipe.privacy, adjacency)
        images = generator(generator.inputs(labels))
        losses = _losses(discriminator(with_labels(images.detach(), labels)), 0.0)
        on_generated = torch.autograd.grad(losses.mean(), weights)
        # divided by the expected batch, which does not depend on the draw
        for weight, real, generated in zip(weights, gate(total), on_generated, strict=True):
            weight.grad = real / expected + generated
        optimizers["judge"].step()
        _generation.descend(_losses(discriminator(with_labels(images, labels)), 1.0).mean(), optimizers["generator"])
        return diagnostics

    modules: dict[str, nn.Module] = {"discriminator": discriminator}
    return _generation.build_job(generator, modules, custom_step, data, options, optimizers=optimizers)


def _on_records(
    discriminator: nn.Module, real: Tensor, private: Privacy | None, adjacency: str
) -> tuple[Bounded, Tensor]:
    """The sum of the discriminator's gradients on records; [3] their number, sum of losses and number clipped."""
    import torch

    from wpriv.training.clipping.clip import clipped_sum
    from wpriv.training.noise.release import Bounded

    if private is None:
        losses, clipped = _losses(discriminator(real), 1.0), real.new_zeros(())
        gradient = torch.autograd.grad(losses.sum(), list(discriminator.parameters()))
        total = Bounded(list(gradient), 0.0, "replace-one")
    else:
        norm = float(private.clip)
        settings = {"norm": norm, "adjacency": adjacency, "method": private.method, "exact": private.exact}
        result = clipped_sum(discriminator, _losses, real, real.new_ones(len(real)), **settings)  # type: ignore[arg-type]
        total, losses, clipped = result.total, result.losses, (result.norms > norm).sum()
    return total, torch.stack([real.new_tensor(len(real)), losses.detach().sum(), clipped])


def _losses(outputs: Tensor, targets: Tensor | float) -> Tensor:
    """Losses [n] of the discriminator's outputs [n, 1] for targets 1 (a record) or 0 (generated)."""
    import torch
    from torch.nn.functional import binary_cross_entropy_with_logits

    logits = outputs[:, 0]
    labels = targets if isinstance(targets, torch.Tensor) else torch.full_like(logits, targets)
    return binary_cross_entropy_with_logits(logits, labels, reduction="none")


TASK = TaskSpec(
    options=Options,
    build_job=build_job,
    validate=validate,
    release=release,
    supports_exact_noise=lambda recipe: True,
    **_generation.FIELDS,
)
