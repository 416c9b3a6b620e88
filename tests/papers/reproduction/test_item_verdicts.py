"""Verdicts on the items of the papers: the oracle is the table of verdicts in the guide, case by case."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from wpriv.accounting import load_recipe
from wpriv.papers.reproduction import collect, page, reproduce
from wpriv.papers.reproduction import kept as kept_text
from wpriv.results import expectations
from wpriv.results.expectations import Verdict
from wpriv.results.model import Claim

CLAIM = Claim(paper="it is tight", found="it is not", because="of a factor of 2")
QUICK = {page: {"quick": False}, kept_text: {}}
ITEM = reproduce.Item("plc", "Figure 1", "the privacy loss", ("plc/fig1-laplace-loss",))


def row(kind="published", ok=True, held=True, **more):
    numbers = {"expected": 0.5, "ours": 0.5, "difference": 0.0, "within": 0.1, "absolute": False}
    about = {"panel": "", "where": {}, "column": "delta", "source": "a test"}
    return Verdict(**about, **numbers, kind=kind, ok=ok, held=held, **more)


def result(*rows, status="done", **more):
    return collect.RecipeResult("plc/fig1-laplace-loss", Path("folder"), status, "", list(rows), **more)


def verdict(*recipes, quick=False, **more):
    return collect._verdict(replace(ITEM, **more), [*recipes], quick=quick)


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ((), "not reached"),
        (("own",), "not reached"),
        (("reference",), "reproduced"),
        (("own", "published"), "reproduced"),
    ],
)
def test_an_item_is_reproduced_only_where_a_number_of_the_paper_or_a_reference_was_compared(kinds, expected):
    assert verdict(result(*(row(kind) for kind in kinds))) == expected


def test_of_a_figure_without_a_number_counts_what_a_person_saw_and_never_in_a_quick_run():
    seen = reproduce.Seen("partly", "three of ten digits")
    assert verdict(result(), seen=seen) == "partly"
    assert verdict(result(row("reference")), seen=seen) == "partly"
    assert verdict(result(row("reference")), seen=reproduce.Seen("contradicted", "it is not")) == "contradicted"
    assert verdict(result(claims=[CLAIM]), seen=seen) == "contradicted"
    assert verdict(result(status="not run"), seen=seen) == "not run"
    assert verdict(result(), seen=seen, quick=True) == "not reached"


def test_a_number_of_another_procedure_is_no_reproduction_whether_it_agrees_or_not():
    other = row(procedure="differences of class means")
    assert (other.word, other.is_missed) == ("other procedure", False)
    assert verdict(result(other)) == "other procedure"
    assert verdict(result(other.with_entries(ok=False))) == "other procedure"
    assert verdict(result(row(), other)) == "partly"


def test_a_run_with_other_settings_than_the_printed_ones_reproduces_a_part():
    assert verdict(result(row(setting="steps 10 of 100"))) == "partly"
    assert verdict(result(row("reference", setting="steps 10 of 100"))) == "reproduced"


def test_a_number_that_exceeds_a_published_one_by_more_than_the_tolerance_is_above_it():
    better = row(side="at least").with_entries(ours=0.69, expected=0.6, difference=0.09, absolute=True, within=0.04)
    assert (better.word, better.word_with_amount) == ("above", "above by 0.09")
    assert verdict(result(better)) == "partly"
    assert better.with_entries(difference=0.03).word == "met"
    assert better.with_entries(kind="own").word == "met"
    assert expectations.counts([row(), better]) == "1 of 2, 1 above"


def test_a_part_is_reproduced_where_a_recipe_was_not_run_or_something_is_missing():
    assert verdict(result(row()), missing="two data sets") == "partly"
    assert verdict(result(row()), result(status="not run")) == "partly"


@pytest.mark.parametrize("kind", ["published", "reference"])
def test_a_number_that_must_be_met_and_is_not_is_a_failure_of_ours_and_no_evidence_against_the_paper(kind):
    missed = result(row(), row(kind, ok=False))
    assert missed.expect[1].word == "missed"
    assert verdict(missed, missing="runs") == "not reached"
    assert collect.ItemResult(ITEM, [missed], "not reached").failures == ["1 number missed"]


def test_a_number_with_the_proof_that_it_is_wrong_contradicts_the_paper_and_is_no_failure_of_ours():
    wrong = row(ok=False, contradicted="the exact value is 0.5")
    assert (wrong.word, wrong.is_missed) == ("contradicted", False)
    assert verdict(result(row(), wrong)) == "contradicted"
    # a run without an answer proves nothing
    assert wrong.with_entries(ours=None).word == "missed"


def test_a_number_that_is_shown_and_not_held_is_not_reached_and_no_contradiction():
    assert verdict(result(row(), row(ok=False, held=False)), missing="less steps") == "not reached"
    assert verdict(result(row(ok=False, held=False), claims=[CLAIM])) == "contradicted"
    assert verdict(result(row(), claims=[Claim(**CLAIM.as_dict(), verdict="not reached")])) == "not reached"


def test_a_number_that_was_not_measured_makes_an_item_a_part_and_no_contradiction():
    new = row(ok=False, not_measured=True)
    assert verdict(result(row(), new)) == "partly"
    assert verdict(result(new)) == "not reached"
    assert verdict(result(row(), new.with_entries(kind="own"))) == "reproduced"


@pytest.mark.parametrize("held", [True, False])
def test_an_own_number_that_is_missed_says_nothing_about_the_paper(held):
    assert verdict(result(row(), row("own", ok=False, held=held))) == "reproduced"
    assert verdict(result(row("own", ok=False, held=held))) == "not reached"


def test_a_statement_that_fails_contradicts_the_paper_though_its_numbers_are_met():
    table = [{"proposition": "Lemma 1", "verdict": "holds"}, {"proposition": "Lemma 2", "verdict": "fails"}]
    failing = result(row("reference"), table=table)
    assert failing.failing == ["Lemma 2"]
    assert verdict(failing) == "contradicted"
    assert verdict(result(row("reference"), table=table[:1])) == "reproduced"
    assert verdict(result(row(), claims=[CLAIM])) == "contradicted"


def test_without_a_run_there_is_no_verdict_on_the_paper_and_without_data_none_can_be_had():
    assert verdict(result(status="refused")) == "not run"
    assert verdict(result(status="refused"), no_data="not shipped") == "no data"
    assert verdict(result(), no_data="not shipped") == "no data"


@pytest.mark.parametrize("status", ["failed", "damaged"])
def test_a_recipe_that_breaks_is_a_failure_of_ours_and_one_without_data_is_none(status):
    results = [result(row()), result(status=status), result(status="refused")]
    assert collect.ItemResult(ITEM, results, "partly").failures == [f"plc/fig1-laplace-loss {status}"]


def test_an_overview_counts_the_statements_that_fail_beside_the_numbers_met():
    met = row("reference")
    table = [{"proposition": name, "verdict": "fails", "error": 3} for name in ("Lemma 2", "Lemma 2, root")]
    one = collect.ItemResult(ITEM, [result(met, claims=[CLAIM])], "contradicted")
    two = collect.ItemResult(ITEM, [result(met, claims=[CLAIM], table=table)], "contradicted")
    assert collect.counts(one) == "1 of 1, 1 statement contradicted"
    # two rows about one error of the paper are one error
    assert collect.counts(two) == "1 of 1, 1 statement contradicted, 2 rows fail by 1 error"
    assert collect.counts(collect.ItemResult(ITEM, [result(met)], "reproduced")) == "1 of 1"


def test_pages_name_the_statements_that_fail(tmp_path):
    table = [{"proposition": "Lemma 1", "verdict": "holds"}, {"proposition": "Lemma <2>", "verdict": "fails"}]
    failing = result(table=table)
    paper = reproduce.Paper("plc", "a title", "an author", (ITEM,))
    for module in (page, kept_text):
        module.write([paper], [collect.ItemResult(ITEM, [failing], "contradicted")], tmp_path, **QUICK[module])
    assert "The statement fails in 1 of 2 rows: Lemma &lt;2&gt;." in (tmp_path / "plc.html").read_text()
    assert "The statement fails in 1 of 2 rows: Lemma <2>." in (tmp_path / "plc.md").read_text()
    numbered = result(table=[{**row, "error": 7, "verdict": "fails"} for row in table])
    assert page.failing_in_words(numbered).endswith("in 2 of 2 rows, by 1 error of the paper: Lemma 1; Lemma <2>")


def test_an_item_says_why_a_published_number_need_not_be_reached():
    everything = [item for paper in reproduce.select("all") for item in paper.items]
    for item in everything:
        recipes = [load_recipe.read(name) for name in item.recipes]
        checks = [check.expect for recipe in recipes for check in recipe.checks]
        if any(check.kind == "published" and not check.held for check in checks):
            assert item.missing or item.no_data or any(recipe.claims for recipe in recipes), item.name


@pytest.mark.parametrize("name", ["wgrad/figure-4", "dpswd/figure-4", "dpswd/figure-5"])
def test_a_picture_leaves_out_the_claims_and_numbers_of_its_recipes_that_are_about_other_items(tmp_path, name):
    (paper,) = reproduce.select(name)
    assert not paper.items[0].has_claims
    kept = Path(__file__).parents[3] / "reproductions"
    if not kept.is_dir():
        pytest.skip("the kept results are in the repository, not in the package")
    (figure,) = collect.collect([paper], tmp_path, quick=False, kept=kept)
    assert any(each.status == "done" for each in figure.recipes)
    assert not any(each.claims or each.expect for each in figure.recipes)
    assert figure.verdict == figure.item.seen.verdict


def test_every_item_says_by_its_data_or_a_person_what_no_number_says():
    for item in (item for paper in reproduce.select("all") for item in paper.items):
        recipes = [load_recipe.read(name) for name in item.recipes]
        kinds = {check.expect.kind for recipe in recipes for check in recipe.checks} if item.has_claims else set()
        is_compared = not kinds.isdisjoint({"published", "reference"})
        assert is_compared or item.seen is not None or item.no_data, item.name
        assert item.seen is None or item.seen.verdict in collect.VERDICTS, item.name


@pytest.mark.parametrize("paper", reproduce.select("all"), ids=lambda paper: paper.name)
def test_the_headline_claims_of_each_paper_have_verdicts(paper, tmp_path):
    assert len(paper.headlines) > 1
    assert all(each.verdict in collect.VERDICTS and each.because for each in paper.headlines)
    kept_text.write([paper], [], tmp_path)
    assert paper.headlines[0].claim in (tmp_path / f"{paper.name}.md").read_text()
