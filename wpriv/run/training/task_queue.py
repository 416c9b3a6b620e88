"""The tasks of a sweep in the queue of a cluster: submit, take over, collect and leave them, through submitit."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wpriv.config.cluster_schema import Cluster
from wpriv.errors import Interrupted, MissingResource, WprivError
from wpriv.files import durable_writes
from wpriv.run.training import run_folder
from wpriv.run.training.cell_task import PREEMPTION, CellTask, Outcome
from wpriv.run.training.recipe_grid import Cell

TASKS, JOBS = "tasks", "jobs.json"
"""The folder of submitit in that of the sweep, with the logs of the tasks; and the jobs of its cells, by name."""
POLL = {"slurm": 2.0, "local": 0.1}  # seconds between two looks at the tasks
PATIENCE = 60.0  # seconds that local tasks have to save after Ctrl-C
LOST = "ended without a result ({state}): it was killed or cancelled, or had too little memory or time"


@dataclass(frozen=True)
class Submission:
    """What to submit, and where.

    Args:
        cells: the selected cells of the sweep. out: its folder. cluster: what each task asks for.
        device, root: as in ``train.run``. limit: number of tasks that run at the same time; None for no limit of ours.
    """

    cells: Sequence[Cell]
    out: Path
    cluster: Cluster
    device: str
    root: Path | None
    limit: int | None

    @property
    def folder(self) -> Path:
        return (self.out / TASKS).absolute()

    def is_done(self, cell: Cell) -> bool:
        """Return whether the folder of a cell holds a finished training."""
        return run_folder.inspect(self.out / cell.name, cell.recipe, resume=True).done

    def task(self, cell: Cell) -> CellTask:
        return CellTask(cell, self.out.absolute(), self.device, None if self.root is None else self.root.absolute())


class TaskQueue:
    """The tasks of a sweep: those that wait to be submitted, and those that were."""

    def __init__(self, plan: Submission):
        # the signal must be known before submitit is loaded, here and in the tasks
        os.environ["SUBMITIT_PREEMPT_SIGNAL"] = PREEMPTION.name.removeprefix("SIG")
        import submitit

        logging.getLogger("submitit").setLevel(logging.CRITICAL)  # it would write to standard output
        self.submitit, self.plan = submitit, plan
        self.waiting: list[Cell] = []
        self.running: dict[str, tuple[Cell, Any]] = {}

    def attach(self, cells: Sequence[Cell]) -> int:
        """Take over the cells, and those of their tasks that are in Slurm's queue; return the number of these."""
        ids = _recorded(self.plan.folder / JOBS, "slurm") if self.plan.cluster.system == "slurm" else {}
        queued = _queued() if ids else set()
        for cell in cells:
            number = ids.get(cell.name)
            if number in queued:
                job: Any = self.submitit.SlurmJob(folder=self.plan.folder, job_id=number)
                self.running[cell.name] = cell, job
            else:
                self.waiting.append(cell)
        return len(self.running)

    def submit(self) -> int:
        """Submit as many waiting cells as may run now, and record their jobs; return their number."""
        cluster, limit = self.plan.cluster, self.plan.limit
        free = len(self.waiting)
        if cluster.system == "local":
            free = min(free, (limit or 1) - len(self.running))
        if not free:
            return 0
        batch, self.waiting = self.waiting[:free], self.waiting[free:]
        durable_writes.make_folder(self.plan.folder)
        executor = _slurm(self.submitit, self.plan) if cluster.system == "slurm" else _local(self.submitit, self.plan)
        with _environment({"OMP_NUM_THREADS": str(cluster.cpus)}), _ctrl_c_ignored():
            jobs = _accepted(executor, [self.plan.task(cell) for cell in batch])
        self.running |= {cell.name: (cell, job) for cell, job in zip(batch, jobs, strict=True)}
        path, numbers = self.plan.folder / JOBS, {name: job.job_id for name, (_, job) in self.running.items()}
        # other commands submit other parts of the sweep
        record = {"system": cluster.system, "jobs": _recorded(path, cluster.system) | numbers}
        durable_writes.replace(path, json.dumps(record, indent=2) + "\n")
        return len(batch)

    def collect(self) -> list[tuple[Cell, Outcome]]:
        """Return the cells whose tasks have ended since the last call, with how they ended."""
        over = [(cell, job) for cell, job in self.running.values() if job.done()]
        for cell, _ in over:
            del self.running[cell.name]
        return [(cell, self._outcome(cell, job)) for cell, job in over]

    def leave(self, reason: str) -> str:
        """Leave tasks of Slurm in the queue, stop local ones, and return a message about both."""
        total = len(self.plan.cells)
        left = sum(not self.plan.is_done(cell) for cell in self.plan.cells)
        begin = f"stopped by {reason} after {total - left} of {total} trainings"
        if self.plan.cluster.system == "local":
            jobs = [job for _, job in self.running.values()]
            _stop_local(jobs)
            alive = sum(not job.done() for job in jobs)
            state = (
                f"{alive} tasks still run and end by themselves" if alive else "no task runs any more, and all is saved"
            )
            return f"{begin}; {state}. The same command continues"
        numbers = sorted({job.job_id.partition("_")[0] for _, job in self.running.values()})
        return (
            f"{begin}; {len(self.running)} tasks stay in the queue of the cluster and go on. The same command waits "
            f"for them; scancel {' '.join(numbers)} stops them, and the same command then continues them"
        )

    def _outcome(self, cell: Cell, job: Any) -> Outcome:
        """Return the outcome of a finished task; the folder of the cell decides whether it is trained."""
        if self.plan.is_done(cell):
            return Outcome()
        log = job.paths.stdout
        if not job.paths.result_pickle.exists() and self.plan.cluster.system == "local":
            return Outcome(f"{LOST.format(state='no result')}; its log is {log}", Interrupted.exit_code)
        error = job.exception()
        if error is None:
            outcome: Outcome = job.result()
            return outcome
        if isinstance(error, self.submitit.core.utils.FailedJobError):
            return Outcome(f"a fault of the program ({_last_line(str(error))}); its log is {log}", WprivError.exit_code)
        return Outcome(f"{LOST.format(state=job.state)}; its log is {log}", Interrupted.exit_code)


