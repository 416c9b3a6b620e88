"""Tables in files, databases and frames: the same cells however they are stored; errors say nothing of a row."""

from __future__ import annotations

import datetime
import sqlite3
import uuid
from decimal import Decimal

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.command_line import call
from tests.postgres import new_database
from wpriv import Count, Mean, Quantile, Sum, release
from wpriv.errors import MissingResource, UnknownName, UsageError
from wpriv.releases.tables import table

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
pytest.importorskip("sqlalchemy")
pytest.importorskip("sqlglot")

PURE = {"person": "patient", "eps": 1, "delta": 0}
ROWS = [
    ("p1", "A", "3"), ("p1", "A", "5"), ("p1", "B", "70"), ("p2", "A", "0"), ("p2", "C", "12"), ("p3", "B", "-4"),
    ("p3", "B", ""), ("p4", "A", "nan"), ("p5", "A", "inf"), ("", "A", "7"), ("p6", "a", "2"), ("p6", "A ", "2"),
]  # fmt: skip
NAMES = ("patient", "ward", "days")


def columns_of(rows):
    return {name: [row[place] for row in rows] for place, name in enumerate(NAMES)}


def write(path, rows, types="text, text, text"):
    """Write rows into a database, and return its URL."""
    words = [f"{name} {kind}" for name, kind in zip(NAMES, types.split(", "), strict=True)]
    with sqlite3.connect(path) as connection:
        connection.execute(f"CREATE TABLE stays ({', '.join(words)})")
        connection.executemany("INSERT INTO stays VALUES (?, ?, ?)", rows)
    connection.close()
    return f"sqlite:///{path}"


def values(result):
    return [row["value"] for row in result.rows]


def every_cell(source, names=NAMES):
    columns = {name: [] for name in names}
    for block in source.blocks(names):
        for name, cells in block.cells.items():
            distinct, codes = cells.coded()
            columns[name] += [distinct[code] if code >= 0 else None for code in codes]
    return columns


texts = st.text(st.sampled_from('ab",\n\r é\0\udcff'), max_size=4)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(texts, texts, texts), max_size=6))
def test_cells_of_text_are_the_same_in_every_file(tmp_path, rows):
    """Oracle: the cells that were written."""
    quoted = "".join(",".join('"' + cell.replace('"', '""') + '"' for cell in row) + "\n" for row in [NAMES, *rows])
    (tmp_path / "t.csv").write_bytes(quoted.encode("utf-8", "surrogateescape"))
    raw = {
        name: [cell.encode("utf-8", "surrogateescape") for cell in cells] for name, cells in columns_of(rows).items()
    }
    arrow = pa.table({name: pa.array(cells, pa.binary()).view(pa.string()) for name, cells in raw.items()})
    pq.write_table(arrow, tmp_path / "t.parquet")
    (tmp_path / "t.db").unlink(missing_ok=True)
    url = write(tmp_path / "t.db", [])
    with sqlite3.connect(tmp_path / "t.db") as connection:
        connection.executemany(
            "INSERT INTO stays VALUES (cast(? AS text), cast(? AS text), cast(? AS text))",
            list(zip(*raw.values(), strict=True)),
        )
    connection.close()
    wanted = columns_of(rows)
    assert every_cell(table(tmp_path / "t.csv")) == wanted
    assert every_cell(table(tmp_path / "t.parquet")) == wanted
    assert every_cell(table(arrow)) == wanted
    assert every_cell(table(url, "patient", query_of("stays"))) == wanted
    assert every_cell(table(wanted)) == wanted


def query_of(name):
    from wpriv.releases.tables import Query

    return Query(table=name)


OUTPUTS = [Count(), Count("rows"), Sum("days", 0, 60), Mean("days", 0, 60), Quantile("days", 0, 60)]


def test_a_release_is_the_same_of_every_source_at_a_seed(tmp_path):
    """Bounding takes no part of how a table is stored, cut into blocks, or ordered."""
    columns = columns_of(ROWS)
    about = {
        **PURE,
        "outputs": OUTPUTS,
        "by": "ward",
        "keys": ["A", "B", "C"],
        "max_groups": 1,
        "max_rows": 1,
        "seed": 3,
    }
    frame = pd.DataFrame(columns)
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_parquet(tmp_path / "t.parquet")
    frame[:5].to_csv(tmp_path / "a.csv", index=False)
    frame[5:].to_csv(tmp_path / "b.csv", index=False)
    url = write(tmp_path / "t.db", ROWS)
    wanted = values(release(columns, **about))
    arrow = pa.table(columns)
    for data in (
        frame, frame[::-1], arrow, tmp_path / "t.csv", tmp_path / "t.parquet", [tmp_path / "b.csv", tmp_path / "a.csv"],
        iter([frame[:3], frame[3:]]), iter(arrow.to_batches(max_chunksize=2)),
    ):  # fmt: skip
        assert values(release(data, **about)) == wanted
    assert values(release(url, table="stays", **about)) == wanted
    assert values(release(url, query="SELECT patient, ward, days FROM stays ORDER BY days", **about)) == wanted


