"""The verb ``calibrate``: the least noise, or the most use, that a target allows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from wpriv.core.guarantee import Guarantee
from wpriv.core.parameters import MAX_COUNT
from wpriv.core.process import Process
from wpriv.errors import UsageError
from wpriv.numerics.parse_numbers import number, whole
from wpriv.run.accounting import build_process, classical_formulas, evaluate
from wpriv.run.accounting.budget import implausible
from wpriv.run.accounting.search_parameter import SearchParameter
from wpriv.run.accounting.solve_parameter import default_tol, solved


def calibrate(
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
    tol: float | None = None,
    compare_classical: bool = False,
    **params: Any,
) -> Guarantee:
    """Solve for whichever is missing: the mechanism's noise, or with the noise given n, or with both given the rate.

    The answer is rounded to the private side, to 8 significant digits at the default ``tol``, and it is the rounded value that was priced:
    its own guarantee, which is returned, meets the target. n is the largest that meets it, as far as the accountant's bracket tells.

    Args:
        eps, delta: the target, both needed. Everything else as in ``budget``; n is 1 where the noise is solved for and no n is given.
        compare_classical: for Gauss and Laplace noise, add what older formulas ask for under ``extra["classical"]``.
        tol: relative width of the accountant's bracket, and so of the answer's distance from the best possible value; by default 1e-6
            (1e-4 for projection).
    Returns:
        The Guarantee at ``delta`` (at eps = 0 where that is the target), whose safe ends meet the target, with
        ``extra["calibrated"] = {"parameter": name, "value": x, "misses": y, "within": r}``: y is the nearest less private value shown to
        miss the target, and r the relative distance within which the best value lies (None where none was shown to miss it); for n and
        the rate also ``"most"``, whether the next larger value was shown to miss the target. A warning says where the accountant has no
        answer to values that may be better.
    Raises:
        UsageError: the target or the step is faulty; nothing is missing, or too much.
        Unsupported: the target cannot be reached (the message says how near one gets).

    >>> round(calibrate("gauss", eps=1, delta=1e-5).extra["calibrated"]["value"], 3)
    3.731
    """
    if eps is None or delta is None:
        raise UsageError("calibrate needs a target: give both --eps and --delta")
    eps, delta = number(eps, "--eps"), number(delta, "--delta")
    _check_target(eps, delta)
    own = {"n": n, "sampling": sampling, "rate": rate, "batch": batch, "records": records, "epochs": epochs}
    knob, spec, notes = unknown({"mech": mech, **params, **own})

    def at(value: float) -> Process:
        return build_process.process([{**spec, knob.name: value}], adjacency)

    if compare_classical:
        _check_classical(spec)
    size = whole(records, "records") if records is not None else None
    width = default_tol(knob, at) if tol is None else number(tol, "--tol")
    answer = solved(knob, at, accountant, eps, delta, width)
    row = answer.row
    warnings = [note for note in (evaluate.no_guarantee(row),) if note] + implausible(row, size) + answer.warnings()
    extra: dict[str, Any] = {"calibrated": answer.as_dict()}
    if compare_classical:
        extra["classical"] = classical_formulas.classical(row.process.steps[0].mechanism, eps, delta, int(spec["n"]))
    notes += row.process.steps[0].mechanism.reading()
    return evaluate.with_warnings(row, warnings).with_extra(asked="eps" if eps > 0 else "delta", **extra, reading=notes)


def _check_target(eps: float, delta: float) -> None:
    if not 0 <= eps < math.inf:
        raise UsageError(f"--eps must be a finite number of at least 0; found {eps}")
    if not 0 < delta < 1:
        raise UsageError(f"--delta must lie strictly between 0 and 1; found {delta}")


def unknown(written: Mapping[str, Any]) -> tuple[SearchParameter, dict[str, Any], list[str]]:
    """What a step leaves open, the rest of it, and how it was read.

    Args:
        written: the step as in a recipe, ``{mech, <parameters>, sampling, n | epochs, rate | batch with records}``.
    Raises:
        UsageError: nothing is left open, or too much.
    """
    spec, read = build_process.planned(written)
    knob, rest, notes = _missing(spec)
    return knob, rest, [*read, *notes]


def _missing(spec: dict[str, Any]) -> tuple[SearchParameter, dict[str, Any], list[str]]:
    noise = build_process.mechanism(spec).noise
    sampled = (spec.get("sampling") or "none") != "none"
    if noise is not None and spec.get(noise) is None:
        if sampled and spec["rate"] is None:
            raise UsageError(f"{build_process.flag(noise)} and the sampling rate are both missing; give one of them")
        rest = {k: v for k, v in spec.items() if k != noise}
        notes = [] if rest["n"] is not None else ["n = 1, since neither --n nor --epochs was given"]
        rest["n"] = 1 if rest["n"] is None else rest["n"]
        return SearchParameter(noise, +1, 1e-12, 1e15), rest, notes
    if spec["n"] is None:
        if sampled and spec["rate"] is None:
            raise UsageError("n and the sampling rate are both missing; give one of them")
        return (
            SearchParameter("n", -1, 1, MAX_COUNT, whole=True),
            spec,
            ["n, the number of compositions, is solved for"],
        )
    if sampled and spec["rate"] is None:
        return SearchParameter("rate", -1, 1e-15, 1.0), spec, ["the sampling rate is solved for"]
    build_process.step({**spec, "rate": spec["rate"] or (1.0 if sampled else None)})
    given = f"{build_process.flag(noise)}, " if noise is not None else ""
    raise UsageError(
        f"nothing is left to solve for; leave out {given}--n or (with --sampling) --rate, or ask budget for eps"
    )


def _check_classical(spec: dict[str, Any]) -> None:
    noise = build_process.mechanism(spec).noise
    if (
        spec["mech"] not in classical_formulas.KNOWN
        or spec["sampling"] != "none"
        or (noise is not None and spec.get(noise) is not None)
    ):
        raise UsageError(
            f"--compare-classical shows other formulas for the noise of --mech {', '.join(classical_formulas.KNOWN)}: "
            f"it needs one of them, without sampling, and with the noise left to solve for"
        )
