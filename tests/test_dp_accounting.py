"""wpriv as an accountant of dp_accounting 0.6.0. Oracles: the calculator, and the figures of its PLDAccountant."""

from __future__ import annotations

import math

import pytest

dp_accounting = pytest.importorskip("dp_accounting")
from dp_accounting import (  # noqa: E402
    ComposedDpEvent,
    GaussianDpEvent,
    LaplaceDpEvent,
    NeighboringRelation,
    NonPrivateDpEvent,
    NoOpDpEvent,
    PoissonSampledDpEvent,
    SampledWithoutReplacementDpEvent,
    SelfComposedDpEvent,
    UnsupportedDpEvent,
    ZCDpEvent,
    calibrate_dp_mechanism,
)

import wpriv  # noqa: E402
from wpriv.dp_accounting import WprivAccountant  # noqa: E402
from wpriv.errors import UsageError  # noqa: E402

ADD, REPLACE, SPECIAL = (
    NeighboringRelation.ADD_OR_REMOVE_ONE,
    NeighboringRelation.REPLACE_ONE,
    NeighboringRelation.REPLACE_SPECIAL,
)


def sampled(noise, rate=0.01):
    return PoissonSampledDpEvent(rate, GaussianDpEvent(noise))


MANY = ComposedDpEvent([SelfComposedDpEvent(sampled(0.8 + 0.02 * k), 100) for k in range(50)] + [LaplaceDpEvent(10.0)])


def test_calibration_finds_less_noise_than_their_accountants():
    sigma = calibrate_dp_mechanism(WprivAccountant, lambda noise: SelfComposedDpEvent(sampled(noise), 10000), 1, 1e-5)
    assert sigma == pytest.approx(3.812946, abs=2e-6)
    assert sigma < 3.813240 < 4.125804  # by PLDAccountant and RdpAccountant
    kept = wpriv.budget("gauss", sigma=sigma, sampling="poisson", rate=0.01, n=10000, delta=1e-5)
    assert 1 - 1e-4 <= float(kept.epsilon) <= 1


def test_many_kinds_of_step_cost_no_more_than_by_their_privacy_loss_distribution():
    eps = WprivAccountant().compose(MANY).get_epsilon(1e-5)
    assert eps == pytest.approx(3.49004, abs=5e-6)
    assert eps <= 3.48993 * (1 + 1e-4)  # PLDAccountant, 11 s
    delta = WprivAccountant().compose(MANY).get_delta(eps)
    assert 1e-5 * (1 - 1e-3) <= delta <= 1e-5


@pytest.mark.parametrize(
    ("relation", "theirs"), [(ADD, 4.37717810002493), (REPLACE, 9.99725615024243), (SPECIAL, 4.37717810002493)]
)
def test_neighbours_are_those_of_their_privacy_loss_distribution(relation, theirs):
    eps = WprivAccountant(relation).compose(GaussianDpEvent(1.0)).get_epsilon(1e-5)
    assert eps == pytest.approx(theirs, rel=1e-6)


@pytest.mark.parametrize("event", [GaussianDpEvent(0), NonPrivateDpEvent(), sampled(0), LaplaceDpEvent(0)])
def test_a_release_without_noise_has_no_finite_eps_and_delta_1(event):
    made = WprivAccountant().compose(GaussianDpEvent(1)).compose(event)
    assert (made.get_epsilon(1e-5), made.get_delta(1.0)) == (math.inf, 1.0)


def test_nothing_costs_nothing():
    made = WprivAccountant().compose(NoOpDpEvent()).compose(sampled(0, rate=0))
    assert (made.get_epsilon(1e-5), made.get_delta(1.0)) == (0.0, 0.0)


def test_events_compose_to_the_same_in_any_form():
    event = sampled(1.0)
    one = WprivAccountant().compose(SelfComposedDpEvent(event, 30))
    other = WprivAccountant().compose(event, 10).compose(ComposedDpEvent([event] * 20))
    assert one.get_epsilon(1e-5) == other.get_epsilon(1e-5)
    assert one.get_epsilon(1e-5) == pytest.approx(
        float(wpriv.budget("gauss", sigma=1, sampling="poisson", rate=0.01, n=30, delta=1e-5)), rel=1e-4
    )


@pytest.mark.parametrize(
    ("relation", "event", "supported"),
    [
        (ADD, UnsupportedDpEvent(), False),
        (ADD, ZCDpEvent(1.0), False),
        (ADD, ComposedDpEvent([GaussianDpEvent(1), NonPrivateDpEvent(), UnsupportedDpEvent()]), False),
        (ADD, SampledWithoutReplacementDpEvent(100, 10, GaussianDpEvent(1)), False),
        (REPLACE, SampledWithoutReplacementDpEvent(100, 10, GaussianDpEvent(1)), True),
        (REPLACE, PoissonSampledDpEvent(0.1, LaplaceDpEvent(1)), False),
        (SPECIAL, PoissonSampledDpEvent(0.1, LaplaceDpEvent(1)), True),
        (SPECIAL, MANY, True),
    ],
)
def test_only_events_with_a_proven_pair_are_supported(relation, event, supported):
    made = WprivAccountant(relation)
    assert made.supports(event) is supported
    assert isinstance(made.ledger, NoOpDpEvent)
    if not supported:
        with pytest.raises(dp_accounting.UnsupportedEventError, match=r"proven pair|Renyi"):
            made.compose(event)


def test_pure_privacy_is_answered_at_delta_0():
    assert calibrate_dp_mechanism(WprivAccountant, LaplaceDpEvent, 0.5, 0.0) == pytest.approx(2.0, abs=1e-6)
    assert WprivAccountant().compose(GaussianDpEvent(1)).get_epsilon(0) == math.inf


def test_a_faulty_number_is_refused():
    for wrong in (lambda: WprivAccountant(tol=2), lambda: WprivAccountant().compose(GaussianDpEvent(-1))):
        with pytest.raises(UsageError, match="found"):
            wrong()
    with pytest.raises(UsageError, match="delta"):
        WprivAccountant().compose(GaussianDpEvent(1)).get_epsilon(1.5)
