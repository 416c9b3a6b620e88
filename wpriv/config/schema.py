"""The schema of recipes: pydantic models of every kind but train, and of a step with its mechanism's parameters."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, TypeAdapter, field_validator

from wpriv.config.document import Key, abbreviate, as_keys
from wpriv.config.field_types import (
    Claim,
    Count,
    Delta,
    Expect,
    Grid,
    LocalNoise,
    NotNegative,
    Number,
    Positive,
    Printed,
    Rate,
    Repeats,
    StrictModel,
    Text,
    Time,
    Tolerance,
    Word,
    as_list,
    expand_values,
    key,
    optional,
    read_by,
)
from wpriv.config.plain_words import parse_claim
from wpriv.config.release_schema import Release
from wpriv.config.train_schema import Train
from wpriv.core import registry
from wpriv.core.parameters import type_words
from wpriv.spec import KEYS


def declared(name: str) -> Any:
    """A key of ``wpriv.spec`` that may be left out, with the description that is declared there."""
    return Field(None, description=as_keys(KEYS[name]["recipe"]))


def plugin_fields(folder: str, name: object) -> dict[str, dataclasses.Field[object]]:
    """Return the parameters of a mechanism or a table by name; none for an unknown plug-in, or what is no name."""
    if not isinstance(name, str) or not registry.known(folder, name):
        return {}
    cls = registry.mechanism(name) if folder == "mechanisms" else registry.load(folder, name).Params
    return {field.name: field for field in dataclasses.fields(cls)}


class Step(StrictModel):
    """A step of a process; the mechanism's own parameters (sigma, scale, ...) stand beside these keys."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    mech: Word = Field(description="a mechanism; its parameters (sigma, scale, ...) stand beside this key")
    noise_multiplier: Positive | None = declared("noise_multiplier")
    n: Count | None = declared("n")
    sampling: Literal["none", "poisson", "fixed", "allocation", "shuffle"] | None = declared("sampling")
    bins: Count | None = declared("bins")
    rate: Rate | None = declared("rate")
    batch: Count | None = declared("batch")
    records: Count | None = declared("records")
    epochs: Positive | None = declared("epochs")
    max_batch: Count | None = declared("max_batch")
    bands: Count | None = declared("bands")
    min_separation: Count | None = declared("min_separation")
    largest_weight: Positive | None = declared("largest_weight")
    observed: Word | None = declared("observed")

    def varies(self, name: str) -> bool:
        """Return whether an axis over ``name`` changes the step: n, the sampling of a sampled one, or a parameter."""
        if name in ("rate", "batch", "records", "epochs", "bins"):
            return self.sampling not in (None, "none")
        if name in ("max_batch", "bands"):
            return self.sampling == "poisson"
        fields = plugin_fields("mechanisms", self.mech)
        if name in ("min_separation", "largest_weight"):
            return self.sampling in (None, "none") if name == "min_separation" else "sensitivity" in fields
        return name == "n" or name in fields or (name == "noise_multiplier" and "sigma" in fields)


BOUND_COLUMNS = tuple(f"{name}{end}" for name in ("epsilon", "delta") for end in ("", "_lower", "_upper", "_estimate"))
# tables of a process, with the columns that an expected number may be about; plug-ins of tables name their own
PROCESS_TABLES = {
    "bounds": BOUND_COLUMNS,
    "class": ("mean", "variance", "third", "infinity"),
    "loss": ("mass", "density", "class_density", "infinity"),
    "trade-off": ("fnr_lower", "fnr_upper", "tpr_lower", "tpr_upper", "mu_lower", "mu_upper", "mu_regret"),
}


class Sweep(StrictModel):
    """One axis of a grid: a number of the question or of a step, or a parameter of a mechanism; its values."""

    over: Word = key(
        "eps, delta, n, epochs, rate, bins, batch, records, group, max_batch, bands, min_separation, largest_weight, "
        "noise_multiplier, or a parameter of the "
        "mechanism, accountant or table"
    )
    values: Grid


Sweeps = Annotated[
    list[Sweep], BeforeValidator(as_list, json_schema_input_type=Sweep | list[Sweep]), Field(min_length=1, max_length=3)
]


