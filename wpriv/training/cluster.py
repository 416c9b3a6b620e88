"""Train the cells of a grid as tasks of a cluster, through submitit: submit one task for each, and wait for them.

The folder of each cell holds all of its state, so that a task may be stopped, killed and started again at any time: it
continues from its checkpoint, and its ledger counts each step once.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from wpriv.config.recipe import Recipe
from wpriv.config.train_parts import Cluster
from wpriv.errors import Interrupted, MissingResource, Unsupported, UsageError, WprivError
from wpriv.files import durable_writes
from wpriv.results import model
from wpriv.training import progress
from wpriv.training.progress import Say
from wpriv.training.training_grid import Cell, Grid

BACKEND = "submitit"
COMMANDS = ("sbatch", "srun", "sacct")
PREEMPTION = signal.SIGUSR1
"""The signal that comes before the time of a task is over: it is saved and put into the queue again."""
TASKS, JOBS = "tasks", "jobs.json"
"""The folder of submitit in that of the sweep, with the logs of the tasks; and the jobs of its cells, by name."""
POLL = {"slurm": 2.0, "local": 0.1}  # seconds between two looks at the tasks
PATIENCE = 60.0  # seconds that local tasks have to save after Ctrl-C
LOST = "ended without a result ({state}): it was killed or cancelled, or had too little memory or time"


Job = Any  # of submitit
Failure = tuple[str, WprivError]  # the name of a cell, and why it is not trained


@dataclass(frozen=True)
class CellTask:
    """Trains the one cell of a grid, whose paths are absolute, in another process."""

    grid: Grid

    def __call__(self) -> WprivError | None:
        """Train, or return why that failed; where a signal stops it, all is saved, and it is queued again or ends."""
        with progress.signals() as stop:
            try:
                self.grid.train(self.grid.cells[0], _print, stop)
                return None
            except WprivError as error:
                _print(str(error))
                if not isinstance(error, Interrupted):
                    return error
        if stop() == PREEMPTION.name:
            return self._queue_again()
        raise SystemExit(Interrupted.exit_code)

    def checkpoint(self) -> object:
        """Return what runs when this task is queued again: the same task, since its state is in the folder."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)

    def _queue_again(self) -> WprivError:
        """Give the signal to submitit, whose handler puts this task into the queue again and ends the process."""
        from submitit.core.utils import UncompletedJobError

        with contextlib.suppress(UncompletedJobError):
            signal.raise_signal(PREEMPTION)
        return Interrupted(
            "reached its time limit as often as cluster.requeues allows; it is saved. Give the same command again, "
            "which continues it, or more time by cluster.time"
        )


def _print(line: str) -> None:
    print(f"wpriv: {line}", flush=True)


def request_of(recipe: Recipe) -> Cluster:
    """Return what the tasks of a sweep ask of a cluster, by default if the recipe does not say."""
    return recipe.train.cluster or Cluster.model_validate({})


def check(request: Cluster, device: str) -> None:
    """Refuse a cluster that is not there, or a GPU without use."""
    gpus = request.gpus_for(device)
    if gpus != int(device == "cuda"):
        advice = "add --device cuda, or leave cluster.gpus out" if gpus else "leave cluster.gpus out"
        raise UsageError(f"cluster.gpus is {gpus} and --device is {device}; {advice}")
    missing = [name for name in COMMANDS if shutil.which(name) is None]
    if request.system == "slurm" and missing:
        raise MissingResource(
            f"--backend submitit: there is no Slurm here: {', '.join(missing)} not found. Give the command on a node "
            f"of the cluster that submits jobs, or try the sweep in processes of this machine by "
            f"--set cluster.system=local"
        )


def words(request: Cluster, device: str) -> str:
    """Return the cluster and what each task asks of it, in words."""
    parts = [f"{request.time} minutes", f"{request.cpus} processor{'s' * (request.cpus > 1)}"]
    parts += ["1 GPU"] * request.gpus_for(device)
    parts += [] if request.memory is None else [f"{request.memory} megabytes"]
    named = ((name, getattr(request, name)) for name in ("partition", "account", "qos", "constraint"))
    parts += [f"{name} {value}" for name, value in named if value is not None]
    return f"{request.system}: {', '.join(parts)} each"


def train_cells(grid: Grid, request: Cluster, limit: int | None, say: Say | None) -> list[Failure]:
    """Train the unfinished cells as tasks of a cluster; return the cells that failed, with the reasons.

    Tasks of Slurm that an earlier call has submitted and that are still in the queue are waited for.

    Raises:
        Interrupted: a signal arrived; tasks of Slurm stay in the queue, local ones are saved and stopped.
        MissingResource: there is no cluster, or it refuses the tasks.
    """
    check(request, grid.device)
    show = say or (lambda line: None)
    waiting = [cell for cell in grid.cells if not grid.is_done(cell)]
    total, ended = len(grid.cells), len(grid.cells) - len(waiting)
    failed: list[Failure] = []
    with progress.signals() as stop:
        queue = TaskQueue(grid, request, limit)
        if attached := queue.attach(waiting):
            show(f"waiting for {_counted(attached)} of an earlier command, still in the queue")
        while queue.waiting or queue.running:
            if submitted := queue.submit():
                show(f"submitted {_counted(submitted)} to {request.system}; logs in {queue.folder}")
            for cell, error in queue.collect():
                ended += 1
                failed += [] if error is None else [(cell.name, error)]
                show(f"training {ended} of {total}: {cell.name}{'' if error is None else ': failed'}")
            progress.count(say, ended, total)
            if reason := stop():
                raise Interrupted(queue.leave(reason))
            if queue.running:
                time.sleep(POLL[request.system])
    return failed


