"""Private training in a Lightning Trainer. Oracles: plain Lightning on the same batches, the ledger, and chance."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

L = pytest.importorskip("lightning.pytorch")
from lightning.pytorch.callbacks import (  # noqa: E402
    Callback,
    EarlyStopping,
    GradientAccumulationScheduler,
    LearningRateFinder,
    ModelCheckpoint,
    StochasticWeightAveraging,
)

from wpriv import budget  # noqa: E402
from wpriv.errors import Unsupported, UsageError  # noqa: E402
from wpriv.lightning import OpacusLedger, PrivateTraining, loader  # noqa: E402

RECORDS, BATCH, STEPS = 120, 24, 12
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")


def records(count, seed=0):
    generator = torch.Generator().manual_seed(seed)
    centres = 3 * torch.randn(4, 6, generator=torch.Generator().manual_seed(9))
    y = torch.randint(4, (count,), generator=generator)
    return TensorDataset(centres[y] + torch.randn(count, 6, generator=generator), y)


TRAIN, PUBLIC = records(RECORDS), records(200, 1)


class Module(L.LightningModule):
    def __init__(self, optimizer=None, dtype=torch.float32):
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4)).to(dtype)
        self.make, self.rates = optimizer or (lambda weights: torch.optim.SGD(weights, lr=1.0)), []

    def training_step(self, batch, index):
        return cross_entropy(self.net(batch[0]), batch[1])

    def validation_step(self, batch, index):
        outputs = self.net(batch[0])
        self.log("loss", cross_entropy(outputs, batch[1]))
        self.log("accuracy", (outputs.argmax(dim=1) == batch[1]).float().mean())

    def configure_optimizers(self):
        optimizer = self.make(self.net.parameters())
        return [optimizer], [torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 4)]

    def on_before_optimizer_step(self, optimizer):
        self.rates.append(optimizer.param_groups[0]["lr"])


def trainer(*callbacks, **options):
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
    options = {"max_epochs": 50, "logger": False, "accelerator": "cpu", **quiet, **options}
    return L.Trainer(callbacks=list(callbacks), **options)


def private(out, of="cross-entropy", **changes):
    options = {"epsilon": 3.0, "delta": 1e-3, "records": RECORDS, "expected_batch": BATCH, "steps": STEPS, "out": out}
    return PrivateTraining(of, **{**options, **changes})


def fit(callback, *others, module=None, data=None, **options):
    module = module or Module()
    data = loader(TRAIN, BATCH, STEPS) if data is None else data
    host = trainer(callback, *others, **options)
    host.fit(module, data, DataLoader(PUBLIC, 200))
    return module, host


def lines(out):
    return len((out / "ledger.jsonl").read_text().splitlines())


def test_the_target_is_kept_with_a_ledger_line_for_each_step_of_lightning(tmp_path):
    callback = private(tmp_path / "run")
    module, host = fit(callback, EarlyStopping("loss", patience=50))
    assert host.global_step == lines(tmp_path / "run") == STEPS
    assert 2.99 < callback.result.epsilon <= 3.0
    assert module.rates[:5] == [1.0] * 5
    assert module.rates[5:10] == pytest.approx([(1 + math.cos(math.pi / 4)) / 2] * 5)
    assert "training_step" not in vars(module)


def test_the_weights_are_those_of_lightning_without_noise_and_clipping(tmp_path, monkeypatch):
    """Oracle: plain Lightning with Adam on the same batches, each loss a sum over the expected batch."""
    monkeypatch.setattr("wpriv.training.engine.loop.add_noise", lambda total, *args, **options: list(total.parts))

    def adam(weights):
        return torch.optim.Adam(weights, lr=0.05, weight_decay=0.01)

    class Kept(Callback):
        batches: list = []  # noqa: RUF012

        def on_train_batch_start(self, host, module, batch, index):
            self.batches.append(batch)

    class Plain(Module):
        def training_step(self, batch, index):
            return cross_entropy(self.net(batch[0]), batch[1], reduction="sum") / BATCH

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module, _ = fit(private(tmp_path / "run", clip=1e30), Kept(), module=Module(adam))
        plain = Plain(adam)
        batches = DataLoader(Kept.batches, batch_size=None)
        ends = [5, 10]  # the epochs of the private training, at which its schedule steps
        rates = [module.rates[end - 1] for end in (*ends, STEPS)]
        optimizer = adam(plain.net.parameters())
        for place, batch in enumerate(batches):
            optimizer.param_groups[0]["lr"] = rates[sum(place >= end for end in ends)]
            optimizer.zero_grad()
            plain.training_step(batch, place).backward()
            optimizer.step()
    for mine, theirs in zip(module.net.parameters(), plain.net.parameters(), strict=True):
        assert torch.allclose(mine, theirs, rtol=0, atol=1e-6)


def test_much_noise_leaves_the_accuracy_of_chance(tmp_path, monkeypatch):
    """Noise of a thousand times the gradients: of five networks, each of four clusters is right with probability 1/4.

    Without noise the same steps reach more, about .9, so that it is the noise that reaches the weights.
    """
    figures = []
    for number in range(5):
        callback = private(tmp_path / f"loud-{number}", clip=1000.0)
        _, host = fit(callback)
        figures.append(float(host.callback_metrics["accuracy"]))
    assert callback.run.sigma > 0.5
    assert sum(figures) / 5 < 0.7  # 4.5 standard deviations above .25
    monkeypatch.setattr("wpriv.training.engine.loop.add_noise", lambda total, *args, **options: list(total.parts))
    _, host = fit(private(tmp_path / "quiet"))
    assert float(host.callback_metrics["accuracy"]) > 0.7


def test_a_training_that_early_stopping_ends_names_the_steps_that_ran(tmp_path):
    callback = private(tmp_path / "run")
    _, host = fit(callback, EarlyStopping("accuracy", mode="max", patience=1, min_delta=2.0))
    assert host.global_step == callback.result.statement["steps"] == lines(tmp_path / "run") == 10


def test_checkpoints_workers_and_a_collate_function_of_ones_own_are_kept(tmp_path):
    def collate(rows):
        x, y = zip(*rows, strict=True)
        return torch.stack(x), torch.stack(y)

    callback = private(tmp_path / "run")
    data = loader(TRAIN, BATCH, STEPS, collate_fn=collate, num_workers=1)
    module, _ = fit(callback, ModelCheckpoint(tmp_path / "kept"), data=data, enable_checkpointing=True)
    (kept,) = (tmp_path / "kept").glob("*.ckpt")
    again = Module()
    again.load_state_dict(torch.load(kept, weights_only=False)["state_dict"])
    assert torch.equal(again.net[0].weight, module.net[0].weight)


def test_what_a_training_step_would_log_of_the_records_is_dropped_with_a_warning(tmp_path):
    class Logs(Module):
        def training_step(self, batch, index):
            self.log("train_loss", torch.ones(()))
            return super().training_step(batch, index)

    with pytest.warns(UserWarning, match="would be a release"):
        _, host = fit(private(tmp_path / "run"), module=Logs())
    assert "train_loss" not in host.logged_metrics


class Manual(Module):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False


class Mixes(Module):
    def on_after_batch_transfer(self, batch, place):
        return (batch[0] + batch[0].roll(1, 0)) / 2, batch[1]


class Beside(Module):
    def __init__(self):
        super().__init__()
        self.further = nn.Linear(2, 2)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"data": DataLoader(TRAIN, BATCH)}, UsageError, "must be `wpriv.lightning.loader"),
        ({"accumulate_grad_batches": 2}, UsageError, "give a larger `expected_batch`"),
        ({"gradient_clip_val": 1.0}, UsageError, "leave it out"),
        ({"precision": "bf16-mixed"}, Unsupported, "precision='32-true'"),
        ({"module": Manual}, Unsupported, "manual optimization"),
        ({"module": Mixes}, Unsupported, "makes a row from several records"),
        ({"module": Beside}, UsageError, "2 weights beside those of the private network"),
        ({"module": Module, "network": "body"}, UsageError, "found no torch.nn.Module in 'body'. Give .* network='"),
        ({"records": 100}, UsageError, "`records` is 100 in PrivateTraining and 120 in the loader"),
        ({"reload_dataloaders_every_n_epochs": 1}, UsageError, "leave it out"),
        ({"callback": LearningRateFinder()}, UsageError, "LearningRateFinder trains on the records"),
        ({"callback": StochasticWeightAveraging(0.1)}, UsageError, "StochasticWeightAveraging swaps weights"),
        ({"callback": GradientAccumulationScheduler({1: 2})}, UsageError, "GradientAccumulationScheduler joins"),
        ({"module": lambda: Module(lambda weights: torch.optim.LBFGS(weights))}, UsageError, "several times in one"),
    ],
)
def test_what_would_break_the_guarantee_is_refused_with_a_way_out(tmp_path, changes, error, words):
    changes = dict(changes)
    module, callbacks = changes.pop("module", Module)(), [changes.pop(key) for key in ("callback",) if key in changes]
    mine = {key: changes.pop(key) for key in ("records", "network") if key in changes}
    with pytest.raises(error, match=words):
        fit(private(tmp_path / "run", **mine), *callbacks, module=module, **changes)
    assert not (tmp_path / "run" / "ledger.jsonl").exists() or lines(tmp_path / "run") <= 1


def test_a_fit_from_a_checkpoint_and_a_second_fit_are_refused(tmp_path):
    callback = private(tmp_path / "run")
    module, host = fit(callback, max_epochs=1)
    host.save_checkpoint(tmp_path / "at.ckpt")
    with pytest.raises(UsageError, match="second fit"):
        fit(callback, module=module)
    host = trainer(private(tmp_path / "more"), max_epochs=3)
    with pytest.raises(Unsupported, match="from a checkpoint after 5 steps"):
        host.fit(Module(), loader(TRAIN, BATCH, STEPS), ckpt_path=tmp_path / "at.ckpt", weights_only=False)


class Another(Callback):
    """Give the trainer a new optimizer in its midst."""

    def on_train_batch_start(self, host, module, batch, index):
        if host.global_step == 2:
            host.strategy.optimizers = [torch.optim.SGD(module.net.parameters(), lr=0.1)]


class Adds(Callback):
    """Add to the gradients after the private step."""

    def on_before_optimizer_step(self, host, module, optimizer):
        module.net[0].weight.grad = module.net[0].weight.grad + 1


@pytest.mark.parametrize(
    ("callback", "words"), [(Another(), "did not use the private gradient"), (Adds(), "were replaced or changed")]
)
def test_a_callback_that_takes_the_gradients_or_the_optimizer_is_noticed(tmp_path, callback, words):
    with pytest.raises(UsageError, match=words):
        fit(private(tmp_path / "run"), callback)


@pytest.mark.parametrize("option", [{"batch_size": 3}, {"shuffle": True}, {"in_order": False}])
def test_a_loader_takes_no_other_sampling(option):
    with pytest.raises(UsageError, match="leave"):
        loader(TRAIN, BATCH, STEPS, **option)


def test_several_devices_are_refused(tmp_path):
    host = trainer(private(tmp_path / "run"), strategy="ddp", devices=1)
    with pytest.raises(Unsupported, match="DDPStrategy, 1 in all"):
        host.callbacks[0].setup(host, Module(), "fit")


def test_the_steps_of_an_optimizer_of_opacus_are_lines_of_a_ledger(tmp_path):
    """Oracle: the accountant of Opacus, whose hook goes on counting."""
    opacus = pytest.importorskip("opacus")
    module, engine = Module(), opacus.PrivacyEngine(accountant="rdp")
    network, optimizer, private_loader = engine.make_private(
        module=module.net,
        optimizer=torch.optim.SGD(module.net.parameters(), lr=0.1),
        data_loader=DataLoader(TRAIN, BATCH),
        noise_multiplier=2.0,
        max_grad_norm=1.0,
    )
    module.net, module.configure_optimizers = network, lambda: optimizer
    with pytest.raises(UsageError, match="is SGD and no DPOptimizer"):
        trainer(OpacusLedger(tmp_path / "none"), max_epochs=1).fit(Module(), DataLoader(TRAIN, BATCH))
    callback = OpacusLedger(tmp_path / "run")
    trainer(callback, max_epochs=2).fit(module, private_loader)
    assert engine.accountant.history == [(2.0, 0.2, 10)]
    row = budget(history=tmp_path / "run", delta=1e-3)
    assert row.process.describe() == [
        {"mech": "gauss", "sigma": 2.0, "sensitivity": 1.0, "n": 10, "sampling": "poisson", "rate": 0.2}
    ]
    assert not [line for line in row.extra["reading"] if "not finished" in line]
    assert not (tmp_path / "none").exists()
