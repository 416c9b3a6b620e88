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

from pydantic import Field

from wpriv.core.fields import Count, Positive
from wpriv.core.schema_train import Train
from wpriv.tasks import _generation
from wpriv.train import account

if TYPE_CHECKING:
    import torch

    from wpriv.train.job import Job

RESULTS, FIGURES = _generation.RESULTS, _generation.FIGURES


class Options(_generation.Options):
    """What a recipe may say under ``options``."""

    width: Count = Field(128, description="units of the discriminator's one hidden layer")
    generator_lr: Positive | None = Field(None, description="learning rate of the generator, where it is not that of the discriminator")


def faults(train: Train) -> list[tuple[tuple[str, ...], str]]:
    """What does not go together."""
    found: list[tuple[tuple[str, ...], str]] = []
    if train.privacy is not None and (train.privacy.clip == "batch-mean" or train.privacy.mask):
        found.append(
            (("privacy", "clip"), "the discriminator learns by DP-SGD, which clips each record's gradient: give a norm, and no mask")
        )
    if train.batch is None:
        found.append((("batch",), "give 'batch', the number of records of a step"))
    return found


def release(train: Train, sizes: Mapping[str, int]) -> account.Release:
    """The sum of the discriminator's clipped gradients on records."""
    return account.gradients(train, sizes["records"])


def start(train: Train, data: Any, device: torch.device, *, adjacency: str) -> Job:
    """Generator and discriminator, and the step that moves the one and then the other.

    Raises:
        UsageError: the data are not those that the recipe counts on.
    """
    import torch
    from torch import nn
    from torch.nn.functional import binary_cross_entropy_with_logits, one_hot

    from wpriv.train.clip import clipped_sum
    from wpriv.train.job import Job, optimizer_of
    from wpriv.train.release import Bounded

    options, private = Options.model_validate(train.options), train.privacy
    generator = _generation.generator(train, data, options, device)
    judge = nn.Sequential(
        nn.Linear(options.dimension + options.classes, options.width), nn.LeakyReLU(0.2), nn.Linear(options.width, 1)
    ).to(device)  # fmt: skip
    weights = list(judge.parameters())
    x, y = _generation.images(data.x_train, data.y_train, device)
    own_rate = train.optimizer.model_copy(update={"lr": options.generator_lr or train.optimizer.lr})
    optimizers = {"judge": optimizer_of(weights, train.optimizer), "generator": optimizer_of(generator.parameters(), own_rate)}
    labels = _generation.even(options.generated, options.classes, device)

    def shown(images: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        return torch.cat([images.flatten(1), one_hot(classes, options.classes).to(images.dtype)], dim=1)

    def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return binary_cross_entropy_with_logits(outputs[:, 0], targets, reduction="none")

    def of_records(places: Any) -> tuple[Bounded, torch.Tensor]:
        """The sum of the discriminator's gradients on records, and [3] how many, the sum of their losses, how many were clipped."""
        own = torch.from_numpy(places).to(device)
        real = shown(x[own], y[own])
        targets = real.new_ones(len(real))
        if private is None:
            losses = loss(judge(real), targets)
            parts = list(torch.autograd.grad(losses.sum(), weights))
            return Bounded(parts, 0.0, "replace-one"), torch.stack(
                [losses.new_tensor(len(real)), losses.detach().sum(), losses.new_tensor(0)]
            )
        norm = float(private.clip)
        found = clipped_sum(judge, loss, real, targets, norm=norm, adjacency=adjacency, method=private.method)
        return found.total, torch.stack([real.new_tensor(len(real)), found.losses.detach().sum(), (found.norms > norm).sum()])

    def learn(places: Any, noisy: Any) -> torch.Tensor:
        total, seen = of_records(places)
        made = generator(generator.inputs(labels))
        false = loss(judge(shown(made.detach(), labels)), labels.new_zeros(len(labels), dtype=made.dtype)).mean()
        ours = torch.autograd.grad(false, weights)
        # the expected batch, which does not depend on the draw
        for weight, part, own in zip(weights, noisy(total), ours, strict=True):
            weight.grad = part / float(train.batch or len(x)) + own
        optimizers["judge"].step()
        optimizers["generator"].zero_grad()
        loss(judge(shown(made, labels)), labels.new_ones(len(labels), dtype=made.dtype)).mean().backward()  # type: ignore[no-untyped-call]
        optimizers["generator"].step()
        return seen

    return Job(
        nn.ModuleDict({"generator": generator, "discriminator": judge}),
        None,
        lambda: _generation.measured(generator, data, options, at_the_end=False),
        learn=learn,
        optimizers=optimizers,
        leave=lambda folder: _generation.leave(generator, options.classes, folder),
        conclude=lambda: _generation.measured(generator, data, options, at_the_end=True),
    )
