"""Tests of hints for words of other programs and papers, of names in any case, and of repeated flags."""

from __future__ import annotations

import json

import pytest

from wpriv.cli.main import main
from wpriv.hints import ALIASES, did_you_mean

GAUSS = "budget --mech gauss --sigma 1 --delta 1e-5"


@pytest.mark.parametrize(
    ("flag", "meant"),
    [
        ("--noise-multiplier", "--sigma"),
        ("--noise_multiplier", "--sigma"),
        ("--steps", "--n"),
        ("--iterations", "--n"),
        ("--q", "--rate"),
        ("--sample-rate", "--rate"),
        ("--lot-size", "--batch"),
        ("--batch-size", "--batch"),
        ("--dataset-size", "--records"),
        ("--rho", "--sigma"),
        ("--epsilon", "--eps"),
        ("--SIGMA", "--sigma"),
        ("--simga", "--sigma"),
        ("--max-grad-norm", "--sensitivity"),
    ],
)
def test_a_flag_of_other_programs_leads_to_the_one_here(capsys, flag, meant):
    assert main(["budget", "--mech", "gauss", flag, "1", "--delta", "1e-5"]) == 2
    assert f"did you mean '{meant}'" in capsys.readouterr().err


def test_a_hint_says_how_the_quantities_are_related(capsys):
    for flag, relation in (
        ("--noise-multiplier", "sigma / sensitivity"),
        ("--rho", "sqrt(2 rho)"),
        ("--mu", "sensitivity / mu"),
    ):
        assert main(["budget", "--mech", "gauss", flag, "1"]) == 2
        assert relation in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("--mech mu-gdp", "'gdp'"),
        ("--mech rho-zcdp", "'zcdp'"),
        ("--mech renyi", "'rdp-curve'"),
        ("--mech gaussian", "'gauss'"),
        ("--mech rr", "'randomized-response'"),
        ("--mech pld", "--accountant pld"),
        ("--mech gauss --sigma 1 --accountant laplace", "--mech laplace"),
        ("--mech gauss --sigma 1 --accountant prv", "'pld'"),
        ("--mech gauss --sigma 1 --accountant moments-accountant", "'moments'"),
    ],
)
def test_a_name_of_other_programs_leads_to_the_one_here(capsys, words, hint):
    assert main(["budget", *words.split(), "--delta", "1e-5"]) == 2
    assert hint in capsys.readouterr().err


def test_a_key_of_other_programs_in_a_recipe_leads_to_the_one_here(tmp_path, capsys):
    recipe = tmp_path / "r.yaml"
    for key, meant in (
        ("noise_multiplier: 1", "sigma"),
        ("steps: 9", "n"),
        ("q: 0.1", "rate"),
        ("batch_size: 9", "batch"),
    ):
        recipe.write_text(f"kind: budget\nprocess: [{{mech: gauss, sigma: 1, {key}}}]\ndelta: 1e-5\n")
        assert main(["budget", str(recipe)]) == 2
        assert f"did you mean '{meant}'" in capsys.readouterr().err


def test_every_alias_names_something_and_none_stands_for_itself():
    assert len(ALIASES) > 100
    for word, (targets, _) in ALIASES.items():
        assert targets
        assert word not in targets
        assert repr(targets[0]) in did_you_mean(word, list(targets))


@pytest.mark.parametrize("mech", ["GAUSS", "Gauss"])
@pytest.mark.parametrize("adjacency", ["add_remove", "Add-Remove"])
def test_names_in_flags_are_accepted_in_any_case(capsys, mech, adjacency):
    line = "budget --mech {} --sigma 1 --sampling {} --rate 0.1 --accountant {} --adjacency {} --delta 1e-5 --json"
    assert main(line.format("gauss", "poisson", "rdp", "add-remove").split()) == 0
    plain = json.loads(capsys.readouterr().out)
    assert main(line.format(mech, "Poisson", "RDP", adjacency).split()) == 0
    assert json.loads(capsys.readouterr().out) == plain


@pytest.mark.parametrize(
    ("line", "flag"),
    [
        (f"{GAUSS} --sigma 2", "--sigma"),
        (f"{GAUSS} --sigma 1", "--sigma"),
        (f"{GAUSS} --max-eps 1 --max-eps 9", "--max-eps"),
        ("calibrate --mech gauss --eps 1 --eps 2 --delta 1e-5", "--eps"),
        ("train quick/digits --out a --out b", "--out"),
        ("data show mnist --data-root a --data-root b", "--data-root"),
    ],
)
def test_a_flag_that_is_given_twice_is_refused(capsys, line, flag):
    assert main(line.split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert flag in err
    assert "twice" in err


def test_flags_that_may_be_repeated_still_may(capsys):
    assert main(f"{GAUSS} --accountant pld --accountant rdp --json".split()) == 0
    assert len(json.loads(capsys.readouterr().out)["rows"]) == 2


@pytest.mark.parametrize(
    ("steps", "entry"),
    [
        ([[1.0, 0.01, 100], [1.0, 0.01, 100], [-1, 0.01, 5]], 3),
        ([{"mech": "gauss", "sigma": 1}, {"mech": "gaus", "sigma": 1}], 2),
        ([{"mech": "gauss", "sigma": 1, "sampling": "poisson", "rate": 1.5}], 1),
        ([[1, 0.1, 5], [2, 0.1, 2**41]], 2),
        ([[1, 0.1, 5], [1, 0, 5]], 2),
    ],
)
def test_an_error_in_a_history_names_file_and_entry(tmp_path, capsys, steps, entry):
    file = tmp_path / "steps.json"
    file.write_text(json.dumps(steps))
    assert main(["budget", "--history", str(file), "--delta", "1e-5"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert f"{file}, entry {entry}:" in err


@pytest.mark.parametrize("adjacency", [[], ["--adjacency", "add-remove"]])
def test_samplings_that_no_relation_covers_together_are_refused_by_their_names(tmp_path, capsys, adjacency):
    file = tmp_path / "steps.json"
    step = {"mech": "gauss", "sigma": 1, "rate": 0.1}
    file.write_text(json.dumps([{**step, "sampling": "poisson"}, {**step, "sampling": "fixed"}]))
    assert main(["budget", "--history", str(file), "--delta", "1e-5", *adjacency]) == 3
    err = capsys.readouterr().err
    assert "poisson" in err
    assert "fixed" in err
    assert "found adjacency" not in err
    assert main(["budget", "--history", str(file), "--delta", "1e-5", "--adjacency", "replace-one"]) == 0
    assert "half the sensitivity" in capsys.readouterr().out
