"""The interface between tasks and the engine: schedule, job, and the gate that adds noise to releases."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor, nn

from wpriv.config.train_parts import Average
from wpriv.config.train_schema import Optimizer
from wpriv.core.kinds import Sampling
from wpriv.core.process import Step
from wpriv.errors import UsageError
from wpriv.training.clipping.example_gradients import Loss
from wpriv.training.engine.augmentation import Augmentation
from wpriv.training.engine.batch_gradient import AdaptiveNorm, Batches, BatchGradient, Fetch
from wpriv.training.engine.early_stop import Looks
from wpriv.training.engine.sampler import Indices
from wpriv.training.engine.update_rules import Updates
from wpriv.training.noise.noise_stream import Noise
from wpriv.training.noise.recursion import Recursion
from wpriv.training.noise.release import Bounded, add_noise

if TYPE_CHECKING:
    from torch.optim.lr_scheduler import LRScheduler

# the largest number of epochs of a run that are measured
MAX_ROWS = 100


@dataclass(frozen=True)
class Schedule:
    """The schedule of a training, in plain numbers.

    Args:
        sampling, records, batch: see ``Sampler``. steps: number of steps.
        step: one step (or pass of random allocation) as it is accounted for, under the same sampling; None without
            privacy.
        multiplier: standard deviation of the noise over the sensitivity of the sum; 0 without privacy.
        adjacency: the neighbouring relation of the accounting. optimizer: how the weights are updated.
        mask: share of the coordinates of a noisy gradient that are set to zero.
        once: only the first step releases something.
        run: the number of the run in its ledger, which a fork increases. every: seconds between checkpoints.
        exact: sums and noise without floating-point error, see ``release.add_noise``.
        average: the average of the weights that is kept, if any. looks: at test records, to end early.
        paid: the digest of the entry of an organisation's ledger that pays for it.
        recursion: of noise that is correlated between steps; then a record has the same place in every pass.
    """

    sampling: Sampling
    records: int
    batch: float
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
    average: Average | None = None
    looks: Looks | None = None
    paid: str = ""
    recursion: Recursion | None = None

    def __post_init__(self) -> None:
        if self.step is None:
            return
        if self.step.sampling != self.sampling:
            raise UsageError(f"the sampling of a run must be the accounted {self.step.sampling}; found {self.sampling}")
        # the noise must be that of the accounted mechanism, where it has a sigma and a sensitivity
        sigma, sensitivity = (getattr(self.step.mechanism, name, None) for name in ("sigma", "sensitivity"))
        if sigma is None or sensitivity is None or math.isclose(sigma, self.multiplier * sensitivity, rel_tol=1e-12):
            return
        accounted = f"{sigma / sensitivity:.12g}"
        raise UsageError(
            f"the noise multiplier of a run must be the accounted {accounted}; found {self.multiplier:.12g}"
        )

    def epoch_of(self, step: int) -> int | None:
        """Return the epoch that ends with a step, or None; an epoch is records / batch steps.

        The last step ends the last epoch, even if it is incomplete. Of more than a hundred epochs only every second is
        returned, or every third and so on, since each is measured.
        """
        stride = math.ceil(self.steps * self.batch / self.records / MAX_ROWS)
        epoch = math.floor(step * self.batch / self.records + 1e-9)
        previous = math.floor((step - 1) * self.batch / self.records + 1e-9)
        if step == self.steps:
            return previous + 1
        return epoch if epoch // stride > previous // stride else None


@dataclass
class ReleaseGate:
    """The only way for a task's own step to release something private: it adds the noise.

    Args:
        multiplier: standard deviation of the noise over the sensitivity of the sum; 0 without privacy.
        adjacency: the neighbouring relation under which sums must be bounded, in a ``private`` training.
        noise: the source of the noise. used: the number of releases so far.
        exact: sums must be without floating-point error (wpriv/training/clipping/exact_sums.py), and the noise is too.
    """

    multiplier: float
    adjacency: str
    noise: Noise
    private: bool
    used: int = 0
    exact: bool = False

    def __call__(self, total: Bounded) -> list[Tensor]:
        """Return the sum with noise."""
        self.used += 1
        if self.private:
            require_adjacency(total, self.adjacency)
        return add_noise(total, self.multiplier, self.noise, private=self.private, exact=self.exact)

    def shuffled(self, indices: Indices) -> Indices:
        """Return the places of a step's records in random order, for a release that has a row for each record.

        Sampling sets of a fixed size is accounted for where a release depends on the set alone. Rows in the order of
        the records show more (docs/theory/subsampling.md). The order follows from the key of the noise, without using
        any of it, and is as secret. Without privacy the order is kept.
        """
        if not self.private:
            return indices
        key = hashlib.sha256(b"wpriv.order" + bytes.fromhex(self.noise.state())).digest()
        return np.random.Generator(np.random.PCG64(int.from_bytes(key, "little"))).permutation(indices)


def require_adjacency(total: Bounded, adjacency: str) -> None:
    """Refuse a sum that is not bounded under the neighbouring relation of the accounting."""
    if total.adjacency != adjacency:
        raise UsageError(
            f"a release that is accounted for under {adjacency} neighbours must be bounded under them; "
            f"found {total.adjacency}"
        )


CustomStep = Callable[[Indices, ReleaseGate], Tensor]


@dataclass
class Job:
    """The part of a training that a task supplies to the engine.

    Args:
        model: its trainable parameters are what is released.
        aggregate: the bounded sum of the gradients of the records at some places; the engine adds noise and updates
            the weights. None where there is a ``custom_step``.
        evaluate: figures of the model by name; must not depend on training records, or say so in their names.
        observe_distances: distances of observed gradient pairs for (places, mask), for accountants that use them.
        custom_step: a step of the task's own in place of ``aggregate``, which updates the weights itself. It gets the
            places of the records and the gate, through which all that is private must pass: once per step, or only in
            the first step where the schedule says so; that release is kept in a buffer of the model. It returns
            diagnostics as ``BatchGradient`` has them.
        optimizers: of ``custom_step``, by name, such as ``UpdateRule``; the engine saves them and decays their rates.
            Else one over the trained weights, where it is not that of the recipe; ``scheduler`` sets its rates then.
        groups: of records, see ``Sampler``. method: by which gradients are clipped, where there was a choice.
        save_artifacts: writes further files of the task to the folder of a finished run.
        conclude: further figures, or better ones, that are measured once at the end.
        fetch: inputs and targets of the records at some places. with_loss: ``aggregate`` with another loss. Only jobs
            that train on the sum of a loss have them; the loops of callers need them.
        augmentation: of the records of ``aggregate``; the engine sets its key and its step.
        adaptive: the clipping norm of ``aggregate``, where it follows the gradients.
        batches: the model and the records that ``aggregate`` sums over, where it clips the records of a loss.
        divided: the weights are divided among the processes (sharding.py), and so are the parts that ``aggregate``
            returns: the rows that this process keeps of the sum over all processes.
        hosted: a step leaves the noisy mean in the gradients of the weights, for an optimizer of the caller.
        frozen: layers that stay in evaluation mode. remarks: what the statement says of the network.
        tests: the number of test records.
    """

    model: nn.Module
    aggregate: Callable[[Indices], BatchGradient] | None
    evaluate: Callable[[], dict[str, float]]
    observe_distances: Callable[[Indices, list[Tensor]], Tensor] | None = None
    custom_step: CustomStep | None = None
    optimizers: Mapping[str, Updates] = field(default_factory=dict)
    scheduler: LRScheduler | None = None
    groups: list[tuple[Indices, int]] = field(default_factory=list)
    method: str = ""
    save_artifacts: Callable[[Path], None] | None = None
    conclude: Callable[[], dict[str, float]] | None = None
    fetch: Fetch | None = None
    with_loss: Callable[[Loss], Callable[[Indices], BatchGradient]] | None = None
    augmentation: Augmentation | None = None
    adaptive: AdaptiveNorm | None = None
    batches: Batches | None = None
    divided: bool = False
    hosted: bool = False
    frozen: tuple[nn.Module, ...] = ()
    remarks: tuple[str, ...] = ()
    tests: int = 0


@contextmanager
def evaluating(network: nn.Module) -> Iterator[None]:
    """Keep a network in evaluation mode within the block, and then each layer in the mode that it had."""
    modes = [(layer, layer.training) for layer in network.modules()]
    network.eval()
    try:
        yield
    finally:
        for layer, training in modes:
            layer.training = training
