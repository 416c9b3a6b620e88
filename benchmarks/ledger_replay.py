"""Power failures of a ledger in SQLite: every write is recorded, and the files are built again as they may be found.

A kill leaves what was written to the kernel, so that it shows no missing fsync. Here ``strace`` records the writes, the
fsyncs and the reported spends of a writer. The files are built as they may be found: at every fsync all that was
written before it, what was forced to disk with a random part of the sectors written since, and what is forced after it;
at every report what was forced. Each has to open, to pass ``check``, and to hold every spend that was reported by then,
once.
"""

from __future__ import annotations

import random
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from wpriv.ledger.service import Ledger

SECTOR = 512
CALLS = "pwrite64,write,fsync,fdatasync,ftruncate,unlink"
WRITER = """
import os, sys
from wpriv.ledger.service import Ledger
url, count = sys.argv[1:]
with Ledger(url) as ledger:
    for number in range(int(count)):
        key = f"r{number}"
        if number % 3:
            ledger.spend("dp eps0=0.002 delta0=0", key=key)
        else:
            ledger.reserve("dp eps0=0.002 delta0=0", key=key)
            ledger.begin(key, "nonce")
        os.write(1, (key + "\\n").encode())
"""
_CALL = re.compile(r'^\d+ +(\w+)\((?:(\d+)<([^>]*)>|"([^"]*)")(?:, "([^"]*)")?(?:, (\d+))?(?:, (\d+))?\) += (-?\d+)')


@dataclass
class File:
    """A file as the kernel has it, as the disk surely has it, and the writes between both."""

    written: bytearray = field(default_factory=bytearray)
    forced: bytearray = field(default_factory=bytearray)
    open_writes: list[tuple[int, bytes]] = field(default_factory=list)

    def write(self, at: int, data: bytes) -> None:
        put(self.written, at, data)
        self.open_writes.append((at, data))

    def force(self) -> None:
        self.forced, self.open_writes = bytearray(self.written), []

    def torn(self, source: random.Random) -> bytearray:
        """What was forced, and some of the sectors that were written since."""
        image = bytearray(self.forced)
        for at, data in self.open_writes:
            for begin in range(0, len(data), SECTOR):
                if source.random() < 0.5:
                    put(image, at + begin, data[begin : begin + SECTOR])
        return image


def put(image: bytearray, at: int, data: bytes) -> None:
    """Write data into an image, which grows by zeros where it has to."""
    if len(image) < at:
        image.extend(bytes(at - len(image)))
    image[at : at + len(data)] = data


def record(url: str, count: int, folder: Path) -> Path:
    """Spend so often under ``strace``, and return the record of the calls."""
    trace = folder / "trace"
    words = ["strace", "-f", "-y", "-xx", "-s", "100000000", "-e", f"trace={CALLS}", "-o", str(trace)]
    subprocess.run([*words, sys.executable, "-c", WRITER, url, str(count)], check=True, stdout=subprocess.DEVNULL)
    return trace


def text_of(word: str) -> bytes:
    """The bytes that ``strace -xx`` writes as ``\\x61\\x62``."""
    return bytes.fromhex(word.replace("\\x", ""))


def hexadecimal(text: str) -> str:
    """Text as ``strace -xx`` writes it."""
    return "".join(f"\\x{byte:02x}" for byte in text.encode())


def states(trace: Path, base: Path, source: random.Random) -> Iterator[tuple[dict[str, bytearray], set[str]]]:
    """The files of a ledger as they may be found at each fsync and report, with the keys that were reported by then."""
    files = {"": File(bytearray(base.read_bytes()))}
    files[""].force()
    reported: set[str] = set()
    with trace.open(encoding="ascii") as lines:
        for line in lines:
            if not (call := _CALL.match(line)):
                assert hexadecimal(base.name) not in line, line[:200]
                continue
            name, number, fd_path, path, data, size, at = call.groups()[:7]
            place = text_of(fd_path or path or "").decode()
            if name == "write" and number == "1":
                reported |= set(text_of(data).decode().split())
                yield {word: each.forced for word, each in files.items()}, set(reported)
            if not place.startswith(str(base)) or place.endswith("-shm"):
                continue
            file = files.setdefault(place.removeprefix(str(base)), File())
            if name == "pwrite64":
                file.write(int(at), text_of(data)[: int(size)])
            elif name == "ftruncate":
                del file.written[int(size) :]
                file.force()
            elif name == "unlink":
                del files[place.removeprefix(str(base))]
            elif name in ("fsync", "fdatasync"):
                yield {word: each.written for word, each in files.items()}, set(reported)
                yield {word: each.torn(source) for word, each in files.items()}, set(reported)
                file.force()
                yield {word: each.forced for word, each in files.items()}, set(reported)


def replay(count: int, folder: Path, seed: int) -> tuple[int, int, int]:
    """Record so many spends and build the files again: the states that were tried, and spends missing and doubled."""
    base, again = folder / "replayed.db", folder / "again"
    Ledger.create(f"sqlite:///{base}", eps=1e6, delta=0, rule="basic").close()
    first = folder / "first.db"
    shutil.copy(base, first)
    trace = record(f"sqlite:///{base}", count, folder)
    shutil.copy(first, base)
    tried = missing = doubled = 0
    for images, reported in states(trace, base, random.Random(seed)):
        shutil.rmtree(again, ignore_errors=True)
        again.mkdir()
        for name, image in images.items():
            (again / f"b.db{name}").write_bytes(image)
        with Ledger(f"sqlite:///{again}/b.db") as ledger:
            ledger.check()
            with ledger.store.transaction(write=False) as connection:
                entries = [entry for entry in ledger.store.entries(connection) if entry.key]
                spent = {row.id for row in ledger.store.releases(connection) if row.state != "reserved"}
        names = {entry.key: entry.release for entry in entries}
        tried += 1
        missing += sum(names.get(key) not in spent for key in reported)
        doubled += len(entries) - len(names)
    return tried, missing, doubled
