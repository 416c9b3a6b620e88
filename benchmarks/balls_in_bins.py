"""``python -m benchmarks balls_in_bins [--quick] [--out DIR]``: correlated noise with balls in bins, width and time.

Each answer is computed in a process of its own; times are CPU seconds of the answer without imports.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

from benchmarks import report

EPOCHS = 10
NAMES = ("column", "banded:2", "banded:4", "bsr:4", "bisr", "lambda:.9", "blt")
JOBS = (
    *(("column", 10, 6.0, delta) for delta in (1e-5, 1e-8, 1e-12)),
    *((name, bins, sigma, 1e-5) for bins in (10, 100) for sigma in (6.0, 3.0) for name in NAMES),
    *((name, bins, 3.0, 1e-5) for name in ("banded:4", "bisr") for bins in (20, 50, 200)),
    *((name, 100, 6.0, 1e-8) for name in ("column", "banded:2", "lambda:.9")),
)
QUICK = (("banded:2", 4, 4.0, 1e-5),)
PROGRAM = """
import json, sys, tempfile, time
import numpy as np
import wpriv
name, bins, sigma, delta, epochs = json.loads(sys.argv[1])
strategy = name
if name == "column":
    size, values = bins * epochs, np.array([1, 0.5, 0.25, 0.125]) / 1.328125**0.5
    strategy = tempfile.mkdtemp() + "/strategy.npy"
    np.save(strategy, sum(np.diag(np.full(size - k, v), -k) for k, v in enumerate(values)))
job = dict(sigma=sigma, strategy=strategy, sampling="balls-in-bins", bins=bins, epochs=epochs)
wpriv.budget("matrix-gauss", sigma=9, strategy="banded:2", sampling="balls-in-bins", bins=2, epochs=1, delta=0.01)
start = time.process_time()
ends = wpriv.budget("matrix-gauss", **job, delta=delta).epsilon
print(json.dumps([ends.lower, ends.upper, time.process_time() - start]))
"""


def main(argv: list[str] | None = None) -> int:
    """Run the benchmark; return 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks balls_in_bins", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one small job")
    parser.add_argument("--out", type=Path, help="a folder for benchmarks.md")
    flags = parser.parse_args(argv)
    lines = ["| strategy | bins | sigma | delta | eps | width | s |", "|" + " --- |" * 7]
    for name, bins, sigma, delta in QUICK if flags.quick else JOBS:
        command = [sys.executable, "-c", PROGRAM, json.dumps([name, bins, sigma, delta, EPOCHS])]
        low, high, used = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        width = f"{100 * (high / low - 1):.1f}%"
        lines.append(f"| {name} | {bins} | {sigma:g} | {delta:g} | {low:.4g} .. {high:.4g} | {width} | {used:.1f} |")
        print(lines[-1], file=sys.stderr, flush=True)
    report.show("\n".join(lines) + "\n", flags.out)
    return 0