def require(failed: list[Failure], cells: int) -> None:
    """Raise an error if some tasks failed.

    Raises:
        WprivError: of the kind of the first error that the same command would not cure.
    """
    if not failed:
        return
    lines = "; ".join(f"{name}: {str(error).rstrip('.')}" for name, error in failed[:5])
    more = f"; and {len(failed) - 5} more" if len(failed) > 5 else ""
    lasting = [error for _, error in failed if not isinstance(error, Interrupted)]
    kinds = (each for each in (UsageError, Unsupported, MissingResource) if isinstance(lasting[0], each))
    kind = next(kinds, WprivError) if lasting else Interrupted
    raise kind(
        f"{len(failed)} of {cells} trainings failed: {lines}{more}. The others are in the table; the same command "
        f"tries again"
    )


def _counted(tasks: int) -> str:
    return "1 task" if tasks == 1 else f"{tasks} tasks"


class TaskQueue:
    """The tasks of a grid: those that wait to be submitted, and those that were. Arguments as of ``train_cells``."""

    def __init__(self, grid: Grid, request: Cluster, limit: int | None = None):
        # the signal must be known before submitit is loaded, here and in the tasks
        os.environ["SUBMITIT_PREEMPT_SIGNAL"] = PREEMPTION.name.removeprefix("SIG")
        import submitit

        logging.getLogger("submitit").setLevel(logging.CRITICAL)  # it would write to standard output
        self.submitit, self.request, self.limit = submitit, request, limit
        root = None if grid.root is None else Path(grid.root).absolute()
        self.grid, self.folder = replace(grid, out=grid.out.absolute(), root=root), (grid.out / TASKS).absolute()
        self.waiting: list[Cell] = []
        self.running: dict[str, tuple[Cell, Job]] = {}

    def attach(self, cells: Sequence[Cell]) -> int:
        """Take over the cells, and those of their tasks that are in Slurm's queue; return the number of these."""
        ids = self._recorded() if self.request.system == "slurm" else {}
        queued = _queued() if ids else set()
        for cell in cells:
            number = ids.get(cell.name)
            if number in queued:
                self.running[cell.name] = cell, self.submitit.SlurmJob(folder=self.folder, job_id=number)
            else:
                self.waiting.append(cell)
        return len(self.running)

    def submit(self) -> int:
        """Submit as many waiting cells as may run now, and record their jobs; return their number."""
        system, free = self.request.system, len(self.waiting)
        if system == "local":
            free = min(free, (self.limit or 1) - len(self.running))
        if not free:
            return 0
        batch, self.waiting = self.waiting[:free], self.waiting[free:]
        durable_writes.make_folder(self.folder)
        with _as_parent_of_tasks(self.request.cpus):
            jobs = self._accepted([CellTask(replace(self.grid, cells=(cell,))) for cell in batch])
        self.running |= {cell.name: (cell, job) for cell, job in zip(batch, jobs, strict=True)}
        numbers = {name: job.job_id for name, (_, job) in self.running.items()}
        # other commands submit other parts of the sweep
        record = {"system": system, "jobs": self._recorded() | numbers}
        durable_writes.replace(self.folder / JOBS, json.dumps(record, indent=2) + "\n")
        return len(batch)

    def collect(self) -> list[tuple[Cell, WprivError | None]]:
        """Return the cells whose tasks have ended since the last call, and why they are not trained if so."""
        over = [(cell, job) for cell, job in self.running.values() if job.done()]
        for cell, _ in over:
            del self.running[cell.name]
        return [(cell, self._failure(cell, job)) for cell, job in over]

    def leave(self, reason: str) -> str:
        """Leave tasks of Slurm in the queue, stop local ones, and return a message about both."""
        total, jobs = len(self.grid.cells), [job for _, job in self.running.values()]
        done = sum(self.grid.is_done(cell) for cell in self.grid.cells)
        begin = f"stopped by {reason} after {done} of {total} trainings"
        if self.request.system == "local":
            alive = _stop_local(jobs)
            state = (
                f"{alive} tasks still run and end by themselves" if alive else "no task runs any more, and all is saved"
            )
            return f"{begin}; {state}. The same command continues"
        numbers = sorted({job.job_id.partition("_")[0] for job in jobs})
        return (
            f"{begin}; {len(jobs)} tasks stay in the queue of the cluster and go on. The same command waits for them; "
            f"scancel {' '.join(numbers)} stops them, and the same command then continues them"
        )

    def _failure(self, cell: Cell, job: Job) -> WprivError | None:
        """Return why a task that has ended did not train its cell; the folder of the cell decides whether it is."""
        if self.grid.is_done(cell):
            return None
        missing = self.request.system == "local" and not job.paths.result_pickle.exists()
        error = None if missing else job.exception()
        if error is None and not missing:
            returned: WprivError | None = job.result()
            return returned
        log = f"its log is {job.paths.stdout}"
        if isinstance(error, self.submitit.core.utils.FailedJobError):
            return WprivError(f"a fault of the program ({_last_line(str(error))}); {log}")
        return Interrupted(f"{LOST.format(state='no result' if missing else job.state)}; {log}")

    def _executor(self) -> Any:
        """Return what starts tasks: Slurm, as an array that is queued again if a node fails, or this machine."""
        request, gpus = self.request, self.request.gpus_for(self.grid.device)
        if request.system == "local":
            executor: Any = self.submitit.LocalExecutor(folder=self.folder, max_num_timeout=request.requeues)
            executor.update_parameters(
                timeout_min=request.time, signal_delay_s=request.warning, gpus_per_node=gpus, stderr_to_stdout=True
            )
            return executor
        executor = self.submitit.SlurmExecutor(folder=self.folder, max_num_timeout=request.requeues)
        warned_by = os.environ["SUBMITIT_PREEMPT_SIGNAL"]
        exports = {"SUBMITIT_PREEMPT_SIGNAL": warned_by, "OMP_NUM_THREADS": request.cpus}
        options = {name: getattr(request, name) for name in ("partition", "account", "qos", "constraint")}
        options |= {"mem": request.memory and f"{request.memory}M", "gpus_per_node": gpus or None}
        executor.update_parameters(
            job_name="wpriv",
            wckey=None,
            time=request.time,
            cpus_per_task=request.cpus,
            stderr_to_stdout=True,
            array_parallelism=self.limit or len(self.grid.cells),
            setup=[*request.setup, *(f"export {name}={value}" for name, value in exports.items())],
            additional_parameters={"requeue": True, "signal": f"{warned_by}@{request.warning}"},
            **{name: value for name, value in options.items() if value is not None},
        )
        return executor

    def _accepted(self, tasks: Sequence[CellTask]) -> list[Job]:
        """Submit tasks and return their jobs."""
        errors = self.submitit.core.utils
        try:
            # the message of the cluster is part of the error below
            with open(os.devnull, "w", encoding="utf-8") as nothing, contextlib.redirect_stderr(nothing):
                return list(self._executor().submit_array(tasks))
        except (errors.FailedJobError, errors.FailedSubmissionError) as error:
            reason = " ".join(str(error).split())[:300]
            raise MissingResource(
                f"the cluster refused the tasks: {reason}. Change the key 'cluster' of the recipe (or "
                f"--set cluster.partition=NAME), or submit a part of the sweep by --shard"
            ) from None

    def _recorded(self) -> dict[str, str]:
        """Return the jobs that were submitted to this system, by the names of their cells; none in another file."""
        try:
            stored = model.json_object(self.folder / JOBS)
        except WprivError:
            return {}
        jobs = stored.get("jobs") if stored.get("system") == self.request.system else None
        listed = jobs.items() if isinstance(jobs, dict) else ()
        return {name: job for name, job in listed if isinstance(job, str) and re.fullmatch(r"\d+(_\d+)?", job)}


