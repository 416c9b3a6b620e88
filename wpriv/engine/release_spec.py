"""What one step of a training releases of its private records, as the accountants price it; decided without torch and without records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from wpriv.config.train_schema import Train
from wpriv.core.adjacency import default_adjacency
from wpriv.core.mechanism import Mechanism
from wpriv.core.process import Sampling
from wpriv.engine.penalty.penalty import Penalty
from wpriv.errors import UsageError
from wpriv.mechanisms.gauss import Gauss

ONE_RECORD = "one training record with its label"
NO_PRIVACY = "a training without privacy releases nothing that could be accounted"


@dataclass(frozen=True)
class ReleaseSpec:
    """A release before its noise is known.

    Args:
        at: the mechanism of one release at a noise multiplier (standard deviation of the noise over the sensitivity).
        sampling: how its records are drawn, as run and as accounted. batch: how many, on average under Poisson sampling.
        adjacency: the neighbours under which the mechanism is priced.
        clipped, of: for the statement, what is bounded and to what the noise is added. clip: the bound; sensitivity: the most that
            what gets the noise moves, in the units of ``clip``.
        unit: what is protected. drawn: how records are drawn, where it is not in the usual words.
        once: one release in the whole run, and post-processing from then on.
        covered, not_covered: lines of the statement that belong to this task alone.
    """

    at: Callable[[float], Mechanism]
    sampling: Sampling
    batch: int
    adjacency: str
    clip: float
    sensitivity: float
    clipped: str = "each record's gradient"
    of: str = "the sum of clipped gradients, before it is divided by the batch"
    unit: str = ONE_RECORD
    drawn: str = ""
    once: bool = False
    covered: tuple[str, ...] = ()
    not_covered: tuple[str, ...] = ()


def drawn(train: Train, records: int) -> tuple[Sampling, int]:
    """How a recipe's steps draw from a set of ``records``, and the expected number of records of a step.

    Raises:
        UsageError: the batch is larger than the set.
    """
    batch = records if train.batch is None else train.batch
    if batch > records:
        raise UsageError(f"batch: {batch} records were asked for and the training set has {records}; take fewer")
    private = train.privacy
    if batch == records and (private is None or private.sampling == "none"):
        return Sampling(), batch
    return Sampling("fixed" if private is None else private.sampling, batch / records), batch


def gradients(train: Train, records: int) -> ReleaseSpec:
    """DP-SGD: the sum of clipped per-example gradients; or, with ``clip: batch-mean``, the clipped mean gradient of a batch.

    Raises:
        UsageError: the batch is larger than the training set, or the recipe has no privacy.
    """
    private = train.privacy
    if private is None:
        raise UsageError(NO_PRIVACY)
    sampling, batch = drawn(train, records)
    adjacency = private.adjacency or default_adjacency(sampling.kind)
    mean = private.clip == "batch-mean"
    # in units of the clipping norm: what one record moves the clipped sum by, or any batch the clipped mean
    unit = 2.0 if adjacency == "replace-one" or mean else 1.0
    norm = private.norm if mean else float(private.clip)
    words = ("the mean gradient of a batch", "the clipped mean") if mean else ("each record's gradient", ReleaseSpec.of)
    return ReleaseSpec(
        lambda multiplier: Gauss(multiplier * unit, unit), sampling, batch, adjacency, norm, unit * norm, *words
    )


def penalised(train: Train, penalty: Penalty, records: Sequence[tuple[int, int]], **words: object) -> ReleaseSpec:
    """One private penalised gradient (``train/wasserstein``), its groups drawn without replacement from ``records`` of each.

    Args:
        words: fields of ``Release`` in words that say more than usual (``unit``, ``clipped``, ``of``, ``drawn``, ``not_covered``, ...).
    Raises:
        UsageError: a group's batch is larger than the group, or the recipe has no privacy.
    """
    if train.privacy is None:
        raise UsageError(NO_PRIVACY)
    step = penalty.step(1.0, records, 1)
    said = {
        "clipped": f"each record's scores to an l2 norm of {penalty.bound:g}, their Jacobians to {penalty.lipschitz:g}, and the gradient "
        "of its loss"
        if penalty.clip
        else f"each record's scores to an l2 norm of {penalty.bound:g}, and their Jacobians",
        "of": "the penalised gradient",
        "unit": "the values of one training record within its group",
        "drawn": "every step takes a fresh uniformly random set of a fixed number of records from each group, without replacement",
    }
    return ReleaseSpec(
        lambda multiplier: penalty.mechanism(multiplier * penalty.sensitivity),
        step.sampling,
        penalty.batch,
        step.mechanism.adjacencies[0],
        penalty.clip or penalty.lipschitz,
        penalty.sensitivity,
        **{**said, **words},  # type: ignore[arg-type]
    )
