"""Write the files that the tests of the readers of other libraries read: each once, by the real library.

``nox -s golden`` runs ``python tests/golden/checks/write.py LIBRARY`` in an environment of each library, with the
versions that stand in the names of the folders.
Live objects are written with the names of their classes and their attributes, and tests build stand-ins from them.
"""

from __future__ import annotations

import dataclasses
import enum
import importlib.util
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).parent


def folder(name: str, package: str) -> Path:
    """An empty folder for the files of a package, with its installed version in the name."""
    path = HERE / f"{name}-{version(package)}"
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    return path


def as_data(x: object, names: Iterable[str] = ()) -> object:
    """A live object as plain data: its class under ``type``, the module, and its attributes (or those of ``names``)."""
    if isinstance(x, enum.Enum):
        return {"module": type(x).__module__, "type": type(x).__name__, "member": x.name}
    if x is None or isinstance(x, bool | int | float | str):
        return x
    if isinstance(x, list | tuple):
        return [as_data(each) for each in x]
    if isinstance(x, dict):
        return {str(key): as_data(each) for key, each in x.items()}
    if hasattr(x, "tolist"):  # an array
        return x.tolist()
    if not names:
        attributes = getattr(type(x), "__attrs_attrs__", ())
        names = [each.name for each in attributes or (dataclasses.fields(x) if dataclasses.is_dataclass(x) else ())]
    fields = {name: as_data(getattr(x, name)) for name in names if not callable(getattr(x, name))}
    return {"module": type(x).__module__, "type": type(x).__name__, **fields}


def write_json(path: Path, data: object) -> None:
    """One JSON file, with a line at its end."""
    path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


def without_modules(data: object) -> object:
    """The JSON form of an event that a user would write: the class under ``type`` and the fields."""
    if isinstance(data, dict):
        return {key: without_modules(each) for key, each in data.items() if key != "module"}
    return [without_modules(each) for each in data] if isinstance(data, list) else data


def dp_accounting() -> None:
    """Events of every class with their reprs, the heterogeneous run R9, and accountants after their compositions."""
    import dp_accounting as dpa
    from dp_accounting import dp_event as events

    out = folder("dp_accounting", "dp-accounting")
    gauss = events.GaussianDpEvent(1.0)
    runs = [
        events.SelfComposedDpEvent(events.PoissonSampledDpEvent(0.01, events.GaussianDpEvent(0.8 + 0.02 * k)), 100)
        for k in range(50)
    ]
    named = {
        "dpsgd": events.SelfComposedDpEvent(events.PoissonSampledDpEvent(0.01, gauss), 1000),
        "r9": events.ComposedDpEvent([*runs, events.LaplaceDpEvent(10.0)]),
        "gauss": gauss,
        "laplace": events.LaplaceDpEvent(2.0),
        "discrete-laplace": events.DiscreteLaplaceDpEvent(0.5, 2),
        "randomized-response": events.RandomizedResponseDpEvent(0.5, 2),
        "randomized-response-10": events.RandomizedResponseDpEvent(0.5, 10),
        "with-replacement": events.SampledWithReplacementDpEvent(1000, 10, gauss),
        "without-replacement": events.SelfComposedDpEvent(
            events.SampledWithoutReplacementDpEvent(100, 10, events.GaussianDpEvent(4.0)), 20
        ),
        "truncated": events.TruncatedSubsampledGaussianDpEvent(500, 0.1, 64, 1.0),
        "mixture": events.MixtureOfGaussiansDpEvent(1.0, [0.0, 1.0, 2.0], [0.9, 0.09, 0.01]),
        "mixture-poisson": events.MixtureOfGaussiansDpEvent(2.0, [0.0, 1.0], [0.99, 0.01]),
        "repeat": events.RepeatAndSelectDpEvent(gauss, 40.0, 1.0),
        "tree": events.SingleEpochTreeAggregationDpEvent(2.0, [7, 12]),
        "zcdp": events.ZCDpEvent(0.1, 0.01),
        "noop": events.NoOpDpEvent(),
        "non-private": events.NonPrivateDpEvent(),
        "unsupported": events.UnsupportedDpEvent(),
    }
    data = {name: as_data(event) for name, event in named.items()}
    write_json(out / "events.json", {"events": data, "reprs": {name: repr(each) for name, each in named.items()}})
    write_json(out / "r9.json", without_modules(data["r9"]))
    (out / "dpsgd.txt").write_text(f"{named['dpsgd']!r}\n", encoding="utf-8")
    relation = dpa.NeighboringRelation
    accountants = []
    for make in (dpa.rdp.RdpAccountant, dpa.pld.PLDAccountant):
        for related in (relation.ADD_OR_REMOVE_ONE, relation.REPLACE_ONE, relation.REPLACE_SPECIAL):
            accountant = make(neighboring_relation=related).compose(gauss)
            counts = [[as_data(event), count] for event, count in accountant._ledger._event_counts]
            name = f"{type(accountant).__module__}.{type(accountant).__name__}"
            eps = float(accountant.get_epsilon(1e-5))
            accountants.append({"type": name, "relation": related.name, "event_counts": counts, "eps": eps})
    write_json(out / "accountants.json", accountants)


