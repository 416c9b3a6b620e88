"""wpriv check"""

from __future__ import annotations

from collections.abc import Mapping

from wpriv.cli import flags, output
from wpriv.cli.parsing import argument, option
from wpriv.errors import CheckFailed, Unsupported, UsageError
from wpriv.numerics.numbers import exponents

SCHEMA = "wpriv.check/1"


def command(
    what: str = argument(
        "FILE|FOLDER|RECIPE",
        "A checkpoint, a history, a log or a folder of any known library, or a YAML of premises (kind: check); "
        "`wpriv list readers` shows what is read.",
    ),
    premise: list[str] | None = option(
        "FIELD=VALUE", "Declare a premise, such as sampling.kind=poisson; repeatable. `wpriv list premises` shows all."
    ),
    eps: flags.Text = option("X", "The claimed eps, where the file does not have it."),
    delta: flags.Text = option("X", "The delta of the claim, where the file does not have it."),
    as_json: bool = flags.JSON,
) -> None:
    """Check the claim of anyone's run: proved, refuted, contradicted, or incomplete with what is missing.

    Nothing is unpickled. What is read beats what is declared.

    Exit codes: 0 proved; 1 refuted or contradicted; 2 a premise or the file is faulty; 3 incomplete.

    wpriv check run/checkpoint.pt --delta 1e-5 --premise sampling.kind=poisson

    wpriv check premises.yaml

    wpriv check claims/libraries/f01-shuffled-loader
    """
    from wpriv.checks.check import check
    from wpriv.checks.premises import declared

    given = {fact.field: fact.value for fact in declared(premise or ())}
    numbers = flags.numbers(eps=eps, delta=delta)
    verdict = check(what, eps=numbers["eps"], delta=numbers["delta"], premises=given)
    if as_json:
        output.emit_result(SCHEMA, **verdict.as_dict())
    else:
        first, *lines = map(exponents, verdict.lines())
        output.emit(output.coloured(first, bold=True), *lines)
    if verdict.exit_code == CheckFailed.exit_code:
        raise CheckFailed(verdict.failure())
    if verdict.exit_code:
        raise Unsupported(verdict.failure())


def compare_checks(name: str, job: flags.Job, others: Mapping[str, object], mode: str) -> None:
    """Check all recipes of kind check in a folder, print one table, and set the exit code.

    Raises:
        UsageError: there is none, or a flag has no place here. CheckFailed: a verdict or an eps is another one.
    """
    from wpriv.checks import bank
    from wpriv.results.storage import csv_text

    given = [key for key, value in {**vars(job), **others}.items() if value]
    files = bank.files_of(name)
    if not files:
        raise UsageError(
            f"{name} has no recipes of kind check; `wpriv compare FOLDER` puts those of a folder in a table"
        )
    bank.refuse_others(name, given)
    with output.counting("claims") as progress:
        rows = bank.check_all(files, progress)
    if mode == "json":
        output.emit_rows([row.as_dict() for row in rows], SCHEMA)
    elif mode == "csv":
        output.emit(csv_text([row.as_dict() for row in rows]).rstrip("\n"))
    elif mode == "text":
        output.emit_bold(bank.total(rows))
        output.emit("")
        body = [[row.name, row.printed(), row.truth(), row.words()] for row in rows]
        corrected = [f" (corrected: {row.about.corrected})" if row.about.corrected else "" for row in rows]
        notes = [
            f"{row.about.title or row.verdict.sentence()}{more}" for row, more in zip(rows, corrected, strict=True)
        ]
        output.emit_table(["claim of", "printed eps", "eps of what ran", "verdict"], body, notes=notes)
    bank.require_expected(name, rows)
