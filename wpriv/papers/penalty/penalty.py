"""A private Wasserstein penalty: weight, bounds, compared groups, sensitivity, and the step to account for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from wpriv.config.train_schema import Train
from wpriv.core.kinds import Sampling
from wpriv.core.process import Step
from wpriv.core.sampled_step import defined_under
from wpriv.errors import UsageError
from wpriv.papers.mechanisms.wgrad import Wgrad
from wpriv.training.engine.release_spec import NO_PRIVACY, ReleaseSpec

CLIPPINGS = ("per-coordinate", "spectral")
SIDES = ("both", "x", "z")


@dataclass(frozen=True)
class Penalty:
    """The objective (1-alpha) mean loss + (alpha/R) sum over R pairs of groups of W_2^2 between the scores of both.

    The distance is sliced where scores are vectors. One pair is statistical parity, a pair for each of R labels
    equality of odds. With ``fixed`` the second groups are points in the space of the scores, which pass through no
    model: a target to match, or the data that a generator learns.

    Args:
        alpha: weight of the Wasserstein term, 0 to 1.
        bound: M > 0, the norm to which scores are projected.
        lipschitz: L > 0, the spectral norm to which the Jacobian of an example's scores is clipped.
        sizes: records in the batch of both groups of each pair; the same in every step.
        clip: C > 0, the norm to which the gradient of an example's loss is clipped; needed where alpha < 1.
        clipping: how Jacobians are clipped: ``per-coordinate`` (each row to L/sqrt(d); the paper's) or ``spectral``
            (the singular values).
        fixed: whether the second groups are points.
        private: which groups hold private records: ``both``, the first ones (``x``) or the second ones (``z``) alone.
        formula: the sensitivity, ``tight`` or ``paper``.
    Raises:
        UsageError: an argument is out of range.
    Source:
        Rodriguez-Vitores, Lalanne, Loubes (2025), (3), (5), (6), Theorems 6.1 and A.1, Remark A.2; ``tight`` and
        ``spectral`` are wpriv's.

    >>> f"{Penalty(alpha=0.75, bound=1, lipschitz=1, sizes=((2900, 3100),), clip=5).sensitivity:.8f}"
    '0.00248563'
    """

    alpha: float
    bound: float
    lipschitz: float
    sizes: tuple[tuple[int, int], ...]
    clip: float = 0.0
    clipping: str = "per-coordinate"
    fixed: bool = False
    private: str = "both"
    formula: str = "tight"

    def __post_init__(self) -> None:
        for name, known in (("clipping", CLIPPINGS), ("private", SIDES)):
            if getattr(self, name) not in known:
                raise UsageError(f"{name} must be one of {', '.join(known)}; found {getattr(self, name)!r}")
        _check_sizes("sizes", self.sizes)
        if not self.lipschitz > 0:
            raise UsageError(f"Jacobians must be clipped to a norm above 0; found {self.lipschitz}")
        self.mechanism(sigma=1.0)  # raises where its parameters are out of range

    @property
    def batch(self) -> int:
        """Return the number of examples of a batch that pass through the model."""
        return sum(x if self.fixed else x + z for x, z in self.sizes)

    @property
    def sensitivity(self) -> float:
        """Return the l2 sensitivity of the gradient to replacing a private record by another of its own group."""
        return self.mechanism(sigma=1.0).sensitivity

    def mechanism(self, sigma: float) -> Wgrad:
        """Return the mechanism of one gradient with noise of standard deviation ``sigma`` (not a multiplier)."""
        smallest = [min(sizes) for sizes in zip(*self.sizes, strict=True)]
        lipschitz = [self.lipschitz, 0.0 if self.fixed else self.lipschitz]
        if self.private == "z":  # the distance is symmetric
            smallest.reverse()
            lipschitz.reverse()
        return Wgrad(
            sigma,
            bound=self.bound,
            lipschitz_x=lipschitz[0],
            lipschitz_z=lipschitz[1],
            size_x=smallest[0],
            size_z=smallest[1],
            private="both" if self.private == "both" else "x",
            formula=self.formula,
            alpha=self.alpha,
            clip=self.clip,
            labels=len(self.sizes),
            size=self.batch,
        )

    def step(self, multiplier: float, records: Sequence[tuple[int, int]], count: int) -> Step:
        """Return ``count`` releases with noise of ``multiplier`` times the sensitivity, for the accountants.

        Each batch is a new set of fixed size, without replacement, from ``records`` of each group; the rate is the
        largest one of the private groups.

        Raises:
            UsageError: a batch is larger than its group, or the numbers are out of range.
        Source:
            Lemma 5.1 of the paper.
        """
        _check_sizes("records", records)
        if len(records) != len(self.sizes):
            raise UsageError(f"records must give both groups of {len(self.sizes)} pairs; found {len(records)}")
        rates = [
            [size / count for size, count in zip(*pair, strict=True)] for pair in zip(self.sizes, records, strict=True)
        ]
        sides = {"both": (0, 1), "x": (0,), "z": (1,)}[self.private]
        rate = max(pair[side] for pair in rates for side in sides)
        if rate > 1:
            raise UsageError(
                f"a batch cannot have more records than its group; found batches {self.sizes} of {tuple(records)}"
            )
        return Step(self.mechanism(multiplier * self.sensitivity), count, Sampling("fixed", rate))


def _mechanism(penalty: Penalty, multiplier: float) -> Wgrad:
    """Return what is released at a noise multiplier."""
    return penalty.mechanism(multiplier * penalty.sensitivity)


def _check_sizes(name: str, sizes: Sequence[tuple[int, int]]) -> None:
    if not sizes or any(len(pair) != 2 or min(pair) < 1 for pair in sizes):
        raise UsageError(
            f"{name} must give the records of both groups of each pair, such as ((2900, 3100),); found {sizes!r}"
        )


def penalised_release(
    train: Train, penalty: Penalty, records: Sequence[tuple[int, int]], **words: object
) -> ReleaseSpec:
    """Return the release of a private penalised gradient."""
    if train.privacy is None:
        raise UsageError(NO_PRIVACY)
    step = penalty.step(1.0, records, 1)
    adjacency = defined_under(step.mechanism)[0]
    if train.privacy.adjacency not in (None, adjacency):
        raise UsageError(
            f"privacy: adjacency: the task {train.task} is accounted for under {adjacency} neighbours; found "
            f"{train.privacy.adjacency}. Leave adjacency out"
        )
    scores = f"each record's scores to an l2 norm of {penalty.bound:g}"
    defaults = {
        "clipped": f"{scores}, their Jacobians to {penalty.lipschitz:g}, and the gradient of its loss"
        if penalty.clip
        else f"{scores}, and their Jacobians",
        "of": "the penalised gradient",
        "unit": "the values of one training record within its group",
        "drawn": "every step takes a fresh uniformly random set of a fixed number of records from each group, "
        "without replacement",
    }
    return ReleaseSpec(
        partial(_mechanism, penalty),
        step.sampling,
        penalty.batch,
        adjacency,
        penalty.clip or penalty.lipschitz,
        penalty.sensitivity,
        **{**defaults, **words},  # type: ignore[arg-type]
    )
