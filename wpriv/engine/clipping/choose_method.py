"""Choose a correct clipping method for a model by a trial on made-up examples; the choice is cached with the model."""

from __future__ import annotations

import functools
import types
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from wpriv.engine.clipping.common import Loss, Summed, roughness, total
from wpriv.engine.clipping.ghost import ghost
from wpriv.engine.clipping.per_sample import loop, vmap
from wpriv.engine.model_checks import model_state
from wpriv.engine.model_checks.model_pass import Probed, Scores
from wpriv.engine.model_checks.probe_model import probe
from wpriv.engine.model_checks.repeatable_draws import SameDraws, repeated, sizes_of
from wpriv.errors import Unsupported

METHODS = {"ghost": ghost, "vmap": vmap, "loop": loop}
COUNTS = range(4, 40)
"""Sizes of a made-up batch: the first one is taken for which neither it nor one less is a dimension of the examples or
a number that a layer has been given, such as its heads: ``SameDraws`` finds the dimension of records by its size."""
UNCLIPPED = 1e20
SUM_TOLERANCE, NORM_TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-8}, 1e-2
"""Relative differences allowed between two methods, in a sum of gradients and in a norm, which is rounded upwards."""
JITTER = 0.1
ATTEMPTS = 8
"""Trials with other random numbers, as long as dropout hides all gradients."""

_methods: weakref.WeakKeyDictionary[nn.Module, dict[Any, str]] = weakref.WeakKeyDictionary()


def method_for(
    model: nn.Module,
    loss: Loss | None,
    inputs: Tensor,
    targets: Tensor | None,
    *,
    candidates: Sequence[str],
    scores: Scores | None = None,
    classes: int = 2,
) -> str:
    """Return the first candidate that gives each record's own gradient, after ``probe`` has refused models that mix.

    The trial uses made-up examples in the shape of the records, in the model's present mode, and restores the state of
    the model and of the global random generators. The choice is cached for the model, its modes and the argument types.

    Args:
        loss, scores: as in ``probe``.
        inputs, targets: their types and their shapes behind the first dimension are used; their numbers only where the
            model refuses made-up ones.
        candidates: ``ghost``, ``vmap``, ``loop`` in order of preference. classes: integer targets are below this.
    Raises:
        Unsupported: records mix, something is kept from batch to batch, or no candidate is correct; the message names
            the place.
    """
    key = (tuple(candidates), _structure(model), _kind(inputs), _kind(targets), identity(loss), identity(scores))
    cache = _methods.setdefault(model, {})
    if key not in cache:
        probed = Probed(model, loss, scores)
        dimensions = set(inputs.shape[1:]) | sizes_of(model)
        count = next((count for count in COUNTS if dimensions.isdisjoint((count, count - 1))), COUNTS[0])
        with _full_precision(inputs.device.type):
            try:
                examples = made_up(model, inputs, targets, count, classes)
                cache[key] = _try_methods(probed, *examples, candidates)
            except (RuntimeError, ValueError, IndexError, KeyError):
                # the model or the loss does not accept made-up examples
                if not len(inputs):
                    raise
                few = [*range(min(count, len(inputs)))] if len(inputs) > 1 else [0, 0]
                method = _try_methods(probed, inputs[few], None if targets is None else targets[few], candidates)
                if len(inputs) < 3:
                    return method  # too few records to cache the choice
                cache[key] = method
    return cache[key]


def check_evaluation(model: nn.Module, inputs: Tensor) -> None:
    """Refuse a model that in evaluation mode mixes records or keeps them; private records are measured in this mode.

    Args:
        inputs: [0, ...] in the shape and type of records; made-up ones pass through the model.
    Raises:
        Unsupported: as ``probe``.
    """
    with model_state.kept(model), _full_precision(inputs.device.type):
        probe(model.eval(), made_up(model, inputs, None, COUNTS[0])[0])


def made_up(
    model: nn.Module, inputs: Tensor, targets: Tensor | None, count: int, classes: int = 2
) -> tuple[Tensor, Tensor | None]:
    """Return made-up examples shaped as others: uniform on [0, 1), words of every embedding, or classes."""
    generator = torch.Generator().manual_seed(0)
    words = [module.num_embeddings for module in model.modules() if isinstance(module, (nn.Embedding, nn.EmbeddingBag))]
    rows = _drawn(inputs, count, min(words, default=2), generator)
    return rows, None if targets is None else _drawn(targets, count, classes, generator)


