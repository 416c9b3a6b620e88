"""The private gradient of a loss with a (sliced) Wasserstein term: clipped so that no record moves it by more than its sensitivity.

W_2^2 pulls the scores g_i of each example along some a_i, which hangs on the ranks of all scores; what it does to the weights is
J_i^T a_i, J_i the Jacobian of g_i. So scores are projected to the ball of radius M before they are ranked, and each J_i is clipped
to norm L. All directions of the sliced distance go into the one a_i [d] first, so that the model is passed back once for each of the
d coordinates of its scores, to know how J_i is to be clipped, and once more for everything: never for a direction or an example.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from wpriv.core.adjacency import Adjacency
from wpriv.engine.clipping.choose_method import method_for as tried
from wpriv.engine.clipping.common import Loss, clip_factors, losses_of
from wpriv.engine.clipping.ghost import Call, forward
from wpriv.engine.model_checks.validate_model import check
from wpriv.engine.penalty.jacobian import along, formed_grams, grams, row_factors, row_squares, spectral_factors
from wpriv.engine.penalty.penalty import Penalty
from wpriv.engine.release import Bounded
from wpriv.errors import UsageError
from wpriv.transport import line

METHODS = ("auto", "ghost", "vmap")
HELD = 2**25
"""Numbers that the projections of a group take at a time: 128 MiB in float32."""


@dataclass(frozen=True)
class Penalised:
    """A clipped gradient with its sensitivity, and what was seen on the way, which is not private and neither are figures made from it.

    ``cost`` is the mean over pairs of (sliced) W_2^2 between projected scores; ``jacobians`` [n] are the Frobenius norms of the Jacobians
    before clipping; ``losses`` [n] and ``norms`` [n] are the losses and their gradients' norms before clipping, None where alpha is 1.
    """

    total: Bounded
    cost: Tensor
    jacobians: Tensor
    losses: Tensor | None
    norms: Tensor | None


class Weights(NamedTuple):
    """(Sliced) W_2^2, and its derivatives in every record of both samples."""

    cost: Tensor
    x: Tensor
    z: Tensor


def penalised_gradient(
    model: nn.Module,
    loss: Loss | None,
    inputs: Tensor,
    targets: Tensor | None,
    penalty: Penalty,
    *,
    directions: Tensor | None = None,
    points: Tensor | None = None,
    scores: Callable[[Any], Tensor] | None = None,
    method: str = "auto",
) -> Penalised:
    """The gradient of ``penalty`` by the model's weights, with its sensitivity under replacing a record within its group.

    Args:
        model: its output for an example must depend on that example alone, which is tried as in ``clipped_sum``.
        loss: (outputs, targets [n, ...]) -> losses [n]; it and ``targets`` may be None where alpha = 1.
        inputs: [n, ...] the groups one after another: first and second of the first pair, of the second pair, and so on. With
            ``penalty.fixed`` the first groups alone.
        directions: [d, k] unit columns (``sliced.random_directions``), the same for all groups; None where scores are numbers (d = 1).
        points: [m, d] the second groups one after another, with ``penalty.fixed``.
        scores: outputs -> [n, d], what the penalty compares; the outputs themselves by default ([n] is [n, 1]).
        method: ``ghost`` (by what the layers saw), ``vmap`` (Jacobians formed a few examples at a time), or ``auto``: the first of them
            that is right for the model.
    Raises:
        UsageError: sizes, shapes or directions do not fit, or a score or gradient is not finite.
        Unsupported: the model, the loss or the scores mix examples, the model keeps something between calls, or it can neither be
            treated layer by layer nor batched by torch.func; the message names the place.
    Source:
        Rodriguez-Vitores, Lalanne, Loubes (2025), (3) with (5) or (6), Algorithm 1 without the noise, which ``release.noisy`` adds.
    """
    if method not in METHODS:
        raise UsageError(f"no method called {method!r} for this gradient. Known: {', '.join(METHODS)}")
    _check(penalty, loss, inputs, targets, points)
    method = method_for(model, loss if penalty.alpha < 1 else None, inputs, targets, scores=scores, method=method)
    with torch.enable_grad():
        seen = _see(method, model, loss if penalty.alpha < 1 else None, inputs, targets, scores)
        _check_scores(seen.scores, directions, points)
        lengths = _lengths(model, seen, inputs, targets, penalty)
        _refuse_nonfinite(seen, lengths)
        with torch.no_grad():
            pull, cost = _pull(seen.scores.detach(), points, directions, penalty)
            if lengths.gram is not None and penalty.clipping == "spectral":
                clipped = (spectral_factors(lengths.gram, penalty.lipschitz) @ pull.unsqueeze(2)).squeeze(2)
            else:
                clipped = row_factors(lengths.rows, penalty.lipschitz) * pull
        objective = penalty.alpha / len(penalty.sizes) * (seen.scores * clipped).sum()
        if seen.losses is not None and lengths.losses is not None:
            share = clip_factors({"loss": lengths.losses}, penalty.clip)
            objective = objective + (1 - penalty.alpha) / penalty.batch * (seen.losses * share).sum()
        trainable = [p for p in model.parameters() if p.requires_grad]
        parts = list(torch.autograd.grad(objective, trainable, allow_unused=True, materialize_grads=True))
    return Penalised(
        Bounded(parts, penalty.sensitivity, Adjacency.WITHIN_GROUP),
        cost,
        lengths.rows.sum(dim=1).sqrt(),
        None if seen.losses is None else seen.losses.detach(),
        None if lengths.losses is None else lengths.losses.sqrt(),
    )


def method_for(
    model: nn.Module,
    loss: Loss | None,
    inputs: Tensor,
    targets: Tensor | None,
    *,
    scores: Callable[[Any], Tensor] | None = None,
    method: str = "auto",
) -> str:
    """The method of ``penalised_gradient`` that is right for a model, tried on made-up examples in the shape of ``inputs``.

    Raises:
        Unsupported: as ``penalised_gradient``.
    """
    check(model)
    candidates = METHODS[1:] if method == "auto" else (method,)
    return tried(model, loss, inputs, None if loss is None else targets, candidates=candidates, scores=scores)


def weights(x: Tensor, z: Tensor, directions: Tensor | None) -> Weights:
    """W_2^2 between scores [n, 1] and [m, 1], or its mean over the columns of ``directions`` [d, k], with its derivatives in the scores.

    Ties share their weights, and nothing but a record's own score decides where it falls: the sliced distance of transport/ may move its
    origin amid the data to keep digits, which would let one record decide how others that are nearly tied are ranked.

    Source:
        Proposition 3.2 of the paper; one matrix for all directions is wpriv's.
    """
    if directions is None:
        found = line.gradients(x, z)
        return Weights(found.cost.mean(), found.x, found.y)
    costs, out_x, out_z = [], torch.zeros_like(x), torch.zeros_like(z)
    k = directions.shape[1]
    for own in torch.split(directions, max(1, HELD // (len(x) + len(z))), dim=1):
        # a copy of each direction as a row, so that the samples to be sorted lie in rows
        found = line.gradients((own.T @ x.T).T, (own.T @ z.T).T)
        costs.append(found.cost)
        out_x.addmm_(found.x, own.T, alpha=1 / k)
        out_z.addmm_(found.y, own.T, alpha=1 / k)
    return Weights(torch.cat(costs).mean(), out_x, out_z)


def project(scores: Tensor, bound: float) -> Tensor:
    """The scores [n, d] brought to norms of at most ``bound``; numbers (d = 1) that are too large become equal, and tie."""
    if scores.shape[1] == 1:
        return scores.clamp(-bound, bound)
    lengths = torch.linalg.vector_norm(scores, dim=1)
    return scores * clip_factors({"score": lengths.square()}, bound).unsqueeze(1)


class _Seen(NamedTuple):
    """What the model gave: scores [n, d] and losses [n] in the graph, and the calls of its layers, none where a layer has no rule.

    ``read`` takes both from outputs and targets. ``outputs`` are there if they are the scores: losses hang on them alone.
    """

    scores: Tensor
    losses: Tensor | None
    calls: list[Call]
    read: Callable[[Any, Tensor | None], tuple[Tensor, Tensor | None]]
    outputs: Tensor | None


class _Lengths(NamedTuple):
    """Squared norms of the Jacobians' rows [n, d], the products of rows [n, d, d] where known, and squared norms [n] of loss gradients."""

    rows: Tensor
    gram: Tensor | None
    losses: Tensor | None


