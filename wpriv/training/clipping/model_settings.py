"""What a model and its loss hold in Python: numbers, switches, objects, functions, classes and globals.

A pass may change it, and a later pass may depend on it: so it is compared before and after passes, and between steps.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import itertools
import operator
import random
import sys
import types
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from wpriv.errors import Unsupported
from wpriv.training.clipping.model_state import DEPTH, INTERNAL, Values, attribute_name, changed, python_attributes

LIBRARIES = ("wpriv", "torch", "numpy")


def installed(module: str | None) -> bool:
    """Return whether a module is one of Python, torch, numpy or another installed library, and not of the program."""
    top = (module or "").partition(".")[0]
    if top == "__main__":
        return False
    if top in LIBRARIES or top in sys.stdlib_module_names:
        return True
    file = getattr(sys.modules.get(module or ""), "__file__", None) or ""
    return "site-packages" in file or "dist-packages" in file


def names(code: types.CodeType) -> list[str]:
    """Return the names of globals and attributes in a function and the functions within it."""
    nested = [name for part in code.co_consts if isinstance(part, types.CodeType) for name in names(part)]
    return list(dict.fromkeys([*code.co_names, *nested]))


# depth to which functions and objects are searched; attributes alone are searched to ``DEPTH``
REACH = 10
# the number of items of a container that are compared
ITEMS = 64
# about the number of numbers of a tensor that are compared
SAMPLE = 2**20
# the largest number of numbers of a tensor that is compared like a switch before each step
FEW = 16
PLAIN = (type(None), bool, int, float, complex, str, bytes)
CONTAINERS = (list, tuple, set, frozenset, collections.deque, dict)
TABLES = ("_parameters", "_buffers", "_modules")
POSITION = "position"
FUNCTIONS = "what the loss holds", "what the scores hold"
Settings = dict[str, Hashable]
# objects by their identity, and what is compared of each
Known = dict[int, tuple[object, Hashable]]


@dataclass(frozen=True)
class Snapshot:
    """A snapshot of a model and functions: numbers of tensors that are no weights of the model, and settings."""

    tensors: Values
    settings: Settings

    def steps_to(self, later: Snapshot) -> Settings:
        """Return by name how settings differ at a later moment: differences of whole numbers, or the new values."""
        steps: Settings = {}
        for name, value in later.settings.items():
            if value == self.settings.get(name):
                continue
            old, new = _leaves(self.settings.get(name)), _leaves(value)
            if len(old) == len(new):
                steps[name] = tuple(_step(one, two) for one, two in zip(old, new, strict=True))
            else:
                added = collections.Counter(new) - collections.Counter(old)
                steps[name] = tuple(0 if _is_whole(leaf) else leaf for leaf in sorted(added, key=repr))
        return steps

    def data_in(self, later: Snapshot) -> str | None:
        """Return the name of what changed up to a later moment and is no count: a tensor, a fraction, a word."""
        steps = self.steps_to(later).items()
        of_settings = next((name for name, step in steps if not all(isinstance(part, int) for part in step)), None)  # type: ignore[attr-defined]
        return of_settings or _root(changed(self.tensors, later.tensors))


def snapshot(model: nn.Module, *functions: object) -> Snapshot:
    """Return what a model and functions (a loss, for example) hold now, with the places of generators."""
    return Snapshot(_held(model, functions), settings(model, *functions, positions=True))


@contextlib.contextmanager
def only_counted(model: nn.Module, *functions: object) -> Iterator[None]:
    """Refuse a step of a model that counts its calls, and in the block keeps more than counts."""
    before = snapshot(model, *functions)
    yield
    name = before.data_in(snapshot(model, *functions))
    if name is not None:
        raise Unsupported(
            f"the training stops: {name} changed in a step by more than a count of calls, and so keeps data of the "
            f"records, which could reach others. Compute it in each pass, and do not store it"
        )


def settings(model: nn.Module, *functions: object, deep: bool = True, positions: bool = False) -> Settings:
    """Return the numbers and words in Python attributes of the modules, also within containers, by name.

    Args:
        functions: a loss and scores, whose code and variables are returned too. deep: also within functions, objects
            and classes of the modules. positions: also of iterators and of generators of random numbers.
    """
    known: Known = {}
    return {name: _plain(value, known, deep, positions) for name, value in _roots(model, functions, deep)}


def _roots(model: nn.Module, functions: Iterable[object], deep: bool) -> Iterator[tuple[str, object]]:
    """Yield what the modules, their classes and functions hold, with names."""
    yield from ((attribute_name(name, key), value) for name, _, key, value in python_attributes(model))
    if not deep:
        return
    for kind in {kind: None for module in model.modules() for kind in type(module).__mro__}:
        yield from ((f"{kind.__qualname__}.{key}", value) for key, value in _members(kind))
    yield from zip(FUNCTIONS, functions, strict=False)


def _members(kind: type) -> list[tuple[str, object]]:
    """Return the attributes of a class of the program; none of a library's."""
    if installed(kind.__module__):
        return []
    return [(key, value) for key, value in vars(kind).items() if not key.startswith("__")]


