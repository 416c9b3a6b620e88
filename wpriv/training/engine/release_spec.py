"""The release of one training step as it is accounted for; computed without torch and without records."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from wpriv.accounting.mechanisms.gauss import Gauss
from wpriv.accounting.mechanisms.matrix_gauss import MatrixGauss
from wpriv.config.train_schema import Train
from wpriv.core.kinds import Sampling, default_adjacency
from wpriv.core.mechanism import Mechanism
from wpriv.errors import UsageError

# --- how the noise of a release is divided between clipped gradients and a count of records ---


def default_count_noise(batch: float) -> float:
    """Return the standard deviation of the noise on a count that Andrew et al. (2021) recommend: batch / 20."""
    return batch / 20


def count_share(multiplier: float, count_noise: float, adjacency: str) -> float:
    """Return r, the share of a count in a joint release of noise multiplier ``multiplier`` (docs/theory/clipping.md,
    Theorem 3).

    Args:
        multiplier: z, the noise over the sensitivity of the joint release.
        count_noise: the standard deviation of the noise on the count.

    >>> round(count_share(1.0, 12.8, "add-remove"), 6)
    0.039092
    """
    unit = 1.0 if adjacency == "add-remove" else 2.0
    ratio = 2 * count_noise / (unit * multiplier)
    if not ratio > 1:
        raise UsageError(
            f"adapt: count_noise must be above {unit * multiplier / 2:.6g} at a noise multiplier of {multiplier:.6g}: "
            f"the count alone would need more noise than the release has; found {count_noise:g}"
        )
    return 1 / math.sqrt(ratio * ratio - 1)


def gradient_multiplier(multiplier: float, count_noise: float, adjacency: str) -> float:
    """Return the noise on the sum of gradients over its sensitivity u C: multiplier times sqrt(1 + r^2).

    >>> round(gradient_multiplier(1.0, 12.8, "add-remove"), 6)
    1.000764
    """
    return multiplier * math.sqrt(1 + count_share(multiplier, count_noise, adjacency) ** 2)


ONE_RECORD = "one training record with its label"
ONE_PERSON = (
    "one person with all training records of theirs, of which at most {limit} are used: a record is a person here"
)
IN_BINS = (
    "before the training every record draws one of the 1 / rate bins, uniformly and independently of all others, and "
    "keeps it: it takes part in the step of its bin in every pass and in no other step; a step may be empty; sums are "
    "divided by the expected batch"
)
NO_PRIVACY = "a training without privacy releases nothing that could be accounted for"


@dataclass(frozen=True)
class ReleaseSpec:
    """A release before its noise is known.

    Args:
        at: the mechanism of one release at a noise multiplier (standard deviation of the noise over the sensitivity).
        sampling: how records are drawn, as run and as accounted for. batch: how many, on average where batches have
            random sizes.
        adjacency: the neighbouring relation of the accounting.
        clip: the bound of what is clipped. sensitivity: of what gets the noise, in the units of ``clip``.
        clipped, of: for the statement, what is clipped and what the noise is added to.
        unit: what is protected. drawn: how records are drawn, where the usual words do not describe it.
        once: one release in the whole run, and post-processing from then on.
        persons: whether several records of one person may be accounted for together: each record adds to the sum by
            itself, and is drawn like all others.
        strategy: of noise that is correlated between steps; "" for independent noise.
        covered, not_covered: lines of the statement for this task alone.
    """

    at: Callable[[float], Mechanism]
    sampling: Sampling
    batch: float
    adjacency: str
    clip: float
    sensitivity: float
    clipped: str = "each record's gradient"
    of: str = "the sum of clipped gradients, before it is divided by the batch"
    unit: str = ONE_RECORD
    drawn: str = ""
    once: bool = False
    persons: bool = False
    strategy: str = ""
    covered: tuple[str, ...] = ()
    not_covered: tuple[str, ...] = ()


def sampling_of(train: Train, records: int) -> tuple[Sampling, int]:
    """The sampling of a step from ``records`` records, and the batch size (random allocation: t = records / batch)."""
    batch = records if train.batch is None else train.batch
    if batch > records:
        raise UsageError(f"batch: {batch} is larger than the training set of {records} records; take a smaller one")
    private = train.privacy
    if batch == records and (private is None or private.sampling == "none"):
        return Sampling(), batch
    if private is not None and private.sampling == "allocation":
        return Sampling("allocation", 1 / max(1, round(records / batch))), batch
    return Sampling("fixed" if private is None else private.sampling, batch / records), batch


def expected_batch(train: Train, records: int) -> float:
    """The public number by which clipped sums are divided: the recipe's batch, or records / t of an allocation."""
    sampling, batch = sampling_of(train, records)
    if sampling.kind != "allocation":
        return batch
    steps = sampling.pass_steps
    return records / steps if records % steps else records // steps


def gradients(train: Train, records: int) -> ReleaseSpec:
    """Return the release of DP-SGD: the sum of clipped gradients, or the clipped mean with ``clip: batch-mean``.

    Raises:
        UsageError: the batch is larger than the training set, or the recipe has no privacy.
    """
    private = train.privacy
    if private is None:
        raise UsageError(NO_PRIVACY)
    sampling, batch = sampling_of(train, records)[0], expected_batch(train, records)
    adjacency = private.adjacency or default_adjacency(sampling.kind)
    mean = private.clip == "batch-mean"
    # sensitivity in units of the clipping norm: of the clipped sum to one record, or of the clipped mean to any batch
    unit = 2.0 if adjacency == "replace-one" or mean else 1.0
    norm = private.bound
    limit = train.data.parameters().get("max_per_person")
    words = ("the mean gradient of a batch", "the clipped mean") if mean else (_clipped(train), ReleaseSpec.of)
    strategy = "" if private.correlated is None else private.correlated.name
    return ReleaseSpec(
        partial(matrix_gauss, strategy, unit) if strategy else partial(gauss, unit),
        sampling,
        batch,
        adjacency,
        norm,
        unit * norm,
        *words,
        unit=ONE_PERSON.format(limit=limit) if limit else ONE_RECORD,
        persons=not mean and not limit,
        drawn=IN_BINS if strategy else "",
        strategy=strategy,
    )


def gauss(sensitivity: float, multiplier: float) -> Gauss:
    """Return normal noise of ``multiplier`` times the sensitivity; a partial of it can be stored, unlike a lambda."""
    return Gauss(multiplier * sensitivity, sensitivity)


def matrix_gauss(strategy: str, sensitivity: float, multiplier: float) -> MatrixGauss:
    """Return correlated normal noise: Z has ``multiplier`` times the sensitivity of one step."""
    return MatrixGauss(multiplier * sensitivity, strategy, sensitivity=sensitivity)


def _clipped(train: Train) -> str:
    """What is clipped, in words for the statement."""
    if train.data.parameters().get("max_per_person"):
        return "each person's gradient, the mean over the records of theirs that are used"
    copies = train.augment.copies if train.augment is not None else 1
    each = "each record's gradient"
    return each if copies == 1 else f"{each}, the mean over {copies} randomly changed copies of the record"