def identity(function: Any, depth: int = 4) -> Any:
    """Return the cache key of a loss: its code and the functions in it, the same for a loss that is defined again."""
    if function is None or isinstance(function, (type, types.BuiltinFunctionType)) or not depth:
        return function if depth else type(function)
    if isinstance(function, functools.partial):
        values = (*function.args, *function.keywords.values())
        return identity(function.func, depth - 1), _identities(values, depth), _settings(function.keywords)
    if isinstance(function, types.MethodType):
        return function.__func__.__code__, _reference(function.__self__)
    if isinstance(function, types.FunctionType):
        values = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
        cells = [cell.cell_contents for cell in function.__closure__ or () if _filled(cell)]
        return function.__code__, _identities((*values, *cells), depth)
    if isinstance(function, nn.Module):
        return type(function), repr(function), _settings(vars(function))
    return _reference(function)


def _identities(items: Sequence[Any], depth: int) -> Any:
    """Return the keys of functions and modules; the values of other variables are assumed not to matter."""
    modules = tuple(_reference(item) for item in items if isinstance(item, nn.Module))
    return modules, tuple(
        identity(item, depth - 1) for item in items if callable(item) and not isinstance(item, nn.Module)
    )


def _settings(values: Mapping[str, Any]) -> Any:
    return tuple((key, repr(item)) for key, item in sorted(values.items()) if isinstance(item, (str, bool, int, float)))


def _reference(item: Any) -> Any:
    """Return a weak reference to an object, or its type where it has none."""
    try:
        reference = weakref.ref(item)
        hash(reference)
    except TypeError:
        return type(item)
    return reference


def _try_methods(probed: Probed, inputs: Tensor, targets: Tensor | None, candidates: Sequence[str]) -> str:
    """Probe and compare at the model's weights and near them, since initial weights of zero may hide a difference."""
    model = probed.model
    with model_state.kept(model):
        probe(model, inputs, targets, loss=probed.loss, scores=probed.scores)
        with _jittered(model):
            probe(model, inputs, targets, loss=probed.loss, scores=probed.scores)
    trial = _Trial(probed, inputs, inputs.new_zeros(len(inputs)) if targets is None else targets, targets is not None)
    with model_state.kept(model), repeated(model), torch.enable_grad(), SameDraws(model, len(inputs)) as draws:
        correct = trial.correct(candidates)
        compared, trial.compared = trial.compared, False
        with _jittered(model):
            for _ in range(ATTEMPTS):
                draws.seed += 1000
                correct = trial.correct(correct)
                if trial.compared:
                    break
        if draws.unknown or not (compared or trial.compared):
            # gradients cannot be compared: methods that pass records one by one are correct by construction
            correct = [name for name in candidates if name != "ghost" and trial.runs(name)]
    if correct:
        return correct[0]
    if len(candidates) == 1 and trial.refusal is not None:
        raise trial.refusal
    if len(candidates) == 1:
        fault, change = f"the clipping method {candidates[0]!r} does not give", "use the clipping method 'auto'"
    else:
        fault, change = "no method gives", "use layers by calling them, each in one place"
    raise Unsupported(
        f"{fault} each record's own gradient of this model: a weight is used outside the layer that holds it, or a "
        f"hook changes gradients; {change}"
    )


