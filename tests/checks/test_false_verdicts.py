"""Claims that looked right and are not, and right ones that looked wrong: what one premise takes away from another."""

from __future__ import annotations

import pytest

import wpriv
from tests.checks.test_judge import of
from wpriv.errors import UsageError

TWO_RATES = [
    {"mech": "gauss", "sigma": 1, "sampling": "poisson", "rate": 0.1, "n": 25},
    {"mech": "gauss", "sigma": 1, "sampling": "poisson", "rate": 0.01, "n": 25},
]
TWO_NOISES = [{**TWO_RATES[1], "n": 250}, {**TWO_RATES[1], "sigma": 0.9, "n": 250}]
WHOLE = {"sampling__kind": "none", "sampling__rate": None, "sampling__rate_accounted": None, "steps": 1}


@pytest.mark.parametrize(
    ("changes", "missing"),
    [
        # noise on a mean, or relative to a weight, of an unknown weight
        ({"noise__relative_to": "mean"}, "sampling.max_weight"),
        ({"noise__relative_to": "weight"}, "sampling.max_weight"),
        ({"divisor": "weights", "sampling__max_weight": 0.5}, "noise.relative_to"),
        # a standard deviation without the norm that it belongs to, which hid behind a noise multiplier
        ({"noise__std": 0.01}, "clip.norm"),
        # the noise is for one record of a person
        ({"unit": "person", "max_per_unit": None, "clip__per": "record"}, "max_per_unit"),
        ({"released": "metrics", "composition__other": None}, "composition.other"),
    ],
    ids=str,
)
def test_no_claim_is_proved_while_a_premise_that_another_needs_is_missing(changes, missing):
    found = of(**changes)
    assert found.verdict == "incomplete"
    assert missing in [each.field for each in found.missing]


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        # the noise of the count and a standard deviation together
        ({"noise__std": 1, "clip__norm": 1, "clip__adaptive": "noisy", "clip__count_std": 0.51}, "refuted"),
        # each of six layers is clipped to the whole norm
        ({"clip__scope": "per layer", "clip__norm": 1, "clip__tensors": 6}, "refuted"),
        ({"clip__scope": "per layer", "clip__norm": [1, 1]}, "proved"),
        # 400 of 5000 records are more than one in a hundred
        ({"sampling__rate": None, "sampling__batch": 400}, "refuted"),
        ({"sampling__rate": None, "sampling__batch": 50}, "proved"),
        # the rate of the last loader says nothing of steps at a larger one
        ({"accounted": TWO_RATES, "steps": None, "claim__eps": 0.9}, "refuted"),
        # of two kinds of steps, nobody knows which half ran
        ({"accounted": TWO_NOISES, "steps": 250, "noise__multiplier": None, "claim__eps": 1.2}, "incomplete"),
        ({"accounted": TWO_NOISES, "steps": 250, "noise__multiplier": None, "claim__eps": 1.7}, "proved"),
    ],
    ids=str,
)
def test_every_premise_counts_beside_the_others(changes, verdict):
    assert of(**changes).verdict == verdict


def test_a_mean_over_all_records_shows_their_secret_number():
    """Oracle: noise of two sizes, divided by N or N - 1, as for a divisor of int(N / batches)."""
    secret = {**WHOLE, "adjacency": "add-remove", "records_public": False, "divisor": "batch", "claim__eps": 4.9}
    assert of(**secret).verdict == "incomplete"
    assert of(**{**secret, "records": 50, "model__parameters": 10**6}).verdict == "refuted"
    assert of(**{**secret, "divisor": "constant"}).verdict == "proved"


def test_a_replaced_record_changes_other_releases_twice_as_well():
    """Oracle: mu of Gaussian releases, 2 / 20 and 2 / 2, adds up in squares."""
    other = [{"mech": "gauss", "noise_multiplier": 2}]
    replaced = {**WHOLE, "adjacency": "replace-one", "noise__multiplier": 20, "composition__other": other}
    found = of(**replaced, claim__eps=4.0)
    exact = wpriv.budget("gauss", sigma=1, sensitivity=(0.1**2 + 1) ** 0.5, delta=1e-5).epsilon.safe
    assert found.verdict == "refuted"
    assert found.epsilon[1] == pytest.approx(exact, rel=1e-6)


def test_a_replaced_record_moves_a_clipped_microbatch_by_no_more_than_two_norms():
    replaced = {**WHOLE, "adjacency": "replace-one", "noise__multiplier": 2, "claim__eps": 5}
    assert of(**replaced, clip__per="microbatch").epsilon == of(**replaced, clip__per="record").epsilon
    # where it is sampled, the microbatch without it may be -C, with it C, and with the other -C: a shift of 2 C
    sampled = {"steps": 10, "noise__multiplier": 2, "clip__per": "microbatch"}
    shift = wpriv.budget("gauss", sigma=1, n=10, sampling="poisson", rate=0.01, delta=1e-5).epsilon.lower
    assert of(**sampled, adjacency="replace-one").epsilon[1] >= shift


@pytest.mark.parametrize("other", [{"claim__rho": 1e-9}, {"claim__mu": 1e-3}], ids=str)
def test_a_second_claim_is_not_passed_over(other):
    with pytest.raises(UsageError, match="of one notion"):
        of(**other)


def test_one_noise_multiplier_does_not_stand_beside_steps_of_several():
    with pytest.raises(UsageError, match="several noise multipliers"):
        of(accounted=TWO_NOISES, noise__multiplier=0.1)
