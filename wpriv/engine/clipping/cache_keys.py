"""Keys by which what was decided for a model and a loss is remembered, as long as neither changes."""

from __future__ import annotations

import functools
import types
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
GLOBAL_HOOKS = tuple(getattr(nn.modules.module, f"_global{table}") for table in HOOKS)


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
        cells = [cell.cell_contents for cell in function.__closure__ or () if is_filled(cell)]
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


def structure(model: nn.Module) -> Any:
    """Return what the choice depends on: types, modes, forward functions and hooks of the modules, and parameters."""
    modules = tuple(_parts(module) for module in model.modules())
    everywhere = tuple(tuple(table) for table in GLOBAL_HOOKS)
    return (
        modules,
        everywhere,
        tuple(
            (parameter.requires_grad, parameter.dtype, parameter.device, tuple(parameter._backward_hooks or ()))
            for parameter in model.parameters()
        ),
    )


def _parts(module: nn.Module) -> Any:
    kind, own = type(module), vars(module).get("forward")
    # the keys of hooks are numbers that are never used again
    hooks = tuple(tuple(vars(module)[table]) for table in HOOKS)
    return kind, module.training, kind.forward, None if own is None else _reference(own), hooks


def kind(tensor: Tensor | None) -> Any:
    return None if tensor is None else (tensor.dim(), tensor.dtype)


def is_filled(cell: types.CellType) -> bool:
    """Return whether a variable that a function captured has a value yet."""
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True
