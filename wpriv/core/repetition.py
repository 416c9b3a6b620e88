"""Read how often a step runs and on which share of the records: n, epochs, rate, batch and records."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from wpriv.core.kinds import PASSES, Sampling, sampling_kind, whole_pass_rate
from wpriv.core.parameters import MAX_COUNT
from wpriv.core.theorems import PARTS
from wpriv.errors import UsageError, placed
from wpriv.numerics.numbers import number, whole

ONE_RELEASE = "n = 1, since neither n nor epochs was given"
REPETITION_KEYS = ("n", "rate", "batch", "records", "epochs", "bands", "min_separation", "bins")


def sampling_keys(sampling: str | Sampling | None, rate: object, max_batch: object) -> dict[str, object]:
    """``sampling``, ``rate`` and ``max_batch`` of a step mapping; a Sampling object brings its own."""
    if not isinstance(sampling, Sampling):
        return {"sampling": sampling, "rate": rate, "max_batch": max_batch}
    if rate is not None:
        raise UsageError(f"{sampling} has a rate of its own; leave out rate = {rate}")
    if max_batch is not None and sampling.max_batch:
        raise UsageError(f"{sampling} has a largest batch of its own; leave out `max_batch`")
    rate = None if sampling.kind == "none" else sampling.rate
    return {"sampling": sampling.kind, "rate": rate, "max_batch": sampling.max_batch or max_batch}


@dataclasses.dataclass(frozen=True)
class Repetition:
    """The number of compositions, the rate (None if not said) and notes; with bands of blocks, ``parts`` in number."""

    n: int | None
    rate: float | None
    notes: tuple[str, ...]
    parts: int = 1


def repetition(*, bands: object = None, sampling: object = None, **written: object) -> Repetition:
    """Read n and the sampling rate from whichever of n, rate, batch, records and epochs were given, of a step's keys.

    rate = batch / records; shuffled batches whose last one is smaller count it as one batch more. One epoch is 1 / rate
    steps, and n = ceil(epochs / rate): the whole run is rounded up once, not every epoch. What was not given stays
    None. With ``bands``, the steps of a banded matrix mechanism become those of plain DP-SGD with the same guarantee:
    see ``_banded``.

    Raises:
        UsageError: the keys contradict each other, or one of them lacks another.
    """
    kind = sampling_kind(sampling)
    if written.get("bins") is not None:
        written["rate"] = _rate_of_bins(whole(written["bins"], "bins"), kind, written)
    plain = _repetition(kind, *(written.get(key) for key in ("n", "rate", "batch", "records", "epochs")))
    if written.get("min_separation") is not None:
        if bands is not None or "strategy" in written:
            raise UsageError(
                "`min_separation` is for independent noise; correlated noise has `separation=...`, a parameter of "
                "`mech='matrix-gauss'`"
            )
        return _separated(plain, whole(written["min_separation"], "min_separation"), kind)
    return plain if bands is None else _banded(plain, whole(bands, "bands"), kind)


def _rate_of_bins(bins: int, kind: str, written: Mapping[str, object]) -> float:
    if kind != "allocation" or bins < 1:
        raise UsageError(f"`bins` is a whole number of at least 1 and needs `sampling='balls-in-bins'`; found {bins}")
    if other := next((name for name in ("rate", "batch") if written.get(name) is not None), None):
        raise UsageError(f"`bins` and `{other}` both set the number of steps of a pass; give one of them")
    return 1 / bins


def _separated(plain: Repetition, separation: int, sampling: object) -> Repetition:
    """n rounds in which a client takes part at most once in every b: ceil(n / b) releases, adaptively composed."""
    if sampling != "none":
        raise UsageError(
            f"`min_separation` has no proof together with `sampling='{sampling}'`: whoever took part cannot be drawn "
            f"for some rounds, so that the draws of a client depend on each other. Leave out one of the two"
        )
    if separation < 1 or plain.n is None:
        raise UsageError(
            f"`min_separation` is a whole number of at least 1, beside `n`, the number of rounds; found {separation} "
            f"{'without `n`' if plain.n is None else ''}".rstrip()
        )
    count = math.ceil(plain.n / separation)
    note = (
        f"minimum separation {separation}: in n = {plain.n} rounds a client or record takes part at most {count} "
        f"times; no amplification by sampling; who takes part depends on no other client's data"
    )
    return Repetition(count, plain.rate, (*plain.notes, note))


def _banded(plain: Repetition, bands: int, sampling: object) -> Repetition:
    """n steps of a b-banded matrix mechanism, read as n/b steps at rate b q: docs/theory/bands.md."""
    if sampling != "poisson":
        raise UsageError(f"`bands` needs `sampling='poisson'`, each part of the records in turn; found {sampling!r}")
    if bands < 1:
        raise UsageError(f"`bands` is the number of bands of a strategy matrix, at least 1; found {bands}")
    if plain.rate is None or plain.n is None:
        raise UsageError(
            "`bands` needs the number of steps and the sampling rate: give `n` or `epochs`, and `rate` or `batch` with "
            "`records`"
        )
    rate, count = plain.rate * bands, math.ceil(plain.n / bands)
    if not rate <= 1 + 1e-12:
        raise UsageError(
            f"`bands` {bands} at rate {plain.rate:g} would draw from one part of {bands} with a probability of "
            f"{rate:g}. Give at most {math.floor(1 / plain.rate * (1 + 1e-12))} bands, or a smaller rate"
        )
    note = (
        f"{bands} bands: n = {plain.n} steps at rate {plain.rate:.6g} = {count} steps at rate {min(rate, 1.0):.6g} of "
        f"plain noise, which is Gaussian; {PARTS.sentence}"
    )
    return Repetition(count, min(rate, 1.0), (*plain.notes, note), bands)


def _repetition(
    sampling: object, n: object, rate: object, batch: object, records: object, epochs: object
) -> Repetition:
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
        if sampling == "shuffle" and total % size:
            batches, size = -(-total // size), 0
            share = 1 / batches
            notes.append(f"rate = 1 / {batches}: a pass is {batches} batches, the last one smaller")
        else:
            notes.append(f"rate = batch / records = {size} / {total} = {share:.6g}")
    else:
        size = total = 0
        share = None if rate is None else number(rate, "rate")
    if share is not None and sampling == "none":
        given = "`batch`" if batch is not None else "`rate`"
        raise UsageError(
            f"{given} needs `sampling`, as in `sampling='poisson'`: poisson (each record by itself), fixed (batches "
            f"without replacement), allocation (one random step of each pass) or shuffle (shuffled batches)"
        )
    if epochs is None:
        return Repetition(None if n is None else whole(n, "n"), share, tuple(notes))
    if n is not None:
        raise UsageError("`n` and `epochs` both set the number of compositions; give one of them")
    if share is None or not 0 < share <= 1:
        raise UsageError(
            "`epochs` needs a sampling rate in (0, 1]: give `batch` with `records`, or `rate` (an epoch is 1 / rate "
            "steps), or `bins` for balls in bins"
        )
    passes = number(epochs, "epochs")
    if sampling in PASSES and (rate_of_passes := whole_pass_rate(share)) is not None:
        size, share = 0, rate_of_passes
    exact = passes * total / size if size else passes / share
    if not 0 < exact <= MAX_COUNT:
        raise UsageError(f"`epochs` {passes:g} at this rate is {exact:g} steps; wanted 1 to 2^40")
    # 60 / 0.01 may exceed 6000 by rounding, which must not add a step
    count = max(1, math.ceil(exact * (1 - 1e-14)))
    per_epoch = total / size if size else 1 / share
    notes.append(f"n = {count} steps = ceil({passes:g} epochs x {per_epoch:.6g} steps an epoch), rounded up once")
    return Repetition(count, share, tuple(notes))


def with_repetition(written: Mapping[str, object]) -> tuple[dict[str, Any], list[str]]:
    """Replace batch, records and epochs of a step by n and rate (None where not given); return notes beside it."""
    repeated = repetition(**written)
    rest = {key: value for key, value in written.items() if key not in REPETITION_KEYS}
    parts = {"parts": repeated.parts} if repeated.parts > 1 else {}
    return {**rest, "n": repeated.n, "rate": repeated.rate, **parts}, list(repeated.notes)


def with_repetitions(
    steps: Iterable[Mapping[str, object]], places: Sequence[str] = ()
) -> tuple[list[dict[str, Any]], list[str]]:
    """Steps with n and rate in the place of epochs, batch, records and bands, and notes on how these were read."""
    specs, notes = [], []
    for index, written in enumerate(steps):
        with placed(places[index] if places else ""):
            spec, lines = with_repetition(written)
        notes += lines if spec["n"] is not None else [*lines, ONE_RELEASE]
        specs.append({**spec, "n": 1 if spec["n"] is None else spec["n"]})
    return specs, notes
