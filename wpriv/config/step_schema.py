"""The schema of a step of a process, with the parameters of its mechanism."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from wpriv.config.diagnostics import as_keys
from wpriv.config.field_types import Count, Positive, StrictModel, Word
from wpriv.core import registry
from wpriv.spec import KEYS


def declared(name: str) -> Any:
    """A key of ``wpriv.spec`` that may be left out, with the description that is declared there."""
    return Field(None, description=as_keys(KEYS[name]["recipe"]))


def plugin_fields(folder: str, name: Any) -> dict[str, dataclasses.Field[Any]]:
    """Return the parameters of a mechanism or a table by name; none for an unknown plug-in."""
    if name not in registry.names(folder):
        return {}
    cls = registry.mechanism(name) if folder == "mechanisms" else registry.load(folder, name).Params
    return {field.name: field for field in dataclasses.fields(cls)}


class Step(StrictModel):
    """A step of a process; the mechanism's own parameters (sigma, scale, ...) stand beside these keys."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    mech: Word = Field(description="a mechanism; its parameters (sigma, scale, ...) stand beside this key")
    n: Count | None = declared("n")
    sampling: Literal["none", "poisson", "fixed", "allocation", "shuffle"] | None = declared("sampling")
    rate: Annotated[float, Field(gt=0, le=1)] | None = declared("rate")
    batch: Count | None = declared("batch")
    records: Count | None = declared("records")
    epochs: Positive | None = declared("epochs")
    max_batch: Count | None = declared("max_batch")
    bands: Count | None = declared("bands")
    observed: Word | None = declared("observed")

    def varies(self, name: str) -> bool:
        """Return whether an axis over ``name`` changes the step: n, a sampled step's rate, or a parameter."""
        if name == "rate":
            return self.sampling not in (None, "none")
        if name in ("max_batch", "bands"):
            return self.sampling == "poisson"
        return name == "n" or name in plugin_fields("mechanisms", self.mech)
