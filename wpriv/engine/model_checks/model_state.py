"""Read and restore the state that a model keeps between calls: buffers, attributes with tensors, and extra state."""

from __future__ import annotations

import collections
import contextlib
import functools
import itertools
import types
from collections.abc import Hashable, Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from wpriv.engine.model_checks.tensor_agreement import same

INTERNAL = frozenset(vars(nn.Module())) | {"training"}
"""Attributes of every module that hold its parameters, buffers, submodules and hooks."""
DEPTH = 4
"""Depth to which lists, tuples and dictionaries in an attribute are searched."""
ITEMS = 64
"""The number of items of such a container that are compared."""
CONTAINERS = (list, tuple, set, frozenset, collections.deque, dict)
Values = dict[str, Tensor]


def buffers(model: nn.Module) -> Values:
    """Return copies of all parameters, buffers (also those that are not saved) and extra state, by name."""
    values = {f"the buffer {name!r}": buffer for name, buffer in model.named_buffers()}
    values |= {f"the parameter {name!r}": parameter for name, parameter in model.named_parameters()}
    for name, module in model.named_modules():
        if type(module).get_extra_state is not nn.Module.get_extra_state:
            values |= _tensors(module.get_extra_state(), f"the extra state of {name or 'the model'!r}", plain=True)
    return {name: value.detach().clone() for name, value in values.items()}


def attributes(model: nn.Module) -> Values:
    """Return copies of the tensors and arrays in Python attributes of the modules, by name."""
    values: Values = {}
    for name, module in model.named_modules():
        for key, value in vars(module).items():
            if key not in INTERNAL:
                values |= _tensors(value, f"the attribute {f'{name}.{key}' if name else key!r}")
    return {name: value.detach().clone() for name, value in values.items()}


def settings(model: nn.Module, *functions: Any, deep: bool = True) -> dict[str, Hashable]:
    """Return the numbers and words in Python attributes of the modules, also within containers, by name.

    Args:
        functions: a loss, for example, whose code and variables are returned too. deep: also within functions, objects
            and classes of the modules.
    """
    known: dict[int, Hashable] = {}
    values = {
        f"the attribute {f'{name}.{key}' if name else key!r}": _plain(value, known, deep)
        for name, module in model.named_modules()
        for key, value in vars(module).items()
        if key not in INTERNAL
    }
    if not deep:
        return values
    for kind in {kind for module in model.modules() for kind in type(module).__mro__}:
        if not kind.__module__.startswith(("torch.", "builtins")):
            items = ((key, value) for key, value in vars(kind).items() if not key.startswith("__"))
            values |= {f"{kind.__qualname__}.{key}": _plain(value, known) for key, value in items}
    return values | {f"the function {place}": _plain(each, known) for place, each in enumerate(functions)}


def _plain(value: Any, known: dict[int, Hashable], deep: bool = True, level: int = 0) -> Hashable:
    """Return what is compared of a value: numbers, words, functions, and the first items of containers and objects.

    Of tensors, arrays, types and deeper levels it is the type alone.

    Args:
        known: by their identity, the containers and objects that were met before.
    """
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
        return type(value).__name__, repr(value)
    if level == DEPTH or isinstance(value, (Tensor, np.ndarray, type, types.ModuleType)):
        return type(value).__name__
    if id(value) not in known:
        known[id(value)] = type(value).__name__  # within itself
        items = (_plain(part, known, deep, level + 1) for part in itertools.islice(_parts(value, deep), ITEMS))
        count = len(value) if isinstance(value, CONTAINERS) else 0
        known[id(value)] = type(value).__name__, count, *items
    return known[id(value)]


def _parts(value: Any, deep: bool) -> Iterable[Any]:
    """Return the values of which a container, a function or an object consists."""
    if isinstance(value, dict):
        return value.items()
    if isinstance(value, CONTAINERS):
        return value
    if not deep:
        return ()
    if isinstance(value, nn.Module):
        return ((key, item) for key, item in vars(value).items() if key not in INTERNAL)
    if isinstance(value, types.CodeType):
        return value.co_code, *value.co_consts
    if isinstance(value, types.FunctionType):
        if value.__module__.startswith("torch."):
            return ()
        names = (value.__globals__.get(name) for name in value.__code__.co_names)
        outside = (*map(_content, value.__closure__ or ()), *names)
        return value.__code__, value.__defaults__, value.__kwdefaults__, *outside
    if isinstance(value, types.MethodType):
        return value.__func__, value.__self__
    if isinstance(value, functools.partial):
        return value.func, value.args, value.keywords
    return (vars(value),) if hasattr(value, "__dict__") else ()


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None  # it is not filled yet


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
    for name, module in model.named_modules():
        for key, value in vars(module).items():
            if key in INTERNAL:
                continue
            for tensor in _tensors(value, "").values():
                if tensor.requires_grad and tensor.is_leaf and tensor not in registered:
                    names[tensor] = f"the attribute {key!r} of {name or 'the model'!r} ({type(module).__name__})"
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


def _state(module: nn.Module) -> dict[str, Any]:
    """Return the attributes that a forward pass may replace, with the tables of parameters and buffers."""
    tables = ("_buffers", "_parameters")
    return {key: value for key, value in vars(module).items() if key not in INTERNAL or key in tables}


def _put_back(module: nn.Module, state: dict[str, Any]) -> None:
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

    def restored(self) -> Any:
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
        elif isinstance(value, (set, tuple)):
            items = [_restored(item) for item in content]
            if isinstance(value, set):
                value.clear()
                value.update(items)
        else:
            items = [_restored(item) for item in content]
            value.clear()
            value.extend(items)
        return value


def _copied(value: Any, level: int) -> Any:
    if isinstance(value, dict) and level == 0:
        return {key: _copied(item, 1) for key, item in value.items()}
    kinds = (Tensor, np.ndarray, list, dict, set, tuple, collections.deque)
    return _Saved(value, level) if isinstance(value, kinds) and level <= DEPTH else value


def _restored(value: Any) -> Any:
    return value.restored() if isinstance(value, _Saved) else value


def _tensors(value: Any, name: str, level: int = 0, plain: bool = False) -> Values:
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
