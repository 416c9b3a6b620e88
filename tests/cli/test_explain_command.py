"""``wpriv explain``: what it prints, at 80 columns and as JSON, and what it refuses."""

from __future__ import annotations

import json

import pytest

import wpriv
from tests.command_line import call
from wpriv.cli import output


@pytest.mark.parametrize(
    "words",
    [
        ("eps=3,delta=1e-5",),
        ("eps=200",),
        ("mu=1", "--unit", "period"),
        ("rho=2.56", "--delta", "1e-10", "--people", "123456", "--releases", "1000000"),
        ("gauss", "sigma=4", "n=10", "--unit", "household"),
    ],
)
def test_the_text_fits_80_columns_and_every_section_is_there(capsys, monkeypatch, words):
    # off a terminal a row of a table is one line
    monkeypatch.setattr(output, "is_live", lambda stream: True)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    code, out, err = call(capsys, "explain", *words)
    assert code == 0, err
    lines = out.splitlines()
    assert max(map(len, lines)) <= 80
    for part in ("what an attacker can do at most", "Bayes factor", "TPR at most", "together", "Beside published"):
        assert any(part in line for line in lines), part
    assert sum(line.startswith("  - ") for line in lines) <= 5


def test_json_is_the_record_of_python(capsys):
    code, out, _ = call(capsys, "explain", "eps=3,delta=1e-5", "--prior", "0.1", "--people", "2", "--json")
    expected = wpriv.explain(eps=3, delta=1e-5, prior=0.1, people=2).as_dict()
    assert code == 0
    assert json.loads(out) == json.loads(json.dumps(expected))
    assert json.loads(out)["schema"] == "wpriv.explanation/1"
    infinite = json.loads(call(capsys, "explain", "eps=800", "--json")[1])
    assert (infinite["bayes_factor"], infinite["posterior"]) == ("inf", 1.0)


def test_flags_of_a_guarantee_mean_what_its_words_do(capsys):
    assert call(capsys, "explain", "--epsilon", "1", "--delta", "1e-5") == call(capsys, "explain", "eps=1,delta=1e-5")


def test_numbers_of_the_text_are_rounded_up(capsys):
    out = call(capsys, "explain", "eps=3,delta=1e-5")[1]
    exact = {"right at even odds": 95.257461, "advantage": 0.905149203, "Bayes factor": 20.0855369 / 0.9}
    for label, value in exact.items():
        (line,) = [line for line in out.splitlines() if line.strip().startswith(label)]
        shown = float(line.strip().removeprefix(label).split()[0].rstrip("%,"))
        assert value <= shown <= value * 1.001


def test_pure_dp_is_named_and_has_no_exception(capsys):
    out = call(capsys, "explain", "eps=3")[1]
    assert out.startswith("pure 3-DP: ")
    assert "except for" not in out
    assert "delta" not in out.partition("What it does not say")[2]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("eps=-1",), "at least 0"),
        (("eps=3,delta=1",), "below 1"),
        (("eps=3,dleta=1e-5",), "did you mean 'delta'"),
        (("eps=3", "--prior", "2"), "--prior"),
        (("eps=3", "--unit", "huosehold"), "did you mean 'household'"),
        (("mu=1", "--delta", "0"), "--delta above 0"),
        ((), "wanted a guarantee or a process"),
        (("3", "1e-5"), "Did you mean eps=3,delta=1e-5?"),
        (("eps=3", "--eps", "2"), "--eps is a guarantee of its own"),
    ],
)
def test_bad_input_ends_with_2_and_one_line(capsys, words, found):
    code, out, err = call(capsys, "explain", *words)
    assert (code, out) == (2, "")
    assert found in err
    assert len(err.splitlines()) == 1
