"""Figures in the notes and the progress of a training: noise and eps are never rounded to the unsafe side."""

from __future__ import annotations

import dataclasses
import re

import pytest

from tests.training.test_groups_in_training import planned
from wpriv import Gauss, Poisson, Process, Step, curve
from wpriv.training import plan, progress


def _eps(sigma):
    process = Process((Step(Gauss(sigma), 5, Poisson(128 / 1438)),))
    return curve(process, "pld", tol=1e-8).at(delta=1e-5).epsilon


@pytest.mark.parametrize("eps", [1.0, 2.5])
def test_the_noise_that_a_note_states_keeps_the_target(eps):
    job = planned(eps=eps, group=1)
    sigma = float(re.search(r"sigma = (\S+) is the least", job.notes[-1])[1])
    assert _eps(sigma).upper <= eps
    # to the nearest number of six digits the noise would be too little
    assert _eps(float(f"{job.multiplier:.6g}")).lower > eps


def test_the_eps_at_which_a_training_stops_is_rounded_up():
    job = planned(eps=2.0, sigma=0.9, group=1)
    stated = re.search(r"stops after \d of 5 steps, where eps = (\S+): ", job.notes[-1])[1]
    assert job.eps() <= float(stated) <= job.eps() * (1 + 1e-5)


def test_a_training_that_stops_says_where_one_more_step_was_not_ruled_out(monkeypatch):
    solve_for = plan.solve_for
    monkeypatch.setattr(plan, "solve_for", lambda *a, **k: dataclasses.replace(solve_for(*a, **k), missed=None))
    assert "may meet the target as well" in planned(eps=2.0, sigma=0.9, group=1).notes[-1]


def test_the_eps_of_an_epoch_is_rounded_up():
    assert progress._metrics({"epoch": 1, "step": 2, "loss": 0.5, "epsilon": 1.23441, "seconds": 3.0}) == (
        "loss 0.5, eps 1.235, 3 s"
    )
