"""Decide whether guarantees meet ``--max-eps``; warn about arguments that were probably meant otherwise."""

from __future__ import annotations

from dataclasses import replace

from wpriv.accounting import evaluate
from wpriv.accounting.adaptive_history import is_unsampled_gaussian
from wpriv.accounting.build_process import DescribedProcess
from wpriv.core.guarantee import Guarantee
from wpriv.core.process import Process
from wpriv.errors import CheckFailed, Unsupported
from wpriv.numerics.bracket import Bracket
from wpriv.numerics.numbers import echo, text

# relative widths at which a limit inside a bracket is decided, one after the other
FINER = (1e-4, 1e-5, 1e-6)


def narrow_to_decide(
    subject: DescribedProcess, rows: list[Guarantee], limit: float, tol: float | None = None
) -> list[Guarantee]:
    """Return the rows, with narrower brackets of eps where a bracket contains ``limit``."""
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
            answer = f"{text(row.epsilon.safe, up=True, limit=limit)} by {row.accountant}"
            at = f"(--max-eps) at delta = {echo(row.delta.safe)}"
            raise CheckFailed(f"wanted eps <= {echo(limit)} {at}; found {answer}. Add noise, or run fewer steps")


LARGE_EPS = 20.0
# accountants whose figures hold for parameters chosen from earlier outputs
ADAPTIVE_ACCOUNTANTS = ("rdp-filter",)


def plausibility_warnings(row: Guarantee, records: int | None) -> list[str]:
    """All warnings of this module; ``records`` is the size of the data set, if known."""
    return [*_later_runs(row), *count_confusion(row.process, records), *weak_guarantee(row, records)]


def weak_guarantee(row: Guarantee, records: int | None) -> list[str]:
    """Warn about a guarantee that is correct but practically meaningless."""
    eps = row.epsilon.safe if row.notion == "approximate-dp" else 0.0
    return weak_figures(eps, 0.0 if "order" in row.extra else row.delta.safe, records)


def weak_figures(eps: float, delta: float, records: int | None) -> list[str]:
    """As ``weak_guarantee``, for an (eps, delta) of approximate differential privacy."""
    warnings = []
    if eps > LARGE_EPS:
        warnings.append(f"eps above {LARGE_EPS:g} hardly limits an attacker; check sigma, n and the sampling rate")
    if records is not None and delta * records >= 1:
        warnings.append(
            f"delta is not below 1 / records = {1 / records:.3g}: publishing one record outright satisfies it"
        )
    if delta >= 1:
        warnings.append("delta = 1 holds for every mechanism and guarantees nothing")
    return warnings


def count_confusion(process: Process, records: int | None) -> list[str]:
    """Warn where the number of compositions equals the size of the data set, which was probably meant."""
    if records is None or records == 1 or all(step.n != records for step in process.steps):
        return []
    return [f"n = {records} equals the number of records, but n counts compositions (the steps of a training)"]


def runs_in_advance(subject: DescribedProcess, accountant: str) -> list[str]:
    """Warn about a history of several runs where the accountant assumes that all were fixed in advance."""
    is_adaptive = accountant.partition(":")[0] in ADAPTIVE_ACCOUNTANTS
    if subject.runs < 2 or is_adaptive or is_unsampled_gaussian(subject.process):
        return []
    return [
        f"this history has {subject.runs} runs, and the number assumes that noise, rate and length of all "
        f"were fixed before the first release. `adaptive=True` gives the eps or delta that holds if later ones were "
        f"chosen from what earlier ones showed, as a fork does"
    ]


def _later_runs(row: Guarantee) -> list[str]:
    """Warn about a history of several runs where a larger figure holds if later runs depended on earlier outputs."""
    parameters = row.extra.get("parameters")
    if parameters is None or parameters["runs"] < 2:
        return []
    name, fixed = ("delta", row.delta.safe) if row.extra.get("asked") == "delta" else ("epsilon", row.epsilon.safe)
    adaptive = parameters["adaptive"]
    if adaptive[name] <= fixed:
        return []
    symbol = "eps" if name == "epsilon" else name
    return [
        f"this history has {parameters['runs']} runs, and the number assumes that noise, rate and length of all were "
        f"fixed before the first release. If later ones were chosen from what earlier ones showed, as a fork does, "
        f"{symbol} = {text(adaptive[name], up=True)} by {adaptive['accountant']} holds instead (`adaptive=True`)"
    ]
