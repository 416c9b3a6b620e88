"""DP-MERF: a noisy mean embedding of the records in random features, released once, which a generator is fitted to.

The features of a record are cos(w x) and sin(w x) for random normal w, whose products approximate a Gaussian kernel, in
the block of its class. Noise is added once to their sum over all records; all training of the generator is
post-processing and costs nothing.

Source:
    Harder, Adamczewski, Park (2021), "DP-MERF: Differentially Private Mean Embeddings with Random Features", without
    their separate release of the class counts: the embedding itself says how frequent classes are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from wpriv.config.field_types import Count, Field, Positive
from wpriv.config.train_schema import Train
from wpriv.core.kinds import Sampling
from wpriv.errors import UsageError
from wpriv.papers.tasks import _generation
from wpriv.training.engine.release_spec import ReleaseSpec, gauss
from wpriv.training.tasks import Fault, TaskSpec

if TYPE_CHECKING:
    import torch

    from wpriv.training.engine.job import Job, ReleaseGate
    from wpriv.training.noise.release import Bounded

# the features of a record have norm 1, so that those of it and of its replacement are at most this far apart
SENSITIVITY = 2.0


class Options(_generation.Options):
    """Keys under ``options`` of a recipe."""

    features: Count = Field(2000, description="random features of an image: half of them cosines, half sines")
    length: Positive = Field(
        10.2,
        description="length scale of the Gaussian kernel, in pixels: a public number, not computed from records",
    )
    moves: Count = Field(100, description="updates of the generator in one step of the engine")


def validate(recipe: Train) -> Iterator[Fault]:
    """Faults: a batch or a sampling, where all records are used at once, or an odd number of features."""
    options = Options.model_validate(recipe.options)
    if recipe.batch is not None:
        message = "all records are embedded once: leave batch out (options: generated is the batch of the generator)"
        yield ("batch",), message
    if recipe.privacy is not None and recipe.privacy.sampling != "none":
        yield ("privacy", "sampling"), "all records are embedded once: write sampling: none"
    if recipe.privacy is not None and recipe.privacy.adjacency == "add-remove":
        message = "the number of records is public and neighbouring data sets replace one record; leave adjacency out"
        yield ("privacy", "adjacency"), message
    if recipe.privacy is not None and recipe.privacy.clip == "batch-mean":
        message = "each record's features have norm 1, and no gradient of a record is taken: leave clip out"
        yield ("privacy", "clip"), message
    if options.features % 2:
        message = f"half of the features are cosines and half sines: give an even number; found {options.features}"
        yield ("options", "features"), message


def release(recipe: Train, sizes: Mapping[str, int]) -> ReleaseSpec:
    """Return the only release of a run: the sum of all records' features."""
    return ReleaseSpec(
        partial(gauss, SENSITIVITY),
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


def build_job(recipe: Train, data: Any, device: torch.device, *, adjacency: str) -> Job:
    """Build the generator and the step that embeds all records (the first step only) and updates the generator."""
    import torch
    from torch import nn

    from wpriv.training.engine.update_rules import UpdateRule
    from wpriv.training.noise.release import Bounded

    options = Options.model_validate(recipe.options)
    generator = _generation.build_generator(recipe, data, options, device)
    x, y = _generation.image_tensors(data.x_train, data.y_train, device)
    optimizer = UpdateRule(generator.parameters(), recipe.optimizer)
    # the public frequencies and the release are saved together in checkpoints
    saved: Any = nn.Module()
    frequencies = torch.randn(options.dimension, options.features // 2, device=device) / options.length
    saved.register_buffer("frequencies", frequencies)
    saved.register_buffer("released", torch.zeros(options.features, options.classes, device=device))
    saved.register_buffer("embedded", torch.zeros((), dtype=torch.long))
    labels = _generation.balanced_labels(options.generated, options.classes, device)

    def embed(images: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        """Sum the features of images, each of norm 1 and in the column of its class: [features, classes]."""
        features = _features(images, saved.frequencies)
        return features.T @ nn.functional.one_hot(classes, options.classes).to(features.dtype)

    def embed_records() -> Bounded:
        chunks = zip(*(torch.split(part, _generation.CHUNK) for part in (x, y)), strict=True)
        return Bounded([torch.stack([embed(*chunk) for chunk in chunks]).sum(0)], SENSITIVITY, "replace-one")

    def custom_step(indices: Any, gate: ReleaseGate) -> torch.Tensor:
        if not saved.embedded:
            (released,) = gate(_exact_sum(x, y, saved.frequencies, options) if gate.exact else embed_records())
            saved.released.copy_(released / len(x))
            saved.embedded.fill_(1)
        mean_loss = torch.zeros((), device=device)
        for _ in range(options.moves):
            images = generator(generator.inputs(labels))
            loss = (embed(images, labels) / len(labels) - saved.released).square().sum()
            _generation.descend(loss, optimizer)
            mean_loss += loss.detach() / options.moves
        return torch.stack([mean_loss.new_tensor(len(x)), mean_loss * len(x), mean_loss.new_tensor(math.nan)])

    modules: dict[str, nn.Module] = {"embedding": saved}
    optimizers = {"generator": optimizer}
    return _generation.build_job(generator, modules, custom_step, data, options, optimizers=optimizers)


def _features(images: torch.Tensor, frequencies: torch.Tensor) -> torch.Tensor:
    """Cosines and sines of images [n, features], of norm 1."""
    import torch

    angles = images.flatten(1) @ frequencies
    return torch.cat([angles.cos(), angles.sin()], dim=1) / math.sqrt(frequencies.shape[1])


def _exact_sum(x: torch.Tensor, y: torch.Tensor, frequencies: torch.Tensor, options: Options) -> Bounded:
    """The sum over all records without floating-point error: each is clipped to norm 1 and added to its class."""
    import torch

    from wpriv.training.clipping import exact_sums
    from wpriv.training.noise.release import Bounded

    if len(x) > exact_sums.MAX_RECORDS:
        raise UsageError(f"noise: exact adds up to {exact_sums.MAX_RECORDS} records; found {len(x)}")
    sums = [exact_sums.ExactSum([frequencies.new_empty(options.features)], 1.0) for _ in range(options.classes)]
    for image, label in zip(x, y.tolist(), strict=True):
        sums[label].add([_features(image.unsqueeze(0).clone(), frequencies)])
    columns = [total.bounded("replace-one").parts[0] for total in sums]
    return Bounded([torch.stack(columns, dim=1)], SENSITIVITY, "replace-one", sums[0].grid, frequencies.dtype)


TASK = TaskSpec(
    options=Options,
    build_job=build_job,
    validate=validate,
    release=release,
    supports_exact_noise=lambda recipe: True,
    **_generation.FIELDS,
)
