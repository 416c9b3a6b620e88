"""Banks of checks: a folder of recipes of kind check, each with the verdict and the eps that are expected of it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from wpriv.checks.check import check
from wpriv.checks.verdict import Verdict
from wpriv.config import shipped, yaml_document
from wpriv.config.recipe_files import bare_folder
from wpriv.config.schema import Check, Truth
from wpriv.errors import CheckFailed, MissingResource, UsageError
from wpriv.files import shown_path
from wpriv.numerics.numbers import echo, text

# relative difference up to which an end of eps is the expected one, which has six digits
AGREE = 3e-5


@dataclass(frozen=True)
class Checked:
    """One claim of a bank.

    Args:
        name: of the file. about: what the file says beside its premises. verdict: what the check found.
    """

    name: str
    about: Check
    verdict: Verdict

    @property
    def is_expected(self) -> bool:
        """True if the verdict and eps are the expected ones, or none are expected."""
        expected = self.about.expect
        return expected is None or (expected.verdict == self.verdict.verdict and _is_true(expected, self.verdict))

    def printed(self) -> str:
        """The figure that was claimed: eps, or rho or mu with its name."""
        claim = self.verdict.judgement.claim
        if claim is None:
            return "-"
        if claim.notion == "approximate-dp":
            return echo(claim.eps)
        return f"rho {echo(claim.rho)}" if claim.notion == "zcdp" else f"mu {echo(claim.mu)}"

    def truth(self) -> str:
        """eps of what ran, at the claimed delta."""
        ends = self.verdict.epsilon
        if ends is None:
            return "-"
        if math.isinf(ends[0]):
            return "no finite eps"
        low = text(ends[0], up=False)
        return f"at least {low}" if math.isinf(ends[1]) else f"[{low}, {text(ends[1], up=True)}]"

    def words(self) -> str:
        """The verdict, and which one was expected where it is another."""
        if self.is_expected or self.about.expect is None:
            return self.verdict.verdict
        expected = self.about.expect
        return f"{self.verdict.verdict.upper()}, expected {expected.verdict}, eps {expected.eps or 'any'}"

    def as_dict(self) -> dict[str, object]:
        """The JSON object of the command line, with infinities still floats."""
        about = self.about.model_dump(include={"title", "source", "seen", "breaks", "corrected", "expect"})
        ends = self.verdict.epsilon or (None, None)
        verdict = {"verdict": self.verdict.verdict, "epsilon_lower": ends[0], "epsilon_upper": ends[1]}
        claim = self.verdict.judgement.claim
        claimed = {"claim": None if claim is None else claim.as_dict(), "adjacency": self.verdict.adjacency}
        return {"name": self.name, **about, **claimed, **verdict, "reason": self.verdict.sentence()}


def files_of(name: str | Path) -> list[Path]:
    """The recipes of kind check in a folder, or in one of the shipped folders (``claims/libraries``), by name."""
    path = Path(name)
    try:
        inside = list(path.glob("*.yaml")) if path.is_dir() else []
    except OSError as error:
        raise MissingResource(f"{shown_path(path)} cannot be read: {error.strerror}") from None
    folder = bare_folder(str(name))
    inside = inside or [file for key, file in shipped().items() if key.rpartition("/")[0] == folder]
    inside.sort(key=lambda file: file.stem)
    return [file for file in inside if yaml_document.read(file).data.get("kind") == "check"]


def check_all(files: Sequence[Path], progress: Callable[[int, int], None] | None = None) -> list[Checked]:
    """Check every recipe, in the given order; UsageError for a faulty one."""
    rows = []
    for count, path in enumerate(files):
        data = yaml_document.read(path).data
        about = Check.model_validate({key: value for key, value in data.items() if key in Check.model_fields})
        rows.append(Checked(path.stem, about, check(path)))
        if progress is not None:
            progress(count + 1, len(files))
    return rows


def total(rows: Sequence[Checked]) -> str:
    """The numbers of claims by verdict, and whether all are the expected ones."""
    count = Counter(row.verdict.verdict for row in rows)
    verdicts = ", ".join(f"{number} {verdict}" for verdict, number in count.items())
    words = f"{len(rows)} claim{'s' * (len(rows) != 1)}: {verdicts}"
    others = sum(not row.is_expected for row in rows)
    if others:
        return f"{words}; {others} not as expected"
    return words + "; all as expected" * all(row.about.expect is not None for row in rows)


def require_expected(name: str | Path, rows: Sequence[Checked]) -> None:
    """Raise CheckFailed where a verdict or an eps is not the expected one."""
    wrong = [row for row in rows if not row.is_expected]
    if wrong:
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        raise CheckFailed(
            f"{shown_path(name)}: {wrong[0].name} is {wrong[0].words()}; found eps {wrong[0].truth()}{more}"
        )


def _is_true(expected: Truth, verdict: Verdict) -> bool:
    if expected.eps is None:
        return True
    if verdict.epsilon is None:
        return False
    if not isinstance(expected.eps, list):
        return math.isinf(verdict.epsilon[0])
    # the upper end may be left out
    return all(math.isclose(*ends, rel_tol=AGREE) for ends in zip(expected.eps, verdict.epsilon, strict=False))


def refuse_others(name: str, given: Sequence[str]) -> None:
    """Refuse flags that have no place beside a folder of checks."""
    if given:
        raise UsageError(f"{name} is a folder of checks, which say what ran; leave out --{given[0]}")
