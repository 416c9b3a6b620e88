"""The release of one training step as it is accounted for; computed without torch and without records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from wpriv.config.train_schema import Train
from wpriv.core.adjacency import default_adjacency
from wpriv.core.mechanism import Mechanism
from wpriv.core.sampling.kinds import Sampling
from wpriv.core.sampling.sampled_step import defined_under
from wpriv.engine.penalty.penalty import Penalty
from wpriv.errors import UsageError
from wpriv.mechanisms.gauss import Gauss

ONE_RECORD = "one training record with its label"
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
    covered: tuple[str, ...] = ()
    not_covered: tuple[str, ...] = ()


def sampling_of(train: Train, records: int) -> tuple[Sampling, int]:
    """Return how the steps of a recipe sample a set of ``records``, and the batch that it asks for.

    With random allocation a pass has t = records / batch steps, rounded to a whole number.

    Raises:
        UsageError: the batch is larger than the set.
    """
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
    """Return the expected number of records of a step, by which clipped sums are divided: a public number.

    With random allocation it is records / t, which is near the batch of the recipe; otherwise it is that batch.
    """
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
    words = ("the mean gradient of a batch", "the clipped mean") if mean else (_clipped(train), ReleaseSpec.of)
    return ReleaseSpec(
        lambda multiplier: Gauss(multiplier * unit, unit),
        sampling,
        batch,
        adjacency,
        norm,
        unit * norm,
        *words,
        persons=not mean,
    )


def _clipped(train: Train) -> str:
    """What is clipped, in words for the statement."""
    copies = train.augment.copies if train.augment is not None else 1
    each = "each record's gradient"
    return each if copies == 1 else f"{each}, the mean over {copies} randomly changed copies of the record"


def penalised(train: Train, penalty: Penalty, records: Sequence[tuple[int, int]], **words: object) -> ReleaseSpec:
    """Return the release of a private penalised gradient (wpriv/engine/penalty).

    Args:
        records: of each group, from which batches are drawn without replacement.
        words: fields of ``ReleaseSpec`` that differ from the usual ones (``unit``, ``clipped``, ``drawn``, ...).
    Raises:
        UsageError: a group's batch is larger than the group, or the recipe has no privacy or asks for other neighbours.
    """
    if train.privacy is None:
        raise UsageError(NO_PRIVACY)
    step = penalty.step(1.0, records, 1)
    adjacency = defined_under(step.mechanism)[0]
    if train.privacy.adjacency not in (None, adjacency):
        raise UsageError(
            f"privacy: adjacency: the task {train.task} is accounted for under {adjacency} neighbours; found "
            f"{train.privacy.adjacency}. Leave adjacency out"
        )
    scores = f"each record's scores to an l2 norm of {penalty.bound:g}"
    defaults = {
        "clipped": f"{scores}, their Jacobians to {penalty.lipschitz:g}, and the gradient of its loss"
        if penalty.clip
        else f"{scores}, and their Jacobians",
        "of": "the penalised gradient",
        "unit": "the values of one training record within its group",
        "drawn": "every step takes a fresh uniformly random set of a fixed number of records from each group, "
        "without replacement",
    }
    return ReleaseSpec(
        lambda multiplier: penalty.mechanism(multiplier * penalty.sensitivity),
        step.sampling,
        penalty.batch,
        adjacency,
        penalty.clip or penalty.lipschitz,
        penalty.sensitivity,
        **{**defaults, **words},  # type: ignore[arg-type]
    )
