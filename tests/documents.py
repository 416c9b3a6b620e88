"""The fenced blocks of README.md and of the pages in docs/, and how tests run them.

    ```console   commands after "$ ", each with what it prints below it; "..." stands for anything
    ```sh        commands whose output is not shown
    ```python    with ">>>": an interactive session whose output is compared; names live on through the page
    ```{code-block} yaml
    :caption: fair.yaml         a file, which is written to the folder of the page before the blocks below it run
    ```bash      a script for another machine, which is not run: the flags of its wpriv commands are checked

The blocks of a page run from top to bottom in one folder, empty at the start. A comment ``<!-- needs: mnist -->`` above
a block skips it where that data set, or that library, is not found.
"""

from __future__ import annotations

import doctest
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.points import ROOT
from wpriv.cli.main import main

README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").rglob("*.md"))]
MANTISSA = r"[-+]?[0-9]+(?:\.[0-9]+)?"
NUMBER = rf"{MANTISSA}(?:e[-+]?[0-9]+)?"
FENCE = re.compile(r"^(`{3,})(\{code-block\} )?([^`\n]*)\n(.*?)^\1 *$", re.M | re.S)
NEEDS = re.compile(r"<!-- needs: ([\w-]+) -->\s*\Z")


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, the file it is to be written to, and the data set that it needs."""

    language: str
    text: str
    file: str = ""
    needs: str = ""

    @property
    def runs(self) -> bool:
        """Whether the block is run: commands, or an interactive session."""
        return self.language in ("console", "sh") or (self.language == "python" and ">>>" in self.text)

    def commands(self) -> list[tuple[str, str]]:
        """Return the commands with the output shown below each ("" where none is shown)."""
        if self.language == "sh":
            return [(line, "") for line in self.text.splitlines() if line.strip() and not line.startswith("#")]
        parts = re.split(r"^\$ ", self.text, flags=re.M)[1:]
        pairs = []
        for part in parts:
            line, _, shown = part.partition("\n")
            while line.endswith("\\"):
                more, _, shown = shown.partition("\n")
                line = line[:-1] + more.strip()
            pairs.append((line, shown))
        return pairs


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page, in order."""
    return list(_blocks(page.read_text(encoding="utf-8")))


def _blocks(text: str) -> Iterator[Block]:
    for match in FENCE.finditer(text):
        directive, language, body = match.group(2, 3, 4)
        needs = NEEDS.search(text[: match.start()])
        file = ""
        if directive:
            options, _, rest = body.partition("\n\n") if body.startswith(":") else ("", "", body)
            caption = re.search(r"^:caption: (\S+)$", options, re.M)
            file, body = (caption.group(1) if caption else ""), rest
        yield Block(language, body, file, needs.group(1) if needs else "")


def run_page(page: Path, folder: Path, capfd: pytest.CaptureFixture[str], data_sets: frozenset[str]) -> int:
    """Run a page's blocks in ``folder``, which is the current one, and return the number of commands that ran.

    data_sets: the data sets that this machine has.
    """
    count, names = 0, dict[str, Any]()
    for block in blocks(page):
        if block.needs and block.needs not in data_sets:
            continue
        if block.file:
            path = folder / block.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
        elif block.language in ("console", "sh"):
            for line, shown in block.commands():
                count += run_line(line, shown, folder, capfd)
        elif block.runs:
            run_session(block.text, names, page.name)
            count += 1
    return count


def run_session(text: str, names: dict[str, Any], page: str) -> None:
    """Run an interactive session; the names that it defines go into ``names``."""
    test = doctest.DocTestParser().get_doctest(text, names, page, None, 0)
    printed: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    result = runner.run(test, out=printed.append, clear_globs=False)
    names.update(test.globs)
    assert result.failed == 0, f"{page}:\n{''.join(printed)}"


# installers, test runners and builders, of which not each machine has all
OF_THE_MACHINE = (
    *("pip ", "python -m pytest", "python -m venv", "git ", ". ", "nox", "pre-commit", "ruff "),
    *("docker ", "rattler-build ", "python docs/"),
)


