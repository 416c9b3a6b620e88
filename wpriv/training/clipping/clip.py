"""Per-example clipping: the sum over a batch of each example's gradient, scaled to an l2 norm of at most C.

Three methods give the same sum up to rounding. ``ghost`` (ghost.py) computes norms and sum from the inputs and output
gradients of the layers, in about the time and memory of ordinary training; ``vmap`` forms the gradient of every
example, for any model that torch.func can batch; ``loop`` runs one example after another. ``auto`` is the fastest
of them that is correct for the model, as a trial on made-up examples decides once (choose_method.py).
"""

from __future__ import annotations

import contextlib
import fnmatch
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from wpriv.config.train_schema import Privacy
from wpriv.errors import UsageError
from wpriv.hints import did_you_mean
from wpriv.training.clipping import record_loss
from wpriv.training.clipping.choose_method import METHODS, method_for
from wpriv.training.clipping.exact_sums import ExactSum, sum_of_gradients
from wpriv.training.clipping.example_gradients import Groups, Loss, Scaling, Summed, bound, total
from wpriv.training.clipping.layer_rules import Copies
from wpriv.training.clipping.model_settings import only_counted
from wpriv.training.clipping.probe_model import check_modules
from wpriv.training.clipping.record_trees import Records, records_of
from wpriv.training.clipping.records_alone import finite_sum, require_alone
from wpriv.training.clipping.spectral_norms import holding
from wpriv.training.noise.release import Bounded


@dataclass(frozen=True)
class Clipped:
    """A clipped sum with diagnostics of single examples: neither they nor figures made from them are private.

    Args:
        total: the sum.
        norms: [B] norms of the gradients before clipping; infinite where a gradient is not finite.
        losses: [B] losses.
    """

    total: Bounded
    norms: Tensor
    losses: Tensor


@holding
def clipped_sum(
    model: nn.Module,
    loss: Loss,
    inputs: Any,
    targets: Any,
    *,
    norm: Scaling | ByGroup,
    adjacency: str,
    method: str = "auto",
    weights: Tensor | None = None,
    exact: bool = False,
    check: int | None = None,
) -> Clipped:
    """Sum the gradients of the examples' losses, each clipped to an l2 norm of ``norm`` over all trainable parameters.

    The part of an example is ``g min(1, norm / (|g| (1 + slack)))``, with a slack above the rounding error, so that its
    norm stays within ``norm`` in floating point too. An example whose gradient is not finite, or too long for its
    square, adds zero (records_alone.py).

    At the first call for a model, and where its modes or layers change, ``probe`` tries it and the loss on made-up
    examples in the model's present mode: no operation may mix the examples of a batch, and the model may keep nothing
    from one call to the next. Spectral norms keep their vectors, which ``spectral_norms.follow`` moves. Then,
    and where a setting of the model or of the loss has changed, what some examples of this batch add to the sum is
    compared with what they add alone (records_alone.py).

    Args:
        model: its output for an example must depend on that example alone.
        loss: (outputs [B, ...], targets [B, ...]) -> losses [B], each of its own example alone; or a loss of torch.nn,
            by its ``reduction`` over what counts of each example (record_loss.py).
        inputs, targets: [B, ...], tensors or trees of them (record_trees.py), which ``forward`` takes by position or by
            name; B may be 0.
        norm: the bound C > 0, in units of the gradient; automatic clipping, whose bound is 1; or a bound for each group
            of parameters, ``{"features.*": 0.5, "head.*": 1}``, or ``per-layer``: see ``groups_of``.
        adjacency: ``add-remove`` (sensitivity C) or ``replace-one`` (2 C).
        method: ``auto``, ``ghost``, ``vmap`` or ``loop``.
        weights: [B] of zeros and ones; examples of weight 0 are padding and add nothing.
        exact: one example after another, in float64 on a grid (exact_sums.py), so that the sensitivity covers every
            rounding; for ``release.add_noise`` with ``exact``. Needs the method ``auto`` or ``loop``, and takes as long
            as ``loop``.
        check: compare examples of this batch with the examples alone in any case, which this number chooses.
    Raises:
        UsageError: an argument is out of range.
        Unsupported: the model or the loss mixes examples, the model keeps something between calls (a buffer that
            changes, for example), or the method cannot treat one of its layers; the message names the place.
    Source:
        Abadi et al. (2016), Algorithm 1, without the noise, which ``release.add_noise`` adds.
    """
    scaling = groups_of(model, norm)
    if exact and isinstance(scaling, Groups):
        raise UsageError("noise: exact clips each gradient to one norm; found a norm for each group of parameters")
    longest = bound(scaling)
    whole = longest if isinstance(scaling, Groups) else scaling
    candidates = _candidates(exact_method(method) if exact else method)
    loss = record_loss.per_record(loss)
    inputs, targets = records_of(inputs), records_of(targets, "targets")
    if len(inputs) != len(targets) or (weights is not None and weights.shape != inputs.shape[:1]):
        other = "" if weights is None else f" and weights of shape {tuple(weights.shape)}"
        raise UsageError(
            f"each example needs one target and one weight; found {len(inputs)} inputs, {len(targets)} targets{other}"
        )
    if weights is not None and not bool(((weights == 0) | (weights == 1)).all()):
        raise UsageError("the weights of examples must be 0 or 1; found another number")
    check_modules(model)
    sensitivity = longest if adjacency == "add-remove" else 2 * longest
    trainable = [p for p in model.parameters() if p.requires_grad]
    if len(inputs) == 0:
        empty = trainable[0].new_zeros(0)
        if exact:
            return Clipped(ExactSum(trainable, whole).bounded(adjacency), empty, empty)
        return Clipped(Bounded([torch.zeros_like(p) for p in trainable], sensitivity, adjacency), empty, empty)

    choice = method_for(model, loss, inputs, targets, candidates=candidates)
    clip = METHODS[choice.method]
    if choice.due(model, loss, len(inputs), check):
        require_alone(model, loss, inputs, targets, whole, seed=check or 0, weights=weights)
    watched = only_counted(model, loss) if choice.counts else contextlib.nullcontext()
    if exact:
        with watched, torch.enable_grad():
            exact_sum, lengths, losses = sum_of_gradients(model, loss, inputs, targets, whole, weights)
        return Clipped(exact_sum.bounded(adjacency), lengths, losses)

    def run(inputs: Records, targets: Records, weights: Tensor | None) -> Summed:
        if not len(inputs):
            return Summed([torch.zeros_like(p) for p in trainable], {}, trainable[0].new_zeros(0))
        with torch.enable_grad():
            return clip(model, loss, inputs, targets, scaling, weights)

    with watched:
        summed = finite_sum(run, inputs, targets, weights)
    return Clipped(Bounded(summed.parts, sensitivity, adjacency), total(summed.squares).sqrt(), summed.losses)


