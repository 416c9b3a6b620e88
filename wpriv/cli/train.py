"""wpriv train"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from wpriv.cli import flags
from wpriv.errors import UsageError

Recipe = Annotated[
    str, typer.Argument(metavar="RECIPE", help="A recipe of kind train: a path, or a shipped one as dpsgd/mnist.")
]
Device = Annotated[str, typer.Option("--device", metavar="NAME", help="cpu or cuda.")]
Out = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", help="Where everything goes (default results/<name>).")
]
Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a key: privacy.eps=2; repeatable.")
]
Quick = Annotated[bool, typer.Option("--quick", help="Apply the recipe's quick overrides.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with an unfinished run, or begin one; sweeps always do.")]
Fork = Annotated[
    bool, typer.Option("--fork", help="Go on from the weights in DIR under a changed recipe; both runs are paid for.")
]
Fresh = Annotated[bool, typer.Option("--fresh", help="Begin again; what DIR holds is moved aside.")]
Dry = Annotated[bool, typer.Option("--dry-run", help="Only say what would be done and what it would cost.")]
Root = Annotated[
    Path | None, typer.Option("--data-root", metavar="DIR", help="Where the data set lies (before $WPRIV_DATA).")
]

Jobs = Annotated[int, typer.Option("--jobs", metavar="N", min=1, help="Trainings of a sweep at once.")]
Shard = Annotated[str | None, typer.Option("--shard", metavar="I/N", help="Only this part of a sweep: 3/16.")]
Backend = Annotated[
    str, typer.Option("--backend", metavar="NAME", help="joblib's backend for --jobs: loky, dask, ray.")
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
    jobs: Jobs = 1,
    shard: Shard = None,
    backend: Backend = "loky",
    as_json: flags.Json = False,
) -> None:
    """Train with differential privacy, and account for what really ran.

    wpriv train quick/digits

    wpriv train dpsgd/mnist --set privacy.eps=2 --device cuda
    """
    # idle threads of torch would spin on processors that other jobs could use
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from wpriv.cli import terminal, training_output
    from wpriv.run.training import process_group, sweep, train

    if device not in ("cpu", "cuda"):
        raise UsageError(f"--device is cpu or cuda; found {device!r}")
    sweep.check_backend(backend)
    made = train.recipe_of(recipe, quick=quick, changes=_changes(changes or []))
    where = out or train.default_out(made)
    how: dict[str, Any] = {"resume": resume, "fork": fork, "fresh": fresh}
    if made.training is not None and made.training.sweep is not None:
        if fork or fresh:
            told = "--fork and --fresh are for one training, and a sweep's many each go on where they were"
            raise UsageError(f"{told}. Name another folder with --out to begin all of it again")
        if dry_run:
            training_output.dry_sweep(
                made, sweep.planned(made, where, part=shard or "1/1", root=data_root), where, as_json
            )
            return
        with terminal.training() as say:
            swept = sweep.run(
                made, where, jobs=jobs, part=shard or "1/1", backend=backend, device=device, root=data_root, say=say
            )
        training_output.swept(swept, as_json)
        return
    if shard is not None or jobs > 1:
        raise UsageError("--jobs and --shard split a sweep, and the recipe has no 'sweep'")
    if dry_run:
        plan, place = train.planned(made, where, root=data_root, **how)
        training_output.dry(plan, place, as_json)
        return
    with terminal.training() as say:
        done = train.run(made, where, device=device, root=data_root, say=say, **how)
    if process_group.is_main():  # of several processes (torchrun) one speaks
        training_output.results(done, as_json)
    done.require()


def _changes(written: list[str]) -> dict[str, Any]:
    """``privacy.eps=2`` as a path and a value, read as in a recipe."""
    from wpriv.config import yaml_document

    found: dict[str, Any] = {}
    for text in written:
        path, equals, value = text.partition("=")
        if not equals or not path.strip():
            raise UsageError(f"--set wants key=value, as in privacy.eps=2; found {text[:80]!r}")
        found[path.strip()] = yaml_document.parse(f"value: {value}", f"--set {text[:80]}").data["value"]
    return found
