"""Products of rows of Jacobians where positions cancel, in single precision, against Jacobians in float64."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from tests.training.engine.networks import NETWORKS
from wpriv.papers.penalty import jacobian
from wpriv.training.clipping.example_gradients import pairing_is_cheaper
from wpriv.training.clipping.ghost import forward

WIDTH = 32
LAYERS = (
    "linear on a sequence",
    "conv 2d, groups",
    "transposed conv 2d",
    "batch norm, evaluation mode",
    "group norm",
    "embedding",
    "attention",
    "lstm",
    "gru",
    "layer called twice",
)


class Differences(nn.Module):
    """Scores that are sums over positions of one layer's outputs, with weights of sum 0."""

    def __init__(self, signs: Tensor):
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH, bias=False)
        self.register_buffer("signs", signs)

    def forward(self, x: Tensor) -> Tensor:
        return torch.einsum("kt,nt->nk", self.signs, self.layer(x).sum(dim=2))


@pytest.mark.parametrize("d", [2, 3, 5])
@pytest.mark.parametrize("norm", [0.1, 1.0, 10.0])
def test_no_clipped_jacobian_exceeds_the_norm_where_positions_nearly_cancel(d, norm):
    # before, the norms in float32 hid lengths of up to four times the norm for records a hundred times as large
    random = torch.Generator().manual_seed(d)
    half = torch.randn(d, 2, generator=random)
    model, signs = Differences(torch.cat([half, -half], dim=1)), torch.cat([half, -half], dim=1).double()
    assert pairing_is_cheaper(4, WIDTH, WIDTH)
    scale = 10 ** (3 * torch.rand(1000, 1, 1, generator=random))
    first = scale * torch.randn(1000, 2, WIDTH, generator=random)
    records = torch.cat([first, first + torch.randn(1000, 2, WIDTH, generator=random)], dim=1)
    outputs, calls = forward(model, records)
    clip = jacobian.spectral_factors(jacobian.grams(outputs, calls).detach(), norm).double()
    # row k of a Jacobian is the same vector, the sum over positions, for each of the layer's outputs
    rows = torch.einsum("kt,ntd->nkd", signs, records.double()) * math.sqrt(WIDTH)
    lengths = torch.linalg.matrix_norm(clip @ rows, ord=2)
    assert 0.99 * norm < float(lengths.max()) <= norm


@pytest.mark.parametrize("name", LAYERS)
def test_layers_in_single_precision_have_the_products_of_double_precision(name):
    torch.manual_seed(3)
    model, inputs = NETWORKS[name][0](), NETWORKS[name][1]()
    with torch.no_grad():
        model(inputs)  # gives lazy layers their shapes
    outputs, calls = forward(model, inputs)
    single = jacobian.grams(outputs, calls)
    outputs, calls = forward(model.double(), inputs.double() if inputs.is_floating_point() else inputs)
    double = jacobian.grams(outputs, calls)
    assert single.dtype == torch.float32
    largest = float(double.diagonal(dim1=1, dim2=2).sum(dim=1).max())
    torch.testing.assert_close(single.double(), double, rtol=1e-4, atol=1e-5 * largest)
