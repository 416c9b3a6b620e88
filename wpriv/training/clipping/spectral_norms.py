"""Spectral normalisation: the vectors u and v are held fixed within a step, and follow the weights between steps.

Torch's layers change u and v by a power iteration in each forward pass in training mode. They depend on the weights
alone, which are made of noisy releases, and so tell nothing else about a record. But the gradient of a record must be
taken for the same u and v as that of every other record of a step.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Concatenate, ParamSpec, TypeVar

import torch
from torch import nn
from torch.nn.utils.parametrizations import _SpectralNorm
from torch.nn.utils.spectral_norm import SpectralNorm

P = ParamSpec("P")
T = TypeVar("T")
Norm = SpectralNorm | _SpectralNorm


def norms_of(model: nn.Module) -> list[tuple[nn.Module, str, Norm]]:
    """Return each layer with a spectral norm, the name of its normalised weight, and what normalises it."""
    found: list[tuple[nn.Module, str, Norm]] = []
    for layer in model.modules():
        hooks = vars(layer)["_forward_pre_hooks"].values()
        found += [(layer, hook.name, hook) for hook in hooks if isinstance(hook, SpectralNorm)]
        if torch.nn.utils.parametrize.is_parametrized(layer):
            chains = layer.parametrizations.items()  # type: ignore[union-attr, operator]
            found += [
                (layer, name, each) for name, chain in chains for each in chain if isinstance(each, _SpectralNorm)
            ]
    return found


@contextlib.contextmanager
def held(model: nn.Module) -> Iterator[None]:
    """Leave u and v as they are in all passes of the model within the block."""
    counts = [(norm, norm.n_power_iterations) for _, _, norm in norms_of(model)]
    try:
        for norm, _ in counts:
            norm.n_power_iterations = 0
        yield
    finally:
        for norm, count in counts:
            norm.n_power_iterations = count


def holding(function: Callable[Concatenate[nn.Module, P], T]) -> Callable[Concatenate[nn.Module, P], T]:
    """Return a function of a model during which u and v stay as they are."""

    @functools.wraps(function)
    def inner(model: nn.Module, /, *args: P.args, **keywords: P.kwargs) -> T:
        with held(model):
            return function(model, *args, **keywords)

    return inner


def follow(model: nn.Module) -> None:
    """Let u and v follow the present weights by a pass's power iterations, where the layer is in training mode."""
    with torch.no_grad():
        for layer, name, norm in norms_of(model):
            if isinstance(norm, SpectralNorm):
                norm.compute_weight(layer, do_power_iteration=layer.training)
            else:
                getattr(layer, name)
