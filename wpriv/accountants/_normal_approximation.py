"""Normal approximations of the composed loss: its privacy loss class, and how far the truth can be from it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from wpriv.core.guarantee import Bracket, Curve, epsilon_at
from wpriv.core.loss_moments import loss_class
from wpriv.core.process import Process, WeightedPairs, log_finite, require_exact_plds
from wpriv.numerics.conversions import normal_log_delta

# Constants of others' theorems, taken as cited and not proven again here. Sommer et al. (2019) give all four: those for equal steps
# in Lemma 13, those for any steps in the remark after it, from Pinelis (2017).
# Kolmogorov distance / (sum of third moments / variance^(3/2)): equal steps (Shevtsova 2011), any steps (Shevtsova 2010)
UNIFORM = {True: 0.4748, False: 0.5600}
# the same with the factor 1 + |z|^3: equal steps (Lemma 13), any steps (Paditz 1989, elsewhere quoted as 32)
NONUNIFORM = {True: 25.80, False: 31.935}


@dataclass(frozen=True)
class Composed:
    """The class of a composition: mean, variance and summed third central moments of its finite loss, its mass at +inf.

    ``top`` is its largest finite loss; ``equal`` says that all steps have one and the same loss pair.
    """

    mean: float
    variance: float
    third: float
    mass_at_plus_infinity: float
    top: float
    equal: bool

    def log_delta(self, eps: float) -> float:
        """ln of Lemma 12 at this class: what delta would be if the finite loss were normal."""
        inner = normal_log_delta(eps, self.mean, self.variance)
        return (
            inner
            if self.mass_at_plus_infinity == 0
            else math.log(self.mass_at_plus_infinity + (1 - self.mass_at_plus_infinity) * math.exp(inner))
        )

    def bracket(self, eps: float, *, nonuniform: bool) -> Bracket:
        """delta at eps with both ends: Lemma 12 -+ the distance of the two tails beyond eps."""
        normal = math.exp(normal_log_delta(eps, self.mean, self.variance))
        error = self.error(eps, nonuniform=nonuniform)
        share = 1 - self.mass_at_plus_infinity
        ends = [
            self.mass_at_plus_infinity + share * min(max(value, 0.0), 1.0)
            for value in (normal, normal - error, normal + error)
        ]
        if eps > self.top * (1 + 1e-12):  # nothing is left beyond the largest loss
            ends = [self.mass_at_plus_infinity] * 3
        return Bracket(ends[0], ends[1], ends[2])

    def error(self, eps: float, *, nonuniform: bool) -> float:
        """A bound on sup over y >= eps of |P(L > y) - normal tail|, given that the loss is finite."""
        if self.variance == 0:
            return 0.0
        ratio = self.third / self.variance / math.sqrt(self.variance)
        z = (eps - self.mean) / math.sqrt(self.variance)
        error = UNIFORM[self.equal] * ratio
        return min(error, NONUNIFORM[self.equal] * ratio / (1 + z * z * z)) if nonuniform and z >= 0 else error


def composed(run: WeightedPairs) -> Composed:
    """The class of a whole run: means, variances and third moments add up, finiteness multiplies.

    Source:
        Sommer, Meiser, Mohammadi (2019), Theorem 4, with the third moments centred.
    """
    classes = [(loss_class(pair), n) for pair, n in run]
    return Composed(
        mean=math.fsum(n * c.mean for c, n in classes),
        variance=math.fsum(n * c.variance for c, n in classes),
        third=math.fsum(n * c.third for c, n in classes),
        mass_at_plus_infinity=-math.expm1(log_finite(run)),
        top=math.fsum(n * pair.support[1] for pair, n in run),
        equal=len({pair for pair, _ in run}) == 1,
    )


def bracket_curve(process: Process, *, accountant: str, source: str, nonuniform: bool) -> Curve:
    """The certified bracket of Theorem 6 in the worse order of the neighbours; its upper eps is inf where no eps is reached.

    Source:
        Sommer, Meiser, Mohammadi (2019), Theorem 6: z standardised by sqrt(n) sigma, moments centred, error of the tails beyond
        eps. The lower end falls with eps wherever it is positive, since a normal tail falls faster than 1/(1 + z^3).
    """
    require_exact_plds(process, accountant)
    sums = [composed(run) for run in process.directions()]
    high, guess = max(s.top for s in sums) * (1 + 1e-11), max(sums[0].mean, 1e-12)

    def delta(eps: float) -> Bracket:
        ends = [s.bracket(eps, nonuniform=nonuniform) for s in sums]
        lower, upper = max(b.lower or 0.0 for b in ends), max(b.upper or 0.0 for b in ends)
        return Bracket(min(max(max(b.estimate for b in ends), lower), upper), lower, upper)

    def invert(read: Callable[[Bracket], float], target: float) -> float:
        return epsilon_at(lambda eps: _log(read(delta(eps))), target, guess=guess, high=high)

    def epsilon(target: float) -> Bracket:
        # the error of berry-esseen is the same at every eps: a smaller delta is not worth a search
        floor = max(
            0.0
            if nonuniform
            else s.mass_at_plus_infinity + (1 - s.mass_at_plus_infinity) * s.error(math.inf, nonuniform=False)
            for s in sums
        )
        unreachable = math.isinf(high) and floor > target
        upper = math.inf if unreachable else invert(lambda b: b.safe, target)
        lower = invert(lambda b: b.lower or 0.0, target) * (1 - 1e-11)
        return Bracket(min(max(invert(lambda b: b.estimate, target), lower), upper), lower, upper)

    return Curve(process, accountant, "approximate-dp", "certified", source, delta, epsilon)


def _log(x: float) -> float:
    return math.log(x) if x > 0 else -math.inf
