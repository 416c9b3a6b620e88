"""What a recipe may say: pydantic models of every kind."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, TypeAdapter, WithJsonSchema, model_validator

from wpriv.core.points import MAX_POINTS, spread, whole
from wpriv.core.process import MAX_COUNT

BOUND_COLUMNS = tuple(f"{name}{end}" for name in ("epsilon", "delta") for end in ("", "_lower", "_upper", "_estimate"))
# tables of a process, with the columns that a published number may be about; all others are plug-ins, which name their own
PRICED = {
    "bounds": BOUND_COLUMNS,
    "class": ("mean", "variance", "third", "infinity"),
    "loss": ("mass", "density", "class_density", "infinity"),
}


def _is_grid(values: Any) -> Any:
    spread(values)
    return values


Count = Annotated[int, BeforeValidator(whole, json_schema_input_type=int | float | str), Field(ge=1, le=MAX_COUNT)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Probability = Annotated[float, Field(gt=0, lt=1)]
Tolerance = Annotated[float, Field(ge=1e-9, le=0.5)]
Word = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Grid = Annotated[Any, BeforeValidator(_is_grid), WithJsonSchema({"description": "numbers, or {linspace|geomspace|powers: [.., .., ..]}"})]


class Strict(BaseModel):
    """Unknown keys, text for a number and a number for text are faults."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Step(Strict):
    """One step of a process; the mechanism's own parameters (sigma, scale, ...) stand beside these keys."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    mech: Word
    n: Count | None = Field(None, description="number of compositions")
    sampling: Literal["none", "poisson", "fixed"] | None = None
    rate: Annotated[float, Field(gt=0, le=1)] | None = None
    batch: Count | None = None
    records: Count | None = None
    epochs: Positive | None = None
    observed: Word | None = Field(None, description="pair distances or gradients of the run: a .npz or .csv file, or weibull:shape=0.5,...")


class Sweep(Strict):
    """One axis of a grid: eps, delta, n, rate, or a parameter of the mechanism, and its values."""

    over: Word
    values: Grid


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, dict) else value


Sweeps = Annotated[list[Sweep], BeforeValidator(_listed, json_schema_input_type=Sweep | list[Sweep]), Field(min_length=1, max_length=3)]


class Expect(Strict):
    """A published number: the row (``where``), the columns with their values, the tolerance and the source."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    where: dict[str, Any] = Field(default_factory=dict)
    within: Positive = Field(description="tolerance, relative unless absolute: true")
    absolute: bool = False
    at_least: bool = Field(False, description="more is as good: only what falls short by more than the tolerance is missed")
    held: bool = Field(True, description="false: shown beside ours and never missed, for a published number that cannot be reproduced")
    source: Word


class Part(Strict):
    """What a compare recipe, a panel of it, or its ``quick`` overrides may say."""

    process: Annotated[list[Step], Field(min_length=1)] | None = None
    cases: dict[str, Annotated[list[Step], Field(min_length=1)]] | None = Field(None, description="several processes side by side, by name")
    adjacency: Word | None = None
    table: Word = Field(
        "bounds", description="bounds of accountants, class or loss (the law of the privacy loss), or one that brings its own parameters"
    )
    params: dict[str, Any] | None = Field(None, description="parameters of a table that is neither bounds, class nor loss")
    accountants: Annotated[list[Word], Field(min_length=1)] | None = None
    tol: Tolerance | None = None
    eps: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    eps_per_n: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = Field(None, description="eps asked for, per composition")
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
    quick: Part | None = None


class Budget(Strict):
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


