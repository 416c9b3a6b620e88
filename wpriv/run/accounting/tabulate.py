"""Answers about one process by several accountants, or by one along a grid of eps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from wpriv.core import registry
from wpriv.core.guarantee import Curve, Guarantee
from wpriv.core.repeats import Repeats, parse
from wpriv.errors import Unsupported, UsageError
from wpriv.numerics.bracket import monotone
from wpriv.numerics.safe_rounding import rounded
from wpriv.run.accounting import evaluate, repeated_selection
from wpriv.run.accounting.budget import answer, check_question
from wpriv.run.accounting.build_process import DescribedProcess
from wpriv.run.accounting.evaluate import Refusal
from wpriv.run.accounting.plausibility import count_confusion, runs_in_advance

CURVE_POINTS = 41


@dataclass(frozen=True)
class AnswerTable:
    """Several answers about one process, in the order asked, and the accountants that have none."""

    rows: list[Guarantee]
    refused: list[Refusal]


def by_accountants(subject: DescribedProcess, accountants: list[str], **question: Any) -> AnswerTable:
    """``answer`` by each accountant (``all`` stands for every one); those that refuse are listed with their reason.

    Raises:
        UsageError: an unknown name, or a faulty question. Unsupported: every accountant refuses.
    """
    if not question.get("with_mu"):
        check_question(question.get("eps"), question.get("delta"))
    names = list(dict.fromkeys(registry.names("accountants") if "all" in accountants else accountants))
    for name in names:
        registry.accountant(name)
    rows, refused = [], []
    for name in names:
        try:
            rows.append(answer(subject, name, beside_others=True, **question))
        except Unsupported as error:
            refused.append(Refusal(name, str(error)))
    if not rows:
        raise Unsupported(f"no accountant has an answer: {'; '.join(f'{r.accountant}: {r.reason}' for r in refused)}")
    return AnswerTable(rows, refused)


def along_eps(
    subject: DescribedProcess,
    accountant: str,
    *,
    eps: float | None = None,
    delta: float | None = None,
    tol: float | None = None,
    repeats: str | Repeats | None = None,
) -> list[Guarantee]:
    """The guarantee at 41 equally spaced eps, from 0 to ``eps``, or to where delta falls to ``delta`` (default 1e-10).

    Raises:
        UsageError: both ends are given, or eps is below 0. Unsupported: the accountant refuses.
    """
    if eps is not None and delta is not None:
        raise UsageError("--curve goes up to --eps, or down to --delta; give one of them or neither")
    if eps is not None and eps < 0:
        raise UsageError(f"`eps` must be a finite number of at least 0; found {eps:g}")
    tol = subject.tol() if tol is None else tol
    curve = repeated_selection.curve_of(subject.process, accountant, tol, repeats)
    top = eps if eps is not None else _end(curve, delta)
    # six digits write each inner point in full
    points = [*(rounded(float(Fraction(top) * k / (CURVE_POINTS - 1)), up=False) for k in range(CURVE_POINTS - 1)), top]
    rows = [evaluate.ask(curve, eps=point) for point in dict.fromkeys(points)]  # one where the curve ends at eps = 0
    deltas = monotone([row.delta for row in rows])
    warnings = [*runs_in_advance(subject, accountant), *count_confusion(subject.process, subject.records)]
    rows = [
        evaluate.with_warnings(replace(row, delta=delta), warnings) for row, delta in zip(rows, deltas, strict=True)
    ]
    if repeats is not None:
        rows = [repeated_selection.with_note(row, parse(repeats)) for row in rows]
    return [row.with_extra(reading=[*subject.notes, *row.extra.get("reading", [])]) for row in rows]


def _end(curve: Curve, delta: float | None) -> float:
    """The eps at which a curve may end: where delta has fallen as far as asked, or as far as it falls at all."""
    if delta is not None:
        return evaluate.ask(curve, delta=delta).epsilon.safe
    for level in (1e-10, 1e-6, 1e-3, 0.1, 0.5):
        end = curve.epsilon(delta=level)
        if end < float("inf"):
            return end
    return 1.0
