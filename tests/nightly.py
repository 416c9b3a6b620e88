"""What the default run takes of the tests that try every case, and ``nox -s nightly`` takes whole.

``WPRIV_NIGHTLY=1`` takes every case and all examples. Otherwise one shard of each family of cases runs, of the number
that ``WPRIV_SHARD`` gives (0 by default), so that equal runs take equal cases.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import pytest

WHOLE = os.environ.get("WPRIV_NIGHTLY", "") not in ("", "0")
SHARD = int(os.environ.get("WPRIV_SHARD") or 0)
SHARE = 8  # the default run draws one in so many of the examples of a property
LEAST = 3  # and at least so many


def examples(count: int) -> int:
    """Return the number of examples that a property draws in this run, of those that it draws at night."""
    return count if WHOLE else min(count, max(LEAST, count // SHARE))


def is_in_shard(number: int, of: int) -> bool:
    """Return whether this run takes case ``number``: all cases at night, otherwise one in ``of``."""
    return WHOLE or (number - SHARD) % of == 0


def sharded(cases: Iterable[Any], of: int) -> list[Any]:
    """Return the cases of a parametrised test, those outside the shard of this run with the mark ``nightly``.

    Args:
        cases: values, or tuples of values, or ``pytest.param``. of: the number of shards.
    """
    cases = [
        case if _is_param(case) else pytest.param(*(case if isinstance(case, tuple) else (case,))) for case in cases
    ]
    return [
        case
        if is_in_shard(number, of)
        else pytest.param(*case.values, marks=[*case.marks, pytest.mark.nightly], id=case.id)
        for number, case in enumerate(cases)
    ]


def _is_param(case: Any) -> bool:
    return hasattr(case, "marks") and hasattr(case, "values")
