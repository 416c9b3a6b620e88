"""Figures sent to TensorBoard, MLflow and Weights & Biases: only what the statement covers, unless asked."""

from __future__ import annotations

import json
import sys
import types

import numpy as np
import pytest
from torch import nn

import wpriv
from wpriv.cli.main import main
from wpriv.errors import MissingResource, UsageError
from wpriv.training import metric_logs
from wpriv.training.reports import model_check

RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 5)).astype(np.float32)
Y = (X @ np.arange(5.0) > 0).astype(int)
OPTIONS = {"eps": 3, "delta": 1e-5, "batch": 100, "steps": 6, "lr": 0.5, "seed": 77, "progress": False}
pytestmark = pytest.mark.filterwarnings("ignore:.*seed")


class Recorder:
    """A logger in the place of all three, which keeps what it is given."""

    def __init__(self):
        self.sent: list[metric_logs.Figures] = []

    def __call__(self, figures):
        self.sent.append(figures)


@pytest.fixture
def recorder(monkeypatch):
    recorder = Recorder()
    monkeypatch.setattr(metric_logs, "WRITERS", dict.fromkeys(metric_logs.PACKAGES, recorder))
    monkeypatch.setattr(metric_logs, "_installed", lambda package: True)
    return recorder


def train(out, **more):
    return wpriv.train(nn.Sequential(nn.Linear(5, 2)), (X, Y), out=out, **(OPTIONS | more))


def test_only_covered_figures_are_sent(tmp_path, recorder):
    trained = train(tmp_path / "r", log="tensorboard")
    (sent,) = recorder.sent
    assert set(sent.final) == {"epsilon", "delta", "sigma", "n", "accuracy", "test_loss"}
    assert sent.final["epsilon"] == trained.guarantee.epsilon.safe <= 3
    assert sent.final["delta"] >= 1e-5
    assert sent.final["sigma"] == trained.plan.multiplier
    assert sent.final["accuracy"] == trained.metrics[-1]["accuracy"]
    assert sent.rows == ()
    assert sent.parameters["privacy.clip"] == "1.0"
    assert sent.parameters["optimizer.lr"] == "0.5"
    # the seed would let everyone draw the noise; the fingerprint identifies the records
    everything = json.dumps([sent.parameters, sent.final])
    assert "77" not in [*sent.parameters.values()]
    assert "seed" not in everything
    assert json.loads((tmp_path / "r" / "provenance.json").read_text())["data_fingerprint"] not in everything
    assert not any("metrics of training records" in line for line in trained.statement["warnings"])


def test_private_losses_are_sent_where_asked_and_the_statement_says_so(tmp_path, recorder):
    trained = train(tmp_path / "r", log=["mlflow", "wandb"], log_private_losses=True)
    assert len(recorder.sent) == 2
    ((step, row),) = recorder.sent[0].rows[-1:]
    assert step == 6
    assert row["loss"] == trained.metrics[-1]["loss"]
    assert {"loss", "clipped"} <= set(row)
    for text in ("\n".join(trained.statement["warnings"]), (tmp_path / "r" / "statement.md").read_text()):
        assert "were sent to mlflow, wandb" in text
    stored = json.loads((tmp_path / "r" / "statement.json").read_text())
    assert stored == trained.statement
    # a finished training is sent again, and says it once
    again = train(tmp_path / "r", log=["mlflow", "wandb"], log_private_losses=True)
    assert again.statement == stored


def test_a_finished_training_gets_the_warning_when_its_losses_are_sent(tmp_path, recorder):
    before = train(tmp_path / "r").statement["warnings"]
    after = train(tmp_path / "r", log="wandb", log_private_losses=True).statement["warnings"]
    assert model_check.check(tmp_path / "r").verdict == model_check.FITS  # the header names the new statement
    assert after[:-1] == before
    assert "were sent to wandb" in after[-1]


def test_the_statement_has_the_warning_before_anything_is_sent(tmp_path, monkeypatch, recorder):
    def send(figures):
        assert "were sent to wandb" in (figures.folder / "statement.md").read_text()
        raise ConnectionError("no network")

    monkeypatch.setitem(metric_logs.WRITERS, "wandb", send)
    with pytest.raises(MissingResource, match=r"is finished.*wandb failed: no network"):
        train(tmp_path / "r", log="wandb", log_private_losses=True)


@pytest.mark.parametrize("privacy", ["none", {"clip": "batch-mean", "sampling": "fixed", "sigma": 1.0, "delta": 1e-5}])
def test_without_a_guarantee_no_metric_is_sent(tmp_path, recorder, privacy):
    options = OPTIONS | {"eps": None, "delta": None, "privacy": privacy}
    wpriv.train(nn.Sequential(nn.Linear(5, 2)), (X, Y), out=tmp_path / "r", log="wandb", **options)
    assert set(recorder.sent[0].final) <= {"n", "sigma"}


