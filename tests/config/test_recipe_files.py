"""Files of recipes: found by path or name, and copied with the files they read."""

from __future__ import annotations

import pytest

from wpriv.accounting import load_recipe
from wpriv.cli.main import main
from wpriv.config import recipe_files
from wpriv.errors import UsageError


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
        load_recipe.read(tmp_path / "fig6-timing.yaml")
        .data["panels"][0]["process"][0]["file"]
        .startswith(str(tmp_path.resolve()))
    )
    with pytest.raises(UsageError, match=r"fig6-timing\.yaml"):
        recipe_files.copy("plc/fig6-timing", tmp_path)


@pytest.mark.parametrize("name", ["wdp/propositions", "propositions", "recipes/wdp/propositions.yaml"])
def test_a_former_name_finds_the_recipe_with_a_warning(name):
    with pytest.warns(recipe_files.RenamedRecipe, match="wdp/propositions is now called wdp/claims"):
        assert recipe_files.find(name) == recipe_files.shipped()["wdp/claims"]


def test_former_names_are_listed_no_more_and_lead_to_recipes_of_today():
    known = recipe_files.shipped()
    assert set(recipe_files.RENAMED.values()) <= set(known)
    assert not set(recipe_files.RENAMED) & {row.name for row in recipe_files.listing()}


def test_a_file_of_the_former_name_is_read_instead(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "propositions.yaml").write_text("kind: compare\n")
    assert recipe_files.find("propositions").name == "propositions.yaml"


@pytest.mark.parametrize(
    "line",
    [
        "recipe show wdp/propositions",
        "recipe check wdp/propositions",
        "recipe cp wdp/propositions copy.yaml",
        "compare wdp/propositions --out out",
    ],
)
def test_every_verb_takes_a_former_name_with_a_note(line, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(line.split()) == 0
    assert "wpriv: note: the recipe wdp/propositions is now called wdp/claims" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["budget", "calibrate", "privatize", "train"])
def test_other_verbs_find_it_too_and_refuse_its_kind(verb, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main([verb, "wdp/propositions"]) == 2
    printed = capsys.readouterr().err
    assert "now called wdp/claims" in printed
    assert "kind 'compare'" in printed


def test_results_of_recipes_that_share_a_name_have_folders_of_their_own():
    names = [load_recipe.read(name).name for name in ("wdp/claims", "wgrad/claims", "ldp/claims", "ldp/fig7")]
    assert names == ["wdp-claims", "wgrad-claims", "ldp-claims", "fig7"]
