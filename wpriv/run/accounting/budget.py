"""The verb ``budget``: what a process costs."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from wpriv.core import registry
from wpriv.core.guarantee import Bracket, Curve, Guarantee, monotone
from wpriv.core.process import Process
from wpriv.errors import CheckFailed, Unsupported, UsageError
from wpriv.numerics.safe_rounding import echo, rounded, text
from wpriv.run.accounting import build_process, evaluate
from wpriv.run.accounting.adaptive_history import account
from wpriv.run.accounting.attack import attack as attack_of
from wpriv.run.accounting.attack import reading
from wpriv.run.accounting.evaluate import Refusal

CURVE_POINTS = 41
# the width of the brackets that what an attacker can do is read off
ATTACK_TOL = 1e-5
LARGE_EPS = 20.0
# relative widths at which a limit inside a bracket is decided, one after the other
FINER = (1e-4, 1e-5, 1e-6)


def budget(
    mech: str | None = None,
    *,
    eps: float | None = None,
    delta: float | None = None,
    accountant: str = "pld",
    n: int | None = None,
    sampling: str = "none",
    rate: float | None = None,
    batch: int | None = None,
    records: int | None = None,
    epochs: float | None = None,
    adjacency: str | None = None,
    history: str | Path | None = None,
    observed: Any = None,
    tol: float | None = None,
    attack: bool = False,
    adaptive: bool = False,
    **params: Any,
) -> Guarantee:
    """What a process costs: eps at a given delta, or delta at a given eps, by one accountant.

    Args:
        mech: name of a mechanism; its parameters (``sigma=4.0``, ``scale=20``, ``sensitivity=1``) are keywords of their own.
        n: number of compositions (default 1); or ``epochs``, with a rate. ``records`` is the size of the data set.
        sampling, rate: ``none``, ``poisson`` or ``fixed`` and the share of the records in a step; or ``batch`` with ``records``.
        history: a JSON file of steps, instead of all of these.
        observed: pair distances of gradients, for wdp and bdp: an array, a file, or a generator (see ``load_distances``).
        tol: relative width asked of a certified bracket. attack: add what an attacker can do, under ``extra["attack"]``.
        adaptive: the figure that holds where noise, rates and the number of steps were chosen from earlier outputs.
    Returns:
        One Guarantee; ``.epsilon.safe`` and ``.delta.safe`` are the ends that may be promised.
    Raises:
        UsageError, Unsupported, MissingResource: see ``wpriv.errors``.

    >>> round(budget("gauss", sigma=4, sampling="poisson", rate=0.01, n=65536, delta=1e-4).epsilon.lower, 2)
    2.3
    """
    job = build_process.job(
        mech,
        params=params,
        n=n,
        sampling=sampling,
        rate=rate,
        batch=batch,
        records=records,
        epochs=epochs,
        adjacency=adjacency,
        history=history,
        observed=observed,
    )
    row = answer(
        job, accountant, **build_process.question(eps=eps, delta=delta, tol=tol), attack=attack, adaptive=adaptive
    )
    return evaluate.with_warnings(row, implausible(row, job.records))


def answer(
    job: build_process.Job,
    accountant: str,
    *,
    eps: float | None = None,
    delta: float | None = None,
    tol: float | None = None,
    attack: bool = False,
    adaptive: bool = False,
) -> Guarantee:
    """``budget`` on a job that is already built, without the warnings of ``implausible``."""
    _check_question(eps, delta)
    tol = job.tol() if tol is None else tol
    if adaptive:
        return _adaptive(job, accountant, eps, delta, tol)
    on = evaluate.curve(job.process, accountant, tol)
    row = evaluate.ask(on, eps=eps, delta=delta)
    extra: dict[str, Any] = {"reading": list(job.notes)}
    if accountant == "pld" and job.declared is not None and job.declared.runs > 1:
        with contextlib.suppress(Unsupported):  # then there is no such figure
            both = account(job.process, job.declared, eps=eps, delta=delta, tol=tol, fixed=row)
            extra["parameters"] = both.as_dict()
    if attack:
        # asked at many points, of which each needs fewer digits
        found, read = attack_of(evaluate.curve(job.process, accountant, max(tol, ATTACK_TOL))), reading(row)
        extra |= {"attack": found} if found else {"attack_reading": read} if read else {}
    return row.with_extra(**extra)


def _adaptive(job: build_process.Job, accountant: str, eps: float | None, delta: float | None, tol: float) -> Guarantee:
    """The figure for parameters chosen from earlier outputs, with the one for parameters fixed in advance in ``extra["parameters"]``."""
    if accountant != "pld":
        raise UsageError(
            f"--adaptive names its accountant itself (rdp-filter or gdp); found {accountant!r}. Leave out one of them"
        )
    both = account(job.process, job.declared, eps=eps, delta=delta, tol=tol)
    asked = "delta" if eps is not None else "eps"
    return both.adaptive.with_extra(asked=asked, reading=list(job.notes), parameters=both.as_dict())


def _check_question(eps: float | None, delta: float | None) -> None:
    if (eps is None) == (delta is None):
        found = "both" if eps is not None else "neither"
        raise UsageError(f"give --eps to learn delta, or --delta to learn eps; found {found}")


def implausible(row: Guarantee, records: int | None) -> list[str]:
    """Warnings about flags that were probably meant otherwise, and about guarantees that are correct but practically meaningless."""
    return chosen(row) + confused(row.process, records) + weak(row, records)


def chosen(row: Guarantee) -> list[str]:
    """A warning where a history has several runs, and a larger figure holds if the later ones depended on what the first ones showed."""
    parameters = row.extra.get("parameters")
    if parameters is None or parameters["runs"] < 2:
        return []
    name = "delta" if row.extra.get("asked") == "delta" else "epsilon"
    found, shown = parameters["adaptive"], row.delta.safe if name == "delta" else row.epsilon.safe
    if found[name] <= shown:
        return []
    words = (
        f"{'eps' if name == 'epsilon' else name} = {text(found[name], up=True)} by {found['accountant']} (--adaptive)"
    )
    return [
        f"this history has {parameters['runs']} runs, and the figure assumes that noise, rate and length of all were fixed before "
        f"the first release: where they were chosen from what came out, such as by a fork, it is {words}"
    ]


def weak(row: Guarantee, records: int | None) -> list[str]:
    """Warnings about a guarantee that is correct but practically meaningless."""
    notes = []
    if row.epsilon.safe > LARGE_EPS and row.notion == "approximate-dp":
        notes.append(
            f"eps above {LARGE_EPS:g} leaves an attacker nearly free; check sigma, n and the rate, and how they were read"
        )
    if records is not None and row.delta.safe * records >= 1:
        notes.append(
            f"delta is not below 1 / records = {1 / records:.3g}: it allows some record to be published outright"
        )
    if row.delta.safe >= 1:
        notes.append("delta = 1 holds of everything and says nothing")
    return notes


def confused(process: Process, records: int | None) -> list[str]:
    """A number of compositions that equals the size of the data set is probably that size, given in the wrong place."""
    if records is None or records == 1 or all(step.n != records for step in process.steps):
        return []
    return [
        f"n = {records} equals the number of records, but n counts compositions (steps of a training); the data-set size is --records"
    ]


@dataclass(frozen=True)
class Table:
    """Several answers about one process, in the order asked, and the accountants that have none."""

    rows: list[Guarantee]
    refused: list[Refusal]


def table(job: build_process.Job, accountants: list[str], **question: Any) -> Table:
    """``answer`` by each accountant (``all`` stands for every one there is); those that refuse are listed with their reason.

    Raises:
        UsageError: an unknown name, or a faulty question. Unsupported: every one of them refuses.
    """
    _check_question(question.get("eps"), question.get("delta"))
    known = registry.names("accountants")
    asked = list(dict.fromkeys(known if "all" in accountants else accountants))
    for name in asked:
        registry.accountant(name)
    rows, refused = [], []
    for name in asked:
        try:
            rows.append(answer(job, name, **question))
        except Unsupported as error:
            refused.append(Refusal(name, str(error)))
    if not rows:
        raise Unsupported(f"no accountant has an answer: {'; '.join(f'{r.accountant}: {r.reason}' for r in refused)}")
    return Table(rows, refused)


def curve(
    job: build_process.Job,
    accountant: str,
    *,
    eps: float | None = None,
    delta: float | None = None,
    tol: float | None = None,
) -> list[Guarantee]:
    """The guarantee at 41 equally spaced eps, from 0 to ``eps``, or to where delta falls to ``delta`` (default 1e-10).

    Raises:
        UsageError: both ends are given. Unsupported: the accountant refuses.
    """
    if eps is not None and delta is not None:
        raise UsageError("--curve goes up to --eps, or down to --delta; give one of them or neither")
    on = evaluate.curve(job.process, accountant, job.tol() if tol is None else tol)
    top = eps if eps is not None else _curve_end(on, delta)
    # six digits say in full where each point between the ends lies
    points = [*(rounded(top * k / (CURVE_POINTS - 1), up=False) for k in range(CURVE_POINTS - 1)), top]
    rows = [evaluate.ask(on, eps=point) for point in points]
    deltas = monotone([row.delta for row in rows])
    warnings = confused(job.process, job.records)
    rows = [
        evaluate.with_warnings(replace(row, delta=delta), warnings) for row, delta in zip(rows, deltas, strict=True)
    ]
    return [row.with_extra(reading=list(job.notes)) for row in rows]


def _curve_end(on: Curve, delta: float | None) -> float:
    """The eps where the curve may end: where delta has fallen as far as asked, or as far as it falls at all."""
    if delta is not None:
        return evaluate.ask(on, delta=delta).epsilon.safe
    for level in (1e-10, 1e-6, 1e-3, 0.1, 0.5):
        end = on.at(delta=level).epsilon.safe
        if end < float("inf"):
            return end
    return 1.0


def gated(job: build_process.Job, rows: list[Guarantee], limit: float, tol: float | None = None) -> list[Guarantee]:
    """The rows to show and to hold against ``limit``: a bracket of eps that holds the limit is replaced by a narrower one.

    Args:
        rows: answers at one delta. tol: the tolerance that they were asked at.
    Returns:
        The same rows, some with a narrower bracket. What ``check_max_eps`` decides is decided on these.
    Raises:
        Unsupported: some row is no (eps, delta)-DP guarantee, which a limit could be held against.
    """
    for row in rows:
        reason = evaluate.no_guarantee(row)
        if reason is not None:
            raise Unsupported(f"--max-eps decides on guarantees alone: {reason}")
    return [_narrowed(job, row, limit, job.tol() if tol is None else tol) for row in rows]


def _narrowed(job: build_process.Job, row: Guarantee, limit: float, tol: float) -> Guarantee:
    """The row, its eps asked at smaller tolerances until the limit lies outside its bracket."""
    for finer in FINER:
        if not (row.epsilon.lower or 0.0) <= limit < row.epsilon.safe or row.claim != "certified":
            break
        if finer >= tol:
            continue
        # the warnings of a wide bracket are about the tolerance that was asked for
        on = replace(evaluate.curve(job.process, row.accountant, finer), tol=tol)
        again = evaluate.ask(on, delta=row.delta.safe)
        low, high = max(row.epsilon.lower or 0.0, again.epsilon.lower or 0.0), min(row.epsilon.safe, again.epsilon.safe)
        bracket = Bracket.between(min(low, high), high, again.epsilon.by, again.epsilon.refusal)
        row = replace(row, epsilon=bracket, source=again.source, warnings=again.warnings)
    return row


def check_max_eps(rows: list[Guarantee], limit: float) -> None:
    """Raises CheckFailed where a row's eps exceeds ``limit``; the rows are those of ``gated``."""
    for row in rows:
        if not row.epsilon.safe <= limit:
            raise CheckFailed(
                f"wanted eps <= {echo(limit)} (--max-eps) at delta = {echo(row.delta.safe)}; "
                f"found {text(row.epsilon.safe, up=True, limit=limit)} by {row.accountant}. Add noise, or run fewer steps"
            )
