"""Early stopping by ``early_stop``: ends where a loop of one's own would, at a cost of looks that has a closed form."""

from __future__ import annotations

import math
import shutil

import numpy as np
import pytest
import torch
from scipy.stats import norm

import wpriv
from tests.training.test_own_training import OPTIONS, RNG, TEST, X, Y, network, same, weights
from wpriv.accounting import ledger
from wpriv.errors import UsageError
from wpriv.results import storage

pytestmark = pytest.mark.filterwarnings("ignore:.*seed")
LONG = {**OPTIONS, "steps": 40, "test": TEST}
PUBLIC = {"records": "public", "patience": 2, "every": 3}
PRIVATE = {"records": "private", "patience": 2, "every": 3, "eps": 2}


def train(out, rule, **changes):
    return wpriv.train(network(), (X, Y), out=out, early_stop=rule, **{**LONG, **changes})


def test_a_training_ends_where_a_loop_over_the_same_figures_ends(tmp_path):
    trained = train(tmp_path / "rule", PUBLIC)
    best, waited = -1.0, 0
    options = {key: value for key, value in LONG.items() if key != "progress"}
    with wpriv.training_loop(network(), (X, Y), out=tmp_path / "loop", **options) as run:
        for batch in run:
            run.step()
            if batch.step % 3 == 0:
                accuracy = run.evaluate(*TEST)["accuracy"]
                best, waited = max(best, accuracy), 0 if accuracy > best else waited + 1
                if waited == 2:
                    run.finish()
    assert 3 < trained.statement["steps"] == run.result.statement["steps"] < 40
    assert same(weights(tmp_path / "rule"), weights(tmp_path / "loop"))
    assert trained.guarantee.epsilon == run.result.guarantee.epsilon
    assert trained.metrics[-1]["step"] == trained.statement["steps"]
    assert "not better in 2 looks" in " ".join(trained.statement["remarks"])
    assert not (tmp_path / "rule" / storage.LOOKS).exists()
    assert train(tmp_path / "rule", PUBLIC).statement == trained.statement


def test_looks_at_private_records_keep_the_eps_of_the_closed_form(tmp_path):
    trained = train(tmp_path, PRIVATE)
    looks = ledger.entries(tmp_path / storage.LOOKS)
    step = ledger.fewest(looks[0].release)
    assert looks[0].planned == 13  # after the steps 3, 6, ..., 39
    assert len(looks) == trained.statement["steps"] // 3
    mu = math.sqrt(13) / step.mechanism.sigma
    # Balle and Wang 2018, Theorem 8: delta at eps = 2 of 13 counts that a record changes by 1
    delta = norm.cdf(mu / 2 - 2 / mu) - math.exp(2) * norm.cdf(-mu / 2 - 2 / mu)
    assert delta == pytest.approx(1e-5, rel=1e-4)
    assert delta <= 1e-5 * (1 + 1e-9)
    [line] = [line for line in trained.statement["remarks"] if line.startswith("A test record")]
    assert "eps = 2 at delta = 1e-5" in line
    published = {row["file"]: row["publish"] for row in trained.statement["publish"]}
    assert storage.LOOKS in published


def test_a_training_that_was_killed_repeats_its_looks_and_ends_at_the_same_step(tmp_path):
    rule = {**PRIVATE, "eps": 40, "patience": 3}
    whole = train(tmp_path / "whole", rule)
    options = {key: value for key, value in LONG.items() if key != "progress"} | {"early_stop": rule}
    with wpriv.training_loop(network(), (X, Y), out=tmp_path / "first", **options) as run:
        for batch in run:
            run.step()
            if batch.step in (6, 7, 10):
                shutil.copytree(tmp_path / "first", tmp_path / f"killed-{batch.step}")
    for step in (6, 7, 10):
        again = train(tmp_path / f"killed-{step}", rule, resume=True)
        assert again.statement["steps"] == whole.statement["steps"]
        assert same(weights(tmp_path / f"killed-{step}"), weights(tmp_path / "whole"))
        assert (tmp_path / f"killed-{step}" / storage.LOOKS).read_bytes() == (
            tmp_path / "whole" / storage.LOOKS
        ).read_bytes()


def test_a_loop_that_is_left_after_its_end_was_decided_takes_no_further_step(tmp_path):
    options = {key: value for key, value in LONG.items() if key != "progress"} | {"early_stop": PUBLIC}
    steps = train(tmp_path / "whole", PUBLIC).statement["steps"]
    with wpriv.training_loop(network(), (X, Y), out=tmp_path / "left", **options) as run:
        for batch in run:
            run.step()
            if batch.step == steps:
                break
    assert train(tmp_path / "left", PUBLIC, resume=True).statement["steps"] == steps


def test_a_loss_that_does_not_fall_by_the_least_ends_a_training_without_privacy(tmp_path):
    target = RNG.normal(size=len(X)).astype(np.float32)[:, None]
    trained = wpriv.train(
        torch.nn.Linear(5, 1), (X, target), test=(X[:50], target[:50]), loss="squared", privacy="none", batch=100,
        steps=12, lr=0.01, out=tmp_path, progress=False, early_stop={"least": 10, "patience": 2, "every": 2},
    )  # fmt: skip
    assert trained.metrics[-1]["step"] == 6
    assert "without noise" in " ".join(trained.statement["remarks"])


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ({}, "records: public, or private; found neither"),
        ({"records": "public", "eps": 1}, "cost of looks at private records"),
        ({"records": "private", "metric": "test_loss"}, "by accuracy; found test_loss"),
        ({"records": "public", "metric": "perplexity"}, "no perplexity"),
        ({"records": "public", "every": 40}, "every 40 steps, and the training has 40"),
        ({"records": "public", "patients": 3}, "did you mean 'patience'"),
    ],
)
def test_a_faulty_rule_is_refused_before_anything_is_spent(tmp_path, rule, words):
    with pytest.raises(UsageError, match=words):
        train(tmp_path / "r", rule)
    assert not (tmp_path / "r").exists()


def test_private_looks_are_refused_where_their_cost_would_be_another(tmp_path):
    person = np.repeat(np.arange(100), 4)
    with pytest.raises(UsageError, match="a person has several here"):
        train(tmp_path, PRIVATE, person=person, max_per_person=4, batch=20)
    with pytest.raises(UsageError, match="this training has none"):
        train(tmp_path, PRIVATE, privacy="none", eps=None, delta=None)
    with pytest.raises(UsageError, match=r"give early_stop\.eps"):
        train(tmp_path, {"records": "private"}, eps=None, sigma=1.0)
