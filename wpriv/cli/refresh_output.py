"""Run ``wpriv recipe refresh`` and print each own number before and after."""

from __future__ import annotations

from pathlib import Path

from wpriv.accounting import load_recipe
from wpriv.cli import output
from wpriv.cli.comparison_output import deviation, place
from wpriv.cli.reproduce import seconds_of
from wpriv.errors import CheckFailed, Interrupted, MissingResource, WprivError
from wpriv.papers.reproduction import refresh as refreshing
from wpriv.papers.reproduction.refresh import Refreshed, Result
from wpriv.results import storage
from wpriv.training.plan import short_duration

# nothing is known of the time of a recipe without one
UNKNOWN_SECONDS = 3600.0


def refresh_from(word: str, folder: Path) -> None:
    """Write own numbers from finished results into recipes, and print a table of them.

    Args:
        word: a recipe, whose results ``folder`` holds; or ``all``, for those of a reproduction in ``folder``.
    """
    names = refreshing.selected(word)
    if word != "all":
        # the folder of the recipe, or a reproduction with it
        results_folder = folder / word if (folder / word).is_dir() else folder
        _finish([refreshing.refresh_from(word, results_folder)], [])
        return
    results: list[Result] = []
    problems = []
    finished = [name for name in names if (folder / name / storage.PROVENANCE).is_file()]
    for name in finished:
        try:
            results.append(refreshing.refresh_from(name, folder / name))
        except WprivError as error:
            problems.append(f"{name} was not refreshed: {error}")
    if len(finished) < len(names):
        missing = ", ".join(name for name in names if name not in finished)
        output.tell(f"without finished results in {folder}, left as they are: {missing}")
    if not finished:
        raise MissingResource(f"--from {folder} holds no finished results of a recipe with own numbers")
    _finish(results, problems)


def refresh(word: str, out: Path, at_most: str | None, jobs: int, root: Path | None) -> None:
    """Refresh recipes, the fastest first, and print a table of their own numbers."""
    names, left = refreshing.selected(word), seconds_of(at_most)
    commit = refreshing.version()
    recipes = {name: load_recipe.read(name) for name in names}
    seconds = {name: UNKNOWN_SECONDS if each.time is None else each.time.seconds for name, each in recipes.items()}
    results, problems = [], []
    for number, name in enumerate(sorted(names, key=lambda each: seconds[each]), start=1):
        words = short_duration(recipes[name].time)
        if seconds[name] > left:
            output.tell(f"{number} of {len(names)}: {name} takes {words}: not run")
            continue
        left -= seconds[name]
        output.tell(f"{number} of {len(names)}: {name}, {words}")
        try:
            results.append(refreshing.refresh(name, out, commit, jobs=jobs, root=root))
        except Interrupted:
            raise
        except WprivError as error:
            if len(names) == 1:
                raise
            problems.append(f"{name} was not refreshed: {error}")
    _finish(results, problems)


def _finish(results: list[Result], problems: list[str]) -> None:
    """Print the results, and fail where some number has none."""
    rows = [[result.name, *_cells(each)] for result in results for each in result.numbers]
    if rows:
        output.emit_table(["recipe", "at", "column", "old", "new", "difference", "within", ""], rows)
    output.say("wrote", *(str(result.path) for result in results if result.written))
    open_numbers = [(result.name, len(result.unanswered)) for result in results if result.unanswered]
    problems += [f"{name} has no answer for {count} own numbers" for name, count in open_numbers]
    if problems:
        raise CheckFailed("; ".join(problems))


def _cells(each: Refreshed) -> list[str]:
    verdict = each.verdict
    word = "no answer: kept" if each.new is None else "as before" if verdict.ok else "changed beyond the tolerance"
    return [*place(verdict), f"{each.old:g}", each.text or "none", *deviation(verdict), word]
