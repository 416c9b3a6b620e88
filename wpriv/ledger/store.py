"""The database of a ledger: its tables, its transactions, and the chain of its entries.

One writer decides at a time: on SQLite by BEGIN IMMEDIATE in WAL, on PostgreSQL by a lock of the row of ``ledger``. A
transaction is on disk before it returns. Entries are append-only and chained; the other tables follow from them, and
``ledger check`` makes them anew.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Connection,
    Engine,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    create_engine,
    delete,
    event,
    insert,
    inspect,
    select,
    update,
)
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError

from wpriv._version import __version__
from wpriv.errors import MissingResource, UsageError, lacking
from wpriv.ledger.charter import Charter, canonical, describe, digest, in_force, require_texts
from wpriv.ledger.filters import UNITS
from wpriv.ledger.scopes import Booking, Books, InForce, Place, Tree

SCHEMA = 2
KEPT_REFUSALS = 1000
BUSY = 60_000  # milliseconds that a writer waits for another
PENDING = "reserved"
SPENT = ("begun", "done", "lost")
_EXAMPLE = "sqlite:///b.db, or postgresql://user@host/name"
_TABLES = MetaData()
_KINDS: dict[str, Any] = {"text": Text, "int": Integer, "big": BigInteger, "bytes": LargeBinary}


def _table(name: str, columns: str, *rules: UniqueConstraint | CheckConstraint) -> Table:
    """A table of columns written as ``seq:big!``: ! is the primary key, * unique, + indexed, ? may be null."""
    fields = []
    for word in columns.split():
        column, _, kind = word.partition(":")
        marks: dict[str, Any] = {"nullable": "?" in kind}
        marks |= {"primary_key": True, "autoincrement": False} if "!" in kind else {}
        marks |= {"unique": True} if "*" in kind else {"index": True} if "+" in kind else {}
        fields.append(Column(column, _KINDS[kind.rstrip("!*+?")], **marks))
    return Table(name, _TABLES, *fields, *rules)


LEDGER = _table("ledger", "id:text! schema:int rule:text limits_digest:text charter:text head_seq:big head_digest:text")
ENTRY = _table(
    "entry",
    "seq:big! time:text kind:text release:text?+ key:text?* actor:text? reason:text? code_version:text body:text "
    "prev:text* digest:text*",
)
RELEASE = _table(
    "release", "id:text! scope:text part:text state:text+ expires:text? nonce_digest:text? pair_digest:text"
)
CHARGE = _table(
    "charge",
    "release:text gate:int filter:int account:int amount:big tier:int",
    UniqueConstraint("release", "gate", "filter", "account"),
)
ACCOUNT = _table(
    "account",
    "gate:int filter:int account:int scope:text part:text booked:big",
    UniqueConstraint("gate", "filter", "account", "scope", "part"),
    CheckConstraint(f"booked >= 0 AND booked <= {UNITS}"),
)
CLOSED = _table("closed", "gate:int? filter:int?", UniqueConstraint("gate", "filter"))
# limits that were changed, by gate
LIMIT_NOW = _table("limit_now", "gate:int! body:text")
REFUSAL = _table("refusal", "time:text place:text body:text actor:text? reason:text? because:text")
TARIFF = _table("tariff", "unit:text filter:text tier:int charge:text", UniqueConstraint("unit", "filter", "tier"))
# what ran up to an entry, as GrowingPlan keeps it: a cache that decides nothing
GROWN = _table("grown", "seq:big digest:text state:bytes")
_APPEND_ONLY = {
    "sqlite": [
        f"CREATE TRIGGER entry_no_{what.lower()} BEFORE {what} ON entry BEGIN "
        f"SELECT RAISE(ABORT, 'entries are append-only'); END"
        for what in ("UPDATE", "DELETE")
    ],
    "postgresql": [
        "CREATE FUNCTION entry_is_append_only() RETURNS trigger AS "
        "$$ BEGIN RAISE EXCEPTION 'entries are append-only'; END $$ LANGUAGE plpgsql",
        "CREATE TRIGGER entry_is_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON entry "
        "FOR EACH STATEMENT EXECUTE FUNCTION entry_is_append_only()",
    ],
}
_NOW = {
    "sqlite": "SELECT strftime('%Y-%m-%dT%H:%M:%fZ', 'now')",
    "postgresql": "SELECT to_char(clock_timestamp() AT TIME ZONE 'utc', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"')",
}


@dataclass(frozen=True)
class Entry:
    """One line of the ledger. ``body`` is canonical JSON; ``digest`` covers all the rest and the ledger's id."""

    seq: int
    time: str
    kind: str
    release: str | None
    key: str | None
    actor: str | None
    reason: str | None
    code_version: str
    body: str
    prev: str
    digest: str = ""

    def sealed(self, ledger: str) -> Entry:
        """This entry with its digest."""
        fields = {name: value for name, value in vars(self).items() if name != "digest"}
        return Entry(**fields, digest=digest(canonical({**fields, "ledger": ledger})))

    def content(self) -> dict[str, Any]:
        """The body as data."""
        content: dict[str, Any] = json.loads(self.body)
        return content


