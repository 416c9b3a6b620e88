"""``python -m benchmarks training [--quick] [--jobs TEXT] [--programs A,B] [--device cuda]``: times of training steps.

Private steps are compared with plain ones. Every program runs in its own process, and steps are interleaved, so that
other load on the machine affects all alike. Times are CPU time of one thread on a CPU, and wall time between
synchronisations on CUDA; memory is the peak above the imports.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from importlib.util import find_spec
from statistics import median

from benchmarks.measure import ROOT, _environment
from benchmarks.worker import _forget_peak, memory

PROGRAMS = (
    "plain",
    "wpriv",
    "noise",
    "noise exact",
    "wpriv exact",
    *(CORRELATED := ("wpriv lambda", "wpriv banded", "wpriv blt")),
    "opacus hooks",
    "opacus hooks contiguous",
    "opacus ghost",
    "opacus ghost contiguous",
)


OURS = ("plain", "wpriv", "noise", *CORRELATED)


@dataclass(frozen=True)
class Job:
    """A network, a batch size, the programs that can run it, and the target times of a private step over a plain one.

    Args:
        noise: the largest share of the noise in a step. memory: of wpriv, over plain.
    """

    name: str
    network: str
    batch: int
    times: float
    memory: float | None = None
    best: float | None = None
    default: float | None = None
    noise: float = 0.1
    programs: tuple[str, ...] = PROGRAMS


CPU = (
    Job("tanh CNN 28x28, batch 256", "cnn", 256, 1.5, best=1.5, default=2.2),
    Job("tanh CNN 28x28, batch 1024", "cnn", 1024, 1.3, best=1.5, default=2.2),
    Job("WRN-16-4, batch 16", "wrn", 16, 1.25, best=1.3),
    Job("MLP 784-256-256-10, batch 1024", "mlp", 1024, 1.2, memory=1.2, noise=0.2),
    Job("MLP 784-256-256-10, batch 256", "mlp", 256, 1.55, noise=0.3, programs=(*OURS, "own loop")),
    Job("WRN-16-4, batch 64", "wrn", 64, 1.3, memory=2.0, programs=OURS),
    Job("transformer of 2 layers, width 64, 32 tokens, batch 32", "transformer", 32, 1.3, noise=0.3, programs=OURS),
    Job("LSTM of width 64, 32 tokens, batch 64", "lstm", 64, 1.8, noise=0.3, programs=OURS),
)
CUDA = (Job("tanh CNN 28x28, batch 4096", "cnn", 4096, 1.5), Job("WRN-16-4, batch 512", "wrn", 512, 1.5))


@dataclass
class Steps:
    """A program in its own process: seconds of each step, and the peak MiB above its imports."""

    program: str
    job: Job
    device: str
    seconds: list[float] = field(default_factory=list)
    mib: float = 0.0

    def __post_init__(self) -> None:
        command = [
            sys.executable,
            "-m",
            "benchmarks.training",
            "--worker",
            self.program,
            self.job.network,
            str(self.job.batch),
            self.device,
        ]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, cwd=ROOT, env=_environment(), text=True)

    def take(self) -> None:
        """Take one more step."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"benchmarks: {self.program} on {self.job.name} ended with status {self.process.wait()}")
        row = json.loads(line)
        self.seconds.append(row["seconds"])
        self.mib = row["mib"]

    def typical(self) -> float:
        return median(self.seconds[2:])


def worker(program: str, network: str, batch: str, device: str) -> None:
    """Take a step for every line of standard input, and write its seconds and the peak so far."""
    import torch

    from benchmarks.steps import make
    from wpriv.training.engine.loop import keep_memory

    keep_memory()  # as in trainings, for every program
    reply = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    torch.set_num_threads(1)
    make(program, "mlp", 2, device)()  # imports the program, and what torch loads at the first step
    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    _forget_peak()
    base = memory("VmRSS")
    step = make(program, network, int(batch), device)
    for _ in sys.stdin:
        if device == "cuda":
            torch.cuda.synchronize()
            start = time.perf_counter()
            step()
            torch.cuda.synchronize()
            row = {"seconds": time.perf_counter() - start, "mib": torch.cuda.max_memory_allocated() / 2**20}
        else:
            start = time.process_time()
            step()
            row = {"seconds": time.process_time() - start, "mib": memory("VmHWM") - base}
        print(json.dumps(row), file=reply, flush=True)


