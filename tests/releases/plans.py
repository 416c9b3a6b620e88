"""Plans of releases that are solved once: they depend on the declaration alone, and take up to seconds."""

from __future__ import annotations

import functools

from wpriv.releases import noise_plan


@functools.cache
def _solved(parts, budget, keys):
    return _SOLVE(parts, budget, keys=keys)


_SOLVE = noise_plan.solve


def remember(monkeypatch):
    """Solve each plan of a test process once."""
    monkeypatch.setattr(noise_plan, "solve", lambda parts, budget, *, keys=None: _solved(tuple(parts), budget, keys))
