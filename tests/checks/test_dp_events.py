"""DpEvents as steps. The oracle is dp_accounting 0.6.0: the figures of its PLDAccountant, whose grid is 1e-4."""

import math

import pytest

from wpriv.accounting import evaluate
from wpriv.checks.dp_events import EVENTS, WITHOUT_PAIR, steps_of
from wpriv.errors import Unsupported, UsageError

ADD, REPLACE, ZERO = "add-remove", "replace-one", "zero-out"


def gauss(noise):
    return {"type": "GaussianDpEvent", "noise_multiplier": noise}


def laplace(noise):
    return {"type": "LaplaceDpEvent", "noise_multiplier": noise}


def poisson(rate, event):
    return {"type": "PoissonSampledDpEvent", "sampling_probability": rate, "event": event}


def times(event, count):
    return {"type": "SelfComposedDpEvent", "event": event, "count": count}


def composed(*events):
    return {"type": "ComposedDpEvent", "events": list(events)}


DISCRETE = {"type": "DiscreteLaplaceDpEvent", "noise_parameter": 0.3, "sensitivity": 3}
RESPONSE = {"type": "RandomizedResponseDpEvent", "noise_parameter": 0.4, "num_buckets": 2}
MIXTURE = {
    "type": "MixtureOfGaussiansDpEvent",
    "standard_deviation": 2,
    "sensitivities": [0, 1],
    "sampling_probs": [0.9, 0.1],
}
TREES = {"type": "SingleEpochTreeAggregationDpEvent", "noise_multiplier": 5, "step_counts": [7, 8]}
FIXED = {"type": "SampledWithoutReplacementDpEvent", "source_dataset_size": 100, "sample_size": 10, "event": gauss(2)}


def epsilon(event, adjacency, accountant="pld"):
    process = steps_of(event, adjacency).process()
    return evaluate.curve(process, accountant, 1e-6).at(delta=1e-5).epsilon


@pytest.mark.parametrize(
    ("event", "adjacency", "theirs"),
    [
        (gauss(1), ADD, 4.37717810002493),
        (gauss(1), REPLACE, 9.99725615024243),
        (gauss(1), ZERO, 4.37717810002493),
        (laplace(2), ADD, 0.499980000299997),
        (DISCRETE, ADD, 0.899982591666269),
        (RESPONSE, REPLACE, 1.3862874999218744),
        (poisson(0.1, gauss(1)), ADD, 1.684543821022404),
        (poisson(0.1, gauss(1)), REPLACE, 1.7891545612034647),
        (poisson(0.1, laplace(2)), ADD, 0.06284341905520298),
        (times(poisson(0.01, gauss(0.8)), 100), ZERO, 1.5108380181687902),
        (MIXTURE, ADD, 0.3690367142122),
        # of a draw and of a draw from it
        (poisson(0.5, poisson(0.2, gauss(1))), ADD, 1.684543821022404),
        # four releases on one batch
        (poisson(0.1, times(gauss(2), 4)), ADD, 1.684543821022404),
    ],
)
def test_the_figure_is_that_of_their_privacy_loss_distribution(event, adjacency, theirs):
    bracket = epsilon(event, adjacency)
    assert bracket.lower <= theirs * (1 + 1e-6)
    assert bracket.safe == pytest.approx(theirs, rel=5e-4)


@pytest.mark.parametrize(
    ("event", "adjacency", "theirs"),
    [
        (TREES, ZERO, 1.6937176062087547),
        # their bound has sensitivity 1 under replace-one, so that noise of half the multiplier is meant
        (FIXED | {"event": gauss(4)}, REPLACE, 0.595972649657262),
    ],
)
def test_the_figure_is_below_their_renyi_bound(event, adjacency, theirs):
    assert 0.5 * theirs < epsilon(event, adjacency).safe < theirs


def test_a_zcdp_event_has_only_a_renyi_bound():
    event = {"type": "ZCDpEvent", "rho": 0.1, "xi": 0.1}
    assert epsilon(event, ADD, "rdp").safe == pytest.approx(2.0142498748403743, rel=1e-4)


@pytest.mark.parametrize(
    "event",
    [
        {"type": "NonPrivateDpEvent"},
        gauss(0),
        laplace(0),
        poisson(0.1, gauss(0)),
        composed(gauss(1), times(gauss(0), 3)),
        DISCRETE | {"noise_parameter": 0},
        TREES | {"noise_multiplier": 0},
    ],
)
def test_an_event_without_noise_has_no_finite_eps(event):
    run = steps_of(event, ZERO)
    assert run.unprotected
    assert all("0 adds no noise" in why or "without a guarantee" in why for why in run.unprotected)


