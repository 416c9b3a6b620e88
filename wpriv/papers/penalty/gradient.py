"""The private gradient of a loss with a (sliced) Wasserstein term, clipped to a bounded sensitivity.

The derivative of W_2^2 in the scores g_i of an example is some a_i, which depends on the ranks of all scores; its
contribution to the gradient of the weights is J_i^T a_i, with J_i the Jacobian of g_i. So scores are projected to the
ball of radius M before they are ranked, and each J_i is clipped to norm L. All directions of the sliced distance are
first summed to one a_i [d], so that there is one backward pass for each of the d coordinates of the scores, which
determines how J_i is clipped, and one for the gradient: none per direction or example.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from wpriv.core.kinds import Adjacency
from wpriv.errors import Unsupported, UsageError
from wpriv.papers.penalty.jacobian import along, formed_grams, grams, row_factors, row_squares, spectral_factors
from wpriv.papers.penalty.penalty import Penalty
from wpriv.training.clipping import choose_method
from wpriv.training.clipping.example_gradients import Loss, clip_factors, losses_of, squares_of
from wpriv.training.clipping.ghost import Call, forward
from wpriv.training.clipping.model_pass import Probed, draws
from wpriv.training.clipping.probe_model import check_modules
from wpriv.training.clipping.records_alone import require_alone
from wpriv.training.noise.release import Bounded
from wpriv.transport import line

METHODS = ("auto", "ghost", "vmap")
MAX_VALUES = 2**25
"""The largest number of projections of a group in memory at a time: 128 MiB in float32."""


@dataclass(frozen=True)
class Penalised:
    """A clipped gradient with its sensitivity, and diagnostics: neither they nor figures made from them are private.

    Args:
        total: the gradient.
        cost: the mean over pairs of (sliced) W_2^2 between projected scores.
        jacobians: [n] Frobenius norms of the Jacobians before clipping.
        losses: [n] losses; None if alpha is 1.
        norms: [n] norms of their gradients before clipping; None if alpha is 1.
    """

    total: Bounded
    cost: Tensor
    jacobians: Tensor
    losses: Tensor | None
    norms: Tensor | None


class Weights(NamedTuple):
    """(Sliced) W_2^2 and its derivatives in every record of both samples."""

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
    """Return the gradient of ``penalty`` in the weights, with its sensitivity to replacing a record within its group.

    Args:
        model: its output for an example must depend on that example alone, which is tested as in ``clipped_sum``.
        loss: (outputs, targets [n, ...]) -> losses [n]; it and ``targets`` may be None if alpha = 1.
        inputs: [n, ...] the groups in order: first and second of the first pair, of the second pair, and so on. With
            ``penalty.fixed`` the first groups alone.
        directions: [d, k] unit columns (``sliced.random_directions``), the same for all groups; None if d = 1.
        points: [m, d] the second groups in order, with ``penalty.fixed``.
        scores: outputs -> [n, d], compared by the penalty; by default the outputs themselves ([n] is [n, 1]).
        method: ``ghost`` (by the rules of the layers), ``vmap`` (Jacobians formed for a few examples at a time), or
            ``auto``: the first of them that is correct for the model.
    Raises:
        UsageError: sizes, shapes or directions do not fit.
        Unsupported: the model, the loss or the scores mix examples, the model keeps state between calls, or it has
            layers without a rule and cannot be batched by torch.func; the message names the place. Or autocast is on.
    Source:
        Rodriguez-Vitores, Lalanne, Loubes (2025), (3) with (5) or (6), Algorithm 1 without the noise, which
        ``release.add_noise`` adds.
    """
    if method not in METHODS:
        raise UsageError(f"no method called {method!r} for this gradient. Known: {', '.join(METHODS)}")
    if torch.is_autocast_enabled(inputs.device.type):
        raise Unsupported(
            "the gradient of a penalty is one sum over the batch, which autocast rounds to half precision, so that its "
            "sensitivity does not hold; call penalised_gradient outside torch.autocast"
        )
    _check(penalty, loss, inputs, targets, points)
    loss = loss if penalty.alpha < 1 else None
    method = method_for(model, loss, inputs, targets, scores=scores, method=method)
    spectral, restore = penalty.clipping == "spectral", draws(inputs.device)
    with torch.enable_grad():
        batch = _score_pass(method, model, loss, inputs, targets, scores)
        _check_scores(batch.scores, directions, points)
        norms = _gradient_norms(model, batch, inputs, targets, with_gram=spectral)
        kept = ~_faulty(batch, norms)
        if not bool(kept.all()):
            # an example without a finite score and gradient counts as one of score 0 and gradient 0, which is within
            # all bounds; in the pass another one takes its place
            others = torch.arange(len(kept), device=kept.device)
            rows = torch.where(kept, others, kept.nonzero()[0]) if bool(kept.any()) else others
            inputs, targets = inputs[rows], None if targets is None else targets[rows]
            restore()
            batch = _score_pass(method, model, loss, inputs, targets, scores)
            norms = _gradient_norms(model, batch, inputs, targets, with_gram=spectral)
        with torch.no_grad():
            used = torch.where(kept.unsqueeze(1), batch.scores.detach(), 0.0)
            bounded = None if points is None else project(points.to(used.dtype), penalty.bound)
            slopes, cost = pair_slopes(project(used, penalty.bound), bounded, directions, penalty.sizes)
            if norms.gram is not None and spectral:
                clipped = (spectral_factors(norms.gram, penalty.lipschitz) @ slopes.unsqueeze(2)).squeeze(2)
            else:
                clipped = row_factors(norms.rows, penalty.lipschitz) * slopes
            clipped = clipped.masked_fill(~kept.unsqueeze(1), 0.0)
        objective = penalty.alpha / len(penalty.sizes) * (batch.scores * clipped).sum()
        if batch.losses is not None and norms.losses is not None:
            factors = clip_factors({"loss": norms.losses}, penalty.clip) * kept
            objective = objective + (1 - penalty.alpha) / penalty.batch * (batch.losses * factors).sum()
        trainable = [p for p in model.parameters() if p.requires_grad]
        if bool(kept.any()):
            parts = list(torch.autograd.grad(objective, trainable, allow_unused=True, materialize_grads=True))
        else:
            parts = [torch.zeros_like(p) for p in trainable]
    return Penalised(
        Bounded(parts, penalty.sensitivity, Adjacency.WITHIN_GROUP),
        cost,
        norms.rows.sum(dim=1).sqrt(),
        None if batch.losses is None else batch.losses.detach(),
        None if norms.losses is None else norms.losses.sqrt(),
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
    """Return a correct method of ``penalised_gradient`` for a model, tested on made-up examples like ``inputs``."""
    check_modules(model)
    candidates = METHODS[1:] if method == "auto" else (method,)
    targets = None if loss is None else targets
    choice = choose_method.method_for(
        model, loss, inputs, targets, candidates=candidates, scores=scores, only_rules=True
    )
    if choice.due(model, (loss, scores), len(inputs)):
        goals = inputs.new_zeros(len(inputs)) if targets is None else targets
        require_alone(model, Probed(model, loss, scores).combined, inputs, goals, 1.0, seed=0)
    return choice.method


def weights(x: Tensor, z: Tensor, directions: Tensor | None) -> Weights:
    """Return W_2^2 between scores [n, 1] and [m, 1], or its mean over the columns of ``directions`` [d, k].

    Ties share their weights, and the projection of a record depends on its own score alone: the sliced distance of
    transport/ may shift its origin into the data to keep digits, so that one record could influence how others that are
    nearly tied are ranked.

    Returns:
        The distance with its derivatives in the scores.

    Source: Proposition 3.2 of the paper; one matrix for all directions is wpriv's.
    """
    if directions is None:
        plan = line.gradients(x, z)
        return Weights(plan.cost.mean(), plan.x, plan.y)
    costs, out_x, out_z = [], torch.zeros_like(x), torch.zeros_like(z)
    k = directions.shape[1]
    for columns in torch.split(directions, max(1, MAX_VALUES // (len(x) + len(z))), dim=1):
        # products in this order, so that the samples to be sorted are contiguous
        plan = line.gradients((columns.T @ x.T).T, (columns.T @ z.T).T)
        costs.append(plan.cost)
        out_x.addmm_(plan.x, columns.T, alpha=1 / k)
        out_z.addmm_(plan.y, columns.T, alpha=1 / k)
    return Weights(torch.cat(costs).mean(), out_x, out_z)


def project(scores: Tensor, bound: float) -> Tensor:
    """Project scores [n, d] to norms of at most ``bound``; for d = 1 all numbers beyond the bound are tied."""
    if scores.shape[1] == 1:
        return scores.clamp(-bound, bound)
    return scores * clip_factors({"score": squares_of(scores)}, bound).unsqueeze(1)


def pair_slopes(
    scores: Tensor, points: Tensor | None, directions: Tensor | None, sizes: tuple[tuple[int, int], ...]
) -> tuple[Tensor, Tensor]:
    """Return the derivatives [n, d] of the sum of the distances of all pairs of groups, and the mean distance.

    Args:
        scores: [n, d] of both groups of each pair in order, or with ``points`` [m, d], the second ones, of the first.
    """
    if points is None:
        groups = torch.split(scores, [size for pair in sizes for size in pair])
        firsts, seconds = groups[::2], groups[1::2]
    else:
        firsts, seconds = (
            torch.split(values, [pair[side] for pair in sizes]) for side, values in enumerate((scores, points))
        )
    slopes, costs = [], []
    for x, z in zip(firsts, seconds, strict=True):
        distance = weights(x, z, directions)
        slopes += [distance.x] if points is not None else [distance.x, distance.z]
        costs.append(distance.cost)
    return torch.cat(slopes), torch.stack(costs).mean()


def _check(penalty: Penalty, loss: Loss | None, inputs: Tensor, targets: Tensor | None, points: Tensor | None) -> None:
    """Check that inputs, targets and points have the sizes of the penalty, for which alone its bound holds."""
    if len(inputs) != penalty.batch:
        raise UsageError(f"the penalty's groups {penalty.sizes} have {penalty.batch} inputs; found {len(inputs)}")
    size = sum(z for _, z in penalty.sizes) if penalty.fixed else None
    if (None if points is None else len(points)) != size:
        count = "no points" if points is None else f"{len(points)} points"
        expected = "no points: the second groups are inputs" if size is None else f"{size} points"
        raise UsageError(f"wanted {expected}; found {count}")
    if penalty.alpha < 1 and (loss is None or targets is None or len(targets) != len(inputs)):
        count = "no loss" if loss is None else "no targets" if targets is None else f"{len(targets)} targets"
        raise UsageError(
            f"alpha = {penalty.alpha:g} needs a loss and one target for each of {len(inputs)} inputs; found {count}"
        )


def _check_scores(scores: Tensor, directions: Tensor | None, points: Tensor | None) -> None:
    d = scores.shape[1]
    if points is not None and points.shape[1:] != scores.shape[1:]:
        raise UsageError(f"points must have the shape [m, {d}] of the scores; found {list(points.shape)}")
    if directions is None:
        if d > 1:
            raise UsageError(
                f"scores of {d} coordinates are compared along directions; "
                f"give directions=sliced.random_directions({d}, ...)"
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
        raise UsageError("directions must have length 1, or the sensitivity would not hold")


class ScorePass(NamedTuple):
    """Scores [n, d] and losses [n] in the graph, and the calls of the layers, which are empty if Jacobians are formed.

    ``read`` computes scores and losses from outputs and targets. ``outputs`` are given if they are the scores, so that
    the losses depend on the scores alone.
    """

    scores: Tensor
    losses: Tensor | None
    calls: list[Call]
    read: Callable[[Any, Tensor | None], tuple[Tensor, Tensor | None]]
    outputs: Tensor | None


class GradientNorms(NamedTuple):
    """Squared norms per example.

    Args:
        rows: [n, d] of the rows of the Jacobians. gram: [n, d, d] their inner products, where they are known.
        losses: [n] of the gradients of the losses; None without losses.
    """

    rows: Tensor
    gram: Tensor | None
    losses: Tensor | None


def _score_pass(
    method: str,
    model: nn.Module,
    loss: Loss | None,
    inputs: Tensor,
    targets: Tensor | None,
    scores: Callable[[Any], Tensor] | None,
) -> ScorePass:
    """Pass a batch through the model."""

    def read(outputs: Any, targets: Tensor | None) -> tuple[Tensor, Tensor | None]:
        values = outputs if scores is None else scores(outputs)
        if not isinstance(values, Tensor):
            raise UsageError(
                f"scores must be one tensor; found {type(values).__name__}. "
                f"Select what the penalty compares with scores="
            )
        losses = None if loss is None or targets is None else losses_of(outputs, targets, loss)
        return values.unsqueeze(1) if values.dim() == 1 else values, losses

    outputs, calls = forward(model, inputs, only_rules=True) if method == "ghost" else (model(inputs), [])
    values, losses = read(outputs, targets)
    if values.dim() != 2 or len(values) != len(inputs) or not values.requires_grad:
        raise UsageError(
            f"scores must be numbers [{len(inputs)}, d] that depend on the weights; found shape {tuple(values.shape)}"
        )
    return ScorePass(values, losses, calls, read, outputs if scores is None else None)


def _gradient_norms(
    model: nn.Module, batch: ScorePass, inputs: Tensor, targets: Tensor | None, *, with_gram: bool
) -> GradientNorms:
    """Return the norms of the gradients of scores and losses for each example."""
    d = batch.scores.shape[1]
    if not batch.calls:
        joint = formed_grams(model, batch.read, inputs, targets)
        squares = joint.diagonal(dim1=1, dim2=2)
        return GradientNorms(squares[:, :d], joint[:, :d, :d], None if batch.losses is None else squares[:, d])
    # for d = 1 the squared norm is the whole matrix
    gram = grams(batch.scores, batch.calls) if with_gram or d == 1 else None
    rows = row_squares(batch.scores, batch.calls) if gram is None else gram.diagonal(dim1=1, dim2=2)
    if batch.losses is None:
        return GradientNorms(rows, gram, None)
    if gram is not None and batch.outputs is not None:
        (slopes,) = torch.autograd.grad(batch.losses.sum(), batch.outputs, retain_graph=True)
        return GradientNorms(rows, gram, along(gram, slopes.reshape(-1, d)))
    return GradientNorms(rows, gram, row_squares(batch.losses.unsqueeze(1), batch.calls)[:, 0])


def _faulty(batch: ScorePass, norms: GradientNorms) -> Tensor:
    """Return [n] which examples have a score or a gradient that is not finite, or too long for its square."""
    numbers = [batch.scores.detach().sum(dim=1), norms.rows.sum(dim=1)]
    if batch.losses is not None and norms.losses is not None:
        numbers += [batch.losses.detach(), norms.losses]
    return ~torch.stack([number.isfinite() for number in numbers]).all(dim=0)
