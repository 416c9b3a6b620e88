"""Networks that mix records under rare conditions are refused or trained rightly; unusual right ones are trained."""

from __future__ import annotations

import types

import pytest
import torch
from torch import Tensor, nn

from tests import nightly
from tests.training.clipping.test_networks import flat, record_by_record
from tests.training.engine.mixers import BATCH, CLASSES, MIXING, RIGHT, bent, plain, vectors
from tests.training.engine.networks import losses
from wpriv.errors import Unsupported
from wpriv.papers.penalty.gradient import method_for
from wpriv.training.clipping import records_alone
from wpriv.training.clipping.clip import choose, clipped_sum
from wpriv.training.clipping.records_alone import require_alone

NORM = 0.1


def built(make, batch, seed: int = 0) -> tuple[nn.Module, Tensor, Tensor]:
    torch.manual_seed(seed)
    return make(), batch(), torch.randint(CLASSES, (BATCH,))


def summed(model, loss, inputs, targets, **options) -> Tensor:
    return flat(clipped_sum(model, loss, inputs, targets, norm=NORM, adjacency="add-remove", **options).total.parts)


def test_both_tables_are_as_long_as_they_were():
    assert len(MIXING) >= 26
    assert len(RIGHT) >= 28


@pytest.mark.parametrize("name", MIXING)
def test_what_mixes_records_is_refused_or_its_sum_is_that_of_records_taken_one_by_one(name):
    make, loss, batch = MIXING[name]
    model, inputs, targets = built(make, batch)
    try:
        choose(model, loss or losses, inputs[:0], targets[:0], batch=BATCH)
        total = summed(model, loss or losses, inputs, targets)
    except Unsupported:
        return
    wanted, _ = record_by_record(model, inputs, targets, NORM)
    torch.testing.assert_close(total, flat(wanted), rtol=1e-4, atol=1e-5)


UNSEEN = ("where a value is 7", "gradients alone, from 50 records on")
COUNTED = ("from call 100",)


@pytest.mark.parametrize("name", [name for name in MIXING if name not in (*UNSEEN, *COUNTED)])
def test_what_mixes_records_is_refused_before_a_record_is_used(name):
    make, loss, batch = MIXING[name]
    model, inputs, targets = built(make, batch)
    with pytest.raises(Unsupported, match=r"mixes|keeps|depends on the other records"):
        choose(model, loss or losses, inputs[:0], targets[:0], batch=BATCH)


@pytest.mark.parametrize("name", UNSEEN)
def test_what_made_up_records_do_not_show_is_refused_on_the_first_real_batch(name):
    make, loss, batch = MIXING[name]
    model, inputs, targets = built(make, batch)
    assert choose(model, loss or losses, inputs[:0], targets[:0], batch=BATCH) == "ghost"
    with pytest.raises(Unsupported, match="the training stops"):
        summed(model, loss or losses, inputs, targets)


def test_scores_that_mix_certain_real_records_are_refused_on_the_first_real_batch():
    model, inputs, _ = built(MIXING["where a value is 7"][0], MIXING["where a value is 7"][2])
    assert method_for(model, None, inputs[:0], None) == "ghost"
    with pytest.raises(Unsupported, match="the training stops"):
        method_for(model, None, inputs, None)


