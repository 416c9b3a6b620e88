"""The page of a results folder: what it says, that it is well-formed, and that it loads nothing and runs nothing."""

from __future__ import annotations

import json
import re
from statistics import NormalDist

import pytest

import wpriv
from tests.training.reports.pages import Balanced, browser, console
from tests.training.test_training_statement import RECIPE
from wpriv.accounting.claims import explain
from wpriv.errors import Unsupported, UsageError
from wpriv.results import storage
from wpriv.results.model import Protection
from wpriv.training.reports import folder_page
from wpriv.training.reports.report import report

HOSTILE = "<script>document.title = 'taken'</script> & \"'--></style>"
COMPARISON = f"""\
kind: compare
source: {json.dumps(HOSTILE)}
title: {json.dumps(HOSTILE)}
process: [{{mech: gauss, sigma: 4, n: 10}}]
delta: 1e-5
sweep: {{over: sigma, values: [4, 8]}}
accountants: [pld, rdp]
expect:
  - {{where: {{sigma: 4, accountant: pld}}, eps: 3.1, within: 0.1, kind: published, source: {json.dumps(HOSTILE)}}}
claims: [{{paper: {json.dumps(HOSTILE)}, found: "x", because: "y"}}]
"""


@pytest.fixture(scope="module")
def comparison(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    (folder / "c.yaml").write_text(COMPARISON)
    return wpriv.compare(folder / "c.yaml", out=folder / "<b>out").out


@pytest.fixture(scope="module")
def training(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    (folder / "r.yaml").write_text(f"{RECIPE}seed: 1\n")
    return wpriv.train(folder / "r.yaml", out=folder / "out").out


def require_sound(text):
    """Tags are balanced, identifiers unique, links within the page lead somewhere, and nothing is loaded or run."""
    parser = Balanced()
    parser.feed(text)
    assert parser.open == []
    assert len(parser.ids) == len(set(parser.ids))
    assert "<script" not in text
    assert not re.search(r'(src|href)="(https?:)?//', text)
    assert set(re.findall(r'href="#([^"]+)"', text)) <= set(parser.ids)


@pytest.mark.slow
def test_the_page_of_a_comparison_escapes_every_name_and_has_figure_numbers_and_recipe(comparison):
    result = report(comparison, "html")
    require_sound(result.text)
    assert result.text.count("&lt;script&gt;") >= 4
    for words in ("Expected numbers beside ours", "<svg", "The numbers of the figure", "wpriv compare recipe.yaml"):
        assert words in result.text
    # a figure has the ground and the ink of the page, which are those of the reader's light or dark scheme
    pictures = re.findall("<svg.*?</svg>", result.text, re.S)
    assert pictures
    assert all("var(--paper)" in each and not re.search("#ffffff|#000000", each) for each in pictures)
    assert result.data["kind"] == "comparison"


@pytest.mark.slow
def test_the_page_of_a_training_has_statement_guarantee_reading_and_measurements(training):
    text = report(training, "html").text
    require_sound(text)
    statement = json.loads((training / storage.STATEMENT).read_text())
    for words in ("how to read it", "Do not publish this page", "Trust model", "certified by pld", "<svg"):
        assert words in text
    for line in statement["not_covered"]:
        assert line.replace("&", "&amp;").replace("'", "&#39;") in text


@pytest.mark.slow
@pytest.mark.parametrize("name", [storage.EXPECT, storage.PROVENANCE])
@pytest.mark.parametrize(
    "damage", ["", "{", "[]", "\0", '{"expect": [{"ok": true}], "claims": [{}]}', '{"expect": 3, "claims": 3}']
)
def test_the_page_says_which_file_is_damaged(comparison, tmp_path, monkeypatch, name, damage):
    monkeypatch.setattr(folder_page, "figures", lambda *_: "")
    for kept in (storage.TABLE, storage.RECIPE, storage.EXPECT, storage.PROVENANCE):
        (tmp_path / kept).write_bytes((comparison / kept).read_bytes())
    (tmp_path / name).write_text(damage)
    text = report(tmp_path, "html").text
    require_sound(text)
    assert len(re.findall(rf'class="missing">[^<]*{name} is damaged', text)) == 1
    assert "How to make it again" in text


@pytest.mark.slow
@pytest.mark.skipif(browser() is None, reason="no browser")
def test_a_browser_opens_the_page_without_an_error_and_runs_nothing(comparison, tmp_path):
    page = tmp_path / "page.html"
    page.write_text(report(comparison, "html").text, encoding="utf-8")
    content, lines = console(page, tmp_path / "profile")
    assert lines == []
    assert "<title>out: wpriv</title>" in content or "taken" not in re.findall("<title>(.*?)</title>", content)[0]
    assert "</svg>" in content


@pytest.mark.slow
@pytest.mark.skipif(browser() is None, reason="no browser")
def test_the_browser_of_these_tests_does_report_errors(tmp_path):
    page = tmp_path / "bad.html"
    page.write_text("<script>undefinedFunction()</script>")
    assert console(page, tmp_path / "profile")[1]


def test_an_audit_has_a_page_and_no_other_report(tmp_path):
    answer = {
        "recipe": HOSTILE,
        "epsilon_at_least": 0.84,
        "confidence": 0.95,
        "delta": 1e-5,
        "certified": {"claim": "certified", "accountant": "pld", "epsilon": 3.0},
        "verdict": "consistent",
        "gap": 2.16,
        "method": "one-run",
        "canaries": 100,
        "runs": 1,
        "adjacency": "add-remove",
        "source": "a test",
        "warnings": [HOSTILE],
    }
    (tmp_path / "audit.json").write_text(json.dumps(answer))
    row = "sums,100,80,0.84,2.9,3.0"
    (tmp_path / "audit.csv").write_text(
        f"statistic,guesses,correct,epsilon_at_least,certified_lower,certified_upper\n{row}\n"
    )
    result = report(tmp_path, "html")
    require_sound(result.text)
    assert "0.84 at delta = 1e-5, confidence 95%" in result.text
    with pytest.raises(Unsupported, match="--as html"):
        report(tmp_path)
    for damage, words in (("{}", "lacks an entry"), ("{", "is damaged"), ("[]", "is damaged")):
        (tmp_path / "audit.json").write_text(damage)
        with pytest.raises(UsageError, match=words):
            report(tmp_path, "html")


def reading_of(process, adjacency="add-remove", **more):
    """The lines of a statement on a process, of eps = 50 and delta = 0.5, which alone say nothing of an attacker."""
    row = {"notion": "approximate-dp", "claim": "certified", "accountant": "pld", "epsilon": 50.0, "delta": 0.5}
    share = {"value": 0.5, "records": 50, "times_records": 25.0, "meaning": ""}
    about = dict.fromkeys(("unit", "adjacency_means"), "") | {"adjacency": adjacency, "delta": share}
    lists = {key: [] for key in ("covered", "not_covered", "not_assessed")}
    source = Protection(**about, **lists, guarantees=[{**row, "process": process}], **more)
    return " ".join(explain.of_statement(source, source.guarantees[0]))


def test_the_reading_of_a_training_is_that_of_its_whole_privacy_curve():
    # oracle: mu-Gaussian DP (Dong, Roth, Su 2022): a right guess with probability Phi(mu / 2), and a true-positive rate
    # of Phi(Phi^-1(FPR) + mu)
    words = reading_of([{"mech": "gauss", "sigma": 2.0, "n": 4}])
    normal = NormalDist()
    assert f"at most {100 * normal.cdf(0.5):.2f}%" in words
    for fpr in (0.001, 0.01, 0.1):
        shown = float(re.search(rf"rate of {100 * fpr:g}% has a true-positive rate of at most ([0-9.]+)%", words)[1])
        exact = 100 * normal.cdf(normal.inv_cdf(fpr) + 1.0)
        assert exact <= shown <= exact * 1.001
    assert "certified by pld from the whole privacy curve" in words
    # two records of one person move the sum twice as far
    person = reading_of([{"mech": "gauss", "sigma": 4.0, "n": 4}], group=2)
    assert f"at most {100 * normal.cdf(0.5):.2f}%" in person


def test_the_reading_of_the_best_of_several_runs_is_that_of_its_pair_alone():
    tuning = {"repeats": {"kind": "geometric", "mean": 2.0}, "candidates": [{}], "chosen": {}}
    words = reading_of([{"mech": "gauss", "sigma": 2.0, "n": 4}], tuning=tuning)
    assert "at most 100%" in words
    assert "follow from this one pair of eps and delta" in words
    assert "follow from this one pair" in reading_of([{"mech": "no-such-mechanism"}])


@pytest.mark.slow
def test_the_page_of_a_training_has_the_figures_of_attacks_that_budget_prints(training):
    page = report(training, "html").text
    attack = wpriv.budget(history=training / storage.LEDGER, delta=1e-5, attack=True).extra["attack"]
    words = [float(number) for number in re.findall("of at most ([0-9.]+)%", page)]
    shares = [(1 + attack["advantage_upper"]) / 2, *(point["tpr_upper"] for point in attack["tpr_at_fpr"])]
    for shown, share in zip(words, shares, strict=False):
        assert 100 * share <= shown <= 100 * share * 1.001
