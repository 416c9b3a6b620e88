"""Count the work of the engine by the kinds of operation that most of its time is spent on."""

from __future__ import annotations

from wpriv.numerics import counted_work
from wpriv.pld import constants


def add(kind: str, number: float) -> None:
    """Count a number of equal operations; their kind is a key of ``constants.WORK``."""
    counted_work.add(constants.WORK[kind] * number)
