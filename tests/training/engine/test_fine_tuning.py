"""Training from weights in a file, with frozen parameters and low-rank changes: against the definition by autograd."""

from __future__ import annotations

import hashlib
import math
import pickle
import types

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import wpriv
from tests.training.clipping.literal import require_literal
from tests.training.engine.models import cross_entropy
from wpriv.config.train_parts import LowRank, Weights
from wpriv.errors import MissingResource, Unsupported, UsageError
from wpriv.training.clipping.clip import choose, clipped_sum
from wpriv.training.clipping.probe_model import check_modules
from wpriv.training.engine.fine_tuning import AdaptedLinear, adapted, load, matching, prepared, read


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)).double()


def test_an_adapted_layer_begins_as_the_layer_itself_and_is_base_plus_the_scaled_product_later():
    torch.manual_seed(0)
    base = nn.Linear(6, 5)
    layer, x = AdaptedLinear(base, 2, 0.5), torch.randn(4, 6)
    assert torch.equal(layer(x), base(x))
    with torch.no_grad():
        layer.lora_B.weight.normal_()
    weight = base.weight + 0.5 * layer.lora_B.weight @ layer.lora_A.weight
    torch.testing.assert_close(layer(x), x @ weight.T + base.bias, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(layer.weight, weight)


def test_only_the_low_rank_matrices_and_the_layers_left_out_are_trained():
    model = adapted(network(), LowRank(rank=2, layers=["0"]))
    trained = [name for name, p in model.named_parameters() if p.requires_grad]
    assert trained == ["0.lora_A.weight", "0.lora_B.weight", "2.weight", "2.bias"]
    # a second time changes nothing
    assert [name for name, _ in adapted(model, LowRank(rank=2, layers=["0"])).named_parameters()] == [
        "0.base.weight",
        "0.base.bias",
        *trained,
    ]


@pytest.mark.parametrize("method", ["ghost", "vmap", "loop"])
def test_the_clipped_sum_of_low_rank_matrices_is_that_of_a_loop_over_records(method):
    model = adapted(network(), LowRank(rank=2, alpha=3.0))
    with torch.no_grad():
        for p in model.parameters():
            if p.requires_grad:
                p.normal_()
    inputs, targets = torch.randn(7, 6, dtype=torch.float64), torch.randint(3, (7,))
    trained = [p for p in model.parameters() if p.requires_grad]
    wanted = [torch.zeros_like(p) for p in trained]
    for x, y in zip(inputs, targets, strict=True):
        grads = torch.autograd.grad(cross_entropy(model(x[None]), y[None]).sum(), trained)
        length = float(torch.cat([grad.flatten() for grad in grads]).norm())
        wanted = [total + grad * min(1.0, 0.6 / length) for total, grad in zip(wanted, grads, strict=True)]
    settings = {"norm": 0.6, "adjacency": "add-remove", "method": method}
    for part, other in zip(
        clipped_sum(model, cross_entropy, inputs, targets, **settings).total.parts, wanted, strict=True
    ):
        torch.testing.assert_close(part, other, rtol=1e-10, atol=1e-12)
    assert choose(model, cross_entropy, inputs[:0], targets[:0], classes=3) == "ghost"


@pytest.mark.parametrize("form", ["safetensors", "state_dict", "model.pt"])
def test_weights_are_read_from_every_form_of_file(tmp_path, form):
    source = network()
    path = tmp_path / ("w.safetensors" if form == "safetensors" else "w.pt")
    if form == "safetensors":
        save_file(source.state_dict(), path)
    else:
        torch.save(source.state_dict() if form == "state_dict" else {"weights": source.state_dict(), "step": 3}, path)
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    last = model[2].weight.clone()
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    load(model, Weights(file=str(path), sha256=digest, skip="2.*"))
    assert torch.equal(model[0].weight, source[0].weight)
    assert torch.equal(model[2].weight, last)
    load(model, Weights(file=str(path)))
    assert torch.equal(model[2].weight, source[2].weight)


def test_files_that_do_not_fit_are_refused_by_the_names_of_parameters(tmp_path):
    path = tmp_path / "w.safetensors"
    save_file({"0.weight": torch.zeros(5, 6), "0.bias": torch.zeros(4), "9.x": torch.zeros(1)}, path)
    with pytest.raises(
        UsageError, match=r"2.weight is missing; 2.bias is missing; 0.bias has the shape \[4\].* 1 more"
    ):
        load(network(), Weights(file=str(path)))
    with pytest.raises(UsageError, match=r"init: skip: no parameters fit '3\.\*'"):
        load(network(), Weights(file=str(path), skip=["3.*"]))
    with pytest.raises(UsageError, match="digest"):
        read(path, "0" * 64)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda weight: weight * math.nan, "not finite"),
        (lambda weight: weight.to(torch.complex64), "complex64"),
        (lambda weight: weight.to(torch.int64), "int64"),
        (lambda weight: weight.to_sparse(), "sparse"),
    ],
)
def test_weights_that_are_no_numbers_of_the_network_are_refused(tmp_path, spoil, words):
    weights = network().state_dict()
    torch.save(weights | {"0.weight": spoil(weights["0.weight"])}, tmp_path / "w.pt")
    with pytest.raises(UsageError, match=f"0.weight holds .*{words}"):
        load(network(), Weights(file=str(tmp_path / "w.pt")))


@pytest.mark.parametrize("form", ["model.pt", "safetensors"])
def test_a_private_training_begins_from_weights_trained_without_privacy_only_where_their_records_are_public(
    tmp_path, form
):
    weights, path = network().state_dict(), tmp_path / f"w.{form.removeprefix('model.')}"
    if form == "model.pt":
        torch.save({"weights": weights, "clear": True}, path)
    else:
        save_file(weights, path, metadata={"privacy": "none"})
    with pytest.raises(UsageError, match=r"without privacy.* records: public"):
        load(network(), Weights(file=str(path)), private=True)
    load(network(), Weights(file=str(path), records="public"), private=True)
    load(network(), Weights(file=str(path)), private=False)


