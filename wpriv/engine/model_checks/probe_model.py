"""Test on a few examples whether a model, in its present mode, lets one record influence another.

The influence of a record on a clipped sum is bounded only if its output, loss and gradient depend on that record alone
and the model keeps nothing of a batch: neither for the next batch nor in what is saved beside the noisy weights.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from wpriv.engine.clipping.common import Loss
from wpriv.engine.model_checks import model_state, tensor_agreement
from wpriv.engine.model_checks.model_pass import Pass, Probed, Scores, run_pass, trained_parameters
from wpriv.engine.model_checks.repeatable_draws import SameDraws, repeated
from wpriv.errors import Unsupported, UsageError

FAR = 1e3
"""The magnitude of the values of a record that is changed to be unlike all others."""
INSTEAD = "Make each record's output depend on that record alone, for example with nn.GroupNorm"


def probe(
    model: nn.Module,
    inputs: Tensor,
    targets: Tensor | None = None,
    *,
    loss: Loss | None = None,
    scores: Scores | None = None,
) -> None:
    """Refuse a model or a loss in which one record of a batch influences another, or the state that the model keeps.

    The test changes one record, leaves one out, and passes another batch before; then it compares the outputs of all
    modules, the losses and the gradients for the other records. Dropout is allowed: each pass begins from the same
    random numbers. The state of the model and of the global generators is restored. Mixing that a few examples do not
    show (only in large batches, for example) is not detected.

    Args:
        inputs: [B, ...] at least two examples as the model takes them, preferably made up.
        targets, loss: [B, ...] and (outputs, targets) -> losses [B]; without them only the outputs are tested.
        scores: outputs -> [B, d], further numbers of each record.
    Raises:
        Unsupported: records mix, or state is kept; the message names the module, the buffer or the attribute.
        UsageError: fewer than two examples, or a loss or scores of a wrong shape.
    """
    if len(inputs) < 2:
        raise UsageError("a probe needs at least two examples")
    probed = Probed(model, loss, scores)
    with model_state.kept(model), repeated(model), torch.enable_grad():
        _refuse_state(probed, inputs, targets)
        _refuse_mixing(probed, inputs, targets)
        _refuse_resizing(probed, inputs, targets)


def _refuse_state(probed: Probed, inputs: Tensor, targets: Tensor | None) -> None:
    """Refuse state that changes in a pass, and outputs that depend on the batch before."""
    model = probed.model
    others = _changed(inputs, targets)[0]
    with model_state.kept(model):
        before = model_state.buffers(model)
        first = run_pass(probed, inputs, targets)
        _refuse_change(model, model_state.changed(before, model_state.buffers(model)))
        attributes = model_state.attributes(model)
        run_pass(probed, *others)
        _refuse_change(model, model_state.changed(attributes, model_state.attributes(model)))
        again = run_pass(probed, inputs, targets)
    with model_state.kept(model):
        run_pass(probed, *others)
        _refuse_change(model, model_state.changed(attributes, model_state.attributes(model)))
        after_others = run_pass(probed, inputs, targets)
    for second in (again, after_others):
        place = _first_difference(
            first, second, lambda one, other: not tensor_agreement.near(one, other, tensor_agreement.exact(one))
        )
        if place is not None:
            raise Unsupported(
                f"{place} keeps state between calls: its output for a batch depends on the batch before. Let it depend "
                f"on the weights and the present batch alone"
            )


def _refuse_change(model: nn.Module, name: str | None) -> None:
    if name is None:
        return
    fault = f"{name} of the model changes in a forward pass in {mode(model)} mode"
    if name.startswith("the attribute"):
        raise Unsupported(f"{fault}, and so keeps data of the records. Compute it in each pass, and do not store it")
    raise Unsupported(f"{fault}, and is saved with the model without noise. Remove it, or keep it constant")


def _refuse_mixing(probed: Probed, inputs: Tensor, targets: Tensor | None) -> None:
    """Refuse outputs, losses and gradients of records that change with another record."""
    size = len(inputs)
    weights = torch.linspace(1.0, 2.0, size, device=inputs.device)
    weights[0] = 0.0
    with model_state.kept(probed.model):
        before = run_pass(probed, inputs, targets, weights)
    for place, (other, goals) in enumerate(_changed(inputs, targets)):
        try:
            with model_state.kept(probed.model):
                after = run_pass(probed, other, goals, weights)
        except (RuntimeError, ValueError, IndexError):
            if place == 0:
                raise
            continue  # the model does not accept such numbers

        def differs(one: Tensor, two: Tensor) -> bool:
            return tensor_agreement.differs(one, two, size, False)

        _refuse_difference(probed, before, after, differs, "changing one record changes")
        for (name, _), one, two in zip(trained_parameters(probed.model), before.gradient, after.gradient, strict=True):
            if bool(one.isfinite().all() & two.isfinite().all()) and not tensor_agreement.near(
                one, two, 4 * tensor_agreement.exact(one)
            ):
                raise Unsupported(
                    f"the gradient of {name!r} for a record depends on the other records of its batch, though the "
                    f"outputs do not. Check hooks and custom backward functions"
                )


def _refuse_resizing(probed: Probed, inputs: Tensor, targets: Tensor | None) -> None:
    """Refuse outputs and losses of records that change when another record is left out."""
    size = len(inputs)
    if size < 3:
        return
    with model_state.kept(probed.model), SameDraws(probed.model, size) as draws:
        full = run_pass(probed, inputs, targets)
    with model_state.kept(probed.model), SameDraws(probed.model, size - 1) as others:
        fewer = run_pass(probed, inputs[:-1], None if targets is None else targets[:-1])
    if not draws.unknown and not others.unknown:
        _refuse_difference(
            probed,
            full,
            fewer,
            lambda one, two: tensor_agreement.differs(one, two, size, True),
            "leaving one record out changes",
        )


def _refuse_difference(
    probed: Probed, before: Pass, after: Pass, differs: Callable[[Tensor, Tensor], bool], what: str
) -> None:
    place = _first_difference(before, after, differs)
    if place is not None:
        fault = f"{place} mixes the records of a batch in {mode(probed.model)} mode"
        raise Unsupported(f"{fault}: {what} its output for the others. {INSTEAD}")
    if before.readout is not None and after.readout is not None and differs(before.readout, after.readout):
        name = "the loss" if probed.scores is None else "the loss or the function of the scores"
        fault = f"{name} mixes the records of a batch: {what} it for the others"
        raise Unsupported(
            f"{fault}. Let it depend for each record on its own output and target alone, not on the size of the batch"
        )


def _first_difference(before: Pass, after: Pass, differs: Callable[[Tensor, Tensor], bool]) -> str | None:
    """Return the first module whose output differs, as 'name' (Kind)."""
    for (name, module, mine), (other, _, theirs) in zip(before.trace, after.trace, strict=False):
        if name != other:
            return None  # another order of calls: the modules cannot be compared
        if any(differs(one, two) for one, two in zip(mine, theirs, strict=False)):
            return named(name, module)
    return None


def named(name: str, module: nn.Module) -> str:
    """Return the name of a module in messages."""
    return f"{name or 'the model'!r} ({type(module).__name__})"


def mode(model: nn.Module) -> str:
    """Return the mode of a model in words."""
    return "training" if model.training else "evaluation"


def _changed(inputs: Tensor, targets: Tensor | None) -> list[tuple[Tensor, Tensor | None]]:
    """Return the batch with its first record replaced: by the last one, and by others unlike any of them."""
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
