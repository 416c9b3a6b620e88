"""The privacy statement of several trainings, of a sweep or of repeated runs: what all of them together keep."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wpriv.config.recipe import Recipe
from wpriv.files import durable_writes
from wpriv.results import model, storage
from wpriv.results.model import OfTrainings
from wpriv.training import all_trainings, recipe_grid
from wpriv.training.all_trainings import Release, Together
from wpriv.training.reports import render
from wpriv.training.trained import Trained

SCHEMA = "wpriv.statement-of-trainings/1"


@dataclass(frozen=True)
class Finished:
    """A finished training of a recipe with several: its labels and what its folder holds."""

    labels: dict[str, Any]
    trained: Trained

    @property
    def folder(self) -> str:
        return self.trained.out.name

    def release(self) -> Release | None:
        """The release of the training, for the common accounting; None if it was trained without privacy."""
        plan = self.trained.plan
        return (
            None if plan.private is None else all_trainings.of_folder(plan, all_trainings.entries_of(self.trained.out))
        )


def of_runs(runs: Sequence[Finished]) -> Together:
    """The guarantee of finished trainings together: of their own noise, or of the reports that they used."""
    releases = [release for run in runs if (release := run.release()) is not None]
    reports = [
        (run.trained.plan.train.data, run.trained.statement["reports"])
        for run in runs
        if "reports" in run.trained.statement
    ]
    return all_trainings.together([*releases, *all_trainings.of_reports(reports)])


def other_trainings(out: Path, names: Collection[str]) -> list[str]:
    """Return the names of the folders in that of a sweep with trainings of none of its cells, in order.

    A recipe whose sweep had other values before, or more repeated runs, left them.

    Args:
        names: of the folders of all cells.
    """
    files = (storage.LEDGER, storage.MODEL)
    folders = {path.parent.name for name in files for path in out.glob(f"*/{name}")}
    return sorted(folders - set(names))


def statement(
    recipe: Recipe,
    runs: Sequence[Finished],
    trainings: int,
    together: Together,
    versions: dict[str, Any],
    others: Sequence[str],
) -> dict[str, Any]:
    """Return the statement of all finished trainings of a recipe as plain data.

    Args:
        trainings: how many the recipe has. together: what the finished ones keep together.
        versions: of the program and the machine, as in provenance.json. others: see ``other_trainings``.
    """
    without = [run for run in runs if run.trained.plan.private is None and "reports" not in run.trained.statement]
    lists = render.sections(
        "trainings_lists.txt.j2",
        finished=len(runs),
        trainings=trainings,
        without=len(without),
        seeded=any(_seed(run) is not None for run in runs if run not in without),
        earlier=[run.folder for run in runs if run.trained.statement.get("earlier_runs")],
        others=others,
    )
    data: dict[str, Any] = {
        "schema": SCHEMA,
        "recipe": recipe.name,
        "source": recipe.source,
        "trainings": trainings,
        "finished": len(runs),
        "without_privacy": len(without),
        "means": lists["means"][0],
        "together": together.as_dict(),
        "runs": [_run(run) for run in runs],
        "covered": lists["covered"],
        "not_covered": lists["not_covered"],
        "warnings": lists["warnings"],
        "versions": {key: versions.get(key) for key in ("wpriv", "python", "numpy", "git_commit")},
    }
    if recipe_grid.runs_of(recipe) > 1:
        data["settings"] = _settings(runs, together)
    plain: dict[str, Any] = json.loads(json.dumps(data))
    return plain


def write(out: Path, data: dict[str, Any], sentence: str) -> None:
    """Write statement.md and statement.json.

    Args:
        sentence: the guarantee of all trainings together in words.
    """
    durable_writes.replace(out / storage.STATEMENT_TEXT, to_markdown(data, sentence))
    durable_writes.replace(out / storage.STATEMENT, json.dumps(data, indent=2) + "\n")


def to_markdown(data: dict[str, Any], sentence: str) -> str:
    """Render the statement of several trainings as Markdown."""
    statement = model.checked(OfTrainings, data, storage.STATEMENT, model.TRAIN_AGAIN)
    return render.filled("trainings.md.j2", statement=statement, sentence=sentence)


def _run(run: Finished) -> dict[str, Any]:
    """One training alone, by the first accountant that gives a guarantee."""
    row = run.trained.proven[0].as_dict() if run.trained.proven else {}
    promise = run.trained.statement.get("promise")
    return {
        "folder": run.folder,
        "labels": run.labels,
        "seed": _seed(run),
        "private": run.trained.plan.private is not None,
        "promise": promise if promise or row else "no accountant gives an (eps, delta) guarantee",
        **{key: row.get(key) for key in ("epsilon", "delta", "claim", "accountant")},
    }


def _seed(run: Finished) -> int | None:
    """The fixed seed of the noise, which the reports have where the training added none."""
    statement = run.trained.statement
    seed: int | None = statement.get("reports", statement).get("seed")
    return seed


def _settings(runs: Sequence[Finished], together: Together) -> list[dict[str, Any]]:
    """The cost of the runs of each setting together; ``together`` is that of all runs."""
    groups: dict[tuple[Any, ...], list[Finished]] = {}
    for run in runs:
        groups.setdefault(recipe_grid.setting(run.labels), []).append(run)
    rows = []
    for labels, group in groups.items():
        ones = [row["epsilon"] for run in group if (row := _run(run))["epsilon"] is not None]
        whole = together if len(groups) == 1 else of_runs(group)
        rows.append(
            {
                "labels": dict(labels),
                "runs": len(group),
                "epsilon_of_one": max(ones) if len(ones) == len(group) else None,
                "epsilon": whole.epsilon,
                "problem": whole.problem or None,
            }
        )
    return rows