@pytest.mark.parametrize("form", ["model.pt", "safetensors"])
def test_a_private_training_begins_from_weights_trained_with_privacy_on_records_that_are_declared(tmp_path, form):
    weights, path = network().state_dict(), tmp_path / f"w.{form.removeprefix('model.')}"
    if form == "model.pt":
        torch.save({"weights": weights, "clear": False}, path)
    else:
        save_file(weights, path, metadata={"privacy": "training"})
    with pytest.raises(UsageError, match="records: other"):
        load(network(), Weights(file=str(path)), private=True)
    for records in ("other", "public"):
        load(network(), Weights(file=str(path), records=records), private=True)


class Harmful:
    def __reduce__(self):
        return (print, ("code of the file was run",))


def test_damaged_files_and_files_with_code_are_refused_and_nothing_is_run(tmp_path, capsys):
    for name, content in [
        ("a.safetensors", b"1234"),
        ("a.pt", b"nothing"),
        ("b.pt", pickle.dumps(Harmful())),
        ("c.pt", b""),
    ]:
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UsageError, match=name):
            read(tmp_path / name)
    torch.save([torch.zeros(2)], tmp_path / "d.pt")
    with pytest.raises(UsageError, match="no state_dict"):
        read(tmp_path / "d.pt")
    with pytest.raises(MissingResource, match=r"missing\.pt"):
        read(tmp_path / "missing.pt")
    assert "code of the file" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (LowRank(rank=5), "rank 5 is no lower"),
        (LowRank(rank=1, layers=["head"]), "no linear layers fit 'head'"),
    ],
)
def test_low_rank_changes_that_do_not_fit_are_refused(plan, words):
    with pytest.raises(UsageError, match=words):
        adapted(network(), plan)


def test_patterns_choose_names_in_the_order_of_the_network():
    assert matching(["a.w", "b.w", "a.b"], ["*.b", "a.*"], "freeze", "parameters") == ["a.w", "a.b"]


class Backbone(nn.Module):
    """T5: a backbone with BatchNorm and dropout, and a new head."""

    def __init__(self) -> None:
        super().__init__()
        self.b = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(), nn.AdaptiveAvgPool2d(4))
        self.head = nn.Linear(128, 4)

    def forward(self, x):
        return self.head(self.b(x).flatten(1))


def test_freezing_a_whole_layer_puts_it_into_evaluation_mode_for_all_epochs_and_says_so(tmp_path, capsys):
    torch.manual_seed(0)
    model = Backbone()
    model.b[1].running_mean.normal_()
    before = {name: value.clone() for name, value in model.b.state_dict().items()}
    x, y = torch.randn(64, 3, 8, 8), torch.randint(4, (64,))
    options = {"eps": 8, "delta": 1e-3, "batch": 16, "epochs": 3, "lr": 0.1, "freeze": "b.*", "seed": 1}
    trained = wpriv.train(model, (x, y), test=(x, y), out=tmp_path / "out", **options)
    assert all(torch.equal(value, before[name]) for name, value in model.b.state_dict().items())
    remarks = trained.statement["remarks"]
    assert remarks == [
        "516 of 756 weights are trained: head.weight, head.bias",
        "frozen layers stay in evaluation mode (no dropout, normalisation by fixed statistics): b",
    ]
    assert [line for line in capsys.readouterr().err.splitlines() if line[7:] in remarks] == [
        f"wpriv: {line}" for line in remarks
    ]
    assert "evaluation mode" in (tmp_path / "out" / "statement.md").read_text()


def test_a_loop_that_sets_training_mode_leaves_frozen_layers_in_evaluation_mode(tmp_path):
    model = Backbone()
    x, y = torch.randn(32, 3, 8, 8), torch.randint(4, (32,))
    options = {"sigma": 1.0, "delta": 1e-3, "batch": 8, "steps": 2, "lr": 0.1, "freeze": "b.*", "seed": 1}
    with wpriv.training_loop(model, (x, y), test=(x, y), out=tmp_path / "out", **options) as run:
        for _ in run:
            model.train()
            run.step()
    assert int(model.b[1].num_batches_tracked) == 0


def test_a_backbone_in_evaluation_mode_stays_in_it_over_several_epochs(tmp_path):
    model = Backbone()
    model.b.eval()
    x, y = torch.randn(32, 3, 8, 8), torch.randint(4, (32,))
    options = {"sigma": 1.0, "delta": 1e-3, "batch": 8, "epochs": 2, "lr": 0.1, "seed": 1, "progress": False}
    wpriv.train(model, (x, y), test=(x, y), out=tmp_path / "out", **options)
    assert int(model.b[1].num_batches_tracked) == 0


def test_the_clipped_sum_with_a_frozen_backbone_is_the_literal_one():
    torch.manual_seed(0)
    model = prepared(Backbone().double(), types.SimpleNamespace(init=None, freeze=["b.*"], lora=None))
    require_literal(model, cross_entropy, torch.randn(8, 3, 8, 8, dtype=torch.float64), torch.randint(4, (8,)))


def test_batch_norm_that_is_frozen_by_hand_is_refused_with_its_evaluation_mode_as_the_way_out():
    model = nn.Sequential(nn.BatchNorm1d(3).requires_grad_(False), nn.Linear(3, 1))
    with pytest.raises(Unsupported, match=r"'0' \(BatchNorm1d\).*weights are not trained: call its eval\(\)"):
        check_modules(model)
