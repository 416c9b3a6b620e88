"""What a dry run guesses of time and memory is counted right from the layers of the models."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from wpriv.core import registry
from wpriv.engine import cost_estimate, memory

SHAPES = {"logistic": (1, 8, 8), "mlp": (1, 28, 28), "grey-cnn": (1, 28, 28), "tanh-cnn-28": (1, 28, 28)}
GIVEN = [("mlp", {"width": 31, "depth": 3}), *((name, {}) for name in sorted(cost_estimate.MODELS))]


def built(name, given):
    torch.manual_seed(0)
    shape = SHAPES.get(name, (3, 32, 32))
    model = registry.load("models", name).build(registry.params("models", name, given), shape, 10)
    return model, shape, cost_estimate.of(name, given, shape, 10)


@pytest.mark.parametrize(("name", "given"), GIVEN)
def test_a_model_has_the_weights_and_products_that_are_told(name, given):
    model, shape, told = built(name, given)
    assert told.weights == sum(p.numel() for p in model.parameters())
    # oracle: the weights of every convolution and linear layer, times the places at which it is used
    products = []

    def count(layer, _, output):
        products.append(layer.weight.numel() * (output[0].numel() // layer.weight.shape[0]))

    for layer in model.modules():
        if isinstance(layer, (torch.nn.Linear, torch.nn.Conv2d)):
            layer.register_forward_hook(count)
    model(torch.zeros(1, *shape))
    assert told.products == sum(products)


@pytest.mark.parametrize(("name", "given"), GIVEN)
def test_the_numbers_that_are_kept_are_those_that_autograd_keeps_within_a_fifth(name, given):
    model, shape, told = built(name, given)
    loss = functools.partial(cross_entropy, reduction="none")
    x, y = torch.rand(2, *shape), torch.zeros(2, dtype=torch.long)
    # oracle: the tensors that autograd saves, as the run itself measures them
    found = memory.physical_batch(model, loss, lambda places: (x, y), np.arange(2), 1000)
    assert found == pytest.approx(cost_estimate.at_once(4.0 * told.kept, told.weights, 1000), rel=0.2)


def test_a_model_that_is_not_told_has_no_guess():
    assert cost_estimate.of("unheard-of", {}, (1, 28, 28), 10) is None


def test_a_guess_grows_with_the_steps_and_the_batch_and_is_bound_by_memory():
    own = cost_estimate.of("tanh-cnn-28", {}, (1, 28, 28), 10)
    job = {"steps": 1000, "batch": 256, "private": True, "physical": None, "budget": 100, "data": 1e8}
    one, more = cost_estimate.guess(own, **job), cost_estimate.guess(own, **{**job, "steps": 2000, "batch": 2560})
    assert 15 * one.seconds < more.seconds < 20 * one.seconds
    assert one.physical == 256
    assert more.physical < 2560
    assert one.memory < more.memory < cost_estimate.ITSELF + 1e8 + 1.1e8
    assert cost_estimate.guess(own, **{**job, "physical": 7}).physical == 7


def test_a_run_with_exact_sums_is_guessed_to_take_longer_and_the_same_memory():
    of_model = cost_estimate.of("tanh-cnn-28", {}, (1, 28, 28), 10)
    how = {"steps": 100, "batch": 256, "private": True, "physical": None, "budget": 1000, "data": 0.0}
    plain, exact = (cost_estimate.guess(of_model, **how, exact=form) for form in (False, True))
    assert exact.seconds - plain.seconds > 100 * 256 * cost_estimate.ALONE
    assert exact.memory == plain.memory
