"""``wpriv report`` on the command line: what it prints, where it writes, and its exit codes."""

from __future__ import annotations

import json

import pytest
import yaml

from tests.command_line import call
from tests.training.test_training_statement import RECIPE, trained
from wpriv.cli.main import main
from wpriv.cli.parsing import COMMANDS, GROUPS

REGISTRY = ("--as", "registry")


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli-report")
    trained(folder)
    return folder / "out"


def run(capsys, *words):
    return call(capsys, "report", *words)


@pytest.mark.slow
def test_each_form_goes_to_standard_output_as_text_and_as_json(out, capsys):
    code, text, notes = run(capsys, out)
    assert (code, notes) == (0, "")
    assert "certified by pld" in text
    code, text, notes = run(capsys, out, *REGISTRY)
    assert code == 0
    assert "left to fill in: deployment.basic" in notes
    assert text.startswith("# An entry for the Differential Privacy Deployments Registry")
    assert yaml.safe_load(text) == json.loads(run(capsys, out, *REGISTRY, "--json")[1])
    code, text, notes = run(capsys, out, "--as", "checklist")
    assert (code, notes) == (0, "")
    assert text.startswith("# Checklist: r\n")
    assert json.loads(run(capsys, out, "--as", "CHECKLIST", "--json")[1])["kind"] == "checklist"


@pytest.mark.slow
def test_a_report_is_written_to_a_file(out, tmp_path, capsys):
    code, text, notes = run(
        capsys, out, *REGISTRY, "--set", "deployment.basic.publication_date=2026-11-01", "--out", tmp_path / "e.yaml"
    )
    assert (code, text) == (0, "")
    assert f"wrote: {tmp_path / 'e.yaml'}" in notes
    entry = yaml.safe_load((tmp_path / "e.yaml").read_text())
    assert entry["deployment"]["basic"]["publication_date"] == "2026-11-01"  # text, as the registry wants it


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "code", "named"),
    [
        (["--as", "htm"], 2, "no form called 'htm'"),
        (["--set", "a=b"], 2, "--as registry"),
        ([*REGISTRY, "--set", "deployment"], 2, "--set"),
        ([*REGISTRY, "--set", "deployment.basic.nam=x"], 2, "deployment.basic.nam"),
        ([*REGISTRY, "--set", "deployment.basic.publication_date=soon"], 1, "publication_date"),
        (["--out", "."], 2, "--out"),
    ],
)
def test_bad_input_is_refused_by_name_and_prints_no_report(out, capsys, words, code, named):
    found = run(capsys, out, *words)
    assert found[:2] == (code, "")
    assert named in found[2]


def test_a_folder_without_results_is_refused(tmp_path, capsys):
    assert run(capsys, tmp_path)[0] == 4  # as of `explain` and `budget --history`
    assert run(capsys, tmp_path / "nothing")[0] == 4
    (tmp_path / "file").touch()
    assert run(capsys, tmp_path / "file")[0] == 2
    code, _, message = run(capsys)
    assert code == 2
    assert "DIR" in message


@pytest.mark.slow
def test_a_training_without_privacy_has_no_entry(tmp_path, capsys):
    trained(tmp_path, RECIPE.replace("{eps: 4, delta: 1e-5}", "none"))
    code, text, message = run(capsys, tmp_path / "out", *REGISTRY)
    assert (code, text) == (3, "")
    assert "no privacy" in message


def test_help_lists_every_command_once_under_its_heading(capsys):
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    places = [text.index(f"\n{heading}:\n") for heading in GROUPS]
    assert places == sorted(places)
    for name in COMMANDS:
        assert text.count(f"\n  {name} ") == 1
    assert len(COMMANDS) == len(set(COMMANDS))
    assert max(map(len, text.splitlines())) <= 100
