"""Book-keeping of layers beyond the linear one against autograd on one record after another, path by path."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from tests.training.engine.networks import (
    CLASSES,
    NETWORKS,
    RECORDS,
    WORDS,
    Cell,
    Take,
    Through,
    head,
    images,
    losses,
    sequences,
    volumes,
    words,
)
from wpriv.errors import Unsupported
from wpriv.training.clipping import conv_rules
from wpriv.training.clipping.clip import choose, clipped_sum
from wpriv.training.clipping.conv_rules import Geometry, Windows
from wpriv.training.clipping.example_gradients import Automatic, bound, clip_factors, explicit
from wpriv.training.clipping.ghost import ghost, vmap
from wpriv.training.engine import batch_gradient


class Crossed(nn.Module):
    """Attention of the first positions to all, with masks."""

    def __init__(self, weights: bool = False, bias: bool = True, **given: int):
        super().__init__()
        self.weights = weights
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True, bias=bias, **given)
        self.wide = nn.Linear(4, given["kdim"]) if given else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        allowed = torch.ones(2, x.shape[1], dtype=torch.bool).tril(2)
        padding = torch.zeros(x.shape[:2], dtype=torch.bool)
        padding[:, 1] = x[:, 1, 0] > 0
        keys = self.wide(x)
        out, shares = self.attention(
            x[:, :2], keys, keys, padding, need_weights=self.weights, attn_mask=~allowed, average_attn_weights=False
        )
        return torch.cat([out.flatten(1), shares.flatten(1)], dim=1) if self.weights else out


class FromState(nn.Module):
    """A recurrent layer whose first state is made from the record."""

    def __init__(self, kind: type[nn.RNNBase]):
        super().__init__()
        self.start, self.cells = nn.Linear(4, 3), kind(4, 3, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        state = self.start(x.mean(1)).unsqueeze(0)
        given = (state, state.tanh()) if isinstance(self.cells, nn.LSTM) else state
        out, last = self.cells(x, given)
        final = last[1] if isinstance(last, tuple) else last
        return torch.cat([out.flatten(1), final[0]], dim=1)


def tied_language_model() -> nn.Module:
    table, bend, out = nn.Embedding(WORDS, 4), nn.Linear(4, 4), nn.Linear(4, WORDS, bias=False)
    out.weight = table.weight
    return Through(lambda own, x: own.out(own.bend(own.table(x)).tanh()), table=table, bend=bend, out=out)


def siamese() -> nn.Module:
    return Through(
        lambda own, x: torch.cat([own.conv(x), own.conv(x.flip(2)).tanh()], dim=1),
        conv=nn.Conv2d(4, 5, 3, stride=2, padding=1),
    )


MORE: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor]]] = {
    "attention with masks": (lambda: head(Crossed()), sequences),
    "attention that gives its weights, no bias": (lambda: head(Crossed(True, False)), sequences),
    "attention with keys of another width": (lambda: head(Crossed(kdim=6, vdim=6)), sequences),
    "lstm from a state": (lambda: head(FromState(nn.LSTM)), sequences),
    "gru from a state": (lambda: head(FromState(nn.GRU)), sequences),
    "gru without bias, two ways": (
        lambda: head(Take(nn.GRU(4, 3, 2, bias=False, bidirectional=True, batch_first=True))),
        sequences,
    ),
    "rnn with relu": (lambda: head(Take(nn.RNN(4, 3, nonlinearity="relu", batch_first=True))), sequences),
    "gru cell without bias": (lambda: head(Cell(nn.GRUCell(4, 3, bias=False))), sequences),
    "tied embedding and outputs": (lambda: head(tied_language_model()), words),
    "convolution called twice": (lambda: head(siamese()), images),
    "prelu of one slope": (lambda: head(nn.Conv2d(4, 3, 3), nn.PReLU()), images),
    "conv 2d, whole steps": (lambda: head(nn.Conv2d(4, 6, 4, 2, 1, groups=2)), images),
    "conv 2d, a pixel in two": (lambda: head(nn.Conv2d(4, 6, 1, 2)), images),
    "conv 2d, dilated steps": (lambda: head(nn.Conv2d(4, 6, (3, 2), (2, 1), (3, 2), dilation=(3, 2))), images),
    "conv 3d, circular": (lambda: head(nn.Conv3d(2, 3, 2, padding=1, padding_mode="circular")), volumes),
    "transposed conv 3d, options": (
        lambda: head(nn.ConvTranspose3d(2, 4, 2, stride=2, padding=1, output_padding=1, groups=2)),
        volumes,
    ),
    "transposed conv 1d, options": (lambda: head(nn.ConvTranspose1d(5, 4, 3, 2, 1, 1, dilation=2)), sequences),
}
# layers whose parameters take part by functions that no rule sees, or of two inputs
SLOW = """embedding bag, mean|embedding bag, sum, padding|embedding bag, max|attention with extra keys|bilinear
weight norm|weight norm by hooks|spectral norm, evaluation mode|orthogonal weight|weight used again, transposed
weight used again, as it is|bias used again|norm of a weight used|weight used, layer never called
embedding compared with its own table|kernel of a conv used again|layer called by keyword
layer with another forward function|parameter of the module|a layer without use|lstm, projected
layer within a gradient hook|spectral norm|checkpointing, reentrant|weight from a parameter once"""


def flat(parts: list[Tensor]) -> Tensor:
    return torch.cat([part.flatten() for part in parts])


def one_by_one(model: nn.Module, inputs: Tensor, targets: Tensor, norm: float) -> tuple[Tensor, Tensor]:
    """The clipped sum and the norms by autograd on each record alone."""
    trained = [p for p in model.parameters() if p.requires_grad]
    rows = []
    for x, y in zip(inputs, targets, strict=True):
        loss = losses(model(x[None]), y[None]).sum()
        rows.append(flat(list(torch.autograd.grad(loss, trained, allow_unused=True, materialize_grads=True))))
    lengths = torch.stack(rows).norm(dim=1)
    return (torch.stack(rows) * (norm / lengths).clamp(max=1.0).unsqueeze(1)).sum(dim=0), lengths


def built(make: Callable[[], nn.Module], batch: Callable[[], Tensor]) -> tuple[nn.Module, Tensor, Tensor]:
    torch.manual_seed(3)
    model, inputs = make(), batch()
    with torch.no_grad():
        model(inputs)  # gives lazy layers their shapes
    inputs = inputs.double() if inputs.is_floating_point() else inputs
    return model.double(), inputs, torch.randint(CLASSES, (RECORDS,))


@pytest.mark.parametrize("name", MORE)
def test_book_keeping_gives_the_sum_and_the_norms_of_autograd_on_each_record(name):
    model, inputs, targets = built(*MORE[name])
    wanted, lengths = one_by_one(model, inputs, targets, 0.3)
    assert (lengths > 0.3).any(), "nothing is clipped"
    clipped = ghost(model, losses, inputs, targets, 0.3, None)
    torch.testing.assert_close(flat(clipped.parts), wanted, rtol=1e-9, atol=1e-11)
    norms = torch.stack(list(clipped.squares.values())).sum(dim=0).sqrt()
    torch.testing.assert_close(norms, lengths, rtol=1e-9, atol=1e-11)


@pytest.mark.slow
@pytest.mark.parametrize("path", ["pairs", "pairs and windows", "torch", "numpy"])
@pytest.mark.parametrize("name", [name for name in (*NETWORKS, *MORE) if "conv" in name and "kernel" not in name])
def test_every_path_of_a_convolution_gives_the_same(name, path, monkeypatch):
    monkeypatch.setattr(conv_rules, "_pairing_is_cheaper", lambda windows: path.startswith("pairs"))
    monkeypatch.setattr(conv_rules, "full_convolutions", lambda: path == "pairs")
    monkeypatch.setattr(conv_rules, "SMALL", 2**60 if path == "numpy" else 0)
    monkeypatch.setattr(conv_rules, "CPU_VALUES", 2**9)  # several chunks of records, the last of them smaller
    monkeypatch.setattr(conv_rules, "PIECE", 2**9)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    model, inputs, targets = built(*(MORE[name] if name in MORE else NETWORKS[name][:2]))
    wanted, lengths = one_by_one(model, inputs, targets, 0.3)
    clipped = ghost(model, losses, inputs, targets, 0.3, None)
    torch.testing.assert_close(flat(clipped.parts), wanted, rtol=1e-9, atol=1e-11)
    norms = torch.stack(list(clipped.squares.values())).sum(dim=0).sqrt()
    torch.testing.assert_close(norms, lengths, rtol=1e-9, atol=1e-11)


@pytest.mark.slow
@pytest.mark.parametrize("path", ["torch", "numpy"])
def test_a_record_clipped_by_products_of_its_windows_is_not_longer_than_the_norm(path, monkeypatch):
    monkeypatch.setattr(conv_rules, "_pairing_is_cheaper", lambda windows: False)
    monkeypatch.setattr(conv_rules, "SMALL", 2**60 if path == "numpy" else 0)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    torch.manual_seed(5)
    model, inputs = head(nn.Conv2d(4, 24, 4, 2, 1), nn.Tanh(), nn.Conv2d(24, 6, 3, 1, 1)), images(4, 12)
    model(inputs)
    for k, x in enumerate(inputs):
        x = x[None] * 10.0 ** (k - 1)
        parts = ghost(model, losses, x, torch.tensor([k % CLASSES]), 0.7e-3, None).parts
        assert 0.69e-3 < flat(parts).double().norm() <= 0.7e-3  # norm in float64


@pytest.mark.slow
def test_no_common_network_is_left_to_the_slow_methods():
    slow = set(SLOW.replace("\n", "|").split("|"))
    assert slow < set(NETWORKS)
    for name in NETWORKS.keys() - slow:
        make, batch, training, _ = NETWORKS[name]
        model, inputs, targets = built(make, batch)
        ghost(model.train(training), losses, inputs, targets, 1.0, None)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["attention", "lstm, two ways, two layers", "gru cell", "tied embedding", "rms norm"])
def test_layers_of_several_maps_pass_the_trial(name):
    model, inputs, targets = built(*NETWORKS[name][:2])
    assert choose(model, losses, inputs, targets) == "ghost"


@pytest.mark.slow
def test_a_transformer_with_dropout_is_clipped_by_book_keeping_in_training():
    torch.manual_seed(0)
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 4, 16, batch_first=True), 2)
    model = nn.Sequential(nn.Embedding(WORDS, 8), encoder, nn.Flatten(), nn.Linear(40, CLASSES))
    assert choose(model, losses, words(), torch.zeros(RECORDS, dtype=torch.long)) == "ghost"


@pytest.mark.parametrize("seed", range(10))
def test_windows_that_cancel_cannot_hide_the_length_of_a_kernels_gradient(seed):
    """Two windows are opposite up to the last digits: products of pairs vanish, and the gradient does not."""
    generator = torch.Generator().manual_seed(seed)
    half = torch.randn(1, 32, 1, 2, generator=generator)
    h = torch.cat([half, -half * (1 + 1e-6 * torch.randn(half.shape, generator=generator))], dim=3)
    delta = torch.randn(1, 48, 1, 1, generator=generator).expand(1, 48, 1, 2)
    windows = Windows(Geometry(32, 48, 1, (1, 2), (1, 2), (0, 0), (1, 1)), h, delta)
    squares = windows.paired_squares(torch.finfo(torch.float32).eps)
    length = windows.weighted(torch.ones(1)).double().norm()
    assert 0 < length <= squares.double().sqrt()
    assert explicit(windows.gradients()).squares.double() <= squares.double()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("method", ["ghost", "vmap", "loop"])
def test_under_autocast_sums_keep_full_precision_and_no_example_exceeds_the_norm(method, dtype):
    torch.manual_seed(0)
    model, inputs = nn.Sequential(nn.Linear(6, 40), nn.Tanh(), nn.Linear(40, 3)), torch.randn(8, 6)
    targets = torch.randint(3, (8,))
    with torch.autocast("cpu", dtype=dtype):
        for one in torch.eye(8):
            clipped = clipped_sum(
                model, losses, inputs, targets, norm=0.1, adjacency="add-remove", method=method, weights=one
            )
            assert all(part.dtype == torch.float32 for part in clipped.total.parts)
            assert flat(clipped.total.parts).double().norm() <= 0.1


def test_convolutions_set_to_half_precision_are_not_used_where_the_norm_comes_from_elsewhere(monkeypatch):
    """A norm of exact products does not bound a sum that is computed in bfloat16."""
    settings = getattr(torch.backends.mkldnn, "conv", None)
    if not hasattr(settings, "fp32_precision"):
        pytest.skip("this version of torch has no such setting")
    monkeypatch.setattr(conv_rules, "_pairing_is_cheaper", lambda windows: True)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(8, 8, 3), nn.Flatten(), nn.Linear(8 * 16, 3))
    inputs, targets, before = 10 * torch.randn(4, 8, 6, 6), torch.zeros(4, dtype=torch.long), settings.fp32_precision
    settings.fp32_precision = "bf16"
    try:
        for one in torch.eye(4):
            parts = ghost(model, losses, inputs, targets, 0.1, one).parts
            assert flat(parts).double().norm() <= 0.1
    finally:
        settings.fp32_precision = before


@pytest.mark.parametrize(
    ("layer", "batch", "why"),
    [
        (lambda: Take(nn.LSTM(4, 3, batch_first=True, proj_size=2)), sequences, "projections"),
        (lambda: Take(nn.RNN(4, 3)), lambda: torch.randn(RECORDS, 4), "sequences of one length"),
    ],
)
def test_what_has_no_rule_is_refused_by_book_keeping_with_the_reason(layer, batch, why):
    model, inputs = nn.Sequential(layer(), nn.Flatten()), batch()
    with pytest.raises(Unsupported, match=why):
        ghost(model, losses, inputs, torch.zeros(RECORDS, dtype=torch.long), 1.0, None)
    assert "forward" not in vars(model[0].inner)


def test_vmap_and_book_keeping_agree_on_an_lstm_in_single_precision():
    torch.manual_seed(1)
    model = nn.Sequential(Take(nn.LSTM(4, 8, batch_first=True)), nn.Flatten(), nn.Linear(40, CLASSES))
    inputs, targets = torch.randn(RECORDS, 5, 4), torch.randint(CLASSES, (RECORDS,))
    sums = [flat(method(model, losses, inputs, targets, 0.2, None).parts) for method in (ghost, vmap)]
    torch.testing.assert_close(*sums, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("count", [1, 512, 513, 784, 36_864, 1_000_003])
@pytest.mark.parametrize("norm", [1e-3, 1.0, Automatic()])
def test_many_numbers_of_one_size_stay_within_the_norm_although_each_addition_rounds_the_same_way(count, norm):
    sizes = torch.linspace(0.5, 1.5, 7).view(-1, 1)
    grads = sizes.expand(7, count).contiguous()
    share = explicit(grads)
    lengths = (grads.double() * clip_factors({"weight": share.squares}, norm).double().unsqueeze(1)).norm(dim=1)
    assert (lengths <= bound(norm)).all()
    torch.testing.assert_close(share.squares.double(), count * sizes[:, 0].double().square(), rtol=1e-5, atol=0.0)
    if not isinstance(norm, Automatic):
        (part,) = batch_gradient.clip([grads[3]], norm)
        assert part.double().norm() <= norm
