"""Batches that pass through the network in pieces, and in half precision, against the literal loop over records."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import wpriv
from tests.training.test_own_training import OPTIONS, TEST, X, Y, network, weights
from wpriv.errors import UsageError
from wpriv.training.engine.batch_gradient import Batches, per_example
from wpriv.training.own_training import own_training

RECORDS = np.arange(200)


def losses(outputs, targets):
    return cross_entropy(outputs, targets, reduction="none")


def literal(model, x, y, norm):
    """The sum of each record's gradient by itself, times min(1, norm / length), in float64."""
    model = model.double()
    total = 0.0
    for one in range(len(x)):
        loss = losses(model(x[one : one + 1].double()), y[one : one + 1]).sum()
        gradient = torch.cat([part.reshape(-1) for part in torch.autograd.grad(loss, list(model.parameters()))])
        total = total + gradient * min(1.0, norm / float(gradient.norm()))
    return total


def flat(parts):
    return torch.cat([part.reshape(-1) for part in parts]).double()


@pytest.mark.parametrize("method", ["ghost", "vmap", "loop"])
def test_a_batch_in_pieces_of_any_size_has_the_literal_sum_and_the_expected_divisor(method):
    x, y = torch.tensor(X).double(), torch.tensor(Y)
    model = network().double()
    wanted = literal(model, x[:200], y[:200], 0.5)
    for physical in (1, 7, 32, 200):
        batches = Batches(model, losses, lambda places: (x[places], y[places]), physical)
        gradient = per_example(batches, RECORDS, norm=0.5, adjacency="add-remove", divisor=100.0, method=method)
        assert float((flat(gradient.total.parts) - wanted).norm() / wanted.norm()) <= 1e-10
        assert gradient.total.sensitivity == 0.5
        assert gradient.divisor == 100.0


def test_a_training_in_pieces_takes_the_steps_and_the_noise_of_one_in_whole_batches(tmp_path):
    for physical in (7, 400):
        options = {**OPTIONS, "eps": None, "sigma": 1.0, "physical": physical, "out": tmp_path / str(physical)}
        wpriv.train(network(), (X, Y), test=TEST, **options)
        assert len((tmp_path / str(physical) / "ledger.jsonl").read_text().splitlines()) == 4
    one, other = (flat(weights(tmp_path / name).values()) for name in ("7", "400"))
    assert float((one - other).norm() / other.norm()) < 1e-6


def deep():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 64), nn.ReLU(), nn.Linear(64, 2))


@pytest.mark.parametrize("method", ["ghost", "vmap", "loop"])
def test_half_precision_keeps_the_bound_of_each_record_and_float32_sums_near_the_literal_ones(method):
    options = {"sigma": 1.0, "delta": 1e-5, "batch": 100, "steps": 1, "lr": 0.1, "clip": 0.3, "test": TEST}
    training = own_training(deep(), (X, Y), precision="bf16", privacy={"method": method}, **options)
    cpu = torch.device("cpu")
    job = training.build_job(training.recipe.train, training.data, cpu, adjacency="add-remove")
    total = job.aggregate(RECORDS[:100]).total
    assert all(part.dtype == torch.float32 for part in total.parts)
    wanted = literal(deep(), torch.tensor(X[:100]), torch.tensor(Y[:100]), 0.3)
    difference = float((flat(total.parts) - wanted).norm() / wanted.norm())
    assert 1e-7 < difference <= 1e-2  # it is half precision, and near
    for record in range(30):
        assert float(flat(job.aggregate(np.array([record])).total.parts).norm()) <= 0.3 * (1 + 1e-6)


def test_half_precision_trains_float32_weights_and_is_stated(tmp_path):
    options = {**OPTIONS, "eps": None, "sigma": 1.0, "precision": "bf16"}
    trained = wpriv.train(deep(), (X, Y), test=TEST, out=tmp_path / "r", **options)
    assert {weight.dtype for weight in trained.model.parameters()} == {torch.float32}
    assert any("bfloat16" in line for line in trained.statement["remarks"])
    with pytest.raises(UsageError, match="bf16"):
        wpriv.train(deep(), (X, Y), test=TEST, out=tmp_path / "s", **{**options, "precision": "fp16"})


KEYWORDS = {"callbacks": "training_loop", "sampler": "`sampling=", "momentum": "`optimizer=", "phisical": "'physical'"}


@pytest.mark.parametrize("verb", [wpriv.train, wpriv.training_loop])
@pytest.mark.parametrize(("keyword", "place"), KEYWORDS.items())
def test_an_unknown_keyword_is_refused_with_the_place_of_its_subject(verb, keyword, place):
    with pytest.raises(UsageError, match=keyword) as raised:
        verb(network(), (X, Y), eps=1, delta=1e-5, batch=100, steps=1, lr=0.1, **{keyword: 3})
    assert place in str(raised.value)