def test_cells_of_every_type_of_arrow_are_read_exactly():
    day, stamp = datetime.date(2026, 1, 31), datetime.datetime(2026, 1, 31, 23, 59)
    some = {
        "text": (pa.array(["a", None]), ["a", None]),
        "large": (pa.array(["a", None], pa.large_string()), ["a", None]),
        "view": (pa.array(["a", None], pa.string_view()), ["a", None]),
        "coded": (pa.array(["a", None]).dictionary_encode(), ["a", None]),
        "small": (pa.array([5, None], pa.int8()), [5, None]),
        "whole": (pa.array([2**63 - 1, None]), [2**63 - 1, None]),
        "unsigned": (pa.array([2**64 - 1, None], pa.uint64()), [2**64 - 1, None]),
        "truth": (pa.array([True, None]), [True, None]),
        "number": (pa.array([0.1, None]), [0.1, None]),
        "half": (pa.array([1.5, None], pa.float16()), [1.5, None]),
        "decimal": (pa.array([Decimal("0.10"), None]), [Decimal("0.10"), None]),
        "day": (pa.array([day, None]), [day, None]),
        "milliseconds": (pa.array([day, None], pa.date64()), [day, None]),
        "time": (pa.array([stamp, None], pa.timestamp("ns")), [day, None]),
        "zone": (pa.array([stamp, None], pa.timestamp("us", "Asia/Tokyo")), [day + datetime.timedelta(1), None]),
        "beyond": (pa.array([2**31 - 1, None], pa.int32()).cast(pa.date32()), [None, None]),
        "uuid": (pa.array([uuid.UUID(int=7).bytes, None], pa.uuid()), [uuid.UUID(int=7), None]),
        "nothing": (pa.array([None, None]), [None, None]),
    }
    arrow = pa.table({name: array for name, (array, _) in some.items()})
    cells_read = every_cell(table(arrow), tuple(some))
    assert cells_read == {name: cells for name, (_, cells) in some.items()}
    assert [type(cells[0]) for cells in cells_read.values()] == [type(cells[0]) for _, cells in some.values()]


def test_types_of_a_schema_are_told_apart(tmp_path, noiseless):
    arrow = pa.table(
        {"patient": [1, 1, 2], "year": [2025, 2026, 2026], "on": [True, False, False],
         "day": [datetime.date(2026, 1, 1)] * 3, "list": [[1], [2], [3]], "half": [0.5, 1.5, 2.5]}
    )  # fmt: skip
    path = tmp_path / "t.parquet"
    pq.write_table(arrow, path)
    about = {**PURE, "outputs": [Count()], "max_groups": 2}
    assert values(release(path, by="year", keys=["2025", "2026"], **about)) == [1, 2]
    assert values(release(path, by="on", keys=["true", "false"], **about)) == [1, 2]
    assert values(release(path, by="day", keys=["2026-01-01"], **about)) == [2]
    with pytest.raises(UsageError, match="whole numbers"):
        release(path, by="year", keys=["A"], **about)
    with pytest.raises(UsageError, match="list holds list<"):
        release(path, by="list", keys=["A"], **about)
    with pytest.raises(UsageError, match="column of floats"):
        release(path, **{**about, "person": "half"})


def test_a_column_of_missing_cells_of_a_frame_is_exact():
    frame = pd.DataFrame(
        {"id": pd.array([9007199254740993, None, 9007199254740992], "Int64"), "text": ["a", None, "b"]}
    )
    frame["code"] = frame["text"].astype("category")
    cells_read = every_cell(table(frame), ("id", "text", "code"))
    assert cells_read["id"] == [9007199254740993, None, 9007199254740992]
    assert cells_read["code"] == ["a", None, "b"]
    assert [cells_read["text"][0], cells_read["text"][2]] == ["a", "b"]


