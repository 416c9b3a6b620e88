"""Tests of recipes of budget and calibrate: the same output as flags, and no flags beside a recipe."""

from __future__ import annotations

import json

import pytest

from wpriv.cli.main import main

pytestmark = pytest.mark.slow

BUDGET = (
    "kind: budget\n"
    "process: [{mech: gauss, sigma: 4, sampling: poisson, batch: 600, records: 60000, n: 1e3}]\n"
    "delta: 1e-4\n"
)
BUDGET_FLAGS = "--mech gauss --sigma 4 --sampling poisson --batch 600 --records 60000 --n 1000 --delta 1e-4"
CALIBRATE = "kind: calibrate\nprocess: [{mech: laplace, sensitivity: 2, n: 100}]\neps: 1\ndelta: 1e-5\ntol: 1e-3\n"
CALIBRATE_FLAGS = "--mech laplace --sensitivity 2 --n 100 --eps 1 --delta 1e-5 --tol 1e-3"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "b.yaml").write_text(BUDGET)
    (tmp_path / "c.yaml").write_text(CALIBRATE)
    return tmp_path


def printed(capsys, line: str) -> tuple[str, str]:
    assert main(line.split()) == 0
    return capsys.readouterr()


@pytest.mark.parametrize(
    "more",
    ["", "--json", "--csv", "--quiet", "--explain", "--json --explain", "--accountant pld", "--curve", "--max-eps 9"],
)
def test_a_budget_recipe_prints_what_its_flags_print(folder, capsys, more):
    if "--accountant" in more:
        (folder / "b.yaml").write_text(BUDGET + "accountants: [pld]\n")
        assert printed(capsys, "budget b.yaml") == printed(capsys, f"budget {BUDGET_FLAGS} {more}")
    elif more == "--curve":
        (folder / "b.yaml").write_text(BUDGET.replace("delta: 1e-4", "eps: 2") + "accountants: [rdp]\n")
        flags = BUDGET_FLAGS.replace("--delta 1e-4", "--eps 2") + " --accountant rdp"
        assert printed(capsys, "budget b.yaml --curve") == printed(capsys, f"budget {flags} --curve")
    else:
        assert printed(capsys, f"budget b.yaml {more}") == printed(capsys, f"budget {BUDGET_FLAGS} {more}")


@pytest.mark.parametrize("more", ["", "--json", "--csv", "--quiet", "--explain"])
def test_a_calibrate_recipe_prints_what_its_flags_print(folder, capsys, more):
    assert printed(capsys, f"calibrate c.yaml {more}") == printed(capsys, f"calibrate {CALIBRATE_FLAGS} {more}")


@pytest.mark.parametrize(
    ("step", "parameter"),
    [
        ("{mech: gauss, sampling: poisson, rate: 0.01, n: 100}", "sigma"),
        ("{mech: gauss, sigma: 4, sampling: poisson, rate: 0.01}", "n"),
        ("{mech: gauss, sigma: 4, sampling: poisson, n: 10000}", "rate"),
    ],
)
def test_a_calibrate_recipe_is_sound_and_solves_for_what_is_left_out(folder, capsys, step, parameter):
    (folder / "c.yaml").write_text(f"kind: calibrate\nprocess: [{step}]\neps: 1\ndelta: 1e-5\naccountants: [rdp]\n")
    assert "sound recipe of kind calibrate" in printed(capsys, "recipe check c.yaml")[0]
    found = json.loads(printed(capsys, "calibrate c.yaml --json")[0])
    assert found["calibrated"]["parameter"] == parameter
    assert found["accountant"] == "rdp"


