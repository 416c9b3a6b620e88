"""Kept results: small, read without a run, replaced recipe by recipe, and shown where nothing was run."""

from __future__ import annotations

import base64
import io
import json
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from tests.training.reports.pages import Balanced
from wpriv.cli.main import main
from wpriv.config import yaml_document
from wpriv.errors import MissingResource, UsageError
from wpriv.papers.reproduction import collect, kept, page, reproduce

pytestmark = pytest.mark.slow
FIRST, SECOND = "plc/fig4-adp-pdp", "plc/fig9-pure-dp"
PICTURE = f"{FIRST}.figure.webp"


def reproduced(out, *words):
    return main(["reproduce", "plc/figure-4", "--out", str(out), *map(str, words)])


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A reproduction of one item, and what was kept of it."""
    base = tmp_path_factory.mktemp("kept")
    assert reproduced(base / "full", "--keep", base / "kept") == 0
    return base / "full", base / "kept"


def kept_recipes(folder):
    return json.loads((folder / "report.json").read_text(), parse_constant=pytest.fail)["recipes"]


def test_kept_results_are_one_report_pages_and_small_pictures_without_cells_and_places(folders):
    full, small = folders
    pages = {"README.md", *(f"{name}.md" for name in reproduce.PAPERS)}
    assert {path.relative_to(small).as_posix() for path in small.rglob("*") if path.is_file()} == {
        "report.json",
        *pages,
        PICTURE,
    }
    (entry,) = kept_recipes(small).values()
    origin = entry["provenance"]
    whole = json.loads((full / FIRST / "provenance.json").read_text())
    shared = ("git_commit", "platform", "wall_seconds", "claims", "wpriv")
    assert {key: origin[key] for key in shared} == {key: whole[key] for key in shared}
    assert "command" not in origin
    assert entry["recipe"] == yaml_document.read(full / FIRST / "recipe.yaml").data
    assert entry["seconds"] == reproduce.stored_status(full)[FIRST]["seconds"]
    assert str(full) not in "".join(path.read_text() for path in small.glob("*.*"))
    assert (small / PICTURE).stat().st_size < 60_000


def test_kept_results_that_cannot_be_drawn_leave_the_earlier_ones_as_they_were(folders, tmp_path, monkeypatch):
    full, small = folders
    shutil.copytree(small, tmp_path / "kept")
    files = {path: path.read_bytes() for path in (tmp_path / "kept" / "plc").iterdir()}

    def fail(*_):
        raise MissingResource("no space left")

    monkeypatch.setattr(kept, "small_pictures", fail)
    with pytest.raises(MissingResource):
        kept.store(collect.collect(reproduce.select("plc/figure-4"), full, quick=False), full, tmp_path / "kept")
    assert {path: path.read_bytes() for path in (tmp_path / "kept" / "plc").iterdir()} == files
    assert kept_recipes(tmp_path / "kept") == kept_recipes(small)


def test_an_item_about_the_pictures_of_recipes_takes_no_expected_numbers_from_what_is_kept(folders, tmp_path):
    full, small = folders
    (result,) = collect.collect(reproduce.select("plc/figure-4"), full, quick=False)
    pictures = replace(
        result,
        item=replace(result.item, has_claims=False),
        recipes=[replace(each, claims=[], expect=[]) for each in result.recipes],
    )
    kept.store([result, pictures], full, tmp_path / "kept")
    assert kept_recipes(tmp_path / "kept")[FIRST]["expect"] == kept_recipes(small)[FIRST]["expect"] != []


def test_the_report_of_kept_results_holds_each_number_with_its_claim_and_origin(folders):
    _, small = folders
    report = json.loads((small / "report.json").read_text(), parse_constant=pytest.fail)
    item = next(item for item in report["items"] if item["item"] == "Figure 4" and item["paper"] == "plc")
    assert item["verdict"] == "reproduced"
    assert item["recipes"] == [FIRST]
    assert {"platform", "wall_seconds", "wpriv"} <= set(report["recipes"][FIRST]["provenance"])
    assert {row["claim"] for row in report["recipes"][FIRST]["expect"]} == {"exact"}
    assert report["verdicts"]["reproduced"] == 1


def test_pages_hold_the_pictures_of_kept_results_and_markdown_shows_them(folders, tmp_path):
    full, small = folders
    assert reproduced(full, "--at-most", "0") == 0
    assert reproduced(tmp_path / "pages", "--at-most", "0", "--kept", small) == 0
    parser = Balanced()
    parser.feed(page := (tmp_path / "pages" / "plc.html").read_text())
    assert parser.open == []
    assert base64.b64encode((small / PICTURE).read_bytes()).decode() in page
    assert "<svg" not in page
    table = re.compile(r"<details><summary>The numbers of the figure.*?</details>", re.DOTALL)
    assert table.findall(page) == table.findall((full / "plc.html").read_text()) != []
    assert f"({PICTURE})" in (small / "plc.md").read_text()
    overview = (small / "README.md").read_text()
    assert "[Figure 4](plc.md#figure-4)" in overview
    widths = {line.count("|") - line.count("\\|") for line in overview.splitlines() if line.startswith("|")}
    assert widths == {4, 5, 8} or widths == {3, 5}


def test_a_reproduction_shows_kept_results_where_it_has_none_and_says_so(folders, tmp_path, capsys):
    _, small = folders
    assert reproduced(tmp_path / "empty", "--at-most", "0", "--kept", small, "--json") == 0
    (item,) = json.loads(capsys.readouterr().out)["items"]
    assert (item["verdict"], item["recipes"][0]["kept"]) == ("reproduced", True)
    page = (tmp_path / "empty" / "plc.html").read_text()
    assert "Kept results of an earlier run: commit" in page
    assert "data:image/webp" in page
    assert reproduced(tmp_path / "empty", "--at-most", "0") == 0
    assert "Kept results" not in (tmp_path / "empty" / "plc.html").read_text()


def test_a_later_run_replaces_its_own_recipes_and_leaves_the_others(folders, tmp_path):
    full, _ = folders
    target = tmp_path / "kept"
    assert reproduced(full, "--keep", target) == 0
    before = kept_recipes(target)[FIRST]
    other = tmp_path / "other"
    assert main(["reproduce", "plc/figure-9", "--out", str(other), "--keep", str(target)]) == 0
    assert set(kept_recipes(target)) == {FIRST, SECOND}
    assert kept_recipes(target)[FIRST] == before
    (obsolete := target / f"{FIRST}.obsolete.webp").write_bytes(b"")
    assert reproduced(full, "--keep", target) == 0
    assert not obsolete.exists()


def test_kept_results_of_a_recipe_that_has_changed_say_so(folders, tmp_path):
    _, small = folders
    target = tmp_path / "kept"
    shutil.copytree(small, target)
    file = target / "report.json"
    file.write_text(file.read_text().replace("2.5", "2.25"))
    (result,) = collect.collect(reproduce.select("plc/figure-4"), tmp_path / "none", quick=False, kept=target)
    assert "has changed since" in result.recipes[0].note


def test_files_of_observations_are_kept_by_their_names():
    assert kept._without_place({"n": 1, "file": "/home/me/times.csv"}) == {"n": 1, "file": "times.csv"}
    assert kept._without_place({"n": 1}) == {"n": 1}


def test_all_rows_of_statements_are_kept_and_sixty_of_other_tables():
    statements = [{"proposition": f"Lemma {n}", "verdict": "fails" if n % 2 else "holds"} for n in range(70)]
    assert kept._in_short(statements) == statements
    assert len(kept._in_short([{"n": n} for n in range(70)])) == 60


def test_a_kept_figure_over_several_recipes_names_those_of_which_it_lacks_the_latest_results(tmp_path):
    item = reproduce.Item("plc", "Figure 1", "both", ("a", "b", "c"), together=("samples", (("a", "A"), ("b", "B"))))

    def result(commits):
        recipes = [
            collect.RecipeResult(
                name, tmp_path, "done", "", kept=True, provenance={"git_commit": commit, "wall_seconds": 1.5}
            )
            for name, commit in zip("abc", commits, strict=True)
        ]
        return collect.ItemResult(item, recipes, "partly")

    drawn = collect.origins(result("xyz"))
    figure = tmp_path / "figure-1.webp"
    figure.write_bytes(b"")

    def outdated(commits, runs=drawn):
        return collect.outdated_panels(replace(result(commits), figure=figure, drawn=runs))

    assert outdated("xyz", {}) == []  # not known
    assert outdated("xyw") == []  # c is no panel of it
    assert outdated("xvz") == ["b"]
    kept_figure = replace(result("xvz"), figure=figure, drawn=drawn)
    assert "does not show the latest results of b" in page.together_figure(kept_figure)
    assert "latest results" not in page.together_figure(replace(result("xyz"), figure=figure, drawn=drawn))
    # its first results came later
    assert outdated("xyz", {name: run for name, run in drawn.items() if name != "b"}) == ["b"]


@pytest.mark.parametrize(
    ("words", "fragment"), [(["--quick"], "--quick"), (["--kept", "elsewhere"], "--kept"), ([], "same folder")]
)
def test_what_cannot_be_kept_is_refused_before_anything_runs(tmp_path, capsys, words, fragment):
    target = tmp_path / "kept"
    out = tmp_path / "r" if words else target
    assert main(["reproduce", "plc/figure-4", "--out", str(out), "--keep", str(target), *words]) == 2
    assert fragment in capsys.readouterr().err
    assert not target.exists()
    assert not (tmp_path / "r").exists()


def test_kept_results_are_not_shown_beside_quick_runs(folders, tmp_path, capsys):
    assert reproduced(tmp_path / "r", "--quick", "--kept", folders[1]) == 2
    assert "--kept" in capsys.readouterr().err


def test_a_folder_of_other_files_is_not_overwritten_and_nothing_is_run_in_kept_results(folders, tmp_path, capsys):
    full, small = folders
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("important")
    for folder in (full, tmp_path / "mine"):
        with pytest.raises(UsageError, match="--keep"):
            kept.require_folder(folder)
    assert main(["reproduce", "plc/figure-4", "--out", str(small)]) == 2
    assert "kept results, in which nothing is run" in capsys.readouterr().err


@pytest.mark.parametrize("report", ["garbage", "[1]", '{"schema": "wpriv.reproduction/1"}', None])
def test_a_folder_with_a_damaged_report_is_no_folder_of_kept_results(folders, tmp_path, capsys, report):
    shutil.copytree(folders[1], target := tmp_path / "kept")
    (target / "report.json").unlink()
    if report is not None:
        (target / "report.json").write_text(report)
    for option in ("--keep", "--kept"):
        assert reproduced(tmp_path / "r", option, target) == 2
        assert option in capsys.readouterr().err
    assert not (tmp_path / "r").exists()
    assert (target / PICTURE).is_file()


def test_pictures_that_are_not_noted_as_kept_are_not_replaced(folders, tmp_path, capsys):
    (picture := tmp_path / "kept" / PICTURE).parent.mkdir(parents=True)
    picture.write_text("important")
    (tmp_path / "kept" / "report.json").write_text(json.dumps({"schema": reproduce.KEPT, "recipes": {}}))
    assert reproduced(folders[0], "--keep", tmp_path / "kept") == 2
    assert "no kept result" in capsys.readouterr().err
    assert picture.read_text() == "important"


def test_damaged_kept_results_are_shown_as_damaged(folders, tmp_path):
    shutil.copytree(folders[1], small := tmp_path / "kept")
    report = json.loads((small / "report.json").read_text())
    del report["recipes"][FIRST]["provenance"]
    (small / "report.json").write_text(json.dumps(report))
    results = collect.collect(reproduce.select("plc/figure-4"), tmp_path / "empty", quick=False, kept=small)
    assert {recipe.name: recipe.status for recipe in results[0].recipes}[FIRST] == "damaged"


@pytest.mark.parametrize(("dpi", "size"), [(None, (920, 552)), (150, (640, 384))])
def test_a_large_picture_is_made_small_enough_and_keeps_its_shape(dpi, size):
    noise = np.random.default_rng(0).integers(0, 255, (900, 1500, 3), dtype=np.uint8)
    content = io.BytesIO()
    Image.fromarray(noise).save(content, format="PNG", **({} if dpi is None else {"dpi": (dpi, dpi)}))
    small = kept.small(content.getvalue())
    image = Image.open(io.BytesIO(small))
    image.verify()
    assert (image.size, image.format) == (size, "WEBP")
    assert len(small) < len(content.getvalue()) / 4


def test_a_small_picture_keeps_its_size_its_light_bands_and_the_colours_of_lines():
    picture = Image.new("RGB", (300, 200), "white")
    picture.paste("#e3f0f8", (0, 100, 300, 200))
    picture.paste("#1b9e77", (50, 50, 250, 53))
    picture.paste("#d95f02", (50, 60, 250, 63))
    content = io.BytesIO()
    picture.save(content, format="PNG")
    small = Image.open(io.BytesIO(kept.small(content.getvalue()))).convert("RGB")
    assert small.size == picture.size
    differences = np.abs(np.asarray(small, dtype=int) - np.asarray(picture, dtype=int)).max(axis=-1)
    assert differences[110:].max() < 8
    assert differences[[51, 61], 60:240].max() < 48
