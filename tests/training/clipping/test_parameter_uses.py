"""Parameters that no layer with a rule holds: their gradients by book-keeping are those of a literal loop."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint

from tests import nightly
from tests.training.clipping.literal import require_literal
from wpriv.errors import Unsupported
from wpriv.training.clipping import choose_method
from wpriv.training.clipping.clip import choose, clipped_sum
from wpriv.training.clipping.ghost import ghost
from wpriv.training.clipping.layer_rules import Copies, mean_loss

CLASSES, RECORDS = 3, 6


class Block(nn.Module):
    """A ConvNeXt block, of which each channel has a scale."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 3, padding=1, groups=width)
        self.norm, self.wide, self.narrow = nn.LayerNorm(width), nn.Linear(width, 8), nn.Linear(8, width)
        self.gamma = nn.Parameter(torch.full((width,), 0.5))

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        h = F.dropout(self.gamma * self.narrow(F.gelu(self.wide(h))), 0.0)
        return x + h.permute(0, 3, 1, 2)


class RootMeanSquare(nn.Module):
    """The normalisation of Llama."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.5, 1.5, width))

    def forward(self, h: Tensor) -> Tensor:
        variance = h.to(torch.float64).pow(2).mean(-1, keepdim=True)
        return self.weight * (h * torch.rsqrt(variance + 1e-6)).to(h.dtype)


class OwnLayerNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        return centred / (centred.var(-1, keepdim=True, unbiased=False) + 1e-5).sqrt() * self.scale + self.shift


class Patches(nn.Module):
    """A small vision transformer's start: a class token, places, and a loss at the first position."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(4, 5, 2, 2)
        self.token, self.places = nn.Parameter(torch.randn(1, 1, 5)), nn.Parameter(torch.randn(1, 5, 5))
        self.mix, self.head = nn.Linear(5, 5), nn.Linear(5, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        count = x.shape[0]
        h = self.patches(x).flatten(2).transpose(1, 2)
        h = torch.cat([self.token.expand(count, -1, -1), h], dim=1) + self.places
        return self.head((h + self.mix(h).tanh()).mean(1) + h[:, 0])


class Words(nn.Module):
    """Words with places; the number of places is that of the records, which must not be taken for each other."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.words, self.places = how, nn.Embedding(20, 5, padding_idx=0), nn.Embedding(RECORDS, 5)
        self.scale, self.mix, self.head = nn.Parameter(torch.ones(1)), nn.Linear(5, 5), nn.Linear(5, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        order = torch.arange(x.shape[1])
        if self.how == "row":
            h = self.words(x) + self.places(order[None]) * self.scale
        elif self.how == "vector":
            h = self.words(x) + self.places(order)
        else:  # the words' weight once more, as the head
            h = self.mix(self.words(x)).tanh().mean(1)
            return F.linear(h, self.words.weight)[:, :CLASSES] * self.scale
        return self.head(self.mix(h).tanh().mean(1))


class Own(nn.Module):
    """Products, sums and other functions of parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Parameter(torch.randn(7, 5)), nn.Parameter(torch.randn(5, CLASSES))
        self.bias, self.slope = nn.Parameter(torch.randn(5)), nn.Parameter(torch.tensor(1.3))
        self.register_buffer("mask", torch.ones(5))

    def forward(self, x: Tensor) -> Tensor:
        h = torch.addmm(self.bias * self.mask, x, self.first).tanh() ** self.slope.clamp(1.0, 1.0)
        h = (x @ self.first / (1 + self.bias.square()) + h) * self.slope
        h = F.prelu(h, self.slope.view(1)) - self.bias
        return torch.einsum("bd,dc->bc", h, self.second)


class Folded(nn.Module):
    """Positions in the first dimension, behind each other for each record."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.head = nn.Parameter(torch.randn(7, 5)), nn.Linear(5, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        rows = torch.stack([x, x.flip(1)], dim=1).flatten(0, 1)
        return self.head((rows @ self.weight).tanh().view(len(x), 2, 5).mean(1))


def normed(norm: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(7, 5), norm, nn.Tanh(), nn.Linear(5, CLASSES))


def sequence(norm: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Unflatten(1, (7, 1)), nn.Linear(1, 5), norm, nn.Flatten(), nn.Linear(35, CLASSES))


def pictures(layer: nn.Module) -> nn.Module:
    return nn.Sequential(layer, nn.Tanh(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, CLASSES))


NETWORKS = {
    "scale per channel": (lambda: pictures(Block()), "images"),
    "RMSNorm of Llama": (lambda: normed(RootMeanSquare(5)), "vectors"),
    "own LayerNorm": (lambda: normed(OwnLayerNorm(5)), "vectors"),
    "own LayerNorm on positions": (lambda: sequence(OwnLayerNorm(5)), "vectors"),
    "weight norm": (lambda: normed(parametrizations.weight_norm(nn.Linear(5, 5))), "vectors"),
    "weight norm, convolution": (lambda: pictures(parametrizations.weight_norm(nn.Conv2d(4, 4, 3))), "images"),
    "orthogonal": (lambda: normed(parametrizations.orthogonal(nn.Linear(5, 5))), "vectors"),
    "orthogonal, by reflections": (lambda: nn.Sequential(parametrizations.orthogonal(nn.Linear(7, 3))), "vectors"),
    "class token and places": (Patches, "images"),
    "embedded places, a row": (lambda: Words("row"), "words"),
    "embedded places, a vector": (lambda: Words("vector"), "words"),
    "tied head": (lambda: Words("tied"), "words"),
    "functions of parameters": (Own, "vectors"),
    "positions in the first dimension": (Folded, "vectors"),
    "bilinear": (lambda: nn.Sequential(Twice(nn.Bilinear(7, 7, CLASSES))), "vectors"),
}


class Twice(nn.Module):
    """A layer of two inputs on the same one."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(x, x)
        return out


def losses(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs, targets, reduction="none")


def built(name: str) -> tuple[nn.Module, Tensor, Tensor]:
    make, kind = NETWORKS[name]
    torch.manual_seed(3)
    model = make().double()
    if kind == "words":
        inputs = torch.randint(20, (RECORDS, RECORDS))
    else:
        inputs = torch.randn(RECORDS, *((7,) if kind == "vectors" else (4, 4, 4)), dtype=torch.float64)
    inputs[1] = inputs[0]
    return model, inputs, torch.tensor([0, 0, 1, 2, 2, 1])


def record_by_record(model: nn.Module, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, float]:
    """The definition, by torch.autograd.grad of each record alone: clipped sum, norms, and the norm (their median)."""
    rows = []
    for x, y in zip(inputs, targets, strict=True):
        trained = [p for p in model.parameters() if p.requires_grad]
        grads = torch.autograd.grad(losses(model(x[None]), y[None]).sum(), trained, allow_unused=True)
        rows.append(torch.cat([(p * 0 if g is None else g).flatten() for g, p in zip(grads, trained, strict=True)]))
    each = torch.stack(rows).detach()
    norms = each.norm(dim=1)
    bound = float(norms.median())
    return (each * (bound / norms).clamp(max=1).unsqueeze(1)).sum(dim=0), norms, bound


def flat(parts: list[Tensor]) -> Tensor:
    return torch.cat([part.flatten() for part in parts])


@pytest.mark.parametrize(
    ("name", "method"), nightly.sharded(itertools.product(NETWORKS, ["ghost", "vmap", "loop", "auto"]), 3)
)
def test_the_sum_and_the_norms_are_those_of_a_literal_loop(name, method):
    model, inputs, targets = built(name)
    for count in (RECORDS, 1):
        wanted, norms, bound = record_by_record(model, inputs[:count], targets[:count])
        found = clipped_sum(
            model, losses, inputs[:count], targets[:count], norm=bound, adjacency="add-remove", method=method
        )
        assert float((flat(found.total.parts) - wanted).norm()) <= 1e-10 * float(wanted.norm())
        torch.testing.assert_close(found.norms, norms, rtol=1e-6, atol=0.0)
    empty = clipped_sum(model, losses, inputs[:0], targets[:0], norm=1.0, adjacency="add-remove", method=method)
    assert not flat(empty.total.parts).any()


@pytest.mark.parametrize("name", NETWORKS)
def test_no_record_adds_more_than_the_norm_in_single_precision(name):
    model, inputs, targets = built(name)
    model, inputs = model.float(), inputs if inputs.dtype == torch.int64 else inputs.float()
    for one in torch.eye(RECORDS)[:3]:
        found = clipped_sum(
            model, losses, inputs, targets, norm=1e-3, adjacency="add-remove", method="ghost", weights=one
        )
        assert 0 < float(flat(found.total.parts).double().norm()) <= 1e-3


@pytest.mark.parametrize("name", NETWORKS)
def test_nothing_stays_marked_after_a_pass_and_the_model_is_as_before(name):
    model, inputs, targets = built(name)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    first = ghost(model, losses, inputs, targets, 1.0, None)
    second = ghost(model, losses, inputs, targets, 1.0, None)
    assert all(torch.equal(one, two) for one, two in zip(first.parts, second.parts, strict=True))
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_several_copies_of_a_record_are_clipped_as_one():
    model, inputs, targets = built("own LayerNorm")
    pairs = torch.stack([inputs, inputs.flip(1)], dim=1)
    copied, loss = Copies(model, 2), mean_loss(losses, 2)
    sums = [
        clipped_sum(copied, loss, pairs, targets, norm=0.1, adjacency="add-remove", method=method)
        for method in ("ghost", "loop")
    ]
    torch.testing.assert_close(flat(sums[0].total.parts), flat(sums[1].total.parts), rtol=1e-10, atol=1e-13)


class TimeFirst(nn.Module):
    """A parameter that meets the records where they lie in the second dimension."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.head = nn.Parameter(torch.ones(5)), nn.Linear(5, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        h = x.unsqueeze(2).expand(-1, -1, 5).transpose(0, 1)
        return self.head((h * self.scale).transpose(0, 1).mean(1))


def test_records_outside_the_first_dimension_are_left_to_another_method():
    torch.manual_seed(1)
    model, inputs, targets = TimeFirst().double(), torch.randn(7, 7).double(), torch.zeros(7, dtype=torch.int64)
    with pytest.raises(Unsupported, match="mul\\(\\) takes a parameter and records outside the first dimension"):
        ghost(model, losses, inputs, targets, 1.0, None)
    wanted, _, bound = record_by_record(model, inputs, targets)
    found = clipped_sum(model, losses, inputs, targets, norm=bound, adjacency="add-remove")
    assert float((flat(found.total.parts) - wanted).norm()) <= 1e-10 * float(wanted.norm())


@pytest.mark.parametrize(("slow", "choice"), [("vmap", "loop"), ("loop", "vmap"), ("none", "vmap")])
def test_auto_takes_the_method_whose_step_is_the_shortest(slow, choice, monkeypatch):
    model = TimeFirst().double()
    seconds = {"ghost": 1.0, "vmap": 1.0, "loop": 1.2} | {slow: 9.0}
    monkeypatch.setattr(choose_method._Trial, "_seconds", lambda trial, name, inputs, targets: seconds[name])
    state = torch.get_rng_state()
    assert choose(model, losses, torch.zeros(0, 7).double(), torch.zeros(0, dtype=torch.int64)) == choice
    assert torch.equal(state, torch.get_rng_state())


def gpt2(**more: object) -> nn.Module:
    transformers = pytest.importorskip("transformers")
    sizes = {"vocab_size": 40, "n_positions": 8, "n_embd": 8, "n_layer": 1, "n_head": 2, "bos_token_id": 0}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, eos_token_id=0, **more))


def bert(attention: str) -> nn.Module:
    transformers = pytest.importorskip("transformers")
    sizes = {"vocab_size": 40, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    sizes |= {"intermediate_size": 8, "max_position_embeddings": 8, "attn_implementation": attention}
    return transformers.BertForSequenceClassification(transformers.BertConfig(**sizes, num_labels=CLASSES))


class Tokens(nn.Module):
    """A network of transformers on tokens, with or without a mask, and its outputs at the last position."""

    def __init__(self, model: nn.Module, masked: bool) -> None:
        super().__init__()
        self.model, self.masked = model, masked

    def forward(self, x: Tensor) -> Tensor:
        more = {"attention_mask": (x > 3).long()} if self.masked else {}
        logits: Tensor = self.model(input_ids=x, **more).logits
        return logits if logits.dim() == 2 else logits[:, -1]


TRANSFORMERS = {
    "GPT-2": lambda: Tokens(gpt2(), False),
    "GPT-2 with a mask": lambda: Tokens(gpt2(), True),
    "BERT": lambda: Tokens(bert("sdpa"), True),
    "BERT, eager": lambda: Tokens(bert("eager"), True),
}


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_gpt2_and_bert_are_clipped_by_book_keeping_as_a_literal_loop_clips_them(name):
    torch.manual_seed(2)
    model = TRANSFORMERS[name]().double().eval()
    inputs, targets = torch.randint(4, 40, (4, 8)), torch.tensor([0, 1, 2, 1])
    inputs[:, -2] = 1  # hidden by the mask
    wanted, norms, bound = record_by_record(model, inputs, targets)
    assert choose(model, losses, inputs, targets, classes=CLASSES) == "ghost"
    found = clipped_sum(model, losses, inputs, targets, norm=bound, adjacency="add-remove", method="ghost")
    assert float((flat(found.total.parts) - wanted).norm()) <= 1e-10 * float(wanted.norm())
    torch.testing.assert_close(found.norms, norms, rtol=1e-6, atol=0.0)


class Forms(nn.Module):
    """Further forms of calls, by which functions of torch meet a parameter."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.scale, self.mix, self.head = how, nn.Parameter(torch.rand(7)), nn.Linear(7, 7), nn.Linear(7, 3)

    def forward(self, x: Tensor) -> Tensor:
        if self.how == "an empty index":
            return self.head(x[()] * self.scale)
        if self.how == "arguments by name":
            return self.head((torch.unsqueeze(input=x, dim=1) * self.scale).squeeze(1))
        if self.how == "an embedding by name":
            return self.head(x + F.embedding(input=torch.arange(1), weight=self.scale[None]))
        if self.how == "a checkpoint":
            return self.head(checkpoint(lambda rows: self.mix(rows) * self.scale, x, use_reentrant=False))
        return self.head(torch.func.vmap(lambda row: row * self.scale)(x))


@pytest.mark.parametrize(
    "how", ["an empty index", "arguments by name", "an embedding by name", "a checkpoint", "a batched function"]
)
def test_further_forms_of_calls_have_the_literal_sum_and_no_bare_error(how):
    torch.manual_seed(0)
    model = Forms(how).double()
    require_literal(model, losses, torch.randn(RECORDS, 7).double(), torch.randint(CLASSES, (RECORDS,)))


class Masked(nn.Module):
    """A parameter on the numbers that a mask selects: all of made-up records, and fewer of some real ones."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.scale, self.head = how, nn.Parameter(torch.tensor(0.7)), nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        mask = x > -0.5
        if self.how == "index":
            chosen = x[mask]
        elif self.how == "masked_select":
            chosen = x.masked_select(mask)
        elif self.how == "nonzero":
            chosen = x[mask.nonzero(as_tuple=True)]
        elif self.how == "slice":
            order = (~mask).reshape(-1).long().argsort(stable=True)
            chosen = x.reshape(1, -1).gather(1, order[None]).view(-1)[: int(mask.sum())]
        else:
            chosen = x.reshape(-1).take(torch.where(mask.reshape(-1))[0])
        return self.head(x.masked_scatter(mask, chosen * self.scale))


@pytest.mark.parametrize("how", ["index", "masked_select", "nonzero", "take", "slice"])
def test_rows_that_a_mask_selects_are_not_taken_for_those_of_other_records(how):
    """The batch after the first has as many selected numbers as records or a multiple, but not the same of each."""
    torch.manual_seed(0)
    model, y = Masked(how).double(), torch.zeros(2, dtype=torch.int64)
    x = torch.rand(2, 6).double()
    require_literal(model, losses, x, y)
    x[0] *= 50
    x[0, :2] = -1
    require_literal(model, losses, x, y)
