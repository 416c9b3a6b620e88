"""Privacy loss distributions, certified from both sides; exact where there is a closed form.

The tight answer for a process: every other (eps, delta) accountant bounds the same curve. Not to be confused with
one-sided or approximate PLD accountants of other programs: this bracket contains the true value, rounding included.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from wpriv.core.guarantee import Curve, OrderDelta, curve_of_pair
from wpriv.core.process import Process, closed_form, sandwich
from wpriv.numerics.bracket import Bracket

NOTION = "approximate-dp"
CLAIM = "certified"
# other proven bounds of the same curve, which accounting/other_bounds.py intersects with a bracket wider than the
# tolerance; of each group the first that does not refuse the process, since those after it are never better
OTHER_BOUNDS = (("rdp",), ("kov", "basic"))
# a bracket wider than this many times its tolerance is computed once more at the coarser tolerance
TOO_WIDE, COARSE = 20, 1e-3
SOURCE = (
    "Sommer, Meiser, Mohammadi 2019, Theorem 1; Doroshenko et al. 2022 (pessimistic discretisation); wpriv (optimistic)"
)
FORMULA = """\
delta(eps) = E[(1 - e^(eps - Y))_+], Y the sum of all steps' privacy losses under P, in both orders of the neighbours.
"""
ASSUMES = "Assumes the adjacency and the sampling that are named with the answer."
EXPLAIN = f"""\
{FORMULA}Each step's privacy profile is replaced by a piecewise-linear one above it (chords) and one below it;
both are composed by tilted FFTs. Discretisation, truncation, wrap-around and rounding are inside the bracket.
{ASSUMES}"""
# the formula of an exact answer
EXPLAIN_EXACT = f"{FORMULA}The sum has a closed form here, so that nothing is discretised.\n{ASSUMES}"


def account(process: Process, *, tol: float = 1e-3) -> Curve:
    """Certify the curve of any process by composing its privacy loss distributions.

    Args:
        tol: requested relative width of the bracket, of eps where delta is given and of delta where eps is given.
    Returns:
        A curve of claim ``exact`` where the whole composition has a closed form, else ``certified``.
    Raises:
        Unsupported: the lattice would not fit in memory (raised when the curve is evaluated).
    """
    directions = process.directions()
    closed = [closed_form(weighted) for weighted in directions]
    pairs = [pair for pair in closed if pair is not None]
    if len(pairs) == len(directions):
        source = f"{process.citations() or 'the mechanism by itself'} (closed form)"
        return curve_of_pair(process, pairs, accountant="pld", source=source)
    # loaded only where there is no closed form
    from wpriv.accounting.pld.composition import Composition
    from wpriv.accounting.pld.sandwich import SandwichedComposition

    compositions = [
        Composition(weighted) if sandwich(weighted, tol) is None else SandwichedComposition(weighted, tol)
        for weighted in directions
    ]

    def bracket(
        evaluate: Callable[[Composition | SandwichedComposition, float, float], tuple[float, float]],
        chosen: Sequence[Composition | SandwichedComposition] = compositions,
    ) -> Bracket:
        ends = _worst([partial(evaluate, c, tol) for c in chosen])
        if tol < COARSE and ends[1] - ends[0] > TOO_WIDE * tol * ends[1]:
            # where the tolerance is out of reach a coarser composition may be tighter than a fine one that was given up
            coarse = _worst([partial(evaluate, c, COARSE) for c in chosen])
            ends = max(ends[0], coarse[0]), min(ends[1], coarse[1])
        return Bracket.between(float(ends[0]) + 0.0, float(ends[1]) + 0.0)

    def delta(eps: float) -> Bracket:
        # the total variation distance is that of both orders; under sampling, adding a record has no large losses
        chosen = compositions if eps > 0 else compositions[-1:]
        return bracket(lambda c, tol, sufficient_upper: c.delta(eps, tol, sufficient_upper), chosen)

    def epsilon(delta: float) -> Bracket:
        return bracket(lambda c, tol, sufficient_upper: c.epsilon(delta, tol, sufficient_upper))

    def order(composition: Composition | SandwichedComposition) -> OrderDelta:
        return lambda eps, width=0.0: Bracket.between(
            *(composition if eps > 0 else compositions[-1]).delta(eps, max(width, tol))
        )

    orders = tuple(map(order, compositions))
    return Curve(process, "pld", NOTION, CLAIM, SOURCE, delta, epsilon, tol=tol, orders=orders)


def _worst(orders: Sequence[Callable[[float], tuple[float, float]]]) -> tuple[float, float]:
    """The maximum over the orders; below the upper end of those before it, an order need not be tightened."""
    low, high = 0.0, -1.0
    for order in orders:
        ends = order(high)
        low, high = max(low, ends[0]), max(high, ends[1])
    return low, high
