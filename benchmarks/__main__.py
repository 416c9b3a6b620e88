"""``python -m benchmarks [--quick] [--jobs TEXT] [--programs A,B] [--out DIR]``: accounting by wpriv and its peers.

``python -m benchmarks transport``, ``sinkhorn``, ``training``, ``gradient``, ``attacks``, ``allocation``,
``correlated``, ``balls_in_bins``, ``accountants``, ``verifier``, ``truth``, ``audits``, ``ledger`` or ``releases``
runs another one, in the file of that name. Tables are printed as Markdown, and with ``--out`` also written to
DIR/benchmarks.md and DIR/benchmarks.csv.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

from benchmarks import report
from benchmarks.jobs import JOBS
from benchmarks.measure import Limits, check_programs, installed, measure, start_times
from benchmarks.programs import PROGRAMS

QUICK = Limits(repeats=3, seconds=5, total=3)
PARTS = (
    *("transport", "sinkhorn", "training", "gradient", "attacks", "allocation", "correlated", "balls_in_bins"),
    *("accountants", "verifier", "truth", "audits", "ledger", "releases"),
)
SLOW = ("prv_accountant", "opacus")


def main(argv: list[str] | None = None) -> int:
    """Run the benchmark; return 0 if every target is met, else 1."""
    argv = sys.argv[1:] if argv is None else argv
    if argv and argv[0] in PARTS:
        part: int = importlib.import_module(f"benchmarks.{argv[0]}").main(argv[1:])
        return part
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="wpriv side by side with its peers")
    parser.add_argument("--quick", action="store_true", help="fewer runs, cut at 5 s, and without the slow peers")
    parser.add_argument("--jobs", default="", help="only jobs whose name holds this text")
    parser.add_argument("--programs", default=",".join(PROGRAMS), help="comma-separated; wpriv is always run")
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="what one run may take before it is cut (default 60)"
    )
    parser.add_argument(
        "--mib", type=int, default=4096, help="memory a program may take above its import (default 4096)"
    )
    parser.add_argument("--out", type=Path, help="a folder for benchmarks.md and benchmarks.csv")
    flags = parser.parse_args(argv)
    limits = QUICK if flags.quick else Limits(seconds=flags.seconds, mib=flags.mib)
    requested = flags.programs.split(",")
    check_programs(requested)
    candidates = dict.fromkeys([report.MINE, report.COARSE, *requested])
    programs = installed([name for name in candidates if not (flags.quick and name in SLOW)])
    rows = []
    for index, job in enumerate(JOBS):
        if flags.jobs in job.name:
            print(f"{index + 1}/{len(JOBS)} {job.name}", file=sys.stderr, flush=True)
            rows.append(report.Measured(job, {r.program: r for r in measure(index, programs, limits)}))
    if not rows:
        parser.error(f"no job's name holds {flags.jobs!r}")
    targets = report.targets(rows, start_times(3 if flags.quick else 15))
    parts = [report.questions(rows), report.calibrations(rows), report.target_table(targets), report.preamble(limits)]
    text = "\n\n".join(part for part in parts if part) + "\n"
    report.show(text, flags.out)
    if flags.out is not None:
        report.write_csv(rows, flags.out / "benchmarks.csv")
    return 0 if all(target.met for target in targets) else 1


if __name__ == "__main__":
    sys.exit(main())
