"""The time and memory that a dry run estimates, against models that are built and run."""

from __future__ import annotations

import functools
import json

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from wpriv.config.field_types import PluginRef
from wpriv.core import registry
from wpriv.training import models, train
from wpriv.training.clipping.probe_model import check_modules
from wpriv.training.data._published import Digits
from wpriv.training.engine import batch_gradient, cost_estimate

# counted by hand from the layers: weights, multiply-adds of one record, and numbers of 4 bytes that it keeps
BY_HAND = [
    ("logistic", {}, (1, 8, 8), (650, 640, 74)),
    ("mlp", {}, (1, 28, 28), (269_322, 268_800, 1_306)),
    ("mlp", {"width": 31, "depth": 3}, (1, 28, 28), (26_639, 26_536, 887)),
    ("tanh-cnn-28", {}, (1, 28, 28), (26_010, 422_208, 14_410)),
    ("tanh-cnn-32", {}, (3, 32, 32), (550_570, 38_896_896, 160_906)),
    ("grey-cnn", {}, (1, 28, 28), (573_834, 7_944_064, 86_362)),
    ("colour-cnn", {}, (3, 32, 32), (874_058, 14_768_896, 121_802)),
    ("wrn-16-4", {}, (3, 32, 32), (2_748_890, 392_612_352, 1_068_042)),
]
MODELS = pytest.mark.parametrize(("name", "given", "shape", "counts"), BY_HAND, ids=lambda value: str(value))
RECIPE = {"steps": 1000, "batch": 256, "private": True, "physical": None, "budget": 100, "data": 1e8}


def cost_of(name, given, shape):
    return cost_estimate.of_model(PluginRef(name=name, **given), shape, 10)


def built(name, given, shape):
    torch.manual_seed(0)
    return models.build(PluginRef(name=name, **given), shape, 10)


@MODELS
def test_model_cost_agrees_with_counts_by_hand(name, given, shape, counts):
    cost = cost_of(name, given, shape)
    assert (cost.weights, cost.products) == counts[:2]
    assert cost.kept == pytest.approx(counts[2], rel=0.15)


@MODELS
def test_model_cost_has_the_weights_and_products_of_the_built_model(name, given, shape, counts):
    model, cost = built(name, given, shape), cost_of(name, given, shape)
    assert cost.weights == sum(p.numel() for p in model.parameters())
    # oracle: the weights of every convolution and linear layer, times the places at which it is used
    products = []

    def count(layer, _, output):
        products.append(layer.weight.numel() * (output[0].numel() // layer.weight.shape[0]))

    for layer in model.modules():
        if isinstance(layer, (torch.nn.Linear, torch.nn.Conv2d)):
            layer.register_forward_hook(count)
    model(torch.zeros(1, *shape))
    assert cost.products == sum(products)


@MODELS
def test_the_largest_batch_is_the_one_that_the_run_measures_on_records(name, given, shape, counts):
    model, cost = built(name, given, shape), cost_of(name, given, shape)
    loss = functools.partial(cross_entropy, reduction="none")
    x, y = torch.rand(2, *shape), torch.zeros(2, dtype=torch.long)
    # oracle: the tensors that autograd saves of two records
    physical = batch_gradient.physical_batch(model, loss, lambda places: (x, y), np.arange(2), 1000)
    assert cost_estimate.largest_batch(4.0 * cost.kept, cost.weights, 1000) == pytest.approx(physical, rel=0.01)


@pytest.mark.parametrize("name", ["mlp-generator", "autoencoder", "grey-cnn"])
def test_a_model_that_does_not_classify_such_records_has_no_cost(name):
    assert cost_of(name, {}, (1, 8, 8)) is None


def test_measuring_a_model_leaves_the_global_generator_alone():
    torch.manual_seed(3)
    state = torch.get_rng_state()
    cost_estimate._measured.cache_clear()
    assert cost_of("mlp", {}, (1, 8, 8)) is not None
    assert torch.equal(torch.get_rng_state(), state)


def test_data_sets_declare_the_shape_and_classes_that_they_read():
    declared = {name for name in registry.names("data") if hasattr(registry.load("data", name), "SHAPE")}
    assert declared == {"mnist", "fashion-mnist", "usps", "digits", "cifar10", "svhn"}
    digits = registry.load("data", "digits")
    data = digits.read(None, digits.Params())
    assert data.x_train.shape[1:] == digits.SHAPE
    assert data.classes == digits.CLASSES


def test_an_estimate_grows_with_the_steps_and_the_batch_and_is_bound_by_memory():
    cost = cost_of("tanh-cnn-28", {}, (1, 28, 28))
    one, more = (
        cost_estimate.estimate(cost, **RECIPE),
        cost_estimate.estimate(cost, **{**RECIPE, "steps": 2000, "batch": 2560}),
    )
    assert 12 * one.seconds < more.seconds < 20 * one.seconds
    assert one.physical == 256
    assert more.physical < 2560
    assert one.memory < more.memory < cost_estimate.PROGRAM_BYTES + 1e8 + 1.1e8
    assert cost_estimate.estimate(cost, **{**RECIPE, "physical": 7}).physical == 7


def test_an_estimate_with_exact_sums_takes_longer_and_the_same_memory():
    cost = cost_of("tanh-cnn-28", {}, (1, 28, 28))
    options = {**RECIPE, "steps": 100, "budget": 1000, "data": 0.0}
    plain, exact = (cost_estimate.estimate(cost, **options, exact=form) for form in (False, True))
    assert exact.seconds - plain.seconds > 100 * 256 * cost_estimate.EXACT_RECORD
    assert exact.memory == plain.memory


def test_the_stored_costs_are_those_that_torch_counts_and_of_models_that_treat_records_one_by_one():
    stored = json.loads(cost_estimate.STORED.read_text(encoding="utf-8"))
    assert len(stored) >= 7
    for key, counts in stored.items():
        model, shape, classes = key.rsplit(" ", 2)
        reference = PluginRef.model_validate_json(model)
        sizes = tuple(map(int, shape.split("x")))
        assert cost_estimate._measure(reference, sizes, int(classes)) == cost_estimate.ModelCost(*counts)
        check_modules(cost_estimate.without_numbers(reference, sizes, int(classes)))


def test_a_dry_run_of_a_shipped_recipe_looks_its_network_up():
    recipe = train.recipe_of("quick/digits").train
    cost = cost_estimate.stored_cost(recipe.model, Digits.SHAPE, len(Digits.CLASSES))
    assert cost == cost_estimate._measure(recipe.model, Digits.SHAPE, len(Digits.CLASSES))
