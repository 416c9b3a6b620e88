"""The README says what is: its commands are run and print what it shows, its tables are computed, its plug-in works.

Rewrite the computed tables after adding a mechanism or an accountant: python tests/test_readme.py
"""

from __future__ import annotations

import dataclasses
import doctest
import math
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import wpriv.mechanisms
from wpriv.cli.main import COMMANDS, main
from wpriv.core import registry
from wpriv.core.adjacency import STANDARD_ADJACENCIES
from wpriv.core.pair_distances import Observed, of_distances
from wpriv.core.process import Process, Sampling, Step
from wpriv.errors import CheckFailed, MissingResource, Unsupported, UsageError

README = Path(__file__).parents[1] / "README.md"
TEXT = README.read_text(encoding="utf-8")
BEGIN, END = "<!-- computed by tests/test_readme.py -->\n", "<!-- end -->"
CSV = "outcome,p,q\n0,0.5,0.4\n1,0.3,0.35\n2,0.2,0\n3,0,0.25\n"
EXAMPLES: dict[str, dict[str, object]] = {
    "discrete-gauss": {"sigma": 0.8},
    "discrete-laplace": {"scale": 0.9},
    "gauss": {"sigma": 1.3},
    "histogram": {"file": "pair.csv"},
    "laplace": {"scale": 0.7},
    "local-gauss": {"sigma": 1.3, "radius": 0.5},
    "local-laplace": {"scale": 0.7, "radius": 0.5},
    "projection": {"d": 20, "k": 5, "sigma": 1.0},
    "randomized-response": {"eps0": 1.2},
    "truncated-gauss": {"sigma": 1.0, "bound": 2.5},
    "truncated-laplace": {"scale": 1.0, "bound": 3.0},
    "uniform": {"outcomes": 10},
    "wgrad": {"sigma": 1.0, "bound": 1.0, "lipschitz_x": 1.0, "size_x": 8, "size_z": 8},
}
SEEN = of_distances([0.5, 1.0, 1.5], coordinates=10)
KINDS = {"none": "N", "poisson": "P", "fixed": "F"}
NUMBER = r"[-+]?[0-9]+(?:\.[0-9]+)?(?:e[-+]?[0-9]+)?"


def blocks(*languages: str, text: str = TEXT) -> list[str]:
    return [body for language, body in re.findall(r"^```(\w+)\n(.*?)^```", text, re.M | re.S) if language in languages]


def sessions() -> list[list[tuple[str, str]]]:
    """Console blocks as pairs of a command and the output below it; lines of sh blocks are commands without output."""
    found = []
    for block in blocks("console"):
        parts = re.split(r"^\$ ", block, flags=re.M)[1:]
        found.append([(part.partition("\n")[0], part.partition("\n")[2]) for part in parts])
    found += [[(line, "") for line in block.splitlines() if line.strip()] for block in blocks("sh")]
    return found


SESSIONS = sessions()


def run(line: str, capfd: pytest.CaptureFixture[str], folder: Path) -> tuple[int, str]:
    """Runs a line in this process where it is a plain wpriv command, else in a shell whose ``wpriv`` is this one."""
    if line.startswith("wpriv ") and not set(line) & set("|;<>$`"):
        code = main(shlex.split(line)[1:])
        captured = capfd.readouterr()
        return code, captured.out + captured.err
    shim = folder / "bin" / "wpriv"
    shim.parent.mkdir(exist_ok=True)
    shim.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m wpriv "$@"\n')
    shim.chmod(0o755)
    path = {"PATH": f"{shim.parent}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(README.parent)}
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, env={**os.environ, **path})
    return done.returncode, done.stdout + done.stderr


