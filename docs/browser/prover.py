"""What the page of this folder runs on a certificate: the independent verifier, and its verdict in words.

It imports the standard library and ``wpriv.verify`` only. The same code runs in a browser, in node and in CPython.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction

from wpriv.errors import Unsupported, UsageError
from wpriv.verify import certificate, prove
from wpriv.verify.certificate import Claim

HEADLINES = {"proved": "Proved", "refuted": "Refuted", "not proved": "Not proved"}
CONCLUSIONS = {
    "proved": "Every end that this certificate claims is proved.",
    "refuted": "This certificate is false: the verifier proved the opposite of an end that it claims.",
    "not proved": "The verifier neither proved nor refuted an end. The claim may be true, but do not rely on it.",
}
RESTS = " The proof rests on the premises below."


class Reporting(prove.Job):
    """A job that says which end it is about to prove."""

    def __init__(self, claim: Claim, report: Callable[[str], object]) -> None:
        report("Reading the process")
        super().__init__(claim)
        self.report = report

    def prove(self, eps: Fraction, delta: float, upper: bool, thorough: bool = True) -> tuple[str, object, str]:
        self.report(f"Proving the {'upper' if upper else 'lower'} end")
        return super().prove(eps, delta, upper, thorough)


def verdict(text: str, report: Callable[[str], object] = lambda _: None) -> str:
    """Prove or refute a certificate, and return the outcome as JSON.

    Args:
        text: a certificate, or the output of ``wpriv budget --json``.
        report: is called with a few words at the start of every stage.
    Returns:
        An object with ``verdict`` (proved, refuted, not proved, malformed, not covered), ``headline``,
        ``conclusion``, and if the certificate could be read ``process``, ``ends`` and ``premises``.
    """
    try:
        claim = certificate.read(text)
        is_certificate = json.loads(text)["schema"] == certificate.SCHEMA
        # the exact figures of a guarantee are rounded to doubles
        proofs = Reporting(claim, report).proofs(claim if is_certificate else claim.widened(Fraction(1, 10**9)))
    except UsageError as error:
        return json.dumps({"verdict": "malformed", "headline": "This is no certificate", "conclusion": str(error)})
    except Unsupported as error:
        return json.dumps({"verdict": "not covered", "headline": "Not covered", "conclusion": str(error)})
    verdicts = {proof.verdict for proof in proofs}
    worst = next(word for word in ("refuted", "not proved", "proved") if word in verdicts)
    return json.dumps(
        {
            "verdict": worst,
            "headline": HEADLINES[worst],
            "conclusion": CONCLUSIONS[worst] + RESTS * (worst == "proved" and bool(claim.premises)),
            "process": process(text),
            "ends": [{"verdict": proof.verdict, **sentences(proof)} for proof in proofs],
            "premises": claim.premises,
        }
    )


def process(text: str) -> list[str]:
    """Every step of a certificate that was read without a fault, and the neighbours, with the numbers as written."""
    data = json.loads(text, parse_float=str, parse_int=str)
    lines = []
    for step in data["process"]:
        values = ", ".join(f"{name} = {step[name]}" for name in certificate.PARAMETERS[step["mech"]])
        sampled = "" if step["sampling"] == "none" else f", {step['sampling']} sampling at rate {step['rate']}"
        batch = f", batches of at most {step['max_batch']}" if step.get("max_batch", "0") != "0" else ""
        lines.append(f"{step['mech']} ({values}), n = {step['n']}{sampled}{batch}")
    group = data.get("group", "1")
    return [*lines, f"{data['adjacency']} neighbours" + (f", groups of {group} records" if group != "1" else "")]


def sentences(proof: prove.Proof) -> dict[str, str]:
    """What an end claims, and what the verifier found, in one sentence each."""
    side = "at most" if proof.upper else "at least"
    eps, delta = repr(float(proof.eps)), repr(float(proof.delta))
    asked = "eps" if proof.name.startswith("epsilon") else "delta"
    if proof.method == "nothing to prove":
        return {"claim": f"{asked}: no {'upper' if proof.upper else 'lower'} end is claimed", "finding": ""}
    claim = f"eps is {side} {eps} at delta = {delta}" if asked == "eps" else f"delta is {side} {delta} at eps = {eps}"
    where, bound = proof.rounded()
    found = "no bound was found" if bound is None else f"at eps = {eps}, delta is {where} {bound}"
    # eps is at least a number if delta there is still as large as claimed, and the reverse
    wanted = f"; the claim needs {side} {delta}"
    margin = "" if proof.margin is None else f" (margin {proof.margin:.2g}, by {proof.method})"
    return {"claim": claim, "finding": found + wanted + margin}
