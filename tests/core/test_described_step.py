"""A step comes back from its description, as ledgers and statements hold it; anything else is refused by name."""

from __future__ import annotations

import json

import pytest

from tests.accounting.mechanisms.test_mechanism_contract import EXAMPLES
from wpriv.accounting.mechanisms.gauss import Gauss
from wpriv.core import registry
from wpriv.core.kinds import Sampling
from wpriv.core.pair_distances import of_distances
from wpriv.core.process import Step
from wpriv.errors import UsageError

SAMPLINGS = [
    Sampling(),
    Sampling("poisson", 0.1),
    Sampling("poisson", 0.1, 30),
    Sampling("fixed", 0.2),
    Sampling("allocation", 0.25),
    Sampling("shuffle", 0.125),
]


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_a_step_comes_back_from_its_description(name, sampling):
    # balls in bins say themselves how far apart the steps of a record lie
    in_bins = name == "matrix-gauss" and sampling.kind == "allocation"
    for values in [{"sigma": 3.0, "strategy": "banded:2"}] if in_bins else EXAMPLES[name]:
        step = Step(registry.mechanism(name)(**values), 40, sampling)
        assert Step.from_dict(json.loads(json.dumps(step.describe()))) == step


ROW = {"mech": "gauss", "sigma": 2.0, "sensitivity": 1.0, "n": 3, "sampling": "poisson", "rate": 0.1}


@pytest.mark.parametrize(
    "change",
    [
        {"mech": None}, {"mech": "gaus"}, {"mech": ["gauss"]}, {"sigma": "two"}, {"sigma": None}, {"sgima": 2.0},
        {"rate": 0}, {"rate": None}, {"sampling": 3}, {"n": 0}, {"n": 1.5}, {"max_batch": -1}, {"max_batch": 0},
        {"observed": "a file"}, {"previous": "0"},
    ],
)  # fmt: skip
def test_a_faulty_description_is_refused(change):
    with pytest.raises(UsageError):
        Step.from_dict({**ROW, **change})


@pytest.mark.parametrize("key", ["mech", "sigma", "n", "rate"])
def test_a_description_without_a_part_is_refused(key):
    with pytest.raises(UsageError, match=key):
        Step.from_dict({name: value for name, value in ROW.items() if name != key})


def test_observed_distances_are_not_in_a_description():
    step = Step(Gauss(1.0), 1, observed=of_distances([0.5]))
    with pytest.raises(UsageError, match="observed"):
        Step.from_dict(step.describe())
