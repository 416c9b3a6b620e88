"""Decide claims about processes, and which of two processes is more private; print the verdict, set the exit code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from wpriv import spec
from wpriv.accounting import build_process, load_recipe
from wpriv.accounting.build_process import DescribedProcess
from wpriv.accounting.claims import decide as decisions
from wpriv.accounting.claims import order, subject, verify_claim
from wpriv.accounting.claims.decision import OPEN, REFUTED, Decision, Question
from wpriv.accounting.claims.order import CROSSES, DOMINATED, DOMINATES, EQUAL, CurveOrder, PrivacyOrder
from wpriv.accounting.claims.verify_claim import Reading
from wpriv.cli import flags, output
from wpriv.cli.flags import as_flags
from wpriv.cli.guarantee_output import bracket_text, circumstances, steps_of
from wpriv.core.claim import Claim, parse_claim
from wpriv.errors import CheckFailed, Unsupported, UsageError
from wpriv.files import STDIN, read_bytes, shown_path
from wpriv.numerics.numbers import echo, text, whole

DECISION_SCHEMA = "wpriv.decision/1"
ORDER_SCHEMA = "wpriv.order/1"
ORDER_WORDS = {
    DOMINATES: "A is more private than B",
    DOMINATED: "B is more private than A",
    EQUAL: "A and B are equally private",
    CROSSES: "the curves of A and B cross",
}


def decide(
    claim_text: str,
    job: flags.Job,
    source: Path | None,
    history: str | None,
    *,
    why: bool,
    seed: str | None,
    width: str | None,
    as_json: bool,
) -> None:
    """Decide one claim about the process of the flags or of ``source``, print the verdict, and set the exit code.

    Raises:
        CheckFailed: the claim is refuted. Unsupported: it is open. UsageError: the flags are wrong.
    """
    claim = parse_claim(_line_of_stdin() if claim_text == STDIN else claim_text)
    spec.check(claim=claim, width=width, eps=job.eps, delta=job.delta, several=job.several)
    described = _described(job, source, history)
    accountant, tol = (job.accountant or [""])[0], job.question().get("tol")
    question = Question(claim, described.process, described.notes, accountant, tol, seed=_seed(seed))
    rows = _readings(job, source, history, claim, tol) if why else []
    decision = decisions.decide(question)
    if as_json:
        more = {"readings": [row.as_dict() for row in rows]} if why else {}
        output.emit_result(DECISION_SCHEMA, **decision.as_dict(), **more)
    else:
        _print_decision(decision)
        _print_readings(rows)
    output.warn(decision.caveats)
    _set_exit_code(decision)


def _line_of_stdin() -> str:
    return read_bytes(STDIN, 1000).decode("utf-8", "replace").strip()


def decide_recipe(source: Path, *, seed: str | None, width: str | None, as_json: bool) -> None:
    """Decide the claims of a recipe of kind verify.

    Raises:
        CheckFailed: a verdict is not the expected one, or a claim without an expected verdict is refuted.
    """

    if width is not None:
        raise UsageError("--width moves the ends of a certificate; leave it out beside a recipe")
    recipe = load_recipe.read(str(source), kind="verify")
    with output.counting("claims") as progress:
        rows = verify_claim.decide_published(recipe, seed=_seed(seed), progress=progress)
    if as_json:
        output.emit_rows([row.as_dict() for row in rows], DECISION_SCHEMA, source=recipe.source)
    else:
        output.emit_bold(recipe.source)
        body = [[row.name, row.claim, row.verdict, row.expected or "", as_flags(row.reason)] for row in rows]
        output.emit_table(["claim of", "claim", "verdict", "expected", "reason"], body)
    verify_claim.require_expected(shown_path(source), rows)
    refuted = [row.name for row in rows if row.expected is None and row.verdict == REFUTED]
    if refuted:
        raise CheckFailed(f"{shown_path(source)}: refuted: {', '.join(refuted)}")


def _described(job: flags.Job, source: Path | None, history: str | None) -> DescribedProcess:
    if source is not None:
        about = {name: value for name, value in vars(job).items() if name not in ("accountant", "tol")}
        flags.no_flags(str(source), flags.Job(**about), history=history)
        return subject.described(source)
    return build_process.described_process(**job.described(), history=history)


def _readings(
    job: flags.Job, source: Path | None, history: str | None, claim: Claim, tol: float | None
) -> Sequence[Reading]:
    if source is not None or history is not None:
        raise UsageError("--why reads the flags of one mechanism in several ways; give them instead of a file")
    if job.accountant:
        raise UsageError("--why chooses the accountant of each reading; leave out --accountant")
    spec = {"mech": job.mech, **job.params(), **job.schedule(), "group": job.group}
    return verify_claim.decide_readings(spec, claim, tol=tol)


def _seed(seed: str | None) -> int:
    value = 0 if seed is None else whole(seed, "--seed")
    if value < 0:
        raise UsageError(f"--seed is a whole number of at least 0; found {seed}")
    return value


def _print_decision(decision: Decision) -> None:
    """The verdict, what it is about, and the test that breaks a refuted claim."""
    output.emit_bold(
        f"{decision.claim} is {decision.verdict}: {as_flags(decision.reason)}",
        f"reading: {circumstances(decision.process)}",
        *steps_of(decision.process),
        *(f"read as: {note}" for note in decision.notes),
    )
    if decision.epsilon is not None and decision.claim.notion == "approximate-dp" and decision.claim.delta > 0:
        output.emit(f"eps at delta = {echo(decision.claim.delta)}: {bracket_text(decision.epsilon)}")
    if decision.delta is not None and decision.at_eps is not None:
        output.emit(f"delta at eps = {echo(decision.at_eps)}: {bracket_text(decision.delta)}")
    if decision.accountant:
        output.emit(f"by {decision.accountant}: {decision.source}")
    if decision.verdict == REFUTED:
        _print_test(decision)


def _print_test(decision: Decision) -> None:
    """The test, its rates, and the simulation of the two worlds."""
    test, seen = decision.test, decision.simulation
    if test is not None:
        output.emit(
            f'test: say "in" where the privacy loss exceeds {echo(test.threshold)} (order of the neighbours: '
            f"{decision.order}); false-positive rate in {_interval(test.fpr_lower, test.fpr_upper)}, true-positive "
            f"rate in {_interval(test.tpr_lower, test.tpr_upper)}, and TPR - e^eps FPR at least "
            f"{text(test.delta_lower, up=False)}"
        )
    if seen is not None and decision.allowed is not None:
        deviations = (seen.advantage - decision.allowed) / seen.standard_error if seen.standard_error else 0.0
        output.emit(
            f"simulation: {seen.trials} runs in each world (seed {seen.seed}): TPR {seen.tpr:.6g}, FPR {seen.fpr:.6g}, "
            f"TPR - e^eps FPR = {seen.advantage:.4g} with a standard error of {seen.standard_error:.2g}, which is "
            f"{deviations:.1f} standard errors above the claimed {decision.allowed:.6g}"
        )
    elif decision.not_simulated:
        output.emit(f"not simulated: {as_flags(decision.not_simulated)}")


def _interval(low: float, high: float) -> str:
    return f"[{text(low, up=False, digits=4)}, {text(high, up=True, digits=4)}]"


def _print_readings(rows: Sequence[Reading]) -> None:
    if not rows:
        return
    body = []
    for row in rows:
        about = row.interpretation
        words = [about.spec.get("sampling", "none"), str(about.spec["n"]), str(about.adjacency)]
        body.append([row.verdict, *words, as_flags(row.reason), about.assumption])
    output.emit_table(["verdict", "sampling", "n", "neighbours", "reason", "assumption"], body, above="\n")


def _set_exit_code(decision: Decision) -> None:
    if decision.verdict == REFUTED:
        raise CheckFailed(f"the claim {decision.claim} is refuted: {decision.reason}")
    if decision.verdict == OPEN:
        raise Unsupported(f"the claim {decision.claim} is open: {decision.reason}")


def compare_order(
    a: str | None, b: str | None, job: flags.Job, others: Mapping[str, object], within: str | None, mode: str
) -> None:
    """Decide the order of two processes, print it, and set the exit code.

    Args:
        others: flags that have no place here.
    Raises:
        UsageError: not two processes, or flags that have no place here. Unsupported: the order is undecided.
    """
    if a is None or b is None:
        raise UsageError(f"--order compares two processes, each {subject.FORMS}; found {'one' if a else 'none'}")
    about = {name: value for name, value in vars(job).items() if name not in ("eps", "delta", "tol")}
    if out_of_place := [name for name, value in {**about, **others}.items() if value]:
        option = f"--{out_of_place[0].replace('_', '-')}"
        raise UsageError(f"--order takes both processes as arguments, such as 'gauss sigma=4 n=10'; leave out {option}")
    if mode in ("csv", "quiet"):
        raise UsageError(f"--order prints text or JSON; leave out --{mode}")
    share = flags.numbers(within=within)["within"]
    result = order.privacy_order(
        subject.described(a).process,
        subject.described(b).process,
        within=order.WITHIN if share is None else share,
        **job.question(),
    )
    if mode == "json":
        output.emit_result(ORDER_SCHEMA, **result.as_dict())
    else:
        _print_order(result)
    output.warn(result.warnings)
    if result.verdict not in ORDER_WORDS:
        low, high = result.worst.open_eps or (0.0, result.top)
        raise Unsupported(
            f"the order is undecided at this tolerance: between eps = {text(low, up=False)} and {text(high, up=True)} "
            f"the brackets do not separate the curves. Lower `tol`, or raise `within`"
        )


def _print_order(result: PrivacyOrder) -> None:
    for name, process in (("A", result.a), ("B", result.b)):
        output.emit(f"{name}: {circumstances(process)}", *(f"   {line}" for line in steps_of(process)))
    output.emit_bold(f"{ORDER_WORDS.get(result.verdict, 'undecided')}{_range(result)}", *_crossings(result.worst))
    for name, one in result.orders.items():
        verdict = ORDER_WORDS.get(one.verdict, "undecided")
        output.emit(f"order of the neighbours {name}: {verdict}", *(f"   {line}" for line in _crossings(one)))
    output.emit(result.reason)


def _range(result: PrivacyOrder) -> str:
    if result.top == float("inf"):
        return " at every eps" if result.verdict != CROSSES else ""
    where = f" for every eps from 0 to {text(result.top, up=False)}"
    if result.verdict == EQUAL:
        return f", within {echo(result.within)} of delta (relative),{where}"
    return where if result.verdict in (DOMINATES, DOMINATED) else f" between eps = 0 and {text(result.top, up=False)}"


def _crossings(one: CurveOrder) -> list[str]:
    lines = []
    for crossing in one.crossings:
        after = "B" if crossing.first == "A" else "A"
        eps = f"[{text(crossing.eps_lower, up=False)}, {text(crossing.eps_upper, up=True)}]"
        delta = f"[{text(crossing.delta_lower, up=False)}, {text(crossing.delta_upper, up=True)}]"
        lines.append(
            f"at an eps in {eps}, delta in {delta}: before it {crossing.first} has the smaller delta, after it {after}"
        )
    return lines
