"""Tables in SQLite and PostgreSQL: one query, read as a stream inside one read-only snapshot.

Before a release is paid for, only names and types of columns are asked for. Afterwards no message depends on a row.
"""

from __future__ import annotations

import datetime
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Engine, create_engine, inspect
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.pool import NullPool
from sqlglot import exp

from wpriv.errors import MissingResource, UnknownName, UsageError, require
from wpriv.files import without_password
from wpriv.files.columns import BOOLEAN, DATE, INTEGER, NUMBER, TEXT, UUIDS, Block, coded
from wpriv.numerics.numbers import shown
from wpriv.releases import queries
from wpriv.releases.queries import POSTGRES, SQLITE

if TYPE_CHECKING:
    from psycopg.abc import Buffer

ROWS = 400_000  # of a block
FAILED = (
    "the database failed while rows were read, after the release was paid for. Nothing is said about the reason, which "
    "may be in a row; the log of the database has it"
)
_DRIVERS = {SQLITE: "sqlite+pysqlite", POSTGRES: "postgresql+psycopg"}
# the numbers of PostgreSQL's own types; those of users, such as enumerations, come as text
_TYPES = {
    **dict.fromkeys((18, 19, 25, 1042, 1043), TEXT), **dict.fromkeys((20, 21, 23), INTEGER), 16: BOOLEAN, 2950: UUIDS,
    **dict.fromkeys((700, 701, 1700), NUMBER), **dict.fromkeys((1082, 1114, 1184), DATE),
}  # fmt: skip
_OF_USERS = 16384


@dataclass(frozen=True, eq=False)
class Database:
    """The result of a query.

    Args:
        url: of the database. query: as it is run. name: of url and table, without the password.
    """

    url: URL
    query: str
    columns: tuple[str, ...]
    types: Mapping[str, str]
    name: str

    @classmethod
    def open(
        cls, url: str, person: str, *, table: str = "", where: str = "", query: str = "", public: Sequence[str] = ()
    ) -> Database:
        """Check a query, and ask for the columns of its result.

        Raises:
            UsageError: the query is refused, or the database refuses it. MissingResource: there is no such database.
        """
        parsed, dialect = _parsed(url)
        if bool(table) == bool(query) or (where and query) or (public and not query):
            raise UsageError(
                "a database needs `table`, perhaps with `where`; or `query`, perhaps with `public` for tables that "
                "hold nobody"
            )
        if query:
            statement = queries.checked(query, person, public, dialect)
        else:
            statement = queries.of_table(table, where, person, dialect)
        try:
            with _connected(parsed) as connection:
                if table:
                    _require_table(connection, table, dialect)
                columns, types = _described(connection, statement, dialect)
        except SQLAlchemyError as error:
            raise MissingResource(f"`data`: the database cannot be opened: {_reason(error)}") from None
        wanted = f"{table} where {where}" if where else table or query
        return cls(parsed, statement, columns, types, f"{without_password(url)}: {wanted}")

    def blocks(self, columns: Sequence[str]) -> Iterator[Block]:
        dialect = SQLITE if self.url.get_backend_name() == "sqlite" else POSTGRES
        names = [exp.column(name, quoted=True).sql(dialect) for name in columns]
        statement = f"SELECT {', '.join(names) or '1'} FROM ({self.query}) AS wpriv_rows"
        try:
            with _connected(self.url) as connection:
                driver: Any = connection.connection.driver_connection  # makes no object of a row, as SQLAlchemy does
                failure = connection.dialect.loaded_dbapi.Error
                try:
                    cursor = driver.cursor() if dialect == SQLITE else driver.cursor(name="wpriv_rows")
                    cursor.execute(statement)
                    while rows := cursor.fetchmany(ROWS):
                        cells = zip(*rows, strict=True) if columns else ()
                        yield Block(len(rows), dict(zip(columns, map(coded, cells), strict=True)))
                except (failure, UnicodeError):
                    raise MissingResource(FAILED) from None
        except SQLAlchemyError:
            raise MissingResource(FAILED) from None


def _parsed(url: str) -> tuple[URL, str]:
    """A URL with its driver, and the dialect of its queries."""
    try:
        parsed = make_url(url)
        dialect = {"sqlite": SQLITE, "postgresql": POSTGRES}.get(parsed.get_backend_name(), "")
    except (ArgumentError, ValueError):
        dialect = ""
    if not dialect:
        raise UsageError(
            "`data` must be a file, or the URL of SQLite or PostgreSQL: sqlite:///clinic.db, or "
            "postgresql://user@host/clinic"
        )
    if dialect == POSTGRES:
        require("psycopg", "a table in PostgreSQL", extra="release")
    elif parsed.host:
        raise UsageError(f"`data`: a file of SQLite is named with three slashes, as in sqlite:///{parsed.host}")
    elif not parsed.database or not Path(parsed.database).is_file():  # SQLite would create it
        raise MissingResource(f"`data` {shown(parsed.database or url)}: there is no such database file")
    return parsed.set(drivername=_DRIVERS[dialect]), dialect


