"""Clipped sums of records in all their forms, against a literal loop in float64 over each record alone."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests import nightly
from wpriv.errors import Unsupported, UsageError
from wpriv.training.clipping.clip import clipped_sum
from wpriv.training.clipping.layer_rules import Copies, mean_loss, person_loss
from wpriv.training.clipping.record_trees import called, records_of

B, T, WORDS = 9, 6, 13
CROSS = nn.CrossEntropyLoss()


def picked(tree: Any, places: slice) -> Any:
    """Records of a tree, written without anything of wpriv."""
    if isinstance(tree, dict):
        return {key: picked(part, places) for key, part in tree.items()}
    if isinstance(tree, (tuple, list)):
        return type(tree)(picked(part, places) for part in tree)
    return tree[places]


def first(tree: Any) -> Tensor:
    while not isinstance(tree, Tensor):
        tree = next(iter(tree.values())) if isinstance(tree, dict) else tree[0]
    return tree


def literal(
    model: nn.Module, one_loss: Callable[[Any, Any], Tensor], x: Any, y: Any, norm: float | None
) -> tuple[Tensor, Tensor, Tensor, float]:
    """The definition: each record alone, its gradient times min(1, C / norm), C the median of the norms."""
    weights = [p for p in model.parameters() if p.requires_grad]
    rows, losses = [], []
    for k in range(len(first(x))):
        value = one_loss(picked(x, slice(k, k + 1)), picked(y, slice(k, k + 1)))
        parts = (
            torch.autograd.grad(value, weights, allow_unused=True, materialize_grads=True)
            if value.requires_grad
            else [torch.zeros_like(p) for p in weights]
        )
        rows.append(torch.cat([part.reshape(-1) for part in parts]))
        losses.append(value.detach())
    if not rows:
        return torch.zeros(sum(p.numel() for p in weights), dtype=torch.float64), torch.zeros(0), torch.zeros(0), 1.0
    gradients = torch.stack(rows)
    norms = gradients.norm(dim=1)
    limit = float(norms.median()) if norm is None else norm
    factors = (limit / norms.clamp(min=1e-300)).clamp(max=1.0)
    return factors @ gradients, norms, torch.stack(losses), limit


class Tokens(nn.Module):
    """A language model with a target for each token, whose classes are the second dimension of the output."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.out = nn.Embedding(WORDS, 8), nn.Linear(8, WORDS)
        layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)
        self.layer = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.layer(self.words(x))).transpose(1, 2)


class Named(nn.Module):
    """Two inputs by name, one of them a mask."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.out = nn.Embedding(WORDS, 8), nn.Linear(8, 3)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        assert attention_mask is not None
        return self.out((self.words(input_ids).tanh() * attention_mask[..., None]).sum(dim=1))


class Pair(nn.Module):
    """Two inputs in order."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other, self.out = nn.Linear(4, 5), nn.Linear(6, 5), nn.Linear(5, 1)

    def forward(self, u: Tensor, v: Tensor) -> Tensor:
        return self.out(torch.tanh(self.one(u) + self.other(v))).squeeze(1)


class Whole(nn.Module):
    """One argument that is a nested tree."""

    def __init__(self) -> None:
        super().__init__()
        self.pair = Pair()

    def forward(self, record: Any) -> Tensor:
        return self.pair(record["a"][0], record["a"][1])


class Tasks(nn.Module):
    """A dictionary of outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.kind, self.size = nn.Linear(6, 8), nn.Linear(8, 3), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        h = torch.tanh(self.body(x))
        return {"kind": self.kind(h), "size": self.size(h)}


class Coder(nn.Module):
    """A variational autoencoder with fixed noise in the record, so that its draws are known."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(6, 4), nn.Linear(2, 6)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = self.down(x)
        return self.up(h[:, :2] + h[:, 2:].exp() * 0.1), h


def squares(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs - targets).square()


def both(outputs: dict[str, Tensor], targets: dict[str, Tensor]) -> Tensor:
    kind = F.cross_entropy(outputs["kind"], targets["kind"], reduction="none")
    return kind + (outputs["size"] - targets["size"]).square().sum(dim=1)


def gauss(outputs: Tensor, targets: Tensor) -> Tensor:
    mean, log_scale = outputs.chunk(2, dim=1)
    return (log_scale + 0.5 * ((targets - mean) * (-log_scale).exp()).square()).sum(dim=1)


def rebuilt(outputs: tuple[Tensor, Tensor], x: Tensor) -> Tensor:
    return (outputs[0] - x).square().sum(dim=1) + outputs[1].square().sum(dim=1)


def triple(outputs: Tensor, targets: Tensor) -> Tensor:
    anchor, positive, negative = outputs.unbind(dim=1)
    near, far = (anchor - positive).square().sum(dim=1), (anchor - negative).square().sum(dim=1)
    return F.softplus(near - far + 0 * targets)


