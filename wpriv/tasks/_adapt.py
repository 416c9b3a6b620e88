"""The steps of domain adaptation, one function a method: what the target's records do to the weights, and how it is bounded."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from wpriv.core import registry
from wpriv.core.schema import Train
from wpriv.data.pair import Pair
from wpriv.errors import UsageError
from wpriv.tasks.adapt import RADIUS, TENSORS, Options, claimed, penalty
from wpriv.train.bound import clip_factors
from wpriv.train.clip import clipped_sum
from wpriv.train.loop import Job, optimizer_of
from wpriv.train.release import Bounded
from wpriv.train.sampler import Indices
from wpriv.train.wasserstein import penalised_gradient
from wpriv.transport import line, sliced

AT_ONCE = 1000
HIDDEN = 100
"""Units of the discriminator's hidden layer, of as many as there are features where these are fewer."""
FIRST = 1e9  # a norm that clips nothing, until the source's are known
Noisy = Callable[[Bounded], list[Tensor]]


class Networks(nn.Module):
    """What is trained and saved: features, classifier, a discriminator where there is one, the target's own features where they are fixed.

    ``warm`` counts the steps on the source that are over; ``norm`` is the median norm of the source's Jacobians; ``centre`` and ``scale``
    bring features to the ball in which they are projected.
    """

    def __init__(self, model: nn.Module, like: Tensor, options: Options):
        super().__init__()
        if not isinstance(getattr(model, "features", None), nn.Module) or not isinstance(getattr(model, "classifier", None), nn.Module):
            told = ", ".join(name for name in registry.names("models") if name.startswith("adapt-"))
            raise UsageError(f"adaptation compares features: take a model with features and a classifier of them ({told})")
        self.features, self.classifier = model.features, model.classifier
        with torch.no_grad():
            self.width = self.features(like).shape[1]
        hidden = min(HIDDEN, self.width)
        adversary = nn.Sequential(nn.Linear(self.width, hidden), nn.ReLU(), nn.Linear(hidden, 1))
        self.discriminator = adversary if options.method.endswith("dann") else None
        # a copy of its own, so that the target passes through nothing that its records have moved
        fixed = options.method == "dp-swd" and options.variant == "sound" and options.route == "projections"
        self.fixed = _copy(self.features) if fixed else None
        self.register_buffer("warm", torch.zeros((), dtype=torch.int64))
        self.register_buffer("norm", torch.tensor(FIRST))
        self.register_buffer("centre", torch.zeros(self.width))
        self.register_buffer("scale", torch.ones(()))

    def of_target(self, inputs: Tensor) -> Tensor:
        """Logits of target records."""
        found: Tensor = self.classifier((self.features if self.fixed is None else self.fixed)(inputs))
        return found

    def of_source(self, inputs: Tensor) -> Tensor:
        found: Tensor = self.classifier(self.features(inputs))
        return found

    def in_ball(self, features: Tensor) -> Tensor:
        """Features about the source's centre, scaled by a public number and clipped to the radius."""
        found = (features - self.centre) * self.scale
        return found * clip_factors({"features": found.detach().square().sum(dim=1)}, RADIUS, None).unsqueeze(1)


@dataclass
class Work:
    """Networks, options, records of both sides ready for the networks, and the optimizer of all weights."""

    nets: Networks
    options: Options
    source: tuple[Tensor, Tensor]
    target: tuple[Tensor, Tensor]
    optimizer: torch.optim.Optimizer
    batch: int
    adjacency: str
    clip: float
    method: str

    def of_source(self) -> tuple[Tensor, Tensor]:
        """A random batch of the public side."""
        drawn = torch.randint(len(self.source[0]), (self.batch,)).to(self.source[0].device)
        return _images(self.source[0][drawn]), self.source[1][drawn]

    def step(self, gradients: dict[nn.Parameter, Tensor]) -> None:
        """Moves all weights that have a gradient."""
        for group in self.optimizer.param_groups:
            for weight in group["params"]:
                weight.grad = gradients.get(weight)
        self.optimizer.step()

    def classified(self) -> tuple[Tensor, Tensor]:
        """Features of a batch of the source, and the loss of the classifier on them."""
        inputs, labels = self.of_source()
        features = self.nets.features(inputs)
        return features, cross_entropy(self.nets.classifier(features), labels)

    def directions(self, like: Tensor) -> Tensor:
        """[d, k] fresh directions, from torch's global generator as it is drawn from and saved."""
        drawn = torch.randn(like.shape[1], self.options.directions, dtype=torch.float64)
        return (drawn / drawn.norm(dim=0)).to(like)


