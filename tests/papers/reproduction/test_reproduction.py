"""Reproductions of the papers: the lists of items, the runs and the pages."""

from __future__ import annotations

import json
import re
import shutil

import pytest

from tests.training.reports.pages import Balanced
from wpriv.accounting.comparison import compare
from wpriv.config.recipe_files import shipped
from wpriv.errors import Interrupted, MissingResource, Unsupported, UsageError
from wpriv.papers.reproduction import collect, page, reproduce
from wpriv.results.expectations import Verdict
from wpriv.results.model import Together
from wpriv.training.reports import folder_page


def run(word, out, at_most=1e9):
    papers = reproduce.select(word)
    reproduce.run(reproduce.planned(papers, out, quick=True), out, at_most=at_most, say=lambda line: None)
    return collect.collect(papers, out, quick=True)


@pytest.fixture(scope="module")
def figure_4(tmp_path_factory):
    """Return the folder of a reproduction of one item."""
    folder = tmp_path_factory.mktemp("figure-4")
    run("plc/figure-4", folder)
    return folder


def test_every_item_names_shipped_recipes_or_says_why_there_is_none():
    everything = [item for paper in reproduce.select("all") for item in paper.items]
    assert all(name in shipped() for item in everything for name in item.recipes)
    assert all(item.recipes or item.missing for item in everything)
    assert len({(item.paper, reproduce.slug(item.name)) for item in everything}) == len(everything)


def test_every_recipe_of_a_paper_belongs_to_an_item_or_is_of_other_work():
    named = {name for paper in reproduce.select("all") for item in paper.items for name in item.recipes}
    of_papers = {name for name in shipped() if name.partition("/")[0] in reproduce.PAPERS}
    # on data or settings that no table or figure of the paper has
    assert of_papers - named == {"wgrad/adult", "wgrad/german", "wgrad/swae-mnist", "wgrad/swae-fashion-mnist"}


@pytest.mark.parametrize("word", ["plx", "plc/figure-99", "", "plc/", "all/figure-1"])
def test_a_word_that_names_nothing_is_refused_with_what_there_is(word):
    if word == "plc/":
        assert len(reproduce.select(word)[0].items) > 1
    else:
        with pytest.raises(UsageError, match=r"Known|Its items"):
            reproduce.select(word)


def test_an_item_is_named_by_its_slug_or_by_a_recipe():
    (by_slug,), (by_recipe,) = reproduce.select("plc/figure-4"), reproduce.select("plc/fig4-adp-pdp")
    assert by_slug.items == by_recipe.items
    assert [item.name for item in by_slug.items] == ["Figure 4"]


def test_an_item_that_is_met_is_reproduced_and_a_second_call_computes_nothing(tmp_path):
    (result,) = run("plc/figure-4", tmp_path)
    assert result.verdict == "reproduced"
    assert [row["kind"] for row in result.as_dict()["rows"]] == ["reference", "reference"]
    (again,) = run("plc/figure-4", tmp_path, at_most=0.0)
    assert again == result  # provenance, with its wall time, among it


def test_a_recipe_that_has_changed_is_run_again(tmp_path):
    (done,) = run("plc/figure-4", tmp_path)
    file = done.recipes[0].folder / "recipe.yaml"
    # texts and expected numbers do not change the results
    file.write_text(file.read_text().replace("Sommer", "Summer"))
    (result,) = run("plc/figure-4", tmp_path, at_most=0.0)
    assert result == done
    file.write_text(file.read_text().replace("2.5", "2.25"))
    (result,) = run("plc/figure-4", tmp_path, at_most=0.0)
    assert result.verdict == "not run"
    (result,) = run("plc/figure-4", tmp_path)
    assert result.verdict == "reproduced"


def test_no_recipe_is_begun_beyond_the_time_and_the_page_says_so(tmp_path):
    results = run("plc", tmp_path, at_most=0.0)
    assert {result.verdict for result in results} <= {"not run", "no data"}
    assert not any((tmp_path / "plc").glob("*"))


