"""wpriv budget"""

from __future__ import annotations

from typing import Any

from wpriv import spec
from wpriv.cli import flags
from wpriv.cli.parsing import option, switch
from wpriv.errors import UsageError

TRADE_OFF = ("tradeoff", "trade-off")


@flags.with_job
def command(
    job: flags.Job,
    words: list[str] | None = flags.WORDS,
    history: flags.Text = flags.HISTORY,
    observed: flags.Text = flags.OBSERVED,
    curve: bool = switch(
        "--curve",
        "Print 41 points of the privacy curve, up to --eps or down to --delta (default 1e-10); "
        "--curve tradeoff prints that of false-positive and false-negative rates, down to --fpr.",
    ),
    mu: bool = switch("--mu", "Give mu of Gaussian DP, for false-positive and -negative rates down to --fpr."),
    fpr: flags.Text = option("X", "With --mu or --curve tradeoff: the smallest rate (default 1e-9)."),
    max_eps: flags.Text = option("X", "Exit with 1 where eps exceeds X; only guarantees of (eps, delta)-DP can pass."),
    adaptive: bool = switch(
        "--adaptive", "Give the guarantee that holds if noise, rates or the number of steps depend on earlier outputs."
    ),
    certificate: str | None = flags.CERTIFICATE,
    repeats: flags.Text = flags.REPEATS,
    as_json: bool = flags.JSON,
    as_csv: bool = flags.CSV,
    quiet: bool = flags.QUIET,
    explain: bool = flags.EXPLAIN,
) -> None:
    """Compute the privacy cost of a process: eps at --delta, delta at --eps, or the whole curve.

    wpriv budget --mech gauss --sigma 4 --sampling poisson --rate 0.01 --n 65536 --delta 1e-4

    wpriv budget --mech laplace --scale 20 --n 1000 --eps 3 --quiet

    wpriv budget --mech gauss --sigma 4 --n 10 --curve

    wpriv budget "gauss sigma=4 n=10 poisson 0.01 + laplace scale=20 n=5" --delta 1e-5
    """
    mode = flags.output(json=as_json, csv=as_csv, quiet=quiet, explain=explain)
    limit = flags.numbers(max_eps=max_eps)["max_eps"]
    first, *rest = words or [""]
    if mu and _is_number(first):
        raise UsageError(
            f"--mu asks for mu, and takes no value; found {first}. Noise of a given mu is --mech gdp --param "
            f"mu={first}, or --mech gauss with --sigma sensitivity / mu"
        )
    trade_off = curve and first in TRADE_OFF
    recipe, steps, job = flags.subject(rest if trade_off else words, job, history=history)
    if recipe is None:
        names, question = job.accountant, dict[str, Any](job.question())
        question |= {} if repeats is None else {"repeats": repeats}
        process = flags.process(steps, job, history=history, observed=observed)
    else:
        from wpriv.accounting import load_recipe

        flags.no_flags(recipe, job, history=history, observed=observed, repeats=repeats)
        process, names, question = load_recipe.budget(recipe)
    if not names:
        process, name = process.by("pld" if adaptive else None)
        names = [name]
    measure = flags.numbers(fpr=fpr) | {"with_mu": mu}
    several = flags.several(names)
    spec.check(
        **{"eps": None, "delta": None, "repeats": None} | question | measure,
        **{"curve": curve, "trade_off": trade_off, "adaptive": adaptive, "max_eps": limit, "certificate": certificate},
        **{"quiet": quiet, "explain": explain, "several": several, "accountant": names != ["pld"]},
    )
    if mu and several and {"eps", "delta"} & question.keys():
        raise UsageError("--mu beside --eps or --delta is that of one accountant; give --accountant once")
    from wpriv.accounting import budget, membership_figures
    from wpriv.cli import guarantee_output

    if trade_off:
        rows = membership_figures.trade_off_rows(process.process, names[0], measure["fpr"], question.get("tol"))
        guarantee_output.print_trade_off(rows, process, names[0], mode)
    elif curve:
        guarantee_output.print_curve(budget.along_eps(process, names[0], **question), mode)
    else:
        asked = {**question, **measure, "adaptive": adaptive}
        guarantee_output.print_answer(process, names, asked, limit, mode, explain, certificate)


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True
