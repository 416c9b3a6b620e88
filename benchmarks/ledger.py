"""The ledger under load: the time of a spend, many writers at once, and processes that are killed.

``python -m benchmarks ledger [--url URL] [--spends 10000] [--writers 32] [--kills 1000]`` prints a Markdown table. The
database is new and empty: by default a file in a temporary folder, or an empty database of PostgreSQL. Writers may
admit exactly the limit; of killed processes no reported spend may be missing, and none may be there twice.
"""

from __future__ import annotations

import argparse
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from wpriv.accounting.mechanisms.dp import Dp
from wpriv.accounting.mechanisms.gauss import Gauss
from wpriv.accounting.mechanisms.laplace import Laplace
from wpriv.core.kinds import Poisson
from wpriv.core.process import Step
from wpriv.errors import Unsupported
from wpriv.ledger.service import Ledger, Refused

PLACES = 500
WRITER = """
import sys
from wpriv.ledger.service import Ledger, Refused
url, name, count = sys.argv[1:]
with Ledger(url) as ledger:
    for number in range(int(count)):
        try:
            ledger.spend("dp eps0=0.002 delta0=0", key=f"{name}-{number}")
        except Refused:
            continue
        print(f"{name}-{number}", flush=True)
"""


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


def start(url: str, name: str, count: int) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", WRITER, url, name, str(count)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)


def writers(url: str, number: int) -> int:
    """How many of 20 spends each of so many processes were admitted, of a limit for ``PLACES``."""
    running = [start(url, f"w{index}", 20 * 32 // number) for index in range(number)]
    return sum(len(each.communicate()[0].split()) for each in running)


def kills(url: str, number: int, seed: int) -> tuple[int, int, int]:
    """Kill processes at random moments: spends that were reported, that are missing, and that are there twice."""
    source, reported = random.Random(seed), []
    for index in range(number):
        running = start(url, f"k{index}", 100_000)
        assert running.stdout is not None
        reported.append(running.stdout.readline().strip())  # it is at work
        time.sleep(source.uniform(0.0, 0.1))
        running.kill()
        reported += running.communicate()[0].split()
    with Ledger(url) as ledger, ledger.store.transaction(write=False) as connection:
        keys = [entry.key for entry in ledger.store.entries(connection) if entry.key]
    return len(reported), len(set(reported) - set(keys)), len(keys) - len(set(keys))


def new(url: str, part: str, **terms: object) -> Ledger:
    """A new ledger; on SQLite each part has a file of its own."""
    return Ledger.create(url.replace("PART", part), **terms)


def main(argv: list[str]) -> int:
    """Run the parts that are asked for, and return 1 where a spend was lost, doubled, or one too many."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks ledger", description=__doc__)
    parser.add_argument("--url", default="", help="of an empty database; PART in it becomes the name of the part")
    parser.add_argument("--spends", type=int, default=10_000)
    parser.add_argument("--writers", type=int, default=32)
    parser.add_argument("--kills", type=int, default=1_000)
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
                print(f"| {flags.kills} kills | {reported} reported, {missing} missing, {doubled} doubled |")
    return int(failed)
