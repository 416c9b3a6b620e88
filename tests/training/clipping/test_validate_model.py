"""Models that mix the examples of a batch, or keep something of them, are refused by the name of the place."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.training.engine.models import NAMES, case
from wpriv.errors import Unsupported, UsageError
from wpriv.training.clipping.probe_model import check_modules, probe


def around(module: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, 4, 1), nn.Sequential(nn.Tanh(), module))


MIXERS = {
    "batch norm": (lambda: nn.BatchNorm2d(4), r"'1.1' \(BatchNorm2d\) mixes the examples of a batch.*use nn.GroupNorm"),
    "synchronised": (lambda: nn.SyncBatchNorm(4), r"'1.1' \(SyncBatchNorm\) mixes.*use nn.GroupNorm"),
    "batch norm without statistics": (
        lambda: nn.BatchNorm2d(4, track_running_stats=False).eval(),
        r"'1.1' \(BatchNorm2d\) mixes",
    ),
    "instance norm": (
        lambda: nn.InstanceNorm2d(4, track_running_stats=True),
        r"'1.1' \(InstanceNorm2d\) mixes.*track_running_stats",
    ),
    "word counts": (
        lambda: nn.Embedding(3, 4, scale_grad_by_freq=True),
        r"'1.1' \(Embedding\) mixes.*scale_grad_by_freq",
    ),
    "word norms": (lambda: nn.Embedding(3, 4, max_norm=1.0), r"'1.1' \(Embedding\) mixes.*max_norm"),
}


@pytest.mark.parametrize("name", MIXERS)
def test_a_module_that_mixes_examples_is_refused_by_its_name_with_what_to_use_instead(name):
    make, why = MIXERS[name]
    with pytest.raises(Unsupported, match=why):
        check_modules(around(make()))


@pytest.mark.parametrize(
    "module", [nn.BatchNorm2d(4).eval(), nn.InstanceNorm2d(4), nn.GroupNorm(2, 4), nn.Dropout(), nn.Dropout2d()]
)
def test_a_module_that_mixes_nothing_is_let_through(module):
    check_modules(around(module))


def test_a_model_with_nothing_to_train_is_refused():
    with pytest.raises(UsageError, match="no trainable parameters"):
        check_modules(nn.Linear(2, 2).requires_grad_(False))


def test_a_model_compiled_by_torch_jit_is_refused():
    with pytest.raises(Unsupported, match=r"'1' is compiled by torch.jit"):
        check_modules(nn.Sequential(nn.Linear(2, 2), torch.jit.trace(nn.Linear(2, 2), torch.zeros(1, 2))))


def test_half_precision_is_refused_by_the_name_of_the_parameter():
    with pytest.raises(Unsupported, match=r"must be float32 or float64 .* '0.weight' is torch.bfloat16"):
        check_modules(nn.Sequential(nn.Linear(2, 2).bfloat16()))


def test_two_precisions_are_refused():
    with pytest.raises(
        Unsupported, match=r"share one precision.*'0.weight' is torch.float32 on cpu, '1.weight' torch.float64 on cpu"
    ):
        check_modules(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).double()))


class Mean(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x - x.mean(dim=0)


class Tied(nn.Module):
    """Dropout with one mask for the whole batch, scaled by the largest entry of the batch."""

    def forward(self, x: Tensor) -> Tensor:
        return x * (torch.rand_like(x[:1]) < 0.5) / x.abs().max()


class Rolled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.roll(1, 0)


@pytest.mark.parametrize(
    "kind", [Mean, Tied, Rolled, lambda: nn.BatchNorm2d(4, track_running_stats=False), lambda: nn.Softmax(dim=0)]
)
def test_a_probe_finds_a_module_that_mixes_examples_whatever_its_kind(kind):
    with pytest.raises(Unsupported, match=r"'1.1' \(\w+\) mixes the records of a batch in training mode: changing one"):
        probe(around(kind()), torch.randn(4, 2, 3, 3))


def test_a_probe_finds_mixing_outside_any_module():
    class Whole(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) + x.sum()

    with pytest.raises(Unsupported, match=r"'the model' \(Whole\) mixes"):
        probe(Whole(2, 3), torch.randn(4, 2))


def test_a_probe_finds_mixed_words():
    with pytest.raises(Unsupported, match=r"'1' \(Mean\) mixes"):
        probe(nn.Sequential(nn.Embedding(5, 2), Mean()), torch.tensor([[0, 1], [2, 3], [1, 4]]))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_probe_lets_models_through_that_mix_nothing(name):
    model, inputs, _ = case(name)
    probe(model, inputs)


def test_a_probe_leaves_the_random_numbers_and_the_state_as_they_were():
    model = nn.Sequential(nn.Linear(2, 4), nn.Dropout(), nn.InstanceNorm1d(4, track_running_stats=True))
    model.history = [torch.ones(2)]
    before, state = {k: v.clone() for k, v in model.state_dict().items()}, torch.get_rng_state()
    python, numpy = random.getstate(), np.random.get_state()[1].copy()
    with pytest.raises(
        Unsupported, match=r"the buffer '2.running_mean' of the model changes in a forward pass in training mode"
    ):
        probe(
            model,
            torch.randn(3, 2, generator=torch.Generator().manual_seed(0)).unsqueeze(1).expand(3, 4, 2).contiguous(),
        )
    assert torch.equal(torch.get_rng_state(), state)
    assert random.getstate() == python
    assert (np.random.get_state()[1] == numpy).all()
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())
    assert model.training
    assert len(model.history) == 1
    assert all(p.grad is None for p in model.parameters())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_a_probe_in_evaluation_mode_finds_what_mixes_there():
    model = nn.Sequential(nn.Linear(2, 4), Mean()).eval()
    with pytest.raises(Unsupported, match=r"'1' \(Mean\) mixes the records of a batch in evaluation mode"):
        probe(model, torch.randn(4, 2))
    probe(nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4)).eval(), torch.randn(4, 2))


def test_scores_that_mix_records_are_found():
    with pytest.raises(Unsupported, match="the function of the scores mixes the records"):
        probe(nn.Linear(2, 4), torch.randn(4, 2), scores=lambda outputs: outputs - outputs.mean(0))


def test_a_lazy_layer_without_a_shape_is_refused_by_the_name_of_its_weight():
    with pytest.raises(UsageError, match=r"'0.weight' has no shape yet"):
        check_modules(nn.Sequential(nn.LazyLinear(3)))


def test_a_probe_needs_two_examples():
    with pytest.raises(UsageError, match="at least two examples"):
        probe(nn.Linear(2, 2), torch.zeros(1, 2))
