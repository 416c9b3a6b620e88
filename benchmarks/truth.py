"""``python -m benchmarks truth [--count N] [--seed S] [--tiny]``: random jobs against inverse Laplace transforms.

Rates from 1e-15 to 1, up to 2^40 steps, noise from 1e-9 to 1e6 sensitivities, delta from 1e-50 to .5. A job is false
where the bracket does not hold the value of ``benchmarks.loss_oracle``; "no truth" counts those that the oracle
cannot decide. ``--tiny`` keeps to rates below 1e-9.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

from benchmarks import loss_oracle as oracle
from benchmarks.inverse_transform import AGREEMENT, NoTruthError
from wpriv import budget
from wpriv.errors import Unsupported, UsageError

WIDE = 1.1


@dataclass(frozen=True)
class RandomJob:
    """The keywords of ``wpriv.budget``, and the steps of every order of the neighbours for the oracle.

    ``data_sets`` are those of two data sets where the pair in ``orders`` only bounds all neighbours (fixed size): the
    lower end is theirs.
    """

    keywords: dict[str, Any]
    orders: list[oracle.Release]
    data_sets: list[oracle.Release]

    @property
    def n(self) -> int:
        return int(self.keywords["n"])


def random_job(rng: random.Random, *, tiny: bool = False) -> RandomJob:
    """Draw one job."""
    mech = rng.choice(["gauss", "gauss", "gdp", "laplace", "dp", "discrete-gauss", "discrete-laplace"])
    sampling = rng.choice(["none", "poisson", "poisson", "fixed"])
    if tiny:
        sampling = rng.choice(["poisson", "fixed"])
    rate = 1.0 if sampling == "none" else 10 ** rng.uniform(-15, -9 if tiny else -0.01)
    n = 1 if rng.random() < 0.2 else int(2 ** rng.uniform(1, 40))
    ratio = 10 ** rng.uniform(-6, 0.7) if rng.random() < 0.5 else rng.uniform(0.2, 3)
    if mech.startswith("discrete"):
        n, ratio = 1, 10 ** rng.uniform(-1, 9)
    if mech == "dp":
        n = min(n, int(2 ** rng.uniform(0, 13)))
        sampling, rate = ("poisson", rate) if sampling == "fixed" else (sampling, rate)
    keywords, orders = _steps(mech, sampling, rate, ratio, 12.0)
    keywords |= {"n": n}
    if sampling != "none":
        keywords |= {"sampling": sampling, "rate": rate}
    mean, deviation = max(step.mean_and_deviation() for step in orders)
    scale = math.sqrt(n) * deviation
    if rng.random() < 0.5:
        log10 = rng.uniform(-50, -0.3) if rng.random() < 0.5 else rng.uniform(-12, -0.3) + min(math.log10(scale), 0.0)
        keywords["delta"] = 10**log10
        smallest = keywords["delta"]
    else:
        deviations = rng.uniform(0, 8)
        keywords["eps"] = n * mean + scale * deviations
        smallest = math.exp(-(deviations**2) / 2) * min(scale, 1.0) * 1e-4
    reach = oracle.reach_of(n, smallest)
    orders = _steps(mech, sampling, rate, ratio, reach)[1]
    data_sets = _steps(mech, "poisson", rate, ratio, reach)[1] if sampling == "fixed" else orders
    return RandomJob(keywords, orders, data_sets)


def _steps(
    mech: str, sampling: str, rate: float, ratio: float, reach: float
) -> tuple[dict[str, Any], list[oracle.Release]]:
    kinds = {"none": ["remove"], "poisson": ["remove", "add"], "fixed": ["fixed"]}[sampling]
    if mech in ("gauss", "gdp"):
        sigma = 1 / ratio
        mu = 1 / sigma if mech == "gauss" else ratio
        keywords: dict[str, Any] = {"mech": "gauss", "sigma": sigma} if mech == "gauss" else {"mech": "gdp", "mu": mu}
        if sampling == "none":
            return keywords, [oracle.Normal(mu)]
        if sampling == "fixed":
            return keywords, [oracle.fixed_gauss(rate, mu, reach)]
        return keywords, [oracle.poisson_gauss(rate, mu, kind, reach) for kind in kinds]
    if mech == "laplace":
        scale = 1 / ratio
        return {"mech": mech, "scale": scale}, [oracle.laplace(rate, 1 / scale, kind) for kind in kinds]
    if mech == "dp":
        eps0 = min(ratio, 5.0)
        base = oracle.responses(eps0)
        keywords = {"mech": mech, "eps0": eps0}
    else:
        scale = 1 / ratio
        keywords = {"mech": mech, ("sigma" if mech == "discrete-gauss" else "scale"): scale}
        base = oracle.discrete(mech, scale)
    pairs = [base] if sampling == "none" else [oracle.sampled(base, rate, kind) for kind in kinds]
    return keywords, [oracle.Outcomes(pair) for pair in pairs]


def check(job: RandomJob) -> tuple[str, str]:
    """The verdict on one job, and why."""
    try:
        row = budget(**job.keywords)
    except (Unsupported, UsageError) as error:
        return "refused", str(error)
    except ArithmeticError as error:
        return "exit 70", str(error)

    low, high = (
        (row.delta.lower or 0.0, row.delta.safe)
        if "eps" in job.keywords
        else (row.epsilon.lower or 0.0, row.epsilon.safe)
    )
    try:
        why = _why_false(job, low, high)
    except NoTruthError as error:
        return "no truth", str(error)
    if why:
        return "false", why
    verdict = "held, wide" if high > WIDE * low and high > 1e-300 else "held"
    return verdict + (", by two data sets" if job.keywords.get("sampling") == "fixed" else ""), f"[{low!r}, {high!r}]"


def _why_false(job: RandomJob, low: float, high: float) -> str:
    def curve(eps: float) -> float:
        return oracle.largest(job.orders, job.n, eps)

    def attained(eps: float) -> float:
        return oracle.largest(job.data_sets, job.n, eps)

    if "eps" in job.keywords:
        least, truth = attained(job.keywords["eps"]), curve(job.keywords["eps"])
        # deltas below 1e-300 are rounded up
        held = low * (1 - AGREEMENT) <= least and truth <= high * (1 + AGREEMENT) + 1e-300
        return "" if held else f"delta is {least!r} to {truth!r}, and not in [{low!r}, {high!r}]"
    target = job.keywords["delta"]
    why = oracle.eps_brackets(curve, target, 0.0, high)
    if why or oracle.at_least(job.data_sets, job.n, low) >= target:
        return why
    return oracle.eps_brackets(attained, target, low, math.inf)


def main(argv: list[str]) -> int:
    """Run the jobs and print the counts; return 1 if an answer is false or a job ends in exit 70."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks truth", description="random jobs against an oracle")
    parser.add_argument("--count", type=int, default=2000, help="number of jobs (default 2000)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tiny", action="store_true", help="only rates below 1e-9")
    flags = parser.parse_args(argv)
    counts: Counter[str] = Counter()
    seconds = 0.0
    for index in range(flags.count):
        job = random_job(random.Random(f"{flags.seed}-{index}"), tiny=flags.tiny)
        start = time.process_time()
        verdict, why = check(job)
        seconds += time.process_time() - start
        counts[verdict] += 1
        if not verdict.startswith("held") or "wide" in verdict:
            print(f"{index}: {verdict}: {job.keywords}: {why}", file=sys.stderr, flush=True)
    print("| verdict | jobs |\n| --- | --- |")
    for verdict, count in counts.most_common():
        print(f"| {verdict} | {count} |")
    print(f"\n{seconds:.0f} s of CPU, the oracle's included")
    return 1 if counts["false"] or counts["exit 70"] else 0
