"""Trainings keep freed memory, unless the environment has a setting of its own."""

from __future__ import annotations

import platform

import pytest

from wpriv.engine import allocator


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
def test_freed_memory_is_kept(monkeypatch):
    for name in allocator.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    assert allocator.keep_memory()


@pytest.mark.parametrize("name", allocator.VARIABLES)
def test_a_setting_of_the_environment_is_left_alone(name, monkeypatch):
    monkeypatch.setenv(name, "")
    assert not allocator.keep_memory()
