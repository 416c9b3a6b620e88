"""wpriv calibrate"""

from __future__ import annotations

from wpriv import spec
from wpriv.cli import flags
from wpriv.cli.parsing import option, switch
from wpriv.errors import UsageError


@flags.with_job
def command(
    job: flags.Job,
    words: list[str] | None = flags.WORDS,
    history: flags.Text = flags.HISTORY,
    adaptive: bool = switch(
        "--adaptive", "With --history: the further steps are decided from what the history showed."
    ),
    repeats: flags.Text = flags.REPEATS,
    advantage: flags.Text = option(
        "X", "Target in place of eps and delta: TPR - FPR of any membership attack at most X."
    ),
    tpr: flags.Text = option("X", "Target: TPR of any membership attack at most X, at the rate --fpr."),
    fpr: flags.Text = option("Y", "The false-positive rate of --tpr, or the smallest of --mu (1e-9)."),
    max_mu: flags.Text = option(
        "X", "Target: mu of Gaussian DP at most X, for error rates of at least --fpr.", "--mu", "--max-mu"
    ),
    compare_classical: bool = switch(
        "--compare-classical", "For Gaussian and Laplace noise: add what older formulas ask for."
    ),
    certificate: str | None = flags.CERTIFICATE,
    as_json: bool = flags.JSON,
    as_csv: bool = flags.CSV,
    quiet: bool = flags.QUIET,
    explain: bool = flags.EXPLAIN,
) -> None:
    """Solve for the least noise that meets a target, or for the largest n or rate.

    The parameter that is not given is solved for: the noise; with the noise given n; with both given the rate. The
    answer is rounded to the safe side, and the guarantee is that of the rounded value. With --history, the target is
    that of the history and the further steps together.

    wpriv calibrate --mech gauss --eps 1 --delta 1e-5 --n 1000

    wpriv calibrate "gauss n=1000 sigma=?" --eps 1 --delta 1e-5

    wpriv calibrate --mech gauss --sigma 4 --sampling poisson --batch 256 --records 60000 --eps 1 --delta 1e-5

    wpriv calibrate --mech gauss --advantage 0.1 --n 10 --quiet
    """
    from wpriv.accounting import basis
    from wpriv.accounting.calibrate import calibrate
    from wpriv.cli import guarantee_output, output

    mode = flags.output(json=as_json, csv=as_csv, quiet=quiet, explain=explain)
    spec.check(certificate=certificate, adaptive=adaptive, repeats=repeats, tpr=tpr, max_mu=max_mu)
    if job.several:
        raise UsageError("calibrate uses one accountant; give --accountant once, with one name")
    recipe, steps, job = flags.subject(words, job, solves=True)
    if steps:
        raise UsageError(
            f"calibrate solves for one step; found {len(steps)} in words. Put those that ran before into a file of "
            f"--history, and leave the noise or n of the last one out"
        )
    attacks = {"advantage": advantage, "tpr": tpr, "fpr": fpr, "max_mu": max_mu}
    if recipe is None:
        question = {**job.question(), **flags.numbers(**attacks), "history": history, "repeats": repeats}
        arguments = {**job.described(), **question}
        arguments["accountant"] = job.accountant[0] if job.accountant else None
    else:
        from wpriv.accounting import load_recipe

        flags.no_flags(recipe, job, history=history, adaptive=adaptive, repeats=repeats, **attacks)
        arguments = load_recipe.calibrate(recipe)
    output.doing("calibrating")
    row = calibrate(**arguments, adaptive=adaptive, compare_classical=compare_classical).guarantee
    if explain:
        row = row.with_extra(explain=basis.explain(row))
    output.print_with_certificate(lambda: guarantee_output.print_guarantee(row, mode), lambda: row, certificate)
