"""--help: at the width of the terminal, examples first and all of them real, options under headings."""

from __future__ import annotations

import dataclasses
import re
import shlex

import pytest

from tests import nightly
from tests.command_line import call
from wpriv.cli.parsing import COMMANDS, MAX_WIDTH, LazyGroup
from wpriv.core import registry


def commands():
    """The words and the parser of every command and subcommand."""
    for name in COMMANDS:
        command = LazyGroup().get_command(None, name)
        yield [name], command
        for word, inner in getattr(command, "commands", {}).items():
            yield [name, word], inner


PAGES = {" ".join(words): command for words, command in commands()}
CERTIFICATE = "budget --mech laplace --scale 20 --n 1000 --eps 3 --certificate certificate.json"
COMPARED = "compare plc/fig7-dpsgd --quick --out results/fig7-dpsgd"
INIT = "ledger init sqlite:///b.db --eps 1 --delta 1e-6"
RESERVED = 'ledger reserve sqlite:///b.db "laplace scale=20" --key august-report'
# what the examples of a command need: commands that run before, and files
BEFORE = {
    "verify": [CERTIFICATE],
    "report": [
        "train quick/digits --quick --out results/digits",
        "compare plc/fig7-dpsgd --quick --out results/fig7-dpsgd",
    ],
    "plot": ["compare plc/fig7-dpsgd --quick --out results/fig7-dpsgd"],
    "recipe check": ["recipe cp quick/digits mine.yaml"],
    "ledger begin": [INIT, RESERVED],
    "ledger cancel": [INIT, RESERVED],
    "ledger done": [INIT, RESERVED, "ledger begin sqlite:///b.db august-report"],
    "ledger import": [INIT, "ledger export sqlite:///b.db --out entries.jsonl"],
    "ledger spend": ['ledger init sqlite:///b.db --eps 1 --delta 1e-6 --partition "all:region=north,south"'],
    **{f"ledger {word}": [INIT] for word in ("check", "export", "head", "limit", "reserve", "status")},
}
FILES = {
    "people.csv": "age,income\n" + "20,0\n40,1\n" * 5,
    "ledger.json": "[[4, 0.01, 1000]]\n",
    "stays.csv": "patient,ward,days\n1,A,3\n2,B,5\n",
    "scores.csv": "score,in\n" + "".join(f"{i * 37 % 200},{i % 2}\n" for i in range(200)),
    "premises.yaml": "kind: check\nclaim: {eps: 5, delta: 1e-5}\nprocess: {mech: gauss, sigma: 1}\n"
    "adjacency: add-remove\nmax_per_unit: 1\nrecords_public: no\n",
}
# examples that take minutes, that other tests run, or that write into this checkout; their flags are looked at
NOT_RUN = (
    "--method two-worlds",
    "plc/figure-4",
    "verify claims/published",
    "claims/libraries",
    "checkpoint.pt",
    "refresh",
    "ledger serve",
    "ledger migrate",
)


def examples(text):
    """The examples of a help page, each on one line."""
    found = re.search(r"\nExamples:\n(.*?)\n\n", text, re.S)
    assert found, text
    joined = re.sub(r" \\\n +", " ", found[1])
    return [line.strip().removeprefix("wpriv ") for line in joined.splitlines()]


def page(capsys, words):
    code, out, err = call(capsys, f"{words} --help")
    assert (code, err) == (0, "")
    return out


@pytest.mark.parametrize("words", ["", *PAGES])
def test_no_line_is_wider_than_the_terminal_and_no_word_is_broken(capsys, monkeypatch, words):
    monkeypatch.setenv("COLUMNS", "1000")
    whole = set(page(capsys, words).split())
    for width in (40, 80, 100, 200):
        monkeypatch.setenv("COLUMNS", str(width))
        text = page(capsys, words)
        assert set(text.split()) - {"\\"} == whole - {"\\"}
        lines = [line for line in text.splitlines() if len(line) > min(width, MAX_WIDTH)]
        # a flag or a word that is itself too wide, or words in quotes
        assert not [line for line in lines if len(line.split()) > 2 and '"' not in line]


@pytest.mark.parametrize("words", PAGES)
def test_every_page_has_two_to_four_examples_before_its_options(capsys, words):
    text = page(capsys, words)
    shown = examples(text)
    assert text.index("\nExamples:\n") < text.index("-h, --help")
    assert all(line.startswith(f"{words} ") or line in (words, "data") for line in shown)
    if words.count(" ") == 0:
        assert 2 <= len(shown) <= 4


@pytest.mark.slow
@pytest.mark.parametrize("words", nightly.sharded(["", *PAGES], 3))
def test_every_example_runs(capsys, tmp_path, monkeypatch, words):
    text = page(capsys, words)
    monkeypatch.chdir(tmp_path)
    for name, content in FILES.items():
        (tmp_path / name).write_text(content)
    for line in BEFORE.get(words, ()):
        call(capsys, line)
    for line in examples(text):
        if any(part in line for part in NOT_RUN):
            assert set(re.findall(r"--[a-z-]+", line)) <= set(re.findall(r"--[a-z-]+", text))
            continue
        code, out, err = call(capsys, line)
        assert code == 0, f"{line}: {err}"
        assert out or "wrote" in err


def test_options_stand_under_headings_and_each_once(capsys):
    text = page(capsys, "budget")
    places = [
        text.index(f"\n{heading}:\n")
        for heading in (
            "What is released",
            "How often, and on which records",
            "The question, and who is protected",
            "Output",
        )
    ]
    assert places == sorted(places)
    for command in PAGES.values():
        for option in [p.opts[0] for p in command.params if p.param_type_name == "option"]:
            assert option.startswith("--") or option == "-h"
    flags = re.findall(r"^  (--[a-z-]+)", text, re.M)
    assert len(flags) == len(set(flags)) >= 28


@pytest.mark.parametrize("name", registry.names("mechanisms"))
def test_help_with_a_mechanism_on_the_line_shows_its_parameters(capsys, name):
    for words in (f"budget --mech {name}", f"calibrate --mech={name}"):
        section = re.search(rf"\nParameters of {name}:\n(.*?)\n\n", page(capsys, words), re.S)
        assert section
        typed = re.findall(r"^  --(?:param )?(\w+)", section[1], re.M)
        assert typed == [field.name for field in dataclasses.fields(registry.mechanism(name))]


def test_help_of_an_unknown_mechanism_is_the_page_alone(capsys):
    assert page(capsys, "budget --mech nothing") == page(capsys, "budget")


@pytest.mark.parametrize("words", ["", "budget", "recipe ls", "data ls"])
def test_help_as_a_command_is_the_flag(capsys, words):
    assert call(capsys, f"help {words}") == call(capsys, f"{words} --help")


def test_help_of_an_unknown_command_names_the_nearest(capsys):
    code, out, err = call(capsys, "help budgt")
    assert (code, out) == (2, "")
    assert "did you mean 'budget'" in err


def test_the_short_flag_of_the_version(capsys):
    assert call(capsys, "-V") == call(capsys, "--version")


def test_an_example_can_be_copied_from_a_narrow_terminal(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "50")
    text = page(capsys, "compare")
    lines = examples(text)
    assert shlex.split(lines[1])[1:] == ["--order", "gauss sigma=1", "laplace scale=1"]
    assert " \\\n      --" in text
