"""Run programs interleaved, each in its own process, with limits of time and memory."""

from __future__ import annotations

import json
import os
import resource
import select
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import IO, Any

from benchmarks.programs import PACKAGES, PROGRAMS

ROOT = Path(__file__).parents[1]
START = ("calibrate", "--mech", "gauss", "--eps", "1", "--delta", "1e-5", "--n", "1000")
FLOOR = "import typer, numpy, scipy.special"


@dataclass
class Result:
    """One program on one job: bounds and peak MiB of the first run, seconds of all runs, and why it was stopped."""

    program: str
    lower: float = 0.0
    upper: float = float("inf")
    mib: float = 0.0
    cpu: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)
    note: str = ""

    @property
    def answered(self) -> bool:
        return bool(self.cpu)

    def seconds(self, clock: str = "cpu") -> float:
        """Return the median of the warm runs, or the time of the first run if there is no other."""
        runs: list[float] = getattr(self, clock)
        return median(runs[1:] or runs) if runs else float("inf")


@dataclass(frozen=True)
class Limits:
    """Number of warm runs; seconds of one run, and of all runs of a program on a job; MiB above the import."""

    repeats: int = 9
    seconds: float = 60.0
    total: float = 20.0
    mib: int = 4096


class Stopped(Exception):
    """A program was stopped or failed; the message is the reason, in one line."""


class Worker:
    """A program in its own process, which has imported everything and waits for jobs."""

    def __init__(self, program: str, job: int, limits: Limits):
        self.errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the worker
        command = [sys.executable, "-m", "benchmarks.worker", program, str(job), str(limits.mib)]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=self.errors, cwd=ROOT, env=_environment()
        )
        self._read(60.0)

    def ask(self, k: int, seconds: float) -> dict[str, float]:
        """Return the answer to the job changed by k parts in 10^10.

        Raises:
            Stopped: the program took longer than ``seconds``, or ended with an error.
        """
        assert self.process.stdin is not None
        self.process.stdin.write(b"%d\n" % k)
        self.process.stdin.flush()
        answer: dict[str, float] = self._read(seconds)
        return answer

    def _read(self, seconds: float) -> Any:
        out = self.process.stdout
        assert out is not None
        if not select.select([out], [], [], seconds)[0]:
            raise Stopped(f"cut at {seconds:g} s")
        line = out.readline()
        if not line:
            raise Stopped(self._failure())
        return json.loads(line)

    def _failure(self) -> str:
        """Return the last line that the program wrote to stderr, or its exit status."""
        status = self.process.wait()
        self.errors.seek(0)
        lines = self.errors.read().decode(errors="replace").strip().splitlines()
        reason = lines[-1] if lines else f"ended with status {status}"
        out_of_memory = "MemoryError" in reason or "Unable to allocate" in reason or status == -9
        return "out of memory" if out_of_memory else reason[:160]

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()
        self.errors.close()


def installed(programs: list[str]) -> list[str]:
    """Return the programs that are installed."""
    return [name for name in programs if find_spec(PACKAGES.get(name, name)) is not None]


def measure(job: int, programs: list[str], limits: Limits) -> list[Result]:
    """Run every program on one job, interleaved: once cold, then warm until its repeats or its time are used up."""
    results = {name: Result(name) for name in programs}
    workers: dict[str, Worker] = {}
    try:
        for name in programs:
            workers[name] = Worker(name, job, limits)
        for k in range(limits.repeats + 1):
            for name in programs:
                next_one = results[name].seconds("wall") if k else 0.0
                if name in workers and sum(results[name].wall) + next_one <= limits.total:
                    _turn(workers, results[name], k, limits)
    finally:
        for worker in workers.values():
            worker.close()
    return list(results.values())


def _turn(workers: dict[str, Worker], result: Result, k: int, limits: Limits) -> None:
    try:
        row = workers[result.program].ask(k, limits.seconds)
    except Stopped as reason:
        result.note = str(reason)
        workers.pop(result.program).close()
        return
    if k == 0:
        # the peak of later runs would include memory that is kept between runs
        result.lower, result.upper, result.mib = row["lower"], row["upper"], row["mib"]
    result.cpu.append(row["cpu"])
    result.wall.append(row["wall"])


def start_times(repeats: int) -> tuple[float, float] | None:
    """Return median CPU seconds of ``wpriv calibrate`` and of a process that only imports its dependencies.

    The runs are interleaved. None if the command line is not installed beside this interpreter.
    """
    command = shutil.which("wpriv", path=str(Path(sys.executable).parent))
    if command is None:
        return None
    commands = ([command, *START], [sys.executable, "-c", FLOOR])
    seconds: tuple[list[float], list[float]] = ([], [])
    for _ in range(repeats + 1):
        for runs, argv in zip(seconds, commands, strict=True):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            done = subprocess.run(argv, cwd=tempfile.gettempdir(), env=_environment(), capture_output=True, check=False)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            if done.returncode:
                raise RuntimeError(f"{' '.join(argv)} failed: {done.stderr.decode(errors='replace').strip()[-300:]}")
            runs.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return median(seconds[0][1:]), median(seconds[1][1:])


def _environment() -> dict[str, str]:
    """Return the environment with one thread for every numerical library."""
    return {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "PYTHONWARNINGS": "ignore",
    }


def check_programs(names: list[str]) -> None:
    """Exit with an error if a name is unknown."""
    unknown = [name for name in names if name not in PROGRAMS]
    if unknown:
        raise SystemExit(f"benchmarks: no program called {unknown[0]!r}. Known: {', '.join(PROGRAMS)}")
