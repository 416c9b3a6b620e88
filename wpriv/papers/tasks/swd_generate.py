"""A generator that learns from private projections: each step releases X U + V of a batch; the rest is post-processing.

The rows of X are images, bounded in norm, possibly with their label; U are fresh uniform directions, and V is normal
noise, which is also added to the projections of generated rows. The generator reduces the mean W_2^2 between both,
direction by direction. W_2^2 is the squared difference of the means plus W_2^2 of the centred samples. At noise levels
that protect single rows the second part is mostly noise: ``means: all`` compares with the means of all releases so far,
which costs nothing, and ``spread: 0`` leaves the second part out: that is no Wasserstein
distance, and not the loss of the paper. docs/reference/tasks.md says what ``labels`` does.

Source: Rakotomamonjy and Ralaivola (2021), Sections 4 and 6.3, which does not say how labels enter; accounted for by
    the mechanism ``projection``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from wpriv.config.train_schema import Train
from wpriv.errors import UsageError
from wpriv.papers.mechanisms.projection import at_multiplier
from wpriv.papers.tasks import _generation
from wpriv.papers.tasks._swd_generate_options import SENSITIVITY, Options
from wpriv.training.engine.release_spec import ONE_RECORD, ReleaseSpec, sampling_of
from wpriv.training.tasks import Fault, TaskSpec

if TYPE_CHECKING:
    import torch

    from wpriv.training.engine.job import Job, ReleaseGate

ROW_OF = {
    "appended": "the image with its one-hot label behind it (the label is private)",
    "joint": "the image in the place of its class, zeros in those of the others (the label is private)",
    "public": "the image (labels, and how many records each class has, are public)",
    "none": "the image (labels are not looked at)",
}


def validate(recipe: Train) -> Iterator[Fault]:
    """Faults: a sampling or clip that the accounting does not cover, and batches that do not fit the classes."""
    options = Options.model_validate(recipe.options)
    yield from _privacy_faults(recipe, options)
    if recipe.batch is None:
        yield ("batch",), "give 'batch', the number of records of a release"
    elif options.labels == "public" and recipe.batch % options.classes:
        message = f"with public labels the batch must be a multiple of the {options.classes} classes"
        yield ("batch",), f"{message}; found {recipe.batch}"
    if options.labels in ("joint", "public") and options.generated % options.classes:
        message = f"must be a multiple of the {options.classes} classes; found {options.generated}"
        yield ("options", "generated"), message
    if options.dimension % options.pool**2 or (options.features != "pixels" and options.pool > 1):
        yield ("options", "pool"), "cells must divide the image, and are of pixels, not of features"


def _privacy_faults(recipe: Train, options: Options) -> Iterator[Fault]:
    if recipe.privacy is None:
        return
    if recipe.privacy.sampling != "fixed":
        reason = "a release has a row for each record drawn, so that its shape would reveal their number"
        message = f"projections are accounted for under fixed sampling only ({reason}): write sampling: fixed"
        yield ("privacy", "sampling"), message
    if recipe.privacy.clip != 1.0 or recipe.privacy.mask:
        yield ("privacy",), "no gradient of a record is taken: leave out clip and mask; options: bound clips images"
    if options.labels == "public" and options.smallest is None:
        yield ("options", "labels"), "public labels need 'smallest', the number of records of the smallest class"


def release(recipe: Train, sizes: Mapping[str, int]) -> ReleaseSpec:
    """Return the release of a step: the noisy projections of one batch."""
    options = Options.model_validate(recipe.options)
    sampling, batch = sampling_of(recipe, sizes["records"])
    unit, draw = ONE_RECORD, ""
    if options.labels == "public":
        assert options.smallest is not None
        # each class is sampled separately, and the smallest one at the highest rate
        sampling = type(sampling)("fixed", batch // options.classes / options.smallest)
        unit = "the image of one training record; its label is public, and neighbours have the same labels"
        draw = (
            "every step takes a fresh uniformly random set of a fixed number of records from each class, without "
            "replacement"
        )
    elif options.labels == "none":
        unit = "one training record, of which the label is not used"
    return ReleaseSpec(
        partial(at_multiplier, options.row, options.directions, SENSITIVITY),
        sampling,
        batch,
        "replace-one",
        1.0,
        SENSITIVITY,
        clipped=f"each record's row, in units of {options.bound:g}: {ROW_OF[options.labels]}",
        of=f"each of {options.directions} random projections of each row, the rows in random order (two rows without "
        "negative numbers are at most sqrt(2) apart)",
        unit=unit,
        drawn=draw,
        covered=(
            "the generator's moves: they see records through the noisy projections alone, and no record passes through "
            "it",
        ),
    )


def build_job(recipe: Train, data: Any, device: torch.device, *, adjacency: str) -> Job:
    """Build the generator and the step that releases projections and updates it."""
    import torch

    from wpriv.papers.tasks import _projected
    from wpriv.training.engine.update_rules import UpdateRule

    options = Options.model_validate(recipe.options)
    generator = _generation.build_generator(recipe, data, options, device)
    x, y = _generation.image_tensors(data.x_train, data.y_train, device)
    encoder = _projected.RowEncoder(options, tuple(x.shape[1:]), device)
    step = _projected.ProjectionStep(generator, encoder, options, recipe.batch or len(x))
    optimizer = UpdateRule(generator.parameters(), recipe.optimizer)

    def custom_step(indices: Any, gate: ReleaseGate) -> torch.Tensor:
        rows = torch.from_numpy(gate.shuffled(indices)).to(device)
        return step(x[rows], y[rows], gate, optimizer)

    groups = _class_batches(y, options, recipe) if options.labels == "public" and recipe.privacy is not None else []
    fields = {"optimizers": {"generator": optimizer}, "groups": groups}
    return _generation.build_job(generator, {"pending": step.pending}, custom_step, data, options, **fields)


def _class_batches(y: torch.Tensor, options: Options, recipe: Train) -> list[Any]:
    """The indices of the records of each class, and how many of them a step takes."""
    classes = [(y == label).nonzero()[:, 0].cpu().numpy() for label in range(options.classes)]
    smallest = min(len(indices) for indices in classes)
    assert recipe.batch is not None
    assert options.smallest is not None
    if smallest < options.smallest:
        raise UsageError(
            f"options: smallest: the recipe declares {options.smallest} records of the smallest class; found {smallest}"
        )
    return [(indices, recipe.batch // options.classes) for indices in classes]


TASK = TaskSpec(options=Options, build_job=build_job, validate=validate, release=release, **_generation.FIELDS)
