"""Steps of domain adaptation, one function per method: how target records change the weights, and their bound."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from wpriv.engine.clipping.clip import clipped_sum
from wpriv.engine.clipping.common import clip_factors
from wpriv.engine.penalty.gradient import penalised_gradient
from wpriv.engine.release import Bounded
from wpriv.tasks._adapt_nets import NORM_NOT_KNOWN, Adaptation, discriminator_loss, loss_gradients, updated_weights
from wpriv.tasks._adapt_options import RADIUS, penalty
from wpriv.transport import line, sliced

AddNoise = Callable[[Bounded], list[Tensor]]


def source_alone(run: Adaptation, inputs: Tensor, add_noise: AddNoise) -> Tensor:
    """Learn on the source; the target is not used."""
    _, loss = run.source_features_and_loss()
    run.update(loss_gradients(run, loss))
    return loss.detach()


def dann(run: Adaptation, inputs: Tensor, add_noise: AddNoise) -> Tensor:
    """Ganin et al. (2016): the discriminator learns to tell source from target, and the features to prevent it."""
    source_features, loss = run.source_features_and_loss()
    target_features = run.nets.features(inputs)
    source_side = discriminator_loss(run, source_features, 1.0).mean()
    adversary_loss = source_side + discriminator_loss(run, target_features, 0.0).mean()
    run.update(loss_gradients(run, loss, adversary_loss))
    return loss.detach()


def dp_dann(run: Adaptation, inputs: Tensor, add_noise: AddNoise) -> Tensor:
    """DANN with noise on the sum of clipped gradients on target records; gradients on the source are not private."""
    nets, adversary = run.nets, run.adversary
    zeros = inputs.new_zeros(len(inputs))
    if run.options.variant == "sound":
        settings = {"norm": run.clip, "adjacency": run.adjacency, "method": run.method, "exact": run.exact}
        total = clipped_sum(adversary, target_side_losses, inputs, zeros, **settings).total  # type: ignore[arg-type]
    else:
        total = clipped_by_tensor(adversary, inputs, run.clip, run.adjacency)
    released = [part / (run.divisor or run.batch) for part in add_noise(total)]
    features, loss = run.source_features_and_loss()
    gradients = loss_gradients(run, loss, discriminator_loss(run, features, 1.0).mean())
    for weight, part in zip(adversary.parameters(), released, strict=True):
        of_features = id(weight) in {id(p) for p in nets.features.parameters()}
        gradients[weight] = gradients[weight] + (-run.options.weight * part if of_features else part)
    run.update(gradients)
    return loss.detach()


def swd(run: Adaptation, inputs: Tensor, add_noise: AddNoise) -> Tensor:
    """Reduce the sliced Wasserstein distance between the features of both sides, without privacy."""
    source_features, loss = run.source_features_and_loss()
    target_features = run.nets.features(inputs)
    directions = run.random_directions(source_features)
    cost = sliced.wasserstein(source_features, target_features, directions=directions)
    run.update(loss_gradients(run, loss + run.options.weight * _smooth_root(cost)))
    return loss.detach()


def published_swd(run: Adaptation, inputs: Tensor, add_noise: AddNoise) -> Tensor:
    """Rakotomamonjy and Ralaivola (2021), Algorithm 2: noisy projections of both sides, and the gradient through them.

    It provides no privacy guarantee, since the gradient also depends on the records without noise. Both sides are
    divided by the largest norm of the target's features, as in the authors' program; the paper divides each by its own.
    """
    source_features, loss = run.source_features_and_loss()
    target_features = run.nets.features(inputs)
    reach = 2 * target_features.detach().norm(dim=1).max()
    assert run.options.sigma is not None
    random = torch.Generator(source_features.device).manual_seed(int(torch.randint(2**62, ())))
    cost = sliced.wasserstein(
        source_features / reach,
        target_features / reach,
        directions=run.random_directions(source_features),
        sigma=run.options.sigma,
        generator=random,
    )
    run.update(loss_gradients(run, loss + run.options.weight * reach * _smooth_root(cost)))
    return loss.detach()


def gradient_swd(run: Adaptation, inputs: Tensor, add_noise: AddNoise) -> Tensor:
    """Release a clipped gradient of the sliced distance; Jacobians of the features at target records are bounded too.

    Each direction gives one score per record, centred at the source's mean, in units of the source's standard
    deviation and clipped to ``bound``. Its Jacobian is clipped to ``lipschitz`` times the median norm of the source's
    Jacobians at the previous step. Both units depend on the source and on released weights alone, so that using them
    costs no privacy. The sum over directions is expressed in them, which makes its sensitivity the same at every step.
    """
    nets, options = run.nets, run.options
    source_inputs, labels = run.source_batch()
    with torch.no_grad():
        features = nets.features(source_inputs)
    directions = run.random_directions(features)
    if float(nets.norm) == NORM_NOT_KNOWN:
        # the median norm is first computed on the source alone
        _clipped_gradient(run, source_inputs, source_inputs, features, directions)
    unit = float(nets.norm) * options.lipschitz
    total, weights = _clipped_gradient(run, inputs, source_inputs, features, directions)
    released = add_noise(total)
    loss = cross_entropy(nets.source_logits(source_inputs), labels)
    gradients = loss_gradients(run, loss)
    for weight, part in zip(weights, released, strict=True):
        gradients[weight] = gradients[weight] + options.weight * unit * options.bound * part
    run.update(gradients)
    return loss.detach()


def projected_swd(run: Adaptation, inputs: Tensor, add_noise: AddNoise) -> Tensor:
    """Release noisy projections of fixed target features; the source's features and the classifier adapt to them.

    Nothing but these projections is released: the target passes through a network that only the source has trained, and
    the rest is post-processing. The noise for the source's own projections is released with them, as noise on zeros.
    """
    nets = run.nets
    assert nets.fixed is not None
    with torch.no_grad():
        fixed = nets.into_ball(nets.fixed(inputs))
    directions = run.random_directions(fixed)
    zeros = fixed.new_zeros(run.batch, directions.shape[1])
    released, noise = add_noise(Bounded([fixed @ directions, zeros], 2 * RADIUS, run.adjacency))
    features, loss = run.source_features_and_loss()
    cost = line.wasserstein(nets.into_ball(features) @ directions + noise, released).mean()
    # the mean over directions of a squared length in d dimensions is 1/d of it; in the units of the features
    cost = cost * nets.width / nets.scale.square()
    run.update(loss_gradients(run, loss + run.options.weight * cost))
    return loss.detach()


def target_side_losses(outputs: Tensor, targets: Tensor) -> Tensor:
    """Losses [n] of the discriminator's outputs [n, 1] on target records, for which ``targets`` are zeros."""
    return binary_cross_entropy_with_logits(outputs[:, 0], targets, reduction="none")


