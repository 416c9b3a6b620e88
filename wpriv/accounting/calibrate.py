"""The verb ``calibrate``: the least noise, or the most use, that a target allows, beside older closed forms."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Unpack

from wpriv.accounting import adaptive_history, best_of_runs, build_process, evaluate
from wpriv.accounting.budget import Keywords, plausibility_warnings
from wpriv.accounting.build_process import neighbour_readings
from wpriv.accounting.search import Unknown
from wpriv.accounting.target import Solution, Target, default_tol, read_target, solve_for
from wpriv.config import plain_words
from wpriv.config.plain_words import in_plain_words, plain_step
from wpriv.core import registry
from wpriv.core.guarantee import Guarantee
from wpriv.core.kinds import PASSES, Sampling
from wpriv.core.mechanism import Mechanism
from wpriv.core.parameters import MAX_COUNT, flag
from wpriv.core.process import Process
from wpriv.core.repeats import Repeats, parse
from wpriv.core.repetition import ONE_RELEASE, sampling_keys, with_repetition
from wpriv.errors import UsageError
from wpriv.files.shown import Shown
from wpriv.numerics import conversions
from wpriv.numerics.numbers import number, whole

CLASSICAL = "classical: s sqrt(2 ln(1.25/delta)) / eps"
ZHAO = "Zhao et al.: s (c + sqrt(c^2 + eps)) / (eps sqrt 2), c^2 = ln(2 / (sqrt(16 delta + 1) - 1))"
RADIUS = (
    "{} with the radius of the clip ball for its diameter s, as printed by Reshetova, Chen, Ozgur (2023), Corollary {}"
)
TOO_FEW = "two inputs are up to a diameter apart, so this is less noise than the formula asks for"


def classical_formula(mechanism: Any, eps: float, delta: float, n: int) -> list[dict[str, Any]]:
    """Sigma or scale by the formulas in common use, and whether each is proven at this target.

    n releases of l2 sensitivity s are one of sensitivity s sqrt(n), exactly; n pure eps_1-DP releases are pure n
    eps_1-DP.

    Args:
        mechanism: one of continuous, untruncated Gauss or Laplace noise.
    Returns:
        Rows with ``formula``, ``sigma`` or ``scale`` (None where the formula has no value), ``valid`` and ``note``.
    Source: Dwork and Roth (2014), Theorem A.1; Zhao et al. (2019), as eq. (4) of Reshetova, Chen, Ozgur (2023).
    """
    ball, noise = mechanism.clip_ball(), mechanism.noise
    if noise == "scale":
        pure = mechanism.sensitivity * n / eps if eps > 0 else None
        rows = [_row(noise, "pure DP: s n / eps", pure, eps > 0, "eps-DP with delta = 0 by basic composition")]
        if ball is not None and eps > 0:
            rows.append(_row(noise, RADIUS.format("pure DP", 1), ball.radius * n / eps, False, TOO_FEW))
        return rows
    whole = mechanism.sensitivity * math.sqrt(n)
    old = whole * conversions.classical(eps, delta) if eps > 0 else None
    new = whole * conversions.zhao(eps, delta) if eps > 0 and delta < 0.5 else None
    rows = [
        _row(noise, CLASSICAL, old, 0 < eps <= 1, "proven for eps <= 1 only (Dwork and Roth 2014)"),
        _row(noise, ZHAO, new, new is not None, "for every eps > 0 and delta < 1/2"),
    ]
    if ball is not None and new is not None:
        scaled = new * ball.radius / mechanism.sensitivity
        rows.append(_row(noise, RADIUS.format("Zhao et al.", 2), scaled, False, TOO_FEW))
    return rows


def _row(noise: str, formula: str, value: float | None, valid: bool, note: str) -> dict[str, Any]:
    return {"formula": formula, noise: value, "valid": valid, "note": note}


@dataclass(frozen=True, repr=False)
class Calibration(Shown):
    """The result of ``calibrate``; ``float(calibration)`` is its value.

    Args:
        parameter: the name of what was solved for: the mechanism's noise, ``n`` or ``rate``.
        value: its value, rounded to the private side.
        guarantee: of the process with this very value.
        misses: the nearest less private value shown to miss the target; None where there is none.
        within: relative distance within which the best possible value lies; None where it is not known.
    """

    parameter: str
    value: float
    guarantee: Guarantee
    misses: float | None = None
    within: float | None = None

    def __float__(self) -> float:
        return float(self.value)

    def sentence(self) -> str:
        return self.guarantee.sentence()

    @property
    def warnings(self) -> tuple[str, ...]:
        """Those of the guarantee."""
        return self.guarantee.warnings

    def facts(self) -> list[tuple[str, str]]:
        """Those of the guarantee."""
        return self.guarantee.facts()

    def to_latex(self) -> str:
        """A row of a LaTeX table: as ``Guarantee.to_latex``."""
        return self.guarantee.to_latex()


@in_plain_words
def calibrate(
    mech: str | type[Mechanism] | None = None,
    *,
    eps: float | None = None,
    delta: float | None = None,
    accountant: str | None = None,
    n: int | None = None,
    sampling: str | Sampling | None = None,
    rate: float | None = None,
    batch: int | None = None,
    records: int | None = None,
    epochs: float | None = None,
    max_batch: int | None = None,
    bands: int | None = None,
    bins: int | None = None,
    adjacency: str | None = None,
    group: int | None = None,
    history: str | Path | None = None,
    adaptive: bool = False,
    repeats: str | Repeats | None = None,
    tol: float | None = None,
    compare_classical: bool = False,
    advantage: float | None = None,
    tpr: float | None = None,
    fpr: float | None = None,
    max_mu: float | None = None,
    **params: Unpack[Keywords],
) -> Calibration:
    """Solve for what is left out: the mechanism's noise, or with the noise given n, or with both given the rate.

    The value is rounded to the private side, to 8 significant digits at the default ``tol``, and the guarantee is that
    of the rounded value. n is the largest that meets the target, as far as the accountant's bracket tells.

    Args:
        mech: a mechanism's name (``"gauss"``) or class (``Gauss``); its known parameters are keywords of their own.
        eps: the eps of the target.
        delta: the delta of the target; left out, 0 (pure DP). All arguments that are not listed here are those of
            ``budget``; n is 1 where noise is solved for and none is given.
        history: a JSON file of steps that ran before; the target is that of all together, n that of the further steps.
        adaptive: the further steps are decided from what the history showed.
        repeats: the step is one of K runs of which only the best is released, as for ``budget``.
        compare_classical: add what older formulas ask for (Gaussian and Laplace), in ``guarantee.extra["classical"]``.
        tol: relative width of the accountant's bracket, and so of the distance from the best possible value; by default
            1e-6 (1e-4 where a step's loss is only known between two others, as of projection; 1e-5 for ``tpr``).
        advantage: instead of eps and delta: the largest advantage (TPR minus FPR) of a membership attack, which is
            delta at eps = 0.
        tpr: instead of eps and delta: the largest true-positive rate of a membership attack at the rate ``fpr``.
        fpr: the false-positive rate at which ``tpr`` holds, or the smallest rate for which ``max_mu`` does.
        max_mu: instead of eps and delta: the largest mu of Gaussian DP, for tests with both error rates of at least
            ``fpr`` (default 1e-9).
    Returns:
        The Calibration; its guarantee is at ``delta`` (at eps = 0 where that is the target), with
        ``extra["calibrated"] = {"parameter", "value", "misses", "within"}`` and for n and the rate ``"most"``: whether
        the next larger value was shown to miss the target.
    Raises:
        UsageError: the target or the step is faulty; nothing is missing, or too much.
        Unsupported: the target cannot be reached (the message says how near one gets).

    >>> from wpriv import Gauss, Poisson
    >>> round(calibrate(Gauss, eps=1, delta=1e-5).value, 3)
    3.731
    >>> calibrate("gauss", sigma=4, eps=1, delta=1e-5, sampling=Poisson(0.01)).parameter
    'n'
    """
    if eps is not None and delta is None and accountant is not None and evaluate.is_divergence(accountant):
        delta = evaluate.ANY_DELTA
    target = read_target(eps=eps, delta=delta, advantage=advantage, tpr=tpr, fpr=fpr, max_mu=max_mu)
    keys = {**sampling_keys(sampling, rate, max_batch), "n": n, "batch": batch, "records": records, "epochs": epochs}
    keys |= {**params, "bands": bands, "bins": bins, "adjacency": adjacency, "group": group}
    step = _read(plain_words.with_words(mech, keys, "calibrate"))
    _check_kinds(history, adaptive, repeats, accountant, compare_classical, target)
    if compare_classical:
        _check_classical(step.spec, step.unknown)
    if target.argument == "eps" and delta is None:
        _require_largest_loss(step)
    spent = None
    if history is not None:
        ran = partial(build_process.described_process, adjacency=step.adjacency, group=step.group)
        spent = ran(history=history, records=records)
    process_at = step.at if spent is None else adaptive_history.followed_by(spent, step.adjacency, step.at)
    accountant, by_default = build_process.named_or_default(accountant, process_at(step.unknown.clamp(1.0)))
    width = max(default_tol(step.unknown, process_at), target.least_tol) if tol is None else number(tol, "`tol`")
    notes = [*step.notes, *by_default]

    solver = partial(solve_for, step.unknown, process_at, accountant, target, width)
    extra: dict[str, Any] = {}
    if spent is None:
        solution, row = _solved(solver, accountant, repeats)
        calibrated = solution.as_dict()
        notes += [] if repeats is None else row.extra["reading"]
    elif adaptive:
        solution, row, calibrated, extra["room"] = adaptive_history.solve_adaptively(
            spent.process, step.unknown, process_at, target, width
        )
    else:
        solution, row, extra["room"] = _solved_after(spent, solver, step.unknown, accountant, target, width)
        calibrated = solution.as_dict()
    notes += [] if spent is None else ["the target is that of the history and the further steps", *spent.notes]
    if compare_classical:
        last = row.process.steps[-1]
        person = last.mechanism.grouped(row.process.group)
        extra["classical"] = classical_formula(person, target.eps, target.delta, last.n)
    row = evaluate.with_data_sets(row)
    doubts = [note for note in (evaluate.no_guarantee(row),) if note]
    row = evaluate.with_warnings(row, [*doubts, *plausibility_warnings(row, step.records), *solution.warnings()])
    notes += [*target.notes, *neighbour_readings(row.process), *row.process.steps[-1].mechanism.reading()]
    row = row.with_extra(asked=target.asked, calibrated=calibrated, **extra, reading=notes)
    return Calibration(step.unknown.name, calibrated["value"], row, calibrated["misses"], calibrated["within"])


@dataclass(frozen=True)
class _OpenStep:
    """A step of which one parameter is solved for; ``spec`` is the rest of it, and ``notes`` say how it was read."""

    unknown: Unknown
    spec: dict[str, Any]
    adjacency: str | None
    group: int | None
    records: int | None
    notes: list[str]

    def at(self, value: float) -> Process:
        """The process with a value of the parameter."""
        spec = {**self.spec, self.unknown.name: value}
        return build_process.process([spec], self.adjacency, group=self.group, records=self.records)


def _require_largest_loss(step: _OpenStep) -> None:
    """Refuse eps alone, where the step has no eps at delta = 0."""
    if math.isinf(evaluate.largest_loss(step.at(step.unknown.clamp(1.0)))):
        raise UsageError(
            f"calibrate needs `delta` beside `eps`: no bound of the privacy loss of {step.spec['mech']} is known, and "
            f"so no eps at delta = 0 (pure DP). Give `delta`, well below 1 / records, such as 1e-5"
        )


def _solved_after(
    spent: build_process.DescribedProcess,
    solver: Callable[[], Solution],
    unknown: Unknown,
    accountant: str,
    target: Target,
    width: float,
) -> tuple[Solution, Guarantee, dict[str, Any]]:
    """The solution for steps planned after those of a history, its guarantee, and the room that the history leaves."""
    before = adaptive_history.require_room(
        target, accountant, evaluate.curve(spent.process, accountant, width, of_pair=True)
    )
    solution = solver()
    row = evaluate.with_warnings(solution.row, [adaptive_history.PLANNED.format(name=unknown.name)])
    return solution, row, adaptive_history.room(unknown, before)


def _solved(
    solver: Callable[..., Solution], accountant: str, repeats: str | Repeats | None
) -> tuple[Solution, Guarantee]:
    if repeats is None:
        solution = solver()
        return solution, solution.row
    runs = parse(repeats)
    solution = solver(account=lambda process, tol: best_of_runs.curve_of(process, accountant, tol, runs))
    return solution, best_of_runs.with_note(solution.row, runs)


def _read(described: dict[str, Any]) -> _OpenStep:
    """The step as it is written, with the parameter to solve for."""
    asked = plain_words.take_unknown(described)
    written = plain_step(described)
    plain_words.require_mechanism(written)
    adjacency, group = written.pop("adjacency"), written.pop("group")
    unknown, spec, notes = _left_open(written)
    notes += [build_process.GAUSSIAN] if described["mech"] is None else []
    notes += build_process.default_sensitivities([spec])
    if asked not in (None, unknown.name):
        raise UsageError(
            f"{asked}=? asks for {asked}, and {unknown.name} is left out as well; give {flag(unknown.name)}"
        )
    if unknown.name == "rate" and group is not None and whole(group, "group") > 1 and spec["sampling"] == "fixed":
        raise UsageError(
            "fixed-size sampling of groups needs the size of a batch: give `batch` with `records`, and leave out the "
            "noise or `n`"
        )
    return _OpenStep(unknown, spec, adjacency, group, build_process.data_set_size([written]), notes)


def _left_open(written: Mapping[str, Any]) -> tuple[Unknown, dict[str, Any], list[str]]:
    """Find the parameter that a step leaves open; return it, the rest of the step, and notes on how it was read."""
    spec, notes = with_repetition(written)
    noise = registry.mechanism(spec.get("mech")).noise
    sampled = (spec.get("sampling") or "none") != "none"
    if noise is not None and spec.get(noise) is None:
        if sampled and spec["rate"] is None:
            raise UsageError(f"{flag(noise)} and the sampling rate are both missing; give one of them")
        rest = {k: v for k, v in spec.items() if k != noise}
        notes += [] if rest["n"] is not None else [ONE_RELEASE]
        rest["n"] = 1 if rest["n"] is None else rest["n"]
        return Unknown(noise, +1, 1e-12, 1e15), rest, notes
    if spec["n"] is None:
        if sampled and spec["rate"] is None:
            raise UsageError("n and the sampling rate are both missing; give one of them")
        unit = Sampling.from_dict({"sampling": spec.get("sampling"), "rate": spec["rate"]}).pass_steps
        passes = f", in whole passes of {unit} steps" if unit > 1 else ""
        return (
            Unknown("n", -1, unit, MAX_COUNT // unit * unit, whole=True, unit=unit),
            spec,
            [*notes, f"n, the number of compositions, is solved for{passes}"],
        )
    if sampled and spec["rate"] is None:
        if spec["sampling"] in PASSES:
            raise UsageError(
                f"{PASSES[spec['sampling']]} has rates 1/t only, among which calibrate does not search: give `rate`, "
                f"and leave out the noise or `n`"
            )
        return Unknown("rate", -1, 1e-15, 1.0), spec, [*notes, "the sampling rate is solved for"]
    build_process.step({**spec, "rate": spec["rate"] or (1.0 if sampled else None)})
    given = f"{flag(noise)}, " if noise is not None else ""
    raise UsageError(
        f"nothing is left to solve for; leave out {given}`n` or (with `sampling`) `rate`, or ask budget for eps"
    )


def _check_kinds(
    history: str | Path | None,
    adaptive: bool,
    repeats: str | Repeats | None,
    accountant: str | None,
    classical: bool,
    target: Target,
) -> None:
    """Refuse combinations of ``history``, ``adaptive``, ``repeats`` and others that have no meaning."""
    if classical and target.argument != "eps":
        raise UsageError("`compare_classical` compares formulas for `eps` and `delta`: give these as the target")
    other = "history" if history is not None else "repeats" if repeats is not None else None
    if target.argument != "eps" and other is not None:
        raise UsageError(
            f"`{target.argument}` is a target of a step alone; leave out `{other}`, or give `eps` and `delta`"
        )
    if repeats is not None and history is not None:
        raise UsageError(
            "`repeats` solves for a step of one run, and `history` for steps behind others; give one of them, or ask "
            "budget with both"
        )
    if adaptive and history is None:
        raise UsageError(
            "`adaptive` solves for steps that are decided from what a `history` showed; give the history, or leave out "
            "`adaptive` for steps that are fixed in advance"
        )
    if adaptive and accountant not in (None, "pld"):
        raise UsageError(
            f"`adaptive` chooses the accountant itself (rdp-filter or gdp); found {accountant!r}. Leave out one of the "
            f"two"
        )
    if classical and other is not None:
        raise UsageError(f"`compare_classical` is about a single step alone; leave it out, or leave out `{other}`")


def _check_classical(spec: dict[str, Any], unknown: Unknown) -> None:
    noise = None
    if unknown.name == registry.mechanism(spec["mech"]).noise and (spec.get("sampling") or "none") == "none":
        noise = build_process.step({**spec, unknown.name: 1.0}).mechanism.additive_noise()
    if noise is None or noise.discrete or noise.truncated:
        raise UsageError(
            "`compare_classical` shows other formulas for Gaussian and Laplace noise, as of `mech='gauss'`: it needs "
            "such a mechanism, without sampling, and with the noise left to solve for"
        )
