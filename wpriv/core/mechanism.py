"""The base class of all mechanisms: parameters, a dominating pair, and optional capabilities for accountants."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from wpriv.core.kinds import STANDARD_ADJACENCIES, Adjacency, Neighbours, Release
from wpriv.core.loss_pair import LossPair
from wpriv.core.parameters import Parameters
from wpriv.errors import Unsupported, UsageError

Family = Literal["gauss", "laplace"]
MAX_INTEGER = 2**53  # not every larger integer is a float


@dataclass(frozen=True)
class AdditiveNoise:
    """Independent noise added to every coordinate of a query.

    ``scale`` is the standard deviation of Gaussian noise and b of Laplace noise, before any truncation; ``sensitivity``
    is the largest change of the query between neighbours in the l2 norm (Gauss) or the l1 norm (Laplace). Both are in
    the units of the query. ``discrete`` noise takes whole values only, ``truncated`` noise ends at a bound, and
    ``local`` noise is added by each person to their own data.
    """

    family: Family
    scale: float
    sensitivity: float
    discrete: bool = False
    truncated: bool = False
    local: bool = False

    def is_textbook(self, family: Family) -> bool:
        """Tell whether this is continuous, untruncated noise of a family on a query of a data set."""
        return self.family == family and not (self.discrete or self.truncated or self.local)


@dataclass(frozen=True)
class RandomProjection:
    """Gaussian noise on projections of records onto ``directions`` random unit vectors in ``dimension`` dimensions.

    ``sigma`` (of the noise) and ``sensitivity`` (the largest l2 distance between a record and its replacement) are in
    the units of the records.
    """

    dimension: int
    directions: int
    sigma: float
    sensitivity: float


@dataclass(frozen=True)
class ClipBall:
    """The lp ball to which each person's data are clipped; ``nonnegative``: only its part without negative numbers."""

    radius: float
    nonnegative: bool = False


