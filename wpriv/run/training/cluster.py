"""Submit the trainings of a sweep to a cluster by submitit, one cell a task, and wait for them.

The folder of each cell holds all of its state, so that a task may be stopped, killed and started again at any time: it
continues from its checkpoint, and its ledger counts each step once.
"""

from __future__ import annotations

import importlib.util
import shutil
import time

from wpriv.config.cluster_schema import Cluster
from wpriv.errors import Interrupted, MissingResource, Unsupported, UsageError, WprivError
from wpriv.run.training import progress
from wpriv.run.training.cell_task import Outcome
from wpriv.run.training.task_queue import POLL, Submission, TaskQueue

BACKEND = "submitit"
COMMANDS = ("sbatch", "srun", "sacct")
ERRORS: dict[int, type[WprivError]] = {each.exit_code: each for each in (UsageError, Unsupported, MissingResource)}


def require_package() -> None:
    """Refuse to go on without submitit.

    Raises:
        MissingResource: it is not installed.
    """
    if importlib.util.find_spec("submitit") is None:
        raise MissingResource(
            "--backend submitit needs the package of this name; install it by pip install 'wpriv[slurm]'"
        )


def check(cluster: Cluster, device: str) -> None:
    """Refuse a cluster that is not there, or a GPU without use.

    Raises:
        MissingResource: there is no Slurm. UsageError: tasks ask for a GPU and train on the CPU, or the reverse.
    """
    gpus = cluster.gpus_for(device)
    if gpus != int(device == "cuda"):
        advice = "add --device cuda, or leave cluster.gpus out" if gpus else "leave cluster.gpus out"
        raise UsageError(f"cluster.gpus is {gpus} and --device is {device}; {advice}")
    missing = [name for name in COMMANDS if shutil.which(name) is None]
    if cluster.system == "slurm" and missing:
        raise MissingResource(
            f"--backend submitit: there is no Slurm here: {', '.join(missing)} not found. Give the command on a node "
            f"of the cluster that submits jobs, or try the sweep in processes of this machine by "
            f"--set cluster.system=local"
        )


def words(cluster: Cluster, device: str) -> str:
    """Return what each task asks for, in words."""
    gpus = cluster.gpus_for(device)
    parts = [f"{cluster.time} minutes", f"{cluster.cpus} processor{'s' * (cluster.cpus > 1)}"]
    parts += ["1 GPU"] * gpus
    parts += [] if cluster.memory is None else [f"{cluster.memory} megabytes"]
    named = ((name, getattr(cluster, name)) for name in ("partition", "account", "qos", "constraint"))
    return ", ".join([*parts, *(f"{name} {value}" for name, value in named if value is not None)])


def train_cells(plan: Submission, say: progress.Say | None) -> list[tuple[str, Outcome]]:
    """Train the unfinished cells as tasks of a cluster; return the cells that failed, with the reasons.

    Tasks of Slurm that an earlier call has submitted and that are still in the queue are waited for.

    Raises:
        Interrupted: a signal arrived; tasks of Slurm stay in the queue, local ones are saved and stopped.
        MissingResource: there is no cluster, or it refuses the tasks.
    """
    check(plan.cluster, plan.device)
    meter = say if isinstance(say, progress.Meter) else None
    waiting = [cell for cell in plan.cells if not plan.is_done(cell)]
    before = len(plan.cells) - len(waiting)
    with progress.signals() as stop:
        queue = TaskQueue(plan)
        if attached := queue.attach(waiting):
            _say(say, f"waiting for {_counted(attached)} of an earlier command, still in the queue")
        failed: list[tuple[str, Outcome]] = []
        ended = 0
        while queue.waiting or queue.running:
            if submitted := queue.submit():
                _say(say, f"submitted {_counted(submitted)} to {plan.cluster.system}; logs in {plan.folder}")
            for cell, outcome in queue.collect():
                ended += 1
                if outcome.exit_code:
                    failed.append((cell.name, outcome))
                _say(
                    say,
                    f"training {before + ended} of {len(plan.cells)}: {cell.name}{': failed' * bool(outcome.message)}",
                )
            if meter is not None:
                meter.cells(before + ended, len(plan.cells))
            if reason := stop():
                raise Interrupted(queue.leave(reason))
            if queue.running:
                time.sleep(POLL[plan.cluster.system])
    return failed


def require(failed: list[tuple[str, Outcome]], cells: int) -> None:
    """Raise an error if some tasks failed.

    Raises:
        WprivError: of the kind of the first error that the same command would not cure.
    """
    if not failed:
        return
    lines = "; ".join(f"{name}: {outcome.message.rstrip('.')}" for name, outcome in failed[:5])
    more = f"; and {len(failed) - 5} more" if len(failed) > 5 else ""
    codes = [outcome.exit_code for _, outcome in failed if outcome.exit_code != Interrupted.exit_code]
    kind = ERRORS.get(codes[0], WprivError) if codes else Interrupted
    raise kind(
        f"{len(failed)} of {cells} trainings failed: {lines}{more}. The others are in the table; the same command "
        f"tries again"
    )


def _counted(tasks: int) -> str:
    return "1 task" if tasks == 1 else f"{tasks} tasks"


def _say(say: progress.Say | None, line: str) -> None:
    if say is not None:
        say(line, True)
