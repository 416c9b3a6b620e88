"""Per-example clipping: the sum over a batch of each example's gradient, scaled down to a norm of at most C where it is longer.

Three methods give the same sum to rounding. ``ghost`` (wpriv/train/ghost.py) takes norms and sum from what the layers saw, in about
the time and memory of ordinary training; ``vmap`` (wpriv/train/persample.py) forms the gradient of every example, and knows any model
that torch.func can batch; ``loop`` runs one example after another. ``auto`` is ghost where every layer allows it, and vmap elsewhere.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from wpriv.errors import Unsupported, UsageError
from wpriv.train.bound import Loss, Summed, total
from wpriv.train.check import check
from wpriv.train.ghost import ghost
from wpriv.train.persample import loop, vmap
from wpriv.train.release import Bounded

METHODS = {"ghost": ghost, "vmap": vmap, "loop": loop}


@dataclass(frozen=True)
class Clipped:
    """A clipped sum and what was seen on the way: norms [B] of the gradients before clipping, and losses [B].

    Norms and losses are of single examples: they are not private, and neither are figures made from them.
    """

    total: Bounded
    norms: Tensor
    losses: Tensor


def clipped_sum(
    model: nn.Module,
    loss: Loss,
    inputs: Tensor,
    targets: Tensor,
    *,
    norm: float,
    adjacency: str,
    method: str = "auto",
    weights: Tensor | None = None,
) -> Clipped:
    """The sum over examples of the gradient of each one's loss, clipped to l2 norm <= ``norm`` over all trainable parameters.

    One example's part is g min(1, norm / (|g| (1 + slack))), with a slack above what rounding can do to it, so that its norm stays
    within ``norm`` in floating point too.

    Args:
        model: its output for an example must depend on that example alone (``check.probe`` tries it).
        loss: (outputs [B, ...], targets [B, ...]) -> losses [B], each of its own example alone.
        inputs, targets: [B, ...]; B may be 0.
        norm: the bound C > 0, in units of the gradient.
        adjacency: ``add-remove`` (sensitivity C) or ``replace-one`` (2 C).
        method: ``auto``, ``ghost``, ``vmap`` or ``loop``.
        weights: [B] of zeros and ones; examples of weight 0 are padding and add nothing.
    Raises:
        UsageError: an argument is out of range, or a gradient is not a finite number; the message names the parameter.
        Unsupported: the model mixes examples, or the method cannot treat one of its layers; the message names it.
    Source:
        Abadi et al. (2016), Algorithm 1, without the noise, which ``release.noisy`` adds.
    """
    if not 0 < norm < math.inf:
        raise UsageError(f"the clipping norm must be finite and above 0; found {norm}")
    if method != "auto" and method not in METHODS:
        raise UsageError(f"no clipping method called {method!r}. Known: auto, {', '.join(METHODS)}")
    if len(inputs) != len(targets) or (weights is not None and weights.shape != inputs.shape[:1]):
        other = "" if weights is None else f" and weights of shape {tuple(weights.shape)}"
        raise UsageError(f"each example needs one target and one weight; found {len(inputs)} inputs, {len(targets)} targets{other}")
    check(model)
    sensitivity = norm if adjacency == "add-remove" else 2 * norm
    trainable = [p for p in model.parameters() if p.requires_grad]
    if len(inputs) == 0:
        nothing = torch.zeros(0, dtype=trainable[0].dtype, device=trainable[0].device)
        return Clipped(Bounded([torch.zeros_like(p) for p in trainable], sensitivity, adjacency), nothing, nothing)

    with torch.enable_grad():
        found = _summed(method, model, loss, inputs, targets, norm, weights)
    _refuse_nonfinite(found.squares, weights)
    return Clipped(Bounded(found.parts, sensitivity, adjacency), total(found.squares).sqrt(), found.losses)


def choose(model: nn.Module, loss: Loss, inputs: Tensor, targets: Tensor) -> str:
    """The fastest method that agrees with ``loop`` on a few examples: to be asked once before training, in place of ``auto``.

    Finds what no look at the layers can, such as a weight that is used once more behind its layer's back, or a loss that mixes
    examples. Tried on a copy of the model in evaluation mode, where dropout draws nothing.

    Args:
        inputs, targets: [B, ...] a few examples are enough; at most 4 are used.
    Raises:
        As ``clipped_sum``.
    """
    trial = copy.deepcopy(model).eval()
    few = inputs[:4], targets[:4]
    wanted = clipped_sum(trial, loss, *few, norm=1.0, adjacency="add-remove", method="loop")
    for method in ("ghost", "vmap"):
        try:
            found = clipped_sum(trial, loss, *few, norm=1.0, adjacency="add-remove", method=method)
        except Unsupported:
            continue
        if _agree([found.norms, *found.total.parts], [wanted.norms, *wanted.total.parts]):
            return method
    return "loop"


def choose_for(model: nn.Module, loss: Loss, shape: tuple[int, ...], classes: int) -> str:
    """``choose`` on made-up examples of a shape, so that nothing is told of the records; draws nothing from torch's own generator.

    Raises:
        As ``clipped_sum``.
    """
    first = next(model.parameters())
    generator = torch.Generator().manual_seed(0)
    inputs = torch.rand(4, *shape, generator=generator).to(first)
    return choose(model, loss, inputs, torch.randint(classes, (4,), generator=generator).to(first.device))


def _agree(found: list[Tensor], wanted: list[Tensor]) -> bool:
    """Whether two lists of tensors are the same up to what float32 and another order of sums do to them."""
    near = [(f - w).norm() <= 1e-3 * w.norm() + 1e-6 for f, w in zip(found, wanted, strict=True)]
    return bool(torch.stack(near).all())


def _summed(method: str, model: nn.Module, loss: Loss, inputs: Tensor, targets: Tensor, norm: float, weights: Tensor | None) -> Summed:
    if method == "auto":
        try:
            return ghost(model, loss, inputs, targets, norm, weights)
        except Unsupported:
            method = "vmap"
    return METHODS[method](model, loss, inputs, targets, norm, weights)


def _refuse_nonfinite(squares: dict[str, Tensor], weights: Tensor | None) -> None:
    """Sees to it that every gradient is finite and every weight 0 or 1; asks the device once."""
    fine = total(squares).isfinite().all()
    if weights is not None:
        fine = fine & ((weights == 0) | (weights == 1)).all()
    if bool(fine):
        return
    for name, square in squares.items():
        bad = (~square.isfinite()).nonzero()
        if len(bad):
            where = f"example {int(bad[0])} of the batch at {name!r}"
            told = f"the gradient of {where} is not a finite number, so that it cannot be clipped"
            raise UsageError(f"{told}. Look for NaN or infinity in the data and the weights; a lower learning rate may help")
    if not bool(total(squares).isfinite().all()):
        raise UsageError("a gradient is too long for its squared norm to be a finite number; scale the loss down")
    raise UsageError("the weights of examples must be 0 or 1")
