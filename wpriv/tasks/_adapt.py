"""The steps of domain adaptation, one function a method: what the target's records do to the weights, and how it is bounded."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from wpriv import models
from wpriv.config.train_schema import Train
from wpriv.data.pair import Pair
from wpriv.engine.clipping.choose_method import check_evaluation
from wpriv.engine.clipping.clip import choose, clipped_sum, method_of
from wpriv.engine.clipping.common import clip_factors
from wpriv.engine.job import Job, optimizer_of
from wpriv.engine.penalty.gradient import method_for, penalised_gradient
from wpriv.engine.release import Bounded
from wpriv.engine.sampler import Indices
from wpriv.errors import UsageError
from wpriv.tasks._adapt_nets import (
    AT_ONCE,
    FIRST,
    Networks,
    Work,
    accuracy,
    gradients,
    images,
    moved,
    ready,
    refuse,
    side_loss,
)
from wpriv.tasks._adapt_options import RADIUS, Options, claimed, penalty
from wpriv.transport import line, sliced

Noisy = Callable[[Bounded], list[Tensor]]


def source_alone(work: Work, inputs: Tensor, noisy: Noisy) -> Tensor:
    """No look at the target."""
    _, loss = work.classified()
    work.step(gradients(work, loss))
    return loss.detach()


def dann(work: Work, inputs: Tensor, noisy: Noisy) -> Tensor:
    """Ganin et al. (2016): the discriminator tells source from target, and the features move the other way."""
    features, loss = work.classified()
    theirs = work.nets.features(inputs)
    of_both = side_loss(work, features, 1.0).mean() + side_loss(work, theirs, 0.0).mean()
    found = gradients(work, loss, of_both)
    work.step(found)
    return loss.detach()


def dp_dann(work: Work, inputs: Tensor, noisy: Noisy) -> Tensor:
    """DANN whose gradients on target records are clipped one by one, added up and made noisy; the source's are added to it as they are."""
    nets, adversary = work.nets, work.adversary
    zeros = inputs.new_zeros(len(inputs))
    if work.options.variant == "sound":
        how = {"norm": work.clip, "adjacency": work.adjacency, "method": work.method, "exact": work.exact}
        total = clipped_sum(adversary, _is_target, inputs, zeros, **how).total  # type: ignore[arg-type]
    else:
        total = _each_tensor(adversary, inputs, work.clip, work.adjacency)
    released = [part / work.batch for part in noisy(total)]
    features, loss = work.classified()
    found = gradients(work, loss, side_loss(work, features, 1.0).mean())
    for weight, part in zip(adversary.parameters(), released, strict=True):
        ours = id(weight) in {id(p) for p in nets.features.parameters()}
        found[weight] = found[weight] + (-work.options.weight * part if ours else part)
    work.step(found)
    return loss.detach()


def swd(work: Work, inputs: Tensor, noisy: Noisy) -> Tensor:
    """The sliced Wasserstein distance between the features of both, without privacy."""
    features, loss = work.classified()
    theirs = work.nets.features(inputs)
    cost = sliced.wasserstein(features, theirs, directions=work.directions(features))
    work.step(gradients(work, loss + work.options.weight * _root(cost)))
    return loss.detach()


def published_swd(work: Work, inputs: Tensor, noisy: Noisy) -> Tensor:
    """Rakotomamonjy and Ralaivola (2021), Algorithm 2: noisy projections of both, and the gradient through them. It hides nobody."""
    features, loss = work.classified()
    theirs = work.nets.features(inputs)
    reach = 2 * theirs.detach().norm(dim=1).max()
    assert work.options.sigma is not None
    own = torch.Generator(features.device).manual_seed(int(torch.randint(2**62, ())))
    cost = sliced.wasserstein(
        features / reach, theirs / reach, directions=work.directions(features), sigma=work.options.sigma, generator=own
    )
    work.step(gradients(work, loss + work.options.weight * reach * _root(cost)))
    return loss.detach()


