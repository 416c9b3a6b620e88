"""Trainings and reports that an organisation's ledger pays for: once, before they begin, or not at all."""

from __future__ import annotations

import json

import numpy as np
import pytest

pytest.importorskip("sqlalchemy")

import wpriv
from tests.training.test_allocation_training import RECIPE, stopped
from wpriv.errors import CheckFailed, UsageError
from wpriv.ledger.service import Ledger, Refused
from wpriv.training import sweep, train

PLAIN = RECIPE.replace(", sampling: allocation", ", sampling: none").replace("batch: 50\n", "")


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "toy.yaml"
    path.write_text(PLAIN)
    return train.recipe_of(path)


@pytest.fixture
def url(tmp_path):
    """A ledger with room for two steps and not for four."""
    url = f"sqlite:///{tmp_path}/b.db"
    Ledger.create(url, mu=1.2, rule="gauss").close()
    return url


def states(url: str) -> dict[str, int]:
    with Ledger(url) as ledger:
        ledger.check()
        return dict(ledger.status(fixed=False).states)


def test_a_training_is_paid_for_once_and_refused_when_nothing_is_left(recipe, url, tmp_path):
    done = train.run(recipe, tmp_path / "out", ledger=url)
    paid = json.loads((tmp_path / "out" / "provenance.json").read_text())["paid"]
    assert (paid["ledger"], paid["release"], done.statement["steps"]) == (url, "2", 2)
    first, *rest = (json.loads(line) for line in (tmp_path / "out" / "ledger.jsonl").read_text().splitlines())
    assert first["paid"] == paid["digest"]
    assert not any("paid" in row for row in rest)
    assert wpriv.budget(history=tmp_path / "out", delta=1e-5).epsilon.safe > 0
    with Ledger(url) as ledger:
        assert ledger.state("2").digest == paid["digest"]
        assert ledger.history() == [{**ledger.process().steps[0].describe(), "n": 2}]
        assert ledger.status(fixed=False).accounts[0].amount == pytest.approx(2 / 1.5**2)
    train.run(recipe, tmp_path / "out", ledger=url)  # finished: nothing runs, and nothing is spent
    with pytest.raises(Refused):
        train.run(recipe, tmp_path / "other", ledger=url)
    assert not (tmp_path / "other" / "recipe.yaml").exists()
    assert states(url) == {"done": 1}


def test_a_resumed_training_is_not_paid_for_again(recipe, url, tmp_path, monkeypatch):
    real = train.run
    with monkeypatch.context() as patch:
        patch.setattr(train, "run", lambda *a, **k: real(*a, **k, ledger=url))
        stopped(tmp_path / "toy.yaml", tmp_path / "out", 1)
    assert states(url) == {"begun": 1}
    Ledger.create(f"sqlite:///{tmp_path}/c.db", mu=1.2, rule="gauss").close()
    with pytest.raises(UsageError, match="was paid from the ledger"):
        train.run(recipe, tmp_path / "out", resume=True, ledger=f"sqlite:///{tmp_path}/c.db")
    train.run(recipe, tmp_path / "out", resume=True, ledger=url)
    assert states(url) == {"done": 1}


def test_a_restored_ledger_does_not_pay_for_a_training_that_goes_on(recipe, url, tmp_path, monkeypatch):
    before = (tmp_path / "b.db").read_bytes()
    real = train.run
    with monkeypatch.context() as patch:
        patch.setattr(train, "run", lambda *a, **k: real(*a, **k, ledger=url))
        stopped(tmp_path / "toy.yaml", tmp_path / "out", 1)
    for path in tmp_path.glob("b.db*"):
        path.unlink()
    (tmp_path / "b.db").write_bytes(before)
    with Ledger(url) as ledger:
        ledger.spend("gauss sigma=2")
    with pytest.raises(CheckFailed, match="restored or written anew"):
        train.run(recipe, tmp_path / "out", resume=True, ledger=url)


def test_a_training_without_privacy_has_nothing_to_pay(url, tmp_path):
    path = tmp_path / "toy.yaml"
    text = PLAIN.replace("privacy: {sigma: 1.5, delta: 1e-5, sampling: none}", "privacy: none")
    path.write_text(text.replace("epochs: 2", "batch: 50\nepochs: 2").replace("accountants: [pld, rdp]\n", ""))
    with pytest.raises(UsageError, match="no privacy"):
        train.run(train.recipe_of(path), tmp_path / "out", ledger=url)
    assert states(url) == {}


def swept(tmp_path, *lines: str):
    path = tmp_path / "swept.yaml"
    path.write_text("\n".join((PLAIN, *lines)) + "\n")
    return train.recipe_of(path)


def test_the_trainings_of_a_sweep_pay_one_by_one_and_none_begins_unless_all_fit(recipe, url, tmp_path):
    pair = swept(tmp_path, "seeds: 2")  # each of two steps
    with pytest.raises(Refused, match="Nothing was spent"):
        sweep.run(pair, tmp_path / "refused", ledger=url)
    assert not (tmp_path / "refused").exists()
    assert states(url) == {}
    larger = f"sqlite:///{tmp_path}/c.db"
    Ledger.create(larger, mu=2.0, rule="gauss").close()
    result = sweep.run(pair, tmp_path / "out", ledger=larger)
    assert (len(result.rows), states(larger)) == (2, {"done": 2})
    sweep.run(pair, tmp_path / "out", ledger=larger)  # finished: nothing is spent
    assert states(larger) == {"done": 2}
    with pytest.raises(UsageError, match="local disk"):
        sweep.run(pair, tmp_path / "cluster", ledger=larger, backend="submitit")


def test_reports_are_paid_for_before_a_record_is_used(tmp_path):
    url = f"sqlite:///{tmp_path}/b.db"
    Ledger.create(url, eps=1, delta=1e-5, adjacency="any-two", rule="gauss").close()
    records = np.ones((3, 2))
    wpriv.privatize(records, "local-gauss", radius=1, eps=0.9, delta=1e-5, ledger=url)
    with pytest.raises(Refused):
        wpriv.privatize(records, "local-gauss", radius=1, eps=0.9, delta=1e-5, ledger=url)
    assert states(url) == {"done": 1}


def test_a_network_of_ones_own_is_paid_for_or_refused_before_anything_is_written(tmp_path):
    url = f"sqlite:///{tmp_path}/own.db"
    Ledger.create(url, eps=3, delta=1e-5).close()
    records = np.random.default_rng(0).normal(size=(200, 4)).astype("float32")
    labels = (records[:, 0] > 0).astype("int64")

    def fit(sigma: float, out: str) -> None:
        torch = pytest.importorskip("torch")
        terms = {"batch": 20, "steps": 2, "lr": 0.5, "clip": 1.0, "delta": 1e-5, "classes": [0, 1], "progress": False}
        network = torch.nn.Sequential(torch.nn.Linear(4, 2))
        wpriv.train(network, (records, labels), sigma=sigma, out=tmp_path / out, ledger=url, **terms)

    fit(20.0, "paid")
    assert states(url) == {"done": 1}
    with pytest.raises(Refused, match="Nothing was spent"):
        fit(0.3, "refused")
    assert not (tmp_path / "refused").exists()
