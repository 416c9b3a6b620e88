"""Warn about arguments that were probably meant otherwise, and about guarantees that are correct but meaningless."""

from __future__ import annotations

from wpriv.core.guarantee import Guarantee
from wpriv.core.process import Process
from wpriv.numerics.safe_rounding import text
from wpriv.run.accounting.adaptive_history import is_unsampled_gaussian
from wpriv.run.accounting.build_process import DescribedProcess

LARGE_EPS = 20.0
# accountants whose figures hold for parameters chosen from earlier outputs
ADAPTIVE = ("rdp-filter",)


def plausibility_warnings(row: Guarantee, records: int | None) -> list[str]:
    """All warnings of this module; ``records`` is the size of the data set, if known."""
    return [*_later_runs(row), *count_confusion(row.process, records), *weak_guarantee(row, records)]


def weak_guarantee(row: Guarantee, records: int | None) -> list[str]:
    """Warn about a guarantee that is correct but practically meaningless."""
    return weak_figures(
        row.epsilon.safe if row.notion == "approximate-dp" else 0.0,
        0.0 if "order" in row.extra else row.delta.safe,
        records,
    )


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
    if subject.runs < 2 or accountant.partition(":")[0] in ADAPTIVE or is_unsampled_gaussian(subject.process):
        return []
    return [
        f"this history has {subject.runs} runs, and the figure assumes that noise, rate and length of all "
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
        f"this history has {parameters['runs']} runs, and the figure assumes that noise, rate and length of all were "
        f"fixed before the first release. If later ones were chosen from what earlier ones showed, as a fork does, "
        f"{symbol} = {text(adaptive[name], up=True)} by {adaptive['accountant']} holds instead (`adaptive=True`)"
    ]
