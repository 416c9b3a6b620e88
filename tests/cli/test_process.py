"""What only a real process shows: which modules load, pipes and terminals, colour, exit codes, and the start time."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

GAUSS = ["budget", "--mech", "gauss", "--sigma", "1", "--delta", "1e-5"]
CALIBRATE = ["calibrate", "--mech", "gauss", "--eps", "1", "--delta", "1e-5", "--n", "1000"]
HEAVY = ("torch", "pandas", "matplotlib", "scipy.stats", "scipy.optimize", "yaml", "pydantic", "rich")


def wpriv(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "WPRIV_DEBUG")}
    command = [sys.executable, "-m", "wpriv", *words]
    return subprocess.run(command, capture_output=True, text=True, env={**clean, **env}, check=False)


def loaded(*words: str) -> set[str]:
    """The modules that a command leaves behind."""
    code = f"import sys; from wpriv.cli.main import main; main({list(words)!r}); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


def in_a_terminal(*words: str, **env: str) -> str:
    """What a command writes to a terminal of its own."""
    clean = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "TERM")}
    outer, inner = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "wpriv", *words], stdout=inner, stderr=inner, env={**clean, "TERM": "xterm", **env}
    )
    os.close(inner)
    out = b""
    while True:
        try:
            part = os.read(outer, 65536)
        except OSError:  # the terminal is gone with its last writer
            break
        if not part:
            break
        out += part
    os.close(outer)
    assert process.wait() in (0, 2)
    # a slow machine shows meanwhile what is done, and erases it
    return re.sub(r"\r\x1b\[2K(?:wpriv: [a-z ]+, \d+:\d\d)?", "", out.decode().replace("\r\n", "\n"))


@pytest.mark.parametrize("words", [["--version"], ["--help"], ["budget", "--help"], ["calibrate", "--help"], []])
def test_help_and_version_load_no_numpy(words):
    assert not loaded(*words) & {"numpy", "scipy", *HEAVY}


@pytest.mark.parametrize("words", [GAUSS, [*GAUSS, "--json", "--explain"], CALIBRATE])
def test_the_calculator_loads_nothing_heavy(words):
    modules = loaded(*words)
    assert "numpy" in modules
    assert not modules & set(HEAVY)


def test_rich_is_not_loaded_off_a_terminal():
    job = ["--mech", "gauss", "--sigma", "4", "--sampling", "poisson", "--rate", "0.01", "--n", "64", "--delta", "1e-4"]
    assert "rich" not in loaded("compare", *job, "--why")
    assert "rich" not in loaded("compare", *job, "--accountant", "pld")


def test_a_pipe_sees_no_escape_codes_and_no_boxes():
    for words in (GAUSS, [*GAUSS, "--explain"], ["--help"], ["budget", "--sigm"], ["nothing"]):
        done = wpriv(*words, FORCE_COLOR="1")
        assert not set("\x1b╭│╰─┃━") & set(done.stdout + done.stderr), words


def test_only_colour_and_the_breaks_of_lines_depend_on_the_terminal():
    piped = wpriv(*GAUSS).stdout
    seen = in_a_terminal(*GAUSS, COLUMNS="60")
    assert "\x1b[1m" in seen
    plain = re.sub(r"\x1b\[[0-9;]*m", "", seen)
    assert plain.split() == piped.split()
    assert max(map(len, plain.splitlines())) <= 60
    assert in_a_terminal(*GAUSS, NO_COLOR="1", COLUMNS="80") == piped
    assert in_a_terminal(*GAUSS, TERM="dumb", COLUMNS="80") == piped


def test_errors_on_a_terminal_are_the_same_plain_line_but_for_its_breaks():
    line = wpriv("budget", "--simga", "1").stderr
    assert line.count("\n") == 1
    seen = in_a_terminal("budget", "--simga", "1", COLUMNS="60")
    assert seen.split() == line.split()
    assert max(map(len, seen.splitlines())) <= 60


def test_a_closed_pipe_is_no_traceback():
    code = f"{sys.executable} -m wpriv {' '.join(GAUSS)} --curve | true"
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr


def test_exit_codes_reach_the_shell():
    assert wpriv(*GAUSS).returncode == 0
    assert wpriv(*GAUSS, "--max-eps", "1").returncode == 1
    assert wpriv("budget", "--sigma", "1").returncode == 2
    assert wpriv(*GAUSS, "--sampling", "poisson", "--rate", "0.5", "--accountant", "gdp").returncode == 3
    assert wpriv("budget", "--history", "/no/such/file", "--delta", "1e-5").returncode == 4


def test_version_is_the_package_version():
    import wpriv as package

    assert wpriv("--version").stdout == f"wpriv {package.__version__}\n"
