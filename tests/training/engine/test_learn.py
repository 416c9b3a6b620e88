"""Steps of a task's own: what passes the door is what is accounted, and stopping leaves no trace in them either."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from wpriv.accounting import ledger
from wpriv.accounting.mechanisms.gauss import Gauss
from wpriv.config.train_schema import Optimizer
from wpriv.core.kinds import Sampling
from wpriv.core.process import Step
from wpriv.errors import Interrupted, UsageError
from wpriv.randomness import training_seeds
from wpriv.training.engine.job import Job, Schedule
from wpriv.training.engine.loop import Engine
from wpriv.training.engine.saved_weights import LEDGER
from wpriv.training.engine.update_rules import UpdateRule
from wpriv.training.noise.release import Bounded

PLAN = Optimizer(name="adam", lr=0.1, decay="linear")


class Pair(nn.Module):
    """Two small networks, and what a first step has released."""

    def __init__(self):
        super().__init__()
        self.one, self.other = nn.Linear(3, 1), nn.Linear(3, 1)
        self.register_buffer("released", torch.zeros(3))


def made(folder, *, once=False, times=1, adjacency="add-remove", step=True, steps=12, **how):
    """An engine whose task moves two networks towards a released sum, drawing its own randomness on the way."""
    own = training_seeds(0)
    torch.manual_seed(own.model)
    model = Pair()
    optimizers = {name: UpdateRule(getattr(model, name).parameters(), PLAN) for name in ("one", "other")}
    released = []

    def learn(indices, noisy):
        if not once or not model.released.any():
            for _ in range(times):
                (found,) = noisy(Bounded([torch.full((3,), float(len(indices)))], 1.0, adjacency))
            released.append(found)
            model.released.copy_(found)
        for name, own in optimizers.items():
            own.zero_grad()
            (getattr(model, name)(model.released + torch.randn(3)) ** 2).sum().backward()
            own.step()
        return torch.tensor([len(indices), 0.0, float("nan")])

    folder.mkdir(exist_ok=True)
    plan = Schedule(
        Sampling(), 6, 6, steps, Step(Gauss(0.5)) if step else None, 0.5 if step else 0.0, "add-remove", PLAN, once=once
    )
    job = Job(model, None, dict, custom_step=learn, optimizers=optimizers)
    return Engine(job, plan, own, folder, torch.device("cpu"), identity="toy", **how), released


def weights(own):
    return torch.cat([p.detach().reshape(-1) for p in own.job.model.parameters()])


@pytest.mark.parametrize("once", [False, True])
def test_resuming_is_as_if_there_had_been_no_stop_and_pays_for_the_same_releases(tmp_path, once):
    whole, _ = made(tmp_path / "whole", once=once)
    whole.run()
    cut, _ = made(tmp_path / "cut", once=once)
    with pytest.raises(Interrupted):
        cut.run(stop=lambda: "a test" if cut.steps_done == 5 else None)
    again, _ = made(tmp_path / "cut", once=once, resume=True)
    again.run()
    assert torch.equal(weights(whole), weights(again))
    paid = [len(ledger.entries(tmp_path / name / LEDGER)) for name in ("whole", "cut")]
    assert paid == ([1, 1] if once else [12, 12])


def test_what_passes_the_door_has_noise_on_it_and_nothing_without_privacy(tmp_path):
    own, released = made(tmp_path / "private")
    own.run()
    assert len({float(part[0]) for part in released}) == 12
    own, released = made(tmp_path / "plain", step=False)
    own.run()
    assert {float(part[0]) for part in released} == {6.0}


@pytest.mark.parametrize("times", [0, 2])
def test_a_task_that_releases_more_or_less_often_than_is_accounted_is_stopped(tmp_path, times):
    own, _ = made(tmp_path / "wrong", times=times)
    if times == 0:
        own.job.custom_step = lambda indices, noisy: torch.zeros(3)
    with pytest.raises(RuntimeError, match=f"step 1 released {times} times"):
        own.run()


def test_a_bound_under_other_neighbours_than_the_accounted_ones_does_not_pass(tmp_path):
    own, _ = made(tmp_path / "wrong", adjacency="replace-one")
    with pytest.raises(UsageError, match="add-remove"):
        own.run()


def test_every_optimizer_of_a_task_decays(tmp_path):
    own, _ = made(tmp_path / "decay")
    own.run()
    for optimizer in own.optimizers.values():
        assert optimizer.param_groups[0]["lr"] == pytest.approx(0.1 / 12)


def test_the_engine_draws_fixed_sizes_from_each_group(tmp_path):
    seen = []
    groups = [(np.array([0, 2, 4, 6]), 2), (np.array([1, 3, 5]), 1)]
    plan = Schedule(Sampling("fixed", 0.5), 7, 3, 50, None, 0.0, "", PLAN)
    model = nn.Linear(1, 1)

    def learn(indices, noisy):
        seen.append(indices)
        return torch.zeros(3)

    job = Job(model, None, dict, custom_step=learn, groups=groups)
    Engine(job, plan, training_seeds(0), tmp_path, torch.device("cpu"), identity="groups").run()
    assert all(
        len(drawn) == 3 and (drawn[:2] % 2 == 0).all() and drawn[0] < drawn[1] and drawn[2] % 2 for drawn in seen
    )
    assert {int(place) for drawn in seen for place in drawn} == set(range(7))
