"""The verb ``budget``: what a process costs in privacy."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, Unpack

from wpriv.core.guarantee import Curve, Guarantee
from wpriv.core.mechanism import Mechanism
from wpriv.core.process import Process
from wpriv.core.sampling.kinds import Sampling
from wpriv.errors import Unsupported, UsageError
from wpriv.run.accounting import adaptive_history, build_process, evaluate
from wpriv.run.accounting import attack as attacks
from wpriv.run.accounting.build_process import DescribedProcess
from wpriv.run.accounting.mechanism_parameters import MechanismParameters
from wpriv.run.accounting.plausibility import plausibility_warnings

# relative widths of the brackets from which bounds on attacks are derived: many points, each needing fewer digits; the
# second where points take long
ATTACK_TOLS = (1e-5, 3e-4)


def budget(
    mech: str | Mechanism | Process | None = None,
    *,
    eps: float | None = None,
    delta: float | None = None,
    accountant: str = "pld",
    n: int | None = None,
    sampling: str | Sampling = "none",
    rate: float | None = None,
    batch: int | None = None,
    records: int | None = None,
    epochs: float | None = None,
    max_batch: int | None = None,
    bands: int | None = None,
    adjacency: str | None = None,
    group: int | None = None,
    history: str | Path | None = None,
    observed: Any = None,
    tol: float | None = None,
    attack: bool = False,
    adaptive: bool = False,
    **params: Unpack[MechanismParameters],
) -> Guarantee:
    """Compute eps at a given delta, or delta at a given eps, by one accountant.

    Args:
        mech: a mechanism (``Gauss(sigma=4)``), a ``Process``, or the name of a mechanism, whose parameters are then
            keywords of their own (``"gauss", sigma=4``).
        eps: the eps at which delta is computed.
        delta: the delta at which eps is computed; exactly one of the two is given.
        accountant: the name of an accountant, with options as ``"wdp:order=16"``.
        n: number of compositions (default 1).
        sampling: ``Poisson(0.01)``, ``FixedSize(0.01)``, ``Allocation(0.01)`` or ``Shuffle(0.01)``; or ``none``,
            ``poisson``, ``fixed``, ``allocation`` or ``shuffle``.
        rate: share of the records in a step, where ``sampling`` is a word.
        batch: instead of the rate, the records of a step, with ``records``.
        records: size of the data set.
        epochs: instead of n, passes over the data, with a rate.
        max_batch: for Poisson sampling, the largest number of records of a step, with ``records``.
        bands: number of bands of a matrix mechanism under cyclic Poisson sampling, whose steps n and rate are then.
        adjacency: the neighbouring relation; by default it follows from the sampling and the mechanism.
        group: largest number of records of one person (default 1).
        history: a JSON file of steps, instead of all of these.
        observed: pair distances of gradients, for wdp and bdp: an array, a file, or a generator such as
            ``weibull:shape=0.5,records=50``.
        tol: relative width asked of a certified bracket (default 1e-6).
        attack: add bounds on attacks, under ``extra["attack"]``.
        adaptive: the figure that holds where noise, rates and the number of steps were chosen from earlier outputs.
        params: the parameters of the mechanism, where it is given by name.
    Returns:
        One Guarantee; ``float(g.epsilon)`` and ``float(g.delta)`` are the ends that may be promised.
    Raises:
        UsageError: an argument is wrong, or too much or too little is given.
        Unsupported: the accountant has no answer for this process.
        MissingResource: a file cannot be read.

    >>> from wpriv import Gauss, Poisson
    >>> answer = budget(Gauss(sigma=4), sampling=Poisson(0.01), n=65536, delta=1e-4)
    >>> round(answer.epsilon.lower, 2)
    2.3
    >>> answer == budget("gauss", sigma=4, sampling="poisson", rate=0.01, n=65536, delta=1e-4)
    True
    """
    described = build_process.described_process(
        mech,
        params=params,
        n=n,
        sampling=sampling,
        rate=rate,
        batch=batch,
        records=records,
        epochs=epochs,
        max_batch=max_batch,
        bands=bands,
        adjacency=adjacency,
        group=group,
        history=history,
        observed=observed,
    )
    question = build_process.question(eps=eps, delta=delta, tol=tol)
    row = answer(described, accountant, **question, attack=attack, adaptive=adaptive)
    return evaluate.with_warnings(row, plausibility_warnings(row, described.records))


def curve(process: Process, accountant: str = "pld", *, tol: float | None = None) -> Curve:
    """Return the privacy curve of a process by one accountant.

    Args:
        process: what ran.
        accountant: the name of an accountant, with options as ``"renyi:order=8"``.
        tol: relative width asked of a certified bracket (default 1e-6).
    Raises:
        UsageError: no such accountant, or ``tol`` out of range.
        Unsupported: the accountant refuses the process.

    >>> from wpriv import Gauss, Poisson, Process, Step
    >>> process = Process((Step(Gauss(sigma=4), 65536, Poisson(0.01)),)) + Step(Gauss(sigma=50))
    >>> round(curve(process).epsilon(delta=1e-4), 3)
    2.302
    """
    return evaluate.curve(process, accountant, evaluate.answer_tol(process) if tol is None else tol)


def answer(
    subject: DescribedProcess,
    accountant: str,
    *,
    eps: float | None = None,
    delta: float | None = None,
    tol: float | None = None,
    attack: bool = False,
    adaptive: bool = False,
) -> Guarantee:
    """``budget`` of a process that is already built, without plausibility warnings."""
    check_question(eps, delta)
    tol = subject.tol() if tol is None else tol
    if adaptive:
        return _adaptive(subject, accountant, eps, delta, tol)
    row = evaluate.ask(evaluate.curve(subject.process, accountant, tol), eps=eps, delta=delta)
    extra: dict[str, Any] = {"reading": list(subject.notes)}
    if accountant == "pld" and subject.declared is not None and subject.declared.runs > 1:
        with contextlib.suppress(Unsupported):  # some step has no bound for adaptive parameters
            figures = adaptive_history.account_for_history(
                subject.process, subject.declared, eps=eps, delta=delta, tol=tol, fixed=row
            )
            extra["parameters"] = figures.as_dict()
    if attack:
        fine, coarse = (evaluate.curve(subject.process, accountant, max(tol, attack_tol)) for attack_tol in ATTACK_TOLS)
        bounds = attacks.attack_bounds(fine, coarse=coarse)
        guess = attacks.chance_of_right_guess(row)
        extra |= {"attack": bounds} if bounds else {"attack_reading": guess} if guess else {}
    return row.with_extra(**extra)


def _adaptive(
    subject: DescribedProcess, accountant: str, eps: float | None, delta: float | None, tol: float
) -> Guarantee:
    """The figure for adaptively chosen parameters, with that for fixed ones in ``extra["parameters"]``."""
    if accountant != "pld":
        raise UsageError(
            f"`adaptive` chooses the accountant itself (rdp-filter or gdp); found {accountant!r}. Leave out one of the "
            f"two"
        )
    figures = adaptive_history.account_for_history(subject.process, subject.declared, eps=eps, delta=delta, tol=tol)
    unknown = "delta" if eps is not None else "eps"
    return figures.adaptive.with_extra(asked=unknown, reading=list(subject.notes), parameters=figures.as_dict())


def check_question(eps: float | None, delta: float | None) -> None:
    """Raise UsageError unless exactly one of eps and delta is given."""
    if (eps is None) == (delta is None):
        given = "both" if eps is not None else "neither"
        raise UsageError(f"give `eps` to learn delta, or `delta` to learn eps; found {given}")
