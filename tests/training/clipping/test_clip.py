"""Clipped sums against a literal loop over examples, and against what clipping promises."""

from __future__ import annotations

import gc
import itertools
import math
import weakref

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from tests import nightly
from tests.training.engine.models import CLASSES, EXAMPLES, NAMES, case, cross_entropy, head
from wpriv.errors import Unsupported, UsageError
from wpriv.training.clipping import choose_method, layer_rules
from wpriv.training.clipping.clip import Clipped, choose, clipped_sum
from wpriv.training.clipping.ghost import ghost


def clipped(
    model: nn.Module, inputs: Tensor, targets: Tensor, method: str = "ghost", norm: float = 0.7, **more: object
) -> Clipped:
    return clipped_sum(
        model, cross_entropy, inputs, targets, **{"norm": norm, "adjacency": "add-remove", "method": method, **more}
    )


def literal(
    model: nn.Module, inputs: Tensor, targets: Tensor, norm: float, weights: Tensor
) -> tuple[list[Tensor], Tensor]:
    """The definition, written out without anything of wpriv: sum of w g min(1, C/|g|), and the norms."""
    trained = [p for p in model.parameters() if p.requires_grad]
    total, norms = [torch.zeros_like(p) for p in trained], []
    for x, y, weight in zip(inputs, targets, weights, strict=True):
        model.zero_grad()
        cross_entropy(model(x[None]), y[None]).sum().backward()
        grads = [torch.zeros_like(p) if p.grad is None else p.grad.to_dense() for p in trained]
        length = math.sqrt(sum(float((g * g).sum()) for g in grads))
        total = [t + weight * g * min(1.0, norm / length) for t, g in zip(total, grads, strict=True)]
        norms.append(length)
    return total, torch.tensor(norms, dtype=torch.float64)


def flat(parts: list[Tensor]) -> Tensor:
    return torch.cat([part.flatten() for part in parts])


@pytest.mark.slow
@pytest.mark.parametrize(("name", "method"), nightly.sharded(itertools.product(NAMES, ["ghost", "vmap", "loop"]), 4))
def test_every_method_gives_the_sum_that_a_literal_loop_gives(name, method):
    if name == "embedding, sparse" and method == "vmap":
        pytest.skip("torch.func knows no sparse gradients")
    model, inputs, targets = case(name)
    weights = torch.tensor([1.0, 1.0, 0.0, 1.0, 0.0])
    found = clipped(model, inputs, targets, method, weights=weights)
    wanted, norms = literal(model, inputs, targets, 0.7, weights)
    assert (norms > 0.7).any(), "nothing is clipped, so that nothing is tested"
    trained = [p for p in model.parameters() if p.requires_grad]
    assert [part.shape for part in found.total.parts] == [p.shape for p in trained]
    torch.testing.assert_close(flat(found.total.parts), flat(wanted), rtol=1e-11, atol=1e-13)
    torch.testing.assert_close(found.norms, norms, rtol=1e-11, atol=0.0)
    torch.testing.assert_close(found.losses, cross_entropy(model(inputs), targets))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "method"),
    nightly.sharded([("residual", "vmap"), ("residual", "loop"), *((name, "ghost") for name in NAMES)], 2),
)
def test_no_example_adds_more_than_the_norm_in_single_precision(name, method):
    model, inputs, targets = case(name)
    model = model.float()
    inputs = inputs.float() if inputs.is_floating_point() else inputs
    for norm, one in zip((1e-4, 0.03, 0.7), torch.eye(EXAMPLES), strict=False):
        part = flat(clipped(model, inputs, targets, method, norm=norm, weights=one).total.parts).double()
        assert part.norm() <= norm


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 2**32),
    st.sampled_from(["linear on a short sequence", "conv, few positions", "conv", "linear"]),
    st.floats(-6, 6),
)
def test_no_example_adds_more_than_the_norm_whatever_its_size_and_however_its_positions_cancel(seed, name, scale):
    model, inputs, _ = case(name)
    model = model.float()
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(inputs.shape, generator=generator) * 10**scale
    inputs[0, 1:] = -inputs[0, :1] * (1 + 1e-6 * torch.randn(inputs[0, 1:].shape, generator=generator))
    targets = torch.randint(CLASSES, (EXAMPLES,), generator=generator)
    for one in torch.eye(EXAMPLES)[:2]:
        assert flat(clipped(model, inputs, targets, norm=1e-3, weights=one).total.parts).double().norm() <= 1e-3


