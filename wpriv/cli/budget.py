"""wpriv budget"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from wpriv.cli import flags
from wpriv.errors import UsageError

Curve = Annotated[bool, typer.Option("--curve", help="A table of 41 points, up to --eps or down to --delta (1e-10).")]
MaxEps = Annotated[
    flags.Text,
    typer.Option(
        "--max-eps",
        metavar="X",
        help="Exit with 1 where eps exceeds X; guarantees of (eps, delta)-DP alone are decided on.",
    ),
]


Adaptive = Annotated[
    bool,
    typer.Option("--adaptive", help="What holds where noise, rates or the number of steps depend on earlier outputs."),
]


@flags.with_job
def command(
    job: flags.Job,
    recipe: flags.Recipe = None,
    history: flags.History = None,
    observed: flags.Observed = None,
    curve: Curve = False,
    max_eps: MaxEps = None,
    adaptive: Adaptive = False,
    as_json: flags.Json = False,
    as_csv: flags.Csv = False,
    quiet: flags.Quiet = False,
    explain: flags.Explain = False,
) -> None:
    """What a process costs: eps at --delta, delta at --eps, or the whole curve.

    wpriv budget --mech gauss --sigma 4 --sampling poisson --rate 0.01 --n 65536 --delta 1e-4
    """
    from wpriv.run.accounting import build_process

    mode = flags.output(json=as_json, csv=as_csv, quiet=quiet, explain=explain)
    limit = flags.numbers(max_eps=max_eps)["max_eps"]
    if recipe is None:
        names, question = job.accountant or ["pld"], job.question()
        made = build_process.described_process(
            job.mech, params=job.params(), **job.schedule(), adjacency=job.adjacency, history=history, observed=observed
        )
    else:
        from wpriv.run import load_recipe

        flags.no_flags(recipe, job, history=history, observed=observed)
        made, names, question = load_recipe.budget(recipe)
    if limit is not None and ("delta" not in question or curve):
        raise UsageError("--max-eps is about the eps at one --delta; give --delta, and no --curve")
    if curve and (quiet or explain):
        raise UsageError("--curve is a table; leave out --quiet and --explain")
    if (quiet or curve) and (len(names) > 1 or names == ["all"]):
        raise UsageError("--quiet and --curve show one accountant; give one --accountant")
    if adaptive and (curve or names != ["pld"]):
        raise UsageError(
            "--adaptive answers one question by an accountant of its own; leave out --curve and --accountant"
        )
    if curve:
        _curve(made, names[0], question, mode)
    else:
        _answer(made, names, question | ({"adaptive": True} if adaptive else {}), limit, mode, explain)


def _curve(job: Any, name: str, question: dict[str, Any], mode: str) -> None:
    from wpriv.cli import guarantee_output
    from wpriv.run.accounting import tabulate

    guarantee_output.points(tabulate.along_eps(job, name, **question), mode)


def _answer(
    job: Any, names: list[str], question: dict[str, Any], limit: float | None, mode: str, explain: bool
) -> None:
    from wpriv.cli import guarantee_output
    from wpriv.run.accounting import budget, evaluate, gate, plausibility, tabulate

    single = len(names) == 1 and names != ["all"]
    if single:
        answers = tabulate.AnswerTable([budget.answer(job, names[0], attack=mode in ("text", "json"), **question)], [])
    else:
        answers = tabulate.by_accountants(job, names, **question)
    rows = answers.rows if limit is None else gate.narrow_to_decide(job, answers.rows, limit, question.get("tol"))
    rows = [evaluate.with_warnings(row, plausibility.plausibility_warnings(row, job.records)) for row in rows]
    rows = [_explained(row) for row in rows] if explain else rows
    if single:
        guarantee_output.one(rows[0], mode, limit)
    else:
        guarantee_output.several(
            rows, [{"accountant": r.accountant, "reason": r.reason} for r in answers.refused], mode, limit
        )
    if limit is not None:
        gate.check_max_eps(rows, limit)


def _explained(row: Any) -> Any:
    from wpriv.run.accounting.explain import explain

    return row.with_extra(explain=explain(row))
