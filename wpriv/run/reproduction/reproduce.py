"""Run the recipes of the papers into one folder, the fastest first, each where an earlier run of it stopped.

A recipe that is done is not run again: its folder says which version computed its numbers, and how long it took.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wpriv.config.recipe import Recipe
from wpriv.errors import CheckFailed, Interrupted, UsageError, WprivError
from wpriv.files import durable_writes
from wpriv.run import load_recipe, recipe_duration
from wpriv.run.reproduction import stored
from wpriv.run.reproduction.items import Paper
from wpriv.run.results import file_names

STATUS = "status.json"
# the status of kept results, which no run continues
KEPT = "kept"
# nothing is known of the time of a recipe without one
UNKNOWN_SECONDS = 3600.0


@dataclass(frozen=True)
class Planned:
    """A recipe to be run, its folder below that of the reproduction, and the seconds that it takes on one core."""

    name: str
    recipe: Recipe
    folder: Path
    seconds: float


def planned(papers: Iterable[Paper], out: Path, *, quick: bool) -> list[Planned]:
    """Return the recipes of some papers, the fastest first."""
    names = dict.fromkeys(name for paper in papers for item in paper.items for name in item.recipes)
    plans = []
    for name in names:
        recipe = load_recipe.recipe(name, quick=quick)
        seconds = UNKNOWN_SECONDS if recipe.time is None else recipe.time.seconds
        plans.append(Planned(name, recipe, folder_of(out, name, quick=quick), seconds))
    return sorted(plans, key=lambda each: each.seconds)


def folder_of(out: Path, name: str, *, quick: bool) -> Path:
    """Return the results folder of a recipe within a reproduction."""
    return out / (f"{name}-quick" if quick else name)


def run(
    plans: list[Planned],
    out: Path,
    *,
    at_most: float,
    jobs: int = 1,
    root: Path | None = None,
    say: Callable[[str], None],
) -> dict[str, dict[str, Any]]:
    """Run recipes one after another; one that fails is noted, and the others still run.

    Args:
        at_most: seconds of one core; a recipe that would exceed what is left of them is not begun.
        jobs: trainings of a sweep that run at the same time.
        root: folder of the data sets.
        say: called with a line before each recipe that is run, and for each that cannot be run.
    Returns:
        For each recipe ``status`` (done, refused or not run), ``reason`` and ``seconds``; also kept in the folder.
    Raises:
        Interrupted: a signal arrived; the same command continues.
        UsageError: the folder is one of kept results.
    """
    status = stored_status(out)
    if any(note.get("status") == KEPT for note in status.values()):
        raise UsageError(
            f"{out} holds kept results, in which nothing is run. Name another folder with --out, and give this one "
            f"with --keep"
        )
    left = at_most
    for number, plan in enumerate(plans, start=1):
        key, is_same = str(plan.folder.relative_to(out)), stored.is_of(plan.recipe, plan.folder)
        if stored_status(out).get(key, {}).get("status") == "done" and is_same:
            continue
        duration = recipe_duration.words(plan.seconds)
        if plan.seconds > left:
            note: dict[str, Any] = {"status": "not run", "reason": f"it takes about {duration} of one core"}
        else:
            say(f"{number} of {len(plans)}: {plan.name}, about {duration}")
            changed = not is_same and (plan.folder / file_names.RECIPE).is_file()
            # a run that is killed has the folder of this recipe with the results of its earlier form
            _note(out, key, {"status": "not run", "reason": "it was begun and has not ended; the same command goes on"})
            note = _run_one(plan, jobs=jobs, root=root, changed=changed)
            if note["status"] == "refused":
                say(f"{plan.name} was not run: {note['reason']}")
            left -= plan.seconds
        _note(out, key, note)
    return stored_status(out)


def _note(out: Path, key: str, note: dict[str, Any]) -> None:
    """Note the state of one recipe beside what this command and others have noted of other recipes."""
    durable_writes.make_folder(out)
    status = stored_status(out) | {key: note}
    durable_writes.replace(out / STATUS, json.dumps(status, indent=2, sort_keys=True) + "\n")


def stored_status(out: Path) -> dict[str, dict[str, Any]]:
    """Return what earlier runs noted of each recipe; nothing where the file is missing or damaged."""
    try:
        status = json.loads((out / STATUS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(status, dict):
        return {}
    return {name: note for name, note in status.items() if isinstance(note, dict)}


def _run_one(plan: Planned, *, jobs: int, root: Path | None, changed: bool) -> dict[str, Any]:
    """Run one recipe where it stopped, or anew where it has changed since, and say how it ended."""
    started = time.monotonic()
    try:
        if plan.recipe.kind == "train":
            _train(plan, jobs=jobs, root=root)
        else:
            from wpriv.run.comparison import compare

            compare.run(plan.recipe, plan.folder, fresh=changed)
    except Interrupted:
        raise Interrupted(f"{plan.name} was interrupted; its progress is saved. The same command continues") from None
    except CheckFailed:
        pass  # an expected number was missed: the page shows it
    except WprivError as error:
        return {"status": "refused", "reason": str(error), "seconds": round(time.monotonic() - started, 1)}
    return {"status": "done", "reason": "", "seconds": round(time.monotonic() - started, 1)}


def _train(plan: Planned, *, jobs: int, root: Path | None) -> None:
    from wpriv.run.training import sweep, train

    training = plan.recipe.training
    if training is not None and training.has_several:
        sweep.run(plan.recipe, plan.folder, jobs=jobs, root=root)
    else:
        train.run(plan.recipe, plan.folder, root=root, resume=True)
