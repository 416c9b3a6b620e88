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

from tests.training.reports.pages import Balanced
from wpriv.cli.main import main
from wpriv.errors import MissingResource, UsageError
from wpriv.papers.reproduction import collect, kept, page, reproduce

pytestmark = pytest.mark.slow
FIRST, SECOND = "plc/fig4-adp-pdp", "plc/fig9-pure-dp"


def reproduced(out, *words):
    return main(["reproduce", "plc/figure-4", "--out", str(out), *map(str, words)])


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A reproduction of one item, and what was kept of it."""
    base = tmp_path_factory.mktemp("kept")
    assert reproduced(base / "full", "--keep", base / "kept") == 0
    return base / "full", base / "kept"


def test_kept_results_have_numbers_origin_and_small_figures_but_no_cells_and_no_places(folders):
    full, small = folders
    files = {path.name for path in (small / FIRST).iterdir()}
    assert files == {"recipe.yaml", "expect.json", "provenance.json", "table.csv", "figure.svg"}
    origin = json.loads((small / FIRST / "provenance.json").read_text())
    whole = json.loads((full / FIRST / "provenance.json").read_text())
    shared = ("git_commit", "platform", "wall_seconds", "claims", "wpriv")
    assert {key: origin[key] for key in shared} == {key: whole[key] for key in shared}
    assert "command" not in origin
    assert str(full) not in "".join(path.read_text() for path in small.rglob("*") if path.is_file())
    assert (small / FIRST / "figure.svg").stat().st_size < 300_000


def test_kept_results_that_cannot_be_drawn_leave_the_earlier_ones_as_they_were(folders, tmp_path, monkeypatch):
    full, small = folders
    shutil.copytree(small, tmp_path / "kept")
    files = {path: path.read_bytes() for path in (tmp_path / "kept" / FIRST).iterdir()}

    def fail(*_):
        raise MissingResource("no space left")

    monkeypatch.setattr(kept, "write_small_svg", fail)
    with pytest.raises(MissingResource):
        kept.store(collect.collect(reproduce.select("plc/figure-4"), full, quick=False), full, tmp_path / "kept")
    assert {path: path.read_bytes() for path in (tmp_path / "kept" / FIRST).iterdir()} == files


def test_an_item_about_the_pictures_of_recipes_takes_no_expected_numbers_from_what_is_kept(folders, tmp_path):
    full, small = folders
    (result,) = collect.collect(reproduce.select("plc/figure-4"), full, quick=False)
    pictures = replace(
        result,
        item=replace(result.item, has_claims=False),
        recipes=[replace(each, claims=[], expect=[]) for each in result.recipes],
    )
    kept.store([result, pictures], full, tmp_path / "kept")
    assert (tmp_path / "kept" / FIRST / "expect.json").read_text() == (small / FIRST / "expect.json").read_text()


def test_the_report_of_kept_results_holds_each_number_with_its_claim_and_origin(folders):
    _, small = folders
    report = json.loads((small / "report.json").read_text(), parse_constant=pytest.fail)
    item = next(item for item in report["items"] if item["item"] == "Figure 4" and item["paper"] == "plc")
    assert item["verdict"] == "reproduced"
    assert item["recipes"][0]["kept"] is True
    assert {"platform", "wall_seconds", "wpriv"} <= set(item["recipes"][0]["origin"])
    assert {row["claim"] for row in item["rows"]} == {"exact"}


def test_pages_of_kept_results_link_their_figures_and_markdown_shows_them(folders):
    _, small = folders
    parser = Balanced()
    parser.feed(page := (small / "plc.html").read_text())
    assert parser.open == []
    assert f'src="{FIRST}/figure.svg"' in page
    assert "<svg" not in page
    assert f"({FIRST}/figure.svg)" in (small / "plc.md").read_text()
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
    assert "<svg" in page
    assert reproduced(tmp_path / "empty", "--at-most", "0") == 0
    assert "Kept results" not in (tmp_path / "empty" / "plc.html").read_text()


def test_a_later_run_replaces_its_own_recipes_and_leaves_the_others(folders, tmp_path):
    full, _ = folders
    target = tmp_path / "kept"
    assert reproduced(full, "--keep", target) == 0
    before = (target / FIRST / "provenance.json").read_bytes()
    other = tmp_path / "other"
    assert main(["reproduce", "plc/figure-9", "--out", str(other), "--keep", str(target)]) == 0
    assert set(reproduce.stored_status(target)) == {FIRST, SECOND}
    assert (target / FIRST / "provenance.json").read_bytes() == before
    (target / FIRST / "obsolete.svg").write_text("<svg/>")
    assert reproduced(full, "--keep", target) == 0
    assert not (target / FIRST / "obsolete.svg").exists()


def test_kept_results_of_a_recipe_that_has_changed_say_so(folders, tmp_path):
    import shutil

    _, small = folders
    target = tmp_path / "kept"
    shutil.copytree(small, target)
    file = target / FIRST / "recipe.yaml"
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
        return collect.ItemResult(item, recipes, "shown")

    figure = tmp_path / collect.file_name(result("xyz"))
    figure.parent.mkdir(parents=True)
    figure.write_text("<svg/>")
    assert collect.outdated_panels(result("xyz"), figure) == []  # written by an earlier version: not known
    collect.origin_file(figure).write_text(json.dumps(collect.origins(result("xyz"))))
    assert collect.outdated_panels(result("xyw"), figure) == []  # c is no panel of it
    assert collect.outdated_panels(result("xvz"), figure) == ["b"]
    assert "does not show the latest results of b" in page.together_figure(result("xvz"), tmp_path)
    assert "latest results" not in page.together_figure(result("xyz"), tmp_path)
    drawn = {name: run for name, run in collect.origins(result("xyz")).items() if name != "b"}
    collect.origin_file(figure).write_text(json.dumps(drawn))
    assert collect.outdated_panels(result("xyz"), figure) == ["b"]  # its first results came later


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


@pytest.mark.parametrize("status", ["garbage", "[1]", '{"plc/fig4-adp-pdp": 5}', None])
def test_a_folder_with_a_damaged_status_is_no_folder_of_kept_results(folders, tmp_path, capsys, status):
    shutil.copytree(folders[1], target := tmp_path / "kept")
    (target / "status.json").unlink()
    if status is not None:
        (target / "status.json").write_text(status)
    for option in ("--keep", "--kept"):
        assert reproduced(tmp_path / "r", option, target) == 2
        assert option in capsys.readouterr().err
    assert not (tmp_path / "r").exists()
    assert (target / FIRST / "figure.svg").is_file()


def test_results_that_are_not_noted_as_kept_are_not_replaced(folders, tmp_path, capsys):
    (tmp_path / "kept" / FIRST).mkdir(parents=True)
    (tmp_path / "kept" / FIRST / "weights.txt").write_text("important")
    (tmp_path / "kept" / "status.json").write_text("{}")
    assert reproduced(folders[0], "--keep", tmp_path / "kept") == 2
    assert "no kept result" in capsys.readouterr().err
    assert (tmp_path / "kept" / FIRST / "weights.txt").is_file()


def test_damaged_kept_results_are_shown_as_damaged(folders, tmp_path):
    shutil.copytree(folders[1], small := tmp_path / "kept")
    (small / FIRST / "provenance.json").write_text("{")
    results = collect.collect(reproduce.select("plc/figure-4"), tmp_path / "empty", quick=False, kept=small)
    assert {recipe.name: recipe.status for recipe in results[0].recipes}[FIRST] == "damaged"


def test_a_figure_with_large_pictures_is_made_coarser_until_it_is_small():
    from PIL import Image

    noise = np.random.default_rng(0).integers(0, 255, (600, 600, 3), dtype=np.uint8)
    content = io.BytesIO()
    Image.fromarray(noise).save(content, format="PNG")
    encoded = base64.b64encode(content.getvalue()).decode()
    picture = f'<svg><image href="data:image/png;base64,{encoded}"/></svg>'
    small = kept.small(picture)
    assert len(picture) > kept.MAX_BYTES > len(small)
    Image.open(io.BytesIO(base64.b64decode(re.search(r"base64,([^\"]+)", small)[1]))).verify()


def test_shortened_paths_keep_their_points_to_a_tenth():
    path = "M 12.345678 -0.004\nL 20.05 3.14159 \nL 20.05 3.14159 \nz\n"
    short = kept.shortened(f'<svg><path d="{path}" style="fill: none"/></svg>')
    drawn = re.search(r' d="([^"]*)"', short)[1]
    numbers = [float(number) for number in re.findall(r"-?\d+(?:\.\d+)?", drawn)]
    assert np.allclose(numbers, [12.345678, -0.004, 20.05, 3.14159], atol=0.051)


def test_numbers_in_the_texts_of_a_small_figure_keep_their_digits():
    words = "δ = 0.00012 (as published), noise 0.0354, loss 0.118"
    picture = f'<svg><g transform="translate(1.23456 7.891)"><text>{words}</text></g></svg>'
    assert kept.shortened(picture) == f'<svg><g transform="translate(1.23 7.89)"><text>{words}</text></g></svg>'


def test_a_shortened_path_keeps_a_corner_whose_digits_begin_the_next_point():
    assert 'd="M5 30L10 30L10 300"' in kept.shortened('<svg><path d="M 5 30 L 10 30 L 10 300"/></svg>')
