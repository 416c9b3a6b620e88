"""Gaussian noise on a clipped Wasserstein gradient, and its sensitivity to one record.

The setting is that of Rodriguez-Vitores, Lalanne, Loubes (2025), "Wasserstein gradients": scores g(x_i) of n records
and h(z_j) of m records, clipped to norm M (``bound``); their gradients, clipped to norm L1 and L2 (``lipschitz_x``,
``lipschitz_z``; the spectral norm of the Jacobian where scores are vectors); and the gradient of W_2^2, or of its
sliced form, as an integral or over drawn directions. In training n and m are the sizes of the BATCH. Tied clipped
scores must share their weights: if ties are broken by position, no bound here holds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from wpriv.accounting.mechanisms.gauss import GaussPair
from wpriv.core.kinds import Release
from wpriv.core.loss_pair import LossPair
from wpriv.core.mechanism import Mechanism, check_ratio
from wpriv.core.parameters import parameter
from wpriv.errors import UsageError

FORMULAS = ("tight", "paper")


def wasserstein_gradient(
    bound: float,
    lipschitz_x: float,
    lipschitz_z: float,
    size_x: float,
    size_z: float | None = None,
    *,
    formula: str = "tight",
) -> float:
    """Compute the l2 sensitivity of the clipped gradient of W_2^2 when one record is replaced.

    ``paper`` is 4M (3 L1 + L2)/n. It bounds three shifts of the same rank one by one; kept together their sum is convex
    in the scores before and after and in the quantiles of the other sample that their ranks meet, so its maximum is at
    a vertex: ``tight`` is (4M/n) max(2 L1, L1 + L2), which both ends of the maximum attain. A record of Z likewise,
    with the roles exchanged.

    Args:
        bound: M > 0, the clipping norm of the scores.
        lipschitz_x, lipschitz_z: L1, L2 >= 0, the clipping norms of their gradients.
        size_x: n, records of X in the batch, one of which is replaced. size_z: m if Z is private as well, else None.
        formula: ``tight`` or ``paper``.
    Returns:
        A bound in units of score x gradient, attained by ``tight``; the larger of the two if both samples are private.
    Source: Rodriguez-Vitores, Lalanne, Loubes (2025), Theorems 4.1 and A.1; the constant of ``tight`` is wpriv's.
    """
    if formula not in FORMULAS:
        raise UsageError(f"formula must be one of {', '.join(FORMULAS)}; found {formula!r}")
    if not size_x >= 1 or not (size_z is None or size_z >= 1):
        raise UsageError(f"size_x and size_z must be at least 1; found {size_x} and {size_z}")
    over_x = _constant(lipschitz_x, lipschitz_z, formula) / size_x
    over_z = 0.0 if size_z is None else _constant(lipschitz_z, lipschitz_x, formula) / size_z
    return 4 * bound * max(over_x, over_z)


def _constant(replaced: float, other: float, formula: str) -> float:
    """The factor of 4M/n, from the gradient norms of the sample with the replaced record and of the other one."""
    return 3 * replaced + other if formula == "paper" else max(2 * replaced, replaced + other)


def penalised_gradient(alpha: float, clip: float, size: float, penalty: float, labels: int = 1) -> float:
    """Compute the l2 sensitivity of (1-alpha) mean gradient + alpha (Wasserstein gradient), averaged over labels.

    A replaced record moves the mean of ``size`` gradients of norm at most C by 2C/n. It takes part in the penalty of
    its own label only, one of ``labels`` that are averaged. With alpha = 1 and one label it is the penalty alone.

    Args:
        alpha: weight of the penalty in [0, 1].
        clip: C >= 0, the clipping norm of the per-example gradients.
        size: records in the batch, of all groups.
        penalty: ``wasserstein_gradient`` of the two groups, of the smallest ones where there are several labels.
        labels: R >= 1.
    Raises:
        UsageError: no records, or a weight outside [0, 1].
    Source:
        Rodriguez-Vitores, Lalanne, Loubes (2025), Theorem 6.1: (7), statistical parity, R = 1; (8), equality of odds.
    """
    if not (0 <= alpha <= 1 and size >= 1 and labels >= 1):
        raise UsageError(
            f"alpha must lie in [0, 1], size and labels must be at least 1; found {alpha:g}, {size} and {labels}"
        )
    return (1 - alpha) * 2 * clip / size + alpha * penalty / labels


PRIVATE = ("both", "x")
NOT_PROTECTED = (
    "wgrad protects the value of a record within its group: the sizes of the groups and the group (and label) that a "
    "record belongs to are NOT protected"
)
PUBLIC_Z = (
    "wgrad with private=x protects records of X alone: all records of Z are public and the same on both neighbours, "
    "and are NOT protected"
)

AS_PUBLISHED = (
    "wgrad with formula=paper has the sensitivity as published, up to twice the least: its eps, delta and mu are upper "
    "bounds, perhaps far above the least ones"
)


@dataclass(frozen=True)
class Wgrad(Mechanism):
    """Release (1-alpha) mean gradient + (alpha/labels) sum of Wasserstein gradients, clipped, + N(0, sigma^2 I).

    With alpha = 1 (the default) it is one Wasserstein gradient between batches of X and Z. With alpha < 1, labels = 1
    it is the loss with statistical parity, with more labels that with equality of odds; then X and Z are the groups
    (give the sizes of the smallest ones). Under fixed-size sampling the rate is the largest n'_j/n_j of the groups.
    Poisson batches have no fixed sizes and are refused.

    Source:
        Rodriguez-Vitores, Lalanne, Loubes (2025), Theorems 4.1, A.1 and 6.1, Lemma 5.1; Zhu, Dong, Wang (2022) for the
        sampling.
    """

    release: ClassVar[Release] = Release.WASSERSTEIN
    noise: ClassVar[str | None] = "sigma"
    source: ClassVar[str] = "Rodriguez-Vitores, Lalanne, Loubes 2025, Theorems 4.1 and 6.1 (constant corrected)"
    example: ClassVar[dict[str, object]] = {"lipschitz_x": 1.0, "size_x": 8, "size_z": 8}

    sigma: float = parameter("standard deviation of the noise, in the units of the gradient", exclusive_minimum=0)
    bound: float = parameter("M, to which scores are clipped (norm)", exclusive_minimum=0)
    lipschitz_x: float = parameter(
        "L1, to which gradients of X's scores are clipped (spectral norm of the Jacobian)", minimum=0
    )
    size_x: int = parameter("records of X in the batch (of the smallest group, where there are several)", minimum=1)
    size_z: int | None = parameter("records of Z in the batch; needed where Z is private too", default=None, minimum=1)
    lipschitz_z: float | None = parameter(
        "L2, the same of Z's scores; 0 where they do not train (default: L1)", default=None, minimum=0
    )
    private: str = parameter(
        "which samples hold private records: both, or x alone (Z is public then)", default="both", choices=PRIVATE
    )
    formula: str = parameter(
        "the sensitivity: tight, or paper as published (up to twice as large)", default="tight", choices=FORMULAS
    )
    alpha: float = parameter(
        "weight of the Wasserstein term, 0 to 1; the mean gradient has the rest", default=1.0, minimum=0
    )
    clip: float = parameter(
        "C, to which each record's gradient of the loss is clipped, where alpha < 1", default=0.0, minimum=0
    )
    labels: int = parameter(
        "number of labels with a Wasserstein term of their own (equality of odds)", default=1, minimum=1
    )
    size: int | None = parameter(
        "records in the whole batch, for the mean gradient (default: X and Z)", default=None, minimum=1
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.alpha > 1:
            raise UsageError(f"wgrad: alpha must lie in [0, 1]; found {self.alpha:g}")
        if self.private == "both" and self.size_z is None:
            raise UsageError(
                "wgrad: size_z is required if both samples are private; found none. Give `size_z=...`, or `private='x'`"
            )
        if self.alpha < 1 and not self.clip:
            raise UsageError(
                f"wgrad: alpha = {self.alpha:g} adds the gradient of a loss, which must be clipped; found no clip. "
                "Give `clip=...`"
            )
        if self.alpha < 1 and self.size is None and (self.labels > 1 or self.size_z is None):
            raise UsageError(
                "wgrad: the mean gradient needs the number of records in the whole batch; found no size. "
                "Give `size=...`"
            )
        if self.lipschitz_z is None:
            object.__setattr__(self, "lipschitz_z", self.lipschitz_x)
        if not self.sensitivity > 0:
            raise UsageError(
                "wgrad: the release does not depend on a private record: lipschitz_x (L1) is 0 and there is no mean "
                "gradient. Give lipschitz_x above 0"
            )
        check_ratio(self, "sensitivity", "sigma")

    @property
    def sensitivity(self) -> float:
        """The l2 sensitivity of the release before noise, in the units of the gradient."""
        assert self.lipschitz_z is not None
        size_z = self.size_z if self.private == "both" else None
        penalty = wasserstein_gradient(
            self.bound, self.lipschitz_x, self.lipschitz_z, self.size_x, size_z, formula=self.formula
        )
        size = self.size or self.size_x + (self.size_z or 0)
        return penalised_gradient(self.alpha, self.clip, size, penalty, self.labels)

    def pair(self) -> LossPair:
        return GaussPair(self.sensitivity / self.sigma)

    def attained(self) -> Wgrad:
        return replace(self, formula="tight")

    def caveats(self) -> tuple[str, ...]:
        lines = [NOT_PROTECTED] + ([PUBLIC_Z] if self.private == "x" else [])
        return (*lines, AS_PUBLISHED) if self.formula == "paper" else tuple(lines)

    def citation(self) -> str:
        corrected = self.formula == "tight"
        return self.source if corrected else self.source.replace("constant corrected", "constant as published")

    def reading(self) -> tuple[str, ...]:
        multiplier = self.sigma / self.sensitivity
        public = ("neighbours differ in one record of X; the records of Z are public",) if self.private == "x" else ()
        return (
            *public,
            f"sensitivity = {self.sensitivity:.6g} ({self.formula}), noise multiplier = {multiplier:.6g}; "
            "sizes are those of the batch, and tied scores must share their weights",
        )
