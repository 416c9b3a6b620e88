"""Domain adaptation with torch: networks, the steps of each method, and the job."""

from __future__ import annotations

import contextlib
import copy
import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from wpriv.config.train_schema import Train
from wpriv.core import registry
from wpriv.errors import UsageError
from wpriv.papers.penalty.gradient import method_for, penalised_gradient
from wpriv.papers.tasks._adapt_options import RADIUS, TENSORS, Options, claimed_eps, penalty
from wpriv.training import models
from wpriv.training.clipping.choose_method import check_evaluation
from wpriv.training.clipping.clip import choose, clipped_sum, method_of
from wpriv.training.clipping.example_gradients import clip_factors
from wpriv.training.data.pair import Pair
from wpriv.training.engine.job import Job, ReleaseGate
from wpriv.training.engine.release_spec import expected_batch
from wpriv.training.engine.sampler import Indices
from wpriv.training.engine.update_rules import UpdateRule
from wpriv.training.noise.release import Bounded
from wpriv.training.tasks._image_filters import normalise, normalised, to_floats
from wpriv.transport import line, sliced

CHUNK = 1000
"""Records that are evaluated at once."""
MAX_SOURCE_EVALUATED = 2000
"""Source records that accuracy is measured on, at most: the first ones."""
DISCRIMINATOR_WIDTH = 100
"""Units of the discriminator's hidden layer; the number of features if that is smaller."""
NORM_NOT_KNOWN = 1e9
"""Stands for the median norm of the source's Jacobians until it is known; it clips nothing."""


class Networks(nn.Module):
    """All that is trained and saved: features, classifier, and the parts that some methods add.

    ``discriminator`` exists for dann and dp-dann, ``fixed`` (the features that the target passes through) for the route
    projections. ``warm`` counts the finished steps on the source alone, ``norm`` is the median norm of the source's
    Jacobians, and ``centre`` and ``scale`` map features to the ball in which they are projected.
    """

    features: nn.Module
    classifier: nn.Module
    discriminator: nn.Module | None
    fixed: nn.Module | None
    warm: Tensor
    norm: Tensor
    centre: Tensor
    scale: Tensor

    def __init__(self, model: nn.Module, like: Tensor, options: Options):
        super().__init__()
        parts = dict(model.named_children())
        if not {"features", "classifier"} <= parts.keys():
            suitable = ", ".join(name for name in registry.names("models") if name.startswith("adapt-"))
            raise UsageError(f"adaptation compares features: take a model with features and a classifier ({suitable})")
        self.features, self.classifier = parts["features"], parts["classifier"]
        with torch.no_grad():
            self.width = int(self.features(like).shape[1])
        hidden = min(DISCRIMINATOR_WIDTH, self.width)
        discriminator = nn.Sequential(nn.Linear(self.width, hidden), nn.ReLU(), nn.Linear(hidden, 1))
        self.discriminator = discriminator if options.method.endswith("dann") else None
        # a separate copy, so that the target passes through nothing that its records have moved
        fixed = options.method == "dp-swd" and options.variant == "sound" and options.route == "projections"
        self.fixed = _frozen_copy(self.features) if fixed else None
        self.register_buffer("warm", torch.zeros((), dtype=torch.int64))
        self.register_buffer("norm", torch.tensor(NORM_NOT_KNOWN))
        self.register_buffer("centre", torch.zeros(self.width))
        self.register_buffer("scale", torch.ones(()))

    def target_logits(self, inputs: Tensor) -> Tensor:
        """Logits of target records."""
        logits: Tensor = self.classifier((self.features if self.fixed is None else self.fixed)(inputs))
        return logits

    def source_logits(self, inputs: Tensor) -> Tensor:
        """Logits of source records."""
        logits: Tensor = self.classifier(self.features(inputs))
        return logits

    def into_ball(self, features: Tensor) -> Tensor:
        """Centre features at the source's mean, scale them by a public number and clip them to the radius."""
        scaled = (features - self.centre) * self.scale
        squares = scaled.detach().square().sum(dim=1)
        # features that are not finite, or too long for their square, are those of the middle of the ball
        ball = scaled * clip_factors({"features": squares}, RADIUS).unsqueeze(1)
        return ball.masked_fill(~squares.isfinite().unsqueeze(1), 0.0)


