"""The end of a process that trained with others: nothing of torch that is left over can abort it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

# an object whose deletion at the end of the interpreter aborts it, in place of a thread that is left over
PROGRAM = """
import atexit, os, sys, types
sys.modules["torch.distributed"] = types.ModuleType("torch.distributed")
atexit.register(print, "registered work was done")
class LeftOver:
    def __del__(self, abort=os.abort):
        abort()
left_over = LeftOver()
sys.argv = ["wpriv", *sys.argv[1:]]
from wpriv.__main__ import main
sys.exit(main())
"""
WORDS = ["budget", "--mech", "gauss", "--sigma", "2", "--delta", "1e-5", "--quiet"]


@pytest.mark.parametrize(("more", "code"), [([], 0), (["--max-eps", "0.1"], 1)])
def test_a_process_of_several_ends_with_its_code_and_its_output(more, code):
    env = {**os.environ, "WORLD_SIZE": "2"}
    command = [sys.executable, "-c", PROGRAM, *WORDS, *more]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    lines = done.stdout.split("\n")
    assert float(lines[0]) > 1
    assert lines[1] == "registered work was done"
