"""Recipes are found by path or name, checked down to the mechanism, and tables read back as they were written."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wpriv.errors import UsageError
from wpriv.run import flag_recipes, load_recipe, recipe_files
from wpriv.run.results import read, write

RECIPE = """\
kind: compare
source: "a test"
process:
  - {mech: histogram, file: h.csv, n: 2}
accountants: [pld]
eps: 0
"""


def test_a_shipped_recipe_is_found_by_its_name_with_or_without_folder_and_suffix():
    paths = {
        recipe_files.find(name)
        for name in ("plc/fig7-dpsgd", "fig7-dpsgd", "plc/fig7-dpsgd.yaml", "recipes/plc/fig7-dpsgd.yaml")
    }
    assert {path.resolve() for path in paths} == {recipe_files.shipped()["plc/fig7-dpsgd"]}


@pytest.mark.parametrize("name", ["plc/fig7-dpsgdd", "", "\0", "x" * 10_000, "/"])
def test_an_unknown_recipe_is_refused_with_where_to_look(name):
    with pytest.raises(UsageError, match="recipe ls"):
        recipe_files.find(name)


def test_a_near_miss_is_suggested():
    with pytest.raises(UsageError, match="did you mean 'plc/fig7-dpsgd'"):
        recipe_files.find("plc/fig7-dpsdg")


def test_files_of_a_step_are_read_beside_the_recipe(tmp_path: Path):
    (tmp_path / "r.yaml").write_text(RECIPE)
    (tmp_path / "h.csv").write_text("outcome,p,q\n0,0.5,0.25\n1,0.5,0.75\n")
    found = load_recipe.recipe(tmp_path / "r.yaml")
    assert found.data["process"][0]["file"] == str((tmp_path / "h.csv").resolve())


@pytest.mark.parametrize(
    ("step", "word"),
    [
        ("{mech: gauss, sigma: -1}", r"r.yaml:4:5: gauss: sigma must be greater than 0"),
        ("{mech: gauss}", r"r.yaml:4:5: gauss needs sigma"),
        ("{mech: gauss, sigma: 1, rate: 0.1}", r"r.yaml:4:5: rate needs sampling"),
    ],
)
def test_what_a_mechanism_refuses_is_told_with_the_place_of_its_step(tmp_path, step, word):
    (tmp_path / "r.yaml").write_text(RECIPE.replace("{mech: histogram, file: h.csv, n: 2}", step))
    with pytest.raises(UsageError, match=word):
        load_recipe.recipe(tmp_path / "r.yaml")


def test_a_swept_parameter_need_not_be_given(tmp_path):
    text = (
        RECIPE.replace("{mech: histogram, file: h.csv, n: 2}", "{mech: gauss}")
        + "sweep: {over: sigma, values: [1, 2]}\n"
    )
    (tmp_path / "r.yaml").write_text(text)
    assert load_recipe.recipe(tmp_path / "r.yaml").kind == "compare"


def test_a_copy_takes_along_the_files_it_reads_and_overwrites_nothing(tmp_path):
    copied = recipe_files.copy("plc/fig6-timing", tmp_path)
    assert {path.name for path in copied} == {"fig6-timing.yaml", "synthetic-timing.csv"}
    assert (
        load_recipe.recipe(tmp_path / "fig6-timing.yaml")
        .data["panels"][0]["process"][0]["file"]
        .startswith(str(tmp_path.resolve()))
    )
    with pytest.raises(UsageError, match="not overwritten"):
        recipe_files.copy("plc/fig6-timing", tmp_path)


@pytest.mark.parametrize(
    ("text", "axis"),
    [
        ("n=1,2^4,1e3", {"over": "n", "values": [1, 16, 1000]}),
        ("eps=linspace:0,4,81", {"over": "eps", "values": {"linspace": [0, 4, 81]}}),
        (" sigma = powers:2,0,3", {"over": "sigma", "values": {"powers": [2, 0, 3]}}),
    ],
)
def test_an_axis_may_be_written_on_one_line(text, axis):
    assert flag_recipes.sweep(text) == axis


@pytest.mark.parametrize("text", ["", "n", "n=", "=1", "n=a", "n=1,,2", "n=nan", "eps=linspace:"])
def test_a_faulty_axis_is_refused(text):
    with pytest.raises(UsageError):
        flag_recipes.sweep(text)


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
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        path.write_text(write.csv_text(rows), newline="")
        back = read.table(path)
    assert [{k: row.get(k) for k in ("name", "n", "delta")} for row in back] == rows


@given(st.binary(max_size=60) | st.sampled_from([b"delta\nx\n", b"n\n-1\n", b"claim\nsure\n", b"a,a\n1\n", b'"\n1,2']))
@settings(max_examples=100, deadline=None)
def test_any_bytes_are_either_a_table_or_refused(content):
    import tempfile

    with tempfile.NamedTemporaryFile(suffix=".csv") as file:
        file.write(content)
        file.flush()
        try:
            assert read.table(Path(file.name))
        except UsageError as error:
            told = str(error)
            if file.name not in told:
                raise


def test_a_table_with_two_columns_of_one_name_or_a_row_that_is_too_long_is_refused_by_its_line(tmp_path):
    for text, line in (("n,n\n1,2\n", 1), ("n,rate\n1,0.5\n1,0.5,7\n", 3), ("n,rate\n1,-1\n", 2)):
        (tmp_path / "table.csv").write_text(text)
        with pytest.raises(UsageError, match=rf"table\.csv:{line}: "):
            read.table(tmp_path / "table.csv")


@pytest.mark.parametrize("content", [b"", b"a,b\n", b"\xff\xfe\x00", b"a" * 10])
def test_a_table_without_rows_or_that_is_no_text_is_refused(tmp_path, content):
    (tmp_path / "table.csv").write_bytes(content)
    with pytest.raises(UsageError, match=r"table\.csv"):
        read.table(tmp_path / "table.csv")
