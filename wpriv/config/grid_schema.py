"""The schema of the grids of trainings: the axes of a sweep, and private tuning, which draws its runs from a grid."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from wpriv.config.field_types import MAX_POINTS, Repeats, StrictModel, Word, as_list


class Axis(StrictModel):
    """An axis of a sweep over trainings: the values of one key, or named settings that change several keys each."""

    over: Word = Field(description="a key by its dotted path, such as privacy.eps; with settings, a name of your own")
    values: Annotated[list[int | float | str], Field(min_length=1, max_length=MAX_POINTS)] | None = Field(
        None, description="the values of that key"
    )
    settings: Annotated[dict[str, dict[str, Any]], Field(min_length=1, max_length=MAX_POINTS)] | None = Field(
        None,
        description="instead of values: several keys by dotted path with their values, for each name; over is the "
        "column of the names in tables",
    )

    @model_validator(mode="after")
    def _one_kind(self) -> Axis:
        if (self.values is None) == (self.settings is None):
            raise ValueError("an axis has either values or settings")
        return self

    def points(self) -> list[tuple[int | float | str, dict[str, Any]]]:
        """Return each point's label in tables, and the keys that it changes."""
        if self.settings is not None:
            return list(self.settings.items())
        return [(value, {self.over: value}) for value in self.values or []]


Axes = Annotated[
    list[Axis],
    BeforeValidator(as_list, json_schema_input_type=Axis | list[Axis]),
    Field(min_length=1, max_length=4),
]


class Score(StrictModel):
    """The figure by which the best run is chosen."""

    column: Word = Field(
        "accuracy", description="a column of metrics.csv that the task measures on test records; its last value counts"
    )
    best: Literal["highest", "lowest"] = Field("highest", description="which value is the best one")
    records: Literal["public"] = Field(
        description="public: the test records are declared public, so that the score costs nothing"
    )

    @field_validator("records", mode="before")
    @classmethod
    def _public(cls, value: Any) -> Any:
        if value != "public":
            raise ValueError(
                "a score on private records is a release of every run, with noise and a cost of its own, which "
                "training does not have. Hold out records that are public and write records: public"
            )
        return value


class Tune(StrictModel):
    """Private tuning: a random number of runs of randomly drawn settings, of which only the best is kept."""

    sweep: Axes = Field(description="the candidate settings: one axis, or a list of axes whose product is the grid")
    repeats: Repeats = Field(description="distribution of the number of runs, such as geometric:mean=20")
    score: Score = Field(description="what decides which run is the best")
