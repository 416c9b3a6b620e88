"""Samplers draw what they say: rates and sets against their exact laws, states that go on with the same draws."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from wpriv.core.kinds import Sampling
from wpriv.errors import UsageError
from wpriv.training.engine.sampler import chunks, sampler


def make(kind, records, batch, seed=0):
    return sampler(Sampling(kind, batch / records), records, batch, np.random.default_rng(seed))


@given(st.integers(1, 200), st.data())
@settings(max_examples=50, deadline=None)
def test_every_draw_is_an_ascending_list_of_different_places(records, data):
    batch = data.draw(st.integers(1, records))
    for kind in ("poisson", "fixed"):
        drawn = make(kind, records, batch, data.draw(st.integers(0, 10))).draw()
        assert np.all(np.diff(drawn) > 0)
        assert drawn.size == 0 or (drawn[0] >= 0 and drawn[-1] < records)
        assert kind == "poisson" or len(drawn) == batch


@pytest.mark.parametrize(("records", "batch"), [(10, 3), (1000, 7), (50, 49)])
def test_poisson_gives_each_record_its_own_coin(records, batch):
    # oracle: sizes are binomial and places uniform (chi-square tests at 1e-4, seed fixed)
    own, draws = make("poisson", records, batch), 4000
    found = [own.draw() for _ in range(draws)]
    sizes = np.array([len(f) for f in found])
    rate = batch / records
    assert abs(sizes.mean() - batch) < 5 * np.sqrt(records * rate * (1 - rate) / draws)
    assert abs(sizes.var() / (records * rate * (1 - rate)) - 1) < 0.2
    counts = np.bincount(np.concatenate(found), minlength=records)
    spread = ((counts - draws * rate) ** 2 / (draws * rate * (1 - rate))).sum()
    assert stats.chi2.sf(spread, records) > 1e-4


@pytest.mark.slow
def test_two_records_join_independently_under_poisson_and_never_more_than_the_batch_when_fixed():
    for kind, both in (("poisson", 0.09), ("fixed", 3 * 2 / (10 * 9))):
        own = make(kind, 10, 3)
        together = np.mean([{0, 1} <= set(own.draw()) for _ in range(20000)])
        assert together == pytest.approx(both, abs=5 * np.sqrt(both / 20000))


def test_fixed_size_sets_are_all_equally_likely():
    own, draws = make("fixed", 5, 2), 10000
    counts = np.unique([tuple(own.draw()) for _ in range(draws)], axis=0, return_counts=True)[1]
    assert len(counts) == 10
    assert stats.chisquare(counts).pvalue > 1e-4


def test_an_empty_batch_comes_up_as_often_as_it_should():
    own = make("poisson", 3, 1)
    empty = np.mean([len(own.draw()) == 0 for _ in range(20000)])
    assert empty == pytest.approx((2 / 3) ** 3, abs=5 * np.sqrt(0.3 / 20000))


def test_rates_of_one_and_no_sampling_take_everybody():
    assert list(make("poisson", 4, 4).draw()) == list(make("none", 4, 4).draw()) == [0, 1, 2, 3]


def test_a_restored_sampler_goes_on_with_the_same_draws():
    one, other = make("poisson", 100, 10, seed=1), make("poisson", 100, 10, seed=2)
    one.draw()
    other.restore(one.state())
    assert all(np.array_equal(one.draw(), other.draw()) for _ in range(20))


def test_a_batch_that_is_not_the_share_accounted_is_refused():
    with pytest.raises(UsageError, match=r"0\.1.*0\.2"):
        sampler(Sampling("poisson", 0.2), 100, 10, np.random.default_rng(0))
    with pytest.raises(UsageError, match="5"):
        sampler(Sampling("fixed", 1.0), 5, 6, np.random.default_rng(0))


def test_chunks_cover_a_batch_in_order():
    for size, most, parts in ((0, 4, 0), (1, 4, 1), (4, 4, 1), (9, 4, 3)):
        own = chunks(np.arange(size), most)
        assert len(own) == parts
        assert size == 0 or (np.array_equal(np.concatenate(own), np.arange(size)) and max(map(len, own)) <= most)


@pytest.mark.parametrize(
    ("sampling", "groups", "words"),
    [
        (Sampling("fixed", 0.5), [([0, 1], 1), ([1, 2], 1)], "disjoint"),
        (Sampling("fixed", 0.5), [([0, 1], 3)], "3 of 2"),
        (Sampling("fixed", 0.5), [([0, 1], 1), ([2, 3, 4], 2)], r"rate"),
        (Sampling("poisson", 0.5), [([0, 1], 1)], "poisson"),
    ],
)
def test_groups_that_are_not_what_is_accounted_are_refused(sampling, groups, words):
    with pytest.raises(UsageError, match=words):
        sampler(sampling, 5, 2, np.random.default_rng(0), [(np.array(places), size) for places, size in groups])


def test_every_set_of_a_group_is_as_likely_as_another():
    # oracle: chi-square over the 6 pairs of 4 records, at 1e-4
    own = sampler(
        Sampling("fixed", 0.5), 6, 3, np.random.default_rng(0), [(np.array([1, 2, 4, 5]), 2), (np.array([0, 3]), 1)]
    )
    drawn = [own.draw() for _ in range(3000)]
    counts = np.unique([d[0] * 10 + d[1] for d in drawn], return_counts=True)[1]
    assert len(counts) == 6
    assert stats.chisquare(counts).pvalue > 1e-4