@pytest.mark.parametrize("seed", range(20))
def test_positions_that_cancel_cannot_hide_the_length_of_a_gradient(seed):
    # the gradient is (sum over t of h_t) times one row; all but its last digit cancel, and products of pairs vanish
    generator = torch.Generator().manual_seed(seed)
    half = torch.randn(1, 4, 64, generator=generator)
    h = torch.cat([half, -half * (1 + 1e-6 * torch.randn(half.shape, generator=generator))], dim=1)
    delta = torch.randn(1, 1, 48, generator=generator).expand(1, 8, 48)
    share = layer_rules.linear(nn.Linear(64, 48, bias=False), h[:, torch.randperm(8, generator=generator)], delta)[
        "weight"
    ]
    length = share.weighted(torch.ones(1)).double().norm()
    assert 0 < length <= share.squares.double().sqrt()


@pytest.mark.parametrize("method", ["ghost", "vmap"])
@pytest.mark.parametrize(("adjacency", "bound"), [("add-remove", 0.5), ("replace-one", 1.0)])
def test_batches_that_differ_in_one_example_differ_by_no_more_than_the_sensitivity(method, adjacency, bound):
    torch.manual_seed(3)
    model = head(nn.Linear(6, 8), width=8)
    generator = torch.Generator().manual_seed(1)
    for scale in (0.1, 1.0, 100.0):
        inputs, targets = (
            scale * torch.randn(8, 6, generator=generator),
            torch.randint(CLASSES, (8,), generator=generator),
        )
        whole = clipped(model, inputs, targets, method, norm=0.5, adjacency=adjacency)
        assert whole.total.sensitivity == bound
        if adjacency == "add-remove":
            other = clipped(model, inputs[1:], targets[1:], method, norm=0.5, adjacency=adjacency)
        else:
            inputs = torch.cat([-scale * torch.randn(1, 6, generator=generator), inputs[1:]])
            other = clipped(model, inputs, targets, method, norm=0.5, adjacency=adjacency)
        # the sums themselves carry the rounding of float32
        assert (flat(whole.total.parts) - flat(other.total.parts)).norm() <= bound * (1 + 1e-6) + 1e-5


def test_opposite_gradients_of_two_examples_reach_the_sensitivity_of_replace_one():
    model = nn.Linear(2, 2, bias=False)
    nn.init.zeros_(model.weight)
    one = torch.tensor([[30.0, 40.0]])
    sums = [clipped(model, one, torch.tensor([y]), adjacency="replace-one", norm=1.0).total for y in (0, 1)]
    assert float((flat(sums[0].parts) - flat(sums[1].parts)).norm()) == pytest.approx(sums[0].sensitivity, rel=1e-4)


@pytest.mark.parametrize("method", ["auto", "ghost", "vmap", "loop"])
def test_an_empty_batch_gives_zeros(method):
    model, inputs, targets = case("conv")
    found = clipped(model, inputs[:0], targets[:0], method)
    assert flat(found.total.parts).count_nonzero() == 0
    assert len(flat(found.total.parts)) == sum(p.numel() for p in model.parameters())
    assert found.norms.shape == found.losses.shape == (0,)