@contextmanager
def _connected(url: URL) -> Iterator[Connection]:
    """A connection in a read-only transaction that sees one state of the database."""
    engine = _engine(url)
    try:
        with engine.connect() as connection, connection.begin():
            if url.get_backend_name() != "sqlite":
                connection.exec_driver_sql("SET LOCAL datestyle TO ISO")
                _read_days(connection)
            yield connection
    finally:
        engine.dispose()


def _engine(url: URL) -> Engine:
    if url.get_backend_name() == "sqlite":
        path = Path(str(url.database)).absolute().as_uri()

        def connect() -> sqlite3.Connection:
            connection = sqlite3.connect(f"{path}?mode=ro", uri=True, isolation_level=None)
            connection.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")
            return connection

        return create_engine("sqlite://", creator=connect, poolclass=NullPool)
    options = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
    return create_engine(url, poolclass=NullPool, execution_options=options)


def _read_days(connection: Connection) -> None:
    """Read dates and timestamps as days; Python's own have no infinity and end with the year 9999."""
    from psycopg.adapt import Loader

    class Day(Loader):
        def load(self, data: Buffer) -> datetime.date:
            written = bytes(data).decode()
            try:
                return datetime.date.fromisoformat(written[:10])
            except ValueError:
                return datetime.date.min if written.startswith("-") else datetime.date.max

    driver: Any = connection.connection.driver_connection
    for name in ("date", "timestamp", "timestamptz"):
        driver.adapters.register_loader(name, Day)


def _require_table(connection: Connection, table: str, dialect: str) -> None:
    """Refuse a table that does not exist; the names of tables are public."""
    named = exp.to_table(table, dialect=dialect)
    if named.db or named.catalog:
        return
    seen = inspect(connection)
    more = seen.get_temp_table_names() if dialect == SQLITE else seen.get_materialized_view_names()
    known = [*seen.get_table_names(), *seen.get_view_names(), *more]
    compared = str.lower if dialect == SQLITE or not named.this.args.get("quoted") else str
    if compared(named.name) not in map(compared, known):
        raise UnknownName("table", table, known, place="`table`")


def _described(connection: Connection, statement: str, dialect: str) -> tuple[tuple[str, ...], dict[str, str]]:
    """The names of the columns of a query, and their types as far as they are known; no row is read."""
    try:
        if dialect == SQLITE:
            connection.exec_driver_sql(f"CREATE TEMP VIEW wpriv_columns AS {statement}")
            about = connection.exec_driver_sql("PRAGMA table_info(wpriv_columns)")
            pairs = [(str(row[1]), _affinity(str(row[2]))) for row in about]
        else:
            encoding = connection.exec_driver_sql("SHOW server_encoding").scalar()
            if encoding != "UTF8":
                raise UsageError(f"`data`: releases read databases of the encoding UTF8; found {encoding}")
            escaped = statement.replace("%", "%%")
            result = connection.exec_driver_sql(f"SELECT * FROM ({escaped}) AS wpriv_rows LIMIT 0")
            assert result.cursor is not None  # it returns rows
            pairs = [(str(column[0]), _of_number(int(str(column[1])))) for column in result.cursor.description or ()]
    except SQLAlchemyError as error:
        raise UsageError(f"the database refuses the query: {_reason(error)}") from None
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        raise UsageError("the columns of a query must have different names; name them with AS")
    return tuple(names), dict(pairs)


def _reason(error: SQLAlchemyError) -> str:
    """What a database said before any row was asked for, in one line."""
    return str(getattr(error, "orig", error)).partition("\n")[0]


def _of_number(number: int) -> str:
    return TEXT if number >= _OF_USERS else _TYPES.get(number, "a type that releases do not read")


def _affinity(declared: str) -> str:
    """The type of a column of SQLite as it is declared; "" if it is not. Dates are stored as text or numbers."""
    word = declared.upper()
    if "BOOL" in word or "INT" in word:
        return INTEGER
    if any(part in word for part in ("CHAR", "CLOB", "TEXT", "DATE", "TIME")):
        return TEXT
    return NUMBER if any(part in word for part in ("REAL", "FLOA", "DOUB", "NUM", "DEC")) else ""
