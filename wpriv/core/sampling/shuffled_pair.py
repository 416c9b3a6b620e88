"""The pair of a pass of shuffled batches, which is only known between two others that may lie far apart.

Above it lies the pair of one release without sampling, since no amplification by shuffling is proven for queries that
may depend on earlier outputs. Below it lies what tests achieve on one pair of neighbours (docs/theory/shuffling.md).
"""

from __future__ import annotations

from numpy.typing import ArrayLike

from wpriv.core.loss_pair import KeyedPair, LossPair, Tails
from wpriv.core.mechanism import AdditiveNoise
from wpriv.core.sampling.shuffle_witness import witness_pair
from wpriv.numerics.arrays import Array


def shuffled(base: LossPair, noise: AdditiveNoise, steps: int) -> LossPair:
    """Return the pair of one pass of ``steps`` shuffled batches under zero-out, for the order "with the record".

    Args:
        base: dominating pair of one release in which the record takes part.
        noise: the noise of the release, Gaussian or Laplace.
        steps: number of batches of a pass.
    """
    return base if steps == 1 else ShuffledPair(base, noise.family, noise.scale / noise.sensitivity, steps)


class ShuffledPair(KeyedPair):
    """One release without sampling as the dominating pair, and the pair of tests of a witness as the dominated one."""

    def __init__(self, base: LossPair, family: str, scale: float, steps: int, forward: bool = True):
        self.base, self.family, self.scale, self.steps, self.forward = base, family, scale, steps, forward
        self.key = (base, family, scale, steps, forward)
        self.support, self.atoms = base.support, base.atoms

    def sandwich(self, tol: float) -> tuple[LossPair, LossPair]:
        witness = witness_pair(self.family, self.scale, self.steps)
        return (witness if self.forward else witness.reverse()), self.base

    def reverse(self) -> LossPair:
        return ShuffledPair(self.base.reverse(), self.family, self.scale, self.steps, not self.forward)

    def tails(self, eps: Array) -> Tails:
        return self.base.tails(eps)

    def probabilities(self, eps: Array) -> Tails:
        return self.base.probabilities(eps)

    def log_delta(self, eps: ArrayLike) -> Array:
        return self.base.log_delta(eps)
