"""Every model builds, works on each example by itself, and has the size its docstring tells."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
import torch
from torch import nn

from wpriv.core import registry
from wpriv.errors import UsageError

NAMES = registry.names("models")
# the shape of one example, and how many parameters the model then has: counted by hand from the layers in its source
SIZES = {
    "adapt-cnn-28": ((1, 28, 28), 832 + 16020 + 32100 + 1010),
    "adapt-mlp": ((800,), 80100 + 5050 + 2550 + 510),
    "colour-cnn": ((3, 32, 32), 4864 + 102464 + 256 + 614784 + 147840 + 3850),
    "grey-cnn": ((1, 28, 28), 1664 + 102464 + 256 + 393600 + 73920 + 1930),
    "logistic": ((1, 28, 28), 7850),
    "mlp": ((1, 28, 28), 200960 + 65792 + 2570),
    "tanh-cnn-28": ((1, 28, 28), 26_010),  # Tramer, Boneh 2021
    "tanh-cnn-32": ((3, 32, 32), 550_570),  # Tramer, Boneh 2021
    "wrn-16-4": ((3, 32, 32), 2_748_890),  # Zagoruyko, Komodakis 2016: 2.7M
}


def build(name: str, shape=None, **given) -> nn.Module:
    torch.manual_seed(0)
    return registry.load("models", name).build(registry.params("models", name, given), shape or SIZES[name][0], 10)


def test_every_model_has_its_size_here():
    assert set(SIZES) <= set(NAMES)
    assert len(NAMES) >= 7


def test_importing_every_model_loads_no_torch():
    code = (
        "import sys; from wpriv.core import registry; "
        "[registry.load('models', name).Params for name in registry.names('models')]; print('torch' in sys.modules)"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout == "False\n"


@pytest.mark.parametrize("name", sorted(SIZES))
def test_a_model_has_the_documented_number_of_parameters(name):
    found = sum(p.numel() for p in build(name).parameters())
    assert found == SIZES[name][1]
    told = re.findall(r"([0-9,]{5,}) parameters", registry.load("models", name).build.__doc__)
    assert all(int(number.replace(",", "")) == found for number in told)
    assert told or name == "logistic"


@pytest.mark.parametrize("name", sorted(SIZES))
def test_examples_do_not_touch_each_other_even_in_training(name):
    model = build(name).train()
    x = torch.rand(2, *SIZES[name][0])
    both = model(x)
    assert both.shape == (2, 10)
    assert torch.isfinite(both).all()
    torch.testing.assert_close(torch.cat([model(x[:1]), model(x[1:])]), both, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", sorted(SIZES))
def test_nothing_works_in_place_and_nothing_is_random_once_built(name):
    for layer in build(name).modules():
        assert not getattr(layer, "inplace", False)
        assert not isinstance(layer, (nn.modules.dropout._DropoutNd, nn.modules.batchnorm._BatchNorm))


@pytest.mark.parametrize("name", sorted(SIZES))
def test_the_same_seed_gives_the_same_weights(name):
    assert all(torch.equal(a, b) for a, b in zip(build(name).parameters(), build(name).parameters(), strict=True))


@pytest.mark.parametrize("name", sorted(SIZES))
def test_a_step_leaves_no_parameter_without_a_gradient(name):
    model = build(name)
    model(torch.rand(2, *SIZES[name][0])).logsumexp(1).sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())


@pytest.mark.parametrize("name", ["grey-cnn", "colour-cnn"])
def test_the_published_form_mixes_examples_with_batch_normalisation(name):
    model = build(name, norm="paper").train()
    assert sum(isinstance(layer, nn.BatchNorm2d) for layer in model.modules()) == 2
    assert sum(p.numel() for p in model.parameters()) == SIZES[name][1]
    x = torch.rand(2, *SIZES[name][0])
    assert not torch.allclose(model(x)[:1], model(x[:1]), atol=1e-3)


@pytest.mark.parametrize(
    ("name", "shape"),
    [("tanh-cnn-28", (1, 32, 32)), ("grey-cnn", (784,)), ("wrn-16-4", (64,)), ("colour-cnn", (3, 28, 28))],
)
def test_examples_of_another_shape_are_refused_in_words(name, shape):
    with pytest.raises(UsageError, match=f"{name} takes images of shape .*; found examples of shape"):
        build(name, shape)


@pytest.mark.parametrize(
    ("name", "given", "told"),
    [
        ("grey-cnn", {"norm": "batch"}, "norm must be one of group, paper; found 'batch'"),
        ("grey-cnn", {"groups": 7}, "groups must divide the 64 channels; found 7"),
        ("wrn-16-4", {"groups": 0}, "groups must be at least 1"),
        ("mlp", {"widht": 3}, "mlp has no parameter 'widht'; did you mean 'width'"),
        ("mlp", {"width": "wide"}, "width must be a number"),
        ("logistic", {"width": 3}, "It has none"),
    ],
)
def test_wrong_parameters_are_told(name, given, told):
    with pytest.raises(UsageError, match=re.escape(told)):
        build(name, **given)


def test_the_perceptron_has_the_layers_asked_for():
    model = build("mlp", (30,), width=8, depth=3, activation="tanh")
    assert [tuple(p.shape) for p in model.parameters()] == [(8, 30), (8,), (8, 8), (8,), (8, 8), (8,), (10, 8), (10,)]
    assert sum(isinstance(layer, nn.Tanh) for layer in model) == 3
