"""Pairs of flags: none is dropped, and each output says what the figure is about. Oracles: closed forms."""

from __future__ import annotations

import csv
import io
import json

import pytest

from tests.command_line import call
from wpriv import Gauss, Poisson, Step
from wpriv.accounting import ledger
from wpriv.config import recipe_files
from wpriv.errors import WRONG_PATH


@pytest.mark.parametrize("name", ["epochs", "records", "batch", "bands", "max-batch"])
def test_a_parameter_that_is_a_flag_is_refused(capsys, name):
    code, out, err = call(capsys, f"budget --mech gauss --sigma 4 --delta 1e-5 --param {name}=3")
    assert (code, out) == (2, "")
    assert f"use --{name}" in err


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("--sampling poisson --n 10", "--rate"),
        ("--sampling shuffle", "--rate"),
        ("--max-batch 5 --records 10", "--max-batch"),
        ("--bands 4", "--bands"),
    ],
)
def test_why_refuses_sampling_without_a_rate(capsys, flags, words):
    code, out, err = call(capsys, f"compare --why --mech gauss --sigma 4 --delta 1e-5 {flags}")
    assert (code, out) == (2, "")
    assert words in err


@pytest.mark.parametrize(
    ("flags", "bound"),
    [
        ("--mech laplace --scale 4 --group 3", "at most 0.75"),
        ("--mech laplace --scale 4 --sampling poisson --rate 0.1 --max-batch 5 --records 20", "at most 0.5"),
        ("--mech truncated-laplace --scale 4 --param bound=20", "at most 0.25 where it is finite"),
    ],
)
def test_the_largest_loss_of_a_release_is_that_of_all_that_moves(capsys, flags, bound):
    code, out, _ = call(capsys, f"budget {flags} --delta 0.1 --explain --tol 0.01")
    assert code == 0
    assert f"one release has a privacy loss of {bound} " in f"{' '.join(out.split())} "


def test_outputs_about_groups_say_so(capsys):
    _, out, _ = call(capsys, "budget --mech gauss --sigma 4 --group 3 --delta 1e-5 --csv")
    (row,) = csv.DictReader(io.StringIO(out))
    assert row["group"] == "3"
    _, out, _ = call(capsys, "compare --mech gauss --sigma 4 --group 3 --delta 1e-5 --accountant gdp")
    assert "group 3" in out
    _, out, _ = call(capsys, "budget --mech gauss --sigma 4 --group 3 --curve tradeoff --fpr 0.1 --json")
    assert {row["group"] for row in json.loads(out)["rows"]} == {3}


def test_a_guarantee_has_all_that_its_process_needs(capsys, tmp_path):
    flags = "--mech gauss --sigma 4 --sampling poisson --batch 10 --records 100 --max-batch 30"
    _, out, _ = call(capsys, f"budget {flags} --delta 1e-5 --tol 0.01 --json")
    assert json.loads(out)["records"] == 100
    (tmp_path / "g.json").write_text(out)
    code, out, err = call(capsys, f"compare --order {tmp_path / 'g.json'} {tmp_path / 'g.json'}")
    assert (code, "A and B are equally private" in out) == (0, True), err


def test_the_guarantee_of_the_best_run_is_no_process(capsys, tmp_path):
    _, out, _ = call(capsys, "budget --mech gauss --sigma 4 --repeats geometric:mean=5 --delta 1e-5 --json")
    (tmp_path / "g.json").write_text(out)
    code, out, err = call(capsys, f"verify --claim eps=2,delta=1e-5 {tmp_path / 'g.json'}")
    assert (code, out) == (3, "")
    assert "best of a random number of runs" in err


def test_a_curve_with_lower_ends_is_not_called_unknown_from_below(capsys):
    line = "budget --mech gauss --sigma 4 --curve --eps 1"
    _, out, _ = call(capsys, f"{line} --repeats geometric:mean=5")
    assert "delta at least" in out
    assert "the best of K runs, K geometric with mean 5" in out
    _, out, _ = call(capsys, f"{line} --accountant zcdp")
    assert out.startswith("delta over eps (upper bound) by zcdp\n")
    assert "delta at least" not in out


def test_a_curve_ends_at_the_largest_eps(capsys):
    code, out, _ = call(capsys, "budget --mech gauss --sigma 4 --curve --eps 1e308")
    assert code == 0
    assert out.splitlines()[-1].startswith("1e308")


def test_epochs_beside_a_sweep_over_rates_mean_the_same_as_by_themselves(capsys):
    job = "--mech gauss --sigma 4 --sampling poisson --epochs 1 --delta 1e-5 --tol 0.001"
    _, out, _ = call(capsys, f"compare {job} --accountant pld --sweep rate=0.1,0.5 --json")
    rows = json.loads(out)["rows"]
    assert [row["n"] for row in rows] == [10, 2]
    _, out, _ = call(capsys, f"budget {job} --rate 0.5 --json")
    assert rows[1]["epsilon"] == json.loads(out)["epsilon"]


def test_bands_beside_a_sweep_over_n_are_refused(capsys):
    job = "--mech gauss --sigma 4 --sampling poisson --rate 0.01 --bands 4 --delta 1e-5"
    code, out, err = call(capsys, f"compare {job} --sweep n=40,80")
    assert (code, out) == (2, "")
    assert "bands has no sweep over n" in err


def test_a_copy_that_cannot_be_written_is_not_sent_to_a_flag_that_cp_lacks(capsys, tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise OSError(WRONG_PATH[0], "a file")

    monkeypatch.setattr(recipe_files.durable_writes.os, "replace", refuse)
    code, _, err = call(capsys, f"recipe cp plc/fig7-dpsgd {tmp_path / 'r.yaml'}")
    assert code == 2
    assert "Name another file or folder to copy to" in err
    assert "--out" not in err


@pytest.mark.parametrize("more", ["--curve --eps 1", "--curve tradeoff --fpr 0.1"])
def test_curves_say_how_flags_were_read(capsys, more):
    job = "--mech gauss --sigma 4 --sampling poisson --rate 0.01 --n 40 --bands 4 --tol 0.001"
    _, out, _ = call(capsys, f"budget {job} {more} --accountant rdp")
    assert "read as 4 bands: n = 40 steps at rate 0.01 = 10 steps at rate 0.04 of plain noise" in " ".join(out.split())


@pytest.mark.parametrize("more", ["--delta 1e-5 --accountant rdp", "--eps 3 --curve", "--fpr 0.1 --curve tradeoff"])
def test_every_figure_of_a_forked_training_says_what_it_assumes(capsys, tmp_path, more):
    for run in (1, 2):
        book = ledger.Ledger(tmp_path / "ledger.jsonl", run, 1, adjacency="add-remove", stream="a")
        book.spend(1, Step(Gauss(2.0), 1, Poisson(0.1)))
        book.close()
    code, _, err = call(capsys, f"budget --history {tmp_path / 'ledger.jsonl'} --tol 0.001 {more}")
    assert (code, "this history has 2 runs" in err) == (0, True)


def test_the_readings_of_a_claim_have_accountants_of_their_own(capsys):
    line = "verify --claim eps=1,delta=1e-5 --mech gauss --sigma 4 --why --accountant rdp"
    code, out, err = call(capsys, line)
    assert (code, out) == (2, "")
    assert "leave out --accountant" in err
