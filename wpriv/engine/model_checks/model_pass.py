"""One recorded pass of a model on a batch: the outputs of its modules, a readout per record, and the gradient."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from wpriv.engine.clipping.common import Loss, losses_of
from wpriv.engine.model_checks import model_state
from wpriv.errors import Unsupported, UsageError

Scores = Callable[[Any], Tensor]


@dataclass(frozen=True)
class Probed:
    """A model with functions of its outputs: a loss per record, scores per record, either or neither."""

    model: nn.Module
    loss: Loss | None = None
    scores: Scores | None = None

    def readout(self, outputs: Any, targets: Tensor | None) -> Tensor | None:
        """Return numbers [B, k] of the records, whose gradient is taken; None if the outputs are not tensors [B, ...].

        Raises:
            UsageError: the loss or the scores do not give numbers for each record.
        """
        parts: list[Tensor] = []
        if self.loss is not None and targets is not None:
            parts.append(losses_of(outputs, targets, self.loss).unsqueeze(1))
        if self.scores is not None:
            scores = self.scores(outputs)
            if not isinstance(scores, Tensor):
                raise UsageError(
                    f"scores must be one tensor; found {type(scores).__name__}. "
                    f"Select what the penalty compares with scores="
                )
            parts.append(scores.reshape(len(scores), -1))
        if not parts:
            parts = [out.reshape(len(out), -1) for out in tensors(outputs) if out.dim() and out.is_floating_point()]
        return torch.cat(parts, dim=1) if parts and len({len(part) for part in parts}) == 1 else None

    def combined(self, outputs: Any, targets: Tensor) -> Tensor:
        """Return one number [B] per record that depends on its loss and on all its scores.

        Args:
            targets: [B, ...] of the loss; without a loss their numbers do not matter.
        """
        numbers = self.readout(outputs, targets)
        if numbers is None:
            raise Unsupported("the outputs of the model are not tensors with the records in the first dimension")
        return numbers @ torch.linspace(1.0, 1.5, numbers.shape[1], device=numbers.device, dtype=numbers.dtype)


@dataclass(frozen=True)
class Pass:
    """A pass: the outputs of the modules in order, the readout [B, k] or None, and the gradient of its weighted sum."""

    trace: list[tuple[str, nn.Module, list[Tensor]]]
    readout: Tensor | None
    gradient: list[Tensor]


def tensors(outputs: Any) -> list[Tensor]:
    """Return the tensors in the output of a module, which may be a nested container."""
    if isinstance(outputs, Tensor):
        return [outputs]
    if isinstance(outputs, dict):
        return [tensor for item in outputs.values() for tensor in tensors(item)]
    if isinstance(outputs, (list, tuple)):
        return [tensor for item in outputs for tensor in tensors(item)]
    if hasattr(outputs, "__dataclass_fields__"):
        return [tensor for item in vars(outputs).values() for tensor in tensors(item)]
    return []


def forward_pass(probed: Probed, inputs: Tensor, targets: Tensor | None, traced: bool = True) -> Pass:
    """Run one forward pass; the gradient is left out, and without ``traced`` the outputs of the modules too."""
    result = _forward(probed, inputs, targets, traced)
    return result if result.readout is None else replace(result, readout=result.readout.detach())


def _forward(probed: Probed, inputs: Tensor, targets: Tensor | None, traced: bool = True) -> Pass:
    """Run one forward pass, whose readout is in the graph."""
    model = probed.model
    trace: list[tuple[str, nn.Module, list[Tensor]]] = []

    def hook(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def record(module: nn.Module, args: Any, output: Any) -> None:
            trace.append((name, module, [tensor.detach().clone() for tensor in tensors(output)]))

        return record

    handles = [module.register_forward_hook(hook(name)) for name, module in model.named_modules() if traced]
    try:
        outputs = model(inputs)
    finally:
        for handle in handles:
            handle.remove()
    return Pass(trace, probed.readout(outputs, targets), [])


def run_pass(probed: Probed, inputs: Tensor, targets: Tensor | None, weights: Tensor | None = None) -> Pass:
    """Run one forward pass and, where parameters are trained, one backward pass."""
    model, forward = probed.model, _forward(probed, inputs, targets)
    trace, readout = forward.trace, forward.readout
    trained = [parameter for _, parameter in trained_parameters(model)]
    if readout is None or not readout.requires_grad or not trained:
        return Pass(trace, None if readout is None else readout.detach(), [])
    _refuse_unregistered(model, readout)
    rows = torch.ones(len(readout), device=readout.device) if weights is None else weights
    columns = torch.linspace(1.0, 1.5, readout.shape[1], device=readout.device, dtype=readout.dtype)
    objective = (readout * columns).sum(dim=1) @ rows.to(readout.dtype)
    try:
        gradient = torch.autograd.grad(objective, trained, allow_unused=True, materialize_grads=True)
    except RuntimeError as error:
        reason = str(error).strip().partition("\n")[0]
        raise Unsupported(
            f"the gradient of the weights cannot be computed ({reason}). Compute everything that depends on the "
            f"weights in each pass; with activation checkpointing use use_reentrant=False"
        ) from error
    return Pass(trace, readout.detach(), [part.to_dense() if part.is_sparse else part for part in gradient])


def trained_parameters(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    return [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]


def _refuse_unregistered(model: nn.Module, readout: Tensor) -> None:
    """Refuse a tensor that requires a gradient and is used, but is no parameter and would not be trained."""
    registered = set(model.parameters())
    visited: set[Any] = set()
    pending = [readout.grad_fn]
    while pending:
        node = pending.pop()
        if node is None or node in visited:
            continue
        visited.add(node)
        pending += [follower for follower, _ in node.next_functions]
        variable = getattr(node, "variable", None)
        if variable is not None and variable not in registered:
            name = model_state.unregistered(model).get(variable, f"a tensor of shape {tuple(variable.shape)}")
            raise Unsupported(
                f"{name} requires a gradient and is used for the output or the loss, but is no parameter of the model. "
                f"Register it as nn.Parameter, or set its requires_grad to False"
            )
