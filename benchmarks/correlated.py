"""``python -m benchmarks correlated [--quick] [--draws N] [--python PATH]``: balls in bins, beside samplers.

jax_privacy draws the privacy loss of one noise level at a time, opake its own number of draws; both give an estimate of
eps and none below the delta that their draws reach. Every answer is computed in a process of its own, that of peers by
the Python of ``--python``, where jax_privacy and opake are installed; times are CPU seconds without imports.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks import report


@dataclass(frozen=True)
class Job:
    """Bands of the root of prefix sums, epochs of so many bins, noise relative to c_0 = 1, and delta."""

    bands: int
    bins: int
    epochs: int
    sigma: float
    delta: float


JOBS = (
    Job(4, 10, 10, 7, 1e-5),
    Job(4, 10, 10, 7, 1e-8),
    Job(4, 100, 10, 3.5, 1e-5),
)
WPRIV = """
import wpriv
def answer(bands, bins, epochs, sigma, delta, draws):
    job = {"sampling": "balls-in-bins", "bins": bins, "epochs": epochs, "delta": delta}
    eps = wpriv.budget("matrix-gauss", sigma=sigma, strategy=f"root:bands={bands}", **job).epsilon
    return f"{eps.lower:.4g} .. {eps.upper:.4g}"
"""
JAX_PRIVACY = """
import numpy as np
from jax_privacy.batch_selection import BallsInBinsSampling
from jax_privacy.experimental.monte_carlo import delta_calculation, sample_generation
def answer(bands, bins, epochs, sigma, delta, draws):
    column = np.cumprod(np.append(1.0, 1 - 0.5 / np.arange(1, bands)))
    plan = BallsInBinsSampling(iterations=bins * epochs, cycle_length=bins)
    sample = sample_generation.get_privacy_loss_sample
    size = min(draws, 20_000)  # all draws at once need more memory than there is
    parts = [sample(plan, sigma, column, seed=seed, num_samples=size)[0] for seed in range(draws // size)]
    losses = np.concatenate(parts)
    low, high = 0.0, float(losses.max())
    # fewer than ten losses above eps are no estimate
    tenth = np.partition(losses, -10)[-10]
    if tenth <= 0 or delta_calculation.delta_from_epsilon_and_samples(tenth, losses) > delta:
        return f"none from {draws:,} draws"
    for _ in range(60):
        middle = (low + high) / 2
        above = delta_calculation.delta_from_epsilon_and_samples(middle, losses) > delta
        low, high = (middle, high) if above else (low, middle)
    return f"{high:.4g} (sampled, {draws:,} draws)"
"""
OPAKE = """
import opake.dpftrl.accounting as accounting
from opake.dpftrl.noise import bsr_strategy
def answer(bands, bins, epochs, sigma, delta, draws):
    mechanism = accounting.mf_gaussian(sigma, bsr_strategy(bandwidth=bands, alpha=1.0, beta=0.0))
    run = accounting.balls_in_bins(mechanism, num_bins=bins, n_steps=bins * epochs)
    return f"{run.epsilon_at(delta):.4g} (sampled)"
"""
CLOCK = """
import json, sys, time
job = json.loads(sys.argv[1])
start = time.process_time()
words = answer(**job)
print(json.dumps([words, time.process_time() - start]))
"""
PROGRAMS = {"wpriv": WPRIV, "jax_privacy": JAX_PRIVACY, "opake": OPAKE}


def cell(program: str, job: Job, python: str, draws: int, seconds: float) -> str:
    """The answer and the CPU seconds of one program, or why there are none."""
    python = sys.executable if program == "wpriv" else python
    command = [python, "-c", PROGRAMS[program] + CLOCK, json.dumps({**asdict(job), "draws": draws})]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except FileNotFoundError:
        return "fails: FileNotFoundError | -"
    except subprocess.TimeoutExpired:
        return f"cut at {seconds:g} s | -"
    if done.returncode:
        return f"fails: {(done.stderr.strip().splitlines() or ['no message'])[-1].partition(':')[0]} | -"
    words, used = json.loads(done.stdout.splitlines()[-1])
    return f"{words} | {used:.1f}"


def main(argv: list[str] | None = None) -> int:
    """Run the benchmark; return 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks correlated", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one job, and 1,000 draws")
    parser.add_argument("--draws", type=int, default=10**7, help="losses that jax_privacy draws (default 10,000,000)")
    parser.add_argument("--python", default=sys.executable, help="the Python that has jax_privacy and opake")
    parser.add_argument("--seconds", type=float, default=3600.0, help="what one answer may take (default 3600)")
    parser.add_argument("--out", type=Path, help="a folder for benchmarks.md")
    flags = parser.parse_args(argv)
    draws = 1000 if flags.quick else flags.draws
    lines = [
        "| bands | b | epochs | sigma | delta | " + " | ".join(f"{name}: eps | s" for name in PROGRAMS) + " |",
        "|" + " --- |" * (5 + 2 * len(PROGRAMS)),
    ]
    for job in JOBS[: 1 if flags.quick else None]:
        cells = [cell(name, job, flags.python, draws, flags.seconds) for name in PROGRAMS]
        lines.append("| " + " | ".join([*(f"{value:g}" for value in asdict(job).values()), *cells]) + " |")
        print(lines[-1], file=sys.stderr, flush=True)
    report.show("\n".join(lines) + "\n", flags.out)
    return 0
