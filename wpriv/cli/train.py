"""wpriv train"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wpriv.cli import flags
from wpriv.cli.parsing import MACHINE, OUTPUT, RESULTS, argument, option, switch
from wpriv.errors import UsageError

if TYPE_CHECKING:
    from wpriv.training.trained import Trained

ONE = "{flag} is for one training that runs; leave it out of sweeps, of repeated runs (seeds) and of --dry-run"
NO_PROOF = (
    "--certificate holds the bracket of one training, and this recipe keeps the best of a random number of runs "
    "(tune), for which the verifier has no proof. Leave it out"
)
SEVERAL = (
    "--jobs, --shard and --backend submitit need a recipe with the key 'sweep' or 'seeds'; this one has neither. Leave "
    "them out"
)
IN_TURN = SEVERAL.replace(". ", ", and the runs of a tuned training are made one after another. ")

Recipe = Annotated[
    str, argument("RECIPE", "A recipe of kind train, by its path or its name, as dpsgd/mnist; - is standard input.")
]
Device = Annotated[str, option("NAME", "cpu or cuda.", "--device", group=MACHINE)]
Out = Annotated[Path | None, option("DIR", "Folder of all results (default results/<name>).", "--out", group=RESULTS)]
Set = Annotated[list[str] | None, option("KEY=VALUE", "Change a key: privacy.eps=2; repeatable.", "--set")]
Quick = Annotated[bool, switch("--quick", "Apply the recipe's quick overrides.")]
Resume = Annotated[bool, switch("--resume", "Continue an unfinished run, or begin one; sweeps always do.", RESULTS)]
Fork = Annotated[
    bool,
    switch(
        "--fork",
        "Continue from the weights in DIR with a changed recipe; the privacy cost of both runs is added up.",
        RESULTS,
    ),
]
Fresh = Annotated[bool, switch("--fresh", "Begin again; earlier results in DIR are moved aside.", RESULTS)]
Dry = Annotated[bool, switch("--dry-run", "Only print what would be done and what it would cost.")]
Jobs = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        metavar="N",
        min=1,
        help="Number of trainings of a sweep, or of repeated runs (seeds), that run at the same time (default 1; on a "
        "cluster no limit).",
        rich_help_panel=MACHINE,
    ),
]
Shard = Annotated[str | None, option("I/N", "Run only part I of N of a sweep, such as 3/16.", "--shard", group=MACHINE)]
ShardWeights = Annotated[
    bool,
    switch(
        "--shard-weights",
        "Divide the weights of the network among the processes of torchrun; sets the key shard_weights.",
        MACHINE,
    ),
]
Log = Annotated[
    list[str] | None,
    option(
        "NAME",
        "Send numbers to mlflow, tensorboard or wandb at the end: eps, delta, parameters, final test metrics; "
        "repeatable.",
        "--log",
        group=OUTPUT,
    ),
]
LogPrivate = Annotated[
    bool,
    switch(
        "--log-private-losses",
        "With --log, send the losses of training records as well, which no guarantee covers.",
        OUTPUT,
    ),
]
Backend = Annotated[
    str,
    option(
        "NAME",
        "What runs the trainings of a sweep: joblib's loky, multiprocessing or threading, with --jobs; or "
        "submitit, each training as a task of a Slurm cluster.",
        "--backend",
        group=MACHINE,
    ),
]


def command(
    recipe: Recipe,
    device: Device = "cpu",
    out: Out = None,
    changes: Set = None,
    quick: Quick = False,
    resume: Resume = False,
    fork: Fork = False,
    fresh: Fresh = False,
    dry_run: Dry = False,
    data_root: flags.DataRoot = None,
    jobs: Jobs = None,
    shard: Shard = None,
    backend: Backend = "loky",
    shard_weights: ShardWeights = False,
    log: Log = None,
    log_private_losses: LogPrivate = False,
    certificate: flags.Certificate = None,
    as_json: flags.Json = False,
) -> None:
    """Train with differential privacy, and account for the releases that really happened.

    wpriv train quick/digits --dry-run

    wpriv train quick/digits --out results/digits

    wpriv train quick/digits --quick --set privacy.eps=2 --set seed=1 --fresh
    """
    # idle threads of torch would spin on processors that other jobs could use
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from wpriv.cli import output, training_output

    output.doing("loading torch")
    from wpriv.training import cluster, metric_logs, sweep, train, training_run, tuning

    if device not in ("cpu", "cuda"):
        raise UsageError(f"--device must be cpu or cuda; found {device!r}")
    sweep.check_backend(backend)
    if shard_weights and not dry_run and int(os.environ.get("WORLD_SIZE", "1")) < 2:
        raise UsageError(
            "--shard-weights divides the weights among several processes, and this is the only one. Start the command "
            "by torchrun --nproc-per-node 2 -m wpriv train, or leave --shard-weights out"
        )
    divided = {"shard_weights": True} if shard_weights else {}
    loaded = train.recipe_of(recipe, quick=quick, changes=changed_keys(changes or []) | divided)
    logs = metric_logs.logs_of(log, log_private_losses)
    several, tuned = loaded.train.has_several, loaded.train.tune is not None
    spread = shard is not None or (jobs or 1) > 1 or backend == cluster.BACKEND
    conflicts = {
        ONE.format(flag="--log"): bool(logs.names) and (dry_run or several),
        ONE.format(flag="--certificate"): certificate is not None and (several or (dry_run and not tuned)),
        NO_PROOF: certificate is not None and tuned,
        SEVERAL: spread and not (several or tuned),
        IN_TURN: spread and tuned,
    }
    for message, is_so in conflicts.items():
        if is_so:
            raise UsageError(message)
    start: dict[str, Any] = {"resume": resume, "fork": fork, "fresh": fresh}
    train.require_one(loaded, fork=fork, fresh=fresh)
    folder = out or loaded.default_out
    output.doing("planning" if dry_run else "preparing the training")
    if several and dry_run:
        planned = sweep.planned(loaded, folder, part=shard or "1/1", root=data_root)
        tasks = cluster.words(cluster.request_of(loaded), device) if backend == cluster.BACKEND else None
        training_output.print_sweep_plan(loaded, planned, folder, as_json, tasks)
    elif several:
        with output.training() as say:
            how: dict[str, Any] = {"jobs": jobs, "part": shard or "1/1", "backend": backend, "device": device}
            result = sweep.run(loaded, folder, root=data_root, say=say, **how)
        training_output.print_sweep(result, as_json)
    elif tuned and dry_run:
        training_output.print_tuning_plan(
            tuning.planned(loaded, folder, root=data_root, resume=resume), folder, as_json
        )
    elif dry_run:
        plan, state = training_run.planned(loaded, folder, root=data_root, **start)
        training_output.print_plan(plan, state, as_json)
    else:
        with output.training() as say:
            trained = train.run(loaded, folder, device=device, root=data_root, say=say, logs=logs, **start)
        _print_trained(trained, as_json, certificate)


def _print_trained(trained: Trained, as_json: bool, certificate: str | None) -> None:
    """Print a finished training, with a certificate if one is to be written.

    Raises:
        CheckFailed: an expected number was missed.
    """
    from wpriv.accounting import certificates
    from wpriv.cli import output, training_output
    from wpriv.training import progress

    if progress.is_main():  # only the first of several processes (torchrun) prints
        if not trained.metrics:
            training_output.print_nothing(trained, as_json)
            return
        output.print_with_certificate(
            lambda: training_output.print_training(trained, as_json),
            lambda: certificates.best(trained.guarantees),
            certificate,
        )
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
