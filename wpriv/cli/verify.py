"""wpriv verify"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from wpriv.cli import flags
from wpriv.cli.parsing import argument, option, switch
from wpriv.errors import CheckFailed, UsageError
from wpriv.files import STDIN, read_bytes, shown_path

if TYPE_CHECKING:
    from wpriv.verify.prove import Proof

SCHEMA = "wpriv.verification/1"
Words = Annotated[
    list[str] | None,
    argument(
        "FILE|RUN-DIR|RECIPE",
        "A certificate, a guarantee (--json), a training, or a recipe of kind verify; with --claim also a "
        "recipe of kind budget, or words such as 'gauss sigma=4 n=10'; - is standard input.",
    ),
]
Width = Annotated[
    str | None, option("X", "Move the claimed ends outwards by this share before proving them.", "--width")
]
ClaimText = Annotated[
    str | None,
    option(
        "CLAIM",
        "Decide this claim about a process: eps=3,delta=1e-5; eps=1 (pure DP); mu=1; mu=1,fpr=1e-9; rho=0.5; or "
        "xi=0.1,rho=0.5.",
        "--claim",
    ),
]
Why = Annotated[bool, switch("--why", "With --claim: decide it under every interpretation of the flags.")]
Seed = Annotated[str | None, option("N", "With --claim: seed of the simulation (default 0).", "--seed")]


@flags.with_job
def command(
    job: flags.Job,
    words: Words = None,
    history: flags.History = None,
    claim: ClaimText = None,
    why: Why = False,
    seed: Seed = None,
    width: Width = None,
    as_json: flags.Json = False,
) -> None:
    """Re-prove the ends of a certificate by an independent program, or decide a claim about a process (--claim).

    Of a training, also compare model.safetensors and model.pt with the statement.

    Exit codes: 0 proved; 1 refuted, or an end of a certificate is not proved; 2 malformed; 3 a claim is open.

    wpriv verify certificate.json

    wpriv verify --claim eps=3,delta=1e-4 --mech gauss --sigma 4 --sampling poisson --rate 0.01 --n 65536

    wpriv verify --claim mu=1 "gauss sigma=4 n=10"

    wpriv verify claims/published
    """
    from wpriv.accounting import certificates
    from wpriv.cli import claim_output, output
    from wpriv.training.reports import model_check

    if claim is not None:
        claim_output.decide(claim, job, words, history, why=why, seed=seed, width=width, as_json=as_json)
        return
    source = Path(" ".join(words)) if words else None
    for name, value in {**vars(job), "history": history, "why": why, "seed": seed}.items():
        if value and (name != "seed" or not _is_recipe(source)):
            option = f"--{name.replace('_', '-')}"
            raise UsageError(
                f"{option} describes a process, about which --claim says something: give --claim, or leave out {option}"
            )
    if source is None:
        raise UsageError(
            "verify needs a certificate, the folder of a training or a recipe of kind verify, or --claim with a process"
        )
    if _is_recipe(source):
        claim_output.decide_recipe(source, seed=seed, width=width, as_json=as_json)
        return
    share = flags.numbers(width=width)["width"]
    if share is not None and not 0 <= share < 1:
        raise UsageError(f"--width must be at least 0 and below 1; found {width}")
    model = model_check.require(source, thorough=True) if source.is_dir() else None
    results = certificates.verify(source, share)
    proofs = [(name, proof) for name, _, each in results for proof in each]
    premises = list(dict.fromkeys(premise for _, each, _ in results for premise in each))
    failed = next((proof for _, proof in proofs if proof.verdict != "proved"), None)
    if as_json:
        about = {} if model is None else {"model": model.verdict}
        rows = [_row(name, proof) for name, proof in proofs]
        output.emit_rows(rows, SCHEMA, proved=failed is None, premises=premises, **about)
    else:
        output.emit(*(_line(name, proof) for name, proof in proofs))
        output.emit(*(f"premise, not proved: {premise}" for premise in premises))
        if model is not None:
            output.emit(model.words)
    if failed is not None:
        raise CheckFailed(
            f"{shown_path(source)}: {failed.name} is {failed.verdict}: claimed {_claim(failed)}; the verifier finds "
            f"{_finding(failed)}"
        )


def _is_recipe(source: Path | None) -> bool:
    """Tell whether the argument of ``verify`` names a recipe and not a certificate or a folder."""
    if source is None or source.is_dir():
        return False
    if str(source) == STDIN:
        return not read_bytes(STDIN, 1000).lstrip().startswith(b"{")
    return source.suffix in (".yaml", ".yml") or (not source.suffix and not source.exists())


def _row(name: str, proof: Proof) -> dict[str, str | float | None]:
    """One end as plain data; ``proven`` is the bound on delta, rounded to the side on which it holds."""
    side, bound = proof.rounded()
    return {
        "of": name,
        "end": proof.name,
        "epsilon": float(proof.eps),
        "delta": float(proof.delta),
        "proven": bound,
        "proven_side": side,
        "margin": proof.margin,
        "verdict": proof.verdict,
        "method": proof.method,
    }


def _claim(proof: Proof) -> str:
    return f"delta({float(proof.eps)!r}) {'<=' if proof.name.endswith('upper') else '>='} {float(proof.delta)!r}"


def _finding(proof: Proof) -> str:
    side, bound = proof.rounded()
    return "no bound" if bound is None else f"delta {side} {bound}"


def _line(name: str, proof: Proof) -> str:
    """One end in words."""
    if proof.method == "nothing to prove":
        return f"{name}: {proof.name}: nothing to prove"
    margin = "" if proof.margin is None else f", margin {proof.margin:.2g}"
    return (
        f"{name}: {proof.name}: claimed {_claim(proof)}; re-proved {_finding(proof)}{margin}: {proof.verdict}"
        f" ({proof.method})"
    )
