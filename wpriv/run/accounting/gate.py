"""Decide whether guarantees meet a limit on eps (``--max-eps``)."""

from __future__ import annotations

from dataclasses import replace

from wpriv.core.guarantee import Guarantee
from wpriv.errors import CheckFailed, Unsupported
from wpriv.numerics.bracket import Bracket
from wpriv.numerics.safe_rounding import echo, text
from wpriv.run.accounting import evaluate
from wpriv.run.accounting.build_process import DescribedProcess

# relative widths at which a limit inside a bracket is decided, one after the other
FINER = (1e-4, 1e-5, 1e-6)


def narrow_to_decide(
    subject: DescribedProcess, rows: list[Guarantee], limit: float, tol: float | None = None
) -> list[Guarantee]:
    """Return the rows, with narrower brackets of eps where a bracket contains ``limit``.

    Args:
        rows: guarantees at one delta. tol: the relative width at which they were computed.
    Raises:
        Unsupported: a row is no (eps, delta)-DP guarantee, so that the limit cannot be decided on it.
    """
    for row in rows:
        reason = evaluate.no_guarantee(row)
        if reason is not None:
            raise Unsupported(f"--max-eps needs a guarantee of (eps, delta)-DP: {reason}")
    return [_narrow(subject, row, limit, subject.tol() if tol is None else tol) for row in rows]


def _narrow(subject: DescribedProcess, row: Guarantee, limit: float, tol: float) -> Guarantee:
    for finer in FINER:
        if not (row.epsilon.lower or 0.0) <= limit < row.epsilon.safe or row.claim != "certified":
            break
        if finer >= tol:
            continue
        # warnings about wide brackets refer to the width that the user asked for
        curve = replace(evaluate.curve(subject.process, row.accountant, finer), tol=tol)
        again = evaluate.ask(curve, delta=row.delta.safe)
        low, high = max(row.epsilon.lower or 0.0, again.epsilon.lower or 0.0), min(row.epsilon.safe, again.epsilon.safe)
        bracket = Bracket.between(min(low, high), high, again.epsilon.by, again.epsilon.refusal)
        width = f"{row.accountant}: the bracket of"
        others = (line for line in row.warnings if not line.startswith(width))
        warnings = tuple(dict.fromkeys([*again.warnings, *others]))
        row = replace(row, epsilon=bracket, source=again.source, warnings=warnings)
    return row


def check_max_eps(rows: list[Guarantee], limit: float) -> None:
    """Raise CheckFailed if the eps of a row exceeds ``limit``; the rows are those of ``narrow_to_decide``."""
    for row in rows:
        if not row.epsilon.safe <= limit:
            raise CheckFailed(
                f"wanted eps <= {echo(limit)} (--max-eps) at delta = {echo(row.delta.safe)}; "
                f"found {text(row.epsilon.safe, up=True, limit=limit)} by {row.accountant}. Add noise, or run fewer "
                f"steps"
            )