class Part(StrictModel):
    """The keys that a comparison, its panels and its ``quick`` overrides share."""

    process: Annotated[list[Step], Field(min_length=1)] | None = optional("the steps, composed in order")
    cases: dict[str, Annotated[list[Step], Field(min_length=1)]] | None = optional(
        "instead of process: several processes side by side, by name"
    )
    adjacency: Word | None = declared("adjacency")
    group: Count | None = declared("group")
    table: Word = key(
        "bounds (eps or delta by accountants), class or loss (of the privacy loss distribution), or the "
        "name of a table that has its own params and no process",
        "bounds",
    )
    params: dict[str, Any] | None = optional("parameters of a table that is neither bounds, class nor loss")
    accountants: Annotated[list[Word], Field(min_length=1)] | None = optional(
        "for table: bounds: names, with options as name:option=value; or all; pld where left out"
    )
    tol: Tolerance | None = optional("relative width of a certified bracket; 1e-3 where left out")
    eps: NotNegative | None = optional("the eps at which delta is computed")
    eps_per_n: NotNegative | None = optional("instead of eps: eps divided by the number of compositions")
    delta: Delta | None = optional("the delta at which eps is computed")
    repeats: Repeats | None = declared("repeats")
    sweep: Sweeps | None = optional("one axis, or a list of axes whose product is the grid")
    bins: Annotated[int, Field(ge=2, le=100_000)] | None = optional("number of cells of a loss table")
    figure: Word | None = optional("the figure to draw; left out, it follows from the table")
    title: str | None = optional("title above the table and the figure")
    limits: dict[Literal["x", "y"], Annotated[list[Number], Field(min_length=2, max_length=2)]] | None = optional(
        "ends of the axes of the figure, as {y: [0, 1]}"
    )
    expect: list[Expect] = Field(default_factory=list, description="numbers to compare the results with")


class Panel(Part):
    """A panel of a figure: its name, and the keys that differ from the recipe around it."""

    name: Word = key("name of the panel, in the column panel of the table")
    quick: Part | None = optional("keys that differ in a quick run")

    def processes(self) -> dict[str, list[Step]]:
        """Return the cases by name; a single process has an empty name."""
        return self.cases or {"": self.process or []}

    def accountant_names(self) -> list[str]:
        """Return the accountants with ``all`` expanded; one empty name for a table that no accountant computes."""
        words = self.accountants or ["pld"] if self.table == "bounds" else [""]
        return registry.names("accountants") if "all" in words else list(dict.fromkeys(words))

    def axes(self) -> list[tuple[str, list[float]]]:
        """Return each swept quantity with its values, whole numbers where the quantity takes no others."""
        return [(axis.over, expand_values(axis.values, whole=self._is_whole(axis.over))) for axis in self.sweep or []]

    def cell_count(self) -> int:
        """Return the number of cells: cases times accountants times the values of each axis."""
        return math.prod([len(self.processes()), len(self.accountant_names()), *(len(v) for _, v in self.axes())])

    def parameters(self) -> set[str]:
        """Return the parameters of all mechanisms, or the parameters and labels of a table of its own kind."""
        if self.table not in PROCESS_TABLES:
            labels = getattr(registry.load("tables", self.table), "LABELS", ())
            return {*plugin_fields("tables", self.table), *labels}
        steps = [step for steps in self.processes().values() for step in steps]
        return {name for step in steps for name in plugin_fields("mechanisms", step.mech)}

    def options(self, accountants: Iterable[str]) -> dict[str, object]:
        """Return the options of some accountants with their defaults; unknown accountants have none."""
        names = {word.partition(":")[0] for word in accountants} & set(registry.names("accountants"))
        modules = [registry.load("accountants", name) for name in sorted(names)]
        return {name: default for module in modules for name, default in registry.options(module).items()}

    def _is_whole(self, name: str) -> bool:
        """Tell whether a quantity takes whole numbers alone: n, or a parameter of that type."""
        if self.table not in PROCESS_TABLES:
            candidates = [plugin_fields("tables", self.table)]
        elif name in ("n", "bins", "batch", "records", "group", "max_batch", "bands", "min_separation"):
            return True
        else:
            steps = [step for steps in self.processes().values() for step in steps]
            candidates = [plugin_fields("mechanisms", step.mech) for step in steps]
        kinds = [type_words(fields[name]) for fields in candidates if name in fields]
        return any("int" in words and "float" not in words for words in kinds)


class Compare(Part):
    """kind: compare. Accountants, or a table of another kind, over a grid, with a table and a figure as results."""

    kind: Literal["compare"]
    source: str = key("the paper and its reproduced table or figure, or where the job comes from")
    panels: Annotated[list[Panel], Field(min_length=1)] | None = optional(
        "parts of the figure; each takes the keys that it lacks from the recipe around it"
    )
    claims: list[Claim] = Field(
        default_factory=list, description="statements of the paper that do not hold, printed after the table"
    )
    printed: Printed | None = optional(
        "settings that the source prints; pages name those from which a run deviates, beside each number"
    )
    procedure: Text | None = optional("what is computed, in a short phrase, where it is not the paper's procedure")
    time: Time | None = optional("how long the recipe takes")
    quick: Part | None = optional("keys that differ in a quick run (--quick)")

    def rules(self) -> Iterator[tuple[Key, str]]:
        if self.printed is not None:
            yield from self.printed.unknown(Panel)


