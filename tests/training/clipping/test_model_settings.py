"""What a network or a loss keeps outside of its attributes reaches no later record: refused, or passed one by one."""

from __future__ import annotations

import itertools
import random
import types

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.training.clipping.test_networks import flat
from tests.training.engine.mixers import CLASSES, bent, plain
from tests.training.engine.networks import losses
from wpriv.errors import Unsupported
from wpriv.training.clipping import model_settings
from wpriv.training.clipping.clip import choose, clipped_sum

BATCH, WIDTH, LATER = 10, 6, 250


class Shared:
    """A class of the program in the place of a global variable."""

    count, last = 0, torch.zeros(1, WIDTH)


def memory(read: bool = True):
    """Add a record of the batch before, from a late call on; ``read``: in a way that torch.func cannot batch."""
    held = types.SimpleNamespace(count=0, last=torch.zeros(1, WIDTH))

    def run(own, x: Tensor) -> Tensor:
        held.count += 1
        before, held.last = held.last, x.detach()[-1:]
        return bent(own, x + 3 * before if held.count > LATER + 0 * (float(x.sum()) if read else 0) else x)

    return plain(run)


def queue():
    rows: list[Tensor] = []

    def run(own, x: Tensor) -> Tensor:
        rows.append(x.detach()[-1:])
        return bent(own, x + 3 * rows[-2] if len(rows) > LATER else x)

    return plain(run)


def average():
    held = {"a": 0, "b": 0, "count": 0, "mean": 0.0}

    def run(own, x: Tensor) -> Tensor:
        held["count"] += 1
        before, held["mean"] = held["mean"], 0.5 * held["mean"] + float(x.mean())
        return bent(own, x - before if held["count"] > LATER else x)

    return plain(run)


def shared():
    def run(own, x: Tensor) -> Tensor:
        Shared.count += 1
        before, Shared.last = Shared.last, x.detach()[-1:]
        return bent(own, x + before if Shared.count > LATER else x)

    return plain(run)


KEEPING = {
    "object": memory, "object, under vmap": lambda: memory(read=False), "list": queue, "number": average,
    "class": shared,
}  # fmt: skip


def total(model, inputs, loss=losses, **options) -> Tensor:
    targets = torch.arange(len(inputs)) % CLASSES
    return flat(clipped_sum(model, loss, inputs, targets, norm=1.0, adjacency="add-remove", **options).total.parts)


@pytest.mark.parametrize("name", KEEPING)
def test_records_of_an_earlier_batch_are_not_kept_for_a_late_one_outside_of_attributes(name):
    # each of these was trained, one record at a time, and the last record of a batch changed the sum of the next one
    torch.manual_seed(0)
    model, inputs = KEEPING[name](), torch.randn(BATCH, WIDTH)
    with pytest.raises(Unsupported, match="keeps data of the records"):
        total(model, inputs)


def test_a_loss_that_keeps_a_mean_of_outputs_is_refused():
    held = {"centre": torch.zeros(CLASSES)}

    def centred(outputs: Tensor, targets: Tensor) -> Tensor:
        before, held["centre"] = held["centre"], 0.9 * held["centre"] + outputs.detach().mean(0)
        return losses(outputs - before, targets)

    with pytest.raises(Unsupported, match=r"the loss (holds|keeps)"):
        total(plain(bent), torch.randn(BATCH, WIDTH), centred)


@pytest.mark.parametrize("batchable", [True, False])
def test_a_memory_that_begins_late_stops_the_training_before_a_sum_is_used(batchable):
    held = types.SimpleNamespace(count=0, last=None)

    def run(own, x: Tensor) -> Tensor:
        held.count += 1
        number = None if batchable else float(x.sum())
        if held.count > LATER * BATCH:
            held.last = x.detach() if batchable else number
        return bent(own, x)

    model, inputs = plain(run), torch.randn(BATCH, WIDTH)
    assert total(model, inputs).isfinite().all()
    held.count = LATER * BATCH
    with pytest.raises(Unsupported, match="the training stops"):
        total(model, inputs)


def counted(step):
    """Subtract the mean of the batch from a late call on."""
    return lambda: plain(lambda own, x: bent(own, x - x.mean(0) if step(own, x) else x))


CALLS = itertools.count()
LISTED: list[int] = []
OF_PYTHON, OF_NUMPY, OF_TORCH = random.Random(1), np.random.default_rng(1), torch.Generator().manual_seed(1)


def listed(own, x: Tensor) -> bool:
    LISTED.append(len(x))
    return len(LISTED) > LATER


COUNTING = {
    "iterator": counted(lambda own, x: next(CALLS) > LATER),
    "list": counted(listed),
    "random": counted(lambda own, x: OF_PYTHON.random() < 1e-9),
    "numpy": counted(lambda own, x: OF_NUMPY.random() < 1e-9),
    "torch": counted(lambda own, x: float(torch.rand((), generator=OF_TORCH)) < 1e-9),
}


@pytest.mark.parametrize("name", COUNTING)
def test_counts_and_generators_of_the_program_let_each_record_pass_by_itself(name):
    torch.manual_seed(0)
    model, inputs, targets = COUNTING[name](), torch.randn(BATCH, WIDTH), torch.arange(BATCH) % CLASSES
    assert choose(model, losses, inputs[:0], targets[:0], batch=BATCH) in ("vmap", "loop")
    assert total(model, inputs).isfinite().all()


@pytest.mark.parametrize("place", range(6))
def test_a_change_of_any_entry_of_a_dictionary_or_an_object_is_seen(place):
    model, table, thing = nn.Linear(2, 2), dict.fromkeys("abcdef", 0), types.SimpleNamespace(**dict.fromkeys("abcdef"))
    model.thing = thing

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return outputs[:, 0] * table["a"]

    before = model_settings.settings(model, loss)
    table["abcdef"[place]] = 1
    after = model_settings.settings(model, loss)
    assert after != before
    setattr(thing, "abcdef"[place], 1)
    assert model_settings.settings(model, loss) != after


def test_a_set_whose_order_a_copy_changes_is_no_change_of_the_network():
    # as in networks of transformers from_pretrained; 15 and 39 change places where the table of the set is built anew
    model = nn.Linear(3, 2)
    model.names = set(range(200))
    model.names -= set(range(200)) - {15, 39}
    assert list(model.names) != list(set(list(model.names)))
    clipped = clipped_sum(model, losses, torch.ones(4, 3), torch.zeros(4).long(), norm=1.0, adjacency="add-remove")
    assert len(clipped.norms) == 4
