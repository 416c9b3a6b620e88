"""Recipes: documents that have been resolved and validated, ready to run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wpriv.config import resolve as resolve_train
from wpriv.config.document import Document, refusal
from wpriv.config.field_types import Claim, Expect, Time
from wpriv.config.plain_document import plain_document
from wpriv.config.resolve import Resolved, panel, resolve
from wpriv.config.schema import Compare, Panel
from wpriv.config.train_schema import Train
from wpriv.config.validate import validate
from wpriv.config.validate_steps import ALIASES


@dataclass(frozen=True)
class Check:
    """An expected number, and the panel it belongs to ('' for the whole table)."""

    panel: str
    expect: Expect

    @property
    def where(self) -> dict[str, object]:
        """The values of columns that select the rows the number is about."""
        return {ALIASES.get(k, k): v for k, v in self.expect.where.items()}

    @property
    def columns(self) -> dict[str, float]:
        """The expected numbers by column."""
        return {ALIASES.get(k, k): v for k, v in (self.expect.model_extra or {}).items()}


@dataclass(frozen=True)
class Recipe:
    """A valid recipe.

    Args:
        name: of its file, without folder and suffix.
        data: the recipe as resolved, as plain data; recipes with equal data are the same run.
        panels: of a comparison. checks: expected numbers. training: the model of kind train.
        quick: whether ``quick`` overrides were applied.
        claims: statements of the source that do not hold here. time: how long the recipe takes.
        changed: whether keys were changed after it was read, so that ``time`` may be that of another run.
    """

    name: str
    kind: str
    source: str
    data: dict[str, Any]
    panels: tuple[Panel, ...] = ()
    checks: tuple[Check, ...] = ()
    quick: bool = False
    training: Train | None = None
    claims: tuple[Claim, ...] = ()
    time: Time | None = None
    changed: bool = False

    @property
    def train(self) -> Train:
        """The model of a recipe of kind train."""
        assert self.training is not None
        return self.training

    @property
    def default_out(self) -> Path:
        """The folder of its results where none is named; a quick run, whose table is another one, has its own."""
        return Path("results") / (f"{self.name}-quick" if self.quick else self.name)


def check(document: Document, *, quick: bool = False, folder: Path | None = None) -> Recipe:
    """Resolve and validate a document, with or without its ``quick`` overrides.

    Args:
        folder: of the recipe, which files that mechanisms read are named relative to.
    Raises:
        UsageError: the recipe is faulty; the message lists every fault with its line and column.
        MissingResource: it is sound, but files of observations that it names do not exist.
    """
    document = plain_document(document)
    resolved = resolve(document, quick=quick, folder=folder)
    if diagnostics := validate(resolved):
        raise refusal(document, diagnostics)
    name = document.name.replace("\\", "/").rpartition("/")[2].rpartition(".")[0] or document.name
    kind = document.data["kind"]
    if kind == "compare":
        return _comparison(name, resolved)
    if kind == "train":
        return _training(name, resolved)
    time = None if document.data.get("time") is None else Time.model_validate(document.data["time"])
    return Recipe(name, kind, document.data.get("source") or "", document.data, quick=quick, time=time)


def _comparison(name: str, resolved: Resolved) -> Recipe:
    written = resolved.document.data
    panels = tuple(panel(part) for part in resolved.parts)
    checks = tuple(Check(each.name, row) for each in panels for row in each.expect)
    about = {key: written[key] for key in ("claims", "time") if written.get(key)}
    head = {"kind": "compare", "source": written["source"]}
    model = Compare.model_validate({**head, **about})
    merged = {"panels": [part.data for part in resolved.parts]} if written.get("panels") else resolved.parts[0].data
    data = {**head, **merged, **about}
    claims = tuple(model.claims)
    return Recipe(name, "compare", model.source, data, panels, checks, resolved.quick, None, claims, model.time)


def _training(name: str, resolved: Resolved) -> Recipe:
    model = Train.model_validate(resolved.parts[0].data)
    data, checks = resolve_train.written_out(model), tuple(Check("", row) for row in model.expect)
    claims = tuple(model.claims)
    return Recipe(name, "train", model.source, data, (), checks, resolved.quick, model, claims, model.time)
