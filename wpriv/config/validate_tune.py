"""Validate the key ``tune`` of a recipe of kind train: what all candidates share, and what is ruled out."""

from __future__ import annotations

from collections.abc import Iterator

from wpriv.config.train_schema import Train

# keys that describe records, neighbours, randomness or the question, and not a candidate; also those of ``privacy``
FIXED = (
    "task",
    "data",
    "seed",
    "seeds",
    "accountants",
    "tune",
    "sweep",
    "kind",
    "source",
    "expect",
    "claims",
    "time",
    "quick",
)
PUBLISHED = "tune needs a guarantee of each run, and the published procedure (clip: batch-mean) has none of use"
FIXED_PRIVACY = ("eps", "delta", "accountant", "adjacency", "group")


def faults(model: Train) -> Iterator[str]:
    """Yield what is wrong with the key ``tune`` of a recipe that has it, beside other keys."""
    tune, private = model.tune, model.privacy
    assert tune is not None
    if model.sweep is not None:
        yield "tune keeps only the best of its trainings, and a sweep all of them; give one of tune and sweep"
    if (model.seeds or 1) > 1:
        yield "tune draws its number of runs at random, and keeps the best alone; leave out seeds"
    if private is None:
        yield "tune bounds the privacy of the best run, and privacy: none has no privacy; use sweep, or give privacy"
        return
    if private.clip == "batch-mean":
        yield PUBLISHED
    if private.eps is not None and private.sigma is not None:
        yield (
            "with tune give eps (the noise is solved for) or sigma, and not both: a run is not cut short before eps "
            "is exceeded"
        )
    observing = model.observing
    if observing:
        yield f"tune: {observing[0]} observes gradients of one run, and has no figure of the best of several; use pld"
    changes = [change for axis in tune.sweep for _, keys in axis.points() for change in keys.items()]
    if ("privacy.clip", "batch-mean") in changes:
        yield PUBLISHED
    for path in dict.fromkeys(path for path, _ in changes):
        first, _, second = path.partition(".")
        if path == "privacy.sigma" and private.eps is not None:
            yield (
                "tune: sweep: with eps the noise of each candidate is solved for, and privacy.sigma would be without "
                "effect; leave out eps, or privacy.sigma of tune"
            )
        elif first in FIXED or path == "privacy" or (first == "privacy" and second in FIXED_PRIVACY):
            yield (
                f"tune: sweep: {path} is the same for all candidates, which share the records, the neighbours and the "
                f"question; write it above, and leave it out of tune"
            )
