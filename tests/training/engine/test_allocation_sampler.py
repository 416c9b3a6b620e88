"""Random allocation as it is drawn: each record in one step of every pass, uniform and independent, resumable anywhere.

Oracles: the binomial and uniform distributions (chi-square tests at 1e-4 and five standard deviations, seeds fixed).
"""

from __future__ import annotations

import json
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from wpriv.config.train_schema import Optimizer
from wpriv.core.kinds import Sampling
from wpriv.errors import UsageError
from wpriv.training.engine.job import Schedule
from wpriv.training.engine.sampler import sampler


def make(records, steps, seed=0):
    return sampler(Sampling("allocation", 1 / steps), records, records / steps, np.random.default_rng(seed))


def one_pass(drawn, records, steps):
    """The step of each record in the next pass, after checking that each record has exactly one."""
    batches = [drawn.draw() for _ in range(steps)]
    step_of = np.repeat(np.arange(steps), [len(batch) for batch in batches])
    places = np.concatenate(batches)
    assert np.array_equal(np.sort(places), np.arange(records))
    assert all(np.all(np.diff(batch) > 0) for batch in batches)
    return step_of[np.argsort(places)]


@given(st.integers(1, 300), st.integers(1, 300), st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_each_record_takes_part_in_exactly_one_step_of_every_pass(records, steps, seed):
    drawn = make(records, min(steps, records), seed)
    for _ in range(3):
        one_pass(drawn, records, min(steps, records))


@pytest.mark.parametrize(("records", "steps"), [(30, 3), (7, 7), (100, 2)])
def test_every_step_is_equally_likely_for_every_record(records, steps):
    drawn, passes = make(records, steps), 2000
    step_of = np.array([one_pass(drawn, records, steps) for _ in range(passes)])
    counts = np.array([np.bincount(column, minlength=steps) for column in step_of.T])
    spread = ((counts - passes / steps) ** 2 / (passes / steps)).sum()
    assert stats.chi2.sf(spread, records * (steps - 1)) > 1e-4


@pytest.mark.parametrize(("steps", "kept"), [(256, "u1"), (257, "u2"), (65_536, "u2"), (65_537, "u4")])
def test_steps_are_equally_likely_on_both_sides_of_one_and_two_bytes(steps, kept):
    drawn = make(1_000_000, steps)
    drawn.draw()
    assert drawn._step_of.dtype == kept
    counts = np.bincount(drawn._step_of, minlength=steps)
    assert len(counts) == steps
    assert stats.chisquare(counts).pvalue > 1e-4


def test_the_size_of_a_batch_is_binomial_and_may_be_zero():
    records, steps, passes = 6, 3, 4000
    drawn = make(records, steps)
    sizes = np.array([len(drawn.draw()) for _ in range(steps * passes)])
    first = np.bincount(sizes[::steps], minlength=records + 1)
    expected = passes * stats.binom.pmf(np.arange(records + 1), records, 1 / steps)
    # sizes 5 and 6 are rare, and counted together
    together = [np.append(each[:5], each[5:].sum()) for each in (first, expected)]
    assert stats.chisquare(*together).pvalue > 1e-4
    assert first[0] > 0


def test_two_records_draw_their_steps_independently():
    # a shuffled list cut into batches of 2 would have them together once in 5, and never with a third
    records, steps, passes = 6, 3, 6000
    drawn = make(records, steps)
    step_of = np.array([one_pass(drawn, records, steps) for _ in range(passes)])
    counts = np.unique(step_of[:, 0] * steps + step_of[:, 1], return_counts=True)[1]
    assert len(counts) == steps**2
    assert stats.chisquare(counts).pvalue > 1e-4
    three = np.mean((step_of[:, 0] == step_of[:, 1]) & (step_of[:, 1] == step_of[:, 2]))
    assert three == pytest.approx(1 / 9, abs=5 * np.sqrt(1 / 9 / passes))


def test_passes_are_drawn_independently_of_each_other():
    records, steps, passes = 5, 4, 8000
    drawn = make(records, steps)
    step_of = np.array([one_pass(drawn, records, steps) for _ in range(passes)])
    counts = np.unique(step_of[:-1, 0] * steps + step_of[1:, 0], return_counts=True)[1]
    assert len(counts) == steps**2
    assert stats.chisquare(counts).pvalue > 1e-4


@given(st.integers(0, 25), st.integers(1, 9))
@settings(max_examples=30, deadline=None)
def test_a_sampler_restored_at_any_step_continues_with_the_same_draws(drawn_before, steps):
    whole, other = make(40, steps, seed=1), make(40, steps, seed=2)
    for _ in range(drawn_before):
        whole.draw()
    # other has a pass of its own under way
    other.draw()
    other.restore(json.loads(json.dumps(whole.state())))
    assert other.state() == whole.state()
    assert all(np.array_equal(whole.draw(), other.draw()) for _ in range(3 * steps))


def test_a_restored_state_is_that_of_the_generator_and_a_count_and_no_list_of_records():
    drawn = make(100_000, 100)
    for _ in range(7):
        drawn.draw()
    assert len(drawn.state()) < 500


def test_a_pass_keeps_a_few_bytes_a_record_and_no_matrix():
    records = 1_000_000
    drawn = make(records, 1000)
    tracemalloc.start()
    for _ in range(5):
        drawn.draw()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # two bytes for the step of each record and one to find those of a step; whole numbers would take eight
    assert peak < 3.5 * records


def test_allocation_is_drawn_from_the_generator_that_draws_poisson_batches():
    rng = np.random.default_rng(5)
    expected = rng.integers(4, size=20, dtype=np.uint8)
    assert list(make(20, 4, seed=5).draw()) == list(np.flatnonzero(expected == 0))


@given(st.integers(1, 10**7), st.integers(1, 2000), st.integers(1, 99))
@settings(max_examples=200, deadline=None)
def test_an_epoch_is_a_pass_whatever_the_number_of_records(records, steps, passes):
    steps = min(steps, records)
    plan = Schedule(
        Sampling("allocation", 1 / steps), records, records / steps, steps * passes, None, 0.0, "", Optimizer(lr=1.0)
    )
    ends = [steps * each for each in range(1, passes + 1)]
    assert [plan.epoch_of(end) for end in ends] == list(range(1, passes + 1))
    beside = {end + by for end in ends for by in (-1, 1)} - {0, *ends}
    assert all(plan.epoch_of(step) is None for step in beside if step < steps * passes)


@pytest.mark.parametrize(("batch", "groups"), [(11.0, ()), (0.5, ()), (5.0, ((np.array([0, 1, 2]), 1),))])
def test_batches_and_groups_that_are_not_as_accounted_are_refused(batch, groups):
    with pytest.raises(UsageError, match=r"rate|from 1 record|groups"):
        sampler(Sampling("allocation", 0.1), 50, batch, np.random.default_rng(0), groups)
