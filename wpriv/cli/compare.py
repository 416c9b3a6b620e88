"""wpriv compare"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wpriv.cli import flags
from wpriv.cli.parsing import OUTPUT, RESULTS, option, switch
from wpriv.errors import UsageError

if TYPE_CHECKING:
    from wpriv.config.recipe import Recipe


@flags.with_job
def command(
    job: flags.Job,
    words: list[str] | None = flags.WORDS,
    history: flags.Text = flags.HISTORY,
    observed: flags.Text = flags.OBSERVED,
    repeats: flags.Text = flags.REPEATS,
    sweep: list[str] | None = option(
        "NAME=VALUES", "An axis: n=64,256 or eps=linspace:0,4,81 (geomspace, powers); also of epochs, batch, mech, ..."
    ),
    figure: str | None = option("NAME", "The figure to draw instead of the default one."),
    out: Path | None = option("DIR", "Folder of the results (a recipe's default: results/<name>).", group=RESULTS),
    quick: bool = switch("--quick", "Apply the recipe's quick overrides: a small grid."),
    fresh: bool = switch("--fresh", "Compute again, replacing the results in DIR.", RESULTS),
    why: bool = switch(
        "--why", "Show one job under every interpretation, with the assumption that changes each number."
    ),
    order: bool = switch(
        "--order",
        "Tell which of two processes is more private: RECIPE and B are then recipes of kind budget, "
        "guarantees (--json), folders of trainings, or words such as 'gauss sigma=4 n=10'.",
    ),
    strategies: bool = switch(
        "--strategies",
        "Compare strategies of correlated noise, the arguments (banded:4 blt:3 ...), by the error of their prefix "
        "sums at equal eps, for --bins steps an epoch and --epochs; at equal noise with --sigma.",
    ),
    within: flags.Text = option("X", "With --order: relative difference of equal curves (default 0.01)."),
    as_json: bool = flags.JSON,
    as_csv: bool = flags.CSV,
    quiet: bool = switch("--quiet", "Print no table, only write files and set the exit code.", OUTPUT),
) -> None:
    """Compare accountants over a grid; one job under every interpretation (--why); two processes (--order); or
    strategies of correlated noise (--strategies).

    A folder of recipes of kind check (claims/libraries) is a table of printed eps, that of what ran, and the verdict.

    wpriv compare plc/fig7-dpsgd --quick

    wpriv compare --order "gauss sigma=1" "laplace scale=1"

    wpriv compare --strategies banded:4 blt:3 --bins 100 --epochs 5 --sampling none --eps 4 --delta 1e-5

    wpriv compare --mech gauss --sigma 4 --sampling poisson --rate 0.01 --delta 1e-4 --sweep n=1024,4096 --accountant
    pld --accountant rdp
    """
    from wpriv.config import plain_words, recipe_files

    mode = flags.output(json=as_json, csv=as_csv, quiet=quiet)
    source = {"history": history, "observed": observed, "repeats": repeats, "sweep": sweep, "figure": figure}
    if order:
        from wpriv.cli.claim_output import compare_order

        others = {**source, "out": out, "quick": quick, "fresh": fresh, "why": why}
        compare_order(words or [], job, others, within, mode)
        return
    if within is not None:
        raise UsageError("--within is for --order, which tells the more private of two processes; add --order")
    if strategies:
        about = {key: source[key] for key in ("history", "observed", "repeats")} | {"quick": quick, "why": why}
        loaded = _of_strategies(words or (), job, about, axes=sweep or [], figure=figure)
        _run(loaded, out, fresh=fresh, quiet=quiet, mode=mode, figure=figure)
        return
    if len(words or ()) > 1 and all(plain_words.is_sentence(word) for word in words or ()):
        raise UsageError("found several processes: --order tells the more private of two; steps are joined by +")
    folder = words[0] if words and len(words) == 1 else ""
    if os.path.isdir(folder) or recipe_files.bare_folder(folder) in recipe_files.BANKS:
        from wpriv.cli import check

        check.compare_checks(folder, job, {**source, "out": out, "quick": quick, "fresh": fresh, "why": why}, mode)
        return
    recipe, steps, job = flags.subject(words, job, history=history)
    if why and recipe is None and not steps and not quick:
        others = {**source, "adjacency": job.adjacency, "accountant": job.accountant, "out": out, "fresh": fresh}
        _print_interpretations(job, others, mode)
        return
    loaded = _loaded(recipe, steps, job, source, quick=quick, why=why)
    out = out or loaded.default_out if recipe is not None else out
    _run(loaded, out, fresh=fresh, quiet=quiet, mode=mode, figure=figure)


def _run(loaded: Recipe, out: Path | None, *, fresh: bool, quiet: bool, mode: str, figure: str | None) -> None:
    from wpriv.accounting.comparison import compare
    from wpriv.cli import comparison_output, output

    if figure is not None and out is None:
        raise UsageError("--figure draws into the folder of the results; give --out DIR")
    with contextlib.nullcontext() if quiet else output.counting("cells") as progress:
        comparison = compare.run(loaded, out, fresh=fresh, progress=progress)
    comparison_output.print_comparison(comparison, mode)
    comparison.require()


def _of_strategies(
    words: Sequence[str], job: flags.Job, others: dict[str, Any], *, axes: list[str], figure: str | None
) -> Recipe:
    """The recipe of a table of strategies; ``others`` are flags that have no place there."""
    from wpriv.accounting import load_recipe
    from wpriv.numerics.numbers import short

    taken = ("eps", "delta", "sigma", "bins", "epochs", "sampling")
    others |= {name: value for name, value in vars(job).items() if name not in taken}
    if given := [name for name, value in others.items() if value]:
        raise UsageError(
            f"--strategies takes strategies as arguments, and of flags {', '.join(f'--{name}' for name in taken)}, "
            f"--sweep, --figure and --out; leave out --{given[0].replace('_', '-')}"
        )
    written: dict[str, Any] = flags.numbers(**{name: getattr(job, name) for name in taken[:-1]})
    written |= {"strategies": " ".join(words) or None, "sampling": job.sampling}
    if job.sampling == "allocation":
        written["sampling"] = "balls-in-bins"
    params = {name: value for name, value in written.items() if value is not None}
    facts = [f"{name} {short(value)}" for name, value in params.items() if name in taken[:-1]]
    title = ", ".join(["Error of prefix sums under correlated noise", *facts])
    data: dict[str, object] = {"table": "correlated-noise", "params": params, "title": title}
    data["figure"] = flags.folded(figure) or "correlated-noise"
    return load_recipe.from_flags(data | ({"sweep": [load_recipe.sweep(text) for text in axes]} if axes else {}))


def _loaded(
    recipe: str | None,
    steps: Sequence[dict[str, Any]],
    job: flags.Job,
    source: dict[str, Any],
    *,
    quick: bool,
    why: bool,
) -> Recipe:
    """The recipe of kind compare that the words name, or that the flags are."""
    from wpriv.accounting import load_recipe

    if recipe is not None:
        flags.no_flags(recipe, job, **source, why=why)
        return load_recipe.read(recipe, quick=quick, kind="compare")
    if quick:
        raise UsageError("--quick applies the quick overrides of a recipe: name a recipe, or leave out --quick")
    if not (steps or any(vars(job).values()) or any(source.values()) or why):
        raise UsageError(
            "compare needs a recipe (`wpriv recipe ls` lists them) or a job in flags, such as --mech gauss --sigma 4"
        )
    axes = [load_recipe.sweep(text) for text in source["sweep"] or []]
    figure = flags.folded(source["figure"])
    return load_recipe.from_flags(_recipe(job, steps, {**source, "figure": figure}, axes))


def _print_interpretations(job: flags.Job, others: dict[str, Any], mode: str) -> None:
    """Print one job under every interpretation; ``others`` are flags that have no place there."""
    from wpriv.accounting.interpretations import compare_interpretations
    from wpriv.cli import comparison_output

    repeats = others.pop("repeats")
    if given := [name for name, value in others.items() if value]:
        raise UsageError(
            f"--why chooses the neighbours, accountants and assumptions for one mechanism; leave out --{given[0]}"
        )
    process = {"mech": job.mech, **job.params(), **job.schedule(), "group": job.group}
    comparison_output.print_interpretations(compare_interpretations(process, repeats=repeats, **job.question()), mode)


def _recipe(
    job: flags.Job, steps: Sequence[dict[str, Any]], source: dict[str, Any], axes: list[dict[str, object]]
) -> dict[str, object]:
    """The keys of a recipe that says what the flags, or several steps in words, say."""
    from wpriv.accounting import load_recipe

    for axis in axes:
        _refuse_twice(str(axis["over"]), job, steps)
    data: dict[str, object] = {**job.question(), "accountants": job.accountant or ["pld"]}
    named = [axis for axis in axes if "words" in axis]
    axes = [axis for axis in axes if "words" not in axis]
    for axis in [axis for axis in named if axis["over"] == "accountant"]:
        named.remove(axis)
        data["accountants"] = axis["words"]
    data |= {key: source[key] for key in ("figure", "repeats") if source[key]} | ({"sweep": axes} if axes else {})

    def keys(words: dict[str, str]) -> dict[str, object]:
        adjacency = words.get("adjacency", job.adjacency)
        if steps:
            others = [name for name in ("history", "observed") if source[name]]
            if given := [*others, *({"mech", "sampling"} & words.keys())]:
                raise UsageError(f"the steps are given in words; leave out {given[0]}, or say it in words")
            return {**load_recipe.steps_in_words(steps), "adjacency": adjacency, "group": job.group}
        mech = words.get("mech", job.mech)
        params, schedule = job.params(), job.schedule()
        if "mech" in words:  # each mechanism takes those parameters that it has
            params = load_recipe.parameters_of(mech, params)
        schedule |= {"sampling": words["sampling"]} if "sampling" in words else {}
        step = {"mech": mech, **params, **schedule, "observed": source["observed"]}
        swept = [str(axis["over"]) for axis in axes]
        return load_recipe.steps_of_flags(step, adjacency, job.group, source["history"], swept)

    return data | load_recipe.panels(named, keys)


def _refuse_twice(name: str, job: flags.Job, steps: Sequence[dict[str, Any]]) -> None:
    """Refuse a sweep over a key that has a value already."""
    from wpriv.config.plain_words import renamed

    given = {key for key, value in {**vars(job), **job.params()}.items() if value is not None}
    given |= {key for step in steps for key in renamed(step).values()}
    if name in given:
        raise UsageError(f"{name} is given twice: by a value, and by --sweep {name}; leave one of them out")
