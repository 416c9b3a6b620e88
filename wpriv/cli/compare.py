"""wpriv compare"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated, Any

import typer

from wpriv.cli import flags
from wpriv.errors import UsageError

Sweep = Annotated[
    list[str] | None,
    typer.Option(
        "--sweep", metavar="NAME=VALUES", help="An axis: n=64,256 or eps=linspace:0,4,81 (geomspace, powers)."
    ),
]
Out = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", help="Where results go (a recipe's default: results/<name>).")
]
Quick = Annotated[bool, typer.Option("--quick", help="Apply the recipe's quick overrides: a small grid.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Compute again, replacing what DIR holds.")]
Why = Annotated[
    bool, typer.Option("--why", help="The same job under every reading, with the assumption that moves each figure.")
]
Figure = Annotated[
    str | None, typer.Option("--figure", metavar="NAME", help="The figure to draw, instead of the natural one.")
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print no table: files and exit code say it all.")]


@flags.with_job
def command(
    job: flags.Job,
    recipe: flags.Recipe = None,
    history: flags.History = None,
    observed: flags.Observed = None,
    sweep: Sweep = None,
    figure: Figure = None,
    out: Out = None,
    quick: Quick = False,
    fresh: Fresh = False,
    why: Why = False,
    as_json: flags.Json = False,
    as_csv: flags.Csv = False,
    quiet: Quiet = False,
) -> None:
    """Put accountants side by side over a grid, from a recipe or from flags; or one job under every reading (--why).

    wpriv compare plc/fig7-dpsgd

    wpriv compare --mech gauss --sigma 4 --sampling poisson --rate 0.01 --delta 1e-4 --sweep n=1024,65536 --accountant all
    """
    from wpriv.cli import comparison_output, terminal
    from wpriv.run import flag_recipes, load_recipe
    from wpriv.run.comparison import compare

    mode = flags.output(json=as_json, csv=as_csv, quiet=quiet)
    if recipe is not None:
        flags.no_flags(recipe, job, history=history, observed=observed, sweep=sweep, figure=figure, why=why)
        asked = load_recipe.recipe(recipe, quick=quick, kind="compare")
        out = out or compare.default_out(asked)
    elif quick or not (any(vars(job).values()) or history or observed or sweep or figure or why):
        raise UsageError(
            "compare takes a recipe (`wpriv recipe ls` lists them), or a job in flags, as in --mech gauss --sigma 4"
        )
    elif why:
        others = {
            "history": history,
            "observed": observed,
            "accountant": job.accountant,
            "sweep": sweep,
            "figure": figure,
            "out": out,
            "fresh": fresh,
        }
        if given := [name for name, value in others.items() if value]:
            raise UsageError(f"--why reads one mechanism in its own set of ways; leave out --{given[0]}")
        comparison_output.why(
            compare.readings({"mech": job.mech, **job.params(), **job.schedule()}, **job.question()), mode
        )
        return
    else:
        axes = [flag_recipes.sweep(text) for text in sweep or []]
        asked = flag_recipes.from_flags(_recipe(job, history, observed, axes, flags.folded(figure)))
        if figure is not None and out is None:
            raise UsageError("--figure is drawn into the folder of the results; give --out DIR")
    with contextlib.nullcontext() if quiet else terminal.counting("cells") as progress:
        done = compare.run(asked, out, fresh=fresh, progress=progress)
    comparison_output.comparison(done, mode)
    done.require()


def _recipe(
    job: flags.Job, history: str | None, observed: str | None, axes: list[dict[str, Any]], figure: str | None
) -> dict[str, Any]:
    """The keys of a recipe that the flags amount to."""
    from wpriv.run import flag_recipes

    data: dict[str, Any] = {**job.question(), "accountants": job.accountant or ["all"]}
    data |= {key: value for key, value in (("figure", figure), ("sweep", axes)) if value}
    swept = [axis["over"] for axis in axes]
    return data | flag_recipes.steps_of_flags(
        job.mech, job.params(), job.schedule(), job.adjacency, history, swept, observed
    )