@dataclass
class Adaptation:
    """A training in progress: networks, options, records of both sides as networks take them, and the optimizer.

    Args:
        batch: records of a step on either side. adjacency: of the accounting, "" without privacy.
        clip: norm to which gradients of records are clipped. method: how. exact: sum them without rounding.
        divisor: of sums over the records of a step, where their expected number is not ``batch``.
    """

    nets: Networks
    options: Options
    source: tuple[Tensor, Tensor]
    target: tuple[Tensor, Tensor]
    optimizer: UpdateRule
    batch: int
    adjacency: str
    clip: float
    method: str
    exact: bool = False
    divisor: float = 0.0

    @functools.cached_property
    def adversary(self) -> nn.Module:
        """Features and discriminator as one network, the same object at every step."""
        assert self.nets.discriminator is not None
        return nn.Sequential(self.nets.features, self.nets.discriminator)

    def source_batch(self) -> tuple[Tensor, Tensor]:
        """Draw a random batch of the public side: inputs and labels."""
        indices = torch.randint(len(self.source[0]), (self.batch,)).to(self.source[0].device)
        return to_fast_layout(self.source[0][indices]), self.source[1][indices]

    def update(self, gradients: dict[nn.Parameter, Tensor]) -> None:
        """Take one step of the optimizer; weights without a gradient stay."""
        for group in self.optimizer.param_groups:
            for weight in group["params"]:
                weight.grad = gradients.get(weight)
        self.optimizer.step()

    def source_features_and_loss(self) -> tuple[Tensor, Tensor]:
        """Draw a batch of the source; return its features and the classification loss on them."""
        inputs, labels = self.source_batch()
        features = self.nets.features(inputs)
        return features, cross_entropy(self.nets.classifier(features), labels)

    def random_directions(self, like: Tensor) -> Tensor:
        """Draw unit directions [d, k] for features ``like`` [n, d], from torch's global generator, which is saved."""
        normal = torch.randn(like.shape[1], self.options.directions, dtype=torch.float64)
        directions: Tensor = (normal / normal.norm(dim=0)).to(like)
        return directions


def prepare_records(data: Pair, options: Options, device: torch.device) -> list[tuple[Tensor, Tensor]]:
    """Return inputs and labels of four sets of records.

    Returns:
        The source; the target; the target's test records; the source records on which accuracy is measured, which are
        training records where the source has no test records: they are public.
    """
    public = data.source_set
    evaluated = (public.x_test, public.y_test) if len(public.x_test) else (public.x_train, public.y_train)
    evaluated = (evaluated[0][:MAX_SOURCE_EVALUATED], evaluated[1][:MAX_SOURCE_EVALUATED])
    arrays = [(public.x_train, public.y_train), (data.x_train, data.y_train), (data.x_test, data.y_test), evaluated]
    sets = [(_to_inputs(x, options, device), torch.tensor(y, device=device).long()) for x, y in arrays]
    if not options.standardise:
        return sets
    mean, deviation = sets[0][0].mean(dim=0), sets[0][0].std(dim=0)
    return [((x - mean) / deviation.clamp(min=1e-6), y) for x, y in sets]


def _to_inputs(x: Any, options: Options, device: torch.device) -> Tensor:
    """Records as networks take them, each one transformed independently: divided by its sum, or by public constants."""
    if not options.shares:
        return normalised(x, options.normalise, device)
    inputs = to_floats(x, device)
    inputs = inputs / inputs.flatten(1).sum(dim=1).clamp(min=1e-12).view(-1, *[1] * (inputs.dim() - 1))
    return normalise(inputs, options.normalise)


