"""A network of the caller is trained by one training at a time, and its trained weights are no first weights."""

from __future__ import annotations

import copy

import pytest
import torch

import wpriv
from tests.engine.test_distributed import ROOT, run_two
from tests.run.training.test_own_training import OPTIONS, TEST, X, Y, network, same, weights
from wpriv.engine import network_guard
from wpriv.errors import UsageError

LOOP = {key: value for key, value in OPTIONS.items() if key != "progress"} | {"test": TEST}


def train(model, out, records=(X, Y), **changes):
    return wpriv.train(model, records, test=TEST, out=out, **{**OPTIONS, **changes})


@pytest.mark.parametrize("copied", [False, True])
@pytest.mark.parametrize("private", [True, False])
def test_weights_that_a_training_left_are_not_first_weights_of_another_on_the_same_records(tmp_path, private, copied):
    model = network()
    train(model, tmp_path / "first", **({} if private else {"privacy": "none", "eps": None, "delta": None}))
    model = copy.deepcopy(model) if copied else model
    with pytest.raises(UsageError, match="first weights"):
        train(model, tmp_path / "second")
    with pytest.raises(UsageError, match="first weights"):
        train(model, tmp_path / "first", fresh=True)
    assert not (tmp_path / "second" / "ledger.jsonl").exists()
    assert (tmp_path / "first" / "model.pt").exists()


SECOND = """
import sys
sys.path.insert(0, {root!r})
import torch, wpriv
from wpriv.errors import UsageError

x, model = torch.arange(80.0).view(40, 2) / 80, torch.nn.Sequential(torch.nn.Linear(2, 2))
records = (x, (x[:, 0] > 0.5).long())
options = dict(sigma=1, delta=1e-5, batch=20, steps=1, lr=0.1, test=records, progress=False)
wpriv.train(model, records, out={folder!r} + "/first", **options)
try:
    wpriv.train(model, records, out={folder!r} + "/second", **options)
except UsageError as error:
    assert "first weights" in str(error)
    assert not torch.distributed.is_initialized()
else:
    raise AssertionError("no error")
"""


@pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch has no torch.distributed")
def test_a_refusal_in_two_processes_closes_their_group(tmp_path):
    run_two(SECOND.format(root=str(ROOT), folder=str(tmp_path)))


def test_one_trained_layer_is_enough_for_a_refusal_and_a_fork_accounts_for_it(tmp_path):
    model = network()
    train(model, tmp_path / "r")
    model[2].reset_parameters()
    with pytest.raises(UsageError, match=r"'0\.weight'"):
        train(model, tmp_path / "other")
    # given noise: solving for that of both runs together takes long
    forked = train(model, tmp_path / "r", fork=True, eps=None, sigma=3.0)
    assert forked.statement["steps"] == 8


def test_weights_that_a_finished_training_gave_back_count_as_left_by_it(tmp_path):
    train(network(), tmp_path / "r")
    model = network()
    train(model, tmp_path / "r")  # nothing is left to train: the weights are read from the folder
    with pytest.raises(UsageError, match="first weights"):
        train(model, tmp_path / "other")


def test_new_weights_other_records_and_a_training_without_privacy_are_allowed(tmp_path):
    model = network()
    train(model, tmp_path / "a")
    train(model, tmp_path / "b", records=(X[:300], Y[:300]))
    train(model, tmp_path / "c", privacy="none", eps=None, delta=None)
    model.load_state_dict(network().state_dict())
    train(model, tmp_path / "d")
    assert same(weights(tmp_path / "d"), weights(tmp_path / "a"))


def test_a_training_that_was_left_goes_on_in_the_same_network_and_counts_as_a_training(tmp_path):
    model = network()
    with wpriv.training_loop(model, (X, Y), out=tmp_path / "r", **LOOP) as run:
        for _ in run:
            run.step()
            break
    with pytest.raises(UsageError, match="first weights"):
        train(model, tmp_path / "other")
    train(model, tmp_path / "r", resume=True)
    assert len((tmp_path / "r" / "ledger.jsonl").read_text().splitlines()) == 4


def test_two_trainings_cannot_hold_one_network(tmp_path):
    model = network()
    with wpriv.training_loop(model, (X, Y), out=tmp_path / "r", **LOOP):
        with pytest.raises(UsageError, match="is in the training"):
            train(model, tmp_path / "other")
        train(copy.deepcopy(model), tmp_path / "other")
    assert torch.equal(model[0].weight, network()[0].weight)
    train(model, tmp_path / "third")


def test_a_state_has_a_checksum_for_buffers_of_each_kind_and_changes_with_one_number_or_two_that_are_swapped():
    model = torch.nn.Module()
    kinds = (torch.bool, torch.int8, torch.bfloat16, torch.float64, torch.complex64)
    for place, kind in enumerate(kinds):
        model.register_buffer(f"b{place}", torch.tensor([0, 1, 1]).to(kind))
    model.register_buffer("scalar", torch.zeros(()))
    model.register_buffer("empty", torch.zeros(0))
    before = network_guard.state_of(model)
    assert network_guard.difference(before, network_guard.state_of(model)) is None
    for place in range(len(kinds)):
        buffer = model.get_buffer(f"b{place}")
        for change in ([1, 1, 1], [1, 0, 1]):
            buffer.copy_(torch.tensor(change))
            words = network_guard.difference(before, network_guard.state_of(model))
            assert words == f"the buffer 'b{place}' has other values"
        buffer.copy_(torch.tensor([0, 1, 1]))
