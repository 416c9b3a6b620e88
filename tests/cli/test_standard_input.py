"""- is standard input for recipes, histories, claims and certificates; a history may be a results folder."""

from __future__ import annotations

import io
import json
import sys

import pytest

from tests.command_line import call

RECIPE = 'kind: budget\nsource: "a plan"\nprocess: [{mech: gauss, sigma: 4, n: 10}]\ndelta: 1e-5\n'
GRID = (
    'kind: compare\nsource: "a grid"\nprocess: [{mech: gauss, sigma: 4}]\ndelta: 1e-5\n'
    "sweep: {over: n, values: [1, 16]}\naccountants: [pld, rdp]\n"
)
CLAIMS = (
    'kind: verify\nsource: "claims of nobody"\npublished:\n'
    '  - {name: "holds", claim: "eps=5,delta=1e-5", process: [{mech: gauss, sigma: 4}], source: "a test"}\n'
)
FLAGS = "--mech gauss --sigma 4 --n 10 --delta 1e-5"
WORDS = "gauss sigma=4 n=10"


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def piped(monkeypatch, capsys):
    """A function that runs a command with a text on standard input."""

    def run(text, line):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        return call(capsys, line)

    return run


def test_a_recipe_from_standard_input_answers_as_its_file_does(piped, tmp_path):
    (tmp_path / "plan.yaml").write_text(RECIPE)
    code, out, _ = piped(RECIPE, "budget -")
    assert (code, out) == piped("", "budget plan.yaml")[:2]
    assert code == 0


def test_a_grid_from_standard_input_takes_its_folder_from_the_name_stdin(piped, tmp_path):
    code, out, _ = piped(GRID, "compare -")
    assert code == 0
    assert (tmp_path / "results" / "stdin" / "table.csv").is_file()
    assert "rdp" in out


def test_files_that_a_recipe_names_lie_beside_where_it_is_run(piped, tmp_path):
    (tmp_path / "pair.csv").write_text("outcome,p,q\n0,0.5,0.4\n1,0.5,0.6\n")
    recipe = RECIPE.replace("mech: gauss, sigma: 4", "mech: histogram, file: pair.csv").replace("n: 10", "n: 2")
    assert piped(recipe, "budget -")[0] == 0


@pytest.mark.slow
def test_a_training_is_planned_from_standard_input(piped):
    recipe = (
        "kind: train\nsource: s\ntask: classify\ndata: {name: digits, limit: 200}\nmodel: {name: logistic}\n"
        "privacy: {eps: 3, delta: 1e-5, clip: 1}\noptimizer: {name: sgd, lr: 0.5}\nbatch: 50\nsteps: 3\n"
    )
    code, out, _ = piped(recipe, "train - --dry-run")
    assert code == 0
    assert out.startswith("stdin: 3 steps")


@pytest.mark.parametrize("verb", ["budget -", "recipe check -", "recipe show -"])
def test_a_fault_has_its_line_and_column(piped, verb):
    code, out, err = piped(RECIPE.replace("sigma", "sigm"), verb)
    assert (code, out) == (2, "")
    assert err.startswith("wpriv: <stdin>:3:25: unknown key 'sigm'; did you mean 'sigma'?")


def test_a_history_from_standard_input_answers_as_its_file_does(piped, tmp_path):
    history = '[{"mech": "gauss", "sigma": 4, "n": 10}, [4, 0.01, 1000]]'
    (tmp_path / "history.json").write_text(history)
    asked = "--delta 1e-5 --accountant rdp"
    printed = piped(history, f"budget --history - {asked}")
    assert printed[0] == 0
    assert printed[1] == piped("", f"budget --history history.json {asked}")[1].replace("history.json", "<stdin>")
    code, _, err = piped(history[:-1], f"budget --history - {asked}")
    assert code == 2
    assert err.startswith("wpriv: --history <stdin>: not a JSON file of steps")


@pytest.mark.parametrize(
    "text", [RECIPE, WORDS, json.dumps({"process": [{"mech": "gauss", "sigma": 4, "n": 10}]})], ids=str.split
)
def test_a_claim_is_decided_about_a_process_from_standard_input(piped, text):
    known = piped("", f"verify --claim eps=4,delta=1e-5 '{WORDS}'")
    assert known[0] == 0
    assert piped(text, "verify --claim eps=4,delta=1e-5 -") == known