class Rows(Strict):
    """The records to privatise: a data set by name, with the parameters of its reader beside it, or a file."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    name: Word | None = Field(None, description="a data set, as mnist or mnist:test")
    file: Word | None = Field(
        None, description="a .npz, .npy or .csv with a record a row, where no name is given; else a parameter of the reader"
    )
    array: Word | None = Field(None, description="the array of a .npz with several (default x)")
    root: Word | None = Field(None, description="folder to look in before $WPRIV_DATA and the system's places")
    limit: Count | None = Field(None, description="only the first so many records")


class LocalNoise(Strict):
    """How every record is clipped and made noisy: for a target, or at a given noise."""

    mech: Literal["local-gauss", "local-laplace"]
    eps: Positive | None = None
    delta: Probability | None = None
    sigma: Positive | None = None
    scale: Positive | None = None
    radius: Positive | None = Field(None, description="norm to which every record is clipped")
    center: Number | None = Field(None, description="middle of the ball, for every number of a record (default 0)")
    formula: Literal["analytic", "eq4"] | None = None
    nonnegative: bool = False
    dct: bool = Field(False, description="clip and publish the orthonormal cosine transform of each record")
    quantile: Annotated[float, Field(gt=0, le=1)] | None = None
    public: Word | None = Field(None, description="public records for the quantile: a data set or a file")
    thresholds: Word | None = Field(None, description="a file of what each number is clamped to")
    seed: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    public_labels: bool = False


class Privatize(LocalNoise):
    """kind: privatize. Noise on every record of a data set: local differential privacy for a target, or at a given noise."""

    kind: Literal["privatize"]
    source: Word | None = None
    data: Rows
    dtype: Literal["float32", "float64"] = "float32"


class Named(Strict):
    """A plug-in by its file name; its own parameters stand beside the name."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    name: Word

    def parameters(self) -> dict[str, Any]:
        """What stands beside the keys that every plug-in of its kind has."""
        return dict(self.model_extra or {})


class DataSet(Named):
    """The data set of a training: a reader in ``wpriv/data``, and where to look."""

    root: Word | None = Field(None, description="folder to look in before $WPRIV_DATA and the system's places")
    records: Count | None = Field(None, description="size of the training set that the recipe counts on; another one found is refused")
    limit: Count | None = Field(None, description="take only the first so many training records (and test records)")
    first: Count | None = Field(None, description="take only the first so many training records, and all test records")
    privatize: LocalNoise | None = Field(
        None, description="put noise on the training records before the task sees them, as wpriv privatize does; for experiments"
    )


def _clip(value: Any) -> Any:
    if value == "batch-mean" or (type(value) in (int, float) and 0 < value < float("inf")):
        return value
    raise ValueError("must be a number above 0 (the norm of one example's gradient), or batch-mean")


