"""The ledger of an organisation: limits, and releases that spend from them or are refused.

The order that makes it safe: the charge is computed, reserved, and on disk as begun before any record is read; then the
answer is computed and leaves. Nothing that began is refunded, since whether a computation failed depends on the data.
"""

from __future__ import annotations

import contextlib
import copy
import datetime
import functools
import json
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import Any, ParamSpec, TypeVar

from wpriv.core.process import Process, Step
from wpriv.errors import CheckFailed, Unsupported, UsageError
from wpriv.ledger import charges, charter, filters
from wpriv.ledger.charges import Unit, Units
from wpriv.ledger.charter import What, canonical, digest, process_of, require_texts
from wpriv.ledger.filters import TOO_MUCH, Filter, Limit
from wpriv.ledger.reading import Reader
from wpriv.ledger.scopes import PLANNED, ROOT, Booking, Books, InForce, Place, Refusal
from wpriv.ledger.store import PENDING, SPENT, Entry, Head, Store
from wpriv.numerics.numbers import number, shown, text

P = ParamSpec("P")
T = TypeVar("T")
NEW = "new"
MOST = 2**40
EXPIRES, MOST_EXPIRES = 3600.0, 1e9
RETRIES = 5  # where others spend while a refusal is put into words
Name = tuple[str, str, int]  # of a charge: digests of its unit and filter, and the tier


class Refused(CheckFailed):
    """A release does not fit, and nothing was spent.

    Attributes:
        scope: the scope that refuses. limit: its limit. left: the share of each of its accounts that is left.
        fits: the number of its steps that would still fit in one release; None where its steps are of several kinds.
    """

    scope: str = ""
    limit: Limit | None = None
    left: tuple[tuple[str, float], ...] = ()
    fits: int | None = None


class _UnknownCharge(Exception):
    """A charge that was not computed yet is needed under the lock."""


@dataclass(frozen=True)
class Receipt:
    """The outcome of a release that fits.

    Args:
        release: its number in the ledger. state: reserved, begun, done, lost, cancelled or expired.
        seq, digest: its entry. repeated: whether an earlier call with the same key made it, so that nothing was spent.
        expires: until when a reservation may begin, by the clock of the database. nonce: with which it has begun.
    """

    release: str
    state: str
    seq: int
    digest: str
    repeated: bool = False
    expires: str | None = None
    nonce: str = ""

    def as_dict(self) -> dict[str, object]:
        return {name: value for name, value in asdict(self).items() if value not in (None, "")}


@dataclass(frozen=True)
class Cost:
    """The charge of a planned release against one limit in force.

    Args:
        scope, limit: the scope, and its limit in force.
        accounts: the name of each account, the share of it that the release takes, and the share left afterwards.
    """

    scope: str
    limit: Limit
    accounts: tuple[tuple[str, float, float], ...]


