"""The two output distributions of uniform noise on consecutive integers, for inputs one sensitivity apart.

Where both are positive they are equal, so that the privacy loss is 0 there; every other outcome identifies its input.

Source:
    Sommer, Meiser, Mohammadi (2019), Figure 3, left, and Example 2 (corrected: ten outcomes of probability 1/10).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from wpriv.core.parameters import Parameters, parameter
from wpriv.errors import UsageError

LABELS = ("case", "outcome")
COLUMNS = ("probability",)
SHOWN = ("case", "outcome", "probability")
INPUTS = ("M(x0)", "M(x1)")


@dataclass(frozen=True)
class Params(Parameters):
    """The noise, and the least value that it can add to the first input."""

    outcomes: int = parameter("number of values of the noise, all equally likely", default=10, minimum=2)
    sensitivity: int = parameter("distance of the two inputs", default=1, minimum=1)
    least: int = parameter("smallest outcome of the first input", default=-5)


def rows(params: Params) -> list[dict[str, Any]]:
    """Return one row for each input and outcome, with its probability.

    Raises:
        UsageError: the two inputs have no outcome in common.
    """
    if params.sensitivity >= params.outcomes:
        raise UsageError(
            f"uniform-outputs: outcomes must exceed sensitivity, else the inputs have no outcome in common; found "
            f"outcomes {params.outcomes} and sensitivity {params.sensitivity}"
        )
    shown = range(params.least, params.least + params.outcomes + params.sensitivity)
    starts = (params.least, params.least + params.sensitivity)
    return [row for case, start in zip(INPUTS, starts, strict=True) for row in _rows(params, case, start, shown)]


def _rows(params: Params, case: str, start: int, shown: Iterable[int]) -> list[dict[str, Any]]:
    support = range(start, start + params.outcomes)
    share = 1 / params.outcomes
    return [{"case": case, "outcome": x, "probability": share if x in support else 0.0} for x in shown]