def case(name: str) -> tuple[nn.Module, Any, Any, Any]:
    """A network, the loss as it is given, and records with targets."""
    torch.manual_seed(3)
    x, words = torch.randn(B, 6).double(), torch.randint(0, WORDS, (B, T))
    tails = torch.randint(0, WORDS, (B, T)).masked_fill(torch.arange(T) >= 1 + torch.arange(B)[:, None] % T, -100)
    tails[4] = -100
    mask = (torch.arange(T) <= torch.arange(B)[:, None] % T).long()
    picture = torch.randn(B, 2, 4, 4).double()
    cases: dict[str, tuple[Callable[[], nn.Module], Any, Any, Any]] = {
        "tokens, mean over those that count": (Tokens, CROSS, words, tails),
        "tokens, weights and sum": (
            Tokens,
            nn.CrossEntropyLoss(weight=torch.linspace(0.5, 2, WORDS).double(), reduction="sum"),
            words,
            tails,
        ),
        "dictionary": (Named, CROSS, {"input_ids": words, "attention_mask": mask}, torch.arange(B) % 3),
        "two inputs": (Pair, squares, (x[:, :4], x), x[:, 0]),
        "nested tree": (Whole, squares, {"a": [x[:, :4], x]}, x[:, 0]),
        "images as targets": (
            lambda: nn.Conv2d(2, 3, 3, padding=1),
            CROSS,
            picture,
            torch.randint(0, 3, (B, 4, 4)).masked_fill(torch.rand(B, 4, 4) < 0.3, -100),
        ),
        "images to images": (lambda: nn.Conv2d(2, 2, 3, padding=1), nn.MSELoss(), picture, picture.flip(1)),
        "series": (
            lambda: nn.Sequential(nn.Conv1d(2, 3, 3), nn.Flatten(), nn.Linear(6, 3)),
            CROSS,
            picture[:, :, 0],
            torch.arange(B) % 3,
        ),
        "volumes": (
            lambda: nn.Sequential(nn.Conv3d(1, 2, 2), nn.Flatten(), nn.Linear(18, 3)),
            CROSS,
            picture[:, None, :, :, :],
            torch.arange(B) % 3,
        ),
        "several tasks": (Tasks, both, x, {"kind": torch.arange(B) % 3, "size": x[:, :2]}),
        "Gaussian likelihood": (lambda: nn.Linear(6, 4), gauss, x, x[:, :2]),
        "no targets": (Coder, rebuilt, x, x),
        "three in one record": (lambda: nn.Linear(4, 2), triple, picture[:, :1, :3, :].squeeze(1), x[:, 0]),
    }
    make, loss, inputs, targets = cases[name]
    if name == "volumes":
        inputs = torch.randn(B, 1, 2, 4, 4).double()
    return make().double(), loss, inputs, targets


NAMES = (
    *("tokens, mean over those that count", "tokens, weights and sum", "dictionary", "two inputs", "nested tree"),
    *("images as targets", "images to images", "series", "volumes", "several tasks", "Gaussian likelihood"),
    *("no targets", "three in one record"),
)


def alone(model: nn.Module, loss: Any) -> Callable[[Any, Any], Tensor]:
    """The loss of one record by itself: of a loss of torch torch's own value, where it is a number."""

    def of_record(x: Any, y: Any) -> Tensor:
        outputs = model(**x) if isinstance(model, Named) else model(*x) if isinstance(model, Pair) else model(x)
        if isinstance(loss, nn.CrossEntropyLoss) and bool((y == -100).all()):
            return torch.zeros((), dtype=torch.float64)
        return loss(outputs, y).sum()

    return of_record


@pytest.mark.parametrize(("name", "method"), nightly.sharded(itertools.product(NAMES, ["auto", "vmap", "loop"]), 2))
def test_every_form_of_records_has_the_sum_of_a_literal_loop(name, method):
    model, loss, x, y = case(name)
    same = {"norm": 1.0, "adjacency": "add-remove", "method": method}
    for count in (B, 2, 1, 0):
        inputs, targets = picked(x, slice(count)), picked(y, slice(count))
        wanted, norms, losses, limit = literal(model, alone(model, loss), inputs, targets, None)
        if limit == 0:
            continue
        clipped = clipped_sum(model, loss, inputs, targets, **{**same, "norm": limit})
        total = torch.cat([part.reshape(-1) for part in clipped.total.parts])
        assert float((total - wanted).norm()) <= 1e-10 * max(float(wanted.norm()), 1e-30)
        assert clipped.norms.tolist() == pytest.approx(norms.tolist(), rel=1e-6)
        assert clipped.losses.tolist() == pytest.approx(losses.tolist(), rel=1e-10)
    twice = [picked(tree, [2, 2]) for tree in (x, y)]
    wanted, *_, limit = literal(model, alone(model, loss), *twice, None)
    total = torch.cat([p.reshape(-1) for p in clipped_sum(model, loss, *twice, **{**same, "norm": limit}).total.parts])
    assert float((total - wanted).norm()) <= 1e-10 * float(wanted.norm())


