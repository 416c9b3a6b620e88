"""The jobs of the benchmark as plain data, which every program reads without importing wpriv.

The true answers come from ``python -m benchmarks.job_truths``: closed forms if known, else the inverse Laplace
transform of the composed loss, which is independent of the accountants compared.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Part:
    """``n`` runs of one mechanism: ``noise`` is sigma or the scale (sensitivity 1), ``rate`` of Poisson sampling."""

    mech: str
    noise: float
    n: int
    rate: float = 1.0


@dataclass(frozen=True)
class Job:
    """A process under add-remove, and what to compute: eps at ``delta``, delta at ``eps``, or ``solve`` at both."""

    name: str
    parts: tuple[Part, ...]
    truth: float
    delta: float | None = None
    eps: float | None = None
    solve: str = ""

    def nudged(self, k: int) -> Job:
        """Return the job with its noise (rate, if noise is solved for) changed by k parts in 10^10, against caches."""
        field = "rate" if self.solve == "noise" else "noise"
        return replace(
            self, parts=tuple(replace(part, **{field: getattr(part, field) * (1 + k * 1e-10)}) for part in self.parts)
        )


def _gauss(sigma: float, n: int, rate: float = 1.0) -> tuple[Part, ...]:
    return (Part("gauss", sigma, n, rate),)


_FIFTY = tuple(Part("gauss", round(0.8 + 0.02 * i, 2), 100, 0.01) for i in range(50))
_HUNDRED = tuple(Part("gauss", round(0.8 + 0.01 * i, 2), 10, round(0.005 + 0.0001 * i, 4)) for i in range(100))
_PAPER = _gauss(4, 65536, 0.01)
_RARE = _gauss(0.6, 10**6, 1e-4)

JOBS = (
    Job("gauss sigma=100 n=1000, eps at 1e-5", _gauss(100, 1000), 1.19936957375, delta=1e-5),
    Job("gauss sigma=100 n=1000, eps at 1e-15", _gauss(100, 1000), 2.43083256688, delta=1e-15),
    Job("q=.01 sigma=4 n=65536, eps at 1e-4", _PAPER, 2.30076511509, delta=1e-4),
    Job("q=.01 sigma=4 n=65536, eps at 1e-12", _PAPER, 4.57092854784, delta=1e-12),
    Job("q=.01 sigma=4 n=65536, eps at 1e-15", _PAPER, 5.18177410054, delta=1e-15),
    Job("q=.01 sigma=4 n=65536, eps at 1e-30", _PAPER, 7.53959628578, delta=1e-30),
    Job("q=.01 sigma=4 n=65536, eps at 1e-100", _PAPER, 14.0805799705, delta=1e-100),
    Job("q=.01 sigma=4 n=65536, delta at eps 1", _PAPER, 0.0277297927742, eps=1.0),
    Job("q=256/60000 sigma=1.1 n=14040, eps at 1e-5", _gauss(1.1, 14040, 256 / 60000), 2.37955451883, delta=1e-5),
    Job("laplace 20 n=1000, eps at 1e-5", (Part("laplace", 20, 1000),), 7.42127287219, delta=1e-5),
    Job("laplace 1.26e6 n=2^20, delta at eps .001", (Part("laplace", 1.26e6, 2**20),), 4.28387448365e-05, eps=1e-3),
    Job("q=1e-4 sigma=.6 n=1e6, eps at 1e-8", _RARE, 2.86831984906, delta=1e-8),
    Job("q=1e-4 sigma=.6 n=1e6, eps at 1e-10", _RARE, 3.95346485967, delta=1e-10),
    Job("q=.5 sigma=50 n=1e6, eps at 1e-5", _gauss(50, 10**6, 0.5), 91.8238320215, delta=1e-5),
    Job("q=1e-5 sigma=1 n=2^32, eps at 1e-5", _gauss(1, 2**32, 1e-5), 3.67468528708, delta=1e-5),
    Job("50 sigmas x 100 at q=.01, eps at 1e-5", _FIFTY, 3.46468102485, delta=1e-5),
    Job("100 (sigma, q) x 10, eps at 1e-5", _HUNDRED, 1.21324304878, delta=1e-5),
    Job("sigma for (1, 1e-5), q=.01 n=10000", _gauss(1, 10000, 0.01), 3.8128168307, eps=1.0, delta=1e-5, solve="noise"),
    Job("n for (1, 1e-5), q=.01 sigma=4", _gauss(4, 1, 0.01), 11050, eps=1.0, delta=1e-5, solve="n"),
    Job("rate for (1, 1e-5), sigma=4 n=10000", _gauss(4, 10000), 0.010510018224, eps=1.0, delta=1e-5, solve="rate"),
)