@pytest.mark.parametrize(
    "event",
    [
        {"type": "NoOpDpEvent"},
        composed(),
        times(gauss(0), 0),
        poisson(0, gauss(0)),
        RESPONSE | {"num_buckets": 1},
        RESPONSE | {"noise_parameter": 1},
        MIXTURE | {"sensitivities": [0, 0]},
    ],
)
def test_an_event_that_releases_nothing_has_no_process(event):
    run = steps_of(event, ADD)
    assert run.process() is None
    assert not run.unprotected


def test_equal_releases_are_one_step():
    event = composed(times(gauss(1), 3), laplace(2), gauss(1), times(composed(gauss(1), gauss(1)), 2))
    steps = steps_of(event, ADD).process().describe()
    assert [(step["mech"], step["n"]) for step in steps] == [("gauss", 8), ("laplace", 1)]


def test_an_event_that_was_composed_one_by_one_is_read():
    event = gauss(1)
    for _ in range(3000):
        event = composed(event, gauss(1))
    assert steps_of(event, ADD).process().steps[0].n == 3001


def test_a_largest_batch_is_that_of_one_data_set():
    cut = {
        "type": "TruncatedSubsampledGaussianDpEvent",
        "dataset_size": 1000,
        "sampling_probability": 0.01,
        "truncated_batch_size": 15,
        "noise_multiplier": 1.0,
    }
    bracket = epsilon(cut, ADD)
    assert bracket.lower < 1.3173610402992677 < bracket.safe  # theirs (arXiv 2508.15089)
    with pytest.raises(UsageError, match="one data set; found the sizes 1000 and 2000"):
        steps_of(composed(cut, cut | {"dataset_size": 2000}), ADD)


@pytest.mark.parametrize(
    ("event", "adjacency", "words"),
    [
        ({"type": "UnsupportedDpEvent"}, ADD, "says itself that nothing is known"),
        (gauss(1) | {"sensitivity": 2}, ADD, "no field 'sensitivity'"),
        (poisson(0.1, composed(gauss(1), laplace(1))), ADD, "several releases of one sampled batch"),
        (poisson(0.1, composed(poisson(0.1, gauss(1)), gauss(1))), ADD, "several releases of one sampled batch"),
        (RESPONSE | {"num_buckets": 3}, REPLACE, "found 3 answers"),
        (MIXTURE | {"sensitivities": [1, 2]}, ADD, "several distances"),
        (TREES, ADD, "zero-out"),
    ],
)
def test_an_event_without_a_proven_pair_is_refused(event, adjacency, words):
    with pytest.raises(Unsupported, match=words):
        steps_of(event, adjacency)


@pytest.mark.parametrize(("event", "adjacency"), [(FIXED, ADD), (poisson(0.1, laplace(1)), REPLACE)])
def test_a_sampling_without_a_proven_pair_under_the_relation_is_refused(event, adjacency):
    with pytest.raises(Unsupported, match="no proven pair"):
        steps_of(event, adjacency).process()


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (gauss(-1), "noise_multiplier of GaussianDpEvent must be at least 0"),
        (gauss(math.nan), "must be a finite number"),
        (gauss("a"), "must be a number"),
        (poisson(1.5, gauss(1)), "from 0 to 1; found 1.5"),
        (times(gauss(1), -1), "must be at least 0"),
        (times(gauss(1), 1.5), "whole number"),
        ({"type": "GaussianEvent"}, "no class of events is called 'GaussianEvent'; known are"),
        (MIXTURE | {"sampling_probs": [0.5, 0.6]}, "add up to 1"),
        ({"type": "GaussianDpEvent"}, "needs the field noise_multiplier"),
        ({"type": "ComposedDpEvent", "events": gauss(1)}, "is a list"),
        (FIXED | {"sample_size": 200}, "at most source_dataset_size"),
        (3, "wanted a DpEvent"),
    ],
)
def test_a_faulty_event_is_refused(event, words):
    with pytest.raises(UsageError, match=words):
        steps_of(event, "")


def test_where_the_relation_is_not_known_nothing_is_doubled_and_nothing_refused_for_it():
    run = steps_of(composed(gauss(1), gauss(1), FIXED, RESPONSE, TREES), "")
    assert [step.get("sensitivity", 1) for step in run.steps] == [1, 1, 1, 2]
    assert [step["n"] for step in run.steps] == [2, 1, 1, 1]


def test_every_class_of_the_real_library_is_known():
    module = pytest.importorskip("dp_accounting").dp_event
    base = module.DpEvent
    classes = {name: each for name, each in vars(module).items() if isinstance(each, type) and issubclass(each, base)}
    assert set(classes) - {"DpEvent"} <= set(EVENTS) | set(WITHOUT_PAIR)
    for name, event in EVENTS.items():
        assert tuple(each.name for each in classes[name].__attrs_attrs__) == event.fields
    live = module.SelfComposedDpEvent(module.PoissonSampledDpEvent(0.01, module.GaussianDpEvent(0.8)), 100)
    assert steps_of(live, ADD) == steps_of(times(poisson(0.01, gauss(0.8)), 100), ADD)