def check_shown(shown: str, printed: str) -> None:
    """What is shown was printed: words and short numbers as they are, long ones to one unit in their last digit,
    anything for '...'.

    The unit is there because the last digit hangs on the rounding of an FFT, which differs between machines.
    """
    pieces = [p for p in re.split(rf"(\.\.\.|{NUMBER}|\s+)", shown.strip()) if p]
    patterns = (
        {p: f"({NUMBER})" for p in pieces if is_long(p)}
        | {p: r"\s+" for p in pieces if p.isspace()}
        | {"...": r"[\s\S]*?"}
    )
    found = re.fullmatch("".join(patterns.get(p, re.escape(p)) for p in pieces), printed.strip())
    assert found, f"README shows\n{shown}\nfound\n{printed}"
    for told, got in zip(filter(is_long, pieces), found.groups(), strict=True):
        assert abs(float(told) - float(got)) <= 1.01 * unit(told), (
            f"README shows {told} in\n{shown}\nfound {got} in\n{printed}"
        )


def is_long(text: str) -> bool:
    """A decimal number of four or more significant digits."""
    return (
        "." in text
        and bool(re.fullmatch(NUMBER, text))
        and len(text.partition("e")[0].replace(".", "").lstrip("+-0")) >= 4
    )


def unit(number: str) -> float:
    """One in the last digit that is shown."""
    mantissa, _, exponent = number.partition("e")
    return 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))


