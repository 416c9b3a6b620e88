"""Passes of a model that can be compared: with the same random numbers, and with all that a pass shows."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence
from torch.utils._python_dispatch import TorchDispatchMode

from wpriv.errors import Unsupported, UsageError
from wpriv.training.clipping import model_state
from wpriv.training.clipping.example_gradients import Loss, gradients_of, losses_of
from wpriv.training.clipping.layer_rules import count_of
from wpriv.training.clipping.record_trees import Records, called, records_of

SEED = 20_011


@dataclass
class Draws:
    """The random numbers from which each call of a model begins; another ``seed`` holds from the next call on."""

    seed: int = SEED

    def begin(self, *call: object) -> None:
        """Seed torch's global generators, Python's ``random`` and numpy's global generator."""
        _seed_torch(self.seed)
        random.seed(self.seed)
        np.random.seed(self.seed)


@contextlib.contextmanager
def repeated(model: nn.Module, seed: int = SEED) -> Iterator[Draws]:
    """Begin each call of the model within the block from the same random numbers, and restore the generators."""
    draws = Draws(seed)
    with repeated_draws(seed):
        handle = model.register_forward_pre_hook(draws.begin, prepend=True)
        try:
            yield draws
        finally:
            handle.remove()


@contextlib.contextmanager
def repeated_draws(seed: int) -> Iterator[None]:
    """Begin the block with the random numbers of a seed, and restore the global generators behind it."""
    restore = draws(*(torch.device("cuda", place) for place in range(torch.cuda.device_count() if _on_cuda() else 0)))
    try:
        Draws(seed).begin()
        yield
    finally:
        restore()


def draws(*devices: torch.device) -> Callable[[], None]:
    """Return a function that restores the present state of the global generators, on GPUs those of some devices."""
    python, numpy, cpu = random.getstate(), np.random.get_state(), torch.get_rng_state()
    cuda = [(device, torch.cuda.get_rng_state(device)) for device in devices if device.type == "cuda"]

    def restore() -> None:
        random.setstate(python)
        np.random.set_state(numpy)
        torch.set_rng_state(cpu)
        for device, state in cuda:
            torch.cuda.set_rng_state(state, device)

    return restore


def _on_cuda() -> bool:
    return torch.cuda.is_initialized()  # type: ignore[no-any-return, no-untyped-call]


def generator_states() -> tuple[bytes, ...]:
    """Return the states of the global generators, which differ after a draw."""
    states = [torch.default_generator.get_state()]
    if _on_cuda():
        states += torch.cuda.get_rng_state_all()
    _, keys, position, *_ = np.random.get_state()
    others = f"{random.getstate()} {position}".encode() + np.asarray(keys).tobytes()
    return others, *(state.numpy().tobytes() for state in states)


def _seed_torch(number: int) -> None:
    """Seed the devices in use: torch.manual_seed would also seed idle ones, which would not be restored."""
    torch.default_generator.manual_seed(number)
    if _on_cuda():
        torch.cuda.manual_seed_all(number)


