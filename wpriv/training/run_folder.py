"""The results folder of one training: whose results it holds, and whether a run begins, continues or forks there.

The recipe of a fork must agree with the run before it, since its statement is made from its own recipe and from the
ledger, and must be true of both. The ledger has the releases of all runs, and neither the seed of their noise, nor the
weights that the first of them began from, nor the noise of their records.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from wpriv.accounting import ledger
from wpriv.config import resolve, yaml_document
from wpriv.config.recipe import Recipe
from wpriv.core.process import Process
from wpriv.errors import Unsupported, UsageError
from wpriv.files import durable_writes
from wpriv.files.durable_writes import LOCK
from wpriv.results import storage
from wpriv.results.model import Json
from wpriv.training import tasks

GIVEN = "given"
"""The name of a network that the calling program gave."""
UNIT_OPTIONS = ("notion", "labels")
"""Options of tasks that decide whether the label of a record is protected as well."""


def require(path: Path, before: Mapping[str, object], recipe: Recipe) -> None:
    """Refuse a fork whose statement would leave out what the run before it depends on.

    Args:
        path: the folder. before: the recipe of the run in it. recipe: of the fork.
    Raises:
        UsageError: noise of a fixed seed would go unnamed; the weights that the first run began from would, or others
            would be named; an accountant observes steps that are over; both runs protect different things; or the fork
            is on privatised records, and the run before it was not on the same ones.
    """
    assert recipe.training is not None
    if recipe.training.privacy is not None and before.get("seed") is not None and recipe.training.seed is None:
        raise UsageError(
            f"the run in {path} drew its noise from the seed {before['seed']}, and whoever knows it can subtract that "
            f"noise, which the statement of a fork without `seed` would not say. Give `seed` as well, or train in "
            f"another folder"
        )
    if recipe.training.privacy is not None and (observing := recipe.training.observing):
        raise UsageError(
            f"accountants: {observing[0]} needs distances of gradients from every step, and a fork observes none "
            f"of the runs before it. Leave it out of the accountants"
        )
    first, named = _first_weights(before), _first_weights(recipe.data)
    if first != named and (first or named != GIVEN):
        advice = "leave `init` out" if not first else f"keep {'`init`' if first != GIVEN else 'that network'}"
        raise UsageError(
            f"`fork=True` continues from the weights in {path}, whose first run began from {_words(first)}, and the "
            f"statement would name {_words(named)}: {advice}, or train in another folder"
        )
    if recipe.training.privacy is not None and not protect_alike(before, recipe.data):
        raise UsageError(
            f"the run in {path} protects other values or other groups of a record than this recipe, by its options "
            f"({' or '.join(UNIT_OPTIONS)}) or its data, so that no statement holds for both. Train in another folder"
        )
    if recipe.training.on_reports and (before.get("privacy") != "none" or _reports(before) != _reports(recipe.data)):
        raise UsageError(
            f"the weights in {path} depend on other records than the privatised ones of this recipe, and its statement "
            f"would call all of the training post-processing of these. Train in another folder"
        )


def protect_alike(before: Mapping[str, object], now: Mapping[str, object]) -> bool:
    """Tell whether two recipes protect the same values of a record among the same groups, unlike adjacency."""
    if _protected(before) != _protected(now):
        return False
    return _plain(before.get("data")) == _plain(now.get("data")) or not any(map(_depends_on_data, (before, now)))


def _protected(data: Mapping[str, object]) -> list[list[object]]:
    """The options of a recipe that decide which values of a record are protected."""
    fields, options = _task(data).options.model_fields, data.get("options")
    given = options if isinstance(options, Mapping) else {}
    return [[key, given.get(key, fields[key].default)] for key in UNIT_OPTIONS if key in fields]


def _depends_on_data(data: Mapping[str, object]) -> bool:
    """Tell whether the protection of a recipe is about its groups of records, or its cost about their number."""
    private = data.get("privacy")
    persons = isinstance(private, Mapping) and private.get("group", 1) != 1 and private.get("sampling") == "fixed"
    return persons or _task(data).sizes is not None


def _task(data: Mapping[str, object]) -> tasks.TaskSpec:
    return tasks.load(str(data.get("task")))


def _first_weights(data: Mapping[str, object]) -> str:
    """Return the origin of a run's first weights: digest or path of a file, `GIVEN`, or "" where they are drawn."""
    init, model = data.get("init"), data.get("model")
    if isinstance(init, Mapping):
        return str(init.get("sha256") or init.get("file"))
    return GIVEN if isinstance(model, Mapping) and model.get("name") == GIVEN else ""


def _words(first: str) -> str:
    if first == GIVEN:
        return "the network that a Python program gave"
    return f"those of `init` with the digest {first[:16]}" if first else "weights that were drawn"


def _reports(data: Mapping[str, object]) -> str:
    """The data set, with the seed of its noise where the training draws it: the same text for the same reports."""
    return _plain([data.get("data"), data.get("seed")])


def _plain(data: object) -> str:
    return json.dumps(data, sort_keys=True)