def jax_privacy() -> None:
    """Configurations, strategies and the plan of 2.0.0 with its event, and Keras configurations F4, F5, F6 and R11."""
    import numpy as np
    from jax_privacy import batch_selection, keras_api
    from jax_privacy.experimental import accounting, execution_plan

    out = folder("jax_privacy", "jax-privacy")
    keras = keras_api.DPKerasConfig
    common = {"delta": 1e-5, "clipping_norm": 1.0}
    f4 = {**common, "batch_size": 128, "gradient_accumulation_steps": 1, "train_steps": 160, "train_size": 4096}
    f5 = {**common, "batch_size": 10, "gradient_accumulation_steps": 8, "train_steps": 100, "train_size": 1000}
    f6 = {**common, "batch_size": 100, "gradient_accumulation_steps": 16, "train_steps": 10, "train_size": 2800}
    configs = {
        "f4": keras(epsilon=1.25956, noise_multiplier=1.5, **f4),
        "r11": keras(epsilon=1.25956, noise_multiplier=1.5, poisson_sampling_in_fit=True, **f4),
        "f5": keras(epsilon=1.1, noise_multiplier=1.0, poisson_sampling_in_fit=True, **f5),
        "f5-order": keras(epsilon=1.1, noise_multiplier=1.0, **f5),
        "f6": keras(epsilon=1.90776, noise_multiplier=4.0, poisson_sampling_in_fit=True, **f6),
        "uncalibrated": keras(epsilon=2.0, **f4),
    }
    strategies = {
        "poisson": batch_selection.CyclicPoissonSampling(sampling_prob=0.01, iterations=1000),
        "cyclic": batch_selection.CyclicPoissonSampling(0.4, 1000, cycle_length=4),
        "truncated": batch_selection.CyclicPoissonSampling(0.1, 100, truncated_batch_size=64),
        "balls": batch_selection.BallsInBinsSampling(iterations=100, cycle_length=10),
        "fixed": batch_selection.FixedBatchSampling(batch_size=10, iterations=100),
        "fixed-replace": batch_selection.FixedBatchSampling(batch_size=10, iterations=100, replace=True),
        "minsep": batch_selection.BMinSepSampling(sampling_prob=0.1, iterations=100, min_sep=5),
        "user": batch_selection.UserSelectionStrategy(batch_selection.CyclicPoissonSampling(0.01, 1000), 2),
    }
    plans = {}
    for name, more in (
        ("dpsgd", {"strategy": np.array([1.0]), "iterations": 1000, "sampling_prob": 0.01}),
        ("banded", {"strategy": np.array([1.0, 0.5, 0.2, 0.1]), "iterations": 1000, "sampling_prob": 0.4}),
    ):
        config = execution_plan.BandMFExecutionPlanConfig(epsilon=None, delta=None, noise_multiplier=1.0, **more)
        plan = config.plan
        shown = {"dp_event": as_data(plan.dp_event), "strategy": as_data(plan.batch_selection_strategy)}
        relation = as_data(config.accountant.neighboring_relation)
        fields = [each for each in dataclasses.fields(config) if each.name not in ("dtype", "accountant")]
        shown["config"] = as_data(config, [each.name for each in fields])
        plans[name] = {**shown, "relation": relation, "accountant": type(config.accountant).__name__}
    # R8: the steps of the event are micro-batches, of which 43 updates were made
    r8 = accounting.dpsgd_event(7.69, 11049, sampling_prob=1024 / 14732)
    data = {"keras": {name: as_data(each) for name, each in configs.items()}, "plans": plans, "r8": as_data(r8)}
    data["strategies"] = {name: as_data(each) for name, each in strategies.items()}
    write_json(out / "objects.json", data)
    (out / "f5.txt").write_text(f"{configs['f5']!r}\n", encoding="utf-8")


