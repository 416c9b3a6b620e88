"""Whether results in a folder are of the records of a training, as far as their provenance names them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from wpriv.config.recipe import Recipe
from wpriv.errors import UsageError, WprivError
from wpriv.run.results import file_names, stored_json


def require_records(path: Path, data: Any) -> None:
    """Refuse a folder of results of a training on other records, as far as its provenance names them.

    Raises:
        UsageError: the folder holds such results.
    """
    fingerprint = fingerprint_in(path)
    if fingerprint not in (None, data.fingerprint):
        raise UsageError(
            f"{path} holds a finished training on other records. Name another folder with `out`, or give those records"
        )


def require_other_weights(recipe: Recipe, data: Any) -> None:
    """Refuse first weights from a folder of results on the same records, unless these are declared public.

    Raises:
        UsageError: ``init`` names such a file.
    """
    training = recipe.train
    if training is None or training.init is None or training.privacy is None or training.init.records == "public":
        return
    from wpriv.engine import fine_tuning

    path = Path(training.init.file).parent
    # weights that were trained without privacy are refused when they are loaded
    private = not fine_tuning.read(Path(training.init.file), training.init.sha256).without_privacy
    if private and fingerprint_in(path) == data.fingerprint:
        raise UsageError(
            f"init: the weights in {training.init.file} were trained on the records of this training. Continue from "
            f"them with `fork=True` in the folder {path}, which accounts for both"
        )


def fingerprint_in(path: Path) -> str | None:
    """Return the fingerprint of the records of the training whose results a folder holds; None where it has none."""
    try:
        return stored_json.read(path / file_names.PROVENANCE).get("data_fingerprint")
    except WprivError:
        return None
