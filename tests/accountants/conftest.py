"""Raise the CPU-time limits, so that no asserted width of a bracket depends on the speed of the machine."""

from __future__ import annotations

import pytest

from wpriv.pld import constants


@pytest.fixture(autouse=True)
def _ample_time(monkeypatch):
    monkeypatch.setattr(constants, "QUESTION_CPU_SECONDS", 20.0)
    monkeypatch.setattr(constants, "COMPOSITION_CPU_SECONDS", 200.0)
