"""``python -m benchmarks accountants [--quick]``: wpriv as the accountant of Opacus and of dp_accounting.

Each job is asked as a user of the library asks it, by wpriv and by the accountants of the library: the figure, and the
CPU milliseconds of the first call and of the fastest later one. A library that is not installed is left out.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from importlib.util import find_spec

Ask = Callable[[], float]
README_JOB = {"target_epsilon": 1.0, "target_delta": 1e-5, "sample_rate": 0.01, "steps": 1000}
SIGMAS = [0.8 + 0.02 * k for k in range(50)]
REPEATS, SECONDS = 9, 3.0
# the digits to which the figures were promised, and within which they must be
PROMISED = {
    ("eps, sigma 1, rate .01, 1000 steps", "wpriv"): 1.82830,
    ("eps, 50 sigmas x 100 steps", "wpriv"): 3.46481,
    ("noise of eps 1", "wpriv"): 1.41602,
    ("noise of eps 1, epsilon_tolerance 1e-5", "wpriv"): 1.41466,
    ("noise of eps 1 after 10000 steps", "wpriv"): 3.812946,
    ("eps, 50 sigmas x 100 steps and Laplace 10", "wpriv"): 3.49004,
}
WITHIN = 5e-6


def opacus_jobs() -> dict[tuple[str, str], Ask]:
    """The jobs of Opacus, by job and accountant."""
    from opacus.accountants import create_accountant
    from opacus.accountants.utils import get_noise_multiplier

    import wpriv.opacus  # registers the accountant

    assert wpriv.opacus.NAME == "wpriv"

    def epsilon(name: str, history: list[tuple[float, float, int]]) -> Ask:
        accountant = create_accountant(name)
        accountant.history = list(history)
        return lambda: accountant.get_epsilon(1e-5)

    def noise(name: str, tolerance: float) -> Ask:
        return lambda: get_noise_multiplier(**README_JOB, accountant=name, epsilon_tolerance=tolerance)

    many = [(sigma, 0.01, 100) for sigma in SIGMAS]
    jobs: dict[tuple[str, str], Ask] = {}
    for name in ("wpriv", "prv", "rdp"):
        jobs["eps, sigma 1, rate .01, 1000 steps", name] = epsilon(name, [(1.0, 0.01, 1000)])
        jobs["eps, 50 sigmas x 100 steps", name] = epsilon(name, many)
        jobs["noise of eps 1", name] = noise(name, 0.01)
    jobs["noise of eps 1, epsilon_tolerance 1e-5", "wpriv"] = noise("wpriv", 1e-5)
    return jobs


def dp_accounting_jobs() -> dict[tuple[str, str], Ask]:
    """The jobs of dp_accounting, by job and accountant."""
    import dp_accounting as dp
    from dp_accounting.pld import PLDAccountant
    from dp_accounting.rdp import RdpAccountant

    from wpriv.dp_accounting import WprivAccountant

    def sampled(noise: float, count: int) -> dp.DpEvent:
        return dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(0.01, dp.GaussianDpEvent(noise)), count)

    many = dp.ComposedDpEvent([*(sampled(sigma, 100) for sigma in SIGMAS), dp.LaplaceDpEvent(10.0)])
    jobs: dict[tuple[str, str], Ask] = {}
    for name, accountant in (("wpriv", WprivAccountant), ("pld", PLDAccountant), ("rdp", RdpAccountant)):
        jobs["noise of eps 1 after 10000 steps", name] = lambda made=accountant: dp.calibrate_dp_mechanism(
            made, lambda noise: sampled(noise, 10000), 1.0, 1e-5
        )
        jobs["eps, 50 sigmas x 100 steps and Laplace 10", name] = lambda made=accountant: (
            made().compose(many).get_epsilon(1e-5)
        )
    return jobs


def timed(ask: Ask, repeats: int) -> tuple[float, float, float]:
    """The answer, and the CPU seconds of the first call and of the fastest later one."""
    seconds: list[float] = []
    answer = 0.0
    while len(seconds) <= repeats and sum(seconds) < SECONDS:
        start = time.process_time()
        answer = float(ask())
        seconds.append(time.process_time() - start)
    return answer, seconds[0], min(seconds[1:], default=seconds[0])


def main(argv: list[str] | None = None) -> int:
    """Print the table; return 1 if a figure is not the promised one."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks accountants", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="by wpriv alone, twice")
    flags = parser.parse_args(argv)
    missed = 0
    print("| library | job | accountant | figure | ms, first | ms, later |\n|---|---|---|---|---|---|")
    for library, jobs_of in (("opacus", opacus_jobs), ("dp_accounting", dp_accounting_jobs)):
        if find_spec(library) is None:
            continue
        for (job, name), ask in jobs_of().items():
            if flags.quick and name != "wpriv":
                continue
            figure, first, later = timed(ask, 1 if flags.quick else REPEATS)
            is_missed = abs(figure - PROMISED.get((job, name), figure)) > WITHIN
            missed += is_missed
            mark = " MISSED" if is_missed else ""
            print(f"| {library} | {job} | {name} | {figure:.6g}{mark} | {first * 1e3:.0f} | {later * 1e3:.0f} |")
    return int(missed > 0)
