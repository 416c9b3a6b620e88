"""Processes: which mechanisms ran, how often, sampled how, under which adjacency; never how they are accounted for."""

from __future__ import annotations

import math
import reprlib
from dataclasses import dataclass
from typing import Any

from wpriv.core.adjacency import STANDARD_ADJACENCIES, Adjacency, default_adjacency
from wpriv.core.loss_pair import LossPair
from wpriv.core.mechanism import Mechanism
from wpriv.core.pair_distances import Observed
from wpriv.core.parameters import MAX_COUNT
from wpriv.core.sampling.kinds import Sampling
from wpriv.core.sampling.sampled_step import check_step, check_together, sampled_pair
from wpriv.errors import Unsupported, UsageError
from wpriv.numerics.parse_numbers import finite_number

UNSAMPLED = Sampling()


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
        if not 1 <= self.n <= MAX_COUNT:
            raise UsageError(f"n, the number of compositions, must be a whole number from 1 to 2^40; found {self.n}")
        if self.n % self.sampling.pass_steps:
            t = self.sampling.pass_steps
            raise UsageError(
                f"random allocation at rate 1/{t} has whole passes of {t} steps: n must be a multiple of {t}, such as "
                f"{math.ceil(self.n / t) * t}; found {self.n}"
            )
        if self.observed is not None and 1 < self.observed.steps < self.n:
            raise UsageError(
                f"n = {self.n} steps need as many observed; found {self.observed.steps} (or give one, which stands for "
                f"all)"
            )

    def weighted_pair(self) -> tuple[LossPair, int]:
        """The dominating pair with its count: that of one step, or of one pass under random allocation."""
        return sampled_pair(self.mechanism, self.sampling), self.n // self.sampling.pass_steps

    def describe(self) -> dict[str, Any]:
        """Mechanism, n, sampling and rate as plain data."""
        row = {**self.mechanism.describe(), "n": self.n, "sampling": self.sampling.kind}
        row |= {} if self.sampling.kind == "none" else {"rate": self.sampling.rate}
        return row if self.observed is None else {**row, "observed": self.observed.origin}


WeightedPairs = list[tuple[LossPair, int]]


@dataclass(frozen=True)
class Process:
    """Steps that run one after another on the same data, under one adjacency.

    ``process + process`` and ``process + step`` compose processes of the same adjacency.

    Args:
        steps: the steps, in order.
        adjacency: the neighbouring relation. It defaults to replace-one where fixed-size sampling is used and to
            add-remove elsewhere, as far as the first mechanism is defined under it.
    Raises:
        UsageError: no steps, something else than steps, or an unknown adjacency.
        Unsupported: no proven dominating pair exists for some step, or for the samplings together, under the adjacency.
    """

    steps: tuple[Step, ...]
    adjacency: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.steps, (tuple, list)) or not all(isinstance(step, Step) for step in self.steps):
            raise UsageError(f"a process is a tuple of Steps; found {reprlib.repr(self.steps)}")
        if not self.steps:
            raise UsageError("a process needs at least one step; found none")
        object.__setattr__(self, "steps", tuple(self.steps))
        if not isinstance(self.adjacency, str):
            known = ", ".join(STANDARD_ADJACENCIES)
            raise UsageError(f"adjacency must be one of {known}; found {reprlib.repr(self.adjacency)}")
        kinds = {step.sampling.kind for step in self.steps}
        check_together(kinds)
        object.__setattr__(self, "adjacency", str(self.adjacency or _default_adjacency(self.steps)))
        known_adjacencies = {a for step in self.steps for a in step.mechanism.adjacencies} | set(STANDARD_ADJACENCIES)
        if self.adjacency not in known_adjacencies:
            raise UsageError(
                f"adjacency must be one of {', '.join(sorted(known_adjacencies))}; found {self.adjacency!r}"
            )
        for step in self.steps:
            check_step(step.mechanism, step.sampling, self.adjacency)

    def __add__(self, other: Process | Step) -> Process:
        """The composition: the steps of this process, then those of the other.

        Raises:
            UsageError: the adjacencies differ.
            Unsupported: a step or a sampling is not defined under the adjacency of this process.
        """
        if isinstance(other, Step):
            return Process((*self.steps, other), self.adjacency)
        if not isinstance(other, Process):
            return NotImplemented
        if self.adjacency != other.adjacency:
            raise UsageError(
                f"processes compose under one adjacency; found {self.adjacency!r} and {other.adjacency!r}. Build both "
                f"with the same `adjacency`"
            )
        return Process((*self.steps, *other.steps), self.adjacency)

    def directions(self) -> list[WeightedPairs]:
        """The loss pairs with their counts, for each order of the neighbours: one list where both orders agree.

        A pair of random allocation is that of a whole pass.

        Raises:
            Unsupported: only bounds of the Renyi divergences are known of some step; see ``renyi_directions``.
        """
        return _both_orders([step.weighted_pair() for step in self.steps])

    def renyi_directions(self) -> list[WeightedPairs]:
        """The same for accountants that ask a pair for its Renyi divergences (or its rho) and for nothing else.

        It includes steps of which only bounds of the divergences are known.
        """
        bounds = [(step, step.mechanism.renyi_bound()) for step in self.steps]
        return _both_orders([step.weighted_pair() if bound is None else (bound, step.n) for step, bound in bounds])

    def describe(self) -> list[dict[str, Any]]:
        """The steps as plain data."""
        return [step.describe() for step in self.steps]

    def caveats(self) -> tuple[str, ...]:
        """The reservations of the mechanisms about every figure of this process, without repetitions."""
        return tuple(dict.fromkeys(line for step in self.steps for line in step.mechanism.caveats()))


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
    """Refuse a composition with a pair that has no exact PLD, for accountants whose lower ends need it.

    Raises:
        Unsupported: there is such a pair.
    """
    for pairs in directions:
        if sandwich(pairs, 1.0) is not None:
            raise Unsupported(
                f"{accountant} needs the exact privacy loss distribution; that of some step is only known between a "
                f"dominated and a dominating one, which bracket eps and delta. Use pld"
            )


def refuse_allocation(process: Process, accountant: str) -> None:
    """Refuse random allocation, for accountants without a proof for it.

    Raises:
        Unsupported: some step is sampled so.
    """
    if any(step.sampling.kind == "allocation" for step in process.steps):
        raise Unsupported(
            f"{accountant} has no proven bound for random allocation, whose steps depend on each other through the one "
            f"in which a record takes part. Use pld"
        )


def _default_adjacency(steps: tuple[Step, ...]) -> Adjacency:
    defined = steps[0].mechanism.adjacencies
    natural = default_adjacency("fixed" if any(step.sampling.kind == "fixed" for step in steps) else "none")
    return natural if natural in defined else defined[0]
