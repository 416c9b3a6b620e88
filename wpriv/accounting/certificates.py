"""Certificates: what an independent program needs to re-prove a guarantee, written to files and verified."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from wpriv._version import __version__
from wpriv.core.guarantee import RIGOROUS, Guarantee
from wpriv.errors import CheckFailed, Unsupported, UsageError, of_file, placed, require
from wpriv.files import durable_writes, read_bytes, shown_path
from wpriv.results import storage
from wpriv.verify import certificate

if TYPE_CHECKING:
    from wpriv.verify.prove import Proof

# shares by which ends are moved outwards until they are proven; the first is that of a certificate without a proof
WIDTHS = (1e-9, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)


def of_guarantee(row: Guarantee, width: float) -> dict[str, object]:
    """Return the certificate of a guarantee, with the ends of its answer moved outwards by a share of themselves."""
    if row.notion != "approximate-dp" or row.claim not in RIGOROUS:
        raise Unsupported(
            f"a certificate holds proven bounds of (eps, delta)-DP; {row.accountant} gives an answer of the claim "
            f"{row.claim!r} and the notion {row.notion!r}. Use `accountant='pld'`"
        )
    if "repeats" in row.extra:
        raise Unsupported(
            "a certificate is about steps that ran, and the verifier has no proof for the best of a random number of "
            "runs; leave out `repeats`, or the certificate"
        )
    question = row.extra.get("asked", "eps" if row.delta.lower == row.delta.upper else "delta")
    eps, delta = ((bracket.lower or 0.0, bracket.safe) for bracket in (row.epsilon, row.delta))
    if delta == (0.0, 0.0) and question == "eps":  # pure DP: that no loss exceeds eps is what can be proved
        question, eps = "delta", (eps[1] * (1 + width),) * 2
    elif question == "eps":
        eps = (eps[0] * (1 - width), eps[1] * (1 + width))
    else:
        delta = (delta[0] * (1 - width), delta[1] * (1 + width))
    data = {
        "schema": certificate.SCHEMA,
        "notion": row.notion,
        "asked": question,
        "adjacency": str(row.process.adjacency),
        "group": row.process.group,
        "records": row.process.records,
        "process": row.process.describe(),
        "premises": [premise.sentence for premise in row.process.premises()],
        "epsilon_lower": eps[0],
        "epsilon_upper": "inf" if math.isinf(eps[1]) else eps[1],
        "delta_lower": delta[0],
        "delta_upper": delta[1],
        "claim_width": width,
        "version": __version__,
    }
    try:
        certificate.read(json.dumps(data))
    except (UsageError, Unsupported) as error:
        raise Unsupported(f"this guarantee has no certificate: {error}") from None
    return data


def write(row: Guarantee, path: str | Path) -> str:
    """Write the certificate of a guarantee, proven first; return a note on it.

    Raises:
        Unsupported: there is no certificate of such a guarantee. MissingResource: the file cannot be written, or
            python-flint is not installed.
    """
    data, note = _proven(row)
    durable_writes.replace(Path(path), json.dumps(data) + "\n", advice="name another file with --certificate")
    return f"{path}: ends {data['claim_width']:g} (relative) outside of the printed ones; {note}"


def _proven(row: Guarantee) -> tuple[dict[str, object], str]:
    """The certificate with the narrowest ends of ``WIDTHS`` that the verifier proves."""
    require("flint", "a certificate")
    from wpriv.verify.prove import Job

    data = of_guarantee(row, WIDTHS[0])
    job = Job(certificate.read(json.dumps(data)))
    for width in WIDTHS:
        data = of_guarantee(row, width)
        proofs = job.proofs(certificate.read(json.dumps(data)), thorough=False)
        if all(proof.verdict == "proved" for proof in proofs):
            return data, "proved by " + " and ".join(dict.fromkeys(proof.method for proof in proofs))
    raise Unsupported(
        f"no certificate is written: the verifier does not prove even ends {WIDTHS[-1]:g} (relative) outside of the "
        f"printed ones. {certificate.UNPROVED}"
    )


def best(rows: Sequence[Guarantee]) -> Guarantee:
    """The guarantee of (eps, delta)-DP with the least eps.

    Raises:
        Unsupported: there is none.
    """
    proven = [row for row in rows if row.notion == "approximate-dp" and row.claim in RIGOROUS]
    if not proven:
        raise Unsupported("this training has no guarantee of (eps, delta)-DP, and so no certificate")
    return min(proven, key=lambda row: row.epsilon.safe)


def folder_of(path: Path) -> Path:
    """The folder of a training where a path is its statement or its ledger, and else the path itself."""
    return path.parent if path.name in (storage.STATEMENT, storage.LEDGER) and path.is_file() else path


def verify(path: Path, width: float | None = None) -> list[tuple[str, tuple[str, ...], list[Proof]]]:
    """Prove or refute the claims of a certificate, or of the statement of a finished training.

    Args:
        path: a certificate, the output of ``budget --json``, or a folder with a statement and a ledger; ``-`` is
            standard input.
        width: share by which the claimed ends of the answer are moved outwards before they are proven; by default 0 for
            a certificate, and 1e-9 for a guarantee, whose exact figures are rounded to doubles.
    Returns:
        For every claim what it is, the premises that it rests on, and the proofs of its upper and its lower end.
    Raises:
        UsageError: the file is malformed. Unsupported: the verifier has no proof for such a process.
        MissingResource: the file cannot be read, or python-flint is not installed. CheckFailed: the ledger differs.
    """
    require("flint", "the verifier")
    from wpriv.verify import prove

    texts = _of_folder(path) if path.is_dir() else [(shown_path(path.name), _read(path))]
    results = []
    for name, text in texts:
        with placed(shown_path(path)):
            claim = certificate.read(text)
        is_certificate = json.loads(text)["schema"] == certificate.SCHEMA
        share = Fraction(0 if is_certificate else WIDTHS[0]) if width is None else Fraction(width)
        results.append((name, claim.premises, prove.verify(claim.widened(share))))
    return results


def _of_folder(path: Path) -> list[tuple[str, str]]:
    """The guarantees of a statement that have ends to prove, after a look at the ledger."""
    from wpriv.accounting import build_process

    file, ledger = path / storage.STATEMENT, path / storage.LEDGER
    try:
        statement = json.loads(_read(file))
        rows = [row for row in statement["guarantees"] if row["notion"] == "approximate-dp"]
        process = statement["process"]
        neighbours = {str(entry["adjacency"]) for entry in (statement, *rows)}
    except (ValueError, KeyError, TypeError):
        raise UsageError(f"{file}: wanted the statement of a private training; found no guarantees in it") from None
    if "tuning" in statement:
        raise Unsupported(
            f"{file} is of the best of a random number of runs (tune), and the verifier has no proof for that. "
            f"Ask `wpriv budget --repeats` with the flags of one run for its bound"
        )
    ran = build_process.described_process(history=str(ledger)).process
    steps = ran.describe()
    if neighbours != {ran.adjacency}:
        found = " and ".join(sorted(neighbours))
        raise CheckFailed(f"{file}: the neighbours are {found}; those of {ledger.name} are {ran.adjacency}")
    for name, described in [("process", process), *((row["accountant"], row["process"]) for row in rows)]:
        if _without_distances(described) != _without_distances(steps):
            raise CheckFailed(f"{file}: the steps under {name} are not those of {ledger.name}; the ledger says {steps}")
    finite = [row for row in rows if isinstance(row["epsilon_upper"], float) and math.isfinite(row["epsilon_upper"])]
    texts = [json.dumps({**row, "process": _without_distances(row["process"])}) for row in finite]
    return [(row["accountant"], text) for row, text in zip(finite, texts, strict=True)]


def _without_distances(steps: list[dict[str, object]]) -> list[dict[str, object]]:
    return [{key: value for key, value in step.items() if key != "observed"} for step in steps]


def _read(path: Path) -> str:
    try:
        content = read_bytes(path, certificate.MAX_BYTES)
    except OSError as error:
        raise of_file(error, path, "read", "give the path of a certificate or of a finished training") from None
    if len(content) > certificate.MAX_BYTES:
        raise UsageError(f"{shown_path(path)}: a certificate has at most {certificate.MAX_BYTES:,} bytes; found more")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        raise UsageError(f"{shown_path(path)}: wanted a certificate, which is JSON text; found other bytes") from None
