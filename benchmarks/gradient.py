"""``python -m benchmarks gradient [--quick] [--jobs TEXT] [--out DIR]``: the private Wasserstein gradient.

Explicit Jacobians by vmap give the same gradient; that of POT is for the same distance without clipping, and not
private. All programs run interleaved in this process on the same batch, with one thread; times are medians of CPU
time.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import report

MINE = "wpriv per-coordinate"
BOUND, LIPSCHITZ = 1.0, math.sqrt(2)


@dataclass(frozen=True)
class Job:
    """Two groups of n/2 records through an MLP, compared along k directions, with target time ratios."""

    name: str
    n: int
    widths: tuple[int, ...]
    k: int
    targets: tuple[tuple[str, float], ...] = ()


WANTED = (("vmap Jacobians", 8.0), ("POT, not private", 1.0))
JOBS = (
    Job("n=30000, MLP 16-64-2, k=50", 30000, (16, 64, 2), 50, WANTED),
    Job("n=30000, MLP 16-64-1", 30000, (16, 64, 1), 1),
    Job("n=6000, MLP 16-64-64-5, k=50", 6000, (16, 64, 64, 5), 50),
)


def programs(job: Job) -> dict[str, Callable[[], Any]]:
    """Return the programs by name, wpriv first; each returns the gradients of all parameters, or their bounded sum."""
    import ot
    import torch
    from torch import nn
    from torch.func import functional_call, jacrev, vmap

    from wpriv.papers.penalty.gradient import penalised_gradient, project, weights
    from wpriv.papers.penalty.penalty import Penalty
    from wpriv.transport.sliced import random_directions

    torch.set_num_threads(1)
    torch.manual_seed(0)
    layers = [
        layer for a, b in zip(job.widths, job.widths[1:], strict=False) for layer in (nn.Linear(a, b), nn.ReLU())
    ][:-1]
    model, half, d = nn.Sequential(*layers), job.n // 2, job.widths[-1]
    inputs = torch.randn(job.n, job.widths[0])
    inputs[half:] += 0.5
    directions = random_directions(d, job.k, torch.Generator().manual_seed(1)) if d > 1 else None
    given = dict(model.named_parameters())

    def ours(clipping: str) -> list[Any]:
        penalty = Penalty(1.0, BOUND, LIPSCHITZ, ((half, half),), clipping=clipping)
        return penalised_gradient(model, None, inputs, None, penalty, directions=directions).total.parts

    def jacobians() -> list[Any]:
        """Form and clip every row of every Jacobian, with the weights of wpriv."""
        rows = vmap(jacrev(lambda p, x: functional_call(model, p, (x,))), in_dims=(None, 0))(given, inputs)
        with torch.no_grad():
            lengths = sum(row.flatten(2).square().sum(2) for row in rows.values()).sqrt()
            inside = project(model(inputs), BOUND)
            outputs = weights(inside[:half], inside[half:], directions)
            factors = torch.cat([outputs.x, outputs.z]) * (LIPSCHITZ / math.sqrt(d) / lengths).clamp(max=1.0)
            return [torch.tensordot(factors, row, dims=2) for row in rows.values()]

    def pot() -> list[Any]:
        out = model(inputs)
        if directions is None:
            cost = ot.wasserstein_1d(out[:half, 0], out[half:, 0], p=2)
        else:
            cost = ot.sliced_wasserstein_distance(out[:half], out[half:], projections=directions, p=2) ** 2
        return list(torch.autograd.grad(cost, list(given.values())))

    return {
        MINE: lambda: ours("per-coordinate"),
        "wpriv spectral": lambda: ours("spectral"),
        "vmap Jacobians": jacobians,
        "POT, not private": pot,
    }


def measure(job: Job, seconds: float) -> list[dict[str, Any]]:
    """Return a row for each program: median CPU seconds of interleaved runs, and the difference of equal gradients."""
    calls = programs(job)
    first = {name: call() for name, call in calls.items()}
    runs: dict[str, list[float]] = {name: [] for name in calls}
    begun = time.process_time()
    while time.process_time() - begun < seconds or len(runs[MINE]) < 3:
        for name, call in calls.items():
            start = time.process_time()
            call()
            runs[name].append(time.process_time() - start)
    rows = []
    for name, took in runs.items():
        ratio, wanted = median(took) / median(runs[MINE]), dict(job.targets).get(name)
        same = name == "vmap Jacobians"
        rows.append(
            {
                "job": job.name,
                "program": name,
                "ms": 1e3 * median(took),
                "ratio": ratio,
                "wanted": wanted,
                "difference": _difference(first[name], first[MINE]) if same else None,
                "met": None if wanted is None else ratio >= wanted,
            }
        )
    return rows


def _difference(gradient: list[Any], reference: list[Any]) -> float:
    import torch

    mine, theirs = (torch.cat([part.detach().flatten() for part in parts]) for parts in (reference, gradient))
    return float((mine - theirs).norm() / mine.norm())


def table(rows: list[dict[str, Any]]) -> str:
    """Return Markdown: ms, ratio to wpriv, target, and the relative difference of gradients that should be equal."""
    lines = ["| job | program | ms | x | wanted | difference |", "| --- " * 6 + "|"]
    for row in rows:
        goal = "" if row["wanted"] is None else f">= {row['wanted']:g}: {'yes' if row['met'] else 'NO'}"
        difference = "" if row["difference"] is None else f"{row['difference']:.1e}"
        lines.append(
            f"| {row['job']} | {row['program']} | {row['ms']:.3g} | {row['ratio']:.3g} | {goal} | {difference} |"
        )
    return "\n".join(lines) + "\n"


def main(argv: list[str] | None = None) -> int:
    """Run the benchmark; return 0 if every target is met, else 1."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks gradient", description="the private Wasserstein gradient beside others"
    )
    parser.add_argument("--quick", action="store_true", help="three runs of each program")
    parser.add_argument("--jobs", default="", help="only jobs whose name holds this text")
    parser.add_argument(
        "--seconds", type=float, default=30.0, help="CPU seconds for all programs of a job (default 30)"
    )
    parser.add_argument("--out", type=Path, help="a folder for gradient.md and gradient.csv")
    flags = parser.parse_args(argv)
    warnings.simplefilter("ignore")
    rows: list[dict[str, Any]] = []
    for job in JOBS:
        if flags.jobs in job.name:
            print(job.name, file=sys.stderr, flush=True)
            rows += measure(job, 0.0 if flags.quick else flags.seconds)
    if not rows:
        parser.error(f"no job's name holds {flags.jobs!r}")
    return report.publish(table(rows), rows, flags.out, "gradient")


if __name__ == "__main__":
    sys.exit(main())
