"""Per-example clipping on networks of every common make, against gradients taken record by record by plain autograd."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from tests.training.engine.leaks import ALLOWED, LEAKS
from tests.training.engine.networks import CLASSES, NETWORKS, RECORDS, losses, vectors
from wpriv.errors import Unsupported
from wpriv.training.clipping.clip import choose, clipped_sum
from wpriv.training.clipping.spectral_norms import held

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def double_precision():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


def built(make, batch, training: bool = True) -> tuple[nn.Module, Tensor, Tensor]:
    """The network with its records and targets, always the same."""
    torch.manual_seed(11)
    model, inputs = make(), batch()
    if any(isinstance(module, nn.LazyLinear) for module in model.modules()):
        with torch.no_grad():
            model.eval()(inputs)  # gives lazy layers their shapes
    return model.train(training), inputs, torch.randint(CLASSES, (RECORDS,))


def record_by_record(model: nn.Module, inputs: Tensor, targets: Tensor, norm: float) -> tuple[list[Tensor], Tensor]:
    """The definition: the sum of the records' gradients by torch.autograd.grad, each clipped to the norm."""
    trained = [p for p in model.parameters() if p.requires_grad]
    total, lengths = [torch.zeros_like(p) for p in trained], []
    for place in range(len(inputs)):
        loss = losses(model(inputs[place : place + 1]), targets[place : place + 1]).sum()
        grads = torch.autograd.grad(loss, trained, allow_unused=True, materialize_grads=True, retain_graph=True)
        grads = [grad.to_dense() if grad.is_sparse else grad for grad in grads]
        length = torch.sqrt(sum(grad.square().sum() for grad in grads))
        total = [part + grad * torch.clamp(norm / length, max=1.0) for part, grad in zip(total, grads, strict=True)]
        lengths.append(length)
    return total, torch.stack(lengths)


def flat(parts: list[Tensor]) -> Tensor:
    return torch.cat([part.flatten() for part in parts])


@pytest.mark.parametrize("name", NETWORKS)
def test_the_clipped_sum_is_that_of_gradients_taken_record_by_record_or_the_network_is_refused(name):
    make, batch, training, refusal = NETWORKS[name]
    model, inputs, targets = built(make, batch, training)
    if refusal:
        with pytest.raises(Unsupported, match=refusal):
            clipped_sum(model, losses, inputs, targets, norm=0.5, adjacency="add-remove")
        return
    with held(model):  # the vectors of a spectral norm stay as they are within a step
        wanted, lengths = record_by_record(model, inputs, targets, 0.5)
    assert (lengths > 0.5).any(), "no gradient is clipped, so that clipping is not tested"
    for _ in range(2):  # the second call goes by what the first has found
        found = clipped_sum(model, losses, inputs, targets, norm=0.5, adjacency="add-remove")
        torch.testing.assert_close(flat(found.total.parts), flat(wanted), rtol=1e-9, atol=1e-11)
        torch.testing.assert_close(found.norms, lengths, rtol=1e-9, atol=1e-11)


def test_the_table_has_all_the_networks_that_were_once_tried():
    assert len(NETWORKS) >= 61


@pytest.mark.parametrize("method", ["auto", "ghost", "vmap", "loop"])
@pytest.mark.parametrize("name", LEAKS)
def test_what_mixes_records_or_keeps_them_is_refused_by_its_name(name, method):
    make, loss, why = LEAKS[name]
    model, inputs, targets = built(make, vectors)
    before = {key: value.clone() for key, value in model.named_buffers()}
    with pytest.raises(Unsupported, match=why):
        clipped_sum(model, loss, inputs, targets, norm=0.5, adjacency="add-remove", method=method)
    with pytest.raises(Unsupported, match=why):
        choose(model, loss, inputs, targets)
    assert all(torch.equal(before[key], value) for key, value in model.named_buffers()), (
        "a refused model has kept something"
    )


@pytest.mark.parametrize("name", ALLOWED)
def test_random_numbers_that_no_record_decides_are_allowed_and_no_record_adds_more_than_the_norm(name):
    model, inputs, targets = built(*ALLOWED[name])
    for place in range(RECORDS):
        alone = torch.zeros(RECORDS)
        alone[place] = 1.0
        found = clipped_sum(model, losses, inputs, targets, norm=0.1, adjacency="add-remove", weights=alone)
        assert 0 < float(flat(found.total.parts).norm()) <= 0.1
