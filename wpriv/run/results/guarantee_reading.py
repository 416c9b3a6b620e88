"""What an (eps, delta) guarantee says of an attacker who tests whether a record was used."""

from __future__ import annotations

import math

from wpriv.core.guarantee import Curve
from wpriv.errors import Unsupported, UsageError
from wpriv.numerics.safe_rounding import text
from wpriv.run.accounting import attack, build_process, evaluate
from wpriv.run.accounting.budget import ATTACK_FACTOR
from wpriv.run.results.model import Figure, Releases, Reports

RATES = (*attack.RATES, 0.1)
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


def of_statement(source: Releases | Reports, row: Figure) -> list[str]:
    """Return the reading of a guarantee in sentences, numbers rounded up.

    The figures are those of the privacy curve of what ran, as ``wpriv budget`` prints them; those of the pair of eps
    and delta alone where the statement does not describe that process, or pld refuses it.

    Args:
        source: the part of a statement that has the guarantee. row: the guarantee.
    """
    eps, delta = float(row.epsilon), float(row.delta)
    advantage = min(1.0, (math.expm1(min(eps, 700.0)) + 2 * delta) / (math.exp(min(eps, 700.0)) + 1))
    margin = ROUNDING if eps else 0.0
    rates = {rate: most_true_positives(eps, delta, rate) for rate in RATES}
    curve = _curve(source, row)
    if curve is None:
        origin = "These follow from this one pair of eps and delta; the whole privacy curve gives at most as much."
    else:
        bounds = [attack.attack_bounds(curve), attack.attack_bounds(curve, RATES[-1:])]
        points = [point for each in bounds if each for point in each["tpr_at_fpr"]]
        advantage = min([advantage, *(each["advantage_upper"] for each in bounds if each)])
        rates |= {point["fpr"]: min(rates[point["fpr"]], point["tpr_upper"]) for point in points}
        origin = f"These are certified by {curve.accountant} from the whole privacy curve of what ran."
    sentences = [
        f"A test with a false-positive rate of {100 * rate:g}% has a true-positive rate of at most "
        f"{_percent(most, margin)}."
        for rate, most in rates.items()
    ]
    return [
        "Whoever knows two neighbouring data sets, and guesses at even odds which of them was used, is right with a "
        f"probability of at most {_percent((1 + advantage) / 2, margin)}; guessing is right with 50%.",
        *sentences,
        origin,
    ]


def _curve(source: Releases | Reports, row: Figure) -> Curve | None:
    """The privacy curve of the process of a guarantee; None of the best of several runs, and where it is not known."""
    if source.tuning is not None:
        return None
    group = source.group if source.group > 1 else None
    records = source.delta.records if group and source.delta else None
    try:
        process = build_process.process(row.process, source.adjacency, group=group, records=records)
        curve = evaluate.curve(process, "pld", min(ATTACK_FACTOR * evaluate.answer_tol(process), attack.WIDEST_TOL))
    except (Unsupported, UsageError):
        return None
    return curve if curve.notion == "approximate-dp" and curve.claim in ("exact", "certified") else None


def _percent(share: float, margin: float) -> str:
    """A share in percent, rounded up and before by a margin for the errors of its computation."""
    return f"{text(min(100.0, 100 * share * (1 + margin)), up=True, digits=DIGITS)}%"
