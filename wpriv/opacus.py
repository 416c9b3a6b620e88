"""wpriv inside Opacus: the accountant of ``PrivacyEngine(accountant="wpriv")``, and a ledger of noisy steps.

Importing this module registers the accountant. It needs the extra ``opacus``. docs/guides/opacus.md has programs.
"""

from __future__ import annotations

import contextlib
import functools
import json
import secrets
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

from wpriv.errors import Unsupported, UsageError, lacking

try:
    import opacus
    from opacus.accountants import IAccountant, register_accountant
    from opacus.optimizers import DPOptimizer
except ImportError as error:
    raise lacking(error.name or "opacus", "wpriv.opacus") from None

from wpriv.accounting import evaluate, ledger
from wpriv.accounting.mechanisms.gauss import Gauss
from wpriv.core.kinds import Adjacency, Sampling
from wpriv.core.process import Process, Step
from wpriv.files import durable_writes
from wpriv.numerics.numbers import finite_number, positive_number, shown
from wpriv.results import storage
from wpriv.training import own_training

Hook = Callable[[DPOptimizer], None]
NAME, ACCOUNTANT, TOL = "wpriv", "pld", 1e-4
# rate, number of steps and divisor of an engine follow from the number of records, which is the same for both
# neighbours; the figures are those of add-remove as well
ADJACENCY = Adjacency.ZERO_OUT
NO_STEP = (
    "no step was recorded: the optimizer that steps is not the one that `make_private` returned, or nothing was trained"
)


def _release(noise_multiplier: object, sample_rate: object, steps: object = 1) -> Step:
    """Equal steps as accounted; a UsageError where no finite eps holds for them."""
    noise = finite_number(noise_multiplier, "`noise_multiplier`")
    if noise <= 0:
        raise UsageError(
            f"`noise_multiplier` must be above 0, since no finite eps holds for a step without noise; found "
            f"{shown(noise_multiplier)}"
        )
    rate = finite_number(sample_rate, "`sample_rate`")
    if not 0 < rate <= 1:
        raise UsageError(
            f"`sample_rate` is the probability that a record joins a step, above 0 and at most 1; found "
            f"{shown(sample_rate)}. Accumulated batches add up: take fewer of them, or a smaller rate"
        )
    sampling = Sampling("poisson", rate) if rate < 1 else Sampling()
    return Step(Gauss(noise, 1.0), finite_number(steps, "steps", whole=True), sampling)


class WprivAccountant(IAccountant):  # type: ignore[misc]  # no types are installed with opacus for mypy
    """The accountant ``wpriv`` of Opacus: the certified upper end of eps for Poisson-sampled steps.

    The figure holds for zero-out neighbours, where the number of records is public, and for add-remove. It assumes
    Poisson sampling, which ``make_private(poisson_sampling=False)`` does not have; ``wpriv check`` looks at that.
    History, ``state_dict`` and checkpoints are as those of the other accountants.
    """

    def __init__(self) -> None:
        self.history: list[tuple[float, float, int]] = []

    def step(self, *, noise_multiplier: float, sample_rate: float) -> None:
        """Record a step; one like the step before is counted with it.

        Raises:
            UsageError: no noise, or a rate outside (0, 1].
        """
        _release(noise_multiplier, sample_rate)
        count = 1
        if self.history and tuple(self.history[-1][:2]) == (noise_multiplier, sample_rate):
            count += self.history.pop()[2]
        self.history.append((noise_multiplier, sample_rate, count))

    def get_epsilon(self, delta: float, *args: object, tol: float = TOL, **others: object) -> float:
        """The eps of all recorded steps at delta; inf where none was found.

        Args:
            delta: above 0 and below 1. tol: relative width asked of the bracket whose upper end is returned, 1e-9 to
                0.5. args, others: of other accountants, such as ``eps_error``, which are not used.
        Raises:
            UsageError: no step was recorded, or a number is out of range.
        """
        limit = finite_number(delta, "`delta`")
        if not 0 < limit < 1:
            raise UsageError(
                f"`delta` must be above 0 and below 1 (at 0 no finite eps holds for Gaussian noise); found "
                f"{shown(delta)}"
            )
        curve = evaluate.curve(self._process(), ACCOUNTANT, tol)
        return float(curve.at(delta=limit).epsilon.safe)

    def _process(self) -> Process:
        """The process of the history, with equal steps merged."""
        counts: dict[tuple[float, float], int] = {}
        for entry in self.history:
            if not isinstance(entry, tuple | list) or len(entry) != 3:
                raise UsageError(
                    f"the history has entries (noise_multiplier, sample_rate, steps); found {shown(entry)}"
                )
            noise, rate, steps = entry
            counts[noise, rate] = counts.get((noise, rate), 0) + steps
        if not counts:
            raise UsageError(NO_STEP)
        return Process(tuple(_release(*which, steps) for which, steps in counts.items()), ADJACENCY)

    def __len__(self) -> int:
        return sum(steps for _, _, steps in self.history)

    @classmethod
    def mechanism(cls) -> str:
        """The name under which Opacus knows the accountant."""
        return NAME


def register() -> None:
    """Let Opacus know the accountant ``wpriv``; importing this module does so already."""
    register_accountant(NAME, WprivAccountant, force=True)


register()


