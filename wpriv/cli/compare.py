"""wpriv compare"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from wpriv.cli import flags
from wpriv.errors import UsageError

Recipe = Annotated[str | None, typer.Argument(metavar="[RECIPE]", help="A recipe: a path, or a shipped one as plc/fig7-dpsgd.")]
Sweep = Annotated[
    list[str] | None, typer.Option("--sweep", metavar="NAME=VALUES", help="An axis: n=64,256 or eps=linspace:0,4,81 (geomspace, powers).")
]
Out = Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Where results go (a recipe's default: results/<name>).")]
Quick = Annotated[bool, typer.Option("--quick", help="Apply the recipe's quick overrides: a small grid.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Compute again, replacing what DIR holds.")]
Why = Annotated[bool, typer.Option("--why", help="The same job under every reading, with the assumption that moves each figure.")]
Figure = Annotated[str | None, typer.Option("--figure", metavar="NAME", help="The figure to draw, instead of the natural one.")]
Tol = Annotated[flags.Text, typer.Option("--tol", metavar="X", help="Relative width of a certified bracket (default 1e-3).")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print no table: files and exit code say it all.")]


def command(
    recipe: Recipe = None,
    mech: flags.Mech = None,
    sigma: flags.Sigma = None,
    scale: flags.Scale = None,
    param: flags.Param = None,
    sensitivity: flags.Sensitivity = None,
    n: flags.N = None,
    epochs: flags.Epochs = None,
    sampling: flags.SamplingKind = "none",
    rate: flags.Rate = None,
    batch: flags.Batch = None,
    records: flags.Records = None,
    history: flags.History = None,
    observed: flags.Observed = None,
    adjacency: flags.Adjacency = None,
    eps: flags.Eps = None,
    delta: flags.Delta = None,
    accountant: flags.Accountant = None,
    tol: Tol = None,
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
    from wpriv.cli import tables
    from wpriv.run import compare, read

    mode = flags.output(json=as_json, csv=as_csv, quiet=quiet)
    schedule = {"n": n, "epochs": epochs, "rate": rate, "batch": batch, "records": records}
    params = flags.params(param, sigma=sigma, scale=scale, sensitivity=sensitivity)
    asked = flags.numbers(eps=eps, delta=delta, tol=tol)
    others = {
        "mech": mech,
        **params,
        **schedule,
        **asked,
        "history": history,
        "observed": observed,
        "adjacency": adjacency,
        "figure": figure,
    }
    others |= {"accountant": accountant, "sweep": sweep, "sampling": None if sampling == "none" else sampling, "why": why or None}
    given = [name.replace("_", "-") for name, value in others.items() if value is not None]
    if recipe is not None:
        if given:
            raise UsageError(f"a recipe says itself what to compare; leave out --{given[0]}, or leave out the recipe")
        job = read.recipe(recipe, quick=quick)
        done = compare.run(job, out or compare.default_out(job), fresh=fresh, progress=compare.on_terminal)
    elif quick or not given:
        raise UsageError("compare takes a recipe (`wpriv recipe ls` lists them), or a job in flags, as in --mech gauss --sigma 4")
    elif why:
        tables.why(compare.readings({"mech": mech, **params, **schedule}, history=history, **asked), mode)
        return
    else:
        data: dict[str, Any] = {k: v for k, v in {**asked, "figure": figure}.items() if v is not None}
        axes = [read.sweep(text) for text in sweep or []]
        data |= {"sweep": axes, "accountants": accountant or ["all"]} if axes else {"accountants": accountant or ["all"]}
        data |= read.steps_of_flags(mech, params, schedule, sampling, adjacency, history, [axis["over"] for axis in axes], observed)
        done = compare.run(read.from_flags(data), out, fresh=fresh, progress=compare.on_terminal)
    tables.comparison(done, mode)
    done.require()
