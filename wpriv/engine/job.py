"""What the engine is handed: a schedule in plain numbers, and a job of some task; and the door through which a job releases."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

from wpriv.config.train_schema import Optimizer
from wpriv.core.process import Sampling, Step
from wpriv.engine.batch_gradient import BatchGradient
from wpriv.engine.noise_stream import Noise
from wpriv.engine.release import Bounded, add_noise
from wpriv.engine.sampler import Indices
from wpriv.errors import UsageError

# epochs of a run that are measured
MOST_MEASURED = 100


@dataclass(frozen=True)
class Schedule:
    """What is run, as plain numbers.

    Args:
        sampling, records, batch: see ``Sampler``. steps: how many.
        step: one step as it is accounted, under the same sampling; None where nothing is promised.
        multiplier: standard deviation of the noise over the sensitivity of the sum; 0 without privacy. adjacency: the neighbours meant.
        mask: share of the coordinates of a noisy gradient that are set to zero.
        once: the first step alone releases something. optimizer: how the weights move.
        run: its number in the ledger, where forks have run before it. every: seconds between checkpoints.
        exact: sums and noise without floating-point error, see ``release.noisy``.
    """

    sampling: Sampling
    records: int
    batch: int
    steps: int
    step: Step | None
    multiplier: float
    adjacency: str
    optimizer: Optimizer
    mask: float = 0.0
    once: bool = False
    run: int = 1
    every: float = 60.0
    exact: bool = False

    def __post_init__(self) -> None:
        if self.step is not None and self.step.sampling != self.sampling:
            raise UsageError(
                f"{self.sampling} is to be run and {self.step.sampling} to be accounted: they must be the same"
            )
        if self.step is not None:
            self._hold_noise(self.step)

    def _hold_noise(self, step: Step) -> None:
        """Checks that the noise to be added is that of the accounted mechanism, where it has a sigma and a sensitivity."""
        sigma, sensitivity = (getattr(step.mechanism, name, None) for name in ("sigma", "sensitivity"))
        if sigma is None or sensitivity is None or math.isclose(sigma, self.multiplier * sensitivity, rel_tol=1e-12):
            return
        added, accounted = f"{self.multiplier:.12g}", f"{sigma / sensitivity:.12g}"
        raise UsageError(
            f"noise of multiplier {added} is to be added and {accounted} to be accounted: they must be the same"
        )

    def epoch_of(self, step: int) -> int | None:
        """The epoch that ends with a step (or the last, cut short, with the last step); an epoch is records / batch steps.

        Of more than a hundred epochs only every second is told, or every third and so on: each is measured.
        """
        apart = math.ceil(self.steps * self.batch / self.records / MOST_MEASURED)
        whole = math.floor(step * self.batch / self.records + 1e-9)
        before = math.floor((step - 1) * self.batch / self.records + 1e-9)
        if step == self.steps:
            return before + 1
        return whole if whole // apart > before // apart else None


@dataclass
class ReleaseGate:
    """What a step of a task's own is given: the one door through which anything private may pass, with noise on it.

    Args:
        multiplier: standard deviation of that noise over the sensitivity of what passes; 0 without privacy.
        adjacency: the neighbours under which what passes must be bounded, in a ``private`` training.
        noise: where the noise comes from. used: how often something has passed.
        exact: what passes must be a sum without floating-point error (``train/exact.py``), and gets such noise.
    """

    multiplier: float
    adjacency: str
    noise: Noise
    private: bool
    used: int = 0
    exact: bool = False

    def __call__(self, total: Bounded) -> list[Tensor]:
        self.used += 1
        if self.private and total.adjacency != self.adjacency:
            raise UsageError(
                f"what is accounted under {self.adjacency} neighbours cannot be bounded under {total.adjacency}"
            )
        return add_noise(total, self.multiplier, self.noise, private=self.private, exact=self.exact)


CustomStep = Callable[[Indices, ReleaseGate], Tensor]


@dataclass
class Job:
    """What a task gives the engine.

    Args:
        model: its trainable parameters are what is released.
        gather: the bounded sum of the gradients of the records at some places; the engine adds noise and moves the weights.
        evaluate: figures of the model as it is, by name; must look at no training record, or say so in its names.
        conclude: further such figures, or better ones, that are measured once, at the end.
        watch: distances of observed gradient pairs for (places, mask), for accountants that price them; None where none does.
        custom_step: in place of gather, a step of the task's own, which moves the weights itself. What it is given beside the places is the
            one door through which anything private may pass: it takes a bounded sum and returns it with noise on it. It must be used
            once a step; once in the first step alone where the schedule says so, and what came of it is kept in a buffer of the model.
            It returns what ``Gathered.seen`` holds.
        optimizers: those that ``custom_step`` steps, by name, made by ``optimizer_of``; the engine keeps and decays them.
        groups: of records, see ``Sampler``. method: by which gradients are clipped, where there was a choice.
        save_artifacts: writes what else the task leaves in the folder of a finished run.
    """

    model: nn.Module
    gather: Callable[[Indices], BatchGradient] | None
    evaluate: Callable[[], dict[str, float]]
    watch: Callable[[Indices, list[Tensor]], Tensor] | None = None
    custom_step: CustomStep | None = None
    optimizers: dict[str, torch.optim.Optimizer] = field(default_factory=dict)
    groups: list[tuple[Indices, int]] = field(default_factory=list)
    method: str = ""
    save_artifacts: Callable[[Path], None] | None = None
    conclude: Callable[[], dict[str, float]] | None = None


def optimizer_of(weights: Iterable[nn.Parameter], plan: Optimizer) -> torch.optim.Optimizer:
    """The optimizer of a recipe on some weights."""
    if plan.name == "adam":
        return torch.optim.Adam(
            weights, lr=plan.lr, betas=(plan.betas[0], plan.betas[1]), weight_decay=plan.weight_decay
        )
    return torch.optim.SGD(
        weights, lr=plan.lr, momentum=plan.momentum, weight_decay=plan.weight_decay, nesterov=plan.nesterov
    )
