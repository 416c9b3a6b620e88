"""Live progress and colour: on a terminal of its own (a pseudo-terminal), and no trace of them off it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading

import pytest

from tests import forked
from wpriv.cli import output
from wpriv.cli.main import main

pytestmark = pytest.mark.slow

BAR = "━"
BARS = "[━╸╺]+"
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
TRAIN = ["train", "quick/digits", "--set", "epochs=2", "--set", "expect=[]"]
COMPARE = ["compare", "../grid.yaml"]
GRID = """\
kind: compare
source: "a small grid"
process: [{mech: gauss, sigma: 4}]
delta: 1e-5
sweep: {over: n, values: [1, 16]}
accountants: [gdp, rdp, markov]
figure: eps-over-n
expect:
  - {where: {n: 16, accountant: gdp}, eps: 4.377178, within: 1e-5, source: "the curve of two normals"}
"""
WHY = [
    "compare",
    "--mech",
    "gauss",
    "--sigma",
    "4",
    "--sampling",
    "poisson",
    "--rate",
    "0.01",
    "--n",
    "64",
    "--delta",
    "1e-4",
    "--why",
]


@pytest.fixture(scope="module", autouse=True)
def _loaded(tmp_path_factory):
    """Load here what every forked command would load anew."""
    folder = tmp_path_factory.mktemp("loaded")
    assert main(["train", "quick/digits", "--set", "steps=1", "--set", "expect=[]", "--out", str(folder / "out")]) == 0


@pytest.fixture(autouse=True)
def _grid(tmp_path):
    (tmp_path / "grid.yaml").write_text(GRID)


def run(folder, *words, out=False, err=False, code="", fresh=False, **env):
    """Standard output, standard error and exit code of a command; its streams are terminals if asked, else pipes.

    code: is run before the command. fresh: run it in a new interpreter, not in a copy of this one.
    """
    clean = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "TERM", "COLORTERM", "FORCE_COLOR")}
    env = {**clean, "TERM": "xterm-256color", **env}
    folder.mkdir(exist_ok=True)
    streams = [Stream(on) for on in (out, err)]
    ends = {"out": streams[0].inner, "err": streams[1].inner}
    if fresh:
        line, given = (
            [sys.executable, "-m", "wpriv", *words],
            dict(zip(("stdout", "stderr"), ends.values(), strict=True)),
        )
        process = subprocess.Popen(line, stdin=subprocess.DEVNULL, cwd=folder, env=env, **given)
        return *(stream.read() for stream in streams), process.wait()
    child = forked.start(words, **ends, folder=folder, environment=env, before=code)
    return *(stream.read() for stream in streams), forked.end(child)


class Stream:
    """A pipe or a pseudo-terminal of 120 columns, read in a thread so that no writer has to wait."""

    def __init__(self, on_terminal):
        self.outer, self.inner = pty.openpty() if on_terminal else os.pipe()
        if on_terminal:
            fcntl.ioctl(self.inner, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        self.parts, self.more = [], threading.Event()
        self.thread = threading.Thread(target=self._drain)
        self.thread.start()

    def _drain(self):
        while True:
            try:
                part = os.read(self.outer, 65536)
            except OSError:  # a terminal is gone with its last writer
                return
            if not part:
                return
            self.parts.append(part)
            self.more.set()

    def read(self):
        os.close(self.inner)
        self.thread.join()
        os.close(self.outer)
        return b"".join(self.parts).decode().replace("\r\n", "\n")


def test_a_training_shows_a_bar_with_steps_and_eps_on_a_terminal_and_the_same_lines_stay(tmp_path):
    printed, seen, code = run(tmp_path / "a", *TRAIN, err=True)
    assert code == 0
    assert BAR in seen
    plain = ESCAPES.sub("", seen)
    assert re.search(rf"step +{BARS} +\d+ of 23 +eps \d", plain)
    again, off, _ = run(tmp_path / "b", *TRAIN, FORCE_COLOR="1", TTY_COMPATIBLE="1")
    assert not set(f"\x1b\r{BAR}") & set(again + off)
    assert again == printed
    kept = [line for line in off.splitlines() if re.search(r"epoch \d:", line)]
    assert len(kept) == 2
    for line in off.splitlines():
        words = re.sub(r"\d+ s$", "", line)  # the seconds of a run are its own
        assert " ".join(words.split()) in " ".join(plain.split())


@pytest.mark.parametrize("jobs", ["1", pytest.param("2", marks=pytest.mark.nightly)])
def test_a_sweep_counts_its_trainings_on_a_terminal_in_one_process_and_in_two(tmp_path, jobs):
    recipe = (
        "kind: train\nsource: s\ntask: classify\ndata: {name: digits, limit: 200}\n"
        "model: {name: logistic}\nprivacy: none\n"
    )
    recipe += "optimizer: {name: sgd, lr: 0.5}\nbatch: 50\nsteps: 3\nseed: 1\nsweep: [{over: seed, values: [1, 2]}]\n"
    (tmp_path / "sweep.yaml").write_text(recipe)
    words, fresh = ["train", "sweep.yaml", "--jobs", jobs], jobs == "2"
    _, seen, code = run(tmp_path, *words, err=True, fresh=fresh)
    assert code == 0
    assert re.search(rf"training +{BARS} +2 of 2", ESCAPES.sub("", seen))
    assert (tmp_path / "results" / "sweep" / "table.csv").read_text().count("\n") == 3
    _, off, code = run(tmp_path, *words, "--out", "off", fresh=fresh)
    assert (code, set(f"\x1b\r{BAR}") & set(off)) == (0, set())


@pytest.mark.parametrize("words", [COMPARE, WHY], ids=["recipe", "why"])
def test_tables_have_the_same_words_on_a_terminal_and_colour_beside_them(tmp_path, words):
    off, _, code = run(tmp_path / "a", *words, FORCE_COLOR="1")
    assert code == 0
    assert "\x1b" not in off
    seen, _, _ = run(tmp_path / "b", *words, out=True, COLUMNS="80")
    assert "\x1b[1m" in seen
    assert len(set(COLOURS.findall(seen))) > 2  # bold, none, and a colour
    assert COLOURS.sub("", seen) == off
    for env in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert run(tmp_path / f"c{len(env)}{min(env)}", *words, out=True, COLUMNS="80", **env)[0] == off


@pytest.mark.parametrize("form", ["--json", "--csv"])
def test_what_scripts_read_has_no_colour_even_on_a_terminal(tmp_path, form):
    seen, _, _ = run(tmp_path, *WHY, form, out=True)
    assert seen == run(tmp_path, *WHY, form)[0]


# the work does not go on before its display is up, so that no test hangs on the speed of the machine
WAITS = """
import sys, threading
import wpriv.cli.output as t, MODULE as k
t.DELAY, bars, up = 0.01, t._bars, threading.Event()
def noted(*columns):
    display = bars(*columns)
    start = display.start
    display.start = lambda: (start(), up.set())
    return display