def tensorflow_privacy() -> None:
    """The statements of the real source, without TensorFlow; the configuration is written by hand from the wheel."""
    wheel = Path(os.environ["GOLDEN_WHEEL"])
    out = HERE / "tensorflow_privacy-0.9.0"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    with tempfile.TemporaryDirectory() as scratch:
        shutil.unpack_archive(wheel, scratch, "zip")
        file = Path(scratch) / "tensorflow_privacy/privacy/analysis/compute_dp_sgd_privacy_lib.py"
        module = _module(file)
    state = module.compute_dp_sgd_privacy_statement
    pld = module.AccountantType.PLD
    texts = {
        "f10": state(60000, 256, 60.0, 1.1, 1e-5, used_microbatching=False),
        "microbatches": state(10000, 100, 10.0, 2.0, 1e-6, used_microbatching=True),
        "users": state(10000, 100, 10.0, 2.0, 1e-6, False, max_examples_per_user=3),
        "pld": state(60000, 256, 60.0, 1.1, 1e-5, False, accountant_type=pld),
    }
    for name, text in texts.items():
        (out / f"{name}.txt").write_text(text, encoding="utf-8")
    by_hand = "by hand from optimizers/dp_optimizer_keras.py of the wheel 0.9.0; TensorFlow was not installed"
    config = {"name": "DPKerasSGDOptimizer", "learning_rate": 0.25, "decay": 0.0, "momentum": 0.0, "nesterov": False}
    config |= {"global_state": {"l2_norm_clip": 1.5, "stddev": 1.65}, "num_microbatches": 256}
    write_json(out / "optimizer.json", {"written": by_hand, **config})


def _module(file: Path) -> ModuleType:
    """A module of one file."""
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def flower() -> None:
    """States of accountants, and the attributes of strategies and of a client's modifier."""
    from flwr.clientapp.mod import LocalDpMod
    from flwr.serverapp.strategy import (
        DifferentialPrivacyClientSideAdaptiveClipping,
        DifferentialPrivacyServerSideFixedClipping,
        FedAvg,
    )
    from flwr.supercore import privacy_accounting as accounting
    from flwr.supercore.privacy_accounting.rdp_accountant import RdpAccountant

    out = folder("flower", "flwr")
    relation, method = accounting.NeighboringRelation, accounting.SamplingMethod
    cases = {
        "poisson": (relation.ADD_OR_REMOVE_ONE, method.POISSON),
        "without-replacement": (relation.REPLACE_ONE, method.WITHOUT_REPLACEMENT),
        "no-amplification": (relation.ADD_OR_REMOVE_ONE, method.NO_AMPLIFICATION),
    }
    spent = {}
    accountants = {}
    for name, (related, sampled) in cases.items():
        config = accounting.PrivacyConfig(1e-5, 100, related, sampled)
        accountant = accountants[name] = RdpAccountant(config)
        accountant.compose(accounting.GaussianPrivacyEvent(4.0, 10, 100), 20)
        write_json(out / f"{name}.json", accountant.state_dict())
        spent[name] = accountant.get_privacy_spent().epsilon
    names = ("noise_multiplier", "clipping_norm", "num_sampled_clients", "strategy", "accountant")
    average = as_data(FedAvg(fraction_train=0.1), ("fraction_train", "weighted_by_key"))
    fixed = DifferentialPrivacyServerSideFixedClipping(FedAvg(fraction_train=0.1), 4.0, 1.0, 10)
    adaptive = DifferentialPrivacyClientSideAdaptiveClipping(FedAvg(fraction_train=0.1), 4.0, 100)
    plain = {"module": type(fixed).__module__, "type": type(fixed).__name__, "strategy": average, "accountant": None}
    plain |= {name: as_data(getattr(fixed, name)) for name in names[:3]}
    private = {name: each for name, each in vars(adaptive).items() if isinstance(each, int | float)}
    moving = {"module": type(adaptive).__module__, "type": type(adaptive).__name__, "strategy": average, **private}
    local = as_data(LocalDpMod(1.0, 1.0, 0.5, 1e-5), ("clipping_norm", "sensitivity", "epsilon", "delta"))
    write_json(out / "objects.json", {"fixed": plain, "adaptive": moving, "local": local, "spent": spent})


