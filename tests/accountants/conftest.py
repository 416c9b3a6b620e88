"""What is asserted of the width of a bracket must not depend on how fast the machine is."""

from __future__ import annotations

import pytest

from wpriv.pld import composition


@pytest.fixture(autouse=True)
def _no_hurry(monkeypatch):
    monkeypatch.setattr(composition, "SECONDS", 20.0)
    monkeypatch.setattr(composition, "TOTAL", 200.0)
