"""wpriv train"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wpriv.cli import flags
from wpriv.errors import UsageError

if TYPE_CHECKING:
    from wpriv.config.recipe import Recipe as LoadedRecipe
    from wpriv.run.training.metric_logs import Logs

Recipe = Annotated[
    str,
    typer.Argument(metavar="RECIPE", help="The path or the name of a recipe of kind train, such as dpsgd/mnist."),
]
Device = Annotated[str, typer.Option("--device", metavar="NAME", help="cpu or cuda.")]
Out = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", help="Folder of all results (default results/<name>).")
]
Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a key: privacy.eps=2; repeatable.")
]
Quick = Annotated[bool, typer.Option("--quick", help="Apply the recipe's quick overrides.")]
Resume = Annotated[bool, typer.Option("--resume", help="Continue an unfinished run, or begin one; sweeps always do.")]
Fork = Annotated[
    bool,
    typer.Option(
        "--fork",
        help="Continue from the weights in DIR with a changed recipe; the privacy cost of both runs is added up.",
    ),
]
Fresh = Annotated[bool, typer.Option("--fresh", help="Begin again; earlier results in DIR are moved aside.")]
Dry = Annotated[bool, typer.Option("--dry-run", help="Only print what would be done and what it would cost.")]
Root = Annotated[
    Path | None, typer.Option("--data-root", metavar="DIR", help="Folder of the data sets (before $WPRIV_DATA).")
]
Jobs = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        metavar="N",
        min=1,
        help="Number of trainings of a sweep, or of repeated runs (seeds), that run at the same time (default 1; on a "
        "cluster no limit).",
    ),
]
Shard = Annotated[
    str | None, typer.Option("--shard", metavar="I/N", help="Run only part I of N of a sweep, such as 3/16.")
]
ShardWeights = Annotated[
    bool,
    typer.Option(
        "--shard-weights",
        help="Divide the weights of the network among the processes of torchrun; sets the key shard_weights.",
    ),
]
Log = Annotated[
    list[str] | None,
    typer.Option(
        "--log",
        metavar="NAME",
        help="Send figures to mlflow, tensorboard or wandb at the end: eps, delta, parameters, final test metrics; "
        "repeatable.",
    ),
]
LogPrivate = Annotated[
    bool,
    typer.Option(
        "--log-private-losses",
        help="With --log, send the losses of training records as well, which no guarantee covers.",
    ),
]
Backend = Annotated[
    str,
    typer.Option(
        "--backend",
        metavar="NAME",
        help="What runs the trainings of a sweep: joblib's loky, dask or ray, with --jobs; or submitit, each training "
        "as a task of a Slurm cluster.",
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
    data_root: Root = None,
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

    wpriv train quick/digits

    wpriv train dpsgd/mnist --set privacy.eps=2 --device cuda
    """
    # idle threads of torch would spin on processors that other jobs could use
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from wpriv.run.training import metric_logs, sweep, train

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
    several = loaded.training is not None and loaded.training.has_several
    tuned = loaded.training is not None and loaded.training.tune is not None
    if dry_run or several:
        _refuse_for_several(logs=bool(logs.names), certificate=certificate is not None and not tuned)
    if tuned:
        _refuse_for_tuned(fork=fork, fresh=fresh, certificate=certificate is not None)
    folder = out or train.default_out(loaded)
    if several:
        if fork or fresh:
            raise UsageError(
                f"--{'fork' if fork else 'fresh'} is for one training, and a sweep or repeated runs (seeds) continue "
                f"all of their trainings. Name another folder with --out to begin all of them again"
            )
        options = {"jobs": jobs, "part": shard or "1/1", "backend": backend, "device": device}
        _sweep(loaded, folder, data_root, dry_run, as_json, options)
    elif shard is not None or (jobs or 1) > 1 or backend == "submitit":
        raise UsageError(
            "--jobs, --shard and --backend submitit need a recipe with the key 'sweep' or 'seeds'; this one has neither"
            + (", and the runs of a tuned training are made one after another" if tuned else "")
            + ". Leave them out"
        )
    elif tuned and dry_run:
        _tuning_plan(loaded, folder, data_root, as_json, resume)
    else:
        start = {"resume": resume, "fork": fork, "fresh": fresh}
        _train(loaded, folder, data_root, dry_run, as_json, device, certificate, logs, **start)


