"""The noise of a training with a strategy C is C^-1 Z, Z the independent noise that its keys name.

Oracle: Z drawn by itself from the same key, and a literal loop in float64 that solves C w = Z row by row.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from tests.training.engine import toys
from wpriv.core.kinds import Allocation
from wpriv.errors import Interrupted, Unsupported, UsageError
from wpriv.randomness import training_seeds
from wpriv.strategies import strategy
from wpriv.training.engine.sampler import AllocationSampler, sampler
from wpriv.training.noise.noise_stream import COMPILE, CorrelatedNoise, Noise
from wpriv.training.noise.recursion import recursion
from wpriv.training.noise.release import Bounded, add_noise

KEY = bytes(range(32))
NAMES = ("identity", "lambda:0.9", "banded:4", "blt:3", "bisr:4", "bandinv:3", "bsr:5")
STEPS, BINS = 12, 4


def solved(matrix, z):
    """C^-1 Z by forward substitution, an entry after another."""
    noise = np.zeros_like(z)
    for row in range(len(z)):
        known = sum(matrix[row, column] * noise[column] for column in range(row))
        noise[row] = (z[row] - known) / matrix[row, row]
    return noise


def noise_of(name, steps=STEPS, key=KEY):
    return CorrelatedNoise(recursion(strategy(name, steps, BINS)), Noise(key))


def independent(count, steps=STEPS, scale=1.0):
    own = Noise(KEY)
    return np.stack([own.normal(count, scale, torch.float64).numpy() for _ in range(steps)])


@pytest.mark.parametrize("name", NAMES)
def test_noise_of_all_steps_is_the_inverse_of_the_strategy_times_independent_noise(name):
    own, matrix = noise_of(name), strategy(name, STEPS, BINS).matrix()
    drawn = np.stack([own.normal(7, 2.5, torch.float64).numpy() for _ in range(STEPS)])
    wanted = solved(matrix, independent(7, scale=2.5))
    assert np.abs(drawn - wanted).max() < 1e-12 * np.abs(wanted).max()


@pytest.mark.parametrize("name", NAMES)
def test_releases_of_many_numbers_have_the_same_noise(name):
    """The compiled functions make it in one pass where nothing is kept; the grid is 2^-20 of a standard deviation."""
    count, steps, sigma = 2 * COMPILE + 3, 4, 1.5
    own, matrix = noise_of(name, steps), strategy(name, steps, BINS).matrix()
    part = torch.linspace(-1, 1, count)
    released = [add_noise(Bounded([part], 2.0, "add-remove"), sigma, own)[0] for _ in range(steps)]
    wanted = solved(matrix, independent(count, steps, 3.0)) + part.double().numpy()
    # half a grid, and the rounding of the release to float32
    assert np.abs(torch.stack(released).numpy() - wanted).max() < 2.0**-21 * 3 + 2.0**-22 * np.abs(wanted).max()


def test_the_vectors_that_are_kept_are_few():
    kept = {name: recursion(strategy(name, 200, BINS)).vectors for name in NAMES}
    assert kept == {"identity": 0, "lambda:0.9": 0, "banded:4": 3, "blt:3": 3, "bisr:4": 0, "bandinv:3": 0, "bsr:5": 4}
    assert len(recursion(strategy("lambda:0.9", 200)).draws) == 2
    with pytest.raises(Unsupported, match="needs the noise of 99 earlier steps"):
        recursion(strategy("bsr:100", 200))


def test_some_coordinates_have_the_noise_of_the_whole_vector():
    whole, part = noise_of("lambda:0.9"), noise_of("lambda:0.9")
    for _ in range(3):
        numbers = whole.normal(40, 1.5, torch.float64)
        assert torch.equal(part.normal_at([(3, 5), (30, 10)], 40, 1.5), torch.cat([numbers[3:8], numbers[30:]]))


@pytest.mark.parametrize("name", ["lambda:0.9", "banded:3", "blt:2"])
def test_a_saved_state_goes_on_bit_for_bit(name):
    own = noise_of(name)
    for _ in range(3):
        own.normal(9)
    stored, key = own.state(), own.source.state()
    stored = {**stored, "vectors": [vector.clone() for vector in stored["vectors"]]}
    wanted = [own.normal(9) for _ in range(5)]
    again = noise_of(name, key=bytes(32))
    again.restore(stored)
    again.source.restore(key)
    assert all(torch.equal(again.normal(9), numbers) for numbers in wanted)


def test_a_state_of_another_strategy_is_refused():
    with pytest.raises(UsageError, match="are not those of the checkpoint"):
        noise_of("lambda:0.9").restore(noise_of("lambda:0.8").state())


@pytest.mark.parametrize("name", ["lambda:0.9", "banded:3", "blt:2"])
def test_covariance_between_steps_is_that_of_the_inverse(name):
    """Oracle: B B' with B = C^-1; entries of the sample of 200,000 within 5 of their standard errors."""
    own, inverse, count, steps = noise_of(name, 6), np.linalg.inv(strategy(name, 6, BINS).matrix()), 200_000, 6
    rows = np.stack([own.normal(count, 1.0, torch.float64).numpy() for _ in range(steps)])
    sample, wanted = rows @ rows.T / count, inverse @ inverse.T
    variances = np.diag(wanted)
    errors = np.sqrt((np.outer(variances, variances) + wanted**2) / count)
    assert (np.abs(sample - wanted) < 5 * errors).all()


# a training