def source_alone(work: Work, inputs: Tensor, noisy: Noisy) -> Tensor:
    """No look at the target."""
    _, loss = work.classified()
    work.step(_gradients(work, loss))
    return loss.detach()


def dann(work: Work, inputs: Tensor, noisy: Noisy) -> Tensor:
    """Ganin et al. (2016): the discriminator tells source from target, and the features move the other way."""
    features, loss = work.classified()
    theirs = work.nets.features(inputs)
    told = _told(work, features, 1.0).mean() + _told(work, theirs, 0.0).mean()
    found = _gradients(work, loss, told)
    work.step(found)
    return loss.detach()


def dp_dann(work: Work, inputs: Tensor, noisy: Noisy) -> Tensor:
    """DANN whose gradients on target records are clipped one by one, added up and made noisy; the source's are added to it as they are."""
    nets = work.nets
    assert nets.discriminator is not None
    adversary = nn.Sequential(nets.features, nets.discriminator)
    zeros = inputs.new_zeros(len(inputs))
    if work.options.variant == "sound":
        total = clipped_sum(adversary, _is_target, inputs, zeros, norm=work.clip, adjacency=work.adjacency, method=work.method).total
    else:
        total = _each_tensor(adversary, inputs, work.clip, work.adjacency)
    released = [part / work.batch for part in noisy(total)]
    features, loss = work.classified()
    found = _gradients(work, loss, _told(work, features, 1.0).mean())
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
    work.step(_gradients(work, loss + work.options.weight * _root(cost)))
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
    work.step(_gradients(work, loss + work.options.weight * reach * _root(cost)))
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
        _clipped_gradient(work, theirs, theirs, features, directions[:, :1])
    unit = float(nets.norm) * options.lipschitz
    total, weights = _clipped_gradient(work, inputs, theirs, features, directions)
    released = noisy(total)
    logits = nets.of_source(theirs)
    loss = cross_entropy(logits, labels)
    found = _gradients(work, loss)
    for weight, part in zip(weights, released, strict=True):
        found[weight] = found[weight] + options.weight * unit * options.bound * part
    work.step(found)
    return loss.detach()


def projected_swd(work: Work, inputs: Tensor, noisy: Noisy) -> Tensor:
    """Noisy projections of target features that are held fixed; the source's features and the classifier learn to lie where they lie.

    What is released are the projections of the batch and nothing else: the target passes through a network that only the source has
    moved, and all that follows is made of the release. The noise on the source's own projections is released with it, as the noise on zeros.
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
    work.step(_gradients(work, loss + work.options.weight * cost))
    return loss.detach()


STEPS = {"none": source_alone, "dann": dann, "swd": swd, "dp-dann": dp_dann}
SWD = {"paper": published_swd, "gradient": gradient_swd, "projections": projected_swd}


def job(train: Train, options: Options, data: Any, device: torch.device, adjacency: str) -> Job:
    """Networks, steps and measures of a recipe on a pair of data sets."""
    if not isinstance(data, Pair):
        raise UsageError(f"adaptation needs two data sets: take data: {{name: pair, source: ..., target: ...}}; found {data.name}")
    source, target, held_out, of_source = _ready(data, options, device)
    params = registry.params("models", train.model.name, train.model.parameters())
    model = registry.load("models", train.model.name).build(params, tuple(source[0].shape[1:]), len(data.classes)).to(device)
    nets = Networks(model, source[0][:2], options).to(device)
    if source[0].dim() == 4:
        nets = nets.to(memory_format=torch.channels_last)
    _check(nets, options)
    moved = [p for p in nets.parameters() if p.requires_grad]
    optimizer = optimizer_of(moved, train.optimizer)
    private = train.privacy
    clip, method = (float(private.clip), private.method) if private is not None and private.clip != "batch-mean" else (1.0, "auto")
    work = Work(nets, options, source, target, optimizer, train.batch or len(target[0]), adjacency, clip, method)
    which = ("paper" if options.variant == "paper" else options.route) if options.method == "dp-swd" else ""
    step = SWD[which] if which else STEPS[options.method]

    def learn(indices: Indices, noisy: Noisy) -> Tensor:
        if not int(nets.warm):
            _warm_up(work, noisy)
        places = torch.from_numpy(indices).to(device)
        loss = step(work, _images(target[0][places]), noisy)
        return torch.stack([loss.new_tensor(float(len(indices))), loss * len(indices), loss.new_tensor(math.nan)])

    def evaluate() -> dict[str, float]:
        found = {"accuracy": _accuracy(nets.of_target, *held_out)} if len(held_out[1]) else {}
        found |= {"transductive": _accuracy(nets.of_target, *target), "source": _accuracy(nets.of_source, *of_source)}
        told = claimed(options)
        return found if told is None else {**found, "claimed": told}

    return Job(nets, None, evaluate, learn=learn, optimizers={"all": optimizer})


def _ready(data: Pair, options: Options, device: torch.device) -> list[tuple[Tensor, Tensor]]:
    """Inputs and labels of the source, of the target, of the target's held-out records, and of the source records it is measured on."""
    public = data.source_set
    # where all of the source is for training, it is measured on that: it is public
    measured = (public.x_test, public.y_test) if len(public.x_test) else (public.x_train, public.y_train)
    pairs = [(public.x_train, public.y_train), (data.x_train, data.y_train), (data.x_test, data.y_test), measured]
    found = [(_inputs(x, options, device), torch.tensor(y, device=device).long()) for x, y in pairs]
    if not options.standardise:
        return found
    mean, deviation = found[0][0].mean(dim=0), found[0][0].std(dim=0)
    return [((x - mean) / deviation.clamp(min=1e-6), y) for x, y in found]


