"""Refuses models whose examples cannot be told apart, by the name of the module and with what to use instead.

Clipping bounds what one example does to a sum only where the output for an example depends on that example alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from wpriv.errors import Unsupported, UsageError

PRECISIONS = (torch.float32, torch.float64)


def check(model: nn.Module) -> None:
    """Sees to it that no module mixes the examples of a batch, by its kind and its present mode.

    Normalisation by fixed statistics (``eval()`` with running statistics) mixes nothing and is let through. A module of an
    unknown kind cannot be judged by its kind: ``probe`` tries the model on data.

    Raises:
        Unsupported: a module mixes examples; the message names it and what to use instead. Or the trainable parameters differ in
            precision or device, or are in a precision in which the bound on a clipped gradient would not hold.
        UsageError: nothing is trainable.
    """
    for name, module in model.named_modules():
        instead = _instead(module)
        if instead:
            told = f"{name or 'the model'!r} ({type(module).__name__}) mixes the examples of a batch"
            raise Unsupported(f"{told}, so that no example's influence can be bounded; {instead}")
    trainable = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    if not trainable:
        raise UsageError("the model has no trainable parameters: requires_grad is false for all of them")
    first, like = trainable[0]
    for name, parameter in trainable:
        if parameter.dtype not in PRECISIONS:
            raise Unsupported(f"parameters must be float32 or float64 for clipping to hold its bound; {name!r} is {parameter.dtype}")
        if parameter.dtype != like.dtype or parameter.device != like.device:
            places = f"{first!r} is {like.dtype} on {like.device}, {name!r} {parameter.dtype} on {parameter.device}"
            raise Unsupported(f"trainable parameters must share one precision and one device; {places}")


def _instead(module: nn.Module) -> str:
    """What to use instead of a module that mixes examples; nothing where it does not."""
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


def probe(model: nn.Module, inputs: Tensor) -> None:
    """Tries the model on a few examples: changing the first must leave the outputs for the others as they are, to the bit.

    Finds what ``check`` cannot know by kind, such as a mean over dimension 0 in a module of one's own. The model's buffers and
    torch's own random numbers are as before afterwards.

    Args:
        inputs: [B, ...] at least two examples as the model takes them; a few are enough.
    Raises:
        Unsupported: the outputs for other examples changed; the message names the first module where they did.
        UsageError: fewer than two examples.
    """
    if len(inputs) < 2:
        raise UsageError("a probe needs at least two examples")
    changed = inputs.clone()
    # nothing hides a NaN; whole numbers (words, say) have none, so that another example stands in
    changed[0] = float("nan") if inputs.is_floating_point() else inputs[-1]
    before = _trace(model, inputs)
    for (name, kind, mine), (_, _, theirs) in zip(before, _trace(model, changed), strict=False):
        if mine.shape[:1] == inputs.shape[:1] and not torch.equal(mine[1:], theirs[1:]):
            told = f"{name or 'the model'!r} ({kind}) mixes the examples of a batch: changing one changes what it gives for the others"
            raise Unsupported(f"{told}. Let each example's output depend on that example alone")


def _trace(model: nn.Module, inputs: Tensor) -> list[tuple[str, str, Tensor]]:
    """The output of every module in the order in which they finish, as (name, kind, output)."""
    found: list[tuple[str, str, Tensor]] = []

    def hook(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def keep(module: nn.Module, args: Any, output: Any) -> None:
            if isinstance(output, Tensor):
                found.append((name, type(module).__name__, output.detach().clone()))

        return keep

    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    handles = [module.register_forward_hook(hook(name)) for name, module in model.named_modules()]
    try:
        with torch.no_grad(), torch.random.fork_rng():
            torch.random.manual_seed(0)
            model(inputs)
    finally:
        with torch.no_grad():
            for name, buffer in model.named_buffers():
                buffer.copy_(buffers[name])
        for handle in handles:
            handle.remove()
    return found
