"""Fixtures of the tests of releases."""

from __future__ import annotations

import pytest

from wpriv.releases.sampling import Noise


@pytest.fixture
def noiseless(monkeypatch):
    """Draw zeros, so that released numbers are the bounded sums themselves."""
    monkeypatch.setattr(Noise, "draw", lambda self, key, part, count: [0] * count)