def _data_and_network(torch: ModuleType) -> tuple[Callable[[int], object], Callable[[], object]]:
    """A data set of a given size and a linear network, as the trainers of transformers want them."""

    class Data(torch.utils.data.Dataset):
        def __init__(self, records: int) -> None:
            self.x, self.y = torch.randn(records, 4), torch.randint(0, 2, (records,))

        def __len__(self) -> int:
            return len(self.x)

        def __getitem__(self, index: int) -> dict[str, object]:
            return {"x": self.x[index], "labels": self.y[index]}

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 2)

        def forward(self, x: object, labels: object = None) -> dict[str, object]:
            logits = self.layer(x)
            return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}

    torch.manual_seed(0)
    return Data, Net


# of every trainer's folder, what the readers read
KEPT = ("trainer_state.json", "accountant.json")


def _keep(scratch: str, out: Path) -> None:
    """Copy the small files of the last checkpoint of a training."""
    checkpoint = next(Path(scratch).glob("checkpoint-*"))
    (out / checkpoint.name).mkdir()
    for name in KEPT:
        if (checkpoint / name).exists():
            shutil.copy(checkpoint / name, out / checkpoint.name / name)


QUIET = {"report_to": [], "use_cpu": True, "disable_tqdm": True}


def transformers() -> None:
    """The folder of a Trainer: 6 updates of 16 records each."""
    import torch
    from transformers import Trainer, TrainingArguments

    out = folder("transformers", "transformers")
    data, net = _data_and_network(torch)
    batches = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 2}
    with tempfile.TemporaryDirectory() as scratch:
        args = TrainingArguments(scratch, max_steps=6, save_steps=6, logging_steps=3, **batches, **QUIET)
        Trainer(net(), args, train_dataset=data(64)).train()
        _keep(scratch, out)


def dptrainer() -> None:
    """The folder of a DPTrainer whose epochs end in the midst of a batch, and one without accumulation."""
    import torch
    from dptrainer import DPTrainer, PrivacyArguments
    from transformers import TrainingArguments

    out = folder("dptrainer", "DPTrainer")
    data, net = _data_and_network(torch)
    for batch, parts, steps in ((75, 4, 20), (100, 1, 30)):
        batches = {"per_device_train_batch_size": batch, "gradient_accumulation_steps": parts}
        kept = {"save_steps": steps, "restore_callback_states_from_checkpoint": True}
        private = PrivacyArguments(accountant="prv", noise_multiplier=1.5, target_delta=1e-5, epsilon_log_mode="train")
        with tempfile.TemporaryDirectory() as scratch:
            args = TrainingArguments(scratch, max_steps=steps, logging_steps=10, **batches, **kept, **QUIET)
            DPTrainer(net(), args, train_dataset=data(1000), privacy_args=private).train()
            _keep(scratch, out)


