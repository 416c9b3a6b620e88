"""What a recipe may say: pydantic models of every kind; those of kind train stand in schema_train.py, what kinds share in fields.py."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, TypeAdapter

from wpriv.config.field_types import (
    Claim,
    Count,
    Expect,
    Grid,
    LocalNoise,
    Number,
    Positive,
    Probability,
    StrictModel,
    Time,
    Tolerance,
    Word,
    as_list,
)
from wpriv.config.train_schema import Train

BOUND_COLUMNS = tuple(f"{name}{end}" for name in ("epsilon", "delta") for end in ("", "_lower", "_upper", "_estimate"))
# tables of a process, with the columns that a published number may be about; all others are plug-ins, which name their own
PROCESS_TABLES = {
    "bounds": BOUND_COLUMNS,
    "class": ("mean", "variance", "third", "infinity"),
    "loss": ("mass", "density", "class_density", "infinity"),
}


class Step(StrictModel):
    """One step of a process; the mechanism's own parameters (sigma, scale, ...) stand beside these keys."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    mech: Word
    n: Count | None = Field(None, description="number of compositions")
    sampling: Literal["none", "poisson", "fixed"] | None = None
    rate: Annotated[float, Field(gt=0, le=1)] | None = None
    batch: Count | None = None
    records: Count | None = None
    epochs: Positive | None = None
    observed: Word | None = Field(
        None, description="pair distances or gradients of the run: a .npz or .csv file, or weibull:shape=0.5,..."
    )


class Sweep(StrictModel):
    """One axis of a grid: eps, delta, n, rate, or a parameter of the mechanism, and its values."""

    over: Word
    values: Grid


Sweeps = Annotated[
    list[Sweep], BeforeValidator(as_list, json_schema_input_type=Sweep | list[Sweep]), Field(min_length=1, max_length=3)
]


class Part(StrictModel):
    """What a compare recipe, a panel of it, or its ``quick`` overrides may say."""

    process: Annotated[list[Step], Field(min_length=1)] | None = None
    cases: dict[str, Annotated[list[Step], Field(min_length=1)]] | None = Field(
        None, description="several processes side by side, by name"
    )
    adjacency: Word | None = None
    table: Word = Field(
        "bounds",
        description="bounds of accountants, class or loss (the law of the privacy loss), or one that brings its own parameters",
    )
    params: dict[str, Any] | None = Field(
        None, description="parameters of a table that is neither bounds, class nor loss"
    )
    accountants: Annotated[list[Word], Field(min_length=1)] | None = None
    tol: Tolerance | None = None
    eps: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    eps_per_n: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = Field(
        None, description="eps asked for, per composition"
    )
    delta: Probability | None = None
    sweep: Sweeps | None = Field(None, description="one axis, or a list of axes whose product is the grid")
    bins: Annotated[int, Field(ge=2, le=100_000)] | None = Field(None, description="cells of a loss table")
    figure: Word | None = None
    title: str | None = None
    limits: dict[Literal["x", "y"], Annotated[list[Number], Field(min_length=2, max_length=2)]] | None = None
    expect: list[Expect] = Field(default_factory=list)


class Panel(Part):
    """One panel of a figure: its name, and what differs from the recipe around it."""

    name: Word
    quick: Part | None = None


class Compare(Part):
    """kind: compare. Accountants, or a table of another kind, over a grid, to a table and a figure."""

    kind: Literal["compare"]
    source: str
    panels: Annotated[list[Panel], Field(min_length=1)] | None = None
    claims: list[Claim] = Field(
        default_factory=list, description="statements of the paper that are not borne out, printed after the table"
    )
    time: Time | None = None
    quick: Part | None = None


class Budget(StrictModel):
    """kind: budget. eps at a delta, or delta at an eps, of one process."""

    kind: Literal["budget"]
    source: Word | None = None
    process: Annotated[list[Step], Field(min_length=1)]
    adjacency: Word | None = None
    accountants: list[Word] | None = None
    tol: Tolerance | None = None
    eps: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    delta: Probability | None = None


class Calibrate(Budget):
    """kind: calibrate. Solves for the one parameter of the process that is left out."""

    kind: Literal["calibrate"]  # type: ignore[assignment]
    eps: Positive
    delta: Probability


class Rows(StrictModel):
    """The records to privatise: a data set by name, with the parameters of its reader beside it, or a file."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    name: Word | None = Field(None, description="a data set, as mnist or mnist:test")
    file: Word | None = Field(
        None,
        description="a .npz, .npy or .csv with a record a row, where no name is given; else a parameter of the reader",
    )
    array: Word | None = Field(None, description="the array of a .npz with several (default x)")
    root: Word | None = Field(None, description="folder to look in before $WPRIV_DATA and the system's places")
    limit: Count | None = Field(None, description="only the first so many records")


class Privatize(LocalNoise):
    """kind: privatize. Noise on every record of a data set: local differential privacy for a target, or at a given noise."""

    kind: Literal["privatize"]
    source: Word | None = None
    data: Rows
    dtype: Literal["float32", "float64"] = "float32"


MODELS: dict[str, type[StrictModel]] = {
    "budget": Budget,
    "calibrate": Calibrate,
    "compare": Compare,
    "privatize": Privatize,
    "train": Train,
}


def json_schema() -> dict[str, Any]:
    """The JSON Schema of all recipe kinds, told apart by ``kind``."""
    kinds = Annotated[Budget | Calibrate | Compare | Privatize | Train, Field(discriminator="kind")]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "wpriv recipe",
        **TypeAdapter(kinds).json_schema(),
    }