def test_a_record_without_a_counted_token_has_loss_zero_and_adds_nothing():
    model, loss, x, y = case("tokens, mean over those that count")
    clipped = clipped_sum(model, loss, x[4:5], y[4:5], norm=1.0, adjacency="add-remove")
    assert float(clipped.losses) == 0.0
    assert all(not bool(part.any()) for part in clipped.total.parts)


@pytest.mark.parametrize("method", ["auto", "vmap", "loop"])
def test_the_records_of_a_person_are_averaged_and_clipped_as_one(method):
    model, _, x, y = case("series")
    x, y = (
        x.repeat_interleave(3, 0).view(B, 3, 2, 4) * torch.linspace(1, 2, 3).double()[:, None, None],
        torch.randint(0, 3, (B, 3)),
    )
    present = torch.arange(3) < 1 + torch.arange(B)[:, None] % 3

    def of_person(x: Any, y: Any) -> Tensor:
        return CROSS(model(x[0][0][y[1][0]]), y[0][0][y[1][0]])

    wanted, norms, _, limit = literal(model, of_person, (x,), (y, present), None)
    network, loss = Copies(model, 3), person_loss(nn.CrossEntropyLoss(reduction="none"), 3)
    settings = {"adjacency": "add-remove", "method": method}
    clipped = clipped_sum(network, loss, x, (y, present), norm=limit, **settings)
    total = torch.cat([part.reshape(-1) for part in clipped.total.parts])
    assert float((total - wanted).norm()) <= 1e-10 * float(wanted.norm())
    assert clipped.norms.tolist() == pytest.approx(norms.tolist(), rel=1e-6)
    # all that one person may change: their records, targets and their number
    x[1], y[1], present[1] = -50 * x[1], 2, True
    other = clipped_sum(network, loss, x, (y, present), norm=limit, **settings)
    moved = torch.cat([part.reshape(-1) for part in other.total.parts])
    assert float((moved - total).norm()) <= 2 * limit


def test_the_copies_of_a_dictionary_are_averaged_before_clipping():
    model, _, x, y = case("dictionary")
    several = {key: torch.stack([part, part.flip(1)], dim=1) for key, part in x.items()}

    def of_record(x: Any, y: Any) -> Tensor:
        return CROSS(model(**{key: part[0] for key, part in x.items()}), y.repeat(2))

    wanted, *_, limit = literal(model, of_record, several, y, None)
    each = mean_loss(nn.CrossEntropyLoss(reduction="none"), 2)
    clipped = clipped_sum(Copies(model, 2), each, several, y, norm=limit, adjacency="add-remove")
    total = torch.cat([part.reshape(-1) for part in clipped.total.parts])
    assert float((total - wanted).norm()) <= 1e-10 * float(wanted.norm())


def test_a_dictionary_of_which_some_keys_are_arguments_is_refused_by_the_key():
    with pytest.raises(UsageError, match=r"no argument 'attention_masks'; did you mean 'attention_mask'"):
        called(Named(), records_of({"input_ids": torch.zeros(2, 3), "attention_masks": torch.zeros(2, 3)}))


def test_a_network_that_ends_at_the_longest_mask_of_the_batch_is_refused():
    class Longest(Named):
        def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
            assert attention_mask is not None
            length = int(attention_mask.sum(dim=1).max())
            return self.out(self.words(input_ids[:, :length]).sum(dim=1) / max(length, 1))

    _, loss, x, y = case("dictionary")
    for method in ("auto", "loop"):
        with pytest.raises(Unsupported, match="mixes the records of a batch"):
            clipped_sum(Longest().double(), loss, x, y, norm=1.0, adjacency="add-remove", method=method)


def test_a_wrapper_that_passes_all_arguments_on_gets_a_dictionary_by_name():
    class Wrapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Named()

        def forward(self, *args: Any, **keywords: Any) -> Tensor:
            return self.inner(*args, **keywords)

    words = {"input_ids": torch.zeros(2, 3, dtype=torch.long), "attention_mask": torch.ones(2, 3)}
    wrapped = Wrapped()
    assert torch.equal(called(wrapped, records_of(words)), wrapped.inner(**words))


def test_parts_with_different_numbers_of_records_are_refused():
    with pytest.raises(UsageError, match="one number of records in their first dimension; found 3 and 4"):
        records_of((torch.zeros(3, 2), torch.zeros(4, 2)))


def test_a_loss_over_the_batch_is_refused_with_the_way_out():
    def in_batch(outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs @ outputs.T, torch.arange(len(outputs)), reduction="none")

    model, _, x, y = case("Gaussian likelihood")
    with pytest.raises(Unsupported, match=r"positives, negatives.* belongs into the record, or comes from public"):
        clipped_sum(model, in_batch, x, y, norm=1.0, adjacency="add-remove")
