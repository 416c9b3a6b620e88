"""``python -m benchmarks attacks``: calibration to membership attacks by wpriv and by riskcal.

Each job asks for the least noise of DP-SGD at which an attack stays below a limit: its advantage, or its true-positive
rate at a false-positive rate. The last column is the certified upper end of what an attack reaches with the noise that
the program answers, over the limit: above 1 the noise is too small. riskcal answers with its own tolerances, about the
limit and not on the safe side of it.
"""

# mypy: disable-error-code="import-untyped, import-not-found"
from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec


@dataclass(frozen=True)
class Job:
    """A schedule of Poisson-sampled Gaussian steps, with a limit on the advantage or on the TPR at an FPR."""

    rate: float
    n: int
    limit: float
    fpr: float | None = None

    @property
    def name(self) -> str:
        """The job in words."""
        target = f"advantage {self.limit:g}" if self.fpr is None else f"TPR {self.limit:g} at FPR {self.fpr:g}"
        return f"q={self.rate:.4g} n={self.n}, {target}"


JOBS = (
    Job(0.01, 10000, 0.1),
    Job(256 / 60000, 14040, 0.3),
    Job(0.01, 10000, 0.02, fpr=0.01),
    Job(256 / 60000, 14040, 0.01, fpr=0.001),
)


def wpriv(job: Job) -> float:
    """The noise multiplier by ``wpriv.calibrate`` at its defaults."""
    from wpriv import Gauss, Poisson, calibrate

    target = {"advantage": job.limit} if job.fpr is None else {"tpr": job.limit, "fpr": job.fpr}
    return float(calibrate(Gauss, n=job.n, sampling=Poisson(job.rate), **target))  # type: ignore[arg-type]


def riskcal(job: Job) -> float:
    """The noise multiplier by riskcal; for rates its search begins at 0.5, since from 0.1 it takes minutes."""
    from riskcal.calibration import dpsgd

    schedule = {"sample_rate": job.rate, "num_steps": job.n}
    if job.fpr is None:
        return float(dpsgd.find_noise_multiplier_for_advantage(job.limit, **schedule))
    return float(dpsgd.find_noise_multiplier_for_err_rates(job.fpr, 1 - job.limit, noise_min=0.5, **schedule))


def reached(job: Job, noise: float) -> float:
    """The certified upper end of what an attack reaches with this noise."""
    from wpriv import Gauss, Poisson, Process, Step, curve

    answers = curve(Process((Step(Gauss(sigma=noise), job.n, Poisson(job.rate)),)), tol=1e-5)
    return answers.delta(eps=0) if job.fpr is None else answers.trade_off(fpr=job.fpr).tpr_upper


def main(argv: list[str] | None = None) -> int:
    """Run every job once by each installed program; return 1 if an answer of wpriv misses its target."""
    if argv:
        sys.exit(f"python -m benchmarks attacks takes no flags; found {' '.join(argv)}")
    programs: dict[str, Callable[[Job], float]] = {"wpriv": wpriv}
    if find_spec("riskcal"):
        programs["riskcal"] = riskcal
    safe = True
    print("| job | program | noise | CPU s | reached / limit |\n| --- | --- | --- | --- | --- |")
    for job in JOBS:
        for name, program in programs.items():
            started = time.process_time()
            noise = program(job)
            seconds = time.process_time() - started
            ratio = reached(job, noise) / job.limit
            print(f"| {job.name} | {name} | {noise:.6g} | {seconds:.2g} | {ratio:.5f} |", flush=True)
            # rates are bounded here more coarsely than in the calibration
            safe = safe and (name != "wpriv" or ratio <= 1 + 3e-4)
    return 0 if safe else 1


if __name__ == "__main__":
    sys.exit(main())
