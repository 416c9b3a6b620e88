"""A parameter that was solved for: its value, the guarantee there, and how near it is to the best."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from wpriv.core.guarantee import Guarantee
from wpriv.run.accounting.search_parameter import SearchParameter


@dataclass(frozen=True)
class SolvedParameter:
    """A parameter that was solved for.

    Args:
        knob: the parameter. value: the least private one found that meets the target. row: its guarantee.
        missed: the nearest less private value that certainly misses the target (by the accountant's own figure where it
            has no lower end); None where none was evaluated.
        refusal: why values between the two have no narrow answer, if some have none.
    """

    knob: SearchParameter
    value: float
    row: Guarantee
    missed: float | None
    refusal: str = ""

    @property
    def most(self) -> bool:
        """Tell whether no less private grid value meets the target: the next one misses it, or there is none."""
        return self.knob.at_end(self.value, -1) or self.missed == self.knob.beside(self.value, -1)

    @property
    def within(self) -> float | None:
        """Relative distance within which the best value lies; None where it is not known."""
        if self.knob.at_end(self.value, -1):
            # n and the rate end here; noise does not, but no smaller one is tried
            return 0.0 if self.knob.privacy_direction < 0 else None
        if self.missed is None:
            return None
        # the best whole number is at most the last one before the first known to miss
        best = self.missed - self.knob.unit if self.knob.whole else self.missed
        return abs(best - self.value) / self.value

    def as_dict(self) -> dict[str, Any]:
        """The content of ``extra["calibrated"]``: parameter, value, misses, within, and most for n and the rate."""
        number = int if self.knob.whole else float
        misses = None if self.missed is None else number(self.missed)
        row = {"parameter": self.knob.name, "value": number(self.value), "misses": misses, "within": self.within}
        return row | ({"most": self.most} if self.knob.privacy_direction < 0 else {})

    def warnings(self) -> list[str]:
        """Warn that the target does not bound the value, or that a better one was not ruled out."""
        name, accountant = self.knob.name, self.row.accountant
        if self.knob.at_end(self.value, -1):
            if self.knob.privacy_direction < 0:
                return [f"every {name} up to the largest allowed meets the target"]
            return [f"{name} = {self.value:g} is the smallest that is tried; less may be enough"]
        if self.refusal:
            best = "most" if self.knob.privacy_direction < 0 else "least"
            until = (
                "beyond it" if self.missed is None else f"between it and {self.missed:.13g}, which misses the target"
            )
            return [
                f"{name} = {self.value:.13g} may not be the {best}: {accountant} has no narrow answer {until} "
                f"({self.refusal})"
            ]
        if self.knob.whole and not self.most:
            last = " and more"
            if self.missed is not None:
                most = self.missed - self.knob.unit
                last = "" if most == self.value + self.knob.unit else f" to {most:.13g}"
            return [
                f"n = {self.value + self.knob.unit:.13g}{last} may meet the target as well: the bracket of "
                f"{accountant} is too wide to tell"
            ]
        return []
