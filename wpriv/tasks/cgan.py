"""DP-CGAN: a conditional GAN whose discriminator learns by DP-SGD, while its generator sees records through the discriminator alone.

At each step the discriminator's gradient on records is clipped record by record, summed and made noisy; its gradient on made images needs
no noise, as no record is in it. The generator then moves against the discriminator: post-processing.

Source:
    Torkzadehmahani, Kairouz, Paten (2019), "DP-CGAN", by Poisson sampling; their clipping of the two losses apart, and more noise than
    the records' part needs, are not copied.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from wpriv.config.field_types import Count, Field, Positive
from wpriv.config.train_schema import Privacy, Train
from wpriv.config.yaml_document import Key
from wpriv.engine import release_spec
from wpriv.tasks import TaskSpec, _generation

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from wpriv.engine.job import Job, ReleaseGate
    from wpriv.engine.release import Bounded


class Options(_generation.Options):
    """What a recipe may say under ``options``."""

    width: Count = Field(128, description="units of the discriminator's one hidden layer")
    generator_lr: Positive | None = Field(
        None, description="learning rate of the generator, where it is not that of the discriminator"
    )


def validate(train: Train) -> list[tuple[Key, str]]:
    """What does not go together."""
    found: list[tuple[Key, str]] = []
    if train.privacy is not None and (train.privacy.clip == "batch-mean" or train.privacy.mask):
        found.append(
            (
                ("privacy", "clip"),
                "the discriminator learns by DP-SGD, which clips each record's gradient: give a norm, and no mask",
            )
        )
    if train.batch is None:
        found.append((("batch",), "give 'batch', the number of records of a step"))
    return found


def release(train: Train, sizes: Mapping[str, int]) -> release_spec.ReleaseSpec:
    """The sum of the discriminator's clipped gradients on records."""
    return release_spec.gradients(train, sizes["records"])


def supports_exact_noise(train: Train) -> bool:
    """Whether all that is released is a sum of records clipped one by one, which ``privacy: {noise: exact}`` needs."""
    return True


def build_job(train: Train, data: Any, device: torch.device, *, adjacency: str) -> Job:
    """Generator and discriminator, and the step that moves the one and then the other.

    Raises:
        UsageError: the data are not those that the recipe counts on.
    """
    import torch
    from torch import nn
    from torch.nn.functional import one_hot

    from wpriv.engine.clipping import clip
    from wpriv.engine.job import optimizer_of

    options = Options.model_validate(train.options)
    generator = _generation.generator(train, data, options, device)
    judge = nn.Sequential(
        nn.Linear(options.dimension + options.classes, options.width), nn.LeakyReLU(0.2), nn.Linear(options.width, 1)
    ).to(device)  # fmt: skip
    weights = list(judge.parameters())
    if train.privacy is not None:
        none = weights[0].new_empty(0, options.dimension + options.classes)
        clip.choose(judge, _loss, none, none[:, 0], method=clip.method_of(train.privacy))
    x, y = _generation.images(data.x_train, data.y_train, device)
    labels = _generation.even(options.generated, options.classes, device)
    own_rate = train.optimizer.model_copy(update={"lr": options.generator_lr or train.optimizer.lr})
    optimizers = {
        "judge": optimizer_of(weights, train.optimizer),
        "generator": optimizer_of(generator.parameters(), own_rate),
    }

    def labelled(images: Tensor, classes: Tensor) -> Tensor:
        """What the discriminator is shown: images with the one-hot label behind them."""
        return torch.cat([images.flatten(1), one_hot(classes, options.classes).to(images.dtype)], dim=1)

    def custom_step(places: Any, noisy: ReleaseGate) -> Tensor:
        own = torch.from_numpy(places).to(device)
        total, seen = _on_records(judge, labelled(x[own], y[own]), train.privacy, adjacency)
        made = generator(generator.inputs(labels))
        on_made = torch.autograd.grad(_loss(judge(labelled(made.detach(), labels)), 0.0).mean(), weights)
        # the expected batch, which does not depend on the draw
        for weight, real, false in zip(weights, noisy(total), on_made, strict=True):
            weight.grad = real / float(train.batch or len(x)) + false
        optimizers["judge"].step()
        optimizers["generator"].zero_grad()
        _loss(judge(labelled(made, labels)), 1.0).mean().backward()  # type: ignore[no-untyped-call]
        optimizers["generator"].step()
        return seen

    return _generation.job(generator, {"discriminator": judge}, custom_step, data, options, optimizers=optimizers)


def _on_records(judge: nn.Module, real: Tensor, private: Privacy | None, adjacency: str) -> tuple[Bounded, Tensor]:
    """The sum of the discriminator's gradients on records, and [3] how many, the sum of their losses, how many were clipped."""
    import torch

    from wpriv.engine.clipping.clip import clipped_sum
    from wpriv.engine.release import Bounded

    if private is None:
        losses, clipped = _loss(judge(real), 1.0), real.new_zeros(())
        total = Bounded(list(torch.autograd.grad(losses.sum(), list(judge.parameters()))), 0.0, "replace-one")
    else:
        norm = float(private.clip)
        how = {"norm": norm, "adjacency": adjacency, "method": private.method, "exact": private.exact}
        found = clipped_sum(judge, _loss, real, real.new_ones(len(real)), **how)  # type: ignore[arg-type]
        total, losses, clipped = found.total, found.losses, (found.norms > norm).sum()
    return total, torch.stack([real.new_tensor(len(real)), losses.detach().sum(), clipped])


def _loss(outputs: Tensor, targets: Tensor | float) -> Tensor:
    """The losses [n] of the discriminator, where it should have said 1 (a record) or 0 (made)."""
    import torch
    from torch.nn.functional import binary_cross_entropy_with_logits

    told = outputs[:, 0]
    wanted = targets if isinstance(targets, torch.Tensor) else torch.full_like(told, targets)
    return binary_cross_entropy_with_logits(told, wanted, reduction="none")


TASK = TaskSpec(
    options=Options,
    results=_generation.RESULTS,
    build_job=build_job,
    validate=validate,
    release=release,
    supports_exact_noise=supports_exact_noise,
    figures=_generation.FIGURES,
    publishable=_generation.PUBLISHABLE,
)
