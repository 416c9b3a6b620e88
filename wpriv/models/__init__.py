"""Networks to train, one file each, by the name users type: ``Params``, ``SOURCE`` and ``build(params, shape, classes)``.

A module works on each example by itself, as per-example clipping needs, unless a parameter asks for the published form of a paper
that does not. Nothing is done in place. Weights come from torch's global generator, which the caller seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wpriv.config.field_types import PluginRef
from wpriv.core import registry


def build(model: PluginRef, shape: Sequence[int], classes: int) -> Any:
    """The model that a recipe names, for examples of a shape.

    Raises:
        UsageError: no such model or parameter, or it takes no such examples.
    """
    return registry.load("models", model.name).build(
        registry.params("models", model.name, model.parameters()), tuple(shape), classes
    )
