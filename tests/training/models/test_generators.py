"""Generators take latents to records, have the size their docstrings tell, and begin at a mean."""

from __future__ import annotations

import re

import pytest
import torch

from wpriv.core import registry
from wpriv.errors import UsageError

# latent numbers by default, and parameters on 28x28 grey images: counted by hand from the layers
SIZES = {
    "dcgan-28": (100, 100 * 6272 + 2 * 6272 + 128 * 64 * 16 + 2 * 64 + 64 * 16 + 784),
    "mlp-generator": (2, 2 * 128 + 128 + 128 * 128 + 128 + 128 * 784 + 784),
}


def build(name, shape=(1, 28, 28), **given):
    torch.manual_seed(0)
    return registry.load("models", name).build(registry.params("models", name, given), shape, 10)


@pytest.mark.parametrize("name", sorted(SIZES))
def test_a_generator_makes_records_and_has_the_documented_number_of_parameters(name):
    latent, size = SIZES[name]
    model = build(name)
    assert model(torch.rand(3, latent)).shape == (3, 1, 28, 28)
    assert sum(p.numel() for p in model.parameters()) == size
    told = re.findall(r"([0-9,]{5,}) parameters", registry.load("models", name).build.__doc__)
    assert [int(number.replace(",", "")) for number in told] == [size]


@pytest.mark.parametrize(
    ("name", "given"),
    [("dcgan-28", {}), ("dcgan-28", {"norm": "none"}), ("mlp-generator", {"norm": "batch", "out": "sigmoid"})],
)
def test_a_step_reaches_every_parameter_and_images_lie_from_0_to_1(name, given):
    model = build(name, **given)
    made = model(torch.rand(4, SIZES[name][0]))
    assert 0 <= float(made.detach().min()) <= float(made.detach().max()) <= 1
    (made * torch.rand(4, 1, 28, 28)).sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())


@pytest.mark.parametrize("given", [{}, {"out": "sigmoid"}, {"depth": 0}])
def test_a_generator_begins_at_the_mean_it_is_given(given):
    model, mean = build("mlp-generator", (5,), **given), torch.linspace(0.1, 0.9, 5)
    model[-1].set_mean(mean)
    torch.testing.assert_close(model[-1](torch.zeros(1, 5))[0], mean)


def test_without_hidden_layers_it_is_affine():
    model = build("mlp-generator", (3,), depth=0)
    x, y = torch.rand(2), torch.rand(2)
    torch.testing.assert_close(model((x + y)[None] / 2), (model(x[None]) + model(y[None])) / 2)


def test_records_of_another_shape_are_refused_in_words():
    with pytest.raises(UsageError, match=r"dcgan-28.*\[C, 28, 28\].*\[2\]"):
        build("dcgan-28", (2,))
