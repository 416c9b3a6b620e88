"""The loss of each record by itself, from a loss of torch.nn.

It is the value of torch's loss on a batch that holds this record alone: the mean over its outputs that count, or their
sum, as ``reduction`` says. With one exception: class weights multiply the loss and are not divided out, since in the
weighted mean of torch over a single record they would cancel. A record of which nothing counts (``ignore_index``) has
loss 0.
"""

from __future__ import annotations

import copy
import functools
import inspect
import weakref
from typing import TYPE_CHECKING, Any

from wpriv.errors import UsageError
from wpriv.training.data._dataset import IGNORED

if TYPE_CHECKING:
    from torch import Tensor, nn

    from wpriv.training.clipping.example_gradients import Loss

# losses of torch.nn that compare each output with the target in its place
ELEMENTWISE = (
    *("MSELoss", "L1Loss", "SmoothL1Loss", "HuberLoss", "BCELoss", "BCEWithLogitsLoss", "PoissonNLLLoss", "KLDivLoss"),
    *("SoftMarginLoss", "HingeEmbeddingLoss", "MultiLabelSoftMarginLoss"),
)
# losses of torch.nn whose whole targets are the places of outputs
OF_CLASSES = ("CrossEntropyLoss", "NLLLoss", "MultiMarginLoss")
BINARY = ("BCELoss", "BCEWithLogitsLoss")


def targets_of(loss: object) -> str:
    """Return the targets of a loss, as ``wpriv.train`` and recipes take it.

    Returns:
        ``classes``: whole targets are the places of outputs; ``shares``: numbers from 0 to 1; ``numbers``; or
        ``unknown`` for functions.
    """
    if loss is None or (isinstance(loss, str) and loss == "cross-entropy") or _is_one_of(loss, OF_CLASSES):
        return "classes"
    if (isinstance(loss, str) and loss == "binary-cross-entropy") or _is_one_of(loss, BINARY):
        return "shares"
    return "numbers" if (isinstance(loss, str) and loss != "given") or _is_one_of(loss, ELEMENTWISE) else "unknown"


def link_of(loss: object) -> str:
    """Return what turns outputs of a network into probabilities of classes: ``softmax``, ``sigmoid`` or ``none``."""
    if _is_one_of(loss, ("BCELoss",)):
        return "none"
    return "sigmoid" if targets_of(loss) == "shares" else "softmax"


def ignored_label(loss: object) -> int | None:
    """The label that a loss leaves out: ``ignore_index``, that of cross-entropy and functions, or None."""
    if hasattr(loss, "ignore_index"):
        return int(loss.ignore_index)
    none = targets_of(loss) in ("shares", "numbers") or _is_one_of(loss, ("MultiMarginLoss",))
    return None if none else IGNORED


# one function for each loss, so that what was found out about it is found again
_of_modules: weakref.WeakKeyDictionary[nn.Module, tuple[str, Loss]] = weakref.WeakKeyDictionary()


def per_record(loss: Any) -> Loss:
    """Return the loss of each record: a function as it is, a module of torch.nn by its ``reduction``."""
    from torch import nn

    if not isinstance(loss, nn.Module) or not hasattr(loss, "reduction"):
        function: Loss = loss
        return function
    reduction, known = str(loss.reduction), _of_modules.get(loss)
    if known is None or known[0] != reduction:
        known = _of_modules[loss] = reduction, _of_module(loss)
    return known[1]


def _of_module(loss: nn.Module) -> Loss:
    """Return the loss of each record from a module of torch.nn with a ``reduction``."""
    needed = [
        name
        for name, parameter in inspect.signature(loss.forward).parameters.items()
        if parameter.default is inspect.Parameter.empty and parameter.kind is not inspect.Parameter.VAR_KEYWORD
    ]
    if len(needed) != 2:
        raise UsageError(
            f"`loss`: {type(loss).__name__} takes {', '.join(needed)}, and a record has outputs and a target. Write a "
            f"function (outputs, targets) -> losses [B] that calls it with their parts and reduction='none'"
        )
    each = copy.copy(loss)
    each.reduction = "none"  # type: ignore[assignment]  # of a loss it is text
    return functools.partial(_loss_of_each, each, str(loss.reduction))


def logits_of(outputs: Any) -> Any:
    """Return the logits of a model of transformers, and other outputs as they are."""
    return getattr(outputs, "logits", outputs)


def _loss_of_each(loss: nn.Module, reduction: str, outputs: Any, targets: Tensor) -> Tensor:
    """The losses [B] of a module that gives a loss for each output, by the reduction that it had."""
    outputs = logits_of(outputs)
    if _is_one_of(loss, OF_CLASSES):
        outputs = _classes_second(outputs, targets)
    if _is_one_of(loss, ELEMENTWISE):
        targets = _in_place(loss, outputs, targets)
        _require_no_weights_of_records(loss, outputs)
    values: Tensor = loss(outputs, targets)
    if values.dim() < 2:
        return values
    rows = values.flatten(1)
    if reduction == "none" and rows.shape[1] > 1:
        raise UsageError(
            f"`loss`: {type(loss).__name__} with reduction='none' gives {rows.shape[1]} numbers for each record, and a "
            f"record has one loss. Give reduction='mean' or 'sum', which is taken over the outputs of each record"
        )
    return rows.sum(dim=1) if reduction != "mean" else rows.sum(dim=1) / _counted(loss, rows, targets)


def _classes_second(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return outputs [B, K, ...] as torch takes them, from [B, ..., K] where they can only have that form."""
    places = targets.shape[1:]
    last = not targets.is_floating_point() and len(places) > 0 and outputs.shape[1:-1] == places
    return outputs.movedim(-1, 1) if last and outputs.shape[2:] != places else outputs


def _counted(loss: object, rows: Tensor, targets: Tensor) -> Tensor | int:
    """The number of outputs of each record that count, at least 1."""
    ignored = getattr(loss, "ignore_index", None)
    if ignored is None or targets.is_floating_point():
        return rows.shape[1]
    counted: Tensor = (targets.flatten(1) != ignored).sum(dim=1).clamp(min=1)
    return counted


def _in_place(loss: object, outputs: Tensor, targets: Tensor) -> Tensor:
    """Return targets in the shape of the outputs; torch would compare each output with the targets of other records."""
    if outputs.shape == targets.shape:
        return targets
    if [side for side in outputs.shape[1:] if side != 1] == [side for side in targets.shape[1:] if side != 1]:
        return targets.to(outputs.dtype).reshape(outputs.shape)
    raise UsageError(
        f"the loss {type(loss).__name__} compares outputs and targets of one shape; found {list(outputs.shape)} "
        f"and {list(targets.shape)}. Give the network one output for each number of a target"
    )


def _require_no_weights_of_records(loss: object, outputs: Tensor) -> None:
    """Refuse weights for the places of records in a batch: records are drawn at random, and their number varies."""
    for name in ("weight", "pos_weight"):
        weight = getattr(loss, name, None)
        if weight is not None and weight.dim() >= outputs.dim() and weight.shape[0] > 1:
            raise UsageError(
                f"`loss`: `{name}` of {type(loss).__name__}, {list(weight.shape)}, has a number for each record of a "
                f"batch, and records are drawn at random. Give weights of outputs, {list(outputs.shape[1:])}"
            )


def _is_one_of(loss: object, names: tuple[str, ...]) -> bool:
    return any(kind.__name__ in names and kind.__module__.startswith("torch.") for kind in type(loss).__mro__)