@holding
def choose(
    model: nn.Module,
    loss: Loss,
    inputs: Any,
    targets: Any,
    *,
    method: str = "auto",
    classes: int = 2,
    batch: int = 0,
) -> str:
    """Return the fastest method that gives each example's own gradient: ``auto`` for this model in its present mode.

    It is decided on made-up examples, so that it may be called before any record is used. The trial detects faults that
    the layers do not show, such as a weight that is used once more outside its layer.

    Args:
        inputs, targets: [B, ...]; their shapes and types are used, and their numbers only where the model refuses
            made-up ones; B may be 0.
        method: the only method to try. classes: integer targets are below this. batch: the number of records of a step.
    """
    check_modules(model)
    candidates, loss = _candidates(method), record_loss.per_record(loss)
    inputs, targets = records_of(inputs), records_of(targets, "targets")
    return method_for(model, loss, inputs, targets, candidates=candidates, classes=classes, batch=batch).method


# bounds by pattern of the names of parameters, or the word per-layer
ByGroup = Mapping[str, float] | str


def groups_of(model: nn.Module, norm: Scaling | ByGroup) -> Scaling | Groups:
    """Return the groups of a model's trained parameters that have a clipping norm each; other scalings as they are.

    ``per-layer`` makes a group of the parameters of each of L layers, with the norm 1 / sqrt(L), so that a gradient's
    norm is at most 1. A mapping has a norm for each pattern of names, and each parameter must fit one of them.

    Raises:
        UsageError: a parameter fits no pattern or several, a pattern fits none, or a norm is not above 0.
    """
    if not isinstance(norm, (Mapping, str)):
        return norm
    prefix = "model." if isinstance(model, Copies) else ""
    names = [name.removeprefix(prefix) for name, p in model.named_parameters() if p.requires_grad]
    if isinstance(norm, Mapping):
        members = [tuple(name for name in names if fnmatch.fnmatchcase(name, pattern)) for pattern in norm]
        for pattern, group in zip(norm, members, strict=True):
            if not group:
                advice = did_you_mean(pattern, names) or "."
                raise UsageError(
                    f"clip: no trained parameters fit {pattern!r}{advice} The network has {', '.join(names[:8])}"
                )
        for name in names:
            count = sum(name in group for group in members)
            if count != 1:
                raise UsageError(f"clip: each trained parameter needs one norm; {name!r} fits {count} patterns")
        norms = tuple(bound(float(value)) for value in norm.values())
    elif norm == "per-layer":
        layers: dict[str, list[str]] = {}
        for name in names:
            layers.setdefault(name.rpartition(".")[0], []).append(name)
        members = [tuple(group) for group in layers.values()]
        norms = (1 / math.sqrt(len(members)) * (1 - 2.0**-50),) * len(members)
    else:
        raise UsageError(f"clip: a word must be per-layer; found {norm!r}")
    return Groups(tuple(tuple(prefix + name for name in group) for group in members), norms)


def exact_method(method: str) -> str:
    """Return the method of an exact sum, which takes one example after another."""
    if method not in ("auto", "loop"):
        raise UsageError(f"noise: exact clips one example after another; found method: {method}. Use auto or loop")
    return "loop"


def method_of(private: Privacy) -> str:
    """Return the clipping method of a recipe."""
    return exact_method(private.method) if private.exact else private.method


def _candidates(method: str) -> tuple[str, ...]:
    if method != "auto" and method not in METHODS:
        raise UsageError(f"no clipping method called {method!r}. Known: auto, {', '.join(METHODS)}")
    return tuple(METHODS) if method == "auto" else (method,)