@pytest.mark.parametrize("name", COUNTED)
def test_a_network_that_counts_its_calls_is_clipped_record_by_record_whatever_it_does_later(name):
    make, _, batch = MIXING[name]
    model, inputs, targets = built(make, batch)
    assert choose(model, losses, inputs[:0], targets[:0], batch=BATCH) in ("vmap", "loop")
    with pytest.raises(Unsupported, match="counts its calls"):
        choose(model, losses, inputs[:0], targets[:0], method="ghost")
    model.count = 1000
    total = summed(model, losses, inputs, targets)
    wanted, _ = record_by_record(model, inputs, targets, NORM)
    torch.testing.assert_close(total, flat(wanted), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", nightly.sharded(RIGHT, 2))
def test_an_unusual_network_that_mixes_nothing_stays_accepted_with_the_right_sum(name):
    model, inputs, targets = built(*RIGHT[name])
    choose(model, losses, inputs[:0], targets[:0], batch=BATCH)
    total = summed(model, losses, inputs, targets, check=5)
    wanted, _ = record_by_record(model, inputs, targets, NORM)
    torch.testing.assert_close(total, flat(wanted), rtol=1e-3, atol=1e-5)


def centred(own: nn.Module, x: Tensor) -> Tensor:
    return bent(own, x - x.mean(0))


class Switched(nn.Module):
    """Mixes records once a switch is on: an attribute, one of an object, one of the class, or a variable outside."""

    switch = False

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(6, 8), nn.Linear(8, CLASSES)
        self.on, self.options, self.bend = False, types.SimpleNamespace(on=False), torch.tanh

    def forward(self, x: Tensor) -> Tensor:
        mixes = self.on or self.options.on or self.switch or OUTSIDE["on"]
        logits: Tensor = self.head(self.bend(self.first(x - x.mean(0) if mixes else x)))
        return logits


OUTSIDE, OUTSIDE_TENSOR = {"on": False}, torch.zeros(1)


def _pre_hook(model):
    model.first.register_forward_pre_hook(lambda module, args: (args[0] - args[0].mean(0),))


def _hook(model):
    model.first.register_forward_hook(lambda module, args, output: output - output.mean(0))


def _backward_hook(model):
    model.head.register_full_backward_hook(lambda module, before, after: (before[0] + before[0].mean(0),))


def _backward_pre_hook(model):
    model.head.register_full_backward_pre_hook(lambda module, after: (after[0] + after[0].mean(0),))


def _forward(model):
    model.forward = lambda x: centred(model, x)


def _forward_of_layer(model):
    layer = model.first
    layer.forward = lambda x: nn.functional.linear(x - x.mean(0), layer.weight, layer.bias)


def _class(model):
    model.__class__ = type("Other", (Switched,), {"forward": centred})


def _attribute(model):
    model.on = True


def _object(model):
    model.options.on = True


def _function(model):
    model.bend = lambda h: torch.tanh(h - h.mean(0))


CHANGES = [
    _pre_hook, _hook, _backward_hook, _backward_pre_hook, _forward, _forward_of_layer, _class, _attribute, _object,
    _function,
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:Full backward hook")
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_after_a_step_by_which_records_mix_is_refused_at_the_next_one(change):
    model, inputs, targets = built(Switched, vectors)
    summed(model, losses, inputs, targets)
    change(model)
    with pytest.raises(Unsupported, match=r"mixes|depends on the other records"):
        summed(model, losses, inputs, targets)


def test_switches_outside_of_the_network_are_seen_too(monkeypatch):
    model, inputs, targets = built(Switched, vectors)
    options = {"mix": False}

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        each = losses(outputs, targets)
        return each * outputs.mean() if options["mix"] else each

    before = summed(model, loss, inputs, targets)
    for table, key in ((OUTSIDE, "on"), (options, "mix")):
        monkeypatch.setitem(table, key, True)
        with pytest.raises(Unsupported, match="the training stops"):
            summed(model, loss, inputs, targets)
        monkeypatch.setitem(table, key, False)
    monkeypatch.setattr(Switched, "switch", True)
    with pytest.raises(Unsupported, match="the training stops"):
        summed(model, loss, inputs, targets)
    monkeypatch.setattr(Switched, "switch", False)
    assert torch.equal(summed(model, loss, inputs, targets), before)


def test_mixing_in_batches_larger_than_expected_is_refused_in_the_first_of_them():
    model, inputs, targets = built(lambda: plain(lambda own, x: bent(own, x - x.mean(0) * (len(x) > 30))), vectors)
    choose(model, losses, inputs[:0], targets[:0], batch=7)
    summed(model, losses, inputs[:20], targets[:20])
    with pytest.raises(Unsupported, match="the training stops"):
        summed(model, losses, inputs[:40], targets[:40])


def test_a_small_tensor_that_chooses_a_way_is_seen():
    model, inputs, targets = built(lambda: plain(lambda own, x: bent(own, x - x.mean(0) * OUTSIDE_TENSOR)), vectors)
    summed(model, losses, inputs, targets)
    OUTSIDE_TENSOR.fill_(1.0)
    with pytest.raises(Unsupported, match="the training stops"):
        summed(model, losses, inputs, targets)


def test_a_check_on_real_records_costs_nothing_where_nothing_changed(monkeypatch):
    calls = []
    monkeypatch.setattr("wpriv.training.clipping.clip.require_alone", lambda *rest, **more: calls.append(more["seed"]))
    model, inputs, targets = built(Switched, vectors)
    for check in (None, None, 7, None):
        summed(model, losses, inputs, targets, check=check)
    assert calls == [0, 7]


def test_a_check_restores_weights_state_and_random_numbers_and_changes_no_sum():
    model, inputs, targets = built(
        lambda: nn.Sequential(nn.Linear(6, 40), nn.Dropout(), nn.Linear(40, CLASSES)), vectors
    )
    before, state = {name: value.clone() for name, value in model.state_dict().items()}, torch.get_rng_state()
    require_alone(model, losses, inputs, targets, NORM, seed=3)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(value.dtype == torch.float32 for value in model.state_dict().values())


def test_rounding_of_single_precision_stops_no_training_and_is_confirmed_in_double_precision(monkeypatch):
    """With no tolerance every comparison in single precision fails; that in double precision decides."""
    compared = []
    real = records_alone._compare

    def noted(model, *rest, **more):
        compared.append(next(model.parameters()).dtype)
        return real(model, *rest, **more)

    monkeypatch.setattr(records_alone, "_compare", noted)
    monkeypatch.setitem(records_alone.TOLERANCE, torch.float32, -1.0)
    model, inputs, targets = built(lambda: nn.Sequential(nn.Linear(6, 40), nn.ReLU(), nn.Linear(40, CLASSES)), vectors)
    require_alone(model, losses, inputs, targets, NORM, seed=3)
    assert compared == [torch.float32, torch.float64]
    assert model[0].weight.dtype == torch.float32
    mixing = plain(centred)
    with pytest.raises(Unsupported, match="the training stops"):
        require_alone(mixing, losses, inputs, targets, NORM, seed=3)


@pytest.mark.parametrize("seed", range(3))
def test_records_that_cannot_be_compared_stop_no_training(seed):
    """A gradient that is not finite, and draws that cannot be repeated for one record."""
    model, inputs, targets = built(lambda: nn.Linear(6, CLASSES), vectors, seed)
    inputs[5] = torch.nan
    require_alone(model, losses, inputs, targets, NORM, seed=seed)
    shuffled = plain(lambda own, x: bent(own, x + 0 * torch.randperm(6)))
    require_alone(shuffled, losses, vectors(), targets, NORM, seed=seed)