@dataclass(frozen=True)
class Mechanism(Parameters):
    """Base of the frozen dataclasses that are mechanisms: one file each, whose name is the name that users type.

    The fields are the parameters. ``noise`` names the field that ``calibrate`` solves for: a larger value means more
    privacy. ``release`` is the kind of release, by which the table of ``core/theorems.py`` says which
    neighbours, samplings and options have a proven pair. Where it is a pair of the plug-in's own, ``adjacencies`` are
    the neighbours for which that is proven, and ``dominating`` states that it is worst over all of them, which
    subsampling needs. ``why_not_sampled`` is advice that is shown where the mechanism cannot be sampled so.
    ``norm`` is that of its sensitivity, l1 or l2, and ``clip_norm`` the p of the lp ball of a local mechanism (see
    ``clip_ball``). ``ratios`` are pairs of numbers for ``check_ratio``. ``why_not_grouped`` is advice where there is no
    guarantee for groups of records. ``example`` are parameters by which lists try what answers the mechanism; the
    others take their defaults, their minimum, or 1.

    Only ``pair`` is required, or ``renyi_bound`` where no pair is known. ``additive_noise``, ``random_projection`` and
    ``clip_ball`` are optional capabilities: accountants and verbs ask for them and never for the name of a mechanism.
    """

    noise: ClassVar[str | None] = None
    release: ClassVar[Release] = Release.PAIR
    adjacencies: ClassVar[tuple[Adjacency, ...]] = STANDARD_ADJACENCIES
    dominating: ClassVar[bool] = True
    why_not_sampled: ClassVar[str] = ""
    source: ClassVar[str] = ""
    norm: ClassVar[str] = ""
    clip_norm: ClassVar[int | None] = None
    ratios: ClassVar[tuple[tuple[str, str], ...]] = ()
    why_not_grouped: ClassVar[str] = ""
    example: ClassVar[dict[str, object]] = {}

    def __post_init__(self) -> None:
        super().__post_init__()
        for f in dataclasses.fields(self):
            value = getattr(self, f.name)
            if isinstance(value, int) and value > MAX_INTEGER:
                raise UsageError(f"{self.name}: {f.name} must be at most 2^53; found {value}")
        for numerator, denominator in self.ratios:
            check_ratio(self, numerator, denominator)

    def pair(self) -> LossPair:
        """The dominating pair of one release at full participation."""
        raise NotImplementedError

    def grouped(self, records: int) -> Mechanism:
        """This mechanism between data sets that differ by up to so many records of one person.

        Its pair is nondecreasing in that number, so that it covers smaller groups as well. Where noise is added to a
        query, the sensitivity is multiplied.
        """
        if records == 1:
            return self
        noise = self.additive_noise()
        fields = {f.name for f in dataclasses.fields(self)}
        unknown = "sensitivity" not in fields or self.random_projection() is not None or bool(noise and noise.local)
        if unknown or self.why_not_grouped:
            known = (
                "which is known for noise on a query of a data set, dp, gdp, zcdp and exponential. Leave out `group`"
            )
            raise Unsupported(f"{self.name} has no guarantee for groups of records, {self.why_not_grouped or known}")
        sensitivity = records * dataclasses.asdict(self)["sensitivity"]
        return dataclasses.replace(self, sensitivity=sensitivity)  # type: ignore[call-arg]

    def unrolled(self) -> tuple[Mechanism, int]:
        """A mechanism and a number of releases of it, one after another, that are the same as one of this."""
        return self, 1

    def in_bins(self, n: int, bins: int) -> Mechanism:
        """This mechanism for n steps of random allocation to so many bins; for most the same at every step."""
        return self

    def pair_in_bins(self, bins: int) -> LossPair | None:
        """The pair of a whole training with balls in bins, where the noise of its steps is correlated; else None."""
        return None

    def between(self, neighbours: Neighbours) -> Mechanism:
        """This mechanism between neighbours that differ in up to a group of records."""
        return self.grouped(neighbours.group)

    def attained(self) -> Mechanism:
        """This mechanism with a pair that two data sets have, where its own pair only bounds them; else itself."""
        return self

    def renyi_bound(self) -> LossPair | None:
        """Bounds of the Renyi divergences in both directions, where they are all that is known; else None.

        The returned pair has ``renyi`` and perhaps ``zcdp_rho``, but no tails, and ``pair`` raises Unsupported. Such a
        mechanism is never subsampled.
        """
        return None

    def additive_noise(self) -> AdditiveNoise | None:
        """The noise, where the release is a query plus noise that is independent of the data; else None."""
        return None

    def random_projection(self) -> RandomProjection | None:
        """The projection, where the release is noisy random projections of records; else None."""
        return None

    def clip_ball(self) -> ClipBall | None:
        """The ball to which each person's data are clipped, where the mechanism is local; else None."""
        return None

    def caveats(self) -> tuple[str, ...]:
        """Reservations that hold for every figure about this mechanism; they go into the warnings of each guarantee."""
        return ()

    def citation(self) -> str:
        """The source of this mechanism at its parameters; ``source`` unless they choose between several formulas."""
        return self.source

    def reading(self) -> tuple[str, ...]:
        """The interpretation of the parameters, such as a sensitivity that was computed from them."""
        return ()

    def computed(self) -> dict[str, Any]:
        """Figures that were computed from the parameters, such as both ends of a sensitivity, as plain data."""
        return {}

    def describe(self) -> dict[str, Any]:
        """Name and parameters as plain data, for tables, JSON and recipes."""
        return {"mech": self.name, **{f.name: getattr(self, f.name) for f in dataclasses.fields(self)}}


def check_ratio(mechanism: Mechanism, numerator: str, denominator: str) -> None:
    """Refuse two numbers of a mechanism whose ratio, or its square, would overflow or underflow."""
    a, b = getattr(mechanism, numerator), getattr(mechanism, denominator)
    if not -100 <= math.log10(a) - math.log10(b) <= 100:
        raise UsageError(
            f"{mechanism.name}: {numerator}/{denominator} must lie between 1e-100 and 1e100; found {a:g} and {b:g}"
        )
