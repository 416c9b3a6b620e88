"""Read how often a step runs and on which share of the records: n, epochs, rate, batch and records."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from wpriv.core.adjacency import SAMPLINGS
from wpriv.core.parameters import MAX_COUNT
from wpriv.core.sampling.kinds import Sampling, allocation_rate
from wpriv.errors import UsageError
from wpriv.numerics.parse_numbers import number, shown, whole

REPETITION_KEYS = ("n", "rate", "batch", "records", "epochs")


def sampling_keys(sampling: str | Sampling, rate: float | None) -> dict[str, Any]:
    """``sampling`` and ``rate`` of a step mapping; a Sampling object brings its own rate.

    Raises:
        UsageError: a Sampling object and a rate beside it.
    """
    if not isinstance(sampling, Sampling):
        return {"sampling": sampling, "rate": rate}
    if rate is not None:
        raise UsageError(f"{sampling} has a rate of its own; leave out rate = {rate}")
    return {"sampling": sampling.kind, "rate": None if sampling.kind == "none" else sampling.rate}


@dataclasses.dataclass(frozen=True)
class Repetition:
    """The number of compositions and the sampling rate (None where nothing was said), and how the flags were read."""

    n: int | None
    rate: float | None
    notes: tuple[str, ...]


def repetition(
    *,
    n: Any = None,
    rate: Any = None,
    batch: Any = None,
    records: Any = None,
    epochs: Any = None,
    sampling: str = "none",
) -> Repetition:
    """Read n and the sampling rate from whichever of the flags were given.

    rate = batch / records. One epoch is 1 / rate steps, and n = ceil(epochs / rate): the whole run is rounded up once,
    not every epoch. What was not given stays None.

    Raises:
        UsageError: the flags contradict each other, or one of them lacks another.
    """
    if not isinstance(sampling, str) or sampling not in SAMPLINGS:
        raise UsageError(f"`sampling` must be one of {', '.join(SAMPLINGS)}; found {shown(sampling)}")
    notes = []
    if batch is not None:
        if rate is not None:
            raise UsageError("`rate` and `batch` both set the sampling rate; give one of them")
        if records is None:
            raise UsageError("`batch` needs `records` (the data-set size): the rate is batch / records")
        size, total = whole(batch, "batch"), whole(records, "records")
        if not 1 <= size <= total:
            raise UsageError(f"`batch` must lie between 1 and `records`; found {size} of {total} records")
        share: float | None = size / total
        notes.append(f"rate = batch / records = {size} / {total} = {share:.6g}")
    else:
        size = total = 0
        share = None if rate is None else number(rate, "rate")
    if share is not None and sampling == "none":
        given = "`batch`" if batch is not None else "`rate`"
        raise UsageError(
            f"{given} needs `sampling`: poisson (each record by itself), fixed (batches without replacement) or "
            f"allocation (one random step of each pass)"
        )
    if epochs is None:
        return Repetition(None if n is None else whole(n, "n"), share, tuple(notes))
    if n is not None:
        raise UsageError("`n` and `epochs` both set the number of compositions; give one of them")
    if share is None or not 0 < share <= 1:
        raise UsageError(
            "`epochs` needs a sampling rate in (0, 1]: give `batch` with `records`, or `rate` (an epoch is 1 / rate "
            "steps)"
        )
    passes = number(epochs, "epochs")
    if sampling == "allocation" and (whole_pass_rate := allocation_rate(share)) is not None:
        size, share = 0, whole_pass_rate
    exact = passes * total / size if size else passes / share
    if not 0 < exact <= MAX_COUNT:
        raise UsageError(f"`epochs` {passes:g} at this rate is {exact:g} steps; wanted 1 to 2^40")
    # 60 / 0.01 may exceed 6000 by rounding, which must not add a step
    count = max(1, math.ceil(exact * (1 - 1e-14)))
    per_epoch = total / size if size else 1 / share
    notes.append(f"n = {count} steps = ceil({passes:g} epochs x {per_epoch:.6g} steps an epoch), rounded up once")
    return Repetition(count, share, tuple(notes))


def with_repetition(written: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Replace batch, records and epochs of a step by n and rate (None where not given); return notes beside it."""
    sampling = "none" if written.get("sampling") is None else written["sampling"]
    repeated = repetition(**{key: written.get(key) for key in REPETITION_KEYS}, sampling=sampling)
    rest = {key: value for key, value in written.items() if key not in REPETITION_KEYS}
    return {**rest, "n": repeated.n, "rate": repeated.rate}, list(repeated.notes)
