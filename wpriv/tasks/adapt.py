"""Domain adaptation: a classifier learns from a labelled public data set (source) to label a private one without labels (target).

The features of both are brought together, by a discriminator (DANN) or by the sliced Wasserstein distance, while the classifier learns on
the source. The target is the private side: its records pass through the network that is trained, so that its gradients must be bounded
too, and not the projections alone (``variant: sound``). The source is public and costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from wpriv.config.field_types import Count, Positive, Strict
from wpriv.config.train_schema import Train
from wpriv.config.yaml_document import Key
from wpriv.core import registry
from wpriv.core.process import Process, Sampling, Step
from wpriv.errors import UsageError
from wpriv.mechanisms.gauss import Gauss
from wpriv.mechanisms.projection import Projection
from wpriv.tasks import _inputs
from wpriv.train import account
from wpriv.train.penalty import Penalty

if TYPE_CHECKING:
    import torch

    from wpriv.train.job import Job

# the numbers it measures: the share of the target's held-out records that is labelled rightly, that of the target records which were
# adapted to, and that of (up to 2000 records of) the source; and of the published DP-SWD the eps of its noise by the bound of its program
RESULTS = ("accuracy", "transductive", "on_source", "claimed")
PRIVATE = ("dp-dann", "dp-swd")
RADIUS = 0.5
"""Norm to which features are clipped before they are projected, so that two records are at most 1 apart."""
TENSORS = 8
"""Weights and biases of two layers of features and two of the discriminator, each clipped by itself in the published DP-DANN."""
UNIT = "one record of the target (private) data set; the source data set is public, and the target's labels are not used"
MEASURED = ("transductive in metrics.csv: measured on the target records that were adapted to, with their labels. Do not publish it",)


class Published(Strict):
    """The counts with which the paper accounts for its noise, and the eps that it prints (Table 4); those of the run are others."""

    d: Count
    k: Count
    records: Count
    batch: Count
    epochs: Count
    delta: Annotated[float, Field(gt=0, lt=1)]
    eps: Positive = Field(10.0, description="the eps that the paper prints for its noise")


class Options(Strict):
    """What a recipe may say under ``options``."""

    method: Literal["none", "dann", "swd", "dp-dann", "dp-swd"] = Field(description="none learns on the source alone")
    variant: Literal["sound", "paper"] = Field("sound", description="paper: as published, with its gaps")
    route: Literal["gradient", "projections"] = Field(
        "gradient", description="of the sound dp-swd: clipped gradients of all it compares, or noisy projections of features held fixed"
    )
    weight: Positive = Field(1.0, description="of the alignment beside the classification loss")
    warmup: Annotated[int, Field(ge=0)] = Field(0, description="steps on the source alone that come first")
    directions: Count = Field(200, description="random directions of a step, each step its own")
    bound: Positive = Field(1.0, description="route gradient: projections are clipped to so many standard deviations of the source's")
    lipschitz: Positive = Field(1.0, description="route gradient: Jacobians are clipped to so many times the source's median norm")
    moves: list[str] = Field(
        default_factory=list, description="layers of the features that a private gradient moves, as ['0']; all by default"
    )
    dimension: Count | None = Field(None, description="route projections: number of features that are compared")
    sigma: Positive | None = Field(None, description="dp-swd as published: standard deviation of the noise on a projection")
    published: Published | None = Field(None, description="dp-swd as published: what the paper counts")
    normalise: _inputs.Normalise | None = None
    shares: bool = Field(False, description="each record is divided by its sum first (counts)")
    standardise: bool = Field(False, description="inputs are brought to mean 0 and deviation 1, those of the source")


def faults(train: Train) -> list[tuple[Key, str]]:
    """What does not go together: a method that needs privacy or has none, and samplings that nothing is proven of."""
    found: list[tuple[Key, str]] = []
    own, private = Options.model_validate(train.options), train.privacy
    published = own.method == "dp-swd" and own.variant == "paper"
    if own.method not in PRIVATE and private is not None:
        found.append((("privacy",), f"method {own.method} is not private: say privacy: none, or take dp-dann or dp-swd"))
    if published and private is not None:
        told = "dp-swd as published keeps no eps at all (see the statement): say privacy: none, and its noise by options.sigma"
        found.append((("privacy",), told))
    if published and own.sigma is None:
        found.append((("options",), "dp-swd as published needs sigma, the noise on a projection (Table 4 has 4.74 and 5.34 for digits)"))
    if own.method in PRIVATE and not published and private is None:
        found.append((("privacy",), f"method {own.method} needs a target or noise under privacy; without it take {own.method[3:]}"))
    if private is not None and own.method == "dp-swd" and private.sampling != "fixed":
        found.append((("privacy", "sampling"), f"dp-swd compares samples of a fixed size: say sampling: fixed; found {private.sampling}"))
    if private is not None and own.method == "dp-dann" and private.clip == "batch-mean":
        found.append((("privacy", "clip"), "dp-dann clips the gradient of each record: give a norm; found batch-mean"))
    if own.method == "dp-swd" and own.route == "projections" and own.dimension is None and own.variant == "sound":
        found.append((("options",), "route projections needs dimension, the number of features that are projected: the noise hangs on it"))
    return found


def release(train: Train, sizes: Mapping[str, int]) -> account.Release:
    """What a step releases of the target: a sum of clipped gradients, a clipped Wasserstein gradient, or noisy projections."""
    own, records = Options.model_validate(train.options), sizes["records"]
    if own.method == "dp-dann":
        return _dann(train, own, records)
    if own.method == "dp-swd" and own.route == "gradient":
        return _gradient(train, own, records)
    if own.method == "dp-swd":
        return _projections(train, own, records)
    raise UsageError(f"method {own.method} is not private")


def _dann(train: Train, own: Options, records: int) -> account.Release:
    found = replace(
        account.gradients(train, records),
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


def exact(train: Train) -> bool:
    """Whether all that is released is a sum of records clipped one by one, which ``privacy: {noise: exact}`` needs."""
    own = Options.model_validate(train.options)
    return own.method == "dp-dann" and own.variant == "sound"


def penalty(batch: int, bound: float = 1.0, lipschitz: float = 1.0) -> Penalty:
    """One Wasserstein gradient between projections of target and source on a direction, or the mean of such over directions.

    Each direction's own is bounded by this, and so is their mean (triangle inequality). By default in units of both bounds.
    """
    return Penalty(1.0, bound=bound, lipschitz=lipschitz, sizes=((batch, batch),), private="x")


def _gradient(train: Train, own: Options, records: int) -> account.Release:
    _, batch = account.drawn(train, records)
    found = account.penalised(
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


def _projections(train: Train, own: Options, records: int) -> account.Release:
    sampling, batch = account.drawn(train, records)
    assert own.dimension is not None

    def at(multiplier: float) -> Projection:
        return Projection(d=own.dimension or 0, k=own.directions, sigma=multiplier, sensitivity=2 * RADIUS)

    return account.Release(
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


def claimed(own: Options) -> float | None:
    """The eps of a noise by the tail bound of the published program and the paper's own counts; None where they are not given."""
    if own.method != "dp-swd" or own.variant != "paper" or own.sigma is None or own.published is None:
        return None
    as_told = own.published
    # floor(N/B) + 1 steps an epoch, as the published program counts them
    steps = (as_told.records // as_told.batch + 1) * as_told.epochs
    step = Step(Projection(as_told.d, as_told.k, own.sigma), steps, Sampling("fixed", as_told.batch / as_told.records))
    found: float = (
        registry.load("accountants", "swd-tail").account(Process((step,)), w="bernstein-code").at(delta=as_told.delta).epsilon.safe
    )
    return found if math.isfinite(found) else None


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


def start(train: Train, data: Any, device: torch.device, *, adjacency: str) -> Job:
    """The networks of a recipe on its pair of data sets: first weights from torch's global generator, which the engine has seeded.

    Raises:
        UsageError: the data are no pair, or the model has no features of its own. Unsupported: a layer has no rule for clipping.
    """
    from wpriv.tasks import _adapt

    return _adapt.job(train, Options.model_validate(train.options), data, device, adjacency)
