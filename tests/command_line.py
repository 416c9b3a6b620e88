"""The one way in which tests run a command in their own process."""

from __future__ import annotations

import contextlib
import io
import json
import shlex
from collections.abc import Iterable

import pytest

from wpriv.cli.main import main


def call(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    """Run a command and return its exit code, standard output and standard error.

    Args:
        capsys: pytest's fixture (or ``capfd``); what was printed before is dropped.
        words: the words of the command after ``wpriv``; or one string, which is split as in a shell.
    """
    capsys.readouterr()
    code = main(_split(words))
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def call_alone(words: Iterable[object]) -> tuple[int, str, str]:
    """Run a command as ``call`` does, where there is no ``capsys``: in fixtures, and for each example of a property."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([str(word) for word in words])
    return code, out.getvalue(), err.getvalue()


def ends_in_error(err: str, words: Iterable[str], code: int) -> bool:
    """Whether standard error ends in an error: under --json an object with the exit code, else a paragraph."""
    if "--json" not in words:
        return "wpriv: " in err
    return bool(json.loads(err.splitlines()[-1])["exit_code"] == code)


def _split(words: tuple[object, ...]) -> list[str]:
    if len(words) == 1 and isinstance(words[0], str):
        return shlex.split(words[0])
    return [str(word) for word in words]
