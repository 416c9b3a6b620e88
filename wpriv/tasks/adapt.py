"""Domain adaptation: a classifier learns from a labelled public data set (source) to label a private one without labels (target).

The features of both are brought together, by a discriminator (DANN) or by the sliced Wasserstein distance, while the classifier learns on
the source. The target is the private side: its records pass through the network that is trained, so that its gradients must be bounded
too, and not the projections alone (``variant: sound``). The source is public and costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from wpriv.config.train_schema import Train
from wpriv.config.yaml_document import Key
from wpriv.engine import release_spec
from wpriv.errors import UsageError
from wpriv.mechanisms.gauss import Gauss
from wpriv.mechanisms.projection import Projection
from wpriv.tasks import TaskSpec
from wpriv.tasks._adapt_options import RADIUS, TENSORS, Options, claimed, penalty

if TYPE_CHECKING:
    import torch

    from wpriv.engine.job import Job

# the numbers it measures: the share of the target's held-out records that is labelled rightly, that of the target records which were
# adapted to, and that of (up to 2000 records of) the source; and of the published DP-SWD the eps of its noise by the bound of its program
PRIVATE = ("dp-dann", "dp-swd")
UNIT = (
    "one record of the target (private) data set; the source data set is public, and the target's labels are not used"
)
MEASURED = (
    "transductive in metrics.csv: measured on the target records that were adapted to, with their labels. Do not publish it",
)


def validate(train: Train) -> list[tuple[Key, str]]:
    """What does not go together: a method that needs privacy or has none, and samplings that nothing is proven of."""
    found: list[tuple[Key, str]] = []
    own, private = Options.model_validate(train.options), train.privacy
    published = own.method == "dp-swd" and own.variant == "paper"
    if own.method not in PRIVATE and private is not None:
        found.append(
            (("privacy",), f"method {own.method} is not private: say privacy: none, or take dp-dann or dp-swd")
        )
    if published and private is not None:
        told = "dp-swd as published keeps no eps at all (see the statement): say privacy: none, and its noise by options.sigma"
        found.append((("privacy",), told))
    if published and own.sigma is None:
        found.append(
            (
                ("options",),
                "dp-swd as published needs sigma, the noise on a projection (Table 4 has 4.74 and 5.34 for digits)",
            )
        )
    if own.method in PRIVATE and not published and private is None:
        found.append(
            (
                ("privacy",),
                f"method {own.method} needs a target or noise under privacy; without it take {own.method[3:]}",
            )
        )
    if private is not None and own.method == "dp-swd" and private.sampling != "fixed":
        found.append(
            (
                ("privacy", "sampling"),
                f"dp-swd compares samples of a fixed size: say sampling: fixed; found {private.sampling}",
            )
        )
    if private is not None and own.method == "dp-dann" and private.clip == "batch-mean":
        found.append((("privacy", "clip"), "dp-dann clips the gradient of each record: give a norm; found batch-mean"))
    if own.method == "dp-swd" and own.route == "projections" and own.dimension is None and own.variant == "sound":
        found.append(
            (
                ("options",),
                "route projections needs dimension, the number of features that are projected: the noise hangs on it",
            )
        )
    return found


def release(train: Train, sizes: Mapping[str, int]) -> release_spec.ReleaseSpec:
    """What a step releases of the target: a sum of clipped gradients, a clipped Wasserstein gradient, or noisy projections."""
    own, records = Options.model_validate(train.options), sizes["records"]
    if own.method == "dp-dann":
        return _dann(train, own, records)
    if own.method == "dp-swd" and own.route == "gradient":
        return _gradient(train, own, records)
    if own.method == "dp-swd":
        return _projections(train, own, records)
    raise UsageError(f"method {own.method} is not private")


def _dann(train: Train, own: Options, records: int) -> release_spec.ReleaseSpec:
    found = replace(
        release_spec.gradients(train, records),
        unit=UNIT,
        clipped="each target record's gradient of the discriminator's loss, by features and discriminator together",
        not_covered=MEASURED,
    )
    if own.variant == "sound":
        return found
    norm = found.sensitivity * TENSORS**0.5

    def at(multiplier: float) -> Gauss:
        return Gauss(multiplier * norm, norm)

    told = f"each target record's gradient of the discriminator's loss, each of its {TENSORS} tensors by itself"
    return replace(found, at=at, sensitivity=norm, clipped=told)


def supports_exact_noise(train: Train) -> bool:
    """Whether all that is released is a sum of records clipped one by one, which ``privacy: {noise: exact}`` needs."""
    own = Options.model_validate(train.options)
    return own.method == "dp-dann" and own.variant == "sound"


def _gradient(train: Train, own: Options, records: int) -> release_spec.ReleaseSpec:
    _, batch = release_spec.drawn(train, records)
    found = release_spec.penalised(
        train,
        penalty(batch),
        [(records, max(records, batch))],
        unit=UNIT,
        not_covered=MEASURED,
        clipped=f"projections of features, and the Jacobians of each target record's (in units of public numbers: {own.bound:g} standard "
        f"deviations of the source's projections times {own.lipschitz:g} median norms of its Jacobians)",
        of="the gradient of the sliced Wasserstein distance between the features of target and source",
        drawn="every step takes a fresh uniformly random set of exactly the batch size from the target, without replacement",
    )
    return replace(found, batch=batch)


def _projections(train: Train, own: Options, records: int) -> release_spec.ReleaseSpec:
    sampling, batch = release_spec.drawn(train, records)
    assert own.dimension is not None

    def at(multiplier: float) -> Projection:
        return Projection(d=own.dimension or 0, k=own.directions, sigma=multiplier, sensitivity=2 * RADIUS)

    return release_spec.ReleaseSpec(
        at,
        sampling,
        batch,
        "replace-one",
        RADIUS,
        2 * RADIUS,
        clipped="the features of each target record, in a network that was trained on the source and is held fixed",
        of=f"each of {own.directions} projections of them on fresh random directions",
        unit=UNIT,
        not_covered=MEASURED,
    )


def remarks(train: Train, sizes: Mapping[str, int]) -> tuple[str, ...]:
    """What the statement of a run must say beside its figures."""
    own = Options.model_validate(train.options)
    side = "The private side is the target, whose records are used without labels; the source and its labels are public"
    if own.method == "none":
        return ("The target was not used to train: it serves to measure alone",)
    if own.method not in PRIVATE or own.variant == "sound":
        return (side,)
    if own.method == "dp-dann":
        return (side, *DANN_GAPS)
    told = claimed(own)
    paper = ""
    if told is not None and own.published is not None:
        delta = f"at delta = {own.published.delta:g}"
        paper = f"the paper prints eps = {own.published.eps:g}, and the bound of its program gives {told:.4g} {delta} for this noise; "
    return (
        side,
        f"NOT differentially private: {paper}what really holds is no finite eps at any delta below 1, as follows",
        *SWD_GAPS,
    )


SWD_GAPS = (
    "The published gradient passes through the Jacobian of the features at each private record, which is no function of the noisy "
    "projections: a record where it is not 0 among records where it is tells itself apart (Rodriguez-Vitores et al. 2025, Remark 4.3)",
    "Features are divided by twice the largest norm of the private batch, so that one record moves all of them",
    "For digits the paper's figure counts d = 784, the pixels, where the features that are projected are 320: more noise would be needed",
    "It counts the steps of passes over the target, where its program runs passes over the source: seven times as many from MNIST to USPS",
    "It charges the failure of its tail bound once for all steps, each of which draws directions of its own; the Bernstein bound of its "
    "program has the number of directions squared",
)
DANN_GAPS = (
    "DP-DANN as in the published program: each tensor of a record's gradient is clipped by itself, and noise is added to each record's "
    "gradient before their mean is taken; the eps told here is that of their sum. The program clips and adds noise again for each module "
    "that a tensor lies in, which leaves next to nothing of the gradient; that is not done here",
)


def build_job(train: Train, data: Any, device: torch.device, *, adjacency: str) -> Job:
    """The networks of a recipe on its pair of data sets: first weights from torch's global generator, which the engine has seeded.

    Raises:
        UsageError: the data are no pair, or the model has no features of its own. Unsupported: a layer has no rule for clipping.
    """
    from wpriv.tasks import _adapt

    return _adapt.job(train, Options.model_validate(train.options), data, device, adjacency)


TASK = TaskSpec(
    options=Options,
    results=("accuracy", "transductive", "on_source", "claimed"),
    build_job=build_job,
    validate=validate,
    release=release,
    supports_exact_noise=supports_exact_noise,
    remarks=remarks,
)
