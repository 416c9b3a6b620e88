"""Send the figures of a finished training to TensorBoard, MLflow or Weights & Biases: what its statement covers.

Parameters of the recipe (without a seed), eps, delta, noise and steps are sent, and the final metrics on test records.
Losses and shares of clipped gradients were computed from training records without noise: they are sent only where that
is asked for, and the privacy statement then says so, before anything leaves this machine.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from wpriv.config import resolve
from wpriv.errors import MissingResource, UnknownName, UsageError
from wpriv.training.trained import Trained

PACKAGES = ("mlflow", "tensorboard", "wandb")
KEYS = ("source", "task", "data", "model", "options", "privacy", "optimizer", "batch", "epochs", "steps", "accountants")
PRIVATE = (
    "metrics of training records, computed without noise, were sent to {names} (log_private_losses): no guarantee of "
    "this statement covers them, and whoever reads them there learns more than it says"
)
LONGEST = 500  # characters of a parameter
EXPERIMENT = "wpriv"


@dataclass(frozen=True)
class Logs:
    """Where to send figures. ``private``: metrics of training records are sent as well."""

    names: tuple[str, ...] = ()
    private: bool = False


NOWHERE = Logs()


@dataclass(frozen=True)
class Figures:
    """What is sent of a training.

    Args:
        name: of the recipe. folder: of its results.
        parameters: of the recipe, by dotted key, and words such as the accountant.
        final: numbers at the end. step: the last step. rows: private metrics, by step.
    """

    name: str
    folder: Path
    parameters: dict[str, str]
    final: dict[str, float]
    step: int
    rows: tuple[tuple[int, dict[str, float]], ...] = ()

    def numbers(self) -> Iterator[tuple[str, float, int]]:
        """Yield each number with its name there and its step."""
        yield from ((f"final/{key}", value, self.step) for key, value in self.final.items())
        yield from ((f"private/{key}", value, step) for step, row in self.rows for key, value in row.items())


def logs_of(names: str | Sequence[str] | None, private: bool = False) -> Logs:
    """Return where to send figures; nowhere where no name is given."""
    listed = () if names is None else (names,) if isinstance(names, str) else tuple(names)
    for name in listed:
        if name not in PACKAGES:
            raise UnknownName("logger", str(name), PACKAGES)
        if not _installed(name):
            raise MissingResource(
                f"the logger {name} needs the package of this name; install it by pip install 'wpriv[{name}]'"
            )
    if private and not listed:
        raise UsageError("`log_private_losses` says what `log` sends, and no log was named; name one, or leave it out")
    return Logs(tuple(dict.fromkeys(listed)), private)


def _installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def warning(logs: Logs) -> str | None:
    """Return the line of the statement about private metrics that are sent; None where none are."""
    return PRIVATE.format(names=", ".join(logs.names)) if logs.private else None


def figures(trained: Trained, *, private: bool) -> Figures:
    """Select what is sent of a finished training."""
    statement, row = trained.statement, trained.metrics[-1]
    training = trained.plan.train
    protected = trained.plan.private is not None and trained.plan.private.clip != "batch-mean"
    final: dict[str, float] = {"n": trained.plan.steps}
    parameters = _flat({key: value for key, value in trained.plan.recipe.data.items() if key in KEYS})
    if trained.plan.private is not None:
        final["sigma"] = trained.plan.multiplier
    if protected and trained.proven:
        # other figures may be computed from records without noise
        guarantee = trained.proven[0]
        final |= {"epsilon": guarantee.epsilon.safe, "delta": guarantee.delta.safe}
        for key in ("adjacency", "unit"):
            parameters[f"statement.{key}"] = str(statement[key])
        parameters |= {"statement.accountant": guarantee.accountant, "statement.claim": guarantee.claim}
    if protected or "reports" in statement:
        # without privacy no metric is covered: the weights themselves are computed without noise
        final |= _numbers({key: row.get(key) for key in resolve.test_metrics(training)})
    rows = tuple((int(each["step"]), _numbers(each)) for each in trained.metrics) if private else ()
    return Figures(trained.plan.recipe.name, trained.out, parameters, final, int(row["step"]), rows)


def send(logs: Logs, trained: Trained) -> None:
    """Send the figures of a finished training; MissingResource leaves the results in the folder whole."""
    sent = figures(trained, private=logs.private)
    for name in logs.names:
        try:
            WRITERS[name](sent)
        except OSError as error:
            raise _failed(name, sent, error) from error


def _failed(name: str, sent: Figures, error: BaseException) -> MissingResource:
    words = (str(error).splitlines() or [type(error).__name__])[0][:200]
    return MissingResource(
        f"the training is finished, and its results are in {sent.folder}; sending its numbers to {name} failed: "
        f"{words}. Give the same command again to send them"
    )


def _tensorboard(sent: Figures) -> None:
    """Write scalars and the parameters as a table into the folder ``tensorboard`` of the results."""
    from torch.utils.tensorboard import SummaryWriter

    table = ["| key | value |", "| --- | --- |", *(f"| {key} | {value} |" for key, value in sent.parameters.items())]
    with SummaryWriter(str(sent.folder / "tensorboard")) as writer:
        writer.add_text("parameters", "\n".join(table), sent.step)
        for name, value, step in sent.numbers():
            writer.add_scalar(name, _upwards(value) if name in ("final/epsilon", "final/delta") else value, step)


def _upwards(value: float) -> float:
    """The least float32 that is not below a number: TensorBoard keeps no more digits."""
    near = np.float32(value)
    return float(near if float(near) >= value else np.nextafter(near, np.float32(np.inf)))


def _mlflow(sent: Figures) -> None:
    """Write one run into the experiment that MLFLOW_EXPERIMENT_NAME names, at MLFLOW_TRACKING_URI."""
    from mlflow.exceptions import MlflowException
    from mlflow.tracking import MlflowClient

    try:
        client = MlflowClient()
        experiment = os.environ.get("MLFLOW_EXPERIMENT_NAME") or EXPERIMENT
        known = client.get_experiment_by_name(experiment)
        number = client.create_experiment(experiment) if known is None else known.experiment_id
        run = client.create_run(number, run_name=sent.name)
        for key, text in sent.parameters.items():
            # MLflow takes no other characters in a name
            known_as = "".join(letter if letter.isalnum() or letter in "_-./ :" else "_" for letter in key)[:250]
            client.log_param(run.info.run_id, known_as, text)
        for name, value, step in sent.numbers():
            client.log_metric(run.info.run_id, name, value, step=step)
        client.set_terminated(run.info.run_id)
    except MlflowException as error:
        raise _failed("mlflow", sent, error) from error


def _wandb(sent: Figures) -> None:
    """Write one run into the project that WANDB_PROJECT names, without what the library records of itself."""
    import wandb
    from wandb.errors import Error

    # the library would send the console, the code, the commit and the load of this machine as well
    settings = wandb.Settings(
        console="off", disable_git=True, save_code=False, x_disable_stats=True, x_disable_meta=True, silent=True
    )
    try:
        run = wandb.init(
            project=os.environ.get("WANDB_PROJECT") or EXPERIMENT,
            name=sent.name,
            config=dict(sent.parameters),
            dir=str(sent.folder),
            settings=settings,
        )
        for name, value, step in sent.numbers():
            if name.startswith("final/"):
                run.summary[name] = value
            else:
                run.log({name: value}, step=step)
        run.finish()
    except Error as error:
        raise _failed("wandb", sent, error) from error


WRITERS: dict[str, Callable[[Figures], None]] = {"mlflow": _mlflow, "tensorboard": _tensorboard, "wandb": _wandb}


def _numbers(row: Mapping[str, Any]) -> dict[str, float]:
    """The finite numbers of a row of metrics, without the counts that order it."""
    return {
        key: float(value)
        for key, value in row.items()
        if key not in ("step", "seconds") and type(value) in (int, float) and np.isfinite(value)
    }


def _flat(value: Mapping[str, object], prefix: str = "") -> dict[str, str]:
    """Nested keys as dotted ones, with their values as text; without seeds, from which noise can be drawn again."""
    flat: dict[str, str] = {}
    for key, item in value.items():
        if key == "seed":
            continue
        if isinstance(item, Mapping):
            flat |= _flat(item, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = str(item)[:LONGEST]
    return flat
