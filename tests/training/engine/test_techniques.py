"""Averages of weights, adaptive norms, augmentation and schedules in the training loop, also across interruptions."""

from __future__ import annotations

import dataclasses
import functools
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from tests.training.engine.toys import BATCH, LOSS, RECORDS, schedule
from wpriv.accounting import ledger
from wpriv.config.train_parts import Adapt, Augment, Average
from wpriv.config.train_schema import Optimizer, Privacy
from wpriv.errors import Interrupted, UsageError
from wpriv.files import checkpoint
from wpriv.randomness import training_seeds
from wpriv.training.engine import augmentation, batch_gradient
from wpriv.training.engine.batch_gradient import AdaptiveNorm, BatchGradient
from wpriv.training.engine.job import Job, Schedule
from wpriv.training.engine.loop import Engine, rate_factor
from wpriv.training.engine.release_spec import count_share, gradient_multiplier
from wpriv.training.engine.saved_weights import CHECKPOINT, LEDGER, MODEL
from wpriv.training.engine.update_rules import UpdateRule
from wpriv.training.noise.noise_stream import Noise
from wpriv.training.noise.release import Bounded, add_noise

AVERAGE = Average(decay=0.8)


def job(*, adapt: bool, physical: int = 5) -> Job:
    """Twelve made-up pictures in copies, and a linear model."""
    rng = np.random.default_rng(3)
    x = torch.tensor(rng.normal(size=(RECORDS, 1, 4, 4)), dtype=torch.float32)
    y = torch.tensor(rng.integers(0, 3, RECORDS))
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
    copied = augmentation.of(Augment(copies=3, flip="horizontal", shift=1), x, model)
    own = copied.batches(
        batch_gradient.Batches(
            model, LOSS, lambda places: (x[torch.from_numpy(places)], y[torch.from_numpy(places)]), physical
        )
    )
    private = Privacy(sigma=1.0, delta=1e-5, clip=0.5)
    adaptive = AdaptiveNorm(Adapt(count_noise=3.0), 0.5, BATCH) if adapt else None
    if adaptive is None:
        aggregate = batch_gradient.make_aggregator(own, private, "add-remove", BATCH)
    else:
        aggregate = adaptive.attach(
            functools.partial(batch_gradient.at_norm, own, private, "add-remove", BATCH, "auto")
        )
    return Job(model, aggregate, lambda: {"accuracy": 0.5}, augmentation=copied.augmentation, adaptive=adaptive)


def engine(folder: Path, *, adapt: bool, seed: int | None = 0, resume: bool = False, physical: int = 5) -> Engine:
    folder.mkdir(parents=True, exist_ok=True)
    seeds = training_seeds(seed)
    torch.manual_seed(seeds.model)
    plan = dataclasses.replace(schedule(), average=AVERAGE)
    return Engine(
        job(adapt=adapt, physical=physical), plan, seeds, folder, torch.device("cpu"), identity="toy", resume=resume
    )


@pytest.mark.slow
@pytest.mark.parametrize("adapt", [False, True])
def test_an_interrupted_run_has_the_weights_average_and_norm_of_an_uninterrupted_one_bit_for_bit(tmp_path, adapt):
    whole = engine(tmp_path / "whole", adapt=adapt)
    whole.run()
    broken = engine(tmp_path / "broken", adapt=adapt)
    with pytest.raises(Interrupted):
        broken.run(stop=lambda: "test" if broken.steps_done == 11 else None)
    # another first seed: key of augmentation, noise and sampler come from the checkpoint
    torch.manual_seed(99)
    resumed = engine(tmp_path / "broken", adapt=adapt, seed=1, resume=True)
    rows = resumed.run()
    one, other = (checkpoint.load(tmp_path / name / MODEL) for name in ("whole", "broken"))
    for entry in ("weights", "average"):
        assert all(torch.equal(one[entry][name], other[entry][name]) for name in one[entry])
    assert rows == whole.rows
    entries = [ledger.entries(tmp_path / name / LEDGER) for name in ("whole", "broken")]
    assert [line.release for line in entries[0]] == [line.release for line in entries[1]]


