"""Clipped sums of records with several copies, against one record after another by autograd."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from tests import nightly
from tests.training.engine.models import CLASSES, EXAMPLES, MODELS, cross_entropy
from wpriv.errors import Unsupported, UsageError
from wpriv.training.clipping.clip import choose, clipped_sum
from wpriv.training.clipping.example_gradients import Automatic, Scaling
from wpriv.training.clipping.layer_rules import Copies, mean_loss

COPIES = 3
QUICK = ("linear", "conv, padding", "residual")


def case(name: str) -> tuple[nn.Module, Tensor, Tensor]:
    torch.manual_seed(7)
    make, shape = MODELS[name]
    model = make().double()
    return model, torch.randn(EXAMPLES, COPIES, *shape, dtype=torch.float64), torch.randint(CLASSES, (EXAMPLES,))


def literal(model: nn.Module, inputs: Tensor, targets: Tensor, scaling: Scaling) -> tuple[list[Tensor], list[float]]:
    """The definition without anything of wpriv: the mean gradient of a record's copies, then clipped, then summed."""
    trained = [p for p in model.parameters() if p.requires_grad]
    total, norms = [torch.zeros_like(p) for p in trained], []
    for copies, target in zip(inputs, targets, strict=True):
        mean = [torch.zeros_like(p) for p in trained]
        for one in copies:
            loss = cross_entropy(model(one[None]), target[None]).sum()
            for part, grad in zip(
                mean, torch.autograd.grad(loss, trained, allow_unused=True, materialize_grads=True), strict=True
            ):
                part += grad / len(copies)
        length = math.sqrt(sum(float((part * part).sum()) for part in mean))
        factor = 1 / (length + scaling.stability) if isinstance(scaling, Automatic) else min(1.0, scaling / length)
        total = [whole + factor * part for whole, part in zip(total, mean, strict=True)]
        norms.append(length)
    return total, norms


def assert_equals_definition(name: str, method: str, scaling: Scaling, **more: object) -> None:
    model, inputs, targets = case(name)
    wanted, norms = literal(model, inputs, targets, scaling)
    clipped = clipped_sum(
        Copies(model, COPIES),
        mean_loss(cross_entropy, COPIES),
        inputs,
        targets,
        norm=scaling,
        adjacency="add-remove",
        method=method,
        **more,
    )
    for part, other in zip(clipped.total.parts, wanted, strict=True):
        torch.testing.assert_close(part, other, rtol=1e-10, atol=1e-8 if more else 1e-12)
    torch.testing.assert_close(clipped.norms, torch.tensor(norms, dtype=torch.float64), rtol=1e-10, atol=0.0)


@pytest.mark.parametrize("method", ["ghost", "vmap", "loop"])
@pytest.mark.parametrize("name", QUICK)
def test_the_mean_gradient_of_a_records_copies_is_clipped_as_one(name, method):
    assert_equals_definition(name, method, 0.4)


@pytest.mark.slow
@pytest.mark.parametrize("name", nightly.sharded([name for name in MODELS if name not in QUICK], 2))
def test_layer_rules_give_the_clipped_mean_of_copies_for_every_kind_of_layer(name):
    assert_equals_definition(name, "ghost", 0.4)


@pytest.mark.parametrize("method", ["ghost", "vmap", "loop"])
def test_copies_are_summed_as_the_definition_says_under_automatic_clipping_too(method):
    assert_equals_definition("residual", method, Automatic(0.05))


def test_exact_sums_of_copies_are_the_definition_up_to_their_grid():
    assert_equals_definition("linear", "auto", 0.4, exact=True)


def test_one_copy_gives_the_same_sum_as_no_copies():
    model, inputs, targets = case("residual")
    settings = {"norm": 0.4, "adjacency": "add-remove", "method": "ghost"}
    plain = clipped_sum(model, cross_entropy, inputs[:, 0], targets, **settings)
    one = clipped_sum(Copies(model, 1), mean_loss(cross_entropy, 1), inputs[:, :1], targets, **settings)
    for part, other in zip(one.total.parts, plain.total.parts, strict=True):
        torch.testing.assert_close(part, other, rtol=1e-12, atol=1e-14)


def test_no_record_of_copies_adds_more_than_the_norm_in_single_precision():
    model, inputs, targets = case("residual")
    for norm, weights in zip((1e-4, 0.03, 0.4), torch.eye(EXAMPLES), strict=False):
        clipped = clipped_sum(
            Copies(model.float(), COPIES),
            mean_loss(cross_entropy, COPIES),
            inputs.float(),
            targets,
            norm=norm,
            adjacency="add-remove",
            method="ghost",
            weights=weights,
        )
        assert torch.cat([part.flatten() for part in clipped.total.parts]).double().norm() <= norm


def test_layers_without_an_arrangement_of_copies_fall_back_on_torch_func():
    inputs, targets = torch.zeros(0, COPIES, 5, dtype=torch.float64), torch.zeros(0, dtype=torch.int64)
    sloped = Copies(nn.Sequential(nn.Linear(5, CLASSES), nn.PReLU()).double(), COPIES)
    loss = mean_loss(cross_entropy, COPIES)
    assert choose(sloped, loss, inputs, targets, classes=CLASSES) in ("vmap", "loop")
    plain = Copies(nn.Linear(5, CLASSES, dtype=torch.float64), COPIES)
    assert choose(plain, mean_loss(cross_entropy, COPIES), inputs, targets, classes=CLASSES) == "ghost"


class Centred(nn.Module):
    """A model that mixes all rows that pass through it."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(5, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.last(x - x.mean(dim=0))
        return out


def test_a_model_that_mixes_the_copies_of_different_records_is_refused():
    inputs, targets = torch.zeros(0, COPIES, 5), torch.zeros(0, dtype=torch.int64)
    with pytest.raises(Unsupported, match="mixes the records"):
        choose(Copies(Centred(), COPIES), mean_loss(cross_entropy, COPIES), inputs, targets)


def test_a_loss_that_averages_over_the_batch_is_refused():
    model, inputs, targets = case("linear")
    with pytest.raises(UsageError, match="one number for each"):
        clipped_sum(
            Copies(model, COPIES),
            mean_loss(nn.functional.cross_entropy, COPIES),
            inputs,
            targets,
            norm=1.0,
            adjacency="add-remove",
            method="loop",
        )
