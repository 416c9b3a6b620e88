"""The folder of one training: whose results it holds, whether it goes on or begins, and what lies in it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from wpriv.config import resolve_train, yaml_document
from wpriv.config.recipe import Recipe
from wpriv.core.process import Process
from wpriv.engine import ledger
from wpriv.errors import Unsupported, UsageError
from wpriv.files import durable_writes
from wpriv.files.file_lock import LOCK
from wpriv.run.results import file_names, write


@dataclass(frozen=True)
class Folder:
    """A folder that belongs to one recipe.

    Args:
        path: where. run: the number of this run, from the ledger: a fork begins a new one. resume, fork: how this run begins.
        fresh: what the folder holds is moved aside first.
        done: the run is over, and its results are there. weights: they are there without checkpoint and statement: a run was stopped
            after its last step, or a fork of them before its first.
    """

    path: Path
    run: int = 1
    resume: bool = False
    fork: bool = False
    fresh: bool = False
    done: bool = False
    weights: bool = False

    def entries(self) -> list[ledger.Entry]:
        """All releases that the ledger of this folder holds; none where it is about to be moved aside."""
        return [] if self.fresh else ledger.entries(self.path / file_names.LEDGER)

    def before(self) -> Process | None:
        """The releases of earlier runs of this folder as a Process; None where there are none."""
        rows = [entry for entry in self.entries() if entry.run < self.run]
        return ledger.process(rows) if rows else None


def look(path: Path, recipe: Recipe, *, resume: bool = False, fork: bool = False, fresh: bool = False) -> Folder:
    """What a run of this recipe finds in a folder; nothing is changed there, and torch is not loaded.

    Raises:
        UsageError: it holds another recipe's run, an unfinished one and --resume was not given, steps whose weights are gone, a ledger
            that was changed, or files that are not those of a training.
        Unsupported: a private run is to go on from weights that were trained without privacy.
    """
    if resume + fork + fresh > 1:
        raise UsageError(
            "--resume goes on, --fork goes on under another recipe, --fresh begins again; give one of them"
        )
    with durable_writes.reported(path):
        if path.exists() and not path.is_dir():
            raise UsageError(f"{path} is a file, and a training needs a folder. Name another one with --out")
        names = _names(path)
    if not names:
        if fork:
            raise UsageError(f"--fork goes on from a run, and {path} holds none; name its folder with --out")
        return Folder(path)
    if file_names.RECIPE not in names and not (fresh and file_names.LEDGER in names):
        raise UsageError(f"{path} holds files that are no training's results. Name another folder with --out")
    if "sweep" in (_stored(path) or {}):
        raise UsageError(
            f"{path} holds a sweep of several trainings, each in a folder of its own. Name another folder with --out"
        )
    if fresh:
        return Folder(path, fresh=True)
    if fork:
        return _fork(path, recipe)
    if _stored(path) != json.loads(json.dumps(resolve_train.essence(recipe.data))):
        raise UsageError(
            f"{path} holds a run of another recipe, or of this one before it was changed. Name another folder with --out, go on from its "
            f"weights at its cost with --fork, or replace it with --fresh"
        )
    rows = ledger.entries(path / file_names.LEDGER)
    run = max(ledger.last_run(rows), 1)
    if file_names.STATEMENT in names:
        return Folder(path, run, done=True)
    if file_names.CHECKPOINT in names:
        if not resume:
            raise UsageError(
                f"{path} holds an unfinished run of this recipe. Go on with --resume, or begin again with --fresh"
            )
        return Folder(path, run, resume=True)
    if file_names.MODEL in names:
        return Folder(path, run, weights=True)
    if rows:
        raise UsageError(
            f"{path} holds a ledger of {len(rows)} steps and neither {file_names.CHECKPOINT} nor {file_names.MODEL}: "
            f"the steps are spent, and there is nothing "
            f"to go on from. Begin again with --fresh; the statement will name what was spent before"
        )
    return Folder(path, run)


def _fork(path: Path, recipe: Recipe) -> Folder:
    """The folder of a run that goes on from the weights that are there, behind all that its ledger holds."""
    if not any((path / name).is_file() for name in (file_names.CHECKPOINT, file_names.MODEL)):
        raise UsageError(f"--fork goes on from the weights of a run, and {path} holds none yet")
    stored = _stored(path)
    if not isinstance(stored, dict):
        raise UsageError(
            f"{path / file_names.RECIPE} cannot be read, and --fork goes on from its weights. Put it back, or begin again with --fresh"
        )
    if stored.get("privacy", "none") == "none" and recipe.data["privacy"] != "none":
        raise Unsupported(_in_the_clear(path))
    return Folder(path, ledger.last_run(ledger.entries(path / file_names.LEDGER)) + 1, fork=True)


def settle(place: Folder, recipe: Recipe) -> Folder:
    """The folder with the number of its run as its checkpoint or its weights have it, which only torch can read.

    A fork that was stopped before its first checkpoint is found here: the recipe is the new one already, the weights are of the old.

    Raises:
        UsageError: the checkpoint or the weights cannot be read, or do not belong to the ledger or its last run.
        Unsupported: a private run is to go on from weights that were trained without privacy.
    """
    if not (place.resume or place.weights or place.fork):
        return place
    from wpriv.engine import checkpoint

    name = file_names.CHECKPOINT if (place.path / file_names.CHECKPOINT).is_file() else file_names.MODEL
    stored = checkpoint.load(place.path / name)
    rows = place.entries()
    ledger.require(rows, ledger.Position(**stored["ledger"]), place.path / file_names.LEDGER, str(place.path / name))
    last = ledger.last_run(rows)
    another = checkpoint.recipe_digest(stored["identity"]) != _recipe_digest(recipe)
    if (place.fork or another) and stored["clear"] and recipe.data["privacy"] != "none":
        raise Unsupported(_in_the_clear(place.path))
    if place.fork:
        return place
    if another:
        if stored["run"] < last:
            raise UsageError(_stale(place.path, name, stored["run"], last))
        return replace(place, run=last + 1, resume=False, weights=False, fork=True)
    # a run has no line before its first step, or where it is not private
    if not last <= stored["run"] <= last + 1:
        raise UsageError(_stale(place.path, name, stored["run"], last))
    return replace(place, run=stored["run"])


def _in_the_clear(path: Path) -> str:
    return (
        f"the weights in {path} were trained without privacy: whatever goes on from them has seen the records in the clear, and "
        f"no later noise takes that back. Train from the start, in another folder"
    )


def _stale(path: Path, name: str, run: int, last: int) -> str:
    return (
        f"{path / name} is of run {run}, and the ledger goes on to run {last}, whose steps are spent: its checkpoint is gone. Go on from "
        f"these weights at the cost of all with --fork, or begin again with --fresh"
    )


def take(place: Folder, recipe: Recipe, provenance: dict[str, Any]) -> None:
    """Makes the folder this recipe's: what a run before it left is moved aside under its number, and never deleted.

    The recipe is replaced last: wherever this is cut short, the folder still belongs to the recipe before, or to this one.

    Raises:
        MissingResource: it cannot be written.
    """
    path = place.path
    durable_writes.make_folder(path)
    for leftover in path.glob(f"*{durable_writes.PART}"):
        durable_writes.remove(leftover)
    if not place.resume:
        assert recipe.training is not None
        names = [
            name
            for name in (*file_names.of_training(recipe.training.task), file_names.CHECKPOINT)
            if (path / name).is_file() and name != file_names.RECIPE
        ]
        # a fork goes on with the ledger, and begins from the weights
        weights = {file_names.CHECKPOINT, file_names.MODEL, file_names.DIAGNOSTICS}
        keep = {file_names.LEDGER, *weights} if place.fork else set()
        _aside(path, [name for name in names if name not in keep])
        durable_writes.replace(path / file_names.RECIPE, yaml_document.as_yaml(recipe.data))
    about = {**write.provenance(), **provenance, "run": place.run}
    durable_writes.replace(path / file_names.PROVENANCE, json.dumps(about, indent=2) + "\n")


def identity(recipe: Recipe, steps: int, multiplier: float, fingerprint: str, run: int) -> str:
    """A fingerprint of all that decides the result of a training, but chance: of the recipe, and of the rest."""
    parts = [steps, multiplier, fingerprint, run]
    return f"{_recipe_digest(recipe)}-{_digest(parts)}"


def _recipe_digest(recipe: Recipe) -> str:
    return _digest(resolve_train.essence(recipe.data))


def _digest(data: Any) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:32]


def _names(path: Path) -> set[str]:
    """The names in a folder, without locks and what a crash left half written; none where it is not there."""
    if not path.is_dir():
        return set()
    return {item.name for item in path.iterdir() if item.name != LOCK and item.suffix != durable_writes.PART}


def _aside(path: Path, names: list[str]) -> None:
    """Move files into a new folder ``before-N``, with a copy of the recipe that they belong to."""
    if not names:
        return
    number = 1
    while (path / f"before-{number}").exists():
        number += 1
    aside = path / f"before-{number}"
    durable_writes.make_folder(aside)
    if (path / file_names.RECIPE).is_file():
        durable_writes.replace(aside / file_names.RECIPE, (path / file_names.RECIPE).read_bytes())
    for name in names:
        durable_writes.move(path / name, aside)


def _stored(path: Path) -> Any:
    try:
        return resolve_train.essence(yaml_document.read(path / file_names.RECIPE).data)
    except UsageError:
        return None
