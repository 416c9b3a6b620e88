"""The backward passes that clipping has of its own, for LSTM and products of reflections, are those of torch."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from tests.training.clipping.literal import require_literal
from wpriv.training.clipping.parameter_uses import Reflections

FORMS = {
    "positions first": {},
    "one layer": {"batch_first": True},
    "without biases": {"batch_first": True, "bias": False},
    "two ways": {"bidirectional": True},
    "two layers, two ways": {"num_layers": 2, "bidirectional": True, "batch_first": True},
}


class Reader(nn.Module):
    """An LSTM from states that records give, all of whose results are used."""

    def __init__(self, **form: bool) -> None:
        super().__init__()
        self.cells = nn.LSTM(5, 4, **form)
        count = self.cells.num_layers * (2 if self.cells.bidirectional else 1)
        self.states, self.head = nn.Linear(5, 4 * count), nn.Linear(8 if self.cells.bidirectional else 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        first = self.states(x[:, 0]).view(len(x), -1, 4).transpose(0, 1).contiguous()
        rows = x if self.cells.batch_first else x.transpose(0, 1)
        out, (h, c) = self.cells(rows, (first, first.tanh()))
        out = out if self.cells.batch_first else out.transpose(0, 1)
        scores: Tensor = self.head(out).mean(1) + c.sum(0)[:, :3] + h[0][:, :3]
        return scores


@pytest.mark.parametrize("length", [1, 6])
@pytest.mark.parametrize("form", FORMS)
def test_an_lstm_is_clipped_as_by_the_literal_loop(form, length):
    torch.manual_seed(0)
    model = Reader(**FORMS[form]).double()
    x, y = torch.randn(8, length, 5, dtype=torch.float64), torch.randint(3, (8,))
    require_literal(model, nn.CrossEntropyLoss(reduction="none"), x, y, method="ghost")


@pytest.mark.parametrize(("rows", "count"), [(7, 4), (6, 6), (5, 1)])
def test_gradients_of_reflections_are_those_of_their_product_one_by_one(rows, count):
    generator = torch.Generator().manual_seed(rows)
    lower, tau, delta = (
        torch.randn(shape, generator=generator, dtype=torch.float64)
        for shape in ((rows, count), (count,), (rows, count))
    )
    tau[0] = 0.0
    lower.requires_grad_()
    tau.requires_grad_()
    one = product = torch.eye(rows, dtype=torch.float64)
    for vector, scale in zip((lower.tril(-1) + one[:, :count]).unbind(1), tau, strict=True):
        product = product @ (one - scale * torch.outer(vector, vector))
    wanted = torch.autograd.grad((product[:, :count] * delta).sum(), (lower, tau))
    found = torch.autograd.grad((Reflections.apply(lower, tau) * delta).sum(), (lower, tau))
    for mine, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("length", [1, 6])
@pytest.mark.parametrize("frozen", [False, True])
def test_weight_norm_of_positions_is_clipped_as_by_the_literal_loop(length, frozen):
    torch.manual_seed(0)
    layer = parametrizations.weight_norm(nn.Linear(5, 4)).double()
    layer.parametrizations.weight.original0.requires_grad_(not frozen).data *= 1.3  # g is no longer |v|
    model = nn.Sequential(layer, nn.Tanh(), nn.Flatten(), nn.Linear(4 * length, 3).double())
    x, y = torch.randn(8, length, 5, dtype=torch.float64), torch.randint(3, (8,))
    require_literal(model, nn.CrossEntropyLoss(reduction="none"), x, y, method="ghost")
