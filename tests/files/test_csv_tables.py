"""CSV tables: pandas and the standard library give the same text, numbers and errors, with the line of every fault."""

from __future__ import annotations

import ast
import math
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wpriv.files import csv_tables
from wpriv.files.csv_tables import CsvError, CsvTable, decode, to_text

PACKAGE = Path(csv_tables.__file__).parents[1]
BY_PANDAS, BY_ROWS = 0, 10**12  # values of LARGE that select one of the two readers for every table
READERS = pytest.mark.parametrize("large", [BY_PANDAS, BY_ROWS], ids=["pandas", "rows"])


def read(monkeypatch, large, text, numeric=(), *, headed=True):
    monkeypatch.setattr(csv_tables, "LARGE", large)
    columns = CsvTable.parse(text, headed=headed).columns(numeric)
    return {name: column.tolist() for name, column in columns.items()}


@pytest.mark.slow
@READERS
def test_numbers_come_back_to_the_bit(monkeypatch, large):
    """Oracle: the bit patterns that the numbers were made from; repr is the shortest text that gives them back."""
    bits = np.random.default_rng(0).integers(0, 2**64, 20000, dtype=np.uint64).view(np.float64)
    expected = [*bits[np.isfinite(bits)].tolist(), 5e-324, 2.2250738585072011e-308, 1 + 2**-52, 0.1, -0.0, 1e23]
    parsed = read(monkeypatch, large, "a\n" + "\n".join(map(repr, expected)), ["a"])["a"]
    assert struct.pack(f"{len(expected)}d", *parsed) == struct.pack(f"{len(expected)}d", *expected)
    longer = read(monkeypatch, large, "a\n" + "\n".join(f"{value:.30e}" for value in expected), ["a"])["a"]
    assert longer == expected


@READERS
def test_text_columns_are_returned_verbatim(monkeypatch, large):
    words = ["NA", "inf", "None", "null", "nan", "", "001", "1e5", " blank ", "True", "#", "N/A", "-", "é"]
    columns = read(monkeypatch, large, to_text(["word", "x"], [{"word": word, "x": 1} for word in words]))
    assert columns == {"word": words, "x": ["1"] * len(words)}


@READERS
def test_infinities_and_nan_are_numbers(monkeypatch, large):
    columns = read(monkeypatch, large, "a,b\ninf,-Infinity\nnan,1e400\n", ["a", "b"])
    assert columns["a"][0] == math.inf
    assert math.isnan(columns["a"][1])
    assert columns["b"] == [-math.inf, math.inf]


@READERS
@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a,b\n1,2\n3,x\n", 3),
        ("a,b\n1,2\n\n3,\n", 4),
        ("a,b\n1,2\n3\n", 3),
        ("a,b\n1,2,3\n", 2),
        ("a,b\n1,2\n3,4,5\n", 3),
        ("a,b\n1,2\nTrue,4\n", 3),
        ("a,b\nTrue,False\n", 2),
        ("a,b\n1_0,2\n", 2),
        ("a,b\n0x10,2\n", 2),
        ('a,b\n"1"2,3\n', 2),
        ('a,b\n1,2\n"3,4\n', 3),
        ('"a\nc",b\n"1\n",2\n1,x\n', 5),
    ],
)
def test_a_fault_is_named_by_its_line(monkeypatch, large, text, line):
    with pytest.raises(CsvError) as error:
        read(monkeypatch, large, text, CsvTable.parse(text).names)
    assert error.value.line == line


@READERS
@pytest.mark.parametrize("text", ["a,b\n1,x\n2\n", "a,b\n1,x,3\n"])
def test_rows_of_another_length_are_refused_beside_columns_of_text(monkeypatch, large, text):
    with pytest.raises(CsvError, match="2 columns"):
        read(monkeypatch, large, text, ["a"])


@READERS
def test_short_rows_of_text_are_filled_up_and_a_trailing_comma_is_ignored(monkeypatch, large):
    assert read(monkeypatch, large, "a,b\n1\n2,3\n") == {"a": ["1", "2"], "b": ["", "3"]}
    assert read(monkeypatch, large, "a,b\n1,2,\n3,4,\n", ["a", "b"]) == {"a": [1.0, 3.0], "b": [2.0, 4.0]}


@READERS
def test_a_table_without_a_header_keeps_its_first_row(monkeypatch, large):
    assert read(monkeypatch, large, "1,2\n3,4\n", ["0", "1"], headed=False) == {"0": [1.0, 3.0], "1": [2.0, 4.0]}


CELLS = st.sampled_from(["1", "-2.5", "1e-7", "inf", "NA", "", "x", " 3", '"4"', '"a,b"', '"a\nb"', '"', "true", "1_0"])


