"""A network of the caller is trained by one training at a time, and its trained weights are no first weights."""

from __future__ import annotations

import copy
import itertools
from pathlib import Path

import numpy
import pytest
import torch

import wpriv
from tests.training.engine.test_distributed import ROOT, run_two
from tests.training.test_own_training import OPTIONS, TEST, X, Y, network, same, weights
from wpriv.config.train_parts import Weights
from wpriv.errors import UsageError
from wpriv.training import train_data
from wpriv.training.engine import fine_tuning, network_guard

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


def test_a_state_differs_in_buffers_of_each_kind_by_one_number_or_two_that_are_swapped():
    model = torch.nn.Module()
    kinds = (torch.bool, torch.int8, torch.bfloat16, torch.float64, torch.complex64)
    for place, kind in enumerate(kinds):
        model.register_buffer(f"b{place}", torch.tensor([0, 1, 1]).to(kind))
    model.register_buffer("scalar", torch.zeros(()))
    model.register_buffer("empty", torch.zeros(0))
    before = network_guard.state_of(model)
    assert network_guard.difference(before, model) is None
    for place in range(len(kinds)):
        buffer = model.get_buffer(f"b{place}")
        for change in ([1, 1, 1], [1, 0, 1]):
            buffer.copy_(torch.tensor(change))
            assert network_guard.difference(before, model) == f"the buffer 'b{place}' has other values"
        buffer.copy_(torch.tensor([0, 1, 1]))


CHEAP = {"eps": None, "sigma": 1.0, "seed": None}


def moved(model):
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(1e-7 * torch.randn_like(weight))


def shrunk(model):
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(0.7)


def rounded(model):
    model.bfloat16().float()


def part_of_another(model):
    return torch.nn.Sequential(torch.nn.Identity(), torch.nn.Linear(5, 8), model[1], model[2])


@pytest.mark.parametrize("change", [moved, shrunk, rounded, part_of_another])
@pytest.mark.parametrize("averaged", [False, True])
def test_weights_made_from_trained_ones_are_not_first_weights_on_the_same_records(tmp_path, change, averaged):
    trained = train(network(), tmp_path / "first", average={"decay": 0.5}, **CHEAP)
    model = copy.deepcopy(trained.averaged if averaged else trained.model)
    with pytest.raises(UsageError, match="first weights"):
        train(copy.deepcopy(model), tmp_path / "second", **CHEAP)
    model = change(model) or model
    # the same records in another order, with other labels and other test records
    records = (X[::-1].copy(), 1 - Y[::-1])
    with pytest.raises(UsageError, match="first weights"):
        wpriv.train(model, records, test=(X[:9], Y[:9]), out=tmp_path / "second", **{**OPTIONS, **CHEAP})


def test_weights_that_began_in_the_same_place_are_not_close_to_trained_ones():
    # oracle: the cosine of independent normal vectors of n numbers exceeds 5 / sqrt(n) once in two million
    generator = torch.Generator().manual_seed(0)
    origin = network_guard.Origin(None, "r", True)
    for size in (5, 40, 1000):
        first, noise, other = torch.randn(3, size, generator=generator, dtype=torch.float64)
        change = network_guard.Change(origin, first, first + 0.1 * noise)
        for weight in (first, other, first + 0.1 * other, 2 * first, torch.zeros(size), torch.ones(size)):
            assert not network_guard._is_close(weight.double(), change)
        for weight in (first + 0.1 * noise + 1e-7 * other, first + 0.05 * noise, 3 * first + 0.3 * noise):
            assert network_guard._is_close(weight, change)