def validate_networks(nets: Networks, options: Options) -> None:
    """Check that the networks have the dimension, the layers and the tensors that the accounting assumes."""
    if nets.fixed is not None and nets.width != options.dimension:
        raise UsageError(
            f"options.dimension must be the number of features, {nets.width}, on which the noise depends; "
            f"found {options.dimension}"
        )
    layers = [name for name, _ in nets.features.named_children()]
    unknown = [name for name in options.moves if name not in layers]
    if unknown:
        raise UsageError(
            f"options.moves must name layers of the features ({', '.join(layers)}); found {', '.join(unknown)}"
        )
    if options.moves and not updated_weights(nets, options):
        raise UsageError(f"options.moves names layers without weights: {', '.join(options.moves)}")
    if options.method == "dp-dann" and options.variant == "paper" and nets.discriminator is not None:
        tensors = len([*nets.features.parameters(), *nets.discriminator.parameters()])
        if tensors != TENSORS:
            raise UsageError(
                f"dp-dann as published is accounted for {TENSORS} tensors; this model has {tensors}. "
                "Take one of the models adapt-*"
            )


def updated_weights(nets: Networks, options: Options) -> list[nn.Parameter]:
    """Return the weights of the features that private gradients update: those of ``options.moves``, or all."""
    layers = [layer for name, layer in nets.features.named_children() if not options.moves or name in options.moves]
    return [weight for layer in layers for weight in layer.parameters()]


def loss_gradients(run: Adaptation, loss: Tensor, adversary_loss: Tensor | None = None) -> dict[nn.Parameter, Tensor]:
    """Gradients of the classification loss, and of the discriminator's, which features ascend on, weighted."""
    nets = run.nets
    features, classifier = list(nets.features.parameters()), list(nets.classifier.parameters())
    parts = torch.autograd.grad(loss, features + classifier, retain_graph=adversary_loss is not None)
    gradients = dict(zip(features + classifier, parts, strict=True))
    if adversary_loss is None or nets.discriminator is None:
        return gradients
    discriminator = list(nets.discriminator.parameters())
    adversarial = torch.autograd.grad(adversary_loss, features + discriminator)
    for weight, part in zip(features, adversarial, strict=False):
        gradients[weight] = gradients[weight] - run.options.weight * part
    return gradients | dict(zip(discriminator, adversarial[len(features) :], strict=True))


def discriminator_loss(run: Adaptation, features: Tensor, side: float) -> Tensor:
    """Losses [n] of the discriminator on features of the source (side 1) or of the target (side 0)."""
    assert run.nets.discriminator is not None
    logits = run.nets.discriminator(features)[:, 0]
    return binary_cross_entropy_with_logits(logits, torch.full_like(logits, side), reduction="none")


def accuracy(logits: Callable[[Tensor], Tensor], inputs: Tensor, labels: Tensor) -> float:
    """Return the share of records that are classified correctly."""
    with torch.no_grad():
        chunks = zip(torch.split(inputs, CHUNK), torch.split(labels, CHUNK), strict=True)
        return float(sum((logits(to_fast_layout(x)).argmax(dim=1) == y).sum() for x, y in chunks)) / len(labels)


def to_fast_layout(inputs: Tensor) -> Tensor:
    """Store images channels last, in which convolutions are fastest; return rows unchanged."""
    return inputs.contiguous(memory_format=torch.channels_last) if inputs.dim() == 4 else inputs


def _frozen_copy(module: nn.Module) -> nn.Module:
    """A copy that is never trained and stays in evaluation mode, without dropout."""
    frozen = copy.deepcopy(module).requires_grad_(False).eval()
    frozen.train = lambda mode=True: frozen  # type: ignore[method-assign]
    return frozen


# The steps, one function per method: how target records change the weights, and their bound.

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
    """Sum the gradients with each tensor clipped to ``norm``; a record's is then at most norm sqrt(tensors) long."""
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


