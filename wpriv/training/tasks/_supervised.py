"""Supervised training: a model, a loss of each record's output and target, and figures on test records."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from wpriv.config import document
from wpriv.config.field_types import Field, StrictModel
from wpriv.config.train_schema import Train
from wpriv.errors import UsageError, require
from wpriv.training.data._dataset import FROM_OUTPUTS, IGNORED
from wpriv.training.data._trees import Packed, map_tree
from wpriv.training.engine import release_spec
from wpriv.training.tasks import _image_features

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from wpriv.training.clipping.example_gradients import Loss
    from wpriv.training.clipping.record_trees import Records
    from wpriv.training.data import Data
    from wpriv.training.data._dataset import Array
    from wpriv.training.engine.batch_gradient import AdaptiveNorm, Batches, BatchGradient, Fetch
    from wpriv.training.engine.job import Job
    from wpriv.training.engine.sampler import Indices

    Aggregate = Callable[[Indices], BatchGradient]


# --- checks of the targets, before any record passes through the network or eps is spent ---

ANOTHER_LOSS = (
    "another loss, such as squared (`loss='squared'`; in a recipe the task fit, with number: true in a table)"
)
MANY, FEW = 20, 5  # more classes than MANY with fewer records each than FEW look like numbers to predict


def require_classes(data: Data) -> None:
    """Refuse targets that are no classes, for a loss of classes, before anything is spent on them."""
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


def counted(data: Data) -> Data:
    """Return a data set without the test records that have no class; training records without one have loss 0."""
    counts = data.y_test != data.ignored
    if counts.all():
        return data
    if not counts.any():
        raise UsageError(f"{data.name}: no test record has a class: all have the label {data.ignored}")
    tests = {name: getattr(data, name) for name in ("x_test", "y_test", "sensitive_test", "response_test")}
    return replace(data, **{name: values[counts] for name, values in tests.items() if values is not None})


def require_shares(data: Data) -> None:
    """Refuse targets below 0 or above 1, for binary cross-entropy."""
    for y, response in ((data.y_train, data.response_train), (data.y_test, data.response_test)):
        values = y if response is None else response
        outside = (values < 0) | (values > 1)
        if outside.any():
            raise UsageError(
                f"binary cross-entropy is for targets from 0 to 1; found {values[outside].ravel()[0]} among those of "
                f"{data.name}. Declare the two labels by classes, in the order 0, 1, or give targets in this range"
            )


def require_fit(
    model: nn.Module, loss: Loss, inputs: Records, targets: Records, vocabulary: int, classes: int, indexed: bool
) -> None:
    """Refuse a model or loss that fails on zeros, or the last token, with the least and the largest target.

    Of trees it is tried on the least and the largest value at each place, since their whole numbers may
    be tokens.
    """
    import torch

    from wpriv.training.clipping import model_state
    from wpriv.training.clipping.record_loss import logits_of
    from wpriv.training.clipping.record_trees import Tree, called, leaves, mapped, raw

    what = "the network"
    probes = mapped(targets, _extremes)
    if isinstance(probes, torch.Tensor) and not probes.is_floating_point() and classes > 1:
        probes[2] = classes - 1
    with model_state.kept(model), torch.no_grad():
        try:
            if isinstance(inputs, Tree):
                examples: Records = inputs.map(_extremes)
            else:
                examples = torch.full_like(inputs[:1], max(vocabulary - 1, 0)).repeat(3, *[1] * (inputs.dim() - 1))
            outputs = called(model.eval(), examples)
            what = "the loss"
            if isinstance(logits := logits_of(outputs), torch.Tensor):
                _require_outputs(logits, classes, indexed)
            losses = loss(outputs, raw(probes))
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            message = (str(error).splitlines() or [type(error).__name__])[0].removesuffix(".")
            if what == "the network":
                message = _fault_of_network(
                    model, inputs, targets, vocabulary, message, tokens=isinstance(error, IndexError)
                )
            elif isinstance(targets, torch.Tensor) and not targets.is_floating_point():
                message += f". The targets are whole numbers from {int(targets.min())} to {int(targets.max())}"
            shapes = [" and ".join(str(list(leaf.shape[1:])) for leaf in leaves(part)) for part in (inputs, targets)]
            raise UsageError(
                f"{what} fails on records of shape {shapes[0]} with targets of shape {shapes[1]}: {message}"
            ) from None
    if not isinstance(losses, torch.Tensor):
        raise UsageError(f"the loss must give a tensor with one number for each record; found {type(losses).__name__}")
    if losses.shape != (3,):
        raise UsageError(
            f"the loss must give one number for each record, [B]; found the shape {list(losses.shape)} for 3 records. "
            f"Do not average over the batch (reduction='none')"
        )


def _extremes(values: Tensor) -> Tensor:
    """Return three rows: the least and the largest value at each place, without what a loss ignores, and the first."""
    import torch

    if values.dtype == torch.bool:
        return torch.stack([values.all(0), values.any(0), values[0]])
    least = values if values.is_floating_point() else values.masked_fill(values == IGNORED, int(values.max()))
    return torch.stack([least.amin(0), values.amax(0), values[0]])


def _require_outputs(outputs: Tensor, classes: int, indexed: bool) -> None:
    """Refuse a network with fewer outputs than there are classes, where targets are the places of outputs."""
    if indexed and outputs.dim() == 2 and outputs.shape[1] < classes:
        raise UsageError(
            f"the targets are classes from 0 to {classes - 1}, and the network has {outputs.shape[1]} outputs. Whole "
            f"labels keep their numbers: give it an output for each, or declare the label of each output by classes"
        )


def _fault_of_network(
    model: nn.Module, inputs: Records, targets: Records, vocabulary: int, message: str, *, tokens: bool
) -> str:
    """Return why a network fails on records, with what to change; ``tokens``: a place in a table was not found."""
    import torch

    from wpriv.training.clipping.record_trees import named_leaves

    if "does not require grad" in message:
        what = "its forward takes a gradient, and test records are measured without any"
        return f"{what}. Take it within `with torch.enable_grad():`"
    if isinstance(inputs, torch.Tensor):
        return message + (_advice_on_tokens(model, inputs, vocabulary) or _advice_on_precision(model, inputs))
    whole = [(name, leaf) for name, leaf in named_leaves(inputs) if leaf.dtype == torch.int64]
    if tokens and whole:
        spans = ", ".join(f"{name} from {int(leaf.min())} to {int(leaf.max())}" for name, leaf in whole)
        message += f". Tokens must be below the rows of their embedding; the records have {spans}"
    pairs = zip(named_leaves(inputs), named_leaves(targets), strict=False)
    if all(one[0] == other[0] and torch.equal(one[1], other[1][: len(one[1])]) for one, other in pairs):
        message += (
            ". All parts of these records were taken as inputs. To tell a target from them give a pair (inputs, "
            "targets), which a Dataset or a collate_fn may return"
        )
    return message


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


class InputOptions(StrictModel):
    """Keys under ``options`` that say what of a record the model takes."""

    normalise: _image_features.Normalise | None = Field(None, description=_image_features.NORMALISE_MEANING)
    features: _image_features.Features | None = Field(None, description=_image_features.FEATURES_MEANING)


HALF = "Layers computed in bfloat16 (torch.autocast); weights, norms, sums and noise were float32"
RECORD = "record"
CHUNK = 1000  # test records that are evaluated at once


def build_job(
    recipe: Train,
    model: nn.Module,
    loss: Loss,
    train: tuple[Records, Records],
    test: tuple[Records, Records],
    *,
    classes: int,
    adjacency: str,
    measure: Callable[[Any, Any], dict[str, Tensor]],
    vocabulary: int = 0,
    indexed: bool = False,
    persons: int = 0,
) -> Job:
    """Build the job that trains a model on the sum of its losses.

    Args:
        model: on the device of the records.
        loss: (outputs [B, ...], targets [B, ...]) -> losses [B], each of its own example alone.
        train, test: inputs and targets, [N, ...] each. classes: number of classes; integer targets are below it.
        measure: (outputs, targets) -> sums over test records by name; their means become metrics.
        vocabulary: the declared number of tokens, where inputs are tokens; else 0.
        indexed: integer targets are the places of outputs.
        persons: the most records of a person, where ``train`` has persons, [P, persons, ...] each; else 0. Their
            targets have a second part, [P, persons], that is true for records and false for padding.
    """
    import torch

    from wpriv.training.clipping import clip, probe_model
    from wpriv.training.clipping.record_trees import joined, mapped, records_of
    from wpriv.training.engine import augmentation, batch_gradient, fine_tuning
    from wpriv.training.engine.job import Job

    private, (inputs, targets) = recipe.privacy, train
    probe_model.require_shapes(model)
    model = fine_tuning.prepared(model, recipe)
    rows, goals = inputs, targets
    if persons:
        of_records: Any = targets
        rows, goals = (
            mapped(part, lambda leaf: leaf.flatten(0, 1)) for part in (inputs, records_of(of_records.value[0]))
        )
    require_fit(model, loss, rows, joined([goals, test[1]]), vocabulary, classes, indexed)
    if isinstance(rows, torch.Tensor) and rows.dim() == 4:
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch omits it
    copied = augmentation.of(recipe.augment, inputs, model, persons)
    fetch = _fetcher(inputs, targets)
    batches = copied.batches(batch_gradient.Batches(model, loss, fetch, 1))
    method = ""
    if private is not None and private.clip != "batch-mean":
        # before any record passes through the model
        clip.groups_of(batches.model, batch_gradient.clipping_of(private))
        empty = copied.empty(inputs)
        method = clip.choose(
            batches.model,
            batches.loss,
            empty,
            targets[:0],
            method=clip.method_of(private),
            classes=max(classes, 1),
            batch=math.ceil(release_spec.expected_batch(recipe, len(inputs))),
        )
    few = np.arange(min(2, len(inputs)))
    physical = recipe.physical or batch_gradient.physical_batch(
        batches.model, batches.loss, batches.fetch, few, recipe.memory
    )
    batches = replace(batches, physical=physical)
    of_batches, adaptive = _aggregators(recipe, len(inputs), adjacency)

    def aggregator(of: Batches, method: str) -> Aggregate:
        aggregate = of_batches(of, method)
        if recipe.precision is None:
            return aggregate
        return torch.autocast(inputs.device.type, dtype=torch.bfloat16)(aggregate)  # type: ignore[no-any-return]

    def with_loss(other: Loss) -> Aggregate:
        # how this loss is clipped is tried anew, at its first batch
        return aggregator(replace(batches, loss=copied.loss(other)), "")

    return Job(
        model,
        aggregator(batches, method),
        lambda: _means(model, test, measure),
        batch_gradient.make_observer(batches, recipe, adjacency),
        method=method,
        fetch=fetch,
        with_loss=with_loss,
        augmentation=copied.augmentation,
        adaptive=adaptive,
        batches=batches,
        frozen=tuple(fine_tuning.frozen_layers(model, recipe).values()),
        remarks=(*fine_tuning.remarks(model, recipe), *(() if recipe.precision is None else (HALF,))),
        save_artifacts=functools.partial(fine_tuning.save_adapter, model, recipe),
        tests=len(test[1]),
    )


def _fetcher(inputs: Records, targets: Records) -> Fetch:
    """Return what takes the records of a batch by their indices; images as the layers read them fastest."""
    import torch

    from wpriv.training.clipping.record_trees import mapped

    def fetch(indices: Indices) -> tuple[Records, Records]:
        rows = torch.from_numpy(indices).to(inputs.device)
        records, goals = (mapped(part, lambda leaf: leaf.index_select(0, rows)) for part in (inputs, targets))
        if isinstance(records, torch.Tensor) and records.dim() == 4:
            records = records.contiguous(memory_format=torch.channels_last)
        return records, goals

    return fetch


def _aggregators(
    recipe: Train, records: int, adjacency: str
) -> tuple[Callable[[Batches, str], Aggregate], AdaptiveNorm | None]:
    """Return what makes the private sum of given batches by a clipping method, and the norm that it adapts, if any."""
    from wpriv.training.engine import batch_gradient

    private, expected = recipe.privacy, release_spec.expected_batch(recipe, records)
    if private is None or private.adapt is None:
        return lambda of, method: batch_gradient.make_aggregator(of, private, adjacency, expected, method), None
    adaptive = batch_gradient.AdaptiveNorm(private.adapt, private.bound, expected)

    def aggregator(of: Batches, method: str) -> Aggregate:
        return adaptive.attach(functools.partial(batch_gradient.at_norm, of, private, adjacency, expected, method))

    return aggregator, adaptive


def tensors_of(packed: Packed, device: torch.device) -> Records:
    """Return packed records as tensors on a device."""
    import torch

    from wpriv.training.clipping.record_trees import records_of

    return records_of(map_tree(packed.unpacked(), lambda leaf: torch.tensor(leaf.copy(), device=device)))


def to_inputs(x: Array, options: InputOptions, device: torch.device, form: object = None) -> Records:
    """Return records as the model takes them: float32 on the device.

    They are normalised by public constants if given, and images are replaced by their features if the options name
    some. Tokens (int64) stay whole numbers. Records of another ``form`` pass as they are.
    """
    if x.dtype == "int64" or form is not None:
        import torch

        why = (
            "tokens are names of words and no quantities" if form is None else "records that are no pictures have none"
        )
        for key in ("normalise", "features"):
            if getattr(options, key) is not None:
                raise UsageError(f"options: {key}: {why}; leave it out")
        return torch.tensor(x, device=device) if form is None else tensors_of(Packed(x, form), device)
    from wpriv.training.tasks import _image_filters

    inputs = _image_filters.normalised(x, options.normalise, device)
    if options.features is None:
        return inputs
    return _image_filters.rows_of_images(inputs, options.features, options.normalise)


def image_features(
    x: Any,
    name: str = "oriented-energy",
    *,
    orientations: int = 8,
    scales: Sequence[float] = (0.8, 1.6),
    cell: int = 4,
    local: bool = False,
    decorrelate: int | None = None,
    scaling: str = "image",
    opponent: bool = False,
    mirror: bool = False,
) -> NDArray[np.float32]:
    """Return fixed features of images as rows of numbers, each computed from its own image alone.

    These are the features of ``options: {features: {...}}`` of a recipe and of ``features`` of ``wpriv.train``. They
    cost no privacy, since changing one image changes one row. Within an image, each group of features is brought
    to mean 0 and variance 1, so that a row has a norm of about sqrt(D): a group is a scale of ``oriented-energy``, or
    for each channel L + 1 of the (L + 1)^2 coefficients of ``scattering`` with L orientations. With ``local``, each map
    is a group, and then all features of a cell. ``scaling="synthetic"`` leaves images as they are, and scales roots of
    the features by constants.

    Args:
        x: [N, C, H, W] images as an array or a tensor; bytes are divided by 255, other numbers should lie in [0, 1].
        name: ``oriented-energy`` or ``scattering``.
        orientations: number of directions. scales: of ``oriented-energy``, in pixels. cell: size of a cell in pixels.
        local: normalise in each cell as well. decorrelate: number of synthetic images that decorrelate the features.
        scaling: ``image``, or ``synthetic``: by the same synthetic images. opponent: take opponent colours in place of
            red, green and blue. mirror: take the mean with the features of the mirror image.
    Returns:
        [N, D] float32.
    Raises:
        UsageError: x holds no such images, or a parameter is out of range. MissingResource: torch is not installed.
    """
    require("torch", "image_features")
    import torch

    from wpriv.training.tasks._image_filters import rows_of_images, to_floats

    sizes = {"orientations": orientations, "scales": list(scales), "cell": cell, "decorrelate": decorrelate}
    ways = {"local": local, "scaling": scaling, "opponent": opponent, "mirror": mirror}
    features = features_of({"name": name, **sizes, **ways})
    images = to_floats(np.asarray(x), torch.device("cpu"))
    return rows_of_images(images, features).numpy()


def features_of(given: Mapping[str, object]) -> _image_features.Features:
    """Return features from plain data."""
    faults = document.form_diagnostics(document.of_data("features", dict(given)), _image_features.Features)
    if faults:
        raise UsageError(f"`features`: {faults[0].text}")
    return _image_features.Features.model_validate(given)


def release(recipe: Train, sizes: Mapping[str, int]) -> release_spec.ReleaseSpec:
    """Return the release of a step: the sum of the records' clipped gradients."""
    spec, unit = release_spec.gradients(recipe, sizes["records"]), recipe.options.get("unit", RECORD)
    return spec if unit == RECORD else replace(spec, unit=f"one {unit} of the training set")


