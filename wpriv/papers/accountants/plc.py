"""The bound of privacy loss classes: at each question the least of Berry-Esseen's, Nagaev's and Markov's.

The minimum that Sommer, Meiser and Mohammadi (2019) offer as their result, with the three as corrected: each is a
proven upper bound, and so is the least; the answer says which it is. ``variant=paper`` has Theorem 6 as printed, which
can lie below the true delta. Not to be confused with ``clt``, the class alone without any error, nor with ``pld``,
which is tight.
"""

from __future__ import annotations

import math
from dataclasses import replace

from wpriv.core.guarantee import Curve, epsilon_at
from wpriv.core.loss_moments import raw_third_moment
from wpriv.core.process import Process, WeightedPairs, require_exact_plds
from wpriv.errors import Unsupported, UsageError
from wpriv.numerics.bracket import Bracket
from wpriv.numerics.conversions import normal_log_delta
from wpriv.papers.accountants import markov
from wpriv.papers.accountants._normal_approximation import Composed, bracket_curve, composed

NOTION = "approximate-dp"
CLAIM = "certified"
SOURCE = "Sommer, Meiser, Mohammadi 2019, Theorem 3 and Theorem 6"
EXPLAIN = """\
The least of three upper bounds: Theorem 6 with the error of Berry and Esseen (berry-esseen) or of Nagaev (nagaev), and
Theorem 3, Markov's inequality at every tail (markov); the source of an answer names the one that gave it. The lower end
is that of Theorem 6. variant=corrected (default): z standardised by the standard deviation, moments centred, the sign
of Theorem 3 as in its proof. variant=paper: Theorem 6 as printed, for equal steps, which is no bound."""
VARIANTS = ("corrected", "paper")
NAMES = {"berry-esseen": "Berry-Esseen (Theorem 6)", "nagaev": "Nagaev (Theorem 6)", "markov": "Markov (Theorem 3)"}
PRINTED = (
    "plc:variant=paper divides by sqrt(n) sigma^2 in Nagaev's error and does not centre the third moment, as printed: "
    "the number can lie BELOW the true delta. Theorem 3 has the sign of its proof, since the printed sum is negative"
)


def account(process: Process, *, tol: float = 1e-3, variant: str = "corrected") -> Curve:
    """Account for a process by the least of three bounds; ``tol`` is not used.

    Args:
        variant: ``corrected``, whose claim is ``certified``, or ``upper-bound`` where only Markov's bound applies; or
            ``paper``, as published.
    Raises:
        Unsupported: passes are sampled; for ``paper`` also unequal steps, and pairs without an exact PLD.
        UsageError: another variant.
    """
    if variant not in VARIANTS:
        raise UsageError(f"plc: variant must be one of {', '.join(VARIANTS)}; found {variant!r}")
    tails = markov.account(process)
    if variant == "paper":
        return _printed(process, tails)
    curves = {"markov": tails}
    try:
        for name, nonuniform in (("berry-esseen", False), ("nagaev", True)):
            curves[name] = bracket_curve(process, accountant=name, source=SOURCE, nonuniform=nonuniform)
    except Unsupported:  # Markov's bound covers the dominating end of a sandwich of the loss, and losses of any size
        return replace(
            tails, accountant="plc", source=f"{SOURCE} (corrected); Theorem 6 needs exact losses and their moments"
        )

    def least(answers: dict[str, Bracket]) -> Bracket:
        # of equal ends the first, and Nagaev's is never above Berry-Esseen's
        name = min(("berry-esseen", "nagaev", "markov"), key=lambda name: answers[name].safe)
        high, low = answers[name].safe, answers["nagaev"].lower or 0.0
        return Bracket.between(min(low, high), high, f"the least is {NAMES[name]}")

    return Curve(
        process,
        "plc",
        NOTION,
        CLAIM,
        f"{SOURCE} (corrected)",
        lambda eps: least({name: curve.delta_bracket(eps) for name, curve in curves.items()}),
        lambda delta: least({name: curve.epsilon_bracket(delta) for name, curve in curves.items()}),
    )


def _printed(process: Process, tails: Curve) -> Curve:
    """The least of Theorem 6 as printed and of Theorem 3 with the sign of its proof: no bound."""
    require_exact_plds(process.directions(), "plc:variant=paper")
    sums = [_printed_class(pairs) for pairs in process.directions()]

    def theorem_6(eps: float) -> float:
        ends = [(at, math.exp(normal_log_delta(eps, at.mean, at.variance))) for at in sums]
        inner = [(at.mass_at_plus_infinity, delta + at.error(eps, nonuniform=True)) for at, delta in ends]
        return min(max(mass + (1 - mass) * bound for mass, bound in inner), 1.0)

    def delta(eps: float) -> Bracket:
        return _named({"Theorem 6 as printed": theorem_6(eps), NAMES["markov"]: tails.delta_bracket(eps).safe})

    def epsilon(delta: float) -> Bracket:
        by_class = epsilon_at(lambda eps: math.log(theorem_6(eps)), delta, guess=max(sums[0].mean, 1e-12))
        return _named({"Theorem 6 as printed": by_class, NAMES["markov"]: tails.epsilon_bracket(delta).safe})

    return Curve(process, "plc", NOTION, "as-published", f"{SOURCE}, as printed", delta, epsilon, (PRINTED,))


def _named(values: dict[str, float]) -> Bracket:
    name = min(values, key=values.__getitem__)
    return Bracket(values[name], by=f"the least is {name}")


def _printed_class(pairs: WeightedPairs) -> Composed:
    """The class of equal steps with the third moment and the scale of z as Theorem 6 prints them."""
    distinct, n = {pair for pair, _ in pairs}, sum(count for _, count in pairs)
    if len(distinct) > 1:
        raise Unsupported(
            "plc:variant=paper is stated for equal steps, and found different ones. Use plc, which covers both"
        )
    this = composed(pairs)
    return replace(this, third=n * raw_third_moment(distinct.pop()), deviation=this.variance / math.sqrt(n))
