"""The rules for a fork: its recipe must agree with the run before it, so that one statement is true of both.

The statement of a fork is made from its own recipe and from the ledger. The ledger has the releases of all runs, and
neither the seed of their noise, nor the weights that the first of them began from, nor the noise of their records.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wpriv import tasks
from wpriv.config.recipe import Recipe
from wpriv.errors import UsageError

GIVEN = "given"
"""The name of a network that the calling program gave."""
UNIT_OPTIONS = ("notion", "labels")
"""Options of tasks that decide whether the label of a record is protected as well."""


def require(path: Path, before: Mapping[str, Any], recipe: Recipe) -> None:
    """Refuse a fork whose statement would leave out what the run before it depends on.

    Args:
        path: the folder. before: the recipe of the run in it. recipe: of the fork.
    Raises:
        UsageError: noise of a fixed seed would go unnamed; the weights that the first run began from would, or others
            would be named; an accountant observes steps that are over; both runs protect different things; or the fork
            is on privatised records, and the run before it was not on the same ones.
    """
    assert recipe.training is not None
    if recipe.training.privacy is not None and before.get("seed") is not None and recipe.training.seed is None:
        raise UsageError(
            f"the run in {path} drew its noise from the seed {before['seed']}, and whoever knows it can subtract that "
            f"noise, which the statement of a fork without `seed` would not say. Give `seed` as well, or train in "
            f"another folder"
        )
    if recipe.training.privacy is not None and (observing := recipe.training.observing):
        raise UsageError(
            f"accountants: {observing[0]} needs distances of gradients from every step, and a fork observes none "
            f"of the runs before it. Leave it out of the accountants"
        )
    first, named = _first_weights(before), _first_weights(recipe.data)
    if first != named and (first or named != GIVEN):
        advice = "leave `init` out" if not first else f"keep {'`init`' if first != GIVEN else 'that network'}"
        raise UsageError(
            f"`fork=True` continues from the weights in {path}, whose first run began from {_words(first)}, and the "
            f"statement would name {_words(named)}: {advice}, or train in another folder"
        )
    if recipe.training.privacy is not None and not protect_alike(before, recipe.data):
        raise UsageError(
            f"the run in {path} protects other values or other groups of a record than this recipe, by its options "
            f"({' or '.join(UNIT_OPTIONS)}) or its data, so that no statement holds for both. Train in another folder"
        )
    if recipe.training.on_reports and (before.get("privacy") != "none" or _reports(before) != _reports(recipe.data)):
        raise UsageError(
            f"the weights in {path} depend on other records than the privatised ones of this recipe, and its statement "
            f"would call all of the training post-processing of these. Train in another folder"
        )


def protect_alike(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Tell whether the trainings of two recipes protect the same values of a record, among the same groups.

    Their adjacency does not tell: whether labels are public, and which groups there are, is the same word.
    """
    if _protected(before) != _protected(now):
        return False
    return _plain(before.get("data")) == _plain(now.get("data")) or not any(map(_depends_on_data, (before, now)))


def _protected(data: Mapping[str, Any]) -> list[Any]:
    """The options of a recipe that decide which values of a record are protected."""
    fields, options = _task(data).options.model_fields, data.get("options")
    given = options if isinstance(options, Mapping) else {}
    return [[key, given.get(key, fields[key].default)] for key in UNIT_OPTIONS if key in fields]


def _depends_on_data(data: Mapping[str, Any]) -> bool:
    """Tell whether the protection of a recipe is about its groups of records, or its cost about their number."""
    private = data.get("privacy")
    persons = isinstance(private, Mapping) and private.get("group", 1) != 1 and private.get("sampling") == "fixed"
    return persons or _task(data).sizes is not None


def _task(data: Mapping[str, Any]) -> tasks.TaskSpec:
    return tasks.load(str(data.get("task")))


def _first_weights(data: Mapping[str, Any]) -> str:
    """Return the origin of a run's first weights: digest or path of a file, `GIVEN`, or "" where they are drawn."""
    init, model = data.get("init"), data.get("model")
    if isinstance(init, Mapping):
        return str(init.get("sha256") or init.get("file"))
    return GIVEN if isinstance(model, Mapping) and model.get("name") == GIVEN else ""


def _words(first: str) -> str:
    if first == GIVEN:
        return "the network that a Python program gave"
    return f"those of `init` with the digest {first[:16]}" if first else "weights that were drawn"


def _reports(data: Mapping[str, Any]) -> str:
    """The data set, with the seed of its noise where the training draws it: the same text for the same reports."""
    return _plain([data.get("data"), data.get("seed")])


def _plain(data: Any) -> str:
    return json.dumps(data, sort_keys=True)
