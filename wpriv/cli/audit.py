"""Print the answer of an audit."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from wpriv.cli import flags, guarantee_output, output, train
from wpriv.cli.parsing import option
from wpriv.errors import UsageError
from wpriv.numerics.numbers import text
from wpriv.training.audit.audit import CONSISTENT, POWERLESS, VIOLATED, Audit
from wpriv.training.audit.coin_tests import CONFIDENCE

VERDICTS = {
    VIOLATED: "the audit's lower bound exceeds the certified upper end",
    CONSISTENT: "the audit's lower bound does not exceed the certified upper end",
    POWERLESS: "no outcome of this audit could have exceeded the certified upper end",
}


def print_audit(result: Audit, as_json: bool) -> None:
    """Print the certified bracket, the audit's lower bound and the verdict, as text or as one JSON object."""
    answer = result.as_dict()
    if as_json:
        output.emit_json({**answer, "files": [str(path) for path in result.files]})
        return
    certified, best = result.certified, result.best
    at_least = text(best.epsilon_at_least, up=False)
    delta = text(certified.delta.safe, up=False)  # a lower bound of eps at one delta holds at smaller ones too
    canaries = "1 canary" if result.canaries == 1 else f"{result.canaries} canaries"
    output.emit_bold(
        f"{result.verdict}: {VERDICTS[result.verdict]}",
        f"certified: {guarantee_output.headline(certified)}",
        f"audit: eps at least {at_least} at delta = {delta} with {CONFIDENCE:.0%} confidence "
        f"(statistical, not a guarantee)",
        f"ceiling: eps at least {text(result.ceiling, up=False)}, for a training without any noise",
        f"method: {result.method}, {result.runs} run{'s' * (result.runs != 1)} of {canaries}",
    )
    rows = [
        [test.statistic, str(test.guesses), str(test.correct), text(test.epsilon_at_least, up=False)]
        for test in result.tests
    ]
    output.emit_table(["statistic", "guesses", "correct", "eps at least"], rows)
    output.warn(answer["warnings"])
    if result.files:
        folder = result.files[0].parent
        output.say("wrote", f"{folder}{os.sep} {', '.join(path.name for path in result.files)}")


# wpriv audit


def command(
    recipe: train.Recipe,
    method: Annotated[
        str, option("NAME", "one-run (many canaries) or two-worlds (many runs, one canary each).")
    ] = "one-run",
    canaries: Annotated[
        int | None, option("M", "Canaries of each run (default 2000, at most one for each weight).")
    ] = None,
    runs: Annotated[int | None, option("R", "Number of trainings (default 1; for two-worlds 200).")] = None,
    device: train.Device = "cpu",
    out: Annotated[Path | None, option("DIR", "Folder of the results (default results/<name>-audit).")] = None,
    changes: train.Set = None,
    quick: train.Quick = False,
    data_root: train.Root = None,
    as_json: flags.Json = False,
) -> None:
    """Train with canaries and bound eps from below at 95% confidence, beside the certified bracket.

    Exit code 1 where the lower bound exceeds the certified upper end: the training is not as private as certified.
    Exit code 3 where no outcome could have exceeded it: more canaries, or more runs, are needed.

    wpriv audit quick/digits

    wpriv audit dpsgd/mnist --canaries 10000 --device cuda
    """
    # idle threads of torch would spin on processors that other jobs could use
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from wpriv.cli import output
    from wpriv.training import train as training
    from wpriv.training.audit import audit

    if device not in ("cpu", "cuda"):
        raise UsageError(f"--device must be cpu or cuda; found {device!r}")
    loaded = training.recipe_of(recipe, quick=quick, changes=train.changed_keys(changes or []))
    default = training.default_out(loaded)
    folder = out or default.with_name(f"{default.name}-audit")
    with output.counting("audit") as counting:
        result = audit.run(
            loaded,
            folder,
            method=flags.folded(method) or method,
            canaries=canaries,
            runs=runs,
            device=device,
            root=data_root,
            counting=counting,
        )
    print_audit(result, as_json)
    result.require()
    result.require_power()
