"""Files of recipes: found by path or name, and copied with the files they read."""

from __future__ import annotations

import pytest

from wpriv.errors import UsageError
from wpriv.run import load_recipe, recipe_files


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
    with pytest.raises(UsageError, match="'plc/fig7-dpsgd'"):
        recipe_files.find("plc/fig7-dpsdg")


def test_a_copy_takes_along_the_files_it_reads_and_overwrites_nothing(tmp_path):
    copied = recipe_files.copy("plc/fig6-timing", tmp_path)
    assert {path.name for path in copied} == {"fig6-timing.yaml", "synthetic-timing.csv"}
    assert (
        load_recipe.recipe(tmp_path / "fig6-timing.yaml")
        .data["panels"][0]["process"][0]["file"]
        .startswith(str(tmp_path.resolve()))
    )
    with pytest.raises(UsageError, match=r"fig6-timing\.yaml"):
        recipe_files.copy("plc/fig6-timing", tmp_path)
