"""DP-MERF: the mean embedding of the records in random features, class by class, released once; then a generator meets it.

A record's features are cos(w x) and sin(w x) for random normal w, whose products are those of a Gauss kernel, in the place of its class.
Their sum over all records gets noise once: whatever the generator does afterwards is post-processing, and costs nothing.

Source:
    Harder, Adamczewski, Park (2021), "DP-MERF: Differentially Private Mean Embeddings with Random Features", without their separate release
    of the class counts: classes are taken to be as frequent in samples as their part of the embedding says.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from wpriv.config.field_types import Count, Field, Positive
from wpriv.config.train_schema import Train
from wpriv.config.yaml_document import Key
from wpriv.core.process import Sampling
from wpriv.engine.release_spec import ReleaseSpec
from wpriv.errors import UsageError
from wpriv.mechanisms.gauss import Gauss
from wpriv.tasks import TaskSpec, _generation

if TYPE_CHECKING:
    import torch

    from wpriv.engine.job import Job, ReleaseGate
    from wpriv.engine.release import Bounded

# features have norm 1; those of a record and its replacement are at most this far apart
SENSITIVITY = 2.0


class Options(_generation.Options):
    """What a recipe may say under ``options``."""

    features: Count = Field(2000, description="random features of an image: half of them cosines, half sines")
    length: Positive = Field(
        10.2, description="length scale of the Gauss kernel, in pixels' units: public, not found from the records"
    )
    moves: Count = Field(100, description="moves of the generator in what the engine counts as a step")


def validate(train: Train) -> list[tuple[Key, str]]:
    """What does not go together."""
    options = Options.model_validate(train.options)
    found: list[tuple[Key, str]] = []
    if train.batch is not None:
        found.append(
            (
                ("batch",),
                "all records are embedded, once: leave batch out (options: generated is the batch of the generator)",
            )
        )
    if train.privacy is not None and train.privacy.sampling != "none":
        found.append((("privacy", "sampling"), "all records are embedded, once: say sampling: none"))
    if train.privacy is not None and train.privacy.adjacency == "add-remove":
        found.append(
            (
                ("privacy", "adjacency"),
                "the number of records is public, and neighbours replace one; leave adjacency out",
            )
        )
    if options.features % 2:
        found.append(
            (("options", "features"), f"half are cosines and half sines: give an even number; found {options.features}")
        )
    return found


def release(train: Train, sizes: Mapping[str, int]) -> ReleaseSpec:
    """The sum of all records' features, once."""
    return ReleaseSpec(
        lambda multiplier: Gauss(multiplier * SENSITIVITY, SENSITIVITY),
        Sampling(),
        sizes["records"],
        "replace-one",
        1.0,
        SENSITIVITY,
        clipped="each record's random features, in the place of its class",
        of="the sum of all records' features, once",
        once=True,
        covered=("the generator's moves: they see records through that one noisy sum alone",),
    )


def supports_exact_noise(train: Train) -> bool:
    """Whether all that is released is a sum of records clipped one by one, which ``privacy: {noise: exact}`` needs."""
    return True


def build_job(train: Train, data: Any, device: torch.device, *, adjacency: str) -> Job:
    """The generator, and the step that embeds all records (the first) and moves the generator (every one).

    Raises:
        UsageError: the data are not those that the recipe counts on.
    """
    import torch
    from torch import nn

    from wpriv.engine.job import optimizer_of
    from wpriv.engine.release import Bounded

    options = Options.model_validate(train.options)
    generator = _generation.generator(train, data, options, device)
    x, y = _generation.images(data.x_train, data.y_train, device)
    optimizer = optimizer_of(generator.parameters(), train.optimizer)
    # the frequencies are public; what is released stays with them, for checkpoints
    kept: Any = nn.Module()
    kept.register_buffer(
        "frequencies", torch.randn(options.dimension, options.features // 2, device=device) / options.length
    )
    kept.register_buffer("released", torch.zeros(options.features, options.classes, device=device))
    kept.register_buffer("embedded", torch.zeros((), dtype=torch.long))
    labels = _generation.even(options.generated, options.classes, device)

    def embedding(images: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        """[features, classes] the sum over images of their features, of norm 1 each, in the place of their class."""
        features = _features(images, kept.frequencies)
        return features.T @ nn.functional.one_hot(classes, options.classes).to(features.dtype)

    def whole() -> Bounded:
        """The sum over all records."""
        pieces = zip(*(torch.split(each, _generation.AT_ONCE) for each in (x, y)), strict=True)
        return Bounded([torch.stack([embedding(*piece) for piece in pieces]).sum(0)], SENSITIVITY, "replace-one")

    def custom_step(places: Any, noisy: ReleaseGate) -> torch.Tensor:
        if not kept.embedded:
            (released,) = noisy(_exact_sum(x, y, kept.frequencies, options) if noisy.exact else whole())
            kept.released.copy_(released / len(x))
            kept.embedded.fill_(1)
        total = torch.zeros((), device=device)
        for _ in range(options.moves):
            optimizer.zero_grad()
            made = generator(generator.inputs(labels))
            loss = (embedding(made, labels) / len(labels) - kept.released).square().sum()
            loss.backward()
            optimizer.step()
            total += loss.detach() / options.moves
        return torch.stack([total.new_tensor(len(x)), total * len(x), total.new_tensor(math.nan)])

    return _generation.job(
        generator, {"embedding": kept}, custom_step, data, options, optimizers={"generator": optimizer}
    )


def _features(images: torch.Tensor, frequencies: torch.Tensor) -> torch.Tensor:
    """[n, features] cosines and sines of images, of norm 1."""
    import torch

    turned = images.flatten(1) @ frequencies
    return torch.cat([turned.cos(), turned.sin()], dim=1) / math.sqrt(frequencies.shape[1])


def _exact_sum(x: torch.Tensor, y: torch.Tensor, frequencies: torch.Tensor, options: Options) -> Bounded:
    """The sum over all records without floating-point error: each by itself, clipped to norm 1, added to its class."""
    import torch

    from wpriv.engine import exact_sums
    from wpriv.engine.release import Bounded

    if len(x) > exact_sums.MOST:
        raise UsageError(f"noise: exact adds up to {exact_sums.MOST} records; found {len(x)}")
    sums = [exact_sums.Sum([frequencies.new_empty(options.features)], 1.0) for _ in range(options.classes)]
    for image, label in zip(x, y.tolist(), strict=True):
        sums[label].add([_features(image.unsqueeze(0).clone(), frequencies)])
    columns = [total.bounded("replace-one").parts[0] for total in sums]
    return Bounded([torch.stack(columns, dim=1)], SENSITIVITY, "replace-one", sums[0].grid, frequencies.dtype)


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