def opake() -> None:
    """The folder of opake's DPTrainer, calibrated to eps 3, and an accountant of 3,000 steps that all differ."""
    import torch
    from opake import accounting
    from opake.accounting import Accountant
    from opake.dpsgd import accounting as dpsgd
    from opake.serialization import state_dict
    from opake.transformers.trainer import DPTrainer, TrainingArguments

    out = folder("opake", "opake")
    data, net = _data_and_network(torch)
    private = {"clipping_norm": 1.0, "privacy_target_epsilon": 3.0, "privacy_target_delta": 1e-5, "seed": 0}
    saved = {"max_steps": 12, "save_steps": 12, "save_strategy": "steps", "logging_steps": 6}
    with tempfile.TemporaryDirectory() as scratch:
        args = TrainingArguments(
            output_dir=scratch, per_device_train_batch_size=20, report_to=[], use_cpu=True, **saved, **private
        )
        DPTrainer(model=net(), args=args, train_dataset=data(500)).train()
        _keep(scratch, out)
    budget = accounting.calibration.epsilon_budget(3.0, delta=1e-5)
    accountant = Accountant(budget=budget)
    for k in range(1200):  # deeper than Python's own reader of JSON goes
        accountant = accountant | dpsgd.poisson(dpsgd.gaussian(2.0 + k / 1000), 0.01)
    for step in (
        dpsgd.poisson(dpsgd.gaussian(1.0), 0.1, truncated_batch_size=64, dataset_size=500),
        dpsgd.adaclip(dpsgd.gaussian(1.0), expected_batch_size=50),
        accounting.eps_delta(0.1, 1e-6),
    ):
        accountant = accountant | step
    sys.setrecursionlimit(100_000)
    (out / "changing.json").write_text(json.dumps(dict(state_dict(accountant))) + "\n", encoding="utf-8")


def opacus() -> None:
    """The checkpoint of a right run, also with numbers of numpy in its history, and the history as JSON."""
    import numpy as np
    import torch
    from opacus import PrivacyEngine

    out = folder("opacus", "opacus")
    torch.manual_seed(0)
    data = torch.utils.data.TensorDataset(torch.randn(5000, 4), torch.randint(0, 2, (5000,)))
    model, engine = torch.nn.Linear(4, 2), PrivacyEngine()
    model, optimizer, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        data_loader=torch.utils.data.DataLoader(data, batch_size=50),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
    )
    for _ in range(5):
        for x, y in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
    engine.save_checkpoint(path=out / "checkpoint.pt", module=model, optimizer=optimizer)
    state = dict(engine.accountant.state_dict())
    write_json(out / "history.json", state)
    state["history"] = [(np.float64(z), np.float64(rate), n) for z, rate, n in state["history"]]
    torch.save({"privacy_accountant_state_dict": state}, out / "numpy.pt")


def lightning() -> None:
    """A checkpoint and a log of a Trainer: an optimizer of Opacus, whose accountant a callback saves."""
    import torch
    from lightning import Callback, LightningModule, Trainer
    from lightning.pytorch.loggers import CSVLogger
    from opacus import PrivacyEngine

    class Net(LightningModule):
        def __init__(self, loader: object) -> None:
            super().__init__()
            self.engine = PrivacyEngine(accountant="prv")
            model = torch.nn.Linear(4, 2)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            made = self.engine.make_private(
                module=model, optimizer=optimizer, data_loader=loader, noise_multiplier=1.0, max_grad_norm=1.0
            )
            self.model, self.optimizer, self.loader = made

        def configure_optimizers(self) -> object:
            return self.optimizer

        def train_dataloader(self) -> object:
            return self.loader

        def training_step(self, batch: list[object], index: int) -> object:
            loss = torch.nn.functional.cross_entropy(self.model(batch[0]), batch[1])
            self.log("epsilon", self.engine.get_epsilon(1e-5) if len(self.engine.accountant) else 0.0)
            return loss

    class SaveAccountant(Callback):
        def state_dict(self) -> dict[str, object]:
            return dict(module.engine.accountant.state_dict())

    out = folder("lightning", "lightning")
    torch.manual_seed(0)
    data = torch.utils.data.TensorDataset(torch.randn(500, 4), torch.randint(0, 2, (500,)))
    module = Net(torch.utils.data.DataLoader(data, batch_size=50))
    quiet = {"accelerator": "cpu", "enable_progress_bar": False, "enable_checkpointing": False}
    with tempfile.TemporaryDirectory() as scratch:
        logger = CSVLogger(scratch, name="logs", version=0)
        trainer = Trainer(max_epochs=2, callbacks=[SaveAccountant()], logger=logger, log_every_n_steps=5, **quiet)
        trainer.fit(module)
        trainer.save_checkpoint(out / "last.ckpt")
        shutil.copy(Path(scratch) / "logs/version_0/metrics.csv", out / "metrics.csv")


if __name__ == "__main__":
    globals()[sys.argv[1]]()
