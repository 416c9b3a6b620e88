"""Comparisons: the numbers are the accountants' own, refusals are rows, finished cells are not computed twice."""

from __future__ import annotations

import math

import pytest
from scipy.special import ndtr

import wpriv
from wpriv.accounting.comparison import compare
from wpriv.errors import CheckFailed, Unsupported, UsageError
from wpriv.results import storage

GAUSS = {"mech": "gauss", "sigma": 2}
RECIPE = """\
kind: compare
source: "a test"
process: [{mech: gauss, sigma: 1}]
accountants: [gdp, pld]
sweep: {over: eps, values: [0, 1, 2]}
figure: delta-over-eps
expect:
  - {where: {eps: 1, accountant: gdp}, delta: 0.126936737, within: 1e-8, source: "Theorem 5, mpmath"}
quick: {sweep: {over: eps, values: [1]}}
"""


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r.yaml").write_text(RECIPE)
    return tmp_path / "r.yaml"


def test_rows_are_what_the_accountants_answer():
    rows = wpriv.compare(process=[GAUSS], accountants=["gdp"], sweep={"over": "n", "values": [1, 4]}, eps=0).rows
    # the total variation of two normal distributions a distance mu apart is 2 Phi(mu/2) - 1
    assert all(math.isclose(row["delta"], 2 * ndtr(math.sqrt(row["n"]) / 4) - 1, rel_tol=1e-12) for row in rows)
    assert [row["n"] for row in rows] == [1, 4]


def test_a_refusal_is_a_row_with_its_reason():
    rows = wpriv.compare(process=[{"mech": "laplace", "scale": 1}], accountants=["gdp", "pld"], eps=0).rows
    assert "Gauss" in rows[0]["reason"]
    assert rows[0].get("delta") is None
    assert rows[1]["reason"] is None


def test_a_grid_without_any_answer_is_unsupported():
    with pytest.raises(Unsupported):
        wpriv.compare(process=[{"mech": "laplace", "scale": 1}], accountants=["gdp"], eps=0)


@pytest.mark.parametrize(
    "keys", [{}, {"recipe": "x", "eps": 1}, {"proces": []}, {"process": [GAUSS]}, {"process": GAUSS}]
)
def test_what_is_neither_a_recipe_nor_the_keys_of_one_is_refused(keys):
    with pytest.raises(UsageError):
        wpriv.compare(**keys)


def test_a_recipe_leaves_table_figure_resolved_recipe_and_provenance(recipe):
    done = wpriv.compare(recipe)
    assert done.out.as_posix() == "results/r"
    assert {path.name for path in done.files} == {
        *("table.csv", "figure.png", "recipe.yaml", "provenance.json", "expect.json"),
    }
    assert all(path.stat().st_size > 0 for path in done.files)
    done.require()


@pytest.mark.slow
def test_a_second_run_computes_nothing_and_gives_the_same_table(recipe, monkeypatch):
    first = wpriv.compare(recipe)
    table = (first.out / storage.TABLE).read_text()
    monkeypatch.setattr(compare, "compute", lambda *_: pytest.fail("a finished cell was computed again"))
    second = wpriv.compare(recipe)
    assert (second.reused, (second.out / storage.TABLE).read_text()) == (6, table)


def test_an_interrupted_run_goes_on_where_it_stopped(recipe, monkeypatch):
    own, asked = compare.compute, []

    def stops(cell, curves):
        asked.append(cell.labels)
        if len(asked) == 3:
            raise KeyboardInterrupt
        return own(cell, curves)

    monkeypatch.setattr(compare, "compute", stops)
    with pytest.raises(KeyboardInterrupt):
        wpriv.compare(recipe)
    monkeypatch.setattr(compare, "compute", own)
    assert wpriv.compare(recipe).reused == 2


@pytest.mark.slow
def test_fresh_forgets_finished_cells(recipe):
    wpriv.compare(recipe)
    assert wpriv.compare(recipe, fresh=True).reused == 0


