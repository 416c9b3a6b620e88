"""Under --json an error is one JSON object in the last line of standard error, and the exit code stays."""

from __future__ import annotations

import json

import jsonschema
import pytest

from tests.cli.test_errors import CASES
from tests.command_line import call
from tests.points import ROOT
from wpriv.cli import budget as budget_command
from wpriv.errors import EXIT_CODES, UsageError

SCHEMA = json.loads((ROOT / "wpriv/cli/error.schema.json").read_text())
GAUSS = "budget --mech gauss --sigma 1"
FAULTY = 'kind: budget\nsource: "a plan"\nprocess: [{mech: gauss, sigm: 4, n: ten}]\ndelta: 1e-5\n'


def error_of(capsys, line):
    """The error of a command, its exit code and its standard output."""
    code, out, err = call(capsys, f"{line} --json")
    error = json.loads(err.splitlines()[-1])
    jsonschema.validate(error, SCHEMA)
    assert error["exit_code"] == code
    assert error["error"] == EXIT_CODES[code][0]
    return error, code, out


# errors that do not hang on the output format
FORMATS = {"--json", "--csv", "--quiet", "--max-eps"}
LINES = [line for line, _, _ in CASES if line.startswith("budget ") and not line.endswith("--sigma")]


@pytest.mark.parametrize("line", [line for line in LINES if not FORMATS & {*line.split()}])
def test_it_has_the_message_and_the_exit_code_of_the_text(capsys, line):
    code, _, err = call(capsys, line)
    error, code_too, out = error_of(capsys, line)
    assert (code_too, out) == (code, "")
    assert err.endswith(f"wpriv: {error['message']}\n")


def test_a_fault_of_a_recipe_has_its_file_line_and_column(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plan.yaml").write_text(FAULTY)
    error, code, out = error_of(capsys, "budget plan.yaml")
    assert (code, out) == (2, "")
    assert (error["file"], error["line"], error["column"]) == ("plan.yaml", 3, 25)
    assert error["message"].count("plan.yaml:3:") == 2


def test_a_failed_gate_prints_its_answer_and_the_error_apart(capsys):
    error, code, out = error_of(capsys, f"{GAUSS} --delta 1e-5 --max-eps 3")
    assert code == 1
    assert json.loads(out)["schema"] == "wpriv.guarantee/1"
    assert "wanted eps <= 3 (--max-eps)" in error["message"]


def test_what_is_unsupported_and_what_is_missing(capsys):
    line = "budget --mech laplace --scale 1 --sampling poisson --rate 0.1 --adjacency replace-one --delta 1e-5"
    assert error_of(capsys, line)[1] == 3
    assert error_of(capsys, "budget --history missing.json --delta 1e-5")[1] == 4


@pytest.mark.parametrize(
    ("raised", "code"),
    [(KeyError("x"), 70), (KeyboardInterrupt(), 130), (MemoryError(), 3), (OSError(28, "No space left", "f"), 4)],
    ids=lambda value: type(value).__name__,
)
def test_bugs_and_interruptions_too(capsys, monkeypatch, raised, code):
    def fail(**values):
        raise raised

    monkeypatch.setattr(budget_command.flags, "output", fail)
    assert error_of(capsys, GAUSS)[1:] == (code, "")


def test_without_the_flag_errors_are_text(capsys):
    _, _, err = call(capsys, f"{GAUSS} --delta 2")
    assert err.startswith("wpriv: ")


def test_the_kinds_of_the_schema_are_those_of_the_exit_codes():
    kinds = {kind for code, (kind, _) in EXIT_CODES.items() if code not in (0, 141)}
    assert set(SCHEMA["properties"]["error"]["enum"]) == kinds
    assert set(SCHEMA["properties"]["exit_code"]["enum"]) == set(EXIT_CODES) - {0, 141}


def test_the_place_of_a_fault_is_no_part_of_other_errors():
    assert UsageError("message").place is None