def _slurm(submitit: Any, plan: Submission) -> Any:
    """Return the executor of Slurm: an array of tasks, which are queued again after a failure of their node."""
    cluster = plan.cluster
    executor = submitit.SlurmExecutor(folder=plan.folder, max_num_timeout=cluster.requeues)
    exports = {"SUBMITIT_PREEMPT_SIGNAL": PREEMPTION.name.removeprefix("SIG"), "OMP_NUM_THREADS": str(cluster.cpus)}
    gpus = cluster.gpus_for(plan.device)
    options = {
        "partition": cluster.partition,
        "account": cluster.account,
        "qos": cluster.qos,
        "constraint": cluster.constraint,
        "mem": None if cluster.memory is None else f"{cluster.memory}M",
        "gpus_per_node": gpus or None,
    }
    executor.update_parameters(
        job_name="wpriv",
        wckey=None,
        time=cluster.time,
        cpus_per_task=cluster.cpus,
        stderr_to_stdout=True,
        array_parallelism=plan.limit or len(plan.cells),
        setup=[*cluster.setup, *(f"export {name}={value}" for name, value in exports.items())],
        additional_parameters={"requeue": True, "signal": f"{exports['SUBMITIT_PREEMPT_SIGNAL']}@{cluster.warning}"},
        **{name: value for name, value in options.items() if value is not None},
    )
    return executor


def _local(submitit: Any, plan: Submission) -> Any:
    """Return the executor of processes on this machine."""
    cluster = plan.cluster
    executor = submitit.LocalExecutor(folder=plan.folder, max_num_timeout=cluster.requeues)
    executor.update_parameters(
        timeout_min=cluster.time,
        signal_delay_s=cluster.warning,
        gpus_per_node=cluster.gpus_for(plan.device),
        stderr_to_stdout=True,
    )
    return executor


def _accepted(executor: Any, tasks: Sequence[Callable[[], Outcome]]) -> list[Any]:
    """Submit tasks and return their jobs.

    Raises:
        MissingResource: the cluster refuses them.
    """
    from submitit.core.utils import FailedJobError, FailedSubmissionError

    try:
        # the message of the cluster is part of the error below
        with open(os.devnull, "w", encoding="utf-8") as nothing, contextlib.redirect_stderr(nothing):
            return list(executor.submit_array(tasks))
    except (FailedJobError, FailedSubmissionError) as error:
        reason = " ".join(str(error).split())[:300]
        raise MissingResource(
            f"the cluster refused the tasks: {reason}. Change the key 'cluster' of the recipe (or "
            f"--set cluster.partition=NAME), or submit a part of the sweep by --shard"
        ) from None


def _recorded(path: Path, system: str) -> dict[str, str]:
    """Return the jobs that were submitted to a system, by the names of their cells; none in a file of another kind."""
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    jobs = stored.get("jobs") if isinstance(stored, dict) and stored.get("system") == system else None
    if not isinstance(jobs, dict):
        return {}
    return {name: job for name, job in jobs.items() if isinstance(job, str) and re.fullmatch(r"\d+(_\d+)?", job)}


def _queued() -> set[str]:
    """Return the numbers of this user's jobs in Slurm's queue; none where it cannot be asked."""
    try:
        text = subprocess.run(
            ["squeue", "--me", "--array", "--noheader", "--format=%i"],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return set()
    return set(text.split())


def _stop_local(jobs: Sequence[Any]) -> None:
    """Give local tasks the signal to save and to end, and wait for them."""
    for job in jobs:
        if not job.done():
            os.kill(int(job.job_id), signal.SIGTERM)  # of a local job, the number is that of the process
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end and not all(job.done() for job in jobs):
        time.sleep(POLL["local"])


@contextlib.contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set variables for processes that are started in the block."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextlib.contextmanager
def _ctrl_c_ignored() -> Iterator[None]:
    """Let processes that are started in the block ignore Ctrl-C, which reaches all processes of a terminal."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


def _last_line(trace: str) -> str:
    """Return the error at the end of a trace that submitit quotes between two lines of dashes."""
    inner = re.split(r"^-{10,}$", trace, flags=re.M)
    lines = [line for line in (inner[1] if len(inner) > 2 else trace).splitlines() if line.strip()]
    return lines[-1].strip()[:200] if lines else "no message"
