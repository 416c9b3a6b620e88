"""Completion: the words offered, and that bash, zsh and fish really complete by them."""

from __future__ import annotations

import dataclasses
import fcntl
import os
import pty
import re
import select
import shutil
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from tests import nightly
from tests.command_line import call
from wpriv.cli import catalog
from wpriv.cli.completion import SCRIPTS, offered
from wpriv.cli.parsing import COMMANDS, LazyGroup
from wpriv.config import recipe_files
from wpriv.core import registry
from wpriv.spec import KEYS

ROOT = Path(__file__).parents[2]
STARTS = {
    "bash": ["bash", "--norc", "--noprofile", "-i"],
    "zsh": ["zsh", "-f", "-i"],
}
SET_UP = {
    "bash": 'eval "$(wpriv completion bash)"',
    "zsh": 'autoload -Uz compinit; compinit -u; bindkey -e; eval "$(wpriv completion zsh)"',
    "fish": "wpriv completion fish | source",
}


def words(*line):
    return list(offered(line))


def test_commands_and_their_subcommands():
    assert words("") == list(COMMANDS)
    assert words("bu") == words("help", "bu") == ["budget"]
    assert words("recipe", "") == ["ls", "check", "show", "schema", "cp", "refresh"]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_flag_of_a_command_is_offered_and_a_given_one_is_not(name):
    command = LazyGroup().get_command(None, name)
    options = {flag for each in command.params if each.param_type_name == "option" for flag in each.opts}
    assert set(words(name, "-")) == options | {"--help"}
    if "--eps" in options:
        assert "--eps" not in words(name, "--eps", "1", "--")
    if "--param" in options:
        assert "--param" in words(name, "--param", "a=1", "--")


@pytest.mark.parametrize(
    ("flag", "kind"),
    [("--mech", "mechanisms"), ("--sampling", "samplings"), ("--adjacency", "adjacencies")],
)
def test_values_of_flags_are_the_names_of_their_kind(flag, kind):
    assert words("budget", flag, "") == catalog.names(kind)
    assert words("budget", f"{flag}=") == [f"{flag}={name}" for name in catalog.names(kind)]


def test_accountants_are_offered_with_all():
    assert words("budget", "--accountant", "") == [*registry.names("accountants"), "all"]


@pytest.mark.parametrize("name", registry.names("mechanisms"))
def test_parameters_are_those_of_the_mechanism_on_the_line(name):
    fields = [field.name for field in dataclasses.fields(registry.mechanism(name)) if field.name not in KEYS]
    assert words("budget", "--mech", name, "--param", "") == [f"{field}=" for field in fields]
    if fields:
        given = words("calibrate", "--mech", name, "--param", f"{fields[0]}=1", "--param", "")
        assert given == [f"{field}=" for field in fields[1:]]


def test_parameters_of_a_reader_of_data():
    assert "target=" in words("data", "show", "table", "--param", "")
    assert "target=" in words("privatize", "--data", "table", "--param", "t")


def test_recipes_are_offered_by_name_to_the_verbs_that_run_them_and_files_beside_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").touch()
    (tmp_path / "notes.txt").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "inner.yml").touch()
    known = recipe_files.shipped()
    assert set(words("recipe", "show", "")) == {*known, "mine.yaml", "folder/"}
    trained = set(words("train", "")) & set(known)
    assert trained == {name for name, path in known.items() if "\nkind: train" in f"\n{path.read_text()}"}
    assert words("train", "folder/") == ["folder/inner.yml"]
    assert words("train", "no/such/") == []
    assert words("explain", "m") == ["mine.yaml"]
    assert words("explain", "a") == []  # not the words of reproduce
    assert words("reproduce", "a") == ["all"]


def test_names_are_offered_to_list_by_their_kind():
    assert words("list", "mechanisms", "lap") == ["laplace", "laplace-threshold"]
    assert {"mechanisms", "matrix-gauss"} <= set(words("list", "m"))


def test_each_word_is_described_on_request():
    described = offered(["budget", "--mech", "gau"], described=True)
    assert "Gaussian noise" in described["gauss"]
    assert "standard deviation" in offered(["budget", "--sig"], described=True)["--sigma"].lower()
    assert offered(["budg"], described=True)["budget"].startswith("Compute the privacy cost")


def test_what_cannot_be_completed_offers_nothing(capsys):
    for line in (
        ("nothing", "b"),
        ("budget", "--eps", "1"),
        ("train", "a", "b"),
        ("budget", "--mech", "nothing", "--param", ""),
    ):
        assert call(capsys, "completion", "bash", "--", *line)[:2] == (0, "")


