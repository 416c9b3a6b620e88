"""Refresh the own numbers of recipes: run them, and write the new numbers with their commit into the files.

Expected numbers of kind own come from an earlier run of the same recipe. Nothing else in the file is touched, neither
published and reference numbers nor comments and layout.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wpriv._version import __version__
from wpriv.accounting import load_recipe
from wpriv.config import recipe_files, shipped, yaml_document
from wpriv.config.document import Document, Key
from wpriv.config.field_types import Expect
from wpriv.config.recipe import Check, Recipe
from wpriv.config.validate_process import ALIASES
from wpriv.config.yaml_document import Edit, edited, scalar_at
from wpriv.errors import MissingResource, UsageError, WprivError
from wpriv.files import durable_writes
from wpriv.papers.reproduction import reproduce
from wpriv.randomness import NOISE_VERSION
from wpriv.results import expectations, model, storage
from wpriv.results.expectations import Verdict

# a number is written to so small a part of its tolerance
SHARE = 0.01


@dataclass(frozen=True)
class OwnNumber:
    """An own number of a recipe: the path of its row, its key there, and what selects the row of results."""

    row: Key
    key: str
    check: Check

    @property
    def column(self) -> str:
        return ALIASES.get(self.key, self.key)


@dataclass(frozen=True)
class Refreshed:
    """An own number before and after; ``new`` is None where the run has no such row or no finite answer."""

    number: OwnNumber
    old: float
    new: float | None
    verdict: Verdict
    text: str = ""


@dataclass(frozen=True)
class Result:
    """The own numbers of one recipe, its file, and whether the file was written."""

    name: str
    path: Path
    numbers: list[Refreshed] = field(default_factory=list)
    written: bool = False

    @property
    def unanswered(self) -> list[Refreshed]:
        """The numbers for which the run has no answer, which stay as they are."""
        return [each for each in self.numbers if each.new is None]


def own_numbers(document: Document) -> list[OwnNumber]:
    """Return the own numbers of the full run of a recipe, in the order of the file."""
    numbers = []
    for path, panel in _parts(document):
        rows = document.at(path).get("expect") or []
        for index, row in enumerate(rows):
            if not isinstance(row, dict) or row.get("kind") != "own":
                continue
            check = Check(panel, Expect.model_validate(row))
            place = (*path, "expect", index)
            numbers += [OwnNumber(place, key, check) for key in row if key in (check.expect.model_extra or {})]
    return numbers


def _parts(document: Document) -> Iterator[tuple[Key, str]]:
    """The parts of a recipe that may have expected numbers, with the name of their panel."""
    yield (), ""
    panels = document.data.get("panels")
    for index, panel in enumerate(panels if isinstance(panels, list) else []):
        if isinstance(panel, dict):
            yield ("panels", index), str(panel.get("name", ""))


def rewrite(
    name: str, path: Path, verdict_of: Callable[[Check, str, float], Verdict], commit: str, noise_version: int | None
) -> Result:
    """Write the own numbers that a run answers into the file of its recipe.

    Args:
        verdict_of: the answer of the run to one check, by column and expected number. commit: written into the rows.
        noise_version: that of the noise of a training, or None.
    Raises:
        UsageError: the file cannot be read. WprivError: more than own numbers would change.
    """
    text = _text(path)
    document = yaml_document.parse(text, str(path))
    numbers = [_refreshed(number, document, text, verdict_of) for number in own_numbers(document)]
    new_text = edited(text, _edits(document, text, numbers, commit, noise_version))
    _require_others_unchanged(document, yaml_document.parse(new_text, str(path)))
    if new_text != text:
        durable_writes.replace(path, new_text.encode("utf-8"))
    return Result(name, path, numbers, new_text != text)


def _text(path: Path) -> str:
    """The text of a recipe with its line ends as they are."""
    try:
        return path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from None


def _refreshed(
    number: OwnNumber, document: Document, text: str, verdict_of: Callable[[Check, str, float], Verdict]
) -> Refreshed:
    old = float(document.at((*number.row, number.key)))
    verdict = verdict_of(number.check, number.column, old)
    new = verdict.ours
    if not isinstance(new, (int, float)) or not math.isfinite(new):
        return Refreshed(number, old, None, verdict)
    written = scalar_at(text, document.values[(*number.row, number.key)])
    expect = number.check.expect
    tolerance = expect.within if expect.absolute else expect.within * abs(new)
    return Refreshed(number, old, new, verdict, _number(float(new), written, tolerance))


def _number(value: float, written: str, tolerance: float) -> str:
    """A number with as many digits as the old one has, or more where the tolerance is finer.

    >>> _number(6.4512345, "6.43", 0.3), _number(0.5, "0.5", 0.1), _number(8631.2, "8630", 0.9)
    ('6.45', '0.5', '8631.2')
    """
    digits = len(written.lower().partition("e")[0].replace(".", "").lstrip("+-0")) or 1
    while digits < 17 and abs(float(f"{value:.{digits}g}") - value) > SHARE * tolerance:
        digits += 1
    text = f"{value:.{digits}g}"
    return text if "e" not in text or not 1e-4 <= abs(value) < 1e16 else f"{float(text):.0f}"


def _edits(
    document: Document, text: str, numbers: list[Refreshed], commit: str, noise_version: int | None
) -> Iterator[Edit]:
    """The edits of the file: the numbers, and once for each row the commit and the version of the noise."""
    answered = [each for each in numbers if each.new is not None]
    for each in answered:
        yield Edit(document.values[(*each.number.row, each.number.key)], each.text)
    incomplete = {each.number.row for each in numbers if each.new is None}
    for row in dict.fromkeys(each.number.row for each in answered):
        if row in incomplete:
            continue
        entries = {"commit": f'"{commit}"'}
        entries |= {} if noise_version is None else {"noise_version": str(noise_version)}
        missing = []
        for key, value in entries.items():
            if key in document.at(row):
                yield Edit(document.values[(*row, key)], value)
            else:
                missing.append(f"{key}: {value}")
        if missing:
            yield Edit(document.values[(*row, "kind")], None, _inserted(document, text, row, missing))


def _inserted(document: Document, text: str, row: Key, entries: list[str]) -> str:
    """Entries as they are inserted behind ``kind: own``: in braces on its line, else on lines of their own."""
    line, column = document.values[row]
    if text.splitlines()[line - 1][column - 1 : column] == "{":
        return "".join(f", {entry}" for entry in entries)
    indent = " " * (document.keys[(*row, "kind")][1] - 1)
    return "".join(f"\n{indent}{entry}" for entry in entries)


def _require_others_unchanged(before: Document, after: Document) -> None:
    """Check that nothing but own numbers, their commits and noise versions differs."""
    if _without_own(before) != _without_own(after):
        raise WprivError(f"{before.name}: an edit changed more than own numbers. The file is left as it was")


def _without_own(document: Document) -> Any:
    """The data of a recipe without own numbers, their commits and noise versions."""
    import copy

    data = copy.deepcopy(document.data)
    for number in own_numbers(document):
        row: Any = data
        for part in number.row:
            row = row[part]
        for key in (number.key, "commit", "noise_version"):
            row.pop(key, None)
    return data


# Run recipes, or read finished results, for the new numbers.

COMMIT_DIGITS = 12


def selected(word: str) -> list[str]:
    """Return the names of the recipes that a word means: all shipped ones with own numbers, or one.

    Raises:
        UsageError: there is no such recipe, or it has no own numbers.
    """
    if word == "all":
        return [name for name, path in shipped().items() if own_numbers(yaml_document.read(path))]
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
    commit = storage.commit("wpriv")
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
    recipe = load_recipe.read(path)
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
    recipe = load_recipe.read(path)
    provenance = _finished(recipe, results)
    entries = expectations.read(results / storage.EXPECT)

    def verdict_of(check: Check, column: str, expected: float) -> Verdict:
        match = reproduce.answered(check, column, expected, entries)
        return expectations.verdict(check, column, expected, []) if match is None else match

    noise_version = int(provenance["noise_version"]) if recipe.kind == "train" else None
    return rewrite(name, path, verdict_of, _commit_of(provenance), noise_version)


def _finished(recipe: Recipe, results: Path) -> dict[str, Any]:
    """The provenance of finished results of a whole recipe."""
    file = results / storage.PROVENANCE
    if not file.is_file():
        raise MissingResource(f"{results} holds no finished results of {recipe.name}. Give a folder with {file.name}")
    if not reproduce.is_of(recipe, results):
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
    """The commit of stored results, or the version of the program, that is written beside own numbers."""
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
        from wpriv.accounting.comparison import compare

        return compare.run(recipe, folder, draw=False).rows, False
    if recipe.training is None:
        raise UsageError(f"{recipe.name}: recipes of kind {recipe.kind} have no expected numbers")
    from wpriv.training import sweep, train

    if recipe.training.has_several:
        result = sweep.run(recipe, folder, jobs=jobs, root=root)
        return result.rows, sweep.is_repeated_only(recipe)
    return train.run(recipe, folder, root=root, resume=True).results(), True
