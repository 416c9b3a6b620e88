"""Trainings keep freed memory, unless the environment has a setting of its own."""

from __future__ import annotations

import platform

import pytest

from wpriv.training.engine import loop


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
def test_freed_memory_is_kept(monkeypatch):
    for name in loop.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    assert loop.keep_memory()


@pytest.mark.parametrize("name", loop.VARIABLES)
def test_a_setting_of_the_environment_is_left_alone(name, monkeypatch):
    monkeypatch.setenv(name, "")
    assert not loop.keep_memory()


def test_memory_is_given_back_where_it_grows_beyond_that_of_the_first_steps(monkeypatch):
    held, returned = loop.HeldMemory(), []
    sizes = iter([100, 149, 151, 90, 140, 160, 155, 200, 150])
    monkeypatch.setattr(loop, "resident", lambda: next(sizes))
    monkeypatch.setattr(loop, "give_back", lambda: returned.append(held.steps))
    for _ in range(loop.SETTLED - 1):
        held.after_step()
    for _ in range(6):
        held.after_step()
    # at 151 of at most 150 memory is returned, and 90 are left; at 160, 155 are in use, which may grow to 232
    assert returned == [loop.SETTLED + 2, loop.SETTLED + 4]
    assert held.limit == 155 * loop.GROWTH


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
def test_the_memory_of_this_process_is_known_and_can_be_given_back():
    assert loop.resident() > 2**20
    loop.give_back()
    assert loop.resident() > 2**20
