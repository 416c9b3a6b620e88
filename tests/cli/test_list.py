"""wpriv list: every kind and name, parameters as plug-ins declare them, and plug-ins of other packages."""

from __future__ import annotations

import dataclasses
import json
import re
import tomllib
from importlib.metadata import EntryPoint

import pytest

from tests.command_line import call
from tests.points import ROOT
from wpriv import errors
from wpriv.cli import catalog
from wpriv.config import recipe_files
from wpriv.core import registry
from wpriv.core.kinds import Adjacency

PLUGINS = tuple(registry.FOLDERS)


def rows(capsys, words):
    code, out, _ = call(capsys, f"list {words} --json")
    assert code == 0
    data = json.loads(out)
    assert data["schema"] == "wpriv.list/1"
    return data["rows"]


def test_the_kinds_have_their_counts(capsys):
    counts = {row["kind"]: row["count"] for row in rows(capsys, "")}
    assert set(PLUGINS) <= set(counts)
    assert all(counts[kind] == len(registry.names(kind)) for kind in PLUGINS)
    assert counts["recipes"] == len(recipe_files.shipped())
    assert counts["adjacencies"] == len(Adjacency)


@pytest.mark.parametrize("kind", catalog.KINDS)
def test_a_kind_lists_each_name_with_what_it_is(capsys, kind):
    listed = rows(capsys, kind)
    # a bank of claims is one row
    names = [row.name for row in recipe_files.listing()] if kind == "recipes" else catalog.names(kind)
    assert [row["name"] for row in listed] == names
    assert all(len(row["about"]) > 5 and "\n" not in row["about"] for row in listed)
    code, out, _ = call(capsys, f"list {kind}")
    assert code == 0
    # the rest of a text that is wider than the terminal is indented
    assert [line.split()[0] for line in out.splitlines() if line[0] != " "] == ["name", *names]


@pytest.mark.parametrize("name", registry.names("mechanisms"))
def test_a_mechanism_has_the_parameters_and_the_source_that_it_declares(capsys, monkeypatch, name):
    # what answers it is not looked at here: tests/golden/outputs/mechanism-*.txt have it
    monkeypatch.setattr(catalog, "letters", lambda accountant, mechanism: "-")
    cls = registry.mechanism(name)
    (entry,) = [row for row in rows(capsys, name) if row["kind"] == "mechanisms"]
    assert entry["facts"]["source"] == cls.source
    for field, shown in zip(dataclasses.fields(cls), entry["parameters"], strict=True):
        assert shown["name"] == field.name
        assert shown["meaning"] == field.metadata["help"]
        if field.default is dataclasses.MISSING:
            assert shown["default"] == "required"
        elif isinstance(field.default, float):
            assert float(shown["default"]) == field.default


def test_the_accountants_of_a_mechanism_are_those_that_answer_it(capsys):
    (gauss,) = rows(capsys, "mechanisms gauss")
    assert "sampling none, poisson, fixed: advanced, basic, " in gauss["facts"]["accountants"]
    answered = set(re.findall(r"[\w-]+", gauss["facts"]["accountants"]))
    for name in registry.names("accountants"):
        asked = "" if name == "renyi" else "--eps 1"  # a Renyi divergence has no eps
        code, _, _ = call(capsys, f"budget --mech gauss --sigma 1 --n 2 {asked} --accountant {name}")
        assert (code == 0) == (name in answered - {"bdp", "wdp"}), name  # those two need observed distances
    (zcdp,) = rows(capsys, "mechanisms zcdp")
    assert "pld" not in zcdp["facts"]["accountants"]


def test_a_name_of_two_kinds_is_described_as_both(capsys):
    assert [row["kind"] for row in rows(capsys, "gdp")] == ["mechanisms", "accountants", "terms"]
    assert [row["kind"] for row in rows(capsys, "accountants gdp")] == ["accountants"]


@pytest.mark.parametrize("word", ["mechanism", "Mechanisms", "MECHANISM"])
def test_a_kind_is_taken_in_the_singular_and_in_any_case(capsys, word):
    assert rows(capsys, word) == rows(capsys, "mechanisms")


def test_exit_codes_are_those_of_the_errors(capsys):
    codes = {row["name"] for row in rows(capsys, "exit-codes")}
    raised = {cls.exit_code for cls in vars(errors).values() if isinstance(cls, type) and hasattr(cls, "exit_code")}
    assert {str(code) for code in raised} <= codes


@pytest.mark.parametrize(
    ("words", "near"), [("gaus", "gauss"), ("mechanisms laplce", "laplace"), ("acountants", "accountants")]
)
def test_an_unknown_name_gets_one_suggestion(capsys, words, near):
    code, out, err = call(capsys, f"list {words}")
    assert (code, out) == (2, "")
    assert f"did you mean '{near}'" in err
    assert "Known:" not in err


