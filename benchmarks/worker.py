"""One program on one job in a process of its own: ``python -m benchmarks.worker PROGRAM JOB LIMIT_MIB``.

Reads a number k from each line of standard input, answers the job with its noise nudged by k parts in 10^10, and writes a JSON line;
the first line says that everything is imported.
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
from benchmarks.tools import PROGRAMS

# what each program loads before its first answer, so that its memory and its first answer are not those of the import
IMPORTS = {
    "wpriv": (
        "wpriv.accountants.pld",
        "wpriv.pld.sandwich",
        "wpriv.run.accounting.calibrate",
        "wpriv.mechanisms.gauss",
        "wpriv.mechanisms.laplace",
    ),
    "dp_accounting": ("dp_accounting.pld", "dp_accounting.mechanism_calibration"),
    "prv_accountant": ("prv_accountant.dpsgd",),
    "opacus": ("opacus.accountants.utils",),
}


def memory(field: str) -> float:
    """MiB resident now (VmRSS) or at the peak (VmHWM); the peak of the process for both where there is no /proc."""
    try:
        found = re.search(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    except OSError:
        found = None
    if found is not None:
        return int(found[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform != "darwin" else 1024**2)


def main() -> None:
    program, job, limit = sys.argv[1], JOBS[int(sys.argv[2])], int(sys.argv[3])
    # the protocol keeps the real standard output to itself; what a program prints goes to stderr
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
    """Lets the peak start again from here, so that what the import needed in passing is not held against the program."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


if __name__ == "__main__":
    main()