def gradient_swd(work: Work, inputs: Tensor, noisy: Noisy) -> Tensor:
    """A clipped gradient of the sliced distance between target and source, made noisy: the Jacobians at target records are bounded too.

    Each direction gives a number for each record, about the source's mean and in units of its standard deviation, clipped to ``bound``;
    its Jacobian is clipped to ``lipschitz`` times the median norm of the source's at the last step. Both units are of the source and of
    weights that were released, so that they may be used; the sum over directions is written in them, which makes its sensitivity the same
    at every step.
    """
    nets, options = work.nets, work.options
    theirs, labels = work.of_source()
    with torch.no_grad():
        features = nets.features(theirs)
    directions = work.directions(features)
    if float(nets.norm) == FIRST:
        # before the first step there is no median yet: this finds one, of the source alone
        _clipped_gradient(work, theirs, theirs, features, directions)
    unit = float(nets.norm) * options.lipschitz
    total, weights = _clipped_gradient(work, inputs, theirs, features, directions)
    released = noisy(total)
    logits = nets.of_source(theirs)
    loss = cross_entropy(logits, labels)
    found = gradients(work, loss)
    for weight, part in zip(weights, released, strict=True):
        found[weight] = found[weight] + options.weight * unit * options.bound * part
    work.step(found)
    return loss.detach()


def projected_swd(work: Work, inputs: Tensor, noisy: Noisy) -> Tensor:
    """Noisy projections of target features that are held fixed; the source's features and the classifier learn to lie where they lie.

    What is released are the projections of the batch and nothing else: the target passes through a network that only the source has
    moved, and all that follows is made of the release. The noise on the source's own projections comes with it, as the noise on zeros.
    """
    nets = work.nets
    assert nets.fixed is not None
    with torch.no_grad():
        fixed = nets.in_ball(nets.fixed(inputs))
    directions = work.directions(fixed)
    zeros = fixed.new_zeros(work.batch, directions.shape[1])
    released, noise = noisy(Bounded([fixed @ directions, zeros], 2 * RADIUS, work.adjacency))
    features, loss = work.classified()
    cost = line.wasserstein(nets.in_ball(features) @ directions + noise, released).mean()
    # the mean over directions of a squared length in d dimensions is a d-th of it; in the units of the features
    cost = cost * nets.width / nets.scale.square()
    work.step(gradients(work, loss + work.options.weight * cost))
    return loss.detach()


STEPS = {"none": source_alone, "dann": dann, "swd": swd, "dp-dann": dp_dann}
SWD = {"paper": published_swd, "gradient": gradient_swd, "projections": projected_swd}


def job(train: Train, options: Options, data: Any, device: torch.device, adjacency: str) -> Job:
    """Networks, steps and measures of a recipe on a pair of data sets."""
    if not isinstance(data, Pair):
        raise UsageError(
            f"adaptation needs two data sets: take data: {{name: pair, source: ..., target: ...}}; found {data.name}"
        )
    source, target, held_out, of_source = ready(data, options, device)
    model = models.build(train.model, source[0].shape[1:], len(data.classes)).to(device)
    nets = Networks(model, source[0][:2], options).to(device)
    if source[0].dim() == 4:
        nets = nets.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    refuse(nets, options)
    optimizer = optimizer_of([p for p in nets.parameters() if p.requires_grad], train.optimizer)
    private = train.privacy
    clips = private is not None and private.clip != "batch-mean"
    clip, method = (float(private.clip), method_of(private)) if private is not None and clips else (1.0, "auto")
    batch, exact = train.batch or len(target[0]), private is not None and private.exact
    work = Work(nets, options, source, target, optimizer, batch, adjacency, clip, method, exact)
    if private is not None:
        _refuse_leaks(work)
    which = ("paper" if options.variant == "paper" else options.route) if options.method == "dp-swd" else ""
    step = SWD[which] if which else STEPS[options.method]

    def custom_step(indices: Indices, noisy: Noisy) -> Tensor:
        if not int(nets.warm):
            _warm_up(work)
        places = torch.from_numpy(indices).to(device)
        loss = step(work, images(target[0][places]), noisy)
        return torch.stack([loss.new_tensor(float(len(indices))), loss * len(indices), loss.new_tensor(math.nan)])

    def evaluate() -> dict[str, float]:
        found = {"accuracy": accuracy(nets.of_target, *held_out)} if len(held_out[1]) else {}
        found |= {"transductive": accuracy(nets.of_target, *target), "on_source": accuracy(nets.of_source, *of_source)}
        eps = claimed(options)
        return found if eps is None else {**found, "claimed": eps}

    return Job(nets, None, evaluate, custom_step=custom_step, optimizers={"all": optimizer})


def _refuse_leaks(work: Work) -> None:
    """Try on made-up records every network that records of the target pass through, as they pass through it."""
    nets, options = work.nets, work.options
    none = images(work.target[0][:0])
    if nets.discriminator is not None:
        choose(
            work.adversary,
            _is_target,
            none,
            none.new_empty(0),
            method=work.method if options.variant == "sound" else "vmap",
        )
    elif nets.fixed is None:
        with _only(nets.features, moved(nets, options)):
            method_for(nets.features, None, none, None)
    # every epoch measures the target, and projections are of features in evaluation mode
    check_evaluation(nn.Sequential(nets.features if nets.fixed is None else nets.fixed, nets.classifier), none)


