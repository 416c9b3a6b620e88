"""Optimizers and schedules of torch: the weights of plain torch on the same batches, at no cost."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch
from torch import nn, optim
from torch.nn.functional import cross_entropy
from torch.optim import lr_scheduler

import wpriv
from tests.training.test_own_training import OPTIONS, TEST, X, Y, network, same, weights
from wpriv.errors import UsageError
from wpriv.training import own_training, plan, training_run
from wpriv.training.engine import launch, loop
from wpriv.training.engine.batch_gradient import Batches, per_example
from wpriv.training.engine.job import Job

GIVEN = {key: value for key, value in OPTIONS.items() if key not in ("eps", "lr")} | {"sigma": 1.0}
LOOP = {key: value for key, value in GIVEN.items() if key != "progress"} | {"test": TEST}
OPTIMIZERS = {
    "sgd": lambda parameters: optim.SGD(parameters, lr=0.1, momentum=0.9, nesterov=True),
    "adamw": lambda parameters: optim.AdamW(parameters, lr=0.01, weight_decay=0.1, amsgrad=True),
    "rmsprop": lambda parameters: optim.RMSprop(parameters, lr=0.01),
    "adagrad": lambda parameters: optim.Adagrad(parameters, lr=0.1),
    "radam": lambda parameters: optim.RAdam(parameters, lr=0.01),
    "nadam": lambda parameters: optim.NAdam(parameters, lr=0.01),
    "asgd": lambda parameters: optim.ASGD(parameters, lr=0.1),
    "adadelta": lambda parameters: optim.Adadelta(parameters),
}
SCHEDULERS = {
    "none": None,
    "cosine": lambda optimizer: lr_scheduler.CosineAnnealingLR(optimizer, T_max=5),
    "warm-up": lambda optimizer: lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, step / 3)),
    "one-cycle": lambda optimizer: lr_scheduler.OneCycleLR(optimizer, max_lr=0.2, total_steps=9, cycle_momentum=False),
}
CASES = [(name, "none") for name in OPTIMIZERS] + [("sgd", name) for name in SCHEDULERS if name != "none"]


def losses(outputs, targets):
    return cross_entropy(outputs, targets, reduction="none")


@pytest.mark.parametrize(("optimizer", "scheduler"), CASES)
def test_without_noise_the_weights_are_those_of_plain_torch_on_the_same_batches(
    tmp_path, monkeypatch, optimizer, scheduler
):
    """Oracle P: five steps in float64, clipped at 1e30, the sum divided by the expected batch."""
    monkeypatch.setattr(loop, "add_noise", lambda total, *_, **__: [part.clone() for part in total.parts])
    training = own_training.own_training(
        network(), (X, Y), optimizer=OPTIMIZERS[optimizer], scheduler=SCHEDULERS[scheduler],
        sigma=1.0, delta=1e-5, clip=1e30, batch=100, steps=5, seed=3, test=TEST,
    )  # fmt: skip
    x, y, drawn = torch.tensor(X).double(), torch.tensor(Y), []

    def build(recipe, data, device, *, adjacency):
        model = network().double()
        batches = Batches(model, losses, lambda places: (drawn.append(places), (x[places], y[places]))[1], 400)
        aggregate = functools.partial(per_example, batches, norm=1e30, adjacency=adjacency, divisor=100.0)
        own, schedule = training.optimizer.build(list(model.parameters()))
        return Job(model, aggregate, dict, optimizers={"model": own}, scheduler=schedule)

    job = plan.plan(training.recipe, {"records": 400})
    engine = launch.prepare(
        training.recipe.train, training.data, training_run.schedule(job), tmp_path, identity="p", build_job=build
    )
    for places in engine.batches():
        engine.step(places)
    plain = network().double()
    own = OPTIMIZERS[optimizer](plain.parameters())
    schedule = None if SCHEDULERS[scheduler] is None else SCHEDULERS[scheduler](own)
    assert len(drawn) == 5
    for places in drawn:
        own.zero_grad()
        (losses(plain(x[places]), y[places]).sum() / 100.0).backward()
        own.step()
        if schedule is not None:
            schedule.step()
    for mine, theirs in zip(engine.job.model.parameters(), plain.parameters(), strict=True):
        assert float((mine - theirs).detach().norm()) <= 1e-9 * float(theirs.detach().norm())


def cosine(optimizer):
    return lr_scheduler.CosineAnnealingLR(optimizer, T_max=4)


def adam(parameters):
    return optim.Adam(parameters, lr=0.05)


def test_a_training_that_was_left_goes_on_with_the_state_of_optimizer_and_schedule(tmp_path):
    whole = wpriv.train(network(), (X, Y), test=TEST, optimizer=adam, scheduler=cosine, out=tmp_path / "whole", **GIVEN)
    with wpriv.training_loop(network(), (X, Y), optimizer=adam, scheduler=cosine, out=tmp_path / "r", **LOOP) as run:
        for batch in run:
            run.step()
            if batch.step == 2:
                break
    again = wpriv.train(
        network(), (X, Y), test=TEST, optimizer=adam, scheduler=cosine, out=tmp_path / "r", resume=True, **GIVEN
    )
    assert same(weights(tmp_path / "r"), weights(tmp_path / "whole"))
    assert again.epsilon == whole.epsilon
    with pytest.raises(UsageError, match="another recipe"):
        wpriv.train(network(), (X, Y), test=TEST, optimizer=adam, out=tmp_path / "r", **GIVEN)


def test_an_object_over_the_parameters_takes_the_steps_of_a_function_and_begins_anew(tmp_path):
    wpriv.train(network(), (X, Y), test=TEST, optimizer=adam, out=tmp_path / "function", **GIVEN)
    model = network()
    own = adam(model.parameters())
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    own.step()  # moments of zero, and one step noted
    wpriv.train(model, (X, Y), test=TEST, optimizer=own, out=tmp_path / "object", **GIVEN)
    assert same(weights(tmp_path / "object"), weights(tmp_path / "function"))


def test_a_schedule_of_torch_goes_with_the_rates_of_a_loop_s_steps(tmp_path):
    """A schedule over another optimizer, whose rates each step is given, takes the steps of one that is passed."""
    sgd = lambda parameters: optim.SGD(parameters, lr=0.5)  # noqa: E731
    wpriv.train(network(), (X, Y), test=TEST, optimizer=sgd, scheduler=cosine, out=tmp_path / "passed", **GIVEN)
    schedule = cosine(optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.5))
    with wpriv.training_loop(network(), (X, Y), lr=0.5, out=tmp_path / "rates", **LOOP) as run:
        for _ in run:
            run.step(lr=schedule.get_last_lr()[0])
            schedule.optimizer.step()
            schedule.step()
    assert same(weights(tmp_path / "rates"), weights(tmp_path / "passed"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"optimizer": lambda parameters: optim.LBFGS(parameters)}, "closure"),
        ({"optimizer": lambda parameters: 3}, "torch optimizer"),
        ({"optimizer": 3}, "torch optimizer"),
        ({"optimizer": lambda parameters: optim.SGD(parameters, lr=-1)}, "fails on its one argument"),
        ({"optimizer": adam, "lr": 0.1}, "leave `lr` out"),
        ({"optimizer": "sgd", "lr": 0.1, "scheduler": cosine}, "goes with an optimizer of torch"),
        ({"optimizer": adam, "scheduler": lr_scheduler.ReduceLROnPlateau}, "needs no figure"),
        ({"optimizer": optim.SGD([nn.Parameter(torch.zeros(2))], lr=0.1)}, "must be the same"),
        ({"optimizer": adam, "scheduler": cosine(optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0))}, "another"),
        ({"optimizer": "given", "lr": 0.1}, "give the optimizer itself"),
        ({"optimizer": lambda parameters: optim.SparseAdam(list(parameters))}, "SparseAdam fails in a step"),
        (
            {"optimizer": adam, "scheduler": lambda it: lr_scheduler.OneCycleLR(it, 0.1, total_steps=1)},
            "ends after 1 steps",
        ),
    ],
)
def test_what_is_no_optimizer_or_schedule_of_these_weights_is_refused_before_anything_is_spent(
    tmp_path, options, words
):
    with pytest.raises(UsageError, match=words):
        wpriv.train(network(), (X, Y), test=TEST, out=tmp_path / "r", **{**GIVEN, **options})
    assert not (tmp_path / "r" / "ledger.jsonl").exists() or not np.fromfile(tmp_path / "r" / "ledger.jsonl", "u1").size
