"""No noise is added to two sums: by copies of a folder, by steps that are taken again, or by changed code."""

from __future__ import annotations

import contextlib
import functools
import itertools
import shutil

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import wpriv
from tests.training.engine.toys import engine, schedule, weights
from wpriv.accounting import ledger
from wpriv.errors import UsageError
from wpriv.training.engine import loop
from wpriv.training.engine.saved_weights import LEDGER
from wpriv.training.tasks import _given

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 4)).astype(np.float32)
Y = (X[:, 0] > 0).astype(int)
OPTIONS = {"sigma": 1.0, "delta": 1e-5, "batch": 20, "steps": 4, "lr": 0.5, "test": (X, Y)}


class Killed(Exception):
    pass


def take(folder, monkeypatch, *, until=None, **how):
    """Run toy steps and return the noise of each; the run ends without saving after step ``until``."""
    drawn, real = [], loop.add_noise

    def noisy(total, *args, **given):
        parts = real(total, *args, **given)
        drawn.append(torch.cat([(part - own).flatten() for part, own in zip(parts, total.parts, strict=True)]))
        return parts

    def on_step(step):
        if step == until:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(loop, "add_noise", noisy)
        run = engine(folder, schedule(8, every=1e9), **how)
        with contextlib.suppress(Killed):
            run.run(on_step=on_step)
    return drawn, run


def test_two_copies_of_an_unfinished_folder_share_only_the_releases_that_are_in_both_ledgers(tmp_path, monkeypatch):
    # the toy saves after every third step, so that a run killed after step 5 repeats steps 4 and 5
    first, _ = take(tmp_path / "a", monkeypatch, until=5, seed=None)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    noise = {name: take(tmp_path / name, monkeypatch, seed=None, resume=True)[0] for name in ("a", "b")}
    for own in noise.values():
        assert len(own) == 5
        assert all(torch.equal(mine, before) for mine, before in zip(own[:2], first[3:], strict=True))
    fresh = [*first, *noise["a"][2:], *noise["b"][2:]]
    for one, other in itertools.combinations(fresh, 2):
        # oracle: of two independent standard normal vectors of 39 numbers three agree with a chance below 1e-15
        assert int((one == other).sum()) < 3
    for name in ("a", "b"):
        rows = ledger.entries(tmp_path / name / LEDGER)
        assert [row.step for row in rows] == [*range(1, 9)]
        assert len({row.stream for row in rows[:5]}) == len({row.stream for row in rows[5:]}) == 1
        assert rows[4].stream != rows[5].stream
    assert ledger.entries(tmp_path / "a" / LEDGER)[5].stream != ledger.entries(tmp_path / "b" / LEDGER)[5].stream


def test_a_run_that_is_killed_again_repeats_the_noise_of_its_new_key(tmp_path, monkeypatch):
    take(tmp_path, monkeypatch, until=5, seed=None)
    second, _ = take(tmp_path, monkeypatch, until=7, seed=None, resume=True)  # steps 4 to 7, saved after 5 and 6
    third, run = take(tmp_path, monkeypatch, seed=None, resume=True)  # steps 7 and 8
    assert [len(second), len(third)] == [4, 2]
    assert torch.equal(second[3], third[0])
    assert [row.step for row in ledger.entries(tmp_path / LEDGER)] == [*range(1, 9)]
    assert bool(weights(run).isfinite().all())


def test_an_old_checkpoint_whose_steps_were_taken_with_a_newer_key_is_refused(tmp_path, monkeypatch):
    take(tmp_path, monkeypatch, until=3, seed=None)
    shutil.copy(tmp_path / "checkpoint.pt", tmp_path / "old.pt")
    take(tmp_path, monkeypatch, until=5, seed=None, resume=True)
    shutil.copy(tmp_path / "old.pt", tmp_path / "checkpoint.pt")
    with pytest.raises(UsageError, match="other noise"):
        take(tmp_path, monkeypatch, seed=None, resume=True)


def test_steps_are_not_repeated_by_another_version_of_torch(tmp_path, monkeypatch):
    take(tmp_path, monkeypatch, until=5, seed=None)
    monkeypatch.setattr("wpriv.training.engine.training_state.SOFTWARE", "wpriv 9 and torch 9")
    with pytest.raises(UsageError, match="torch 9"):
        take(tmp_path, monkeypatch, seed=None, resume=True)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2))


def steps(out, *, lr=None, loss=None, killed=None, **how):
    """Take the steps of a loop; the folder is left as a process that is killed after step ``killed`` leaves it."""
    with wpriv.training_loop(network(), (X, Y), out=out, **{**OPTIONS, **how}) as run:
        for batch in run:
            run.step(loss, lr=lr)
            if batch.step == killed:
                shutil.copytree(out, f"{out}-killed")
                break
    return run


def killed_after_step_1(out):
    """Return a folder with the first step in its ledger, whose checkpoint is the one before it."""
    steps(out, lr=0.5, killed=1)
    return out.with_name(f"{out.name}-killed")


def test_a_step_that_is_taken_again_keeps_its_loss_and_its_learning_rate_or_a_fork_pays_for_both(tmp_path):
    folder = killed_after_step_1(tmp_path / "r")
    for change in ({"lr": 0.25}, {}, {"lr": 0.5, "loss": nn.CrossEntropyLoss(label_smoothing=0.1)}):
        with pytest.raises(UsageError, match="same noise"):
            steps(folder, resume=True, **change)
    assert len((folder / "ledger.jsonl").read_text().splitlines()) == 1
    forked = steps(shutil.copytree(folder, tmp_path / "f"), lr=0.25, fork=True)
    assert forked.result.statement["steps"] == 5
    whole = steps(folder, lr=0.5, resume=True)
    assert whole.result.statement["steps"] == 4


