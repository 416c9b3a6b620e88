"""Per-example clipping: the sum over a batch of each example's gradient, scaled down to a norm of at most C where it is longer.

Three methods give the same sum to rounding. ``ghost`` (ghost.py) takes norms and sum from what the layers saw, in about
the time and memory of ordinary training; ``vmap`` (per_sample.py) forms the gradient of every example, and treats any
model that torch.func can batch; ``loop`` runs one example after another. ``auto`` is the first of them that is right
for the model, which a trial on made-up examples decides once (choose_method.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from wpriv.config.train_schema import Privacy
from wpriv.engine.clipping.choose_method import METHODS, method_for
from wpriv.engine.clipping.common import Loss, total
from wpriv.engine.exact_sums import ExactSum, sum_of_gradients
from wpriv.engine.model_checks.validate_model import check
from wpriv.engine.release import Bounded
from wpriv.errors import UsageError


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
    exact: bool = False,
) -> Clipped:
    """The sum over examples of the gradient of each one's loss, clipped to l2 norm <= ``norm`` over all trainable parameters.

    One example's part is g min(1, norm / (|g| (1 + slack))), with a slack above what rounding can do to it, so that its norm stays
    within ``norm`` in floating point too.

    At the first call for a model, and where its modes or layers change, ``probe`` tries it and the loss on made-up examples in the
    model's present mode: nothing may mix the examples of a batch, and nothing may be kept from one call to the next.

    Args:
        model: its output for an example must depend on that example alone.
        loss: (outputs [B, ...], targets [B, ...]) -> losses [B], each of its own example alone.
        inputs, targets: [B, ...]; B may be 0.
        norm: the bound C > 0, in units of the gradient.
        adjacency: ``add-remove`` (sensitivity C) or ``replace-one`` (2 C).
        method: ``auto``, ``ghost``, ``vmap`` or ``loop``.
        weights: [B] of zeros and ones; examples of weight 0 are padding and add nothing.
        exact: one example after another, in float64 on a grid (wpriv/engine/exact_sums.py), so that the sensitivity covers
            every rounding; for ``release.noisy`` with ``exact``. Needs the method ``auto`` or ``loop``, and takes as
            long as ``loop``.
    Raises:
        UsageError: an argument is out of range, or a gradient is not a finite number; the message names the parameter.
        Unsupported: the model or the loss mixes examples, the model keeps something between calls (a buffer that moves, say), or the
            method cannot treat one of its layers; the message names the place.
    Source:
        Abadi et al. (2016), Algorithm 1, without the noise, which ``release.noisy`` adds.
    """
    if not 0 < norm < math.inf:
        raise UsageError(f"the clipping norm must be finite and above 0; found {norm}")
    candidates = _candidates(exact_method(method) if exact else method)
    if len(inputs) != len(targets) or (weights is not None and weights.shape != inputs.shape[:1]):
        other = "" if weights is None else f" and weights of shape {tuple(weights.shape)}"
        raise UsageError(
            f"each example needs one target and one weight; found {len(inputs)} inputs, {len(targets)} targets{other}"
        )
    check(model)
    sensitivity = norm if adjacency == "add-remove" else 2 * norm
    trainable = [p for p in model.parameters() if p.requires_grad]
    if len(inputs) == 0:
        if exact:
            nothing = trainable[0].new_zeros(0)
            return Clipped(ExactSum(trainable, norm).bounded(adjacency), nothing, nothing)
        nothing = torch.zeros(0, dtype=trainable[0].dtype, device=trainable[0].device)
        return Clipped(Bounded([torch.zeros_like(p) for p in trainable], sensitivity, adjacency), nothing, nothing)

    right = METHODS[method_for(model, loss, inputs, targets, candidates=candidates)]
    if exact:
        with torch.enable_grad():
            whole, lengths, losses = sum_of_gradients(model, loss, inputs, targets, norm, weights)
        _refuse_nonfinite({"all parameters": lengths}, weights)
        return Clipped(whole.bounded(adjacency), lengths, losses)
    with torch.enable_grad():
        found = right(model, loss, inputs, targets, norm, weights)
    _refuse_nonfinite(found.squares, weights)
    return Clipped(Bounded(found.parts, sensitivity, adjacency), total(found.squares).sqrt(), found.losses)


def choose(
    model: nn.Module, loss: Loss, inputs: Tensor, targets: Tensor, *, method: str = "auto", classes: int = 2
) -> str:
    """The fastest method that gives each example's own gradient: what ``auto`` is for this model in its present mode.

    Decided on made-up examples, so that it may be asked before any record is seen. Finds what no look at the layers can, such as a
    weight that is used once more outside its layer.

    Args:
        inputs, targets: [B, ...] their shapes and types are used, and their numbers only where the model refuses made-up ones; B may be 0.
        method: a method to try alone, in place of all of them. classes: whole numbers among the targets are below this.
    Raises:
        As ``clipped_sum``.
    """
    check(model)
    return method_for(model, loss, inputs, targets, candidates=_candidates(method), classes=classes)


def choose_for(model: nn.Module, loss: Loss, shape: tuple[int, ...], classes: int, method: str = "auto") -> str:
    """``choose`` for records of a shape with labels below ``classes``.

    Raises:
        As ``clipped_sum``.
    """
    first = next(model.parameters())
    inputs = torch.empty(0, *shape, dtype=first.dtype, device=first.device)
    return choose(model, loss, inputs, inputs.new_empty(0, dtype=torch.int64), method=method, classes=classes)


def exact_method(method: str) -> str:
    """The method of an exact sum, which takes one example after another.

    Raises:
        UsageError: another method is asked for.
    """
    if method not in ("auto", "loop"):
        raise UsageError(f"noise: exact clips one example after another; found method: {method}. Use auto or loop")
    return "loop"


def method_of(private: Privacy) -> str:
    """The method that a recipe asks for.

    Raises:
        UsageError: as ``exact_method``.
    """
    return exact_method(private.method) if private.exact else private.method


def _candidates(method: str) -> tuple[str, ...]:
    if method != "auto" and method not in METHODS:
        raise UsageError(f"no clipping method called {method!r}. Known: auto, {', '.join(METHODS)}")
    return tuple(METHODS) if method == "auto" else (method,)


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
            raise UsageError(
                f"{told}. Look for NaN or infinity in the data and the weights; a lower learning rate may help"
            )
    if not bool(total(squares).isfinite().all()):
        raise UsageError("a gradient is too long for its squared norm to be a finite number; scale the loss down")
    raise UsageError("the weights of examples must be 0 or 1")