def test_every_record_takes_part_in_each_epoch_at_a_distance_of_all_bins():
    drawn = sampler(Allocation(1 / 5), 40, 8, np.random.default_rng(0), once=True)
    assert isinstance(drawn, AllocationSampler)
    steps = [[] for _ in range(40)]
    for step in range(20):
        for place in drawn.draw():
            steps[place].append(step)
    assert all(len(each) == 4 and set(np.diff(each)) == {5} for each in steps)
    assert len({each[0] for each in steps}) == 5


def test_bins_go_on_after_a_restart_and_are_uniform():
    drawn = sampler(Allocation(1 / 4), 20_000, 5000, np.random.default_rng(1), once=True)
    first = [drawn.draw() for _ in range(4)]
    # 5 standard deviations of a binomial number
    assert all(abs(len(places) - 5000) < 5 * math.sqrt(5000 * 0.75) for places in first)
    state = drawn.state()
    wanted = [drawn.draw() for _ in range(6)]
    again = sampler(Allocation(1 / 4), 20_000, 5000, np.random.default_rng(2), once=True)
    again.restore(state)
    assert all(np.array_equal(again.draw(), places) for places in wanted)
    assert all(np.array_equal(one, other) for one, other in zip(first, wanted, strict=False))


@pytest.mark.parametrize("name", ["lambda:0.9", "banded:2", "blt:1", "bisr:3"])
def test_a_training_adds_the_inverse_times_independent_noise_to_its_clipped_sums(tmp_path, name):
    plan, chosen = toys.schedule(6, strategy=name), strategy(name, 6, 3)
    own = toys.engine(tmp_path, plan)
    sums, noisy, aggregate = [], [], own.job.aggregate

    def recorded(indices):
        batch = aggregate(indices)
        sums.append(torch.cat([part.double().reshape(-1) for part in batch.total.parts]).numpy())
        return batch

    own.job.aggregate = recorded
    own.before_update = lambda parts: noisy.append(torch.cat([p.double().reshape(-1) for p in parts]).numpy())
    own.run()
    added = np.stack(noisy) * plan.batch - np.stack(sums)
    source, count = Noise(training_seeds(0).noise), added.shape[1]
    z = np.stack([source.normal(count, 0.7 * 0.5, torch.float64).numpy() for _ in range(plan.steps)])
    # oracle: C times the added noise is Z, up to the grid and float32
    assert np.abs(chosen.matrix() @ added - z).max() < 1e-6
    assert np.abs(added - solved(chosen.matrix(), z)).max() < 2e-6


@pytest.mark.parametrize("name", ["lambda:0.9", "banded:2", "blt:1", "bisr:3"])
@pytest.mark.parametrize("killed", [1, 3, 4])
def test_noise_cancels_across_a_kill_and_the_new_key_behind_it(tmp_path, name, killed):
    plan, chosen = toys.schedule(6, strategy=name), strategy(name, 6, 3)  # checkpoints after 0 and 3 steps
    added, keys, drawn = {}, {}, {}

    def run(own, until):
        aggregate = own.job.aggregate

        def recorded(indices):
            batch, step = aggregate(indices), own.steps_done
            keys[step], sums = own.noise.state(), torch.cat([part.double().reshape(-1) for part in batch.total.parts])
            assert drawn.setdefault(step, indices.tolist()) == indices.tolist()
            own.before_update = lambda parts: added.__setitem__(
                step, torch.cat([p.double().reshape(-1) for p in parts]).numpy() * plan.batch - sums.numpy()
            )
            return batch

        def die(step):
            if step == until:
                raise KeyboardInterrupt

        own.job.aggregate = recorded
        own.run(on_step=die)

    with pytest.raises(KeyboardInterrupt):
        run(toys.engine(tmp_path, plan, seed=None), killed)
    first = dict(keys)
    run(toys.engine(tmp_path, plan, seed=None, resume=True), 0)
    assert all(keys[step] == key for step, key in first.items())
    # each record keeps its bin through the kill
    assert [drawn[step] for step in range(3)] == [drawn[step + 3] for step in range(3)]
    count = len(added[0])
    z = np.stack([Noise(bytes.fromhex(keys[t])).normal(count, 0.7 * 0.5, torch.float64).numpy() for t in range(6)])
    assert np.abs(chosen.matrix() @ np.stack([added[t] for t in range(6)]) - z).max() < 2e-6


def test_identity_for_one_epoch_is_dp_sgd_by_random_allocation_bit_for_bit(tmp_path):
    plan = toys.schedule(3, strategy="identity")
    one, other = toys.engine(tmp_path / "one", plan), toys.engine(tmp_path / "two", toys.schedule(3, kind="allocation"))
    one.run()
    other.run()
    assert torch.equal(toys.weights(one), toys.weights(other))


@pytest.mark.parametrize("name", ["lambda:0.9", "banded:3", "blt:2"])
def test_a_stopped_training_goes_on_bit_for_bit(tmp_path, name):
    plan = toys.schedule(9, strategy=name)
    whole = toys.engine(tmp_path / "whole", plan)
    whole.run()
    for stop in (1, 2, 5):
        steps = []
        part = toys.engine(tmp_path / f"part{stop}", plan)
        with pytest.raises(Interrupted):
            part.run(stop=lambda steps=steps, at=stop: steps.append(0) or ("test" if len(steps) == at else None))
        rest = toys.engine(tmp_path / f"part{stop}", plan, resume=True)
        rest.run()
        assert torch.equal(toys.weights(rest), toys.weights(whole))