def test_a_claim_may_itself_be_standard_input(piped):
    known = piped("", f"verify --claim eps=4,delta=1e-5 '{WORDS}'")
    assert piped("eps=4,delta=1e-5\n", f"verify --claim - '{WORDS}'") == known
    code, _, err = piped("eps=four", f"verify --claim - '{WORDS}'")
    assert code == 2
    assert "eps" in err


def test_an_order_takes_one_of_its_processes_from_standard_input(piped):
    assert (
        piped("gauss sigma=1", 'compare --order - "laplace scale=1"')[:2]
        == piped("", 'compare --order "gauss sigma=1" "laplace scale=1"')[:2]
    )


def test_claims_of_a_recipe_from_standard_input_are_decided(piped):
    code, out, _ = piped(CLAIMS, "verify -")
    assert code == 0
    assert "proved" in out
    code, _, err = piped(CLAIMS.replace("eps=5", "eps=0.1"), "verify -")
    assert code == 1
    assert err.startswith("wpriv: <stdin>: refuted: holds")


def test_a_certificate_from_standard_input_is_proved_and_a_false_one_is_not(piped, tmp_path):
    pytest.importorskip("flint")
    assert piped("", "budget --mech laplace --scale 20 --n 10 --eps 0.2 --certificate c.json --quiet")[0] == 0
    text = (tmp_path / "c.json").read_text()
    code, out, _ = piped(text, "verify -")
    assert code == 0
    assert out.startswith("proved: delta in [")
    false = json.dumps({**json.loads(text), "delta_upper": 0.001, "delta_lower": 0.0})
    code, _, err = piped(false, "verify -")
    assert code == 1
    assert err.startswith("wpriv: <stdin>: ")


def test_a_guarantee_of_one_command_is_verified_by_the_next(piped):
    pytest.importorskip("flint")
    _, guarantee, _ = piped("", f"budget {FLAGS} --json")
    assert piped(guarantee, "verify -")[0] == 0


def test_a_closed_standard_input_is_said(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", None)
    code, out, err = call(capsys, "budget -")
    assert (code, out) == (4, "")
    assert "standard input" in err


def test_a_file_called_dash_is_named_by_its_folder(piped, tmp_path):
    (tmp_path / "-").write_text('[{"mech": "gauss", "sigma": 4, "n": 10}]')
    code, out, _ = piped("nothing", "budget --history ./- --delta 1e-5 --quiet")
    assert (code, out) == piped("", f"budget {FLAGS} --quiet")[:2]


@pytest.mark.slow
def test_a_results_folder_is_the_history_of_its_ledger(piped, tmp_path):
    assert piped("", "train quick/digits --quick --out run --set expect=[] --set epochs=1")[0] == 0
    asked = "--delta 1e-5 --accountant rdp --quiet"
    for verb in ("budget", "calibrate --mech gauss --eps 5"):
        whole = piped("", f"{verb} --history run {asked}")
        assert whole[0] == 0
        assert whole == piped("", f"{verb} --history run/ledger.jsonl {asked}")


def test_a_folder_without_a_ledger_is_no_history(piped, tmp_path):
    (tmp_path / "empty").mkdir()
    code, out, err = piped("", "budget --history empty --delta 1e-5")
    assert (code, out) == (4, "")
    assert "the folder has no ledger.jsonl" in err


def test_a_guarantee_or_a_process_from_standard_input_is_explained(piped, tmp_path):
    assert piped("eps=3,delta=1e-5\n", "explain -") == piped("", "explain eps=3,delta=1e-5")
    known = piped("", f"explain {WORDS} --delta 1e-6")
    assert known[0] == 0
    for text in (WORDS, RECIPE):
        assert piped(text, "explain - --delta 1e-6") == known
    # a guarantee has its delta
    _, guarantee, _ = piped("", f"budget {FLAGS.replace('1e-5', '1e-6')} --json")
    assert piped(guarantee, "explain -") == known
    assert piped("", "explain -")[0] == 2
