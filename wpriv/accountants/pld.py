"""Privacy loss distributions, certified from both sides; exact closed forms where there are some.

The tight answer to "how private is this process": every other (eps, delta) accountant gives a bound on the same curve. Not to be
confused with the one-sided or approximate PLD accountants elsewhere: the bracket here holds the truth, rounding included.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from wpriv.core.guarantee import Bracket, Curve, curve_of_pair
from wpriv.core.process import Process, closed_form, sandwich

NOTION = "approximate-dp"
CLAIM = "certified"
# other proven bounds of the same curve, which run/bounds.py intersects with a bracket that came out wider than asked; of each group the
# first that does not refuse the process, since those after it are never better
OTHER_BOUNDS = (("rdp",), ("kov", "basic"))
# a bracket wider than this many times its tolerance is asked for once more at a coarser one
TOO_WIDE, COARSE = 20, 1e-3
SOURCE = "Sommer, Meiser, Mohammadi 2019, Theorem 1; Doroshenko et al. 2022 (upper dots); wpriv lower dots"
EXPLAIN = """delta(eps) = E[(1 - e^(eps - Y))_+], Y the sum of the privacy losses of all steps under P, for both orders of the neighbours.
Each step's privacy profile is replaced by a piecewise-linear one above it (chords) and one below it; both are composed by tilted FFTs.
Grid, truncation, wrap-around and rounding are inside the bracket. Assumes the adjacency and the sampling named with the answer."""


def account(process: Process, *, tol: float = 1e-3) -> Curve:
    """The certified curve of any process of mechanisms that have a dominating pair.

    Args:
        tol: relative width asked of the bracket, of eps where delta is given and of delta where eps is given.
    Returns:
        A curve of claim ``exact`` where the whole composition has a closed form, else ``certified``.
    Raises:
        Unsupported: the grid would not fit in memory (raised when the curve is asked).
    """
    runs = process.directions()
    closed = [closed_form(run) for run in runs]
    pairs = [pair for pair in closed if pair is not None]
    if len(pairs) == len(runs):
        return curve_of_pair(process, pairs, accountant="pld", source=SOURCE)
    # not needed, and not loaded, where a closed form has the answer
    from wpriv.pld.composition import Composition
    from wpriv.pld.sandwich import SandwichedComposition

    compositions = [Composition(run) if sandwich(run, tol) is None else SandwichedComposition(run, tol) for run in runs]

    def answer(ask: Callable[[Composition | SandwichedComposition, float, float], tuple[float, float]]) -> Bracket:
        ends = _worst([partial(ask, c, tol) for c in compositions])
        if tol < COARSE and ends[1] - ends[0] > TOO_WIDE * tol * ends[1]:
            # what is asked of it may be out of reach, and then a coarser composition may come nearer than a fine one that was given up
            coarse = _worst([partial(ask, c, COARSE) for c in compositions])
            ends = max(ends[0], coarse[0]), min(ends[1], coarse[1])
        return Bracket.between(float(ends[0]) + 0.0, float(ends[1]) + 0.0)

    def delta(eps: float) -> Bracket:
        return answer(lambda c, tol, enough: c.delta(eps, tol, enough))

    def epsilon(delta: float) -> Bracket:
        return answer(lambda c, tol, enough: c.epsilon(delta, tol, enough))

    return Curve(process, "pld", NOTION, CLAIM, SOURCE, delta, epsilon, tol=tol)


def _worst(orders: Sequence[Callable[[float], tuple[float, float]]]) -> tuple[float, float]:
    """The maximum over the orders of the neighbours; a later one need not be known better than to lie below an earlier one's upper end."""
    low, high = 0.0, -1.0
    for order in orders:
        ends = order(high)
        low, high = max(low, ends[0]), max(high, ends[1])
    return low, high
