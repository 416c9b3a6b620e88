"""A tuned training in its folder: K runs of drawn candidates, of which only the best is left when it ends.

The runs lie in a folder of their own (``RUNS``) until the best is known. Everything that is kept is then written anew,
with the statement under another name; the runs are deleted; the statement gets its name last. A process that is killed
at any point continues from there, with the same choices.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from wpriv.config import resolve_train, yaml_document
from wpriv.config.recipe import Recipe
from wpriv.errors import Interrupted, Unsupported, UsageError
from wpriv.files import durable_writes
from wpriv.files.file_lock import LOCK, locked
from wpriv.run.results import file_names
from wpriv.run.training import (
    load_data,
    progress,
    recipe_grid,
    run_folder,
    same_records,
    tuned_results,
    tuning_draw,
)
from wpriv.run.training.trained import Trained
from wpriv.run.training.training_run import Stop, TrainingRun
from wpriv.run.training.tuning_draw import Draw
from wpriv.run.training.tuning_plan import TuningPlan, tuning_plan

# the folder of the runs while they are trained, and its name while it is deleted
RUNS, DISCARDED = "runs", "runs.discarded"
UNSEEN = (
    "training candidates drawn at random; how many runs there are, their settings and their scores are not shown, "
    "since the guarantee holds only where they stay secret"
)


@dataclass(frozen=True)
class TunedFolder:
    """The state of a results folder. done: the tuned training is over. chosen: only the deletion of runs is left."""

    path: Path
    done: bool = False
    chosen: bool = False


def planned(recipe: Recipe, out: Path, *, root: str | Path | None = None, resume: bool = False) -> TuningPlan:
    """Return the plan of a tuned training, without running it; records are not loaded if their sizes are known."""
    inspect(out, recipe, resume=resume)
    return tuning_plan(recipe, load_data.sizes(recipe, root))


def run(
    recipe: Recipe,
    out: Path,
    *,
    device: str = "cpu",
    resume: bool = False,
    root: str | Path | None = None,
    say: progress.Say | None = None,
    stop: Stop | None = None,
) -> Trained:
    """Train a random number of randomly drawn candidates, and keep the best.

    Args:
        device, say, stop: as for ``train.run``. resume: continue an unfinished tuned training.
    Returns:
        The best run, with the guarantees and the statement of the whole; its metrics are empty if no run was drawn.
    Raises:
        Interrupted: a signal arrived; ``resume`` continues. UsageError: the folder holds something else.
        Unsupported: the target is out of reach, or several processes train together.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise Unsupported(f"{recipe.name}: tune trains in one process; start it without torchrun")
    inspect(out, recipe, resume=resume)
    data = load_data.data(recipe, root)
    plan = tuning_plan(recipe, load_data.sizes_of(recipe, data))
    busy = f"another process is training in {out}. Wait until it ends, or name another folder with --out"
    with locked(out / LOCK, busy):
        folder = inspect(out, recipe, resume=resume)
        if not folder.done:
            if not folder.chosen:
                _train_all(plan, out, data, device, say, stop)
            _delete_runs(out)
    same_records.require_records(out, data)
    return tuned_results.load(plan, out)


def inspect(path: Path, recipe: Recipe, *, resume: bool) -> TunedFolder:
    """Determine what a folder holds, without changing it.

    Raises:
        UsageError: files of something else, the results of another recipe, or an unfinished training without
            ``resume``.
    """
    names = run_folder.names_in(path)
    if not names:
        return TunedFolder(path)
    if file_names.RECIPE not in names:
        raise UsageError(f"{path} holds files that are not results of a training. Name another folder with `out`")
    if run_folder.stored_recipe(path) != tuned_results.plain(resolve_train.essence(recipe.data)):
        raise UsageError(
            f"{path} holds a run of another recipe, or of this one before it was changed. Name another folder with "
            f"`out`; what was trained there is spent, and its cost is added to that of this training"
        )
    if file_names.STATEMENT in names:
        return TunedFolder(path, done=True)
    if not resume:
        raise UsageError(
            f"{path} holds an unfinished tuned training. Continue it with --resume: the number of runs has been drawn, "
            f"and is not drawn again"
        )
    return TunedFolder(path, chosen=tuned_results.PENDING in names)


