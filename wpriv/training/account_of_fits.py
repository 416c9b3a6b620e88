"""The account of several fits on the same records: one ledger with a run for each fit, charged before it begins."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from wpriv.accounting import ledger
from wpriv.files.durable_writes import locked
from wpriv.training import plan

Run = list[ledger.Entry]
"""The entries of one fit."""


@dataclass(frozen=True)
class Charged:
    """A fit in an account: the file, the number of the fit in it, and the end of the file after it."""

    path: Path
    run: int
    end: ledger.Position


def charge(path: Path, job: plan.Plan) -> Charged:
    """Write all steps of a fit to the account, and return where."""
    assert job.step is not None
    with locked(path.with_name(f"{path.name}.lock"), f"another process writes {path}", wait=True):
        run = ledger.last_run(ledger.entries(path)) + 1
        stream = secrets.token_hex(8)
        book = ledger.Ledger(path, run, job.steps, adjacency=job.adjacency, stream=stream)
        try:
            for number in range(1, job.steps + 1):
                book.spend(number, job.step, f"{job.records} records")
        finally:
            book.close()
        return Charged(path.absolute(), run, book.position())


def without_held_out(runs: Sequence[Run], last: int, candidates: int, folds: int) -> list[list[Run]]:
    """Return for each size of the training sets of a search the runs that one record was in, as many as it can be.

    The fits of one fold are of one training set, so that their runs name the same number of records. Of the runs with
    this number, each fold has an equal share of each kind. Where the runs before that of the refit are not like this,
    because fits failed, or others came in between, all runs count.

    Args:
        runs: all of the account. last: the number of the refit's run, from 1. candidates: settings that were tried.
        folds: of the search; each record is held out in one.
    """
    first = last - 1 - candidates * folds
    if first < 0:
        return [[*runs]]
    searched, whole = runs[first : last - 1], runs[last - 1][0].settings
    kept = []
    for size in {run[0].settings for run in searched}:
        kinds = Counter((run[0].release, len(run)) for run in searched if run[0].settings == size)
        of_size, rest = divmod(sum(kinds.values()), candidates)
        if rest or size == whole or any(count % of_size for count in kinds.values()):
            return [[*runs]]
        left_out = Counter({kind: count // of_size for kind, count in kinds.items()})
        with_record = [*runs[:first], *runs[last - 1 :]]
        for run in searched:
            kind = run[0].release, len(run)
            if run[0].settings == size and left_out[kind]:
                left_out[kind] -= 1
            else:
                with_record.append(run)
        kept.append(with_record)
    return kept
