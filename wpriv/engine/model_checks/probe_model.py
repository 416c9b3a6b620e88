"""Try a model on a few examples, in its present mode: does anything that concerns one record depend on another record?

A record's influence on a clipped sum is bounded only where its output, its loss and its gradient depend on that record alone, and
where the model keeps nothing of a batch: neither for the next batch nor in what is saved beside the noisy weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from wpriv.engine.clipping.common import Loss, losses_of
from wpriv.engine.model_checks import model_state, tensor_agreement
from wpriv.engine.model_checks.repeatable_draws import SameDraws, repeated
from wpriv.errors import Unsupported, UsageError

Scores = Callable[[Any], Tensor]
FAR = 1e3
"""The size of the numbers of a changed record that is unlike all others."""
INSTEAD = "Make each record's output depend on that record alone, for example with nn.GroupNorm"


@dataclass(frozen=True)
class Probed:
    """A model with what is computed from its outputs: a loss of each record, scores of each record, either or neither."""

    model: nn.Module
    loss: Loss | None = None
    scores: Scores | None = None

    def readout(self, outputs: Any, targets: Tensor | None) -> Tensor | None:
        """Numbers [B, k] of the records, through which the weights get their gradient; None where the outputs are not tensors [B, ...].

        Raises:
            UsageError: the loss or the scores do not give numbers for each record.
        """
        parts: list[Tensor] = []
        if self.loss is not None and targets is not None:
            parts.append(losses_of(outputs, targets, self.loss).unsqueeze(1))
        if self.scores is not None:
            scores = self.scores(outputs)
            if not isinstance(scores, Tensor):
                fault = "say with scores= what of it the penalty compares"
                raise UsageError(f"the model gives {type(scores).__name__}, not one tensor; {fault}")
            parts.append(scores.reshape(len(scores), -1))
        if not parts:
            parts = [out.reshape(len(out), -1) for out in tensors(outputs) if out.dim() and out.is_floating_point()]
        return torch.cat(parts, dim=1) if parts and len({len(part) for part in parts}) == 1 else None


@dataclass(frozen=True)
class _Pass:
    """One pass: the outputs of modules as they finish, the readout [B, k] or None, and the gradient of its weighted sum."""

    trace: list[tuple[str, nn.Module, list[Tensor]]]
    readout: Tensor | None
    gradient: list[Tensor]


def probe(
    model: nn.Module,
    inputs: Tensor,
    targets: Tensor | None = None,
    *,
    loss: Loss | None = None,
    scores: Scores | None = None,
) -> None:
    """Refuse a model or a loss in which one record of a batch can be seen in what belongs to another, or in what the model keeps.

    Changes one record, leaves one out, and passes another batch before; then compares the outputs of all modules, the losses and the
    gradients for the other records. Dropout is allowed: each pass begins from the same random numbers. The model's state and the global
    generators are as before afterwards. What a few examples do not show (mixing in large batches alone, say) is not found.

    Args:
        inputs: [B, ...] at least two examples as the model takes them, best made up.
        targets, loss: [B, ...] and (outputs, targets) -> losses [B]; without them the outputs alone are tried.
        scores: outputs -> [B, d], further numbers of each record.
    Raises:
        Unsupported: records mix, or something is kept; the message names the module, the buffer or the attribute.
        UsageError: fewer than two examples, or a loss or scores of a wrong shape.
    """
    if len(inputs) < 2:
        raise UsageError("a probe needs at least two examples")
    probed = Probed(model, loss, scores)
    with model_state.kept(model), repeated(model), torch.enable_grad():
        _refuse_state(probed, inputs, targets)
        _refuse_mixing(probed, inputs, targets)
        _refuse_resizing(probed, inputs, targets)


def tensors(outputs: Any) -> list[Tensor]:
    """The tensors in the output of a module, of whatever containers it is made."""
    if isinstance(outputs, Tensor):
        return [outputs]
    if isinstance(outputs, dict):
        return [tensor for item in outputs.values() for tensor in tensors(item)]
    if isinstance(outputs, (list, tuple)):
        return [tensor for item in outputs for tensor in tensors(item)]
    if hasattr(outputs, "__dataclass_fields__"):
        return [tensor for item in vars(outputs).values() for tensor in tensors(item)]
    return []


def _refuse_state(probed: Probed, inputs: Tensor, targets: Tensor | None) -> None:
    """Refuse what moves in a pass, and outputs that depend on the batch before."""
    model = probed.model
    others = _changed(inputs, targets)[0]
    with model_state.kept(model):
        before = model_state.buffers(model)
        first = _pass(probed, inputs, targets)
        _refuse_moved(model, model_state.changed(before, model_state.buffers(model)))
        attributes = model_state.attributes(model)
        _pass(probed, *others)
        _refuse_moved(model, model_state.changed(attributes, model_state.attributes(model)))
        again = _pass(probed, inputs, targets)
    with model_state.kept(model):
        _pass(probed, *others)
        _refuse_moved(model, model_state.changed(attributes, model_state.attributes(model)))
        after_others = _pass(probed, inputs, targets)
    for second in (again, after_others):
        place = _first_difference(
            first, second, lambda one, other: not tensor_agreement.near(one, other, tensor_agreement.exact(one))
        )
        if place is not None:
            raise Unsupported(
                f"{place} keeps something from call to call: for the same batch it gives something else after another batch. Let its "
                f"output depend on the weights and the present batch alone"
            )


def _refuse_moved(model: nn.Module, name: str | None) -> None:
    if name is None:
        return
    fault = f"{name} of the model changes in a forward pass in {mode(model)} mode"
    if name.startswith("the attribute"):
        raise Unsupported(
            f"{fault}, and so keeps something of the records for later. Compute it anew in each pass, and do not keep it"
        )
    why = "it is saved with the model without noise, so that records could be read from it"
    raise Unsupported(f"{fault}: {why}. Leave it out, or let it stay as it was first")


def _refuse_mixing(probed: Probed, inputs: Tensor, targets: Tensor | None) -> None:
    """Refuse outputs, losses and gradients of some records that change with another record."""
    size = len(inputs)
    weights = torch.linspace(1.0, 2.0, size, device=inputs.device)
    weights[0] = 0.0
    with model_state.kept(probed.model):
        before = _pass(probed, inputs, targets, weights)
    for place, (other, goals) in enumerate(_changed(inputs, targets)):
        try:
            with model_state.kept(probed.model):
                after = _pass(probed, other, goals, weights)
        except (RuntimeError, ValueError, IndexError):
            if place == 0:
                raise
            continue  # numbers that the model does not take tell nothing

        def differs(one: Tensor, two: Tensor) -> bool:
            return tensor_agreement.differs(one, two, size, False)

        _refuse_difference(probed, before, after, differs, "changing one record changes")
        for (name, _), one, two in zip(_trained(probed.model), before.gradient, after.gradient, strict=True):
            if bool(one.isfinite().all() & two.isfinite().all()) and not tensor_agreement.near(
                one, two, 4 * tensor_agreement.exact(one)
            ):
                raise Unsupported(
                    f"the gradient of {name!r} for a record depends on the other records of its batch, though the outputs do not: look at "
                    f"hooks and backward functions of one's own"
                )


def _refuse_resizing(probed: Probed, inputs: Tensor, targets: Tensor | None) -> None:
    """Refuse outputs and losses of records that change when another record is left out of the batch."""
    size = len(inputs)
    if size < 3:
        return
    with model_state.kept(probed.model), SameDraws(probed.model, size) as draws:
        whole = _pass(probed, inputs, targets)
    with model_state.kept(probed.model), SameDraws(probed.model, size - 1) as others:
        fewer = _pass(probed, inputs[:-1], None if targets is None else targets[:-1])
    if not draws.unknown and not others.unknown:
        _refuse_difference(
            probed,
            whole,
            fewer,
            lambda one, two: tensor_agreement.differs(one, two, size, True),
            "leaving one record out changes",
        )


def _refuse_difference(
    probed: Probed, before: _Pass, after: _Pass, differs: Callable[[Tensor, Tensor], bool], what: str
) -> None:
    place = _first_difference(before, after, differs)
    if place is not None:
        fault = f"{place} mixes the records of a batch in {mode(probed.model)} mode"
        raise Unsupported(f"{fault}: {what} its output for the others. {INSTEAD}")
    if before.readout is not None and after.readout is not None and differs(before.readout, after.readout):
        name = "the loss" if probed.scores is None else "the loss or the function of the scores"
        fault = f"{name} mixes the records of a batch: {what} it for the others"
        raise Unsupported(
            f"{fault}. Let it depend for each record on its own output and target alone, and not on the size of the batch"
        )


def _first_difference(before: _Pass, after: _Pass, differs: Callable[[Tensor, Tensor], bool]) -> str | None:
    """The first module whose output differs, as 'name' (Kind)."""
    for (name, module, mine), (other, _, theirs) in zip(before.trace, after.trace, strict=False):
        if name != other:
            return None  # another order of calls: the modules cannot be compared one by one
        if any(differs(one, two) for one, two in zip(mine, theirs, strict=False)):
            return named(name, module)
    return None


def named(name: str, module: nn.Module) -> str:
    """A module as messages call it."""
    return f"{name or 'the model'!r} ({type(module).__name__})"


def mode(model: nn.Module) -> str:
    """The mode of a model in words."""
    return "training" if model.training else "evaluation"


def _pass(probed: Probed, inputs: Tensor, targets: Tensor | None, weights: Tensor | None = None) -> _Pass:
    """One pass forward and, where something is trained, back."""
    model = probed.model
    trace: list[tuple[str, nn.Module, list[Tensor]]] = []

    def hook(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def keep(module: nn.Module, args: Any, output: Any) -> None:
            trace.append((name, module, [tensor.detach().clone() for tensor in tensors(output)]))

        return keep

    handles = [module.register_forward_hook(hook(name)) for name, module in model.named_modules()]
    try:
        outputs = model(inputs)
    finally:
        for handle in handles:
            handle.remove()
    readout = probed.readout(outputs, targets)
    trained = [parameter for _, parameter in _trained(model)]
    if readout is None or not readout.requires_grad or not trained:
        return _Pass(trace, None if readout is None else readout.detach(), [])
    _refuse_unregistered(model, readout)
    rows = torch.ones(len(readout), device=readout.device) if weights is None else weights
    columns = torch.linspace(1.0, 1.5, readout.shape[1], device=readout.device, dtype=readout.dtype)
    objective = (readout * columns).sum(dim=1) @ rows.to(readout.dtype)
    try:
        gradient = torch.autograd.grad(objective, trained, allow_unused=True, materialize_grads=True)
    except RuntimeError as error:
        reason = str(error).strip().partition("\n")[0]
        fault = f"the gradient of the weights cannot be taken ({reason})"
        how = "Compute all that depends on the weights anew in each pass; with activation checkpointing give use_reentrant=False"
        raise Unsupported(f"{fault}. {how}") from error
    return _Pass(trace, readout.detach(), [part.to_dense() if part.is_sparse else part for part in gradient])


def _trained(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    return [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]


def _refuse_unregistered(model: nn.Module, readout: Tensor) -> None:
    """Refuse a tensor that requires a gradient, takes part, and is no parameter of the model: nothing would train or release it."""
    registered = set(model.parameters())
    seen: set[Any] = set()
    waiting = [readout.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        waiting += [follower for follower, _ in node.next_functions]
        variable = getattr(node, "variable", None)
        if variable is not None and variable not in registered:
            name = model_state.unregistered(model).get(variable, f"a tensor of shape {tuple(variable.shape)}")
            fault = (
                f"{name} requires a gradient and takes part in the output or the loss, but is no parameter of the model"
            )
            raise Unsupported(
                f"{fault}, so that it is not trained. Register it as nn.Parameter, or switch its requires_grad off"
            )


def _changed(inputs: Tensor, targets: Tensor | None) -> list[tuple[Tensor, Tensor | None]]:
    """The batch with its first record replaced: by the last one, and by others unlike any of them."""
    goals = None if targets is None else targets.clone()
    if goals is not None:
        goals[0] = goals[-1]
    like = inputs.clone()
    like[0] = inputs[-1]
    if not inputs.is_floating_point():
        return [(like, goals)]
    batches = [(like, goals)]
    for far in (FAR, -FAR):
        other = inputs.clone()
        other[0] = far * (1 + inputs[-1])
        batches.append((other, goals))
    return batches
