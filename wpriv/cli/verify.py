"""Print verdicts on claims: one claim about a process, one claim under every interpretation, or those of a recipe."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wpriv import spec
from wpriv.accounting import build_process, load_recipe
from wpriv.accounting.build_process import DescribedProcess
from wpriv.accounting.claims import decide as decisions
from wpriv.accounting.claims import subject, verify_claim
from wpriv.accounting.claims.decision import OPEN, REFUTED, Decision, Question
from wpriv.accounting.claims.verify_claim import Reading
from wpriv.cli import flags, output
from wpriv.cli.flags import as_flags
from wpriv.cli.guarantee_output import bracket_text, circumstances, steps_of
from wpriv.core.claim import Claim, parse_claim
from wpriv.errors import CheckFailed, Unsupported, UsageError
from wpriv.numerics.numbers import echo, text, whole

if TYPE_CHECKING:
    from wpriv.training.reports.model_check import ModelCheck
    from wpriv.verify.prove import Proof


DECISION_SCHEMA = "wpriv.decision/1"
RECIPE_SUFFIXES = (".yaml", ".yml")


def is_recipe(source: Path | None) -> bool:
    """Tell whether the argument of ``verify`` names a recipe and not a certificate or a folder."""
    if source is None or source.is_dir():
        return False
    return source.suffix in RECIPE_SUFFIXES or (not source.suffix and not source.exists())


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
    claim = parse_claim(claim_text)
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
    verify_claim.require_expected(source, rows)
    refuted = [row.name for row in rows if row.expected is None and row.verdict == REFUTED]
    if refuted:
        raise CheckFailed(f"{source}: refuted: {', '.join(refuted)}")


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


# wpriv verify

SCHEMA = "wpriv.verification/1"
Source = Annotated[
    Path | None,
    typer.Argument(
        metavar="FILE|RUN-DIR|RECIPE",
        help="A certificate, a guarantee (--json), a training, or a recipe of kind verify; with --claim also a "
        "recipe of kind budget, or words such as 'gauss sigma=4 n=10'.",
    ),
]
Width = Annotated[
    str | None,
    typer.Option("--width", metavar="X", help="Move the claimed ends outwards by this share before proving them."),
]
ClaimText = Annotated[
    str | None,
    typer.Option(
        "--claim",
        metavar="CLAIM",
        help="Decide this claim about a process: eps=3,delta=1e-5; eps=1 (pure DP); mu=1; mu=1,fpr=1e-9; or rho=0.5.",
    ),
]
Why = Annotated[bool, typer.Option("--why", help="With --claim: decide it under every interpretation of the flags.")]
Seed = Annotated[
    str | None, typer.Option("--seed", metavar="N", help="With --claim: seed of the simulation (default 0).")
]


@flags.with_job
def command(
    job: flags.Job,
    source: Source = None,
    history: flags.History = None,
    claim: ClaimText = None,
    why: Why = False,
    seed: Seed = None,
    width: Width = None,
    as_json: flags.Json = False,
) -> None:
    """Re-prove the ends of a certificate by an independent program, or decide a claim about a process (--claim).

    Of a training, also compare model.safetensors and model.pt with the statement.

    Exit codes: 0 proved; 1 refuted, or an end of a certificate is not proved; 2 malformed; 3 a claim is open; 4
    python-flint is missing.

    wpriv verify certificate.json

    wpriv verify --claim eps=3,delta=1e-5 --mech gauss --sigma 4 --sampling poisson --rate 0.01 --n 65536

    wpriv verify claims/published
    """
    from wpriv.accounting import certificates
    from wpriv.cli import output
    from wpriv.errors import UsageError
    from wpriv.training.reports import model_check

    if claim is not None:
        decide(claim, job, source, history, why=why, seed=seed, width=width, as_json=as_json)
        return
    for name, value in {**vars(job), "history": history, "why": why, "seed": seed}.items():
        if value and (name != "seed" or not is_recipe(source)):
            option = f"--{name.replace('_', '-')}"
            raise UsageError(
                f"{option} describes a process, about which --claim says something: give --claim, or leave out {option}"
            )
    if source is None:
        raise UsageError(
            "verify needs a certificate, the folder of a training or a recipe of kind verify, or --claim with a process"
        )
    if is_recipe(source):
        decide_recipe(source, seed=seed, width=width, as_json=as_json)
        return
    share = flags.numbers(width=width)["width"]
    if share is not None and not 0 <= share < 1:
        raise UsageError(f"--width must be at least 0 and below 1; found {width}")
    model = model_check.require(source, thorough=True) if source.is_dir() else None
    results = certificates.verify(source, share)
    rows = [_row(name, proof) for name, _, proofs in results for proof in proofs]
    premises = list(dict.fromkeys(premise for _, each, _ in results for premise in each))
    if as_json:
        proved = all(row["verdict"] == "proved" for row in rows)
        output.emit_rows(rows, SCHEMA, proved=proved, premises=premises, **_of(model))
    else:
        for row in rows:
            output.emit(_line(row))
        for premise in premises:
            output.emit(f"premise, not proved: {premise}")
        if model is not None:
            output.emit(model.words)
    failed = [row for row in rows if row["verdict"] != "proved"]
    if failed:
        raise CheckFailed(
            f"{source}: {failed[0]['end']} is {failed[0]['verdict']}: claimed {_claim(failed[0])}; "
            f"the verifier finds {_finding(failed[0])}"
        )


def _of(model: ModelCheck | None) -> dict[str, str]:
    """What is known of the weights in a folder, as keys of --json."""
    return {} if model is None else {"model": model.verdict}


def _row(name: str, proof: Proof) -> dict[str, Any]:
    """One end as plain data; ``proven`` is the bound on delta, rounded to the side on which it holds."""
    above = proof.upper == (proof.verdict != "refuted")
    return {
        "of": name,
        "end": proof.name,
        "epsilon": float(proof.eps),
        "delta": float(proof.delta),
        "proven": None if proof.bound is None else _rounded(proof.bound, above),
        "proven_side": "at most" if above else "at least",
        "margin": proof.margin,
        "verdict": proof.verdict,
        "method": proof.method,
    }


def _rounded(bound: Any, up: bool) -> str:
    """A bound with 12 digits, rounded to its side."""
    from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

    context = Context(prec=12, rounding=ROUND_CEILING if up else ROUND_FLOOR)
    return f"{context.divide(Decimal(bound.numerator), Decimal(bound.denominator)):g}"


def _claim(row: dict[str, Any]) -> str:
    return f"delta({row['epsilon']!r}) {'<=' if row['end'].endswith('upper') else '>='} {row['delta']!r}"


def _finding(row: dict[str, Any]) -> str:
    return "no bound" if row["proven"] is None else f"delta {row['proven_side']} {row['proven']}"


def _line(row: dict[str, Any]) -> str:
    """One end in words."""
    if row["method"] == "nothing to prove":
        return f"{row['of']}: {row['end']}: nothing to prove"
    margin = "" if row["margin"] is None else f", margin {row['margin']:.2g}"
    return (
        f"{row['of']}: {row['end']}: claimed {_claim(row)}; re-proved {_finding(row)}{margin}: {row['verdict']}"
        f" ({row['method']})"
    )
