"""Run one program on one job in its own process: ``python -m benchmarks.worker PROGRAM JOB LIMIT_MIB``.

Reads a number k from each line of standard input, runs the job with its noise changed by k parts in 10^10, and writes
a JSON line; the first line announces that everything is imported.
"""

from __future__ import annotations

import json
import os
import re
import resource
import sys
import time
import warnings
from importlib import import_module
from pathlib import Path

from benchmarks.jobs import JOBS
from benchmarks.programs import PROGRAMS

# loaded before the first job, so that its memory and time do not include the import
IMPORTS = {
    "wpriv": (
        "wpriv.accounting.accountants.pld",
        "wpriv.accounting.pld.sandwich",
        "wpriv.accounting.calibrate",
        "wpriv.accounting.mechanisms.gauss",
        "wpriv.accounting.mechanisms.laplace",
    ),
    "dp_accounting": ("dp_accounting.pld", "dp_accounting.mechanism_calibration"),
    "prv_accountant": ("prv_accountant.dpsgd",),
    "opacus": ("opacus.accountants.utils",),
}


def memory(field: str) -> float:
    """Return MiB resident now (VmRSS) or at the peak (VmHWM); without /proc, the peak for both."""
    try:
        found = re.search(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    except OSError:
        found = None
    if found is not None:
        return int(found[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform != "darwin" else 1024**2)


def main() -> None:
    program, job, limit = sys.argv[1], JOBS[int(sys.argv[2])], int(sys.argv[3])
    # standard output is reserved for the protocol; the output of the program goes to stderr
    reply = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    for module in IMPORTS[program.split()[0]]:
        import_module(module)
    resource.setrlimit(resource.RLIMIT_AS, (_address_space() + limit * 2**20, resource.RLIM_INFINITY))
    _forget_peak()
    base = memory("VmRSS")
    print('"ready"', file=reply, flush=True)
    for line in sys.stdin:
        asked = job.nudged(int(line))
        wall, cpu = time.perf_counter(), time.process_time()
        lower, upper = PROGRAMS[program](asked)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        row = {
            "wall": wall,
            "cpu": cpu,
            "lower": float(lower),
            "upper": float(upper),
            "mib": max(memory("VmHWM") - base, 0.0),
        }
        print(json.dumps(row), file=reply, flush=True)


def _address_space() -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except OSError:
        return 2**33


def _forget_peak() -> None:
    """Reset the peak memory, so that it does not include temporary memory of the import."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


if __name__ == "__main__":
    main()
