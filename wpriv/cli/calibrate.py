"""wpriv calibrate"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from wpriv.cli import flags
from wpriv.errors import UsageError

Classical = Annotated[bool, typer.Option("--compare-classical", help="For gauss: add the sigmas of older formulas.")]
Tol = Annotated[flags.Text, typer.Option("--tol", metavar="X", help="Relative width of a certified bracket (default 1e-4).")]


def command(
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
    adjacency: flags.Adjacency = None,
    eps: flags.Eps = None,
    delta: flags.Delta = None,
    accountant: flags.Accountant = None,
    tol: Tol = None,
    compare_classical: Classical = False,
    as_json: flags.Json = False,
    as_csv: flags.Csv = False,
    quiet: flags.Quiet = False,
    explain: flags.Explain = False,
) -> None:
    """Solve for what a target allows: the least noise, or the largest n or rate.

    What is left out is solved for: the noise; with the noise given n; with both given the rate. The answer is rounded to the safe
    side and was priced as printed.

    wpriv calibrate --mech gauss --eps 1 --delta 1e-5 --n 1000
    """
    from wpriv.cli import show
    from wpriv.run.calibrate import calibrate

    mode = flags.output(json=as_json, csv=as_csv, quiet=quiet, explain=explain)
    if eps is None or delta is None:
        raise UsageError("calibrate needs a target: give both --eps and --delta")
    names = accountant or ["pld"]
    if len(names) > 1 or names == ["all"]:
        raise UsageError("calibrate solves by one accountant; give one --accountant")
    job: dict[str, Any] = {
        "accountant": names[0],
        "n": n,
        "sampling": sampling,
        "rate": rate,
        "batch": batch,
        "records": records,
        "epochs": epochs,
        "adjacency": adjacency,
        "compare_classical": compare_classical,
    }
    job |= flags.numbers(eps=eps, delta=delta) | (flags.numbers(tol=tol) if tol is not None else {})
    row = calibrate(mech, **job, **flags.params(param, sigma=sigma, scale=scale, sensitivity=sensitivity))
    if explain:
        from wpriv.run.explain import explain as explained

        row = row.with_extra(explain=explained(row))
    show.one(row, mode)
