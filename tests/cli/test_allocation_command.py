"""Random allocation on the command line: answers, mixes, sweeps, and what a refusal names."""

from __future__ import annotations

import itertools
import json
import shlex

import pytest

from wpriv.cli.main import main

STEP = "--mech gauss --sigma 1 --sampling allocation"


def answer(capsys, line):
    assert main([*shlex.split(line), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_epochs_are_passes_also_at_a_rate_of_few_digits(capsys):
    row = answer(capsys, f"budget {STEP} --rate 0.0042735 --epochs 3 --delta 1e-5")
    assert row["process"][0]["n"] == 3 * 234
    assert row["process"][0]["rate"] == pytest.approx(1 / 234)
    assert 0 < row["epsilon_lower"] <= row["epsilon_upper"]


def test_an_answer_carries_its_adjacency_its_claim_and_bounds_on_attacks(capsys):
    row = answer(capsys, f"budget {STEP} --rate 0.1 --epochs 1 --delta 1e-5")
    assert (row["claim"], row["adjacency"], row["accountant"]) == ("certified", "add-remove", "pld")
    assert 0 < row["attack"]["advantage_lower"] <= row["attack"]["advantage_upper"] < 1


def test_a_curve_falls(capsys):
    assert main(shlex.split(f"budget {STEP} --rate 0.1 --epochs 1 --curve --csv")) == 0
    lines = capsys.readouterr().out.splitlines()
    column = lines[0].split(",").index("delta")
    deltas = [float(line.split(",")[column]) for line in lines[1:]]
    assert len(deltas) > 5
    assert all(later < earlier for earlier, later in itertools.pairwise(deltas))


def test_an_explanation_says_what_is_assumed_and_shows_no_class_of_the_loss(capsys):
    assert main(shlex.split(f"budget {STEP} --rate 0.1 --epochs 1 --delta 1e-5 --explain")) == 0
    out = capsys.readouterr().out
    assert "each pass of 1 / rate steps" in out
    assert "privacy loss class" not in out


def test_a_history_mixes_allocation_with_other_steps(capsys, tmp_path):
    history = tmp_path / "history.json"
    steps = [
        {"mech": "gauss", "sigma": 1, "sampling": "allocation", "rate": 0.1, "n": 10},
        {"mech": "gauss", "sigma": 2, "sampling": "poisson", "rate": 0.1, "n": 10},
        {"mech": "laplace", "scale": 20},
    ]
    history.write_text(json.dumps(steps))
    mixed = answer(capsys, f"budget --history {history} --delta 1e-5")
    alone = answer(capsys, f"budget {STEP} --rate 0.1 --epochs 1 --delta 1e-5")
    assert mixed["epsilon_lower"] > alone["epsilon_upper"]


def test_why_puts_allocation_between_other_interpretations(capsys):
    assert main(shlex.split("compare --mech gauss --sigma 1 --rate 0.1 --n 10 --delta 1e-5 --why --json")) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    readings = [row for row in rows if row["adjacency"] == "add-remove" and "sampler" not in row["assumption"]]
    found = {(row["sampling"], row["accountant"]): row for row in readings if not row["reason"]}
    allocation, poisson = found["allocation", "pld"], found["poisson", "pld"]
    assert allocation["epsilon"] < poisson["epsilon"]
    # where the number of steps is no whole number of passes, the interpretation does not exist
    assert main(shlex.split("compare --mech gauss --sigma 1 --rate 0.1 --n 5 --delta 1e-5 --why --json")) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert "allocation" not in {row["sampling"] for row in rows}


def test_a_recipe_sweeps_sigma(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    recipe = tmp_path / "sweep.yaml"
    recipe.write_text(
        "kind: compare\nsource: test\nprocess: [{mech: gauss, sampling: allocation, rate: 0.1, n: 20}]\n"
        "accountants: [pld, rdp]\ndelta: 1e-5\nsweep: {over: sigma, values: [0.5, 1, 2]}\n"
    )
    assert main(["compare", str(recipe), "--json"]) == 0
    rows = [row for row in json.loads(capsys.readouterr().out)["rows"] if row["accountant"] == "pld"]
    values = [row["epsilon"] for row in sorted(rows, key=lambda row: row["sigma"])]
    assert len(values) == 3
    assert values == sorted(values, reverse=True)


@pytest.mark.slow
def test_calibrate_finds_noise_and_whole_passes(capsys):
    sigma = answer(capsys, "calibrate --mech gauss --sampling allocation --rate 0.1 --epochs 2 --eps 2 --delta 1e-5")
    assert sigma["epsilon_upper"] <= 2
    n = answer(capsys, f"calibrate {STEP} --rate 0.1 --eps 4 --delta 1e-5")
    assert n["calibrated"]["value"] % 10 == 0


@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        (f"{STEP} --rate 0.3 --n 10", 2, ["0.3", "3.33333", "--sampling poisson"]),
        (f"{STEP} --rate 0.1 --n 15", 2, ["multiple of 10", "20", "15"]),
        (f"{STEP} --rate 0.1 --epochs 1.5", 2, ["multiple of 10", "15"]),
        (f"{STEP} --batch 256 --records 60000 --epochs 1", 2, ["234.375", "--sampling poisson"]),
        (f"{STEP} --rate 0.1 --n 10 --adjacency replace-one", 3, ["--adjacency add-remove", "replace-one"]),
        (f"{STEP} --rate 0.1 --n 10 --adaptive", 3, ["--adaptive", "allocation sampling", "pld"]),
        (f"{STEP} --rate 0.1 --n 10 --accountant rdp", 3, ["allocation sampling", "pld"]),
        (
            "--mech truncated-gauss --sigma 1 --param bound=5 --sampling allocation --rate 0.1 --n 10",
            3,
            ["allocation", "--sampling poisson"],
        ),
    ],
)
def test_a_refusal_names_the_value_and_what_to_ask_instead(capsys, flags, code, words):
    assert main(["budget", *shlex.split(flags), "--delta", "1e-5"]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert [word for word in words if word not in captured.err] == []
