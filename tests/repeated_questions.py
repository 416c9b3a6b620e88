"""Privacy curves of which several tests ask the same: from the second time on, answers come from memory, bit for bit.

An answer follows from the steps, from the questions that the composition had before, and from the engine. The state
that a question leaves, and the work that it counts, come from memory too. The tests of the engine itself compute every
answer, and so does the nightly run.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import nightly
from wpriv.accounting.pld import composition, constants
from wpriv.numerics import counted_work

COMPUTED = (
    "accounting/pld",
    "accounting/accountants/test_pdp.py",
    "accounting/accountants/test_pld.py",
    "accounting/mechanisms/test_local.py",
    "core/test_groups.py",
)
TESTS = Path(__file__).parent
KEPT, MOST_WORK = 32, 3e9  # compositions hold arrays, large ones where they are much work
_known: OrderedDict[object, tuple[tuple[float, float], dict[str, Any], float]] = OrderedDict()
_kind: Any = composition.Composition
_begin, _evaluate = _kind.__init__, _kind._limited


def begin(self: Any, run: Any, work_share: float = 1.0) -> None:
    """Begin a composition, and note what its answers follow from."""
    _begin(self, run, work_share)
    self.asked = (tuple(run), work_share)


def evaluate(self: Any, question: Callable[..., tuple[float, float]], *given: float) -> tuple[float, float]:
    """Answer a question from memory, or evaluate it and keep the answer."""
    self.asked = (self.asked, question.__name__, given)
    if counted_work._end.get() < math.inf:  # a limit may fall within a question
        return _evaluate(self, question, *given)
    key = (self.asked, tuple(value for value in vars(constants).values() if isinstance(value, (int, float))))
    kept = _known.get(key)
    if kept is not None:
        answer, state, work = kept
        vars(self).update(state)
        counted_work.add(work)
        return answer
    start = counted_work.total()
    answer = _evaluate(self, question, *given)
    work = counted_work.total() - start
    if work < MOST_WORK:
        _known[key] = (answer, dict(vars(self)), work)
        if len(_known) > KEPT:
            _known.popitem(last=False)
    return answer


def set_memory(item: pytest.Item) -> None:
    """Choose for a test, and the fixtures that are set up for it, whether answers come from memory."""
    path = item.path.relative_to(TESTS).as_posix() if item.path.is_relative_to(TESTS) else ""
    is_computed = nightly.WHOLE or path.startswith(COMPUTED)
    _kind.__init__, _kind._limited = (_begin, _evaluate) if is_computed else (begin, evaluate)
