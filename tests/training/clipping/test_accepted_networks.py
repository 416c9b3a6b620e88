"""Networks whose gradients are unusual: accepted with the literal clipped sum, or refused with the true reason."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import rnn
from torch.nn.utils import spectral_norm as by_hook
from torch.nn.utils.parametrizations import spectral_norm as by_parametrization
from torch.utils.checkpoint import checkpoint

import wpriv
from tests.training.clipping.literal import require_literal
from tests.training.engine.models import cross_entropy
from wpriv.errors import Unsupported, UsageError
from wpriv.training.clipping.choose_method import why_slow
from wpriv.training.clipping.clip import choose, clipped_sum
from wpriv.training.clipping.record_trees import records_of
from wpriv.training.clipping.spectral_norms import follow, held

X, Y = torch.randn(8, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0)), torch.arange(8) % 3
WORDS = torch.where(torch.arange(10) < 3 + torch.arange(8)[:, None] % 7, 1 + torch.arange(80).view(8, 10) % 39, 0)


@pytest.fixture(autouse=True)
def fixed_weights():
    torch.manual_seed(0)


def critic(norm) -> nn.Module:
    return nn.Sequential(norm(nn.Linear(7, 6)), nn.ReLU(), nn.Linear(6, 3)).double()


@pytest.mark.parametrize("norm", [by_hook, by_parametrization], ids=["old", "new"])
def test_a_spectral_norm_holds_its_vectors_within_a_step_and_follows_the_weights_between_steps(norm):
    model = critic(norm)
    before = {name: vector.clone() for name, vector in model.named_buffers()}
    with held(model):
        require_literal(model, cross_entropy, X, Y)
    clipped_sum(model, cross_entropy, X, Y, norm=1.0, adjacency="add-remove")
    assert all(torch.equal(vector, before[name]) for name, vector in model.named_buffers())
    weight = next(value for name, value in model.named_parameters() if "0." in name and value.dim() == 2)
    (u, v), weight = before.values(), weight.detach()
    if norm is by_hook:  # the two interfaces of torch begin with the other vector
        v = torch.nn.functional.normalize(weight.T @ u, dim=0)
        u = torch.nn.functional.normalize(weight @ v, dim=0)
    else:
        u = torch.nn.functional.normalize(weight @ v, dim=0)
        v = torch.nn.functional.normalize(weight.T @ u, dim=0)
    follow(model)
    for vector, wanted in zip(model.buffers(), (u, v), strict=True):
        torch.testing.assert_close(vector, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("norm", [by_hook, by_parametrization], ids=["old", "new"])
def test_a_training_with_a_spectral_norm_moves_its_vectors_once_a_step(norm, tmp_path, monkeypatch):
    from wpriv.training.engine import loop

    calls = []
    monkeypatch.setattr(loop.spectral_norms, "follow", lambda model: (calls.append(1), follow(model)))
    model = critic(norm).float()
    options = {"sigma": 1.0, "delta": 1e-3, "batch": 4, "steps": 3, "lr": 0.5, "progress": False, "seed": 1}
    wpriv.train(model, (X.float(), Y), test=(X.float(), Y), out=tmp_path / "out", **options)
    assert len(calls) == 3


class Packed(nn.Module):
    """T6: a GRU on packed sequences."""

    def __init__(self, mixed: bool = False):
        super().__init__()
        self.words, self.gru, self.head = nn.Embedding(40, 12, 0), nn.GRU(12, 16, batch_first=True), nn.Linear(16, 3)
        self.mixed = mixed

    def forward(self, x: Tensor) -> Tensor:
        lengths = (x != 0).sum(1).clamp(min=1).cpu()
        packed = rnn.pack_padded_sequence(self.words(x), lengths, batch_first=True, enforce_sorted=False)
        out: Tensor = self.head(self.gru(packed)[1][-1])
        return out - out.mean(dim=0) if self.mixed else out


def test_packed_sequences_are_clipped_one_record_after_another_and_the_reason_is_said():
    model = Packed().double()
    assert choose(model, cross_entropy, WORDS[:0], Y[:0], classes=3) == "loop"
    assert why_slow(model).startswith(
        "'gru' (GRU) has no rule for packed sequences; torch.func cannot batch this model"
    )
    require_literal(model, cross_entropy, WORDS, Y)


class WithLengths(Packed):
    """Lengths are an input of their own, which words of the embedding would exceed."""

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        out: Tensor = self.head(self.gru(self.words(x))[0][torch.arange(len(x)), lengths - 1])
        return out - lengths.max() if self.mixed else out


def test_lengths_may_be_an_input():
    records = records_of((WORDS, (WORDS != 0).sum(1).clamp(min=1)))
    model = WithLengths().double()
    assert choose(model, cross_entropy, records[:0], Y[:0], classes=3) == "ghost"
    require_literal(model, cross_entropy, records, Y)


def test_lengths_by_which_records_mix_are_refused():
    records = records_of((WORDS, (WORDS != 0).sum(1).clamp(min=1)))
    with pytest.raises(Unsupported, match="mixes the records of a batch"):
        choose(WithLengths(mixed=True).double(), cross_entropy, records[:0], Y[:0], classes=3)


def test_a_network_that_takes_no_made_up_records_is_refused_with_what_they_are():
    class Choosy(Packed):
        def forward(self, x: Tensor) -> Tensor:
            raise IndexError("index 38 is out of bounds.")

    with pytest.raises(UsageError, match=r"fails on made-up records: index 38 is out of bounds\. No private record"):
        choose(Choosy().double(), cross_entropy, WORDS[:0], Y[:0], classes=3)


def test_a_network_of_packed_sequences_that_mixes_is_refused_without_blaming_the_layer():
    with pytest.raises(Unsupported, match=r"^'the model' \(Packed\) mixes .* Its sequences are packed"):
        choose(Packed(mixed=True).double(), cross_entropy, WORDS[:0], Y[:0], classes=3)


class Critic(nn.Module):
    """T10: a critic that returns its value and the gradient of the value at the record."""

    def __init__(self, form: str = "autograd"):
        super().__init__()
        self.form, self.net = form, nn.Sequential(nn.Linear(7, 6), nn.Tanh(), nn.Linear(6, 1))

    def forward(self, x: Tensor) -> Tensor:
        if self.form == "func":
            return torch.cat([self.net(x), torch.func.grad(lambda rows: self.net(rows).sum())(x)], dim=1)
        with torch.set_grad_enabled(self.form != "plain" or torch.is_grad_enabled()):
            x = x.detach().requires_grad_()
            value = self.net(x)
            (slope,) = torch.autograd.grad(value.sum(), x, create_graph=True)
            return torch.cat([value, slope], dim=1)


def penalised(outputs: Tensor, targets: Tensor) -> Tensor:
    return -outputs[:, 0] + 10 * (outputs[:, 1:].norm(dim=1) - 1) ** 2


@pytest.mark.parametrize(("form", "method"), [("autograd", "loop"), ("func", "vmap")])
def test_a_gradient_penalty_has_the_literal_clipped_sum(form, method):
    model = Critic(form).double()
    assert choose(model, penalised, X[:0], Y[:0]) == method
    require_literal(model, penalised, X, Y)


def test_a_gradient_in_forward_that_evaluation_would_not_have_is_refused_before_anything_is_spent(tmp_path):
    options = {"sigma": 1.0, "delta": 1e-3, "batch": 4, "steps": 3, "lr": 0.5, "progress": False}
    with pytest.raises(UsageError, match=r"its forward takes a gradient.*with torch.enable_grad\(\)"):
        wpriv.train(Critic("plain"), (X.float(), Y), loss=penalised, out=tmp_path / "out", **options)
    assert not (tmp_path / "out" / "ledger.jsonl").exists()


def test_a_weight_that_is_no_parameter_is_refused_still():
    model, weight = Critic().double(), torch.randn(7, 7, dtype=torch.float64, requires_grad=True)
    with pytest.raises(Unsupported, match=r"shape \(7, 7\) requires a gradient .* Register it as nn.Parameter"):
        choose(nn.Sequential(model), lambda outputs, y: (outputs[:, 1:] @ weight).sum(1), X[:0], Y[:0])


class Checkpointed(nn.Module):
    def __init__(self, reentrant: bool):
        super().__init__()
        self.first, self.second, self.reentrant = nn.Linear(7, 6), nn.Linear(6, 3), reentrant

    def forward(self, x: Tensor) -> Tensor:
        return checkpoint(self.second, self.first(x).tanh(), use_reentrant=self.reentrant)


def test_reentrant_checkpoints_are_refused_by_their_name_and_others_are_right():
    with pytest.raises(Unsupported, match=r"^activation checkpointing with use_reentrant=True .* use_reentrant=False"):
        choose(Checkpointed(True).double(), cross_entropy, X[:0], Y[:0], classes=3)
    require_literal(Checkpointed(False).double(), cross_entropy, X, Y)


class Detached(nn.Module):
    """A student whose target is a frozen teacher, and a branch through which no gradient passes."""

    def __init__(self, form: str):
        super().__init__()
        self.form, self.student, self.head = form, nn.Linear(7, 6), nn.Linear(6, 3)
        self.teacher = nn.Linear(7, 3).requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.student(x).tanh()
        if self.form == "detach":
            return self.head(hidden) + self.head(hidden.detach()) * hidden.sum(1, keepdim=True).detach()
        if self.form == "no_grad":
            with torch.no_grad():
                scale = self.head(hidden).abs().sum(1, keepdim=True)
            return self.head(hidden) * scale
        return self.head(hidden) - self.teacher(x)


@pytest.mark.parametrize("form", ["detach", "no_grad", "teacher"])
@pytest.mark.parametrize("method", ["auto", "ghost", "vmap", "loop"])
def test_a_branch_without_gradient_adds_none(form, method):
    require_literal(Detached(form).double(), cross_entropy, X, Y, method=method)
