"""wpriv data: what is there, what is missing, what is damaged; conversions; errors in words."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
import yaml

from wpriv.cli.main import main
from wpriv.core import registry

CSV = "month,sex,credit-label\n" + "6,1,0\n8,0,1\n" * 10


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.delenv("WPRIV_DATA", raising=False)
    (tmp_path / "german").mkdir()
    (tmp_path / "german" / "german.csv").write_text(CSV)
    (tmp_path / "usps").mkdir()
    (tmp_path / "usps" / "usps.mat").write_bytes(b"broken")
    return tmp_path


def test_the_list_tells_what_lies_where(root, capsys):
    assert main(["data", "--data-root", str(root)]) == 0
    out, err = capsys.readouterr()
    (german,) = [line for line in out.splitlines() if line.startswith("german ")]
    assert german.split() == ["german", "found", "16", "4", "2", "float32", "unknown", str(root / "german")]
    assert all(any(line.startswith(name) for line in out.splitlines()) for name in registry.names("data"))
    assert "usps.mat" in out
    assert "ufldl.stanford.edu" in out
    assert "--data-root" in err


def test_the_list_as_json_has_every_reader_and_its_status(root, capsys):
    assert main(["data", "--data-root", str(root), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    rows = {row["name"]: row for row in found["rows"]}
    assert found["schema"] == "wpriv.data/1"
    assert set(rows) == set(registry.names("data"))
    statuses = {name: row["status"] for name, row in rows.items()}
    assert statuses["german"] == statuses["digits"] == "found"
    assert statuses["usps"] == "damaged"
    assert statuses["mnist"] == "missing"
    assert statuses["table"] == statuses["images"] == statuses["features"] == "own"
    assert rows["german"]["shape"] == [2]
    assert all(row["get"] and row["about"] for row in rows.values())


def test_one_data_set_is_shown_with_parameters_and_checksums(root, capsys):
    line = ["data", "show", "table", "--data-root", str(root)]
    assert (
        main(
            [*line, "--param", "file=german/german.csv", "--param", "target=credit-label", "--param", "test_share=1/4"]
        )
        == 0
    )
    out = capsys.readouterr().out
    assert out.startswith("table:german: 15 to train on and 5 to test on, 2 float32\nclasses: 0, 1\n")
    assert "sha256 " in out


@pytest.mark.parametrize(
    ("line", "code", "told"),
    [
        ("data show mnist", 4, "mnist: wanted train-images-idx3-ubyte"),
        ("data show mnits", 2, "did you mean 'mnist'"),
        ("data show mnist --param verify=no", 2, "verify must be true or false"),
        ("data show mnist --param size=3", 2, "mnist has no parameter 'size'"),
        ("data show table", 2, "table needs file"),
        ("data show images --param folder=x --param size=big", 2, "size must be a number"),
        ("data show images --param folder=x", 4, "no such folder"),
        ("data --data-root nowhere", 4, "no such folder"),
        ("data --json show mnist", 2, "--data-root"),
        ("data shw", 2, "did you mean 'show'"),
    ],
)
def test_every_error_is_one_paragraph_with_its_code(root, capsys, monkeypatch, line, code, told):
    monkeypatch.chdir(root)
    assert main(line.split()) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert told in err
    assert err.count("\n") == 1


def test_names_of_files_have_no_bounds_and_odd_ones_are_only_missing(root, capsys):
    assert main(["data", "show", "features", "--param", f"file={'x' * 5000}"]) == 4
    assert main(["data", "show", "features", "--param", "file=a\0b"]) == 4
    assert np.all([line.startswith("wpriv: ") for line in capsys.readouterr().err.splitlines()])


def test_a_hint_at_flags_of_data_says_what_a_recipe_has_in_their_place():
    hints = {name: registry.load("data", name).GET for name in registry.names("data")}
    flagged = {name: hint for name, hint in hints.items() if "--param" in hint}
    assert len(flagged) >= 7
    for name, hint in flagged.items():
        keys = yaml.safe_load(re.search(r"in a recipe, data: (\{.*?\})", hint)[1])
        assert keys.pop("name") == name
        assert [f"{key}={value}" for key, value in keys.items()] == re.findall(r"--param (\w+=\w+)", hint)
