"""The job of domain adaptation: networks, the step of the chosen method, and measurements on a pair of data sets."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from wpriv import models
from wpriv.config.train_schema import Train
from wpriv.data.pair import Pair
from wpriv.engine.clipping.choose_method import check_evaluation
from wpriv.engine.clipping.clip import choose, method_of
from wpriv.engine.job import Job, ReleaseGate, optimizer_of
from wpriv.engine.penalty.gradient import method_for
from wpriv.engine.release_spec import expected_batch
from wpriv.engine.sampler import Indices
from wpriv.errors import UsageError
from wpriv.tasks import _adapt_steps
from wpriv.tasks._adapt_nets import (
    CHUNK,
    Adaptation,
    Networks,
    accuracy,
    loss_gradients,
    prepare_records,
    to_fast_layout,
    updated_weights,
    validate_networks,
)
from wpriv.tasks._adapt_options import RADIUS, Options, claimed_eps

STEPS = {
    "none": _adapt_steps.source_alone,
    "dann": _adapt_steps.dann,
    "swd": _adapt_steps.swd,
    "dp-dann": _adapt_steps.dp_dann,
}
SWD_STEPS = {
    "paper": _adapt_steps.published_swd,
    "gradient": _adapt_steps.gradient_swd,
    "projections": _adapt_steps.projected_swd,
}


def build_job(recipe: Train, options: Options, data: Any, device: torch.device, adjacency: str) -> Job:
    """Build the networks of a recipe, its step and its measurements.

    Raises:
        UsageError: the data are not a pair of data sets, or the model does not fit.
        Unsupported: a layer cannot be clipped.
    """
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
    optimizer = optimizer_of([p for p in nets.parameters() if p.requires_grad], recipe.optimizer)
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
    """Probe with made-up records every network that target records pass through, as they pass through it.

    Raises:
        Unsupported: the network mixes or keeps records, or has a layer that cannot be clipped.
    """
    nets, options = run.nets, run.options
    empty = to_fast_layout(run.target[0][:0])
    if nets.discriminator is not None:
        method = run.method if options.variant == "sound" else "vmap"
        choose(run.adversary, _adapt_steps.target_side_losses, empty, empty.new_empty(0), method=method)
    elif nets.fixed is None:
        with _adapt_steps.only_trainable(nets.features, updated_weights(nets, options)):
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
