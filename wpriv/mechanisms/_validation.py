"""What mechanisms share: checks of parameters that are more than a range, and the neighbours of local ones."""

from __future__ import annotations

import math

from wpriv.core.mechanism import Mechanism
from wpriv.errors import UsageError

NO_BATCH = "each person sends a report of their own, so there is no batch to draw. Leave out --sampling and --rate"
MOST = 2**53  # beyond it not every whole number is a float


def whole_number(mechanism: Mechanism, name: str, least: int) -> None:
    """Turns a field into an int (2.0 becomes 2).

    Raises:
        UsageError: it is not a whole number from ``least`` to 2^53.
    """
    value = getattr(mechanism, name)
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or not least <= value <= MOST
        or value != int(value)
    ):
        raise UsageError(f"{mechanism.name}: {name} must be a whole number from {least} to 2^53; found {value}")
    object.__setattr__(mechanism, name, int(value))


def ratio(mechanism: Mechanism, top: str, bottom: str) -> None:
    """Refuses two fields whose ratio, or its square, would overflow or vanish.

    Raises:
        UsageError: top/bottom is outside 1e-100 to 1e100.
    """
    found = getattr(mechanism, top), getattr(mechanism, bottom)
    if not -100 <= math.log10(found[0]) - math.log10(found[1]) <= 100:
        raise UsageError(
            f"{mechanism.name}: {top}/{bottom} must lie between 1e-100 and 1e100; found {found[0]:g} and {found[1]:g}"
        )
