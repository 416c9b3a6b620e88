"""What an (eps, delta) guarantee says of an attacker who tests whether a record was used."""

from __future__ import annotations

import math

from wpriv.numerics.safe_rounding import text

RATES = (0.001, 0.01, 0.1)
DIGITS = 4
ROUNDING = 1e-12  # relative errors of the formulas below lie far under it


def most_true_positives(eps: float, delta: float, fpr: float) -> float:
    """Bound the true-positive rate of every test with some false-positive rate, under (eps, delta)-DP.

    Both orders of the neighbours bound it: TPR <= e^eps FPR + delta, and 1 - FPR <= e^eps (1 - TPR) + delta.

    Args:
        eps, delta: of the guarantee, which holds for both orders. fpr: in [0, 1].
    Returns:
        The smaller of both bounds, in [0, 1]; attained by a mechanism with this very guarantee.
    Source:
        Kairouz, Oh, Viswanath (2015), Theorem 2.1 and Section 2.

    >>> most_true_positives(0.0, 0.1, 0.01)
    0.11
    """
    first = math.exp(min(eps, 700.0)) * fpr + delta
    second = 1 - math.exp(-eps) * max(0.0, 1 - fpr - delta)
    return min(1.0, first, second)


def lines(eps: float, delta: float) -> list[str]:
    """Return the reading of a guarantee in sentences, numbers rounded up."""
    advantage = min(1.0, (math.expm1(min(eps, 700.0)) + 2 * delta) / (math.exp(min(eps, 700.0)) + 1))
    margin = ROUNDING if eps else 0.0
    sentences = [
        f"A test with a false-positive rate of {100 * rate:g}% has a true-positive rate of at most "
        f"{_percent(most_true_positives(eps, delta, rate), margin)}."
        for rate in RATES
    ]
    return [
        "Whoever knows two neighbouring data sets, and guesses at even odds which of them was used, is right with a "
        f"probability of at most {_percent((1 + advantage) / 2, margin)}; guessing is right with 50%.",
        *sentences,
        "These follow from this one pair of eps and delta; the whole privacy curve gives at most as much.",
    ]


def _percent(share: float, margin: float) -> str:
    """A share in percent, rounded up and before by a margin for the errors of its computation."""
    return f"{text(min(100.0, 100 * share * (1 + margin)), up=True, digits=DIGITS)}%"
