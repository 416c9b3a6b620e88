"""Decide claims about processes, and which of two processes is more private; print the verdict, set the exit code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from wpriv import spec
from wpriv.accounting import load_recipe
from wpriv.accounting.build_process import DescribedProcess
from wpriv.accounting.claims import decide as decisions
from wpriv.accounting.claims import order, verify_claim
from wpriv.accounting.claims.decision import OPEN, PROVED, REFUTED, Question
from wpriv.accounting.claims.verify_claim import PublishedVerdict, Reading
from wpriv.cli import flags, output
from wpriv.cli.flags import as_flags
from wpriv.config.plain_words import Claim, parse_claim
from wpriv.errors import CheckFailed, Unsupported, UsageError
from wpriv.files import STDIN, read_bytes, shown_path
from wpriv.numerics.numbers import text, whole

DECISION_SCHEMA = "wpriv.decision/1"
ORDER_SCHEMA = "wpriv.order/1"


def decide(
    claim_text: str,
    job: flags.Job,
    words: Sequence[str] | None,
    history: str | None,
    *,
    why: bool,
    seed: str | None,
    width: str | None,
    as_json: bool,
) -> None:
    """Decide one claim about the process of flags, words or a file, print the verdict, and set the exit code.

    Raises:
        CheckFailed: the claim is refuted. Unsupported: it is open. UsageError: the flags are wrong.
    """
    if claim_text == STDIN:
        claim_text = read_bytes(STDIN, 1000).decode("utf-8", "replace").strip()
    claim = parse_claim(claim_text)
    spec.check(claim=claim, width=width, eps=job.eps, delta=job.delta, several=job.several)
    source, steps, job = flags.subject(words, job, history=history)
    tol = job.question().get("tol")
    rows = _readings(job, source or steps, history, claim, tol) if why else []
    if job.sampling is None and any("rate" in row.interpretation.spec for row in rows):
        verdict, reason = _overall(rows)
        if as_json:
            data = {"claim": claim.as_dict(), "verdict": verdict, "reason": reason}
            output.emit_result(DECISION_SCHEMA, **data, readings=[row.as_dict() for row in rows])
        else:
            output.emit_bold(as_flags(f"{verdict}: {claim}, since {reason}"))
            _print_readings(rows)
        _set_exit_code(claim, verdict, reason)
        return
    described = _described(job, source, steps, history)
    accountant = (job.accountant or [""])[0]
    question = Question(claim, described.process, described.notes, accountant, tol, seed=_seed(seed))
    decision = decisions.decide(question)
    data = decision.as_dict() | ({"readings": [row.as_dict() for row in rows]} if why else {})
    # the verdict, what it is about, and the test that breaks a refuted claim
    facts = [(name, as_flags(text)) for name, text in decision.facts()]
    output.emit_answer(as_json, data, as_flags(decision.sentence()), facts, DECISION_SCHEMA)
    _print_readings(() if as_json else rows)
    output.warn(decision.caveats)
    _set_exit_code(claim, decision.verdict, decision.reason)


def decide_recipe(source: Path, *, seed: str | None, width: str | None, as_json: bool) -> None:
    """Decide the claims of a recipe of kind verify."""
    if width is not None:
        raise UsageError("--width moves the ends of a certificate; leave it out beside a recipe")
    recipe = load_recipe.read(str(source), kind="verify")
    with output.counting("claims") as progress:
        rows = verify_claim.decide_published(recipe, seed=_seed(seed), progress=progress)
    if as_json:
        output.emit_rows([row.as_dict() for row in rows], DECISION_SCHEMA, source=recipe.source)
    else:
        output.emit_bold(_total(rows), recipe.source)
        output.emit("")
        body = [[row.name, row.claim, row.verdict, row.expected or "", as_flags(row.reason)] for row in rows]
        output.emit_table(["claim of", "claim", "verdict", "expected", "reason"], body)
    verify_claim.require_expected(shown_path(source), rows)
    refuted = [row.name for row in rows if row.expected is None and row.verdict == REFUTED]
    if refuted:
        raise CheckFailed(f"{shown_path(source)}: refuted: {', '.join(refuted)}")


def _described(
    job: flags.Job, source: str | None, steps: Sequence[Mapping[str, object]], history: str | None
) -> DescribedProcess:
    if source is not None:
        about = {name: value for name, value in vars(job).items() if name not in ("accountant", "tol")}
        flags.no_flags(source, flags.Job(**about), history=history)
        return verify_claim.described(source)
    return flags.process(steps, job, history=history)


def _readings(
    job: flags.Job, source: object, history: str | None, claim: Claim, tol: float | None
) -> Sequence[Reading]:
    if source or history is not None:
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


def _print_readings(rows: Sequence[Reading]) -> None:
    if not rows:
        return
    body, notes = [], []
    for row in rows:
        about = row.interpretation
        body.append([row.verdict, about.spec.get("sampling", "none"), str(about.spec["n"]), str(about.adjacency)])
        notes.append(f"{as_flags(row.reason)}: {about.assumption}")
    output.emit("")
    output.emit_table(["verdict", "sampling", "n", "neighbours"], body, notes=notes)


def _total(rows: Sequence[PublishedVerdict]) -> str:
    """The numbers of published claims by verdict, and whether all verdicts are the expected ones."""
    count = Counter(row.verdict for row in rows)
    words = f"{count[PROVED]} of {len(rows)} claims proved, {count[REFUTED]} refuted, {count[OPEN]} open"
    others = sum(not row.is_expected for row in rows)
    if others:
        return f"{words}; {others} not as expected"
    return words + "; all as expected" * all(row.expected is not None for row in rows)


def _overall(rows: Sequence[Reading]) -> tuple[str, str]:
    """The verdict that all interpretations have, or else open; and how many have which."""
    count = Counter(row.verdict for row in rows)
    words = [f"{verdict} under {n}" for verdict, n in count.items()]
    verdict = rows[0].verdict if len(count) == 1 else OPEN
    return verdict, f"no sampling is given, and it is {', '.join(words)} of {len(rows)} interpretations"


def _set_exit_code(claim: Claim, verdict: str, reason: str) -> None:
    if verdict == REFUTED:
        raise CheckFailed(f"the claim {claim} is refuted: {reason}")
    if verdict == OPEN:
        raise Unsupported(f"the claim {claim} is open: {reason}")


def compare_order(
    words: Sequence[str], job: flags.Job, others: Mapping[str, object], within: str | None, mode: str
) -> None:
    """Decide the order of two processes, print it, and set the exit code."""
    if len(words) != 2:
        raise UsageError(f"--order compares two processes, each {verify_claim.FORMS}; found {len(words) or 'none'}")
    about = {name: value for name, value in vars(job).items() if name not in ("eps", "delta", "tol")}
    if out_of_place := [name for name, value in {**about, **others}.items() if value]:
        option = f"--{out_of_place[0].replace('_', '-')}"
        raise UsageError(f"--order takes both processes as arguments, such as 'gauss sigma=4 n=10'; leave out {option}")
    if mode in ("csv", "quiet"):
        raise UsageError(f"--order prints text or JSON; leave out --{mode}")
    share = flags.numbers(within=within)["within"]
    result = order.privacy_order(
        verify_claim.described(words[0]).process,
        verify_claim.described(words[1]).process,
        within=order.WITHIN if share is None else share,
        **job.question(),
    )
    output.emit_answer(mode == "json", result.as_dict(), result.sentence(), result.facts(), ORDER_SCHEMA)
    output.warn(result.warnings)
    if result.verdict == order.UNDECIDED:
        low, high = result.worst.open_eps or (0.0, result.top)
        raise Unsupported(
            f"the order is undecided at this tolerance: between eps = {text(low, up=False)} and {text(high, up=True)} "
            f"the brackets do not separate the curves. Lower `tol`, or raise `within`"
        )
