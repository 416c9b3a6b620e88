"""Normal approximations of the composed privacy loss: its class, and bounds of the approximation error."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from wpriv.core.guarantee import Curve, epsilon_at
from wpriv.core.loss_moments import resolved_class
from wpriv.core.process import Process, WeightedPairs, log_finite, require_exact_plds
from wpriv.numerics.bracket import Bracket
from wpriv.numerics.conversions import normal_log_delta

# Constants of published theorems, taken as cited and not proven again here. Sommer et al. (2019) give all four: those
# for equal steps in Lemma 13, those for any steps in the remark after it, from Pinelis (2017).
# Kolmogorov distance / (sum of third moments / variance^(3/2)): equal steps (Shevtsova 2011), any steps (Shevtsova
# 2010)
UNIFORM = {True: 0.4748, False: 0.5600}
# the same with the factor 1 + |z|^3: equal steps (Lemma 13), any steps (Paditz 1989, elsewhere quoted as 32)
NONUNIFORM = {True: 25.80, False: 31.935}


@dataclass(frozen=True)
class Composed:
    """The class of a composition: mean, variance and summed third central moments of the finite loss, mass at +inf.

    ``top`` is the largest finite loss; ``equal`` is true where all steps have the same loss pair; ``deviation`` is the
    standard deviation, by which the distance of eps from the mean is divided.
    """

    mean: float
    variance: float
    third: float
    mass_at_plus_infinity: float
    top: float
    equal: bool
    deviation: float

    def log_delta(self, eps: float) -> float:
        """ln of Lemma 12 at this class: ln delta of a normal loss of the same mean and variance."""
        inner, infinity = normal_log_delta(eps, self.mean, self.variance), self.mass_at_plus_infinity
        return inner if infinity == 0 else math.log(infinity + (1 - infinity) * math.exp(inner))

    def bracket(self, eps: float, *, nonuniform: bool) -> Bracket:
        """delta at eps with both ends: Lemma 12 -+ the largest difference of the two tails beyond eps."""
        normal = math.exp(normal_log_delta(eps, self.mean, self.variance))
        error = self.error(eps, nonuniform=nonuniform)
        infinity = self.mass_at_plus_infinity
        deltas = (normal, normal - error, normal + error)
        ends = [infinity + (1 - infinity) * min(max(value, 0.0), 1.0) for value in deltas]
        if eps > self.top * (1 + 1e-12):  # beyond the largest finite loss
            ends = [infinity] * 3
        return Bracket(ends[0], ends[1], ends[2])

    def error(self, eps: float, *, nonuniform: bool) -> float:
        """Bound the sup over y >= eps of |P(L > y) - normal tail|, given that the loss is finite."""
        if self.variance == 0:
            return 0.0
        ratio = self.third / self.variance / math.sqrt(self.variance)
        z = (eps - self.mean) / self.deviation
        error = UNIFORM[self.equal] * ratio
        return min(error, NONUNIFORM[self.equal] * ratio / (1 + z * z * z)) if nonuniform and z >= 0 else error


def composed(pairs: WeightedPairs) -> Composed:
    """The class of a composition: means, variances and third moments add up, probabilities of a finite loss multiply.

    Source:
        Sommer, Meiser, Mohammadi (2019), Theorem 4, with the third moments centred.
    """
    classes = [(resolved_class(pair), n) for pair, n in pairs]
    variance = math.fsum(n * c.variance for c, n in classes)
    return Composed(
        mean=math.fsum(n * c.mean for c, n in classes),
        variance=variance,
        third=math.fsum(n * c.third for c, n in classes),
        mass_at_plus_infinity=-math.expm1(log_finite(pairs)),
        top=math.fsum(n * pair.support[1] for pair, n in pairs),
        equal=len({pair for pair, _ in pairs}) == 1,
        deviation=math.sqrt(variance),
    )


def bracket_curve(process: Process, *, accountant: str, source: str, nonuniform: bool) -> Curve:
    """The certified bracket of Theorem 6 in the worse order of the neighbours; eps may be inf.

    Source:
        Sommer, Meiser, Mohammadi (2019), Theorem 6: z standardised by sqrt(n) sigma, moments centred, error of the
        tails beyond eps. The lower end falls with eps wherever it is positive, since a normal tail falls faster than
        1/(1 + z^3).
    """
    require_exact_plds(process.directions(), accountant)
    sums = [composed(pairs) for pairs in process.directions()]
    high, guess = max(s.top for s in sums) * (1 + 1e-11), max(sums[0].mean, 1e-12)

    def delta(eps: float) -> Bracket:
        ends = [s.bracket(eps, nonuniform=nonuniform) for s in sums]
        lower, upper = max(b.lower or 0.0 for b in ends), max(b.upper or 0.0 for b in ends)
        return Bracket(min(max(max(b.estimate for b in ends), lower), upper), lower, upper)

    def invert(end: Callable[[Bracket], float], target: float) -> float:
        def log_delta(eps: float) -> float:
            value = end(delta(eps))
            return math.log(value) if value > 0 else -math.inf

        return epsilon_at(log_delta, target, guess=guess, high=high)

    def epsilon(target: float) -> Bracket:
        # the Berry-Esseen error is the same at every eps: no eps reaches a delta below it
        masses = [(s.mass_at_plus_infinity, s.error(math.inf, nonuniform=False)) for s in sums]
        floor = 0.0 if nonuniform else max(infinity + (1 - infinity) * error for infinity, error in masses)
        unreachable = math.isinf(high) and floor > target
        upper = math.inf if unreachable else invert(lambda b: b.safe, target)
        lower = invert(lambda b: b.lower or 0.0, target) * (1 - 1e-11)
        return Bracket(min(max(invert(lambda b: b.estimate, target), lower), upper), lower, upper)

    return Curve(process, accountant, "approximate-dp", "certified", source, delta, epsilon)
