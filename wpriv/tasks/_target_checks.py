"""Checks of the targets of a supervised training, before any record passes through the network or eps is spent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from wpriv.data._dataset import FROM_OUTPUTS
from wpriv.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor, nn

ANOTHER_LOSS = (
    "another loss, such as squared (`loss='squared'`; in a recipe the task fit, with number: true in a table)"
)
MANY, FEW = 20, 5  # more classes than MANY with fewer records each than FEW look like numbers to predict


def require_classes(data: Any) -> None:
    """Refuse targets that are no classes, for a loss of classes, before anything is spent on them.

    Raises:
        UsageError: they are numbers to predict, all of one class, or look like numbers; or test records have a class
            that no training record has.
    """
    import numpy as np

    if len(data.classes) < 2:
        what = "numbers to predict" if data.response else f"all of the class {', '.join(data.classes)}"
        raise UsageError(
            f"the targets of {data.name} are {what}, and cross-entropy is for two classes or more. Give whole numbers "
            f"from 0 or words as targets, or declare classes; for numbers to predict take {ANOTHER_LOSS}"
        )
    if not data.classes_from:
        return
    present = np.unique(data.y_train[data.y_train != data.ignored])
    names = [data.classes[k] for k in present]
    if len(present) < 2:
        raise UsageError(
            f"the training records of {data.name} are all of the class {', '.join(names) or 'to ignore'}; declare the "
            f"classes by classes where others may occur"
        )
    many = data.classes_from != FROM_OUTPUTS and len(present) > MANY and data.records < FEW * len(present)
    if many or _fractions(names):
        raise UsageError(
            f"the targets of {data.name} have {len(present)} distinct values in {data.records} records, such as "
            f"{', '.join(names[:3])}: they look like numbers to predict, and cross-entropy is for classes. Take "
            f"{ANOTHER_LOSS}; if they are classes, declare them by classes"
        )
    absent = np.setdiff1d(data.y_test[data.y_test != data.ignored], present)
    if len(absent):
        raise UsageError(
            f"{data.name}: test records have the class {data.classes[absent[0]]!r}, and no training record has it. "
            f"Correct the labels, or declare all classes by classes, in the order of the outputs"
        )


def _fractions(names: Sequence[str]) -> bool:
    """Tell whether all classes are numbers and some are not whole."""
    try:
        return not all(float(name).is_integer() for name in names)
    except ValueError:
        return False


def counted(data: Any) -> Any:
    """Return a data set without the test records that have no class; training records without one have loss 0.

    Raises:
        UsageError: no test record is left.
    """
    counts = data.y_test != data.ignored
    if counts.all():
        return data
    if not counts.any():
        raise UsageError(f"{data.name}: no test record has a class: all have the label {data.ignored}")
    tests = {name: getattr(data, name) for name in ("x_test", "y_test", "sensitive_test", "response_test")}
    return replace(data, **{name: values[counts] for name, values in tests.items() if values is not None})


def require_shares(data: Any) -> None:
    """Refuse targets below 0 or above 1, for binary cross-entropy.

    Raises:
        UsageError: there is one.
    """
    for y, response in ((data.y_train, data.response_train), (data.y_test, data.response_test)):
        values = y if response is None else response
        outside = (values < 0) | (values > 1)
        if outside.any():
            raise UsageError(
                f"binary cross-entropy is for targets from 0 to 1; found {values[outside].ravel()[0]} among those of "
                f"{data.name}. Declare the two labels by classes, in the order 0, 1, or give targets in this range"
            )


def require_fit(
    model: nn.Module,
    loss: Callable[[Tensor, Tensor], Tensor],
    inputs: Tensor,
    targets: Tensor,
    vocabulary: int,
    classes: int,
    indexed: bool,
) -> None:
    """Refuse a model or a loss that fails on zeros, or the last token, with the targets that the records have.

    Targets are the smallest and the largest there are, and the last class.

    Raises:
        UsageError: it fails; the message has torch's own.
    """
    import torch

    from wpriv.engine.model_checks import model_state

    what = "the network"
    probes = torch.stack([targets.amin(0), targets.amax(0), targets[0]])
    if not targets.is_floating_point() and classes > 1:
        probes[2] = classes - 1
    with model_state.kept(model), torch.no_grad():
        try:
            zeros = torch.full_like(inputs[:1], max(vocabulary - 1, 0))
            outputs = model.eval()(zeros.repeat(3, *[1] * (inputs.dim() - 1)))
            what = "the loss"
            _require_outputs(outputs, classes, indexed)
            losses = loss(outputs, probes)
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            message = (str(error).splitlines() or [type(error).__name__])[0].removesuffix(".")
            if what == "the network":
                message += _advice_on_tokens(model, inputs, vocabulary) or _advice_on_precision(model, inputs)
            elif not targets.is_floating_point():
                message += f". The targets are whole numbers from {int(targets.min())} to {int(probes.max())}"
            raise UsageError(
                f"{what} fails on records of shape {list(inputs.shape[1:])} with targets of shape "
                f"{list(targets.shape[1:])}: {message}"
            ) from None
    if losses.shape != (3,):
        raise UsageError(
            f"the loss must give one number for each record, [B]; found the shape {list(losses.shape)} for 3 records. "
            f"Do not average over the batch (reduction='none')"
        )


def _require_outputs(outputs: Tensor, classes: int, indexed: bool) -> None:
    """Refuse a network with fewer outputs than there are classes, where targets are the places of outputs.

    Raises:
        UsageError: it is one.
    """
    if indexed and outputs.dim() == 2 and outputs.shape[1] < classes:
        raise UsageError(
            f"the targets are classes from 0 to {classes - 1}, and the network has {outputs.shape[1]} outputs. Whole "
            f"labels keep their numbers: give it an output for each, or declare the label of each output by classes"
        )


def _advice_on_tokens(model: nn.Module, inputs: Tensor, vocabulary: int) -> str:
    """Advice for a network that fails where it has an embedding, or where the records are tokens."""
    from torch import nn

    if not any(isinstance(layer, (nn.Embedding, nn.EmbeddingBag)) for layer in model.modules()):
        return ". The records are tokens, which a network takes by an embedding" if vocabulary else ""
    if inputs.is_floating_point():
        return ". An embedding takes tokens: give the data set tokens, the size of the vocabulary"
    return f". The records are tokens from 0 to {vocabulary - 1}: the embedding must have at least {vocabulary} rows"


def _advice_on_precision(model: nn.Module, inputs: Tensor) -> str:
    """Advice for a network that fails where its weights have another precision than the records."""
    other = next((p.dtype for p in model.parameters() if p.is_floating_point() and p.dtype != inputs.dtype), None)
    if other is None or not inputs.is_floating_point():
        return ""
    return f". The records are {inputs.dtype} and the weights {other}: call float() of the network"