@pytest.mark.slow
@given(
    st.lists(st.lists(CELLS, min_size=1, max_size=4), max_size=5),
    st.sampled_from(["\n", "\r\n"]),
    st.sets(st.sampled_from("ab")),
)
@settings(max_examples=300, deadline=None)
def test_both_readers_agree_on_every_text(body, end, numeric):
    text = end.join(["a,b", *(",".join(row) for row in body)])
    answers = []
    for large in (BY_PANDAS, BY_ROWS):
        with pytest.MonkeyPatch.context() as patch:
            try:
                columns = read(patch, large, text, sorted(numeric))
                answers.append({name: [str(cell) for cell in cells] for name, cells in columns.items()})
            except CsvError as error:
                answers.append(error.line)
    assert answers[0] == answers[1]


@READERS
def test_an_open_quotation_mark_is_named_by_the_line_on_which_it_opens(monkeypatch, large):
    text = 'a,b\n1,2\n3,"4\n' + "5,6\n" * 400
    with pytest.raises(CsvError, match=r"line 3: .*open up to line 40") as error:
        read(monkeypatch, large, text, ["a", "b"])
    assert error.value.line == 3
    closed = text + '7,8"\n9,1\n'  # the mark is closed 400 lines later, as if it were one cell
    with pytest.raises(CsvError, match="line 3: "):
        read(monkeypatch, large, closed, ["a", "b"])


@pytest.mark.parametrize(("text", "word"), [("a;b;c\n1;2,5;3\n", "semicolons"), ("a\tb\n1\t2\n", "tabs")])
def test_another_separator_than_the_comma_is_named(text, word):
    with pytest.raises(CsvError, match=f"line 1: the columns are separated by {word}"):
        CsvTable.parse(text)


def test_a_column_of_row_numbers_without_a_name_is_suspected_where_every_row_is_longer():
    with pytest.raises(CsvError, match=r"2 columns were wanted.*found 3; .*row numbers"):
        CsvTable.parse("a,b\n0,1,2\n1,3,4\n").matrix()
    for names, expected in ((",a", True), ("Unnamed: 0,a", True), ("a,b", False), ("a", False), ("id,a", False)):
        assert csv_tables.has_index_column(names.split(",")) is expected


def test_a_large_table_is_read_by_pandas_alone(monkeypatch):
    monkeypatch.setattr(CsvTable, "_by_rows", None)
    text = "a,b\n" + "0.1,-2.5e-3\n" * 900_000
    assert len(text) >= csv_tables.LARGE
    assert np.array_equal(CsvTable.parse(text).matrix(), np.tile([0.1, -2.5e-3], (900_000, 1)))


def test_two_columns_of_one_name_are_refused():
    with pytest.raises(CsvError, match="'a'") as error:
        CsvTable.parse("\na, b,a \n1,2,3\n")
    assert error.value.line == 2


def test_decode_refuses_binary_content():
    for raw in (b"\xff\xfe\x00", b"a\0b"):
        with pytest.raises(CsvError):
            decode(raw)
    assert decode(b"\xef\xbb\xbfa,b") == "a,b"


def test_parse_reads_back_what_to_text_writes():
    body = [{"word": 'a, "b"\nc', "x": 0.1}, {"word": None, "x": math.inf, "more": 1}, {"x": 2**70}]
    cells = CsvTable.parse(to_text(["word", "x"], body)).cells()
    assert cells == [{"word": 'a, "b"\nc', "x": "0.1"}, {"word": "", "x": "inf"}, {"word": "", "x": str(2**70)}]


@pytest.mark.slow
def test_no_other_module_parses_or_formats_csv():
    files = sorted(PACKAGE.rglob("*.py"))
    assert len(files) > 200
    users = []
    for path in files:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            if {"csv", "pandas"} & {name.partition(".")[0] for name in names}:
                users.append(path.relative_to(PACKAGE).as_posix())
    assert set(users) == {"files/csv_tables.py"}


def test_the_longest_cell_of_rows_does_not_hang_on_tables_that_were_read_before(tmp_path):
    table = tmp_path / "table.csv"
    table.write_text("a,b\n1," + "9" * 200_000 + "\n")
    assert csv_tables.names_of(table) == ["a", "b"]
    with pytest.raises(csv_tables.CsvError, match="not a CSV table"):
        list(csv_tables.rows(table.read_text()))


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"patient;days\np1;3\n", "separated by semicolons"),
        (b'"patient";"days"\n"p1";"3,5"\n', "separated by semicolons"),
        (b"sep=;\npatient;days\n", "separated by semicolons"),
        (b"patient\tdays\np1\t3\n", "separated by tabs"),
        ("patient,days\np1,3\n".encode("utf-16"), "not text in UTF-8"),
        ("Größe,days\n1,3\n".encode("latin-1"), "not text in UTF-8"),
    ],
)
def test_files_as_excel_may_save_them_are_refused_by_their_first_row(tmp_path, raw, words):
    path = tmp_path / "table.csv"
    path.write_bytes(raw)
    with pytest.raises(csv_tables.CsvError, match=words):
        csv_tables.names_of(path)