def test_new_layers_of_normalization_are_never_close_to_biases_that_a_first_step_of_adam_moved():
    """Every pattern of signs, of which one in 256 moves all numbers alike; also beside first weights of 1 + noise."""
    patterns = torch.tensor(list(itertools.product((0.01, -0.01), repeat=8)), dtype=torch.float64)
    origin, start = network_guard.Origin(None, "r", True), torch.zeros(8, dtype=torch.float64)
    spread = 1 + 0.02 * torch.randn(8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for first in (start, start + 1):
        for pattern in patterns:
            change = network_guard.Change(origin, first, first + pattern)
            for weight in (start, start + 1, spread, start + 0.01):
                assert not network_guard._is_close(weight, change)


def test_a_network_that_adam_moved_by_one_step_is_refused_in_each_form_and_a_new_one_is_not(monkeypatch):
    """The step that moves the bias of the normalization up in all its numbers, as one of 256 does."""
    for kept in ("_left", "_changes"):
        monkeypatch.setattr(network_guard, kept, {})

    def network():
        return torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.LayerNorm(8), torch.nn.Linear(8, 2))

    torch.manual_seed(0)
    model = network()
    with network_guard.in_training(model, network_guard.Origin(Path("first"), "r", True)), torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.01 * torch.randn_like(weight).sign())
        model[1].bias.copy_(torch.full((8,), 0.01))
    network_guard.require_unused(network(), "r")
    with torch.no_grad():
        for change in (lambda weight: None, lambda weight: weight.mul_(0.7), lambda weight: weight.add_(0.5)):
            changed = copy.deepcopy(model)
            for weight in changed.parameters():
                change(weight)
            with pytest.raises(UsageError, match="first weights"):
                network_guard.require_unused(changed, "r")


def test_a_second_training_on_some_of_the_same_records_states_the_cost_of_both(tmp_path, monkeypatch):
    monkeypatch.setattr(train_data, "_past", [])  # other tests trained on these records too
    first = train(network(), tmp_path / "first", **CHEAP)
    assert not any("this program" in line for line in first.statement["warnings"])
    torch.manual_seed(4)
    model = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    second = train(model, tmp_path / "second", records=(X[100:], Y[100:]), **{**CHEAP, "sigma": 1.5})
    (line,) = [line for line in second.statement["warnings"] if "earlier trainings of this program" in line]
    assert f"{tmp_path / 'first'}: 4 steps" in line
    steps = (
        wpriv.Step(wpriv.Gauss(1.0), 4, wpriv.Poisson(0.25)),
        wpriv.Step(wpriv.Gauss(1.5), 4, wpriv.Poisson(1 / 3)),
    )
    both = wpriv.curve(wpriv.Process(steps), "pld").at(delta=1e-5).epsilon
    stated = float(line.partition("eps = ")[2].partition(" ")[0])
    assert both.lower <= stated <= both.upper * (1 + 2e-3)


def test_a_record_has_the_same_number_wherever_it_is():
    rows = train_data.numbers_of(X)
    assert len(set(rows.tolist())) == len({row.tobytes() for row in X})
    assert set(train_data.numbers_of(X[5:9]).tolist()) <= set(rows.tolist())
    assert train_data.name_of(train_data.numbers_of(X[::-1])) == train_data.name_of(rows)
    changed = X.copy()
    changed[3, 2] += 1
    assert len(set(train_data.numbers_of(changed).tolist()) - set(rows.tolist())) == 1
    assert train_data.numbers_of(numpy.zeros((3, 2, 3), dtype=numpy.uint8)).tolist() == [0, 0, 0]


def test_weights_that_wpriv_trained_with_privacy_begin_a_training_only_where_other_records_are_declared(tmp_path):
    trained = train(network(), tmp_path / "first", **CHEAP)
    loaded = fine_tuning.read(trained.out / "model.safetensors"), fine_tuning.read(trained.out / "model.pt")
    for file, content in zip(("model.safetensors", "model.pt"), loaded, strict=True):
        assert content.with_privacy
        assert not content.without_privacy
        source = Weights(file=str(trained.out / file))
        with pytest.raises(UsageError, match="records: other"):
            fine_tuning.load(network(), source, private=True)
        fine_tuning.load(network(), source, private=False)
        fine_tuning.load(network(), source.model_copy(update={"records": "other"}), private=True)