def _warm_up(work: Work) -> None:
    """Steps on the source alone; from then on the target's own features are fixed, and those of the source are known."""
    nets = work.nets
    for _ in range(work.options.warmup):
        _, loss = work.classified()
        work.step(gradients(work, loss))
    nets.warm.fill_(max(work.options.warmup, 1))
    if nets.fixed is None:
        return
    nets.fixed.load_state_dict(nets.features.state_dict())
    with torch.no_grad():
        seen = nets.fixed(images(work.source[0][:AT_ONCE]))
        nets.centre.copy_(seen.mean(dim=0))
        nets.scale.copy_(RADIUS / (seen - nets.centre).norm(dim=1).median())


def _clipped_gradient(
    work: Work, x: Tensor, z: Tensor, features: Tensor, directions: Tensor
) -> tuple[Bounded, list[nn.Parameter]]:
    """The mean over directions of clipped gradients, in units of both bounds, and the weights that they belong to.

    Projections on k directions are k coordinates of scores, each compared by itself: along the axes. Each is clipped to ``bound``, and
    the row of the Jacobian that belongs to it to ``unit``, which the penalty of vectors of k knows as unit sqrt(k). So each coordinate
    is bounded as numbers are, and k of them divided by k are bounded as one is; vectors would be bounded by k times that.
    """
    nets, options = work.nets, work.options
    unit, count = float(nets.norm) * options.lipschitz, directions.shape[1]
    centre = features.mean(dim=0)
    along = directions / ((features - centre) @ directions).std(dim=0).clamp(min=1e-6)

    def scores(found: Tensor) -> Tensor:
        return ((found - centre) @ along).clamp(-options.bound, options.bound)

    # the vectors need no clipping of their own: a hair above the longest there is
    whole = penalty(len(x), bound=1.001 * options.bound * math.sqrt(count), lipschitz=unit * math.sqrt(count))
    axes = torch.eye(count, dtype=along.dtype, device=along.device)
    with _only(nets.features, moved(nets, options)):
        found = penalised_gradient(nets.features, None, torch.cat([x, z]), None, whole, directions=axes, scores=scores)
    # the root mean square of a record's rows
    nets.norm.copy_(found.jacobians[len(x) :].median() / math.sqrt(count))
    each = penalty(len(x), bound=options.bound, lipschitz=unit)
    total = Bounded(found.total.parts, each.sensitivity, found.total.adjacency)
    return total.scaled(1 / (unit * options.bound)), moved(nets, options)


@contextlib.contextmanager
def _only(module: nn.Module, weights: list[nn.Parameter]) -> Iterator[None]:
    """Within it, no other weight of the module is trained."""
    own = {id(weight) for weight in weights}
    rest = [weight for weight in module.parameters() if id(weight) not in own]
    for weight in rest:
        weight.requires_grad_(False)
    try:
        yield
    finally:
        for weight in rest:
            weight.requires_grad_(True)


def _is_target(outputs: Tensor, targets: Tensor) -> Tensor:
    return binary_cross_entropy_with_logits(outputs[:, 0], targets, reduction="none")


def _each_tensor(model: nn.Module, inputs: Tensor, norm: float, adjacency: str) -> Bounded:
    """The sum of the records' gradients, each tensor of each clipped to ``norm`` by itself, so that all are to sqrt(tensors) of it."""
    values = {name: weight.detach() for name, weight in model.named_parameters()}

    def one(weights: dict[str, Tensor], x: Tensor) -> Tensor:
        outputs = torch.func.functional_call(model, weights, (x.unsqueeze(0),))
        return _is_target(outputs, outputs.new_zeros(1)).sum()

    each = torch.func.vmap(torch.func.grad(one), in_dims=(None, 0), randomness="different")(values, inputs)
    parts = []
    for grads in each.values():
        flat = grads.flatten(1)
        parts.append((clip_factors({"tensor": flat.square().sum(dim=1)}, norm) @ flat).view(grads.shape[1:]))
    whole = norm * math.sqrt(len(parts))
    return Bounded(parts, whole if adjacency == "add-remove" else 2 * whole, adjacency)


def _root(cost: Tensor) -> Tensor:
    """The distance from its square, with a slope where both are the same."""
    return (cost + torch.finfo(cost.dtype).tiny).sqrt()