@pytest.mark.parametrize("later", [["12", None, "7"], [12, None, 7], [12, 13, 7], [12.0, float("nan"), 7.0]])
def test_types_that_pandas_finds_in_chunks_decide_nothing(noiseless, later):
    """The oracle is the one table of all rows as text: a missing cell of one row makes floats of the whole chunk."""
    outputs = [Count(), Sum("days", 0, 60)]
    about = {**PURE, "outputs": outputs, "by": "ward", "keys": ["1", "2"], "max_groups": 2, "max_rows": 2}
    text = [None if pd.isna(cell) else str(int(cell)) for cell in later]
    whole = release(
        {"patient": ["12", "8", *text], "ward": ["1", "2", "1", "2", "2"], "days": [1, 2, 3, 4, 5]}, **about
    )
    first = pd.DataFrame({"patient": [12, 8], "ward": [1, 2], "days": [1, 2]})
    second = pd.DataFrame({"patient": later, "ward": [1.0, 2.0, 2.0], "days": ["3", "4", "5"]})
    assert values(release(iter([first, second]), **about)) == values(whole)


@pytest.mark.parametrize("name", ["t.xlsx", "t.parquet"])
def test_files_of_other_kinds_are_refused(tmp_path, name):
    (tmp_path / name).write_text("no table")
    with pytest.raises(UsageError, match=r"Parquet"):
        release(tmp_path / name, outputs=[Count()], **PURE)


def test_a_dry_run_of_parquet_reads_its_schema_alone(tmp_path, capfd):
    seen = []
    for rows in (ROWS, ROWS[:1]):
        pq.write_table(pa.table(columns_of(rows)), tmp_path / "t.parquet")
        words = ["release", "--data", tmp_path / "t.parquet", "--person", "patient", "--count", "persons"]
        seen.append(call(capfd, *words, "--eps", "1", "--delta", "0", "--dry-run"))
    assert seen[0] == seen[1]
    assert seen[0][0] == 0


def test_the_line_to_install_is_said(monkeypatch, tmp_path):
    import importlib.util

    real = importlib.util.find_spec
    for package, data in (
        ("pyarrow", tmp_path / "t.parquet"),
        ("sqlglot", "sqlite:///t.db"),
        ("sqlalchemy", "sqlite:///t.db"),
    ):
        (tmp_path / "t.parquet").write_bytes(b"")
        monkeypatch.setattr(
            importlib.util, "find_spec", lambda name, hidden=package: None if name == hidden else real(name)
        )
        with pytest.raises(MissingResource, match=r"pip install 'wpriv\[release\]'"):
            release(data, outputs=[Count()], table="stays" if "://" in str(data) else "", **PURE)


# databases


@pytest.fixture
def clinic(tmp_path):
    return write(tmp_path / "clinic.db", ROWS)


def test_a_database_without_tables_has_none_of_the_name(tmp_path):
    (tmp_path / "empty.db").touch()
    with pytest.raises(UnknownName, match="no table called 'stays'"):
        release(f"sqlite:///{tmp_path}/empty.db", table="stays", outputs=[Count()], **PURE)


def test_a_table_of_a_database_with_a_condition(clinic, noiseless):
    assert values(release(clinic, table="stays", outputs=[Count()], **PURE)) == [6]
    assert values(release(clinic, table="stays", where="ward IN ('A', 'B')", outputs=[Count()], **PURE)) == [5]
    with pytest.raises(UnknownName, match="no table called 'stay'; did you mean 'stays'"):
        release(clinic, table="stay", outputs=[Count()], **PURE)
    with pytest.raises(UsageError, match="three slashes"):
        release("sqlite://clinic.db", table="stays", outputs=[Count()], **PURE)
    with pytest.raises(UsageError, match="no such column: wrad"):
        release(clinic, table="stays", where="wrad = 'A'", outputs=[Count()], **PURE)
    for wrong in ("1 = 1; DROP TABLE stays", "1) OR (1", "days > (SELECT avg(days) FROM stays)", "1 LIMIT 3"):
        with pytest.raises(UsageError, match="`where`"):
            release(clinic, table="stays", where=wrong, outputs=[Count()], **PURE)


def test_a_database_that_does_not_exist_is_not_created(tmp_path):
    with pytest.raises(MissingResource, match="no such database file"):
        release(f"sqlite:///{tmp_path}/none.db", table="stays", outputs=[Count()], **PURE)
    assert not list(tmp_path.iterdir())
    with pytest.raises(UsageError, match="SQLite or PostgreSQL"):
        release("mysql://host/db", table="stays", outputs=[Count()], **PURE)


def test_a_release_of_a_database_changes_nothing_in_it(clinic, tmp_path):
    before = (tmp_path / "clinic.db").read_bytes()
    release(clinic, table="stays", outputs=[Count()], **PURE)
    assert (tmp_path / "clinic.db").read_bytes() == before


