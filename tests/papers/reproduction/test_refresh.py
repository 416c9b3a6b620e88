"""Refreshing own numbers: they change with their commit, and nothing else in the file does."""

from __future__ import annotations

import pytest

from tests.oracles import gauss_delta
from wpriv.cli.main import main
from wpriv.config import yaml_document
from wpriv.config.recipe_files import shipped
from wpriv.errors import UsageError
from wpriv.papers.reproduction import refresh
from wpriv.results import storage

RECIPE = """\
# a comment at the top
kind: compare   # own numbers below are wrong on purpose
source: "a test"
process: [{mech: gauss, sigma: 1}]
accountants: [pld]
sweep: {over: eps, values: [0.5, 1]}
expect:
  # the published number is wrong as well, and stays
  - {where: {eps: 0.5}, delta: 0.9, within: 0.1, held: false, kind: published, source: "Table 1, own: 7"}
  - {where: {eps: 1}, delta: 0.9, within: 1e-3, held: false, kind: reference, source: "kind: own"}
  - {where: {eps: 0.5},   delta: 0.5,  within: 1e-3, kind: own, source: "this, {program}"}   # 0.5
  - where: {eps: 1}
    delta: 0.5  # wrong
    kind: own
    within: 1e-3
    source: "kind: own, delta: 0.5"
"""


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(storage, "commit", lambda folder=".": "0123456789abcdef")
    path = tmp_path / "toy.yaml"
    path.write_text(RECIPE)
    return path


def test_only_own_numbers_and_their_commits_change_in_the_file(recipe, capsys):
    assert main(["recipe", "refresh", str(recipe)]) == 0
    printed = capsys.readouterr()
    # delta of one Gauss release of sigma 1, closed form of Balle and Wang 2018
    half, one = (row["delta"] for row in yaml_document.read(recipe).data["expect"][2:])
    assert half == pytest.approx(gauss_delta(0.5, 1.0), rel=2e-5)
    assert one == pytest.approx(gauss_delta(1.0, 1.0), rel=2e-5)
    wanted = RECIPE.replace(
        "delta: 0.5,  within: 1e-3, kind: own,", f'delta: {half},  within: 1e-3, kind: own, commit: "0123456789ab",'
    ).replace(
        "delta: 0.5  # wrong\n    kind: own\n", f'delta: {one}  # wrong\n    kind: own\n    commit: "0123456789ab"\n'
    )
    assert recipe.read_text() == wanted
    assert "changed beyond the tolerance" in printed.out
    assert "0.9" not in printed.out
    # a second time nothing changes
    assert main(["recipe", "refresh", str(recipe)]) == 0
    assert recipe.read_text() == wanted
    assert "as before" in capsys.readouterr().out


def test_a_later_commit_takes_the_place_of_the_earlier_one(recipe, monkeypatch):
    refresh.refresh(str(recipe), recipe.parent / "out", "first")
    refresh.refresh(str(recipe), recipe.parent / "out", "second")
    numbers = [row for row in yaml_document.read(recipe).data["expect"] if row["kind"] == "own"]
    assert [row["commit"] for row in numbers] == ["second", "second"]


def test_a_number_without_an_answer_stays_and_the_exit_code_is_1(recipe, capsys):
    recipe.write_text(RECIPE.replace("- where: {eps: 1}\n    delta", "- where: {eps: 7}\n    delta"))
    assert main(["recipe", "refresh", str(recipe)]) == 1
    printed = capsys.readouterr()
    assert "no answer: kept" in printed.out
    assert "no answer for 1 own numbers" in printed.err
    row = yaml_document.read(recipe).data["expect"][-1]
    assert (row["delta"], row.get("commit")) == (0.5, None)


def test_changed_files_of_the_program_and_recipes_without_own_numbers_are_refused(recipe, capsys, monkeypatch):
    monkeypatch.setattr(storage, "commit", lambda folder=".": "0123456789abcdef+")
    assert main(["recipe", "refresh", str(recipe)]) == 2
    assert "Commit the changes first" in capsys.readouterr().err
    recipe.write_text(RECIPE.replace("kind: own", "kind: reference"))
    assert main(["recipe", "refresh", str(recipe)]) == 2
    assert "no expected numbers of kind own" in capsys.readouterr().err
    assert main(["recipe", "refresh", "no/such"]) == 2


@pytest.mark.parametrize(
    ("value", "written", "tolerance", "text"),
    [
        (6.4512345, "6.43", 0.3, "6.45"),
        (0.5, "0.5", 0.1, "0.5"),
        (8631.2, "8630", 0.9, "8631.2"),
        (123456.0, "1e5", 1e5, "123000"),
        (-0.01234, "0.5", 1e-3, "-0.01234"),
        (1.5e-9, "1e-9", 1e-8, "1.5e-09"),
    ],
)
def test_a_number_is_written_to_a_hundredth_of_its_tolerance_and_not_shorter_than_before(
    value, written, tolerance, text
):
    assert refresh._number(value, written, tolerance) == text


def test_all_means_every_shipped_recipe_with_own_numbers():
    names = refresh.selected("all")
    assert len(names) >= 20
    assert set(names) <= set(shipped())
    with pytest.raises(UsageError):
        refresh.selected("dpsgd/mnist")


def test_the_own_numbers_of_all_shipped_recipes_can_be_edited(monkeypatch):
    for name in refresh.selected("all"):
        path = shipped()[name]
        text = refresh._text(path)
        document = yaml_document.parse(text, str(path))
        verdict = None
        numbers = [refresh.Refreshed(each, 0.0, 1.25, verdict, "1.25") for each in refresh.own_numbers(document)]
        new = refresh.edited(text, refresh._edits(document, text, numbers, "abc", 1))
        after = yaml_document.parse(new, str(path))
        refresh._require_others_unchanged(document, after)
        assert all(after.at((*each.row, each.key)) == 1.25 for each in refresh.own_numbers(after)), name
        assert [line for line in new.splitlines() if line.startswith("#")] == [
            line for line in text.splitlines() if line.startswith("#")
        ]
