"""Which way of clipping is right for a model: decided once by a trial on made-up examples, and remembered while the model lives."""

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
from wpriv.engine.model_checks.probe_model import Probed, Scores, probe
from wpriv.engine.model_checks.repeatable_draws import SameDraws, repeated
from wpriv.errors import Unsupported

METHODS = {"ghost": ghost, "vmap": vmap, "loop": loop}
COUNTS = range(4, 20)
"""Sizes of a made-up batch: the first of them for which neither it nor one less is another dimension of the examples."""
UNCLIPPED = 1e20
NEAR, NEAR_NORMS = {torch.float32: 1e-4, torch.float64: 1e-8}, 1e-2
"""Relative differences allowed between two methods: of a sum of gradients, and of a norm, which is rounded upwards."""
JITTER = 0.1

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
    """The first candidate that gives each record's own gradient, after ``probe`` has found that records do not mix.

    Everything is tried on made-up examples in the shape of the records, in the model's present mode; the state of the model and the
    global random generators are as before afterwards. The answer is remembered for the model, its modes, and the kinds of the arguments.

    Args:
        inputs, targets: their shapes behind the first dimension and their types are used; numbers only where the model refuses made-up
            ones. loss, scores: as in ``probe``. candidates: ``ghost``, ``vmap``, ``loop`` in the order in which they are wanted.
        classes: whole numbers among the targets are below this.
    Raises:
        Unsupported: records mix, something is kept from batch to batch, or no candidate is right; the message names the place.
    """
    key = (tuple(candidates), _structure(model), _kind(inputs), _kind(targets), identity(loss), identity(scores))
    known = _methods.setdefault(model, {})
    if key not in known:
        probed = Probed(model, loss, scores)
        others = set(inputs.shape[1:])
        count = next((count for count in COUNTS if others.isdisjoint((count, count - 1))), COUNTS[0])
        with _full_precision(inputs.device.type):
            try:
                examples = made_up(model, inputs, targets, count, classes)
                known[key] = _tried(probed, *examples, candidates)
            except (RuntimeError, ValueError, IndexError, KeyError):
                # the model or the loss does not take made-up examples
                if not len(inputs):
                    raise
                few = [*range(min(count, len(inputs)))] if len(inputs) > 1 else [0, 0]
                right = _tried(probed, inputs[few], None if targets is None else targets[few], candidates)
                if len(inputs) < 3:
                    return right  # too few of them to be sure for good
                known[key] = right
    return known[key]


def check_evaluation(model: nn.Module, inputs: Tensor) -> None:
    """Refuse a model that mixes records or keeps them in evaluation mode, in which private records are measured or projected.

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
    """``count`` examples in the shape and type of others: numbers uniform on [0, 1), words that every embedding knows, classes."""
    generator = torch.Generator().manual_seed(0)
    words = [module.num_embeddings for module in model.modules() if isinstance(module, (nn.Embedding, nn.EmbeddingBag))]
    rows = _drawn(inputs, count, min(words, default=2), generator)
    return rows, None if targets is None else _drawn(targets, count, classes, generator)


def identity(function: Any, depth: int = 4) -> Any:
    """What a loss is known by: its code and the functions in it, so that one defined anew at each step stays the same."""
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
    """Functions by what they do, modules by which they are; the values of other variables are taken not to decide."""
    modules = tuple(_reference(item) for item in items if isinstance(item, nn.Module))
    return modules, tuple(
        identity(item, depth - 1) for item in items if callable(item) and not isinstance(item, nn.Module)
    )


def _settings(values: Mapping[str, Any]) -> Any:
    return tuple((key, repr(item)) for key, item in sorted(values.items()) if isinstance(item, (str, bool, int, float)))


def _reference(item: Any) -> Any:
    """An object by which it is, without keeping it alive; by its type where it cannot be referred to so."""
    try:
        reference = weakref.ref(item)
        hash(reference)
    except TypeError:
        return type(item)
    return reference


def _tried(probed: Probed, inputs: Tensor, targets: Tensor | None, candidates: Sequence[str]) -> str:
    """Probe and compare at the model's weights and beside them, since first weights of zero hide what later ones show."""
    model = probed.model
    with model_state.kept(model):
        probe(model, inputs, targets, loss=probed.loss, scores=probed.scores)
        with _jittered(model):
            probe(model, inputs, targets, loss=probed.loss, scores=probed.scores)
    trial = _Trial(probed, inputs, inputs.new_zeros(len(inputs)) if targets is None else targets, targets is not None)
    with model_state.kept(model), repeated(model), torch.enable_grad(), SameDraws(model, len(inputs)) as draws:
        right = trial.right(candidates)
        with _jittered(model):
            right = trial.right(right)
        if draws.unknown or not trial.finite:
            # no comparison means anything: what passes records one by one is right by construction
            right = [name for name in candidates if name != "ghost" and trial.runs(name)]
    if right:
        return right[0]
    if len(candidates) == 1 and trial.refusal is not None:
        raise trial.refusal
    what = f"the clipping method {candidates[0]!r} does not give" if len(candidates) == 1 else "no method gives"
    instead = (
        "use the clipping method 'auto'" if len(candidates) == 1 else "use layers by calling them, each in one place"
    )
    raise Unsupported(
        f"{what} each record's own gradient of this model: a weight takes part outside the layer that holds it, or a hook changes "
        f"gradients; {instead}"
    )


