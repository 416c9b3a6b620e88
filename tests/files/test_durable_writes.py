"""A change to a file is on the disk before anything depends on it: the content before the name, the name at the end."""

from __future__ import annotations

import os

import pytest

from wpriv.files import durable_writes


class NotedOs:
    """The os module, but notes what is forced to the disk and what is renamed or removed, in order."""

    def __init__(self):
        self.calls = []

    def __getattr__(self, name):
        return getattr(os, name)

    def fsync(self, descriptor):
        self.calls.append(("on disk", os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}"))))

    def replace(self, old, new):
        self.calls.append(("renamed", os.path.basename(old)))
        os.replace(old, new)


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="descriptors have no names here")
def test_a_replaced_file_is_on_the_disk_before_its_name_and_its_folder_after(tmp_path, monkeypatch):
    noted = NotedOs()
    monkeypatch.setattr(durable_writes, "os", noted)
    durable_writes.replace(tmp_path / "a", "text")
    part = f"a.{os.getpid()}{durable_writes.PART}"
    assert noted.calls == [("on disk", part), ("renamed", part), ("on disk", tmp_path.name)]
    assert (tmp_path / "a").read_text() == "text"


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="descriptors have no names here")
def test_a_synced_descriptor_is_on_the_disk(tmp_path, monkeypatch):
    noted = NotedOs()
    monkeypatch.setattr(durable_writes, "os", noted)
    with (tmp_path / "a").open("wb") as file:
        durable_writes.sync(file.fileno(), tmp_path / "a")
    assert noted.calls == [("on disk", "a")]