def _refuse_for_several(*, logs: bool, certificate: bool) -> None:
    """Refuse flags that need exactly one training that runs."""
    for flag, is_given in (("--log", logs), ("--certificate", certificate)):
        if is_given:
            raise UsageError(
                f"{flag} is for one training that runs; leave it out of sweeps, of repeated runs (seeds) and of "
                f"--dry-run"
            )


def _refuse_for_tuned(*, fork: bool, fresh: bool, certificate: bool) -> None:
    """Refuse flags that a tuned training, which keeps the best of a random number of runs, has no answer to."""
    if certificate:
        raise UsageError(
            "--certificate holds the bracket of one training, and this recipe keeps the best of a random number of "
            "runs (tune), for which the verifier has no proof. Leave it out"
        )
    if fork or fresh:
        raise UsageError(
            f"--{'fork' if fork else 'fresh'} is for one training, and the number of runs of a tuned training is drawn "
            f"once. Name another folder with --out; what was trained in this one is spent all the same"
        )


def _sweep(
    recipe: LoadedRecipe, out: Path, root: Path | None, dry_run: bool, as_json: bool, options: dict[str, Any]
) -> None:
    from wpriv.cli import sweep_output, terminal
    from wpriv.run.training import sweep

    if dry_run:
        planned = sweep.planned(recipe, out, part=options["part"], root=root)
        tasks = sweep.tasks_in_words(recipe, options["backend"], options["device"])
        sweep_output.print_plan(recipe, planned, out, as_json, tasks)
        return
    with terminal.training() as say:
        result = sweep.run(recipe, out, **options, root=root, say=say)
    sweep_output.print_results(result, as_json)


def _tuning_plan(recipe: LoadedRecipe, out: Path, root: Path | None, as_json: bool, resume: bool) -> None:
    from wpriv.cli import tuning_output
    from wpriv.run.training import tuned_training

    tuning_output.print_plan(tuned_training.planned(recipe, out, root=root, resume=resume), out, as_json)


def _train(
    recipe: LoadedRecipe,
    out: Path,
    root: Path | None,
    dry_run: bool,
    as_json: bool,
    device: str,
    certificate: str | None,
    logs: Logs,
    **start: Any,
) -> None:
    from wpriv.cli import output, terminal, training_output
    from wpriv.run.accounting import certificates
    from wpriv.run.training import process_group, train

    if dry_run:
        plan, folder = train.planned(recipe, out, root=root, **start)
        training_output.print_plan(plan, folder, as_json)
        return
    with terminal.training() as say:
        trained = train.run(recipe, out, device=device, root=root, say=say, logs=logs, **start)
    if process_group.is_main():  # only the first of several processes (torchrun) prints
        if not trained.metrics:
            from wpriv.cli import tuning_output

            tuning_output.print_nothing(trained, as_json)
            return
        output.print_with_certificate(
            lambda: training_output.print_training(trained, as_json),
            lambda: certificates.best(trained.guarantees),
            certificate,
        )
    trained.require()


def changed_keys(entries: list[str]) -> dict[str, Any]:
    """Paths and values of ``privacy.eps=2``, each value read as in a recipe."""
    from wpriv.config import yaml_document

    changes: dict[str, Any] = {}
    for text in entries:
        path, equals, value = text.partition("=")
        if not equals or not path.strip():
            raise UsageError(f"--set wants key=value, as in privacy.eps=2; found {text[:80]!r}")
        changes[path.strip()] = yaml_document.parse(f"value: {value}", f"--set {text[:80]}").data["value"]
    return changes
