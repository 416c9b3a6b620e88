"""The base of all mechanisms: parameters, a dominating pair, and what holds of it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar

from wpriv.core.loss_pair import LossPair
from wpriv.core.parameters import Parameters

ADJACENCIES = ("add-remove", "replace-one")
# one record is replaced within its own group: the groups' sizes, and to which of them a record belongs, are taken as known to everyone
WITHIN_GROUP = "replace-within-group"


@dataclass(frozen=True)
class Mechanism(Parameters):
    """Base of the frozen dataclasses in ``wpriv/mechanisms``: one file each, whose name is the name users type.

    Fields are the parameters. ``noise`` names the field that ``calibrate`` solves for: a larger value means more privacy.
    ``dominating`` says that ``pair()`` is proven worst over all neighbours at the given sensitivity, which subsampling needs;
    ``why_not_sampled`` is the reason shown where it is not, or where there is nothing to draw a sample from; ``why_not_poisson`` where
    Poisson sampling alone is ruled out.
    """

    noise: ClassVar[str | None] = None
    adjacencies: ClassVar[tuple[str, ...]] = ADJACENCIES
    dominating: ClassVar[bool] = True
    why_not_sampled: ClassVar[str] = ""
    why_not_poisson: ClassVar[str] = ""
    source: ClassVar[str] = ""

    def pair(self) -> LossPair:
        """The dominating pair of one release at full participation."""
        raise NotImplementedError

    def caveats(self) -> tuple[str, ...]:
        """What every figure about this mechanism must say beside it: it goes into the warnings of each guarantee."""
        return ()

    def citation(self) -> str:
        """The source of this mechanism at its parameters; ``source`` unless they choose between several formulas."""
        return self.source

    def reading(self) -> tuple[str, ...]:
        """How the parameters were read, such as a sensitivity that was computed from them."""
        return ()

    def describe(self) -> dict[str, Any]:
        """Name and parameters as plain data, for tables, JSON and recipes."""
        return {"mech": self.name, **{f.name: getattr(self, f.name) for f in dataclasses.fields(self)}}
