"""The schema of a step of a process, with the parameters of its mechanism."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from wpriv.config.field_types import Count, Positive, StrictModel, Word
from wpriv.core import registry

ADJACENCY = "neighbouring relation; left out, it follows from the sampling and the mechanism"
GROUP = "largest number of records of one person, who is protected as a whole; 1 where left out"


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
    n: Count | None = Field(None, description="number of compositions; 1 where neither n nor epochs is given")
    sampling: Literal["none", "poisson", "fixed", "allocation", "shuffle"] | None = Field(
        None,
        description="how records are drawn for each composition: not at all, by Poisson, a fixed number, one "
        "step of each pass for each record (allocation), or shuffled batches (shuffle)",
    )
    rate: Annotated[float, Field(gt=0, le=1)] | None = Field(
        None, description="share of the records that takes part in a composition"
    )
    batch: Count | None = Field(None, description="instead of rate: rate = batch / records")
    records: Count | None = Field(None, description="size of the data set, for batch and epochs")
    epochs: Positive | None = Field(None, description="instead of n: n = epochs / rate, rounded up")
    max_batch: Count | None = Field(
        None, description="for poisson, with records: of more records drawn than this, a random part is kept"
    )
    bands: Count | None = Field(
        None,
        description="for poisson: n steps of a matrix mechanism with so many bands, read as n / bands at bands x rate",
    )
    observed: Word | None = Field(
        None,
        description="for the accountants wdp and bdp: pair distances or gradients of the run, as a .npz or .csv file "
        "or a generator weibull:shape=0.5,...",
    )

    def varies(self, name: str) -> bool:
        """Return whether an axis over ``name`` changes the step: n, a sampled step's rate, or a parameter."""
        if name == "rate":
            return self.sampling not in (None, "none")
        if name in ("max_batch", "bands"):
            return self.sampling == "poisson"
        return name == "n" or name in plugin_fields("mechanisms", self.mech)
