"""The privacy statement of several trainings, of a sweep or of repeated runs: what all of them together keep."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wpriv.config.recipe import Recipe
from wpriv.files import durable_writes
from wpriv.numerics.safe_rounding import text
from wpriv.run.results import file_names, privacy_statement
from wpriv.run.training import all_trainings, recipe_grid
from wpriv.run.training.all_trainings import Release, Together
from wpriv.run.training.trained import Trained

SCHEMA = "wpriv.statement-of-trainings/1"
MEANING = (
    "each training has a statement of its own in its folder, which holds only if nothing of the other trainings is "
    "shown to anybody: no weights, no measurements, and no mean over runs, which is computed from all of them. "
    "Whoever sees more than one training, or a table, mean or figure over them, sees a release of them together"
)
COVERED = [
    "everything that the statements of the single trainings cover, from all of the private trainings together",
    "means, deviations, tables and figures over the private trainings, as far as the statements of the single "
    "trainings cover what is measured in each",
    "the choice of one of the private trainings by comparing what these statements cover",
]
NOT_COVERED = [
    "trainings in other folders, and the choice of the settings of this recipe, if they were tuned on these records",
    "everything that the statements of the single trainings list as not covered",
]
WITHOUT = (
    "{count} of the trainings had no privacy: no guarantee holds for anybody who sees one of them, or a figure that "
    "was computed from one"
)
EARLIER = "{folder}: its folder holds earlier runs, whose cost is not part of these figures; see its statement"
OTHER = (
    "{folder}: holds a training that this recipe does not have, or has no longer; what it released is not part of "
    "these figures"
)
UNFINISHED = "{count} of {trainings} trainings are not finished; what they have released is not part of these figures"


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
    files = (file_names.LEDGER, file_names.MODEL)
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
    warnings = [UNFINISHED.format(count=trainings - len(runs), trainings=trainings)] if len(runs) < trainings else []
    warnings += [WITHOUT.format(count=len(without))] if without else []
    if any(_seed(run) is not None for run in runs if run not in without):
        warnings.append(privacy_statement.FIXED_SEED)
    warnings += [EARLIER.format(folder=run.folder) for run in runs if run.trained.statement.get("earlier_runs")]
    warnings += [OTHER.format(folder=name) for name in others]
    data: dict[str, Any] = {
        "schema": SCHEMA,
        "recipe": recipe.name,
        "source": recipe.source,
        "trainings": trainings,
        "finished": len(runs),
        "without_privacy": len(without),
        "means": MEANING,
        "together": together.as_dict(),
        "runs": [_run(run) for run in runs],
        "covered": COVERED,
        "not_covered": NOT_COVERED,
        "warnings": warnings,
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
    durable_writes.replace(out / file_names.STATEMENT_TEXT, to_markdown(data, sentence))
    durable_writes.replace(out / file_names.STATEMENT, json.dumps(data, indent=2) + "\n")


def to_markdown(data: dict[str, Any], sentence: str) -> str:
    """Render the statement of several trainings as Markdown."""
    lines = [f"# Privacy statement: all trainings of {data['recipe']}", "", f"Source: {data['source']}", ""]
    lines += [f"{data['finished']} of {data['trainings']} trainings are finished.", "", f"**{sentence}.**", ""]
    if data["together"].get("adjacency_means"):
        lines += [f"Neighbours: {data['together']['adjacency']}: {data['together']['adjacency_means']}.", ""]
    if data["together"].get("unit"):
        lines += [f"Protected: {data['together']['unit']}.", ""]
    lines += [f"{data['means'][0].upper()}{data['means'][1:]}.", ""]
    if "settings" in data:
        lines += ["## Settings", "", "| setting | runs | eps of one run | eps of all its runs |", "|---|---|---|---|"]
        lines += [
            f"| {_words(row['labels'])} | {row['runs']} | {_eps(row['epsilon_of_one'])} | {_eps(row['epsilon'])} |"
            for row in data["settings"]
        ]
        lines.append("")
    lines += ["## Trainings, each alone", "", "| folder | eps | delta | by | seed |", "|---|---|---|---|---|"]
    for run in data["runs"]:
        by = f"{run['claim']} by {run['accountant']}" if run["epsilon"] is not None else run["promise"]
        delta = "" if run["delta"] is None else text(run["delta"], up=True)
        seed = "from the operating system" if run["seed"] is None else f"{run['seed']} (fixed)"
        lines.append(f"| {run['folder']} | {_eps(run['epsilon'])} | {delta} | {by} | {seed} |")
    lines.append("")
    for key, heading in (("covered", "Covered"), ("not_covered", "Not covered"), ("warnings", "Warnings")):
        lines += [f"## {heading}", "", *(f"- {line}" for line in data[key] or ["none"]), ""]
    versions = ", ".join(f"{key} {value}" for key, value in data["versions"].items() if value is not None)
    return "\n".join([*lines, f"Versions: {versions}.", ""])


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


def _words(labels: dict[str, Any]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in labels.items()) or "the only one"


def _eps(value: float | None) -> str:
    return "none" if value is None else text(value, up=True)
