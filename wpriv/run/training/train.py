"""The verb ``train``: from a recipe to a trained model, its privacy cost and its privacy statement."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from wpriv.config.recipe import Recipe
from wpriv.errors import UsageError
from wpriv.run import load_recipe
from wpriv.run.training import load_data, metric_logs, own_training, plan, progress, run_folder, tuned_training
from wpriv.run.training.metric_logs import Logs
from wpriv.run.training.plan import Plan
from wpriv.run.training.progress import signals
from wpriv.run.training.recipe_grid import changed
from wpriv.run.training.run_folder import RunFolder
from wpriv.run.training.trained import Trained
from wpriv.run.training.training_run import Stop, TrainingRun


def train(
    recipe: Any,
    data: Any = None,
    *,
    test: Any = None,
    loss: Any = None,
    eps: float | None = None,
    delta: float | None = None,
    sigma: float | None = None,
    clip: float | str | None = None,
    sampling: str | None = None,
    privacy: str | Mapping[str, Any] | None = None,
    batch: int | None = None,
    epochs: float | None = None,
    steps: int | None = None,
    lr: float | None = None,
    optimizer: str | Mapping[str, Any] | None = None,
    augment: Mapping[str, Any] | None = None,
    average: Mapping[str, Any] | None = None,
    freeze: str | Sequence[str] | None = None,
    lora: Mapping[str, Any] | None = None,
    seed: int | None = None,
    classes: Any = None,
    tokens: int | None = None,
    features: Mapping[str, Any] | None = None,
    progress: bool | None = None,
    log: str | Sequence[str] | None = None,
    log_private_losses: bool = False,
    out: str | Path | None = None,
    device: str = "cpu",
    set: Mapping[str, Any] | None = None,
    quick: bool = False,
    resume: bool = False,
    fork: bool = False,
    fresh: bool = False,
    data_root: str | Path | None = None,
) -> Trained:
    """Train a recipe, or a network of your own on records of your own, and account for the releases that happened.

    ``train("dpsgd/mnist")`` trains a recipe; ``train(model, (x, y), eps=3, delta=1e-5, batch=256, epochs=10, lr=0.5)``
    a ``torch.nn.Module``, whose weights are the first ones and hold the result at the end.

    Args:
        recipe: a path, or the name of a shipped recipe, of one training and not of a sweep; or a network, which must
            treat each record by itself. A recipe takes ``set``, ``quick`` and ``data_root``, a network all keywords
            down to ``progress``.
        data: the records and targets (x, y) as arrays or tensors, or a torch Dataset of such pairs.
        test: records for testing, as ``data``; a fifth of ``data`` is held out where left out.
        loss: a function (outputs, targets) -> losses [B], a loss of torch.nn, or a name such as ``squared``;
            cross-entropy by default. Of a loss of torch, each record gets its value on that record alone: the mean over
            its outputs that count, or their sum; class weights multiply it and are not divided out.
        eps, delta, sigma: the target (eps and delta), or the noise multiplier and the delta of the statement.
        clip: l2 norm to which each record's gradient is clipped (default 1), or ``automatic``.
        sampling: ``poisson`` (default), ``allocation``, ``fixed`` or ``none``.
        privacy: further keys of a recipe's ``privacy``, or ``none``.
        batch, epochs, steps: records of a step, and passes over the records or number of steps.
        lr, optimizer: learning rate, and ``sgd`` (default), ``adam``, ``adamw``, or a recipe's ``optimizer``.
        augment, average: these keys of a recipe: ``{"copies": 8, "flip": "horizontal"}``, ``{"decay": 0.999}``.
        freeze, lora: names of parameters that are not trained, ``features.*``, and low-rank changes, ``{"rank": 4}``;
            the network that is given holds them afterwards, and its first weights are taken as public.
        classes: the label of each output of the network, in their order: ``[2, 4, 9]``, or words; or names of the
            labels 0, 1, ... Left out, whole labels are the places of outputs, and words are sorted, which takes the
            set of them as public.
        tokens: the size of the vocabulary, where x holds tokens: whole numbers [N, T] below it, for an embedding.
        features: fixed features of images that the network takes in their place, [N, D] rows: ``{"name":
            "oriented-energy"}`` or ``scattering``, with the keys of a recipe; ``wpriv.image_features`` computes them.
        seed: makes the noise known to whoever knows it: for tests only.
        progress: print the metrics of every epoch on standard error (default).
        log: ``mlflow``, ``tensorboard`` or ``wandb``, or several; covered figures are sent at the end.
        log_private_losses: send the losses of training records as well, which no guarantee covers.
        out: folder for model, metrics, ledger and statement (default ``results/<name>``; with a network the first such
            folder with a number behind it that does not exist).
        device: ``cpu`` or ``cuda``.
        set: keys to change, by path: ``{"privacy.eps": 2}``.
        quick: apply the recipe's ``quick`` overrides.
        resume: continue an unfinished run.
        fork: continue from the weights in ``out`` with a changed recipe; the cost is that of both runs.
        fresh: begin again; earlier results in ``out`` are moved aside.
        data_root: folder of the data sets.
    Returns:
        The Trained: metrics, guarantees and the statement. ``Trained.require()`` raises if an expected number was
        missed.
    Raises:
        UsageError: the recipe is faulty, or ``out`` holds another run.
        Unsupported: the target is out of reach, or the network mixes records.
        MissingResource: the data set or the GPU is missing.
        Interrupted: a signal arrived; the run can be resumed.
    """
    options: dict[str, Any] = {
        "eps": eps, "delta": delta, "sigma": sigma, "clip": clip, "sampling": sampling, "privacy": privacy,
        "batch": batch, "epochs": epochs, "steps": steps, "lr": lr, "optimizer": optimizer, "seed": seed,
        "augment": augment, "average": average, "freeze": freeze, "lora": lora,
    }  # fmt: skip
    logs = metric_logs.logs_of(log, log_private_losses)
    start: dict[str, Any] = {"resume": resume, "fork": fork, "fresh": fresh}
    if isinstance(recipe, (str, Path)):
        objects = {
            "data": data,
            "test": test,
            "loss": loss,
            "progress": progress,
            "classes": classes,
            "tokens": tokens,
            "features": features,
        }
        _refuse("a network: change keys of a recipe by `set={'privacy.eps': 2}`", objects | options)
        loaded = recipe_of(recipe, quick=quick, changes=set or {})
        folder = Path(out) if out is not None else default_out(loaded)
        return run(loaded, folder, device=device, root=data_root, logs=logs, **start)
    _refuse(
        "a recipe: give the options of a network by keyword",
        {"set": set, "quick": quick or None, "data_root": data_root},
    )
    given = {name: value for name, value in options.items() if value is not None}
    training = own_training.own_training(
        recipe,
        data,
        test=test,
        loss=loss,
        classes=classes,
        tokens=tokens,
        features=features,
        options=own_training.options_of(**given),
    )
    folder = Path(out) if out is not None else own_training.free_folder(training.recipe)
    say = None if progress is False else _print_lines
    with signals() as stop:
        return TrainingRun(training.recipe, folder, training.data, device, say, stop, time.time(), training, logs).run(
            **start
        )


def _refuse(owner: str, arguments: Mapping[str, Any]) -> None:
    """Refuse arguments that belong to the other use of ``train``.

    Raises:
        UsageError: one of them is given.
    """
    names = [f"`{name}`" for name, value in arguments.items() if value is not None]
    if names:
        verb = "belongs" if len(names) == 1 else "belong"
        raise UsageError(f"{', '.join(names)} {verb} to {owner}")


def _print_lines(line: str, stays: bool) -> None:
    """Print lines of progress that stay, on standard error."""
    if stays:
        print(f"wpriv: {line}", file=sys.stderr, flush=True)


def recipe_of(name: str | Path, *, quick: bool = False, changes: Mapping[str, Any] | None = None) -> Recipe:
    """Return a validated recipe of kind train with keys changed.

    Raises:
        UsageError: the recipe is faulty, before or after the changes.
    """
    recipe = load_recipe.recipe(name, quick=quick, kind="train")
    return changed(recipe, changes) if changes else recipe


def default_out(recipe: Recipe) -> Path:
    """Return ``results/<name>``, or a folder of its own for a quick run."""
    return Path("results") / (f"{recipe.name}-quick" if recipe.quick else recipe.name)


def planned(
    recipe: Recipe, out: Path, *, root: str | Path | None = None, sizes: Mapping[str, int] | None = None, **start: bool
) -> tuple[Plan, RunFolder]:
    """Return the plan of a run and the state of its folder, without running it.

    Records are not loaded if their sizes are known, nor is torch if there is no checkpoint or model to continue from.

    Args:
        sizes: of the data, if known. start: ``resume``, ``fork``, ``fresh``.
    """
    folder = run_folder.resolve_run(run_folder.inspect(out, recipe, **start), recipe)
    assert recipe.training is not None
    return plan.plan(recipe, sizes or load_data.sizes(recipe, root), folder.earlier_process()), folder


def run(
    recipe: Recipe,
    out: Path,
    *,
    device: str = "cpu",
    resume: bool = False,
    fork: bool = False,
    fresh: bool = False,
    root: str | Path | None = None,
    say: progress.Say | None = None,
    stop: Stop | None = None,
    logs: Logs = metric_logs.NOWHERE,
) -> Trained:
    """Train a validated recipe in a folder; see ``train``.

    Args:
        say: called with lines of progress, and whether each line stays.
        logs: where figures are sent at the end.
        stop: called after every step; returns the reason to stop, or None. By default signals are such reasons.
    """
    if recipe.training is not None and recipe.training.has_several:
        raise UsageError(
            f"{recipe.name} is several trainings (sweep or seeds): run it with `wpriv train`, or set its keys (and "
            f"seeds to 1) to run one of them"
        )
    if recipe.training is not None and recipe.training.tune is not None:
        if fork or fresh:
            raise UsageError(
                f"`{'fork' if fork else 'fresh'}` is for one training, and {recipe.name} trains a random number of "
                f"runs (tune), which is drawn once. Name another folder with `out`, at the cost of both"
            )
        if logs.names:
            raise UsageError(
                f"`log` sends the figures of one training, and {recipe.name} keeps the best of a random number of runs "
                f"(tune). Leave it out"
            )
        return tuned_training.run(recipe, out, device=device, resume=resume, root=root, say=say, stop=stop)
    # a signal while data are read stops the run after its first step; one while results are written is too late
    with progress.signals() if stop is None else contextlib.nullcontext(stop) as stop_reason:
        started = time.time()
        data = load_data.data(recipe, root)
        return TrainingRun(recipe, out, data, device, say, stop_reason, started, logs=logs).run(
            resume=resume, fork=fork, fresh=fresh
        )