@pytest.mark.parametrize("name", ["ledger.jsonl", "model.pt", "statement.json"])
def test_fresh_replaces_no_results_of_a_training(recipe, tmp_path, name):
    wpriv.compare(recipe, out=tmp_path / "out")
    (tmp_path / "out" / name).touch()
    for fresh in (True, False):
        with pytest.raises(UsageError, match="a training"):
            wpriv.compare(recipe, out=tmp_path / "out", fresh=fresh)


def test_a_changed_recipe_is_refused_its_old_directory(recipe):
    wpriv.compare(recipe)
    recipe.write_text(RECIPE.replace("sigma: 1", "sigma: 2"))
    with pytest.raises(UsageError, match=r"`out`.*`fresh=True`"):
        wpriv.compare(recipe)


@pytest.mark.slow
def test_a_quick_run_has_a_directory_and_a_table_of_its_own(recipe):
    quick = wpriv.compare(recipe, quick=True)
    assert quick.out.as_posix() == "results/r-quick"
    assert [row["epsilon"] for row in quick.rows] == [1, 1]
    assert len(quick.verdicts) == 1


@pytest.mark.slow
def test_a_missed_number_fails_the_check_after_everything_is_written(recipe):
    recipe.write_text(RECIPE.replace("0.126936737", "0.1269"))
    done = wpriv.compare(recipe)
    assert (done.out / storage.TABLE).is_file()
    with pytest.raises(CheckFailed, match=r"0\.1269 .*1e-08.* 0\.126937"):
        done.require()


@pytest.mark.slow
def test_no_answer_is_ever_nan_or_negative():
    rows = wpriv.compare(
        process=[GAUSS], accountants=["all"], sweep={"over": "delta", "values": [0.4, 1e-5, 1e-100]}
    ).rows
    numbers = [
        row[k] for row in rows for k in ("epsilon", "delta", "epsilon_lower", "epsilon_upper") if row.get(k) is not None
    ]
    assert len(numbers) > 30
    assert all(number >= 0 and math.isfinite(number) for number in numbers)


def test_pld_is_the_accountant_where_none_is_named():
    done = wpriv.compare(process=[{"mech": "gauss", "sigma": 4}], delta=1e-5)
    assert [row["accountant"] for row in done.rows] == ["pld"]


@pytest.mark.parametrize(
    ("mech", "keys"),
    [
        ("gauss", {"sigma": 4, "n": 10, "sampling": "poisson", "rate": 0.1}),
        ("dpsgd", {"noise_multiplier": 4, "steps": 10, "sample_rate": 0.1}),
        ("gauss sigma=4 n=10 poisson 0.1", {}),
        ("gauss sigma=4 poisson 0.1", {"n": 10}),
        (wpriv.Gauss(4), {"n": 10, "sampling": wpriv.Poisson(0.1)}),
        (wpriv.Process((wpriv.Step(wpriv.Gauss(4), 10, wpriv.Poisson(0.1)),)), {}),
    ],
    ids=["name", "synonyms", "words", "words and keys", "object", "process"],
)
def test_keywords_of_budget_describe_a_process_too(mech, keys):
    known = wpriv.budget("gauss", sigma=4, n=10, sampling="poisson", rate=0.1, delta=1e-5, tol=1e-3)
    rows = wpriv.compare(mech, **keys, delta=1e-5, accountant=["pld", "rdp"]).rows
    assert [row["accountant"] for row in rows] == ["pld", "rdp"]
    assert rows[0]["epsilon"] == known.epsilon.safe


def test_keywords_of_budget_are_swept_over_and_refused_where_they_are_wrong():
    swept = wpriv.compare("gauss", sigma=4, delta=1e-5, sweep={"over": "n", "values": [1, 2]}).rows
    assert [row["n"] for row in swept] == [1, 2]
    for keys in ({"sgima": 4}, {"sigma": 4, "process": "gauss sigma=4"}):
        with pytest.raises(UsageError, match=r"did you mean 'sigma'|give one of them"):
            wpriv.compare(mech="gauss", delta=1e-5, **keys)
    with pytest.raises(UsageError, match="either a recipe, or its keys"):
        wpriv.compare("plc/fig7-dpsgd", eps=3)
