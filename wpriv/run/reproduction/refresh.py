"""Refresh the own numbers of recipes: run them, and write the new numbers with their commit into the files.

Expected numbers of kind own come from an earlier run of the same recipe; ``own_numbers`` writes them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from wpriv._version import __version__
from wpriv.config import yaml_document
from wpriv.config.recipe import Check, Recipe
from wpriv.errors import UsageError
from wpriv.randomness.seeds import NOISE_VERSION
from wpriv.run import load_recipe, recipe_files
from wpriv.run.reproduction import stored
from wpriv.run.reproduction.own_numbers import Result, own_numbers, rewrite
from wpriv.run.results import expectations, file_names, model, write
from wpriv.run.results.expectations import Verdict

COMMIT_DIGITS = 12


def selected(word: str) -> list[str]:
    """Return the names of the recipes that a word means: all shipped ones with own numbers, or one.

    Raises:
        UsageError: there is no such recipe, or it has no own numbers.
    """
    if word == "all":
        return [name for name, path in recipe_files.shipped().items() if own_numbers(yaml_document.read(path))]
    path = recipe_files.find(word)
    if not own_numbers(yaml_document.read(path)):
        raise UsageError(
            f"{path} has no expected numbers of kind own. Published and reference numbers are not refreshed: they do "
            f"not come from this program"
        )
    return [word]


def version() -> str:
    """Return what own numbers carry: the commit of the program, or its version where it is no git checkout.

    Raises:
        UsageError: files of the program were changed since its commit.
    """
    commit = write.commit("wpriv")
    if commit is None:
        return f"version {__version__}"
    if commit.endswith("+"):
        raise UsageError(
            "own numbers carry the commit that gave them, and files of the program were changed since the last one. "
            "Commit the changes first"
        )
    return commit[:COMMIT_DIGITS]


def refresh(name: str, out: Path, commit: str, *, jobs: int = 1, root: Path | None = None) -> Result:
    """Run one recipe and write its own numbers into its file.

    Args:
        out: folder of results; what the same commit has finished there is not run again. commit: see ``version``.
        jobs: trainings at the same time. root: folder of the data sets.
    Raises:
        WprivError: the recipe cannot be run, or its file not be written.
    """
    path = recipe_files.find(name)
    recipe = load_recipe.recipe(path)
    folder = out / commit.replace(" ", "-") / recipe_files.short_name(path)
    rows, first = _rows(recipe, folder, jobs=jobs, root=root)

    def verdict_of(check: Check, column: str, expected: float) -> Verdict:
        return expectations.verdict(check, column, expected, rows, first=first)

    return rewrite(name, path, verdict_of, commit, NOISE_VERSION if recipe.kind == "train" else None)


def refresh_from(name: str, results: Path) -> Result:
    """Write the own numbers that a finished results folder holds into the file of a recipe, with their commit.

    Args:
        results: what ``compare``, ``train`` or ``reproduce`` left of the whole recipe, without quick settings.
    Raises:
        UsageError: the folder holds the results of another recipe, of quick settings, of a part of the trainings, or of
            a program whose files differ from its commit.
    """
    path = recipe_files.find(name)
    recipe = load_recipe.recipe(path)
    provenance = _finished(recipe, results)
    entries = expectations.read(results / file_names.EXPECT)

    def verdict_of(check: Check, column: str, expected: float) -> Verdict:
        match = stored.answered(check, column, expected, entries)
        return expectations.verdict(check, column, expected, []) if match is None else match

    noise_version = int(provenance["noise_version"]) if recipe.kind == "train" else None
    return rewrite(name, path, verdict_of, _commit_of(provenance), noise_version)


def _finished(recipe: Recipe, results: Path) -> dict[str, Any]:
    """The provenance of finished results of a whole recipe.

    Raises:
        UsageError: the folder holds something else.
    """
    file = results / file_names.PROVENANCE
    if not file.is_file():
        raise UsageError(f"{results} holds no finished results of {recipe.name}. Give a folder with {file.name}")
    if not stored.is_of(recipe, results):
        raise UsageError(
            f"{results} holds the results of another recipe, or of {recipe.name} before it was changed. Run it again"
        )
    provenance = model.json_object(file)
    if provenance.get("quick"):
        raise UsageError(f"{results} holds a run with quick settings, whose numbers are not those of the whole recipe")
    if provenance.get("finished") != provenance.get("trainings"):
        raise UsageError(f"{results} holds a part of the trainings of {recipe.name}. Finish them first")
    if recipe.kind == "train" and not isinstance(provenance.get("noise_version"), int):
        raise UsageError(f"{file} does not say which version of the rule made the noise. Run {recipe.name} again")
    return provenance


def _commit_of(provenance: dict[str, Any]) -> str:
    """The commit of stored results, or the version of the program, that is written beside own numbers.

    Raises:
        UsageError: files of the program had been changed since its commit.
    """
    commit = provenance.get("git_commit")
    if commit is None:
        return f"version {provenance.get('wpriv', __version__)}"
    if str(commit).endswith("+"):
        raise UsageError(
            f"the results are those of a program that had been changed since its commit {str(commit)[:COMMIT_DIGITS]}, "
            f"and no commit names it. Run the recipe again"
        )
    return str(commit)[:COMMIT_DIGITS]


def _rows(recipe: Recipe, folder: Path, *, jobs: int, root: Path | None) -> tuple[list[dict[str, Any]], bool]:
    """Run a recipe and return the rows of its results, and whether the first of several matching rows counts."""
    if recipe.kind == "compare":
        from wpriv.run.comparison import compare

        return compare.run(recipe, folder, draw=False).rows, False
    if recipe.training is None:
        raise UsageError(f"{recipe.name}: recipes of kind {recipe.kind} have no expected numbers")
    from wpriv.run.training import sweep, train

    if recipe.training.has_several:
        result = sweep.run(recipe, folder, jobs=jobs, root=root)
        return result.rows, sweep.is_repeated_only(recipe)
    return train.run(recipe, folder, root=root, resume=True).results(), True