@dataclass(frozen=True)
class RunFolder:
    """A folder that belongs to one recipe.

    Args:
        path: the folder. run: the number of this run in the ledger; a fork begins a new one.
        resume, fork: how this run begins. fresh: earlier results in the folder are moved aside first.
        done: the run is over, and its results are complete.
        weights: the weights exist without a checkpoint and a statement: a run was stopped after its last step, or a
            fork of them before its first.
    """

    path: Path
    run: int = 1
    resume: bool = False
    fork: bool = False
    fresh: bool = False
    done: bool = False
    weights: bool = False

    @property
    def ledger_path(self) -> Path:
        return self.path / storage.LEDGER

    @property
    def model_path(self) -> Path:
        return self.path / storage.MODEL

    def entries(self) -> list[ledger.Entry]:
        """Return the entries of the ledger in this folder; none if it is about to be moved aside."""
        return [] if self.fresh else ledger.entries(self.ledger_path)

    def earlier_process(self) -> Process | None:
        """Return the releases of earlier runs in this folder as a Process; None if there are none."""
        entries = [entry for entry in self.entries() if entry.run < self.run]
        return ledger.process(entries) if entries else None


def names_in(path: Path) -> set[str]:
    """The names in a results folder without locks and half-written files; none if it does not exist."""
    with durable_writes.reported(path):
        if path.is_dir():
            return {item.name for item in path.iterdir() if item.name != LOCK and item.suffix != durable_writes.PART}
        if path.exists():
            raise UsageError(f"a training needs a folder, and {path} is a file. Name another one with `out`")
    return set()


def stored_recipe(path: Path) -> Json | None:
    """Return the recipe in a folder without keys that do not change the training; None if it cannot be read."""
    stored: Json | None = resolve.essence(storage.recipe_in(path))
    return stored


def inspect(path: Path, recipe: Recipe, *, resume: bool = False, fork: bool = False, fresh: bool = False) -> RunFolder:
    """Determine how a run of this recipe begins in a folder, without changing it or loading torch.

    Raises:
        UsageError: the folder holds another recipe's run, an unfinished run without ``resume``, steps whose weights are
            missing, a changed ledger, or files that are not those of a training.
        Unsupported: a private run is to continue from weights that were trained without privacy.
    """
    if resume + fork + fresh > 1:
        raise UsageError(
            "give one of `resume=True` (continue), `fork=True` (continue under another recipe) and `fresh=True` "
            "(begin again)"
        )
    names = names_in(path)
    if not names:
        if fork:
            raise UsageError(f"`fork=True` continues from a run, and {path} holds none; name its folder with `out`")
        return RunFolder(path)
    if storage.RECIPE not in names and not (fresh and storage.LEDGER in names):
        raise UsageError(f"{path} holds files that are not results of a training. Name another folder with `out`")
    stored = stored_recipe(path)
    if {"sweep", "seeds"} & set(stored or {}):
        raise UsageError(
            f"{path} holds several trainings of a sweep or of repeated runs, each in a folder of its own. Name another "
            f"folder with `out`"
        )
    if "tune" in (stored or {}):
        raise UsageError(
            f"{path} holds a tuned training: its ledger has the steps of the best run alone, and no other training "
            f"continues from it or replaces it. Name another folder with `out`"
        )
    if fresh:
        return RunFolder(path, fresh=True)
    if fork:
        return _fork(path, recipe, stored)
    if stored != storage.as_stored(resolve.essence(recipe.data)):
        raise UsageError(
            f"{path} holds a run of another recipe, or of this one before it was changed. Name another folder with "
            f"`out`, continue from its weights at the cost of both runs with `fork=True`, or replace it with "
            f"`fresh=True`"
        )
    return _same_recipe(path, names, resume)


def resolve_run(folder: RunFolder, recipe: Recipe) -> RunFolder:
    """Determine the number of the run from its checkpoint or its weights, which needs torch.

    This detects a fork that was stopped before its first checkpoint: the recipe is that of the fork already, the
    weights are of the run before.

    Raises:
        UsageError: the checkpoint or the weights cannot be read, or do not belong to the ledger or its last run.
        Unsupported: a private run is to continue from weights that were trained without privacy.
    """
    if not (folder.resume or folder.weights or folder.fork):
        return folder
    from wpriv.files import checkpoint

    name = storage.CHECKPOINT if (folder.path / storage.CHECKPOINT).is_file() else storage.MODEL
    stored = checkpoint.load(folder.path / name)
    entries = folder.entries()
    ledger.require(entries, ledger.Position(**stored["ledger"]), folder.ledger_path, str(folder.path / name))
    last, run = ledger.last_run(entries), stored["run"]
    other_recipe = checkpoint.recipe_digest(stored["identity"]) != _recipe_digest(recipe)
    if (folder.fork or other_recipe) and stored["clear"] and recipe.data["privacy"] != "none":
        raise _trained_without_privacy(folder.path)
    if folder.fork:
        return folder
    # a run has no ledger entry before its first step, or if it is not private
    if run < last or (run > last + 1 and not other_recipe):
        raise UsageError(
            f"{folder.path / name} is of run {run}, and the ledger continues to run {last}, whose checkpoint is "
            f"missing and whose steps are spent. Continue from these weights at the cost of all runs with "
            f"`fork=True`, or begin again with `fresh=True`"
        )
    if other_recipe:
        return replace(folder, run=last + 1, resume=False, weights=False, fork=True)
    return replace(folder, run=run)


