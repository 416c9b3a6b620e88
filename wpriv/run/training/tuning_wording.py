"""The words of the statement on a tuned training."""

from __future__ import annotations

from typing import Any

from wpriv.numerics.safe_rounding import text

COVERED = (
    "the choice of the best of K runs by the last {column} on test records: K, of the distribution {repeats}, and the "
    "candidate of each run were drawn before the first run and independently of all records and results"
)
OTHERS = (
    "the other runs, their scores, and K: they are not in this folder, and the guarantee holds only against those who "
    "do not learn them"
)
CHOICES = (
    "the choice of the candidates of tune, of all other settings, and of the distribution of K, if these were tuned on "
    "these records; every other training on them"
)
PUBLIC_SCORE = (
    "test records: the recipe declares them public. The score of each run is computed from them without noise, and "
    "decides which run is kept"
)
TIME = (
    "how long the training took, and the load of the machine meanwhile: who observes them may learn K. The other runs "
    "were deleted as files are, and not overwritten; logs of the operating system were not looked for"
)
NUMBERS = "K is drawn from 53 random bits, and its probabilities are those of the distribution up to rounding"
SETTINGS = "settings only, none of them computed from a record, and which candidate was the best"


def figures(entry: dict[str, Any]) -> list[str]:
    """What the guarantees of a tuned training are about, from the entry ``tuning`` of its statement."""
    kind, mean, count = entry["repeats"]["kind"], entry["repeats"]["mean"], len(entry["candidates"])
    chosen = entry["chosen"]
    words = "nothing is released: the number of runs was 0" if chosen is None else f"the best run has {_words(chosen)}"
    lines = [
        f"these are guarantees of the best of K runs, K {kind} with mean {mean:g}, each of one of {count} candidates "
        f"drawn uniformly; {words}"
    ]
    return lines + [
        f"one run alone, not chosen among others: eps = {text(eps, up=True)} by {name}"
        for name, eps in entry["one_run"].items()
    ]


def _words(labels: dict[str, Any]) -> str:
    return ", ".join(f"{key} = {value}" for key, value in labels.items())
