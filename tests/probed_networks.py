"""Networks of wpriv and torch that several tests train: the method that clips them is chosen once in a process.

Choosing it takes half the time of a small training: the network is run on made-up records in many ways. Networks and
losses of a test's own are probed each time, and so is every network in the tests of clipping and of the engine, of
audits with a fault, and in the nightly run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor, nn

from tests import nightly
from wpriv.training.clipping import choose_method

PROBED = ("training/clipping", "training/models", "training/engine", "training/audit", "papers/penalty")
TESTS = Path(__file__).parent
PLAIN = (bool, int, float, str, type(None))
_known: dict[Hashable, choose_method.Choice] = {}
_try_methods = choose_method._try_methods


def try_methods(probed: Any, rows: Any, larger: Sequence[Any], *rest: Any) -> choose_method.Choice:
    """Return the choice for an equal network, or try the methods; the arguments are those of ``_try_methods``."""
    modules, tensors = [*probed.model.modules()], [part for part in rows if part is not None]
    is_shipped = all(type(module).__module__.startswith(("torch.nn.", "wpriv.")) for module in modules)
    if probed.scores is not None or not is_shipped or not all(isinstance(part, Tensor) for part in tensors):
        return _try_methods(probed, rows, larger, *rest)
    key = (
        *(choose_method.structure(probed.model), choose_method.identity(probed.loss), repr(probed.model)),
        tuple(_settings(module) for module in modules),
        tuple((name, tensor.shape) for name, tensor in probed.model.state_dict().items()),
        tuple((tuple(part.shape), part.dtype) for part in tensors),
        tuple(len(more.inputs) for more in larger),
        tuple(map(str, rest)),
    )
    if key not in _known:
        _known[key] = _try_methods(probed, rows, larger, *rest)
    return dataclasses.replace(_known[key])


def _settings(module: nn.Module) -> Hashable:
    return tuple((name, value) for name, value in vars(module).items() if isinstance(value, PLAIN))


def set_probing(item: pytest.Item) -> None:
    """Choose for a test, and the fixtures that are set up for it, whether each network is probed."""
    path = item.path.relative_to(TESTS).as_posix() if item.path.is_relative_to(TESTS) else ""
    is_probed = nightly.WHOLE or path.startswith(PROBED)
    choose_method._try_methods = _try_methods if is_probed else try_methods
