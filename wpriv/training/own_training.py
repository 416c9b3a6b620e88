"""Private training of a network and of records that a Python program holds: ``wpriv.train(model, (x, y), ...)``."""

from __future__ import annotations

import copy
import hashlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wpriv.config import document
from wpriv.config.recipe import Recipe, check
from wpriv.errors import UsageError, require
from wpriv.hints import did_you_mean, elsewhere
from wpriv.numerics.numbers import positive_number
from wpriv.results import storage
from wpriv.results.model import Json
from wpriv.training.data import Data

if TYPE_CHECKING:
    import torch
    from torch import nn

    from wpriv.config.train_schema import Train
    from wpriv.training.clipping.example_gradients import Loss
    from wpriv.training.engine.job import Job
    from wpriv.training.own_optimizer import OwnOptimizer

SOURCE = "trained from Python by wpriv.train"
# keywords of ``wpriv.train`` that are keys of ``privacy``, are keys of a recipe, or become such keys
TARGET = ("eps", "delta", "sigma", "clip", "sampling", "noise")
KEYS = (
    *("batch", "epochs", "steps", "seed", "physical", "precision"),
    *("augment", "average", "early_stop", "freeze", "lora"),
)
OTHERS = ("privacy", "lr", "optimizer", "scheduler", "copies")


@dataclass(frozen=True)
class OwnTraining:
    """A recipe with the objects that take the place of what it names: data set, network and loss.

    Args:
        recipe: valid, with ``given`` for what only this program has.
        data: the records. model: the network, whose weights at this moment are the first ones. loss: of each record;
            None for the loss of the task. targets: see ``fit.build_job``. link: see ``record_loss.link_of``.
        optimizer: that of torch, None for that of the recipe.
    """

    recipe: Recipe
    data: Data
    model: nn.Module
    loss: Loss | None
    targets: str
    link: str
    optimizer: OwnOptimizer | None

    def build_job(self, recipe: Train, data: Data, device: torch.device, /, *, adjacency: str) -> Job:
        """Build the job of the recipe with these objects; see ``tasks.BuildJob``."""
        from wpriv.training.tasks import fit

        loss = fit.loss_of("cross-entropy") if self.loss is None else self.loss
        job = fit.build_job(
            recipe, data, device, adjacency=adjacency, model=self.model, loss=loss, targets=self.targets
        )
        if self.optimizer is not None:
            weights = [parameter for parameter in job.model.parameters() if parameter.requires_grad]
            optimizer, job.scheduler = self.optimizer.build(weights, recipe.steps or 0)
            job.optimizers = {"model": optimizer}
        return job

    def averaged(self, folder: Path) -> nn.Module:
        """Return a copy of the trained network with the averaged weights."""
        from wpriv.files import checkpoint

        network = copy.deepcopy(self.model)
        network.load_state_dict(checkpoint.load(folder / storage.MODEL)["average"])
        return network.eval()

    def with_weights(self, folder: Path, device: str) -> nn.Module:
        """Return the network with the weights of a finished training, in evaluation mode."""
        from wpriv.training.engine import fine_tuning, launch
        from wpriv.training.engine.saved_weights import inherit

        target = launch.device_of(device)
        fine_tuning.adapted(self.model, self.recipe.train.lora)
        inherit(self.model.to(target), folder, target)
        return self.model.eval()


def own_training(
    model: nn.Module,
    data: object,
    *,
    test: object = None,
    loss: object = None,
    classes: Any = None,
    tokens: int | None = None,
    features: Mapping[str, object] | None = None,
    person: object = None,
    max_per_person: int | None = None,
    **options: object,
) -> OwnTraining:
    """Describe a training of a network on records as a recipe.

    The arguments are those of ``wpriv.train`` for a network; ``options`` are the ones that are no objects.

    Raises:
        UsageError: the objects do not fit together, or the options are faulty.
        MissingResource: the records are no arrays of numbers.
    """
    require("torch", "training")
    from wpriv.training import own_optimizer
    from wpriv.training.clipping import record_loss
    from wpriv.training.tasks import _given

    _given.require_network(model)
    optimizer = own_optimizer.of_keywords(options.get("optimizer"), options.pop("scheduler", None), options.get("lr"))
    if optimizer is not None:
        options["optimizer"] = {"name": "given", "lr": optimizer.rate(model)}
    keys = options_of(options)
    of_persons = _persons(person, max_per_person)
    pictures = features is not None or options.get("augment") is not None
    loaded, targets = _records(
        model, data, test, loss, classes, tokens, of_persons, pictures=pictures, features=features is not None
    )
    written = {
        "kind": "train",
        "source": SOURCE,
        "task": "fit",
        "data": {"name": "given", "records": loaded.records},
        "model": {"name": "given", "architecture": _given.architecture(model)},
        "options": {"loss": "cross-entropy" if loss is None else loss if isinstance(loss, str) else "given"},
        **{key: value for key, value in keys.items() if value is not None},
    }
    if of_persons is not None:
        written["data"]["max_per_person"] = of_persons[1]
    if features is not None:
        written["options"]["features"] = dict(features)
    if loss is not None and not isinstance(loss, str):
        written["model"]["loss"] = _given.name_of(loss)
    if optimizer is not None:
        written["model"] |= optimizer.described()
    recipe = check(document.of_data(type(model).__name__, written))
    per_record = None if loss is None else _given.per_record(loss)
    link = record_loss.link_of(loss)
    return OwnTraining(replace(recipe, name=type(model).__name__), loaded, model, per_record, targets, link, optimizer)


