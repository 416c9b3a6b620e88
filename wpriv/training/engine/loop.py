"""The training loop: draw records, write the ledger, aggregate gradients, add noise, update the weights.

A training can be stopped after any step and resumed with the same result, bit for bit. The loop knows no task: a task
supplies a model and a function that aggregates the bounded sum of the gradients of a step's records.
"""

from __future__ import annotations

import ctypes
import hashlib
import math
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from wpriv.config.train_parts import AVERAGE_PREFIX
from wpriv.config.train_schema import Optimizer
from wpriv.errors import Interrupted, UsageError
from wpriv.training.clipping import spectral_norms
from wpriv.training.engine import distributed, sharding
from wpriv.training.engine.batch_gradient import BatchGradient
from wpriv.training.engine.early_stop import Watch
from wpriv.training.engine.job import ReleaseGate, evaluating, require_adjacency
from wpriv.training.engine.sampler import Indices
from wpriv.training.engine.training_state import Row, TrainingState
from wpriv.training.noise.release import Bounded, add_noise

# --- the C library's allocator: memory that a training on a CPU frees is kept for its next step ---

# numbers of glibc's parameters M_TRIM_THRESHOLD and M_MMAP_THRESHOLD
TRIM, MMAP = -1, -3
# block sizes from which memory goes back to the system; some versions of glibc refuse more than 32 MiB
LARGEST, LARGEST_OLD = 2**31 - 1, 2**25
# the step after which the memory of a training is known, and how often as much it may hold later
SETTLED, GROWTH = 10, 1.5
STATM = Path("/proc/self/statm")
VARIABLES = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


def keep_memory() -> bool:
    """Let this process keep the memory that tensors free, and return whether it does.

    By default glibc returns large blocks to the system. A training frees its activations at each step and gets them
    again at the next, and the system clears every page each time, which takes up to a third of a step. Nothing is
    changed with another C library, or where the environment has a setting of its own. ``HeldMemory`` limits what the
    process holds.
    """
    if any(name in os.environ for name in VARIABLES):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    kept = mallopt(MMAP, LARGEST) or mallopt(MMAP, LARGEST_OLD)
    return bool(kept and mallopt(TRIM, LARGEST))


class HeldMemory:
    """Give free memory back to the system where a training holds far more than in its first steps.

    Blocks of many sizes, as of batches of random size, leave gaps that no later block fits: without this a training
    of large gradients grows by tens of megabytes at every step.
    """

    def __init__(self) -> None:
        self.steps, self.limit = 0, 0.0

    def after_step(self) -> None:
        """Look at the memory of the process; to be called after every step."""
        self.steps += 1
        if self.steps < SETTLED:
            return
        if self.steps == SETTLED:
            self.limit = GROWTH * resident()
        elif resident() > self.limit:
            give_back()
            # what is still held is in use
            self.limit = max(self.limit, GROWTH * resident())