class SameDraws(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Give all records of a batch of ``size`` the same random numbers, which a single record gets too.

    So the gradient of a record under dropout can be compared between a batch and the record alone. ``unknown`` is true
    after a draw that this class cannot repeat, or could take for another one since a layer or a record has a dimension
    of this size; then such a comparison is meaningless. Another ``seed`` gives other numbers from the next forward pass
    on.

    Args:
        dimensions: the sizes that occur in layers and records, as ``sizes_of`` gives them.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Keep torch from loading its compiler, to exclude this class from it; that takes a second."""
        return False

    def __init__(self, model: nn.Module, size: int, seed: int = SEED, dimensions: Container[int] = ()):
        super().__init__()  # type: ignore[no-untyped-call]
        self.model, self.size, self.count, self.unknown, self.seed = model, size, 0, False, seed
        self.ambiguous = size in dimensions

    def __enter__(self) -> SameDraws:
        self.handle = self.model.register_forward_pre_hook(self._begin, prepend=True)
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        self.handle.remove()

    def _begin(self, module: nn.Module, args: object) -> None:
        self.count = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = dict(kwargs or {})
        if torch.Tag.nondeterministic_seeded not in func.tags or given.get("generator") is not None:
            return func(*args, **given)
        if _attends_without_dropout(func, args, given):
            return func(*args, **given)
        self.count += 1
        self.unknown = self.unknown or self.ambiguous
        _seed_torch(self.seed + self.count)
        name = func.overloadpacket.__name__
        if name in ("rand_like", "randn_like", "randint_like"):
            return self._repeat(func(self._one(args[0]), *args[1:], **given), args[0].shape)
        if name in ("rand", "randn", "randint", "randperm"):
            self.unknown = self.unknown or name == "randperm"
            return self._create(func, args, given)
        if name == "native_dropout" and args[2] is not False:
            kept = torch.rand_like(self._one(args[0])) >= args[1]
            mask = self._repeat(kept, args[0].shape)
            return args[0] * mask / (1 - args[1]), mask
        if name in ("bernoulli_", "uniform_", "normal_", "exponential_", "log_normal_", "geometric_", "cauchy_"):
            if any(isinstance(arg, Tensor) for arg in args[1:]):
                self.unknown = True
                return func(*args, **given)
            one = torch.empty_like(self._one(args[0]), memory_format=torch.contiguous_format)
            args[0].copy_(self._repeat(func(one, *args[1:], **given), args[0].shape))
            return args[0]
        self.unknown = True
        return func(*args, **given)

    def _create(self, func: Any, args: Sequence[Any], given: dict[str, Any]) -> Any:
        """Return the numbers of a factory function, whose shape is the first list among its arguments."""
        place = next((i for i, arg in enumerate(args) if isinstance(arg, (list, tuple))), None)
        shape = [] if place is None else list(args[place])
        along = self._along(shape)
        if place is None or along is None:
            return func(*args, **given)
        small = [*shape[:along], shape[along] // self.size, *shape[along + 1 :]]
        return self._repeat(func(*args[:place], small, *args[place + 1 :], **given), shape)

    def _one(self, tensor: Tensor) -> Tensor:
        """Return the part of the first record, along the first dimension of the batch or of all its copies."""
        along = self._along(tensor.shape)
        return tensor if along is None else tensor.narrow(along, 0, tensor.shape[along] // self.size)

    def _along(self, shape: Sequence[int]) -> int | None:
        rows = (self.size, self.size * count_of(self.model))
        return next((place for place, size in enumerate(shape) if size in rows), None)

    def _repeat(self, one: Tensor, shape: Sequence[int]) -> Tensor:
        return one.repeat([size // part for size, part in zip(shape, one.shape, strict=True)])


def _attends_without_dropout(func: Any, args: Sequence[Any], given: Mapping[str, Any]) -> bool:
    """Return whether a function is attention with a dropout of 0: it could draw numbers, and draws none."""
    for place, argument in enumerate(func._schema.arguments):
        if argument.name == "dropout_p":
            value = args[place] if place < len(args) else given.get("dropout_p", argument.default_value)
            return bool(value == 0)
    return False


def sizes_of(model: nn.Module) -> set[int]:
    """Return the whole numbers among the settings of a model's layers, and the dimensions of its parameters."""
    settings = {value for module in model.modules() for value in vars(module).values() if isinstance(value, int)}
    return settings | {size for parameter in model.parameters() for size in parameter.shape}


# --- one recorded pass on a batch: the outputs of the modules, a readout per record, and the gradient ---

Scores = Callable[[Any], Tensor]


@dataclass(frozen=True)
class Probed:
    """A model with functions of its outputs: a loss per record, scores per record, either or neither."""

    model: nn.Module
    loss: Loss | None = None
    scores: Scores | None = None

    def readout(self, outputs: Any, targets: Records | None) -> Tensor | None:
        """Return numbers [B, k] of the records to differentiate; None if the outputs are not tensors [B, ...]."""
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

    def combined(self, outputs: Any, targets: Any) -> Tensor:
        """Return one number [B] per record that depends on its loss and on all its scores."""
        numbers = self.readout(outputs, records_of(targets, "targets"))
        if numbers is None:
            raise Unsupported("the outputs of the model are not tensors with the records in the first dimension")
        return numbers @ torch.linspace(1.0, 1.5, numbers.shape[1], device=numbers.device, dtype=numbers.dtype)


@dataclass(frozen=True)
class Pass:
    """A pass: the outputs of the modules in order, the readout [B, k] or None, and the gradient of its weighted sum.

    Where some module gave packed sequences (``packed``), the rows of inner outputs are positions of several records in
    the order of their lengths: they cannot be compared by record, and the outputs of the whole model decide.
    """

    trace: list[tuple[str, nn.Module, list[Tensor]]]
    readout: Tensor | None
    gradient: list[Tensor]
    packed: bool = False


def tensors(outputs: object) -> list[Tensor]:
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


def forward_pass(probed: Probed, inputs: Records, targets: Records | None, traced: bool = True) -> Pass:
    """Run one forward pass; the gradient is left out, and without ``traced`` the outputs of the modules too."""
    result = _forward(probed, inputs, targets, traced)
    return result if result.readout is None else replace(result, readout=result.readout.detach())


def _forward(probed: Probed, inputs: Records, targets: Records | None, traced: bool = True) -> Pass:
    """Run one forward pass, whose readout is in the graph."""
    model = probed.model
    trace: list[tuple[str, nn.Module, list[Tensor]]] = []
    packed: list[bool] = []

    def hook(name: str) -> Callable[[nn.Module, object, object], None]:
        def record(module: nn.Module, args: object, output: object) -> None:
            packed.append(any(isinstance(each, PackedSequence) for each in (output, *_items(output), *_items(args))))
            trace.append((name, module, [tensor.detach().clone() for tensor in tensors(output)]))

        return record

    handles = [module.register_forward_hook(hook(name)) for name, module in model.named_modules() if traced]
    try:
        outputs = called(model, inputs)
    finally:
        for handle in handles:
            handle.remove()
    return Pass(trace, probed.readout(outputs, targets), [], any(packed))


def _items(value: object) -> tuple[object, ...]:
    return value if isinstance(value, tuple) else ()


def run_pass(probed: Probed, inputs: Records, targets: Records | None, weights: Tensor | None = None) -> Pass:
    """Run one forward pass and, where parameters are trained, one backward pass."""
    model, forward = probed.model, _forward(probed, inputs, targets)
    readout = forward.readout
    trained = [parameter for _, parameter in trained_parameters(model)]
    if readout is None or not readout.requires_grad or not trained:
        return replace(forward, readout=None if readout is None else readout.detach())
    _refuse_unregistered(model, readout)
    rows = torch.ones(len(readout), device=readout.device) if weights is None else weights
    columns = torch.linspace(1.0, 1.5, readout.shape[1], device=readout.device, dtype=readout.dtype)
    objective = (readout * columns).sum(dim=1) @ rows.to(readout.dtype)
    try:
        gradient = gradients_of(objective, trained)
    except RuntimeError as error:
        reason = str(error).strip().partition("\n")[0]
        if "use_reentrant" in reason:
            raise Unsupported(
                "activation checkpointing with use_reentrant=True computes gradients by a backward pass of its own, "
                "which gives none of a single record. Give checkpoint() use_reentrant=False (in transformers "
                "gradient_checkpointing_kwargs={'use_reentrant': False})"
            ) from error
        raise Unsupported(
            f"the gradient of the weights cannot be computed ({reason}). Compute everything that depends on the "
            f"weights in each pass"
        ) from error
    return replace(forward, readout=readout.detach(), gradient=gradient)


def trained_parameters(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    return [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]


def _refuse_unregistered(model: nn.Module, readout: Tensor) -> None:
    """Refuse a tensor that requires a gradient and is used, but is no parameter and would not be trained.

    A tensor with a row for each record, which the model does not hold, was made of the records in this pass: a gradient
    with respect to it is a part of the model's output, as for a gradient penalty.
    """
    registered, held = set(model.parameters()), model_state.unregistered(model)
    visited: set[Any] = set()
    pending = [readout.grad_fn]
    while pending:
        node = pending.pop()
        if node is None or node in visited:
            continue
        visited.add(node)
        pending += [follower for follower, _ in node.next_functions]
        variable = getattr(node, "variable", None)
        of_records = variable is not None and variable not in held and variable.shape[:1] == readout.shape[:1]
        if variable is not None and variable not in registered and not of_records:
            name = held.get(variable, f"a tensor of shape {tuple(variable.shape)}")
            raise Unsupported(
                f"{name} requires a gradient and is used for the output or the loss, but is no parameter of the model. "
                f"Register it as nn.Parameter, or set its requires_grad to False"
            )