Clip = Annotated[
    Any,
    BeforeValidator(_clip),
    WithJsonSchema({"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"const": "batch-mean"}]}),
]


class Privacy(Strict):
    """What is promised (eps and delta) or done (sigma). With eps, delta and sigma the run stops before eps is exceeded."""

    eps: Positive | None = None
    delta: Probability | None = None
    sigma: Positive | None = Field(None, description="noise multiplier: standard deviation of the noise over the sensitivity of the sum")
    accountant: Word | None = Field(
        None, description="what finds the noise for eps (default pld); published ones, such as swd-tail:w=clt, may promise too much"
    )
    sampling: Literal["poisson", "fixed", "none"] = "poisson"
    adjacency: Literal["add-remove", "replace-one"] | None = None
    clip: Clip = Field(1.0, description="l2 norm to which each example's gradient is clipped, or batch-mean")
    norm: Positive = Field(1.0, description="with clip: batch-mean, the norm to which the mean gradient of a batch is clipped")
    mask: Annotated[float, Field(ge=0, lt=1)] = Field(0.0, description="share of coordinates set to zero at each step, after the noise")
    pairs: Annotated[int, Field(ge=3, le=100)] = Field(
        8, description="records whose gradients are compared for the accountants bdp and wdp"
    )
    method: Literal["auto", "ghost", "vmap", "loop"] = Field("auto", description="how per-example gradients are clipped; all agree")


class Optimizer(Strict):
    """Plain SGD or Adam on the noisy gradients."""

    name: Literal["sgd", "adam"] = "sgd"
    lr: Positive
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    nesterov: bool = False
    betas: Annotated[list[float], Field(min_length=2, max_length=2)] = Field(default=[0.9, 0.999])
    weight_decay: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    decay: Literal["none", "linear", "cosine"] = Field("none", description="how lr falls to 0 over the run")


def _none_is_a_word(value: Any) -> Any:
    if isinstance(value, dict) and value.get("eps") in ("inf", math.inf):
        return None  # an infinite eps promises nothing
    return None if value == "none" else value


NoPrivacy = Annotated[
    Privacy | None,
    BeforeValidator(_none_is_a_word, json_schema_input_type=Privacy | Literal["none"]),
    Field(description="or the word none (eps: inf is the same): no clipping, no noise, no guarantee"),
]


class Axis(Strict):
    """One axis of a sweep over trainings: a key by its dotted path and its values, or settings that change several keys each."""

    over: Word
    values: Annotated[list[int | float | str], Field(min_length=1, max_length=MAX_POINTS)] | None = None
    settings: Annotated[dict[str, dict[str, Any]], Field(min_length=1, max_length=MAX_POINTS)] | None = Field(
        None, description="keys by their dotted paths and their values, by the name of the setting; 'over' is what tables call the column"
    )

    @model_validator(mode="after")
    def _one_kind(self) -> Axis:
        if (self.values is None) == (self.settings is None):
            raise ValueError("an axis has either values or settings")
        return self

    def points(self) -> list[tuple[int | float | str, dict[str, Any]]]:
        """What tables show of each point, and the keys that it changes."""
        if self.settings is not None:
            return list(self.settings.items())
        return [(value, {self.over: value}) for value in self.values or []]


class Train(Strict):
    """kind: train. A model trained with (or without) differential privacy, and what it costs."""

    kind: Literal["train"]
    source: Word
    task: Word
    data: DataSet
    model: Named
    options: dict[str, Any] = Field(default_factory=dict, description="options of the task")
    privacy: NoPrivacy
    optimizer: Optimizer
    batch: Count | None = Field(None, description="records of a step, on average under Poisson sampling; all of them where left out")
    epochs: Positive | None = None
    steps: Count | None = None
    seed: Annotated[int, Field(ge=0, lt=2**63)] | None = Field(None, description="left out, it comes from the operating system")
    physical: Count | None = Field(None, description="records that go through the model at once; found from memory where left out")
    memory: Annotated[int, Field(ge=16)] = Field(1000, description="megabytes that the activations of one physical batch may take")
    checkpoint: Annotated[float, Field(ge=0)] = Field(60.0, description="seconds between checkpoints; there is one an epoch as well")
    accountants: Annotated[list[Word], Field(min_length=1)] = Field(default=["pld"])
    figure: Word | None = Field(None, description="what draws the metrics, or the table of a sweep (default: training)")
    title: str | None = None
    expect: list[Expect] = Field(default_factory=list)
    sweep: (
        Annotated[
            list[Axis], BeforeValidator(lambda v: _listed(v), json_schema_input_type=Axis | list[Axis]), Field(min_length=1, max_length=4)
        ]
        | None
    ) = Field(None, description="one axis, or a list of axes whose product is the grid")
    quick: dict[str, Any] | None = Field(None, description="keys that differ in a quick run; inner mappings are merged")


MODELS: dict[str, type[Strict]] = {"budget": Budget, "calibrate": Calibrate, "compare": Compare, "privatize": Privatize, "train": Train}


def json_schema() -> dict[str, Any]:
    """The JSON Schema of all recipe kinds, told apart by ``kind``."""
    kinds = Annotated[Budget | Calibrate | Compare | Privatize | Train, Field(discriminator="kind")]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "wpriv recipe", **TypeAdapter(kinds).json_schema()}