def resident() -> int:
    """Return how many bytes of memory the process holds; 0 where the system does not say."""
    try:
        pages = int(STATM.read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def give_back() -> None:
    """Return the free memory of the C library to the system, if it is glibc."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError, TypeError):
        return


# one of so many steps, at random, compares records of its batch with records alone
CHECK_EVERY = 50


class Engine(TrainingState):
    """A training in a folder of its own; see ``TrainingState`` for the arguments."""

    def run(
        self,
        *,
        stop: Callable[[], str | None] = lambda: None,
        on_epoch: Callable[[Row], Row] = lambda row: row,
        on_step: Callable[[int], None] = lambda step: None,
    ) -> list[Row]:
        """Train to the end and return the rows of metrics, one per epoch.

        Args:
            stop: called after every step; returns the reason to stop, or None.
            on_epoch: may add columns to the row of an epoch. on_step: called with the number of each step.
        Raises:
            Interrupted: stopped; everything is saved.
        """
        for indices in self.batches(stop=stop, on_epoch=on_epoch, on_step=on_step):
            self.step(indices)
        return self.rows

    def batches(
        self,
        *,
        stop: Callable[[], str | None] = lambda: None,
        on_epoch: Callable[[Row], Row] = lambda row: row,
        on_step: Callable[[int], None] = lambda step: None,
    ) -> Iterator[Indices]:
        """Yield the places of the records of every step that is left; the caller must pass each to ``step``.

        A batch that was drawn and not trained on is drawn again by a run that continues from the next checkpoint.

        Args and Raises: as ``run``.
        """
        if not self.resumed:
            # from here on the run draws the same noise again, wherever it is interrupted
            self.save()
        saved, memory = time.monotonic(), HeldMemory()
        total = self.schedule.steps
        while self.steps_done < total and self.ended is None:
            if self.steps_done == self.repeats_until:
                self.renew_noise()
            state = self.sampler.state()
            done = self.steps_done
            try:
                yield self.sampler.draw()
            finally:
                if self.steps_done == done:
                    self.sampler.restore(state)
            on_step(self.steps_done)
            memory.after_step()
            epoch = None if self.ended is not None else self.schedule.epoch_of(self.steps_done)
            if epoch is not None:
                self._force()
                self.rows.append(on_epoch(self._row(epoch)))
            reason = distributed.agree_to_stop(stop())
            if reason:
                self.save()
                message = (
                    f"stopped by {reason} after step {self.steps_done} of {total}; saved. Continue with `resume=True`"
                )
                raise Interrupted(message)
            due = epoch is not None or time.monotonic() - saved >= self.schedule.every
            # all processes save after the same step, though their clocks differ: they wait for each other there
            if self.steps_done < total and distributed.anywhere(due) and self.ended is None:
                self.save()
                saved = time.monotonic()
        if self.ended is not None and (not self.rows or self.rows[-1]["step"] < self.steps_done):
            self._force()
            self.rows.append(on_epoch(self._row(1 + (self.rows[-1]["epoch"] if self.rows else 0))))
        self.finish()

    def step(self, indices: Indices, lr: float | None = None, settings: str = "") -> None:
        """Train one step on the records at some places, which is written to the ledger before its result is used.

        Args:
            lr: the learning rate of this step; by default that of the plan.
            settings: a digest of what differs from the plan in this step, see ``ledger.Entry``.
        """
        self._set_rates(lr)
        for layer in self.job.frozen:
            layer.eval()
        if self.job.augmentation is not None:
            self.job.augmentation.step = self.steps_done
        self._plan_check()
        distributed.separate_draws()
        if self.job.custom_step is None:
            self.diagnostics += self._gradient_step(indices, settings)
        else:
            self.diagnostics += self._custom_step(indices)
        self.steps_done += 1
        if self.schedule.step is not None:
            self._require_finite_weights()
        if self.average is not None:
            self.average.update(self.steps_done)
        if self.watch is not None and self.watch.is_due(self.steps_done, self.schedule.steps):
            self._look(self.watch)

    def _look(self, watch: Watch) -> None:
        """Look at the test records, and end the training where it has not got better for long enough."""
        looks = watch.looks
        with evaluating(self.job.model):
            name, figure = looks.figure(self.job.evaluate())
        if looks.step is not None:
            if self.looks_ledger is not None:
                self.looks_ledger.spend(self.steps_done // looks.every, looks.step)
            count = torch.tensor([round(figure * self.job.tests)], dtype=torch.float64, device=self.device)
            total = Bounded([count], 1.0, looks.adjacency, grid=1.0)
            [noisy] = add_noise(total, looks.sigma, self.noise, exact=self.schedule.exact)
            figure = float(noisy) / self.job.tests
        watch.see(name, distributed.broadcast(figure))
        if watch.is_over:
            self.ended = False

    def _require_finite_weights(self) -> None:
        """Refuse weights that are not finite: noisy releases made them so, as such gradients of records add zero."""
        largest = torch._foreach_norm([sharding.local(each) for each in self.weights if each.numel()], float("inf"))
        finite = bool(torch.stack(largest).isfinite().all())
        if distributed.anywhere(not finite) if self.job.divided else not finite:
            raise UsageError(
                f"the weights are not finite after step {self.steps_done}. They are made of sums with noise: take a "
                f"lower learning rate, or less noise"
            )

    def _plan_check(self) -> None:
        """Decide by the noise's public name, so that a repeated step agrees, whether records are compared alone."""
        if self.job.batches is None or self.job.divided:
            return
        step = self.steps_done + 1
        digest = hashlib.sha256(f"wpriv.check {self.stream} {step}".encode()).digest()
        chosen = step == 1 or int.from_bytes(digest[:8], "big") < 2**64 // CHECK_EVERY
        self.job.batches.check.seed = int.from_bytes(digest[8:11], "big") if chosen else None
        if chosen and step not in self.checked:
            self.checked.append(step)

    def _is_release(self) -> bool:
        return self.steps_done == 0 or not self.schedule.once

    def _spend(self, settings: str = "") -> None:
        """Write the line of the next step to the ledger, where it releases something."""
        if self.ledger is not None and self.schedule.step is not None and self._is_release():
            self.ledger.spend(self.steps_done + 1, self.schedule.step, settings)

    def _custom_step(self, indices: Indices) -> Tensor:
        """Run a step of the task, which must release as often as is accounted for."""
        self._spend()
        plan = self.schedule
        private = plan.step is not None
        gate = ReleaseGate(plan.multiplier, plan.adjacency, self.noise, private, exact=plan.exact)
        assert self.job.custom_step is not None
        diagnostics = self.job.custom_step(indices, gate)
        if private and gate.used != self._is_release():
            accounted = int(self._is_release())
            raise RuntimeError(
                f"step {self.steps_done + 1} released {gate.used} times and is accounted for {accounted} times"
            )
        return diagnostics

    def _gradient_step(self, indices: Indices, settings: str) -> Tensor:
        """Aggregate the gradients of some records, add noise and update the weights."""
        plan, noise = self.schedule, self.correlated or self.noise
        assert self.job.aggregate is not None
        private = plan.step is not None
        if self.job.divided:
            self._spend(settings)  # before any process has its part of the sum
            batch = self._accounted(self.job.aggregate(indices))
            diagnostics, places = batch.diagnostics, sharding.coordinates(self.weights)
            parts = add_noise(batch.total, plan.multiplier, noise, private=private, coordinates=places)
        else:
            batch = self._accounted(self.job.aggregate(distributed.own_share(indices)))
            self._spend(settings)  # a step whose loss failed has released nothing
            # one process adds the noise, to the sum of all processes: sums of noisy parts would leave the grid
            total = replace(batch.total, parts=distributed.all_reduce_sum(batch.total.parts))
            diagnostics = distributed.all_reduce_sum([batch.diagnostics])[0]
            further = batch.total.parts[len(self.weights) :]
            parts = [part.new_empty(part.shape) for part in (*self.weights, *further)]
            if distributed.is_main():
                parts = add_noise(total, plan.multiplier, noise, private=private, exact=plan.exact)
            parts = distributed.broadcast_tensors(parts)
            if self.job.adaptive is not None:
                parts = self.job.adaptive.detach(parts)
        torch._foreach_div_(parts, batch.divisor or max(float(diagnostics[0]), 1.0))
        mask = self._mask(parts)
        if mask:
            torch._foreach_mul_(parts, mask)
        if self.job.observe_distances is not None:
            self.distances.append(self.job.observe_distances(indices, mask).cpu())
        self._update_weights(parts)
        if private:
            spectral_norms.follow(self.job.model)
        return diagnostics

    def _accounted(self, batch: BatchGradient) -> BatchGradient:
        """Return the sum of a step, which must be the release that the schedule accounts for."""
        plan = self.schedule
        if plan.step is None:
            return batch
        if not self._is_release():
            raise RuntimeError(f"step {self.steps_done + 1} releases a sum and is accounted for 0 times")
        require_adjacency(batch.total, plan.adjacency)
        return batch

    def _update_weights(self, parts: list[Tensor]) -> None:
        self.before_update(parts)
        for weight, part in zip(self.weights, parts, strict=True):
            weight.grad = sharding.like(part, weight) if self.job.divided else part
        for optimizer in self.optimizers.values():
            optimizer.step()
        if self.job.scheduler is not None:
            self.job.scheduler.step()

    def _set_rates(self, lr: float | None) -> None:
        if self.job.scheduler is not None:
            if lr is not None:
                raise UsageError("the learning rate of a step is that of `scheduler`; leave `lr` or `scheduler` out")
            return
        factor = rate_factor(self.schedule.optimizer, self.steps_done, self.schedule.steps)
        for name, optimizer in self.optimizers.items():
            for group, rate in zip(optimizer.param_groups, self.rates[name], strict=True):
                group["lr"] = rate * factor if lr is None else lr

    def _mask(self, parts: list[Tensor]) -> list[Tensor]:
        """Return 1 for coordinates that are kept, else 0, the same for all pairs of a step; [] without a mask."""
        if not self.schedule.mask:
            return []
        return [(self.noise.uniform(p.numel()).view(p.shape) >= self.schedule.mask).to(p.dtype) for p in parts]

    def _row(self, epoch: int) -> Row:
        """Return the metrics of an epoch. Loss and clipped share are computed from training records without noise."""
        count, loss, clipped = self.diagnostics.tolist()
        self.diagnostics.zero_()
        means = {
            "loss": loss / count if count else None,
            "clipped": clipped / count if count and not math.isnan(clipped) else None,
        }
        with evaluating(self.job.model):
            figures = self.job.evaluate()
            if self.job.adaptive is not None:
                figures["clip_norm"] = self.job.adaptive.norm
            if self.steps_done == self.schedule.steps and self.job.conclude is not None:
                figures |= self.job.conclude()
            if self.average is not None:
                with self.average.in_use():
                    figures |= {AVERAGE_PREFIX + name: figure for name, figure in self.job.evaluate().items()}
        return {"epoch": epoch, "step": self.steps_done, **means, **figures}


def rate_factor(plan: Optimizer, step: int, steps: int) -> float:
    """Return the factor of the learning rate in the step that follows ``step`` finished ones, of ``steps`` in all.

    In a warm-up of w steps it rises linearly: 1/w in the first step, 1 in step w. Then it falls as the plan says, from
    1 to 0 over the other steps.
    """
    warmup = min(plan.warmup or 0, steps)
    if step < warmup:
        return (step + 1) / warmup
    share = (step - warmup) / (steps - warmup)
    return {"none": 1.0, "linear": 1.0 - share, "cosine": (1 + math.cos(math.pi * share)) / 2}[plan.decay]