def test_integers_and_text_are_two_kinds_of_keys(tmp_path, noiseless):
    url = write(tmp_path / "t.db", [(1, 2026, 3), (2, 2026, 4), (3, 2025, 5)], "integer, integer, integer")
    about = {**PURE, "outputs": [Count()], "by": "ward", "keys": ["2026", "2025"], "max_groups": 1}
    assert values(release(url, table="stays", **about)) == [2, 1]
    assert values(release(url, query="SELECT patient, ward FROM stays", **about)) == [2, 1]
    with pytest.raises(UsageError, match="column of floats"):
        release(write(tmp_path / "f.db", [], "real, text, text"), table="stays", outputs=[Count()], **PURE)


def test_what_fails_after_the_payment_says_nothing(clinic, tmp_path, monkeypatch):
    from wpriv.releases.databases import Database

    opened = Database.open(clinic, "patient", table="stays")
    (tmp_path / "clinic.db").write_bytes(b"not a database, with a secret" * 100)
    with pytest.raises(MissingResource, match="failed while rows were read") as error:
        list(opened.blocks(["patient"]))
    assert "secret" not in str(error.value)


def test_a_release_of_a_database_by_flags_and_by_its_recipe(clinic, tmp_path, capfd):
    out = tmp_path / "out"
    words = ["release", "--data", clinic, "--table", "stays", "--where", "ward <> 'C'", "--person", "patient"]
    words += ["--count", "persons", "--eps", "1", "--delta", "0"]
    code, stdout, _ = call(capfd, *words, "--out", out)
    assert code == 0
    again = call(capfd, "release", out / "recipe.yaml", "--out", out)
    assert again[0] == 0
    assert again[1].splitlines()[0] == stdout.splitlines()[0]
    assert "nothing was spent" in again[2]
    code, _, stderr = call(capfd, *[word.replace("'C'", "'B'") for word in map(str, words)], "--out", out)
    assert code == 2
    assert "another release" in stderr


# PostgreSQL


@pytest.mark.slow
def test_a_table_in_postgresql(request, noiseless):
    import psycopg

    url = new_database(request.getfixturevalue("postgres"), request.node.nodeid)
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TYPE kind AS ENUM ('big', 'small')")
        connection.execute(
            "CREATE TABLE stays (patient text, ward kind, days numeric, day timestamptz, n bigint, x double precision, "
            "key uuid, list integer[])"
        )
        connection.execute(
            "INSERT INTO stays VALUES ('p1', 'big', 3.5, 'infinity', 1, 1, gen_random_uuid(), '{1}'), "
            "('p1', 'big', 'NaN', '2026-01-31', 2, 2, gen_random_uuid(), NULL), "
            "('p2', 'small', 70, '12000-01-01', 3, 'NaN', NULL, NULL), (NULL, 'big', 1, NULL, 4, 4, NULL, NULL), "
            "('p3%', NULL, -4, '-infinity', 5, 'Infinity', NULL, NULL)"
        )
    about = {**PURE, "table": "stays", "max_rows": 2}
    assert values(release(url, outputs=[Count(), Sum("days", 0, 60, ".5"), Sum("x", 0, 60, 1)], **about)) == [
        3,
        "63.5",
        63,
    ]
    assert values(release(url, by="ward", keys=["big", "small"], outputs=[Count()], max_groups=1, **about)) == [1, 1]
    assert values(release(url, by="n", keys=["1", "3"], outputs=[Count()], max_groups=2, **about)) == [1, 1]
    dates = Quantile("day", "2026-01-01", "2026-12-31", dates=True, at=[".5"])
    assert values(release(url, outputs=[dates], **about, seed=1)) != [None]
    assert values(release(url, where="patient LIKE 'p3%'", outputs=[Count()], **about)) == [1]
    assert values(release(url, outputs=[Count()], **{**about, "person": "key"})) == [2]
    for wrong, message in (("list", "holds a type"), ("x", "floats"), ("patent", "did you mean 'patient'")):
        with pytest.raises(UsageError, match=message):
            release(url, outputs=[Count()], **{**about, "person": wrong})
    with pytest.raises(UsageError, match="fails on some values"):
        release(url, where="days / n > 1", outputs=[Count()], **about)
    with pytest.raises(UnknownName, match="did you mean 'stays'"):
        release(url, outputs=[Count()], **{**about, "table": "stay"})
    with pytest.raises(MissingResource, match="cannot be opened") as error:
        release(url.replace("postgres@", "postgres:secret@").replace("test", "none"), outputs=[Count()], **about)
    assert "secret" not in str(error.value)
