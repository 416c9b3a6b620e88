"""`wpriv ledger`: its words, its exit codes, and what it prints."""

from __future__ import annotations

import json

import pytest

from tests.command_line import call

pytest.importorskip("sqlalchemy")
URL = "sqlite:///b.db"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_init_spend_and_export_in_the_words_of_the_guide(capsys):
    assert call(capsys, f"ledger init {URL} --eps 1 --delta 1e-6 --rule gauss")[0] == 0
    code, out, _ = call(capsys, f'ledger spend {URL} "gauss sigma=100 n=10" --key ID')
    assert (code, out.splitlines()[0]) == (0, "release 2: begun")
    code, out, _ = call(capsys, f'ledger spend {URL} "gauss sigma=100 n=10" --key ID')
    assert (code, out.splitlines()[0]) == (0, "release 2: begun before; nothing was spent again")
    code, out, err = call(capsys, f'ledger spend {URL} "gauss sigma=100 n=551"')
    assert (code, out) == (1, "")
    assert "refused by scope all" in err
    assert "there is room for 550 of its 551 releases" in err
    assert call(capsys, f'ledger spend {URL} "gauss sigma=100 n=550" --dry-run')[:2] == (0, "fits; nothing was spent\n")
    assert call(capsys, f"ledger export {URL} --out h.json")[0] == 0
    code, out, _ = call(capsys, "budget --history h.json --delta 1e-6 --quiet")
    assert (code, out) == call(capsys, 'budget "gauss sigma=100 n=10" --delta 1e-6 --quiet')[:2]


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        ("ledger", 2, "no ledger command given"),
        ("ledger spent x", 2, "did you mean 'spend'"),
        (f"ledger init {URL}", 2, "needs a limit"),
        (f"ledger init {URL} --eps 1", 2, "`eps` with `delta`".replace("`eps`", "--eps").replace("`delta`", "--delta")),
        (f"ledger init {URL} --eps 1 --delta 1e-6 --rule pld", 2, "pld is no rule"),
        (f"ledger init {URL} --eps 1 --delta 1e-6 --rule residu", 2, "did you mean 'residue'"),
        (f"ledger init {URL} --eps 1 --delta 1e-6 --leaks 1", 2, "a part of delta"),
        ("ledger init b.db --eps 1 --delta 1e-6", 2, "named by a URL"),
        (f"ledger status {URL}", 4, "there is no ledger"),
        ('ledger plan "gauss sigma=1"', 2, "needs a limit"),
    ],
)
def test_what_is_wrong_is_said(capsys, line, code, words):
    exit_code, out, err = call(capsys, line)
    assert (exit_code, out) == (code, "")
    assert words in err


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        (f"ledger init {URL} --eps 1 --delta 1e-6", 2, "holds a ledger already"),
        (f'ledger spend {URL} "guass sigma=1"', 2, "did you mean 'gauss'"),
        (f'ledger spend {URL} "gauss sigma=1" --scope sales', 2, "no scope called 'sales'"),
        (f'ledger spend {URL} "zcdp rho=0.001"', 3, "zcdp"),
        (f"ledger status {URL} --scope sales", 2, "no scope called 'sales'"),
        (f'ledger spend {URL} "eps=1 delta=1e-6"', 2, "dp eps0=1 delta0=1e-6"),
        (f'ledger spend {URL} "gauss sigma=1"', 1, "A left. Nothing was spent"),
        (f"ledger import e.jsonl {URL}", 2, f"the URL comes first: wpriv ledger import {URL} e.jsonl"),
        ("ledger init sqlite://b.db --eps 1 --delta 1e-6", 2, "three slashes, as sqlite:///b.db"),
        ("ledger init sqlite:///none/b.db --eps 1 --delta 1e-6", 4, "Its folder must exist"),
        (f"ledger begin {URL} 7", 2, "no release '7'"),
        (f'ledger check {URL} --head "9 ab"', 1, "restored from a"),
        (f"ledger import {URL} nothing.jsonl", 4, "nothing.jsonl"),
        (f"ledger export {URL} --out h.csv", 2, "ends in .json"),
        (f"ledger export {URL} --out entries.JSONL", 2, "ends in .json"),
        (f"ledger plan {URL}", 2, "no steps"),
    ],
)
def test_what_is_wrong_with_a_ledger_is_said(capsys, line, code, words):
    assert call(capsys, f"ledger init {URL} --eps 1 --delta 1e-6")[0] == 0
    exit_code, out, err = call(capsys, line)
    assert (exit_code, out) == (code, "")
    assert words in err


