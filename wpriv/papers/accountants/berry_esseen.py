"""The privacy loss class with a certified error: the normal delta -+ the Berry-Esseen distance of the composed loss.

Both ends are rigorous, given the cited theorem and its constant, but the error does not shrink with delta, so that a
small delta is never reached (eps is then inf). It must not be confused with ``clt``, its centre, nor with ``nagaev``,
whose error falls in the tail.
"""

from __future__ import annotations

from wpriv.core.guarantee import Curve
from wpriv.core.process import Process
from wpriv.papers.accountants._normal_approximation import bracket_curve

NOTION = "approximate-dp"
CLAIM = "certified"
SOURCE = "Sommer, Meiser, Mohammadi 2019, Theorem 6 (corrected); constants as cited there: Shevtsova 2010, 2011"
EXPLAIN = """\
delta within Lemma 12 at the class of the composition -+ (1-w) c sum E|L_i-m_i|^3 / (sum of variances)^(3/2),
c = 0.4748 for equal steps (Shevtsova 2011), 0.56 for unequal ones (Shevtsova 2010), as cited by Pinelis 2017.
Certified from both sides in both orders of the neighbours, for every mechanism with a third moment.
Useful near the bulk only: delta below the error term is out of reach."""


def account(process: Process, *, tol: float = 1e-3) -> Curve:
    """Account for a process by the Berry-Esseen bracket; eps is inf where delta is out of reach; ``tol`` is not used.

    Raises:
        Unsupported: some pair has no exact PLD.
    """
    return bracket_curve(process, accountant="berry-esseen", source=SOURCE, nonuniform=False)
