"""The ledger under load: the time of a spend, many writers at once, killed processes, and power failures.

``python -m benchmarks ledger [--url URL] [--spends 10000] [--writers 32] [--kills 1000] [--replayed 200]`` prints a
Markdown table. The database is new and empty: by default a file in a temporary folder, or an empty database of
PostgreSQL. Writers may admit exactly the limit; of killed processes no reported spend may be missing, and none may be
there twice. Writes are replayed for SQLite alone, where ``strace`` is installed.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import multiprocessing
import os
import random
import shutil
import signal
import statistics
import tempfile
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks import ledger_replay
from wpriv.accounting.mechanisms.dp import Dp
from wpriv.accounting.mechanisms.gauss import Gauss
from wpriv.accounting.mechanisms.laplace import Laplace
from wpriv.core.kinds import Poisson
from wpriv.core.process import Step
from wpriv.errors import Unsupported
from wpriv.ledger.service import Ledger, Refused
from wpriv.ledger.store import Store

PLACES = 500
# where a process is killed: in a transaction before one of its writes, before and after its commit, and at any time
POINTS = (
    *("append", "add_release", "write_books", "write_charges", "set_state"),
    *("before commit", "after commit", "after reserve", "after begin", "before done", "any time"),
)
# a process that is forked has what it needs loaded; no connection is open then
FORK = multiprocessing.get_context("fork")


def distinct(source: random.Random) -> Step:
    """A release unlike those before: Gaussian, Laplace, sampled or given."""
    kind = source.randrange(4)
    if kind == 0:
        return Step(Gauss(sigma=source.uniform(3000, 9000)))
    if kind == 1:
        return Step(Laplace(scale=source.uniform(3000, 9000)))
    if kind == 2:
        return Step(Gauss(sigma=source.uniform(6, 16)), sampling=Poisson(source.uniform(1e-4, 8e-4)))
    return Step(Dp(eps0=source.uniform(1e-4, 4e-4), delta0=1e-13))


def spends(ledger: Ledger, count: int, seed: int) -> Iterator[tuple[int, float, float]]:
    """Milliseconds of a spend, by the clock and of CPU: the medians of every tenth of them."""
    source, times = random.Random(seed), []
    for number in range(1, count + 1):
        step, begin, cpu = distinct(source), time.perf_counter(), time.process_time()
        ledger.spend(step)
        times.append((1e3 * (time.perf_counter() - begin), 1e3 * (time.process_time() - cpu)))
        if number % max(count // 10, 1) == 0:
            clock, work = zip(*times, strict=True)
            yield number, statistics.median(clock), statistics.median(work)
            times = []


def write(url: str, name: str, count: int, reports: Connection) -> None:
    """What one of several writers does."""
    with Ledger(url) as ledger:
        for number in range(count):
            with contextlib.suppress(Refused):
                ledger.spend("dp eps0=0.002 delta0=0", key=f"{name}-{number}")
                reports.send(f"{name}-{number}")
    reports.close()


def writers(url: str, number: int) -> int:
    """How many of 20 spends each of so many processes were admitted, of a limit for ``PLACES``."""
    running = []
    for index in range(number):
        ours, theirs = FORK.Pipe(duplex=False)
        process = FORK.Process(target=write, args=(url, f"w{index}", 20 * 32 // number, theirs))
        process.start()
        theirs.close()
        running.append((process, ours))
    admitted = sum(len(received(ours)) for _, ours in running)
    for process, _ in running:
        process.join()
    return admitted


def received(reports: Connection) -> list[str]:
    """What a process sent until it ended."""
    names = []
    with contextlib.suppress(EOFError):
        while True:
            names.append(reports.recv())
    return names


def spend_until_killed(url: str, name: str, point: str, times: int, reports: Connection) -> None:
    """Spend, and reserve, begin and end, until a point was passed so many times."""
    left = [times]

    def pass_by(where: str) -> None:
        left[0] -= where == point
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    for method in ("append", "add_release", "write_books", "write_charges", "set_state"):
        setattr(Store, method, _passing(getattr(Store, method), functools.partial(pass_by, method)))
    transaction = Store.transaction

    @contextlib.contextmanager
    def passing(store: Store, *, write: bool = True) -> Iterator[Any]:
        with transaction(store, write=write) as connection:
            yield connection
            pass_by("before commit" if write else "")
        pass_by("after commit" if write else "")

    setattr(Store, "transaction", passing)  # noqa: B010
    with Ledger(url) as ledger:
        for number in range(1000):
            key = f"{name}-{number}"
            if number % 2:
                ledger.spend("dp eps0=0.002 delta0=0", key=key)
            else:
                ledger.reserve("dp eps0=0.002 delta0=0", key=key)
                pass_by("after reserve")
                ledger.begin(key, "nonce")
                pass_by("after begin")
            reports.send(key)
            pass_by("before done")
            ledger.done(key)


def _passing(method: Any, pass_by: Any) -> Any:
    @functools.wraps(method)
    def passed(*args: Any, **kwargs: Any) -> Any:
        pass_by()
        return method(*args, **kwargs)

    return passed


def kills(url: str, number: int, seed: int) -> tuple[int, int, int]:
    """Kill processes at every point in turn: spends that were reported, that are missing, and that are there twice."""
    source, reported = random.Random(seed), []
    for index in range(number):
        point = POINTS[index % len(POINTS)]
        ours, theirs = FORK.Pipe(duplex=False)
        words = (url, f"k{index}", point, source.randint(1, 6), theirs)
        process = FORK.Process(target=spend_until_killed, args=words)
        process.start()
        theirs.close()
        if point == "any time":
            time.sleep(source.uniform(0.05, 0.3))
            process.kill()
        reported += received(ours)
        process.join()
        assert process.exitcode == -signal.SIGKILL, process.exitcode
    with Ledger(url) as ledger, ledger.store.transaction(write=False) as connection:
        entries = [entry for entry in ledger.store.entries(connection) if entry.key]
        charged = {row.id for row in ledger.store.releases(connection) if row.state in ("begun", "done")}
    names = {entry.key: entry.release for entry in entries}
    return len(reported), sum(names.get(key) not in charged for key in reported), len(entries) - len(names)


def new(url: str, part: str, **terms: Any) -> Ledger:
    """A new ledger; on SQLite each part has a file of its own."""
    return Ledger.create(url.replace("PART", part), **terms)


def main(argv: list[str]) -> int:
    """Run the parts that are asked for, and return 1 where a spend was lost, doubled, or one too many."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks ledger", description=__doc__)
    parser.add_argument("--url", default="", help="of an empty database; PART in it becomes the name of the part")
    parser.add_argument("--spends", type=int, default=10_000)
    parser.add_argument("--writers", type=int, default=32)
    parser.add_argument("--kills", type=int, default=1_000)
    parser.add_argument("--replayed", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    flags = parser.parse_args(argv)
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        url = flags.url or f"sqlite:///{Path(folder)}/PART.db"
        print("| part | result |\n|---|---|")
        if flags.spends:
            with new(url, "spends", eps=3, delta=1e-6) as ledger:
                try:
                    for number, clock, work in spends(ledger, flags.spends, flags.seed):
                        figures = f"{clock:.1f} ms a spend, {work:.1f} of CPU"
                        print(f"| distinct releases, up to {number} | {figures} |", flush=True)
                except (Refused, Unsupported) as error:
                    print(f"| distinct releases | {error} |")
        if flags.writers:
            with new(url, "writers", eps=1, delta=0, rule="basic") as ledger:
                begin = time.perf_counter()
                admitted = writers(url.replace("PART", "writers"), flags.writers)
                failed |= admitted != PLACES or len(ledger.check()) != PLACES
                seconds = time.perf_counter() - begin
                print(f"| {flags.writers} writers, 640 spends, room for {PLACES} | {admitted}, {seconds:.1f} s |")
        if flags.kills:
            with new(url, "kills", eps=1e6, delta=0, rule="basic") as ledger:
                reported, missing, doubled = kills(url.replace("PART", "kills"), flags.kills, flags.seed)
                ledger.check()
                failed |= bool(missing or doubled)
                print(
                    f"| {flags.kills} kills | {reported} reported, {missing} missing, {doubled} doubled |", flush=True
                )
        if flags.replayed and not flags.url and shutil.which("strace"):
            tried, missing, doubled = ledger_replay.replay(flags.replayed, Path(folder), flags.seed)
            failed |= bool(missing or doubled or not tried)
            figures = f"{tried} states of the files, {missing} missing, {doubled} doubled"
            print(f"| {flags.replayed} spends replayed | {figures} |")
    return int(failed)
