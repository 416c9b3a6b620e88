"""The noise of private sliced Wasserstein distances as printed, and what each way of accounting asks for at eps = 10.

Source:
    Rakotomamonjy, Ralaivola (2021), Table 4. VisDA is at delta = 1e-6, as in Table 1; Table 4 prints 1e-5. The number
    of steps is that of the authors' program, (records // batch + 1) * epochs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from wpriv.accounting.accountants import pld
from wpriv.core.guarantee import Curve
from wpriv.core.kinds import Sampling
from wpriv.core.parameters import Parameters, parameter
from wpriv.core.process import Process, Step
from wpriv.errors import Unsupported
from wpriv.numerics.root_finding import smallest_meeting
from wpriv.papers.accountants import swd_tail
from wpriv.papers.mechanisms.projection import Projection

LABELS = ("data",)
COLUMNS = ("printed", "program", "lemma", "clt", "certified", "certified_eps")
SHOWN = ("data", "delta", "n", *COLUMNS)
WHOLE = True
# columns of the noise by the tail bounds of the accountant swd-tail
TAILS = {"program": "bernstein-code", "lemma": "bernstein", "clt": "clt"}


@dataclass(frozen=True)
class Setting:
    """A row of Table 4: delta, dimension, directions, records, epochs, batch size and the printed noise."""

    delta: float
    d: int
    k: int
    records: int
    epochs: int
    batch: int
    sigma: float

    @property
    def steps(self) -> int:
        return (self.records // self.batch + 1) * self.epochs

    def process(self, sigma: float, steps: int | None = None) -> Process:
        """The steps of a training with this noise, by default as many as those of the authors' program."""
        sampling = Sampling("fixed", self.batch / self.records)
        return Process((Step(Projection(self.d, self.k, sigma), steps or self.steps, sampling),))


SETTINGS = {
    "U-M": Setting(1e-5, 784, 200, 10000, 100, 128, 4.74),
    "M-U": Setting(1e-5, 784, 200, 7438, 100, 128, 5.34),
    "VisDA": Setting(1e-6, 100, 1000, 55387, 50, 128, 6.40),
    "Office": Setting(1e-3, 50, 100, 497, 50, 32, 8.05),
    "MNIST (b)": Setting(1e-5, 784, 1000, 60000, 100, 100, 2.94),
    "MNIST (c)": Setting(1e-5, 784, 1000, 60000, 100, 100, 0.84),
    "CelebA (b)": Setting(1e-6, 8192, 2000, 162000, 100, 256, 2.392),
    "CelebA (c)": Setting(1e-6, 8192, 2000, 162000, 100, 256, 0.37),
}


@dataclass(frozen=True)
class Params(Parameters):
    """The target, and how many rows are computed."""

    eps: float = parameter("the eps that the noise is for; 10 in the paper", default=10.0, exclusive_minimum=0)
    first: int = parameter("rows of Table 4 that are computed, from the top", default=8, minimum=1)


def rows(params: Params) -> list[dict[str, Any]]:
    """A row for each of Table 4: the noise as printed, by three tail bounds, and with its certified eps, rounded up."""
    return [_row(name, SETTINGS[name], params.eps) for name in list(SETTINGS)[: params.first]]


def _row(name: str, setting: Setting, eps: float) -> dict[str, Any]:
    def certified(process: Process) -> Curve:
        return pld.account(process, tol=1e-3)

    columns = {
        column: _sigma(setting, eps, partial(swd_tail.account, w=w), setting.sigma, 1e-6) for column, w in TAILS.items()
    }
    return {
        "data": name,
        "eps": eps,
        "delta": setting.delta,
        "n": setting.steps,
        "printed": setting.sigma,
        **columns,
        # the certified noise lies a little below that of the central limit
        "certified": _sigma(setting, eps, certified, 0.6 * columns["clt"], 1e-4),
        "certified_eps": certified(setting.process(setting.sigma)).epsilon(delta=setting.delta),
    }


def _sigma(setting: Setting, eps: float, account: Callable[[Process], Curve], guess: float, rtol: float) -> float:
    """The least noise at which a way of accounting states no more than eps."""

    def excess(sigma: float) -> float:
        try:
            return account(setting.process(sigma)).epsilon(delta=setting.delta) - eps
        except Unsupported:  # far too little noise: eps is beyond what the accountant computes
            return math.inf

    return smallest_meeting(excess, guess, low=1e-3, rtol=rtol)
