"""What ran: mechanisms, how often, sampled how, under which neighbouring relation. Never how it is accounted."""

from __future__ import annotations

import math
import reprlib
from dataclasses import dataclass
from typing import Any

from wpriv.core.loss_pair import LossPair
from wpriv.core.mechanism import ADJACENCIES, WITHIN_GROUP, Mechanism
from wpriv.core.pair_distances import Observed
from wpriv.core.parameters import MAX_COUNT
from wpriv.core.subsampling import fixed, poisson
from wpriv.errors import Unsupported, UsageError
from wpriv.numerics.parse_numbers import finite_number

PROVEN = {"poisson": ("add-remove",), "fixed": ("replace-one", WITHIN_GROUP)}
SAMPLINGS = ("none", "poisson", "fixed")


@dataclass(frozen=True)
class Sampling:
    """How the records of a step are drawn: ``none`` (all take part), ``poisson`` or ``fixed`` (without replacement), at ``rate``."""

    kind: str = "none"
    rate: float = 1.0

    def __post_init__(self) -> None:
        if not isinstance(self.kind, str) or self.kind not in SAMPLINGS:
            raise UsageError(f"sampling must be one of {', '.join(SAMPLINGS)}; found {reprlib.repr(self.kind)}")
        object.__setattr__(self, "rate", finite_number(self.rate, "the sampling rate"))
        if not 0 < self.rate <= 1:
            raise UsageError(f"the sampling rate must lie in (0, 1]; found {self.rate}")
        if self.kind == "none" and self.rate != 1:
            raise UsageError(
                f"a rate of {self.rate:g} needs --sampling poisson or --sampling fixed; found sampling 'none'"
            )


@dataclass(frozen=True)
class Step:
    """``n`` runs of one mechanism under one sampling, with fresh noise each; their queries may depend on earlier outputs.

    ``observed`` is what the runs showed, for accountants that price it; then sigma and sensitivity are multiples of its unit.
    """

    mechanism: Mechanism
    n: int = 1
    sampling: Sampling = Sampling()
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
        if self.observed is not None and 1 < self.observed.steps < self.n:
            raise UsageError(
                f"n = {self.n} steps need as many observed; found {self.observed.steps} (or give one, which stands for all)"
            )

    def describe(self) -> dict[str, Any]:
        row = {**self.mechanism.describe(), "n": self.n, "sampling": self.sampling.kind}
        row |= {} if self.sampling.kind == "none" else {"rate": self.sampling.rate}
        return row if self.observed is None else {**row, "observed": self.observed.origin}


WeightedPairs = list[tuple[LossPair, int]]


