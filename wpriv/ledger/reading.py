"""Read a ledger: its head, what is left, whether its entries are whole, and its history for the calculator."""

from __future__ import annotations

import contextlib
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from wpriv.core.process import Process, Step
from wpriv.errors import CheckFailed, MissingResource, Unsupported, UsageError
from wpriv.files import durable_writes, read_bytes
from wpriv.ledger.charter import Charter, canonical, digest, in_force, require_texts
from wpriv.ledger.filters import UNITS, Limit
from wpriv.ledger.scopes import Booking, Books, Place
from wpriv.ledger.store import PENDING, SPENT, Entry, Head, Store, release_rows
from wpriv.numerics.numbers import short, text

MAX_BYTES = 2_000_000_000
MAX_KINDS = 50  # of which pld is asked anew every time
KEPT_EVERY = 256  # entries after which the state of what ran is kept again
PROMISE = (
    "everything ever released from scope {scope} is {limit}, whatever is chosen from earlier outputs, and whenever "
    "it ends"
)
FIXED = "if all of it had been fixed before the first release: eps = {eps} at delta = {delta}, certified by pld"
# states after the last entry of each kind
AFTER = {"spend": "begun", "reserve": PENDING, "begin": "begun"}
ENDS = ("done", "lost", "cancelled", "expired")


@dataclass(frozen=True)
class Account:
    """One account of a limit.

    Args:
        scope, limit: whose it is. filter: the number of its filter; several of a limit are alternatives.
        name: T (mu^2), B (a divergence), A or delta (a probability), eps or rho. size: in that measure.
        booked: in units of 1e-15 of its size. closed: whether the filter was exceeded, and another one holds.
        cap: the units that the limit in force leaves of it.
    """

    scope: str
    limit: Limit
    filter: int
    name: str
    size: float
    booked: int
    closed: bool = False
    cap: int = UNITS

    @property
    def left(self) -> float:
        """The share that is left of the limit in force, from 0 to 1."""
        return 0.0 if self.closed or not self.cap else max(1 - self.booked / self.cap, 0.0)

    @property
    def in_force(self) -> float:
        """What the limit in force leaves of it, in the measure of the account."""
        return self.size * (self.cap / UNITS)

    @property
    def amount(self) -> float:
        """What is booked, in the measure of the account."""
        return self.size * (self.booked / UNITS)

    def as_dict(self) -> dict[str, object]:
        about = {"scope": self.scope, "limit": self.limit.as_dict(), "filter": self.filter, "account": self.name}
        sizes = {"size": self.size, "in_force": self.in_force}
        return {**about, **sizes, "booked": self.amount, "left": self.left, "closed": self.closed}


@dataclass(frozen=True)
class Status:
    """The state of a ledger.

    Args:
        promises: of every limit. limits: those in force, where they are below what is promised, with the scope.
        states: numbers of releases. open: those that began and have not ended.
    """

    rule: str
    promises: tuple[str, ...]
    accounts: tuple[Account, ...]
    states: Mapping[str, int]
    open: tuple[str, ...]
    head: Head
    fixed: str | None
    limits: tuple[tuple[str, Limit, Limit], ...] = ()

    def as_dict(self) -> dict[str, object]:
        rows = [account.as_dict() for account in self.accounts]
        about = {"rule": self.rule, "promises": list(self.promises), "accounts": rows, "states": dict(self.states)}
        limits = [
            {"scope": scope, "in_force": now.as_dict(), "ceiling": most.as_dict()} for scope, now, most in self.limits
        ]
        return {**about, "limits": limits, "open": list(self.open), "head": asdict(self.head), "fixed": self.fixed}


