"""Queries of releases: without a person, those that are run show the same rows of all others; the rest is refused."""

from __future__ import annotations

import sqlite3

import pytest

pytest.importorskip("sqlglot")

from wpriv.errors import UsageError
from wpriv.releases import queries

PUBLIC = ("wards",)
TABLES = {
    "stays": ("patient, ward, days, year", [
        ("p1", "A", 3, 2026), ("p1", "A", 3, 2026), ("p1", "B", 7, 2025), ("p2", "A", 0, 2026), ("p2", None, 9, 2026),
        ("P3", "C", 4, 2024), ("p3", "A", 4, 2026),
    ]),
    "visits": ("patient, n, ward", [("p1", 4, "A"), ("p1", 5, "B"), ("p2", 4, "A"), ("p9", 1, "C"), ("P3", 2, "A")]),
    "wards": ("ward, kind", [("A", "big"), ("B", "small"), ("A", "old")]),
}  # fmt: skip
ALLOWED = [
    "SELECT * FROM stays",
    "SELECT patient, ward FROM stays WHERE year = 2026 AND ward LIKE 'A%' OR NOT days BETWEEN 3 AND 5",
    "SELECT s.* FROM stays AS s WHERE ward IN ('A', 'B') ORDER BY days DESC",
    "SELECT DISTINCT patient, ward FROM stays",
    "SELECT lower(patient) AS patient, coalesce(ward, 'none') AS ward, days * 2 + 1 AS d FROM stays",
    "SELECT patient, CASE WHEN days > 3 THEN 'long' ELSE 'short' END AS stay, CAST(days AS text) AS t FROM stays",
    "SELECT patient, ward, count(*) AS n, sum(days) AS d FROM stays GROUP BY patient, ward HAVING count(*) > 1",
    "SELECT patient, count(DISTINCT ward) AS n FROM stays GROUP BY patient",
    "SELECT s.patient, w.kind FROM stays s JOIN wards w ON w.ward = s.ward",
    "SELECT s.patient, w.kind FROM stays s CROSS JOIN wards w",
    "SELECT s.patient, v.n FROM stays s JOIN visits v ON s.patient = v.patient AND s.ward = v.ward",
    "SELECT s.patient, v.n FROM stays s LEFT JOIN visits v USING (patient)",
    "SELECT s.patient, v.n, w.kind FROM stays s LEFT JOIN visits v ON (v.patient = s.patient) LEFT JOIN wards w "
    "ON w.ward = v.ward",
    "SELECT q.patient, q.n FROM (SELECT patient, count(*) AS n FROM stays GROUP BY patient) q WHERE q.n > 1",
    "SELECT s.patient, q.n FROM stays s JOIN (SELECT patient, max(n) AS n FROM visits GROUP BY patient) q "
    "ON q.patient = s.patient",
]  # fmt: skip


def rows_of(query, *, without=None):
    """The rows of a query, by person, and without all rows of one person in the tables of people."""
    connection = sqlite3.connect(":memory:")
    for name, (columns, rows) in TABLES.items():
        connection.execute(f"CREATE TABLE {name} ({columns})")
        kept = rows if name in PUBLIC else [row for row in rows if without is None or row[0].lower() != without.lower()]
        connection.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(rows[0]))})", kept)
    cursor = connection.execute(query)
    place = [column[0] for column in cursor.description].index("patient")
    rows = [tuple(int(x) if isinstance(x, float) and x.is_integer() else x for x in row) for row in cursor]
    return sorted((str(row[place]).lower(), repr(row)) for row in rows)


@pytest.mark.parametrize("query", ALLOWED)
def test_without_a_person_the_rows_of_all_others_are_the_same(query):
    """Oracle: SQLite itself, with and without each person; ids that differ by case are one person here."""
    statement = queries.checked(query, "patient", PUBLIC, queries.SQLITE)
    whole = rows_of(statement)
    assert whole == rows_of(query), "what is run is what was written"
    for person in ("p1", "p2", "p3", "p9"):
        assert rows_of(statement, without=person) == [row for row in whole if row[0] != person]


