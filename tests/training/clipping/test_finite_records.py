"""A record whose gradient is not finite adds zero, by every method of clipping, and changes nothing else."""

from __future__ import annotations

import functools
import itertools
import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests import nightly
from tests.training.engine.models import NAMES, case, cross_entropy
from tests.training.engine.test_distributed import ROOT, run_two
from wpriv.config.train_schema import Privacy
from wpriv.core.kinds import Adjacency
from wpriv.papers.penalty.gradient import penalised_gradient
from wpriv.papers.penalty.penalty import Penalty
from wpriv.training.clipping.clip import clipped_sum
from wpriv.training.clipping.example_gradients import Automatic
from wpriv.training.engine import batch_gradient
from wpriv.training.noise import library

METHODS = ["ghost", "vmap", "loop", "exact"]
NORM = 0.7


def clipped(model, inputs, targets, method, loss=cross_entropy, norm=NORM):
    how = {"method": "auto", "exact": True} if method == "exact" else {"method": method}
    return clipped_sum(model, loss, inputs, targets, norm=norm, adjacency="add-remove", **how)


def flat(parts) -> Tensor:
    return torch.cat([part.flatten() for part in parts])


def literal(model, inputs, targets, norm=NORM) -> Tensor:
    """Sum of g min(1, C / |g|), one record after another, without anything of wpriv."""
    total = 0.0
    for x, y in zip(inputs, targets, strict=True):
        model.zero_grad()
        cross_entropy(model(x[None]), y[None]).sum().backward()
        trained = [p for p in model.parameters() if p.requires_grad]
        gradient = flat(torch.zeros_like(p) if p.grad is None else p.grad.to_dense() for p in trained)
        total = total + gradient * min(1.0, norm / float(gradient.norm()))
    return total


def faulty_loss(value: float, outputs: Tensor, targets: Tensor) -> Tensor:
    """The loss, times a number that is not finite for records of class 2."""
    return cross_entropy(outputs, targets) * torch.where(targets == 2, value, 1.0)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "embedding, sparse"])
def test_a_loss_that_is_not_finite_for_one_record_leaves_that_record_out_of_every_layer(name):
    model, inputs, _ = case(name)
    targets = torch.tensor([0, 1, 0, 2, 1])
    others = [0, 1, 2, 4]
    found = clipped(model, inputs, targets, "ghost", functools.partial(faulty_loss, math.nan))
    torch.testing.assert_close(
        flat(found.total.parts), literal(model, inputs[others], targets[others]), rtol=1e-10, atol=1e-12
    )
    assert found.total.sensitivity == NORM
    assert math.isinf(found.norms[3])


@pytest.mark.parametrize(
    ("value", "name", "method"),
    nightly.sharded(
        itertools.product(
            [math.nan, math.inf, -math.inf, 1e200], ["conv", "linear on a short sequence", "linear"], METHODS
        ),
        3,
    ),
)
def test_an_input_that_is_not_finite_or_too_large_adds_zero_or_at_most_the_norm(name, method, value):
    model, inputs, targets = case(name)
    inputs[3].flatten()[0] = value
    found = clipped(model, inputs, targets, method)
    others = [0, 1, 2, 4]
    rest = flat(found.total.parts) - literal(model, inputs[others], targets[others])
    if math.isfinite(value):
        assert float(rest.norm()) <= NORM * (1 + 1e-9)
    else:
        assert float(rest.norm()) <= 1e-8


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("value", [1e18, 1e20, 3e38, math.nan, math.inf])
def test_one_record_in_single_precision_adds_at_most_the_norm_whatever_it_holds(method, value):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 3))
    inputs, targets = torch.randn(3, 2, 6, 6), torch.tensor([0, 1, 2])
    inputs[1] = value
    found = clipped(model, inputs, targets, method)
    rest = flat(found.total.parts).double() - literal(model.double(), inputs[[0, 2]].double(), targets[[0, 2]])
    assert float(rest.norm()) <= NORM * (1 + 1e-5)


@pytest.mark.skipif(library.library() is None, reason="no C compiler")
def test_the_compiled_gradients_of_a_convolution_keep_a_faulty_image_to_itself():
    torch.manual_seed(0)
    h, delta = torch.randn(3, 5, 9, 9), torch.randn(3, 9, 9, 9)
    wanted = library.kernel_gradients(library.library(), h, delta, (3, 3), (1, 1), (1, 1), (1, 1))
    h[1], delta[1, 0] = math.nan, math.inf
    found = library.kernel_gradients(library.library(), h, delta, (3, 3), (1, 1), (1, 1), (1, 1))
    assert torch.equal(found[[0, 2]], wanted[[0, 2]])


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("norm", [NORM, Automatic()])
def test_a_batch_of_faulty_records_alone_adds_zero(method, norm):
    model, inputs, targets = case("conv")
    found = clipped(model, inputs * math.nan, targets, method, norm=norm)
    assert not flat(found.total.parts).any()
    assert torch.isinf(found.norms).all()