class Reader:
    """A ledger at a URL, of which nothing is changed; with ``read_only`` the database refuses to write as well.

    Raises:
        UsageError: no such URL, or no ledger there. MissingResource: the database cannot be opened.
    """

    def __init__(self, url: str, *, read_only: bool = False):
        self.store = Store(url, read_only=read_only)
        with self.store.transaction(write=False) as connection:
            row = self.store.row(connection, lock=False)
        self.charter = Charter.of_text(row.charter)

    def head(self) -> Head:
        """Return the last entry. Keep it elsewhere, since a chain does not show that its end was cut off."""
        with self.store.transaction(write=False) as connection:
            row = self.store.row(connection, lock=False)
            return Head(row.head_seq, row.head_digest)

    def status(self, *, fixed: bool = True) -> Status:
        """Return what is promised, booked and left.

        Args:
            fixed: also give what pld certifies of the releases so far, which holds if all of them had been fixed before
                the first one; None before the first one, without a limit with delta, with several scopes or a
                partition, and where of a mechanism only Renyi divergences are known.
        """
        with self.store.transaction(write=False) as connection:
            row = self.store.row(connection, lock=False)
            books = self.store.books(connection, self.charter.tree)
            releases = self.store.releases(connection)
        states = Counter(release.state for release in releases)
        gates = self.charter.tree.gates
        promises = tuple(PROMISE.format(scope=gate.scope, limit=gate.limit) for gate in gates)
        unfinished = tuple(release.id for release in releases if release.state == "begun")
        head = Head(row.head_seq, row.head_digest)
        accounts = tuple(account for gate in range(len(gates)) for account in accounts_of(books, gate))
        words = self._fixed() if fixed else None
        now = [(gate.scope, books.in_force(number).limit, gate.limit) for number, gate in enumerate(gates)]
        lower = tuple(row for row in now if row[1] != row[2])
        return Status(self.charter.rule, promises, accounts, states, unfinished, head, words, lower)

    def _fixed(self) -> str | None:
        """The certified figure of everything that ran, where it reads one scope and is of few kinds."""
        from wpriv.accounting import evaluate

        tree = self.charter.tree
        limit = next((gate.limit for gate in tree.gates if gate.limit.delta), None)
        if limit is None or len(tree.parents) > 1 or tree.partitions:
            return None
        process = self.process()
        if process is None:
            return None
        try:
            if len(process.steps) > MAX_KINDS:
                eps = self._grown(limit.eps or 0.0, limit.delta or 0.0)
            else:
                eps = evaluate.ask(evaluate.curve(process, "pld", 1e-3), delta=limit.delta).epsilon.safe
        except Unsupported:
            return None
        return None if math.isinf(eps) else FIXED.format(eps=text(eps, up=True), delta=short(limit.delta or 0.0))

    def _grown(self, eps: float, delta: float) -> float:
        """The upper end of eps of what ran, by a state to which the releases since it was kept are added."""
        from wpriv.ledger.growing import GrowingPlan

        with self.store.transaction(write=False) as connection:
            row = self.store.row(connection, lock=False)
            seq, state = self.store.grown(connection) or (0, b"")
            entries = self.store.entries(connection, seq)
            about = [
                (self.store.entry(connection, str(entry.release)) if entry.kind == "begin" else entry).content()
                for entry in entries
                if entry.kind in ("spend", "begin")
            ]
        plan = GrowingPlan.of_state(state, eps, delta) if state else GrowingPlan(eps, delta)
        for process, n in self._counted(about):
            plan.add(process, n)
        upper = plan.epsilon(delta)[1]
        if len(entries) >= KEPT_EVERY and not self.store.read_only:
            plan.drop(min(upper, eps))
            # another reader may do so, or nobody may write
            with contextlib.suppress(MissingResource), self.store.transaction() as connection:
                self.store.keep_grown(connection, Head(row.head_seq, row.head_digest), plan.state())
        return upper

    def _counted(self, about: list[dict[str, Any]]) -> list[tuple[Process, int]]:
        """The releases of entries as processes of one step, equal ones counted."""
        counts = Counter(
            canonical({"step": row, "records": each["records"]}) for each in about for row in each["steps"]
        )
        rows = [(json.loads(name), n) for name, n in counts.items()]
        tree, group = self.charter.tree, self.charter.group
        return [(Process((Step.from_dict(row["step"]),), tree.adjacency, group, row["records"]), n) for row, n in rows]

    def history(self) -> list[dict[str, Any]]:
        """The steps of all releases that began, as ``budget --history`` reads them, in order."""
        with self.store.transaction(write=False) as connection:
            self.store.row(connection, lock=False)
            began = {row.id for row in self.store.releases(connection) if row.state in SPENT}
            entries = self.store.entries(connection)
        contents = [
            entry.content() for entry in entries if entry.kind in ("spend", "reserve") and entry.release in began
        ]
        return [
            {**step, "records": about["records"]} if about["records"] else step
            for about in contents
            for step in about["steps"]
        ]

    def process(self) -> Process | None:
        """All releases that began, equal steps added up; None before the first."""
        steps: dict[str, Step] = {}
        for row in self.history():
            step = Step.from_dict(row)
            name = canonical({**row, "n": 1})
            steps[name] = Step(step.mechanism, step.n + (steps[name].n if name in steps else 0), step.sampling)
        return Process(tuple(steps.values()), self.charter.tree.adjacency, self.charter.group) if steps else None

    def export(self, path: str | Path) -> int:
        """Write the history to a .json file, or all entries to a .jsonl file; return the number of steps or entries.

        Raises:
            UsageError: the file has another ending, or is a folder. MissingResource: it cannot be written.
        """
        path = Path(path)
        if path.suffix not in (".json", ".jsonl"):
            raise UsageError(
                f"a ledger is exported to a file that ends in .json (the steps, for budget --history) or in .jsonl "
                f"(all entries); found {str(path)[:80]!r}"
            )
        if path.is_dir():
            raise UsageError(f"{path} is a folder. Name a file for the export, such as history.json")
        if path.suffix == ".jsonl":
            with self.store.transaction(write=False) as connection:
                row = self.store.row(connection, lock=False)
                entries = self.store.entries(connection)
            write_entries(path, row.id, entries)
            return len(entries)
        steps = self.history()
        durable_writes.replace(path, (json.dumps(steps, indent=1) + "\n").encode())
        return len(steps)

    def check(self, head: str | None = None) -> list[str]:
        """Read all entries again, and compare with them what the other tables say.

        Args:
            head: number and digest of a last entry that was kept elsewhere.
        Returns:
            Remarks: releases that began and have not ended.
        Raises:
            CheckFailed: an entry was changed, removed or moved, the tables do not follow from the entries, or the
                ledger is shorter than ``head`` says. UsageError: ``head`` is no head.
        """
        require_texts(head=head)
        with self.store.transaction(write=False) as connection:
            row = self.store.row(connection, lock=False)
            entries = self.store.entries(connection)
            books = self.store.books(connection, self.charter.tree)
            releases = [dict(each._mapping) for each in self.store.releases(connection)]
        _require_chain(entries, row.id)
        _require_head(entries, Head(row.head_seq, row.head_digest), head)
        replay = Replay(self.charter)
        if digest(row.charter) != row.limits_digest or json.loads(row.charter) != entries[0].content()["charter"]:
            raise CheckFailed("the limits of the ledger are not those of its first entry: they were changed")
        for entry in entries[1:]:
            replay.add(entry)
        if replay.books.now != books.now:
            raise CheckFailed("the limits in force do not follow from the entries: the table limit_now was changed")
        if releases != release_rows(entries, replay.states):
            raise CheckFailed("the states of releases do not follow from the entries: the table release was changed")
        if (replay.books.pending, replay.books.places) != (books.pending, books.places):
            raise CheckFailed("what is reserved does not follow from the entries: the table charge was changed")
        if _nonzero(replay.books) != _nonzero(books) or replay.books.closed != books.closed:
            raise CheckFailed("what is booked does not follow from the entries: the table account was changed")
        for gate in range(len(books.tree.gates)):
            for account in accounts_of(books, gate):
                if account.booked > UNITS:
                    raise CheckFailed(f"scope {account.scope} has booked more than its limit {account.limit}")
        open_ = [name for name, state in replay.states.items() if state == "begun"]
        return [f"release {name} began and has not ended; it is charged" for name in open_]