def _inputs(x: Any, options: Options, device: torch.device) -> Tensor:
    """Records as float32: bytes become [0, 1], and each is divided by its own sum or normalised by public numbers."""
    inputs = torch.tensor(x, device=device)
    inputs = inputs.float() / 255 if inputs.dtype == torch.uint8 else inputs.float()
    if options.shares:
        inputs = inputs / inputs.flatten(1).sum(dim=1).clamp(min=1e-12).view(-1, *[1] * (inputs.dim() - 1))
    if options.normalise is not None:
        shape = (1, -1, *[1] * (inputs.dim() - 2))
        mean, std = (torch.tensor(v, device=device).view(shape) for v in (options.normalise.mean, options.normalise.std))
        inputs = (inputs - mean) / std
    return inputs


def _check(nets: Networks, options: Options) -> None:
    """Sees to it that what is accounted is what the networks have."""
    if nets.fixed is not None and nets.width != options.dimension:
        raise UsageError(
            f"options.dimension must be that of the features, {nets.width}, on which the noise hangs; found {options.dimension}"
        )
    known = [name for name, _ in nets.features.named_children()]
    wrong = [name for name in options.moves if name not in known]
    if wrong:
        raise UsageError(f"options.moves names layers of the features, of {', '.join(known)}; found {', '.join(wrong)}")
    if options.moves and not _moved(nets, options):
        raise UsageError(f"options.moves names layers without weights: {', '.join(options.moves)}")
    if options.method == "dp-dann" and options.variant == "paper" and nets.discriminator is not None:
        tensors = len([*nets.features.parameters(), *nets.discriminator.parameters()])
        if tensors != TENSORS:
            raise UsageError(f"dp-dann as published is accounted for {TENSORS} tensors; this model has {tensors}. Take an adapt- model")


def _warm_up(work: Work, noisy: Noisy) -> None:
    """Steps on the source alone; from then on the target's own features are fixed, and those of the source are known."""
    nets = work.nets
    for _ in range(work.options.warmup):
        _, loss = work.classified()
        work.step(_gradients(work, loss))
    nets.warm += max(work.options.warmup, 1)
    if nets.fixed is None:
        return
    nets.fixed.load_state_dict(nets.features.state_dict())
    with torch.no_grad():
        seen = nets.fixed(_images(work.source[0][:AT_ONCE]))
        nets.centre.copy_(seen.mean(dim=0))
        nets.scale.copy_(RADIUS / (seen - nets.centre).norm(dim=1).median())


