"""wpriv budget"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from wpriv.cli import flags
from wpriv.errors import UsageError

Curve = Annotated[
    bool,
    typer.Option(
        "--curve",
        help="Print 41 points of the privacy curve, up to --eps or down to --delta (default 1e-10); "
        "--curve tradeoff prints that of false-positive and false-negative rates, down to --fpr.",
    ),
]
Mu = Annotated[
    bool,
    typer.Option("--mu", help="Give mu of Gaussian DP, for false-positive and -negative rates down to --fpr."),
]
Fpr = Annotated[
    flags.Text,
    typer.Option("--fpr", metavar="X", help="With --mu or --curve tradeoff: the smallest rate (default 1e-9)."),
]
TRADE_OFF = ("tradeoff", "trade-off")
MaxEps = Annotated[
    flags.Text,
    typer.Option(
        "--max-eps", metavar="X", help="Exit with 1 where eps exceeds X; only guarantees of (eps, delta)-DP can pass."
    ),
]
Adaptive = Annotated[
    bool,
    typer.Option(
        "--adaptive",
        help="Give the guarantee that holds if noise, rates or the number of steps depend on earlier outputs.",
    ),
]


@flags.with_job
def command(
    job: flags.Job,
    recipe: flags.Recipe = None,
    history: flags.History = None,
    observed: flags.Observed = None,
    curve: Curve = False,
    mu: Mu = False,
    fpr: Fpr = None,
    max_eps: MaxEps = None,
    adaptive: Adaptive = False,
    certificate: flags.Certificate = None,
    repeats: flags.Repeats = None,
    as_json: flags.Json = False,
    as_csv: flags.Csv = False,
    quiet: flags.Quiet = False,
    explain: flags.Explain = False,
) -> None:
    """Compute the privacy cost of a process: eps at --delta, delta at --eps, or the whole curve.

    wpriv budget --mech gauss --sigma 4 --sampling poisson --rate 0.01 --n 65536 --delta 1e-4
    """
    from wpriv.run.accounting import build_process

    mode = flags.output(json=as_json, csv=as_csv, quiet=quiet, explain=explain)
    limit = flags.numbers(max_eps=max_eps)["max_eps"]
    if mu and recipe is not None and _is_number(recipe):
        raise UsageError(
            f"--mu asks for mu, and takes no value; found {recipe}. Noise of a given mu is --mech gdp --param "
            f"mu={recipe}, or --mech gauss with --sigma sensitivity / mu"
        )
    trade_off = curve and recipe in TRADE_OFF
    if recipe is None or trade_off:
        names, question = job.accountant or ["pld"], dict[str, Any](job.question())
        question |= {} if repeats is None else {"repeats": repeats}
        process = build_process.described_process(
            job.mech,
            params=job.params(),
            **job.schedule(),
            adjacency=job.adjacency,
            group=job.group,
            history=history,
            observed=observed,
        )
    else:
        from wpriv.run import load_recipe

        flags.no_flags(recipe, job, history=history, observed=observed, repeats=repeats)
        process, names, question = load_recipe.budget(recipe)
    if limit is not None and ("delta" not in question or curve):
        raise UsageError("--max-eps limits the eps at one delta; give --delta, and leave out --curve")
    if curve and (quiet or explain):
        raise UsageError(f"--curve prints a table; leave out --{'quiet' if quiet else 'explain'}")
    if (quiet or curve) and (len(names) > 1 or names == ["all"]):
        raise UsageError(f"--{'quiet' if quiet else 'curve'} shows one accountant; give --accountant once")
    if adaptive and (curve or names != ["pld"]):
        raise UsageError(
            "--adaptive has an accountant of its own and gives one number; leave out --curve and --accountant"
        )
    if certificate is not None and (curve or adaptive or repeats or mu or len(names) > 1 or names == ["all"]):
        raise UsageError(
            "--certificate holds one answer for fixed parameters; leave out --curve, --adaptive, --repeats and --mu, "
            "and give --accountant once"
        )
    measure = _measure(mu, flags.numbers(fpr=fpr)["fpr"], trade_off)
    if mu and (curve or adaptive or repeats):
        other = "curve" if curve else "adaptive" if adaptive else "repeats"
        raise UsageError(f"--mu gives one number of a single run; leave out --mu or --{other}")
    if mu and len({*names, *(("two",) if "all" in names else ())}) > 1 and {"eps", "delta"} & question.keys():
        raise UsageError("--mu beside --eps or --delta is that of one accountant; give --accountant once")
    if trade_off and repeats:
        raise UsageError("--curve tradeoff is that of a single run; leave out --repeats")
    if trade_off:
        _print_trade_off(process, names[0], question, measure, mode)
    elif curve:
        _print_curve(process, names[0], question, mode)
    else:
        question |= measure | ({"adaptive": True} if adaptive else {})
        _print_answer(process, names, question, limit, mode, explain, certificate)


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _measure(mu: bool, fpr: float | None, trade_off: bool) -> dict[str, Any]:
    """The keywords about mu and the smallest false-positive rate."""
    if fpr is not None and not (mu or trade_off):
        raise UsageError("--fpr is the smallest false-positive rate for --mu or --curve tradeoff; give one of them")
    return ({"with_mu": True} if mu else {}) | ({} if fpr is None else {"fpr": fpr})


def _print_trade_off(process: Any, name: str, question: dict[str, Any], measure: dict[str, Any], mode: str) -> None:
    from wpriv.cli import guarantee_output
    from wpriv.run.accounting import membership_figures

    if {"eps", "delta"} & question.keys():
        raise UsageError("--curve tradeoff has no eps and no delta; leave out --eps and --delta, and give --fpr")
    rows = membership_figures.trade_off_rows(process.process, name, **measure, tol=question.get("tol"))
    guarantee_output.print_trade_off(rows, process, name, mode)


def _print_curve(process: Any, name: str, question: dict[str, Any], mode: str) -> None:
    from wpriv.cli import guarantee_output
    from wpriv.run.accounting import tabulate

    guarantee_output.print_curve(tabulate.along_eps(process, name, **question), mode)


def _print_answer(
    process: Any, names: list[str], question: dict[str, Any], limit: float | None, mode: str, explain: bool, file: Any
) -> None:
    from wpriv.cli import guarantee_output, output
    from wpriv.run.accounting import budget, evaluate, gate, plausibility, tabulate

    single = len(names) == 1 and names != ["all"]
    if single:
        # with a limit on eps, the gate says that a figure without a delta is no guarantee
        row = budget.answer(
            process, names[0], attack=mode in ("text", "json"), beside_others=limit is not None, **question
        )
        answers = tabulate.AnswerTable([row], [])
    else:
        answers = tabulate.by_accountants(process, names, **question)
    rows = answers.rows if limit is None else gate.narrow_to_decide(process, answers.rows, limit, question.get("tol"))
    rows = [evaluate.with_warnings(row, plausibility.plausibility_warnings(row, process.records)) for row in rows]
    rows = [_explained(row) for row in rows] if explain else rows

    def show() -> None:
        if single:
            guarantee_output.print_guarantee(rows[0], mode, limit)
            return
        refused = [{"accountant": refusal.accountant, "reason": refusal.reason} for refusal in answers.refused]
        guarantee_output.print_guarantees(rows, refused, mode, limit)

    output.print_with_certificate(show, lambda: rows[0], file)
    if limit is not None:
        gate.check_max_eps(rows, limit)


def _explained(row: Any) -> Any:
    from wpriv.run.accounting.explain import explain

    return row.with_extra(explain=explain(row))