@pytest.mark.parametrize("session", SESSIONS, ids=[s[0][0][:60] for s in SESSIONS])
def test_commands_run_and_print_what_is_shown(session, capfd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for line, shown in session:
        for part in line.split(" && "):
            if part.startswith(("pip ", "python ")):
                continue  # installing and testing is what .ci/run does
            told, code = shown, 0
            if part.endswith("; echo $?"):
                told, code = shown.rstrip().rpartition("\n")[0], int(shown.split()[-1])
            found, printed = run(part.removesuffix("; echo $?"), capfd, tmp_path)
            assert found == code, printed
            if told:
                check_shown(told, printed)


@pytest.mark.parametrize(("told", "line"), re.findall(r"\| ([0-9.]+)[^|]* \| `(wpriv [^`]+)` \|", TEXT))
def test_corrected_figures_are_what_wpriv_computes(told, line, capsys):
    assert main([*shlex.split(line)[1:], "--quiet"]) == 0
    assert abs(float(capsys.readouterr().out) - float(told)) <= 0.6 * unit(told)


def test_enough_commands_were_found_to_mean_something():
    lines = [line for session in SESSIONS for line, _ in session]
    assert sum("wpriv " in line for line in lines) >= 15
    assert len(re.findall(r"`wpriv [^`]+` \|$", TEXT, re.M)) >= 7
    assert any("&& wpriv calibrate" in line for line in lines)
    assert any("&& python -m pytest" in line for line in lines)


def test_python_examples_print_what_is_shown(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    examples = [b for b in blocks("python") if ">>>" in b]
    assert examples
    for block in examples:
        test = doctest.DocTestParser().get_doctest(block, {}, "README", str(README), 0)
        assert doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test).failed == 0


def test_the_new_mechanism_is_one_file_that_every_command_finds(tmp_path, monkeypatch, capsys):
    text = (README.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (source,) = [block for block in blocks("python", text=text) if "Mechanism)" in block]
    (tmp_path / "kary_response.py").write_text(source)
    monkeypatch.setattr(wpriv.mechanisms, "__path__", [*wpriv.mechanisms.__path__, str(tmp_path)])
    monkeypatch.delitem(sys.modules, "wpriv.mechanisms.kary_response", raising=False)
    assert main(shlex.split("budget --mech kary-response --param eps0=0.1 --param answers=16 --eps 0 --quiet")) == 0
    # the total variation of the answers to two different questions: (e^eps0 - 1) / (e^eps0 + k - 1)
    assert float(capsys.readouterr().out) == pytest.approx(math.expm1(0.1) / (math.exp(0.1) + 15), rel=1e-5)
    assert main(shlex.split("calibrate --mech kary-response --param eps0=0.1 --eps 1 --delta 1e-6 --quiet")) == 0
    sys.modules.pop("wpriv.mechanisms.kary_response", None)


PLUGINS = [
    name for folder in ("mechanisms", "accountants", "figures", "data", "models") for name in registry.names(folder)
]


@pytest.mark.parametrize("name", [*COMMANDS, *PLUGINS])
def test_every_name_is_in_the_readme(name):
    assert f"`{name}`" in TEXT or f"wpriv {name} " in TEXT


def test_exit_codes_in_the_readme_are_those_of_the_errors():
    for error in (CheckFailed, UsageError, Unsupported, MissingResource):
        assert re.search(rf"^\| {error.exit_code} \|", TEXT, re.M)


def test_links_into_the_repository_lead_somewhere():
    targets = [t for t in re.findall(r"\]\(([^)#]+)\)", TEXT) if "://" not in t]
    assert all((README.parent / t).exists() for t in targets)


def test_computed_tables_are_up_to_date(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert TEXT.partition(BEGIN)[2].partition(END)[0] == tables(), "run: python tests/test_readme.py"


def tables() -> str:
    """Both tables of the README, from what the code answers and refuses; writes pair.csv into the current folder."""
    Path("pair.csv").write_text(CSV)
    names = registry.names("mechanisms")
    assert set(names) == set(EXAMPLES), "give every mechanism an example in tests/test_readme.py"
    lines = ["| mechanism | parameters | without sampling | poisson | fixed |", "|---|---|---|---|---|"]
    for name in names:
        cls = registry.mechanism(name)
        fields = [told(f) for f in dataclasses.fields(cls)]
        cells = [
            ", ".join(a for a in dict.fromkeys((*STANDARD_ADJACENCIES, *cls.adjacencies)) if process(name, kind, a))
            or "refused"
            for kind in KINDS
        ]
        lines.append(f"| `{name}` | {', '.join(fields)} | {' | '.join(cells)} |")
    lines += ["", f"| accountant | claim | {' | '.join(names)} |", "|---" * (len(names) + 2) + "|"]
    for accountant in registry.names("accountants"):
        module = registry.load("accountants", accountant)
        claim = module.CLAIM if module.NOTION == "approximate-dp" else f"{module.CLAIM}, {module.NOTION}"
        lines.append(f"| `{accountant}` | {claim} | {' | '.join(answers(accountant, name) for name in names)} |")
    return "\n".join(lines) + "\n"


def told(f: dataclasses.Field) -> str:
    """A parameter with its default; in brackets where it may be left out and then follows from the others."""
    if f.default is None:
        return f"[{f.name}]"
    return (
        f.name
        if f.default is dataclasses.MISSING
        else f"{f.name}={f.default if isinstance(f.default, str) else format(f.default, 'g')}"
    )


def process(name: str, kind: str, adjacency: str = "", observed: Observed | None = None) -> Process | None:
    mechanism = registry.mechanism(name)(**EXAMPLES[name])
    try:
        return Process((Step(mechanism, 2, Sampling(kind, 1.0 if kind == "none" else 0.1), observed),), adjacency)
    except (Unsupported, UsageError):
        return None


def answers(accountant: str, name: str) -> str:
    """Letters of the samplings under which an accountant covers two releases of a mechanism, perhaps once observed."""
    plain, seen = (
        "".join(letter for kind, letter in KINDS.items() if priced(accountant, process(name, kind, observed=what)))
        for what in (None, SEEN)
    )
    return plain or (f"{seen} observed" if seen else "-")


def priced(accountant: str, asked: Process | None) -> bool:
    if asked is None:
        return False
    try:
        delta = registry.load("accountants", accountant).account(asked).at(eps=1.0).delta
    except Unsupported:
        return False
    return math.isfinite(delta.estimate)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        before, _, rest = TEXT.partition(BEGIN)
        README.write_text(before + BEGIN + tables() + END + rest.partition(END)[2], encoding="utf-8")