def test_ghost_forms_no_gradient_of_a_single_example_of_a_linear_layer(monkeypatch):
    monkeypatch.setattr(layer_rules, "explicit", None)  # the share that holds them
    model, inputs, targets = nn.Linear(5, 3, bias=False), torch.randn(4, 5), torch.tensor([0, 1, 2, 0])
    assert clipped(model, inputs, targets).norms.shape == (4,)


# what one rule cannot treat, and what every method makes of it


class Tied(nn.Module):
    """A linear layer, and its weight used once more by a function that no hook of the layer sees."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(6, 6), nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.up(F.linear(torch.tanh(self.down(x)), self.down.weight.T))
        return out


class Functional(nn.Module):
    """A layer used by its parameters alone."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.up.weight, self.up.bias)


class InPlace(nn.Module):
    """An input changed after a layer has seen it."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = x.clone()
        out: Tensor = self.up(x)
        x.mul_(2)
        return out


REFUSED = {
    "functional": (Functional, r"'up' \(Linear\) was not called"),
    "examples folded": (
        lambda: nn.Sequential(
            nn.Unflatten(1, (2, 3)), nn.Flatten(0, 1), nn.Linear(3, CLASSES), nn.Unflatten(0, (-1, 2)), Last()
        ),
        r"'2' \(Linear\) .* examples of the batch .* found",
    ),
}


class Last(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x[:, -1]


def batch_of_vectors() -> tuple[Tensor, Tensor]:
    torch.manual_seed(5)
    return torch.randn(4, 6, dtype=torch.float64), torch.randint(CLASSES, (4,))


@pytest.mark.slow
@pytest.mark.parametrize("name", REFUSED)
def test_ghost_refuses_what_its_rules_do_not_know_and_auto_is_right_there(name):
    make, why = REFUSED[name]
    inputs, targets = batch_of_vectors()
    model = make().double()
    with pytest.raises(Unsupported, match=why):
        clipped(model, inputs, targets, "ghost")
    found = clipped(model, inputs, targets, "auto", norm=0.2)
    wanted, _ = literal(model, inputs, targets, 0.2, torch.ones(4))
    torch.testing.assert_close(flat(found.total.parts), flat(wanted), rtol=1e-11, atol=1e-13)
    assert choose(model, cross_entropy, inputs, targets) in ("vmap", "loop")


def test_ghost_refuses_an_input_that_was_changed_in_place():
    inputs, targets = batch_of_vectors()
    with pytest.raises(Unsupported, match=r"the input of 'up' \(Linear\) was changed in place"):
        ghost(InPlace().double(), cross_entropy, inputs, targets, 1.0, None)


def test_choose_finds_a_weight_that_is_used_once_more_behind_its_layers_back():
    inputs, targets = batch_of_vectors()
    model = Tied().double()
    assert choose(model, cross_entropy, inputs, targets) in ("vmap", "loop")


def test_a_loss_that_mixes_examples_is_refused():
    inputs, targets = batch_of_vectors()

    def centred(outputs: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy(outputs - outputs.mean(dim=0), targets)

    with pytest.raises(Unsupported, match="the loss mixes the records of a batch"):
        choose(nn.Linear(6, CLASSES).double(), centred, inputs, targets)


@pytest.mark.parametrize("name", ["conv", "embedding", "residual", "linear on a short sequence"])
def test_choose_takes_ghost_where_it_agrees(name):
    model, inputs, targets = case(name)
    model.append(nn.Dropout()) if isinstance(model, nn.Sequential) else None
    assert (
        choose(model.float(), cross_entropy, inputs.float() if inputs.is_floating_point() else inputs, targets)
        == "ghost"
    )
    assert model.training


def test_a_fault_is_found_behind_dropout_that_hides_nearly_every_output():
    inputs, targets = batch_of_vectors()
    model = nn.Sequential(Tied(), nn.Dropout(0.97)).double()
    assert choose(model, cross_entropy, inputs, targets) != "ghost"


def test_a_method_that_is_asked_for_by_name_is_refused_where_it_would_be_wrong():
    inputs, targets = batch_of_vectors()
    with pytest.raises(Unsupported, match=r"'ghost' does not give"):
        clipped(Tied().double(), inputs, targets, "ghost")


def test_a_model_is_tried_once_as_long_as_its_modes_and_arguments_are_of_the_same_kind(monkeypatch):
    tried = []
    real = choose_method.probe
    monkeypatch.setattr(choose_method, "probe", lambda *rest, **more: tried.append(1) or real(*rest, **more))
    inputs, targets = batch_of_vectors()
    model = nn.Sequential(nn.Linear(6, 6), nn.Dropout(), nn.Linear(6, CLASSES)).double()

    def calls() -> int:
        tried.clear()
        # a loss that is defined anew at each step
        clipped_sum(model, lambda out, y: cross_entropy(out, y), inputs, targets, norm=1.0, adjacency="add-remove")
        return len(tried)

    assert calls() > 0
    assert calls() == 0
    inputs, targets = inputs[:1], targets[:1]
    assert calls() == 0
    model.eval()
    assert calls() > 0
    model.train()
    assert calls() == 0
    model[0].requires_grad_(False)
    assert calls() > 0


@pytest.mark.slow
def test_what_is_remembered_of_a_model_goes_with_it():
    inputs, targets = batch_of_vectors()

    def trained() -> weakref.ref[nn.Module]:
        model = nn.Linear(6, CLASSES).double()
        clipped_sum(
            model,
            lambda out, y: cross_entropy(out + 0 * model.bias, y),
            inputs,
            targets,
            norm=1.0,
            adjacency="add-remove",
        )
        return weakref.ref(model)

    alive = trained()
    gc.collect()
    assert alive() is None


def test_a_trial_sees_no_record():
    seen: list[Tensor] = []
    model = nn.Linear(6, CLASSES).double()
    model.register_forward_pre_hook(lambda module, args: seen.append(args[0].detach().clone()))
    inputs, targets = batch_of_vectors()
    choose(model, cross_entropy, inputs, targets)
    rows = torch.cat([rows.reshape(-1, 6) for rows in seen])
    assert len(seen) > 10
    assert not (rows[:, None] == inputs).all(-1).any()
    clipped(model, inputs, targets, "auto")
    assert torch.equal(seen[-1], inputs)


def test_a_model_that_takes_no_made_up_examples_is_tried_on_those_that_are_given():
    def strict(outputs: Tensor, targets: Tensor) -> Tensor:
        if not bool((targets.abs() == 1).all()):
            raise ValueError("targets must be -1 or 1")
        return F.softplus(-targets * outputs[:, 0])

    inputs, targets = batch_of_vectors()
    given = {"norm": 1.0, "adjacency": "add-remove"}
    signs = torch.where(targets > 0, 1.0, -1.0).double()
    assert clipped_sum(nn.Linear(6, 1).double(), strict, inputs, signs, **given).norms.shape == (4,)
    with pytest.raises(Unsupported, match="the loss mixes"):
        clipped_sum(nn.Linear(6, 1).double(), lambda out, y: strict(out - out.mean(0), y), inputs, signs, **given)


@pytest.mark.parametrize(("model", "wanted"), [(nn.Linear(6, CLASSES), "ghost"), (Tied(), "vmap")])
def test_the_choice_needs_no_records_and_draws_nothing(model, wanted):
    state, labels = torch.get_rng_state(), torch.empty(0, dtype=torch.int64)
    assert choose(model, cross_entropy, torch.empty(0, 6), labels, classes=CLASSES) == wanted
    assert torch.equal(torch.get_rng_state(), state)


def test_a_model_that_nothing_can_batch_is_left_to_the_loop():
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cells, self.up = nn.LSTM(3, 5, batch_first=True, proj_size=4), nn.Linear(4, CLASSES)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.up(self.cells(x)[0][:, -1])
            return out

    torch.manual_seed(0)
    model, inputs, targets = Recurrent().double(), torch.randn(4, 5, 3).double(), torch.randint(CLASSES, (4,))
    with pytest.raises(Unsupported, match=r"torch.func cannot batch this model \(.*\); use the clipping method 'loop'"):
        clipped(model, inputs, targets, "vmap")
    assert choose(model, cross_entropy, inputs, targets) == "loop"
    wanted, _ = literal(model, inputs, targets, 0.2, torch.ones(4))
    torch.testing.assert_close(flat(clipped(model, inputs, targets, "auto", norm=0.2).total.parts), flat(wanted))


def test_a_hook_of_the_user_does_not_come_between_a_layer_and_its_gradient():
    inputs, targets = batch_of_vectors()
    model = nn.Linear(6, CLASSES).double()
    model.register_forward_hook(lambda layer, args, output: 3 * output)
    wanted, _ = literal(model, inputs, targets, 0.2, torch.ones(4))
    torch.testing.assert_close(flat(clipped(model, inputs, targets, norm=0.2).total.parts), flat(wanted))


def test_gradients_are_taken_also_where_they_are_switched_off_and_nothing_is_left_behind():
    inputs, targets = batch_of_vectors()
    model = nn.Linear(6, CLASSES).double()
    with torch.no_grad():
        found = clipped(model, inputs, targets)
    assert flat(found.total.parts).count_nonzero() > 0
    assert not found.losses.requires_grad
    assert all(p.grad is None for p in model.parameters())
    assert not model._forward_hooks


def test_layers_that_compute_in_half_precision_are_clipped_in_full():
    torch.manual_seed(0)
    model, inputs, targets = head(nn.Linear(6, 8), width=8), torch.randn(4, 6), torch.randint(CLASSES, (4,))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for one in torch.eye(4):
            part = flat(clipped(model, inputs, targets, norm=0.1, weights=one).total.parts)
            assert part.dtype == torch.float32
            assert part.double().norm() <= 0.1
        found = clipped(model, inputs, targets, norm=0.1)
    torch.testing.assert_close(
        flat(found.total.parts), flat(clipped(model, inputs, targets, norm=0.1).total.parts), rtol=0.1, atol=1e-2
    )


@pytest.mark.parametrize("precision", ["high", "medium"])
def test_products_in_less_than_full_precision_widen_the_slack(precision):
    model, inputs, targets = case("conv, few positions")
    model, inputs = model.float(), inputs.float()
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        for one in torch.eye(EXAMPLES):
            assert flat(clipped(model, inputs, targets, norm=0.1, weights=one).total.parts).double().norm() <= 0.1
    finally:
        torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"norm": 0.0}, "clipping norm must be finite and above 0"),
        ({"norm": math.nan}, "clipping norm must be finite and above 0"),
        ({"method": "gost"}, "no clipping method called 'gost'. Known: auto, ghost, vmap, loop"),
        ({"adjacency": "swap"}, "adjacency must be one of add-remove, replace-one"),
        ({"targets": torch.tensor([0, 1])}, "found 4 inputs, 2 targets"),
        ({"weights": torch.ones(3)}, r"weights of shape \(3,\)"),
        ({"weights": torch.tensor([1.0, 0.5, 1.0, 1.0])}, "weights of examples must be 0 or 1"),
        ({"loss": F.cross_entropy}, r"one number for each of \d+ examples; found shape \(\). .*reduction='none'"),
        (
            {"loss": lambda outputs, targets: torch.ones(len(targets))},
            "does not depend on the model's trainable parameters",
        ),
    ],
)
def test_what_is_out_of_range_is_refused_with_what_was_wanted(changed, why):
    inputs, targets = batch_of_vectors()
    given = {
        "loss": cross_entropy,
        "inputs": inputs,
        "targets": targets,
        "norm": 1.0,
        "adjacency": "add-remove",
        "method": "ghost",
    }
    with pytest.raises(UsageError, match=why):
        clipped_sum(nn.Linear(6, CLASSES).double(), **{**given, **changed})


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", NAMES)
def test_a_gpu_gives_what_the_literal_loop_gives(name):
    model, inputs, targets = case(name)
    weights = torch.ones(EXAMPLES)
    wanted, _ = literal(model, inputs, targets, 0.7, weights)
    found = clipped(model.cuda(), inputs.cuda(), targets.cuda(), weights=weights.cuda())
    torch.testing.assert_close(flat(found.total.parts).cpu(), flat(wanted), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("method", ["vmap", "loop"])
def test_gradients_whose_squares_underflow_are_clipped(method):
    # the squares of most coordinates are 0 in float32; oracle: the norm in float64
    torch.manual_seed(0)
    model, norm = nn.Linear(5, 3), 1e-25
    tiny = clipped_sum(
        model,
        lambda outputs, targets: 1e-22 * cross_entropy(outputs, targets),
        torch.randn(1, 5),
        torch.tensor([1]),
        norm=norm,
        adjacency="add-remove",
        method=method,
    )
    assert 0 < float(flat(tiny.total.parts).double().norm()) <= norm


@pytest.mark.parametrize("method", ["auto", "vmap", "loop"])
def test_a_parameter_that_is_one_number_is_clipped_with_the_others(method):
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.scale = nn.Linear(5, CLASSES), nn.Parameter(torch.tensor(3.0))

        def forward(self, x: Tensor) -> Tensor:
            return self.scale * self.layer(x)

    torch.manual_seed(0)
    model, inputs, targets = Scaled(), torch.randn(4, 5), torch.tensor([0, 1, 2, 0])
    wanted, norms = literal(model, inputs, targets, 0.7, torch.ones(4))
    own = clipped(model, inputs, targets, method)
    torch.testing.assert_close(own.total.parts, wanted)
    torch.testing.assert_close(own.norms.double(), norms, rtol=1e-4, atol=0)


class WithoutGradient(nn.Module):
    """A layer that is called within ``no_grad``, alone or a second time with gradients."""

    def __init__(self, twice: bool):
        super().__init__()
        self.twice, self.down, self.up = twice, nn.Linear(6, 5), nn.Linear(5, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            h = self.down(x)
        out: Tensor = self.up(torch.tanh(h + self.down(x) if self.twice else h))
        return out


@pytest.mark.parametrize("twice", [False, True])
def test_a_layer_called_without_gradients_adds_what_a_literal_loop_gives(twice):
    inputs, targets = batch_of_vectors()
    model = WithoutGradient(twice).double()
    assert choose(model, cross_entropy, inputs, targets) == "ghost"
    found = clipped(model, inputs, targets, "auto")
    wanted, _ = literal(model, inputs, targets, 0.7, torch.ones(4))
    torch.testing.assert_close(flat(found.total.parts), flat(wanted))


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("affine", [False, True])
def test_gradients_that_cancel_before_a_normalisation_do_not_make_clipping_slow(relu, affine):
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 8, 3), nn.InstanceNorm2d(8, affine=affine), *([nn.ReLU()] if relu else [])]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, CLASSES))
    empty = torch.zeros(0, 3, 12, 12), torch.zeros(0, dtype=torch.long)
    assert choose(model, cross_entropy, *empty, classes=CLASSES) == "ghost"


def test_a_layer_in_two_places_keeps_its_weight_under_vmap():
    layer = nn.Linear(4, 4)
    model, weight = nn.Sequential(layer, nn.Tanh(), layer), layer.weight
    x, y = torch.randn(3, 4), torch.randint(4, (3,))
    clipped_sum(model, cross_entropy, x, y, norm=1.0, adjacency="add-remove", method="vmap")
    assert layer.weight is weight