class Budget(StrictModel):
    """kind: budget. eps at a delta, or delta at an eps, of one process."""

    kind: Literal["budget"]
    source: Word | None = optional("where the job comes from; not used")
    process: Annotated[list[Step], Field(min_length=1)] = key("the steps, composed in order")
    adjacency: Word | None = declared("adjacency")
    group: Count | None = declared("group")
    accountants: list[Word] | None = optional("names, with options as name:option=value; pld where left out")
    tol: Tolerance | None = optional("relative width of a certified bracket; 1e-6 where left out")
    eps: NotNegative | None = optional("the eps at which delta is computed")
    delta: Delta | None = optional("the delta at which eps is computed")
    repeats: Repeats | None = declared("repeats")

    def rules(self) -> Iterator[tuple[Key, str]]:
        if (self.eps is None) == (self.delta is None):
            yield (), "give either eps or delta: one of them is the question, the other the answer"


class Calibrate(Budget):
    """kind: calibrate. Solves for the one parameter of the process that is left out."""

    kind: Literal["calibrate"]  # type: ignore[assignment]
    eps: Positive = key("the eps of the target")
    delta: Delta | None = optional("the delta of the target; left out, pure DP (delta = 0)")

    @field_validator("process")
    @classmethod
    def _one_step(cls, steps: list[Step]) -> list[Step]:
        if len(steps) > 1:
            raise ValueError(f"calibrate solves for one step; found {len(steps)}")
        return steps

    @field_validator("accountants")
    @classmethod
    def _one_accountant(cls, words: list[str] | None) -> list[str] | None:
        if len(words or ["pld"]) != 1 or words == ["all"]:
            raise ValueError(f"calibrate solves by one accountant; found {abbreviate(words)}")
        return words

    def rules(self) -> Iterator[tuple[Key, str]]:
        yield from ()  # eps is given, and delta may be


class Rows(StrictModel):
    """The records to privatise: a data set by name, with the parameters of its reader beside it, or a file."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    name: Word | None = optional("a data set, as mnist or mnist:test")
    file: Word | None = optional(
        "a .npz, .npy or .csv with a record a row, where no name is given; else a parameter of the reader"
    )
    array: Word | None = optional("the array of a .npz with several (default x)")
    header: bool | None = optional(
        "whether the first line of a .csv names its columns; found from its cells where it is clear"
    )
    root: Word | None = optional("folder to look in before $WPRIV_DATA and the system's places")
    limit: Count | None = optional("only the first so many records")


class Privatize(LocalNoise):
    """kind: privatize. Noise on every record: local differential privacy, for a target or a given noise."""

    kind: Literal["privatize"]
    source: Word | None = optional("where the job comes from; not used")
    data: Rows = key("the records to privatise")
    dtype: Literal["float32", "float64"] = key("type of the numbers that are written", "float32")


class PublishedClaim(StrictModel):
    """A published claim, the process that it is about, and the verdict that is expected."""

    name: Word = key("a short name, shown in the table")
    claim: Annotated[Word, read_by(parse_claim)] = key(
        "eps=3,delta=1e-5; eps=1 (pure DP); mu=1; mu=1,fpr=1e-9; rho=0.5; or xi=0.1,rho=0.5"
    )
    process: Annotated[list[Step], Field(min_length=1)] = key("the steps, composed in order")
    adjacency: Word | None = declared("adjacency")
    group: Count | None = declared("group")
    source: str = Field(min_length=1, description="where the claim and the parameters are printed")
    verdict: Literal["proved", "refuted", "open"] | None = optional("the expected verdict; another one is exit code 1")


class Verify(StrictModel):
    """kind: verify. Decides published claims: proved, refuted or open."""

    kind: Literal["verify"]
    source: str = Field(min_length=1, description="where the claims come from")
    time: Time | None = optional("how long the recipe takes")
    published: Annotated[list[PublishedClaim], Field(min_length=1)] = key("the claims, each with its process")


class Truth(StrictModel):
    """What a check of known runs is expected to find."""

    verdict: Literal["proved", "refuted", "contradicted", "incomplete"] = key("the verdict")
    eps: Annotated[list[NotNegative], Field(min_length=1, max_length=2)] | Literal["none"] | None = optional(
        "both ends of eps at the claimed delta, the lower one alone, or none where no finite eps holds"
    )


class Check(StrictModel):
    """kind: check. The premises of one claim beside these keys, as `wpriv list premises` names them."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    kind: Literal["check"]
    title: Word | None = optional("what is special about the run, in a line; shown in the table of a folder")
    source: Word | None = optional("where the claim and the run are described")
    seen: Word | None = optional("where the fault can be seen")
    breaks: Word | None = optional("the premise that does not hold")
    corrected: Text | None = optional("what is not so in the source")
    expect: Truth | None = optional("the expected verdict and eps; others are exit code 1 of `wpriv compare FOLDER`")


KINDS: tuple[type[StrictModel], ...] = (Budget, Calibrate, Check, Compare, Privatize, Release, Train, Verify)
MODELS = {model.__name__.lower(): model for model in KINDS}


def json_schema() -> dict[str, object]:
    """Return the JSON Schema of all kinds of recipe, discriminated by ``kind``."""
    kinds = Annotated[
        Budget | Calibrate | Check | Compare | Privatize | Release | Train | Verify, Field(discriminator="kind")
    ]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "wpriv recipe",
        **TypeAdapter(kinds).json_schema(),
    }
