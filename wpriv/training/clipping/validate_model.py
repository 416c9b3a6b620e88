"""Refuse models that mix the examples of a batch, by the types of their modules; ``probe`` tests all others.

Clipping bounds the influence of an example on a sum only if its output depends on that example alone.
"""

from __future__ import annotations

import torch
from torch import nn

from wpriv.errors import Unsupported, UsageError

PRECISIONS = (torch.float32, torch.float64)


def check(model: nn.Module) -> None:
    """Refuse modules that mix examples, by type and present mode, and parameters that cannot be clipped.

    Normalisation by fixed statistics (``eval()`` with running statistics) mixes nothing and is allowed. Modules of
    other types are tested by ``wpriv.training.clipping.probe_model.probe``, which tries the model on examples.

    Raises:
        Unsupported: a module mixes examples; the message names it and a replacement. Or the trainable parameters differ
            in precision or device, or have a precision in which the bound on a clipped gradient would not hold.
        UsageError: no parameter is trainable, or a lazy layer has no shape yet.
    """
    require_shapes(model)
    for name, module in model.named_modules():
        if isinstance(module, torch.jit.ScriptModule):
            raise Unsupported(
                f"{name or 'the model'!r} is compiled by torch.jit and cannot be tested; give the original module"
            )
        instead = _instead(module)
        if instead:
            raise Unsupported(
                f"{name or 'the model'!r} ({type(module).__name__}) mixes the examples of a batch, so that the "
                f"influence of an example is not bounded; {instead}"
            )
    trainable = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    if not trainable:
        raise UsageError("the model has no trainable parameters: requires_grad is false for all of them")
    first, like = trainable[0]
    for name, parameter in trainable:
        if parameter.dtype not in PRECISIONS:
            raise Unsupported(
                f"parameters must be float32 or float64 for clipping to hold its bound; {name!r} is {parameter.dtype}"
            )
        if parameter.dtype != like.dtype or parameter.device != like.device:
            places = f"{first!r} is {like.dtype} on {like.device}, {name!r} {parameter.dtype} on {parameter.device}"
            raise Unsupported(f"trainable parameters must share one precision and one device; {places}")


def require_shapes(model: nn.Module) -> None:
    """Refuse a model with lazy layers that have no shape yet.

    Raises:
        UsageError: it has one.
    """
    for name, parameter in model.named_parameters():
        if isinstance(parameter, nn.parameter.UninitializedParameter):
            raise UsageError(
                f"{name!r} has no shape yet: pass made-up examples through a model with lazy layers before training it"
            )


def _instead(module: nn.Module) -> str:
    """Return a replacement for a module that mixes examples; empty for others."""
    if isinstance(module, nn.modules.batchnorm._BatchNorm) and (module.training or module.running_mean is None):
        return "use nn.GroupNorm, which normalises each example by itself"
    if isinstance(module, nn.modules.instancenorm._InstanceNorm) and module.training and module.track_running_stats:
        return "leave track_running_stats off"
    if isinstance(module, (nn.Embedding, nn.EmbeddingBag)):
        if module.scale_grad_by_freq:
            return "leave scale_grad_by_freq off, which counts words over the batch"
        if module.max_norm is not None:
            return "leave max_norm out, which changes the weight by the words of the batch"
    return ""
