"""Scopes: which releases count against which limit, and whether one more fits.

Scopes are a tree; a release on one is charged to it and to all scopes above. A partition of a scope divides its records
into parts by a public function, of which only the largest counts (the k largest, where a unit may lie in k parts).
Everything here is whole numbers and reads no database: ``Account.admit`` is called under the lock of the store, and
again by ``ledger check``. Proofs: docs/theory/ledger.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from wpriv.core.kinds import Adjacency
from wpriv.errors import UnknownName, UsageError
from wpriv.ledger.filters import TOO_MUCH, UNITS, Filter, Limit
from wpriv.numerics.numbers import shown

ROOT = "all"
PLANNED = -1  # the gate of the counts of a declared plan
_NAME = re.compile(r"[\w.-]+(/[\w.-]+)*")
# the charges of a release to the accounts of a filter, at the floor of a tier
Tariff = Callable[[str, int, int, int], tuple[int, ...]]


@dataclass(frozen=True, order=True)
class Place:
    """Where a release reads: a scope, or one part of a partition of it, as in ``sales:region=north``."""

    scope: str
    partition: str = ""
    part: str = ""

    def __str__(self) -> str:
        return self.scope + (f":{self.partition}={self.part}" if self.partition else "")

    @classmethod
    def parse(cls, text: str) -> Place:
        """The place that ``str`` writes as ``text``."""
        if not isinstance(text, str):
            raise UsageError(f"a scope is a text, such as sales; found {shown(text)}")
        scope, colon, rest = text.partition(":")
        partition, equals, part = rest.partition("=")
        if "=" in scope or bool(colon) != bool(equals) or (colon and not (scope and partition and part)):
            raise UsageError(f"a scope is written sales, or sales:region=north for a part of it; found {text[:80]!r}")
        return cls(scope, partition, part)


@dataclass(frozen=True)
class Partition:
    """A division of a scope by a public function of the record alone, or of earlier outputs and the record.

    Args:
        parts: their names, which are public. most: the largest number of parts that a unit lies in.
        fixed: whether the part of a record cannot change when the record is replaced.
    """

    scope: str
    name: str
    parts: tuple[str, ...]
    most: int = 1
    fixed: bool = False

    def counted(self, adjacency: str) -> int:
        """The number of the largest parts that are charged; under replace-one a record may move between two."""
        return self.most * (2 if adjacency == Adjacency.REPLACE_ONE and not self.fixed else 1)

    @classmethod
    def parse(cls, text: str) -> Partition:
        """Read ``sales:region=north,south,east``, perhaps with ``;k=2`` and ``;fixed`` behind it."""
        body, *options = [word.strip() for word in text.split(";")]
        scope, _, rest = body.partition(":")
        name, _, parts = rest.partition("=")
        names = tuple(part.strip() for part in parts.split(",") if part.strip())
        most, fixed = 1, False
        for word in options:
            key, _, value = word.partition("=")
            if key == "k" and value.isdecimal() and int(value) >= 1:
                most = int(value)
            elif word == "fixed":
                fixed = True
            else:
                raise UsageError(f"--partition {text[:80]!r}: wanted k=2 or fixed behind the parts; found {word!r}")
        if not (scope and name and names) or len(set(names)) < len(names):
            raise UsageError(
                f"a partition is written sales:region=north,south,east, with each part once; found {text[:80]!r}"
            )
        return cls(scope.strip(), name.strip(), names, most, fixed)


@dataclass(frozen=True)
class InForce:
    """The limit up to which is spent at present, with the units that it leaves of each account of each filter."""

    limit: Limit
    caps: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Gate:
    """One limit of a scope with its filters, one of which has to hold.

    Args:
        limit: what is promised from the start. first: a lower one that is in force at first, and may rise to it.
    """

    scope: str
    limit: Limit
    filters: tuple[Filter, ...]
    first: InForce | None = None


@dataclass(frozen=True)
class Tree:
    """The scopes with their parents, partitions and gates, under one neighbouring relation; fixed at the start.

    Raises:
        UsageError: a scope without its parent, or a partition of an unknown scope, or one named twice.
    """

    parents: tuple[tuple[str, str], ...]
    partitions: tuple[Partition, ...]
    gates: tuple[Gate, ...]
    adjacency: str

    def __post_init__(self) -> None:
        names = [name for name, _ in self.parents]
        for name, parent in self.parents:
            if not _NAME.fullmatch(name) or names.count(name) > 1:
                raise UsageError(f"a scope is named once, by letters, digits, '.', '-' and '/'; found {name[:60]!r}")
            if parent and parent not in names:
                raise UsageError(f"the scope {name} lies in {parent}, which is no scope yet. Declare {parent} as well")
        for partition in self.partitions:
            if partition.scope not in names:
                raise UnknownName("scope", partition.scope, names)
        if len({(each.scope, each.name) for each in self.partitions}) < len(self.partitions):
            raise UsageError("a scope has two partitions of one name. Give each its own")

    def chain(self, scope: str) -> list[str]:
        """A scope and all above it, up to the root."""
        above = dict(self.parents)
        names = []
        while scope:
            names.append(scope)
            scope = above[scope]
        return names

    def check(self, place: Place) -> None:
        """Raise UsageError where a place is not one of the tree."""
        names = [name for name, _ in self.parents]
        if place.scope not in names:
            raise UnknownName("scope", place.scope, names)
        if place.partition:
            partitions = {each.name: each for each in self.partitions if each.scope == place.scope}
            if place.partition not in partitions:
                raise UnknownName("partition", place.partition, list(partitions), owner=f"scope {place.scope}")
            if place.part not in partitions[place.partition].parts:
                raise UnknownName("part", place.part, partitions[place.partition].parts, owner=str(place.partition))

    def gates_of(self, place: Place) -> list[int]:
        """The numbers of the gates that a release at a place has to pass, from its own scope upwards."""
        chain = self.chain(place.scope)
        at = [number for number, gate in enumerate(self.gates) if gate.scope in chain]
        return sorted(at, key=lambda number: (chain.index(self.gates[number].scope), number))

    def total(self, scope: str, booked: Mapping[Place, int]) -> int:
        """Return the units of a scope and of those below, in which of each partition only the largest parts count."""
        amount = booked.get(Place(scope), 0)
        for partition in self.partitions:
            if partition.scope == scope:
                parts = [booked.get(Place(scope, partition.name, part), 0) for part in partition.parts]
                amount += sum(sorted(parts, reverse=True)[: partition.counted(self.adjacency)])
        return amount + sum(self.total(name, booked) for name, parent in self.parents if parent == scope)


@dataclass(frozen=True)
class Booking:
    """A release's booking in one filter: the tier of its floor, and the units in each account."""

    release: str
    gate: int
    filter: int
    tier: int
    amounts: tuple[int, ...]


