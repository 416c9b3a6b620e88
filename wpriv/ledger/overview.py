"""What the page of a ledger shows: the scopes as a tree, the releases, who spent, and what was left over time.

All of it follows from the entries, which are read once and then only the new ones.
"""

from __future__ import annotations

import datetime
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from wpriv.core.kinds import SAMPLING_KEYS
from wpriv.errors import CheckFailed, Unsupported
from wpriv.ledger.reading import Reader, Replay, accounts_of
from wpriv.ledger.scopes import ROOT, Place
from wpriv.ledger.store import PENDING, SPENT, Entry, Head
from wpriv.numerics.numbers import short, text

_DRAWN = ("sampling", "rate")
MOST_ROWS = 50
MOST_POINTS = 300
# the picture of what was left over time, in its own units
WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 720, 240, 60, 28, 12, 12


@dataclass
class Release:
    """A release of the ledger; ``booked`` has its units of the first account of a filter, by the numbers of both."""

    name: str
    time: str
    words: str
    place: Place
    actor: str
    reason: str
    key: str
    state: str = ""
    booked: dict[tuple[int, int], int] = field(default_factory=dict)


@dataclass(frozen=True)
class Remainder:
    """The remaining budget of a limit in force.

    Args:
        limit: the one in force. promise: the one that is promised, to which it may rise.
        share: of the account that is nearest to its end, from 0 to 1. accounts: each with its share, in words.
    """

    limit: str
    promise: str
    share: float
    accounts: str


@dataclass(frozen=True)
class Row:
    """A scope, partition or part in the tree; ``depth`` counts from 0.

    Args:
        name: of the scope or part. limits: what is left of each limit of the scope.
        booked: the share of the first account of the limit in force that releases here and below have booked.
        counts: releases that read exactly here, by state.
    """

    depth: int
    name: str
    kind: str
    limits: tuple[Remainder, ...] = ()
    booked: str = ""
    counts: str = ""


@dataclass(frozen=True)
class Picture:
    """A chart of the remaining budget over time.

    Args:
        lines: a name and an SVG path for each limit. heights: grid lines by position, with labels.
        times: labels of the axis by position, with their alignment.
    """

    lines: tuple[tuple[str, str], ...]
    heights: tuple[tuple[float, str], ...]
    times: tuple[tuple[float, str, str], ...]


def percent(share: float) -> str:
    """What is left, rounded down: ``82.15%``."""
    return f"{text(100 * share, up=False, digits=4)}%"


def percent_up(share: float) -> str:
    """What is taken, rounded up."""
    return f"{text(100 * share, up=True, digits=4)}%"


def sentence(steps: list[dict[str, Any]]) -> str:
    """Steps in the words that ``spend`` reads, as ``gauss sigma=100 n=10``."""
    return " + ".join(map(_step, steps))


def _step(row: Mapping[str, Any]) -> str:
    silent = {"n": 1, "sampling": "none", "sensitivity": 1.0}
    shown = {name: value for name, value in row.items() if value is not None and silent.get(name) != value}
    words = [str(row["mech"])]
    words += [f"{name}={_value(value)}" for name, value in shown.items() if name not in ("mech", "n", *SAMPLING_KEYS)]
    words += [f"n={shown['n']}"] if "n" in shown else []
    if "sampling" in shown:
        words += [str(shown["sampling"])] + [_value(shown["rate"])] * ("rate" in shown)
        words += [f"{name}={_value(shown[name])}" for name in SAMPLING_KEYS if name in shown and name not in _DRAWN]
    return " ".join(words)


def _value(value: object) -> str:
    return short(value) if isinstance(value, float) else str(value)[:60]


