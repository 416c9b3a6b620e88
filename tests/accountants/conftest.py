"""Generous time limits, so that the asserted width of a bracket does not depend on the speed of the machine."""

from __future__ import annotations

import pytest

from wpriv.pld import composition


@pytest.fixture(autouse=True)
def _no_hurry(monkeypatch):
    monkeypatch.setattr(composition, "SECONDS", 20.0)
    monkeypatch.setattr(composition, "TOTAL", 200.0)
