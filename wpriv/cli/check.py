"""wpriv check"""

from __future__ import annotations

from typing import Annotated

from wpriv.cli import flags, output
from wpriv.cli.parsing import argument, option
from wpriv.errors import CheckFailed, Unsupported
from wpriv.numerics.numbers import exponents

SCHEMA = "wpriv.check/1"
What = Annotated[
    str,
    argument(
        "FILE|FOLDER|RECIPE",
        "A checkpoint, a history, a log or a folder of any known library, or a YAML of premises (kind: check); "
        "`wpriv list readers` shows what is read.",
    ),
]
Premise = Annotated[
    list[str] | None,
    option(
        "FIELD=VALUE",
        "Declare a premise, such as sampling.kind=poisson; repeatable. `wpriv list premises` shows all.",
        "--premise",
    ),
]
Eps = Annotated[flags.Text, option("X", "The claimed eps, where the file does not have it.", "--eps")]
Delta = Annotated[flags.Text, option("X", "The delta of the claim, where the file does not have it.", "--delta")]


def command(
    what: What, premise: Premise = None, eps: Eps = None, delta: Delta = None, as_json: flags.Json = False
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
        lines = [f"{label}: {words}" for label, words in verdict.facts()]
        lines += [f"wpriv: {verdict.failure()}"] if verdict.exit_code else []
        output.emit(output.coloured(exponents(verdict.sentence()), bold=True), *map(exponents, lines))
    if verdict.exit_code == CheckFailed.exit_code:
        raise CheckFailed(verdict.failure())
    if verdict.exit_code:
        raise Unsupported(verdict.failure())
