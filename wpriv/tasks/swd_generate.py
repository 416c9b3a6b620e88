"""A generator that learns from private projections: each step releases X U + V of a batch, and all that follows is post-processing.

The rows of X are images, bounded in norm, perhaps with their label; U are fresh uniform directions and V is normal noise, of which as
much is added to the projections of generated rows. The generator moves against the mean W_2^2 between the two, direction by direction. No
record passes through the generator, so that its gradient hangs on records through the releases alone.

W_2^2 on a line is the squared difference of the means and W_2^2 of what is left once they are taken off. Noise that hides single rows
leaves next to nothing of the second (its gradient is noise), while the means of all releases so far tell ever more of the mean row.
``means: all`` meets those, as post-processing may at no cost, and ``spread: 0`` leaves the second part out.

``labels`` says how a class is learnt:
    appended  a row is the image with its one-hot label behind it: the label is as private as the image. At noise that hides single
              rows little but the mean of the rows is learnt, and images and labels are tied by their covariance alone.
    joint     a row is the image in the place of its class, zeros in the places of the others (the outer product with the one-hot
              label): as private, and the mean of the rows holds the mean image of every class.
    public    distances between the images of each class. Labels, and how many records each class has, are public.
    none      images alone.

Source:
    Rakotomamonjy and Ralaivola (2021), Sections 4 and 6.3, which does not say how labels enter; accounted by the mechanism ``projection``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from wpriv.config.train_schema import Train
from wpriv.config.yaml_document import Key
from wpriv.engine.release_spec import ONE_RECORD, ReleaseSpec, drawn
from wpriv.mechanisms.projection import Projection
from wpriv.tasks import TaskSpec, _generation
from wpriv.tasks._swd_generate_options import SENSITIVITY, Options

if TYPE_CHECKING:
    import torch

    from wpriv.engine.job import Job

HOW = {
    "appended": "the image with its one-hot label behind it (the label is private)",
    "joint": "the image in the place of its class, zeros in those of the others (the label is private)",
    "public": "the image (labels, and how many records each class has, are public)",
    "none": "the image (labels are not looked at)",
}


def validate(train: Train) -> list[tuple[Key, str]]:
    """What does not go together."""
    options = Options.model_validate(train.options)
    found: list[tuple[Key, str]] = []
    if train.privacy is not None:
        if train.privacy.sampling != "fixed":
            why = "a release has a row for every record drawn, so that its shape would tell how many there were"
            found.append(
                (
                    ("privacy", "sampling"),
                    f"projections are accounted under fixed sampling alone: {why}. Say sampling: fixed",
                )
            )
        if train.privacy.clip != 1.0 or train.privacy.mask:
            found.append(
                (
                    ("privacy",),
                    "no gradient of a record is taken here: leave out clip and mask; options: bound clips images",
                )
            )
        if options.labels == "public" and options.smallest is None:
            found.append(
                (("options", "labels"), "public labels need 'smallest', the number of records of the smallest class")
            )
    if train.batch is None:
        found.append((("batch",), "give 'batch', the number of records of a release"))
    elif options.labels == "public" and train.batch % options.classes:
        found.append(
            (
                ("batch",),
                f"with public labels a batch has as many of each of the {options.classes} classes; found {train.batch}",
            )
        )
    if options.labels in ("joint", "public") and options.generated % options.classes:
        found.append(
            (
                ("options", "generated"),
                f"must be as many of each of the {options.classes} classes; found {options.generated}",
            )
        )
    if options.dimension % options.pool**2 or (options.features != "pixels" and options.pool > 1):
        found.append((("options", "pool"), "cells must divide the image, and are of pixels, not of features"))
    return found


def release(train: Train, sizes: Mapping[str, int]) -> ReleaseSpec:
    """One batch of noisy projections."""
    options = Options.model_validate(train.options)
    sampling, batch = drawn(train, sizes["records"])
    unit, told = ONE_RECORD, ""
    if options.labels == "public":
        assert options.smallest is not None
        # a set of each class by itself: what is drawn most is the smallest one
        sampling = type(sampling)("fixed", batch // options.classes / options.smallest)
        unit = "the image of one training record; its label is public, and neighbours have the same labels"
        told = "every step takes a fresh uniformly random set of a fixed number of records from each class, without replacement"
    elif options.labels == "none":
        unit = "one training record, of which the label is not used"
    what = f"each record's row, in units of {options.bound:g}: {HOW[options.labels]}"
    return ReleaseSpec(
        lambda multiplier: Projection(options.row, options.directions, multiplier * SENSITIVITY, SENSITIVITY),
        sampling,
        batch,
        "replace-one",
        1.0,
        SENSITIVITY,
        clipped=what,
        of=f"each of {options.directions} random projections of each row (two rows without negative numbers are at most sqrt(2) apart)",
        unit=unit,
        drawn=told,
        covered=(
            "the generator's moves: they see records through the noisy projections alone, and no record passes through it",
        ),
    )


def build_job(train: Train, data: Any, device: torch.device, *, adjacency: str) -> Job:
    """The generator, and the step that releases projections and moves it.

    Raises:
        UsageError: the data are not those that the recipe counts on.
    """
    import torch

    from wpriv.engine.job import optimizer_of
    from wpriv.tasks import _projected

    options = Options.model_validate(train.options)
    generator = _generation.generator(train, data, options, device)
    x, y = _generation.images(data.x_train, data.y_train, device)
    step = _projected.Step(
        generator, _projected.Rows(options, tuple(x.shape[1:]), device), options, train.batch or len(x)
    )
    optimizer = optimizer_of(generator.parameters(), train.optimizer)

    def custom_step(places: Any, noisy: Any) -> torch.Tensor:
        own = torch.from_numpy(places).to(device)
        return step(x[own], y[own], noisy, optimizer)

    groups = _groups(y, options, train) if options.labels == "public" and train.privacy is not None else []
    own = {"optimizers": {"generator": optimizer}, "groups": groups}
    return _generation.job(generator, {"pending": step.pending}, custom_step, data, options, **own)


def _groups(y: torch.Tensor, options: Options, train: Train) -> list[Any]:
    """The records of each class, and how many of them a step takes."""
    from wpriv.errors import UsageError

    found = [(y == label).nonzero()[:, 0].cpu().numpy() for label in range(options.classes)]
    least = min(len(places) for places in found)
    assert train.batch is not None
    assert options.smallest is not None
    if least < options.smallest:
        raise UsageError(
            f"options: smallest: the recipe counts on {options.smallest} records of the smallest class; found {least}"
        )
    return [(places, train.batch // options.classes) for places in found]


TASK = TaskSpec(
    options=Options,
    results=_generation.RESULTS,
    build_job=build_job,
    validate=validate,
    release=release,
    figures=_generation.FIGURES,
    publishable=_generation.PUBLISHABLE,
)
