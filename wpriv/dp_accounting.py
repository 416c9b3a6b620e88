"""wpriv as an accountant of dp_accounting: ``WprivAccountant().compose(event).get_epsilon(1e-5)``.

It takes the place of ``PLDAccountant`` or ``RdpAccountant``, in ``calibrate_dp_mechanism`` as well. It needs the extra
``dp-accounting``.
"""

from __future__ import annotations

import math

from wpriv.errors import Unsupported, lacking

try:
    from dp_accounting.dp_event import DpEvent
    from dp_accounting.privacy_accountant import NeighboringRelation, PrivacyAccountant
except ImportError as error:
    raise lacking(error.name or "dp_accounting", "wpriv.dp_accounting") from None

from wpriv.accounting import evaluate
from wpriv.checks import dp_events
from wpriv.core.guarantee import Curve
from wpriv.core.kinds import Adjacency

RELATIONS = {
    NeighboringRelation.ADD_OR_REMOVE_ONE: Adjacency.ADD_REMOVE,
    NeighboringRelation.REPLACE_ONE: Adjacency.REPLACE_ONE,
    NeighboringRelation.REPLACE_SPECIAL: Adjacency.ZERO_OUT,
}
ACCOUNTANT, TOL = "pld", 1e-4


class WprivAccountant(PrivacyAccountant):  # type: ignore[misc]  # no types are installed with dp_accounting for mypy
    """The certified upper ends of eps and delta for events of dp_accounting.

    Noise multipliers are relative to the largest norm of one record. Under ``REPLACE_ONE`` a sum moves by twice that,
    as in their ``PLDAccountant`` (their ``RdpAccountant`` takes it once); ``REPLACE_SPECIAL`` is ``zero-out``.
    ``supports`` is false for events without a proven pair of distributions; docs/other-libraries.md names them.

    Args:
        neighboring_relation: as in their accountants. tol: relative width asked of the bracket whose upper end is
            returned, from 1e-9 to 0.5.
    Raises:
        UsageError: ``tol`` is out of range; later, a number of an event or of a question.
    """

    def __init__(
        self,
        neighboring_relation: NeighboringRelation = NeighboringRelation.ADD_OR_REMOVE_ONE,
        tol: float = TOL,
    ):
        super().__init__(neighboring_relation)
        self._run = dp_events.EventRun(RELATIONS[neighboring_relation])
        self._tol = evaluate.checked_tol(tol)

    def _maybe_compose(
        self, event: DpEvent, count: int, do_compose: bool
    ) -> PrivacyAccountant.CompositionErrorDetails | None:
        try:
            run = dp_events.steps_of(event, self._run.adjacency)
            process = run.process()
            if process is not None:
                process.directions()  # refuses releases of which only Renyi divergences are bounded
        except Unsupported as error:
            return self.CompositionErrorDetails(invalid_event=event, error_message=str(error))
        if count:
            together = dp_events.together((self._run, dp_events.times(run, count)), self._run.adjacency)
            self._run = together if do_compose else self._run
        return None

    def _curve(self) -> Curve | None:
        """The privacy curve of all events; None where they release nothing."""
        process = self._run.process()
        return None if process is None else evaluate.curve(process, ACCOUNTANT, self._tol)

    def get_epsilon(self, target_delta: float) -> float:
        """The eps that holds at a delta in [0, 1), which is inf for a release without noise."""
        if self._run.unprotected:
            return math.inf
        curve = self._curve()
        return 0.0 if curve is None else float(curve.at(delta=target_delta).epsilon.safe)

    def get_delta(self, target_epsilon: float) -> float:
        """The delta that holds at an eps of at least 0, which is 1 for a release without noise."""
        if self._run.unprotected:
            return 1.0
        curve = self._curve()
        return 0.0 if curve is None else float(curve.at(eps=target_epsilon).delta.safe)