def _see(
    method: str,
    model: nn.Module,
    loss: Loss | None,
    inputs: Tensor,
    targets: Tensor | None,
    scores: Callable[[Any], Tensor] | None,
) -> _Seen:
    def read(outputs: Any, targets: Tensor | None) -> tuple[Tensor, Tensor | None]:
        found = outputs if scores is None else scores(outputs)
        if not isinstance(found, Tensor):
            raise UsageError(
                f"the model gives {type(outputs).__name__}, not one tensor; say with scores= what of it the penalty compares"
            )
        losses = None if loss is None or targets is None else losses_of(outputs, targets, loss)
        return found.unsqueeze(1) if found.dim() == 1 else found, losses

    outputs, calls = _called(method, model, inputs)
    found, losses = read(outputs, targets)
    if found.dim() != 2 or len(found) != len(inputs) or not found.requires_grad:
        raise UsageError(
            f"scores must be numbers [{len(inputs)}, d] that depend on the weights; found shape {tuple(found.shape)}"
        )
    return _Seen(found, losses, calls, read, outputs if scores is None else None)


def _called(method: str, model: nn.Module, inputs: Tensor) -> tuple[Any, list[Call]]:
    """The outputs, with the calls of all trainable layers, or with none where Jacobians are formed."""
    return forward(model, inputs) if method == "ghost" else (model(inputs), [])