def test_a_budget_recipe_may_have_several_steps_and_accountants(folder, capsys):
    steps = "[{mech: gauss, sigma: 2}, {mech: laplace, scale: 9, n: 10}]"
    (folder / "b.yaml").write_text(f"kind: budget\nprocess: {steps}\naccountants: [pld, rdp]\neps: 1\n")
    found = json.loads(printed(capsys, "budget b.yaml --json")[0])
    assert [row["accountant"] for row in found["rows"]] == ["pld", "rdp"]
    assert [step["mech"] for step in found["rows"][0]["process"]] == ["gauss", "laplace"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("budget b.yaml --n 3", ("b.yaml", "leave out --n")),
        ("budget b.yaml --history h.json", ("b.yaml", "leave out --history")),
        ("budget b.yaml --delta 1e-4", ("b.yaml", "leave out --delta")),
        ("budget b.yaml --param eps0=1", ("b.yaml", "leave out --param")),
        ("budget b.yaml --sampling none", ("b.yaml", "leave out --sampling")),
        ("calibrate c.yaml --accountant rdp", ("c.yaml", "leave out --accountant")),
        ("calibrate c.yaml --tol 1e-5", ("c.yaml", "leave out --tol")),
        ("budget c.yaml", ("of kind 'calibrate'", "`wpriv calibrate c.yaml`")),
        ("calibrate b.yaml", ("of kind 'budget'", "`wpriv budget b.yaml`")),
        ("compare b.yaml", ("of kind 'budget'", "`wpriv budget b.yaml`")),
        ("budget plc/fig7-dpsgd", ("of kind 'compare'", "`wpriv compare plc/fig7-dpsgd`")),
        ("budget two.yaml", ("two.yaml:1:1", "give either eps or delta")),
        ("calibrate all.yaml", ("all.yaml:5:14", "one accountant")),
        ("calibrate steps.yaml", ("steps.yaml:2:10", "one step; found 2")),
        ("calibrate full.yaml", ("full.yaml:2:11", "nothing is left to solve for")),
        ("calibrate bad.yaml", ("bad.yaml:2:11", "sensitivity must be greater than 0")),
        ("budget side.yaml", ("side.yaml:4:12", "no adjacency called 'sideways'", "replace-one")),
        ("budget tol.yaml", ("tol.yaml:4:6", "0.5; found 0.9")),
        ("budget none.yaml", ("none.yaml:2:10", "found []")),
        ("budget list.yaml", ("list.yaml:2:10", "must be a list")),
        ("budget nope", ("no recipe 'nope'", "wpriv recipe ls")),
        ("compare --mech gauss --sigma 1 --delta 1e-5 --why --accountant rdp", ("leave out --accountant",)),
        ("compare --mech gauss --sigma 1 --delta 1e-5 --why --out here", ("leave out --out",)),
    ],
)
def test_what_contradicts_a_recipe_is_a_usage_error_that_names_both(folder, capsys, line, words):
    (folder / "two.yaml").write_text(BUDGET + "eps: 1\n")
    (folder / "side.yaml").write_text(BUDGET + "adjacency: sideways\n")
    (folder / "tol.yaml").write_text(BUDGET + "tol: 0.9\n")
    (folder / "none.yaml").write_text("kind: budget\nprocess: []\ndelta: 1e-5\n")
    (folder / "list.yaml").write_text("kind: budget\nprocess: 3\ndelta: 1e-5\n")
    (folder / "all.yaml").write_text(
        "kind: calibrate\nprocess: [{mech: gauss}]\neps: 1\ndelta: 1e-5\naccountants: [all]\n"
    )
    (folder / "steps.yaml").write_text(
        "kind: calibrate\nprocess: [{mech: gauss}, {mech: gauss}]\neps: 1\ndelta: 1e-5\n"
    )
    (folder / "full.yaml").write_text(
        "kind: calibrate\nprocess: [{mech: gauss, sigma: 1, n: 3}]\neps: 1\ndelta: 1e-5\n"
    )
    (folder / "bad.yaml").write_text(
        "kind: calibrate\nprocess: [{mech: gauss, sensitivity: -1}]\neps: 1\ndelta: 1e-5\n"
    )
    assert main(line.split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "Traceback" not in err
    for word in words:
        assert word in err
