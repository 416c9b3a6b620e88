"""Strict YAML: values as plain data, and everything else refused at its place. Oracle: the text itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from wpriv.config import yaml_document
from wpriv.errors import UsageError


def test_numbers_in_scientific_notation_are_numbers():
    data = yaml_document.parse("a: 1e-5\nb: [1E3, 2.5e+3, .5, 7, '1e-5']", "r.yaml").data
    assert data == {"a": 1e-5, "b": [1000.0, 2500.0, 0.5, 7, "1e-5"]}


def test_words_that_yaml_takes_for_booleans_stay_words():
    words = ["no", "yes", "on", "12:30", "2020-01-01", "0x10"]
    assert yaml_document.parse(f"a: [{', '.join(words)}]", "r.yaml").data["a"] == words


@pytest.mark.parametrize(
    ("text", "place", "word"),
    [
        ("a: 1\na: 2", "r.yaml:2:1:", "line 1"),
        ("a: &x 1\nb: *x", "r.yaml:1:4:", ""),
        ("b: *x", "r.yaml:1:4:", ""),
        ("a: !!python/object/apply:os.system [ls]", "r.yaml:1:4:", "!!python/object/apply:os.system"),
        ("a: " + "[" * 100 + "]" * 100, "r.yaml:1:20:", "16"),
        ("---\na: 1\n---\nb: 2", "r.yaml:3:1:", "'---'"),
        ("[1, 2]: 3", "r.yaml:1:1:", ""),
        ("a: .nan", "r.yaml:1:4:", ".nan"),
        ("a: 1e999", "r.yaml:1:4:", "1e999"),
        ("a: " + "9" * 5000, "r.yaml:1:4:", "5000"),
        ("a: b: c", "r.yaml:1:5:", ""),
        ("a: \x07", "r.yaml:1:4:", ""),
        ("", "r.yaml:1:1:", ""),
        ("- 1", "r.yaml:1:1:", ""),
    ],
)
def test_parse_refuses_what_is_not_plain_data_at_its_place(text, place, word):
    with pytest.raises(UsageError) as caught:
        yaml_document.parse(text, "r.yaml")
    assert str(caught.value).startswith(place)
    assert word in str(caught.value)


def test_read_refuses_files_that_are_no_text_or_too_large(tmp_path: Path):
    path = tmp_path / "r.yaml"
    path.write_bytes(b"kind: compare\nsource: \xff\xfe")
    with pytest.raises(UsageError, match=r"r\.yaml:2: .*UTF-8"):
        yaml_document.read(path)
    path.write_bytes(b"#" * (yaml_document.MAX_BYTES + 1))
    with pytest.raises(UsageError, match="1,000,000"):
        yaml_document.read(path)
    with pytest.raises(UsageError, match=r"none\.yaml"):
        yaml_document.read(tmp_path / "none.yaml")


def test_as_yaml_quotes_text_that_would_be_read_as_a_number():
    data = {"a": "1e5", "b": "inf", "c": ["yes", "0x10", "null", 1e-5, None, True], "d": "x: y"}
    assert yaml_document.parse(yaml_document.as_yaml(data), "r.yaml").data == data