class Ledger(Reader):
    """A ledger at a URL: ``sqlite:///b.db``, or ``postgresql://...`` for several machines.

    Args:
        read_only: whether the database refuses all writes of this object, also of computed charges.
    Raises:
        UsageError: no such URL, or no ledger there. MissingResource: the database cannot be opened.
    """

    def __init__(self, url: str, *, read_only: bool = False):
        super().__init__(url, read_only=read_only)
        self._memory: dict[Name, tuple[Fraction, ...] | Unsupported] = {}
        # charges that are known here and not in the database yet
        self._fresh: dict[Name, tuple[Fraction, ...]] = {}

    @classmethod
    def create(cls, url: str, *, actor: str | None = None, **terms: Any) -> Ledger:
        """Make a ledger; its rule, neighbours and limits are fixed before the first release.

        Args:
            terms: eps and delta, rho, or mu of the whole; several in ``limits``, as eps=3,delta=1e-9. ceiling: what is
                promised, where these are lower and may rise to it. rule: residue
                (default), rdp, gauss, basic or union. kappa and leaks (A) of residue. plan: releases declared now, in
                words. adjacency, group and unit: what is protected. scopes: ``sales``, ``sales:eps=1,delta=1e-6``.
                partitions: ``sales:region=north,south``, with ``;k=2`` or ``;fixed``.
        Raises:
            UsageError: a ledger is there, or a term is wrong. Unsupported: the rule has no filter for a limit.
        """
        require_texts(actor=actor)
        terms_kept = charter.charter(**terms)
        store = Store(url, create=True)
        first = {"body": {"charter": json.loads(terms_kept.as_text())}, "actor": actor}
        store.create(secrets.token_hex(8), terms_kept, first)
        store.close()
        return cls(url)

    def close(self) -> None:
        """Close the database."""
        self.store.close()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # spending

    def spend(self, what: What, *, key: str | None = None, **about: Any) -> Receipt:
        """Reserve and begin a release in one commit: what its records are read for may leave afterwards.

        Args:
            what: words as ``budget`` reads them, a mechanism, a Step or a Process. key: a name of the client for this
                release; the same key with the same release spends nothing again.
            about: scope: where it reads, such as ``sales:region=north``; actor and reason: kept with the entry;
                planned: whether it is part of the declared plan; dry_run: only tell whether it fits.
        Raises:
            Refused: it does not fit. UsageError: the key is that of another release. Unsupported: no charge is known.
        """
        return self._admit(what, key, "spend", **about)

    def fits(self, what: What, *, scope: str = ROOT) -> int | None:
        """Return how many steps would fit now in one release, at most 2^40; None where they are of several kinds."""
        process, place = self._read(what, scope)
        units = [(unit, MOST) for unit, _ in charges.units_of(process)]
        with self.store.transaction(write=False) as connection:
            return self._room(connection, self.store.books(connection, self.charter.tree), units, place)

    def cost(self, what: What, *, scope: str = ROOT) -> tuple[Cost, ...]:
        """Return what a release would take now of every limit above a scope; nothing is spent.

        Raises:
            Refused: it does not fit. Unsupported: no charge is known.
        """
        process, place = self._read(what, scope)
        costs, units = [], charges.units_of(process)
        with self.store.transaction(write=False) as connection:
            books = self.store.books(connection, self.charter.tree)
            changes = books.admit(NEW, place, self._tariff(connection, units, compute=True))
            if isinstance(changes, Refusal):
                raise self._refused(changes, units, self._room(connection, books, units, place))
            bookings = books.take(changes, NEW, place, reserved=False)
        for gate in self.charter.tree.gates_of(place):
            several = [(books.left(gate, each.filter), each) for each in bookings if each.gate == gate]
            # of several filters the one that has most room afterwards
            left, booking = max(several, key=lambda pair: min(share for _, share in pair[0]))
            now = books.in_force(gate)
            rows = [
                (name, amount / cap if amount else 0.0, rest)
                for amount, cap, (name, rest) in zip(booking.amounts, now.caps[booking.filter], left, strict=True)
            ]
            costs.append(Cost(self.charter.tree.gates[gate].scope, now.limit, tuple(rows)))
        return tuple(costs)

    def reserve(self, what: What, *, key: str | None = None, expires: float = EXPIRES, **about: Any) -> Receipt:
        """Reserve a release, to ``begin`` within some seconds; arguments and errors as for ``spend``."""
        if not 0 < (expires := number(expires, "expires")) <= MOST_EXPIRES:
            raise UsageError(f"`expires` is a number of seconds above 0, up to {MOST_EXPIRES:g}; found {expires:g}")
        return self._admit(what, key, "reserve", expires=expires, **about)

    def begin(self, release: str, nonce: str | None = None) -> Receipt:
        """Begin a reserved release, once: whoever gets an error must not touch the data.

        Args:
            release: its number, or its key. nonce: of the holder, who may ask again with it after a lost reply.
        Raises:
            CheckFailed: it has begun with another nonce, was cancelled or has expired.
        """
        require_texts(nonce=nonce)
        word = secrets.token_hex(16) if nonce is None else nonce
        with self._locked() as (connection, head):
            entry = self.store.entry(connection, release)
            row = self.store.state(connection, str(entry.release))
            if row.state == PENDING:
                self.store.set_state(connection, row.id, state="begun", nonce_digest=digest(word), expires=None)
                body = {"nonce": digest(word)}
                self.store.append(connection, head, "begin", release=row.id, body=body)
                return Receipt(row.id, "begun", entry.seq, entry.digest, nonce=word)
            if row.state in SPENT and nonce is not None and row.nonce_digest == digest(word):
                return Receipt(row.id, row.state, entry.seq, entry.digest, repeated=True, nonce=word)
        held = "has begun, with another nonce" if row.state in SPENT else f"is {row.state}"
        raise CheckFailed(f"release {release} {held}: its records must not be read. Reserve another one")

    def done(self, release: str, *, lost: bool = False) -> Receipt:
        """Note that the answer of a release has left, or that it is lost; it stays charged."""
        return self._end(release, "lost" if lost else "done", ("begun",))

    def cancel(self, release: str) -> Receipt:
        """Return the charge of a reservation that has not begun."""
        return self._end(release, "cancelled", (PENDING,))

    def limit(
        self,
        limit: Limit,
        *,
        scope: str = ROOT,
        of: Limit | None = None,
        actor: str | None = None,
        reason: str | None = None,
    ) -> Limit:
        """Change the limit up to which a scope may be spent from; what is promised of it does not change.

        Args:
            limit: the new one; it may be lower than before, or rise to the ceiling that was fixed at the start.
            of: which of several limits of the scope is meant, by its promise.
        Returns:
            The limit that was in force before.
        Raises:
            Refused: it is above the ceiling. UsageError: the scope has no such limit, or several.
        """
        if not isinstance(limit, Limit):
            raise UsageError(f"`limit` is a Limit, such as Limit(eps=1, delta=1e-6); found {shown(limit)}")
        tree = self.charter.tree
        tree.check(Place(scope))
        gates = [number for number, gate in enumerate(tree.gates) if gate.scope == scope]
        meant = [number for number in gates if of in (None, tree.gates[number].limit)]
        meant = [number for number in meant if tree.gates[number].limit.as_dict().keys() == limit.as_dict().keys()]
        if len(meant) != 1:
            known = ", ".join(str(tree.gates[number].limit) for number in gates) or "no limit"
            raise UsageError(f"scope {scope} has {known}; say by `of` which one {limit} is to take the place of")
        gate = tree.gates[meant[0]]
        ceiling = gate.limit.as_dict()
        if any(value > ceiling[name] for name, value in limit.as_dict().items()):
            raise Refused(
                f"the limit of scope {scope} may rise to {gate.limit}, which has been promised from the start; found "
                f"{limit}. Nothing was changed"
            )
        require_texts(actor=actor, reason=reason)
        plan = Process(self.charter.plan, tree.adjacency, self.charter.group) if self.charter.plan else None
        caps = filters.caps(limit, gate.limit, gate.filters, plan if scope == ROOT else None)
        with self._locked() as (connection, head):
            before = self.store.books(connection, tree).in_force(meant[0]).limit
            now = InForce(limit, caps)
            body = {"gate": meant[0], "scope": scope, "before": before.as_dict(), "now": charter.describe(now)}
            self.store.append(connection, head, "limit", actor=actor, reason=reason, body=body)
            self.store.set_limit(connection, meant[0], now)
        return before

    def state(self, release: str) -> Receipt:
        """Where a release stands, by its number or its key."""
        with self.store.transaction(write=False) as connection:
            entry = self.store.entry(connection, release)
            row = self.store.state(connection, str(entry.release))
            return Receipt(row.id, row.state, entry.seq, entry.digest, expires=row.expires)

    @contextlib.contextmanager
    def release(self, what: What, *, key: str | None = None, **about: Any) -> Iterator[Receipt]:
        """Spend, run a block that reads the records, and note the end; arguments and errors as for ``spend``.

        Raises:
            CheckFailed: the key was spent before, whose answer may have left: fresh noise would be a second release.
        """
        receipt = self.spend(what, key=key, **about)
        if receipt.repeated:
            raise CheckFailed(f"the key {key} was spent before, as release {receipt.release}; take a new key")
        try:
            yield receipt
        except BaseException:
            self.done(receipt.release, lost=True)
            raise
        self.done(receipt.release)

    def spends(self, what: What, **about: Any) -> Callable[[Callable[P, T]], Callable[P, T]]:
        """A decorator: every call of the function is a release, spent before the function runs."""

        def decorate(function: Callable[P, T]) -> Callable[P, T]:
            @functools.wraps(function)
            def spent(*args: P.args, **kwargs: P.kwargs) -> T:
                with self.release(what, **about):
                    return function(*args, **kwargs)

            return spent

        return decorate

    def _admit(
        self,
        what: What,
        key: str | None,
        kind: str,
        *,
        scope: str = ROOT,
        actor: str | None = None,
        reason: str | None = None,
        planned: bool = False,
        expires: float | None = None,
        dry_run: bool = False,
    ) -> Receipt:
        process, place = self._read(what, scope)
        require_texts(key=key, actor=actor, reason=reason)
        if key is not None and not key.strip():
            raise UsageError("`key` is empty; give the release a name of its own, or leave it out")
        if planned and place != Place(ROOT):
            raise UsageError(f"the declared plan reads the scope {ROOT}; found `scope` {place}")
        units = [] if planned else charges.units_of(process)
        about = {"steps": process.describe(), "records": process.records, "place": str(place), "planned": planned}
        request = digest(canonical({**about, "kind": kind}))
        for attempt in range(100):
            seq, room = (0, None) if planned else self._learn(units, place)
            with self._locked(dry_run) as (connection, head):
                if key is not None and (entry := self.store.by_key(connection, key)) is not None:
                    return self._stored(connection, entry, key, request)
                books = self.store.books(connection, self.charter.tree)
                before = copy.deepcopy(books)
                try:
                    taken = self._planned(books, process.describe()) if planned else []
                    changes = [] if planned else books.admit(NEW, place, self._tariff(connection, units, compute=False))
                    if isinstance(changes, Refusal):
                        raise self._refused(changes, units, room)
                except _UnknownCharge:
                    continue
                except Refused as error:
                    if not planned and seq != head.seq and attempt < RETRIES:
                        continue  # what still fits is out of date
                    refused = error
                else:
                    if dry_run:
                        return Receipt("", "fits", head.seq, head.digest)
                    named = {"key": key, "actor": actor, "reason": reason}
                    body = {**about, "request": request, "kind": kind, "planned_steps": taken}
                    return self._write(connection, head, (before, books), changes, place, body, named, expires)
                if not dry_run:
                    noted = {"place": str(place), "actor": actor, "reason": reason, "because": str(refused)}
                    now = self.store.now(connection, head)
                    self.store.note_refusal(connection, time=now, body=canonical(about), **noted)
            raise refused
        raise CheckFailed("other writers change the remainder faster than charges are computed. Try again")

    def _write(
        self, connection: Any, head: Head, both: tuple[Books, Books], changes: list[Booking], place: Place,
        body: dict[str, Any], named: dict[str, str | None], expires: float | None,
    ) -> Receipt:  # fmt: skip
        """Write an admitted release, under the lock."""
        before, books = both
        name, reserved = str(head.seq + 1), body["kind"] == "reserve"
        mine = [replace(each, release=name) if each.release == NEW else each for each in changes]
        books.take(mine, name, place, reserved=reserved)
        books.take_planned(body["planned_steps"], place)
        now = self.store.now(connection, head)
        until = None if expires is None else _later(now, expires)
        body |= {"limits": digest(self.charter.as_text()), "bookings": [asdict(each) for each in mine]}
        body["expires"] = until
        state = PENDING if reserved else "begun"
        entry = self.store.append(connection, head, body["kind"], body=body, time=now, **named)
        digests = {"pair_digest": body["request"], "nonce_digest": None}
        self.store.add_release(connection, name, place, state=state, expires=until, **digests)
        self.store.write_books(connection, before, books)
        self.store.write_charges(connection, [each for each in mine if each.tier >= 0])
        for charge, known in self._fresh.items():
            self.store.keep_tariff(connection, *charge, known)
        self._fresh = {}
        return Receipt(name, state, entry.seq, entry.digest, expires=until)

    def _stored(self, connection: Any, entry: Entry, key: str, request: str) -> Receipt:
        """The outcome of an earlier call with this key."""
        if entry.release is None or entry.content().get("request") != request:
            raise UsageError(
                f"the key {key[:60]!r} is that of another release, entry {entry.seq}. A key names one release: take a "
                f"new one"
            )
        row = self.store.state(connection, entry.release)
        return Receipt(row.id, row.state, entry.seq, entry.digest, repeated=True, expires=row.expires)

    def _end(self, release: str, state: str, allowed: tuple[str, ...]) -> Receipt:
        with self._locked() as (connection, head):
            entry = self.store.entry(connection, release)
            row = self.store.state(connection, str(entry.release))
            if row.state == state:
                return Receipt(row.id, state, entry.seq, entry.digest, repeated=True)
            if row.state in allowed:
                self._close(connection, head, row.id, state)
                return Receipt(row.id, state, entry.seq, entry.digest)
        reason = "nothing that began is refunded" if state == "cancelled" else f"only {allowed[0]} releases can be"
        raise CheckFailed(f"release {release} is {row.state} and cannot be {state}: {reason}")

    def _close(self, connection: Any, head: Head, release: str, state: str) -> Head:
        """Set the last state of a release, and return the charge of one that never began."""
        if state in ("cancelled", "expired"):
            books = self.store.books(connection, self.charter.tree)
            before = copy.deepcopy(books)
            books.settle(release, refund=True)
            self.store.write_books(connection, before, books)
        self.store.set_state(connection, release, state=state, expires=None)
        return self.store.append(connection, head, state, release=release)

    @contextlib.contextmanager
    def _locked(self, dry_run: bool = False) -> Iterator[tuple[Any, Head]]:
        """The lock of the ledger, with the head; reservations whose time has passed are ended first."""
        with self.store.transaction(write=not dry_run) as connection:
            row = self.store.row(connection, lock=not dry_run)
            head = Head(row.head_seq, row.head_digest)
            for release in [] if dry_run else self.store.expired(connection, self.store.now(connection, head)):
                head = self._close(connection, head, release, "expired")
            yield connection, head

    # charges

    def _read(self, what: What, scope: str) -> tuple[Process, Place]:
        """A release and where it reads, which has to be in the tree."""
        process, place = process_of(what, self.charter.tree.adjacency, self.charter.group), Place.parse(scope)
        self.charter.tree.check(place)
        return process, place

    def _refused(self, refusal: Refusal, units: Units, fits: int | None) -> Refused:
        gate = self.charter.tree.gates[refusal.gate]
        left = ", ".join(f"{text(100 * share, up=False, digits=4)}% of {name}" for name, share in refusal.left)
        count = units[0][1]
        rest = "" if fits is None or count == 1 else f"; there is room for {fits} of its {count} releases"
        error = Refused(
            f"refused by scope {gate.scope}: its limit {refusal.limit} has {left} left{rest}. Nothing was spent"
        )
        error.scope, error.limit, error.left, error.fits = gate.scope, refusal.limit, refusal.left, fits
        return error

    def _room(self, connection: Any, books: Books, units: Units, place: Place) -> int | None:
        """Return how many steps of a release fit now in one release, at most as many as it has.

        None is returned where its steps are of several kinds.
        """
        if len(units) > 1:
            return None
        unit, most = units[0]
        kept, room = dict(self._fresh), dict[tuple[int, int], list[int]]()
        for gate in self.charter.tree.gates_of(place):
            for which, caps in enumerate(books.in_force(gate).caps):
                room[gate, which] = [cap - books.total(gate, which, account) for account, cap in enumerate(caps)]

        def fit(count: int) -> int:
            """About how many fit, if so many do; else 0."""
            tariff = self._tariff(connection, [(unit, count)], compute=True)
            # the charge falls as the floor grows
            most_of = {key: tariff(NEW, *key, 0)[0] <= left[0] for key, left in room.items()}
            if not all(any(fits for key, fits in most_of.items() if key[0] == gate) for gate, _ in room):
                return 0
            changes = books.admit(NEW, place, tariff)
            if isinstance(changes, Refusal):
                return 0
            shares = [
                Fraction(room[each.gate, each.filter][account], amount)
                for each in changes
                for account, amount in enumerate(each.amounts)
                if each.release == NEW and amount
            ]
            return int(count * min(shares, default=Fraction(most)))

        if fit(most):
            return most
        low, high, guess = 0, most, 1
        while high - low > 1:
            if about := fit(guess):
                low, guess = guess, max(about, guess + 1)
                guess = guess if guess < high else (low + high) // 2
            else:
                high = guess
                guess = max((low + high) // 2, high - max(high // 64, 1))
        self._fresh = kept  # those of other numbers are of no use later
        return low

    def _tariff(self, connection: Any, units: Units, compute: bool) -> Callable[[str, int, int, int], tuple[int, ...]]:
        @functools.cache
        def of_release(release: str) -> Units:
            if release == NEW:
                return units
            about, tree = self.store.entry(connection, release).content(), self.charter.tree
            steps = tuple(Step.from_dict(row) for row in about["steps"])
            return charges.units_of(Process(steps, tree.adjacency, self.charter.group, about["records"]))

        def tariff(release: str, gate: int, number: int, tier: int) -> tuple[int, ...]:
            by, several = self.charter.tree.gates[gate].filters[number], len(self.charter.tree.gates[gate].filters) > 1
            total = [Fraction(0)] * len(by.accounts)
            for unit, count in of_release(release):
                charge = self._charge(connection, unit, count, by, tier, compute)
                if isinstance(charge, Unsupported):
                    if several:
                        return (TOO_MUCH,) * len(total)
                    raise charge
                total = [sum_ + part for sum_, part in zip(total, charge, strict=True)]
            return by.units(tuple(total))

        return tariff

    def _charge(
        self, connection: Any, unit: Unit, count: int, by: Filter, tier: int, compute: bool
    ) -> tuple[Fraction, ...] | Unsupported:
        """The charge of some units in one release, of which the database keeps that of one and joint ones."""
        if count > 1 and not charges.is_joint(unit, by):
            one = self._charge(connection, unit, 1, by, tier, compute)
            return one if isinstance(one, Unsupported) else tuple(count * part for part in one)
        what = unit.key if count == 1 else f"{count} of {unit.key}"
        names = digest(what), digest(canonical(filters.describe((by,)))), tier
        if names not in self._memory:
            if not compute:
                raise _UnknownCharge
            known = self.store.tariff(connection, *names)
            if known is None:
                try:
                    known = charges.of_unit(unit, by, tier, count)
                except Unsupported as error:
                    self._memory[names] = error
                    return error
                self._fresh[names] = known
            self._memory[names] = known
        return self._memory[names]

    def _learn(self, units: Units, place: Place) -> tuple[int, int | None]:
        """Compute the charges that a decision needs at present, without the lock.

        Returns:
            The last entry that it knew, and where the release does not fit, how many of its steps do.
        """
        with self.store.transaction(write=False) as connection:
            seq = self.store.row(connection, lock=False).head_seq
            books = self.store.books(connection, self.charter.tree)
            outcome = books.admit(NEW, place, self._tariff(connection, units, compute=True))
            return seq, self._room(connection, books, units, place) if isinstance(outcome, Refusal) else None

    def _planned(self, books: Books, steps: Sequence[Mapping[str, Any]]) -> list[tuple[int, int]]:
        """Where the steps of a release stand in the declared plan, with their numbers.

        Raises:
            Refused: they are not in the plan, or more than are left of it.
        """
        rows, plan = [], self.charter.plan
        rest = [each.n - books.amounts.get((PLANNED, 0, at), {}).get(Place(ROOT), 0) for at, each in enumerate(plan)]
        for row in steps:
            step = Step.from_dict(row)
            index = next((at for at, each in enumerate(plan) if each.is_like(step)), None)
            left = 0 if index is None else rest[index]
            if index is None or step.n > left:
                raise Refused(f"the declared plan has {left} of these steps left; found {step.n}. Nothing was spent")
            rest[index] -= step.n
            rows.append((index, step.n))
        return rows


def _later(time: str, seconds: float) -> str:
    """A time of the database, some seconds later, as it writes it."""
    at = datetime.datetime.fromisoformat(time) + datetime.timedelta(seconds=seconds)
    return at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03d}Z"
