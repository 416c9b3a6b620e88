"""A release of which only (eps0, delta0)-differential privacy is known."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from wpriv.accounting.mechanisms._validation import given_response
from wpriv.accounting.mechanisms.discrete_laplace import DiscreteLaplace
from wpriv.accounting.mechanisms.randomized_response import ResponsePair
from wpriv.accounting.mechanisms.uniform import UniformPair
from wpriv.core.kinds import Release
from wpriv.core.loss_pair import LossPair
from wpriv.core.mechanism import Mechanism
from wpriv.core.parameters import parameter
from wpriv.errors import Unsupported
from wpriv.numerics.numbers import echo, text


def group_bound(eps: float, delta: float, records: int) -> tuple[float, float]:
    """(m eps, delta (e^(m eps) - 1)/(e^eps - 1)), delta at most 1, for groups of m (Vadhan 2017, Lemma 2.2)."""
    total = records * eps
    growth = math.expm1(total) / math.expm1(eps) if 0 < total < 700 else math.inf if total else records
    return total, min(delta * growth, 1.0) if delta else 0.0


@dataclass(frozen=True)
class Dp(Mechanism):
    """A release of which only (eps0, delta0)-DP is known; nothing else about it is assumed.

    Its pair is that of ``randomized-response``, which is (eps0, delta0)-DP itself and dominates every other such
    release (Kairouz, Oh and Viswanath): the result is the best that holds for all of them. The guarantee must hold for
    the neighbours of the process, in both directions.

    With ``sampling`` the guarantee is that of the mechanism on the records that were drawn, for every size of the
    sample; a guarantee that already includes the sampling is given without. Proof that it may be sampled: a pair that
    dominates a mechanism on all neighbours yields, by mixing, one that dominates it on a random sample (Zhu, Dong, Wang
    2022, Theorem 11), and only the domination is used, not the mechanism. The known amplification to (ln(1 + q(e^eps0 -
    1)), q delta0)-DP (Balle, Barthe, Gaboardi 2018) is one point of the resulting profile.

    Source:
        Kairouz, Oh, Viswanath (2015).
    """

    release: ClassVar[Release] = Release.DP
    source: ClassVar[str] = "Kairouz, Oh, Viswanath 2015"
    example: ClassVar[dict[str, object]] = {"delta0": 1e-05}

    eps0: float = parameter("eps of the guarantee of one release, in nats", minimum=0)
    delta0: float = parameter("delta of the guarantee of one release, below 1; 0 for pure DP", default=0.0, minimum=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        given_response(self, self.eps0, self.delta0)

    def pair(self) -> LossPair:
        log_keep = math.log1p(-self.delta0)
        return ResponsePair(self.eps0, log_keep, 1) if self.eps0 > 0 else UniformPair(log_keep)

    def grouped(self, records: int) -> Dp | DiscreteLaplace:
        """Geometric noise of scale 1 / eps0 at the distance m, the worst: docs/theory/groups.md, Theorem 7."""
        if records == 1 or (self.eps0 == 0 and self.delta0 == 0):
            return self
        if self.delta0 > 0:
            eps0, delta0 = group_bound(self.eps0, self.delta0, records)
            bound = f"eps0 = {text(eps0, up=True)} and delta0 = {text(delta0, up=True)}"
            raise Unsupported(
                f"dp with delta0 above 0 has no exact pair for groups of records; a bound for groups of {records} is "
                f"{bound} (eps0 times m, and delta0 (e^(m eps0) - 1)/(e^eps0 - 1)). Give these, and leave out `group`"
            )
        return DiscreteLaplace(1 / self.eps0, records)

    def reading(self) -> tuple[str, ...]:
        return (
            f"({echo(self.eps0)}, {echo(self.delta0)})-DP of each release is taken as given, for the neighbours "
            f"that are named with the answer",
        )
