"""Networks to train, one file or one class of ``_networks.py`` each, named as users type them.

Each has ``Params``, ``SOURCE`` and ``build(params, shape, classes)``. Importing a model does
not load torch, so that recipes are checked without it: ``build`` imports what it needs. Unless a parameter asks for the
published form of a paper that mixes examples, a model processes each example independently, as per-example clipping
requires. No layer works in place. Initial weights are drawn from torch's global generator, which the caller seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wpriv.config.field_types import OwnCode, PluginRef
from wpriv.core import registry
from wpriv.errors import UsageError
from wpriv.files import python_file
from wpriv.training.models._networks import DECLARED

__all__ = ["DECLARED", "build"]


def build(model: PluginRef, shape: Sequence[int], classes: int) -> Any:
    """Build the model that a recipe names for examples of shape ``shape``.

    A class or function in a Python file of the user's gets ``shape`` and ``classes`` if it takes them.
    """
    if not (isinstance(model, OwnCode) and model.own):
        params = registry.params("models", model.name, model.parameters())
        return registry.load("models", model.name).build(params, tuple(shape), classes)
    from torch import nn

    assert model.file is not None
    network = python_file.call(model.file, model.name, model.parameters(), {"shape": tuple(shape), "classes": classes})
    if not isinstance(network, nn.Module):
        raise UsageError(f"{model.file}: {model.name} must give a torch.nn.Module; found {type(network).__name__}")
    return network
