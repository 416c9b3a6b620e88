"""Generators of observations as text: ``weibull:shape=0.5,records=50,coordinates=1000``. Drawing is left to the run.

Unlike the other modules of this folder it loads no pydantic, since ``wpriv budget`` reads it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from wpriv.core import registry
from wpriv.errors import UsageError
from wpriv.hints import did_you_mean

KINDS = ("weibull", "normal")
MAX_VALUES = 200_000_000
HELP = (
    "a .npz (distances or gradients) or .csv (columns step,distance; or one gradient a row), "
    "or weibull:shape=0.5,records=50,..."
)


@dataclass(frozen=True)
class Generator:
    """Gradients to draw at random, a fresh set of records at every step.

    Args:
        kind: the distribution of a coordinate.
        shape: the Weibull shape, or the standard deviation of the normal distribution.
        quantile: above 0, the quantile of a step's gradient norms that is its unit.
        clip: 1 clips the gradients to that unit.
    """

    kind: str
    shape: float = 1.0
    records: int = 50
    coordinates: int = 1000
    steps: int = 1
    quantile: float = 0.0
    clip: int = 0
    seed: int = 0


def is_generator(text: str) -> bool:
    """Return whether text names a generator rather than a file."""
    kind, colon, _ = text.partition(":")
    return bool(colon) and (kind in KINDS or Path(text).suffix not in (".npz", ".csv"))


def parse(text: str) -> Generator:
    """Parse the text of a generator.

    Raises:
        UsageError: the kind or an option does not exist, or a value is out of range.
    """
    kind, given = registry.split(text)
    if kind not in KINDS:
        near = did_you_mean(kind, list(KINDS)) or "."
        raise UsageError(
            f"no generator of gradients called {kind[:60]!r}{near} Known: {', '.join(KINDS)}; or give {HELP}"
        )
    defaults = {name: value for name, value in vars(Generator(kind)).items() if name != "kind"}
    values = {**defaults, **registry.typed(kind, given, defaults)}
    if values["clip"] not in (0, 1):
        values["clip"] = -1  # a fraction must not be cut to a valid value
    plan = Generator(kind, **{name: type(defaults[name])(value) for name, value in values.items()})
    is_sound = plan.shape > 0 and plan.records >= 2 and plan.coordinates >= 1 and plan.steps >= 1 and plan.seed >= 0
    is_sound &= 0 <= plan.quantile < 1 and (plan.clip == 0 or (plan.clip == 1 and plan.quantile > 0))
    if not is_sound:
        wanted = "shape > 0, records >= 2, coordinates >= 1, steps >= 1, quantile in [0, 1), seed >= 0"
        raise UsageError(f"{text}: wanted {wanted}, and clip 0 or 1 with a quantile to clip to")
    if plan.records * max(plan.coordinates, plan.records // 2) * plan.steps > MAX_VALUES:
        raise UsageError(f"{text} draws more than {MAX_VALUES:,} values; take fewer steps, records or coordinates")
    return plan
