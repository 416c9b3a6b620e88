"""Tests of reading records to privatise: the chosen array, and the errors."""

from __future__ import annotations

import zipfile

import numpy as np
import pytest

from wpriv.errors import MissingResource, UsageError
from wpriv.training.local.records import records

X = np.arange(12.0).reshape(4, 3)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("named.npz", x=X, y=np.arange(4), other=X)
    np.savez("one.npz", rows=X)
    np.savez("two.npz", a=X, b=2 * X)
    np.savez_compressed("packed.npz", x=X)
    np.save("plain.npy", X)
    (tmp_path / "plain.csv").write_text("\n".join(",".join(str(v) for v in row) for row in X))
    (tmp_path / "headed.csv").write_text("a,b,c\n0,1,2\n3,4,5\n6,7,8\n9,10,11\n")
    return tmp_path


@pytest.mark.parametrize("name", ["named.npz", "one.npz", "packed.npz", "plain.npy", "plain.csv", "headed.csv"])
def test_every_form_of_the_same_rows_is_read_the_same(folder, name):
    found = records(name)
    assert np.array_equal(found.x, X)
    assert found.shape == (3,)
    assert (found.labels is not None) == (name == "named.npz")


def test_an_array_is_chosen_by_name_and_a_limit_cuts_both(folder):
    assert np.array_equal(records("two.npz", array="b").x, 2 * X)
    found = records("named.npz", limit=2)
    assert (len(found.x), len(found.labels)) == (2, 2)


def test_data_sets_are_read_by_name_and_part():
    train, test = records("digits"), records("digits:test", limit=7)
    assert train.name == "digits:train"
    assert (train.shape, len(test.x), len(test.labels)) == ((1, 8, 8), 7, 7)


@pytest.mark.parametrize(
    ("name", "text", "error", "told"),
    [
        ("two.npz", None, UsageError, r"two\.npz: .*`array`.*a \[4, 3\]"),
        ("bad.npz", "PK nothing", MissingResource, "bad.npz"),
        ("bad.npy", "nothing", MissingResource, "bad.npy"),
        ("empty.npy", "", MissingResource, "empty.npy"),
        ("words.csv", "a,b\n1,x\n", MissingResource, "words.csv"),
        ("ragged.csv", "1,2\n3\n", MissingResource, "ragged.csv"),
        ("typo.csv", "a,b\n1,2\n\n3,4x\n", MissingResource, "line 4: .*'4x'"),
        ("twice.csv", "a,a\n1,2\n", MissingResource, "twice.csv"),
        ("empty.csv", "", MissingResource, "empty.csv"),
        ("header.csv", "a,b\n", MissingResource, "header.csv"),
        ("nan.csv", "1,2\nnan,3\n", MissingResource, "nan.csv: .*record 1"),
        ("nowhere.csv", None, MissingResource, "nowhere.csv"),
    ],
)
def test_files_that_hold_no_records_are_refused_in_words(folder, name, text, error, told, recwarn):
    if text is not None:
        (folder / name).write_text(text)
    with pytest.raises(error, match=told):
        records(name)
    assert not [str(w.message) for w in recwarn]


def test_pickles_and_unknown_arrays_are_refused(folder):
    np.save("pickled.npy", np.array([{"a": 1}], object), allow_pickle=True)
    with pytest.raises(MissingResource, match=r"pickled\.npy"):
        records("pickled.npy")
    with pytest.raises(UsageError, match=r"named\.npz: .*'z'"):
        records("named.npz", array="z")
    with pytest.raises(UsageError, match=r"verify.*plain\.npy"):
        records("plain.npy", parameters={"verify": False})


def test_an_archive_with_a_member_that_is_no_array_is_refused(folder):
    np.savez("more.npz", x=np.eye(2))
    with zipfile.ZipFile("more.npz", "a") as archive:
        archive.writestr("README.txt", "a text")
    with pytest.raises(MissingResource, match=r"README\.txt"):
        records("more.npz")


@pytest.mark.parametrize("line", ["1,,3", '"1,000",2,3', "age,2,3", "0,1,2", "2019,2020,2021", "2000,2010,2020"])
def test_a_first_line_that_may_be_names_or_a_record_is_not_guessed(folder, line):
    (folder / "unclear.csv").write_text(f"{line}\n4,1,2\n5,6,0\n")
    with pytest.raises(UsageError, match="names the columns or is a record"):
        records("unclear.csv")
    named = records("unclear.csv", header=True)  # the oracle: the lines below
    assert named.x.tolist() == [[4, 1, 2], [5, 6, 0]]
    assert "names of its columns" in named.notes[0]
    if all(cell.isdecimal() for cell in line.split(",")):
        as_record = records("unclear.csv", header=False)
        assert as_record.x.tolist() == [[float(cell) for cell in line.split(",")], [4, 1, 2], [5, 6, 0]]
        assert "a record" in as_record.notes[0]
    else:
        with pytest.raises(MissingResource, match="line 1"):
            records("unclear.csv", header=False)


@pytest.mark.parametrize("text", ["5,2,9\n4,1,2\n", "0,1,2\n", "1,2,3\n4,5,6\n", "7\n8\n"])
def test_numbers_that_do_not_look_like_names_are_records(folder, text):
    (folder / "plain.csv").write_text(text)
    expected = [[float(cell) for cell in line.split(",")] for line in text.split()]
    assert records("plain.csv").x.tolist() == expected


def test_a_column_of_row_numbers_is_no_part_of_the_records(folder):
    (folder / "pandas.csv").write_text(",a,b\n0,1,2\n1,3,4\n")
    with pytest.raises(MissingResource, match="index=False"):
        records("pandas.csv")


def test_names_for_another_kind_of_file_are_refused(folder):
    for name in ("plain.npy", "plain.csv", "digits"):
        with pytest.raises(UsageError, match="`array`"):
            records(name, array="x")
    for name in ("plain.npy", "named.npz", "digits"):
        with pytest.raises(UsageError, match="`header`"):
            records(name, header=True)
