"""wpriv budget"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from wpriv.cli import flags
from wpriv.errors import UsageError

Curve = Annotated[bool, typer.Option("--curve", help="A table of 41 points, up to --eps or down to --delta (1e-10).")]
MaxEps = Annotated[flags.Text, typer.Option("--max-eps", metavar="X", help="Exit with 1 where eps exceeds X.")]
Tol = Annotated[flags.Text, typer.Option("--tol", metavar="X", help="Relative width of a certified bracket (default 1e-3).")]


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
    history: flags.History = None,
    observed: flags.Observed = None,
    adjacency: flags.Adjacency = None,
    eps: flags.Eps = None,
    delta: flags.Delta = None,
    accountant: flags.Accountant = None,
    tol: Tol = None,
    curve: Curve = False,
    max_eps: MaxEps = None,
    as_json: flags.Json = False,
    as_csv: flags.Csv = False,
    quiet: flags.Quiet = False,
    explain: flags.Explain = False,
) -> None:
    """What a process costs: eps at --delta, delta at --eps, or the whole curve.

    wpriv budget --mech gauss --sigma 4 --sampling poisson --rate 0.01 --n 65536 --delta 1e-4
    """
    from wpriv.run import build

    mode = flags.output(json=as_json, csv=as_csv, quiet=quiet, explain=explain)
    limit = flags.numbers(max_eps=max_eps)["max_eps"]
    if limit is not None and (delta is None or curve):
        raise UsageError("--max-eps is about the eps at one --delta; give --delta, and no --curve")
    if curve and (quiet or explain):
        raise UsageError("--curve is a table; leave out --quiet and --explain")
    names = accountant or ["pld"]
    if (quiet or curve) and (len(names) > 1 or names == ["all"]):
        raise UsageError("--quiet and --curve show one accountant; give one --accountant")
    question = flags.numbers(eps=eps, delta=delta) | (flags.numbers(tol=tol) if tol is not None else {})
    size = None if records is None else build.whole(records, "--records")
    params = flags.params(param, sigma=sigma, scale=scale, sensitivity=sensitivity)
    schedule: dict[str, Any] = {"n": n, "sampling": sampling, "rate": rate, "batch": batch, "records": size, "epochs": epochs}
    job = build.job(mech, params=params, **schedule, adjacency=adjacency, history=history, observed=observed)
    if curve:
        _curve(job, names[0], question, mode)
    else:
        _answer(job, names, question, size, limit, mode, explain)


def _curve(job: Any, name: str, question: dict[str, Any], mode: str) -> None:
    from wpriv.cli import show
    from wpriv.run import budget

    show.points(budget.curve(job, name, **question), mode)


def _answer(job: Any, names: list[str], question: dict[str, Any], size: int | None, limit: float | None, mode: str, explain: bool) -> None:
    from wpriv.cli import show
    from wpriv.run import budget, price

    single = len(names) == 1 and names != ["all"]
    if single:
        row = budget.answer(job, names[0], attack=mode in ("text", "json"), **question)
        found = budget.Table([price.with_warnings(row, budget.implausible(row, size))], [])
    else:
        found = budget.table(job, names, **question)
    rows = [_explained(row) for row in found.rows] if explain else found.rows
    if single:
        show.one(rows[0], mode)
    else:
        show.several(rows, [{"accountant": r.accountant, "reason": r.reason} for r in found.refused], mode)
    if limit is not None:
        budget.check_max_eps(job, rows, limit)


def _explained(row: Any) -> Any:
    from wpriv.run.explain import explain

    return row.with_extra(explain=explain(row))
