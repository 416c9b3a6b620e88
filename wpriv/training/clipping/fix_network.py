"""Replace the layers of a network that mix the examples of a batch: ``wpriv.fix``."""

from __future__ import annotations

import copy
from typing import NamedTuple

from torch import nn

from wpriv.errors import UsageError
from wpriv.training.clipping import probe_model
from wpriv.training.clipping.model_state import named

# the largest number of groups of a GroupNorm, and the fewest channels of a group of a layer that may take vectors
# [B, C]: a group of one channel would turn every vector into zeros, and one of two into signs
GROUPS, CHANNELS = 32, 4


class Fixed(NamedTuple):
    """A network whose layers treat each example by itself.

    Args:
        model: the copy. replaced: each changed layer by name, with what stands in its place.
        lost: what the copy does not have of the given network, by layer.
    """

    model: nn.Module
    replaced: list[str]
    lost: list[str]


def fix(model: nn.Module) -> Fixed:
    """Return a copy of a network in which no layer mixes the examples of a batch by its type.

    BatchNorm becomes GroupNorm, with as many groups as the largest divisor of the channels up to 32 (BatchNorm1d keeps
    at least 4 channels in a group). Its weight and bias are carried over; running statistics cannot be, so that the
    copy computes something else and must be trained. A BatchNorm in evaluation mode whose weights are frozen uses
    constants, mixes nothing and stays. InstanceNorm loses its running statistics, and Embedding ``max_norm`` and
    ``scale_grad_by_freq``. The given network is left as it is.

    Returns:
        ``(model, replaced, lost)``; both lists are empty where there was nothing to replace.
    Raises:
        UsageError: it is no network, has lazy layers without a shape, or cannot be copied.
    """
    if not isinstance(model, nn.Module):
        raise UsageError(f"`model` must be a torch.nn.Module; found {type(model).__name__}")
    probe_model.require_shapes(model)
    try:
        fixed = Fixed(copy.deepcopy(model), [], [])
    except RuntimeError as error:
        reason = str(error).partition("\n")[0]
        raise UsageError(f"the network cannot be copied ({reason}); replace its layers where it is made") from None
    layers = {name: module for name, module in fixed.model.named_modules() if not _is_constant(module)}
    for name, module in layers.items():
        where = named(name, module)
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            other = _group_norm(module)
            fixed.replaced.append(f"{where}: {_shown(other)}")
            if module.running_mean is not None:
                fixed.lost.append(f"{where}: running_mean, running_var and num_batches_tracked")
            if name == "":
                return fixed._replace(model=other)
            for parent in fixed.model.modules():  # one layer may stand in several places
                for key in [key for key, child in parent._modules.items() if child is module]:
                    setattr(parent, key, other)
        elif probe_model.instead(module):
            fixed.replaced.append(f"{where}: {_leave_out(module)}")
            if isinstance(module, nn.modules.instancenorm._InstanceNorm):
                fixed.lost.append(f"{where}: running_mean, running_var and num_batches_tracked")
    return fixed


def _is_constant(module: nn.Module) -> bool:
    """Return whether a module is a BatchNorm that stays as it is: frozen, with running statistics in use."""
    trained = any(parameter.requires_grad for parameter in module.parameters())
    return isinstance(module, nn.modules.batchnorm._BatchNorm) and not trained and not probe_model.instead(module)


def _group_norm(layer: nn.modules.batchnorm._BatchNorm) -> nn.Module:
    """Return what stands in the place of a BatchNorm, with its weight and bias."""
    channels = layer.num_features
    vectors = isinstance(layer, nn.BatchNorm1d)
    if vectors and channels == 1:
        return nn.Identity()  # a vector of one number, normalised by itself, is 0
    most = min(GROUPS, max(channels // CHANNELS, 1) if vectors else channels)
    groups = next(count for count in range(most, 0, -1) if channels % count == 0)
    other = nn.GroupNorm(groups, channels, eps=layer.eps, affine=False)
    other.affine, other.weight, other.bias = layer.affine, layer.weight, layer.bias
    return other.train(layer.training)


def _shown(other: nn.Module) -> str:
    if isinstance(other, nn.GroupNorm):
        return f"GroupNorm with {other.num_groups} groups of {other.num_channels} channels, with its weight and bias"
    return "Identity, since a channel alone cannot be normalised by itself"


def _leave_out(module: nn.Module) -> str:
    """Leave the settings out by which an InstanceNorm or an embedding mixes examples; return what was left out."""
    if isinstance(module, nn.modules.instancenorm._InstanceNorm):
        module.track_running_stats = False
        module.running_mean = module.running_var = module.num_batches_tracked = None
        return "without running statistics"
    assert isinstance(module, (nn.Embedding, nn.EmbeddingBag))
    module.scale_grad_by_freq, module.max_norm = False, None
    return "without max_norm and scale_grad_by_freq"
