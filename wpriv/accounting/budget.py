"""The verbs ``budget`` and ``curve``: what a process costs in privacy, by one accountant or several."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any, TypedDict, Unpack

from wpriv import spec
from wpriv.accounting import adaptive_history, best_of_runs, build_process, evaluate, membership_figures
from wpriv.accounting import membership_figures as attacks
from wpriv.accounting.adaptive_history import is_unsampled_gaussian
from wpriv.accounting.build_process import DescribedProcess
from wpriv.accounting.evaluate import Refusal
from wpriv.config.plain_words import in_plain_words
from wpriv.core import registry
from wpriv.core.guarantee import Curve, Guarantee
from wpriv.core.kinds import Sampling
from wpriv.core.mechanism import Mechanism
from wpriv.core.membership import MAX_WORK
from wpriv.core.process import Process, refuse_passes
from wpriv.core.repeats import Repeats, parse
from wpriv.errors import CheckFailed, Unsupported, UsageError
from wpriv.numerics import counted_work
from wpriv.numerics.bracket import Bracket, monotone
from wpriv.numerics.numbers import echo, rounded, text


class MechanismParameters(TypedDict, total=False):
    """The parameters of all mechanisms that ship with wpriv; each takes some of them (``wpriv.Gauss`` and so on)."""

    sigma: float | str | None
    scale: float | str | None
    sensitivity: float | str | None
    radius: float | str | None
    bound: float | str | None
    d: int | str
    k: int | str
    eps0: float | str
    delta0: float | str
    mu: float | str
    rho: float | str
    xi: float | str
    outcomes: int | str
    nonnegative: int | str
    file: str
    bin_width: float | str
    cell: float | str
    lipschitz_x: float | str
    lipschitz_z: float | str | None
    size_x: int | str
    size_z: int | str | None
    private: str
    formula: str
    alpha: float | str
    clip: float | str
    labels: int | str
    size: int | str | None
    threshold: float | str | None
    keys: int | str
    strategy: str
    separation: int | str
    participations: int | str
    distribution: str
    monotone: bool | str
    candidates: int | str | None
    threshold_scale: float | str
    query_scale: float | str
    answers: int | str
    answer_scale: float | str | None
    variant: str


class Keywords(MechanismParameters, total=False):
    """Parameters of mechanisms, and words of other programs for keywords of the verbs, the most usual ones."""

    noise_multiplier: float | str
    min_separation: int | str
    largest_weight: float | str
    epsilon: float | str
    steps: int | str
    sample_rate: float | str
    batch_size: int | str
    dataset_size: int | str


# bounds on attacks are derived from many points with fewer digits: how much wider their brackets may be
ATTACK_FACTOR = 10
# counted work (nanoseconds of a usual processor) of an answer from which on bounds on attacks are derived from the
# widest brackets
SLOW_ANSWER_WORK = 0.5e9


@in_plain_words
def budget(
    mech: str | Mechanism | Process | None = None,
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
    observed: Any = None,
    tol: float | None = None,
    attack: bool = False,
    adaptive: bool = False,
    repeats: str | Repeats | None = None,
    with_mu: bool = False,
    fpr: float | None = None,
    **params: Unpack[Keywords],
) -> Guarantee:
    """Compute eps at a given delta, or delta at a given eps, by one accountant.

    Args:
        mech: a mechanism (``Gauss(sigma=4)``), a ``Process``, or the name of a mechanism, whose parameters are then
            keywords of their own (``"gauss", sigma=4``); or a process in words (``"gauss sigma=4 n=10 poisson .01"``).
        eps: the eps at which delta is computed.
        delta: the delta at which eps is computed, 0 for pure DP; exactly one of the two is given.
        accountant: the name of an accountant, with options as ``"wdp:order=16"``; by default pld, or rdp where only
            Renyi divergences are known.
        n: number of compositions (default 1).
        sampling: ``Poisson(0.01)``, ``FixedSize(0.01)``, ``Allocation(0.01)`` or ``Shuffle(0.01)``; or ``none``,
            ``poisson``, ``fixed``, ``allocation`` or ``shuffle``.
        rate: share of the records in a step, where ``sampling`` is a word.
        batch: instead of the rate, the records of a step, with ``records``.
        records: size of the data set.
        epochs: instead of n, passes over the data, with a rate.
        max_batch: for Poisson sampling, the largest number of records of a step, with ``records``.
        bins: instead of the rate of balls in bins: the number of steps of a pass.
        bands: number of bands of a matrix mechanism under cyclic Poisson sampling, whose steps n and rate are then.
        adjacency: the neighbouring relation; by default it follows from the sampling and the mechanism.
        group: largest number of records of one person (default 1).
        history: a JSON file of steps, instead of all of these.
        observed: pair distances of gradients, for wdp and bdp: an array, a file, or a generator such as
            ``weibull:shape=0.5,records=50``.
        tol: relative width asked of a certified bracket (default 1e-6).
        attack: add bounds on attacks, under ``extra["attack"]``, where delta is known from both sides.
        adaptive: the figure that holds where noise, rates and the number of steps were chosen from earlier outputs.
        repeats: the process is one of K runs of which only the best is released; the distribution of K, as in
            ``geometric:mean=20``, ``poisson:mean=20`` or ``negative-binomial:eta=0.5,mean=20``.
        with_mu: add mu of Gaussian DP, under ``extra["mu_lower"]`` and ``extra["mu_upper"]``; eps and delta may then be
            left out, and the guarantee is that of eps = 0.
        fpr: the smallest false-positive and false-negative rate for which mu holds (default 1e-9).
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
    >>> float(answer) == float(budget("gauss", sigma=4, sampling="poisson", rate=0.01, n=65536, delta=1e-4))
    True
    """
    described = build_process.described_process(
        mech,
        n=n,
        sampling=sampling,
        rate=rate,
        batch=batch,
        records=records,
        epochs=epochs,
        max_batch=max_batch,
        bands=bands,
        bins=bins,
        adjacency=adjacency,
        group=group,
        history=history,
        observed=observed,
        **params,
    )
    question = build_process.question(eps=eps, delta=delta, tol=tol, fpr=fpr)
    described, name = described.by("pld" if adaptive and accountant is None else accountant)
    row = answer(
        described,
        name,
        **question,
        attack=attack,
        adaptive=adaptive,
        repeats=repeats,
        with_mu=with_mu,
        beside_others=False,
    )
    return evaluate.with_warnings(row, plausibility_warnings(row, described.records))


def curve(process: Process | Mechanism | str, accountant: str = "pld", *, tol: float | None = None) -> Curve:
    """Return the privacy curve of a process by one accountant.

    Args:
        process: what ran, also as a mechanism or in words (``"gauss sigma=4 n=10"``).
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
    process = build_process.described_process(process).process
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
    repeats: str | Repeats | None = None,
    with_mu: bool = False,
    fpr: float | None = None,
    beside_others: bool = False,
) -> Guarantee:
    """``budget`` of a process that is already built, without plausibility warnings.

    ``beside_others``: the question is that of several accountants, of which some may have no delta.
    """
    mu_alone = with_mu and eps is None and delta is None
    eps = 0.0 if mu_alone else eps
    if evaluate.is_divergence(accountant) and eps is None and repeats is None and not beside_others:
        if delta is not None:
            raise UsageError(
                f"{accountant} gives a Renyi divergence, which has no delta: leave out `delta`, or use rdp"
            )
    else:
        check_question(eps, delta)
    other = None if accountant == "pld" else accountant
    spec.check(fpr=fpr, with_mu=with_mu, adaptive=adaptive, repeats=repeats, accountant=other)
    tol = subject.tol() if tol is None else tol
    if repeats is not None:
        row = best_of_runs.answer(subject.process, accountant, repeats, eps=eps, delta=delta, tol=tol, attack=attack)
        return row.with_extra(reading=[*subject.notes, *row.extra["reading"]])
    if adaptive:
        return _adaptive(subject, eps, delta, tol)
    is_slow = counted_work.limit(SLOW_ANSWER_WORK)
    row = evaluate.ask(evaluate.curve(subject.process, accountant, tol), eps=eps, delta=delta)
    slow = is_slow()
    extra: dict[str, Any] = {"reading": [note for note in subject.notes if note not in subject.warnings]}
    if accountant == "pld" and subject.runs > 1:
        with contextlib.suppress(Unsupported):  # no bound for adaptive parameters is known
            figures = adaptive_history.account_for_history(
                subject.process, eps=eps, delta=delta, tol=tol, fixed=row, runs=subject.runs
            )
            extra["parameters"] = figures.as_dict()
    row = evaluate.with_warnings(row, list(subject.warnings))
    if "parameters" not in extra:
        row = evaluate.with_warnings(row, runs_in_advance(subject, accountant))
    if attack:
        work = attacks.PURE_WORK if delta == 0 else MAX_WORK
        coarse = attacks.WIDEST_TOL if slow or delta == 0 else min(ATTACK_FACTOR * subject.tol(), attacks.WIDEST_TOL)
        curve = evaluate.curve(subject.process, accountant, max(tol, coarse))
        bounds = attacks.attack_bounds(curve, largest=evaluate.largest_loss(subject.process), work=work)
        guess = attacks.chance_of_right_guess(row)
        extra |= {"attack": bounds} if bounds else {"attack_reading": guess} if guess else {}
    row = row.with_extra(**extra)
    if not with_mu:
        return row
    value = membership_figures.mu(subject.process, accountant, fpr, tol)
    return membership_figures.with_mu(row, value, alone=mu_alone)


