"""Tests of output streams that are closed, full or of another encoding."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from tests import nightly
from wpriv.cli import budget as budget_command
from wpriv.cli.main import main
from wpriv.verify.certificate import SCHEMA

pytestmark = pytest.mark.slow

WPRIV = f"{sys.executable} -m wpriv"
BUDGET = f"{WPRIV} budget --mech gauss --sigma 4 --delta 1e-5"
UNSOUND = f"{WPRIV} budget --mech gaus --delta 1e-5"
TRAINING = """
kind: train
source: "a test"
task: classify
data: {name: digits, limit: 40}
model: {name: logistic}
privacy: {sigma: 2, delta: 1e-5}
optimizer: {name: sgd, lr: 0.5}
batch: 10
steps: 2
accountants: [pld]
"""
# a warning on standard error beside a result
WARNED = f"{BUDGET} --quiet --accountant gdp-clt"


def shell(line: str, **env: str) -> tuple[int, str, str]:
    """Exit code, output and errors of a line of bash."""
    done = subprocess.run(["bash", "-c", line], capture_output=True, env={**os.environ, **env})
    return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")


COMMANDS = [BUDGET, f"{WPRIV} recipe ls", f"{WPRIV} --help", f"{WPRIV} budget --help", f"{WPRIV} --version"]
ENCODINGS = ("utf-8", "ascii")
# by default one encoding a command, in turn
READ = [(words, ENCODINGS[(place + k) % 2]) for place, words in enumerate(COMMANDS) for k in range(2)]


@pytest.mark.parametrize(("words", "encoding"), nightly.sharded(READ, 2))
def test_a_reader_that_leaves_ends_the_command_as_sigpipe_does(words, encoding):
    code, _, err = shell(f"{words} | true; exit ${{PIPESTATUS[0]}}", PYTHONIOENCODING=encoding)
    assert (code, err) == (141, "")


@pytest.mark.parametrize(
    "words",
    nightly.sharded(
        [
            BUDGET,
            f"{BUDGET} --json",
            f"{WPRIV} calibrate --mech gauss --eps 1 --delta 1e-5",
            f"{WPRIV} train tiny.yaml --out run",
        ],
        4,
    ),
)
def test_a_reader_that_leaves_costs_no_certificate(words, tmp_path):
    (tmp_path / "tiny.yaml").write_text(TRAINING)
    line = f"cd {tmp_path} && {words} --certificate c.json | true; exit ${{PIPESTATUS[0]}}"
    assert shell(line)[0] == 141
    assert json.loads((tmp_path / "c.json").read_text())["schema"] == SCHEMA


def test_an_answer_is_printed_though_its_certificate_cannot_be_written():
    code, out, err = shell(f"{BUDGET} --quiet --certificate /proc/none/c.json")
    assert (code, out, err.count("wpriv: ")) == (4, "0.926342\n", 1)


TARGETS = (">/dev/full", ">&-", ">&- <&-")
# by default one target a command, in turn
WRITTEN = [(words, TARGETS[(place + k) % 3]) for place, words in enumerate(COMMANDS[::2]) for k in range(3)]


@pytest.mark.parametrize(("words", "target"), nightly.sharded(WRITTEN, 3))
def test_results_that_cannot_be_written_are_an_error_of_the_environment(words, target):
    code, _, err = shell(f"{words} {target}")
    assert code == 4, err
    assert err.count("\n") == 1
    assert "standard output" in err


@pytest.mark.parametrize("target", ["2>/dev/full", "2>&-", "2>&- <&-", "2> >(exec true)"])
def test_notes_that_cannot_be_written_change_neither_result_nor_exit_code(target):
    code, out, _ = shell(f"{WARNED} {target}")
    assert code == 0
    assert float(out) > 0
    code, out, _ = shell(f"{UNSOUND} {target}")
    assert (code, out) == (2, "")


RECIPE = """
kind: compare
source: "Müller–Łukasz ≤ 2019"
process: [{mech: gauss, sigma: 4}]
eps: 1
accountants: [gdp]
"""


@pytest.mark.parametrize("encoding", ["ascii", pytest.param("latin-1", marks=pytest.mark.nightly), "ascii:strict"])
def test_characters_that_an_encoding_lacks_are_written_as_escapes(tmp_path, encoding):
    (tmp_path / "ü.yaml").write_text(RECIPE, encoding="utf-8")
    code, out, err = shell(f"cd {tmp_path} && {WPRIV} compare ü.yaml --out x", PYTHONIOENCODING=encoding)
    assert code == 0, err
    assert "\\u0141ukasz \\u2264 2019" in out
    assert "2.92428e-6" in out
    code, out, err = shell(f"cd {tmp_path} && {WPRIV} compare nowhere-ü", PYTHONIOENCODING=encoding)
    assert (code, out) == (2, "")


def test_the_c_locale_changes_no_number(tmp_path):
    (tmp_path / "ü.yaml").write_text(RECIPE, encoding="utf-8")
    env = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    code, out, err = shell(f"cd {tmp_path} && {WPRIV} compare ü.yaml --out ü && {WPRIV} plot ü", **env)
    assert code == 0, err
    assert "2.92428e-6" in out
    assert "Müller" in (tmp_path / "ü" / "recipe.yaml").read_text(encoding="utf-8")


INTERRUPTED = """
import runpy, sys

class Interrupt:
    def find_spec(self, name, *_):
        if name == {module!r}:
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupt())
sys.argv = ["wpriv", "budget", "--mech", "gauss", "--sigma", "4", "--delta", "1e-5"]
runpy.run_module("wpriv", run_name="__main__")
"""


@pytest.mark.parametrize(
    "module",
    ["wpriv.cli.main", "typer", "wpriv.cli.budget", "wpriv.accounting.build_process", "numpy", "scipy.special"],
)
def test_ctrl_c_while_a_module_is_loaded_shows_no_traceback(module):
    done = subprocess.run([sys.executable, "-c", INTERRUPTED.format(module=module)], capture_output=True, text=True)
    # the interpreter may end itself by the signal, which a shell shows as 130 as well
    assert done.returncode in (130, -signal.SIGINT), done.stderr
    assert (done.stdout, done.stderr) == ("", "wpriv: interrupted\n")


def fail_with(monkeypatch, error):
    def broken(**_):
        raise error

    monkeypatch.setattr(budget_command.flags, "output", broken)


@pytest.mark.parametrize(
    "error", [PermissionError(13, "Permission denied", "/x/y"), OSError(28, "No space left on device", "/x/y")]
)
def test_an_error_of_the_system_that_nobody_named_is_no_bug_and_names_its_file(capsys, monkeypatch, error):
    monkeypatch.delenv("WPRIV_DEBUG", raising=False)
    fail_with(monkeypatch, error)
    assert main(["budget"]) == 4
    err = capsys.readouterr().err
    assert "/x/y" in err
    assert error.strerror in err
    assert err.count("\n") == 1


def test_a_broken_pipe_inside_the_program_is_no_failed_check(capsys, monkeypatch):
    monkeypatch.delenv("WPRIV_DEBUG", raising=False)
    fail_with(monkeypatch, BrokenPipeError(32, "Broken pipe"))
    assert main(["budget"]) == 4
    assert "Broken pipe" in capsys.readouterr().err
