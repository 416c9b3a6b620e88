"""wpriv train"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wpriv.cli import flags, output
from wpriv.cli.parsing import MACHINE, OUTPUT, RESULTS, argument, option, switch
from wpriv.errors import UsageError

if TYPE_CHECKING:
    from wpriv.config.recipe import Recipe
    from wpriv.training.trained import Trained

DEVICE = option("NAME", "cpu or cuda.", group=MACHINE, default="cpu")
SET = option("KEY=VALUE", "Change a key: privacy.eps=2; repeatable.", "--set")
QUICK = switch("--quick", "Apply the recipe's quick overrides.")


def command(
    recipe: str = argument(
        "RECIPE", "A recipe of kind train, by its path or its name, as dpsgd/mnist; - is standard input."
    ),
    device: str = DEVICE,
    out: Path | None = option("DIR", "Folder of all results (default results/<name>).", group=RESULTS),
    changes: list[str] | None = SET,
    quick: bool = QUICK,
    resume: bool = switch("--resume", "Continue an unfinished run, or begin one; sweeps always do.", RESULTS),
    fork: bool = switch(
        "--fork",
        "Continue from the weights in DIR with a changed recipe; the privacy cost of both runs is added up.",
        RESULTS,
    ),
    fresh: bool = switch("--fresh", "Begin again; earlier results in DIR are moved aside.", RESULTS),
    dry_run: bool = switch("--dry-run", "Only print what would be done and what it would cost."),
    data_root: Path | None = flags.DATA_ROOT,
    jobs: int | None = option(
        "N",
        "Number of trainings of a sweep, or of repeated runs (seeds), that run at the same time (default 1; on a "
        "cluster no limit).",
        min=1,
        group=MACHINE,
    ),
    shard: str | None = option("I/N", "Run only part I of N of a sweep, such as 3/16.", group=MACHINE),
    backend: str = option(
        "NAME",
        "What runs the trainings of a sweep: joblib's loky, multiprocessing or threading, with --jobs; or "
        "submitit, each training as a task of a Slurm cluster.",
        group=MACHINE,
        default="loky",
    ),
    shard_weights: bool = switch(
        "--shard-weights",
        "Divide the weights of the network among the processes of torchrun; sets the key shard_weights.",
        MACHINE,
    ),
    log: list[str] | None = option(
        "NAME",
        "Send numbers to mlflow, tensorboard or wandb at the end: eps, delta, parameters, final test metrics; "
        "repeatable.",
        group=OUTPUT,
    ),
    log_private_losses: bool = switch(
        "--log-private-losses",
        "With --log, send the losses of training records as well, which no guarantee covers.",
        OUTPUT,
    ),
    certificate: str | None = flags.CERTIFICATE,
    ledger: str | None = flags.LEDGER_URL,
    as_json: bool = flags.JSON,
) -> None:
    """Train with differential privacy, and account for the releases that really happened.

    wpriv train quick/digits --dry-run

    wpriv train quick/digits --out results/digits

    wpriv train quick/digits --quick --set privacy.eps=2 --set seed=1 --fresh
    """
    begin_torch(device)
    from wpriv.cli import training_output
    from wpriv.training import metric_logs, sweep, train

    sweep.check_backend(backend)
    if shard_weights and not dry_run and int(os.environ.get("WORLD_SIZE", "1")) < 2:
        raise UsageError(
            "--shard-weights divides the weights among several processes, and this is the only one. Start the command "
            "by torchrun --nproc-per-node 2 -m wpriv train, or leave --shard-weights out"
        )
    divided = {"shard_weights": True} if shard_weights else {}
    loaded = train.recipe_of(recipe, quick=quick, changes=changed_keys(changes or []) | divided)
    logs = metric_logs.logs_of(log, log_private_losses)
    how: dict[str, Any] = {"jobs": jobs, "part": shard or "1/1", "backend": backend, "device": device}
    _check_flags(loaded, how, dry_run=dry_run, logs=bool(logs.names), certificate=certificate is not None)
    start: dict[str, Any] = {"resume": resume, "fork": fork, "fresh": fresh}
    if ledger is not None and dry_run:
        raise UsageError("--ledger spends for a training that runs, and --dry-run runs none. Leave one of them out")
    train.require_one(loaded, fork=fork, fresh=fresh)
    folder = out or loaded.default_out
    output.doing("planning" if dry_run else "preparing the training")
    if dry_run:
        _plan(loaded, folder, data_root, how, start, as_json)
    elif loaded.train.has_several:
        with output.training() as say:
            result = sweep.run(loaded, folder, root=data_root, say=say, ledger=ledger, **how)
        training_output.print_sweep(result, as_json)
    else:
        with output.training() as say:
            trained = train.run(
                loaded, folder, device=device, root=data_root, say=say, logs=logs, ledger=ledger, **start
            )
        _print_trained(trained, as_json, certificate)


def begin_torch(device: str) -> None:
    """Check the name of the device, and set what torch reads when it is loaded, which comes next."""
    if device not in ("cpu", "cuda"):
        raise UsageError(f"--device must be cpu or cuda; found {device!r}")
    # idle threads of torch would spin on processors that other jobs could use
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    output.doing("loading torch")


def _check_flags(loaded: Recipe, how: Mapping[str, Any], *, dry_run: bool, logs: bool, certificate: bool) -> None:
    """Refuse flags that the recipe has no use for."""
    from wpriv.training import cluster

    several, tuned = loaded.train.has_several, loaded.train.tune is not None
    spread = how["part"] != "1/1" or (how["jobs"] or 1) > 1 or how["backend"] == cluster.BACKEND
    one = "is for one training that runs; leave it out of sweeps, of repeated runs (seeds) and of --dry-run"
    neither = (
        "--jobs, --shard and --backend submitit need a recipe with the key 'sweep' or 'seeds'; this one has neither"
    )
    conflicts = {
        f"--log {one}": logs and (dry_run or several),
        f"--certificate {one}": certificate and (several or (dry_run and not tuned)),
        "--certificate holds the bracket of one training, and this recipe keeps the best of a random number of runs "
        "(tune), for which the verifier has no proof. Leave it out": certificate and tuned,
        f"{neither}. Leave them out": spread and not (several or tuned),
        f"{neither}, and the runs of a tuned training are made one after another. Leave them out": spread and tuned,
    }
    for message, is_so in conflicts.items():
        if is_so:
            raise UsageError(message)


def _plan(
    loaded: Recipe, out: Path, root: Path | None, how: Mapping[str, Any], start: dict[str, Any], as_json: bool
) -> None:
    """Print what would be done; where other results stand in the way, the plan in an empty folder, and why."""
    from wpriv.cli import training_output
    from wpriv.training import cluster, sweep, training_run, tuning

    def show(folder: Path, remarks: list[str]) -> None:
        if loaded.train.has_several:
            on_cluster = how["backend"] == cluster.BACKEND
            tasks = cluster.words(cluster.request_of(loaded), how["device"]) if on_cluster else None
            cells = sweep.planned(loaded, folder, part=how["part"], root=root)
            training_output.print_sweep_plan(loaded, cells, out, as_json, remarks, tasks)
        elif loaded.train.tune is not None:
            tuned = tuning.planned(loaded, folder, root=root, resume=start["resume"])
            training_output.print_tuning_plan(tuned, out, as_json, remarks)
        else:
            plan, state = training_run.planned(loaded, folder, root=root, **start)
            if state.done:
                over = f"{out} holds the results of this training, which is over"
                remarks = [f"{over}: the command would train nothing, and print them again"]
            training_output.print_plan(plan, out, as_json, remarks)

    try:
        show(out, [])
    except UsageError as error:
        if any(start.values()) or not out.is_dir():
            raise
        show(out / "planned", [f"the training itself would be refused: {error}"])


def _print_trained(trained: Trained, as_json: bool, certificate: str | None) -> None:
    from wpriv.accounting import certificates
    from wpriv.cli import training_output
    from wpriv.training import progress

    if progress.is_main():  # only the first of several processes (torchrun) prints
        if not trained.metrics:
            training_output.print_nothing(trained, as_json)
        else:
            output.print_with_certificate(
                lambda: training_output.print_training(trained, as_json),
                lambda: certificates.best(trained.guarantees),
                certificate,
            )
        if trained.found:
            output.say("note", f"already finished in {trained.out}{os.sep}; nothing ran. `fresh=True` trains again")
    trained.require()


def changed_keys(entries: list[str]) -> dict[str, object]:
    """Paths and values of ``privacy.eps=2``, each value read as in a recipe."""
    from wpriv.config import yaml_document

    changes: dict[str, object] = {}
    for text in entries:
        path, equals, value = text.partition("=")
        if not equals or not path.strip():
            raise UsageError(f"--set wants key=value, as in privacy.eps=2; found {text[:80]!r}")
        changes[path.strip()] = yaml_document.parse(f"value: {value}", f"--set {text[:80]}").data["value"]
    return changes