REFUSED = [
    ("SELECT patient FROM stays LIMIT 3", "LIMIT"),
    ("SELECT patient FROM stays LIMIT 3 OFFSET 1", "LIMIT"),
    ("SELECT patient FROM stays FETCH FIRST 3 ROWS ONLY", "LIMIT"),
    ("SELECT count(*) AS n FROM stays", "an aggregate without GROUP BY of the person"),
    ("SELECT max(patient) AS patient FROM stays", "an aggregate without"),
    ("SELECT ward, count(*) AS n FROM stays GROUP BY ward", "GROUP BY without the person"),
    ("SELECT min(patient) AS patient, ward FROM stays GROUP BY ward", "GROUP BY without the person"),
    ("SELECT upper(patient) AS patient FROM stays GROUP BY patient", "GROUP BY without the person"),
    ("SELECT patient, count(*) AS n FROM stays GROUP BY ROLLUP (patient)", "GROUP BY of a value|ROLLUP"),
    ("SELECT patient FROM stays GROUP BY 1", "GROUP BY of a value"),
    ("SELECT patient FROM stays HAVING count(*) > 1", "an aggregate without"),
    ("SELECT patient, row_number() OVER (ORDER BY days) AS n FROM stays", "a window function"),
    ("SELECT patient, sum(days) OVER (PARTITION BY patient) AS n FROM stays", "a window function"),
    ("SELECT patient, rank() OVER w AS n FROM stays WINDOW w AS (ORDER BY days)", "a window"),
    ("SELECT patient FROM stays WHERE random() > 0", r"random\(\)"),
    ("SELECT patient FROM stays WHERE days > (SELECT avg(days) FROM stays)", "a subquery"),
    ("SELECT patient FROM stays WHERE EXISTS (SELECT 1 FROM visits)", "a subquery"),
    ("SELECT patient FROM stays WHERE ward IN (SELECT ward FROM visits)", "a subquery"),
    ("SELECT patient, (SELECT count(*) FROM stays) AS n FROM stays", "a subquery"),
    ("SELECT s.patient FROM stays s JOIN visits v ON s.ward = v.ward", "not on the person"),
    ("SELECT s.patient FROM stays s JOIN visits v ON s.patient = v.patient OR s.ward = v.ward", "not on the person"),
    ("SELECT s.patient FROM stays s JOIN visits v ON s.patient <> v.patient", "not on the person"),
    ("SELECT s.patient FROM stays s JOIN visits v ON s.patient = s.patient", "not on the person"),
    ("SELECT s.patient FROM stays s, visits v WHERE s.patient = v.patient", "not on the person"),
    ("SELECT s.patient FROM stays s CROSS JOIN visits v", "not on the person"),
    ("SELECT s.patient FROM stays s JOIN wardz w ON s.ward = w.ward", "not on the person"),
    ("SELECT lower(s.patient) AS patient FROM stays s JOIN visits v ON s.patient = v.patient", "not on the person"),
    ("SELECT s.patient FROM stays s JOIN (SELECT lower(patient) AS patient FROM visits) v USING (patient)", "computed"),
    ("SELECT s.patient FROM stays s RIGHT JOIN wards w ON s.ward = w.ward", "a RIGHT JOIN"),
    ("SELECT s.patient FROM stays s FULL JOIN visits v ON s.patient = v.patient", "a FULL JOIN"),
    ("SELECT s.patient FROM stays s NATURAL JOIN visits v", "a NATURAL JOIN"),
    ("SELECT w.ward AS patient FROM stays s JOIN wards w ON s.ward = w.ward", "the person from w"),
    ("SELECT ward AS patient FROM wards", "the person from|public table first"),
    ("SELECT patient, kind FROM stays s JOIN wards w ON s.ward = w.ward", "write table.patient"),
    ("SELECT * FROM stays s JOIN wards w ON s.ward = w.ward", r"a \* beside a join"),
    ("SELECT q.patient FROM (SELECT patient FROM stays LIMIT 3) q", "LIMIT"),
    ("SELECT q.patient FROM (SELECT patient, count(*) AS n FROM stays GROUP BY ward) q", "GROUP BY without the person"),
    ("SELECT DISTINCT ON (ward) patient FROM stays", "DISTINCT without|no SQL"),
    ("SELECT patient FROM stays UNION ALL SELECT patient FROM visits", "one SELECT"),
    ("WITH q AS (SELECT patient FROM stays) SELECT patient FROM q", "WITH"),
    ("SELECT patient FROM stays; DROP TABLE stays", "one SELECT"),
    ("DELETE FROM stays", "one SELECT"),
    ("PRAGMA table_info(stays)", "one SELECT"),
    ("ATTACH 'x' AS y", "a SELECT|one SELECT"),
    ("SELECT patient, query_to_xml(ward) AS x FROM stays", "the function query_to_xml"),
    ("SELECT patient, date('now') AS x FROM stays", "the function|the current"),
    ("SELECT patient FROM stays WHERE year = CURRENT_DATE", "the current date"),
    ("SELECT patient FROM stays TABLESAMPLE SYSTEM (1)", "a sample|no SQL"),
    ("SELECT patient FROM generate_series(1, 3)", "a source other than tables"),
    ("SELECT patient FROM stays WHERE ward LIKE ward", "LIKE with a pattern"),
    ("SELECT patient FROM stays WHERE days > ?", "a parameter"),
    ("SELECT 'p' AS patient", "no FROM"),
    ("SELEC patient", "one SELECT|no SQL"),
    ("", "one SELECT"),
]  # fmt: skip


@pytest.mark.parametrize("dialect", [queries.SQLITE, queries.POSTGRES])
@pytest.mark.parametrize(("query", "reason"), REFUSED)
def test_a_query_that_mixes_people_is_refused_by_name(query, reason, dialect):
    with pytest.raises(UsageError, match=reason):
        queries.checked(query, "patient", PUBLIC, dialect)


@pytest.mark.parametrize("value", ["days / n", "days + 1", "-days", "CAST(ward AS integer)", "round(days)", "days % 2"])
def test_what_can_fail_on_a_value_is_refused_where_it_fails(value):
    query = f"SELECT patient, {value} AS x FROM stays"
    with pytest.raises(UsageError, match="fails on some values"):
        queries.checked(query, "patient", (), queries.POSTGRES)
    queries.checked(query, "patient", (), queries.SQLITE)
    queries.checked("SELECT patient FROM stays WHERE day > DATE '2026-01-31' - 7", "patient", (), queries.POSTGRES)


def test_where_each_row_is_a_person_rows_are_not_joined_or_grouped():
    queries.checked("SELECT ward FROM stays", "row", (), queries.SQLITE)
    for query in (
        "SELECT patient, count(*) AS n FROM stays GROUP BY patient",
        "SELECT s.ward FROM stays s JOIN visits v ON s.patient = v.patient",
        "SELECT DISTINCT ward FROM stays",
    ):
        with pytest.raises(UsageError, match="is refused"):
            queries.checked(query, "row", (), queries.SQLITE)


def test_quoted_names_of_postgresql_differ_by_case():
    query = 'SELECT s.patient FROM stays s JOIN visits v ON s."Patient" = v."Patient"'
    with pytest.raises(UsageError, match="not on the person"):
        queries.checked(query, "patient", (), queries.POSTGRES)
