"""Clipping by groups of parameters: the literal sum by groups, and a bound that no record exceeds."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

import wpriv
from tests.training.engine.models import cross_entropy
from wpriv.errors import UsageError
from wpriv.training.clipping.clip import clipped_sum

X, Y = torch.randn(8, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0)), torch.arange(8) % 3


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)).double()


def literal(model: nn.Module, norms: dict[str, float], x: Tensor, y: Tensor) -> Tensor:
    """The definition: each record's gradient by autograd, the part of each parameter's group scaled by itself."""
    names, total = dict(model.named_parameters()), 0
    for k in range(len(x)):
        loss = cross_entropy(model(x[k : k + 1]), y[k : k + 1]).sum()
        parts = dict(zip(names, torch.autograd.grad(loss, list(names.values())), strict=True))
        for layer, norm in norms.items():
            group = [name for name in names if name.startswith(layer)]
            length = torch.cat([parts[name].flatten() for name in group]).norm()
            for name in group:
                parts[name] = parts[name] * min(1.0, norm / float(length))
        total = total + torch.cat([parts[name].flatten() for name in names])
    return total


@pytest.mark.parametrize("method", ["ghost", "vmap", "loop", "auto"])
@pytest.mark.parametrize(
    ("clip", "norms"),
    [
        ("per-layer", {"0.": 0.5**0.5, "2.": 0.5**0.5}),
        ({"0.*": 0.3, "2.*": 0.6}, {"0.": 0.3, "2.": 0.6}),
        ({"*": 0.5}, {"": 0.5}),
    ],
    ids=["per layer", "by pattern", "one group"],
)
def test_each_group_is_clipped_to_its_norm_and_the_sensitivity_is_the_root_of_their_squares(clip, norms, method):
    model = network()
    found = clipped_sum(model, cross_entropy, X, Y, norm=clip, adjacency="add-remove", method=method).total
    wanted = literal(model, norms, X, Y)
    total = torch.cat([part.flatten() for part in found.parts])
    assert float((total - wanted).norm() / wanted.norm()) <= 1e-10
    assert found.sensitivity == pytest.approx(math.hypot(*norms.values()), rel=1e-14)
    assert found.sensitivity >= math.hypot(*norms.values()) or clip == "per-layer"
    far = clipped_sum(model, cross_entropy, 1e4 * X[:1], Y[:1], norm=clip, adjacency="replace-one", method=method).total
    assert torch.cat([part.flatten() for part in far.parts]).norm() <= far.sensitivity / 2


FAULTS = {
    "no parameter": ({"0.*": 1.0, "2.*": 1.0, "3.*": 1.0}, r"no trained parameters fit '3.\*'"),
    "none": ({"0.*": 1.0}, "each trained parameter needs one norm; '2.weight' fits 0 patterns"),
    "two": ({"0.*": 1.0, "*": 1.0}, "'0.weight' fits 2 patterns"),
    "not positive": ({"*": 0.0}, "above 0"),
    "word": ("per-layers", "a word must be per-layer; found 'per-layers'"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_parameter_without_one_norm_is_refused(name):
    clip, words = FAULTS[name]
    with pytest.raises(UsageError, match=words):
        clipped_sum(network(), cross_entropy, X, Y, norm=clip, adjacency="add-remove")


OPTIONS = {"sigma": 2.0, "delta": 1e-3, "batch": 4, "steps": 2, "lr": 0.5, "progress": False, "seed": 1}


@pytest.mark.parametrize("augment", [None, {"copies": 2, "flip": "horizontal"}], ids=["plain", "copies"])
def test_a_training_accounts_for_the_root_of_the_squares_of_the_norms_and_says_them(augment, tmp_path):
    model, x = nn.Sequential(nn.Flatten(), nn.Linear(6, 5), nn.Linear(5, 3)), X.float().view(8, 1, 2, 3)
    clip = {"1.*": 0.3, "2.*": 0.4}
    trained = wpriv.train(model, (x, Y), test=(x, Y), clip=clip, augment=augment, out=tmp_path / "out", **OPTIONS)
    noise = trained.statement["noise"]
    assert noise["clip"] == pytest.approx(0.5)
    assert noise["standard_deviation"] == pytest.approx(1.0)
    assert (noise["rule"], noise["groups"]) == ("groups", clip)
    assert "clipped" not in trained.metrics[-1]  # no single norm says which records were clipped
    text = (tmp_path / "out" / "statement.md").read_text()
    assert "part by part (1.* to 0.3, 2.* to 0.4), to an l2 norm of 0.5 in all" in text


def test_norms_by_layer_are_refused_before_anything_is_spent_where_they_do_not_fit(tmp_path):
    model = nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 3))
    with pytest.raises(UsageError, match=r"'1.weight' fits 0 patterns"):
        wpriv.train(model, (X.float(), Y), clip={"0.*": 1.0}, out=tmp_path / "out", **OPTIONS)
    assert not (tmp_path / "out" / "ledger.jsonl").exists()
    with pytest.raises(UsageError, match="exact noise needs one clipping norm"):
        wpriv.train(
            model, (X.float(), Y), clip="per-layer", privacy={"noise": "exact"}, out=tmp_path / "out", **OPTIONS
        )
    with pytest.raises(UsageError, match="a number above 0 for each pattern"):
        wpriv.train(model, (X.float(), Y), clip={"*": -1}, out=tmp_path / "out", **OPTIONS)
