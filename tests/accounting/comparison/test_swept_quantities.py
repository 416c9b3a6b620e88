"""Sweeps over quantities for which 1 is no value, over words, and the unknown in the rows of JSON."""

from __future__ import annotations

import json

import pytest

import wpriv
from wpriv.cli.main import main


def table(capsys, line: str) -> list[dict]:
    assert main(f"compare {line} --json".split()) == 0
    return json.loads(capsys.readouterr().out)["rows"]


@pytest.mark.parametrize(
    ("mech", "given", "name", "values"),
    [
        ("projection", {"sigma": 2, "k": 5}, "d", [10, 50]),
        ("projection", {"sigma": 2, "d": 50}, "k", [5, 20]),
        ("dp", {"eps0": 1}, "delta0", [1e-7, 1e-5]),
        ("uniform", {"sensitivity": 30}, "outcomes", [40, 1000]),
        ("gauss-threshold", {"sigma": 2, "threshold": 9}, "keys", [2, 3]),
    ],
)
def test_a_parameter_for_which_1_is_no_value_can_be_swept(capsys, mech, given, name, values):
    flags = " ".join(f"--{k} {v}" if k in ("sigma", "sensitivity") else f"--param {k}={v}" for k, v in given.items())
    points = ",".join(map(str, values))
    rows = table(capsys, f"--mech {mech} {flags} --eps 0.2 --sweep {name}={points} --accountant pld")
    for value, row in zip(values, rows, strict=True):
        alone = wpriv.budget(mech, **given, **{name: value}, eps=0.2)
        assert row[name] == value
        assert row["delta_lower"] <= alone.delta.safe * (1 + 1e-9)
        assert alone.delta.lower <= row["delta"] * (1 + 1e-9)


def test_a_recipe_may_leave_such_a_parameter_to_its_sweep():
    result = wpriv.compare(
        process=[{"mech": "projection", "sigma": 2, "k": 5}], accountants=["pld"], delta=1e-5,
        sweep={"over": "d", "values": [10, 50]},
    )  # fmt: skip
    assert [row["d"] for row in result.rows] == [10, 50]


SAMPLED = "--mech gauss --sigma 4 --sampling poisson --rate 0.01 --n 100 --delta 1e-6"


def test_bands_can_be_swept(capsys):
    rows = table(capsys, f"{SAMPLED} --sweep bands=1,2,4 --accountant pld")
    for bands, row in zip((1, 2, 4), rows, strict=True):
        alone = wpriv.budget("gauss", sigma=4, sampling="poisson", rate=0.01, n=100, delta=1e-6, bands=bands)
        assert row["bands"] == bands
        assert row["epsilon"] == pytest.approx(alone.epsilon.safe, rel=2e-3)


@pytest.mark.parametrize(
    ("line", "names"),
    [
        (f"{SAMPLED} --sweep adjacency=add-remove,replace-one --accountant pld", ["add-remove", "replace-one"]),
        ("--mech gauss --sigma 4 --rate 0.01 --n 9 --delta 1e-6 --sweep sampling=poisson,fixed --accountant pld",
         ["poisson", "fixed"]),
        ("--sigma 4 --scale 3 --n 9 --delta 1e-6 --sweep mech=gauss,laplace --accountant pld", ["gauss", "laplace"]),
    ],
)  # fmt: skip
def test_words_can_be_swept(capsys, line, names):
    rows = table(capsys, line)
    assert [row["panel"] for row in rows] == names
    assert len({row["epsilon"] for row in rows}) == len(names)


def test_a_sweep_over_accountants_is_a_list_of_them(capsys):
    rows = table(capsys, f"{SAMPLED} --sweep accountant=pld,rdp")
    assert [row["accountant"] for row in rows] == ["pld", "rdp"]


@pytest.mark.parametrize(
    ("sweep", "words"),
    [("sampling=poison", "poison"), ("adjacency=add-remov", "add-remov"), ("mech=gaus", "gaus"), ("foo=bar", "number")],
)
def test_a_word_that_does_not_exist_is_refused(capsys, sweep, words):
    mech = "" if sweep.startswith("mech") else "--mech gauss"
    assert main(f"compare {mech} --sigma 4 --delta 1e-6 --sweep {sweep}".split()) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(("question", "asked"), [("--delta 1e-6", "eps"), ("--eps 1", "delta")])
def test_rows_of_json_name_the_unknown(capsys, question, asked):
    rows = table(capsys, f"--mech gauss --sigma 4 --n 9 {question} --accountant pld --accountant bdp")
    assert {row["asked"] for row in rows} == {asked}
    assert main(f"budget --mech gauss --sigma 4 --n 9 {question} --json".split()) == 0
    assert json.loads(capsys.readouterr().out)["asked"] == asked