@dataclass(frozen=True)
class Refusal:
    """The first limit that refuses a release: its gate, the limit in force, and what its first open filter has left."""

    gate: int
    limit: Limit
    left: tuple[tuple[str, float], ...]


@dataclass
class Books:
    """What every place has booked in every account, and the releases that are reserved and not begun.

    Args:
        amounts: by gate, filter and account. closed: filters of a union that an admitted release has exceeded.
        pending: bookings of reserved releases. places: where the reserved releases read.
        now: limits that were changed, by gate.
    """

    tree: Tree
    amounts: dict[tuple[int, int, int], dict[Place, int]] = field(default_factory=dict)
    closed: set[tuple[int, int]] = field(default_factory=set)
    pending: dict[tuple[str, int, int], Booking] = field(default_factory=dict)
    places: dict[str, Place] = field(default_factory=dict)
    now: dict[int, InForce] = field(default_factory=dict)

    def in_force(self, gate: int) -> InForce:
        """The limit of a gate up to which is spent at present."""
        about = self.tree.gates[gate]
        whole = tuple((UNITS,) * len(each.accounts) for each in about.filters)
        return self.now.get(gate) or about.first or InForce(about.limit, whole)

    def total(self, gate: int, filter: int, account: int) -> int:
        """The units that are booked in an account of a gate."""
        return self.tree.total(self.tree.gates[gate].scope, self.amounts.get((gate, filter, account), {}))

    def open_filter(self, gate: int) -> int:
        """The first filter of a gate that is not closed; there always is one, since only an admitted release closes."""
        return next(number for number in range(len(self.tree.gates[gate].filters)) if (gate, number) not in self.closed)

    def left(self, gate: int, filter: int) -> tuple[tuple[str, float], ...]:
        """The share of each account of a filter that is left of the limit in force, from 0 to 1."""
        names, caps = [name for name, _ in self.tree.gates[gate].filters[filter].accounts], self.in_force(gate).caps
        return tuple(
            (name, max(1 - self.total(gate, filter, number) / cap, 0.0) if cap else 0.0)
            for number, (name, cap) in enumerate(zip(names, caps[filter], strict=True))
        )

    def book(self, booking: Booking, place: Place, sign: int = 1) -> None:
        """Add a booking, or with ``sign`` -1 return it."""
        for account, amount in enumerate(booking.amounts):
            row = self.amounts.setdefault((booking.gate, booking.filter, account), {})
            row[place] = row.get(place, 0) + sign * amount

    def admit(self, release: str, place: Place, tariff: Tariff) -> list[Booking] | Refusal:
        """Return the bookings of a release and of reserved ones that it moves to a lower floor, or its refusal.

        Nothing is changed: ``take`` does that.

        Args:
            tariff: the charges of a release, by its name, gate, filter and tier.
        """
        changes: list[Booking] = []
        for gate in self.tree.gates_of(place):
            fits = False
            for number in range(len(self.tree.gates[gate].filters)):
                if (gate, number) in self.closed:
                    continue
                bookings = self._fitting(release, place, gate, number, tariff)
                fits = fits or (bookings is not None and self._within(bookings, place, gate, number))
                # an exceeded filter of a union is closed for good
                changes += [Booking(release, gate, number, -1, ())] if bookings is None else bookings
            if not fits:
                return Refusal(gate, self.in_force(gate).limit, self.left(gate, self.open_filter(gate)))
        return changes

    def _fitting(self, release: str, place: Place, gate: int, number: int, tariff: Tariff) -> list[Booking] | None:
        """The bookings at the highest floor that the remainder respects; None where there is none."""
        for tier, floor in enumerate(self.tree.gates[gate].filters[number].floors):
            moved = [
                booking
                for (_, at, which), booking in self.pending.items()
                if (at, which) == (gate, number) and booking.tier < tier
            ]
            names = [booking.release for booking in moved]
            new = [Booking(name, gate, number, tier, tariff(name, gate, number, tier)) for name in (release, *names)]
            if any(TOO_MUCH in booking.amounts for booking in new):
                continue
            totals = self._totals(new, place, gate, number)
            if totals[0] <= UNITS - floor and all(total <= UNITS for total in totals):
                return new
        return None

    def _totals(self, bookings: list[Booking], place: Place, gate: int, number: int) -> list[int]:
        """Return the units in the accounts of a filter with bookings, which replace those of the same reservations."""
        before = [self.pending[key] for each in bookings if (key := (each.release, gate, number)) in self.pending]
        for sign in (1, -1):
            for booking in bookings:
                self.book(booking, self.places.get(booking.release, place), sign)
            for booking in before:
                self.book(booking, self.places[booking.release], -sign)
            if sign == 1:
                totals = [self.total(gate, number, account) for account in range(len(bookings[0].amounts))]
        return totals

    def _within(self, bookings: list[Booking], place: Place, gate: int, number: int) -> bool:
        """Whether bookings keep the limit that is in force."""
        caps = self.in_force(gate).caps[number]
        if min(caps) == UNITS:
            return True
        totals = self._totals(bookings, place, gate, number)
        return all(total <= cap for total, cap in zip(totals, caps, strict=True))

    def take(self, changes: Sequence[Booking], release: str, place: Place, *, reserved: bool) -> list[Booking]:
        """Make the changes of ``admit``, and return the bookings of the new release."""
        for booking in changes:
            key = (booking.release, booking.gate, booking.filter)
            if booking.tier < 0:
                self.closed.add(key[1:])
                continue
            if booking.release != release:
                self.book(self.pending[key], self.places[booking.release], -1)
                self.pending[key] = booking
                self.book(booking, self.places[booking.release])
                continue
            self.book(booking, place)
            if reserved:
                self.pending[key] = booking
        if reserved:
            self.places[release] = place
        return [booking for booking in changes if booking.release == release and booking.tier >= 0]

    def take_planned(self, steps: Sequence[Sequence[int]], place: Place) -> None:
        """Count steps of the declared plan: the number of each, and how many of it."""
        for index, n in steps:
            row = self.amounts.setdefault((PLANNED, 0, index), {})
            row[place] = row.get(place, 0) + n

    def settle(self, release: str, *, refund: bool) -> None:
        """End a reservation: it has begun, or with ``refund`` it was cancelled or has expired."""
        place = self.places.pop(release)
        for key in [key for key in self.pending if key[0] == release]:
            booking = self.pending.pop(key)
            if refund:
                self.book(booking, place, -1)