def test_answers_as_json(capsys):
    call(capsys, f"ledger init {URL} --eps 1 --delta 1e-6 --limit mu=0.2")
    receipt = json.loads(call(capsys, f'ledger spend {URL} "gauss sigma=100" --json')[1])
    assert (receipt["release"], receipt["state"], receipt["repeated"]) == ("2", "begun", False)
    status = json.loads(call(capsys, f"ledger status {URL} --json")[1])
    assert [account["account"] for account in status["accounts"]] == ["T", "A", "T", "A"]
    assert status["states"] == {"begun": 1}
    head = json.loads(call(capsys, f"ledger head {URL} --json")[1])
    assert call(capsys, f'ledger check {URL} --head "{head["seq"]} {head["digest"]}"')[0] == 0


def test_steps_of_several_kinds_have_no_number_that_would_fit(capsys):
    call(capsys, f"ledger init {URL} --eps 1 --delta 1e-6 --rule gauss")
    assert (
        "no single number: steps of several kinds"
        in call(capsys, f'ledger status {URL} "gauss sigma=90 + gauss sigma=100"')[1]
    )
    assert "would fit  560 of gauss sigma=100" in call(capsys, f'ledger status {URL} "gauss sigma=100"')[1]


def test_a_forecast_names_the_best_rule(capsys):
    code, out, _ = call(capsys, 'ledger plan "gauss sigma=100 n=10" --eps 1 --delta 1e-6 --json')
    answer = json.loads(out)
    rounds = {row["rule"]: row["rounds"] for row in answer["rows"]}
    assert (code, answer["best"]) == (0, "gauss")
    assert (rounds["gauss"], rounds["rdp"], rounds["basic"], rounds["fixed in advance"]) == (56, 48, None, 56)


def test_a_forecast_takes_a_limit_without_delta(capsys):
    code, out, _ = call(capsys, 'ledger plan "laplace scale=20" --eps 1 --delta 0 --json')
    rounds = {row["rule"]: row["rounds"] for row in json.loads(out)["rows"]}
    # pure eps adds up: 20 releases of eps 1/20, and no other rule keeps a limit of pure eps
    assert (code, rounds) == (0, {"residue": None, "rdp": None, "gauss": None, "basic": 20, "union": None})


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        ('"gauss sigma=50 observed=weibull:shape=0.5,records=9,coordinates=3,steps=1"', 2, "leave out `observed`"),
        ('"gauss sigma=0.01"', 0, "no rule admits it"),
    ],
)
def test_a_forecast_that_no_rule_admits_names_none(capsys, line, code, words):
    exit_code, out, err = call(capsys, f"ledger plan {line} --eps 1 --delta 1e-6")
    assert exit_code == code
    assert words in (err if code else out)
    assert ("fixed in advance" in out) == (code == 0)


def test_a_limit_is_lowered_and_raised_to_its_ceiling(capsys):
    assert call(capsys, f"ledger init {URL} --eps 1 --delta 1e-6 --ceiling eps=2,delta=1e-6 --rule gauss")[0] == 0
    code, out, _ = call(capsys, f"ledger limit {URL} --eps 0.5 --delta 1e-6 --actor board --reason audit")
    assert (code, out.splitlines()[0]) == (0, "limit of all: (0.5, 1e-6)-DP, before (1, 1e-6)-DP")
    assert "(0.5, 1e-6)-DP at present, up to (2, 1e-6)-DP (all)" in call(capsys, f"ledger status {URL}")[1]
    answer = json.loads(call(capsys, f"ledger limit {URL} --eps 2 --delta 1e-6 --json")[1])
    assert (answer["state"], answer["before"], answer["limits"]) == ("changed", {"eps": 0.5, "delta": 1e-6}, [])
    code, out, err = call(capsys, f"ledger limit {URL} --eps 2.5 --delta 1e-6")
    assert (code, out) == (1, "")
    assert "may rise to (2, 1e-6)-DP" in err
    assert call(capsys, f"ledger limit {URL} --eps 2")[0] == 2
    assert call(capsys, f"ledger migrate {URL} --backup b.jsonl")[0] == 2


@pytest.mark.parametrize("expires", ["0", "-1", "1e300", "nan"])
def test_a_reservation_needs_seconds_in_which_it_may_begin(capsys, expires):
    call(capsys, f"ledger init {URL} --eps 1 --delta 1e-6")
    code, out, err = call(capsys, f'ledger reserve {URL} "gauss sigma=100" --expires {expires}')
    assert (code, out) == (2, "")
    assert "--expires" in err


def test_reserve_begin_and_end(capsys):
    call(capsys, f"ledger init {URL} --eps 1 --delta 1e-6")
    assert call(capsys, f'ledger reserve {URL} "laplace scale=20" --key k --expires 60')[0] == 0
    assert call(capsys, f"ledger begin {URL} k --nonce mine")[0] == 0
    code, _, err = call(capsys, f"ledger begin {URL} k --nonce other")
    assert code == 1
    assert "must not be read" in err
    assert call(capsys, f"ledger cancel {URL} k")[0] == 1
    assert call(capsys, f"ledger done {URL} k")[1].startswith("release 2: done")
