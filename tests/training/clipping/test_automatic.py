"""Automatic clipping: g / (|g| + stability), against the formula and its bound."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from tests.training.engine.models import EXAMPLES, case, cross_entropy
from wpriv.config.train_schema import Privacy
from wpriv.errors import UsageError
from wpriv.training.clipping.clip import clipped_sum
from wpriv.training.clipping.example_gradients import Automatic, factors_of
from wpriv.training.engine.batch_gradient import scaling_of


@pytest.mark.parametrize("method", ["ghost", "vmap", "loop", "exact"])
def test_every_method_divides_each_gradient_by_its_norm_plus_the_stability(method):
    model, inputs, targets = case("residual")
    trained, wanted = list(model.parameters()), [torch.zeros_like(p) for p in model.parameters()]
    for x, y in zip(inputs, targets, strict=True):
        grads = torch.autograd.grad(cross_entropy(model(x[None]), y[None]).sum(), trained)
        length = math.sqrt(sum(float((grad * grad).sum()) for grad in grads))
        wanted = [total + grad / (length + 0.3) for total, grad in zip(wanted, grads, strict=True)]
    exact = method == "exact"
    clipped = clipped_sum(
        model,
        cross_entropy,
        inputs,
        targets,
        norm=Automatic(0.3),
        adjacency="add-remove",
        method="auto" if exact else method,
        exact=exact,
    )
    assert clipped.total.sensitivity == 1.0
    for part, other in zip(clipped.total.parts, wanted, strict=True):
        torch.testing.assert_close(part, other, rtol=1e-10, atol=1e-7 if exact else 1e-12)


def test_under_replace_one_the_sensitivity_is_2():
    model, inputs, targets = case("linear")
    settings = {"norm": Automatic(), "adjacency": "replace-one"}
    assert clipped_sum(model, cross_entropy, inputs, targets, **settings).total.sensitivity == 2.0
    assert clipped_sum(model, cross_entropy, inputs[:0], targets[:0], **settings).total.sensitivity == 2.0


@given(st.floats(0, 1e18), st.floats(1e-6, 1e3))
def test_a_scaled_gradient_is_shorter_than_1_and_keeps_the_order_of_lengths(length, stability):
    lengths = torch.tensor([length, 2 * length], dtype=torch.float64)
    scaled = lengths * factors_of(lengths, Automatic(stability))
    assert 0 <= scaled[0] <= scaled[1] <= 1
    assert scaled[0] == pytest.approx(length / (length + stability), rel=1e-12)


def test_no_record_adds_more_than_1_in_single_precision_however_long_its_gradient_is():
    torch.manual_seed(0)
    model = nn.Linear(50, 3)
    for scale, weights in zip((1.0, 1e3, 1e8), torch.eye(EXAMPLES), strict=False):
        inputs, targets = scale * torch.randn(EXAMPLES, 50), torch.randint(3, (EXAMPLES,))
        clipped = clipped_sum(
            model, cross_entropy, inputs, targets, norm=Automatic(1e-6), adjacency="add-remove", weights=weights
        )
        assert torch.cat([part.flatten() for part in clipped.total.parts]).double().norm() <= 1.0


def test_a_gradient_of_zero_adds_zero():
    model = nn.Linear(2, 1)
    clipped = clipped_sum(
        model,
        lambda outputs, targets: 0 * outputs[:, 0],
        torch.ones(3, 2),
        torch.zeros(3),
        norm=Automatic(),
        adjacency="add-remove",
        method="loop",
    )
    assert all(not part.any() for part in clipped.total.parts)


@pytest.mark.parametrize("stability", [0.0, -1.0, math.inf, math.nan])
def test_a_stability_that_is_not_above_0_is_refused(stability):
    with pytest.raises(UsageError, match="stability"):
        Automatic(stability)


def test_a_recipe_has_the_stability_of_the_paper_by_default():
    assert scaling_of(Privacy(eps=1, delta=1e-5, clip="automatic")) == Automatic(0.01)
    assert scaling_of(Privacy(eps=1, delta=1e-5, clip="automatic", stability=0.5)) == Automatic(0.5)
    assert Privacy(eps=1, delta=1e-5, clip="automatic").bound == 1.0