@pytest.mark.parametrize(
    ("error", "noted", "failures"),
    [(MissingResource, "refused", []), (Unsupported, "failed", ["plc/fig4-adp-pdp failed"])],
)
def test_a_recipe_that_cannot_run_is_noted_and_the_others_run(tmp_path, monkeypatch, error, noted, failures):
    plain = compare.run

    def without_data(recipe, out=None, **options):
        if "fig4" in recipe.name:
            raise error("no such data")
        return plain(recipe, out, **options)

    monkeypatch.setattr(compare, "run", without_data)
    papers = [*reproduce.select("plc/figure-4"), *reproduce.select("plc/figure-9")]
    plans = reproduce.planned(papers, tmp_path, quick=True)
    lines = []
    status = reproduce.run(plans, tmp_path, at_most=1e9, say=lines.append)
    assert [line for line in lines if "no such data" in line and "plc/fig4-adp-pdp" in line]
    assert {name: note["status"] for name, note in status.items()} == {
        "plc/fig4-adp-pdp-quick": noted,
        "plc/fig9-pure-dp-quick": "done",
    }
    first, second = collect.collect(papers, tmp_path, quick=True)
    assert (first.verdict, second.verdict) == ("not run", "reproduced")
    # missing data are no failure of this program
    assert (first.failures, second.failures) == (failures, [])
    page.write(papers, [first, second], tmp_path, quick=True)
    assert "no such data" in (tmp_path / "plc.html").read_text()


def test_a_signal_stops_the_reproduction_and_what_is_done_stays(tmp_path, monkeypatch):
    run("plc/figure-4", tmp_path)
    monkeypatch.setattr(compare, "run", lambda *_, **__: (_ for _ in ()).throw(Interrupted("stopped")))
    with pytest.raises(Interrupted, match=r"plc/fig9-pure-dp.*same command"):
        run("plc/figure-9", tmp_path)
    assert reproduce.stored_status(tmp_path)["plc/fig4-adp-pdp-quick"]["status"] == "done"


@pytest.mark.parametrize(
    "damage",
    [("expect.json", text) for text in ("", "{", "[1]", '{"expect": 3}', '{"expect": [{"ok": true}]}')]
    + [("table.csv", "panel,eps\n"), ("provenance.json", "[]"), ("table.csv", "")],
    ids=str,
)
def test_a_damaged_folder_is_no_reproduction(figure_4, tmp_path, damage):
    shutil.copytree(figure_4, tmp_path, dirs_exist_ok=True)
    (done,) = run("plc/figure-4", tmp_path, at_most=0.0)
    assert done.verdict == "reproduced"
    name, text = damage
    (done.recipes[0].folder / name).write_text(text)
    (result,) = run("plc/figure-4", tmp_path, at_most=0.0)
    assert (result.verdict, result.recipes[0].status) == ("not run", "damaged")
    assert name in result.recipes[0].reason


def test_a_damaged_folder_runs_again_once_it_is_removed(figure_4, tmp_path):
    shutil.copytree(figure_4, tmp_path, dirs_exist_ok=True)
    folder = run("plc/figure-4", tmp_path, at_most=0.0)[0].recipes[0].folder
    (folder / "table.csv").write_text("")
    shutil.rmtree(folder)
    (result,) = run("plc/figure-4", tmp_path)
    assert result.verdict == "reproduced"


@pytest.mark.parametrize("text", ['{"plc/fig4-adp-pdp": 5}', "", "{", "[]", "null"])
def test_a_damaged_status_is_that_of_no_run(tmp_path, text):
    (tmp_path / reproduce.STATUS).write_text(text)
    assert reproduce.stored_status(tmp_path) == {}


@pytest.mark.slow
@pytest.mark.parametrize("word", ["plc/figure-7", pytest.param("plc", marks=pytest.mark.nightly)])
def test_pages_are_well_formed_and_load_nothing_from_elsewhere(word, tmp_path):
    papers = reproduce.select(word)
    results = run(word, tmp_path)
    page.write(papers, results, tmp_path, quick=True)
    for name in ("plc.html", "index.html"):
        text = (tmp_path / name).read_text(encoding="utf-8")
        parser = Balanced()
        parser.feed(text)
        assert parser.open == []
        assert len(parser.ids) == len(set(parser.ids))
        assert "<script" not in text
        # the names of XML vocabularies in the figures are no addresses that a browser opens
        assert not re.search(r'(src|href)="(https?:)?//', text)
        places = set(re.findall(r'href="#([^"]+)"', text))
        assert places <= set(parser.ids)
    assert text.count("quick settings") == 1