def _plain(
    value: object, known: dict[int, tuple[object, Hashable]], deep: bool, positions: bool, level: int = 0
) -> Hashable:
    """Return what is compared of a value: numbers, words, functions, and the first items of containers and objects.

    Of larger tensors and arrays, modules of Python and deeper levels it is the type alone.

    Args:
        known: by their identity, the objects that were met before, which are held here: another object could get the
            identity of one that is gone.
    """
    if type(value) in PLAIN or isinstance(value, PLAIN):
        return type(value).__name__, repr(value)
    if isinstance(value, (Tensor, np.ndarray)):
        return _switches(value) if deep else type(value).__name__
    if level == (REACH if deep else DEPTH) or isinstance(value, types.ModuleType):
        return type(value).__name__
    if id(value) not in known:
        known[id(value)] = value, type(value).__name__  # within itself
        parts = itertools.islice(_parts(value, deep), ITEMS)
        items = [_plain(part, known, deep, positions, level + 1) for part in parts]
        place = _position(value) if positions else None
        count = len(value) if isinstance(value, CONTAINERS) else 0
        known[id(value)] = value, (type(value).__name__, count, *items, *([] if place is None else [(POSITION, place)]))
    return known[id(value)][1]


def _switches(value: Tensor | np.ndarray[Any, Any]) -> Hashable:
    """Return the numbers of a small tensor or array, which may choose a way; the type of others and of parameters."""
    kind = type(value).__name__
    if isinstance(value, Tensor) and (value.requires_grad or value.device.type != "cpu"):
        return kind
    if value.shape.numel() > FEW if isinstance(value, Tensor) else value.size > FEW:
        return kind
    try:
        return kind, repr(value.tolist())
    except RuntimeError:  # kept from a pass of torch.func
        return kind


def _parts(value: object, deep: bool) -> Iterable[object]:
    """Return the values of which a container, a function or an object consists."""
    if isinstance(value, dict):
        return value.items()
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=repr)  # the order of a set changes with a copy
    if isinstance(value, CONTAINERS):
        return value
    if not deep:
        return ()
    if isinstance(value, nn.Module):
        return ((key, item) for key, item in vars(value).items() if key not in INTERNAL or key in TABLES)
    if isinstance(value, types.CodeType):
        return value.co_code, *value.co_consts
    if isinstance(value, types.FunctionType):
        return _parts_of_function(value)
    if isinstance(value, types.MethodType):
        return value.__func__, value.__self__
    if isinstance(value, functools.partial):
        return value.func, value.args, value.keywords
    if isinstance(value, type):
        return _members(value)
    return (vars(value),) if hasattr(value, "__dict__") else ()


def _parts_of_function(function: types.FunctionType) -> Iterable[object]:
    """Return the code of a function, what it captures, and the globals and attributes of own modules that it names."""
    captured = (*map(_content, function.__closure__ or ()), function.__defaults__, function.__kwdefaults__)
    if installed(function.__module__):
        return captured
    words = names(function.__code__)
    outside = [function.__globals__.get(word) for word in words]
    modules = [value for value in outside if isinstance(value, types.ModuleType) and not installed(value.__name__)]
    return function.__code__, *captured, *outside, *(vars(each).get(word) for each in modules for word in words)


def _content(cell: types.CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:
        return None  # it is not filled yet


def _position(value: object) -> Hashable:
    """Return the place of an iterator or of a generator of random numbers of the program; None of other objects."""
    if isinstance(value, random.Random):
        return hash(value.getstate())
    if isinstance(value, np.random.Generator):
        return repr(value.bit_generator.state)
    if isinstance(value, np.random.RandomState):
        return repr(value.get_state(legacy=False)["state"]["pos"]), value.get_state()[1].tobytes()  # type: ignore[index, call-overload]
    if isinstance(value, torch.Generator):
        return value.get_state().numpy().tobytes()
    if isinstance(value, types.GeneratorType):
        return None if value.gi_frame is None else (value.gi_frame.f_lasti, repr(value.gi_frame.f_locals))
    return (repr(value), operator.length_hint(value, 0)) if isinstance(value, Iterator) else None


def _held(model: nn.Module, functions: Iterable[object]) -> Values:
    """Return some numbers of the tensors and arrays outside of the model's own parameters and buffers, by name."""
    values: Values = {}
    known: dict[int, object] = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}

    def search(name: str, value: object, level: int) -> None:
        if id(value) in known or level > REACH:
            return
        known[id(value)] = value
        if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
            value = torch.from_numpy(value.reshape(-1)[:: max(1, value.size // SAMPLE)].copy())
        if isinstance(value, Tensor):
            values[f"{name}\0{len(values)}"] = _sample(value)
        elif not isinstance(value, (np.ndarray, types.ModuleType)):
            for part in itertools.islice(_parts(value, True), ITEMS):
                search(name, part, level + 1)

    for name, value in _roots(model, functions, True):
        search(name, value, 0)
    return values


def _sample(tensor: Tensor) -> Tensor:
    """Return about ``SAMPLE`` numbers of a tensor; its identity where it was kept from a pass of torch.func."""
    try:
        flat = tensor.detach().reshape(-1)
        return flat[:: max(1, len(flat) // SAMPLE)].clone()
    except RuntimeError:
        return torch.tensor([id(tensor)])


def _root(name: str | None) -> str | None:
    return None if name is None else name.partition("\0")[0]


def _leaves(value: Hashable) -> list[Any]:
    """Return the numbers, words and types in settings, in order, without the places of generators."""
    if not isinstance(value, tuple):
        return [] if isinstance(value, int) else [value]  # the length of a container
    if value[0] == POSITION:
        return []
    if len(value) == 2 and isinstance(value[1], str):
        return [value]
    return [leaf for part in value for leaf in _leaves(part)]


def _step(before: Any, after: Any) -> Hashable:
    """Return the difference of two whole numbers; of other values 0, or the new one."""
    if before == after:
        return 0
    return int(after[1]) - int(before[1]) if _is_whole(before) and _is_whole(after) else after


def _is_whole(leaf: Hashable) -> bool:
    return isinstance(leaf, tuple) and leaf[0] == "int"