def _adaptive(subject: DescribedProcess, eps: float | None, delta: float | None, tol: float) -> Guarantee:
    """The figure for adaptively chosen parameters, with that for fixed ones in ``extra["parameters"]``."""
    refuse_passes(subject.process, "`adaptive`")
    runs = max(subject.runs, 1)
    figures = adaptive_history.account_for_history(subject.process, eps=eps, delta=delta, tol=tol, runs=runs)
    unknown = "delta" if eps is not None else "eps"
    return figures.adaptive.with_extra(asked=unknown, reading=list(subject.notes), parameters=figures.as_dict())


def check_question(eps: float | None, delta: float | None) -> None:
    """Raise UsageError unless exactly one of eps and delta is given."""
    if (eps is None) == (delta is None):
        given = "both" if eps is not None else "neither"
        raise UsageError(f"give `eps` to learn delta, or `delta` to learn eps; found {given}")


# several accountants, and a grid of eps

CURVE_POINTS = 41


def by_accountants(
    subject: DescribedProcess, accountants: list[str], **question: Any
) -> tuple[list[Guarantee], list[Refusal]]:
    """``answer`` by each accountant (``all`` stands for every one); those that refuse are listed with their reason.

    Raises:
        UsageError: an unknown name, or a faulty question. Unsupported: every accountant refuses.
    """
    if not question.get("with_mu"):
        check_question(question.get("eps"), question.get("delta"))
    names = list(dict.fromkeys(registry.names("accountants") if "all" in accountants else accountants))
    for name in names:
        registry.accountant(name)
    rows, refused = evaluate.answers(names, lambda name: answer(subject, name, beside_others=True, **question))
    if not rows:
        raise Unsupported(f"no accountant has an answer: {'; '.join(f'{r.accountant}: {r.reason}' for r in refused)}")
    return rows, refused


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
    curve = best_of_runs.curve_of(subject.process, accountant, tol, repeats)
    top = eps if eps is not None else _end(curve, delta)
    # six digits write each inner point in full
    points = [*(rounded(float(Fraction(top) * k / (CURVE_POINTS - 1)), up=False) for k in range(CURVE_POINTS - 1)), top]
    rows = [evaluate.ask(curve, eps=point) for point in dict.fromkeys(points)]  # one where the curve ends at eps = 0
    deltas = monotone([row.delta for row in rows])
    warnings = [
        *subject.warnings,
        *runs_in_advance(subject, accountant),
        *count_confusion(subject.process, subject.records),
    ]
    rows = [
        evaluate.with_warnings(replace(row, delta=delta), warnings) for row, delta in zip(rows, deltas, strict=True)
    ]
    if repeats is not None:
        rows = [best_of_runs.with_note(row, parse(repeats)) for row in rows]
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


# Whether guarantees meet a limit on eps, and warnings about arguments that were probably meant otherwise.

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
    """All warnings of the section; ``records`` is the size of the data set, if known."""
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