def claim(folder: RunFolder, recipe: Recipe, provenance: Json) -> None:
    """Make the folder this recipe's; earlier files move to ``before-N``, the recipe is replaced last."""
    path = folder.path
    durable_writes.make_folder(path)
    for leftover in path.glob(f"*{durable_writes.PART}"):
        durable_writes.remove(leftover)
    if not folder.resume:
        # a fork continues the ledger, and begins from the weights
        weights = {storage.CHECKPOINT, storage.MODEL, storage.DIAGNOSTICS}
        kept = {storage.LEDGER, storage.LOOKS, *weights} if folder.fork else set()
        # at every moment a statement is beside model.safetensors, here or where it was moved
        first = (storage.STATEMENT, storage.WEIGHTS, storage.AVERAGE)
        parts = sorted(part.name for part in path.glob(storage.CHECKPOINT_PARTS))
        results = storage.of_training(recipe.train.task, averaged=True, adapted=True)
        names = dict.fromkeys((*first, *results, storage.LOOKS, storage.CHECKPOINT, *parts))
        _move_aside(path, [name for name in names if name not in {*kept, storage.RECIPE} and (path / name).is_file()])
        durable_writes.replace(path / storage.RECIPE, yaml_document.as_yaml(recipe.data))
    about = {**storage.provenance(), **provenance, "run": folder.run}
    storage.write_json(path / storage.PROVENANCE, about)


def identity(recipe: Recipe, steps: int, multiplier: float, fingerprint: str, run: int) -> str:
    """Return a fingerprint of all that decides the result of a training except chance: recipe, then the rest."""
    parts = [steps, multiplier, fingerprint, run]
    return f"{_recipe_digest(recipe)}-{_digest(parts)}"


def _same_recipe(path: Path, names: set[str], resume: bool) -> RunFolder:
    """Decide how a run begins in a folder that holds a run of the same recipe."""
    entries = ledger.entries(path / storage.LEDGER)
    run = max(ledger.last_run(entries), 1)
    if storage.STATEMENT in names:
        return RunFolder(path, run, done=True)
    if storage.CHECKPOINT in names:
        if not resume:
            raise UsageError(
                f"{path} holds an unfinished run of this recipe. Continue it with `resume=True`, or begin again "
                f"with `fresh=True`"
            )
        return RunFolder(path, run, resume=True)
    if storage.MODEL in names:
        return RunFolder(path, run, weights=True)
    if entries:
        raise UsageError(
            f"{path} holds a ledger of {len(entries)} steps, but neither {storage.CHECKPOINT} nor "
            f"{storage.MODEL} to continue from; the steps are spent. Begin again with `fresh=True`; the statement "
            f"will name the spent steps"
        )
    return RunFolder(path, run)


def _fork(path: Path, recipe: Recipe, stored: Json | None) -> RunFolder:
    """The folder of a run that continues from its weights, after everything in its ledger."""
    if not any((path / name).is_file() for name in (storage.CHECKPOINT, storage.MODEL)):
        raise UsageError(f"`fork=True` continues from the weights of a run, and {path} holds none yet")
    if stored is None:
        raise UsageError(
            f"{path / storage.RECIPE} cannot be read, and `fork=True` needs the recipe of the weights. Restore it, "
            f"or begin again with `fresh=True`"
        )
    if stored.get("privacy", "none") == "none" and recipe.data["privacy"] != "none":
        raise _trained_without_privacy(path)
    require(path, stored, recipe)
    return RunFolder(path, ledger.last_run(ledger.entries(path / storage.LEDGER)) + 1, fork=True)


def _trained_without_privacy(path: Path) -> Unsupported:
    return Unsupported(
        f"the weights in {path} were trained without privacy: every run that continues from them depends on the "
        f"records without noise, and later noise does not change that. Train from the start, in another folder"
    )


def _recipe_digest(recipe: Recipe) -> str:
    return _digest(resolve.essence(recipe.data))


def _digest(data: object) -> str:
    return hashlib.sha256(_plain(data).encode()).hexdigest()[:32]


def _move_aside(path: Path, names: list[str]) -> None:
    """Move files into a new folder ``before-N``, with a copy of the recipe that they belong to."""
    if not names:
        return
    number = 1
    while (path / f"before-{number}").exists():
        number += 1
    aside = path / f"before-{number}"
    durable_writes.make_folder(aside)
    if (path / storage.RECIPE).is_file():
        durable_writes.replace(aside / storage.RECIPE, (path / storage.RECIPE).read_bytes())
    for name in names:
        durable_writes.move(path / name, aside)
