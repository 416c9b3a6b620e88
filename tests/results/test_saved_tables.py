"""Tables read back as they were written; anything else is refused by its file and line."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wpriv.errors import UsageError
from wpriv.results import storage

ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "name": st.sampled_from(["pld", "a, b", 'with "quotes"', "line\nbreak"]),
            "n": st.integers(1, 2**40),
            "delta": st.none() | st.floats(0, 1) | st.just(math.inf),
        }
    ),
    min_size=1,
    max_size=5,
)


@given(ROWS)
@settings(max_examples=100, deadline=None)
def test_a_table_reads_back_as_it_was_written(rows):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        path.write_text(storage.csv_text(rows), newline="")
        back = storage.table(path)
    assert [{k: row.get(k) for k in ("name", "n", "delta")} for row in back] == rows


@given(st.binary(max_size=60) | st.sampled_from([b"delta\nx\n", b"n\n-1\n", b"claim\nsure\n", b"a,a\n1\n", b'"\n1,2']))
@settings(max_examples=100, deadline=None)
def test_any_bytes_are_either_a_table_or_refused(content):
    with tempfile.NamedTemporaryFile(suffix=".csv") as file:
        file.write(content)
        file.flush()
        try:
            assert storage.table(Path(file.name))
        except UsageError as error:
            message = str(error)
            if file.name not in message:
                raise


def test_a_table_with_two_columns_of_one_name_or_a_row_that_is_too_long_is_refused_by_its_line(tmp_path):
    for text, line in (("n,n\n1,2\n", 1), ("n,rate\n1,0.5\n1,0.5,7\n", 3), ("n,rate\n1,-1\n", 2)):
        (tmp_path / "table.csv").write_text(text)
        with pytest.raises(UsageError, match=rf"table\.csv:{line}: "):
            storage.table(tmp_path / "table.csv")


def test_a_measure_of_a_training_that_diverged_is_nan_and_no_word(tmp_path):
    (tmp_path / "metrics.csv").write_text(storage.csv_text([{"epoch": 1, "test_loss": math.nan, "name": "x"}]))
    (row,) = storage.table(tmp_path / "metrics.csv")
    assert math.isnan(row.pop("test_loss"))
    assert row == {"epoch": 1, "name": "x"}


@pytest.mark.parametrize("content", [b"", b"a,b\n", b"\xff\xfe\x00", b"a" * 10])
def test_a_table_without_rows_or_that_is_no_text_is_refused(tmp_path, content):
    (tmp_path / "table.csv").write_bytes(content)
    with pytest.raises(UsageError, match=r"table\.csv"):
        storage.table(tmp_path / "table.csv")