def _nonzero(books: Books) -> dict[tuple[int, int, int], dict[Place, int]]:
    rows = {key: {place: booked for place, booked in row.items() if booked} for key, row in books.amounts.items()}
    return {key: row for key, row in rows.items() if row}


def accounts_of(books: Books, gate: int) -> Iterable[Account]:
    """The accounts of a gate with what they have booked."""
    about = books.tree.gates[gate]
    for number, each in enumerate(about.filters):
        for index, (name, size) in enumerate(each.accounts):
            booked = books.total(gate, number, index)
            cap, closed = books.in_force(gate).caps[number][index], (gate, number) in books.closed
            yield Account(about.scope, about.limit, number, name, size, booked, closed, cap)


class Replay:
    """The books and the states of releases that follow from entries, read one after another."""

    def __init__(self, charter: Charter):
        self.books, self.states = Books(charter.tree), dict[str, str]()
        self.limits = digest(charter.as_text())

    def add(self, entry: Entry) -> None:
        """Take the next entry.

        Raises:
            CheckFailed: its release was not made before, or cannot change to this state; or it is of other limits.
        """
        name, about = str(entry.release), entry.content()
        if about.get("limits", self.limits) != self.limits:
            raise CheckFailed(f"entry {entry.seq} was written for other limits than those of the first entry")
        if entry.kind == "limit":
            self.books.now[about["gate"]] = in_force(about["now"])
            return
        before = self.states.get(name)
        allowed = {"begin": PENDING, "done": "begun", "lost": "begun", "cancelled": PENDING, "expired": PENDING}
        if entry.kind not in (*AFTER, *ENDS) or before != allowed.get(entry.kind):
            raise CheckFailed(f"entry {entry.seq} is {entry.kind} of release {name}, which is {before or 'unknown'}")
        self.states[name] = AFTER.get(entry.kind, entry.kind)
        if entry.kind not in ("spend", "reserve"):
            if before == PENDING:
                self.books.settle(name, refund=entry.kind != "begin")
            return
        place = Place.parse(about["place"])
        bookings = [Booking(**{**row, "amounts": tuple(row["amounts"])}) for row in about["bookings"]]
        self.books.take(bookings, name, place, reserved=entry.kind == "reserve")
        self.books.take_planned(about["planned_steps"], place)


