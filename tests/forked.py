"""Commands in a child of this process: streams, folder and environment of their own without loading torch again.

A process that trains spends four seconds on imports, and a fork none. How ``python -m wpriv`` begins and ends is tested
in ``tests/cli/test_process.py`` and ``test_streams.py``. A child ends with its command: processes that it started would
be left over.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

CRASHED = 70


def start(
    words: Sequence[str] | None, *, out: int, err: int, folder: Path, environment: Mapping[str, str], before: str = ""
) -> int:
    """Start a command in a forked child and return its process id, for ``end``.

    Args:
        words: of the command, after ``wpriv``; None for none. out, err: descriptors for its standard output and error.
        folder: where it runs. before: Python code that it runs first.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child:
        return child
    code = CRASHED
    try:
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        for descriptor, stream in ((os.open(os.devnull, os.O_RDONLY), 0), (out, 1), (err, 2)):
            os.dup2(descriptor, stream)
        os.closerange(3, 256)
        sys.stdin, sys.stdout, sys.stderr = (os.fdopen(stream, mode, 1) for stream, mode in enumerate("rww"))
        sys.argv = ["wpriv", *(words or ())]
        code = _run(words, before)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def end(child: int) -> int:
    """Wait for the child and return its exit code."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def at_once(
    words: Sequence[str] | None, environments: Iterable[Mapping[str, str]], folder: Path, *, before: str = ""
) -> list[tuple[int, str]]:
    """Run a command in several children at once and return the exit code and the output of each, errors among it.

    Args:
        environments: one for each child, added to that of this process. words, folder, before: as for ``start``.
    """
    children = []
    for environment in environments:
        printed = tempfile.TemporaryFile("w+")  # noqa: SIM115
        end_of_both = {"out": printed.fileno(), "err": printed.fileno()}
        given = {**os.environ, **environment}
        children.append((start(words, **end_of_both, folder=folder, environment=given, before=before), printed))
    results = []
    for child, printed in children:
        code = end(child)
        with printed:
            printed.seek(0)
            results.append((code, printed.read()))
    return results


def _run(words: Sequence[str] | None, before: str) -> int:
    import traceback

    from wpriv.cli.main import main

    try:
        exec(before, {"__name__": "__main__"})
        return 0 if words is None else main(list(words))
    except SystemExit as exit:
        return int(exit.code or 0)
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
        return CRASHED
