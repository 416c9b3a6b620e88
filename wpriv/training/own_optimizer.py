"""An optimizer and a learning-rate schedule of torch in place of those that a recipe names.

Both change the weights by noisy sums and public settings alone, which is post-processing: no choice of them costs
privacy, decoupled weight decay and averages included.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, OneCycleLR, ReduceLROnPlateau

from wpriv.errors import UsageError
from wpriv.training.tasks import _given

Make = Callable[[Sequence[nn.Parameter]], Optimizer]


@dataclass(frozen=True)
class OwnOptimizer:
    """The optimizer of a calling program, and its schedule.

    Args:
        optimizer: parameters -> optimizer, or an optimizer over the trained parameters.
        scheduler: optimizer -> schedule, a schedule over that optimizer, or None.
    """

    optimizer: Make | Optimizer
    scheduler: Callable[[Optimizer], LRScheduler] | LRScheduler | None

    def described(self) -> dict[str, str]:
        """Return the digests by which a recipe knows both."""
        parts = {"optimizer": self.optimizer, "scheduler": self.scheduler}
        return {key: _name(part) for key, part in parts.items() if part is not None}

    def rate(self, model: nn.Module) -> float:
        """Return the first learning rate, which the optimizer has on the parameters as they are.

        Raises:
            UsageError: as ``build``.
        """
        optimizer = self._optimizer([parameter for parameter in model.parameters() if parameter.requires_grad])
        return float(optimizer.param_groups[0].get("initial_lr", optimizer.param_groups[0]["lr"]))

    def build(self, weights: Sequence[nn.Parameter], steps: int = 0) -> tuple[Optimizer, LRScheduler | None]:
        """Return both for the trained weights, at their beginning.

        Raises:
            UsageError: one is none, needs a closure or a figure, is about other weights or another optimizer, fails on
                a gradient, or ends before the ``steps`` of the training.
        """
        optimizer = self._optimizer(weights)
        held = {id(weight) for group in optimizer.param_groups for weight in group["params"]}
        if held != {id(weight) for weight in weights}:
            raise UsageError(
                f"`optimizer` holds {len(held)} tensors, and the training has {len(weights)} trained ones, which must "
                f"be the same. Give a function: `lambda parameters: torch.optim.{type(optimizer).__name__}(parameters)`"
            )
        _require_a_step(optimizer)
        # what it noted in steps before this training, which may have been on these records
        optimizer.state.clear()
        schedule: object = self.scheduler
        if schedule is None:
            return optimizer, None
        schedule = schedule if isinstance(schedule, LRScheduler) else _called(schedule, optimizer, "scheduler")
        if not isinstance(schedule, LRScheduler) or isinstance(schedule, ReduceLROnPlateau):
            raise UsageError(
                f"`scheduler` must be a schedule of torch.optim.lr_scheduler that needs no figure, or a function of "
                f"the optimizer that gives one; found {type(schedule).__name__}. A rate that follows a public figure "
                f"is for `run.step(lr=...)` of wpriv.training_loop"
            )
        if schedule.optimizer is not optimizer:
            raise UsageError("`scheduler` is about another optimizer; give a function: `lambda optimizer: ...`")
        last = getattr(schedule, "total_steps", None)
        if isinstance(schedule, OneCycleLR) and isinstance(last, int) and last < steps:
            raise UsageError(
                f"`scheduler` ends after {last} steps, and the training has {steps}: give total_steps={steps}"
            )
        return optimizer, schedule

    def _optimizer(self, weights: Sequence[nn.Parameter]) -> Optimizer:
        """Return the optimizer, made for the weights where it is a function of them."""
        own = self.optimizer
        optimizer = own if isinstance(own, Optimizer) else _called(own, list(weights), "optimizer")
        if not isinstance(optimizer, Optimizer):
            raise UsageError(
                f"`optimizer` must be a name, a torch optimizer, or a function of the parameters that gives one, such "
                f"as `lambda parameters: torch.optim.RMSprop(parameters, lr=0.01)`; found {type(optimizer).__name__}"
            )
        if inspect.signature(optimizer.step).parameters["closure"].default is inspect.Parameter.empty:
            raise UsageError(
                f"`optimizer`: {type(optimizer).__name__} evaluates the loss several times in a step, by a closure, "
                f"and a step is one release. Take one that needs the gradient alone, such as torch.optim.Adam"
            )
        return optimizer


def of_keywords(optimizer: object, scheduler: object, lr: object) -> OwnOptimizer | None:
    """Return the optimizer of a calling program; None where its name or a mapping is given.

    Raises:
        UsageError: a learning rate stands beside it, or a schedule stands alone.
    """
    if optimizer is None or isinstance(optimizer, (str, Mapping)):
        if scheduler is not None:
            raise UsageError(
                "`scheduler` goes with an optimizer of torch: `optimizer=lambda parameters: "
                "torch.optim.SGD(parameters, lr=0.1)`. By name there are `optimizer={'name': 'sgd', 'decay': 'cosine', "
                "'warmup': 10}`"
            )
        name = optimizer.get("name") if isinstance(optimizer, Mapping) else optimizer
        if name == "given":
            raise UsageError("`optimizer`: given stands for one of a Python program: give the optimizer itself")
        return None
    if lr is not None:
        raise UsageError(f"`lr` is {lr}, and an optimizer of torch has its own: leave `lr` out")
    return OwnOptimizer(optimizer, scheduler)  # type: ignore[arg-type]  # both are checked where they are built


def _called(function: object, argument: object, name: str) -> object:
    """Return what a function makes of its argument; what is no function as it is."""
    if not callable(function):
        return function
    try:
        return function(argument)
    except (TypeError, ValueError) as error:
        raise UsageError(f"`{name}` fails on its one argument: {error}") from None


def _require_a_step(optimizer: Optimizer) -> None:
    """Refuse an optimizer of torch that cannot take a step with gradients like those of a training; it takes none."""
    if not type(optimizer).__module__.startswith("torch."):
        return
    trial = copy.deepcopy(optimizer)
    for group in trial.param_groups:
        for weight in group["params"]:
            weight.grad = torch.zeros_like(weight)
    try:
        trial.step()
    except (RuntimeError, ValueError, TypeError) as error:
        raise UsageError(f"`optimizer`: {type(optimizer).__name__} fails in a step of this training: {error}") from None


def _name(part: object) -> str:
    """Return a name of an optimizer or a schedule with a digest of its settings at the beginning."""
    if isinstance(part, Optimizer):
        groups = [
            {key: value for key, value in group.items() if key not in ("params", "initial_lr", "lr")}
            | {"lr": group.get("initial_lr", group["lr"])}
            for group in part.param_groups
        ]
        return f"{type(part).__name__} {_given.digest(groups)}"
    if isinstance(part, LRScheduler):
        return f"{type(part).__name__} {_given.digest(part.base_lrs)}"
    return _given.name_of(part)
