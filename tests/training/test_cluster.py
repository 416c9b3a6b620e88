"""Sweeps as tasks of a cluster: through submitit, on a Slurm of one machine and on its local executor."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.training import fake_slurm
from wpriv.accounting import ledger
from wpriv.cli.main import main
from wpriv.config.train_parts import Cluster
from wpriv.errors import Interrupted, MissingResource, UsageError, WprivError
from wpriv.training import cluster, sweep, train
from wpriv.training.cluster import CellTask, TaskQueue
from wpriv.training.training_grid import Grid

pytest.importorskip("submitit")

STEPS = 60
RECIPE = f"""
kind: train
source: "a toy"
task: classify
data: {{name: digits, first: 60}}
model: {{name: logistic}}
privacy: {{sigma: 2, delta: 1e-5}}
optimizer: {{name: sgd, lr: 1.0}}
batch: 20
steps: {STEPS}
checkpoint: 0
seed: 0
accountants: [rdp]
cluster: {{system: slurm, partition: short, time: 5, memory: 900}}
sweep: {{over: privacy.sigma, values: [2]}}
"""
LOCAL = ("--set", "cluster.system=local")
USAGE, ENVIRONMENT, STOPPED = 2, 4, 75


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("grid.yaml").write_text(RECIPE)
    Path("two.yaml").write_text(RECIPE.replace("[2]", "[2, 4]"))
    return tmp_path


@pytest.fixture
def slurm(folder, monkeypatch) -> Callable[..., Path]:
    def install(**how: object) -> Path:
        commands = fake_slurm.install(folder / "slurm", **how)
        monkeypatch.setenv("PATH", str(commands), prepend=os.pathsep)
        return folder / "slurm"

    return install


def submit(*more: str, recipe: str = "grid.yaml") -> int:
    return main(["train", recipe, "--out", "grid", "--backend", "submitit", *more])


def ledger_steps(cell: Path) -> list[int]:
    return [entry.step for entry in ledger.entries(cell / "ledger.jsonl")]


def steps_of(cell: Path) -> int:
    """The number of lines in a ledger that is being written."""
    path = cell / "ledger.jsonl"
    return path.read_bytes().count(b"\n") if path.is_file() else 0


def when(condition: Callable[[], object], action: Callable[[], object]) -> threading.Thread:
    """Runs the action in another thread once the condition holds."""

    def run() -> None:
        while not condition():
            time.sleep(0.01)
        action()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def undisturbed() -> str:
    """The table of the same sweep in this process."""
    assert main(["train", "grid.yaml", "--out", "alone"]) == 0
    return Path("alone/table.csv").read_text()


def table_without_times(text: str) -> list[str]:
    places = [place for place, name in enumerate(text.splitlines()[0].split(",")) if name != "seconds"]
    return [",".join(line.split(",")[place] for place in places) for line in text.splitlines()]


@pytest.mark.slow
def test_a_task_that_gets_sigusr1_is_queued_again_and_pays_for_each_step_once(folder, slurm, capsys):
    state = slurm()
    cell = Path("grid/privacy.sigma=2")

    def preempt() -> None:
        os.kill(int((state / "pids/7").read_text()), signal.SIGUSR1)

    when(lambda: steps_of(cell) > 2, preempt)
    assert submit() == 0
    assert (state / "requeued-7").is_file()
    log = (folder / "grid/tasks/7_0_log.out").read_text()
    assert "stopped by SIGUSR1 after step" in log
    assert log.count("Starting with JobEnvironment") == 2
    assert ledger_steps(cell) == list(range(1, STEPS + 1))
    # oracle: the same sweep without a cluster and without a signal
    assert table_without_times(Path("grid/table.csv").read_text()) == table_without_times(undisturbed())
    script = (state / "script.sh").read_text()
    wanted = ("partition=short", "time=5", "mem=900M", "cpus-per-task=1", "signal=USR1@90", "requeue")
    assert all(f"#SBATCH --{line}\n" in script for line in wanted)
    assert "gpus" not in script
    assert "array" not in script


@pytest.mark.slow
def test_local_tasks_that_are_killed_or_interrupted_go_on_with_the_same_command(folder, capsys):
    checkpoint = Path("grid/privacy.sigma=2/checkpoint.pt")

    def kill() -> None:
        (number,) = json.loads(Path("grid/tasks/jobs.json").read_text())["jobs"].values()
        child = Path(f"/proc/{number}/task/{number}/children").read_text().split()[0]
        os.kill(int(child), signal.SIGKILL)

    when(lambda: steps_of(checkpoint.parent) > 2, kill)
    assert submit(*LOCAL) == STOPPED
    error = capsys.readouterr().err
    assert "1 of 1 trainings failed: privacy.sigma=2: ended without a result" in error
    assert "the same command tries again" in error
    before = ledger_steps(checkpoint.parent)
    assert 0 < len(before) < STEPS
    when(lambda: steps_of(checkpoint.parent) > len(before), lambda: os.kill(os.getpid(), signal.SIGINT))
    assert submit(*LOCAL) == STOPPED
    error = capsys.readouterr().err
    assert "Traceback" not in error
    assert "stopped by SIGINT after 0 of 1 trainings; no task runs any more, and all is saved" in error
    assert not Path("grid/privacy.sigma=2/.lock").exists()
    assert len(before) < len(ledger_steps(checkpoint.parent)) < STEPS
    # without a cluster, too
    assert main(["train", "grid.yaml", "--out", "grid"]) == 0
    assert ledger_steps(checkpoint.parent) == list(range(1, STEPS + 1))


def test_ctrl_c_leaves_tasks_of_slurm_in_the_queue_and_the_same_command_waits_for_them(folder, slurm, capsys):
    slurm(idle=True)
    when(Path("grid/tasks/jobs.json").is_file, lambda: os.kill(os.getpid(), signal.SIGINT))
    assert submit(recipe="two.yaml") == STOPPED
    error = capsys.readouterr().err
    assert "stopped by SIGINT after 0 of 2 trainings; 2 tasks stay in the queue" in error
    assert "scancel 7 stops them" in error
    assert "#SBATCH --array=0-1%2\n" in (folder / "slurm/script.sh").read_text()
    assert attached(queue_of("two.yaml")) == 2
    # a task that has left the queue is submitted again
    (folder / "slurm/state/7_1").write_text("FAILED")
    queue = queue_of("two.yaml")
    assert attached(queue) == 1
    assert [cell.name for cell in queue.waiting] == ["privacy.sigma=4"]


def test_commands_for_two_parts_of_a_sweep_keep_the_jobs_of_each_other(folder, slurm):
    slurm(idle=True)
    for place, name in enumerate(("privacy.sigma=2", "privacy.sigma=4")):
        part = queue_of("two.yaml")
        part.grid = replace(part.grid, cells=part.grid.cells[place : place + 1])
        attached(part)
        assert part.submit() == 1
        assert name in json.loads(Path("grid/tasks/jobs.json").read_text())["jobs"]
    assert len(json.loads(Path("grid/tasks/jobs.json").read_text())["jobs"]) == 2


def queue_of(name: str = "grid.yaml") -> TaskQueue:
    recipe = train.recipe_of(name)
    return TaskQueue(Grid(sweep.cells(recipe), Path("grid")), cluster.request_of(recipe))


def attached(queue: TaskQueue) -> int:
    return queue.attach(queue.grid.cells)


@pytest.mark.parametrize(
    "text", ["", "[1, 2]", '{"system": "slurm", "jobs": {"a": 3, "b": "no number"}}', '{"system": "slurm", "jobs": 1}']
)
def test_a_damaged_record_of_jobs_is_as_none(folder, slurm, text):
    slurm(idle=True)
    Path("grid/tasks").mkdir(parents=True)
    Path("grid/tasks/jobs.json").write_text(text)
    assert attached(queue_of()) == 0


def test_a_machine_without_slurm_is_an_error_of_the_environment(folder, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(folder))
    assert submit() == ENVIRONMENT
    error = capsys.readouterr().err
    assert "sbatch, srun, sacct not found" in error
    assert "--set cluster.system=local" in error
    assert not Path("grid").exists()


def test_what_sbatch_refuses_is_told_in_its_words(folder, slurm, capsys):
    slurm(refuse="Batch job submission failed: Invalid partition name specified")
    assert submit() == ENVIRONMENT
    captured = capsys.readouterr()
    assert "the cluster refused the tasks: sbatch: error: Batch job submission failed: Invalid" in captured.err
    assert "cluster.partition=NAME" in captured.err
    assert not captured.out


@pytest.mark.parametrize(
    ("more", "text"),
    [
        (["--set", "cluster.gpus=1"], "cluster.gpus is 1 and --device is cpu"),
        (["--set", "cluster.time=0"], "time: must be greater than or equal to 1; found 0"),
        (["--set", "cluster.partitoin=x"], "did you mean 'partition'?"),
        (["--set", "cluster.system=lsf"], "slurm"),
        (["--set", "sweep=null"], "'cluster' says where the trainings of a sweep"),
        (["--set", "sweep=null", "--set", "cluster=null"], "--backend submitit need a recipe with the key 'sweep'"),
    ],
)
def test_faults_of_the_cluster_are_usage_errors_that_name_the_key(folder, slurm, capsys, more, text):
    slurm(idle=True)
    assert submit(*more) == USAGE
    assert text in capsys.readouterr().err


def test_without_the_package_the_extra_is_named(folder, monkeypatch, capsys):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert submit("--dry-run") == ENVIRONMENT
    assert "pip install 'wpriv[slurm]'" in capsys.readouterr().err


def test_a_dry_run_says_what_tasks_would_ask_for(folder, capsys):
    assert submit("--dry-run", recipe="two.yaml") == 0
    line = "submits 2 tasks to slurm: 5 minutes, 1 processor, 900 megabytes, partition short each"
    assert line in " ".join(capsys.readouterr().out.split())
    assert submit("--dry-run", "--json") == 0
    assert json.loads(capsys.readouterr().out)["tasks"].startswith("slurm: 5 minutes")


def test_a_task_returns_the_error_of_its_cell(folder):
    recipe = train.recipe_of("grid.yaml", changes={"data.records": 1234})
    (cell,) = sweep.cells(recipe)
    error = CellTask(Grid([cell], folder / "grid"))()
    assert error.exit_code == USAGE
    assert "1234" in str(error)


@pytest.mark.parametrize(
    ("errors", "kind"),
    [
        ([Interrupted], Interrupted),
        ([Interrupted, MissingResource], MissingResource),
        ([UsageError, MissingResource], UsageError),
        ([WprivError, Interrupted], WprivError),
    ],
)
def test_failed_cells_raise_the_error_that_needs_a_change(errors, kind):
    with pytest.raises(kind, match=re.escape("of 9 trainings failed: cell 0: why 0")) as caught:
        cluster.require([(f"cell {n}", error(f"why {n}")) for n, error in enumerate(errors)], 9)
    assert caught.value.exit_code == kind.exit_code
    assert cluster.require([], 9) is None


def test_a_cell_does_not_depend_on_the_cluster_that_trains_it(folder):
    one, two = (
        sweep.cells(train.recipe_of("grid.yaml", changes={"cluster.partition": name}))[0].recipe.data
        for name in ("short", "long")
    )
    assert one == two
    assert "cluster" not in one


def test_one_gpu_is_asked_for_where_tasks_train_on_one():
    asked = Cluster.model_validate({})
    assert asked.gpus_for("cuda") == 1
    assert asked.gpus_for("cpu") == 0
    assert "1 GPU" in cluster.words(asked, "cuda")


def test_the_last_line_of_a_trace_is_its_error():
    from submitit.core.utils import FailedJobError

    trace = "Traceback (most recent call last):\n  File x\nKeyError: 'y'\n"
    dashes = "-" * 22
    error = FailedJobError(f"Job failed with trace:\n{dashes}\n{trace}\n{dashes}\nYou can check full logs")
    assert cluster._last_line(str(error)) == "KeyError: 'y'"


@pytest.fixture(autouse=True)
def no_task_is_left() -> Iterator[None]:
    yield
    for path in Path("slurm/pids").glob("*"):
        assert not Path(f"/proc/{path.read_text()}").exists()