@pytest.mark.slow
def test_the_report_holds_each_number_with_its_kind_and_verdict(tmp_path):
    papers = reproduce.select("plc/figure-7")
    results = run("plc/figure-7", tmp_path)
    page.write(papers, results, tmp_path, quick=True)
    report = json.loads((tmp_path / page.REPORT).read_text(), parse_constant=pytest.fail)
    (item,) = report["items"]
    assert (report["schema"], item["paper"], item["item"]) == ("wpriv.reproduction/1", "plc", "Figure 7")
    assert item["verdict"] == "partly"  # a claim of the paper holds in part
    assert {row["kind"] for row in item["rows"]} == {"reference", "own"}
    assert {row["verdict"] for row in item["rows"]} == {"met"}
    assert item["recipes"][0]["claims"][0]["because"]


def test_a_page_shows_the_mean_its_deviation_and_its_seeds_and_the_commit_of_an_own_number():
    row = {"panel": "", "where": {"eps": 1}, "column": "accuracy", "kind": "own", "expected": 0.5, "ours": 0.52}
    row |= {"difference": 0.02, "within": 0.1, "absolute": True, "ok": True, "held": True, "source": "this program"}
    single = Verdict(**row)
    published = [collect._numbers(single.with_entries(kind=kind))["published"] for kind in ("published", "own")]
    assert published == [0.5, None]
    more = {"commit": "0123456789ab", "noise_version": 1, "seeds": 5, "deviation": 0.0123}
    several = single.with_entries(**more)
    kept = collect._numbers(several)
    assert {key: kept[key] for key in more} == more
    assert "own, commit 0123456789ab" in folder_page.expected_table([several])
    assert "0.520 ± 0.012 (5 seeds)" in folder_page.expected_table([several])
    assert "0.52" in folder_page.expected_table([single])


def test_a_page_says_what_several_trainings_cost_together(tmp_path):
    (paper,) = reproduce.select("plc/figure-4")

    def text(together):
        recipe = collect.RecipeResult("plc/fig4-adp-pdp", tmp_path, "done", "", kept=True, together=together)
        page.write([paper], [collect.ItemResult(paper.items[0], [recipe], "partly")], tmp_path, quick=True)
        return (tmp_path / "plc.html").read_text()

    whole = Together(trainings=5, epsilon=2.00001, delta=1e-5, claim="certified", accountant="pld")
    assert "All 5 private trainings together: eps = 2.00001 at delta = 1e-5, certified" in text(whole)
    assert "no number, since they differ" in text(Together(trainings=2, problem="they differ"))
    assert "trainings together" not in text(Together()) + text(None)


def test_a_changed_recipe_whose_run_is_killed_is_not_shown_with_its_earlier_results(tmp_path, monkeypatch):
    (done,) = run("plc/figure-4", tmp_path)
    folder = done.recipes[0].folder
    file = folder / "recipe.yaml"
    file.write_text(file.read_text().replace("2.5", "2.25"))
    (folder / "cells.jsonl").unlink()
    with monkeypatch.context() as patch:
        patch.setattr(compare, "compute", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            run("plc/figure-4", tmp_path)
    assert not (folder / "table.csv").exists()
    (result,) = run("plc/figure-4", tmp_path, at_most=0.0)
    assert result.verdict == "not run"
    (result,) = run("plc/figure-4", tmp_path)
    assert result.verdict == "reproduced"


def test_what_another_command_notes_in_the_same_folder_stays(tmp_path, monkeypatch):
    plain = compare.run

    def beside(recipe, out=None, **options):
        reproduce._note(tmp_path, "plc/other", {"status": "done"})
        return plain(recipe, out, **options)

    monkeypatch.setattr(compare, "run", beside)
    run("plc/figure-4", tmp_path)
    notes = reproduce.stored_status(tmp_path)
    assert {name: note["status"] for name, note in notes.items()} == {
        "plc/fig4-adp-pdp-quick": "done",
        "plc/other": "done",
    }
