"""The folder of one training: whose results it holds, whether it goes on or begins, and what lies in it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wpriv.core import document, registry, training
from wpriv.core.process import Process, Step
from wpriv.core.recipe import Recipe
from wpriv.errors import Unsupported, UsageError
from wpriv.run import write

RECIPE, PROVENANCE = write.RECIPE, write.PROVENANCE
METRICS = write.METRICS
STATEMENT, TOLD, LEDGER = "statement.json", "statement.md", "ledger.jsonl"
CHECKPOINT, MODEL = "checkpoint.pt", "model.pt"
RESULTS = (STATEMENT, TOLD, METRICS, "figure.png", MODEL, LEDGER, RECIPE, PROVENANCE)


def results(task: str) -> tuple[str, ...]:
    """What a finished training leaves: what all do, and what its task makes beside it, with the pictures of that."""
    module = registry.load("tasks", task)
    drawn = tuple(getattr(module, "FIGURES", {}))
    return (*RESULTS, *getattr(module, "FILES", ()), *drawn, *(f"{Path(name).stem}.png" for name in drawn))


@dataclass(frozen=True)
class Folder:
    """A folder that belongs to one recipe.

    Args:
        path: where. run: the number of the run in its ledger (forks begin a new one). resume, fork: how this run begins.
        done: the run is over, and its results are there. weights: they alone are there, without checkpoint or statement: a run was
            stopped after its last step, or a fork of them before its first.
    """

    path: Path
    run: int = 1
    resume: bool = False
    fork: bool = False
    done: bool = False
    weights: bool = False

    def before(self) -> tuple[Step, ...]:
        """What earlier runs have spent on the same data."""
        from wpriv.train import ledger

        spent = [entry for entry in ledger.entries(self.path / LEDGER) if entry.run < self.run]
        return ledger.process(spent, "").steps if spent else ()

    def spent(self, adjacency: str) -> Process:
        """All that the ledger holds: what really ran."""
        from wpriv.train import ledger

        return ledger.process(ledger.entries(self.path / LEDGER), adjacency)


def look(path: Path, recipe: Recipe, *, resume: bool = False, fork: bool = False, fresh: bool = False) -> Folder:
    """What a run of this recipe finds in a folder; nothing is changed there.

    Raises:
        UsageError: it holds another recipe's run, an unfinished one and nobody said --resume, or files that are not ours.
        Unsupported: a private run is to go on from weights that were trained without privacy.
    """
    if resume + fork + fresh > 1:
        raise UsageError("--resume goes on, --fork goes on under another recipe, --fresh begins again; give one of them")
    if not path.is_dir() or not any(path.iterdir()):
        if fork:
            raise UsageError(f"--fork goes on from a run, and {path} holds none; name its folder with --out")
        return Folder(path)
    if not (path / RECIPE).is_file():
        raise UsageError(f"{path} holds files that are no training's results. Name another folder with --out")
    run = _run(path)
    if fresh:
        return Folder(path)
    if fork:
        if not any((path / name).is_file() for name in (CHECKPOINT, MODEL)):
            raise UsageError(f"--fork goes on from the weights of a run, and {path} holds none yet")
        if (_stored(path) or {}).get("privacy", "none") == "none" and recipe.data["privacy"] != "none":
            raise Unsupported(
                f"the weights in {path} were trained without privacy: whatever goes on from them has seen the records in the clear, and "
                f"no later noise takes that back. Train from the start, in another folder"
            )
        return Folder(path, run + 1, fork=True)
    if _stored(path) != json.loads(json.dumps(training.essence(recipe.data))):
        raise UsageError(
            f"{path} holds a run of another recipe, or of this one before it was changed. Name another folder with --out, go on from its "
            f"weights at its cost with --fork, or replace it with --fresh"
        )
    if (path / STATEMENT).is_file():
        return Folder(path, run, done=True)
    if not (path / CHECKPOINT).is_file():
        return Folder(path, run, weights=(path / MODEL).is_file())  # without weights it ended before its first step
    if not resume:
        raise UsageError(f"{path} holds an unfinished run of this recipe. Go on with --resume, or begin again with --fresh")
    return Folder(path, run, resume=True)


def take(folder: Folder, recipe: Recipe, about: dict[str, Any]) -> None:
    """Makes the folder this recipe's: what a run before it left is moved aside under its number, and never deleted.

    Raises:
        UsageError: it cannot be written.
    """
    path = folder.path
    try:
        path.mkdir(parents=True, exist_ok=True)
        if not folder.resume:
            assert recipe.training is not None
            old = [name for name in (*results(recipe.training.task), CHECKPOINT) if (path / name).is_file()]
            # a fork goes on with the ledger, and begins from the weights
            keep = {LEDGER, CHECKPOINT, MODEL} if folder.fork else set()
            _aside(path, [name for name in old if name not in keep])
            write.replace(path / RECIPE, write.as_yaml(recipe.data))
        write.replace(path / PROVENANCE, json.dumps({**write.provenance(), **about, "run": folder.run}, indent=2) + "\n")
    except OSError as error:
        raise UsageError(f"the results cannot be written to {path}: {error.strerror}. Name another folder with --out") from None


def identity(recipe: Recipe, steps: int, multiplier: float, fingerprint: str) -> str:
    """A fingerprint of all that decides the result of a training, but chance."""
    parts = [training.essence(recipe.data), steps, multiplier, fingerprint]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]


def _aside(path: Path, names: list[str]) -> None:
    if not names:
        return
    number = 1
    while (path / f"before-{number}").exists():
        number += 1
    (path / f"before-{number}").mkdir()
    for name in names:
        (path / name).rename(path / f"before-{number}" / name)


def _run(path: Path) -> int:
    try:
        return int(json.loads((path / PROVENANCE).read_text(encoding="utf-8"))["run"])
    except (OSError, ValueError, KeyError, TypeError):
        return 1


def _stored(path: Path) -> Any:
    try:
        return training.essence(document.read(path / RECIPE).data)
    except UsageError:
        return None