def _clipped_gradient(work: Work, x: Tensor, z: Tensor, features: Tensor, directions: Tensor) -> tuple[Bounded, list[nn.Parameter]]:
    """The mean over directions of clipped gradients, in units of both bounds, and the weights that they belong to."""
    nets, options = work.nets, work.options
    unit = float(nets.norm) * options.lipschitz
    bounded = penalty(options, work.batch)
    bounded = type(bounded)(**{**vars(bounded), "bound": options.bound, "lipschitz": unit, "sizes": ((len(x), len(z)),)})
    count, total, norms = directions.shape[1], None, []
    centre = features.mean(dim=0)
    for direction in directions.unbind(dim=1):
        spread = ((features - centre) @ direction).std().clamp(min=1e-6)

        def scores(found: Tensor, along: Tensor = direction / spread) -> Tensor:
            return (found - centre) @ along

        with _only(nets.features, _moved(nets, options)):
            found = penalised_gradient(nets.features, None, torch.cat([x, z]), None, bounded, scores=scores)
        norms.append(found.jacobians[len(x) :])
        own = found.total.scaled(1 / (count * unit * options.bound))
        total = own if total is None else total + own
    nets.norm.copy_(torch.cat(norms).median())
    assert total is not None
    return total, _moved(nets, options)


def _moved(nets: Networks, options: Options) -> list[nn.Parameter]:
    """The weights of the features that a private gradient moves."""
    chosen = [layer for name, layer in nets.features.named_children() if not options.moves or name in options.moves]
    return [weight for layer in chosen for weight in layer.parameters()]


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


def _gradients(work: Work, loss: Tensor, told: Tensor | None = None) -> dict[nn.Parameter, Tensor]:
    """Gradients of the classification loss; with the discriminator's loss, it descends on that and the features climb it."""
    nets = work.nets
    features, classifier = list(nets.features.parameters()), list(nets.classifier.parameters())
    mine = torch.autograd.grad(loss, features + classifier, retain_graph=told is not None)
    found = dict(zip(features + classifier, mine, strict=True))
    if told is None or nets.discriminator is None:
        return found
    adversary = list(nets.discriminator.parameters())
    theirs = torch.autograd.grad(told, features + adversary)
    for weight, part in zip(features, theirs, strict=False):
        found[weight] = found[weight] - work.options.weight * part
    return found | dict(zip(adversary, theirs[len(features) :], strict=True))


def _told(work: Work, features: Tensor, side: float) -> Tensor:
    """The discriminator's loss [n] on features of the source (1) or of the target (0)."""
    assert work.nets.discriminator is not None
    found = work.nets.discriminator(features)[:, 0]
    return binary_cross_entropy_with_logits(found, torch.full_like(found, side), reduction="none")


def _is_target(outputs: Tensor, targets: Tensor) -> Tensor:
    return binary_cross_entropy_with_logits(outputs[:, 0], targets, reduction="none")


def _each_tensor(model: nn.Module, inputs: Tensor, norm: float, adjacency: str) -> Bounded:
    """The sum of the records' gradients, each tensor of each clipped to ``norm`` by itself: together they are clipped to sqrt(tensors) of it."""
    values = {name: weight.detach() for name, weight in model.named_parameters()}

    def one(weights: dict[str, Tensor], x: Tensor) -> Tensor:
        outputs = torch.func.functional_call(model, weights, (x.unsqueeze(0),))
        return _is_target(outputs, outputs.new_zeros(1)).sum()

    each = torch.func.vmap(torch.func.grad(one), in_dims=(None, 0), randomness="different")(values, inputs)
    parts = []
    for grads in each.values():
        flat = grads.flatten(1)
        parts.append((clip_factors({"tensor": flat.square().sum(dim=1)}, norm, None) @ flat).view(grads.shape[1:]))
    whole = norm * math.sqrt(len(parts))
    return Bounded(parts, whole if adjacency == "add-remove" else 2 * whole, adjacency)


def _root(cost: Tensor) -> Tensor:
    """The distance from its square, with a slope where both are the same."""
    return (cost + torch.finfo(cost.dtype).tiny).sqrt()


def _accuracy(logits: Callable[[Tensor], Tensor], inputs: Tensor, labels: Tensor) -> float:
    """The share of records that are labelled rightly."""
    with torch.no_grad():
        parts = zip(torch.split(inputs, AT_ONCE), torch.split(labels, AT_ONCE), strict=True)
        return float(sum((logits(_images(x)).argmax(dim=1) == y).sum() for x, y in parts)) / len(labels)


def _images(inputs: Tensor) -> Tensor:
    return inputs.contiguous(memory_format=torch.channels_last) if inputs.dim() == 4 else inputs


def _copy(module: nn.Module) -> nn.Module:
    """A copy that is never trained and drops nothing."""
    import copy

    found = copy.deepcopy(module).requires_grad_(False)
    found.train = functools.partial(_stay, found)  # type: ignore[method-assign]
    return found.eval()


def _stay(module: nn.Module, mode: bool = True) -> nn.Module:
    return module
