"""The privacy loss class with a certified error that falls in the tail: the smaller of Berry-Esseen's and Nagaev's.

Both ends are rigorous, given the cited theorems and their constants. Nagaev's constant is large (25.80), but its term
falls like 1/(1+z^3), z standard deviations above the mean loss, so that it reaches somewhat smaller deltas than
``berry-esseen`` and is never worse.
"""

from __future__ import annotations

from wpriv.core.guarantee import Curve
from wpriv.core.process import Process
from wpriv.papers.accountants._normal_approximation import bracket_curve

NOTION = "approximate-dp"
CLAIM = "certified"
SOURCE = "Sommer, Meiser, Mohammadi 2019, Lemma 13 and Theorem 6 (corrected); constants as cited there: Pinelis 2017"
EXPLAIN = """\
delta within Lemma 12 at the class of the composition -+ (1-w) r min(0.4748, 25.80/(1+z^3) if z >= 0),
z = (eps - m)/s, r = sum E|L_i-m_i|^3 / s^3, s^2 the sum of variances;
0.56 and 31.935 (Paditz 1989) for unequal steps, as cited by Pinelis 2017.
Certified from both sides in both orders of the neighbours; loose: polynomial in the tail where the true delta is
exponential."""


def account(process: Process, *, tol: float = 1e-3) -> Curve:
    """Account for a process by the Nagaev bracket; ``tol`` is not used.

    Raises:
        Unsupported: some pair has no exact PLD.
    """
    return bracket_curve(process, accountant="nagaev", source=SOURCE, nonuniform=True)
