"""How often audits refute a claim that holds, and one that does not, over many simulated runs.

``python -m benchmarks audits [--runs 1000] [--seed 0] [--only TEXT]`` prints a Markdown table of each. Where the claim
holds, the scores attain the claimed curve, or are made by an adversary under it; at confidence 95% at most 5% of the
runs may refute it.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.stats import beta

from wpriv.accounting.mechanisms.gauss import Gauss
from wpriv.core.kinds import Poisson
from wpriv.core.process import Process, Step
from wpriv.training.audit import scores
from wpriv.training.audit.claimed_curve import Tested, read_claim

MU = {"eps=3": 0.719117, "eps=4": 0.924930}  # of one Gaussian release at delta 1e-5
SAMPLED = Process((Step(Gauss(1.6), 20, Poisson(0.1)),))
ERROR = 0.05
Draw = Callable[[np.random.Generator], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Case:
    """Runs of one kind: the claim, the method, and what draws the scores and labels of a run."""

    name: str
    claim: str | Process
    method: str
    draw: Draw
    holds: bool = True


def coins(number: int, random: np.random.Generator, references: int = 0) -> np.ndarray:
    return np.concatenate([random.random(number) < 0.5, np.zeros(references, bool)])


def normal(mu: float, number: int, references: int = 0, levels: int = 0) -> Draw:
    """Normal scores, mu apart; with ``levels`` rounded to so many a standard deviation, so that many are equal."""

    def draw(random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        labels = coins(number, random, references)
        values = random.standard_normal(len(labels)) + mu * labels
        return (np.round(values * levels) if levels else values), labels

    return draw


def response(eps: float, number: int, delta: float = 0.0, shared: float = 0.0) -> Draw:
    """Randomised response. Each label is shown with chance ``delta``; all of a run are with chance ``shared``."""

    def draw(random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        labels = coins(number, random)
        answers = np.where(random.random(number) < 1 / (1 + math.exp(eps)), ~labels, labels).astype(float)
        seen = random.random(number) < (1.0 if random.random() < shared else delta)
        return np.where(seen, np.where(labels, 2.0, -1.0), answers), labels

    return draw


def laplace(scale: float, number: int) -> Draw:
    def draw(random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        labels = coins(number, random)
        return random.laplace(scale=scale, size=number) + labels, labels

    return draw


def sampled(number: int) -> Draw:
    """The likelihood ratios of the sums along canaries of their own, of sampled steps."""
    step = SAMPLED.steps[0]
    sigma, rate = step.mechanism.sigma, step.sampling.rate  # type: ignore[attr-defined]

    def draw(random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        labels = coins(number, random)
        shape = (step.n, number)
        sums = sigma * random.standard_normal(shape) + (random.random(shape) < rate) * labels
        return np.log1p(rate * np.expm1((2 * sums - 1) / (2 * sigma**2))).sum(axis=0), labels

    return draw


def constant(number: int) -> Draw:
    return lambda random: (np.zeros(number), coins(number, random))


def cases() -> list[Case]:
    """All cases: those where the claim holds first."""
    all_cases = []
    for method in ("independent", "sequential", "one-run"):
        all_cases += [
            Case("normal, 2,000 canaries", f"mu={MU['eps=3']}", method, normal(MU["eps=3"], 2000)),
            Case("normal, 100 canaries", f"mu={MU['eps=3']}", method, normal(MU["eps=3"], 100)),
            Case("normal, rounded to whole deviations", f"mu={MU['eps=3']}", method, normal(MU["eps=3"], 500, 0, 1)),
            Case("randomised response", "eps=1", method, response(1.0, 500)),
            Case("randomised response, 3% shown", "eps=1,delta=0.03", method, response(1.0, 500, 0.03)),
            Case("Laplace", "laplace scale=1", method, laplace(1.0, 500)),
            Case("Gaussian, 20 Poisson steps", SAMPLED, method, sampled(500)),
            Case("equal scores", "eps=0.1", method, constant(500)),
        ]
    all_cases.append(
        Case("response; all shown in 4% of runs", "eps=1,delta=0.04", "one-run", response(1.0, 500, 0.0, 0.04))
    )
    all_cases.append(
        Case("normal, 1,000 and 3,000 references", f"mu={MU['eps=3']}", "independent", normal(MU["eps=3"], 1000, 3000))
    )
    less = MU["eps=3"] / 0.85
    return [
        *all_cases,
        Case("noise x .85, 2,000 canaries", f"mu={MU['eps=3']}", "independent", normal(less, 2000), False),
        Case("the same, and 2,000 references", f"mu={MU['eps=3']}", "independent", normal(less, 2000, 2000), False),
        Case("noise x .85, 5,000 canaries", f"mu={MU['eps=3']}", "sequential", normal(less, 5000), False),
        Case("noise x .5, 2,000 canaries", f"mu={MU['eps=3']}", "one-run", normal(2 * MU["eps=3"], 2000), False),
        Case("noise x .3, 2,000 canaries", "eps=3,delta=1e-5", "one-run", normal(MU["eps=3"] / 0.3, 2000), False),
        Case("noise x .3, 2,000 canaries", "eps=3,delta=1e-5", "independent", normal(MU["eps=3"] / 0.3, 2000), False),
    ]


def refuted(case: Case, claim: Tested, runs: int, seed: int) -> int:
    """The number of runs that refute the claim."""
    count = 0
    for run in range(runs):
        values, labels = case.draw(np.random.default_rng([seed, run]))
        evidence = scores.evidence(case.method, claim, values, labels, None, run)
        count += any(part.p_value <= part.share * ERROR for part in evidence.parts(claim.null))
    return count


def bounds(runs: int, seed: int) -> list[float]:
    """The lower bounds of eps, in ascending order, of 10,000 canaries at eps = 4."""
    draw = normal(MU["eps=4"], 10_000)
    claim = f"mu={MU['eps=4']}"
    answers = [
        scores.audit_scores(draw(np.random.default_rng([seed, run])), claim, method="independent", seed=run)
        for run in range(runs)
    ]
    return sorted(answer.bounds[1].epsilon_at_least for answer in answers)


def main(argv: list[str]) -> int:
    """Run the simulations; return 1 where a claim that holds is refuted more often than chance explains, else 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks audits")
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="only cases whose name or method holds this text")
    flags = parser.parse_args(argv)
    failed = False
    print("| scores | claim | method | holds | refuted | 99.9% interval |\n|---|---|---|---|---|---|")
    for case in cases():
        if flags.only not in f"{case.name} {case.method}":
            continue
        claim = read_claim(case.claim)
        number = refuted(case, claim, flags.runs, flags.seed)
        low = beta.ppf(0.0005, number, flags.runs - number + 1) if number else 0.0
        high = beta.ppf(0.9995, number + 1, flags.runs - number) if number < flags.runs else 1.0
        failed |= case.holds and low > ERROR
        answer = f"{number} of {flags.runs} | {low:.3f} to {high:.3f}"
        print(
            f"| {case.name} | {claim.label} | {case.method} | {'yes' if case.holds else 'no'} | {answer} |", flush=True
        )
    if not flags.only:
        least = bounds(max(1, flags.runs // 50), flags.seed)
        print(f"\nLower bounds of eps = 4 from 10,000 canaries: {least[0]:.2f} to {least[-1]:.2f} in {len(least)} runs")
    print("some claim that holds is refuted too often" if failed else "no alarm too many", file=sys.stderr)
    return int(failed)