def _records(
    model: nn.Module,
    data: object,
    test: object,
    loss: object,
    classes: Any,
    tokens: int | None,
    persons: tuple[object, int] | None,
    *,
    pictures: bool,
    features: bool,
) -> tuple[Data, str]:
    """The records as a data set, and their targets, see ``fit.job_of``; classes may be read off the outputs."""
    from wpriv.training.clipping import record_loss
    from wpriv.training.data import Packed, declared_words, of_arrays, pack
    from wpriv.training.tasks import _given, _supervised

    alone = loss is not None
    pair = _given.pair(data, "data", alone=alone)
    held_out = None if test is None else _given.pair(test, "test", alone=alone)
    vocabulary = _given.vocabulary(model, pair[0], tokens)
    if not vocabulary:
        x = _given.as_the_network_takes(model, pair[0], pictures=pictures)
        if held_out is not None and x is not pair[0]:
            held_out = pack("test", _given.quantities(held_out[0])), held_out[1]
        pair = x, pair[1]
    if persons is not None:
        pair, held_out = _given.by_person(pair, held_out, *persons, tokens=vocabulary)
    if isinstance(pair[1], Packed) and classes is not None:
        raise UsageError("`classes` are of one label for each record; give these targets as places of the outputs")
    loaded = of_arrays(
        "given",
        pair,
        held_out,
        source="arrays of a Python program",
        declared=declared_words(classes, "`classes`"),
        ignored=record_loss.ignored_label(loss),
        tokens=vocabulary,
    )
    targets = "numbers" if isinstance(pair[1], Packed) else record_loss.targets_of(loss)
    if targets == "classes" and loss is not None and not isinstance(loss, str) and len(loaded.response) > 1:
        targets = "numbers"  # shares of classes, [N, K] floats, which torch's cross-entropy takes too
    if targets == "classes":
        loaded = loaded if features else _given.by_outputs(model, loaded)
        _supervised.require_classes(loaded)
    return loaded, targets


def _persons(person: object, limit: int | None) -> tuple[object, int] | None:
    """Whose each record is with the most records of a person; None where each record is by itself."""
    if person is None and limit is None:
        return None
    if person is None or limit is None:
        missing = "no person" if person is None else "max_per_person None"
        raise UsageError(
            f"`person` says whose each record is, and `max_per_person`, a public number, how many of a person are kept "
            f"at most: give both; found {missing}"
        )
    return person, positive_number(limit, "`max_per_person`", whole=True)


def settings(loss: str, lr: float | None) -> str:
    """Return a digest of the loss and the learning rate that a step got beside its plan; "" where it got none."""
    if not loss and lr is None:
        return ""
    return hashlib.sha256(f"{loss} {None if lr is None else float(lr)!r}".encode()).hexdigest()[:16]


def options_of(keywords: Mapping[str, Any]) -> Json:
    """Return the keys of a recipe from those keyword arguments of ``wpriv.train`` that are no objects."""
    for name in keywords:
        if name not in (*TARGET, *OTHERS, *KEYS):
            known = (*inspect.signature(own_training).parameters, *TARGET, *OTHERS, *KEYS)
            hint = elsewhere(name, known) or did_you_mean(name, [key for key in known if key != "options"]) or "."
            raise UsageError(f"a training has no keyword {name!r}{hint} help(wpriv.train) describes all")
    lr, optimizer, privacy = (keywords.get(name) for name in ("lr", "optimizer", "privacy"))
    named = dict(optimizer) if isinstance(optimizer, Mapping) else {"name": optimizer or "sgd"}
    target = {name: keywords[name] for name in TARGET if keywords.get(name) is not None}
    further = dict(privacy) if isinstance(privacy, Mapping) else {}
    for owner, values, given in (("optimizer", named, {} if lr is None else {"lr": lr}), ("privacy", further, target)):
        for name, value in given.items():
            if values.get(name) not in (None, value):
                raise UsageError(f"`{name}` is {value}, and {values[name]} in `{owner}`; give it once")
    named |= {} if lr is None else {"lr": lr}
    if "lr" not in named:
        raise UsageError("wpriv.train needs `lr`, the learning rate; found none")
    if privacy == "none" and {"eps", "delta", "sigma"} & target.keys():
        raise UsageError("`privacy='none'` trains without privacy; leave out either it or `eps`, `delta` and `sigma`")
    if not {"eps", "sigma"} & target.keys() and privacy != "none" and not isinstance(privacy, Mapping):
        raise UsageError("wpriv.train needs `eps` or `sigma`, and `delta`; `privacy='none'` trains without privacy")
    target |= {name: value for name, value in further.items() if value is not None}
    keys = {name: keywords.get(name) for name in KEYS}
    if (copies := keywords.get("copies")) is not None:
        augment = dict(keys["augment"] or {})
        if augment.get("copies", copies) != copies:
            raise UsageError(f"`copies` is {copies}, and {augment['copies']} in `augment`; give it once")
        keys["augment"] = {**augment, "copies": copies}
    freeze = keys["freeze"]
    keys["freeze"] = freeze if freeze is None or isinstance(freeze, str) else list(freeze)
    return {"privacy": "none" if privacy == "none" else target, "optimizer": named, **keys}


def free_folder(name: str) -> Path:
    """Return ``results/<name>``, or ``results/<name>-2`` and so on: the first that does not exist."""
    base = Path("results") / name
    number, folder = 2, base
    while folder.exists():
        folder, number = base.with_name(f"{base.name}-{number}"), number + 1
    return folder
