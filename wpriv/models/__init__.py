"""Networks to train, one file each, named as users type them.

Each file has ``Params``, ``SOURCE`` and ``build(params, shape, classes)``. Importing a model does
not load torch, so that recipes are checked without it: ``build`` imports what it needs. Unless a parameter asks for the
published form of a paper that mixes examples, a model processes each example independently, as per-example clipping
requires. No layer works in place. Initial weights are drawn from torch's global generator, which the caller seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wpriv.config.field_types import PluginRef
from wpriv.core import registry


def build(model: PluginRef, shape: Sequence[int], classes: int) -> Any:
    """Build the model that a recipe names for examples of shape ``shape``.

    Raises:
        UsageError: there is no such model or parameter, or the model does not accept examples of this shape.
    """
    params = registry.params("models", model.name, model.parameters())
    return registry.load("models", model.name).build(params, tuple(shape), classes)