STEPS = {"none": source_alone, "dann": dann, "swd": swd, "dp-dann": dp_dann}
SWD_STEPS = {"paper": published_swd, "gradient": gradient_swd, "projections": projected_swd}


def build_job(recipe: Train, options: Options, data: Any, device: torch.device, adjacency: str) -> Job:
    """Build the networks of a recipe, its step and its measurements."""
    if not isinstance(data, Pair):
        raise UsageError(
            f"adaptation needs two data sets, data: {{name: pair, source: ..., target: ...}}; found {data.name}"
        )
    source, target, target_tests, source_evaluated = prepare_records(data, options, device)
    model = models.build(recipe.model, source[0].shape[1:], len(data.classes)).to(device)
    nets = Networks(model, source[0][:2], options).to(device)
    if source[0].dim() == 4:
        nets = nets.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    validate_networks(nets, options)
    optimizer = UpdateRule([p for p in nets.parameters() if p.requires_grad], recipe.optimizer)
    private = recipe.privacy
    clips = private is not None and private.clip != "batch-mean"
    clip, method = (float(private.clip), method_of(private)) if private is not None and clips else (1.0, "auto")
    batch, exact = recipe.batch or len(target[0]), private is not None and private.exact
    divisor = expected_batch(recipe, len(target[0]))
    run = Adaptation(nets, options, source, target, optimizer, batch, adjacency, clip, method, exact, divisor)
    if private is not None:
        _check_models(run)
    route = ("paper" if options.variant == "paper" else options.route) if options.method == "dp-swd" else ""
    step = SWD_STEPS[route] if route else STEPS[options.method]

    def custom_step(indices: Indices, gate: ReleaseGate) -> Tensor:
        if not int(nets.warm):
            _warm_up(run)
        # this route alone releases a row for each record
        places = torch.from_numpy(gate.shuffled(indices) if route == "projections" else indices).to(device)
        loss = step(run, to_fast_layout(target[0][places]), gate)
        return torch.stack([loss.new_tensor(float(len(indices))), loss * len(indices), loss.new_tensor(math.nan)])

    def evaluate() -> dict[str, float]:
        results = {"accuracy": accuracy(nets.target_logits, *target_tests)} if len(target_tests[1]) else {}
        results["transductive"] = accuracy(nets.target_logits, *target)
        results["on_source"] = accuracy(nets.source_logits, *source_evaluated)
        eps = claimed_eps(options)
        return results if eps is None else {**results, "claimed": eps}

    return Job(nets, None, evaluate, custom_step=custom_step, optimizers={"all": optimizer})


def _check_models(run: Adaptation) -> None:
    """Probe with made-up records every network that target records pass through, as they pass through it."""
    nets, options = run.nets, run.options
    empty = to_fast_layout(run.target[0][:0])
    if nets.discriminator is not None:
        method = run.method if options.variant == "sound" else "vmap"
        choose(run.adversary, target_side_losses, empty, empty.new_empty(0), method=method)
    elif nets.fixed is None:
        with only_trainable(nets.features, updated_weights(nets, options)):
            method_for(nets.features, None, empty, None)
    # accuracy on the target is measured every epoch, and projections are of features in evaluation mode
    check_evaluation(nn.Sequential(nets.features if nets.fixed is None else nets.fixed, nets.classifier), empty)


def _warm_up(run: Adaptation) -> None:
    """Train on the source alone; then fix the target's features and the ball in which they are projected."""
    nets = run.nets
    for _ in range(run.options.warmup):
        _, loss = run.source_features_and_loss()
        run.update(loss_gradients(run, loss))
    nets.warm.fill_(max(run.options.warmup, 1))
    if nets.fixed is None:
        return
    nets.fixed.load_state_dict(nets.features.state_dict())
    with torch.no_grad():
        features = nets.fixed(to_fast_layout(run.source[0][:CHUNK]))
        nets.centre.copy_(features.mean(dim=0))
        nets.scale.copy_(RADIUS / (features - nets.centre).norm(dim=1).median())
