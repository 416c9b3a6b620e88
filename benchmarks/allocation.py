"""``python -m benchmarks allocation [--quick] [--seconds S] [--out DIR]``: random allocation, beside PLD_accounting.

PLD_accounting is the package of Feldman and Shenfeld. Every answer is computed in a process of its own, so that none
profits from the caches of another; times are CPU seconds of the answer without imports.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import astuple, dataclass
from pathlib import Path

from benchmarks import report


@dataclass(frozen=True)
class Job:
    """Gaussian noise of sensitivity 1, passes of ``steps`` steps, and the delta at which eps is asked."""

    sigma: float
    steps: int
    passes: int
    delta: float


JOBS = (
    Job(4, 1000, 1, 1e-6),
    Job(1, 1000, 1, 1e-6),
    Job(1, 1000, 10, 1e-6),
    Job(1.1, 234, 60, 1e-5),
    Job(0.6, 1000, 1, 1e-6),
    Job(0.3, 1000, 1, 1e-6),
    Job(1, 1000, 1, 1e-30),
)
QUICK = (Job(0.6, 10, 1, 1e-6),)
WPRIV = """
import wpriv
def ends(sigma, steps, passes, delta):
    row = wpriv.budget("gauss", sigma=sigma, n=steps * passes, sampling=wpriv.Allocation(1 / steps), delta=delta)
    return row.epsilon.lower, row.epsilon.upper
ends(2.0, 2, 1, 0.01)
"""
PEER = """
from PLD_accounting.random_allocation_api import gaussian_allocation_epsilon_range
def ends(sigma, steps, passes, delta):
    ends_of_eps = gaussian_allocation_epsilon_range(delta=delta, sigma=sigma, num_steps=steps, num_epochs=passes)
    return ends_of_eps[1], ends_of_eps[0]
"""
CLOCK = """
import json, sys, time
job = json.loads(sys.argv[1])
start = time.process_time()
low, high = ends(*job)
print(json.dumps([low, high, time.process_time() - start]))
"""
PROGRAMS = {"wpriv": WPRIV, "PLD_accounting": PEER}


def answer(program: str, job: Job, seconds: float) -> str:
    """The bracket and the CPU seconds of one program, or why there are none."""
    command = [sys.executable, "-c", PROGRAMS[program] + CLOCK, json.dumps(astuple(job))]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return f"cut at {seconds:g} s | -"
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1].partition(":")[0]
        return f"fails: {reason} | -"
    low, high, used = json.loads(done.stdout.splitlines()[-1])
    return f"{low:.6g} .. {high:.6g} | {used:.2f}"


def main(argv: list[str] | None = None) -> int:
    """Run the benchmark; return 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks allocation", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one small job")
    parser.add_argument("--seconds", type=float, default=200.0, help="what one answer may take (default 200)")
    parser.add_argument("--out", type=Path, help="a folder for benchmarks.md")
    flags = parser.parse_args(argv)
    names = list(PROGRAMS)
    lines = [
        "| sigma | t | passes | delta | " + " | ".join(f"{name} | s" for name in names) + " |",
        "|" + " --- |" * (4 + 2 * len(names)),
    ]
    for job in QUICK if flags.quick else JOBS:
        cells = [answer(name, job, flags.seconds) for name in names]
        lines.append(f"| {job.sigma:g} | {job.steps} | {job.passes} | {job.delta:g} | " + " | ".join(cells) + " |")
        print(lines[-1], file=sys.stderr, flush=True)
    report.show("\n".join(lines) + "\n", flags.out)
    return 0
