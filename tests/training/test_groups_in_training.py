"""``privacy.group``: noise and statement of a training whose persons have several records."""

from __future__ import annotations

import json

import pytest

from wpriv.accounting.mechanisms.gauss import Gauss
from wpriv.config import document, recipe
from wpriv.core.kinds import Sampling
from wpriv.core.process import Process, Step
from wpriv.errors import Unsupported
from wpriv.training.plan import plan

DATA = {
    "kind": "train",
    "source": "a test",
    "task": "classify",
    "data": {"name": "digits", "records": 1438},
    "model": {"name": "mlp", "width": 8, "depth": 1},
    "optimizer": {"name": "sgd", "lr": 1.0},
    "batch": 128,
    "steps": 5,
    "seed": 0,
}


def planned(**privacy):
    data = {**DATA, "privacy": {"delta": 1e-5, "group": 3, **privacy}}
    return plan(recipe.check(document.of_data("a test", data)), {"records": 1438})


@pytest.mark.parametrize(("sampling", "size"), [("poisson", 1438), ("fixed", 1438)])
def test_the_noise_is_that_of_a_person_with_several_records(sampling, size):
    job = planned(eps=3, sampling=sampling)
    assert job.process() == Process(
        (
            Step(
                Gauss(job.multiplier * (2 if sampling == "fixed" else 1), 2 if sampling == "fixed" else 1),
                5,
                Sampling(sampling, 128 / 1438),
            ),
        ),
        group=3,
        records=size,
    )
    assert job.eps() <= 3
    assert job.multiplier > 1.5 * planned(eps=3, sampling=sampling, group=1).multiplier


def test_a_clipped_mean_of_a_batch_has_no_accounting_for_groups():
    with pytest.raises(Unsupported, match=r"privacy\.group 3"):
        planned(sigma=2, clip="batch-mean")


@pytest.mark.slow
def test_the_statement_names_the_person(tmp_path):
    import wpriv

    data = {**DATA, "privacy": {"sigma": 4, "delta": 1e-5, "group": 3}}
    file = tmp_path / "person.yaml"
    file.write_text(json.dumps(data))
    wpriv.train(file, out=tmp_path / "run")
    statement = json.loads((tmp_path / "run" / "statement.json").read_text())
    assert statement["unit"].startswith("a person with up to 3 records")
    assert statement["group"] == statement["guarantees"][0]["group"] == 3
    assert "more than 3 records of one person" in statement["not_covered"]