def _train_all(
    plan: TuningPlan, out: Path, data: Any, device: str, say: progress.Say | None, stop: Stop | None
) -> None:
    """Draw the runs if none were drawn, train those that are left, and write the results of the best."""
    from wpriv.engine import launch

    launch.device_of(device)  # before anything is written
    runs = out / RUNS
    durable_writes.make_folder(out)
    durable_writes.replace(out / file_names.RECIPE, yaml_document.as_yaml(plan.recipe.data))
    durable_writes.make_folder(runs)
    choices = tuning_draw.read(runs, data.fingerprint)
    if choices is None:
        assert plan.recipe.training is not None
        seed = plan.recipe.training.seed
        choices = tuning_draw.draw(plan.repeats, len(plan.candidates), data.fingerprint, seed)
        tuning_draw.write(choices, runs)
    if say is not None:
        for note in plan.notes:
            say(f"read as: {note}", True)
        say(UNSEEN, True)
    with progress.signals() if stop is None else contextlib.nullcontext(stop) as stop_reason:
        trained = [
            _train_one(plan, choices, number, runs, data, device, stop_reason)
            for number in range(len(choices.candidates))
        ]
    best = _best(plan, choices, trained)
    tuned_results.publish(plan, best, out, data, device)


def _train_one(plan: TuningPlan, choices: Draw, number: int, runs: Path, data: Any, device: str, stop: Stop) -> Trained:
    """Train one run, or load it if it is finished; nothing of its progress is shown."""
    path = runs / str(number)
    recipe = _recipe_of_run(plan, choices, number)
    advice = f"everything is saved in {runs.parent}. Continue with --resume, which draws nothing again"
    if reason := stop():
        raise Interrupted(f"stopped by {reason}; {advice}")
    try:
        return TrainingRun(recipe, path, data, device, None, stop, time.time()).run(
            resume=True, fork=False, fresh=False
        )
    except Interrupted:
        raise Interrupted(f"stopped by {stop() or 'a signal'}; {advice}") from None


def _recipe_of_run(plan: TuningPlan, choices: Draw, number: int) -> Recipe:
    """The recipe of a run: that of its candidate, with a seed of its own where the recipe has one."""
    recipe = plan.candidates[choices.candidates[number]].recipe
    assert recipe.training is not None
    seed = tuning_draw.seed_of_run(recipe.training.seed, number)
    return recipe if seed is None else recipe_grid.changed(recipe, {"seed": seed})


def _best(plan: TuningPlan, choices: Draw, trained: list[Trained]) -> Trained | None:
    """The run with the best score; None if there was no run."""
    score = plan.tune.score
    ranks = [
        (tuning_draw.score_of(run.metrics, score.column, score.best), tie, number)
        for number, (run, tie) in enumerate(zip(trained, choices.ties, strict=True))
    ]
    if not ranks:
        return None
    number = max(ranks)[2]
    labels = plan.candidates[choices.candidates[number]].labels
    return replace(trained[number], statement={**trained[number].statement, "chosen": labels})


def _delete_runs(out: Path) -> None:
    """Delete all runs, and give the statement its name, which marks the tuned training as finished."""
    if (out / RUNS).is_dir():
        durable_writes.rename(out / RUNS, DISCARDED)
    with durable_writes.reported(out):
        if (out / DISCARDED).is_dir():
            shutil.rmtree(out / DISCARDED)
        for leftover in out.glob(f"*{durable_writes.PART}"):
            durable_writes.remove(leftover)
    durable_writes.rename(out / tuned_results.PENDING, file_names.STATEMENT)
