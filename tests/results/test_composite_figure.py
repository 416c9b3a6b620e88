"""One figure of several results folders, and the items of papers that have one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from wpriv.cli.main import main
from wpriv.figures._records import samples
from wpriv.papers.reproduction import collect, kept, page, reproduce
from wpriv.papers.reproduction.collect import ItemResult, RecipeResult


@pytest.fixture
def folders(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, panels in (("one", ["α = 0", "α = 0.5"]), ("two", [""])):
        folder = tmp_path / name
        folder.mkdir()
        lines = [f'"{panel}",ε = 1,{step},{1 / step}' for panel in panels for step in (1, 2, 4)]
        (folder / "metrics.csv").write_text("\n".join(["panel,case,step,loss", *lines]) + "\n")
        images = np.linspace(0, 1, 4 * 36).reshape(4, 1, 6, 6)
        np.savez(folder / "samples.npz", samples=images, names=np.array(["original", "generated"]))
    return tmp_path


@pytest.mark.slow
def test_several_folders_give_one_figure_with_the_panels_of_each(folders, capsys):
    assert main(["plot", "one", "two", "--figure", "losses", "--format", "svg", "--out", "figures"]) == 0
    assert capsys.readouterr().out == "figures/losses.svg\n"
    picture = (folders / "figures" / "losses.svg").read_text()
    # text is drawn as outlines; a comment above each has the words
    for words in ("(a) one, α = 0", "(b) one, α = 0.5", "(c) two"):
        assert f"<!-- {words} -->" in picture
    assert main(["plot", "one", "two", "--figure", "samples", "--format", "svg"]) == 0
    picture = (folders / "samples.svg").read_text()
    assert "<!-- (b) two -->" in picture
    assert picture.count("<!-- test images -->") == 2


@pytest.mark.parametrize(
    ("words", "fragment"),
    [
        (["one", "two"], "--figure"),
        (["one", "one", "--figure", "losses"], "different names"),
        (["one", "three", "--figure", "losses"], "three"),
        (["one", "two", "--figure", "loses"], "did you mean 'losses'"),
        (["one", "two", "--figure", "losses", "--format", "gif"], "gif"),
    ],
)
def test_folders_that_give_no_figure_together_are_refused(folders, capsys, words, fragment):
    assert main(["plot", *words]) == 2
    assert fragment in capsys.readouterr().err


def test_folders_without_the_table_of_a_figure_are_refused(folders, capsys):
    assert main(["plot", "one", "two", "--figure", "curves"]) == 4
    assert "table.csv" in capsys.readouterr().err


def test_every_figure_over_several_recipes_names_recipes_of_its_item():
    everything = [item for paper in reproduce.select("all") for item in paper.items if item.together]
    assert len(everything) >= 3
    for item in everything:
        figure, panels = item.together
        assert figure in ("samples", "losses")
        assert {name for name, _ in panels} <= set(item.recipes)
        assert len({label for _, label in panels}) == len(panels)


@pytest.mark.slow
def test_an_item_shows_its_figure_where_two_recipes_are_done_and_keeps_it_where_all_are(folders, monkeypatch):
    item = reproduce.Item(
        "wgrad", "Figure 4", "losses", ("a/one", "a/two"), "", ("losses", (("a/one", "A"), ("a/two", "B")))
    )
    done = [RecipeResult(f"a/{name}", folders / name, "done", "") for name in ("one", "two")]
    monkeypatch.setattr(kept, "_entry", lambda result, seconds: {})
    result = ItemResult(item, done, "reproduced")
    assert "<svg" in page.together_figure(result)
    kept.store([result], folders / "out", folders / "kept")
    assert (folders / "kept" / collect.file_name(result)).is_file()
    half = ItemResult(item, [done[0], RecipeResult("a/two", folders / "two", "not run", "")], "partly")
    assert page.together_figure(half) == ""
    # the figure of an earlier run stays, and pages show it
    figure = folders / "kept" / "wgrad" / "figure-4.webp"
    assert "data:image/webp" in page.together_figure(replace(half, figure=figure))


def test_rows_of_generated_images_have_the_same_names_whatever_the_task_calls_them():
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    images = np.zeros((6, 1, 4, 4))
    samples.draw({"samples": images, "names": np.array(["original", "privatised", "generated"])}, axes)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["test images", "reports", "generated"]
    axes = Figure().subplots()
    samples.draw({"samples": images[:4], "names": np.array(["original", "reconstructed"])}, axes)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["original", "reconstructed"]