def test_an_unknown_shell_is_refused_with_the_known_ones(capsys):
    code, out, err = call(capsys, "completion fsh")
    assert (code, out) == (2, "")
    assert "did you mean 'fish'" in err


@pytest.mark.slow
@pytest.mark.parametrize(
    "line", [["budget", "--mech", "ga"], ["budget", "--mech", "projection", "--param", ""], ["train", "q"], [""]]
)
def test_completion_loads_no_numpy(line):
    code = (
        "import sys; from wpriv.cli.main import main; "
        "assert main(sys.argv[1:]) == 0; "
        "print(sorted({'numpy', 'torch', 'pydantic', 'yaml'} & set(sys.modules)))"
    )
    asked = [sys.executable, "-c", code, "completion", "zsh", "--", *line]
    done = subprocess.run(asked, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    assert done.stdout.count("\n") > 1


class Terminal:
    """An interactive shell on a terminal of its own."""

    def __init__(self, name, folder, env):
        self.folder = folder
        self.outer, inner = pty.openpty()
        fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 60, 200, 0, 0))
        streams = {"stdin": inner, "stdout": inner, "stderr": inner}
        self.process = subprocess.Popen(STARTS[name], **streams, env=env, cwd=folder, start_new_session=True)
        os.close(inner)
        self.run(SET_UP[name], "started")

    def run(self, line, file):
        """Run a line, and wait for the end of it, which is when the next one has made a file."""
        os.write(self.outer, f"{line}\n: > {file}\n".encode())
        path, text, end = self.folder / file, "", time.monotonic() + 600
        while not path.exists():
            assert time.monotonic() < end, text
            if select.select([self.outer], [], [], 0.2)[0]:
                text += os.read(self.outer, 65536).decode(errors="replace")

    def completed(self, line):
        """The words of a line after a press of the key for completion."""
        for file in ("line", "ended"):
            (self.folder / file).unlink(missing_ok=True)
        # after the completion, the beginning of the line gets a command that writes what follows it
        self.run(f"{line}\t\x01printf '%s\\n' > line ", "ended")
        return (self.folder / "line").read_text().split("\n")[:-1]

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.outer)


class Fish:
    """fish, which says what it would offer for a line."""

    def __init__(self, folder, env):
        self.folder, self.env = folder, env

    def completed(self, line):
        script = f'{SET_UP["fish"]}; complete -C"{line}"'
        command = ["fish", "--no-config", "-c", script]
        done = subprocess.run(command, cwd=self.folder, env=self.env, capture_output=True, text=True, check=True)
        offers = [offer.partition("\t")[0] for offer in done.stdout.splitlines()]
        return [*line.split(" ")[:-1], *min(offers, key=len, default="").split()]

    def close(self):
        pass


@pytest.fixture(scope="module")
def shell(request, tmp_path_factory):
    """A shell whose ``wpriv`` is this program."""
    name, folder = request.param, tmp_path_factory.mktemp(request.param)
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")
    (folder / "wpriv").write_text(f'#!/bin/sh\nexec {sys.executable} -m wpriv "$@"\n')
    (folder / "wpriv").chmod(0o755)
    about = {"PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "HOME": str(folder), "TERM": "dumb"}
    env = {**os.environ, **about}
    opened = Fish(folder, env) if name == "fish" else Terminal(name, folder, env)
    yield opened
    opened.close()


TYPED = [
    ("wpriv cal", "wpriv calibrate"),
    ("wpriv budget --mech lapl", "wpriv budget --mech laplace"),
    ("wpriv budget --mech=unif", "wpriv budget --mech=uniform"),
    ("wpriv budget --sigm", "wpriv budget --sigma"),
    ("wpriv budget --mech randomized-response --param e", "wpriv budget --mech randomized-response --param eps0="),
    ("wpriv train quick/dig", "wpriv train quick/digits"),
    ("wpriv data show mni", "wpriv data show mnist"),
    ("wpriv report lin", "wpriv report lines.txt"),
]
# by default each line in one of the shells
IN_SHELLS = nightly.sharded([(name, *line) for name in SCRIPTS for line in TYPED], 3)


@pytest.mark.slow
@pytest.mark.parametrize(("shell", "typed", "words"), IN_SHELLS, indirect=["shell"])
def test_a_shell_completes_the_line(shell, typed, words):
    (shell.folder / "lines.txt").touch()
    assert shell.completed(typed) == words.split()


@pytest.mark.slow
@pytest.mark.parametrize("name", SCRIPTS)
def test_the_script_of_a_shell_is_sound(name, capsys, tmp_path):
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")
    (tmp_path / "script").write_text(call(capsys, f"completion {name}")[1])
    check = [name, "-n", "script"]
    done = subprocess.run(check, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert not re.search(r"\s$", SCRIPTS[name])