write = t._Watch._write
def written(watch, text):
    write(watch, text)
    if text:
        up.set()
def waiting(work):
    def late(*args, **given):
        if sys.stderr.isatty() and "--quiet" not in sys.argv:
            up.wait()
        return work(*args, **given)
    return late
t._bars, t._Watch._write, k.WORK = noted, written, waiting(k.WORK)
"""


@pytest.mark.parametrize(
    ("words", "module", "work", "shown"),
    [
        (COMPARE, "wpriv.accounting.comparison.compare", "compute", rf"cells +{BARS} +\d+ of \d+"),
        (
            ["calibrate", "--mech", "gauss", "--eps", "1", "--delta", "1e-5"],
            "wpriv.accounting.calibrate",
            "calibrate",
            r"wpriv: calibrating, \d:\d\d",
        ),
        (
            ["train", "quick/digits", "--dry-run"],
            "wpriv.training.training_run",
            "planned",
            r"wpriv: planning, \d:\d\d",
        ),
        (
            ["budget", "--mech", "gauss", "--sigma", "4", "--delta", "1e-5"],
            "wpriv.accounting.budget",
            "answer",
            r"wpriv: working, \d:\d\d",
        ),
    ],
    ids=["compare", "calibrate", "dry run", "budget"],
)
def test_work_that_takes_long_is_shown_until_it_is_done(tmp_path, words, module, work, shown):
    slow = WAITS.replace("MODULE", module).replace("WORK", work)
    _, seen, code = run(tmp_path / "a", *words, err=True, code=slow)
    assert code == 0
    assert re.search(shown, ESCAPES.sub("", seen))
    assert seen.endswith("\x1b[2K") or "\x1b[2K" in seen.rpartition(BAR)[2]  # the line is cleared at the end
    _, off, _ = run(tmp_path / "b", *words, code=slow)
    assert not set(f"\x1b\r{BAR}") & set(off)
    if words[0] == "train":
        return
    _, quiet, _ = run(tmp_path / "c", *words, "--quiet", err=True, code=slow)
    assert not set(f"\x1b{BAR}") & set(quiet)


def test_short_work_shows_nothing(tmp_path):
    patient = "import wpriv.cli.output as t; t.DELAY = 600"
    _, seen, code = run(
        tmp_path, "calibrate", "--mech", "gauss", "--eps", "1", "--delta", "1e-5", err=True, code=patient
    )
    assert (seen, code) == ("", 0)


def fail_late(stream):
    with output.watched():
        while b"working" not in b"".join(stream.parts):
            stream.more.wait()
            stream.more.clear()
        raise KeyError


def test_a_display_stops_with_the_work_that_fails(monkeypatch):
    stream = Stream(True)
    monkeypatch.setattr(output, "DELAY", 0.0)
    monkeypatch.setenv("TERM", "xterm")
    with os.fdopen(os.dup(stream.inner), "w") as file:
        monkeypatch.setattr(sys, "stderr", file)
        with pytest.raises(KeyError):
            fail_late(stream)
    seen = stream.read()
    assert "working" in seen
    assert seen.endswith("\r\x1b[2K")


def test_errors_while_a_bar_is_up_are_plain_lines(tmp_path):
    _, seen, code = run(tmp_path, "train", "quick/digits", "--set", "model.name=nothing", err=True)
    assert code == 2
    assert not set("╭│╰─\x1b") & set(seen)


@pytest.mark.parametrize("more", [[], ["--dry-run"], ["--jobs", "2"]])
def test_an_unknown_backend_is_refused_with_the_known_ones(capsys, more):
    assert main(["train", "quick/digits", "--backend", "lokyy", *more]) == 2
    error = capsys.readouterr().err
    assert "did you mean 'loky'" in error
    assert all(name in error for name in ("loky", "threading", "submitit"))