class StepLedger:
    """The ledger of a training by Opacus: one line for each noisy step, on disk before the weights change.

    The hook of an optimizer that counts for the accountant of its engine is kept, and called after the line is written.
    ``wpriv budget --history`` reads the folder, also after a crash. A folder with lines is continued: all runs count.

    Args:
        optimizers: the DPOptimizers, also as another framework has wrapped them.
        steps: number of noisy steps that are planned, of all optimizers together; one more is refused.
        out: folder of the ledger, by default ``results/opacus``, with a number if it exists.
        sample_rate: probability that a record joins a batch, by default that of the engine.
        after: number of steps before, where a training is resumed; the folder must hold them.
    Raises:
        UsageError: an optimizer is no DPOptimizer, has a ledger or no known rate; a number is out of range; the folder
            is in use. Unsupported: several processes take a step together.
    """

    def __init__(
        self,
        *optimizers: Any,
        steps: int,
        out: str | Path | None = None,
        sample_rate: float | None = None,
        after: int = 0,
    ):
        planned = positive_number(steps, "`steps`, the number of noisy steps,", whole=True)
        if not optimizers:
            raise UsageError("a ledger needs the DPOptimizer whose steps it holds; found none")
        private = [(each, _rate_of(each, sample_rate)) for each in map(_checked, optimizers)]
        self.out = own_training.free_folder("opacus") if out is None else Path(out)
        path = self.out / storage.LEDGER
        busy = f"another training writes to {self.out}. Give another `out`, or end that one first"
        with contextlib.ExitStack() as stack:
            stack.enter_context(durable_writes.locked(self.out / durable_writes.LOCK, busy))
            run = ledger.last_run(ledger.entries(path)) + 1
            if after and run == 1:
                raise UsageError(
                    f"the training goes on after {after} steps, and {self.out} holds none of them. Give the folder of "
                    f"their ledger as `out`, or begin anew"
                )
            self._ledger = ledger.Ledger(path, run, planned, adjacency=ADJACENCY, stream=secrets.token_hex(8))
            stack.callback(self._ledger.close)
            self._write_position()
            # the folder is free again when this object is gone
            self._free = weakref.finalize(self, stack.pop_all().close)
        self._hooks = [(each, self._attach(each, rate), each.step_hook) for each, rate in private]
        for optimizer, hook, _ in self._hooks:
            optimizer.attach_step_hook(hook)

    def _write_position(self) -> None:
        """Note how long the ledger is, which tells one that is cut short from one of a training that ended early."""
        stated = {"trained_by": f"opacus {opacus.__version__}", "ledger": self._ledger.position().as_dict()}
        durable_writes.replace(self.out / storage.STATEMENT, json.dumps(stated, indent=1) + "\n")

    def _attach(self, optimizer: DPOptimizer, rate: float) -> Hook:
        """Return a hook that writes a line, and calls the present one after it."""
        previous = optimizer.step_hook

        def hook(stepping: DPOptimizer) -> None:
            self._write(stepping.noise_multiplier, rate * stepping.accumulated_iterations)
            if previous is not None:
                previous(stepping)

        if previous is not None:
            functools.update_wrapper(hook, previous)  # ``inspect.unwrap`` finds the hook of the engine
        hook.of_ledger = self  # type: ignore[attr-defined]
        return hook

    def _write(self, noise_multiplier: float, sample_rate: float) -> None:
        book = self._ledger
        if book.steps >= book.planned:
            raise UsageError(
                f"all {book.planned} planned steps are in {book.path}, and the optimizer takes one more. Give `steps` "
                f"as many as it takes"
            )
        book.spend(book.steps + 1, _release(noise_multiplier, sample_rate))
        book.force()

    def close(self) -> None:
        """Note the end of the ledger, and leave the optimizers their own hooks."""
        if not self._free.alive:
            return
        for optimizer, hook, previous in self._hooks:
            if optimizer.step_hook is hook:
                optimizer.attach_step_hook(previous)
        self._write_position()
        self._free()


def _innermost(optimizer: Any) -> Any:
    """The optimizer that other frameworks have wrapped."""
    while not isinstance(optimizer, DPOptimizer):
        inner = getattr(optimizer, "optimizer", None) or getattr(optimizer, "_optimizer", None)
        if inner is None:
            return optimizer
        optimizer = inner
    return optimizer


def is_private(optimizer: Any) -> bool:
    """Tell whether an optimizer, also as another framework has wrapped it, is a DPOptimizer."""
    return isinstance(_innermost(optimizer), DPOptimizer)


def _checked(optimizer: Any) -> DPOptimizer:
    """The DPOptimizer of an optimizer, after refusing what a ledger cannot hold."""
    inner = _innermost(optimizer)
    if not isinstance(inner, DPOptimizer):
        raise UsageError(
            f"the optimizer that steps is {type(inner).__name__} and no DPOptimizer, so that its steps have no noise. "
            f"Give the one that `make_private` returned"
        )
    if getattr(inner, "world_size", 1) > 1:
        raise Unsupported(f"{inner.world_size} processes take one step together; keep the ledger on one device")
    if hasattr(inner.step_hook, "of_ledger"):
        raise UsageError("the optimizer writes to a ledger already, and each step is one line")
    return inner


def _rate_of(optimizer: DPOptimizer, given: float | None) -> float:
    """The sampling rate of a batch: that of the engine's hook, which must be the given one if both are known."""
    hook = optimizer.step_hook
    names = getattr(getattr(hook, "__code__", None), "co_freevars", ())
    cells = dict(zip(names, getattr(hook, "__closure__", None) or (), strict=False))
    rate = cells["sample_rate"].cell_contents if "sample_rate" in cells else given
    if rate is None:
        raise UsageError("the optimizer has no hook of a PrivacyEngine, which knows the rate; give `sample_rate`")
    if given not in (None, rate):
        raise UsageError(f"`sample_rate` is {shown(given)}, and the engine accounts for {rate:g}; leave it out")
    return float(_release(optimizer.noise_multiplier, rate).sampling.rate)