def test_the_seed_of_noise_on_the_records_is_not_sent(tmp_path, recorder):
    path = tmp_path / "r.yaml"
    path.write_text(
        "kind: train\nsource: a test\ntask: classify\nmodel: {name: logistic}\nprivacy: none\nbatch: 100\nsteps: 2\n"
        "data: {name: digits, privatize: {mech: local-gauss, eps: 5, delta: 1e-4, radius: 1, "
        "seed: 7741, public_labels: true}}\n"
        "optimizer: {lr: 0.1}\n"
    )
    wpriv.train(path, out=tmp_path / "r", log="wandb")
    (sent,) = recorder.sent
    assert sent.parameters["data.privatize.radius"] == "1.0"
    assert "7741" not in json.dumps([sent.parameters, sent.final])


def test_a_loop_of_ones_own_sends_at_its_end(tmp_path, recorder):
    options = {key: value for key, value in OPTIONS.items() if key != "progress"}
    with wpriv.training_loop(nn.Linear(5, 2), (X, Y), out=tmp_path / "r", log="mlflow", **options) as run:
        for _ in run:
            assert recorder.sent == []
            run.step()
    assert len(recorder.sent) == 1


def test_the_command_sends_and_refuses(tmp_path, recorder, capsys):
    out = str(tmp_path / "r")
    assert main(["train", "quick/digits", "--quick", "--out", out, "--log", "mlflow", "--log-private-losses"]) == 0
    output = capsys.readouterr()
    assert recorder.sent[0].rows
    assert "were sent to mlflow" in output.out + output.err
    for argv, word in (
        (["--log", "mlfow"], "'mlfow'; did you mean 'mlflow'"),
        (["--log-private-losses"], "--log-private-losses says what --log sends"),
        (["--log", "mlflow", "--dry-run"], "--log is for one training"),
    ):
        assert main(["train", "quick/digits", "--out", out, *argv]) == 2
        assert word in capsys.readouterr().err


def test_a_logger_that_is_not_installed_is_refused_before_the_training(tmp_path, monkeypatch):
    monkeypatch.setattr(metric_logs, "_installed", lambda package: False)
    with pytest.raises(MissingResource, match=r"pip install 'wpriv\[mlflow\]'"):
        train(tmp_path / "r", log="mlflow")
    assert not (tmp_path / "r").exists()
    with pytest.raises(UsageError, match="log_private_losses"):
        train(tmp_path / "r", log_private_losses=True)


def test_a_float32_is_rounded_upwards():
    """Oracle: exact comparison of the two doubles."""
    for value in (2.9999999, 3.0, 1e-5, 1 / 3, 0.1):
        assert value <= metric_logs._upwards(value) <= value * (1 + 2e-7)


@pytest.mark.slow
def test_tensorboard_files_hold_the_same_figures(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    trained = train(tmp_path / "r", log="tensorboard")
    events = EventAccumulator(str(tmp_path / "r" / "tensorboard")).Reload()
    names = events.Tags()["scalars"]
    assert sorted(names) == sorted(f"final/{key}" for key in metric_logs.figures(trained, private=False).final)
    (eps,) = events.Scalars("final/epsilon")
    assert trained.guarantee.epsilon.safe <= eps.value <= trained.guarantee.epsilon.safe * (1 + 2e-7)
    assert eps.step == 6
    train(tmp_path / "p", log="tensorboard", log_private_losses=True)
    assert "private/loss" in EventAccumulator(str(tmp_path / "p" / "tensorboard")).Reload().Tags()["scalars"]


@pytest.mark.slow
def test_mlflow_files_hold_the_same_figures(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "store").as_uri())
    monkeypatch.delenv("MLFLOW_EXPERIMENT_NAME", raising=False)
    trained = train(tmp_path / "r", log="mlflow", log_private_losses=True)
    client = mlflow.tracking.MlflowClient()
    experiment = client.get_experiment_by_name("wpriv")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED"
    assert run.data.metrics["final/epsilon"] == trained.guarantee.epsilon.safe
    assert run.data.metrics["private/loss"] == trained.metrics[-1]["loss"]
    assert run.data.params == metric_logs.figures(trained, private=False).parameters
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "unknown://nowhere")
    with pytest.raises(MissingResource, match="sending its numbers to mlflow failed"):
        train(tmp_path / "r", log="mlflow")


def test_wandb_is_called_without_what_it_records_of_the_machine(tmp_path, monkeypatch):
    """A fake in the place of the package, which checks the calls."""
    calls: dict = {}
    run = types.SimpleNamespace(
        log=lambda row, step: calls.setdefault("rows", []).append((step, row)), summary={}, finish=lambda: None
    )
    fake = types.ModuleType("wandb")
    fake.Settings = lambda **settings: settings  # type: ignore[attr-defined]
    fake.init = lambda **given: calls.update(given) or run  # type: ignore[attr-defined]
    errors = types.ModuleType("wandb.errors")
    errors.Error = RuntimeError  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", fake)
    monkeypatch.setitem(sys.modules, "wandb.errors", errors)
    monkeypatch.setattr(metric_logs, "_installed", lambda package: True)
    trained = train(tmp_path / "r", log="wandb")
    assert calls["settings"]["console"] == "off"
    assert calls["settings"]["x_disable_meta"]
    assert "rows" not in calls
    assert calls["config"] == metric_logs.figures(trained, private=False).parameters
    assert run.summary["final/epsilon"] == trained.guarantee.epsilon.safe
