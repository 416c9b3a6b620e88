"""Networks of wpriv and torch that several tests train: the method that clips them is chosen once in a process.

Choosing it takes half the time of a small training: the network is run on made-up records in many ways. Networks and
losses of a test's own are probed each time, and so is every network in the tests of clipping and of the engine, of
audits with a fault, in the nightly run, and while a function of clipping or of the networks is replaced.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Hashable, Iterable, Sequence
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest
from torch import Tensor, nn

from tests import nightly
from tests.repeated_questions import is_unchanged
from wpriv.training.clipping import choose_method

PROBED = ("training/clipping", "training/models", "training/engine", "training/audit", "papers/penalty")
TESTS = Path(__file__).parent
PACKAGES, SHIPPED = ("wpriv.training.clipping", "wpriv.training.models"), ("torch.nn.", "wpriv.")
PLAIN = (bool, int, float, str, type(None))
_known: dict[Hashable, choose_method.Choice] = {}
_try_methods = choose_method._try_methods


class NotShipped(Exception):
    """A network or a loss is a test's own, or holds something that is."""


def try_methods(probed: Any, rows: Any, larger: Sequence[Any], *rest: Any) -> choose_method.Choice:
    """Return the choice for an equal network, or try the methods; the arguments are those of ``_try_methods``."""
    try:
        if probed.scores is not None or not is_unchanged(PACKAGES):
            raise NotShipped
        modules = tuple(_key_of_module(module) for module in probed.model.modules())
        loss, structure = _key(probed.loss), choose_method.structure(probed.model)
        records = [*rows, *(part for more in larger for part in more)]
        tensors = _digest(part for part in records if part is not None)
    except NotShipped:
        return _try_methods(probed, rows, larger, *rest)
    weights = [*probed.model.named_parameters(), *probed.model.named_buffers()]
    shapes = tuple((name, tensor.shape, bool(tensor.isfinite().all())) for name, tensor in weights)
    key = structure, loss, repr(probed.model), modules, shapes, tensors, len(larger), str(rest)
    if key not in _known:
        choice = _try_methods(probed, rows, larger, *rest)
        if not is_unchanged(PACKAGES):  # a module that this one loaded
            return choice
        _known[key] = choice
    return dataclasses.replace(_known[key])


def _key_of_module(module: nn.Module) -> Hashable:
    """The settings of a layer; its parameters and parts have keys of their own."""
    if not type(module).__module__.startswith(SHIPPED):
        raise NotShipped
    return tuple(
        (name, _key(value))
        for name, value in vars(module).items()
        if isinstance(value, (*PLAIN, tuple)) or callable(value)
    )


def _key(value: object) -> Hashable:
    """A plain value, or a function of wpriv or torch with all that it captures."""
    if isinstance(value, PLAIN):
        return type(value), value
    if isinstance(value, tuple):
        return tuple(map(_key, value))
    if isinstance(value, functools.partial):
        return _key(value.func), _key(value.args), _key(tuple(sorted(value.keywords.items())))
    if isinstance(value, nn.Module) and not value.state_dict():  # such as a loss of torch
        return choose_method.structure(value), repr(value), tuple(map(_key_of_module, value.modules()))
    if isinstance(value, FunctionType) and value.__module__.startswith(SHIPPED):
        cells = tuple(cell.cell_contents for cell in value.__closure__ or ())
        further = tuple((value.__kwdefaults__ or {}).items())
        return value.__code__, _key((*cells, *(value.__defaults__ or ()), *further))
    raise NotShipped


def _digest(tensors: Iterable[object]) -> str:
    digest = hashlib.sha256()
    for tensor in tensors:
        if not isinstance(tensor, Tensor):
            raise NotShipped
        digest.update(f"{tensor.dtype} {tuple(tensor.shape)} {tensor.device}".encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def set_probing(item: pytest.Item) -> None:
    """Choose for a test, and the fixtures that are set up for it, whether each network is probed."""
    path = item.path.relative_to(TESTS).as_posix() if item.path.is_relative_to(TESTS) else ""
    is_probed = nightly.WHOLE or path.startswith(PROBED)
    choose_method._try_methods = _try_methods if is_probed else try_methods
    if not is_probed:
        _see_modules(path)


@functools.cache
def _see_modules(path: str) -> None:
    """See the modules that a file of tests has loaded, before its first test can change them."""
    is_unchanged(PACKAGES)
