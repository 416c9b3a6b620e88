"""wpriv reproduce"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import TYPE_CHECKING

from wpriv.cli import flags, output
from wpriv.cli.parsing import MACHINE, RESULTS, argument, option, switch
from wpriv.errors import CheckFailed, MissingResource, UsageError

if TYPE_CHECKING:
    from wpriv.papers.reproduction.collect import ItemResult
    from wpriv.papers.reproduction.reproduce import Paper

SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0}


def command(
    what: str | None = argument(
        "WHAT", "all, a paper (plc, wdp, dpswd, wgrad, ldp), or an item: plc/figure-4.", default=None
    ),
    out: Path | None = option("DIR", "Folder of results and pages (default reproduction).", group=RESULTS),
    quick: bool = switch("--quick", "Apply the quick overrides of the recipes: a try, no reproduction."),
    at_most: str | None = option("TIME", "Begin no recipe beyond this time: 30min, 2h; 0 writes pages only."),
    jobs: int = option(
        "N", "Number of trainings of a sweep that run at the same time.", min=1, group=MACHINE, default=1
    ),
    data_root: Path | None = flags.DATA_ROOT,
    keep: Path | None = option(
        "DIR", "Keep finished results in this folder, in reduced form, and show all it holds.", group=RESULTS
    ),
    kept: Path | None = option(
        "DIR", "Show the kept results of this folder for recipes that are not run here.", group=RESULTS
    ),
    as_json: bool = flags.JSON,
) -> None:
    """Run the recipes of the papers, and write their numbers, ours and every figure to web pages.

    wpriv reproduce plc/figure-4

    wpriv reproduce all --at-most 0 --out pages
    """
    from wpriv.papers.reproduction import collect, page, reproduce

    if what is None:
        raise UsageError(
            "reproduce wants what to run: an item (plc/figure-4, in seconds), a paper (plc, wdp, dpswd, wgrad, ldp), "
            "or all of them, which takes hours; --at-most 0 writes pages alone"
        )
    papers, limit = reproduce.select(what), seconds_of(at_most)
    folder = out or Path("reproduction-quick" if quick else "reproduction")
    if quick and (keep or kept):
        name = "--keep" if keep else "--kept"
        raise UsageError(f"{name} is for reproductions, and runs with --quick are none. Leave one of the two out")
    _check_kept(keep, kept, folder)
    plans = reproduce.planned(papers, folder, quick=quick)
    reproduce.run(plans, folder, at_most=limit, jobs=jobs, root=data_root, say=output.tell)
    selected = {item for paper in papers for item in paper.items}
    files = [] if keep is None else _keep(papers, folder, keep)
    # the pages show all papers, with what earlier calls have left in the folder
    every = reproduce.select("all")
    results = collect.collect(every, folder, quick=quick, kept=keep or kept)
    files += page.write(every, results, folder, quick=quick)
    results = [result for result in results if result.item in selected]
    _print(results, files, quick=quick, as_json=as_json)


def _print(results: list[ItemResult], files: list[Path], *, quick: bool, as_json: bool) -> None:
    from wpriv.papers.reproduction import collect

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


def _check_kept(keep: Path | None, kept: Path | None, out: Path) -> None:
    """Refuse, before anything is run, what cannot be kept, and a folder without kept results to show."""
    from wpriv.papers.reproduction import kept as keeping
    from wpriv.papers.reproduction import reproduce

    if keep is None:
        if kept is not None and not reproduce.is_kept(kept):
            raise UsageError(f"--kept {kept} holds no kept results. Name a folder that was written with --keep")
        return
    if kept is not None and kept != keep:
        raise UsageError("--keep shows the results of its own folder: leave out --kept")
    if keep.resolve() == out.resolve():
        raise UsageError(f"--keep and --out are the same folder {out}: name another one with --keep")
    keeping.require_folder(keep)


def _keep(papers: list[Paper], out: Path, keep: Path) -> list[Path]:
    """Keep the finished recipes of some papers, write the pages of the kept results, and return their files."""
    from wpriv.papers.reproduction import collect, reproduce
    from wpriv.papers.reproduction import kept as keeping

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