def clipped_by_tensor(model: nn.Module, inputs: Tensor, norm: float, adjacency: str) -> Bounded:
    """Sum the gradients of records with each tensor of each record clipped to ``norm``.

    The gradient of a record then has norm at most ``norm`` times the root of the number of tensors.
    """
    values = {name: weight.detach() for name, weight in model.named_parameters()}

    def loss_of_record(weights: dict[str, Tensor], x: Tensor) -> Tensor:
        outputs = torch.func.functional_call(model, weights, (x.unsqueeze(0),))
        return target_side_losses(outputs, outputs.new_zeros(1)).sum()

    per_record = torch.func.vmap(torch.func.grad(loss_of_record), in_dims=(None, 0), randomness="different")
    parts = []
    for gradients in per_record(values, inputs).values():
        flat = gradients.flatten(1)
        factors = clip_factors({"tensor": flat.square().sum(dim=1)}, norm)
        parts.append((factors @ flat).view(gradients.shape[1:]))
    bound = norm * math.sqrt(len(parts))
    return Bounded(parts, bound if adjacency == "add-remove" else 2 * bound, adjacency)


@contextlib.contextmanager
def only_trainable(module: nn.Module, weights: list[nn.Parameter]) -> Iterator[None]:
    """Context in which no other weight of the module requires a gradient."""
    kept = {id(weight) for weight in weights}
    others = [weight for weight in module.parameters() if id(weight) not in kept]
    for weight in others:
        weight.requires_grad_(False)
    try:
        yield
    finally:
        for weight in others:
            weight.requires_grad_(True)


def _clipped_gradient(
    run: Adaptation, target: Tensor, source: Tensor, source_features: Tensor, directions: Tensor
) -> tuple[Bounded, list[nn.Parameter]]:
    """The mean over directions of clipped gradients, in units of both bounds, and the weights that it belongs to.

    Projections on k directions are the k coordinates of scores, and coordinates are compared one by one: along the
    axes. Each coordinate is clipped to ``bound``, and its row of the Jacobian to ``unit``, which the penalty for
    vectors of length k expresses as unit sqrt(k). Thus each coordinate is bounded as a number is, and the mean of k of
    them is bounded as one is; a bound for vectors would be k times larger.
    """
    nets, options = run.nets, run.options
    unit, count = float(nets.norm) * options.lipschitz, directions.shape[1]
    centre = source_features.mean(dim=0)
    scaled_directions = directions / ((source_features - centre) @ directions).std(dim=0).clamp(min=1e-6)

    def scores(features: Tensor) -> Tensor:
        return ((features - centre) @ scaled_directions).clamp(-options.bound, options.bound)

    # the vectors need no clipping of their own: this bound is slightly above the longest that there are
    vector_bound = 1.001 * options.bound * math.sqrt(count)
    vector_penalty = penalty(len(target), bound=vector_bound, lipschitz=unit * math.sqrt(count))
    axes = torch.eye(count, dtype=scaled_directions.dtype, device=scaled_directions.device)
    weights = updated_weights(nets, options)
    with only_trainable(nets.features, weights):
        gradient = penalised_gradient(
            nets.features, None, torch.cat([target, source]), None, vector_penalty, directions=axes, scores=scores
        )
    # the root mean square of a record's rows
    nets.norm.copy_(typical_norm(gradient.jacobians[len(target) :] / math.sqrt(count), nets.norm))
    sensitivity = penalty(len(target), bound=options.bound, lipschitz=unit).sensitivity
    total = Bounded(gradient.total.parts, sensitivity, gradient.total.adjacency)
    return total.scaled(1 / (unit * options.bound)), weights


def typical_norm(norms: Tensor, before: Tensor) -> Tensor:
    """The median of the source's [n] norms, or of those above 0 where half of them or more are 0.

    Where all are 0, as of features that no record moves, it is the norm ``before``, or 1 if none is known.
    """
    median = norms.median()
    if median > 0:
        return median
    positive = norms[norms > 0]
    if len(positive):
        return positive.median()
    return torch.ones_like(median) if float(before) == NORM_NOT_KNOWN else before


def _smooth_root(cost: Tensor) -> Tensor:
    """The distance from its square, with a finite gradient at 0."""
    return (cost + torch.finfo(cost.dtype).tiny).sqrt()
