"""The verbs ``train`` and ``train_all``: from a recipe to trained models, their privacy cost and their statement."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from wpriv.accounting import load_recipe
from wpriv.config.plain_words import in_plain_words
from wpriv.config.recipe import Recipe
from wpriv.errors import UsageError
from wpriv.results.model import Json
from wpriv.training import metric_logs, own_training, sweep, training_run, tuning
from wpriv.training.metric_logs import Logs
from wpriv.training.progress import Say, Stop, signals
from wpriv.training.sweep import SweepResult
from wpriv.training.trained import Trained
from wpriv.training.training_grid import changed, with_first_weights


@in_plain_words
def train(
    recipe: Any,
    data: Any = None,
    *,
    test: Any = None,
    loss: Any = None,
    eps: float | None = None,
    delta: float | None = None,
    sigma: float | None = None,
    clip: float | str | Mapping[str, float] | None = None,
    sampling: str | None = None,
    noise: str | Mapping[str, Any] | None = None,
    privacy: str | Mapping[str, Any] | None = None,
    batch: int | None = None,
    epochs: float | None = None,
    steps: int | None = None,
    lr: float | None = None,
    optimizer: Any = None,
    scheduler: Any = None,
    augment: Mapping[str, Any] | None = None,
    average: Mapping[str, Any] | None = None,
    early_stop: Mapping[str, Any] | None = None,
    freeze: str | Sequence[str] | None = None,
    lora: Mapping[str, Any] | None = None,
    physical: int | None = None,
    precision: str | None = None,
    seed: int | None = None,
    classes: Any = None,
    tokens: int | None = None,
    features: Mapping[str, Any] | None = None,
    person: Any = None,
    max_per_person: int | None = None,
    copies: int | None = None,
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
    ledger: str | None = None,
) -> Trained:
    """Train a recipe, or a network of your own on records of your own, and account for the releases that happened.

    ``train("dpsgd/mnist")`` trains a recipe; ``train(model, (x, y), eps=3, delta=1e-5, batch=256, epochs=10, lr=0.5)``
    a ``torch.nn.Module``, whose weights are the first ones and hold the result at the end.

    Args:
        recipe: a path, or the name of a shipped recipe, of one training and not of a sweep; or a network, which must
            treat each record by itself. A recipe takes ``set``, ``quick`` and ``data_root``, a network all keywords
            down to ``progress``.
        data: the records and targets (x, y), or a torch Dataset or DataLoader of such pairs (of a DataLoader the
            dataset, collate_fn and workers are used). Each is an array, or a dictionary, tuple or list of arrays with
            the records in their first dimension: ``forward`` gets these by name or in order, and the loss the targets
            as they are. Without targets (x alone) the loss gets the records as targets.
        test: records for testing, as ``data``; a fifth of ``data`` is held out where left out.
        loss: a function (outputs, targets) -> losses [B], a loss of torch.nn, or a name such as ``squared``;
            cross-entropy by default. Of a loss of torch, each record gets its value on that record alone: the mean over
            its outputs that count (without those of ``ignore_index``; 0 where none counts), or their sum; class weights
            multiply it and are not divided out. With targets for each token or pixel, classes are the second dimension
            of the outputs, as in torch, or the last one.
        eps, delta, sigma: the target (eps and delta), or the noise multiplier and the delta of the statement.
        clip: l2 norm to which each record's gradient is clipped (default 1); ``automatic``; ``per-layer``, the part of
            each of L layers to 1 / sqrt(L); or a norm for each group of parameters, ``{"body.*": 1, "head.*": 0.5}``.
        sampling: ``poisson`` (default), ``allocation``, ``fixed`` or ``none``.
        noise: ``rounded`` (default), ``exact``, or ``{"strategy": "lambda:0.6"}`` for noise that is correlated between
            steps, with records that keep one bin.
        privacy: further keys of a recipe's ``privacy``, or ``none``.
        batch, epochs, steps: records of a step, and passes over the records or number of steps.
        lr, optimizer: learning rate, and ``sgd`` (default), ``adam``, ``adamw``, or a recipe's ``optimizer``; or one of
            torch with its own ``lr``: a function parameters -> optimizer, or an optimizer over the trained parameters.
        scheduler: of torch's learning rates: a function optimizer -> schedule, or a schedule over that optimizer.
        augment, average: these keys of a recipe: ``{"copies": 8, "flip": "horizontal"}``, ``{"decay": 0.999}``.
        early_stop: ``{"records": "public", "patience": 3}`` ends where the figures of ``test`` do not get better any
            more; ``"private"`` records are counted with noise, at an eps of their own. The eps of the training is that
            of all planned steps.
        freeze, lora: names of parameters that are not trained, ``features.*``, and low-rank changes, ``{"rank": 4}``;
            the network that is given holds them afterwards, and its first weights are taken as public.
        physical: how many records pass through the network at once, of a batch that memory does not hold; found from
            memory by default. The steps are the same: one noise, and the divisor is the expected batch.
        precision: ``bf16`` computes the network in bfloat16 by autocast; weights, norms and noise stay float32.
        classes: the label of each output of the network, in their order: ``[2, 4, 9]``, or words; or names of the
            labels 0, 1, ... Left out, whole labels are the places of outputs, and words are sorted, which takes the
            set of them as public.
        tokens: the size of the vocabulary, where x holds tokens: whole numbers [N, T] below it, for an embedding.
        features: fixed features of images that the network takes in their place, [N, D] rows: ``{"name":
            "oriented-energy"}`` or ``scattering``, with the keys of a recipe; ``wpriv.image_features`` computes them.
        person, max_per_person: whose each record is, [N] numbers or words, where privacy is for persons: the records of
            a person, at most so many, are drawn together, averaged and clipped as one. The numbers are public.
        copies: average each record over so many passes before clipping, where the network draws random numbers.
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
        ledger: URL of a ``wpriv.Ledger`` that pays for the steps before the first one, or refuses.
    Returns:
        The Trained: metrics, guarantees and the statement. ``Trained.require()`` raises if an expected number was
        missed.
    Raises:
        UsageError: the recipe is faulty, or ``out`` holds another run.
        Unsupported: the target is out of reach, or the network mixes records.
        MissingResource: the data set, the GPU or torch is missing.
        Interrupted: a signal arrived; the run can be resumed.
    """
    of_network: Json = {
        "test": test, "loss": loss, "classes": classes, "tokens": tokens, "features": features,
        "eps": eps, "delta": delta, "sigma": sigma, "clip": clip, "sampling": sampling, "noise": noise,
        "privacy": privacy,
        "batch": batch, "epochs": epochs, "steps": steps, "lr": lr, "optimizer": optimizer, "scheduler": scheduler,
        "seed": seed,
        "augment": augment, "average": average, "early_stop": early_stop, "freeze": freeze, "lora": lora,
        "physical": physical, "precision": precision, "copies": copies,
        "person": person, "max_per_person": max_per_person,
    }  # fmt: skip
    logs = metric_logs.logs_of(log, log_private_losses)
    start: Json = {"resume": resume, "fork": fork, "fresh": fresh}
    if isinstance(recipe, (str, Path)):
        owner = "a network: change keys of a recipe by `set={'privacy.eps': 2}`"
        _refuse(owner, {"data": data, **of_network, "progress": progress})
        loaded = recipe_of(recipe, quick=quick, changes=set)
        return run(loaded, _folder(out, loaded), device=device, root=data_root, logs=logs, ledger=ledger, **start)
    owner = "a recipe: give the options of a network by keyword"
    _refuse(owner, {"set": set, "quick": quick or None, "data_root": data_root})
    given = {name: value for name, value in of_network.items() if value is not None}
    training = own_training.own_training(recipe, data, **given)
    say = None if progress is False else _print_line
    with signals() as stop:
        return training_run.own_run(training, out, device, say, stop, logs, ledger).run(**start)


def train_all(
    recipe: str | Path,
    *,
    out: str | Path | None = None,
    seeds: int | None = None,
    set: Mapping[str, Any] | None = None,
    quick: bool = False,
    jobs: int = 1,
    device: str = "cpu",
    data_root: str | Path | None = None,
) -> SweepResult:
    """Train every setting of a recipe with a sweep, or one setting several times, each in a folder of its own.

    The same call continues: trainings that are finished in ``out`` are not repeated.

    Args:
        recipe: a path, or the name of a shipped recipe of kind train.
        out: folder of all results (default ``results/<name>``).
        seeds: the number of independent runs of each setting, in place of the recipe's; an int of 1 to 1000.
        set: keys to change, by path. quick: apply the recipe's ``quick`` overrides.
        jobs: trainings at the same time. device: ``cpu`` or ``cuda``. data_root: folder of the data sets.
    Returns:
        The SweepResult: rows (means and deviations where runs are repeated), runs, and what all trainings together
        keep. ``SweepResult.require()`` raises if an expected number was missed.
    Raises:
        UsageError: the recipe is faulty, or is of one training. Interrupted: a signal arrived.
        MissingResource: the data set, the GPU or torch is missing.
    """
    changes = {**(set or {}), **({} if seeds is None else {"seeds": seeds})}
    loaded = recipe_of(recipe, quick=quick, changes=changes)
    if not loaded.train.has_several:
        raise UsageError(f"{loaded.name} is one training: give `seeds`, or call `train`")
    return sweep.run(loaded, _folder(out, loaded), jobs=jobs, device=device, root=data_root)


def _refuse(owner: str, arguments: Mapping[str, Any]) -> None:
    """Refuse arguments that belong to the other use of ``train``."""
    names = [f"`{name}`" for name, value in arguments.items() if value is not None]
    if names:
        verb = "belongs" if len(names) == 1 else "belong"
        raise UsageError(f"{', '.join(names)} {verb} to {owner}")


def _print_line(line: str) -> None:
    print(f"wpriv: {line}", file=sys.stderr, flush=True)


def _folder(out: str | Path | None, recipe: Recipe) -> Path:
    return Path(out) if out is not None else recipe.default_out


def recipe_of(name: str | Path, *, quick: bool = False, changes: Mapping[str, Any] | None = None) -> Recipe:
    """Return a validated recipe of kind train with keys changed."""
    recipe = load_recipe.read(name, quick=quick, kind="train")
    return changed(recipe, changes) if changes else recipe


def require_one(recipe: Recipe, *, fork: bool, fresh: bool) -> None:
    """Refuse to begin several trainings as only one training can begin."""
    why = {
        "a sweep or repeated runs (seeds) continue all of their trainings. Name another folder with `out` to begin "
        "all of them again": recipe.train.has_several,
        "the number of runs of a tuned training is drawn once. Name another folder with `out`; what was trained in "
        "this one is spent all the same": recipe.train.tune is not None,
    }
    for reason, is_so in why.items():
        if is_so and (fork or fresh):
            raise UsageError(f"`{'fork' if fork else 'fresh'}` is for one training, and {reason}")


def run(
    recipe: Recipe,
    out: Path,
    *,
    device: str = "cpu",
    resume: bool = False,
    fork: bool = False,
    fresh: bool = False,
    root: str | Path | None = None,
    say: Say | None = None,
    stop: Stop | None = None,
    logs: Logs = metric_logs.NOWHERE,
    ledger: str | None = None,
) -> Trained:
    """Train a validated recipe in a folder; see ``train``.

    Args:
        say: called with lines of progress. logs: where figures are sent at the end. ledger: the URL of the ledger that
            pays for the releases before the first step.
        stop: called after every step; returns the reason to stop, or None. By default signals are such reasons.
    """
    if recipe.train.has_several:
        raise UsageError(
            f"{recipe.name} is several trainings (sweep or seeds): run it with `wpriv train`, or set its keys (and "
            f"seeds to 1) to run one of them"
        )
    if ledger is not None and recipe.train.tune is not None:
        raise UsageError("`ledger` pays for one training; of the best of a random number of runs spend each by itself")
    recipe = with_first_weights(recipe, device=device, root=root, say=say)
    if recipe.train.tune is not None:
        require_one(recipe, fork=fork, fresh=fresh)
        if logs.names:
            raise UsageError(
                f"`log` sends the numbers of one training, and {recipe.name} keeps the best of a random number of runs "
                f"(tune). Leave it out"
            )
        return tuning.run(recipe, out, device=device, resume=resume, root=root, say=say, stop=stop)
    start: Json = {"resume": resume, "fork": fork, "fresh": fresh}
    return training_run.train(
        recipe, out, device=device, root=root, say=say, stop=stop, logs=logs, ledger=ledger, **start
    )