@pytest.mark.slow
def test_the_copies_of_a_step_do_not_depend_on_the_physical_batch(tmp_path):
    weights = []
    for physical in (4, 12):
        own = engine(tmp_path / str(physical), adapt=False, physical=physical)
        own.run()
        weights.append(torch.cat([p.detach().flatten() for p in own.weights]))
    torch.testing.assert_close(weights[0], weights[1], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_the_ledger_of_a_training_with_every_technique_is_that_of_a_training_without(tmp_path):
    own = engine(tmp_path, adapt=True)
    own.run()
    process = ledger.process(ledger.entries(tmp_path / LEDGER))
    assert process.steps == (dataclasses.replace(schedule().step, n=30),)


@pytest.mark.slow
def test_the_average_is_the_recursion_of_its_definition(tmp_path):
    own = engine(tmp_path, adapt=False)
    average = torch.cat([p.detach().flatten() for p in own.weights])
    for indices in own.batches():
        own.step(indices)
        kept = min(0.8, (1 + own.steps_done) / (10 + own.steps_done))
        average = kept * average + (1 - kept) * torch.cat([p.detach().flatten() for p in own.weights])
    torch.testing.assert_close(torch.cat([v.flatten() for v in own.average.values]), average, rtol=1e-5, atol=1e-6)
    stored = checkpoint.load(tmp_path / MODEL)
    assert torch.equal(stored["weights"]["1.weight"], own.job.model[1].weight)
    assert torch.equal(stored["average"]["1.weight"], own.average.values[0])


@pytest.mark.slow
def test_figures_with_the_average_are_measured_with_its_weights_and_the_last_weights_are_put_back(tmp_path):
    own = engine(tmp_path, adapt=False)
    own.job.evaluate = lambda: {"first": float(own.job.model[1].weight[0, 0])}
    own.run()
    assert own.rows[-1]["first"] == float(own.weights[0][0, 0])
    assert own.rows[-1]["average_first"] == float(own.average.values[0][0, 0])
    assert own.rows[-1]["average_first"] != own.rows[-1]["first"]


@pytest.mark.slow
def test_a_checkpoint_without_its_average_or_norm_is_refused(tmp_path):
    broken = engine(tmp_path, adapt=True)
    with pytest.raises(Interrupted):
        broken.run(stop=lambda: "test")
    content = torch.load(tmp_path / CHECKPOINT, weights_only=True)
    for key in ("average", "augmentation", "clip_norm"):
        checkpoint.save(tmp_path / CHECKPOINT, {name: value for name, value in content.items() if name != key})
        with pytest.raises(UsageError, match=key):
            engine(tmp_path, adapt=True, resume=True)


# adaptive norms


@given(st.floats(0.05, 50), st.floats(1.01, 1e6), st.sampled_from(["add-remove", "replace-one"]))
def test_the_noise_of_gradients_and_count_together_has_the_accounted_multiplier(multiplier, ratio, adjacency):
    # Andrew et al. (2021), Theorem 1: z^-2 = z_gradient^-2 + (2 sigma_b)^-2, and sigma_b / 2 under replace-one
    unit = 1 if adjacency == "add-remove" else 2
    count_noise = ratio * unit * multiplier / 2
    combined = gradient_multiplier(multiplier, count_noise, adjacency) ** -2 + (2 * count_noise / unit) ** -2
    assert combined**-0.5 == pytest.approx(multiplier, rel=1e-9)


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
def test_neighbouring_joint_vectors_are_as_far_apart_as_their_sensitivity_says_and_no_further(adjacency):
    # the extreme records: a gradient of norm C (bit 1), and one that is longer (bit 0)
    norm, rng = 0.7, np.random.default_rng(0)
    adaptive = AdaptiveNorm(Adapt(count_noise=2.0), norm, 10)
    adaptive.begin(1.1, adjacency)

    def release(gradients: list[np.ndarray]) -> tuple[np.ndarray, float]:
        clipped = [g * min(1, norm / max(np.linalg.norm(g), 1e-300)) for g in gradients]
        total = torch.tensor(np.sum(clipped, axis=0)) if clipped else torch.zeros(3, dtype=torch.float64)
        over = sum(np.linalg.norm(g) > norm for g in gradients)
        unit = norm if adjacency == "add-remove" else 2 * norm
        plain = BatchGradient(
            Bounded([total], unit, adjacency), 10.0, torch.tensor([float(len(gradients)), 0.0, float(over)])
        )
        joint = adaptive.attach(lambda indices, at: plain)(np.arange(len(gradients))).total
        return torch.cat([part.flatten() for part in joint.parts]).numpy(), joint.sensitivity

    others = [rng.normal(size=3) for _ in range(4)]
    direction = np.array([1.0, 0.0, 0.0])
    records = [0.7 * direction, -0.7 * direction, 5 * direction, -5 * direction, *rng.normal(size=(200, 3))]
    distances = []
    for first in records:
        one, sensitivity = release([*others, first])
        for other in [[]] if adjacency == "add-remove" else [[record] for record in records[:4]]:
            distances.append(np.linalg.norm(one - release([*others, *other])[0]) / sensitivity)
    assert 1 - 1e-6 < max(distances) <= 1


@pytest.mark.slow
@pytest.mark.parametrize(("adjacency", "unit"), [("add-remove", 1), ("replace-one", 2)])
def test_the_released_count_and_gradient_have_the_noise_of_the_plan(adjacency, unit):
    # 1000 draws: the standard deviation of a sample deviation is s / sqrt(2000), of which 5 are allowed
    norm, multiplier, noise = 0.7, 1.3, Noise(training_seeds(0).noise, torch.device("cpu"))
    adaptive = AdaptiveNorm(Adapt(count_noise=3.0), norm, 10)
    adaptive.begin(multiplier, adjacency)
    zero = Bounded([torch.zeros(1)], unit * norm, adjacency)
    plain = BatchGradient(zero, 10.0, torch.tensor([8.0, 0.0, 2.0]))
    joint = adaptive.attach(lambda indices, at: plain)(np.arange(8)).total
    draws = np.array([[float(part) for part in add_noise(joint, multiplier, noise)] for _ in range(1000)])
    count = draws[:, 1] / (2 * adaptive.share * norm)
    assert count.mean() == pytest.approx(6 - 8 / 2, abs=5 * 3 / math.sqrt(1000))
    assert count.std() == pytest.approx(3.0, rel=5 / math.sqrt(2000))
    expected = unit * norm * gradient_multiplier(multiplier, 3.0, adjacency)
    assert draws[:, 0].std() == pytest.approx(expected, rel=5 / math.sqrt(2000))


def test_the_norm_moves_to_the_quantile_of_the_norms(tmp_path):
    # without noise worth mentioning: 1000 norms, all of them in every step
    norms = np.random.default_rng(1).lognormal(size=1000)
    adaptive = AdaptiveNorm(Adapt(quantile=0.3, rate=0.2, count_noise=1e-3), 50.0, 1000)
    adaptive.begin(1e-4, "add-remove")
    plain = Bounded([torch.zeros(1, dtype=torch.float64)], 1.0, "add-remove")
    for _ in range(300):

        def gradients(indices: object, norm: float) -> BatchGradient:
            return BatchGradient(plain, 1.0, torch.tensor([1000.0, 0.0, float((norms > norm).sum())]))

        joint = adaptive.attach(gradients)(np.arange(1000)).total
        assert adaptive.detach(joint.parts) == joint.parts[:-1]
    assert adaptive.norm == pytest.approx(np.quantile(norms, 0.3), rel=0.02)


def test_the_norm_stays_between_its_ends_whatever_the_noise_says():
    adaptive = AdaptiveNorm(Adapt(rate=100.0, count_noise=5.0, smallest=0.1, largest=3.0), 1.0, 10)
    adaptive.begin(1.0, "add-remove")
    adaptive.detach([torch.tensor([1e30])])
    assert adaptive.norm == 0.1
    adaptive.detach([torch.tensor([-1e30])])
    assert adaptive.norm == 3.0


@pytest.mark.parametrize(
    ("count_noise", "adjacency"), [(0.5, "add-remove"), (1.0, "replace-one"), (math.nan, "add-remove")]
)
def test_a_count_with_less_noise_than_the_release_allows_is_refused(count_noise, adjacency):
    with pytest.raises(UsageError, match="count_noise must be above"):
        count_share(1.0, count_noise, adjacency)


# schedules and optimizers


def test_the_rate_rises_over_the_warm_up_and_then_falls_as_the_plan_says():
    plan = Optimizer(lr=1.0, warmup=4, decay="cosine")
    rates = [rate_factor(plan, step, 10) for step in range(10)]
    assert rates[:5] == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert rates[5:] == pytest.approx([(1 + math.cos(math.pi * share / 6)) / 2 for share in range(1, 6)])
    linear = Optimizer(lr=1.0, warmup=4, decay="linear")
    assert [rate_factor(linear, step, 10) for step in (3, 4, 7, 9)] == pytest.approx([1.0, 1.0, 0.5, 1 / 6])
    assert [rate_factor(Optimizer(lr=1.0, warmup=50), step, 4) for step in range(4)] == [0.25, 0.5, 0.75, 1.0]
    assert rate_factor(Optimizer(lr=1.0), 7, 10) == 1.0


def test_adamw_takes_the_weight_decay_from_the_weights_and_not_from_the_gradient():
    weight = nn.Parameter(torch.tensor([2.0]))
    weight.grad = torch.zeros(1)
    UpdateRule([weight], Optimizer(name="adamw", lr=0.1, weight_decay=0.5)).step()
    assert float(weight) == pytest.approx(2.0 * (1 - 0.1 * 0.5))


def test_a_schedule_has_no_average_by_default():
    assert {field.name: field.default for field in dataclasses.fields(Schedule)}["average"] is None
