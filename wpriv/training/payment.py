"""A training, or a file of reports, that is paid from the ledger of an organisation."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wpriv.core.process import Process
from wpriv.errors import CheckFailed, UsageError, WprivError, require
from wpriv.results import model, storage
from wpriv.results.model import Json
from wpriv.training.plan import Plan
from wpriv.training.run_folder import RunFolder

if TYPE_CHECKING:
    from wpriv.ledger.service import Ledger

PAID = "paid"  # the entry of provenance.json
MOST_LETTERS = 500  # of a reason


@dataclass(frozen=True)
class Payment:
    """A charge of a ledger: reserved before a run, begun before its first step, and ended with it.

    Args:
        url: of the ledger; shown: without its password. release: its number there. digest: of its entry.
        nonce: of this run, which alone may begin. begun: whether an earlier part of the same run has begun it.
    """

    url: str
    shown: str
    release: str
    digest: str
    nonce: str
    begun: bool = False

    def as_dict(self) -> Json:
        """The entry of ``provenance.json``, from which a resumed run knows that it is paid."""
        return {"ledger": self.shown, "release": self.release, "digest": self.digest, "nonce": self.nonce}

    def begin(self) -> None:
        """Make the charge final; records may be read from now on."""
        if not self.begun:
            with open_ledger(self.url) as ledger:
                ledger.begin(self.release, self.nonce)

    def cancel(self) -> None:
        """Return the charge of a run that never began."""
        if not self.begun:
            with open_ledger(self.url) as ledger:
                ledger.cancel(self.release)

    def done(self) -> None:
        """Note that the results are there."""
        with open_ledger(self.url) as ledger:
            ledger.done(self.release)


def open_ledger(url: str) -> Ledger:
    """The ledger at a URL; SQLAlchemy is loaded here alone."""
    require("sqlalchemy", "a ledger")
    from wpriv.ledger.service import Ledger

    return Ledger(url)


def reserve(url: str, job: Plan, folder: RunFolder) -> Payment:
    """Reserve the releases of a run, without those of earlier ones; one that is resumed finds its charge.

    Raises:
        Refused: they do not fit. UsageError: they are for other neighbours than the ledger, or the run that is resumed
            was paid from another ledger. CheckFailed: it is not in this ledger any more.
    """
    process, path = process_of(job), folder.path
    earlier = _earlier(path) if folder.resume else None
    with open_ledger(url) as ledger:
        shown = ledger.store.url
        if earlier is not None:
            if earlier["ledger"] != shown:
                raise UsageError(f"{path} was paid from the ledger {earlier['ledger']}; found {shown}. Name that one")
            state = ledger.state(earlier["release"])
            if (state.digest, state.state) != (earlier["digest"], "begun"):
                raise CheckFailed(
                    f"release {earlier['release']} of {shown} is not the one that paid for {path}, or has ended: the "
                    f"ledger was restored or written anew. Begin again with `fresh=True`, at the cost of both"
                )
            return Payment(url, shown, state.release, state.digest, earlier["nonce"], begun=True)
        place = str(path.resolve()).encode("utf-8", "replace").decode()
        receipt = ledger.reserve(process, reason=f"training in {place}"[:MOST_LETTERS])
        return Payment(url, shown, receipt.release, receipt.digest, secrets.token_hex(16))


def require_room(url: str, plans: Sequence[Plan]) -> None:
    """Check that trainings which are about to begin fit together; nothing is spent.

    Raises:
        Refused: they do not. UsageError: one has no privacy.
    """
    processes = [process_of(each) for each in plans]
    if processes:
        whole = processes[0].with_steps(tuple(step for each in processes for step in each.steps))
        with open_ledger(url) as ledger:
            ledger.spend(whole, dry_run=True)


def process_of(job: Plan) -> Process:
    """The releases of a run that are to be paid for, without those of earlier runs."""
    if job.step is None:
        raise UsageError("`ledger` pays for private trainings, and this one has no privacy. Leave it out")
    return replace(job, before=()).process()


def _earlier(folder: Path) -> dict[str, Any] | None:
    """The payment that the provenance of an unfinished run names."""
    try:
        paid = model.json_object(folder / storage.PROVENANCE).get(PAID)
    except WprivError:
        return None
    return paid if isinstance(paid, dict) and {"ledger", "release", "digest", "nonce"} <= paid.keys() else None
