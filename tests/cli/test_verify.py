"""``wpriv verify``: certificates are written, proven, and refused with the right exit code."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

import wpriv
from tests.command_line import call
from wpriv import Gauss, Poisson, Process, Step
from wpriv.accounting import certificates
from wpriv.accounting.ledger import Ledger
from wpriv.errors import CheckFailed
from wpriv.results import storage
from wpriv.verify.certificate import SCHEMA

JOB = "budget --mech gauss --sigma 4 --sampling poisson --rate 0.01 --n 65536 --delta 1e-4"
CERTIFICATE = {
    "schema": SCHEMA,
    "notion": "approximate-dp",
    "asked": "eps",
    "adjacency": "add-remove",
    "process": [{"mech": "gauss", "sigma": 100.0, "sensitivity": 1.0, "n": 1000, "sampling": "none"}],
    "epsilon_lower": 1.19936957,
    "epsilon_upper": 1.19936958,
    "delta_lower": 1e-05,
    "delta_upper": 1e-05,
    "claim_width": 1e-09,
    "version": "0.2.0",
}
RELEASE = CERTIFICATE["process"][0]


def saved(tmp_path: Path, data) -> Path:
    path = tmp_path / "certificate.json"
    path.write_text(data if isinstance(data, str) else json.dumps(data), encoding="utf-8")
    return path


@pytest.mark.slow
@pytest.mark.parametrize(
    "line", [JOB, JOB.replace("--delta 1e-4", "--eps 1"), "budget --mech gdp --param mu=1 --eps 1"]
)
def test_a_certificate_is_valid_and_proved(capsys, tmp_path, line):
    path = tmp_path / "c.json"
    code, _, err = call(capsys, *line.split(), "--certificate", path)
    assert code == 0
    assert "proved by" in err
    schema = json.loads((Path(wpriv.__file__).parent / "verify" / "certificate.schema.json").read_text())
    jsonschema.validate(json.loads(path.read_text()), schema)
    jsonschema.validate(CERTIFICATE, schema)
    code, out, _ = call(capsys, "verify", path)
    assert code == 0
    assert out.startswith("proved: ")
    assert " ".join(out.split()).count(": proved, since delta is at ") == 2


@pytest.mark.slow
def test_the_certificate_of_a_calibration_is_proved(capsys, tmp_path):
    path = tmp_path / "c.json"
    line = "calibrate --mech gauss --sampling poisson --rate 0.01 --n 1000 --eps 1 --delta 1e-5 --quiet"
    assert call(capsys, *line.split(), "--certificate", path)[0] == 0
    code, out, _ = call(capsys, "verify", path, "--json")
    answer = json.loads(out)
    assert code == 0
    assert answer["proved"] is True
    assert [row["end"] for row in answer["rows"]] == ["epsilon_upper", "epsilon_lower"]


def test_a_guarantee_as_printed_is_proved(capsys, tmp_path):
    _, out, _ = call(capsys, *["budget", "--mech", "gauss", "--sigma", "3", "--n", "10", "--delta", "1e-5", "--json"])
    assert call(capsys, "verify", saved(tmp_path, out))[0] == 0


@pytest.mark.parametrize(
    ("key", "value", "end"),
    [("epsilon_upper", 1.199369571, "epsilon_upper"), ("epsilon_lower", 1.199369575, "epsilon_lower")],
)
def test_an_end_on_the_unsafe_side_is_refuted_with_both_figures(capsys, tmp_path, key, value, end):
    """1.19936957375 in closed form."""
    code, out, err = call(capsys, "verify", saved(tmp_path, {**CERTIFICATE, key: value}))
    assert code == 1
    assert f"{end} is refuted" in err
    assert repr(value) in err
    assert "delta is at" in err
    first = (
        "<= 1.19937 at delta 1e-5, where delta is at least 1.00000003556e-5"
        if key == "epsilon_upper"
        else (">= 1.19936 at delta 1e-5, where delta is at most 9.99999983892e-6")
    )
    assert out.startswith(f"refuted: eps {first}")


def test_ends_may_be_moved_outwards(capsys, tmp_path):
    path = saved(tmp_path, {**CERTIFICATE, "epsilon_upper": 1.199369571})
    assert call(capsys, "verify", path, "--width", "1e-6")[0] == 0
    code, _, err = call(capsys, "verify", path, "--width", "2")
    assert code == 2
    assert "--width" in err


FAULTS = [
    ({**CERTIFICATE, "users": 3}, "users"),
    ({**CERTIFICATE, "process": [{**RELEASE, "max_batch": 3}]}, "max_batch"),
    ({**CERTIFICATE, "group": 1.5}, "group"),
    ("{", "JSON"),
    ("[]", SCHEMA),
    ('{"schema": "wpriv.certificate/1", "schema": "x"}', "twice"),
    (json.dumps(CERTIFICATE).replace("100.0", "NaN"), "NaN"),
    (json.dumps(CERTIFICATE).replace("100.0", "1e999999999"), "out of range"),
    ({**CERTIFICATE, "schema": "wpriv.certificate/2"}, "wpriv.certificate/2"),
    ({**CERTIFICATE, "notion": "rdp"}, "notion"),
    ({**CERTIFICATE, "asked": "both"}, "asked"),
    ({**CERTIFICATE, "process": []}, "process"),
    ({**CERTIFICATE, "epsilon_lower": -1}, "epsilon_lower"),
    ({**CERTIFICATE, "epsilon_lower": 2}, "epsilon_lower"),
    ({**CERTIFICATE, "epsilon_lower": None}, "epsilon_lower"),
    ({**CERTIFICATE, "delta_lower": 2e-5}, "delta_lower"),
    ({**CERTIFICATE, "delta_lower": 0, "delta_upper": 0}, "delta_lower"),
    ({**CERTIFICATE, "adjacency": "given-pair"}, "adjacency"),
    ({**CERTIFICATE, "process": [{**RELEASE, "sigma": 0}]}, "sigma"),
    ({**CERTIFICATE, "process": [{**RELEASE, "sigma": "4"}]}, "sigma"),
    ({**CERTIFICATE, "process": [{**RELEASE, "n": 1.5}]}, "process[0].n"),
    ({**CERTIFICATE, "process": [{**RELEASE, "rate": 1.5, "sampling": "poisson"}]}, "rate"),
    ({**CERTIFICATE, "process": [{**RELEASE, "sampling": "fixed", "rate": 0.5}]}, "replace-one"),
    ({**CERTIFICATE, "process": [{**RELEASE, "scale": 2}]}, "scale"),
    ({**CERTIFICATE, "process": [{**RELEASE, "rate": 0.01}]}, "rate"),
    ({**CERTIFICATE, "process": [{**RELEASE, "rate": []}]}, "rate"),
]


@pytest.mark.parametrize(("data", "word"), FAULTS, ids=[str(i) for i in range(len(FAULTS))])
def test_a_malformed_certificate_is_refused(capsys, tmp_path, data, word):
    code, out, err = call(capsys, "verify", saved(tmp_path, data))
    assert (code, out) == (2, "")
    assert word in err


@pytest.mark.parametrize(
    "change",
    [
        {"process": [{**RELEASE, "mech": "uniform"}]},
        {"process": [{**RELEASE, "mech": ["gauss"]}]},
        {"process": [{**RELEASE, "sampling": "shuffle", "rate": 0.01}]},
        {"process": [{**RELEASE, "sampling": {}}]},
        {
            "group": 2,
            "process": [
                {"mech": "laplace", "scale": 3.0, "sensitivity": 1.0, "n": 9, "sampling": "poisson", "rate": 0.5}
            ],
        },
        {"process": [{**RELEASE, "mech": "discrete-gauss", "sigma": 5000, "sensitivity": 1}]},
    ],
    ids=["mechanism", "no-mechanism", "sampling", "no-sampling", "group", "losses"],
)
def test_what_the_verifier_does_not_cover_is_unsupported(capsys, tmp_path, change):
    assert call(capsys, "verify", saved(tmp_path, {**CERTIFICATE, **change}))[0] == 3


def test_without_python_flint_the_exit_code_is_that_of_the_environment(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    code, _, err = call(capsys, "verify", saved(tmp_path, CERTIFICATE))
    assert code == 4
    assert err.endswith("needs the Python package python-flint, which is not installed: pip install python-flint\n")


@pytest.mark.parametrize(
    ("line", "word", "code"),
    [
        ("budget --mech gauss --sigma 4 --delta 1e-4 --curve --certificate c.json", "--curve", 2),
        ("budget --mech gauss --sigma 4 --delta 1e-4 --accountant all --certificate c.json", "--accountant", 2),
        ("budget --mech gauss --sigma 4 --delta 1e-4 --accountant clt --certificate c.json", "--accountant pld", 3),
        (
            "budget --mech gauss --sigma 4 --n 10 --delta 1e-4 --sampling shuffle --rate 0.1 --certificate c.json",
            "without a certificate",
            3,
        ),
        ("train quick/digits --dry-run --certificate c.json", "--dry-run", 2),
    ],
)
def test_what_has_no_certificate_is_refused(capsys, line, word, code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exit_code, _, err = call(capsys, *line.split())
    assert exit_code == code
    assert word in err
    assert not (tmp_path / "c.json").exists()


@pytest.mark.parametrize("place", ["statement", "guarantee"])
def test_a_statement_about_other_neighbours_than_its_ledger_is_refused(tmp_path, place):
    # at one sensitivity eps is smaller under replace-one, where an added record moves the sum half as far
    step = Step(Gauss(2.0), 3, Poisson(0.1))
    ledger = Ledger(tmp_path / storage.LEDGER, 1, 3, adjacency="add-remove", stream="0" * 16)
    for number in range(1, 4):
        ledger.spend(number, replace(step, n=1))
    ledger.close()
    rows = {name: wpriv.budget(Process((step,), name), delta=1e-5).as_dict() for name in ("replace-one", "add-remove")}
    assert rows["replace-one"]["epsilon_upper"] < rows["add-remove"]["epsilon_lower"]

    def write(adjacency, guarantee):
        statement = {"adjacency": adjacency, "process": guarantee["process"], "guarantees": [guarantee]}
        (tmp_path / storage.STATEMENT).write_text(json.dumps(statement), encoding="utf-8")

    write("add-remove", rows["add-remove"])
    [(_, _, proofs)] = certificates.verify(tmp_path, 1e-4)
    assert [proof.verdict for proof in proofs] == ["proved", "proved"]
    if place == "statement":
        write("replace-one", rows["add-remove"])
    else:
        write("add-remove", rows["replace-one"])
    with pytest.raises(CheckFailed, match="neighbours"):
        certificates.verify(tmp_path, 1e-4)


def test_the_verdict_on_pure_dp_is_about_eps(capsys, tmp_path):
    out = call(capsys, "budget", "--mech", "laplace", "--scale", "20", "--n", "10", "--delta", "0", "--json")[1]
    code, shown, _ = call(capsys, "verify", saved(tmp_path, out))
    assert (code, shown.splitlines()[0]) == (0, "proved: eps <= 0.5 at delta 0, given 1 premise")


@pytest.mark.parametrize("word", ["gauss sigma=4 n=10", "h.json"])
def test_a_process_without_a_claim_is_refused_with_what_to_add(capsys, tmp_path, word, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "h.json").write_text('[{"mech": "gauss", "sigma": 4}]')
    code, out, err = call(capsys, "verify", word)
    assert (code, out) == (2, "")
    assert "--claim eps=3,delta=1e-5" in err
