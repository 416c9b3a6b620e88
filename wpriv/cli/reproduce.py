"""wpriv reproduce"""

from __future__ import annotations

from pathlib import Path

from wpriv.cli import flags, output
from wpriv.cli.parsing import MACHINE, RESULTS, argument, option, switch
from wpriv.errors import UsageError


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
    from wpriv.cli import reproduction_output
    from wpriv.papers.reproduction import collect, page, reproduce

    if what is None:
        raise UsageError(
            "reproduce wants what to run: an item (plc/figure-4, in seconds), a paper (plc, wdp, dpswd, wgrad, ldp), "
            "or all of them, which takes hours; --at-most 0 writes pages alone"
        )
    papers, limit = reproduce.select(what), reproduction_output.seconds_of(at_most)
    folder = out or Path("reproduction-quick" if quick else "reproduction")
    if quick and (keep or kept):
        name = "--keep" if keep else "--kept"
        raise UsageError(f"{name} is for reproductions, and runs with --quick are none. Leave one of the two out")
    reproduction_output.check_kept(keep, kept, folder)
    plans = reproduce.planned(papers, folder, quick=quick)
    reproduce.run(plans, folder, at_most=limit, jobs=jobs, root=data_root, say=output.tell)
    selected = {item for paper in papers for item in paper.items}
    files = [] if keep is None else reproduction_output.keep_results(papers, folder, keep)
    # the pages show all papers, with what earlier calls have left in the folder
    every = reproduce.select("all")
    results = collect.collect(every, folder, quick=quick, kept=keep or kept)
    files += page.write(every, results, folder, quick=quick)
    results = [result for result in results if result.item in selected]
    reproduction_output.print_results(results, files, quick=quick, as_json=as_json)