class _Trial:
    """Compares methods with a loop over made-up records.

    ``compared``: whether some gradients were finite and not 0, as all are where dropout hides the whole output.
    """

    def __init__(self, probed: Probed, inputs: Tensor, targets: Tensor, given: bool):
        self.probed, self.inputs, self.targets, self.given = probed, inputs, targets, given
        self.compared = False
        self.refusal: Unsupported | None = None

    def correct(self, candidates: Sequence[str]) -> list[str]:
        """Return the candidates from the first that agrees with the loop; all if gradients say nothing."""
        wanted, alone = self.summed("loop"), self.summed("loop", slice(1, 2))
        if not all(bool(part.isfinite().all()) for part in wanted.parts) or not bool(total(wanted.squares).any()):
            return list(candidates)
        self.compared = True
        second = torch.zeros(len(self.inputs), device=self.inputs.device)
        second[1] = 1.0
        for place, name in enumerate(candidates):
            if name == "loop":
                return list(candidates[place:])
            try:
                whole, one = self.summed(name), self.summed(name, weights=second)
            except Unsupported as error:
                self.refusal = error
                continue
            near = _agree(whole.parts, wanted.parts) and _agree(one.parts, alone.parts)
            if near and _agree_norms(total(whole.squares).sqrt(), total(wanted.squares).sqrt()):
                return list(candidates[place:])
        return []

    def runs(self, name: str) -> bool:
        """Return whether a method runs on the model without raising ``Unsupported``."""
        try:
            self.summed(name)
        except Unsupported as error:
            self.refusal = error
            return False
        return True

    def summed(self, name: str, part: slice = slice(None), weights: Tensor | None = None) -> Summed:
        """Return the unclipped sum of the records' gradients by a method."""
        inputs, targets = self.inputs[part], self.targets[part]
        return METHODS[name](self.probed.model, self.loss, inputs, targets, UNCLIPPED, weights)

    def loss(self, outputs: Any, targets: Tensor) -> Tensor:
        """Return one number [B] per record that depends on its loss and on all its scores."""
        numbers = self.probed.readout(outputs, targets if self.given else None)
        if numbers is None:
            raise Unsupported("the outputs of the model are not tensors with the records in the first dimension")
        return numbers @ torch.linspace(1.0, 1.5, numbers.shape[1], device=numbers.device, dtype=numbers.dtype)


def _agree(sums: Sequence[Tensor], wanted: Sequence[Tensor]) -> bool:
    """Return whether two lists agree up to precision and order of summation; what cancels is nothing but rounding."""
    largest = max(float(part.norm()) for part in wanted)
    tolerance = SUM_TOLERANCE[wanted[0].dtype] + 4 * roughness(wanted[0].dtype)
    rounding = 64 * torch.finfo(wanted[0].dtype).eps * largest
    return all(
        float((one - other).norm()) <= tolerance * (float(other.norm()) + 1e-3 * largest) + rounding
        for one, other in zip(sums, wanted, strict=True)
    )


def _agree_norms(norms: Tensor, wanted: Tensor) -> bool:
    tolerance = NORM_TOLERANCE + 16 * roughness(wanted.dtype)
    return bool(((norms - wanted).abs() <= tolerance * (wanted + 1e-3 * wanted.max())).all())


@contextmanager
def _jittered(model: nn.Module) -> Iterator[None]:
    """Move the trainable weights a little within the block."""
    generator = torch.Generator().manual_seed(1)
    weights = [(parameter, parameter.data) for parameter in model.parameters() if parameter.requires_grad]
    for parameter, data in weights:
        step = torch.randn(data.shape, generator=generator, dtype=torch.float64).to(data)
        parameter.data = data + JITTER * (data.abs().mean() + JITTER) * step
    try:
        yield
    finally:
        for parameter, data in weights:
            parameter.data = data


@contextmanager
def _full_precision(device: str) -> Iterator[None]:
    """Disable autocast, under which two orders of a sum differ by more than the tolerance."""
    with torch.autocast(device, enabled=False):
        yield


def _structure(model: nn.Module) -> Any:
    """Return the types and modes of the modules and which parameters are trained: all that the choice depends on."""
    modules = tuple((type(module), module.training, len(module._forward_hooks)) for module in model.modules())
    return modules, tuple(
        (parameter.requires_grad, parameter.dtype, parameter.device) for parameter in model.parameters()
    )


def _kind(tensor: Tensor | None) -> Any:
    return None if tensor is None else (tensor.dim(), tensor.dtype)


def _filled(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def _drawn(like: Tensor, count: int, below: int, generator: torch.Generator) -> Tensor:
    shape = (count, *like.shape[1:])
    if like.dtype == torch.bool:
        return torch.randint(2, shape, generator=generator).bool().to(like.device)
    if like.is_floating_point() or like.is_complex():
        return torch.rand(shape, generator=generator, dtype=torch.float64).to(like)
    return torch.randint(max(below, 1), shape, generator=generator).to(like)