class _Trial:
    """Methods compared with a loop over made-up records. ``finite``: whether gradients were ever finite, so that it was a test."""

    def __init__(self, probed: Probed, inputs: Tensor, targets: Tensor, given: bool):
        self.probed, self.inputs, self.targets, self.given = probed, inputs, targets, given
        self.finite = False
        self.refusal: Unsupported | None = None

    def right(self, candidates: Sequence[str]) -> list[str]:
        """The candidates from the first that agrees with the loop on; all of them where gradients are not finite."""
        wanted, alone = self.summed("loop"), self.summed("loop", slice(1, 2))
        if not all(bool(part.isfinite().all()) for part in wanted.parts):
            return list(candidates)
        self.finite = True
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
        """Try a method on the model; False where it raises ``Unsupported``."""
        try:
            self.summed(name)
        except Unsupported as error:
            self.refusal = error
            return False
        return True

    def summed(self, name: str, part: slice = slice(None), weights: Tensor | None = None) -> Summed:
        """The sum of the records' gradients by a method, not clipped."""
        inputs, targets = self.inputs[part], self.targets[part]
        return METHODS[name](self.probed.model, self.loss, inputs, targets, UNCLIPPED, weights)

    def loss(self, outputs: Any, targets: Tensor) -> Tensor:
        """One number [B] for each record, in which its loss and all its scores have a part."""
        numbers = self.probed.readout(outputs, targets if self.given else None)
        if numbers is None:
            raise Unsupported("the outputs of the model are not tensors with the records in the first dimension")
        return numbers @ torch.linspace(1.0, 1.5, numbers.shape[1], device=numbers.device, dtype=numbers.dtype)


def _agree(sums: Sequence[Tensor], wanted: Sequence[Tensor]) -> bool:
    """Whether two lists of tensors are the same up to what precision and another order of sums do to them."""
    largest = max(float(part.norm()) for part in wanted)
    tolerance = NEAR[wanted[0].dtype] + 4 * roughness(wanted[0].dtype)
    pairs = zip(sums, wanted, strict=True)
    return all(
        float((one - other).norm()) <= tolerance * (float(other.norm()) + 1e-3 * largest) for one, other in pairs
    )


def _agree_norms(norms: Tensor, wanted: Tensor) -> bool:
    tolerance = NEAR_NORMS + 16 * roughness(wanted.dtype)
    return bool(((norms - wanted).abs() <= tolerance * (wanted + 1e-3 * wanted.max())).all())


@contextmanager
def _jittered(model: nn.Module) -> Iterator[None]:
    """Within it the trainable weights are moved a little."""
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
    """Without autocast, in which two orders of a sum differ by more than two methods may."""
    with torch.autocast(device, enabled=False):
        yield


def _structure(model: nn.Module) -> Any:
    """The kinds and modes of the modules, and which parameters are trained: what may decide the answer."""
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
