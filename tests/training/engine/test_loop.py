"""The training loop: the distribution of its noise, and stopping, crashing and resuming without any difference."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from tests.points import ROOT
from tests.training.engine.toys import BATCH, RECORDS, batches, engine, schedule, weights
from wpriv.accounting import ledger
from wpriv.accounting.mechanisms.gauss import Gauss
from wpriv.config.train_schema import Optimizer
from wpriv.core.kinds import Sampling
from wpriv.core.process import Process, Step
from wpriv.errors import Interrupted, UsageError
from wpriv.files import checkpoint
from wpriv.randomness import training_seeds
from wpriv.training.engine import batch_gradient
from wpriv.training.engine.job import Job, Schedule
from wpriv.training.engine.loop import Engine
from wpriv.training.engine.saved_weights import CHECKPOINT, DIAGNOSTICS, LEDGER, MODEL, load_diagnostics
from wpriv.training.noise.release import Bounded


def still(folder, *, multiplier=1.3, bound=0.4, size=20000, seed=0, mask=0.0):
    """An engine whose gradients are zero: its weights hold nothing but noise."""
    model = nn.Linear(size, 1, bias=False)
    nn.init.zeros_(model.weight)
    gathered = batch_gradient.BatchGradient(Bounded([torch.zeros(1, size)], bound, "add-remove"), 10.0, torch.zeros(3))
    sampling = Sampling("none")
    plan = Schedule(sampling, 5, 5, 2, Step(Gauss(multiplier)), multiplier, "add-remove", Optimizer(lr=1.0), mask=mask)
    return Engine(
        Job(model, lambda _: gathered, dict), plan, training_seeds(seed), folder, torch.device("cpu"), identity="still"
    )


def steps_of(own: Engine) -> tuple[np.ndarray, np.ndarray]:
    own.step(own.sampler.draw())
    first = weights(own).double().numpy()
    own.step(own.sampler.draw())
    return first, weights(own).double().numpy() - first


def test_noise_is_normal_with_the_standard_deviation_of_the_statement_and_independent_between_steps(tmp_path):
    # oracle: Kolmogorov-Smirnov against N(0, (multiplier bound / divisor)^2) at 1e-4, correlation of independent
    # vectors 5/sqrt(n)
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    for part in steps_of(still(tmp_path / "a")):
        assert stats.kstest(part / (1.3 * 0.4 / 10), "norm").pvalue > 1e-4
    one, other = steps_of(still(tmp_path / "b", seed=1))
    assert abs(np.corrcoef(one, other)[0, 1]) < 5 / np.sqrt(len(one))


def test_two_runs_without_a_seed_draw_different_noise_and_two_with_one_the_same(tmp_path):
    one, other = (
        steps_of(still(tmp_path / name, seed=None))[0] for name in ("a", "b") if not (tmp_path / name).mkdir()
    )
    assert abs(np.corrcoef(one, other)[0, 1]) < 5 / np.sqrt(len(one))
    (tmp_path / "c").mkdir()
    (tmp_path / "d").mkdir()
    assert np.array_equal(steps_of(still(tmp_path / "c"))[1], steps_of(still(tmp_path / "d"))[1])


def test_no_run_of_a_ledger_shares_a_stream_with_another_even_under_one_seed():
    drawn = [training_seeds(7, run) for run in (1, 2, 3)] + [training_seeds(8)]
    numbers = [number for own in drawn for number in (own.sampling, own.noise, own.model)]
    assert len(set(numbers)) == len(numbers)
    assert training_seeds(7) == drawn[0]
    assert training_seeds(None) != training_seeds(None)


def test_a_mask_zeroes_its_share_after_the_noise(tmp_path):
    first, second = steps_of(still(tmp_path, mask=0.9))
    for part in (first, second):
        assert np.mean(part == 0) == pytest.approx(0.9, abs=5 * np.sqrt(0.09 / len(part)))
    assert np.mean((first == 0) & (second == 0)) == pytest.approx(0.81, abs=0.02)


def test_sampling_that_is_not_the_accounted_one_is_refused():
    with pytest.raises(UsageError):
        Schedule(
            Sampling("fixed", 0.5),
            4,
            2,
            3,
            Step(Gauss(1.0), 1, Sampling("poisson", 0.5)),
            1.0,
            "add-remove",
            Optimizer(lr=1.0),
        )


def test_noise_that_is_not_the_accounted_one_is_refused():
    with pytest.raises(UsageError, match=r"20; found 2$"):
        Schedule(Sampling("none"), 4, 4, 3, Step(Gauss(20.0)), 2.0, "add-remove", Optimizer(lr=1.0))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["poisson", "fixed", "allocation", "none"])
@pytest.mark.parametrize("multiplier", [0.7, 0.0])
def test_a_run_stopped_anywhere_and_resumed_ends_with_the_same_bits(tmp_path, kind, multiplier):
    plan = schedule(20, kind=kind, multiplier=multiplier)
    whole = engine(tmp_path / "whole", plan)
    rows = whole.run()
    for stop in (1, 7, 19):
        folder = tmp_path / f"cut{stop}"
        cut = engine(folder, plan)
        with pytest.raises(Interrupted, match=f"after step {stop} of 20"):
            cut.run(stop=lambda cut=cut, stop=stop: "SIGTERM" if cut.steps_done == stop else None)
        # what the process held is gone: another seed, other weights
        again = engine(folder, plan, seed=99, resume=True)
        assert again.run() == rows
        assert torch.equal(weights(again), weights(whole))
        assert len(ledger.entries(folder / LEDGER)) == (20 if multiplier else 0)
        assert not (folder / CHECKPOINT).exists()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["poisson", "fixed"])
def test_a_run_with_exact_noise_stopped_and_resumed_ends_with_the_same_bits(tmp_path, kind):
    plan = schedule(12, kind=kind, exact=True)
    whole = engine(tmp_path / "whole", plan)
    rows = whole.run()
    for stop in (1, 7, 11):
        cut = engine(tmp_path / f"cut{stop}", plan)
        with pytest.raises(Interrupted):
            cut.run(stop=lambda cut=cut, stop=stop: "SIGTERM" if cut.steps_done == stop else None)
        again = engine(tmp_path / f"cut{stop}", plan, seed=99, resume=True)
        assert again.run() == rows
        assert torch.equal(weights(again), weights(whole))
        assert len(ledger.entries(tmp_path / f"cut{stop}" / LEDGER)) == 12
    # the same seeds draw the same noise in both forms, up to the grid, the sums' rounding and what exact noise adds
    other = engine(tmp_path / "rounded", schedule(12, kind=kind))
    other.run()
    torch.testing.assert_close(weights(other), weights(whole), rtol=0, atol=1e-2)
    assert not torch.equal(weights(other), weights(whole))


@pytest.mark.parametrize("form", ["rounded", "exact"])
def test_every_sum_that_a_step_releases_lies_on_the_grid_of_its_noise(tmp_path, form, monkeypatch):
    # oracle: the sum of a step is its update of the weights times the divisor; sigma 0.7 on a norm of 0.5 has a grid of
    # 2^-22
    own = engine(tmp_path, schedule(5, exact=form == "exact"))
    real, seen = torch._foreach_div_, []

    def divided(parts, divisor):
        seen.extend(part.double().reshape(-1) for part in parts)
        return real(parts, divisor)

    monkeypatch.setattr(torch, "_foreach_div_", divided)
    own.run()
    multiples = torch.cat(seen) / 2.0**-22
    assert torch.equal(multiples, multiples.round())
    assert bool((multiples % 2 != 0).any())


class Crash(Exception):
    pass


@pytest.mark.slow
@pytest.mark.parametrize("at", [1, 4, 9, 10, 17])
def test_a_crash_before_a_step_is_used_loses_no_entry_and_resuming_pays_nothing_twice(tmp_path, at, monkeypatch):
    whole = engine(tmp_path / "whole")
    whole.run()
    cut = engine(tmp_path / "cut")
    move = cut._update_weights

    def crash(parts):
        if cut.steps_done + 1 == at:
            raise Crash
        move(parts)

    monkeypatch.setattr(cut, "_update_weights", crash)
    with pytest.raises(Crash):
        cut.run()
    assert len(ledger.entries(tmp_path / "cut" / LEDGER)) == at  # paid for, though nobody saw it
    again = engine(tmp_path / "cut", seed=5, resume=True)
    assert again.steps_done < at
    again.run()
    assert torch.equal(weights(again), weights(whole))
    assert ledger.process(ledger.entries(tmp_path / "cut" / LEDGER), "add-remove").steps == (
        Step(Gauss(0.7), 30, Sampling("poisson", BATCH / RECORDS)),
    )


KILLED = """
import sys; sys.path.insert(0, {root!r})
from pathlib import Path
from tests.training.engine.toys import engine
from tests.training.engine.toys import schedule
own = engine(Path({folder!r}), schedule({steps}, every={every}), seed=7)
own.run(on_step=lambda step: print(step, flush=True))
"""


@pytest.mark.slow
def test_kill_9_at_a_random_moment_loses_at_most_the_last_interval_and_no_entry(tmp_path):
    folder, every = tmp_path / "killed", 0.1
    script = KILLED.format(root=str(ROOT), folder=str(folder), every=every, steps=800)
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    ) as child:
        assert child.stdout is not None
        while int(child.stdout.readline()) < 50:
            pass
        time.sleep(float(np.random.default_rng().uniform(0, 0.4)))
        child.send_signal(signal.SIGKILL)
        told = [int(line) for line in child.stdout.read().split()]
    spent = ledger.entries(folder / LEDGER)
    assert spent[-1].step >= max(told, default=50)  # every step whose end was told is in the ledger
    saved = checkpoint.load(folder / CHECKPOINT)["step"]
    assert saved <= spent[-1].step
    plan = schedule(800)
    again = Engine(
        engine(tmp_path / "other", plan).job,
        plan,
        training_seeds(1),
        folder,
        torch.device("cpu"),
        identity="toy",
        resume=True,
    )
    assert again.steps_done == saved
    again.run()
    assert [e.step for e in ledger.entries(folder / LEDGER)] == list(range(1, plan.steps + 1))


def test_a_fork_goes_on_from_the_weights_and_composes_what_was_spent(tmp_path):
    first = engine(tmp_path)
    first.run()
    second = engine(tmp_path, schedule(10, multiplier=2.0, run=2), identity="changed", fork=True)
    assert torch.equal(weights(second), weights(first))
    second.run()
    sampling = Sampling("poisson", BATCH / RECORDS)
    spent = ledger.process(ledger.entries(tmp_path / LEDGER), "add-remove")
    assert spent == Process((Step(Gauss(0.7), 30, sampling), Step(Gauss(2.0), 10, sampling)), "add-remove")


def test_a_checkpoint_of_another_recipe_or_with_a_ledger_cut_short_is_refused(tmp_path):
    cut = engine(tmp_path)
    with pytest.raises(Interrupted):
        cut.run(stop=lambda: "SIGTERM" if cut.steps_done == 8 else None)
    with pytest.raises(UsageError, match="fork=True"):
        engine(tmp_path, identity="changed", resume=True)
    (tmp_path / LEDGER).write_bytes(b"".join((tmp_path / LEDGER).read_bytes().splitlines(keepends=True)[:5]))
    with pytest.raises(UsageError, match=LEDGER):
        engine(tmp_path, resume=True)


@pytest.mark.slow
def test_a_finished_model_holds_weights_and_nothing_made_of_records_without_noise(tmp_path):
    training = engine(tmp_path, identity="recipe-records")
    rows = training.run()
    assert not (tmp_path / CHECKPOINT).exists()
    model = checkpoint.load(tmp_path / MODEL)
    assert set(model) == {
        "format",
        "identity",
        "step",
        "run",
        "ledger",
        "clear",
        "weights",
        "clipping",
        "checked",
        "remarks",
    }
    assert model["identity"] == "recipe"
    diagnostics = load_diagnostics(tmp_path, model)
    assert (diagnostics["identity"], json.loads(diagnostics["rows"])) == ("recipe-records", rows)


@pytest.mark.slow
def test_diagnostics_of_another_run_than_the_model_are_refused(tmp_path):
    engine(tmp_path).run()
    model = checkpoint.load(tmp_path / MODEL)
    with pytest.raises(UsageError, match=DIAGNOSTICS):
        load_diagnostics(tmp_path, {**model, "run": 2})
    (tmp_path / DIAGNOSTICS).unlink()
    with pytest.raises(UsageError, match=DIAGNOSTICS):
        load_diagnostics(tmp_path, model)


@pytest.mark.slow
def test_a_model_of_an_earlier_version_which_holds_its_diagnostics_is_read_and_forked(tmp_path):
    first = engine(tmp_path)
    rows = first.run()
    old = {**checkpoint.load(tmp_path / MODEL), "identity": "toy", "rows": json.dumps(rows)}
    checkpoint.save(tmp_path / MODEL, old)
    (tmp_path / DIAGNOSTICS).unlink()
    assert json.loads(load_diagnostics(tmp_path, checkpoint.load(tmp_path / MODEL))["rows"]) == rows
    second = engine(tmp_path, schedule(10, multiplier=2.0, run=2), identity="changed", fork=True)
    assert torch.equal(weights(second), weights(first))
    second.run()
    assert "rows" not in checkpoint.load(tmp_path / MODEL)


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"\x80\x04cos\nsystem\n(S'true'\ntR."])
def test_a_file_that_is_no_checkpoint_is_refused_without_running_it(tmp_path, content):
    (tmp_path / "c.pt").write_bytes(content)
    with pytest.raises(UsageError, match=r"c\.pt"):
        checkpoint.load(tmp_path / "c.pt")


def test_of_many_epochs_a_hundred_are_told_and_the_last_one_always():
    # counted by hand: two steps an epoch, and 251 epochs, of which every third is told
    plan = Schedule(Sampling("fixed", 0.5), 4, 2, 502, None, 0.0, "", Optimizer(lr=1.0))
    assert [plan.epoch_of(step) for step in range(1, 13)] == [None] * 5 + [3] + [None] * 5 + [6]
    assert plan.epoch_of(502) == 251
    assert sum(plan.epoch_of(step) is not None for step in range(1, 503)) == 84


def test_rows_are_told_once_an_epoch_and_at_the_end(tmp_path):
    rows = engine(tmp_path, schedule(10)).run()
    assert [(row["epoch"], row["step"]) for row in rows] == [(1, 3), (2, 6), (3, 9), (4, 10)]


@pytest.mark.slow
@pytest.mark.parametrize("physical", [1, 3, RECORDS])
def test_the_sum_and_its_bound_do_not_hang_on_the_physical_batch(physical):
    torch.manual_seed(0)
    whole, parts = batches(), batches(physical)
    parts.model.load_state_dict(whole.model.state_dict())
    own = np.arange(RECORDS)
    one, other = (
        batch_gradient.per_example(b, own, norm=0.1, adjacency="add-remove", divisor=4.0) for b in (whole, parts)
    )
    assert other.total.sensitivity == one.total.sensitivity == 0.1
    for a, b in zip(one.total.parts, other.total.parts, strict=True):
        assert torch.allclose(a, b, atol=1e-6)
    assert torch.allclose(one.diagnostics, other.diagnostics)


@pytest.mark.parametrize(
    ("adjacency", "neighbours", "bound"), [("add-remove", ([0, 1], [0]), 0.05), ("replace-one", ([0, 1], [0, 2]), 0.1)]
)
def test_gradients_of_neighbouring_data_sets_of_two_records_are_no_further_apart_than_the_sensitivity(
    adjacency, neighbours, bound
):
    torch.manual_seed(1)
    own = batches()
    one, other = (
        batch_gradient.per_example(own, np.array(n), norm=0.05, adjacency=adjacency, divisor=1.0).total
        for n in neighbours
    )
    gap = torch.cat([(a - b).reshape(-1) for a, b in zip(one.parts, other.parts, strict=True)]).double().norm()
    assert one.sensitivity == bound
    assert 0 < gap <= bound


def test_a_step_without_records_is_noise_alone():
    own = batch_gradient.per_example(
        batches(), np.array([], dtype=np.int64), norm=0.05, adjacency="add-remove", divisor=4.0
    )
    assert all(not part.any() for part in own.total.parts)
    assert own.total.sensitivity == 0.05


def test_a_clipped_mean_is_no_longer_than_its_norm_and_bounded_by_twice_that():
    own = batch_gradient.batch_mean(batches(), np.arange(5), norm=1e-3, adjacency="add-remove")
    length = torch.cat([p.reshape(-1) for p in own.total.parts]).double().norm()
    assert float(length) == pytest.approx(1e-3, rel=1e-4)
    assert length <= 1e-3
    assert own.total.sensitivity == 2e-3


def test_a_sum_bounded_under_other_neighbours_than_the_accounted_ones_is_not_released(tmp_path):
    # its sensitivity may be half of what the noise must be scaled to
    own = still(tmp_path)
    own.schedule = replace(own.schedule, adjacency="replace-one")
    with pytest.raises(UsageError):
        own.step(own.sampler.draw())
    assert not weights(own).any()


def test_a_job_that_may_release_once_does_not_release_a_second_sum(tmp_path):
    own = still(tmp_path)
    own.schedule = replace(own.schedule, once=True)
    own.step(own.sampler.draw())
    before = weights(own)
    with pytest.raises(RuntimeError):
        own.step(own.sampler.draw())
    assert torch.equal(weights(own), before)
    assert len(ledger.entries(tmp_path / LEDGER)) == 1


def test_leaving_records_out_by_difference_is_leaving_them_out():
    torch.manual_seed(2)
    own, indices, chosen = batches(), np.arange(8), np.array([0, 3, 7])
    mask = [torch.ones_like(p) for p in own.trainable()]
    quick, literal = (
        batch_gradient.left_out_distances(own, indices, chosen, norm=10.0, mask=mask, mixing=m) for m in (False, True)
    )
    assert quick.shape == (3,)
    assert torch.allclose(quick, literal, rtol=1e-3)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
def test_noise_on_a_gpu_has_the_same_law(tmp_path):
    own = still(tmp_path)
    gathered = batch_gradient.BatchGradient(
        Bounded([torch.zeros(1, 20000, device="cuda")], 0.4, "add-remove"), 10.0, torch.zeros(3, device="cuda")
    )
    job = Job(own.job.model.cuda(), lambda _: gathered, dict)
    there = Engine(job, own.schedule, training_seeds(0), tmp_path, torch.device("cuda"), identity="still")
    there.step(there.sampler.draw())
    assert stats.kstest(weights(there).cpu().double().numpy() / (1.3 * 0.4 / 10), "norm").pvalue > 1e-4
