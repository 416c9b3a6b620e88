"""Processes: which mechanisms ran, how often, sampled how, under which adjacency; never how they are accounted for."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from wpriv.core import registry
from wpriv.core.kinds import (
    PASSES,
    SAMPLING_KEYS,
    STANDARD_ADJACENCIES,
    Adjacency,
    Neighbours,
    Release,
    Sampling,
    default_adjacency,
)
from wpriv.core.loss_pair import LossPair
from wpriv.core.mechanism import Mechanism
from wpriv.core.pair_distances import Observed
from wpriv.core.parameters import MAX_COUNT, field_value, flag, plugin_name
from wpriv.core.sampled_step import check_together, combination, defined_under, sampled_pair
from wpriv.core.theorems import SAME_COLUMN, Premise
from wpriv.errors import UnknownName, Unsupported, UsageError
from wpriv.hints import plain
from wpriv.numerics.numbers import finite_number, short, shown, whole

UNSAMPLED = Sampling()
UNSAMPLED_WORDS = "no sampling"
SAMPLING_WORDS = {
    "poisson": "Poisson sampling",
    "fixed": "fixed-size sampling",
    "allocation": "random allocation",
    "shuffle": "shuffled batches",
}
MAX_STEPS = 20  # kinds of step that are listed in words
# keys of a step beside the parameters of its mechanism
STEP_KEYS = ("mech", "n", *SAMPLING_KEYS, "observed")


@dataclass(frozen=True)
class Step:
    """``n`` releases of one mechanism under one sampling, with fresh noise each.

    Their queries may depend on earlier outputs.

    Args:
        mechanism: what is released, such as ``Gauss(sigma=4)``.
        n: number of compositions, 1 to 2^40.
        sampling: how records are drawn, such as ``Poisson(0.01)``; by default all take part.
        observed: pair distances of these releases, for data-dependent accountants; sigma and sensitivity are then
            multiples of its unit.
    Raises:
        UsageError: a field of the wrong type, n outside 1 to 2^40 or no whole number of passes, or fewer observed steps
            than n (one stands for all).
    """

    mechanism: Mechanism
    n: int = 1
    sampling: Sampling = UNSAMPLED
    observed: Observed | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.mechanism, Mechanism):
            raise UsageError(f"a step needs a mechanism, such as Gauss(sigma=4); found {reprlib.repr(self.mechanism)}")
        if not isinstance(self.sampling, Sampling):
            raise UsageError(
                f"the sampling of a step is given as Sampling('poisson', rate); found {reprlib.repr(self.sampling)}"
            )
        object.__setattr__(self, "n", finite_number(self.n, "n, the number of compositions,", whole=True))
        if self.sampling.kind == "allocation":
            object.__setattr__(self, "mechanism", self.mechanism.in_bins(self.n, self.sampling.pass_steps))
        if self.sampling.kind == "none":
            mechanism, count = self.mechanism.unrolled()
            object.__setattr__(self, "mechanism", mechanism)
            object.__setattr__(self, "n", self.n * count)
        if not 1 <= self.n <= MAX_COUNT:
            raise UsageError(f"n, the number of compositions, must be a whole number from 1 to 2^40; found {self.n}")
        if self.n % self.sampling.pass_steps:
            t = self.sampling.pass_steps
            raise UsageError(
                f"{PASSES[self.sampling.kind]} at rate 1/{t} has whole passes of {t} steps: n must be a multiple of "
                f"{t}, such as {math.ceil(self.n / t) * t}; found {self.n}"
            )
        if self.observed is not None and 1 < self.observed.steps < self.n:
            raise UsageError(
                f"n = {self.n} steps need as many observed; found {self.observed.steps} (or give one, which stands for "
                f"all)"
            )

    def is_like(self, other: Step) -> bool:
        """Tell whether two steps differ in ``n`` at most."""
        mine, theirs = ((step.mechanism, step.sampling, step.observed) for step in (self, other))
        return mine == theirs

    def adds_to(self, other: Step) -> bool:
        """Tell whether two steps are one with the sum of their ``n``: no trainings with correlated noise are."""
        return self.is_like(other) and not self._is_whole

    def weighted_pair(self, neighbours: Neighbours) -> tuple[LossPair, int]:
        """The dominating pair with its count: that of one step, or of one pass where passes take each record once."""
        return sampled_pair(self.mechanism, self.sampling, neighbours), self.releases

    @property
    def releases(self) -> int:
        """The number of pairs that compose: steps, passes of steps, or one training with noise correlated over bins."""
        return self.n // self.unit

    @property
    def unit(self) -> int:
        """The number of steps that are accounted for together."""
        return self.n if self._is_whole else self.sampling.pass_steps

    @property
    def _is_whole(self) -> bool:
        return self.mechanism.release == Release.MATRIX and self.sampling.kind == "allocation"

    def describe(self) -> dict[str, Any]:
        """Mechanism, n, sampling and rate as plain data."""
        row = {**self.mechanism.describe(), "n": self.n, "sampling": self.sampling.kind}
        row |= {} if self.sampling.kind == "none" else {"rate": self.sampling.rate}
        row |= {"max_batch": self.sampling.max_batch} if self.sampling.max_batch else {}
        return row if self.observed is None else {**row, "observed": self.observed.origin}

    @classmethod
    def from_dict(cls, row: Mapping[str, object]) -> Step:
        """The step that ``describe`` describes as ``row``: the inverse of ``describe``, also for rows of users.

        Args:
            row: ``{mech, <parameters of the mechanism>, n, sampling, rate, max_batch, parts, observed}``. Numbers may
                be text as users type it: ``1e-5``, ``2^20``, ``256/60000``. ``mech`` is a name, a class, or an object
                with its parameters; ``observed`` an ``Observed``, since a description has its origin alone.
        """
        mechanism = row.get("mech")
        if not isinstance(mechanism, Mechanism):
            plugin = registry.mechanism(mechanism)
            fields = registry.fields_of(plugin, plugin_name(plugin), row, STEP_KEYS, flag)
            mechanism = plugin(**{key: field_value(fields[key], value) for key, value in row.items() if key in fields})
        if "n" not in row:
            raise UsageError(f"a step needs n, the number of compositions; found the keys {', '.join(map(str, row))}")
        sampling, observed = Sampling.from_dict(row), row.get("observed")
        if not isinstance(observed, Observed | None):
            raise UsageError(f"a description has only the origin of `observed` distances; found {shown(observed)}")
        return cls(mechanism, whole(row["n"], "n"), sampling, observed)


WeightedPairs = list[tuple[LossPair, int]]


@dataclass(frozen=True)
class Process:
    """Steps that run one after another on the same data, under one adjacency.

    ``process + process`` and ``process + step`` compose processes of the same adjacency.

    Args:
        steps: the steps, in order.
        adjacency: the neighbouring relation. It defaults to replace-one where fixed-size sampling is used, to
            zero-out where batches are shuffled, and to add-remove elsewhere, as far as the first mechanism is defined
            under it.
        group: largest number of records of one person, all of which are protected together.
        records: the largest number of records of a data set, which a largest batch needs, or under replace-one the
            number, which fixed-size sampling of groups needs; 0 where it does not matter.
    Raises:
        UsageError: no steps, something else than steps, an unknown adjacency, or a group or records that are no counts.
        Unsupported: no proven dominating pair exists for some step, or for the samplings together, under the adjacency.
    """

    steps: tuple[Step, ...]
    adjacency: str = ""
    group: int = 1
    records: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.steps, (tuple, list)) or not all(isinstance(step, Step) for step in self.steps):
            raise UsageError(f"a process is a tuple of Steps; found {reprlib.repr(self.steps)}")
        if not self.steps:
            raise UsageError("a process needs at least one step; found none")
        object.__setattr__(self, "steps", tuple(self.steps))
        if not isinstance(self.adjacency, str):
            known = ", ".join(STANDARD_ADJACENCIES)
            raise UsageError(f"adjacency must be one of {known}; found {reprlib.repr(self.adjacency)}")
        object.__setattr__(self, "adjacency", plain("adjacencies", self.adjacency))
        kinds = {step.sampling.kind for step in self.steps}
        check_together(kinds, self.adjacency)
        object.__setattr__(self, "adjacency", str(self.adjacency or _default_adjacency(self.steps)))
        if self.adjacency not in tuple(Adjacency):
            raise UnknownName("adjacency", self.adjacency, sorted(Adjacency))
        for name, least in (("group", 1), ("records", 0)):
            count = finite_number(getattr(self, name), f"`{name}`", whole=True)
            if not least <= count <= MAX_COUNT:
                raise UsageError(f"`{name}` must be a whole number from {least} to 2^40; found {count}")
            object.__setattr__(self, name, count)
        for step in self.steps:
            combination(step.mechanism, step.sampling, self.neighbours)

    def __add__(self, other: Process | Step) -> Process:
        """The composition: the steps of this process, then those of the other.

        Raises:
            UsageError: the adjacencies or the groups differ, or the numbers of records where these are fixed.
            Unsupported: a step or a sampling is not defined under the adjacency of this process.
        """
        if isinstance(other, Step):
            return self.with_steps((*self.steps, other))
        if not isinstance(other, Process):
            return NotImplemented
        if self.adjacency != other.adjacency:
            raise UsageError(
                f"processes compose under one adjacency; found {self.adjacency!r} and {other.adjacency!r}. Build both "
                f"with the same `adjacency`"
            )
        if self.group != other.group:
            raise UsageError(
                f"processes compose for one number of records of a person; found {self.group} and {other.group}. Build "
                f"both with the same `group`"
            )
        if self.adjacency != Adjacency.ADD_REMOVE and 0 < self.records != other.records > 0:
            raise UsageError(
                f"under {self.adjacency} neighbours both processes run on data sets of one size; found records "
                f"{self.records} and {other.records}. Build both with the same `records`"
            )
        # under add-remove it is the largest number of records, and a guarantee for more records covers fewer
        return replace(self, steps=(*self.steps, *other.steps), records=max(self.records, other.records))

    @property
    def neighbours(self) -> Neighbours:
        """Which data sets are neighbours."""
        return Neighbours(self.adjacency, self.group, self.records)

    def with_steps(self, steps: tuple[Step, ...]) -> Process:
        """Other steps on the same data sets, under the same neighbouring relation."""
        return replace(self, steps=steps)

    def directions(self) -> list[WeightedPairs]:
        """The loss pairs with their counts, for each order of the neighbours: one list where both orders agree.

        A pair of random allocation or of shuffled batches is that of a whole pass.

        Raises:
            Unsupported: only bounds of the Renyi divergences are known of some step; see ``renyi_directions``.
        """
        return _both_orders([step.weighted_pair(self.neighbours) for step in self.steps])

    def renyi_directions(self) -> list[WeightedPairs]:
        """``directions`` for accountants that ask for Renyi divergences or rho alone, also where no more is known."""
        bounds = [(step, step.mechanism.between(self.neighbours).renyi_bound()) for step in self.steps]
        return _both_orders(
            [step.weighted_pair(self.neighbours) if bound is None else (bound, step.n) for step, bound in bounds]
        )

    def describe(self) -> list[dict[str, Any]]:
        """The steps as plain data."""
        return [step.describe() for step in self.steps]

    def __str__(self) -> str:
        """The process in a line: ``gauss (sigma 4, l2 sensitivity 1), n = 10, no sampling, ...``."""
        samplings = list(dict.fromkeys(map(sampling_words, self.describe())))
        what = f"{_mechanism_words(self.steps[0])}, n = {self.steps[0].n}" if len(self.steps) == 1 else self._size()
        drawn = samplings[0] if len(samplings) == 1 else f"{len(samplings)} samplings"
        return f"{what}, {drawn}, {self._relation()} neighbours"

    def facts(self) -> list[tuple[str, str]]:
        """The steps (up to ``MAX_STEPS`` kinds), how they are sampled, and the neighbours: labels with their text."""
        steps, drawings = self.steps, list(map(sampling_words, self.describe()))
        samplings, one = list(dict.fromkeys(drawings)), len(set(drawings)) == 1
        rows = [
            f"{_mechanism_words(step)}, n = {step.n}" + (f" composition{'s' * (step.n > 1)}" if one else f", {drawing}")
            for step, drawing in zip(steps[:MAX_STEPS], drawings, strict=False)
        ]
        rows += [f"and {len(steps) - MAX_STEPS} more kinds of step"] if len(steps) > MAX_STEPS else []
        facts = [("process", row) for row in rows] + ([("in all", self._size())] if len(steps) > 1 else [])
        drawn = "none" if samplings[0] == UNSAMPLED_WORDS else samplings[0].replace(" sampling", "")
        return [*facts, *([("sampling", drawn)] if one else []), ("neighbours", self._relation())]

    def _size(self) -> str:
        return f"n = {sum(step.n for step in self.steps)} compositions in {len(self.steps)} kinds of step"

    def _relation(self) -> str:
        return self.adjacency + (f", groups of {self.group} records" if self.group > 1 else "")

    def citations(self) -> str:
        """The sources of its mechanisms, without repetitions."""
        return "; ".join(dict.fromkeys(filter(None, (step.mechanism.citation() for step in self.steps))))

    def has_attained_mechanisms(self) -> bool:
        """Tell whether the pair of each mechanism is that of some two data sets, and no mere bound of them."""
        return all(step.mechanism.attained() == step.mechanism for step in self.steps)

    def premises(self) -> tuple[Premise, ...]:
        """The premises of the theorems behind its pairs, without repetitions."""
        rows = [(combination(step.mechanism, step.sampling, self.neighbours), step.mechanism) for step in self.steps]
        premises = dict.fromkeys(each for row, mechanism in rows for each in row.premises_of(mechanism.release))
        return tuple(each for each in premises if each != SAME_COLUMN or len({mechanism for _, mechanism in rows}) > 1)

    def caveats(self) -> tuple[str, ...]:
        """The reservations of mechanisms and samplings about every figure of this process, without repetitions."""
        lines = [line for step in self.steps for line in (*step.mechanism.caveats(), *step.sampling.caveats())]
        return tuple(dict.fromkeys(lines))


def sampling_words(step: Mapping[str, Any]) -> str:
    """How the records of a step are drawn, from its description: ``Poisson sampling at rate 0.01``."""
    if step["sampling"] == "none":
        return UNSAMPLED_WORDS
    if step["sampling"] == "allocation" and "strategy" in step:
        return f"balls in {round(1 / step['rate'])} bins for the whole training"
    cut = f" in batches of at most {step['max_batch']}" if "max_batch" in step else ""
    return f"{SAMPLING_WORDS[step['sampling']]} at rate {step['rate']:.6g}{cut}"


def _mechanism_words(step: Step) -> str:
    """``gauss (sigma 4, l2 sensitivity 1)``."""
    values = {k: v for k, v in step.describe().items() if k not in ("mech", "n", *SAMPLING_KEYS) and v is not None}
    if values.get("participations") == 0:
        del values["participations"]  # no limit
    names = {"sensitivity": f"{step.mechanism.norm} sensitivity".strip()}
    values = {k: "" if v is True else v for k, v in values.items() if v is not False}
    words = (f"{names.get(k, k)} {short(v) if isinstance(v, float) else v}".strip() for k, v in values.items())
    return f"{step.mechanism.name} ({', '.join(words)})"


def _both_orders(forward: WeightedPairs) -> list[WeightedPairs]:
    if all(pair.symmetric for pair, _ in forward):
        return [forward]
    return [forward, [(pair.reverse(), n) for pair, n in forward]]


def log_finite(pairs: WeightedPairs) -> float:
    """ln of the probability that every loss is finite; -inf where some step has disjoint supports on neighbours."""
    if any(pair.mass_at_plus_infinity >= 1 for pair, _ in pairs):
        return -math.inf
    return math.fsum(n * math.log1p(-pair.mass_at_plus_infinity) for pair, n in pairs)


def closed_form(pairs: WeightedPairs) -> LossPair | None:
    """One pair that is the exact composition of all pairs, or None where no closed form is known."""
    if len(pairs) == 1 and pairs[0][1] == 1 and pairs[0][0].exact_alone:
        return pairs[0][0]
    if any(pair.sandwich(1.0) is not None for pair, _ in pairs):
        return None
    composition: LossPair | None = None
    for pair, n in pairs:
        power = pair.self_compose(n)
        if power is None:
            return None
        composition = power if composition is None else composition.compose_with(power)
        if composition is None:
            return None
    return composition


def sandwich(pairs: WeightedPairs, tol: float) -> tuple[WeightedPairs, WeightedPairs] | None:
    """(dominated, dominating) weighted pairs where the exact PLD of some pair is unavailable, else None."""
    ends = [(pair.sandwich(tol) or (pair, pair), n) for pair, n in pairs]
    if all(low is high for (low, high), _ in ends):
        return None
    return [(low, n) for (low, _), n in ends], [(high, n) for (_, high), n in ends]


def require_exact_plds(directions: list[WeightedPairs], accountant: str) -> None:
    """Refuse a composition with a pair that has no exact PLD, for accountants whose lower ends need it."""
    for pairs in directions:
        if sandwich(pairs, 1.0) is not None:
            raise Unsupported(
                f"{accountant} needs the exact privacy loss distribution; that of some step is only known between a "
                f"dominated and a dominating one, which bracket eps and delta. Use pld"
            )


def refuse_passes(process: Process, accountant: str) -> None:
    """Refuse samplings by passes (random allocation, shuffled batches), for accountants without a proof for them."""
    for step in process.steps:
        if step.sampling.kind in PASSES:
            raise Unsupported(
                f"{accountant} has no proven bound for {step.sampling.kind} sampling, the steps of whose passes depend "
                f"on each other through the one in which a record takes part. Use pld"
            )


def refuse_special_sampling(process: Process, accountant: str) -> None:
    """Refuse groups of records, largest batches and Poisson sampling under replace-one, for formulas without them."""
    poisson = [step.sampling for step in process.steps if step.sampling.kind == "poisson"]
    what = ""
    if process.group > 1:
        what = "groups of records"
    elif any(sampling.max_batch for sampling in poisson):
        what = "a largest batch"
    elif poisson and process.adjacency == Adjacency.REPLACE_ONE:
        what = "Poisson sampling under replace-one"
    if what:
        raise Unsupported(f"{accountant} has no formula for {what}. Use pld")


def _default_adjacency(steps: tuple[Step, ...]) -> Adjacency:
    defined = defined_under(steps[0].mechanism)
    kinds = {step.sampling.kind for step in steps}
    natural = default_adjacency(next((kind for kind in ("fixed", "shuffle") if kind in kinds), "none"))
    return natural if natural in defined else defined[0]
