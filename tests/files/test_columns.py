"""Columns of CSV files in blocks: the same table whatever the blocks, by a grammar written as regular expressions."""

from __future__ import annotations

import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wpriv.files import columns
from wpriv.files.csv_tables import CsvError

CELL = rb'"(?:[^"]|"")*"|[^",\r\n]*'
ROW = re.compile(rb"((?:%s)(?:,(?:%s))*)(?:\r\n|\r|\n|\Z)" % (CELL, CELL))


def by_grammar(raw):
    """The rows of a table by RFC 4180, without blank lines; None of anything else."""
    rows, place = [], 0
    while place < len(raw):
        match = ROW.match(raw, place)
        if match is None:
            return None
        place = match.end()
        if match[1]:
            rows.append([cell_of(cell) for cell in re.findall(rb"(?:^|,)(%s)" % CELL, match[1])])
    return rows if all(len(row) == len(rows[0]) for row in rows) else None


def cell_of(raw):
    raw = raw[1:-1].replace(b'""', b'"') if raw.startswith(b'"') else raw
    return raw.decode("utf-8", "surrogateescape")


def by_blocks(path, names):
    table = {name: [] for name in names}
    for block in columns.csv_blocks(path, names):
        for name, cells in block.cells.items():
            table[name] += [cells.values[code] for code in cells.codes]
            assert len(cells.codes) == block.count
    return list(map(list, zip(*table.values(), strict=True)))


pieces = st.sampled_from(
    [b"", b"x", b'"', b'""', b"\n", b"\r", b"\r\n", b",", b",", b"ab", b"\xff", b"\0", b"x\0", b" ", b'"a,b"', b'"a\n"',
     b'"x""y"', "é".encode(), b"y" * 8, b"y" * 9, b"z" * 65, b"z" * 64 + b"y", b'"' + b"q" * 70 + b'"']
)  # fmt: skip
cells = st.sampled_from([b"", b"x", b"ab", b'"q"', b"q", b'"a,b"', b'"a\n"', b'"x""y"', b" ", b"\xff", b"x\0", b'""'])
tables = st.lists(st.tuples(cells, cells).map(b",".join)).flatmap(
    lambda rows: st.sampled_from([b"\n", b"\r\n", b"\r", b"\n\n"]).map(lambda end: end.join(rows))
)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(pieces, max_size=9).map(b"".join) | tables, st.sampled_from([1, 2, 3]), st.sampled_from([1, 5, 64, 2**20])
)
def test_blocks_are_the_table_of_the_grammar(tmp_path, monkeypatch, body, count, size):
    names = ["a", "b", "c"][:count]
    path = tmp_path / "t.csv"
    raw = ",".join(names).encode() + b"\n" + body
    path.write_bytes(b"\xef\xbb\xbf" * (size == 5) + raw)
    monkeypatch.setattr(columns, "BLOCK", size)
    wanted = by_grammar(raw)
    if wanted is None:
        with pytest.raises(CsvError, match="not a CSV table"):
            by_blocks(path, names)
    else:
        assert by_blocks(path, names) == wanted[1:]


def test_a_column_may_be_left_out_and_rows_are_counted_without_any(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(b"a,b\n1,2\n3,4\n")
    assert by_blocks(path, ["b"]) == [["2"], ["4"]]
    assert [block.count for block in columns.csv_blocks(path, [])] == [2]