def supports_exact_noise(recipe: Train) -> bool:
    """Return whether each release is a sum of records clipped one by one: unless batch means are clipped."""
    return recipe.privacy is not None and recipe.privacy.clip != "batch-mean"


def remarks(recipe: Train, sizes: Mapping[str, int]) -> tuple[str, ...]:
    """Return what the statement says about fixed features of the records."""
    given = recipe.options.get("features")
    if given is None:
        return ()
    features = InputOptions.model_validate({"features": given}).features
    assert features is not None
    count = features.decorrelate
    scaled = "scaled and " if features.scaling == "synthetic" else ""
    public = f", {scaled}decorrelated by {count} synthetic images, which hold no record" if count else ""
    return (
        f"The model takes features of each record in place of the record: {features.name}, a fixed map that "
        f"was not learnt from records{public}. Each record's features depend on that record alone, and cost no privacy",
    )


# what the tasks of supervised training have in common, as fields of ``TaskSpec``
FIELDS: dict[str, Any] = {
    "release": release,
    "supports_exact_noise": supports_exact_noise,
    "remarks": remarks,
    "clips_single_records": True,
    "accepts_tokens": True,
    "reads_labels": True,
}


def _means(
    model: nn.Module, test: tuple[Records, Records], measure: Callable[[Any, Any], dict[str, Tensor]]
) -> dict[str, float]:
    """Return the means of the measured figures over the test records."""
    import torch

    from wpriv.training.clipping.record_trees import called, raw

    inputs, targets = test
    sums: dict[str, float] = {}
    with torch.no_grad():
        for first in range(0, len(targets), CHUNK):
            chunk = slice(first, first + CHUNK)
            for name, total in measure(called(model, inputs[chunk]), raw(targets[chunk])).items():
                sums[name] = sums.get(name, 0.0) + float(total)
    return {name: total / len(targets) for name, total in sums.items()}
