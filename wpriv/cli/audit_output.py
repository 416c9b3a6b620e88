"""Print the answer of an audit."""

from __future__ import annotations

import os

from wpriv.cli import guarantee_output, output
from wpriv.numerics.safe_rounding import text
from wpriv.run.audit.audit import CONSISTENT, POWERLESS, VIOLATED, Audit
from wpriv.run.audit.coin_tests import CONFIDENCE

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
