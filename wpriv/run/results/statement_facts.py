"""What a privacy statement says, as the few texts that the registry entry and the checklist are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from wpriv.errors import Unsupported
from wpriv.numerics.safe_rounding import text
from wpriv.run.accounting import adaptive_history
from wpriv.run.results import clipping_words, file_names, model_header

LOCAL, CENTRAL = "Local", "Central"


@dataclass(frozen=True)
class Facts:
    """The facts of one statement on a training with a proven guarantee.

    Args:
        statement: as it was read. source: the part that has the guarantee, which is the statement of the records where
            these were privatised before the training. row: the guarantee of the least eps.
        model: ``Central`` or ``Local``, of the trust model.
    """

    statement: dict[str, Any]
    source: dict[str, Any]
    row: dict[str, Any]
    model: str

    @property
    def guarantee(self) -> str:
        """The guarantee with its claim and both ends."""
        row = self.row
        words = f"eps = {text(float(row['epsilon']), up=True)} at delta = {text(float(row['delta']), up=True)}"
        ends = ""
        if row["claim"] == "certified":
            lower, upper = text(row["epsilon_lower"], up=False), text(row["epsilon_upper"], up=True)
            ends = f" to lie in [{lower}, {upper}]"
        claim = "an upper bound" if row["claim"] == "upper-bound" else row["claim"]
        return f"{words}, {claim} by {row['accountant']}{ends}"

    @property
    def unit(self) -> str:
        return str(self.source["unit"])

    @property
    def group(self) -> int:
        return int(self.source.get("group", 1))

    @property
    def neighbours(self) -> str:
        return f"{self.source['adjacency']}: {self.source['adjacency_means']}"

    @property
    def delta(self) -> dict[str, Any]:
        """Delta beside 1 / records, see ``privacy_statement.share``."""
        return dict(self.source["delta"])

    @property
    def sampling(self) -> str:
        """The sampling that was accounted for and that was run; empty where the records were privatised before."""
        sampling = self.statement.get("sampling")
        if sampling is None:
            return ""
        rate = "" if sampling["kind"] == "none" else f" at rate {sampling['rate']:.6g}"
        return f"{sampling['kind']}{rate} is accounted for; run was: {sampling['implemented']}"

    @property
    def noise(self) -> str:
        """Mechanism, bound on a contribution and noise."""
        noise = self.source["noise"]
        if self.model == LOCAL:
            clip, name = self.source["clip"], "sigma" if "sigma" in noise else "scale"
            distribution = "Gauss" if name == "sigma" else "Laplace"
            bound = f"every record is clipped to an {clip['norm']} norm of {clip['radius']:g}"
            return f"{bound}; {distribution} noise of {name} {noise[name]:g} on {noise['on']}"
        if "rule" in noise:
            bound, deviation = clipping_words.clipped(noise), clipping_words.deviation(noise, "")
        else:
            bound = f"{noise['clipped']} is clipped to an l2 norm of {noise['clip']:g}"
            deviation = f"standard deviation {noise['standard_deviation']:g}"
        deviation = f"{deviation}, multiplier {noise['multiplier']:g}"
        return f"{bound}; Gaussian noise ({deviation}) on {noise['of']}"

    @property
    def composition(self) -> str:
        if self.model == LOCAL:
            return "one report of each record; the training on the reports is post-processing"
        lines = adaptive_history.lines(self.statement.get("parameters"))
        steps = f"{self.statement['steps']} noisy steps, composed by {self.row['accountant']} ({self.row['source']})"
        return ". ".join([steps, *lines])

    @property
    def earlier_runs(self) -> list[str]:
        """Runs that were moved aside in the same folder, which the guarantee does not include."""
        runs = self.statement.get("earlier_runs", [])
        return [f"{run['folder']} ({run['steps']} steps{_problem(run)})" for run in runs]

    @property
    def publishable(self) -> list[str]:
        return [entry["file"] for entry in self.statement["publish"] if entry["publish"] == "yes"]

    @property
    def warnings(self) -> list[str]:
        """The warnings without those on figures for comparison, which may be computed from records without noise."""
        others = {line for row in self.statement.get("for_comparison", []) for line in row["warnings"]}
        return [line for line in self.statement.get("warnings", []) if line not in others]

    def not_assessed(self, *words: str) -> list[str]:
        """The entries of 'Not assessed' that begin with one of some words."""
        return [line for line in self.source["not_assessed"] if line.startswith(words)]


def facts(statement: dict[str, Any], purpose: str) -> Facts:
    """Return the facts of a statement.

    Args:
        purpose: what they are for, in messages: "an entry of the registry".
    Raises:
        Unsupported: the training had no privacy, or no proven guarantee.
    """
    reports = "reports" in statement and not statement["private"]
    if not statement["private"] and not reports:
        raise Unsupported(
            f"{purpose} describes a private release, and this training had no privacy. Its {file_names.STATEMENT_TEXT} "
            f"says what may be published"
        )
    source = statement["reports"] if reports else statement
    row = model_header.best(source["guarantees"])
    if row is None:
        raise Unsupported(
            f"{purpose} states a proven (eps, delta) guarantee, and no accountant of this training gives one. Add pld "
            f"to its accountants"
        )
    return Facts(statement, source, row, LOCAL if reports else CENTRAL)


def _problem(run: dict[str, Any]) -> str:
    return f", {run['problem']}" if run.get("problem") else ""
