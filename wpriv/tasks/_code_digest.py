"""A digest of what a function, a network or an object of a Python program computes: its code and what it holds.

Two programs that give objects of one digest give the same losses for the same weights and records, as far as Python
shows it: the code of the functions and classes of the program, their constants, defaults and captured variables, the
globals that they name, and the attributes of their objects. Installed libraries count by their names. What a function
reads elsewhere (a file, the clock, a library in C) is not seen.
"""

from __future__ import annotations

import functools
import hashlib
import types
from collections.abc import Iterable, Mapping
from typing import Any

from wpriv.engine.clipping.cache_keys import is_filled
from wpriv.engine.model_checks.own_code import installed, names

DEPTH = 16
HOOKS = "_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"
PLAIN = (type(None), bool, int, float, complex, str, bytes)
SKIPPED = ("__dict__", "__weakref__", "__doc__", "__slots__", "__module__", "__firstlineno__", "__static_attributes__")


def digest(value: Any, *, weights: bool = True) -> str:
    """Return 16 hexadecimal digits that change with the code and the content of an object.

    Args:
        weights: whether the numbers in the parameters and saved buffers of networks count, beside their shapes.
    """
    walk = _Walk(weights)
    walk.add(value)
    return walk.hash.hexdigest()[:16]


class _Walk:
    """One pass through an object; what was met before counts by the order in which it was met."""

    def __init__(self, weights: bool):
        self.hash, self.weights, self.depth = hashlib.sha256(), weights, 0
        self.seen: dict[int, int] = {}
        self.kept: list[Any] = []  # so that no number of an object is given to another one

    def word(self, *words: Any) -> None:
        self.hash.update("".join(f"{len(str(word))}:{word}" for word in words).encode(errors="surrogatepass"))

    def all(self, kind: str, values: Iterable[Any]) -> None:
        items = list(values)
        self.word(kind, len(items))
        for item in items:
            self.add(item)

    def named(self, kind: str, values: Mapping[Any, Any]) -> None:
        self.all(kind, (part for item in values.items() for part in item))

    def add(self, value: Any) -> None:
        if isinstance(value, PLAIN):
            self.word(type(value).__name__, repr(value))
        elif id(value) in self.seen:
            self.word("seen", self.seen[id(value)])
        elif self.depth < DEPTH:
            self.seen[id(value)] = len(self.seen)
            self.kept.append(value)
            self.depth += 1
            self._add(value)
            self.depth -= 1

    def _add(self, value: Any) -> None:
        if isinstance(value, (list, tuple)):
            self.all("list", value)
        elif isinstance(value, (set, frozenset)):
            self.all("set", sorted(value, key=repr))
        elif isinstance(value, dict):
            self.named("dict", value)
        elif isinstance(value, types.CodeType):
            self.word("code", value.co_code.hex(), value.co_names, value.co_freevars, value.co_argcount)
            self.all("constants", value.co_consts)
        elif isinstance(value, types.FunctionType):
            self._function(value)
        elif isinstance(value, types.MethodType):
            self.all("method", (value.__func__, value.__self__))
        elif isinstance(value, functools.partial):
            self.all("partial", (value.func, value.args, value.keywords))
        elif isinstance(value, (staticmethod, classmethod)):
            self.all("wrapped", (value.__func__,))
        elif isinstance(value, property):
            self.all("property", (value.fget,))
        elif isinstance(value, types.ModuleType):
            self.word("module", value.__name__)
        elif isinstance(value, type):
            self._class(value)
        elif not self._array(value):
            self._object(value)

    def _function(self, function: types.FunctionType) -> None:
        if installed(function.__module__):
            self.word("function", function.__module__, function.__qualname__)
            self.all("captured", (cell.cell_contents for cell in function.__closure__ or () if is_filled(cell)))
            return
        self.add(function.__code__)
        self.all("defaults", (function.__defaults__, function.__kwdefaults__))
        self.all("captured", (cell.cell_contents for cell in function.__closure__ or () if is_filled(cell)))
        outside = [name for name in names(function.__code__) if name in function.__globals__]
        self.named("globals", {name: function.__globals__[name] for name in outside})

    def _class(self, kind: type) -> None:
        self.word("class", kind.__module__, kind.__qualname__)
        if not installed(kind.__module__):
            self.all("bases", kind.__bases__)
            self.named("members", {name: item for name, item in vars(kind).items() if name not in SKIPPED})

    def _array(self, value: Any) -> bool:
        """Add the numbers of a tensor or an array; return whether the value is one."""
        import numpy as np
        from torch import Tensor

        if not isinstance(value, (Tensor, np.ndarray, np.generic)):
            return False
        self.word("array", value.dtype, tuple(value.shape))
        if isinstance(value, Tensor):
            import torch

            value = value.detach().cpu().contiguous()
            value = value.reshape(-1).view(torch.uint8).numpy() if value.numel() else np.zeros(0)
        self.hash.update(value.tobytes())
        return True

    def _object(self, value: Any) -> None:
        from torch import nn

        self.add(type(value))
        if isinstance(value, nn.Module):
            self._network(value)
            return
        slots = [name for kind in type(value).__mro__ for name in _slots(kind) if hasattr(value, name)]
        if isinstance(getattr(value, "__dict__", None), dict) or slots:
            self.named(
                "attributes", {**getattr(value, "__dict__", {}), **{name: getattr(value, name) for name in slots}}
            )
        elif " at 0x" not in repr(value):
            self.word("value", repr(value))
        self.word("name", getattr(value, "__module__", ""), getattr(value, "__qualname__", ""))

    def _network(self, network: Any) -> None:
        attributes = {key: item for key, item in vars(network).items() if key not in _internal()}
        self.named("attributes", attributes)
        hooks = [vars(network).get(name, {}) for name in HOOKS]
        hooks += [getattr(tensor, "_backward_hooks", None) or {} for tensor in network._parameters.values()]
        self.all("hooks", (hook for table in hooks for hook in table.values()))
        saved = network._parameters | {
            name: buffer for name, buffer in network._buffers.items() if name not in network._non_persistent_buffers_set
        }
        for name, tensor in (network._parameters | network._buffers).items():
            shown = None if tensor is None else (str(tensor.dtype), tuple(tensor.shape), tensor.requires_grad)
            self.word("tensor", name, shown)
            if tensor is not None and (self.weights or name not in saved):
                self.add(tensor)
        self.named("layers", network._modules)


@functools.cache
def _internal() -> frozenset[str]:
    """Return the attributes that torch gives every network."""
    from torch import nn

    return frozenset(vars(nn.Module()))


def _slots(kind: type) -> tuple[str, ...]:
    slots = vars(kind).get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)
