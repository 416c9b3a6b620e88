"""``python -m benchmarks verifier [--first K] [--jobs N] [--seconds S]``: certificates of N random jobs.

The jobs from 1000 on are of random allocation.

The verifier (``wpriv/verify/``) is an oracle for the accountant, with which it shares no code: for every job, the
bracket of ``budget`` is written as a certificate with the narrowest ends that are proved. A line has the CPU time of a
certificate.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import queue
import random
import resource
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

from wpriv import DiscreteGauss, DiscreteLaplace, FixedSize, Gauss, Laplace, Poisson, Process, RandomizedResponse, Step
from wpriv.core.kinds import Allocation, Sampling
from wpriv.errors import Unsupported, UsageError

SIZES = {"gauss": (0.6, 8), "laplace": (1, 20), "discrete-gauss": (1, 12), "discrete-laplace": (1, 12)}
CLASSES = {"gauss": Gauss, "laplace": Laplace, "discrete-gauss": DiscreteGauss, "discrete-laplace": DiscreteLaplace}
KINDS = ("none", "poisson", "poisson", "poisson", "fixed", "group", "group-poisson", "replaced", "batch")
FIRST_ALLOCATION = 1000


@dataclass(frozen=True)
class Answer:
    """What became of a job: proved, refused, slow, or no budget; the width of a certificate and CPU seconds."""

    kind: str
    verdict: str
    seconds: float = 0.0
    note: str = ""


def random_mechanism(draw: random.Random, names: list[str]) -> Any:
    name = draw.choice(names)
    noise = round(draw.uniform(*SIZES.get(name, (0.05, 1))), 3)
    if name == "randomized-response":
        return RandomizedResponse(eps0=noise, delta0=draw.choice([0.0, 1e-9]))
    return CLASSES[name](noise)


def random_job(seed: int) -> tuple[str, tuple[Step, ...], dict[str, Any], float]:
    """A kind, one to three steps of up to 10^4 releases, further arguments of a process, and a delta."""
    draw = random.Random(seed)
    kind = draw.choice(KINDS) if seed < FIRST_ALLOCATION else "allocation"
    names = ["gauss"] if kind in ("group-poisson", "replaced") else [*SIZES, "gauss", "randomized-response"]
    if kind == "allocation":
        mechanism, length = random_mechanism(draw, [*SIZES, "gauss"]), int(10 ** draw.uniform(0.4, 3.5))
        steps = (Step(mechanism, length * draw.choice([1, 2, 5, 20, 100]), Allocation(1 / length)),)
        return kind, steps, {}, 10 ** draw.uniform(-12, -3)
    steps = []
    for _ in range(draw.choice([1, 1, 2, 3])):
        mechanism = random_mechanism(draw, names)
        n, rate = int(10 ** draw.uniform(0, 4)), round(10 ** draw.uniform(-3, -0.3), 5)
        batch = int(2000 * rate + 4 * math.sqrt(2000 * rate)) + 1
        sampling = {"fixed": FixedSize(rate), "batch": Sampling("poisson", rate, batch)}.get(kind, Poisson(rate))
        steps.append(Step(mechanism, n, *(() if kind in ("none", "group") else (sampling,))))
    arguments: dict[str, Any] = {
        "group": {"group": 3},
        "group-poisson": {"group": draw.choice([2, 3, 5])},
        "replaced": {"adjacency": "replace-one"},
        "batch": {"records": 2000},
    }.get(kind, {})
    return kind, tuple(steps), arguments, 10 ** draw.uniform(-12, -3)


def check(seed: int) -> Answer:
    """Write the certificate of a random job, which proves it."""
    from wpriv import budget
    from wpriv.accounting import certificates

    kind, steps, arguments, delta = random_job(seed)
    try:
        row = budget(Process(steps, **arguments), delta=delta)
    except (Unsupported, UsageError) as error:
        return Answer(kind, "no budget", note=str(error)[:80])
    if not row.epsilon.safe < math.inf:
        return Answer(kind, "no budget", note="eps is infinite")
    start = time.process_time()
    with tempfile.NamedTemporaryFile() as file:
        try:
            verdict, note = "proved", certificates.write(row, file.name).partition(": ")[2]
        except Unsupported as error:
            verdict, note = "refused", str(error)[:80]
    return Answer(kind, verdict, time.process_time() - start, note)


def limited(seed: int, seconds: int) -> Answer:
    """The answer in a process of its own, which is ended after so many seconds of CPU time."""
    answers: multiprocessing.Queue[Answer] = multiprocessing.Queue()

    def work() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        answers.put(check(seed))

    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    process.join()
    try:
        return answers.get(timeout=1)
    except queue.Empty:
        return Answer(random_job(seed)[0], "slow", seconds)


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks verifier", description="certificates of random jobs")
    parser.add_argument("--first", type=int, default=0, help="seed of the first job")
    parser.add_argument("--jobs", type=int, default=300, help="number of jobs (default 300)")
    parser.add_argument("--seconds", type=int, default=60, help="CPU seconds after which a job is ended (default 60)")
    flags = parser.parse_args(argv)
    counts: Counter[str] = Counter()
    for seed in range(flags.first, flags.first + flags.jobs):
        answer = limited(seed, flags.seconds)
        counts[answer.verdict] += 1
        print(f"{seed} {answer.kind}: {answer.verdict}, {answer.seconds:.1f} s; {answer.note}", flush=True)
    print(", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