def test_plug_ins_of_other_packages_appear(capsys, monkeypatch, tmp_path):
    (tmp_path / "their_noise.py").write_text(
        '"""Noise of another package."""\n'
        "from dataclasses import dataclass\n"
        "from wpriv.core.mechanism import Mechanism\n"
        "from wpriv.core.parameters import parameter\n"
        "from wpriv.accounting.mechanisms.gauss import GaussPair\n"
        "@dataclass(frozen=True)\n"
        "class Theirs(Mechanism):\n"
        '    strength: float = parameter("strength of their noise", exclusive_minimum=0)\n'
        "    def pair(self):\n"
        "        return GaussPair(self.strength)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    point = EntryPoint("theirs", "their_noise", "wpriv.mechanisms")
    monkeypatch.setattr(registry, "_entry_points", lambda kind: {"theirs": point} if kind == "mechanisms" else {})
    assert {"name": "theirs", "about": "Noise of another package."} in rows(capsys, "mechanisms")
    (entry,) = rows(capsys, "theirs")
    assert [each["name"] for each in entry["parameters"]] == ["strength"]


@pytest.mark.parametrize(("word", "kind"), [("adjacency", "adjacencies"), ("data-sets", "data"), ("task", "tasks")])
def test_every_kind_has_a_singular(capsys, word, kind):
    assert rows(capsys, word) == rows(capsys, kind)


@pytest.mark.parametrize(
    ("word", "shown"),
    [
        ("gauss", "gauss (mechanism): Gaussian noise"),
        ("pld", "pld (accountant): "),
        ("noise_multiplier", "noise-multiplier (flag): "),
        ("--epsilon", "eps (flag): --eps: "),
        ("strategy", "strategy (flag): --strategy: correlated noise"),
        ("plc/fig7-dpsgd", "plc/fig7-dpsgd (recipe): "),
        ("amplification by sampling", "amplification-by-sampling (term): The gain in privacy"),
        ("recipe ls", "Usage: wpriv recipe ls"),
        ("opacus", "words of other libraries (docs/other-libraries.md)"),
        ("PrivacyEngine", "docs/other-libraries.md"),
        ("release", "Usage: wpriv release"),
        ("dpsgd", "docs/guides/train-dp-sgd.md"),
        ("exit", "docs/reference/exit-codes.md"),
        ("exit codes", "141   closed"),
        ("json", "docs/reference/files-and-schemas.md"),
    ],
)
def test_help_explains_any_word(capsys, word, shown):
    code, out, _ = call(capsys, *(["help", *word.split()] if word[0] != "-" else ["list", word[2:]]))
    assert code == 0
    assert shown in out
    assert "{term}" not in out
    assert "--zcdp" not in call(capsys, "help", "rho")[1]  # names of the glossary are no flags


@pytest.mark.parametrize(("word", "near"), [("budgt", "budget"), ("gaus", "gauss"), ("amplificaton", "amplification")])
def test_help_on_an_unknown_word_gives_one_suggestion(capsys, word, near):
    code, out, err = call(capsys, "help", word)
    assert (code, out) == (2, "")
    assert f"nothing is called '{word}'; did you mean '{near}'?" in err


@pytest.mark.parametrize("word", ["noise", "sensitivity"])
def test_a_figure_is_explained_after_what_the_word_means_elsewhere(capsys, word):
    kinds = re.findall(rf"^{word} \((\w+)\): ", call(capsys, "help", word)[1], re.M)
    assert kinds[-1] == "figure"
    assert len(kinds) > 1


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("count", "has no command 'count': `wpriv help count` says what it is. `wpriv --help` names all"),
        ("get-noise-multiplier", "did you mean 'calibrate' (the noise that an eps needs)?"),
        ("compute_epsilon", "did you mean 'budget'"),
    ],
)
def test_a_word_that_is_no_command_leads_to_what_explains_it(capsys, word, told):
    code, out, err = call(capsys, word)
    assert (code, out) == (2, "")
    assert told in err


def test_the_glossary_is_in_the_wheel():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    files = settings["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert files["docs/glossary.md"] == "wpriv/glossary.md"
    assert len(catalog.names("terms")) >= 150


def test_the_shipped_recipes_are_listed_as_rows_too(capsys):
    code, out, _ = call(capsys, "recipe ls quick --json")
    assert code == 0
    assert [row["name"] for row in json.loads(out)["rows"]] == ["quick/digits-cluster", "quick/digits"]
