"""The duration of a recipe: as it states, or estimated from the operations of its model."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from wpriv.config.field_types import Time
from wpriv.config.recipe import Recipe
from wpriv.numerics.numbers import duration
from wpriv.training.plan import Plan

KNOWN = {
    "measured": "measured on a full run",
    "extrapolated": "extrapolated from a part of a run",
    "estimated": "estimated from the operations of the model",
}
WHERE = {"cpu": "one core", "cuda": "one GPU"}


@dataclass(frozen=True)
class Duration:
    """A time on one core (``device: cpu``) or one GPU (``cuda``).

    Args:
        known: how the time is known, a key of ``KNOWN``.
        as_shipped: whether the time is that of the recipe in its file, although keys were changed since.
    """

    seconds: float
    device: str
    known: str
    as_shipped: bool = False

    def __str__(self) -> str:
        changed = " for the recipe before keys were changed" if self.as_shipped else ""
        return f"about {duration(self.seconds)} of {WHERE[self.device]}{changed}, {KNOWN[self.known]}"

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def short(time: Time | None) -> str:
    """Format a time for a column, as ``~2.7 h``; ``~`` marks times that were not measured on a full run."""
    if time is None:
        return "?"
    about, where = "" if time.known == "measured" else "~", " (GPU)" if time.device == "cuda" else ""
    return f"{about}{duration(time.seconds)}{where}"


def of_plan(plan: Plan) -> Duration | None:
    """Return the duration of one training as stated, or estimated if keys were changed; None if unknown."""
    stated, cost = of_recipe(plan.recipe, 1.0), plan.cost
    if stated is not None and not (stated.as_shipped and cost is not None):
        return stated
    return None if cost is None else Duration(float(f"{cost.seconds:.2g}"), "cpu", "estimated")


def of_sweep(recipe: Recipe, plans: list[Plan], cells: int) -> Duration | None:
    """Return the duration of some of the trainings of a sweep; None if it is unknown.

    Args:
        recipe: of the sweep. plans: of the trainings to run. cells: the number of trainings of the whole sweep.
    """
    stated = of_recipe(recipe, len(plans) / cells)
    if stated is not None and not stated.as_shipped:
        return stated
    seconds = [plan.cost.seconds for plan in plans if plan.cost is not None]
    return Duration(float(f"{sum(seconds):.2g}"), "cpu", "estimated") if len(seconds) == len(plans) else stated


def of_recipe(recipe: Recipe, share: float) -> Duration | None:
    """Return a share of the time that a recipe states; None if it states none."""
    if recipe.time is None:
        return None
    return Duration(recipe.time.seconds * share, recipe.time.device, recipe.time.known, recipe.changed)
