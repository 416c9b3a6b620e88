"""Training records with noise on them, for a training that puts it there itself: ``data: {name: mnist, privatize: {...}}``.

It is the verb ``privatize`` in memory. The noise must be the same whenever the run goes on, so that its seed is known: good for
experiments. Where real people are in the data privatise once, with noise that nobody can draw again, and train on that file.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from wpriv.config.recipe import Recipe
from wpriv.data import Data, RecordNoise, scaled
from wpriv.errors import UsageError
from wpriv.run.local import local_statement
from wpriv.run.local.privatize import privatize
from wpriv.run.local.records import Records


def privatised(made: Recipe, clear: Data, root: str | Path | None) -> Data:
    """A data set whose training records got the noise that a recipe asks for; its test records stay as they are, float32.

    Labels are all 0 but where the recipe says that they are public.

    Raises:
        UsageError: see ``privatize``; or there is no seed.
    """
    train = made.training
    assert train is not None
    assert train.data.privatize is not None
    asked: dict[str, Any] = train.data.privatize.model_dump(exclude_none=True)
    asked.setdefault("seed", train.seed)
    if asked["seed"] is None:
        raise UsageError(
            f"{made.name}: data: privatize draws the noise again whenever the run goes on: give seed. Or privatise once, as a release "
            f"should be, with `wpriv privatize`, and train on its file: data: {{name: privatized, file: FILE.npz}}"
        )
    if clear.noise is not None:
        raise UsageError(f"{made.name}: data: privatize: {clear.name} has noise on it already; leave it out")
    try:
        records = Records(clear.x_train, f"{clear.name}:train", clear.y_train, clear.notes)
        done = privatize(records, asked.pop("mech"), root=root, **asked)
    except UsageError as error:
        raise UsageError(f"{made.name}: data: privatize: {error}") from None
    assert done.x is not None
    said, p = done.statement, 2 if "sigma" in done.statement["noise"] else 1
    scale = float(said["noise"]["sigma" if p == 2 else "scale"])
    return replace(
        clear,
        x_train=done.x,
        y_train=np.zeros(len(done.x), np.int64) if done.labels is None else done.labels,
        x_test=scaled(clear.x_test),
        noise=RecordNoise(p, scale, "dct" if asked.get("dct") else "as read", said),
        notes=(*clear.notes, f"noise was put on every training record: {local_statement.headline(said)}"),
    )