def _require_chain(entries: list[Entry], ledger: str) -> None:
    previous = digest(ledger)
    for number, entry in enumerate(entries, start=1):
        if entry.seq != number or entry.prev != previous:
            raise CheckFailed(f"entry {number} does not continue the one before: entries were removed, added or moved")
        if entry.sealed(ledger).digest != entry.digest:
            raise CheckFailed(f"entry {number} does not match its digest: it was changed")
        previous = entry.digest
    if not entries or entries[0].kind != "init":
        raise CheckFailed("the ledger has no first entry")


def _require_head(entries: list[Entry], head: Head, kept: str | None) -> None:
    if head != Head(entries[-1].seq, entries[-1].digest):
        raise CheckFailed(f"the last entry is {entries[-1].seq}, and the ledger says {head.seq}: entries were removed")
    if kept is None:
        return
    seq, _, word = kept.strip().replace(":", " ").partition(" ")
    if not seq.isdecimal() or int(seq) < 1 or not word.strip():
        raise UsageError(f"a head is what `wpriv ledger head` prints, a number and a digest; found {kept[:80]!r}")
    if int(seq) > len(entries):
        raise CheckFailed(
            f"the ledger ends at entry {len(entries)}, and entry {seq} was known: it was cut, or restored from a "
            f"backup. What is missing counts as spent: spend nothing from it until its head reaches entry {seq}"
        )
    if entries[int(seq) - 1].digest != word.strip():
        raise CheckFailed(f"entry {seq} is not the one that was kept: the ledger was written anew")


def write_entries(path: Path, ledger: str, entries: list[Entry]) -> None:
    """Write entries as JSON lines, as ``import_entries`` reads them."""
    lines = [canonical({"ledger": ledger, **asdict(entry)}) for entry in entries]
    durable_writes.replace(path, ("\n".join(lines) + "\n").encode())


def migrate(url: str, backup: str | Path) -> tuple[int, int]:
    """Bring a ledger of an earlier version up to this one, and return the schema before and now.

    Args:
        backup: a new file, to which all entries are written first; ``import_entries`` makes a ledger of them.
    Raises:
        UsageError: there is no ledger, nothing to do, or a file of this name.
    """
    path = Path(backup)
    if path.exists():
        raise UsageError(f"{path} exists. Name a new file for the backup")
    store = Store(url)
    schemas = store.migrate(lambda ledger, entries: write_entries(path, ledger, entries))
    store.close()
    return schemas


def import_entries(url: str, path: str | Path) -> Head:
    """Make a ledger from the entries of ``Reader.export``, which keep their bytes and are verified first.

    Raises:
        UsageError: the file holds no entries, or there is a ledger at the URL. CheckFailed: the chain is broken.
    """
    lines = read_bytes(path, MAX_BYTES).decode("utf-8", "replace").splitlines()
    try:
        rows = [json.loads(line) for line in lines]
        ledger = {row.pop("ledger") for row in rows}
        entries = [Entry(**row) for row in rows]
        charter = Charter.of_text(canonical(entries[0].content()["charter"]))
        if len(ledger) > 1:
            raise CheckFailed(f"{path}: entries of several ledgers")
        name = ledger.pop()
        _require_chain(entries, name)
        replay = Replay(charter)
        for entry in entries[1:]:
            replay.add(entry)
        releases = release_rows(entries, replay.states)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, UsageError):
        raise UsageError(
            f"{path}: not the entries of a ledger, as `wpriv ledger export --out X.jsonl` writes"
        ) from None
    store = Store(url, create=True)
    store.restore(name, charter, entries, replay.books, releases)
    store.close()
    return Head(entries[-1].seq, entries[-1].digest)