def _queued() -> set[str]:
    """Return the numbers of this user's jobs in Slurm's queue; none where it cannot be asked."""
    words = ["squeue", "--me", "--array", "--noheader", "--format=%i"]
    try:
        return set(subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout.split())
    except (OSError, subprocess.SubprocessError):
        return set()


def _stop_local(jobs: Sequence[Job]) -> int:
    """Give local tasks the signal to save and to end, wait for them, and return how many still run."""
    for job in jobs:
        if not job.done():
            os.kill(int(job.job_id), signal.SIGTERM)  # of a local job, the number is that of the process
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end and not all(job.done() for job in jobs):
        time.sleep(POLL["local"])
    return sum(not job.done() for job in jobs)


@contextlib.contextmanager
def _as_parent_of_tasks(threads: int) -> Iterator[None]:
    """Give processes started in the block their threads, and let them ignore Ctrl-C, which reaches them all."""
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = str(threads)
    in_main = threading.current_thread() is threading.main_thread()
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN) if in_main else None
    try:
        yield
    finally:
        if in_main:
            signal.signal(signal.SIGINT, handler)
        del os.environ["OMP_NUM_THREADS"]
        if before is not None:
            os.environ["OMP_NUM_THREADS"] = before


def _last_line(trace: str) -> str:
    """Return the error at the end of a trace that submitit quotes between two lines of dashes."""
    inner = re.split(r"^-{10,}$", trace, flags=re.M)
    lines = [line for line in (inner[1] if len(inner) > 2 else trace).splitlines() if line.strip()]
    return lines[-1].strip()[:200] if lines else "no message"