@dataclass(frozen=True)
class Process:
    """Steps run one after another on the same data, under one neighbouring relation.

    ``adjacency`` defaults to replace-one where fixed-size sampling is used and to add-remove elsewhere.
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
            raise UsageError(f"adjacency must be one of {', '.join(ADJACENCIES)}; found {reprlib.repr(self.adjacency)}")
        kinds = {step.sampling.kind for step in self.steps}
        _check_together(kinds)
        if not self.adjacency:
            own = self.steps[0].mechanism.adjacencies
            natural = "replace-one" if "fixed" in kinds else "add-remove"
            object.__setattr__(self, "adjacency", natural if natural in own else own[0])
        known = {a for step in self.steps for a in step.mechanism.adjacencies} | set(ADJACENCIES)
        if self.adjacency not in known:
            raise UsageError(f"adjacency must be one of {', '.join(sorted(known))}; found {self.adjacency!r}")
        for step in self.steps:
            _check(step, self.adjacency)

    def directions(self) -> list[WeightedPairs]:
        """The loss pairs with their counts, once for each order of the neighbours that must be priced (one or two)."""
        forward: WeightedPairs = [(_sampled(step), step.n) for step in self.steps]
        if all(pair.symmetric for pair, _ in forward):
            return [forward]
        return [forward, [(pair.reverse(), n) for pair, n in forward]]

    def describe(self) -> list[dict[str, Any]]:
        return [step.describe() for step in self.steps]

    def caveats(self) -> tuple[str, ...]:
        """What the mechanisms say of every figure about this process, each thing once."""
        return tuple(dict.fromkeys(line for step in self.steps for line in step.mechanism.caveats()))


def log_finite(run: WeightedPairs) -> float:
    """ln of the probability that every loss of a run is finite; -inf where some step tells the neighbours apart for certain."""
    if any(pair.mass_at_plus_infinity >= 1 for pair, _ in run):
        return -math.inf
    return math.fsum(n * math.log1p(-pair.mass_at_plus_infinity) for pair, n in run)


def closed_form(run: WeightedPairs) -> LossPair | None:
    """One pair that is the exact composition of a whole run, or None where no closed form is known."""
    whole: LossPair | None = None
    if any(pair.sandwich(1.0) is not None for pair, _ in run):
        return None
    for pair, n in run:
        part = pair.self_compose(n)
        if part is None:
            return None
        whole = part if whole is None else whole.compose_with(part)
        if whole is None:
            return None
    return whole


def sandwich(run: WeightedPairs, tol: float) -> tuple[WeightedPairs, WeightedPairs] | None:
    """A run that this one dominates and one that dominates it, where some pair is known only between two; else None."""
    ends = [(pair.sandwich(tol) or (pair, pair), n) for pair, n in run]
    if all(low is high for (low, high), _ in ends):
        return None
    return [(low, n) for (low, _), n in ends], [(high, n) for (_, high), n in ends]


def require_exact_plds(process: Process, accountant: str) -> None:
    """Refuses a process some pair of which is known only between two, for accountants whose lower ends need the law itself."""
    for run in process.directions():
        if sandwich(run, 1.0) is not None:
            raise Unsupported(
                f"{accountant} needs the very law of the privacy loss; that of a projection is known between two, which bracket eps and "
                f"delta. Use pld"
            )


def _sampled(step: Step) -> LossPair:
    pair, sampling = step.mechanism.pair(), step.sampling
    if sampling.kind == "none":
        return pair
    return (poisson if sampling.kind == "poisson" else fixed)(pair, sampling.rate)


def _check_together(kinds: set[str]) -> None:
    """Refuse samplings in one process that no neighbouring relation covers together."""
    sampled = sorted(kinds - {"none"})
    if len(sampled) > 1 and not set.intersection(*(set(PROVEN[kind]) for kind in sampled)):
        proven = ", ".join(f"that of {kind} sampling under {' or '.join(PROVEN[kind])} only" for kind in sampled)
        raise Unsupported(
            f"the process has steps of {' and of '.join(sampled)} sampling, whose dominating pairs are proven under different neighbouring "
            f"relations: {proven} (Zhu, Dong, Wang 2022). Account for each kind by itself"
        )


def _check(step: Step, adjacency: str) -> None:
    mechanism, kind = step.mechanism, step.sampling.kind
    if kind == "poisson" and mechanism.why_not_poisson:
        raise Unsupported(f"{mechanism.name} has no Poisson sampling: {mechanism.why_not_poisson}")
    if adjacency not in mechanism.adjacencies:
        raise Unsupported(
            f"{mechanism.name} is defined under {' or '.join(mechanism.adjacencies)}; found adjacency {adjacency!r}"
        )
    if kind == "none":
        return
    if not mechanism.dominating or mechanism.why_not_sampled:
        raise Unsupported(f"{mechanism.name} cannot be subsampled: {mechanism.why_not_sampled}")
    if adjacency not in PROVEN[kind]:
        proven, other = PROVEN[kind][0], "fixed" if kind == "poisson" else "poisson"
        able = [a for a in PROVEN[kind] if a in mechanism.adjacencies]
        instead = f"--adjacency {able[0]}, or --sampling {other}" if able else f"--sampling {other}"
        raise Unsupported(
            f"{kind} sampling has a proven dominating pair under {proven} only (Zhu, Dong, Wang 2022); found adjacency {adjacency!r}. "
            f"Use {instead}"
        )
    if kind == "fixed" and not mechanism.pair().symmetric:
        raise Unsupported(
            f"fixed-size sampling needs a pair with the same loss law in both orders; {mechanism.name} has none"
        )