def measure(job: Job, programs: list[str], repeats: int, device: str) -> dict[str, Steps]:
    """Run every program on one job, steps interleaved; the first two steps of each are not timed."""
    running = {program: Steps(program, job, device) for program in programs}
    try:
        for _ in range(repeats + 2):
            for steps in running.values():
                steps.take()
    finally:
        for steps in running.values():
            steps.process.kill()
            steps.process.communicate()
    return running


def verdicts(job: Job, found: dict[str, Steps]) -> list[tuple[str, str, str, bool]]:
    """Return the targets of a job as (figure, wanted, found, met)."""
    mine, plain = found["wpriv"].typical(), found["plain"].typical()
    rows = [("times a plain step", f"<= {job.times}", f"{mine / plain:.2f}", mine <= job.times * plain)]
    if job.memory is not None:
        ratio = found["wpriv"].mib / found["plain"].mib
        rows.append(("times plain memory", f"<= {job.memory}", f"{ratio:.2f}", ratio <= job.memory))
    peers = {name: steps.typical() for name, steps in found.items() if name.startswith("opacus")}
    if job.best is not None and peers:
        name, least = min(peers.items(), key=lambda item: item[1])
        rows.append(
            (
                f"times faster than the best of Opacus ({name})",
                f">= {job.best}",
                f"{least / mine:.2f}",
                least >= job.best * mine,
            )
        )
    hooks = [seconds for name, seconds in peers.items() if "hooks" in name]
    if job.default is not None and hooks:
        rows.append(
            (
                "times faster than Opacus by default",
                f">= {job.default}",
                f"{min(hooks) / mine:.2f}",
                min(hooks) >= job.default * mine,
            )
        )
    if "own loop" in found:
        own = found["own loop"].typical()
        rows.append(("own loop, times a plain step", f"<= {job.times}", f"{own / plain:.2f}", own <= job.times * plain))
    for name in CORRELATED:
        if name in found:
            share = found[name].typical() / mine
            rows.append((f"{name}, times a step with independent noise", "<= 1.1", f"{share:.2f}", share <= 1.1))
    for name, step in (("noise", "wpriv"), ("noise exact", "wpriv exact")):
        if name in found and step in found:
            share = found[name].typical() / found[step].typical()
            wanted, value = f"<= {100 * job.noise:.0f}%", f"{100 * share:.1f}%"
            rows.append((f"{name}, share of a step of {step}", wanted, value, share <= job.noise))
    return rows


def main(argv: list[str] | None = None) -> int:
    """Print the tables; return 0 if every target is met, else 1."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks training", description="private training steps beside plain ones"
    )
    parser.add_argument("--quick", action="store_true", help="three steps of each program, without Opacus")
    parser.add_argument("--jobs", default="", help="only jobs whose name holds this text")
    parser.add_argument(
        "--programs",
        default=",".join((*PROGRAMS, "own loop")),
        help="comma-separated; plain and wpriv are always run, and each job has those that can run it",
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--worker", nargs=4, help=argparse.SUPPRESS)
    flags = parser.parse_args(argv)
    if flags.worker:
        worker(*flags.worker)
        return 0
    wanted = [
        p
        for p in flags.programs.split(",")
        if not p.startswith("opacus") or (find_spec("opacus") is not None and not flags.quick)
    ]
    programs = list(dict.fromkeys(["plain", "wpriv", *wanted]))
    known = CUDA if flags.device == "cuda" else CPU
    jobs = [job for job in known if flags.jobs in job.name]
    if not jobs:
        parser.error(f"no job's name holds {flags.jobs!r}. Known: {', '.join(job.name for job in known)}")
    times = [
        "| step, ms (peak MiB above import) | " + " | ".join(programs) + " |",
        "| --- " * (len(programs) + 1) + "|",
    ]
    targets = ["| job | figure | wanted | found | met |", "| --- " * 5 + "|"]
    met = True
    for job in jobs:
        print(job.name, file=sys.stderr, flush=True)
        mine = [program for program in programs if program in job.programs]
        found = measure(job, mine, 3 if flags.quick else 15, flags.device)
        cells = [
            f"{1e3 * found[name].typical():.1f} ({found[name].mib:.0f})" if name in found else "-" for name in programs
        ]
        times.append(f"| {job.name} | " + " | ".join(cells) + " |")
        for figure, limit, value, fine in verdicts(job, found):
            targets.append(f"| {job.name} | {figure} | {limit} | {value} | {'yes' if fine else 'NO'} |")
            met = met and fine
    print("\n".join([*times, "", *targets]))
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
