"""``python -m benchmarks transport [--quick] [--jobs TEXT] [--out DIR]``: transport on the line and sliced, beside POT.

Both programs run interleaved in this process on the same tensors, with one thread; times are medians of CPU time. The
memory of a job is the peak of a separate process above its inputs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import report

ROOT = Path(__file__).parents[1]
DIM = 784


@dataclass(frozen=True)
class Job:
    """Samples of n and m records: on the line if ``k`` is 0, else sliced over k directions in DIM dimensions."""

    name: str
    n: int
    m: int
    k: int = 0
    dtype: str = "float64"
    targets: tuple[tuple[str, float], ...] = ()


def _line(n: int, m: int, dtype: str) -> Job:
    return Job(f"line n={n} m={m} {dtype}", n, m, 0, dtype, (("emd_1d", 1.0), ("wasserstein_1d", 4.0)))


_PAIRS = (
    (1000, 1000),
    (1000, 700),
    (10**4, 10**4),
    (10**4, 7001),
    (10**5, 10**5),
    (10**5, 30001),
    (10**6, 10**6),
    (10**6, 700_001),
)
_SLICED = ((1000, 50, 3.0), (1000, 1000, 8.0), (10**4, 50, 4.0), (10**4, 1000, 15.0), (10**5, 50, 6.0))
JOBS = (
    *(_line(n, m, dtype) for n, m in _PAIRS for dtype in ("float64", "float32")),
    *(Job(f"sliced n={n} k={k} float32", n, n, k, "float32", (("sliced", times),)) for n, k, times in _SLICED),
)


def programs(job: Job) -> dict[str, Callable[[], Any]]:
    """Return the programs by name, wpriv first, each with derivatives in both samples; of emd_1d only the plan."""
    import ot
    import torch

    from wpriv.transport import line, sliced

    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    dtype = getattr(torch, job.dtype)
    shape = (DIM,) if job.k else ()
    x, y = (torch.randn(size, *shape, generator=generator, dtype=dtype) for size in (job.n, job.m))
    both = [sample.clone().requires_grad_() for sample in (x, y)]
    if job.k:
        u = sliced.random_directions(DIM, job.k, generator, dtype=dtype)
        return {
            "wpriv": lambda: torch.autograd.grad(sliced.wasserstein(*both, directions=u), both),
            "sliced": lambda: torch.autograd.grad(ot.sliced_wasserstein_distance(*both, projections=u, p=2) ** 2, both),
        }
    return {
        "wpriv": lambda: line.gradients(x, y)[1:],
        "emd_1d": lambda: ot.emd_1d(x.numpy(), y.numpy(), metric="sqeuclidean", dense=False),
        "wasserstein_1d": lambda: torch.autograd.grad(ot.wasserstein_1d(*both, p=2), both),
    }


def measure(job: Job, seconds: float) -> dict[str, float]:
    """Return median CPU seconds of each program: interleaved runs, about ``seconds`` each, at least three runs."""
    asked = programs(job)
    once = {name: _timed(call, 1) for name, call in asked.items()}
    # short calls are timed in batches, to reduce the effect of the clock and of cold caches
    inner = {name: max(1, int(0.01 / max(took, 1e-6))) for name, took in once.items()}
    runs: dict[str, list[float]] = {name: [] for name in asked}
    rounds = max(3, min(31, int(seconds / max(once.values()))))
    for _ in range(rounds):
        for name, call in asked.items():
            runs[name].append(_timed(call, inner[name]))
    return {name: median(took) for name, took in runs.items()}


def _timed(call: Callable[[], Any], times: int) -> float:
    start = time.process_time()
    for _ in range(times):
        call()
    return (time.process_time() - start) / times


def worst_error(job: Job, name: str) -> float | None:
    """Return the largest error of float32 derivatives over the largest derivative; reference: wpriv in float64."""
    if job.dtype != "float32" or name == "emd_1d" or job.k:
        return None
    import torch

    from wpriv.transport import line

    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(size, generator=generator) for size in (job.n, job.m))
    truth = line.gradients(x.double(), y.double())[1:]
    return max(
        float((mine - right).abs().max() / right.abs().max())
        for mine, right in zip(programs(job)[name](), truth, strict=True)
    )


def peak(index: int, name: str) -> float:
    """Return the peak MiB of one run of a program above its inputs, in its own process."""
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.transport", "--peak", str(index), name]
    one = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **one}, capture_output=True, text=True, check=True)
    return float(json.loads(done.stdout.splitlines()[-1]))


def _peak_here(index: int, name: str) -> float:
    from benchmarks.worker import _forget_peak, memory

    programs(JOBS[0])[name if name != "sliced" else "wasserstein_1d"]()  # loads what is imported on first use
    call = programs(JOBS[index])[name]
    _forget_peak()
    before = memory("VmRSS")
    kept = call()
    return max(memory("VmHWM") - before, 0.0) if kept is not None else 0.0


def main(argv: list[str] | None = None) -> int:
    """Run the benchmark; return 0 if every target is met, else 1."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks transport", description="transport beside POT")
    parser.add_argument(
        "--quick", action="store_true", help="about a second a program and job, and only jobs of up to 10^5 numbers"
    )
    parser.add_argument("--jobs", default="", help="only jobs whose name holds this text")
    parser.add_argument(
        "--seconds", type=float, default=10.0, help="CPU seconds for each program on a job (default 10)"
    )
    parser.add_argument("--out", type=Path, help="a folder for transport.md and transport.csv")
    flags = parser.parse_args(argv)
    warnings.simplefilter("ignore")
    rows: list[dict[str, Any]] = []
    for index, job in enumerate(JOBS):
        if flags.jobs not in job.name or (flags.quick and max(job.n, job.m) * max(job.k, 1) > 10**5):
            continue
        print(job.name, file=sys.stderr, flush=True)
        took = measure(job, 1.0 if flags.quick else flags.seconds)
        for name, seconds in took.items():
            wanted = dict(job.targets).get(name)
            ratio = seconds / took["wpriv"]
            error, mib = worst_error(job, name), None if flags.quick else peak(index, name)
            met = None if wanted is None else ratio >= wanted
            rows.append(
                {
                    "job": job.name,
                    "program": name,
                    "ms": 1e3 * seconds,
                    "ratio": ratio,
                    "wanted": wanted,
                    "error": error,
                    "MiB": mib,
                    "met": met,
                }
            )
    if not rows:
        parser.error(f"no job's name holds {flags.jobs!r}")
    return report.publish(table(rows), rows, flags.out, "transport")


def table(rows: list[dict[str, Any]]) -> str:
    """Return Markdown: ms, time of the peer over wpriv with its target, the error in float32, MiB above the inputs."""
    lines = ["| job | program | ms | x | wanted | float32 error | MiB |", "|---|---|---|---|---|---|---|"]
    for row in rows:
        goal = "" if row["wanted"] is None else f">= {row['wanted']:g}: {'yes' if row['met'] else 'NO'}"
        error, mib = ("" if row[key] is None else f"{row[key]:.2g}" for key in ("error", "MiB"))
        mib = "" if row["MiB"] is None else f"{row['MiB']:.0f}"
        lines.append(
            f"| {row['job']} | {row['program']} | {row['ms']:.3g} | {row['ratio']:.3g} | {goal} | {error} | {mib} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    if sys.argv[1:2] == ["--peak"]:
        print(json.dumps(_peak_here(int(sys.argv[2]), sys.argv[3])))
    else:
        sys.exit(main())
