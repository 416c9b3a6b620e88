"""``wpriv.fix``: no layer of the copy is refused for its type, and what was trained is carried over."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import wpriv
from tests.training.clipping.literal import require_literal
from tests.training.engine.models import cross_entropy
from wpriv.errors import UsageError
from wpriv.training.clipping.probe_model import check_modules


def pictures() -> nn.Sequential:
    torch.manual_seed(0)
    block = nn.Sequential(nn.Conv2d(3, 48, 3), nn.BatchNorm2d(48, eps=1e-3), nn.ReLU())
    return nn.Sequential(block, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(192, 4)).double()


def test_batch_norm_becomes_group_norm_with_its_weight_and_bias_and_the_list_says_so():
    model = pictures()
    model[0][1].weight.data.uniform_()
    model[0][1].weight.requires_grad_(False)
    copy, replaced, lost = wpriv.fix(model)
    norm = copy[0][1]
    assert isinstance(model[0][1], nn.BatchNorm2d)
    assert (type(norm), norm.num_groups, norm.eps, norm.bias.requires_grad) == (nn.GroupNorm, 24, 1e-3, True)
    assert torch.equal(norm.weight, model[0][1].weight)
    assert not norm.weight.requires_grad
    assert replaced == ["'0.1' (BatchNorm2d): GroupNorm with 24 groups of 48 channels, with its weight and bias"]
    assert lost == ["'0.1' (BatchNorm2d): running_mean, running_var and num_batches_tracked"]


def test_the_copy_gives_the_literal_clipped_sum():
    copy = wpriv.fix(pictures()).model
    x, y = torch.randn(8, 3, 6, 6, dtype=torch.float64), torch.randint(4, (8,))
    require_literal(copy, cross_entropy, x, y)


MIXERS = [
    nn.BatchNorm1d(144),
    nn.BatchNorm1d(7),
    nn.BatchNorm1d(1),
    nn.BatchNorm2d(8, track_running_stats=False).eval(),
    nn.BatchNorm3d(64, affine=False),
    nn.SyncBatchNorm(32),
    nn.InstanceNorm2d(4, track_running_stats=True),
    nn.Embedding(3, 4, scale_grad_by_freq=True),
    nn.EmbeddingBag(3, 4, max_norm=1.0),
]


@pytest.mark.parametrize("layer", MIXERS, ids=str)
def test_no_refusal_is_left(layer):
    twice = nn.Sequential(nn.Linear(2, 2), layer, nn.Sequential(layer, layer))
    copy, replaced, _ = wpriv.fix(twice)
    check_modules(copy)
    assert len(replaced) == 1
    assert copy[1] is copy[2][0]
    assert copy[1] is copy[2][1]
    assert wpriv.fix(copy).replaced == []
    assert wpriv.fix(layer).replaced


def test_a_group_of_vectors_keeps_four_channels_since_one_alone_would_become_zero():
    norm = wpriv.fix(nn.BatchNorm1d(32)).model
    assert norm.num_groups == 8
    assert bool((norm(torch.randn(3, 32)).abs() > 0).all())


def test_frozen_batch_norm_in_evaluation_mode_stays():
    layer = nn.BatchNorm2d(4).eval().requires_grad_(False)
    assert wpriv.fix(nn.Sequential(layer, nn.Conv2d(4, 1, 1))).replaced == []
    assert wpriv.fix(nn.Sequential(nn.BatchNorm2d(4).eval(), nn.Conv2d(4, 1, 1))).replaced


@pytest.mark.parametrize("given", [3, nn.LazyBatchNorm1d()], ids=["number", "lazy"])
def test_what_is_no_network_with_shapes_is_refused(given):
    with pytest.raises(UsageError, match=r"must be a torch.nn.Module|has no shape yet"):
        wpriv.fix(given)


def test_the_whole_answer_in_place_of_the_network_leads_to_the_copy_in_it():
    with pytest.raises(UsageError, match="found Fixed, whose network is its `model`"):
        wpriv.train(wpriv.fix(nn.Linear(2, 2)), (torch.zeros(9, 2), torch.arange(9) % 2), sigma=1, delta=1e-3, lr=1)