def run_line(line: str, shown: str, folder: Path, capfd: pytest.CaptureFixture[str]) -> int:
    """Run one line of a console block, compare what it prints, and return 1 where something ran."""
    count = 0
    for part in line.split(" && "):
        if part.startswith(OF_THE_MACHINE):
            continue  # installing and testing is what .ci/run does
        wanted, code = shown, 0
        if part.endswith("; echo $?"):
            wanted, code = shown.rstrip().rpartition("\n")[0], int(shown.split()[-1])
        status, printed = run(part.removesuffix("; echo $?"), capfd, folder)
        assert status == code, f"{part}\nended with {status}:\n{printed}"
        if wanted.strip():
            check_shown(wanted, printed)
        count += 1
    return count


def run(line: str, capfd: pytest.CaptureFixture[str], folder: Path) -> tuple[int, str]:
    """Run a line in this process where it is a plain wpriv command, else in a shell whose ``wpriv`` is this one."""
    if line.startswith("wpriv ") and not set(line) & set("|;<>$`*"):
        capfd.readouterr()
        code = main(shlex.split(line)[1:])
        captured = capfd.readouterr()
        return code, captured.out + captured.err
    shim = folder / ".bin" / "wpriv"
    shim.parent.mkdir(exist_ok=True)
    shim.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m wpriv "$@"\n')
    shim.chmod(0o755)
    python = shim.parent / "python"
    python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    python.chmod(0o755)
    path = {"PATH": f"{shim.parent}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, env={**os.environ, **path})
    return done.returncode, done.stdout + done.stderr


def check_shown(shown: str, printed: str) -> None:
    """Hold what a page shows against what was printed.

    Words and short numbers must be equal, long numbers equal to one unit in their last digit (which hangs on the
    rounding of an FFT, and that differs between machines), and "..." stands for anything.
    """
    pieces = [p for p in re.split(rf"(\.\.\.|{NUMBER}|\s+)", shown.strip()) if p]
    # a number without an exponent leaves one to what follows: 1.703...e-11
    patterns = {p: f"({NUMBER if 'e' in p else MANTISSA})" for p in pieces if is_long(p)}
    patterns |= {p: r"\s+?" for p in pieces if p.isspace()}
    between = [""]
    for piece in pieces:
        if piece == "...":
            between.append("")
        else:
            between[-1] += patterns.get(piece, re.escape(piece))
    numbers = find_in_order(between, printed.strip())
    assert numbers is not None, f"the page shows\n{shown}\nthe command prints\n{printed}"
    for number, got in zip(filter(is_long, pieces), numbers, strict=True):
        assert abs(float(number) - float(got)) <= 1.01 * unit(number), (
            f"the page shows {number} in\n{shown}\nthe command prints {got} in\n{printed}"
        )


def find_in_order(patterns: list[str], text: str) -> list[str] | None:
    """Return the groups of patterns that follow each other in the text, the first at its start and the last at its end.

    Each is taken where it is found first, so that the time is that of a few searches even where one is missing: a
    single expression with as many gaps would try all combinations.
    """
    groups: list[str] = []
    place = 0
    for k, pattern in enumerate(patterns):
        start, end = r"\A" if k == 0 else "", r"\Z" if k == len(patterns) - 1 else ""
        match = re.compile(f"{start}(?:{pattern}){end}").search(text, place)
        if match is None:
            return None
        groups += match.groups()
        place = match.end()
    return groups


def is_long(text: str) -> bool:
    """Say whether this is a decimal number of four or more significant digits."""
    return (
        "." in text
        and bool(re.fullmatch(NUMBER, text))
        and len(text.partition("e")[0].replace(".", "").lstrip("+-0")) >= 4
    )


def unit(number: str) -> float:
    """Return one in the last digit that is shown."""
    mantissa, _, exponent = number.partition("e")
    return 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))
