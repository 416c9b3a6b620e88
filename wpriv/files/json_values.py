"""Values as strict JSON can hold them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any


def plain(value: Any) -> Any:
    """Return a value as JSON can hold it; infinities and NaN become strings, unknown objects their text.

    >>> plain({"loss": math.nan, "delta": (0.5, math.inf)})
    {'loss': 'nan', 'delta': [0.5, 'inf']}
    """
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


def unique_keys(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of a JSON file as a dict; an ``object_pairs_hook`` of ``json.loads``.

    Raises:
        ValueError: a key stands twice, of which json would take the last value without a word.
    """
    data = dict(pairs)
    if len(data) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice[:60]!r} stands twice in one object")
    return data
