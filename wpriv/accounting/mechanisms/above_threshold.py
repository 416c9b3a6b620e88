"""AboveThreshold, the sparse vector technique: which queries of a stream exceed a noisy threshold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from wpriv.accounting.mechanisms.noisy_max import MONOTONE, laplace_at, laplace_scores
from wpriv.core.kinds import Release
from wpriv.core.loss_pair import LossPair
from wpriv.core.mechanism import Mechanism, check_ratio
from wpriv.core.parameters import parameter
from wpriv.errors import Unsupported

# variants of the literature that have no finite eps, with the reason (Lyu, Su, Li 2017, Section 3)
BROKEN = {
    "reused-value": "the noisy value that was compared is released, which tells where the noisy threshold lies (Roth's "
    "notes of 2011). Draw fresh noise for the value, and give its scale as `answer_scale=...`",
    "no-query-noise": "the queries are compared without noise, so that a single query can tell neighbours apart "
    "(Stoddard et al. 2014). Add noise, and give its scale as `query_scale=...`",
    "no-cutoff": "it answers above without end (Chen et al. 2015), and every such answer costs. Stop after a number of "
    "them, and give it as `answers=...`",
}


@dataclass(frozen=True)
class AboveThreshold(Mechanism):
    """Say of each query of a stream, chosen adaptively, whether query + noise reaches threshold + noise; stop after c.

    The noise on the threshold is Laplace and drawn once; that on each query is Laplace and fresh. The largest loss is
    s / threshold_scale + 2 c s / query_scale, with c in the place of 2 c where a record moves all queries in the same
    direction; and c s / answer_scale more where the value of an answered query is released with fresh Laplace noise.
    Where the noise on the threshold is drawn afresh after each answer, these are n = c runs with answers = 1.

    Source:
        Dwork, Roth (2014), Section 3.6; Lyu, Su, Li (2017), Theorems 2 to 5; docs/theory/selection.md, Theorem 4.
    """

    release: ClassVar[Release] = Release.SCORES
    source: ClassVar[str] = "Lyu, Su, Li 2017; wpriv (interpolation)"
    ratios: ClassVar[tuple[tuple[str, str], ...]] = (("sensitivity", "threshold_scale"), ("sensitivity", "query_scale"))

    threshold_scale: float = parameter("scale of the Laplace noise on the threshold", exclusive_minimum=0)
    query_scale: float = parameter("scale of the noise on each query", exclusive_minimum=0)
    sensitivity: float = parameter("largest change of one query between neighbours", default=1.0, exclusive_minimum=0)
    answers: int = parameter("number c of answers above, after which it stops", default=1, minimum=1)
    answer_scale: float | None = parameter(
        "scale of fresh Laplace noise with which the value of an answered query is released",
        default=None,
        exclusive_minimum=0,
    )
    monotone: bool = parameter(MONOTONE, default=False)
    variant: str = parameter(
        "standard, or one of the known variants without a guarantee, which are refused with the reason",
        default="standard",
        choices=("standard", *BROKEN),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.answer_scale is not None:
            check_ratio(self, "sensitivity", "answer_scale")
        if self.variant in BROKEN:
            raise Unsupported(f"above-threshold: the variant {self.variant} has no finite eps: {BROKEN[self.variant]}")

    def pair(self) -> LossPair:
        moves = self.answers if self.monotone else 2 * self.answers
        terms = [(1, self.sensitivity, self.threshold_scale), (moves, self.sensitivity, self.query_scale)]
        if self.answer_scale is not None:
            terms.append((self.answers, self.sensitivity, self.answer_scale))
        # the lower end: one query, whose noise and that of the threshold add up
        wide, narrow = self.threshold_scale, self.query_scale
        return laplace_scores(laplace_at(terms), self.sensitivity / narrow, wide / narrow)
