"""A model and a loss of the user's choice, on records with classes or with numbers to predict."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from wpriv.config.field_types import Field, OwnCode
from wpriv.config.train_schema import Train
from wpriv.errors import UsageError
from wpriv.files import python_file
from wpriv.training import models
from wpriv.training.clipping import record_loss
from wpriv.training.data._trees import Packed
from wpriv.training.tasks import TaskSpec, _supervised

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from wpriv.config.document import Key
    from wpriv.training.clipping.example_gradients import Loss
    from wpriv.training.clipping.record_trees import Records
    from wpriv.training.data import Data
    from wpriv.training.data._dataset import Array
    from wpriv.training.engine.job import Job

LOSSES = ("cross-entropy", "binary-cross-entropy", "squared", "absolute", "huber")


class Options(_supervised.InputOptions):
    """Keys under ``options`` of a recipe."""

    loss: str | OwnCode = Field(
        "squared",
        description=f"loss of a record: {', '.join(LOSSES)}, or {{file: loss.py, name: ...}}, a function "
        "(outputs, targets) -> losses [B]",
    )
    unit: str = Field(_supervised.RECORD, description="what a record is, in a word for the statement")


def validate(recipe: Train) -> list[tuple[Key, str]]:
    """Return faults of a recipe whose options are valid in themselves."""
    loss = Options.model_validate(recipe.options).loss
    if isinstance(loss, OwnCode):
        if not loss.own:
            return [(("options", "loss"), "a loss of your own needs the key file, the path of a Python file (.py)")]
        message = python_file.fault(str(loss.file), loss.name, loss.parameters(), ("outputs", "targets"))
        return [(("options", "loss"), message)] if message else []
    if loss not in (*LOSSES, GIVEN):
        return [(("options", "loss"), f"loss must be one of {', '.join(LOSSES)}, or a file of your own; found {loss}")]
    return []


# the word for a loss that was passed to ``wpriv.train`` in Python
GIVEN = "given"


def build_job(
    recipe: Train,
    data: Data,
    device: torch.device,
    *,
    adjacency: str,
    model: nn.Module | None = None,
    loss: Loss | None = None,
    targets: str | None = None,
) -> Job:
    """Build the model and the loss of a recipe on its data, or a model or a loss in place of those that it names.

    Args:
        targets: what they are, as ``record_loss.targets_of`` says of the loss; by default that of the recipe.
    """
    options = Options.model_validate(recipe.options)
    targets = targets or record_loss.targets_of(options.loss)
    indexed = targets == "classes"
    if indexed:
        _supervised.require_classes(data)
    if targets in ("classes", "unknown"):
        data = _supervised.counted(data)
    if targets == "shares":
        _supervised.require_shares(data)
    persons = int(str(recipe.data.parameters().get("max_per_person", 0)))
    classes = len(data.classes)
    width = classes if data.response_train is None or data.y_form is not None else data.response_train.shape[1]
    train, test = (
        (
            _supervised.to_inputs(x, options, device, data.x_form),
            _targets(y, response, indexed, device, data.packed(f"response_{part}")),
        )
        for part, x, y, response in (
            ("train", data.x_train, data.y_train, data.response_train),
            ("test", data.x_test, data.y_test, data.response_test),
        )
    )
    network = model if model is not None else models.build(recipe.model, train[0].shape[1:], width)
    per_record = loss if loss is not None else loss_of(options.loss)
    return _supervised.build_job(
        recipe,
        network.to(device),
        per_record,
        train,
        test,
        classes=classes,
        adjacency=adjacency,
        vocabulary=data.vocabulary,
        indexed=indexed,
        measure=functools.partial(_measure, per_record, indexed or not data.response or data.y_form is not None),
        persons=persons,
    )


def loss_of(loss: str | OwnCode) -> Loss:
    """Return the loss of that name, or of that file, as a function (outputs, targets) -> losses [B]."""
    from torch.nn import CrossEntropyLoss, functional

    if isinstance(loss, OwnCode):
        return lambda outputs, targets: python_file.function(str(loss.file), loss.name)(
            outputs, targets, **loss.parameters()
        )
    if loss == "cross-entropy":
        return record_loss.per_record(CrossEntropyLoss())
    elementwise: dict[str, Callable[..., Tensor]] = {
        "binary-cross-entropy": functional.binary_cross_entropy_with_logits,
        "squared": functional.mse_loss,
        "absolute": functional.l1_loss,
        "huber": functional.huber_loss,
    }
    if loss not in elementwise:
        raise UsageError(
            f"the loss {loss!r} was passed to wpriv.train in Python, and only that program has it. Use one of "
            f"{', '.join(LOSSES)}, or {{file: loss.py, name: ...}}"
        )
    return functools.partial(_mean_of_outputs, elementwise[loss])


def _mean_of_outputs(loss: Callable[..., Tensor], outputs: Any, targets: Tensor) -> Tensor:
    """The mean of an elementwise loss over the outputs of each record."""
    outputs = record_loss.logits_of(outputs)
    values = loss(outputs, targets.to(outputs.dtype).view_as(outputs), reduction="none")
    return values.flatten(1).mean(dim=1) if values.dim() > 1 else values


def test_targets(data: Data, indexed: bool, device: torch.device) -> Records:
    """Return the targets of the test records, classes where the loss is ``indexed`` by them."""
    return _targets(data.y_test, data.response_test, indexed, device, data.packed("response_test"))


def _targets(y: Array, response: Array | None, indexed: bool, device: torch.device, packed: Packed | None) -> Records:
    """Return classes, or the numbers to predict where the data set has some and the loss is not about classes."""
    import torch

    if packed is not None:
        return _supervised.tensors_of(packed, device)
    if response is None or indexed:
        return torch.tensor(y, device=device).long()
    if response.dtype.kind == "i":  # whole numbers, [N], which cannot be classes
        return torch.tensor(response[:, 0], device=device)
    return torch.tensor(response, device=device).float()


def _measure(loss: Loss, classes: bool, outputs: Any, targets: Any) -> dict[str, Tensor]:
    """Return sums over test records: the loss, and where targets are classes the number of right ones."""
    import torch

    sums = {"test_loss": loss(outputs, targets).sum()}
    outputs = record_loss.logits_of(outputs)
    if not classes or not isinstance(outputs, torch.Tensor) or not isinstance(targets, torch.Tensor):
        return sums
    if not targets.is_floating_point() and targets.dim() == 1 and outputs.dim() == 2 and outputs.shape[1] > 1:
        sums["accuracy"] = (outputs.argmax(dim=1) == targets).sum()
    return sums


TASK = TaskSpec(
    options=Options,
    results=("test_loss", "accuracy", "loss"),
    build_job=build_job,
    validate=validate,
    test_metrics=("accuracy", "test_loss"),
    **_supervised.FIELDS,
    has_classes=lambda recipe: record_loss.targets_of(Options.model_validate(recipe.options).loss) != "numbers",
)