@dataclass(frozen=True)
class Head:
    """The last entry: its number and digest, to be kept elsewhere."""

    seq: int
    digest: str

    def __str__(self) -> str:
        return f"{self.seq} {self.digest}"


def _columns_of(place: Place) -> dict[str, str]:
    return {"scope": place.scope, "part": str(place).removeprefix(place.scope)}


def release_rows(entries: list[Entry], states: Mapping[str, str]) -> list[dict[str, str | None]]:
    """The rows of the releases that follow from all entries, in order."""
    nonces = {entry.release: str(entry.content()["nonce"]) for entry in entries if entry.kind == "begin"}
    rows = []
    for entry in entries:
        if entry.kind in ("spend", "reserve"):
            content, name = entry.content(), str(entry.release)
            place, state = Place.parse(content["place"]), states[name]
            about = {"id": name, **_columns_of(place), "state": state}
            digests = {"nonce_digest": nonces.get(name), "pair_digest": content["request"]}
            rows.append({**about, "expires": content["expires"] if state == PENDING else None, **digests})
    return rows


def without_password(url: str) -> str:
    """A URL, perhaps a wrong one, without what stands where a password does."""
    return re.sub(r":[^:/]*@", ":***@", url)


class Store:
    """A database, named by a URL, that holds one ledger or none yet; with ``read_only`` nothing can be written.

    Raises:
        UsageError: no URL of SQLite or PostgreSQL. MissingResource: it cannot be opened, or a driver is missing.
    """

    def __init__(self, url: str, *, create: bool = False, read_only: bool = False):
        self.read_only = read_only
        try:
            parsed = make_url(url)
        except (ArgumentError, ValueError):
            shown = without_password(str(url))[:80]
            raise UsageError(f"a ledger is named by a URL, such as {_EXAMPLE}; found {shown!r}") from None
        self.kind = parsed.get_backend_name()
        if self.kind == "sqlite":
            name = parsed.database
            if not name or name == ":memory:":
                example = f"sqlite:///{parsed.host or 'b.db'}"
                raise UsageError(f"a ledger has to outlive the program: give a file with three slashes, as {example}")
            if parsed.query:
                raise UsageError(f"a ledger in SQLite is named by its file alone; found {next(iter(parsed.query))!r}")
            if not create and not Path(name).is_file():
                raise MissingResource(f"{name}: there is no ledger. Make one with `wpriv ledger init {url} ...`")
        elif self.kind in ("postgresql", "postgres"):
            self.kind = "postgresql"
        else:
            raise UsageError(f"ledgers are kept in SQLite or PostgreSQL; found {self.kind}. Wanted {_EXAMPLE}")
        self.url = parsed.render_as_string(hide_password=True)
        if self.kind == "postgresql":
            parsed = parsed.set(drivername="postgresql+psycopg")
        try:
            self.engine = self._connected(create_engine(parsed, isolation_level="AUTOCOMMIT", pool_size=1))
        except (ModuleNotFoundError, NoSuchModuleError):
            raise lacking("psycopg", "a ledger in PostgreSQL") from None
        self.id = ""

    def _connected(self, engine: Engine) -> Engine:
        if self.kind == "sqlite":

            @event.listens_for(engine, "connect")
            def prepare(connection: Any, _: object) -> None:
                for setting in (f"busy_timeout={BUSY}", "journal_mode=WAL", "synchronous=FULL"):
                    connection.execute(f"PRAGMA {setting}")
                connection.execute(f"PRAGMA query_only={self.read_only:d}")

        return engine

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()

    @contextlib.contextmanager
    def transaction(self, *, write: bool = True) -> Iterator[Connection]:
        """A transaction that holds the lock of the ledger where it writes, and is durable when it ends.

        Raises:
            MissingResource: the database cannot be reached, is busy or is damaged.
        """
        begin = "BEGIN IMMEDIATE" if write and self.kind == "sqlite" else "BEGIN"
        if self.kind == "postgresql":
            # whoever waited for the lock has to see what was written before it
            begin = "BEGIN ISOLATION LEVEL READ COMMITTED" + (" READ ONLY" if self.read_only else "")
        try:
            with self.engine.connect() as connection:
                connection.exec_driver_sql(begin)
                try:
                    if self.kind == "postgresql":
                        self._require_durable(connection)
                    yield connection
                except BaseException:
                    connection.exec_driver_sql("ROLLBACK")
                    raise
                connection.exec_driver_sql("COMMIT")
        except DBAPIError as error:
            reason = str(error.orig).strip().splitlines()[0][:160]
            if "append-only" in reason:
                raise
            folder = ". Its folder must exist, and you must be allowed to write there" * ("unable to open" in reason)
            raise MissingResource(f"{self.url}: the database says: {reason}{folder}") from None

    @staticmethod
    def _require_durable(connection: Connection) -> None:
        names = "fsync", "synchronous_commit"
        query = ", ".join(f"current_setting('{name}')" for name in names)
        for name, value in zip(names, connection.exec_driver_sql(f"SELECT {query}").one(), strict=True):
            if value == "off":
                raise MissingResource(
                    f"PostgreSQL has {name} off, so that a crash may lose what was spent. Turn {name} on"
                )

    def create(self, ledger: str, charter: Charter, first: Mapping[str, Any]) -> Head:
        """Make the tables and the first entry.

        Raises:
            UsageError: there is a ledger already.
        """
        with self.transaction() as connection:
            self._make_tables(connection)
            head = Head(0, digest(ledger))
            self._add_ledger(connection, ledger, charter, head)
            self.id = ledger
            return self.append(connection, head, "init", **first)

    @staticmethod
    def _add_ledger(connection: Connection, ledger: str, charter: Charter, head: Head) -> None:
        words = charter.as_text()
        about = {"schema": SCHEMA, "rule": charter.rule, "charter": words, "limits_digest": digest(words)}
        connection.execute(insert(LEDGER).values(id=ledger, head_seq=head.seq, head_digest=head.digest, **about))

    def _make_tables(self, connection: Connection) -> None:
        if inspect(connection).has_table("ledger"):
            raise UsageError(f"{self.url} holds a ledger already, whose rule never changes. Name another place")
        _TABLES.create_all(connection)
        for statement in _APPEND_ONLY[self.kind]:
            connection.exec_driver_sql(statement)

    def restore(
        self, ledger: str, charter: Charter, entries: list[Entry], books: Books, releases: list[dict[str, str | None]]
    ) -> None:
        """Make the tables from the entries of another ledger and what follows from them; errors as for ``create``."""
        with self.transaction() as connection:
            self._make_tables(connection)
            self._add_ledger(connection, ledger, charter, Head(entries[-1].seq, entries[-1].digest))
            for entry in entries:
                connection.execute(insert(ENTRY).values(**vars(entry)))
            for row in releases:
                connection.execute(insert(RELEASE).values(**row))
            self.write_books(connection, Books(charter.tree), books)
            for gate, now in books.now.items():
                self.set_limit(connection, gate, now)
            self.write_charges(connection, list(books.pending.values()))

    def row(self, connection: Connection, *, lock: bool = True) -> Any:
        """The row of the ledger, locked on PostgreSQL.

        Raises:
            UsageError: no ledger, or one of a later version.
        """
        row = self._any_row(connection, lock)
        if row.schema > SCHEMA:
            raise UsageError(f"{self.url} was written by a later version of wpriv (schema {row.schema}). Install it")
        if row.schema < SCHEMA:
            raise UsageError(
                f"{self.url} was written by an earlier version of wpriv (schema {row.schema}; this one has {SCHEMA}). "
                f"Bring it up to date with `wpriv ledger migrate {self.url} --backup entries.jsonl`"
            )
        self.id = row.id
        return row

    def _any_row(self, connection: Connection, lock: bool) -> Any:
        """The row of a ledger of any version, locked as for ``row``; UsageError where there is none."""
        if not self.id and not inspect(connection).has_table("ledger"):
            raise UsageError(f"{self.url} holds no ledger. Make one with `wpriv ledger init {self.url} ...`")
        query = select(LEDGER)
        return connection.execute(query.with_for_update() if lock and self.kind == "postgresql" else query).one()

    def migrate(self, keep: Callable[[str, list[Entry]], None]) -> tuple[int, int]:
        """Bring an earlier database up to this version, in one transaction; stored entries keep their bytes.

        Args:
            keep: called with the ledger's id and its entries, before anything is changed.
        Returns:
            The schema before, and the one now.
        Raises:
            UsageError: there is no ledger, it is up to date, or one of a later version.
        """
        with self.transaction() as connection:
            row = self._any_row(connection, lock=True)
            if row.schema >= SCHEMA:
                state = "is up to date" if row.schema == SCHEMA else "was written by a later version of wpriv"
                raise UsageError(f"{self.url} {state} (schema {row.schema}): nothing was changed")
            keep(row.id, self.entries(connection))
            # 1 to 2: limits may change, and the tables that came later are always there
            for table in (LIMIT_NOW, REFUSAL, GROWN):
                table.create(connection, checkfirst=True)
            connection.execute(update(LEDGER).values(schema=SCHEMA))
            return row.schema, SCHEMA

    def now(self, connection: Connection, head: Head) -> str:
        """The clock of the database, never before the last entry."""
        now = str(connection.exec_driver_sql(_NOW[self.kind]).scalar_one())
        last = connection.execute(select(ENTRY.c.time).where(ENTRY.c.seq == head.seq)).scalar()
        return max(now, last or "")

    def append(self, connection: Connection, head: Head, kind: str, **fields: Any) -> Head:
        """Append an entry behind the head, and return the new head; ``body`` is data."""
        about: dict[str, Any] = {name: fields.get(name) for name in ("release", "key", "actor", "reason")}
        seq, time = head.seq + 1, fields.get("time") or self.now(connection, head)
        about["release"] = about["release"] or (str(seq) if kind in ("spend", "reserve") else None)
        body = canonical(fields.get("body") or {})
        entry = Entry(seq, time, kind, **about, code_version=__version__, body=body, prev=head.digest).sealed(self.id)
        connection.execute(insert(ENTRY).values(**vars(entry)))
        connection.execute(update(LEDGER).values(head_seq=seq, head_digest=entry.digest))
        return Head(seq, entry.digest)

    def entries(self, connection: Connection, after: int = 0) -> list[Entry]:
        """Return all entries after a number, in order."""
        rows = connection.execute(select(ENTRY).where(ENTRY.c.seq > after).order_by(ENTRY.c.seq))
        return [Entry(**row._mapping) for row in rows]

    def note_refusal(self, connection: Connection, **about: Any) -> None:
        """Keep a release that was refused, for the page; it is no entry, since nothing follows from it."""
        connection.execute(insert(REFUSAL).values(**about))
        newest = select(REFUSAL.c.time).order_by(REFUSAL.c.time.desc()).offset(KEPT_REFUSALS - 1).limit(1)
        connection.execute(delete(REFUSAL).where(REFUSAL.c.time < newest.scalar_subquery()))

    def refusals(self, connection: Connection, most: int) -> list[Any]:
        """The last refusals, from the newest."""
        return list(connection.execute(select(REFUSAL).order_by(REFUSAL.c.time.desc()).limit(most)))

    def grown(self, connection: Connection) -> tuple[int, bytes] | None:
        """The state of what ran that was kept last, with the number of its entry; None if that entry is not there."""
        here = ENTRY.c.seq == GROWN.c.seq, ENTRY.c.digest == GROWN.c.digest
        row = connection.execute(select(GROWN.c.seq, GROWN.c.state).where(*here)).first()
        return None if row is None else (row.seq, row.state)

    def keep_grown(self, connection: Connection, head: Head, state: bytes) -> None:
        """Keep the state of what ran in the place of an earlier one."""
        connection.execute(delete(GROWN))
        connection.execute(insert(GROWN).values(seq=head.seq, digest=head.digest, state=state))

    def by_key(self, connection: Connection, key: str) -> Entry | None:
        """The entry with a key of its client."""
        row = connection.execute(select(ENTRY).where(ENTRY.c.key == key)).one_or_none()
        return None if row is None else Entry(**row._mapping)

    def entry(self, connection: Connection, release: str) -> Entry:
        """The entry that made a release, by its number or by the client's key.

        Raises:
            UsageError: there is none, or it is no text.
        """
        require_texts(release=release)
        admitted = ENTRY.c.kind.in_(("spend", "reserve"))
        row = connection.execute(select(ENTRY).where(admitted, ENTRY.c.release == release)).one_or_none()
        row = row or connection.execute(select(ENTRY).where(admitted, ENTRY.c.key == release)).one_or_none()
        if row is None:
            raise UsageError(f"no release {release[:60]!r} in {self.url}. `wpriv ledger status {self.url}` lists them")
        return Entry(**row._mapping)

    def books(self, connection: Connection, tree: Tree) -> Books:
        """Return what is booked, and what is reserved."""
        books = Books(tree)
        for row in connection.execute(select(ACCOUNT)):
            place = Place.parse(row.scope + row.part)
            books.amounts.setdefault((row.gate, row.filter, row.account), {})[place] = row.booked
        books.closed = {(row.gate, row.filter) for row in connection.execute(select(CLOSED))}
        books.now = {row.gate: in_force(json.loads(row.body)) for row in connection.execute(select(LIMIT_NOW))}
        waiting = connection.execute(select(RELEASE).where(RELEASE.c.state == PENDING)).all()
        if waiting:
            books.places = {row.id: Place.parse(row.scope + row.part) for row in waiting}
            charges = select(CHARGE).where(CHARGE.c.release.in_([row.id for row in waiting]))
            for row in connection.execute(charges.order_by(CHARGE.c.account)):
                key = row.release, row.gate, row.filter
                before = books.pending[key].amounts if key in books.pending else ()
                books.pending[key] = Booking(*key, row.tier, (*before, row.amount))
        return books

    def write_books(self, connection: Connection, before: Books, after: Books) -> None:
        """Write the accounts that differ."""
        for key, row in after.amounts.items():
            earlier = before.amounts.get(key, {})
            for place, booked in row.items():
                if place in earlier and earlier[place] == booked:
                    continue
                names = dict(zip(("gate", "filter", "account"), key, strict=True)) | _columns_of(place)
                if place in earlier:
                    where = [ACCOUNT.c[name] == value for name, value in names.items()]
                    connection.execute(update(ACCOUNT).where(*where).values(booked=booked))
                else:
                    connection.execute(insert(ACCOUNT).values(**names, booked=booked))
        for gate, number in after.closed - before.closed:
            connection.execute(insert(CLOSED).values(gate=gate, filter=number))

    def set_limit(self, connection: Connection, gate: int, now: InForce) -> None:
        """Write the limit that is in force in the place of an earlier one."""
        connection.execute(delete(LIMIT_NOW).where(LIMIT_NOW.c.gate == gate))
        connection.execute(insert(LIMIT_NOW).values(gate=gate, body=canonical(describe(now))))

    def write_charges(self, connection: Connection, bookings: list[Booking]) -> None:
        """Write the charges of releases in the place of earlier ones."""
        for booking in bookings:
            where = CHARGE.c.release == booking.release, CHARGE.c.gate == booking.gate
            connection.execute(delete(CHARGE).where(*where, CHARGE.c.filter == booking.filter))
            about = {"release": booking.release, "gate": booking.gate, "filter": booking.filter, "tier": booking.tier}
            for account, amount in enumerate(booking.amounts):
                connection.execute(insert(CHARGE).values(**about, account=account, amount=amount))

    def state(self, connection: Connection, release: str) -> Any:
        """The row of a release."""
        return connection.execute(select(RELEASE).where(RELEASE.c.id == release)).one()

    def releases(self, connection: Connection) -> list[Any]:
        """The rows of all releases, in order."""
        return sorted(connection.execute(select(RELEASE)).all(), key=lambda row: int(row.id))

    def set_state(self, connection: Connection, release: str, **values: Any) -> None:
        """Change the row of a release."""
        connection.execute(update(RELEASE).where(RELEASE.c.id == release).values(**values))

    def add_release(self, connection: Connection, release: str, place: Place, **values: Any) -> None:
        """Add the row of a release."""
        connection.execute(insert(RELEASE).values(id=release, **_columns_of(place), **values))

    def expired(self, connection: Connection, now: str) -> list[str]:
        """The reservations whose time has passed."""
        where = RELEASE.c.state == PENDING, RELEASE.c.expires.is_not(None), RELEASE.c.expires <= now
        return sorted(connection.execute(select(RELEASE.c.id).where(*where)).scalars(), key=int)

    def tariff(self, connection: Connection, unit: str, by: str, tier: int) -> tuple[Fraction, ...] | None:
        """A charge that was computed before."""
        where = TARIFF.c.unit == unit, TARIFF.c.filter == by, TARIFF.c.tier == tier
        known = connection.execute(select(TARIFF.c.charge).where(*where)).scalar()
        return None if known is None else tuple(Fraction(word) for word in known.split())

    def keep_tariff(self, connection: Connection, unit: str, by: str, tier: int, charge: tuple[Fraction, ...]) -> None:
        """Keep a charge for later, under the lock; another process may have done so."""
        if self.tariff(connection, unit, by, tier) is None:
            words = " ".join(map(str, charge))
            connection.execute(insert(TARIFF).values(unit=unit, filter=by, tier=tier, charge=words))