def closure(constant):
    def loss(outputs, targets):
        return constant * cross_entropy(outputs, targets, reduction="none")

    return loss


class Weighted:
    """A callable object as loss."""

    def __init__(self, weight):
        self.weight, self.cells = weight, {"a": torch.ones(2)}

    def __call__(self, outputs, targets):
        return self.weight * cross_entropy(outputs, targets, reduction="none")


def scaled(outputs, targets, scale=1.0):
    return scale * cross_entropy(outputs, targets, reduction="none")


SHIFT = 1.0


def with_global(outputs, targets):
    return cross_entropy(outputs * SHIFT, targets, reduction="none")


LOSSES = {
    "closure": closure,
    "object": Weighted,
    "partial": lambda number: functools.partial(scaled, scale=number),
    "module": lambda number: nn.CrossEntropyLoss(weight=torch.tensor([1.0, number])),
    "method": lambda number: Weighted(number).__call__,
}


@pytest.mark.parametrize("kind", LOSSES)
def test_a_loss_made_again_resumes_and_one_with_another_constant_does_not(tmp_path, kind):
    make = LOSSES[kind]
    folder = tmp_path / "r"
    with wpriv.training_loop(network(), (X, Y), out=folder, loss=make(1.0), **OPTIONS) as run:
        for _ in run:
            run.step()
            break
    with pytest.raises(UsageError, match="another recipe"):
        wpriv.train(network(), (X, Y), out=folder, loss=make(2.0), resume=True, progress=False, **OPTIONS)
    done = wpriv.train(network(), (X, Y), out=folder, loss=make(1.0), resume=True, progress=False, **OPTIONS)
    assert done.statement["steps"] == 4


class Doubled(nn.Module):
    def __init__(self, factor=1.0):
        super().__init__()
        self.factor, self.layer = factor, nn.Linear(4, 2)

    def forward(self, x):
        return self.factor * self.layer(x)


def redefined(body):
    """Return the class of a network as a changed cell of a notebook leaves it: of the same name, with another body."""
    names = {"nn": nn, "torch": torch, "__name__": "__main__"}
    begin = "class Net(nn.Module):\n def __init__(self):\n  super().__init__()\n  self.a = nn.Linear(4, 2)\n"
    exec(f"{begin} def forward(self, x):\n  return {body}\n", names)
    return names["Net"]()


def test_a_folder_of_results_is_not_that_of_a_network_with_another_forward(tmp_path):
    wpriv.train(redefined("self.a(x)"), (X, Y), out=tmp_path / "r", progress=False, **OPTIONS)
    again = wpriv.train(redefined("self.a(x)"), (X, Y), out=tmp_path / "r", progress=False, **OPTIONS)
    assert again.statement["steps"] == 4
    for body in ("self.a(-x)", "self.a(x) * 2", "torch.sin(self.a(x))"):
        with pytest.raises(UsageError, match="another recipe"):
            wpriv.train(redefined(body), (X, Y), out=tmp_path / "r", progress=False, **OPTIONS)


def digest(value, **how):
    return _given.digest(value, **how)


def test_a_digest_changes_with_whatever_python_shows_of_a_computation(monkeypatch):
    pairs = [(make(1.0), make(2.0)) for make in LOSSES.values()]
    pairs += [(Doubled(), Doubled(2.0)), (nn.Sequential(nn.ReLU()), nn.Sequential(nn.GELU()))]
    pairs += [(nn.Dropout(0.1), nn.Dropout(0.2)), (lambda a: a + 1, lambda a: a - 1), ([1], (2,)), ({1: 2}, {1: 3})]
    pairs += [(torch.relu, torch.tanh), (torch.float32, torch.float64)]
    for one, other in pairs:
        assert digest(one) != digest(other)
    for make in (*LOSSES.values(), Doubled):
        torch.manual_seed(0)
        first = digest(make(1.5))
        torch.manual_seed(0)
        assert digest(make(1.5)) == first
    before = digest(with_global)
    monkeypatch.setattr(f"{__name__}.SHIFT", 2.0)
    assert digest(with_global) != before


def test_the_digest_of_a_network_has_its_hooks_and_functions_and_not_its_weights():
    one, other = network(), network()
    with torch.no_grad():
        other[0].weight.add_(1.0)
    assert digest(one, weights=False) == digest(other, weights=False)
    other[1].register_forward_hook(lambda module, args, output: 2 * output)
    assert digest(one, weights=False) != digest(other, weights=False)
    other = network()
    other[1].forward = torch.relu
    assert digest(one, weights=False) != digest(other, weights=False)
    other = network()
    other[0].weight.requires_grad_(False)
    assert digest(one, weights=False) != digest(other, weights=False)
    other = network()
    other[0].weight.register_hook(lambda gradient: 2 * gradient)
    assert digest(one, weights=False) != digest(other, weights=False)
    other = network()
    other[0].register_full_backward_pre_hook(lambda module, gradients: None)
    assert digest(one, weights=False) != digest(other, weights=False)


def test_objects_that_hold_each_other_have_a_digest():
    one = Weighted(1.0)
    one.cells["self"] = one
    assert digest(one) == digest(one)