def test_the_other_records_keep_their_masks_of_dropout():
    model = nn.Sequential(nn.Linear(6, 40), nn.Dropout(0.5), nn.Linear(40, 3)).double()
    inputs, targets = torch.randn(5, 6, dtype=torch.float64), torch.tensor([0, 1, 2, 0, 1])
    torch.manual_seed(7)
    weights = torch.tensor([1.0, 1, 1, 0, 1], dtype=torch.float64)
    how = {"norm": NORM, "adjacency": "add-remove", "method": "ghost"}
    clipped_sum(model, cross_entropy, inputs, targets, **how)  # the trial of the method draws numbers
    torch.manual_seed(7)
    wanted = clipped_sum(model, cross_entropy, inputs, targets, weights=weights, **how)
    inputs[3, 0] = math.nan
    torch.manual_seed(7)
    found = clipped_sum(model, cross_entropy, inputs, targets, **how)
    assert torch.equal(flat(found.total.parts), flat(wanted.total.parts))


def test_a_faulty_record_shows_in_no_figure_of_a_step_except_as_one_that_was_clipped():
    torch.manual_seed(0)
    model, x, y = nn.Linear(4, 3), torch.randn(6, 4), torch.tensor([0, 1, 2, 0, 1, 2])
    x[2] = math.inf
    private = Privacy(sigma=1.0, delta=1e-5, clip=100.0)
    batches = batch_gradient.Batches(model, cross_entropy, lambda places: (x[places], y[places]), 4)
    count, loss, over = batch_gradient.make_aggregator(batches, private, "add-remove", 6)(np.arange(6)).diagnostics
    finite = [0, 1, 3, 4, 5]
    assert (float(count), float(over)) == (6, 1)
    assert float(loss) == pytest.approx(cross_entropy(model(x[finite]), y[finite]).sum().item(), rel=1e-5)


def test_a_mean_that_is_not_finite_is_zero_where_means_are_clipped():
    model, x, y = nn.Linear(4, 3), torch.full((3, 4), math.nan), torch.tensor([0, 1, 2])
    batches = batch_gradient.Batches(model, cross_entropy, lambda places: (x[places], y[places]), 4)
    total = batch_gradient.batch_mean(batches, np.arange(3), norm=0.5, adjacency="replace-one").total
    assert not flat(total.parts).any()
    assert total.sensitivity == 1.0


@pytest.mark.parametrize("clipping", ["per-coordinate", "spectral"])
def test_a_faulty_record_of_a_penalised_gradient_counts_as_one_of_score_and_gradient_zero(clipping):
    torch.manual_seed(2)
    model, inputs = nn.Linear(3, 2, bias=False).double(), torch.randn(8, 3, dtype=torch.float64)
    penalty = Penalty(alpha=1.0, bound=2.0, lipschitz=1.5, sizes=((4, 4),), clipping=clipping)
    axes = torch.eye(2, dtype=torch.float64)
    without = inputs.clone()
    without[1] = 0.0  # a linear map has the score 0 and the gradient 0 there
    wanted = penalised_gradient(model, None, without, None, penalty, directions=axes)
    inputs[1] = math.nan
    found = penalised_gradient(model, None, inputs, None, penalty, directions=axes)
    torch.testing.assert_close(flat(found.total.parts), flat(wanted.total.parts))
    assert found.total.adjacency == Adjacency.WITHIN_GROUP


SHARDED = """
import sys
sys.path.insert(0, {root!r})
import math, numpy as np, torch
from tests.training.engine import sharded_toys
from tests.training.engine import toys
from wpriv.config.train_schema import Train
from wpriv.training.engine import distributed; from wpriv.training.engine import sharding
from wpriv.training.clipping.clip import clipped_sum

x, y = toys.records()
x[[1, 3, 5]] = math.nan  # all records of the second process, and none of the first one
toys.records = lambda: (x, y)
distributed.join()
job = sharding.divided(sharded_toys.job(12), Train.model_validate(sharded_toys.RECIPE))
found = job.aggregate(np.arange(6)).total
rows = [sharding.rows_of(weight) for weight in job.batches.trainable()]
few = [0, 2, 4]
wanted = clipped_sum(sharded_toys.network(), toys.LOSS, x[few], y[few], norm=0.5, adjacency="add-remove", method="loop")
for part, whole, row in zip(found.parts, wanted.total.parts, rows):
    torch.testing.assert_close(part, row.of(whole))
distributed.leave()
"""


@pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch has no torch.distributed")
def test_faulty_records_of_one_process_add_zero_where_weights_are_divided():
    run_two(SHARDED.format(root=str(ROOT)))


def test_a_penalised_gradient_of_faulty_records_alone_is_zero():
    model, penalty = nn.Linear(3, 2).double(), Penalty(alpha=0.5, bound=2.0, lipschitz=1.5, sizes=((2, 2),), clip=1.0)
    inputs, targets = torch.full((4, 3), math.nan, dtype=torch.float64), torch.zeros(4, 2, dtype=torch.float64)
    axes = torch.eye(2, dtype=torch.float64)
    found = penalised_gradient(
        model, lambda out, y: (out - y).square().sum(1), inputs, targets, penalty, directions=axes
    )
    assert not flat(found.total.parts).any()