class Overview:
    """The entries of a ledger, read as far as they were at the last ``update``.

    Args:
        ledger: which is only read.
    """

    def __init__(self, ledger: Reader):
        self.ledger, self.tree = ledger, ledger.charter.tree
        self.replay, self.head = Replay(ledger.charter), Head(0, "")
        self.releases: dict[str, Release] = {}
        self.points: list[tuple[str, tuple[float, ...]]] = []
        self._fixed: tuple[int, str | None] = (-1, None)

    def update(self) -> None:
        """Read the entries that are new.

        Raises:
            CheckFailed: they do not follow from those before. MissingResource: the database cannot be read.
        """
        with self.ledger.store.transaction(write=False) as connection:
            row = self.ledger.store.row(connection, lock=False)
            entries = self.ledger.store.entries(connection, self.head.seq)
        if row.head_seq < self.head.seq:
            raise CheckFailed(
                f"the ledger ends at entry {row.head_seq}, and entry {self.head.seq} was shown here: it was cut, or "
                "restored from a backup. Spend nothing from it, and start the page again"
            )
        for entry in entries:
            if entry.kind != "init":
                self._read(entry)
            self.points.append((entry.time, self.left()))
            self.head = Head(entry.seq, entry.digest)

    def _read(self, entry: Entry) -> None:
        self.replay.add(entry)
        if entry.kind == "limit":
            return
        name, about = str(entry.release), entry.content()
        if entry.kind in ("spend", "reserve"):
            words = sentence(about["steps"]) + (", planned" if about["planned"] else "")
            named = entry.actor or "", entry.reason or "", entry.key or ""
            self.releases[name] = Release(name, entry.time, words, Place.parse(about["place"]), *named)
            for row in about["bookings"]:
                if row["tier"] >= 0:
                    self.releases[row["release"]].booked[row["gate"], row["filter"]] = row["amounts"][0]
        self.releases[name].state = self.replay.states[name]

    def _share(self, gate: int, units: int) -> float:
        """Units of the first account of a limit as a share of what the limit in force leaves of it."""
        return units / max(self.replay.books.in_force(gate).caps[self.replay.books.open_filter(gate)][0], 1)

    def _shares(self, releases: Iterable[Release]) -> dict[int, float]:
        """The share of each limit in force that some releases have booked together, by the number of the limit."""
        units = Counter[int]()
        for release in releases:
            for (gate, number), amount in release.booked.items():
                units[gate] += amount if number == self.replay.books.open_filter(gate) else 0
        return {gate: self._share(gate, amount) for gate, amount in units.items()}

    def left(self) -> tuple[float, ...]:
        """The share that is left of each limit: of its account that is nearest to its end."""
        return tuple(
            min(share for _, share in self.replay.books.left(gate, self.replay.books.open_filter(gate)))
            for gate in range(len(self.tree.gates))
        )

    def limits(self) -> list[str]:
        """The names of the limits in force, as ``all (1, 1e-6)-DP``."""
        books = self.replay.books
        return [f"{gate.scope} {books.in_force(number).limit}" for number, gate in enumerate(self.tree.gates)]

    def fixed(self) -> str | None:
        """What pld certifies of all that ran, if it had been fixed in advance; see ``Reader.status``."""
        if self._fixed[0] != self.head.seq:
            try:
                self._fixed = self.head.seq, self.ledger.status().fixed
            except Unsupported:
                self._fixed = self.head.seq, None
        return self._fixed[1]

    def rows(self) -> list[Row]:
        """The tree of scopes, each with its partitions below it."""
        return self._below(ROOT, 0)

    def _below(self, scope: str, depth: int) -> list[Row]:
        left, books = self.left(), self.replay.books
        limits = []
        for gate, about in enumerate(self.tree.gates):
            if about.scope == scope:
                words: dict[int, list[str]] = {}
                for each in accounts_of(books, gate):
                    share = "closed" if each.closed else percent(each.left)
                    words.setdefault(each.filter, []).append(f"{each.name} {share}")
                accounts = ", or of the other filter: ".join(map(", ".join, words.values()))
                limits.append(Remainder(str(books.in_force(gate).limit), str(about.limit), left[gate], accounts))
        place = Place(scope)
        rows = [Row(depth, scope, "scope", tuple(limits), self._booked(place), self._counts(place))]
        for partition in self.tree.partitions:
            if partition.scope == scope:
                counted = partition.counted(self.tree.adjacency)
                what = "the largest part counts" if counted == 1 else f"the {counted} largest parts count"
                rows.append(Row(depth + 1, partition.name, f"partition, of which {what}"))
                for part in partition.parts:
                    place = Place(scope, partition.name, part)
                    rows.append(Row(depth + 2, part, "part", booked=self._booked(place), counts=self._counts(place)))
        for name, parent in self.tree.parents:
            rows += self._below(name, depth + 1) if parent == scope else []
        return rows

    def _booked(self, place: Place) -> str:
        gate = next(iter(self.tree.gates_of(place)), None)
        if gate is None:
            return ""
        which = self.replay.books.open_filter(gate)
        row = self.replay.books.amounts.get((gate, which, 0), {})
        units = row.get(place, 0) if place.partition else self.tree.total(place.scope, row)
        about = self.tree.gates[gate]
        return f"{percent_up(self._share(gate, units))} of {about.filters[which].accounts[0][0]} of {about.scope}"

    def _counts(self, place: Place) -> str:
        states = Counter(release.state for release in self.releases.values() if release.place == place)
        return ", ".join(f"{count} {state}" for state, count in states.items())

    def actors(self) -> list[tuple[str, int, list[str]]]:
        """By whom: the actor, releases that are charged, and the share of each limit that they booked together."""
        rows: dict[str, list[Release]] = {}
        for release in self.releases.values():
            if release.state in (PENDING, *SPENT):
                rows.setdefault(release.actor, []).append(release)
        gates, totals = range(len(self.tree.gates)), []
        for name, some in rows.items():
            shares = self._shares(some)
            totals.append((name, len(some), [shares.get(gate, 0.0) for gate in gates]))
        totals.sort(key=lambda row: (-max(row[2]), row[0]))
        return [
            (name, count, [percent_up(share) if share else "" for share in shares]) for name, count, shares in totals
        ]

    def latest(self) -> list[tuple[Release, str]]:
        """The last releases, from the newest, with the largest share of a limit that each has booked."""
        rows = []
        for release in list(self.releases.values())[: -MOST_ROWS - 1 : -1]:
            share, gate = max(((share, gate) for gate, share in self._shares([release]).items()), default=(0.0, None))
            cost = "" if gate is None else f"{percent_up(share)} of {self.tree.gates[gate].scope}"
            rows.append((release, cost if release.state in (PENDING, *SPENT) else "nothing"))
        return rows

    def refusals(self) -> list[tuple[str, str, str, str, str]]:
        """The last refusals: time, words, place, actor, and why."""
        with self.ledger.store.transaction(write=False) as connection:
            rows = self.ledger.store.refusals(connection, MOST_ROWS)
        return [
            (row.time, sentence(json.loads(row.body)["steps"]), row.place, row.actor or "", row.because) for row in rows
        ]

    def picture(self) -> Picture:
        """What was left of each limit over time, as paths of steps."""
        step = -(-len(self.points) // MOST_POINTS)
        points = [*self.points[::step], self.points[-1]]
        begin, end = (datetime.datetime.fromisoformat(points[k][0]) for k in (0, -1))
        span = max((end - begin).total_seconds(), 1e-3)

        def x(time: str) -> float:
            passed = (datetime.datetime.fromisoformat(time) - begin).total_seconds()
            return round(LEFT + (WIDTH - LEFT - RIGHT) * passed / span, 1)

        def y(share: float) -> float:
            return round(TOP + (HEIGHT - TOP - BOTTOM) * (1 - share), 1)

        lines = []
        for gate, name in enumerate(self.limits()):
            path = f"M{x(points[0][0])} {y(points[0][1][gate])}"
            path += "".join(f"H{x(time)}V{y(left[gate])}" for time, left in points[1:])
            lines.append((name, f"{path}H{WIDTH - RIGHT}"))
        heights = tuple((y(share), f"{100 * share:.0f}%") for share in (0.0, 0.25, 0.5, 0.75, 1.0))
        form = "%Y-%m-%d" if span > 86400 * 2 else "%H:%M:%S"
        times = ((LEFT, begin.strftime(form), "start"), (WIDTH - RIGHT, end.strftime(form), "end"))
        return Picture(tuple(lines), heights, times)
