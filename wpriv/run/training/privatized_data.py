"""Noise on training records, for a training that adds it itself: ``data: {name: mnist, privatize: {...}}``.

It is the verb ``privatize`` in memory. The noise must be the same whenever the run continues, so its seed is known:
good for experiments. For records of real people privatise once, with noise that nobody can draw again, and train on
that file.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wpriv.config.recipe import Recipe
from wpriv.data import Data, RecordNoise, scaled
from wpriv.errors import UsageError
from wpriv.run.local import local_statement
from wpriv.run.local.privatize import privatize
from wpriv.run.local.records import Records
from wpriv.run.results import words


def privatised(recipe: Recipe, data: Data, root: str | Path | None) -> Data:
    """Return a data set with the recipe's noise on its training records; test records stay as they are, as float32.

    What has no noise and is not declared public becomes 0: labels and numbers to predict, unless the recipe declares
    them public, and groups.

    Raises:
        UsageError: see ``privatize``; or there is no seed, or the data set has noise already.
    """
    train = recipe.train
    assert train.data.privatize is not None
    options: dict[str, Any] = train.data.privatize.model_dump(exclude_none=True)
    options.setdefault("seed", train.seed)
    if options["seed"] is None:
        raise UsageError(
            f"{recipe.name}: data: privatize must draw the same noise whenever the run continues: give seed. Or "
            f"privatise once, as a release needs, with `wpriv privatize`, and train on its file: "
            f"data: {{name: privatized, file: FILE.npz}}"
        )
    if data.noise is not None:
        raise UsageError(f"{recipe.name}: data: privatize: {data.name} has noise already; leave out privatize")
    try:
        records = Records(data.x_train, f"{data.name}:train", data.y_train, data.notes)
        reports = privatize(records, options.pop("mech"), root=root, **options)
    except UsageError as error:
        raise UsageError(f"{recipe.name}: data: privatize: {error}") from None
    assert reports.x is not None
    statement = reports.statement
    p, parameter = (2, "sigma") if "sigma" in statement["noise"] else (1, "scale")
    domain = "dct" if options.get("dct") else "as read"
    note = f"noise was added to every training record: {words.headline(local_statement.read(statement))}"
    return replace(
        data,
        x_train=reports.x,
        y_train=np.zeros(len(reports.x), np.int64) if reports.labels is None else reports.labels,
        x_test=scaled(data.x_test),
        response_train=data.response_train if train.data.privatize.public_labels else _zeros(data.response_train),
        sensitive_train=_zeros(data.sensitive_train),
        noise=RecordNoise(p, float(statement["noise"][parameter]), domain, statement),
        notes=(*data.notes, note),
    )


def _zeros(values: NDArray[Any] | None) -> NDArray[Any] | None:
    return None if values is None else np.zeros_like(values)
