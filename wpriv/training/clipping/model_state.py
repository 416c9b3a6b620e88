"""The state that a model keeps between calls (weights, buffers, attributes, extra state): read, compared, restored."""

from __future__ import annotations

import collections
import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

# units of rounding allowed between two passes of one shape, for sums over the batch in another order
EXACT = 16.0
# relative difference allowed between passes of different sizes with other kernels; 0.05 in half precision
RESIZED = {torch.float32: 1e-4, torch.float64: 1e-9}


def same(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors are equal in shape, type and every number; NaN equals NaN."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return bool(((one == other) | ((one != one) & (other != other))).all())


@dataclass(frozen=True)
class Shared:
    """The records [begin, end) that two batches of some ``sizes`` share."""

    sizes: tuple[int, int]
    begin: int
    end: int

    def differ(self, one: Tensor, two: Tensor) -> bool:
        """Return whether two outputs differ for the shared records, along any dimension of the size of the batches."""
        size, other = self.sizes
        if one.dim() != two.dim() or one.dim() == 0:
            return False
        places = [
            place
            for place, sizes in enumerate(zip(one.shape, two.shape, strict=True))
            if sizes == self.sizes
            and one.shape[:place] + one.shape[place + 1 :] == two.shape[:place] + two.shape[place + 1 :]
        ]
        arranged = [(one, two, place) for place in places]
        if 0 not in places and one.shape[0] % size == 0 and one.shape[0] * other == two.shape[0] * size and one.numel():
            # positions or copies folded into the batch, or whole batches one behind the other
            arranged.append((one.reshape(size, -1), two.reshape(other, -1), 0))
            count = one.shape[0] // size
            arranged.append((one.reshape(count, size, -1), two.reshape(count, other, -1), 1))
        tolerance = exact(one) if size == other else RESIZED.get(one.dtype, 0.05)
        count = self.end - self.begin
        pairs = [
            (first.narrow(place, self.begin, count), second.narrow(place, self.begin, count))
            for first, second, place in arranged
        ]
        return bool(pairs) and all(not near(mine, theirs, tolerance) for mine, theirs in pairs)


def is_rounding(tensor: Tensor) -> bool:
    """Return whether a tensor holds rounding errors of numbers near 1 alone, as a mean of normalised ones does."""
    return tensor.is_floating_point() and float(tensor.abs().amax() if tensor.numel() else 0) <= 4 * exact(tensor)


def exact(tensor: Tensor) -> float:
    """Return the relative difference that rounding may cause in a tensor."""
    return EXACT * torch.finfo(tensor.dtype).eps if tensor.is_floating_point() else 0.0


def apart(one: Tensor, two: Tensor) -> bool:
    """Return whether two tensors differ by more than rounding between two passes of one batch."""
    return not near(one, two, exact(one))


def near(one: Tensor, two: Tensor, tolerance: float) -> bool:
    """Return whether two tensors agree up to a share of their maximum, with NaN and infinities at equal places."""
    if one.shape != two.shape:
        return False
    if not one.is_floating_point() or same(one, two):
        return same(one, two)
    finite = one.isfinite() & two.isfinite()
    if not same(one.masked_fill(finite, 0.0), two.masked_fill(finite, 0.0)):
        return False
    one, two = one.masked_fill(~finite, 0.0), two.masked_fill(~finite, 0.0)
    largest = float(torch.maximum(one.abs(), two.abs()).max()) if one.numel() else 0.0
    return math.isfinite(largest) and float((one - two).abs().max()) <= tolerance * largest


def named(name: str, module: nn.Module) -> str:
    """Return the name of a module in messages, as 'name' (Kind)."""
    return f"{name or 'the model'!r} ({type(module).__name__})"


# attributes of every module that hold its parameters, buffers, submodules and hooks
INTERNAL = frozenset(vars(nn.Module())) | {"training"}
# depth to which lists, tuples and dictionaries in an attribute are searched
DEPTH = 4
Values = dict[str, Tensor]


def buffers(model: nn.Module) -> Values:
    """Return copies of all parameters, buffers (also those that are not saved) and extra state, by name."""
    values = {f"the buffer {name!r}": buffer for name, buffer in model.named_buffers()}
    values |= {f"the parameter {name!r}": parameter for name, parameter in model.named_parameters()}
    for name, module in model.named_modules():
        if type(module).get_extra_state is not nn.Module.get_extra_state:
            values |= _tensors(module.get_extra_state(), f"the extra state of {name or 'the model'!r}", plain=True)
    return {name: value.detach().clone() for name, value in values.items()}


def python_attributes(model: nn.Module) -> Iterator[tuple[str, nn.Module, str, object]]:
    """Yield the Python attributes of the modules: the module's name, the module, the attribute's name and value."""
    for name, module in model.named_modules():
        for key, value in vars(module).items():
            if key not in INTERNAL:
                yield name, module, key, value


def attribute_name(name: str, key: str) -> str:
    """Return the name of an attribute of a module in messages."""
    return f"the attribute {f'{name}.{key}' if name else key!r}"


def attributes(model: nn.Module) -> Values:
    """Return copies of the tensors and arrays in Python attributes of the modules, by name."""
    values: Values = {}
    for name, _, key, value in python_attributes(model):
        values |= _tensors(value, attribute_name(name, key))
    return {name: value.detach().clone() for name, value in values.items()}


def changed(before: Values, after: Values) -> str | None:
    """Return the name of the first value that differs or is new in ``after``; None if there is none."""
    for name, value in after.items():
        if name not in before or not same(before[name], value):
            return name
    return None


def unregistered(model: nn.Module) -> dict[Tensor, str]:
    """Return the leaf tensors in Python attributes that require a gradient, with their names."""
    registered = set(model.parameters())
    names: dict[Tensor, str] = {}
    for name, module, key, value in python_attributes(model):
        for tensor in _tensors(value, "").values():
            if tensor.requires_grad and tensor.is_leaf and tensor not in registered:
                names[tensor] = f"the attribute {key!r} of {named(name, module)}"
    return names


@contextlib.contextmanager
def kept(model: nn.Module) -> Iterator[None]:
    """Restore the state of a model when the block ends: modes, parameters, buffers, attributes and gradients."""
    modules = [(module, module.training, _copied(_state(module), 0)) for module in model.modules()]
    tensors = [(parameter, parameter.detach().clone()) for parameter in model.parameters()]
    gradients = [(parameter, parameter.grad) for parameter in model.parameters()]
    try:
        yield
    finally:
        for module, training, state in modules:
            module.training = training
            _put_back(module, state)
        with torch.no_grad():
            for tensor, value in tensors:
                # writing increases the version of the tensor, so only where its value changed
                if not same(tensor.detach(), value):
                    tensor.copy_(value)
        for parameter, gradient in gradients:
            parameter.grad = gradient


@contextlib.contextmanager
def own_tensors(model: nn.Module) -> Iterator[None]:
    """Put the parameters and buffers of a model back when the block ends.

    ``torch.func.functional_call`` leaves other tensors in a module that stands in two places of the model.
    """
    tables = [table for module in model.modules() for table in (module._parameters, module._buffers)]
    contents: list[dict[str, Any]] = [dict(table) for table in tables]
    try:
        yield
    finally:
        for table, content in zip(tables, contents, strict=True):
            table.update(content)


def _state(module: nn.Module) -> dict[str, object]:
    """Return the attributes that a forward pass may replace, with the tables of parameters and buffers."""
    tables = ("_buffers", "_parameters")
    return {key: value for key, value in vars(module).items() if key not in INTERNAL or key in tables}


def _put_back(module: nn.Module, state: dict[str, object]) -> None:
    table = vars(module)
    for key in [key for key in _state(module) if key not in state]:
        del table[key]
    for key, saved in state.items():
        table[key] = saved.restored() if isinstance(saved, _Saved) else saved


class _Saved:
    """A tensor, an array or a container with a copy of its content, which ``restored`` writes back."""

    def __init__(self, value: Any, level: int):
        self.value = value
        self.content: Any
        if isinstance(value, Tensor):
            self.content = None if isinstance(value, nn.Parameter) else value.detach().clone()
        elif isinstance(value, np.ndarray):
            self.content = value.copy()
        elif isinstance(value, dict):
            self.content = {key: _copied(item, level + 1) for key, item in value.items()}
        else:
            self.content = [_copied(item, level + 1) for item in value]

    def restored(self) -> object:
        value, content = self.value, self.content
        if isinstance(value, Tensor):
            if content is not None and not same(value.detach(), content):
                with torch.no_grad():
                    value.copy_(content)
        elif isinstance(value, np.ndarray):
            value[...] = content
        elif isinstance(value, dict):
            value.clear()
            value.update({key: _restored(item) for key, item in content.items()})
        else:
            items = [_restored(item) for item in content]
            if not isinstance(value, tuple):
                value.clear()
                (value.update if isinstance(value, set) else value.extend)(items)
        return value


def _copied(value: object, level: int) -> Any:
    if isinstance(value, dict) and level == 0:
        return {key: _copied(item, 1) for key, item in value.items()}
    kinds = (Tensor, np.ndarray, list, dict, set, tuple, collections.deque)
    return _Saved(value, level) if isinstance(value, kinds) and level <= DEPTH else value


def _restored(value: object) -> object:
    return value.restored() if isinstance(value, _Saved) else value


def _tensors(value: object, name: str, level: int = 0, plain: bool = False) -> Values:
    """Return the tensors and arrays in a nested value; with ``plain`` also numbers and strings."""
    if isinstance(value, Tensor):
        return {name: value}
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        return {name: torch.from_numpy(value.copy())}
    if level < DEPTH and isinstance(value, dict):
        items = [(f"{name}[{key!r}]", item) for key, item in value.items()]
    elif level < DEPTH and isinstance(value, (list, tuple, collections.deque)):
        items = [(f"{name}[{place}]", item) for place, item in enumerate(value)]
    elif plain and isinstance(value, (bool, int, float)):
        return {name: torch.tensor(value, dtype=torch.float64)}
    elif plain and isinstance(value, (str, bytes)):
        return {name: torch.tensor(list(value.encode() if isinstance(value, str) else value), dtype=torch.uint8)}
    else:
        return {}
    values: Values = {}
    for label, item in items:
        values |= _tensors(item, label, level + 1, plain)
    return values
