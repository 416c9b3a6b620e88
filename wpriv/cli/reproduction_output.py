"""Keep and print what `wpriv reproduce` ran; run `wpriv recipe refresh`, and print each own number before and after."""

from __future__ import annotations

import math
import re
from pathlib import Path

from wpriv.accounting import load_recipe
from wpriv.cli import output
from wpriv.cli.comparison_output import deviation, place
from wpriv.errors import CheckFailed, Interrupted, MissingResource, UsageError, WprivError
from wpriv.papers.reproduction import collect, reproduce
from wpriv.papers.reproduction import kept as keeping
from wpriv.papers.reproduction import refresh as refreshing
from wpriv.papers.reproduction.collect import ItemResult
from wpriv.papers.reproduction.refresh import Refreshed, Result
from wpriv.papers.reproduction.reproduce import Paper
from wpriv.results import storage
from wpriv.training.plan import short_duration

SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0}
# nothing is known of the time of a recipe without one
UNKNOWN_SECONDS = 3600.0


def print_results(results: list[ItemResult], files: list[Path], *, quick: bool, as_json: bool) -> None:
    if as_json:
        output.emit_json(collect.report(results, quick=quick))
    else:
        rows = [
            [each.item.paper, each.item.name, each.verdict, collect.counts(each), _remarks(each)] for each in results
        ]
        output.emit_table(["paper", "item", "verdict", "numbers met", "remarks"], rows)
    output.say("wrote", *map(str, files))
    if failing := [each for each in results if each.failures]:
        words = "; ".join(f"{each.item.paper}, {each.item.name}: {', '.join(each.failures)}" for each in failing)
        raise CheckFailed(f"this program fails in {collect.plural(len(failing), 'item')}: {words}. The pages show it")
    status = {recipe.name: recipe.status for each in results for recipe in each.recipes}
    if status and set(status.values()) == {"refused"}:
        raise MissingResource("none of the recipes could be run; the pages say why")


def check_kept(keep: Path | None, kept: Path | None, out: Path) -> None:
    """Refuse, before anything is run, what cannot be kept, and a folder without kept results to show."""
    if keep is None:
        if kept is not None and not reproduce.is_kept(kept):
            raise UsageError(f"--kept {kept} holds no kept results. Name a folder that was written with --keep")
        return
    if kept is not None and kept != keep:
        raise UsageError("--keep shows the results of its own folder: leave out --kept")
    if keep.resolve() == out.resolve():
        raise UsageError(f"--keep and --out are the same folder {out}: name another one with --keep")
    keeping.require_folder(keep)


def keep_results(papers: list[Paper], out: Path, keep: Path) -> list[Path]:
    """Keep the finished recipes of some papers, write the pages of the kept results, and return their files."""
    names = keeping.store(collect.collect(papers, out, quick=False), out, keep)
    output.tell(f"kept {len(names)} recipe{'s' * (len(names) != 1)} in {keep}")
    every = reproduce.select("all")
    return keeping.write(every, collect.collect(every, keep, quick=False, kept=keep), keep)


def _remarks(result: ItemResult) -> str:
    """Return what fails here, which parts of an item are not reproduced, and which recipes were not run."""
    item, seen = result.item, [] if result.item.seen is None else [result.item.seen.says]
    not_run = [f"{each.name} {each.status}" for each in result.recipes if each.status in ("refused", "not run")]
    return "; ".join(words for words in (*result.failures, *seen, item.no_data, item.missing, *not_run) if words)


def seconds_of(text: str | None) -> float:
    """The seconds of a time such as 90s, 30min or 2h; infinity for None."""
    if text is None:
        return math.inf
    match = re.fullmatch(r"(\d{1,6}(?:\.\d{1,3})?)\s*(s|min|h)?", text.strip())
    if match is None or (match[2] is None and float(match[1]) > 0):
        raise UsageError(f"--at-most wants a time with its unit, such as 90s, 30min or 2h; found {text[:40]!r}")
    return float(match[1]) * SECONDS[match[2] or "s"]


# Refresh own numbers.


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