def _lengths(model: nn.Module, seen: _Seen, inputs: Tensor, targets: Tensor | None, penalty: Penalty) -> _Lengths:
    d = seen.scores.shape[1]
    if not seen.calls:
        whole = formed_grams(model, seen.read, inputs, targets)
        squares = whole.diagonal(dim1=1, dim2=2)
        return _Lengths(squares[:, :d], whole[:, :d, :d], None if seen.losses is None else squares[:, d])
    # of numbers the square is all there is to know
    gram = grams(seen.scores, seen.calls) if penalty.clipping == "spectral" or d == 1 else None
    rows = row_squares(seen.scores, seen.calls) if gram is None else gram.diagonal(dim1=1, dim2=2)
    if seen.losses is None:
        return _Lengths(rows, gram, None)
    if gram is not None and seen.outputs is not None:
        (slopes,) = torch.autograd.grad(seen.losses.sum(), seen.outputs, retain_graph=True)
        return _Lengths(rows, gram, along(gram, slopes.reshape(-1, d)))
    return _Lengths(rows, gram, row_squares(seen.losses.unsqueeze(1), seen.calls)[:, 0])


def _pull(scores: Tensor, points: Tensor | None, directions: Tensor | None, penalty: Penalty) -> tuple[Tensor, Tensor]:
    """The derivatives [n, d] of the sum of all pairs' distances in the projected scores, and the mean of the distances."""
    inside = project(scores, penalty.bound)
    pieces, costs = [], []
    if points is None:
        groups = iter(torch.split(inside, [size for pair in penalty.sizes for size in pair]))
        pairs = list(zip(groups, groups, strict=True))
    else:
        targets = project(points.to(inside.dtype), penalty.bound)
        firsts, seconds = zip(*penalty.sizes, strict=True)
        pairs = list(zip(torch.split(inside, list(firsts)), torch.split(targets, list(seconds)), strict=True))
    for x, z in pairs:
        found = weights(x, z, directions)
        pieces.extend([found.x] if points is not None else [found.x, found.z])
        costs.append(found.cost)
    return torch.cat(pieces), torch.stack(costs).mean()


def _check(penalty: Penalty, loss: Loss | None, inputs: Tensor, targets: Tensor | None, points: Tensor | None) -> None:
    """Sees to it that what is given is what the penalty speaks of: its bound holds for nothing else."""
    if len(inputs) != penalty.batch:
        raise UsageError(f"the penalty's groups {penalty.sizes} have {penalty.batch} inputs; found {len(inputs)}")
    wanted = sum(z for _, z in penalty.sizes) if penalty.fixed else None
    if (None if points is None else len(points)) != wanted:
        told = "no points" if points is None else f"{len(points)} points"
        raise UsageError(
            f"wanted {'no points: the second groups are inputs' if wanted is None else f'{wanted} points'}; found {told}"
        )
    if penalty.alpha < 1 and (loss is None or targets is None or len(targets) != len(inputs)):
        found = "no loss" if loss is None else "no targets" if targets is None else f"{len(targets)} targets"
        raise UsageError(
            f"alpha = {penalty.alpha:g} needs a loss and one target for each of {len(inputs)} inputs; found {found}"
        )


def _check_scores(scores: Tensor, directions: Tensor | None, points: Tensor | None) -> None:
    d = scores.shape[1]
    if points is not None and points.shape[1:] != scores.shape[1:]:
        raise UsageError(f"points must have the shape [m, {d}] of the scores; found {list(points.shape)}")
    if directions is None:
        if d > 1:
            raise UsageError(
                f"scores of {d} coordinates are compared along directions; give directions=sliced.random_directions({d}, ...)"
            )
        return
    if (
        directions.dim() != 2
        or directions.shape[0] != d
        or directions.shape[1] == 0
        or directions.dtype != scores.dtype
    ):
        raise UsageError(
            f"directions must be {scores.dtype} [{d}, k]; found {directions.dtype} {list(directions.shape)}"
        )
    if not bool(((directions.norm(dim=0) - 1).abs() < 1e-5).all()):
        raise UsageError("directions must be of length 1: longer ones would void the sensitivity")


def _refuse_nonfinite(seen: _Seen, lengths: _Lengths) -> None:
    """Sees to it that every score and gradient is finite; asks the device once."""
    numbers = {"score": seen.scores.detach().sum(dim=1), "gradient of a score": lengths.rows.sum(dim=1)}
    if seen.losses is not None and lengths.losses is not None:
        numbers |= {"loss": seen.losses.detach(), "gradient of a loss": lengths.losses}
    if bool(torch.stack([number.isfinite().all() for number in numbers.values()]).all()):
        return
    name, bad = next((name, (~n.isfinite()).nonzero()) for name, n in numbers.items() if not bool(n.isfinite().all()))
    told = f"the {name} of example {int(bad[0])} of the batch is not a finite number, so that it cannot be clipped"
    raise UsageError(f"{told}. Look for NaN or infinity in the data and the weights; a lower learning rate may help")
