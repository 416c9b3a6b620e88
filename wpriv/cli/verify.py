"""wpriv verify"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from wpriv.cli import flags, output
from wpriv.cli.parsing import argument, option, switch
from wpriv.errors import CheckFailed, UsageError
from wpriv.files import STDIN, read_bytes, shown_path
from wpriv.numerics.numbers import short, text

if TYPE_CHECKING:
    from wpriv.verify.prove import Proof

SCHEMA = "wpriv.verification/1"


@flags.with_job
def command(
    job: flags.Job,
    words: list[str] | None = argument(
        "FILE|RUN-DIR|RECIPE",
        "A certificate, a guarantee (--json), a training, or a recipe of kind verify; with --claim also a "
        "recipe of kind budget, or words such as 'gauss sigma=4 n=10'; - is standard input.",
        default=None,
    ),
    history: flags.Text = flags.HISTORY,
    claim: str | None = option(
        "CLAIM",
        "Decide this claim about a process: eps=3,delta=1e-5; eps=1 (pure DP); mu=1; mu=1,fpr=1e-9; rho=0.5; or "
        "xi=0.1,rho=0.5.",
    ),
    why: bool = switch("--why", "With --claim: decide it under every interpretation of the flags."),
    seed: str | None = option("N", "With --claim: seed of the simulation (default 0)."),
    width: str | None = option("X", "Move the claimed ends outwards by this share before proving them."),
    as_json: bool = flags.JSON,
) -> None:
    """Re-prove the ends of a certificate by an independent program, or decide a claim about a process (--claim).

    Of a training, also compare model.safetensors and model.pt with the statement.

    Exit codes: 0 proved; 1 refuted, or an end of a certificate is not proved; 2 malformed; 3 a claim is open.

    wpriv verify certificate.json

    wpriv verify --claim eps=3,delta=1e-4 --mech gauss --sigma 4 --sampling poisson --rate 0.01 --n 65536

    wpriv verify --claim mu=1 "gauss sigma=4 n=10"

    wpriv verify claims/published
    """
    from wpriv.cli import claim_output

    if claim is not None:
        claim_output.decide(claim, job, words, history, why=why, seed=seed, width=width, as_json=as_json)
        return
    source = Path(" ".join(words)) if words else None
    _refuse_flags_of_a_process({**vars(job), "history": history, "why": why, "seed": seed}, source)
    if source is None:
        raise UsageError(
            "verify needs a certificate, the folder of a training or a recipe of kind verify, or --claim with a process"
        )
    if _is_recipe(source):
        claim_output.decide_recipe(source, seed=seed, width=width, as_json=as_json)
    else:
        _prove(source, flags.numbers(width=width)["width"], as_json)


def _refuse_flags_of_a_process(given: dict[str, object], source: Path | None) -> None:
    """Refuse, without --claim, flags and words that describe a process."""
    from wpriv.config import plain_words

    said = [f"--{name.replace('_', '-')}" for name, value in given.items() if value]
    if said and (said != ["--seed"] or not _is_recipe(source)):
        raise UsageError(
            f"{said[0]} describes a process, about which --claim says something: give --claim, or leave out {said[0]}"
        )
    if source is not None and not source.exists() and plain_words.is_sentence(str(source)):
        raise UsageError(
            f"{str(source)[:80]!r} is a process, of which nothing is claimed: add --claim eps=3,delta=1e-5"
        )


def _prove(source: Path, share: float | None, as_json: bool) -> None:
    """Prove the ends of a certificate or of a training, print the verdict, and set the exit code."""
    from wpriv.accounting import certificates
    from wpriv.training.reports import model_check

    if share is not None and not 0 <= share < 1:
        raise UsageError(f"--width must be at least 0 and below 1; found {share:g}")
    source = certificates.folder_of(source)
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
        output.emit_bold(_verdict([proof for _, proof in proofs], len(premises)))
        facts = [_fact(name if len(results) > 1 else "", each) for name, each in proofs if not _is_empty(each)]
        weights = [] if model is None else [("weights", model.words)]
        output.emit_facts([*facts, *(("premise", f"assumed: {each}") for each in premises), *weights])
    if failed is not None:
        raise CheckFailed(
            f"{shown_path(source)}: {failed.name} is {failed.verdict}: claimed {_claim(failed)}; {_finding(failed)}"
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


def _verdict(proofs: Sequence[Proof], premises: int) -> str:
    """The verdict on all ends in one line: what is proved of them together, or the first end that fails."""
    if failed := sorted((each for each in proofs if each.verdict != "proved"), key=lambda each: each.verdict)[-1:]:
        return f"{failed[0].verdict}: {_end(failed[0])}, where {_finding(failed[0], digits=6)}"
    ends = [each for each in proofs if not _is_empty(each)]
    given = f", given {premises} premise{'s' * (premises != 1)}" * (premises > 0)
    if not ends:
        return "proved: no end is claimed that needs a proof"
    least = min((each for each in ends if each.upper), key=_value, default=None)
    most = max((each for each in ends if not each.upper), key=_value, default=None)
    if least is None or most is None:
        return f"proved: {_end(least or most or ends[0])}{given}"
    name, at = _asked(least)
    return f"proved: {name} in [{text(_value(most), up=False)}, {text(_value(least), up=True)}] at {at}{given}"


def _is_empty(proof: Proof) -> bool:
    return proof.method == "nothing to prove"


def _asked(proof: Proof) -> tuple[str, str]:
    """What an end bounds, eps or delta, and at what: ``("eps", "delta 1e-5")``; of pure DP that is eps."""
    if proof.name.startswith("epsilon") or proof.delta == 0:
        return "eps", f"delta {short(float(proof.delta))}"
    return "delta", f"eps {short(float(proof.eps))}"


def _value(proof: Proof) -> float:
    return float(proof.eps if _asked(proof)[0] == "eps" else proof.delta)


def _end(proof: Proof) -> str:
    """The claim of one end, to six digits outwards."""
    name, at = _asked(proof)
    return f"{name} {'<=' if proof.upper else '>='} {text(_value(proof), up=proof.upper)} at {at}"


def _claim(proof: Proof) -> str:
    return f"delta({short(float(proof.eps))}) {'<=' if proof.upper else '>='} {short(float(proof.delta))}"


def _finding(proof: Proof, digits: int = 12) -> str:
    """What the verifier finds of delta at the claimed eps, rounded to the side on which it holds."""
    side, bound = proof.rounded()
    if bound is None:
        return "the verifier finds no bound of delta"
    shown = text(float(bound), up=side == "at most", digits=digits)
    if digits == 12 or float(shown) == float(proof.delta):
        shown = short(float(bound))
    return f"delta is {side} {shown}"


def _fact(name: str, proof: Proof) -> tuple[str, str]:
    """One end with its exact number, the verdict, and what proves it; ``name`` is its accountant among several."""
    quantity, at = _asked(proof)
    margin = "" if proof.margin is None else f", margin {proof.margin:.2g}"
    about = f"{short(_value(proof))} at {at}: {proof.verdict}, since {_finding(proof)}"
    label = f"{name} {quantity} {'at most' if proof.upper else 'at least'}".lstrip()
    return label, f"{about} ({proof.method}{margin})"
