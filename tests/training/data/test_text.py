"""Text as records of characters. Oracle: the text itself, cut by a loop over its characters."""

from __future__ import annotations

import json

import numpy as np
import pytest

from wpriv.errors import FaultyRecords, MissingResource, UsageError
from wpriv.training.data import read
from wpriv.training.data._published import Docstrings
from wpriv.training.data.text import ALPHABET, of_documents

DOCUMENTS = ["one two three", "", "ab", "zwölf\tDämme, 12", "the last of them"]


def cut(document: str, length: int) -> list[str]:
    """The whole pieces of a document."""
    clear = "".join(character if character in ALPHABET else "?" for character in document)
    return [clear[k : k + length] for k in range(0, len(clear), length) if len(clear[k : k + length]) == length]


def text_of(records: np.ndarray) -> list[str]:
    return ["".join(ALPHABET[place] for place in record) for record in records]


@pytest.mark.parametrize("length", [2, 3, 7])
def test_a_record_is_a_piece_of_one_document_of_the_given_length(length):
    data = of_documents("text", DOCUMENTS[:3], DOCUMENTS[3:], length, source="ours")
    assert text_of(data.x_train) == [piece for document in DOCUMENTS[:3] for piece in cut(document, length)]
    assert text_of(data.x_test) == [piece for document in DOCUMENTS[3:] for piece in cut(document, length)]
    assert data.vocabulary == 96 == len(set(ALPHABET))


def test_a_file_of_lines_a_jsonl_file_and_a_folder_give_the_same_records(tmp_path):
    (tmp_path / "lines.txt").write_text("\n".join(DOCUMENTS), encoding="utf-8")
    (tmp_path / "lines.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in DOCUMENTS))
    (tmp_path / "folder").mkdir()
    for number, text in enumerate(DOCUMENTS):
        (tmp_path / "folder" / f"{number}.txt").write_text(text, encoding="utf-8")
    parts = [read("text", file=str(tmp_path / name), length=3) for name in ("lines.txt", "lines.jsonl", "folder")]
    assert len({part.fingerprint for part in parts}) == 1
    pieces = {piece for document in DOCUMENTS for piece in cut(document, 3)}
    assert set(text_of(parts[0].x_train)) | set(text_of(parts[0].x_test)) == pieces


@pytest.mark.parametrize(
    ("name", "content", "error", "words"),
    [
        ("a.jsonl", b'{"text": "abc"}\n{"body": "abc"}', FaultyRecords, 'a.jsonl:2: wanted {"text": "..."}; found'),
        ("a.jsonl", b'{"text": 3}', FaultyRecords, "a.jsonl:1"),
        ("a.txt", b"ab\xff", FaultyRecords, "wanted text in UTF-8; found another byte at 2"),
        ("a.txt", b"abc\nabcd", FaultyRecords, "no document has 64 characters"),
        ("a.csv", b"abc", MissingResource, "no such folder"),
    ],
)
def test_files_that_hold_no_text_are_refused_by_their_place(tmp_path, name, content, error, words):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(error, match=words.replace("{", r"\{").replace(".", r"\.")):
        read("text", file=str(tmp_path / name))


def test_an_empty_folder_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"wanted \.txt files, one a document; found none"):
        read("text", file=str(tmp_path))


def test_both_parts_of_the_docstrings_are_tested_on_the_same_documents():
    private, public = read("docstrings"), read("docstrings", part="public")
    assert np.array_equal(private.x_test, public.x_test)
    assert (len(private.x_train), len(private.x_test)) == (31553, 3521)
    assert not {record.tobytes() for record in public.x_train} & {record.tobytes() for record in private.x_train}


def test_the_docstrings_have_their_licence_and_a_damaged_file_is_refused(tmp_path, monkeypatch):
    licence = Docstrings.FILE.with_name("docstrings.LICENSE.txt").read_text()
    assert Docstrings.SHA256 in licence
    assert "SciPy Developers" in licence
    (tmp_path / "docstrings.jsonl.xz").write_bytes(Docstrings.FILE.read_bytes()[:1000])
    monkeypatch.setattr(Docstrings, "FILE", tmp_path / "docstrings.jsonl.xz")
    with pytest.raises(MissingResource, match="Install wpriv again"):
        read("docstrings")
