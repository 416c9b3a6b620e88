"""The statements of a paper compared with exact values, with the smallest counterexample found; computed on each run.

A claimed upper bound fails at inputs for which the published figure is below the exact one, a claimed lower bound where
it is above, a claimed equality where the two differ. The column ``error`` is the number of the entry on the page of the
paper in docs/papers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wpriv.core.parameters import Parameters, parameter
from wpriv.papers.tables import (
    _claims_dpswd,
    _claims_ldp,
    _claims_plc_classes,
    _claims_plc_losses,
    _claims_wdp,
    _claims_wgrad,
)
from wpriv.papers.tables._statement import Statement

LABELS = ("proposition", "verdict")
COLUMNS = ("published", "exact", "ratio")
SHOWN = ("proposition", "verdict", "published", "exact", "error", "at", "statement")
WHOLE = True  # the screen shows every row
STATEMENTS: Mapping[str, Sequence[Statement]] = {
    "plc": [*_claims_plc_losses.STATEMENTS, *_claims_plc_classes.STATEMENTS],
    "wdp": _claims_wdp.STATEMENTS,
    "dpswd": _claims_dpswd.STATEMENTS,
    "wgrad": _claims_wgrad.STATEMENTS,
    "ldp": _claims_ldp.STATEMENTS,
}


@dataclass(frozen=True)
class Params(Parameters):
    """The paper whose statements are computed."""

    paper: str = parameter("the paper: " + ", ".join(STATEMENTS), default="wdp", choices=tuple(STATEMENTS))


def rows(params: Params) -> list[dict[str, Any]]:
    """Return the verdict on each statement of the paper."""
    return [statement.row() for statement in STATEMENTS[params.paper]]
