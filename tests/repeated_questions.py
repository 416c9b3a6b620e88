"""Privacy curves of which several tests ask the same: from the second time on, answers come from memory, bit for bit.

An answer follows from the steps, from the questions that the composition had before, and from the engine. The state
that a question leaves, and the work that it counts, come from memory too. The tests of the engine itself compute every
answer, and so does the nightly run. While a part of the engine is replaced, as a test may do, or where a loss pair is
one of a test's own, answers are neither kept nor read: no test reads that of another program.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import sys
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
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
ENGINE = ("wpriv.accounting.pld", "wpriv.accounting.mechanisms", "wpriv.papers.mechanisms", "wpriv.core")
ENGINE += ("wpriv.numerics",)
_known: OrderedDict[object, tuple[tuple[float, float], dict[str, Any], float]] = OrderedDict()
_first_seen: dict[ModuleType | type, dict[str, object]] = {}
_kind: Any = composition.Composition
_begin, _evaluate = _kind.__init__, _kind._limited


def is_unchanged(packages: tuple[str, ...]) -> bool:
    """Tell whether the modules and classes of packages have the functions and constants they were first seen with."""
    return all([_is_unchanged(part) for part in _parts(packages, len(sys.modules))])  # every one is seen


@functools.lru_cache(maxsize=8)
def _parts(packages: tuple[str, ...], count: int) -> list[ModuleType | type]:
    parts: list[ModuleType | type] = []
    for name, module in [*sys.modules.items()]:
        if name.startswith(packages):
            kinds = [kind for kind in vars(module).values() if isinstance(kind, type) and kind.__module__ == name]
            parts += [module, *kinds]
    return parts


def _is_unchanged(part: ModuleType | type) -> bool:
    names = vars(part)
    first = _first_seen.setdefault(part, dict(names))
    if len(names) > len(first):
        # loading a module adds it to its package, and Python keeps notes in a class
        new = [name for name, value in names.items() if name not in first and not isinstance(value, ModuleType)]
        if any(not name.startswith("__") for name in new):
            return False
    return all([names.get(name) is value for name, value in first.items()])


def is_shipped(value: object) -> bool:
    """Tell whether a loss pair and those it is made of are the program's."""
    if callable(value) or type(value).__module__.partition(".")[0] not in ("builtins", "numpy", "wpriv"):
        return False
    if dataclasses.is_dataclass(value):
        return all(is_shipped(getattr(value, field.name)) for field in dataclasses.fields(value))
    parts = value if isinstance(value, tuple) else getattr(value, "key", ())  # of a pair that is known by its key
    return not isinstance(parts, tuple) or all(map(is_shipped, parts))


def begin(self: Any, run: Any, work_share: float = 1.0) -> None:
    """Begin a composition, and note what its answers follow from."""
    run = tuple(run)
    _begin(self, run, work_share)
    self.asked = (run, work_share) if all(is_shipped(pair) for pair, _ in run) else (object(),)


def evaluate(self: Any, question: Callable[..., tuple[float, float]], *given: float) -> tuple[float, float]:
    """Answer a question from memory, or evaluate it and keep the answer."""
    asked = (self.asked, question.__name__, given)
    self.asked = (object(),)  # equal to no other, where this question is not answered, or otherwise than usual
    if counted_work._end.get() < math.inf:  # a limit may fall within a question
        return _evaluate(self, question, *given)
    key = (asked, tuple(constants.WORK.items()))
    kept = _known.get(key)
    if kept is not None and is_unchanged(ENGINE):
        answer, state, work = kept
        vars(self).update(state)
        counted_work.add(work)
        return answer
    start = counted_work.total()
    answer = _evaluate(self, question, *given)
    work = counted_work.total() - start
    if is_unchanged(ENGINE):  # with the modules that this question loaded
        self.asked = asked
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
    if not is_computed:
        _see_modules(path)


@functools.cache
def _see_modules(path: str) -> None:
    """See the modules that a file of tests has loaded, before its first test can change them."""
    is_unchanged(ENGINE)
