"""How long a recipe takes: what it says of itself, or a guess from the operations of its model, and how that is known."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from wpriv.config.field_types import Time
from wpriv.config.recipe import Recipe
from wpriv.run.training.plan import Plan

KNOWN = {
    "measured": "measured on a full run",
    "extrapolated": "extrapolated from a part of a run",
    "estimated": "estimated from the operations of the model",
}
WHERE = {"cpu": "one core", "cuda": "one GPU"}
UNITS = ((3600.0, "h"), (60.0, "min"))


@dataclass(frozen=True)
class Duration:
    """Seconds of one core (``device: cpu``) or one GPU (``cuda``), and how they are known, one of ``KNOWN``.

    ``as_shipped``: the seconds are those of the recipe as it stands in its file, of which keys were changed.
    """

    seconds: float
    device: str
    known: str
    as_shipped: bool = False

    def __str__(self) -> str:
        changed = " for the recipe before keys were changed" if self.as_shipped else ""
        return f"about {words(self.seconds)} of {WHERE[self.device]}{changed}, {KNOWN[self.known]}"

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def words(seconds: float) -> str:
    """``65 s``, ``4.5 min`` or ``2.7 h``: two digits are all that is known.

    >>> words(5.4), words(125), words(9700)
    ('5.4 s', '2.1 min', '2.7 h')
    """
    value, unit = next(((seconds / size, unit) for size, unit in UNITS if seconds >= 2 * size), (seconds, "s"))
    return f"{value:.3g} {unit}" if value >= 100 else f"{value:.2g} {unit}"


def short(time: Time | None) -> str:
    """``~2.7 h``: for a column; ``~`` stands before what was not measured on a full run."""
    if time is None:
        return "?"
    return f"{'' if time.known == 'measured' else '~'}{words(time.seconds)}{' (GPU)' if time.device == 'cuda' else ''}"


def of_plan(plan: Plan) -> Duration | None:
    """The duration of one training: as its recipe says, or a guess where keys were changed or it says nothing; None if neither is known."""
    stated, guess = of_recipe(plan.recipe, 1.0), plan.guess()
    if stated is not None and not (stated.as_shipped and guess is not None):
        return stated
    return None if guess is None else Duration(float(f"{guess.seconds:.2g}"), "cpu", "estimated")


def of_sweep(made: Recipe, plans: list[Plan], cells: int) -> Duration | None:
    """The duration of some of the trainings of a sweep.

    Args:
        made: the recipe of the sweep. plans: of the trainings that are to run. cells: how many the sweep has.
    """
    stated = of_recipe(made, len(plans) / cells)
    if stated is not None and not stated.as_shipped:
        return stated
    guesses = [plan.guess() for plan in plans]
    seconds = [guess.seconds for guess in guesses if guess is not None]
    return Duration(float(f"{sum(seconds):.2g}"), "cpu", "estimated") if len(seconds) == len(plans) else stated


def of_recipe(made: Recipe, share: float) -> Duration | None:
    """A share of the time that a recipe states; None where it states none."""
    if made.time is None:
        return None
    return Duration(made.time.seconds * share, made.time.device, made.time.known, made.changed)
