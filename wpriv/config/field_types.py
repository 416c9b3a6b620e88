"""What recipes of several kinds are made of: numbers, words and grids, and the models that more than one kind holds."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, StringConstraints, WithJsonSchema

# tasks declare their options with these two; nothing outside of config/ knows pydantic
from pydantic import BeforeValidator as BeforeValidator
from pydantic import Field as Field

from wpriv.config.sweep_values import expand_values
from wpriv.core.parameters import MAX_COUNT
from wpriv.numerics.parse_numbers import to_int


def _is_grid(values: Any) -> Any:
    expand_values(values)
    return values


Count = Annotated[int, BeforeValidator(to_int, json_schema_input_type=int | float | str), Field(ge=1, le=MAX_COUNT)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Probability = Annotated[float, Field(gt=0, lt=1)]
Share = Annotated[float, Field(ge=0, le=1)]
Tolerance = Annotated[float, Field(ge=1e-9, le=0.5)]
Word = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Text = Annotated[str, StringConstraints(min_length=1, max_length=1000)]
Grid = Annotated[
    Any,
    BeforeValidator(_is_grid),
    WithJsonSchema({"description": "numbers, or {linspace|geomspace|powers: [.., .., ..]}"}),
]


class StrictModel(BaseModel):
    """Unknown keys, text for a number and a number for text are faults."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


def as_list(value: Any) -> Any:
    """One mapping where a list of them may stand."""
    return [value] if isinstance(value, dict) else value


class PluginRef(StrictModel):
    """A plug-in by its file name; its own parameters stand beside the name."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    name: Word

    def parameters(self) -> dict[str, Any]:
        """What stands beside the keys that every plug-in of its kind has."""
        return dict(self.model_extra or {})


class Expect(StrictModel):
    """A published number: the row (``where``), the columns with their values, the tolerance and the source."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    where: dict[str, int | float | str | bool] = Field(default_factory=dict)
    within: Positive = Field(description="tolerance, relative unless absolute: true")
    absolute: bool = False
    at_least: bool = Field(
        False, description="more is as good: only what falls short by more than the tolerance is missed"
    )
    held: bool = Field(
        True, description="false: shown beside ours and never missed, for a published number that cannot be reproduced"
    )
    source: Word


class Claim(StrictModel):
    """A statement of the source that is not borne out here: what the paper says, what this program finds, and the reason."""

    paper: Text = Field(description="what the paper says")
    found: Text = Field(description="what this program finds, with its numbers")
    because: Text = Field(description="why the two differ")


class Time(StrictModel):
    """How long a recipe takes on one core, or on a GPU, and how that is known."""

    seconds: Positive = Field(description="of the whole recipe, all trainings of a sweep together")
    known: Literal["measured", "extrapolated", "estimated"] = Field(
        description="measured on a full run, extrapolated from a part of one, or estimated from the operations of its networks"
    )
    device: Literal["cpu", "cuda"] = Field("cpu", description="cpu: one core; cuda: one GPU")


class LocalNoise(StrictModel):
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
