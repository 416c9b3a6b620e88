"""wpriv verify"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wpriv.cli import flags
from wpriv.errors import CheckFailed

if TYPE_CHECKING:
    from wpriv.run.results.model_check import ModelCheck
    from wpriv.verify.prove import Proof

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
    from wpriv.cli import output, verify_claim
    from wpriv.errors import UsageError
    from wpriv.run.accounting import certificates
    from wpriv.run.results import model_check

    if claim is not None:
        verify_claim.decide(claim, job, source, history, why=why, seed=seed, width=width, as_json=as_json)
        return
    for name, value in {**vars(job), "history": history, "why": why, "seed": seed}.items():
        if value and (name != "seed" or not verify_claim.is_recipe(source)):
            option = f"--{name.replace('_', '-')}"
            raise UsageError(
                f"{option} describes a process, about which --claim says something: give --claim, or leave out {option}"
            )
    if source is None:
        raise UsageError(
            "verify needs a certificate, the folder of a training or a recipe of kind verify, or --claim with a process"
        )
    if verify_claim.is_recipe(source):
        verify_claim.decide_recipe(source, seed=seed, width=width, as_json=as_json)
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
